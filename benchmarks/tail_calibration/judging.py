"""Setups that judge the fixed forms: none was trained before the forms were fixed, and none is fitted to before it has judged.

`python -m benchmarks.tail_calibration.judging --data DIR --work DIR [--only NAME ...]` goes on where it stopped;
benchmarks/results/tail_judging/NAME.json appears when a setup is complete. `judge` reads those.

Texts as next letters, as words and as pairs of letters, tables, digits of another source, images at their full size; networks
from early stopped to fully overfit, heavy label noise. All but the last three are of data sets the calibration has no record of;
the last three show it sentences or images of a known source in a form that it has not seen.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.tail_calibration.fresh_pools import FRESH
from benchmarks.tail_calibration.run import RESULTS, calibrated, tell
from benchmarks.tail_calibration.setups import Setup

JUDGED = RESULTS.parent / "tail_judging"
JUDGING = (
    Setup("shakespeare_next_mlp128", "shakespeare_next", 30, (128,)),
    Setup("digits_mlp128_noise40", "digits", 80, (128,), records=1796, label_noise=0.4),
    Setup("visits_mlp64x2", "visits_health", 80, (64, 64)),
    Setup("speaker_mlp64", "shakespeare_speaker", 20, (64,)),
    Setup("marriage_mlp64x2", "marriage_survey", 100, (64, 64), records=6000),
    Setup("source_mlp64", "source_letters", 15, (64,)),
    Setup("wikitext_next_linear", "wikitext_next", 20),
    Setup("digits_mlp64", "digits", 60, (64,), records=1796),
    Setup("energy_mlp64x2", "energy_load", 150, (64, 64), records=768),
    Setup("speaker_mlp64_noise50", "shakespeare_speaker", 25, (64,), label_noise=0.5),
    Setup("visits_mlp128x2_noise30", "visits_health", 150, (128, 128), label_noise=0.3),
    Setup("shakespeare_next_mlp64_early", "shakespeare_next", 6, (64,), weight_decay=1e-3),
    Setup("speaker_linear", "shakespeare_speaker", 15, weight_decay=1e-3),
    Setup("wikitext_next_mlp64x2", "wikitext_next", 25, (64, 64)),
    Setup("digits_linear", "digits", 40, records=1796),
    Setup("sst2_words_linear", "sst2_words", 20),
    Setup("sst2_words_mlp64", "sst2_words", 20, (64,)),
    Setup("cifar10_cnn_mirrored", "cifar10_whole", 24, (128,), channels=(16, 32, 64), lr=2e-3, audited=8, mirrored=True),
)
# Trained when the others had judged: they judge what is made of the others' errors, and nothing is fitted to them.
LATER = ("visits_mlp128x2_noise30", "cifar10_cnn_mirrored")
KNOWN_SOURCES = ("sst2_words_linear", "sst2_words_mlp64", "cifar10_cnn_mirrored")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="where reference models go; run again to go on")
    parser.add_argument("--only", nargs="+", choices=[setup.name for setup in JUDGING], help="some setups")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.work.mkdir(parents=True, exist_ok=True)
    for setup in JUDGING:
        if not arguments.only or setup.name in arguments.only:
            tell(calibrated(setup, arguments.data, arguments.work, results=JUDGED, pools=FRESH, tracing=False))


if __name__ == "__main__":
    main()
