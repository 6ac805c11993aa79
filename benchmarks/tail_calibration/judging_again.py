"""Setups that judge the form of `fixed_again`: named after it was fixed, and trained after that.

`python -m benchmarks.tail_calibration.judging_again --data DIR --work DIR [--only NAME ...]` goes on where it stopped;
benchmarks/results/tail_judging_again/NAME.json appears when a setup is complete. `judge_again` reads those.

Tables of other studies, texts with other questions, pixels with another label; all are small enough for a minute of one core.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from statsmodels.datasets import anes96, fair, randhie

from benchmarks.tail_calibration.fresh_pools import FRESH, bag, standardised, whole_text
from benchmarks.tail_calibration.run import RESULTS, calibrated, tell
from benchmarks.tail_calibration.setups import Setup

JUDGED_AGAIN = RESULTS.parent / "tail_judging_again"
ASKED = 10  # words that may be asked for
BESIDE = 3  # words on either side of it
CLASSES = 5


def election_survey(_data, _):
    """American National Election Study 1996 (statsmodels): which of seven party leanings, from answers about politics."""
    table = anes96.load_pandas().data.drop(columns="vote")
    return standardised(table.drop(columns="PID")), table["PID"].to_numpy().astype(int)


def tumours(_data, _):
    """Wisconsin breast cancer (scikit-learn): benign or malignant, from thirty measures of cells."""
    x, y = load_breast_cancer(return_X_y=True)
    return (x - x.mean(0)) / x.std(0), y


def affairs_survey(_data, _):
    """The survey of marriages with another question: affairs or none. Known source."""
    table = fair.load_pandas().data
    return standardised(table.drop(columns="affairs")), (table["affairs"].to_numpy() > 0).astype(int)


def illness_health(_data, _):
    """RAND Health Insurance Experiment with another question: illness in five classes. Known source."""
    table = randhie.load_pandas().data
    illness = table["disea"].to_numpy()
    edges = np.quantile(illness, np.arange(1, CLASSES) / CLASSES)
    return standardised(table.drop(columns="disea")), np.searchsorted(edges, illness, side="right")


def cooling_load(data, _):
    """UCI Energy Efficiency: cooling load in five classes. Known source."""
    rows = np.genfromtxt(data / "energy_efficiency/ENB2012_data.csv", delimiter=",", skip_header=1)
    x, load = rows[:, :8], rows[:, 9]
    return (x - x.mean(0)) / x.std(0), np.searchsorted(np.quantile(load, np.arange(1, CLASSES) / CLASSES), load, side="right")


def parity_of_digits(_data, _):
    """Handwritten digits, even or odd. Known source."""
    x, y = load_digits(return_X_y=True)
    return (x - x.mean()) / x.std(), y % 2


def _missing_word(text):
    """Which of the ten commonest words stands in a gap, from the words beside it; gaps that do not overlap."""
    words = [word for word in text.lower().split() if word.isalpha()]
    names, counts = np.unique(words, return_counts=True)
    asked = {name: number for number, name in enumerate(names[np.argsort(-counts, kind="stable")][:ASKED])}
    found, labels, place = [], [], BESIDE
    while place < len(words) - BESIDE:
        if words[place] in asked:
            found.append(" ".join(words[place - BESIDE : place] + words[place + 1 : place + 1 + BESIDE]))
            labels.append(asked[words[place]])
            place += 2 * BESIDE
        place += 1
    return bag(found), np.array(labels)


def shakespeare_gap(data, _):
    """Tiny Shakespeare as gaps. Known source, another question."""
    return _missing_word(whole_text(data, "tinyshakespeare"))


def wikitext_gap(data, _):
    """WikiText-2's validation part as gaps. Known source, another question."""
    return _missing_word(whole_text(data, "wikitext2_valid").replace("<unk>", ""))


POOLS = FRESH | {
    made.__name__: made
    for made in (
        election_survey,
        tumours,
        affairs_survey,
        illness_health,
        cooling_load,
        parity_of_digits,
        shakespeare_gap,
        wikitext_gap,
    )
}
# Of data sets that neither the calibration nor the first judging setups have a record of.
UNSEEN = ("election_mlp64x2", "election_linear", "tumours_mlp64")
JUDGING_AGAIN = (
    Setup("election_mlp64x2", "election_survey", 80, (64, 64), records=944),
    Setup("wikitext_gap_mlp64", "wikitext_gap", 12, (64,)),
    Setup("affairs_mlp64x2", "affairs_survey", 60, (64, 64), records=4000),
    Setup("election_linear", "election_survey", 60, records=944, lr=1e-2),
    Setup("shakespeare_gap_linear", "shakespeare_gap", 15),
    Setup("illness_mlp64x2", "illness_health", 60, (64, 64)),
    Setup("tumours_mlp64", "tumours", 60, (64,), records=568),
    Setup("parity_mlp64_noise20", "parity_of_digits", 60, (64,), records=1796, label_noise=0.2),
    Setup("cooling_mlp64x2", "cooling_load", 120, (64, 64), records=768),
    Setup("shakespeare_gap_mlp64_noise30", "shakespeare_gap", 12, (64,), label_noise=0.3),
    Setup("visits_mlp128x2_noise30", "visits_health", 150, (128, 128), label_noise=0.3),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="where reference models go; run again to go on")
    parser.add_argument("--only", nargs="+", choices=[setup.name for setup in JUDGING_AGAIN], help="some setups")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.work.mkdir(parents=True, exist_ok=True)
    for setup in JUDGING_AGAIN:
        if not arguments.only or setup.name in arguments.only:
            tell(calibrated(setup, arguments.data, arguments.work, results=JUDGED_AGAIN, pools=POOLS, tracing=False))


if __name__ == "__main__":
    main()
