"""The gate: limits on what is best known, on what was measured and on the most exposed record; README's lines in their order."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from noshadow.results import load
from test_answer import attack, exposed, predicted, truth

README = Path(__file__).parents[1] / "README.md"
TARGETS = """
import noshadow as ns
from noshadow.demo import WEIGHT_DECAY, digit_halves, train_network
def function():
    train, test = digit_halves(0)
    return ns.Target(train_network(*train, seed=0, progress=False), train, test, weight_decay=WEIGHT_DECAY)
"""


def rows(run, *arguments):
    code, out, err = run("gate", *arguments, "--json")
    assert err == ""
    return code, {row["figure"]: row for row in json.loads(out)["limits"]}


def test_a_limit_on_the_rate_follows_the_measurement_and_no_longer_the_prediction(run, tmp_path):
    audit = predicted(0.12, (0.05, 0.2))
    audit.save(tmp_path / "before")
    replace(audit, ground_truth=truth(attack("LiRA", 0.61), attack("RMIA", 0.5))).save(tmp_path / "after")
    code, held = rows(run, tmp_path / "before", "--max-tpr", 0.2)
    assert code == 0 and (held["tpr"]["value"], held["tpr"]["source"]) == (0.12, "predicted")
    code, held = rows(run, tmp_path / "after", "--max-tpr", 0.2, "--max-predicted-tpr", 0.2, "--max-measured-tpr", 0.7)
    assert code == 1 and [row["passed"] for row in held.values()] == [False, True, True]
    assert (held["tpr"]["value"], held["tpr"]["source"], held["tpr"]["attack"]) == (0.61, "measured", "LiRA")
    assert held["measured_tpr"]["interval"] == [0.59, 0.63]
    code, out, err = run("gate", tmp_path / "after", "--max-tpr", 0.2)
    assert (code, err) == (1, "") and out.startswith(
        "FAIL  tpr = 0.61 (0.59–0.63), limit 0.2; 610 in 1,000. Measured on this model by LiRA"
    )
    assert out.splitlines()[-1] == "1 of 1 limit exceeded: tpr 0.61 > 0.2"


def test_the_most_exposed_record_has_a_limit_of_its_own(run, tmp_path):
    rates = np.full(200, 0.01)
    rates[7] = 0.8
    exposed(rates, rates / 2, np.minimum(2 * rates, 1.0)).save(tmp_path / "a")
    code, held = rows(run, tmp_path / "a", "--max-tpr", 0.1, "--max-record-rate", 0.5)
    assert code == 1 and held["tpr"]["passed"] and not held["record_rate"]["passed"]
    assert (held["record_rate"]["value"], held["record_rate"]["interval"], held["record_rate"]["source"]) == (0.8, [0.4, 1.0], "exposure")
    assert run("gate", tmp_path / "a", "--max-record-rate", 0.8, "--quiet") == (0, "", "")  # the limit itself is allowed


@pytest.mark.parametrize(
    ("option", "how"), [("--max-measured-tpr", "noshadow reference score"), ("--max-record-rate", "--reference-models 4")]
)
def test_what_was_not_measured_ends_with_2_and_how_to_measure_it(run, tmp_path, option, how):
    predicted(0.1, (0.05, 0.2)).save(tmp_path / "a")
    code, out, err = run("gate", tmp_path / "a", option, 0.5)
    assert (code, out) == (2, "") and f"for {option}; got none" in err and how in err


def test_without_test_records_no_rate_is_known(run, tmp_path):
    audit = predicted(0.1, (0.05, 0.2))
    absent = {"model_risk": "not applicable: the test split is empty"}
    replace(audit, model_risk=None, nonmember_losses=np.empty(0), not_applicable=absent).save(tmp_path / "a")
    code, _, err = run("gate", tmp_path / "a", "--max-tpr", 0.5)
    assert code == 2 and "the test split is empty" in err and "Audit again with test records" in err


def test_the_lines_of_the_readme_work_one_after_the_other(run):
    """The first `noshadow audit` for a function and the first `noshadow gate`, with the demo's target as that function."""
    text = README.read_text(encoding="utf-8")
    (audit, named, folder), (gate, limits) = (
        re.search(pattern, text, flags=re.MULTILINE).groups()
        for pattern in (r"^\$ noshadow (audit (\w+:\w+) --out (\S+))", r"^\$ noshadow (gate \S+ ((?:--max-\S+ [\d.]+ ?)+))")
    )
    Path("demonstration.py").write_text(TARGETS)
    code, _, err = run(*audit.replace(named, "demonstration:function").split())
    assert (code, err) == (0, "") and limits and gate.split()[1] == folder
    code, out, err = run(*gate.split())
    assert code in (0, 1) and err == "" and out.startswith(("pass", "FAIL")), err
    # Whatever the limits are, the best known rate of this model can be limited.
    assert rows(run, folder, "--max-tpr", 1)[1]["tpr"]["fpr"] == load(folder).model_risk.fpr
