"""Votes of forests beside reference forests: one scale for all margins, and an order without sizes."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

import noshadow as ns
from noshadow._audit.exposing import Known, Statistics, in_votes
from noshadow._exposure import Source
from noshadow.results import Evidence
from noshadow.votes import margins_in_votes, one_vote, vote_margins, vote_shares

X, Y = make_classification(1600, 8, n_informative=5, flip_y=0.15, random_state=0)
TRAIN, TEST = (X[:800], Y[:800]), (X[800:], Y[800:])


def test_clipped_log_odds_come_to_the_margins_of_the_votes():
    """Shares of exactly 0 and 1 are clipped at 1e-15 by the reader, which is nothing beside half a vote."""
    for theirs in (10, 100, 500):
        shares = np.arange(theirs + 1) / theirs
        clipped = np.clip(shares, 1e-15, 1 - 1e-15)
        found = margins_in_votes(np.log(clipped) - np.log1p(-clipped), 100)
        np.testing.assert_allclose(found, vote_margins(shares, 100), atol=1e-9)
    assert np.isnan(margins_in_votes(np.array([np.nan]), 100)).all()


def test_margins_of_votes_give_their_shares_back():
    for parts in (1, 7, 100, 5000):
        shares = np.linspace(0, 1, 41)
        np.testing.assert_allclose(vote_shares(vote_margins(shares, parts), parts), shares, atol=1e-12)
    # The slope of an even vote: half a vote to each side of it.
    step = vote_margins(np.array([0.505]), 100) - vote_margins(np.array([0.495]), 100)
    assert step[0] == pytest.approx(one_vote(100), rel=1e-3)


def test_all_margins_move_and_only_where_parts_vote():
    own, rows = np.array([34.5, 0.0]), np.array([[-34.5, np.nan]])
    entry = Known(Source("references", margins=rows, membership=np.zeros((1, 2), bool), test_margins=rows[:, :1]), Evidence("references"))
    plain = Statistics(own, own[:1], "larger")
    assert in_votes(plain, [entry]) == (plain, [entry])
    found, (moved,) = in_votes(Statistics(own, own[:1], "larger", 50), [entry])
    end = np.log(50.5 / 0.5)
    for values, expected in ((found.own, [end, 0.0]), (found.test, [end]), (moved.source.margins, [[-end, np.nan]])):
        np.testing.assert_allclose(values, expected, atol=1e-9)
    np.testing.assert_allclose(moved.source.test_margins, [[-end]])


def test_margins_that_are_votes_already_come_to_the_audited_models_parts():
    """A set that was trained without the target is in votes of its own models."""
    shares, own = np.array([[0.0, 0.5, 1.0]]), np.array([34.5, 0.0, -34.5])
    source = Source(
        "references", margins=vote_margins(shares, 20), membership=np.zeros((1, 3), bool), test_margins=vote_margins(shares, 20)
    )
    entry = Known(source, Evidence("references"), votes=20)
    found, (moved,) = in_votes(Statistics(own, own, "larger", 50), [entry])
    np.testing.assert_allclose(moved.source.margins, vote_margins(shares, 50), atol=1e-9)
    np.testing.assert_allclose(moved.source.test_margins, moved.source.margins)
    assert (found.votes, moved.votes) == (50, 50)
    # A function in the place of the forest does not say that it votes; the set does.
    found, (moved,) = in_votes(Statistics(own, own, "larger"), [entry])
    assert (found.votes, moved.votes) == (20, 20)
    np.testing.assert_allclose(found.own, vote_margins(np.array([1.0, 0.5, 0.0]), 20), atol=1e-9)


@pytest.mark.parametrize("trees", [30, 60])
def test_a_forest_beside_reference_forests_gives_the_order_and_says_why(trees, tmp_path):
    def train_fn(rows, seed):
        return RandomForestClassifier(trees, random_state=seed).fit(X[rows], Y[rows])

    forest = RandomForestClassifier(30, random_state=0).fit(*TRAIN)
    audit = ns.audit(forest, TRAIN, TEST, reference_models=4, train_fn=train_fn, progress=False)
    (weighed,) = (entry for entry in audit.evidence if entry.source == "exposure")
    assert (
        audit.ranked_by == "loo"
        and "exposure_score" in audit.records
        and "attack_rate" not in audit.records
        and weighed.stamp["order_only"]
    )
    assert "did not hold on the calibration forests" in audit.not_applicable["exposure"]
    assert audit.provenance["inputs"]["votes"] == 30 and all(step["width"] is None for step in weighed.stamp["changed"])
    # No sizes follow from more of them: none are offered.
    assert "reference models" not in "".join(audit.summary().partition("More evidence")[1:])
    # Reference forests of any size are on the scale of the audited one: their line is near the identity.
    line = weighed.stamp["lines"]["few references"]
    assert 0.8 < line["slope"] < 1.25 and abs(line["offset"]) < 0.5
    audit.save(tmp_path / "audit")
    assert ns.load(tmp_path / "audit").records["exposure_score"].equals(audit.records["exposure_score"])


def test_out_of_fold_outputs_of_forests_do_not_promise_sizes():
    """They say nothing about test records; references that do would give votes again, and the order alone."""
    forest = RandomForestClassifier(20, random_state=0).fit(*TRAIN)
    halves = np.arange(800) % 2 == 0
    others = [RandomForestClassifier(20, random_state=1).fit(X[:800][half], Y[:800][half]) for half in (halves, ~halves)]
    outputs = np.where(halves[:, None], others[1].predict_proba(X[:800]), others[0].predict_proba(X[:800]))
    audit = ns.audit(forest, TRAIN, TEST, out_of_fold=outputs, progress=False)
    assert audit.ranked_by == "loo" and "exposure_score" in audit.records and "identify sizes" not in audit.not_applicable["exposure"]
    assert "did not hold on the calibration forests" in audit.not_applicable["exposure"]
