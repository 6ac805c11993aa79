import json
import math
from dataclasses import FrozenInstanceError, replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from noshadow.checks import InputError
from noshadow.metrics import loss_auc, loss_threshold, tnr_at_fnr
from noshadow.results import ModelRisk, TnrCurve
from noshadow.tail import model_risk, resampling
from noshadow.tail.resampling import Steps, atoms_of, distance_draws, tnr_draws

DISTANCES = ("auc", "loss_gap", "ks", "wasserstein")


def overfit_losses(n_in=2000, n_out=1500, *, seed=0, decimals=12):
    """Members fitted, non-members with a heavy tail, as an overfit classifier leaves them."""
    rng = np.random.default_rng(seed)
    return (rng.exponential(0.05, n_in) ** 1.5).round(decimals), (rng.exponential(0.8, n_out) ** 1.5).round(decimals)


def exact_distances(members, nonmembers):
    return {
        "auc": roc_auc_score(np.r_[np.ones(len(members)), np.zeros(len(nonmembers))], -np.r_[members, nonmembers]),
        "loss_gap": nonmembers.mean() - members.mean(),
        "ks": scipy.stats.ks_2samp(members, nonmembers).statistic,
        "wasserstein": scipy.stats.wasserstein_distance(members, nonmembers),
    }


def steps_of(members, nonmembers):
    return Steps.of(np.sort(members), np.sort(nonmembers))


def naive_draws(members, nonmembers, statistic, *, resamples, seed):
    rng = np.random.default_rng(seed)
    return np.array([statistic(rng.choice(members, len(members)), rng.choice(nonmembers, len(nonmembers))) for _ in range(resamples)])


def simple_distances(members, nonmembers):
    grid = np.sort(np.r_[members, nonmembers])
    below = [np.searchsorted(np.sort(sample), grid, side="right") / len(sample) for sample in (members, nonmembers)]
    lead = np.abs(below[0] - below[1])
    return loss_auc(members, nonmembers), nonmembers.mean() - members.mean(), lead.max(), lead[:-1] @ np.diff(grid)


@pytest.mark.parametrize("decimals", [1, 12])
@pytest.mark.parametrize("sizes", [(300, 500), (4000, 3000)])
def test_values_equal_scipy_and_scikit_learn(decimals, sizes):
    members, nonmembers = overfit_losses(*sizes, decimals=decimals)
    risk = model_risk(members, nonmembers, resamples=100)
    for name, expected in exact_distances(members, nonmembers).items():
        # Sums of thousands of terms of order one.
        assert getattr(risk, name) == pytest.approx(expected, abs=1e-11), name
    assert risk.threshold == loss_threshold(members, risk.fpr)
    assert risk.tnr == tnr_at_fnr(members, nonmembers, risk.fpr)
    assert (risk.n_members, risk.n_nonmembers) == sizes


def test_an_overfit_model_is_risky_and_swapping_the_samples_reverses_it():
    members, nonmembers = overfit_losses()
    risk, swapped = model_risk(members, nonmembers), model_risk(nonmembers, members)
    assert risk.tnr > 100 * risk.fpr
    assert risk.auc > 0.9
    assert risk.loss_gap > 0
    assert swapped.tnr == 0.0
    assert swapped.auc == pytest.approx(1 - risk.auc, abs=1e-12)
    assert swapped.loss_gap == pytest.approx(-risk.loss_gap, abs=1e-12)


def test_same_distribution_gives_tnr_near_the_level_and_auc_near_half():
    rng = np.random.default_rng(11)
    risk = model_risk(rng.exponential(size=20000), rng.exponential(size=20000), fpr=0.01)
    # Standard error of a share of 0.01 in 20,000 is 0.0007 on each side; of the AUC 0.003.
    assert risk.tnr == pytest.approx(0.01, abs=0.004)
    assert risk.auc == pytest.approx(0.5, abs=0.012)
    assert risk.auc_interval[0] < 0.5 < risk.auc_interval[1]


@given(st.integers(0, 10**6), st.floats(0.01, 100), st.floats(0, 50))
@settings(max_examples=20, deadline=None)
def test_ranks_decide_tnr_and_auc(seed, scale, shift):
    members, nonmembers = overfit_losses(60, 50, seed=seed, decimals=2)
    risk = model_risk(members, nonmembers, fpr=0.1, resamples=100)
    moved = model_risk(np.arcsinh(members) * scale + shift, np.arcsinh(nonmembers) * scale + shift, fpr=0.1, resamples=100)
    for name in ("tnr", "tnr_interval", "auc", "auc_interval", "ks", "ks_interval", "curve"):
        assert getattr(moved, name) == getattr(risk, name), name


def test_order_does_not_matter_and_inputs_stay_as_they_were():
    members, nonmembers = overfit_losses(200, 150)
    kept = members.copy(), nonmembers.copy()
    assert model_risk(members[::-1], nonmembers[::-1], resamples=100) == model_risk(members, nonmembers, resamples=100)
    assert np.array_equal(members, kept[0])
    assert np.array_equal(nonmembers, kept[1])


def test_torch_losses_are_taken():
    members, nonmembers = overfit_losses(50, 40)
    assert model_risk(torch.tensor(members), torch.tensor(nonmembers), resamples=100) == model_risk(members, nonmembers, resamples=100)


def test_equal_losses_carry_no_risk():
    risk = model_risk(np.full(30, 0.75), np.full(20, 0.75))
    assert (risk.tnr, risk.auc, risk.loss_gap, risk.ks, risk.wasserstein) == (0.0, 0.5, 0.0, 0.0, 0.0)
    assert risk.tnr_interval == risk.loss_gap_interval == risk.ks_interval == risk.wasserstein_interval == (0.0, 0.0)
    assert risk.auc_interval == (0.5, 0.5)
    assert set(risk.curve.tnr) == {0.0}


@pytest.mark.parametrize("n", [40, 6000])
def test_apart_samples_have_rates_of_exactly_one(n):
    rng = np.random.default_rng(1)
    risk = model_risk(rng.random(n), 1 + rng.random(n), resamples=100)
    assert (risk.tnr, risk.auc, risk.ks) == (1.0, 1.0, 1.0)
    assert risk.tnr_interval == risk.auc_interval == risk.ks_interval == (1.0, 1.0)


@pytest.mark.parametrize(
    ("sizes", "expected"), [((5000, 2000), 1e-3), ((1000, 1000), 1e-3), ((400, 5000), 1 / 400), ((5000, 300), 1 / 300), ((2, 3), 0.5)]
)
def test_auto_level_is_a_thousandth_or_the_smallest_resolved(sizes, expected):
    members, nonmembers = overfit_losses(*sizes)
    risk = model_risk(members, nonmembers, resamples=100)
    assert risk.fpr == expected
    assert risk.tnr == tnr_at_fnr(members, nonmembers, expected)


def test_the_smallest_level_named_in_the_error_is_accepted():
    members, nonmembers = overfit_losses(700, 300)
    with pytest.raises(InputError, match=r"fpr must be at least (0\.003\d+), the smallest level that 300 records") as refused:
        model_risk(members, nonmembers, fpr=0.001)
    named = float(str(refused.value).split("at least ")[1].split(",")[0])
    assert model_risk(members, nonmembers, fpr=named, resamples=100).fpr == named


@pytest.mark.parametrize("misses", [0, 1, 4, 19])
def test_drawn_thresholds_have_the_law_of_resampling(misses):
    n, rounds = 20, 40000
    members, nonmembers = np.arange(n) + 0.5, np.arange(n) * 1.0
    drawn = tnr_draws(members, nonmembers, np.array([misses]), rounds, np.random.default_rng(misses))[0]
    rng = np.random.default_rng(50 + misses)
    taus = np.sort(rng.choice(members, (rounds, n)), axis=1)[:, n - 1 - misses]
    naive = (rng.choice(nonmembers, (rounds, n)) > taus[:, None]).mean(axis=1)
    # Two-sample Kolmogorov distance at the 1e-4 level: 2.23 · sqrt(2 / rounds).
    assert scipy.stats.ks_2samp(drawn, naive).statistic < 2.23 * math.sqrt(2 / rounds)


@pytest.mark.parametrize("decimals", [1, 12])
def testdistance_draws_have_the_law_of_resampling(decimals):
    members, nonmembers = overfit_losses(60, 45, decimals=decimals)
    rounds = 4000
    drawn = distance_draws(atoms_of(steps_of(members, nonmembers)), rounds, np.random.default_rng(3))
    naive = naive_draws(members, nonmembers, simple_distances, resamples=rounds, seed=4).T
    for name, ours, theirs in zip(DISTANCES, drawn, naive, strict=True):
        # As above, the 1e-4 level; rounding merges values that are equal but for the last digits.
        assert scipy.stats.ks_2samp(ours.round(9), theirs.round(9)).statistic < 2.23 * math.sqrt(2 / rounds), name


@pytest.mark.parametrize("most", [64, 256])
def test_gathering_losses_into_atoms_keeps_the_intervals(most):
    rng = np.random.default_rng(9)
    members, nonmembers = rng.exponential(0.2, 3000) ** 1.5, rng.pareto(2.5, 2500)
    steps = steps_of(members, nonmembers)
    gathered, every = atoms_of(steps, most), atoms_of(steps, 10**6)
    assert gathered.counts.shape[1] <= most < every.counts.shape[1]
    ours = distance_draws(gathered, 3000, np.random.default_rng(1))
    exact = distance_draws(every, 3000, np.random.default_rng(2))
    for name, a, b in zip(DISTANCES, ours, exact, strict=True):
        ends, expected = np.quantile(a, (0.025, 0.975)), np.quantile(b, (0.025, 0.975))
        # Standard error of a 2.5 % quantile of 3,000 draws is about 0.05 standard deviations; two of them, four sigmas.
        assert np.abs(ends - expected).max() < 0.3 * b.std(), name
        assert a.std() == pytest.approx(b.std(), rel=0.08), name


def test_atoms_hold_every_record_and_part_no_ties():
    rng = np.random.default_rng(7)
    members, nonmembers = np.r_[np.zeros(3000), rng.random(3000)], np.r_[np.zeros(100), rng.random(6000) * 2]
    steps = steps_of(members, nonmembers)
    atoms = atoms_of(steps, 100)
    assert atoms.counts.shape[1] <= 100
    assert atoms.counts.sum(axis=1).tolist() == [6000, 6100]
    assert atoms.counts[:, 0].tolist() == [3000, 100]
    # The statistics of the atoms themselves, resampled into exactly what was observed, are those of the losses.
    before = np.cumsum(atoms.counts[0]) - atoms.counts[0]
    auc = (atoms.counts[1] * (before + atoms.counts[0] * atoms.wins)).sum() / (6000 * 6100)
    assert auc == pytest.approx(loss_auc(members, nonmembers), abs=1e-12)
    lead = np.cumsum(atoms.counts[0]) / 6000 - np.cumsum(atoms.counts[1]) / 6100
    assert np.abs(lead).max() == pytest.approx(steps.ks(), abs=1e-12)


def test_very_coarse_atoms_still_centre_auc_and_gap_on_their_values():
    members, nonmembers = overfit_losses(800, 700)
    drawn = distance_draws(atoms_of(steps_of(members, nonmembers), 6), 4000, np.random.default_rng(5))
    exact = exact_distances(members, nonmembers)
    for name, draws in zip(DISTANCES[:2], drawn, strict=False):
        # Bootstrap means of AUC and of a difference of means are unbiased: four standard errors of 4,000 draws.
        assert draws.mean() == pytest.approx(exact[name], abs=4 * draws.std() / math.sqrt(4000)), name


def test_the_interval_of_tnr_covers_the_truth_as_often_as_it_says():
    rng, alpha, n, rounds = np.random.default_rng(21), 0.02, 1000, 400
    truth = math.sqrt(alpha)  # exponential losses of scale 1 and 2: P(L_out > Q_in(1 − α)) = α^½
    covered = 0
    for _ in range(rounds):
        members, nonmembers = np.sort(rng.exponential(1, n)), np.sort(rng.exponential(2, n))
        draws = tnr_draws(members, nonmembers, np.array([20]), 400, rng)[0]
        low, high = np.quantile(draws, (0.025, 0.975))
        covered += low <= truth <= high
    # Nominal 0.95; binomial standard error 0.011, and the bootstrap itself is good to a few per cent.
    assert 0.90 <= covered / rounds <= 0.985


def test_a_higher_level_widens_every_interval():
    members, nonmembers = overfit_losses(400, 300)
    correct = {"member_correct": members < 0.1, "nonmember_correct": nonmembers < 0.3}
    narrow, wide = (model_risk(members, nonmembers, fpr=0.05, level=level, **correct) for level in (0.5, 0.99))
    for name in ("tnr", "accuracy_gap", *DISTANCES):
        (a, b), (c, d) = getattr(narrow, f"{name}_interval"), getattr(wide, f"{name}_interval")
        assert c < a <= b < d, name
        assert c <= getattr(wide, name) <= d, name
    assert (narrow.interval_level, narrow.resamples, narrow.seed) == (0.5, 1000, 0)


def test_accuracy_gap_and_its_interval():
    members, nonmembers = overfit_losses(500, 400)
    in_correct, out_correct = np.arange(500) % 10 > 0, np.arange(400) % 4 > 0
    risk = model_risk(members, nonmembers, member_correct=in_correct, nonmember_correct=torch.tensor(out_correct), resamples=4000)
    assert (risk.member_accuracy, risk.nonmember_accuracy) == (0.9, 0.75)
    assert risk.accuracy_gap == pytest.approx(0.15, abs=1e-15)
    naive = naive_draws(in_correct, out_correct, lambda a, b: a.mean() - b.mean(), resamples=4000, seed=5)
    # Four standard errors of a 2.5 % quantile of 4,000 draws (0.042 standard deviations each), plus the grid of shares.
    assert risk.accuracy_gap_interval == pytest.approx(np.quantile(naive, (0.025, 0.975)), abs=0.25 * naive.std())


def test_accuracy_is_none_unless_given_and_moves_no_other_interval():
    members, nonmembers = overfit_losses(100, 80)
    without = model_risk(members, nonmembers, resamples=100)
    assert without.accuracy_gap is without.accuracy_gap_interval is without.member_accuracy is without.nonmember_accuracy is None
    given_too = model_risk(members, nonmembers, resamples=100, member_correct=np.ones(100, bool), nonmember_correct=np.zeros(80, bool))
    assert given_too.accuracy_gap == 1.0
    cleared = {name: None for name in ("accuracy_gap", "accuracy_gap_interval", "member_accuracy", "nonmember_accuracy")}
    assert replace(given_too, **cleared) == without


def test_seeds_reproduce_and_differ():
    members, nonmembers = overfit_losses(300, 200)
    first, again, other = (model_risk(members, nonmembers, fpr=0.05, seed=seed) for seed in (3, 3, 4))
    assert first == again
    for name in ("tnr", *DISTANCES):
        assert getattr(first, name) == getattr(other, name)
    for name in ("auc_interval", "loss_gap_interval", "ks_interval", "wasserstein_interval"):
        assert getattr(first, name) != getattr(other, name), name
    assert first.curve.tnr == other.curve.tnr
    assert first.curve.low != other.curve.low


def test_curve_is_tnr_over_levels():
    members, nonmembers = overfit_losses(40000, 3000)
    curve = model_risk(members, nonmembers, resamples=200).curve
    assert len(curve.levels) == 25
    assert (curve.levels[0], curve.levels[-1]) == (1e-4, 0.5)
    assert list(curve.tnr) == [tnr_at_fnr(members, nonmembers, level) for level in curve.levels]
    assert list(curve.tnr) == sorted(curve.tnr)
    assert all(low <= high for low, high in zip(curve.low, curve.high, strict=True))
    # Pointwise 95 % intervals around a bootstrap centred near the value: it lies inside at almost every level.
    assert np.mean([low <= t <= high for low, t, high in zip(curve.low, curve.tnr, curve.high, strict=True)]) > 0.9


def test_curve_of_few_members_names_each_step_once():
    members, nonmembers = overfit_losses(7, 50)
    curve = model_risk(members, nonmembers, resamples=100).curve
    assert [math.floor(level * 7 + 1e-9) for level in curve.levels] == [1, 2, 3]
    assert curve.levels[0] == 1 / 7
    assert model_risk([0.0, 1.0], nonmembers, resamples=100).curve.levels == (0.5,)


def test_nothing_is_predicted_at_rates_that_were_not_calibrated():
    risk = model_risk(*overfit_losses(50, 40), resamples=100)
    assert risk.predicted_tpr is None and risk.predicted_tpr_interval is None and risk.calibration is None
    assert risk.in_calibration_domain is False
    assert "false-positive rates of 0.001 to 0.01, not 0.025" in risk.reason


def test_the_shipped_calibration_predicts_a_rate_with_its_interval():
    rng = np.random.default_rng(0)
    members, nonmembers = (np.log1p(np.exp(-rng.normal(mean, spread, 3000))) for mean, spread in ((6, 2), (3, 3)))
    risk = model_risk(members, nonmembers, resamples=100)
    assert 0 < risk.predicted_tpr_interval[0] < risk.predicted_tpr < risk.predicted_tpr_interval[1] < 1
    assert (risk.calibration, risk.predicted_from, risk.prediction_level, risk.reference_models) == ("losses-2", "losses", 0.9, 64)
    assert risk.in_calibration_domain and "this model is like them" in risk.reason
    weaker = model_risk(members, nonmembers, reference_models=4, resamples=100)
    assert weaker.predicted_tpr < risk.predicted_tpr
    same = model_risk(nonmembers, nonmembers[::-1] + 1e-9, resamples=100)
    assert same.predicted_tpr == pytest.approx(1e-3) and not same.in_calibration_domain and "more than chance" in same.reason


def test_losses_rounded_to_zero_are_not_trusted():
    rng = np.random.default_rng(0)
    members, nonmembers = np.maximum(rng.normal(0, 1, 2000), 0.0), rng.exponential(3, 2000)
    risk = model_risk(members, nonmembers, resamples=100)
    assert risk.in_calibration_domain is False and risk.predicted_tpr is None and "clipped or rounded" in risk.reason
    clipped = np.r_[np.full(850, 1e-7), rng.exponential(0.1, 150)]  # a wide-open model behind a clip must not read as safe
    assert model_risk(clipped, rng.exponential(0.5, 1000), resamples=100).predicted_tpr is None


def test_scores_and_references_move_the_prediction_only():
    members, nonmembers = overfit_losses(50, 40)
    scores = SimpleNamespace(loss=members, leverage=None, shift=np.ones(50))
    one, other = (
        model_risk(members, nonmembers, scores=scores, reference_models=8, resamples=100),
        model_risk(members, nonmembers, resamples=100),
    )
    free = {
        "predicted_tpr",
        "predicted_tpr_interval",
        "in_calibration_domain",
        "reason",
        "references",
        "calibration",
        "predicted_from",
        "prediction_level",
    }
    assert {name: value for name, value in one.to_dict().items() if name not in free} == {
        name: value for name, value in other.to_dict().items() if name not in free
    }


def test_losses_that_look_wrong_are_said_to():
    members, nonmembers = overfit_losses(400, 300)
    assert model_risk(members, nonmembers, resamples=100).notes == ()
    (swapped,) = model_risk(nonmembers, members, resamples=100).notes
    assert "are the two splits swapped?" in swapped
    (same,) = model_risk(members, members[::-1], resamples=100).notes
    assert "probably the same records" in same
    (flat,) = model_risk(np.ones(30), np.ones(20), resamples=100).notes
    assert "All 50 losses are equal (1)" in flat


def test_levels_below_the_resolution_are_extrapolated_and_apart_from_the_measured():
    members, nonmembers = overfit_losses(800, 900)
    risk = model_risk(members, nonmembers, resamples=100)
    assert risk.extrapolated.levels == (1e-5, 1e-4, 1e-3)
    assert list(risk.extrapolated.tnr) == sorted(risk.extrapolated.tnr)
    assert min(risk.curve.levels) >= 1 / 800
    assert ModelRisk.from_dict(json.loads(json.dumps(risk.to_dict()))) == risk
    assert model_risk(members[:50], nonmembers, resamples=100).extrapolated is None
    before = {
        name: value
        for name, value in risk.to_dict().items()
        if name not in ("reference_models", "calibration", "extrapolated", "notes", "predicted_from", "prediction_level")
    }
    assert ModelRisk.from_dict(before).extrapolated is None  # as folders of the first version were


def test_the_reason_not_to_predict_is_kept():
    members, nonmembers = overfit_losses(600, 600)
    risk = model_risk(members, nonmembers, resamples=100, not_predicted="a regression")
    assert risk.predicted_tpr is None and risk.reason == "a regression"


def test_json_round_trip():
    members, nonmembers = overfit_losses(80, 60)
    plain = model_risk(members, nonmembers, resamples=100)
    with_accuracy = model_risk(members, nonmembers, resamples=100, member_correct=members < 0.1, nonmember_correct=nonmembers < 0.1)
    for risk in (plain, with_accuracy, replace(plain, predicted_tpr=0.1, predicted_tpr_interval=(0.0, 0.2), in_calibration_domain=True)):
        data = risk.to_dict()
        assert json.loads(json.dumps(data, allow_nan=False)) == data
        assert ModelRisk.from_dict(data) == risk


def test_the_record_is_frozen():
    risk = model_risk(*overfit_losses(50, 40), resamples=100)
    with pytest.raises(FrozenInstanceError):
        risk.tnr = 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tnr": math.nan}, "ModelRisk.from_dict: model_risk.tnr must be a finite number; got nan"),
        ({"wasserstein": math.inf}, "ModelRisk.from_dict: model_risk.wasserstein must be a finite number; got inf"),
        ({"auc": np.float64(0.5)}, "ModelRisk.from_dict: model_risk.auc must be a finite number"),
        ({"auc": None}, "ModelRisk.from_dict: model_risk.auc must be a finite number; got None"),
        ({"ks_interval": [0.1]}, r"ModelRisk.from_dict: model_risk.ks_interval must be a list of 2; got \[0.1\]"),
        ({"ks_interval": [0.2, 0.1]}, "ModelRisk.from_dict: ks_interval must have low ≤ high"),
        ({"ks_interval": [0.1, math.nan]}, r"ModelRisk.from_dict: model_risk.ks_interval\[1\] must be a finite number; got nan"),
        ({"extra": 1}, "ModelRisk.from_dict: data must hold exactly the fields of ModelRisk; got unknown extra"),
        ({"curve": {"levels": [0.1]}}, "ModelRisk.from_dict: model_risk.curve must hold tnr, low, high; got none"),
        ({"curve": 3}, "ModelRisk.from_dict: model_risk.curve must be an object; got 3"),
        (
            {"curve": {"levels": [0.1], "tnr": [0.1], "low": [0.1], "high": []}},
            "ModelRisk.from_dict: levels, tnr, low and high must have one length",
        ),
        (
            {"curve": {"levels": [0.1], "tnr": [math.nan], "low": [0.1], "high": [0.2]}},
            r"ModelRisk.from_dict: model_risk.curve.tnr\[0\] must be a finite number; got nan",
        ),
    ],
)
def test_a_broken_record_is_refused(change, message):
    data = model_risk(*overfit_losses(50, 40), resamples=100).to_dict()
    with pytest.raises(InputError, match=message):
        ModelRisk.from_dict(data | change)


def test_a_record_with_a_missing_field_is_refused():
    data = model_risk(*overfit_losses(50, 40), resamples=100).to_dict()
    del data["tnr"]
    with pytest.raises(InputError, match="got missing tnr"):
        ModelRisk.from_dict(data)
    with pytest.raises(InputError, match="data must be a dictionary; got list"):
        ModelRisk.from_dict([])


def test_a_curve_made_by_hand_is_kept():
    curve = TnrCurve((0.1,), (0.2,), (0.1,), (0.3,))
    risk = replace(model_risk(*overfit_losses(50, 40), resamples=100), curve=curve)
    assert ModelRisk.from_dict(risk.to_dict()).curve == curve


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_losses": [0.1, np.nan]}, "model_risk: member_losses must be finite; got 1 NaN or infinite values, the first at index 1"),
        ({"nonmember_losses": [np.inf, 0.1]}, "model_risk: nonmember_losses must be finite"),
        ({"member_losses": [[0.1], [0.2]]}, r"model_risk: member_losses must be 1-dimensional; got shape \(2, 1\)"),
        ({"member_losses": ["a", "b"]}, "model_risk: member_losses must be numeric"),
        ({"member_losses": [0.1]}, "model_risk: member_losses must hold at least two losses; got 1"),
        ({"nonmember_losses": []}, "model_risk: nonmember_losses must hold at least two losses; got 0"),
        ({"member_losses": [0.1, 1e200]}, r"model_risk: member_losses must stay below 1e\+100; got 1e\+200 at index 1"),
        ({"member_losses": [0.1, -2.0]}, r"model_risk: member_losses must hold losses ≥ 0; got 1 negative, the first -2 at index 1"),
        ({"fpr": 0.1}, r"model_risk: fpr must be at least 0\.25, the smallest level that 4 records of the smaller split resolve; got 0\.1"),
        ({"fpr": 0.0}, "model_risk: fpr must be a number > 0 and ≤ 1; got 0"),
        ({"fpr": 1.1}, r"model_risk: fpr must be a number > 0 and ≤ 1; got 1\.1"),
        ({"fpr": "low"}, "model_risk: fpr must be 'auto' or a number; got 'low'"),
        ({"reference_models": 0}, "model_risk: reference_models must be a whole number ≥ 1; got 0"),
        ({"reference_models": 2.5}, r"model_risk: reference_models must be a whole number ≥ 1; got 2\.5"),
        ({"resamples": 10}, "model_risk: resamples must be a whole number ≥ 100; got 10"),
        ({"seed": -1}, "model_risk: seed must be a whole number ≥ 0; got -1"),
        ({"level": 1.0}, "model_risk: level must be a number > 0 and < 1; got 1"),
        ({"member_correct": np.ones(4, bool)}, "model_risk: nonmember_correct must be given together with its counterpart; got None"),
        ({"nonmember_correct": np.ones(5, bool)}, "model_risk: member_correct must be given together"),
        (
            {"member_correct": np.ones(3, bool), "nonmember_correct": np.ones(5, bool)},
            r"model_risk: member_correct must be 4 booleans, one for each loss; got shape \(3,\), dtype bool",
        ),
        ({"member_correct": np.ones(4), "nonmember_correct": np.ones(5)}, "model_risk: member_correct must be 4 booleans.* dtype float64"),
        (
            {"scores": SimpleNamespace(loss=np.ones(5))},
            "model_risk: member_losses and loss must have one row per record; got lengths member_losses 4, loss 5",
        ),
        ({"scores": np.ones(4)}, "model_risk: scores must be the record scores of the members; got ndarray"),
    ],
)
def test_wrong_input_gets_one_sentence(changes, message):
    arguments = {"member_losses": [0.1, 0.2, 0.3, 0.4], "nonmember_losses": [0.1, 0.5, 1.0, 2.0, 3.0]} | changes
    with pytest.raises(InputError, match=message):
        model_risk(arguments.pop("member_losses"), arguments.pop("nonmember_losses"), **arguments)


@pytest.mark.parametrize("deviations", [6.0, 0.3])  # with 0.3 a third of the Poisson sums exceed the records
def test_counts_of_many_records_have_the_multinomials_law(monkeypatch, deviations):
    monkeypatch.setattr(resampling, "SUM_DEVIATIONS", deviations)
    counts, rounds = np.array([9000, 0, 40, 3000, 1, 7959]), 20_000
    n, p = counts.sum(), counts / counts.sum()
    assert n >= resampling.POISSON_FROM
    drawn = resampling._resampled_counts(counts, rounds, np.random.default_rng(4))
    assert (drawn.sum(axis=1) == n).all() and (drawn[:, 1] == 0).all() and drawn.min() >= 0
    covariance = n * (np.diag(p) - np.outer(p, p))
    spread = np.sqrt(covariance.diagonal())
    # Five standard errors of a mean and of a covariance of nearly normal counts.
    assert (np.abs(drawn.mean(axis=0) - counts) <= 5 * spread / rounds**0.5).all()
    error = np.sqrt((covariance**2 + np.outer(spread, spread) ** 2) / rounds)
    held = np.flatnonzero(counts > 10)
    assert (np.abs(np.cov(drawn.T) - covariance) <= 5 * error)[np.ix_(held, held)].all()
