"""Attacks by reference forests read margins of votes, brought to the trees of the target."""

from dataclasses import asdict

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.datasets import make_classification
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import noshadow as ns
from noshadow._audit.with_references import with_references
from noshadow._exposure import Source, line_to
from noshadow.attacks import attack_success, lira_scores
from noshadow.metrics import tpr_at_fpr
from noshadow.reference import ground_truth, load_references, train_references, with_ground_truth
from noshadow.storage.safetensors_files import layout
from noshadow.views import voting_parts
from noshadow.votes import margins_in_votes, one_vote, vote_margins

N = 300
X, Y = make_classification(2 * N, 6, n_informative=4, n_classes=3, n_clusters_per_class=1, flip_y=0.1, random_state=0)
TRAIN, TEST = (X[:N], Y[:N]), (X[N:], Y[N:])
TREES = 20
OWN = np.arange(2 * N), Y


def forest(rows, seed, trees=TREES):
    return RandomForestClassifier(trees, random_state=seed).fit(X[rows], Y[rows])


def larger(rows, seed):
    return forest(rows, seed, 2 * TREES)


def smaller(rows, seed):
    return forest(rows, seed, TREES // 2)


def outputs(rows, seed):
    return forest(rows, seed).predict_proba(X)


def boosted(rows, seed):
    return HistGradientBoostingClassifier(max_iter=3, random_state=seed).fit(X[rows], Y[rows])


def every_tree_sees_all(rows, seed):
    return ExtraTreesClassifier(TREES, random_state=seed).fit(X[rows], Y[rows])


def trained(folder, train_fn=forest, *, model="target", models=8):
    model = forest(np.arange(N), 0) if isinstance(model, str) else model
    return train_references(folder, train_fn, TRAIN, TEST, model=model, models=models, workers=1, progress=False)


def without_votes(folder):
    """The files as versions wrote them that said nothing of votes."""
    for path in (folder / "target.safetensors", *(folder / "models").glob("*.safetensors")):
        arrays = load_file(path)
        save_file(arrays, path, {name: text for name, text in layout(path).metadata.items() if name != "votes"})


@pytest.mark.parametrize("train_fn", [forest, larger, smaller, outputs])
def test_margins_are_votes_of_the_targets_trees(train_fn, tmp_path):
    """Forests of any size, and their probabilities in the place of a model, against the formula on scikit-learn's own shares."""
    references = trained(tmp_path / "set", train_fn)
    assert references.votes == TREES
    for number in (0, 5):
        model = train_fn(references.plan.members(number), int(references.plan.seeds[number]))
        shares = (model if isinstance(model, np.ndarray) else model.predict_proba(X))[OWN]
        expected = vote_margins(shares, TREES)
        np.testing.assert_allclose(references.statistic[number], expected, atol=1e-6)
        np.testing.assert_allclose(references.model(number).statistic, expected, atol=1e-6)
    own = vote_margins(forest(np.arange(N), 0).predict_proba(X)[OWN], TREES)
    np.testing.assert_allclose(references.target.statistic, own, atol=1e-6)
    assert np.abs(references.statistic).max() == pytest.approx(np.log(2 * TREES + 1))


def test_attacks_read_these_margins_and_say_so(tmp_path):
    references = trained(tmp_path / "set")
    truth, table = ground_truth(references, progress=False)
    assert truth.variants["LiRA"]["statistic"] == f"margin of votes log((k + ½)/(B − k + ½)), B = {TREES}"
    assert truth.variants["LiRA"]["floor"] == one_vote(TREES) == pytest.approx(4 / 21)
    found = attack_success(references.statistic, references.membership, floor=one_vote(TREES), progress=False)
    np.testing.assert_array_equal(table["lira_d"], found.d_prime)
    shares = (1 / (1 + np.exp(-np.asarray(references.statistic)))).astype(np.float64)
    assert shares.min() == pytest.approx(0.5 / (TREES + 1))
    rmia = attack_success(shares, references.membership, attack="rmia", progress=False)
    np.testing.assert_allclose(table["rmia_success"], rmia.success, atol=1e-9)


def test_forests_without_any_spread_are_attacked(tmp_path):
    """Without bootstrap every tree knows its own records by heart: their votes have no spread at all."""
    references = trained(tmp_path / "set", every_tree_sees_all, model=every_tree_sees_all(np.arange(N), 0))
    inside = np.asarray(references.statistic)[np.asarray(references.membership)]
    assert np.ptp(inside) < 1e-9
    truth, _ = ground_truth(references, progress=False)
    assert {row.attack: row.auc for row in truth.attacks if row.attacked == "target"}["LiRA"] > 0.8


def test_lira_finds_more_by_votes_than_by_clipped_log_odds(tmp_path):
    """Deep forests put many shares at exactly 0 and 1, where clipped log-odds of 34.5 are most of any spread."""
    references = trained(tmp_path / "set", models=24)
    shares = np.array([forest(references.plan.members(t), int(references.plan.seeds[t])).predict_proba(X)[OWN] for t in range(24)])
    own = forest(np.arange(N), 0).predict_proba(X)[OWN]
    clipped = [np.log(np.clip(p, 1e-15, None)) - np.log(np.clip(1 - p, 1e-15, None)) for p in (own, shares)]
    found = {
        "votes": lira_scores(references.target.statistic, references.statistic, references.membership, floor=one_vote(TREES)),
        "clipped": lira_scores(*clipped, references.membership),
    }
    rate = {name: tpr_at_fpr(scores[:N], scores[N:], 0.01) for name, scores in found.items()}
    assert rate["votes"] > rate["clipped"] + 0.05, rate


def test_files_that_do_not_tell_are_read_as_they_say_or_as_the_audit_does(tmp_path):
    audit = ns.audit(forest(np.arange(N), 0), TRAIN, TEST, progress=False)
    expected = np.array(trained(tmp_path / "set").statistic)
    without_votes(tmp_path / "set")
    old = load_references(tmp_path / "set")
    assert old.votes == 0 and np.abs(old.statistic).max() > 30
    assert ground_truth(old, progress=False)[0].variants["LiRA"]["statistic"].startswith("margin log p_y")
    scored = with_ground_truth(audit, old, progress=False)
    assert scored.ground_truth.variants["LiRA"]["statistic"].endswith(f"B = {TREES}")
    again = attack_success(expected, old.membership, floor=one_vote(TREES), progress=False)
    rows = [list(old.ids).index(one) for one in scored.records["id"]]
    np.testing.assert_allclose(scored.records["lira_d"], again.d_prime[rows], atol=1e-6)


def test_sets_of_votes_and_others_say_that_they_are_log_odds(tmp_path):
    references = trained(tmp_path / "set", boosted)
    assert references.votes == 0 and any("Some of these models vote" in note for note in references.notes)
    # The exposure of a forest is weighed in votes all the same, and gives the order alone.
    audit = ns.audit(forest(np.arange(N), 0), TRAIN, TEST, progress=False)
    found = with_references(audit, references, progress=False)
    assert found.ranked_by == "loo" and "exposure_score" in found.records and "attack_rate" not in found.records
    (weighed,) = (entry for entry in found.evidence if entry.source == "exposure")
    assert weighed.stamp["order_only"] and found.ground_truth.variants["LiRA"]["statistic"].startswith("margin log p_y")
    assert trained(tmp_path / "one", boosted, model=boosted(np.arange(N), 0)).votes == 0
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(references.target.statistic, vote_margins(forest(np.arange(N), 0).predict_proba(X)[OWN], TREES))
    alone = trained(tmp_path / "alone", larger, model=None)
    assert alone.votes == 2 * TREES and alone.target is None


@pytest.mark.parametrize("text", ["-1", "x", "", "9" * 40, "१"])
def test_a_file_with_an_impossible_number_of_votes_does_not_count(text, tmp_path):
    trained(tmp_path / "set", models=4)
    path = tmp_path / "set" / "models" / "00002.safetensors"
    arrays, metadata = load_file(path), dict(layout(path).metadata)
    assert metadata["votes"] == str(TREES)
    save_file(arrays, path, metadata | {"votes": text})
    with pytest.raises(ns.InputError, match="missing: 2"):
        load_references(tmp_path / "set")
    save_file(arrays, path, metadata)
    target = tmp_path / "set" / "target.safetensors"
    save_file(load_file(target), target, dict(layout(target).metadata) | {"votes": text})
    with pytest.raises(ns.InputError, match=r"target\.safetensors"):
        load_references(tmp_path / "set")


def test_who_votes():
    one = forest(np.arange(N), 0)
    assert voting_parts(one) == voting_parts(make_pipeline(StandardScaler(), forest(np.arange(N), 0))) == TREES
    assert voting_parts(BaggingClassifier(n_estimators=7, random_state=0).fit(*TRAIN)) == 7
    assert voting_parts(boosted(np.arange(N), 0)) == 0
    assert voting_parts(one.predict_proba) is None and voting_parts(one.predict_proba(X)) is None


def test_exposure_beside_references_is_weighed_on_one_scale(tmp_path):
    """Margins of a set that are votes already are not taken for log-odds a second time."""
    audit = ns.audit(forest(np.arange(N), 0), TRAIN, TEST, progress=False)
    references = trained(tmp_path / "set", larger, models=4)
    lines = {}
    for name in ("told", "not told"):
        if name == "not told":
            without_votes(tmp_path / "set")
        # The set itself, or its folder.
        given = references if name == "told" else tmp_path / "set"
        again = ns.audit(forest(np.arange(N), 0), TRAIN, TEST, reference_models=given, progress=False)
        (weighed,) = (entry for entry in again.evidence if entry.source == "exposure")
        lines[name] = weighed.stamp["lines"], again.records["exposure_score"].to_numpy()
    assert audit.ranked_by == "loo" and references.votes == TREES
    for key, line in lines["told"][0].items():
        assert line == pytest.approx(lines["not told"][0][key], rel=1e-5) if line else not lines["not told"][0][key]
    np.testing.assert_allclose(lines["told"][1], lines["not told"][1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("train_fn", [forest, boosted])
def test_the_command_scores_forests_by_votes(train_fn, tmp_path):
    """What `noshadow reference score --audit` calls: votes are taken once, and so are log-odds of a mixed set."""
    audit = ns.audit(forest(np.arange(N), 0), TRAIN, TEST, progress=False)
    references = trained(tmp_path / "set", train_fn)
    found = with_references(audit, references, progress=False)
    said = found.ground_truth.variants["LiRA"]["statistic"]
    assert found.ranked_by == "loo" and "exposure_score" in found.records and said.endswith(f"B = {TREES}") == (train_fn is forest)
    (weighed,) = (entry for entry in found.evidence if entry.source == "exposure")
    own, theirs = (
        np.asarray(values) if references.votes else margins_in_votes(np.asarray(values), TREES)
        for values in (references.target.statistic[~references.member], references.statistic[:, ~references.member])
    )
    expected = line_to(Source("s", test_margins=np.where(references.membership[:, ~references.member], np.nan, theirs)), own)
    assert weighed.stamp["order_only"] and weighed.stamp["lines"]["reference models"] == pytest.approx(asdict(expected))
