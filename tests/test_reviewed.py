"""What a reviewer asks: the largest rate of any record, how often an accusation is right, and what a retraining flags again."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

import noshadow as ns
from fixed_audits import drawn_references, weighed_signals
from noshadow import InputError, NotApplicable
from noshadow._answer import accusations, best_known, retraining, verdict, worst_record
from noshadow._exposure import largest_rate
from noshadow._exposure import retraining as retrained
from noshadow._exposure.draws import Beliefs, Truths, beliefs_of
from noshadow._exposure.largest import _largest, _within_reach
from noshadow._exposure.result import Exposure, State
from noshadow._glance import verdict_lines
from noshadow._known.together import OLDER
from noshadow._known.worst import ENOUGH_MODELS
from noshadow.cli.printing import summary
from noshadow.figures import LargestRate
from noshadow.outcomes import Absent
from test_answer import FPR, attack, exposed, predicted, truth
from test_exposure import drawn
from test_report import page_of

HALF = -ndtri(0.05)


def posterior(separation, error, *, spread_out=1.0, spread_in=1.0, direction="larger", state=None, score=None, ratio=0.0):
    """An exposure whose separations are Gaussian with these means and errors, and whose spreads are known."""
    centre, sd = np.asarray(separation, dtype=float), np.broadcast_to(np.asarray(error, dtype=float), np.shape(separation))
    wide = [np.broadcast_to(np.asarray(value, dtype=float), centre.shape) for value in (spread_in, spread_out)]
    ends = np.column_stack([centre - HALF * sd, centre + HALF * sd])
    ranked = centre if score is None else score
    wide.append(np.full(centre.shape, ratio))
    return Exposure(ranked, "separation", centre, sd**2, centre, ends, *wide, False, "", 0.9, direction, {}, (), state)


def test_of_one_record_it_is_the_records_own_interval():
    for found in (posterior([1.5], 0.6, spread_out=0.8), posterior([3.0], 0.4, direction="either")):
        largest = largest_rate(found, 0.05)
        # 2,000 draws: the share below a 5 % quantile has a standard error of 0.005, which moves these ends by less than 0.02.
        np.testing.assert_allclose(largest.interval, found.tpr_interval(0.05)[0], atol=0.02)
        assert largest.mean == pytest.approx(found.tpr(0.05)[0], abs=0.02) and largest.records == 1


def test_of_independent_records_it_has_the_product_of_their_distributions():
    rng = np.random.default_rng(0)
    centre, error, out, inside = rng.normal(0.5, 0.5, 400), rng.uniform(0.2, 0.6, 400), rng.uniform(0.5, 1, 400), rng.uniform(0.5, 1, 400)
    found = largest_rate(posterior(centre, error, spread_out=out, spread_in=inside), 0.01)

    def quantile(share):
        below = lambda rate: np.prod(ndtr((inside * ndtri(rate) - ndtri(0.01) * out - centre) / error)) - share  # noqa: E731
        return brentq(below, 1e-9, 1 - 1e-9)

    np.testing.assert_allclose([*found.interval, found.median], [quantile(share) for share in (0.05, 0.95, 0.5)], atol=0.01)
    assert found.median > posterior(centre, error, spread_out=out, spread_in=inside).tpr(0.01).max()  # somebody lies above the own estimate


def test_a_signed_separation_counts_on_both_sides():
    rng = np.random.default_rng(1)
    centre = rng.normal(0, 1, 300)
    state = State(np.ones((2, 300)), np.eye(2), np.full((2, 300), np.inf), None, centre)
    found = posterior(np.abs(centre), 1e-4, direction="either", state=state)
    assert largest_rate(found, 0.05).median == pytest.approx(found.tpr(0.05).max(), abs=1e-3)
    truths = Truths(np.float32([-2.0, 2.0]), np.float32([1, 1]), np.float32([1, 1]))
    np.testing.assert_allclose(truths.rates(0.05, "either"), ndtr(2 + ndtri(0.025)) + ndtr(-2 + ndtri(0.025)), rtol=1e-5)


def test_what_records_share_moves_all_of_them_and_what_is_their_own_does_not():
    none, some, wide = np.zeros(500, np.float32), np.full(500, 0.3, np.float32), np.zeros((2, 500), np.float32)
    rng = np.random.default_rng(2)
    shared = _largest(Beliefs(none, none, some, wide, none, none, "larger"), 0.05, 2000, rng)
    own = _largest(Beliefs(none, some, none, wide, none, none, "larger"), 0.05, 2000, rng)
    # A standard error of 2,000 draws is 0.003. All alike: the quantiles of one Gaussian. Each for itself: those of the largest of 500.
    np.testing.assert_allclose(np.quantile(shared, [0.05, 0.95]), ndtr(0.3 * np.array([-HALF, HALF]) + ndtri(0.05)), atol=0.01)
    top = 0.3 * ndtri(np.array([0.05, 0.95]) ** (1 / 500))
    np.testing.assert_allclose(np.quantile(own, [0.05, 0.95]), ndtr(top + ndtri(0.05)), atol=0.005)


def test_spreads_are_drawn_with_their_degrees_of_freedom():
    n, free = 200_000, 6.0
    state = State(np.full((2, n), 1e9), np.eye(2), np.full((2, n), free), None, None)
    beliefs = beliefs_of(posterior(np.zeros(n), 0.1, spread_out=0.5, spread_in=2.0, state=state))
    drawn_once = beliefs.drawn(slice(0, n), 0.0, np.random.default_rng(0))
    # Both sides have their squares together, and the same factor in every draw.
    exact = np.log(2 * free / np.random.default_rng(1).chisquare(2 * free, n)) / 2
    for spread, centre in ((drawn_once.out, 0.5), (drawn_once.inside, 2.0)):
        logs = np.log(spread / centre)
        # Monte Carlo error of 2e5 draws: 0.001.
        assert (logs.mean(), logs.std()) == (pytest.approx(exact.mean(), abs=0.005), pytest.approx(exact.std(), abs=0.005))
    np.testing.assert_allclose(drawn_once.inside / drawn_once.out, 4.0, rtol=1e-5)
    # What is open about the ratio takes them apart, and leaves their product alone.
    open_ratio = beliefs_of(posterior(np.zeros(n), 0.1, spread_out=0.5, spread_in=2.0, ratio=0.36))
    apart = open_ratio.drawn(slice(0, n), 0.0, np.random.default_rng(0))
    assert np.log((apart.inside / apart.out) ** 2).std() == pytest.approx(0.6, abs=0.005)
    np.testing.assert_allclose(apart.inside * apart.out, 1.0, rtol=1e-5)


def test_records_that_cannot_be_the_largest_are_left_out_and_change_nothing():
    near, far = np.linspace(0, 1, 50), np.full(5000, -30.0)
    both = posterior(np.r_[near, far], 0.2)
    assert len(_within_reach(beliefs_of(both), 0.05)) == 50
    np.testing.assert_allclose(largest_rate(both, 0.05).interval, largest_rate(posterior(near, 0.2), 0.05).interval)
    assert largest_rate(both, 0.05).records == 5050
    assert largest_rate(both, 0.05, seed=1).interval != largest_rate(both, 0.05).interval == largest_rate(both, 0.05).interval


def test_under_the_model_the_plain_maximum_is_too_large_and_the_interval_holds_the_true_one():
    slopes, inside, covered, plain, shrunk, true = np.array([[1.0, -0.1], [-0.1, 0.06]]), 16, 0, [], [], []
    for seed in range(40):
        margins, covariates, references, membership, d_prime = drawn(600, inside, seed, slopes=slopes, spreads=(0.7, 0.7))
        rates = ndtr(d_prime + ndtri(0.01))
        found = ns.exposure(margins, covariates=covariates, references=references, membership=membership)
        low, high = largest_rate(found, 0.01).interval
        covered += low <= rates.max() <= high
        means = [np.where(membership == side, references, 0).sum(0) / np.maximum((membership == side).sum(0), 1) for side in (True, False)]
        plain.append(ndtr((means[0] - means[1]) / 0.7 + ndtri(0.01)).max())
        shrunk.append(found.tpr(0.01).max())
        true.append(rates.max())
    # 40 data sets of a true 90 %: fewer than 31 once in 200. benchmarks/largest_rate.py has more of them.
    assert covered >= 31
    assert np.mean(plain) > np.mean(true) + 0.02 and np.mean(shrunk) < np.mean(true) - 0.02


def test_without_leakage_nobody_stands_out():
    margins, covariates, references, membership, _ = drawn(1000, 4, 0, leak=False)
    found = ns.exposure(margins, covariates=covariates, references=references, membership=membership)
    for fpr in (0.01, 0.001):
        assert largest_rate(found, fpr).interval[0] < 10 * fpr


def test_sizes_and_a_level_are_needed():
    found = replace(posterior([1.0, 2.0], 0.1), order_only=True, reason="no scale")
    for ask in (largest_rate, retrained):
        with pytest.raises(NotApplicable, match="order only: no scale"):
            ask(found, 0.05)
        with pytest.raises(InputError, match="fpr must be"):
            ask(posterior([1.0, 2.0], 0.1), 1.0)
        with pytest.raises(InputError, match="seed must be"):
            ask(posterior([1.0, 2.0], 0.1), 0.1, seed=-1)


def test_flags_of_a_retraining_are_those_of_simulated_trainings():
    rng = np.random.default_rng(3)
    n, out, inside = 2000, 0.8, 0.6
    separation = rng.gamma(1.0, 0.8, n)
    found = retrained(posterior(separation, 1e-6, spread_out=out, spread_in=inside), 0.01)
    runs = separation + inside * rng.normal(size=(400, n))  # margins beyond the level without the record
    flags = runs > -ndtri(0.01) * out
    again = (flags[:200] & flags[200:]).sum() / flags[:200].sum()
    assert found.flagged_again[0] == pytest.approx(again, abs=0.01)
    today = np.argsort(-separation)[:20]
    assert found.top_flagged[0] == pytest.approx(flags[:, today].mean(), abs=0.01) and found.top_records == 20
    tops = [set(np.argsort(-run)[:20].tolist()) for run in runs]
    shared = [len(first & second) / 20 for first, second in zip(tops[:200], tops[200:], strict=True)]
    assert found.top_overlap[0] == pytest.approx(np.median(shared), abs=0.051)  # of 20 records, one is a step of 0.05
    np.testing.assert_allclose(found.top_overlap[1:], np.quantile(shared, [0.05, 0.95]), atol=0.051)


def test_uncertain_rates_make_uncertain_flags():
    found = retrained(posterior(np.linspace(0, 3, 500), 0.8, score=-np.arange(500.0)), 0.01)
    sure = retrained(posterior(np.linspace(0, 3, 500), 1e-6, score=-np.arange(500.0)), 0.01)
    assert found.flagged_again[2] - found.flagged_again[1] > 0.02 > sure.flagged_again[2] - sure.flagged_again[1]
    assert sure.top_flagged[0] == pytest.approx(ndtr(ndtri(0.01) + np.linspace(0, 3, 500)[:5]).mean(), abs=1e-3)  # the top is by score


def test_an_accusation_is_right_as_often_as_a_count_of_accused_people_says():
    rng = np.random.default_rng(4)
    for tpr, fpr, prior in ((0.3, 0.01, 0.1), (0.05, 0.05, 0.01), (0.9, 0.001, 0.5)):
        member = rng.random(4_000_000) < prior
        accused = rng.random(4_000_000) < np.where(member, tpr, fpr)
        # At least 1.8e4 accused: a standard error below 0.004.
        assert ns.metrics.accusation_precision(tpr, fpr, prior) == pytest.approx(member[accused].mean(), abs=0.012)
    assert ns.metrics.accusation_precision(0.02, 0.02, 0.3) == pytest.approx(0.3) and ns.metrics.accusation_precision(0, 0, 0.3) == 0.3
    with pytest.raises(InputError, match="accusation_precision: prior must be"):
        ns.metrics.accusation_precision(0.5, 0.01, 0.0)


def test_accusations_follow_what_is_best_known():
    measured = replace(predicted(0.12, (0.05, 0.2)), ground_truth=truth(attack("LiRA", 0.6)))
    rows = accusations(best_known(measured))
    assert [row.prior for row in rows] == [0.01, 0.1, 0.5] == [row.guess for row in rows]
    assert rows[1].precision == pytest.approx(0.06 / (0.06 + 0.9 * FPR))
    assert rows[1].interval == pytest.approx((0.058 / (0.058 + 0.9 * FPR), 0.062 / (0.062 + 0.9 * FPR)))
    losses = best_known(replace(measured, ground_truth=None, model_risk=replace(measured.model_risk, predicted_tpr=None)))
    assert losses.source == "losses"
    half = accusations(losses)[2]  # whom the losses do not rule out is accused
    assert half.precision == pytest.approx((1 - losses.fpr) / (1 - losses.fpr + 1 - losses.rate))
    assert accusations(replace(losses, rate=None)) == ()


@pytest.fixture(scope="module")
def weighing():
    """An audit with drawn references, and the exposure of the same arrays."""
    held = {}

    def kept(found):
        held["known"] = drawn_references(found)
        return held["known"]

    audit = weighed_signals([kept], fpr=0.02)
    return audit, held["known"]


def stamp_of(audit):
    return next(entry for entry in audit.evidence if entry.source == "exposure").stamp


def test_an_audit_draws_both_at_its_own_level_and_its_folder_keeps_them(weighing, tmp_path, monkeypatch):
    audit, known = weighing
    stamp = stamp_of(audit)
    assert stamp["largest_rate"]["fpr"] == stamp["retraining"]["fpr"] == 0.02 and stamp["largest_rate"]["records"] == len(audit.records)
    asked = []

    def listening(name):
        def heard(found, fpr, *, seed):
            asked.append((name, fpr, seed, found.score))
            return {"largest_rate": largest_rate, "retraining": retrained}[name](found, fpr, seed=seed)

        return heard

    for name in ("largest_rate", "retraining"):
        monkeypatch.setattr(f"noshadow._audit.exposing.{name}", listening(name))
    again = weighed_signals([lambda _: known], fpr=0.02, seed=5)
    assert [row[:3] for row in asked] == [("largest_rate", 0.02, 5), ("retraining", 0.02, 5)]
    np.testing.assert_array_equal(asked[0][3], again.records["exposure_score"])
    # With fewer models the posterior of the maximum invents exposed records, and the largest estimate is told as such.
    few = worst_record(resting_on(audit, ENOUGH_MODELS - 1))
    assert not few.drawn and few.rate == audit.records["attack_rate"].max() and not worst_record(audit).drawn
    audit = resting_on(audit, ENOUGH_MODELS)
    worst = worst_record(audit)
    assert (worst.rate, worst.interval, worst.drawn) == (stamp["largest_rate"]["median"], tuple(stamp["largest_rate"]["interval"]), True)
    assert worst.own_rate == audit.records["attack_rate"].max() != worst.rate and worst.interval_level == 0.9
    audit.save(tmp_path / "a")
    assert worst_record(ns.load(tmp_path / "a")) == worst and retraining(ns.load(tmp_path / "a")) == retraining(audit)


def test_a_folder_without_them_loads_and_says_that_the_maximum_is_naive(weighing, tmp_path):
    audit = weighing[0]
    older = replace(
        audit,
        evidence=tuple(
            replace(entry, stamp={name: value for name, value in entry.stamp.items() if name not in ("largest_rate", "retraining")})
            for entry in audit.evidence
        ),
    )
    older.save(tmp_path / "old")
    worst = worst_record(ns.load(tmp_path / "old"))
    assert not worst.drawn and worst.rate == worst.own_rate == audit.records["attack_rate"].max()
    assert "nothing corrects it for being the largest" in worst.reason and retraining(older) == OLDER
    assert "not corrected for that" in verdict_lines(older, show_ids=True)[3].text
    assert "is the largest of 600 estimates, not corrected" in page_of(older, tmp_path).one(id="largest-rate").text


def test_a_tampered_figure_is_refused(weighing):
    held = stamp_of(weighing[0])["largest_rate"]
    with pytest.raises(InputError, match="median must be"):
        LargestRate.from_dict(held | {"median": 1.5})
    with pytest.raises(InputError, match="begin with the smaller end"):
        LargestRate.from_dict(held | {"interval": [0.9, 0.1]})
    entry = next(entry for entry in weighing[0].evidence if entry.source == "exposure").to_dict()
    entry["stamp"]["retraining"]["top_overlap"] = "all"
    with pytest.raises(InputError, match="top_overlap"):
        type(weighing[0].evidence[0]).from_dict(entry)


def resting_on(audit, models):
    """The audit as if this many models stood behind its exposure."""
    sources = stamp_of(audit)["trainings"]
    return replace(
        audit,
        evidence=tuple(
            replace(entry, stamp=dict(entry.stamp) | {"models": models}) if sources.get(entry.source) else entry for entry in audit.evidence
        ),
    )


def drawn_maximum(audit, median, interval):
    """The audit with this posterior of the largest rate, from enough models."""
    audit = resting_on(audit, ENOUGH_MODELS)
    held = LargestRate(FPR, median, median, interval, 0.9, len(audit.records), 2000, 0).to_dict()
    return replace(
        audit,
        evidence=tuple(
            replace(entry, stamp=dict(entry.stamp) | {"largest_rate": held}) if entry.source == "exposure" else entry
            for entry in audit.evidence
        ),
    )


def test_verdict_gate_terminal_and_page_speak_of_the_largest_rate(run, tmp_path):
    rates = np.full(200, FPR)
    rates[17] = 0.3
    lows = rates / 2
    audit = drawn_maximum(exposed(rates, lows, np.minimum(rates * 1.1, 1.0)), 0.5, (0.101, 0.7))
    found = verdict(audit)
    assert found.level == "some" and "The most exposed record is recognised by 500 in 1,000" in found.sentence
    # Somebody's rate is the largest on clean data, too: a record must stand out by its own interval.
    lows[17] = 0.1
    assert verdict(drawn_maximum(exposed(rates, lows, np.minimum(rates * 1.1, 1.0)), 0.5, (0.101, 0.7))).level == "none"
    audit.save(tmp_path / "a")
    code, out, _ = run("gate", tmp_path / "a", "--max-record-rate", 0.4, "--json")
    (row,) = json.loads(out)["limits"]
    assert code == 1 and (row["value"], row["interval"], row["drawn"]) == (0.5, [0.101, 0.7], True) and "true rates" in row["reason"]
    line = verdict_lines(audit, show_ids=True)[3].text
    assert "probably r17, own rate 300 in 1,000" in line and "largest rate of any record is 500 in 1,000, interval 101 to 700" in line
    root = page_of(audit, tmp_path)
    assert "500 in 1,000 (90 % interval 101 to 700 in 1,000)" in root.one(id="largest-rate").text
    assert "the most exposed: 300 in 1,000" in root.one("svg", class_="exposure-chart").text


def test_json_and_page_show_accusations_and_retraining(weighing, tmp_path):
    audit = resting_on(weighing[0], ENOUGH_MODELS)
    said = json.loads(json.dumps(summary(audit, Path("a/report.html")), allow_nan=False))
    known = best_known(audit)
    assert [row["prior"] for row in said["accusations"]] == [0.01, 0.1, 0.5]
    assert said["accusations"][0]["precision"] == pytest.approx(0.01 * known.rate / (0.01 * known.rate + 0.99 * known.fpr))
    assert said["retraining"] == stamp_of(audit)["retraining"] and said["worst_record"]["drawn"]
    root = page_of(audit, tmp_path)
    cells = [row.text for row in root.one("table", class_="accusations").all("tr")]
    said_of = [round(1000 * row.precision) for row in accusations(known)]
    assert cells[1].startswith(f"one in a hundred10{said_of[0]}") and cells[3].startswith(f"every other one500{said_of[2]}")
    again = round(1000 * retraining(audit).flagged_again[0])
    assert f"{again} in 1,000" in root.text
    plain = predicted(0.12, (0.05, 0.2))
    absent = retraining(plain)
    assert isinstance(absent, Absent) and "no reference models were trained" in absent
    assert not page_of(plain, tmp_path).all(id="retraining")
    assert json.loads(json.dumps(summary(plain, Path("a/report.html"))))["retraining"] == {"absent": str(absent)}
