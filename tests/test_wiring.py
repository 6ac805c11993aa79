"""The joints: thresholds and hand-overs between rooms, which no formula's oracle sees.

Each test shows a number or a sentence that changes when a constant changes or an argument is dropped on its way.
benchmarks/mutants.py breaks these joints one at a time and holds that a test fails.
"""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import noshadow as ns
from fixed_audits import drawn_references, weighed_signals
from noshadow._answer import verdict
from noshadow._audit import reference_columns
from noshadow._audit.exposing import Known, Statistics, weighed_exposure
from noshadow._exposure import Source
from noshadow.attacks import attack_success, lira_scores
from noshadow.figures import Evidence
from noshadow.metrics import agreement_table
from noshadow.reference import train_references
from noshadow.reference.attack_list import AttackOptions
from noshadow.reference.ground_truth import ground_truth, with_ground_truth
from noshadow.reference.parity import loss_parity
from noshadow.reference.truth import record_truth
from noshadow.scores.last_layer import softmax_solver
from noshadow.scores.last_layer.precision import probe_records, shift_error
from noshadow.scores.last_layer.single_output import regression_columns
from noshadow.tail import fit_calibration, group_risk, model_risk, risk_predictors
from noshadow.theory import predicted_tpr

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RECORD_SCORES = ("gradient_norm", "leverage", "influence", "newton", "loo", "shift", "margin_leverage")
SCORES = ("loss", "entropy", *RECORD_SCORES)
RNG = np.random.default_rng(17)


def signals(n, task="classification", *, width=4, outputs=3, seed=0):
    """Records of a head that is linear in its features and at no minimum: every option moves every score."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, width))
    head = np.random.default_rng(99).normal(size=(width + 1, outputs))
    out = np.column_stack([x, np.ones(n)]) @ head
    if task == "regression":
        return ns.Signals(x, out, out + rng.normal(size=out.shape))
    return ns.Signals(x, out, rng.integers(0, 2 if task == "binary" else outputs, n))


def tensors(split, dtype=torch.float32):
    """Features in `dtype` and targets as tensors of their own: those of Signals are read-only."""
    return torch.tensor(np.array(split.features), dtype=dtype), torch.tensor(np.array(split.targets))


def stamped(audit):
    return audit.provenance["scores"]


# From the view to the scores


def test_an_audit_holds_every_score_and_ranks_by_the_largest_shift():
    audit = ns.audit_signals(signals(60), signals(50, seed=1), progress=False)
    assert set(SCORES) <= set(audit.records.columns) and audit.ranked_by == "shift"
    by_rank = audit.records.sort_values("rank")
    assert by_rank["rank"].tolist() == list(range(1, 61)) and (np.diff(by_rank["shift"]) <= 0).all()
    # Another score would order these records differently: the test can see which one ranks them.
    for other in ("newton", "loo", "influence", "leverage", "margin_leverage"):
        assert (np.diff(by_rank[other]) > 0).any(), other


@pytest.mark.parametrize(("task", "outputs", "factor"), [("classification", 3, 1.0), ("binary", 1, 1.0), ("regression", 3, 1.5)])
def test_weight_decay_becomes_damping_on_the_sum(task, outputs, factor):
    """n·wd, and n·wd·q/2 for a squared error averaged over q outputs."""
    n, decay = 40, 0.03
    train, test = signals(n, task, outputs=outputs), signals(30, task, outputs=outputs, seed=1)
    stamp = stamped(ns.audit_signals(train, test, task=task, weight_decay=decay, progress=False))
    assert stamp["damping_used"] == pytest.approx(n * decay * factor, rel=1e-12) and "weight_decay=0.03" in stamp["damping_source"]
    given = stamped(ns.audit_signals(train, test, task=task, weight_decay=decay, damping=0.7, progress=False))
    assert (given["damping_used"], given["damping_source"]) == (0.7, "given")
    model = nn.Linear(4, outputs)
    stamp = stamped(ns.audit(model, tensors(train), None, task=task, weight_decay=decay, progress=False))
    assert stamp["damping_used"] == pytest.approx(n * decay * factor, rel=1e-12)


@pytest.mark.parametrize(
    "option",
    [{"fit_intercept": False}, {"penalize_intercept": False}, {"sample_weight": np.linspace(0.2, 3, 50)}, {"damping": 2.5}],
    ids=lambda option: next(iter(option)),
)
def test_what_describes_the_head_reaches_its_scores(option):
    train, how = signals(50), {"damping": 30.0} | option
    audit = ns.audit_signals(train, signals(40, seed=1), progress=False, **how)
    expected, plain = (ns.record_scores(train.features, train.outputs, train.targets, **kind) for kind in (how, {"damping": 30.0}))
    for name in RECORD_SCORES:
        np.testing.assert_allclose(audit.records[name], getattr(expected, name), rtol=1e-10)  # one call in two places
    assert not np.allclose(expected.shift, plain.shift, rtol=1e-3)


def test_a_scikit_learn_head_hands_over_its_penalty_weights_bias_and_names():
    train = signals(60)
    names = np.array(["ash", "birch", "cedar"])[np.asarray(train.targets)]
    kept = np.concatenate([np.flatnonzero(names == "ash")[:10], np.flatnonzero(names != "ash")])  # classes of different sizes
    x, y = train.features[kept], names[kept]
    model = LogisticRegression(C=0.5, class_weight="balanced", fit_intercept=False).fit(x, y)
    audit = ns.audit(model, (x, y), (train.features, names), progress=False)
    counts = {name: (y == name).sum() for name in set(y)}
    weight = np.array([len(y) / (3 * counts[name]) for name in y])
    numbers = np.searchsorted(["ash", "birch", "cedar"], y)
    how = {"damping": 2.0, "fit_intercept": False, "sample_weight": weight}
    expected = ns.record_scores(x, x @ model.coef_.T, numbers, **how)
    np.testing.assert_allclose(audit.records["shift"], expected.shift, rtol=1e-9)  # decision_function against the same product
    assert audit.records["label"].tolist() == y.tolist()
    assert {row.group for row in audit.class_risk} == {"ash", "birch", "cedar"}
    free = LogisticRegression(C=0.5).fit(x, y)
    assert stamped(ns.audit(free, (x, y), None, progress=False))["penalize_intercept"] is False


def test_a_module_without_a_bias_is_scored_without_one():
    train = signals(50)
    x, y = tensors(train)
    for bias in (True, False):
        audit = ns.audit(nn.Linear(4, 3, bias=bias), (x, y), None, damping=1.0, progress=False)
        assert (stamped(audit)["fit_intercept"], stamped(audit)["penalize_intercept"]) == (bias, True)
        assert stamped(audit)["rank"] == 4 + bias


def test_scores_over_layers_get_the_audits_own_options():
    train = signals(40)
    x, y = tensors(train)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    weight = np.linspace(0.2, 3, 40)
    for how in ({"weight_decay": 0.05}, {"damping": 4.0}, {"damping": 4.0, "layers": 2}, {"damping": 4.0, "sample_weight": weight}):
        chosen = {"layers": "all"} | how
        audit = ns.audit(model, (x, y), None, progress=False, **chosen)
        expected = ns.network_scores(model, (x, y), **chosen)
        assert stamped(audit)["damping_used"] == expected.damping_used and stamped(audit)["layers"] == list(expected.layers)
        # float32 forward passes in batches of another size.
        np.testing.assert_allclose(audit.records["shift"], expected.shift, rtol=1e-4)


def test_a_certain_tree_is_wrong_by_the_least_probability():
    x = np.arange(40.0)[:, None]
    y = (np.arange(40) % 4 == 0).astype(int)
    tree = DecisionTreeClassifier().fit(x, y)
    audit = ns.audit(tree, (x, y), (x, 1 - y), progress=False)
    np.testing.assert_allclose(audit.nonmember_losses, -np.log(1e-15), rtol=1e-12)


# From the audit to the model's risk


def test_seed_level_groups_and_classes_reach_the_risk():
    train, test = signals(120), signals(90, seed=1)
    own, other = ["ab"[i % 2] for i in range(120)], ["aab"[i % 3] for i in range(90)]
    audit = ns.audit_signals(train, test, fpr=0.07, seed=11, groups=own, test_groups=other, progress=False)
    losses, how = (audit.member_losses, audit.nonmember_losses), {"fpr": 0.07, "seed": 11}
    expected = model_risk(*losses, **how)
    assert audit.model_risk.fpr == 0.07 and audit.model_risk.seed == 11
    for name in ("tnr_interval", "auc_interval", "ks_interval"):
        assert getattr(audit.model_risk, name) == getattr(expected, name), name
        assert getattr(audit.model_risk, name) != getattr(model_risk(*losses, fpr=0.07), name), f"seed 0 gives the same {name}"
    assert audit.group_risk == group_risk(*losses, own, other, **how)
    labels = [[str(label) for label in np.asarray(split.targets)] for split in (train, test)]
    assert audit.class_risk == group_risk(*losses, *labels, **how)
    shares = [(split.outputs.argmax(1) == split.targets).mean() for split in (train, test)]
    assert (audit.model_risk.member_accuracy, audit.model_risk.nonmember_accuracy) == pytest.approx(shares, abs=1e-12)


def test_a_regressions_record_rates_are_read_at_the_models_level_with_its_noise():
    train, test = signals(80, "regression", outputs=2), signals(25, "regression", outputs=2, seed=1)
    audit = ns.audit_signals(train, test, damping=1.0, progress=False)
    assert audit.model_risk.fpr == 1 / 25  # of the smaller split
    squares, dof = ((train.targets - train.outputs) ** 2).sum(1), stamped(audit)["effective_dof"]
    noise = squares.sum() / ((80 - dof) * 2)
    how = {"noise_variance": noise, "n": 80, "dof": dof, "outputs": 2, "statistic": "residual"}
    expected = predicted_tpr(1 / 25, audit.records["leverage"], np.sqrt(squares), **how)
    np.testing.assert_allclose(audit.records["predicted_tpr"], expected, rtol=1e-9)  # one call in two places


def look_alikes(distance):
    """Copies and shared records counted for two records at the centre of a rounding cell and a bit beyond."""
    x = np.concatenate([np.tile([[1.0], [-1.0]], (50, 1)), [[0.0], [distance]]])
    x = x / x.std()
    x = np.column_stack([x, np.linspace(-1, 1, len(x))])
    x[-2:, 1] = 0.0
    train, test = (ns.Signals(part, part @ np.ones((2, 1)), np.zeros(len(part))) for part in (x, x[-2:-1]))
    return ns.audit_signals(train, test, task="regression", damping=1.0, progress=False).provenance["splits"]["copies"]["records"]


def test_records_look_alike_to_four_digits_of_the_spread():
    assert look_alikes(3e-5) == 2
    assert look_alikes(3e-4) == 0


# Inside the scores


@pytest.mark.parametrize("task", ["classification", "binary", "regression"])
def test_automatic_damping_is_a_millionth_of_the_mean_curvature(task):
    train, weight = signals(50, task, outputs=1 if task == "binary" else 3), np.linspace(0.5, 2, 50)
    scores = ns.record_scores(train.features, train.outputs, train.targets, task=task, sample_weight=weight)
    lengths = (train.features**2).sum(1) + 1
    p = 1 / (1 + np.exp(-train.outputs)) if task == "binary" else np.exp(train.outputs) / np.exp(train.outputs).sum(1, keepdims=True)
    traces = {"classification": (p * (1 - p)).sum(1), "binary": (p * (1 - p))[:, 0], "regression": np.ones(50)}[task]
    size = 5 * (2 if task == "classification" else 1)  # (m − 1)·d, or d
    assert scores.damping_used == pytest.approx(1e-6 * (weight * lengths * traces).sum() / size, rel=1e-9)
    assert scores.damping_source.startswith("automatic: 1e-06 ×")


def test_automatic_damping_over_layers_is_a_millionth_of_the_mean_curvature():
    train = signals(30, "regression", outputs=1)
    scores = ns.network_scores(nn.Linear(4, 1).double(), tensors(train, torch.float64))
    assert scores.damping_used == pytest.approx(1e-6 * ((train.features**2).sum() + 30) / 5, rel=1e-9)  # Tr JᵀJ over five parameters


def test_rounding_is_judged_on_the_riskiest_twentieth():
    shift = np.arange(1.0, 101.0)
    rounding = np.where(shift == 96, 9.6, np.where(shift == 95, 95.0, 0.0))  # a tenth of the 96th, all of the 95th
    assert shift_error(shift, rounding) == pytest.approx(0.1, rel=1e-12)
    columns = {"newton": shift, "leverage": -shift}
    assert probe_records(columns).tolist() == [0, 1, 2, 3, 4, 95, 96, 97, 98, 99]


@pytest.mark.parametrize(
    ("rounding", "newton", "kept"), [(0.9e-4, 0.0, True), (1.1e-4, 0.0, False), (0.0, 0.9e-4, True), (0.0, 1.1e-4, False)]
)
def test_float32_is_redone_when_either_error_exceeds_a_ten_thousandth(rounding, newton, kept, monkeypatch):
    monkeypatch.setattr(softmax_solver, "MIXED_FROM_FLOPS", 0.0)
    monkeypatch.setattr(softmax_solver, "shift_error", lambda *_: rounding)
    monkeypatch.setattr(softmax_solver, "newton_error", lambda *_: newton)
    train = signals(50)
    scores = ns.record_scores(train.features, train.outputs, train.targets, damping=1.0, columns=("shift",))
    assert scores.precision == ("mixed" if kept else "float64")
    assert any("redone in float64" in note for note in scores.notes) != kept


def test_leverage_counts_as_one_within_1e_11():
    found = regression_columns(np.ones((2, 1)), np.ones(2), None, gaps=np.array([1.1e-11, 0.9e-11]))
    for name in ("newton", "loo", "shift"):
        assert np.isfinite(found[name]).tolist() == [True, False], name


# The tail


@pytest.mark.parametrize("column", SCORES)
def test_every_score_handed_to_the_tail_is_held_against_the_members(column):
    with pytest.raises(ns.InputError, match=f"scores.{column}|{column}"):
        model_risk([0.1, 0.2, 0.3], [0.2, 0.5], scores=SimpleNamespace(**{column: np.zeros(2)}))


def test_predictors_by_name_and_level():
    members, others = np.sort(RNG.exponential(0.2, 800)), np.sort(RNG.exponential(0.5, 700))
    scores = SimpleNamespace(**{name: RNG.random(800) for name in SCORES})
    found = risk_predictors(members, others, scores)
    columns = ("leverage", "margin_leverage", "loo", "shift")
    assert {name for name in found if "_q" in name} == {f"{column}_q{level}" for column in columns for level in ("0.9", "0.99")}
    for column in columns:
        assert found[f"{column}_q0.99"] == np.quantile(getattr(scores, column), 0.99)
    inside, outside = (-np.log(np.expm1(losses)) for losses in (members, others))
    spread = (np.quantile(inside, 0.84) - np.quantile(inside, 0.16)) / 2
    assert {name for name in found if name.startswith("margin")} >= {f"margin_shift_{level}" for level in ("0.02", "0.05", "0.1", "0.2")}
    for level in (0.02, 0.05, 0.1, 0.2):
        expected = (np.quantile(inside, level) - np.quantile(outside, level)) / spread
        assert found[f"margin_shift_{level:g}"] == pytest.approx(expected, rel=1e-9)
    for level in (0.01, 0.05, 0.1):
        threshold = np.sort(members)[-1 - int(level * 800)]
        assert found[f"tnr_excess_{level:g}"] == pytest.approx((others > threshold).mean() - level, abs=1e-12)


@pytest.fixture(scope="module")
def calibration():
    """Fitted to eight setups on which nothing but the number of records and the domain can matter."""
    x = np.linspace(0.1, 3, 8)
    rows = {"setup": [f"s{i}" for i in range(8)], "data_set": [f"d{i % 4}" for i in range(8)], "tpr": x / 10, "margin_shift_0.1": x}
    cells = [pd.DataFrame(rows).assign(fpr=fpr, references=k, tpr=x / 10 * k / 64) for fpr in (1e-3, 1e-1) for k in (4, 64)]
    return fit_calibration(pd.concat(cells))


def losses_of(n, seed=2):
    rng = np.random.default_rng(seed)
    return rng.exponential(0.2, n), rng.exponential(0.6, n)


def within(calibration, **domain):
    return replace(calibration, domain=domain)


def test_a_prediction_needs_five_hundred_records_of_each_split(calibration):
    members, others = losses_of(500)
    free = within(calibration)
    assert model_risk(members, others, calibration=free, resamples=100).in_calibration_domain
    for short in ((members[1:], others), (members, others[1:])):
        risk = model_risk(*short, calibration=free, resamples=100)
        assert risk.in_calibration_domain is False and "499 records in the smaller split" in risk.reason and "needs 500" in risk.reason


@pytest.mark.parametrize(("reach", "inside"), [(0.09, True), (0.11, False)])
def test_a_tenth_beyond_the_setups_is_still_like_them(calibration, reach, inside):
    members, others = losses_of(600)
    shown = risk_predictors(members, others)["margin_shift_0.1"]
    above = within(calibration, **{"margin_shift_0.1": (shown - 1 - reach, shown - reach)})  # a range of length 1 ends below
    below = within(calibration, **{"margin_shift_0.1": (shown / (1 - reach), 10 * shown)})
    for domain in (above, below):
        risk = model_risk(members, others, calibration=domain, resamples=100)
        assert risk.in_calibration_domain is inside and ("like them" in risk.reason) == inside


@pytest.mark.parametrize(("tied", "predicted"), [(60, True), (61, False)])
def test_a_tenth_of_tied_losses_is_still_predicted_from(calibration, tied, predicted):
    members, others = losses_of(600)
    members[:tied] = members.min() / 2
    risk = model_risk(members, others, calibration=within(calibration), resamples=100)
    assert (risk.predicted_tpr is not None) == predicted


def test_losses_must_tell_members_apart_in_their_middle_or_their_tail(calibration):
    members = -0.2 * np.log1p(-(np.arange(600) + 0.5) / 600)
    free = within(calibration)
    alike = model_risk(members, 1.001 * members, calibration=free, resamples=100)
    assert alike.in_calibration_domain is False and "more than chance" in alike.reason
    for others in (np.minimum(2 * members, 1.0), np.where(members > 0.9, 9.0, members)):
        risk = model_risk(members, others, calibration=free, resamples=100)
        # Larger losses without a tail (the AUC alone sees it), and a tail without larger losses (TNR alone).
        assert risk.in_calibration_domain and (risk.auc_interval[0] > 0.5) != (risk.tnr_interval[0] > risk.fpr)


def test_the_prediction_is_for_the_attack_asked_for(calibration):
    members, others = losses_of(1000)
    how = {"calibration": within(calibration), "fpr": 1e-2, "resamples": 100}
    rates = [model_risk(members, others, reference_models=k, **how).predicted_tpr for k in (4, 64)]
    # In every setup the TPR grows with K in proportion.
    assert rates[1] > 2 * rates[0]
    # The default is the attack with 64.
    assert model_risk(members, others, **how).predicted_tpr == rates[1]


def test_levels_of_the_risk():
    members, others = RNG.exponential(0.2, 400), RNG.exponential(0.5, 3000)
    risk = model_risk(members, others, resamples=100)
    assert risk.fpr == 1 / 400 and risk.extrapolated.levels == (1e-5, 1e-4, 1e-3)
    large = RNG.exponential(0.2, 20_000)
    risk = model_risk(large, large + 0.1, resamples=100)
    assert risk.fpr == 1e-3
    assert (risk.curve.levels[0], risk.curve.levels[-1]) == pytest.approx((1e-4, 0.5), rel=1e-12) and len(risk.curve.levels) <= 25


def test_a_group_is_judged_from_twenty_records_at_a_level_that_ten_members_resolve():
    losses = [RNG.exponential(0.3, 120) for _ in range(2)]
    names = ["a"] * 60 + ["b"] * 20 + ["c"] * 19 + ["a"] * 21
    found = {row.group: row for row in group_risk(*losses, names, names, resamples=100)}
    assert found["b"].auc is not None and found["b"].fnr == 10 / 20
    assert found["c"].auc is None and "needs 20 members and 20 non-members" in found["c"].reason
    wide = ["a"] * 70 + ["b"] * 50
    assert {row.fnr for row in group_risk(*losses, wide, wide, resamples=100)} == {10 / 50}


# Findings, comparisons, pages: a threshold that rests on fewer than five members


def regression_audit(n=200, *, fpr="auto", seed=4, **how):
    """Squared errors of one output without features: members' and non-members' losses as wished."""
    rng = np.random.default_rng(seed)
    train, test = (ns.Signals(None, np.sqrt(rng.exponential(scale, n)), np.zeros(n)) for scale in (0.2, 0.5))
    return ns.audit_signals(train, test, task="regression", fpr=fpr, progress=False, **how)


@pytest.mark.parametrize(("allowed", "few"), [(4, True), (5, False)])
def test_a_threshold_that_rests_on_four_members_is_said_everywhere(allowed, few, tmp_path):
    audit = regression_audit(fpr=allowed / 200)
    (finding,) = (finding for finding in audit.findings if finding.code == "NS006")
    assert (finding.status, finding.figure) == ("found" if few else "passed", allowed)
    assert any("TNR rests on few members" in note for note in ns.compare(audit, audit).notes) == few
    assert ('id="rests-on-few"' in ns.write_report(audit, tmp_path / "page.html").read_text(encoding="utf-8")) == few


@pytest.mark.parametrize(("n", "judged"), [(99, False), (100, True)])
def test_shares_of_the_riskiest_are_taken_from_a_hundred_records(n, judged):
    audit = ns.audit_signals(signals(n), signals(50, seed=1), groups=["ab"[i % 2] for i in range(n)], progress=False)
    found = {finding.code: finding.status for finding in audit.findings}
    for code in ("NS010", "NS011", "NS012"):
        assert (found[code] != "not applicable") == judged, code


def test_label_suspects_are_sought_among_ten_records_at_least():
    audit = ns.audit_signals(signals(300), signals(50, seed=1), progress=False)
    order = np.argsort(audit.records["rank"])
    for place, status in ((9, "found"), (10, "passed")):
        table = audit.records.assign(loss=0.0, leverage=0.0)
        table.loc[order[place], ["loss", "leverage"]] = 1.0  # of the ten riskiest the last, and the one behind it
        (finding,) = (f for f in ns.findings(replace(audit, records=table)) if f.code == "NS015")
        assert finding.status == status


def test_a_comparison_looks_at_the_top_hundredth_and_at_one_target_in_a_hundred():
    train, test = signals(201), signals(50, seed=1)
    before = ns.audit_signals(train, test, progress=False)
    assert ns.compare(before, before).top_before == 3  # 1 % of 201, rounded up
    for changed, same in ((2, True), (3, False)):
        labels = np.array(train.targets)
        labels[:changed] = (labels[:changed] + 1) % 3
        after = ns.audit_signals(replace(train, targets=labels), test, progress=False)
        assert ns.compare(before, after).same_records is same


def test_a_comparison_is_drawn_at_the_level_and_seed_asked_for():
    before, after = regression_audit(), regression_audit(seed=5)
    first, again, other, short = (
        {change.name: change for change in ns.compare(before, after, fpr=0.1, **how).changes}
        for how in ({"seed": 1}, {"seed": 1}, {"seed": 2}, {"seed": 1, "level": 0.5})
    )
    assert first == again and first["tnr"].interval != other["tnr"].interval and "FNR 0.1" in first["tnr"].label
    for name in ("tnr", "auc"):
        (low, high), (inner_low, inner_high) = first[name].interval, short[name].interval
        assert low < inner_low <= inner_high < high


# The command line


def test_the_command_hands_its_options_over(run, tmp_path):
    train, test = signals(120), signals(90, seed=1)
    ns.save_splits(tmp_path / "s.npz", train, test)
    for flags, how in (
        (("--fpr", "0.1", "--seed", "5", "--damping", "2.5"), {"fpr": 0.1, "seed": 5, "damping": 2.5}),
        (("--weight-decay", "0.25", "--no-intercept", "--fpr", "0.3"), {"weight_decay": 0.25, "fit_intercept": False, "fpr": 0.3}),
    ):
        code, _, err = run("audit", "s.npz", "--out", "a", "--force", "--quiet", *flags)
        assert code == 0, err
        found, expected = ns.load(tmp_path / "a"), ns.audit_signals(train, test, progress=False, **how)
        assert found.model_risk == expected.model_risk and stamped(found) == stamped(expected)
        pd.testing.assert_frame_equal(found.records, expected.records, check_dtype=False)
    risk = ns.load(tmp_path / "a").model_risk
    for name in ("tnr", "auc"):
        value = getattr(risk, name)
        assert run("gate", "a", f"--max-{name}", repr(value))[0] == 0  # a figure at its limit passes
        assert run("gate", "a", f"--max-{name}", repr(float(np.nextafter(value, 0))))[0] == 1


# Reference models and the ground truth


def chance_set(folder, models, records, **options):
    """Reference models that answer by chance: quick, and every attack has something to rank."""
    y = np.random.default_rng(0).integers(0, 3, records)
    x, half = np.zeros((records, 1)), records // 2

    def chance(indices, seed):
        return np.random.default_rng(seed).normal(size=(records, 3))

    data = (x[:half], y[:half]), (x[half:], y[half:])
    return train_references(folder, chance, *data, models=models, workers=1, progress=False, **options)


def every_score(n, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.random(n) for name in (*SCORES, "predicted_tpr", "lt_iqr", "unheard_of")}


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    def extra(outputs, indices, seed):
        return every_score(len(indices), seed)

    return chance_set(tmp_path_factory.mktemp("wiring") / "set", 16, 80, extra=extra, extra_models=3)


@pytest.fixture(scope="module")
def audited(references):
    n = int(references.member.sum())
    rng = np.random.default_rng(5)
    train = ns.Signals(None, rng.normal(size=(n, 3)), np.asarray(references.targets)[references.member])
    audit = ns.audit_signals(train, ns.Signals(None, rng.normal(size=(30, 3)), rng.integers(0, 3, 30)), progress=False)
    return replace(audit, records=audit.records[["id", "target"]].assign(**every_score(n)))


@pytest.fixture(scope="module")
def truth(references, audited):
    return with_ground_truth(audited, references, options=AttackOptions(seed=9), progress=False)


def test_every_score_is_compared_with_every_attack(truth):
    for targets in (1, 3):
        rows = [row for row in truth.ground_truth.agreement if row["targets"] == targets]
        assert {row["score"] for row in rows} == {*SCORES, "predicted_tpr", "lt_iqr"}, targets
        attacks = {"lira_success", "lira_d", "rmia_success"}
        assert {row["attack"] for row in rows} == attacks | ({"shokri_success"} if targets == 1 else set())
        shares = {(row["top"], row["keep"]) for row in rows if row["metric"] == "recall"}
        assert shares == {(0.01, 0.05), (0.01, 0.01), (0.05, 0.05)}


def test_the_seed_of_the_attacks_draws_the_intervals(truth):
    vectors = [{name: truth.records[name].to_numpy()} for name in ("lira_d", "shift")]
    mine = [row for row in truth.ground_truth.agreement if (row["attack"], row["score"], row["targets"]) == ("lira_d", "shift", 1)]
    expected, other = (agreement_table([vectors[0]], [vectors[1]], seed=seed).to_dict("records") for seed in (9, 0))
    assert mine == expected != other


@pytest.mark.parametrize(
    ("attack", "before", "changed"),
    [
        ("lira", {}, {"center": "median"}),
        ("lira", {}, {"variance": "record"}),
        ("lira", {"variance": "record"}, {"variance": "record", "floor": 0.7}),
        ("rmia", {}, {"gamma": 1.0}),
        ("rmia", {"variant": "offline"}, {"variant": "offline", "a": 0.9}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_options_of_the_attacks_reach_them(references, attack, before, changed):
    signal = references.statistic if attack == "lira" else 1 / (1 + np.exp(-np.asarray(references.statistic)))
    defaults = {"gamma": 2.0, "a": 0.3} if attack == "rmia" else {}
    found = [record_truth(references, AttackOptions(shokri=False, **how), levels=(), progress=False) for how in (before, changed)]
    for one, how in zip(found, (before, changed), strict=True):
        expected = attack_success(signal, references.membership, attack=attack, **(defaults | how))
        np.testing.assert_allclose(one.columns[f"{attack}_success"], expected.success, rtol=1e-12)  # one call in two places
    assert not np.array_equal(*(one.columns[f"{attack}_success"] for one in found))


def test_few_models_few_records_and_the_levels_they_resolve(tmp_path):
    for models, records, said in ((32, 1000, False), (30, 998, True)):
        found, _ = ground_truth(chance_set(tmp_path / str(models), models, records), options=AttackOptions(shokri=False), progress=False)
        assert any("reference models are few" in note for note in found.notes) == said
        assert any("recalls of so few say little" in note for note in found.notes) == said
        assert [rate.fpr for rate in found.attacks[0].rates] == [0.01, 0.1]  # 500 non-members do not resolve 0.001
        assert found.attacks[0].auc_interval[0] < found.attacks[0].auc < found.attacks[0].auc_interval[1]


def test_lira_pools_variances_below_sixty_four_models():
    rng = np.random.default_rng(1)
    for models, pooled in ((63, True), (64, False)):
        membership = rng.permuted(np.arange(models)[:, None] % 2 == np.zeros((1, 20)), axis=0)
        signal, target = rng.normal(size=(models, 20)), rng.normal(size=20)
        automatic, shared = (lira_scores(target, signal, membership, variance=kind) for kind in ("auto", "global"))
        assert np.array_equal(automatic, shared) == pooled


@pytest.mark.parametrize(("value", "outlying"), [(1.039, False), (1.041, True), (0.961, False), (0.959, True)])
def test_a_target_is_unlike_its_references_beyond_four_deviations_of_a_hundredth(value, outlying):
    """All reference models have the mean loss 1: a hundredth of it stands for their spread."""
    membership = np.array([[True, False], [False, True]])
    found = loss_parity(np.array([value, 1.0]), np.array([True, False]), np.ones((2, 2)), membership)
    assert found["member"]["z"] == pytest.approx((value - 1) / 0.01, rel=1e-9)
    assert (found["member"]["outlying"], found["nonmember"]["outlying"], found["outlying"]) == (outlying, False, outlying)


def test_a_target_within_the_range_of_its_references_is_like_them():
    # One reference of twenty far off: the target beside it is 4.2 deviations from the mean and within the range.
    losses = np.ones((20, 2))
    losses[0] = 2.0
    membership = np.tile([[True, False]], (20, 1))
    found = loss_parity(np.array([1.99, 1.0]), np.array([True, False]), losses, membership)
    assert found["member"]["z"] > 4 and not found["outlying"]
    beyond = loss_parity(np.array([2.01, 1.0]), np.array([True, False]), losses, membership)
    assert beyond["outlying"]


def test_a_reference_model_is_damped_by_its_own_number_of_records():
    train, test = signals(60), signals(30, seed=1)
    x, y = (torch.cat(parts) for parts in zip(tensors(train, torch.float64), tensors(test, torch.float64), strict=True))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(4, 3).double()
    target = ns.Target(model, (x[:60], y[:60]), (x[60:], y[60:]), weight_decay=0.5)
    rows = np.array([*range(10), *range(55, 75)])
    found = reference_columns(target, model, rows)
    direct = ns.audit(model, (x[rows], y[rows]), None, weight_decay=0.5, progress=False)
    np.testing.assert_allclose(found["shift"], direct.records["shift"], rtol=1e-9)  # float64 throughout


# From the audit to the exposure


def linear(x, y):
    """Few records, many features, labels of chance: every record is half learnt by heart."""
    return LogisticRegression(C=10.0, tol=1e-6, max_iter=2000).fit(x, y)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A leaky model, its records, what trains others, and a folder in which these are kept."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(3200, 400)), rng.integers(0, 2, 3200)

    def train_fn(indices, seed):
        return linear(x[indices], y[indices])

    train, test = (x[:1600], y[:1600]), (x[1600:], y[1600:])
    how = {
        "train_fn": train_fn,
        "training_options": {"workers": 1},
        "progress": False,
        "fpr": 0.05,
        "work": tmp_path_factory.mktemp("work"),
    }
    return linear(*train), train, test, how


HARDLY = 2.0  # with less of the model in it, the base knows nothing of these labels and is left out


@pytest.mark.parametrize("asked", [{"reference_models": 2}, {"folds": 3, "reference_models": 2}])
def test_a_base_beside_references_sets_no_spread(learnt, asked):
    """A base that knows little is no draw of the trainings: as one of them it hid this leak below a guess."""
    model, train, test, how = learnt
    base = linear(*train)
    base.coef_ = np.random.default_rng(0).normal(size=base.coef_.shape) + HARDLY * base.coef_
    alone, beside = (ns.audit(model, train, test, **asked, **how, **more) for more in ({}, {"base": base}))
    stamp = next(entry.stamp for entry in beside.evidence if entry.source == "exposure")
    assert set(stamp["covariates_only"]) == {"base model", *({"folds"} & set(asked))} and alone.records["attack_rate"].mean() > 0.08
    assert beside.records["attack_rate"].mean() == pytest.approx(alone.records["attack_rate"].mean(), rel=0.05)


@pytest.mark.parametrize("rows", [1600, 3200])
def test_models_that_do_not_heed_their_rows_give_no_sizes(learnt, rows, tmp_path):
    """Models on all members, or on all records: their rates are a guess's, and the losses give the audited model away."""
    model, train, test, how = learnt
    x, y = (np.concatenate(parts) for parts in zip(train, test, strict=True))

    def heedless(indices, seed):
        jitter = np.random.default_rng(seed).normal(size=(rows, x.shape[1]))
        return linear(x[:rows] + 0.1 * jitter, y[:rows])

    audit = ns.audit(model, train, test, reference_models=2, **how | {"train_fn": heedless, "work": tmp_path})
    assert "attack_rate" not in audit.records and "NS033" in audit.not_applicable["attack_rate"]
    told = next(finding for finding in audit.findings if finding.code == "NS033")
    assert told.status == "found" and "train_fn may not heed its indices" in told.sentence
    assert verdict(audit).level != "none"


def test_sizes_that_contradict_themselves_are_withheld():
    """Models with a record that know it less well than those without: no sign of safety, and the rank stays."""

    def inverted(found):
        known = drawn_references(found)
        return replace(known, source=replace(known.source, membership=~known.source.membership))

    audit, right = (weighed_signals([source], fpr=0.05) for source in (inverted, drawn_references))
    why = audit.not_applicable["attack_rate"]
    assert "attack_rate" not in audit.records and "reach the attack's bar more often" in why and "a guess 50" in why
    stamp = next(entry.stamp for entry in audit.evidence if entry.source == "exposure")
    assert stamp["order_only"] and stamp["width"] is None and "largest_rate" not in stamp and "attack_rate" in right.records


@pytest.mark.parametrize("models", [2, 4, 16])
def test_clean_models_keep_their_sizes(models):
    """Where nobody leaks, the mean rate lies on either side of a guess by chance, and its interval holds the guess."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        level, inside = rng.normal(size=1500), rng.random((models, 1500)) < 0.5
        spread = np.exp(0.4 * rng.normal(size=1500) + 0.3 * level)
        offset, unseen = 0.2 * rng.normal(size=(models, 1)), rng.normal(size=400)
        rows = level + spread * rng.normal(size=inside.shape) + offset
        source = Source("references", {}, rows, inside, unseen + offset + rng.normal(size=(models, 400)))
        statistics = Statistics(level + spread * rng.normal(size=1500), unseen + rng.normal(size=400), "larger")
        found = weighed_exposure(statistics, [Known(source, Evidence("references"))], {}, fpr=0.05, seed=0)
        # The upper end of the mean's interval is far from the guess below which sizes are withheld.
        assert "attack_rate" in found.columns and found.columns["attack_rate_high"].mean() > 0.06


@pytest.mark.parametrize(("asked", "more"), [({"reference_models": 2}, False), ({"folds": 3}, True)])
def test_missing_test_records_are_what_is_asked_for(learnt, asked, more, tmp_path):
    """Two further reference models would have no scale either."""
    model, train, _, how = learnt
    audit = ns.audit(model, train, None, **asked, **how | {"work": tmp_path})
    why = audit.not_applicable["exposure"]
    assert "takes 100 test records that neither had, and there are 0. Give more test records" in why
    assert ("and have two reference models trained beside them" in why) is more and "would identify" not in why


# The list of joints


def test_every_listed_joint_was_broken_and_a_test_noticed():
    spec = importlib.util.spec_from_file_location("joints", BENCHMARKS / "joints.py")
    joints = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(joints)
    stored = json.loads((BENCHMARKS / "results" / "mutants.json").read_text(encoding="utf-8"))["mutants"]
    names = [mutant.name for mutant in joints.MUTANTS]
    assert len(set(names)) == len(names) and [row["mutant"] for row in stored] == names, "run benchmarks/mutants.py again"
    assert {row["outcome"] for row in stored} == {"killed"}
    assert {test for mutant in joints.MUTANTS for test in mutant.tests if "::" not in test} <= set(globals())
    # A joint that has moved would be carried over as noticed for ever.
    package = BENCHMARKS.parent / "src" / "noshadow"
    assert [mutant.name for mutant in joints.MUTANTS if (package / mutant.file).read_text(encoding="utf-8").count(mutant.before) != 1] == []
