"""[TAIL]'s tables on our setups: the stored figures follow from the stored setups, computed here by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
FOUND = json.loads((RESULTS / "tail_published.json").read_text())
SETUPS = [json.loads(path.read_text()) for path in sorted((RESULTS / "tail_calibration").glob("*.json"))]
COLUMNS = {"tnr": "tnr_0.001", "accuracy_gap": "accuracy_gap", "rmia": "rmia_k2_tpr_0.001"}
MEASURED = (("targets", "tnr_0.001"), ("targets", "rmia_k2_tpr_0.001"), ("traced", "lt_iqr_auc"))
# Stored figures have four decimals.
DIGITS = 6e-5


def means(name):
    return np.array([np.mean(setup["targets"][name]) for setup in SETUPS])


def left_out_rmse(x, y):
    """Each data set from a line through the origin fitted to the others."""
    sets = np.array([setup["setup"]["data"].split("_")[0] for setup in SETUPS])
    slopes = np.array([x[sets != own] @ y[sets != own] / (x[sets != own] @ x[sets != own]) for own in sets])
    return np.sqrt(np.mean((y - np.clip(slopes * x, 0, 1)) ** 2))


@pytest.mark.parametrize("rule", ["record", "global"])
@pytest.mark.parametrize("name", COLUMNS)
def test_table_1_is_that_of_the_setups(name, rule):
    x, y = means(COLUMNS[name]), means(f"lira_{rule}_tpr_0.001")
    row = FOUND["table1"][rule][name]
    slope = x @ y / (x @ x)
    assert row["coefficients"][0] == pytest.approx(slope, rel=1e-3)
    errors = y - slope * x
    assert row["in_sample"]["r2"] == pytest.approx(1 - errors @ errors / ((y - y.mean()) ** 2).sum(), abs=DIGITS)
    assert row["in_sample"]["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), abs=DIGITS)
    assert row["in_sample"]["mae"] == pytest.approx(np.abs(errors).mean(), abs=DIGITS)
    assert row["left_out"]["rmse"] == pytest.approx(left_out_rmse(x, y), abs=DIGITS)
    assert row["spread"] == pytest.approx(y.std(), abs=DIGITS)


def test_the_change_of_rule_makes_most_of_the_jump_in_slope():
    tnr = means("tnr_0.001")
    pooled32, pooled64, own64 = (tnr @ means(f"{name}_tpr_0.001") / (tnr @ tnr) for name in ("lira_k32", "lira_global", "lira_record"))
    share = FOUND["slopes"]["share_of_jump_by_rule"]
    assert share == pytest.approx((own64 - pooled64) / (own64 - pooled32), abs=1e-3) and share > 0.5
    growing = [row["slope"] for row in FOUND["slopes"]["global"].values()]
    assert growing == sorted(growing)


def test_the_exponential_law_is_best_in_its_own_regime_only():
    by_form = {name: {form: row["in_sample"]["r2"] for form, row in forms.items()} for name, forms in FOUND["table2"].items()}
    own = by_form["train accuracy above 0.9, clean labels"]
    assert max(own, key=own.get) == "exponential" and own["exponential"] > 0.9
    assert by_form["all"]["exponential"] - by_form["all"]["linear"] < 0.01


def test_the_page_shows_every_figure_that_was_drawn():
    page = (RESULTS.parents[1] / "docs" / "calibration.md").read_text()
    for name in ("figure3", "figure4", "figure8"):
        assert f"images/calibration/{name}.svg" in page
        assert (RESULTS.parents[1] / "docs" / "images" / "calibration" / f"{name}.svg").exists()


def test_the_page_says_over_how_many_models_each_measure_is_a_mean():
    page = (RESULTS.parents[1] / "docs" / "calibration.md").read_text()
    counts = [[len(setup[part][name]) for setup in SETUPS] for part, name in MEASURED]
    tnr, rmia, traced = (f"{min(found)} to {max(found)}" if len(set(found)) > 1 else f"{found[0]}" for found in counts)
    assert f"{tnr} for TNR, {rmia} for RMIA, {traced} for LT-IQR" in page
