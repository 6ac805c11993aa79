"""compare(): differences against brute force, intervals by simulation, records and findings that moved, audits of different data."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

import noshadow as ns
from noshadow._compare.intervals import Samples, auc_difference_interval, separate_difference_interval, tnr_difference_interval
from noshadow.checks import InputError
from noshadow.results import Audit
from noshadow.tail import model_risk

NOBODY = (np.empty(0, dtype=int),) * 2


def audited(members, nonmembers, *, ids=None, targets=None, shift=None, tested="tests", fpr=0.05, **changes):
    members, nonmembers = np.asarray(members, dtype=float), np.asarray(nonmembers, dtype=float)
    n = len(members)
    shift = np.linspace(2, 1, n) if shift is None else np.asarray(shift, dtype=float)
    ranks = np.empty(n, dtype=np.int64)
    ranks[np.argsort(-shift, kind="stable")] = np.arange(1, n + 1)
    records = pd.DataFrame({"id": range(n) if ids is None else ids, "target": np.arange(n) % 3 if targets is None else targets})
    stamp = {"row_order": f"ids of {tested}", "targets": f"targets of {tested}", "data": "d"}
    fields = {
        "records": records.assign(loss=members, shift=shift, rank=ranks),
        "model_risk": model_risk(members, nonmembers, fpr=fpr, resamples=100),
        "member_losses": members,
        "nonmember_losses": nonmembers,
        "task": "classification",
        "ranked_by": "shift",
        "provenance": {"hashes": {"test": stamp, "train": {"row_order": "r", "data": "d"}}},
    }
    return Audit(**(fields | changes))


def two(seed=0, n=400, apart=0.0, correlation=0.9, **options):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((2, 2, n))  # (members or others, model, record)
    z[:, 1] = correlation * z[:, 0] + math.sqrt(1 - correlation**2) * z[:, 1]
    return [audited(np.exp(z[0, k] - 1 - k * apart), np.exp(z[1, k] + k * apart), **options) for k in range(2)]


def change(comparison, name):
    (found,) = (entry for entry in comparison.changes if entry.name == name)
    return found


# Intervals


def brute_tnr_interval(samples, level, resamples, seed):
    """Records resampled one by one, thresholds and shares read off each resample."""
    rng = np.random.default_rng(seed)
    n, m = len(samples.members[0]), len(samples.nonmembers[0])
    draws = []
    for _ in range(resamples):
        rows, others = rng.integers(0, n, n), rng.integers(0, m, m)
        rates = [ns.metrics.tnr_at_fnr(inside[rows], outside[others], level) for inside, outside in zip(*samples_of(samples), strict=True)]
        draws.append(rates[1] - rates[0])
    return np.quantile(draws, (0.025, 0.975)), np.std(draws)


def samples_of(samples):
    return samples.members, samples.nonmembers


def paired(seed, n=150, m=120):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal(n), rng.standard_normal(m)
    members = (np.exp(a - 1), np.exp(0.8 * a + 0.6 * rng.standard_normal(n) - 1.3))
    others = (np.exp(b), np.exp(0.8 * b + 0.6 * rng.standard_normal(m) + 0.2))
    return Samples(members, others, (np.arange(n),) * 2, True)


@pytest.mark.parametrize("level", [0.02, 0.1])
def test_the_bootstrap_draws_what_resampling_records_draws(level):
    samples = paired(3)
    ends, deviation = brute_tnr_interval(samples, level, 3000, seed=1)
    found = tnr_difference_interval(samples, level, coverage=0.95, seed=2, resamples=6000)
    # A 2.5 % quantile of 3,000 draws has a standard error of about 0.05 deviations; shares are in steps of 1/120 beside.
    assert np.abs(np.array(found) - ends).max() < 0.25 * deviation + 1 / 120


def test_shared_records_make_the_interval_shorter_and_rows_may_be_anywhere():
    whole = paired(4)
    apart = replace(whole, shared=NOBODY, same_tests=False)
    width = [np.ptp(tnr_difference_interval(s, 0.1, coverage=0.95, seed=0)) for s in (whole, apart)]
    assert width[0] < 0.85 * width[1]
    assert np.ptp(auc_difference_interval(whole, coverage=0.95)) < 0.7 * np.ptp(auc_difference_interval(apart, coverage=0.95))
    order = np.random.default_rng(0).permutation(len(whole.members[0]))
    moved = replace(whole, members=(whole.members[0], whole.members[1][order]), shared=(order, np.arange(len(order))))
    assert tnr_difference_interval(moved, 0.1, coverage=0.95, seed=0) == pytest.approx(
        tnr_difference_interval(whole, 0.1, coverage=0.95, seed=0), abs=0.03
    )
    # The same sums in another order: rounding only.
    assert auc_difference_interval(moved, coverage=0.95) == pytest.approx(auc_difference_interval(whole, coverage=0.95), rel=1e-9)


def test_the_auc_variance_is_that_of_resampling():
    samples = paired(5)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(2000):
        rows, others = rng.integers(0, 150, 150), rng.integers(0, 120, 120)
        aucs = [ns.metrics.loss_auc(inside[rows], outside[others]) for inside, outside in zip(*samples_of(samples), strict=True)]
        draws.append(aucs[1] - aucs[0])
    half = np.ptp(auc_difference_interval(samples, coverage=0.95)) / 2
    # A standard deviation from 2,000 draws is known to 1.6 %; the bootstrap's own bias is of order 1/150.
    assert half / 1.959964 == pytest.approx(np.std(draws), rel=0.08)


def simulated(shared, level, repetitions, *, means=((-1.0, 0.0), (-1.0, 0.0)), n=200):
    """Coverage of both intervals over lognormal losses whose true rates are known."""
    truth = np.diff([ndtr(out - inside + ndtri(level)) for inside, out in means])[0]
    auc_truth = np.diff([ndtr((out - inside) / math.sqrt(2)) for inside, out in means])[0]
    hits = np.zeros(2)
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal((2, 2, n))
        if shared:
            z[:, 1] = 0.8 * z[:, 0] + 0.6 * z[:, 1]
        losses = [tuple(np.exp(means[k][which] + z[which, k]) for k in range(2)) for which in range(2)]
        samples = Samples(losses[0], losses[1], (np.arange(n),) * 2 if shared else NOBODY, shared)
        low, high = tnr_difference_interval(samples, level, coverage=0.95, seed=seed, resamples=300)
        hits[0] += low <= truth <= high
        low, high = auc_difference_interval(samples, coverage=0.95)
        hits[1] += low <= auc_truth <= high
    return hits / repetitions


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("means", [((-1.0, 0.0), (-1.0, 0.0)), ((-1.0, 0.0), (-1.5, 0.3))])
def test_the_intervals_cover_the_true_difference(shared, means):
    # 200 repetitions of a true 95 % fall below 90.5 % once in 400; benchmarks/compare_coverage.py has more of them.
    assert (simulated(shared, 0.05, 200, means=means) >= 0.905).all()


def test_intervals_put_together_from_two():
    found = separate_difference_interval((0.2, (0.1, 0.4)), (0.5, (0.46, 0.53)))
    assert found == pytest.approx((0.3 - math.hypot(0.04, 0.2), 0.3 + math.hypot(0.03, 0.1)))


def test_losses_without_variance_have_no_interval():
    flat = Samples((np.zeros(5), np.ones(5)), (np.ones(5), np.zeros(5)), NOBODY, False)
    assert auc_difference_interval(flat, coverage=0.95) is None
    same = Samples((np.zeros(5), np.zeros(5)), (np.ones(5), np.ones(5)), NOBODY, False)
    assert auc_difference_interval(same, coverage=0.95) == (0.0, 0.0)


# The comparison


def test_an_audit_has_not_changed_against_itself():
    one, _ = two()
    found = ns.compare(one, one)
    assert found.verdict == "No change in model risk beyond noise." and not found.differences
    assert found.same_records and found.same_tests and found.rank_correlation == 1.0
    assert not found.entered and not found.left and not found.gained and not found.lost
    for entry in found.changes:
        assert entry.difference == 0 and entry.interval == (0.0, 0.0) and entry.more_than_noise is False


def test_a_real_change_is_seen_and_its_figures_are_the_audits():
    one, other = two(apart=0.5)
    found = ns.compare(one, other)
    for name in ("tnr", "auc"):
        entry = change(found, name)
        assert entry.before == getattr(one.model_risk, name) and entry.after == getattr(other.model_risk, name)
        assert entry.interval[0] <= entry.difference <= entry.interval[1] and entry.more_than_noise
    assert found.verdict.startswith("Model risk rose by more than noise: TNR")
    back = ns.compare(other, one)
    assert back.verdict.startswith("Model risk fell") and change(back, "auc").difference == -change(found, "auc").difference
    assert {finding.code for finding in found.gained} == {finding.code for finding in back.lost}


def test_noise_is_not_called_a_change():
    called = [any(entry.more_than_noise for entry in ns.compare(*two(seed)).changes) for seed in range(10)]
    assert sum(called) <= 3  # two intervals of 95 % each: 4 or more of 10 come up once in 100 at most, and these seeds are fixed


def test_the_same_seed_gives_the_same_interval():
    one, other = two()
    assert ns.compare(one, other, seed=3) == ns.compare(one, other, seed=3)
    assert change(ns.compare(one, other, seed=3), "tnr").interval != change(ns.compare(one, other, seed=4), "tnr").interval


def test_levels_that_differ_meet_at_the_larger_one():
    one, _ = two(fpr=0.05)
    _, other = two(fpr=0.02)
    found = ns.compare(one, other)
    assert "FNR 0.05" in change(found, "tnr").label and any("another level" in note for note in found.notes)
    assert change(found, "tnr").after == ns.metrics.tnr_at_fnr(other.member_losses, other.nonmember_losses, 0.05)
    asked = ns.compare(one, other, fpr=0.1)
    assert change(asked, "tnr").before == ns.metrics.tnr_at_fnr(one.member_losses, one.nonmember_losses, 0.1)


def test_predicted_rates_are_compared_when_both_have_one():
    one, other = two()
    predicted = [
        replace(a, model_risk=replace(a.model_risk, predicted_tpr=p, predicted_tpr_interval=e, in_calibration_domain=True))
        for a, p, e in ((one, 0.1, (0.05, 0.2)), (other, 0.5, (0.4, 0.6)))
    ]
    entry = ns.compare(*predicted).changes[0]
    assert entry.name == "predicted_tpr" and entry.difference == pytest.approx(0.4) and entry.more_than_noise
    assert "only one" in ns.compare(one, predicted[1]).not_applicable["predicted_tpr"]
    assert "predicted_tpr" in ns.compare(one, other).not_applicable
    bare = [replace(a, model_risk=replace(a.model_risk, predicted_tpr_interval=None)) for a in predicted]
    assert ns.compare(*bare).changes[0].more_than_noise is None and ns.compare(*bare).changes[0].interval is None


def test_records_that_enter_and_leave_the_top():
    one, other = two()
    shift = one.records["shift"].to_numpy().copy()
    shift[[300, 301]] = [9.0, 8.0]
    ranks = np.empty(400, dtype=np.int64)
    ranks[np.argsort(-shift, kind="stable")] = np.arange(1, 401)
    moved = replace(other, records=other.records.assign(shift=shift, rank=ranks))
    found = ns.compare(one, moved)
    assert found.top_before == found.top_after == 4
    assert [(m.id, m.rank_before, m.rank_after) for m in found.entered] == [("300", 301, 1), ("301", 302, 2)]
    assert [(m.id, m.rank_before, m.rank_after) for m in found.left] == [("2", 3, 5), ("3", 4, 6)]
    assert found.rank_correlation == pytest.approx(spearmanr(one.records["shift"], shift).statistic, abs=1e-12)


def test_a_part_of_the_records_in_common():
    one, other = two()
    names = [f"p{i}" for i in range(400)]
    first = replace(one, records=one.records.assign(id=names))
    rows = np.r_[100:400]
    second = replace(other, records=other.records.iloc[rows].assign(id=np.array(names)[rows], rank=np.arange(1, 301)))
    second = replace(second, member_losses=other.member_losses[rows])
    found = ns.compare(first, second)
    assert (found.shared, found.only_before, found.only_after) == (300, 100, 0) and found.same_records
    assert found.differences["records without a counterpart"] == [100, 0] and found.differences["training records"] == [400, 300]
    assert {m.rank_after for m in found.left} == {None}
    assert "shared training and test records" in change(found, "tnr").method


# Audits of different data


def test_ids_alone_do_not_make_records_the_same():
    one, other = two()
    other = replace(other, records=other.records.assign(target=(np.arange(400) + 1) % 3))
    found = ns.compare(one, other)
    assert not found.same_records and found.rank_correlation is None and not found.entered and found.shared == 400
    assert "have another target, so they name other records" in found.not_applicable["rank correlation"]
    assert "resampled separately" in change(found, "tnr").method and not found.same_tests
    assert any("ranks cannot" in note for note in found.notes)


def test_a_few_corrected_labels_do_not_matter():
    one, other = two()
    targets = one.records["target"].to_numpy().copy()
    targets[:4] += 1
    found = ns.compare(one, replace(other, records=other.records.assign(target=targets)))
    assert found.same_records and any("4 of the 400 records in both audits have another target" in note for note in found.notes)


def test_other_test_records_are_resampled_separately_and_said():
    one, _ = two()
    _, other = two(tested="other tests")
    found = ns.compare(one, other)
    assert not found.same_tests and found.same_records and "shared training records" in change(found, "tnr").method
    assert any("not known to be the same" in note for note in found.notes)
    assert found.differences["test ids (SHA-256)"] == ["ids of tests", "ids of other tests"]
    old = replace(one, provenance={"hashes": {"test": {"row_order": "ids of tests"}}})  # a version without digests of targets
    assert not ns.compare(old, old).same_tests


def test_nothing_in_common():
    one, _ = two()
    _, other = two(ids=[f"other-{i}" for i in range(400)], task="binary")
    found = ns.compare(one, other)
    assert found.shared == 0 and "no record id in common" in found.not_applicable["records entering and leaving"]
    assert len(found.changes) == 2 and found.differences["task"] == ["classification", "binary"]
    assert any("the tasks differ" in note for note in found.notes)


def test_targets_of_another_form():
    one, other = two()
    several = other.records.drop(columns="target").assign(target_0=1.0, target_1=2.0)
    found = ns.compare(one, replace(other, records=several, task="regression"))
    assert "different forms" in found.not_applicable["rank correlation"]


def test_audits_without_risk_or_ranks():
    one, other = two()
    blind = replace(other, model_risk=None, nonmember_losses=np.empty(0))
    found = ns.compare(one, blind)
    assert found.changes == () and found.verdict == "The change in model risk is not known: the second audit has no model-level risk."
    assert found.rank_correlation is not None
    unranked = replace(one, ranked_by=None, records=one.records.drop(columns=["rank", "shift"]))
    found = ns.compare(unranked, unranked)
    assert "the first and the second audit ranks no records" in found.not_applicable["rank correlation"]
    constant = replace(one, records=one.records.assign(shift=1.0))
    assert "same score" in ns.compare(one, constant).not_applicable["rank correlation"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"fpr": 0.001}, "compare: fpr must be at least 0.0025, the smallest level that 400 records resolve; got 0.001"),
        ({"fpr": 1.5}, "compare: fpr must be a number > 0 and < 1; got 1.5"),
        ({"level": 1.0}, "compare: level must be a number > 0 and < 1; got 1"),
        ({"seed": -1}, "compare: seed must be a whole number"),
    ],
)
def test_arguments_out_of_range_are_refused(options, match):
    with pytest.raises(InputError, match=match):
        ns.compare(*two(), **options)


def test_only_audits_are_compared():
    one, _ = two()
    with pytest.raises(InputError, match=r"compare: before must be an Audit; got str\. Read a folder"):
        ns.compare("a", one)
    with pytest.raises(InputError, match="compare: after must be an Audit; got NoneType"):
        ns.compare(one, None)
    with pytest.raises(InputError, match="write_comparison: comparison must be a Comparison; got Audit"):
        ns.write_comparison(one, "x.html")


def test_two_trained_models_on_the_same_records(tmp_path):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(300, 60)), rng.integers(0, 2, 300)  # nothing to learn but the records
    splits = (x[:150], y[:150]), (x[150:], y[150:])
    audits = [ns.audit(LogisticRegression(C=c, max_iter=5000).fit(*splits[0]), *splits, fpr=0.1, progress=False) for c in (1e4, 1e-3)]
    folders = [audit.save(tmp_path / name) for audit, name in zip(audits, "ab", strict=True)]
    found = ns.compare(*map(ns.load, folders))
    assert found == ns.compare(*audits)
    assert found.same_records and found.same_tests and change(found, "auc").more_than_noise and change(found, "auc").difference < 0
    assert "weights (SHA-256)" in found.differences and "training ids (SHA-256)" not in found.differences
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["changes"][0]["name"] == "tnr" and isinstance(plain["gained"], list)


def test_the_page_has_the_figures_and_keeps_hostile_text_text(tmp_path):
    hostile = ["<script>alert(1)</script>\u202e"] + [f"i{k}" for k in range(399)]
    one, other = two(ids=hostile, apart=0.5)
    found = ns.compare(one, replace(other, records=other.records.assign(rank=np.arange(400, 0, -1), shift=np.linspace(1, 2, 400))))
    html = ns.write_comparison(found, tmp_path / "c.html").read_text(encoding="utf-8")
    assert "<script" not in html and "\u202e" not in html and "&lt;script&gt;" in html
    assert repr(found.changes[0].difference) in html and "more than noise" in html and "Rank correlation" in html
    assert "http" not in html.replace("http-equiv", "") and "src=" not in html
    assert found.verdict.split(":")[0] in html
