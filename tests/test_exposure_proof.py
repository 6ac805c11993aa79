"""The proof of exposure: its truth, its rivals and its measures against simulation and by hand."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from benchmarks.exposure import rivals
from benchmarks.exposure.evidence import first_models, source_of
from benchmarks.exposure.learnt import fitted, savage_scores
from benchmarks.exposure.measures import tenths
from benchmarks.exposure.setups import CALIBRATION, JUDGING, SETUPS
from benchmarks.exposure.training import fold_numbers, half, kept_epochs
from benchmarks.exposure.truth import FPRS, measured_rates, null_bias, predicted_rates, separation
from benchmarks.papers.settings import SETTINGS

import noshadow as ns


@dataclass(frozen=True)
class Known:
    """What `predicted_rates` reads of an Exposure."""

    direction: str
    separation: np.ndarray
    variance: np.ndarray
    spread_in: np.ndarray
    spread_out: np.ndarray
    ratio_variance: np.ndarray


def simulated(models, n, gap, seed=0):
    rng = np.random.default_rng(seed)
    membership = rng.random((models, n)) < 0.5
    return rng.normal(size=(models, n)) * np.where(membership, 0.5, 1.0) + gap * membership + rng.normal(size=n), membership


def test_a_record_that_all_truth_models_had_has_no_separation():
    margins, membership = (
        np.full((4, 3), -5.0) + np.arange(12).reshape(4, 3) / 10,
        np.array([[True, False, True]] * 2 + [[True, False, False]] * 2),
    )
    with np.errstate(all="raise"):
        found, error = separation(margins, membership)
    assert found[0] == found[1] == 0 and found[2] < 0 and np.isfinite(error).all()


def test_the_true_separation_is_unbiased_and_knows_its_error():
    margins, membership = simulated(40, 20_000, 1.5)
    found, error = separation(margins, membership)
    real = 1.5 / np.sqrt((0.25 + 1) / 2)
    # 20,000 records with an error of 0.3 each: the mean is known to 0.002, Hedges' factor to second order in 1/20.
    assert found.mean() == pytest.approx(real, abs=0.02)
    assert np.sqrt(np.mean(error**2)) == pytest.approx(found.std(), rel=0.06)


def test_measured_rates_are_the_false_positive_rates_where_nothing_leaks():
    rng = np.random.default_rng(1)
    membership = rng.random((40, 20_000)) < 0.5
    margins = rng.normal(size=(40, 20_000))
    for direction in ("larger", "either"):
        # 400,000 models beyond a threshold with a rate of 0.001: a relative error of 0.05, and thresholds of n − 1 models instead of n.
        np.testing.assert_allclose(measured_rates(margins, membership, direction).mean(1), FPRS, rtol=0.2)


@pytest.mark.parametrize("direction", ["larger", "either"])
def test_predicted_rates_are_those_of_a_threshold_from_few_models(direction):
    gap, models, n = 2.0, 40, 20_000
    margins, membership = simulated(models, n, gap, 3)
    rates = measured_rates(margins, membership, direction)
    known = Known(direction, np.full(n, gap), np.zeros(n), np.full(n, 0.5), np.ones(n), np.zeros(n))
    for fpr, rate in zip(FPRS, rates, strict=True):
        predicted = predicted_rates(known, (~membership).sum(0), fpr)
        # The threshold's noise is taken as normal: good to a hundredth.
        assert predicted.mean() == pytest.approx(rate.mean(), abs=0.015)


def test_lira_without_a_leak_is_a_coin():
    for balanced in (True, False):
        found = null_bias(32, balanced=balanced, records=4000)
        for variance in ("record", "global"):
            assert found[variance]["success"] == pytest.approx(0.5, abs=0.03)
            assert found[variance]["d_prime"] == pytest.approx(0, abs=0.02)


def test_lira_with_pooled_variance_is_that_of_the_package():
    margins, membership = simulated(16, 3000, 1.0, 2)
    enough = (membership.sum(0) > 1) & ((~membership).sum(0) > 1)
    margins, membership = margins[:, enough], membership[:, enough]
    target = margins[0] + 0.1
    member = np.ones(enough.sum(), bool)
    source = source_of("references", margins, membership, member)
    ours = rivals.lira(target, source, "larger")["lira_pooled"]
    theirs = ns.attacks.lira_scores(target, margins, membership, variance="global")
    # The package divides by n, the rivals by n − 1: the order is the same but for a factor of about 8/7 on either side.
    assert np.corrcoef(ours, theirs)[0, 1] > 0.9999


def test_rivals_rank_by_hand():
    rows = np.array([[3.0, 0.0, 1.0], [1.0, 2.0, 1.0]])
    inside = np.array([[True, False, True], [False, True, False]])
    source = source_of("references", rows, inside, np.ones(3, bool))
    own = np.array([4.0, 3.0, 1.0])
    np.testing.assert_allclose(rivals.differences(own, source, "larger"), [3.5 - 1, 2.5 - 0, 1 - 1])
    np.testing.assert_allclose(rivals.label_quality(source, "larger"), [-1, 0, -1])
    assert len(first_models(source, 1, 1).margins) == 1


def test_rmia_counts_the_records_whose_ratio_is_exceeded_twice():
    member = np.array([True, True, False, False])
    own, rows = np.array([2.0, 0.0, 0.0, 0.0]), np.zeros((2, 4))
    inside = np.array([[True] * 4, [False] * 4])
    # p = 0.88 over ½ against 1 for the others: 1.76 is not twice; a margin of −3 in both references makes it 18 times.
    np.testing.assert_array_equal(rivals.rmia(own, member, rows, inside, "classification"), [0, 0])
    rows[:, 0] = -3
    np.testing.assert_array_equal(rivals.rmia(own, member, rows, inside, "classification"), [1, 0])


def test_tenths_of_a_calibrated_prediction_have_no_error():
    rng = np.random.default_rng(0)
    predicted = rng.random(50_000)
    found = tenths(predicted, (rng.random(50_000) < predicted).astype(float))
    # 5,000 records a tenth: a standard error of 0.007 each.
    assert found["error"] < 0.01 and found["worst"] < 0.025
    assert tenths(predicted, predicted - 0.2)["error"] == pytest.approx(0.2)


def test_a_learnt_weighting_finds_the_column_that_tells():
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(3):
        columns = {name: rng.normal(size=2000) for name in ("shift", "margin")}
        tables.append({"tables": [(columns, columns["shift"] + 0.3 * rng.normal(size=2000))]})
    coefficients = fitted(tables, ["margin", "shift"])
    assert coefficients[1] > 10 * abs(coefficients[0])
    np.testing.assert_allclose(savage_scores(np.array([1.0, 2.0, 3.0])), -np.log([0.75, 0.5, 0.25]))


def test_halves_are_independent_and_folds_share_out_the_members():
    first, second = half(0, 1000), half(1, 1000)
    assert first.sum() == second.sum() == 500 and 200 < (first & second).sum() < 300
    numbers = fold_numbers(0, first, 5)
    assert set(np.bincount(numbers[first])) == {100} and (numbers[~first] == -1).all()
    assert kept_epochs(40)[-1] == 40 and kept_epochs(3).tolist() == [1, 2, 3]


def test_no_calibration_setup_is_a_judging_setting():
    assert len(CALIBRATION) >= 12 and not {setup.name for setup in CALIBRATION} & set(SETTINGS)
    # Settings in the papers' own shape or scale came later, and judge the scores of one model alone.
    later = {"fashion_depths", "fashion_probe", "cifar10_full", "cifar100_full", "sst2_minilm"}
    assert {setup.name for setup in JUDGING} == set(SETTINGS) - later and all(setup.judging for setup in JUDGING)
    assert len(SETUPS) == len(CALIBRATION) + len(JUDGING)


def test_the_page_shows_every_measure_that_was_stored():
    """Recall, precision and Spearman by d′ and by success, and label quality from as many folds as the goals go by."""
    root = Path(__file__).parents[1]
    page = (root / "docs" / "exposure.md").read_text()
    stored = json.loads((root / "benchmarks" / "results" / "exposure" / "california_mlp.json").read_text())["methods"]
    for measure, words in (("precision", "precision@1 %"), ("recall", "recall"), ("spearman", "Spearman")):
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {words} | and 2 references |"))
        cell = row.split(" | ")[5]
        own = [stored["exposure_2"][truth][measure]["mean"] for truth in ("d_prime", "success")]
        assert cell == " / ".join(f"{value:.2f}" if measure == "spearman" else f"{100 * value:.0f}" for value in own)
    assert "| out-of-fold label quality, 5 folds |" in page
