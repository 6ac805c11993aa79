"""How many training records share a leaf: counted by hand from the trees themselves."""

import re

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import noshadow as ns
from extras import extra
from noshadow.views.leaf_counts import LARGEST_COUNTED, LeafCounts

N = 240
X, Y = make_classification(2 * N, 6, n_informative=4, flip_y=0.1, random_state=0)
TRAIN, TEST = (X[:N], Y[:N]), (X[N:], Y[N:])


def audited(model, **options):
    return ns.audit(model, TRAIN, TEST, progress=False, **options)


def by_hand(leaves, inside):
    """Harmonic means over the trees of a list, record by record; leaves and bags are (trees, n)."""
    found = []
    for record in range(leaves.shape[1]):
        sizes = [int((inside[t] & (leaves[t] == leaves[t, record])).sum()) for t in range(len(leaves)) if inside[t, record]]
        found.append(len(sizes) / sum(1 / size for size in sizes) if sizes else np.inf)
    return np.array(found)


def test_one_tree_added_by_hand():
    counted = LeafCounts.of(5)
    places = np.array([2, 2, 2, 1, 1])
    inside = np.array([True, True, False, True, False])
    counted.add(places, np.array([0, 1, 2]), inside, 3)
    assert counted.sizes.tolist() == [2.0, 2.0, np.inf, 1.0, np.inf]
    assert counted.alone_share.tolist() == [0, 0, 0, 1, 0] and counted.seen.tolist() == [1, 1, 0, 1, 0]
    counted.add(np.zeros(5, dtype=int), np.array([5]), np.ones(5, dtype=bool), 0)
    assert counted.sizes.tolist() == pytest.approx([2 / (1 / 2 + 1 / 5)] * 2 + [5.0] + [2 / (1 + 1 / 5)] + [5.0], rel=1e-15)
    assert counted.facts() == {
        "trees": 2,
        "leaves": 3,
        "leaves_of_a_tree": 1.5,
        "deepest": 3,
        "depth": 1.5,
        "by_size": [1, 1, 0, 0, 1, *[0] * (LARGEST_COUNTED - 5)],
    }


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(12, random_state=0),
        RandomForestClassifier(12, random_state=0, max_samples=0.3, class_weight="balanced_subsample"),
        RandomForestRegressor(7, min_samples_leaf=3, random_state=0),
        ExtraTreesClassifier(7, max_depth=4, random_state=0),
        DecisionTreeClassifier(max_depth=5, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_leaves_of_forests_and_trees_hold_their_bags(model):
    model.fit(*TRAIN)
    trees = getattr(model, "estimators_", [model])
    leaves = np.array([tree.apply(TRAIN[0].astype(np.float32)) for tree in trees])
    bags = getattr(model, "estimators_samples_", None) if getattr(model, "bootstrap", False) else None
    inside = np.ones_like(leaves, dtype=bool) if bags is None else np.array([np.isin(np.arange(N), bag) for bag in bags])
    audit = audited(model)
    np.testing.assert_allclose(audit.records["leaf_size"], by_hand(leaves, inside), rtol=1e-12)
    facts = audit.provenance["inputs"]["leaves"]
    assert facts["leaves"] == sum(tree.get_n_leaves() for tree in trees) and facts["trees"] == len(trees)
    assert facts["deepest"] == max(tree.get_depth() for tree in trees)
    sizes = np.concatenate([np.unique(row[held], return_counts=True)[1] for row, held in zip(leaves, inside, strict=True)])
    assert facts["by_size"] == [int((sizes == size).sum()) for size in range(1, LARGEST_COUNTED + 1)]


def boosters():
    return {
        "gb": GradientBoostingClassifier(n_estimators=8, random_state=0),
        "gb subsample": GradientBoostingClassifier(n_estimators=8, subsample=0.5, random_state=0),
        "xgb": lambda: extra("xgboost").XGBClassifier(n_estimators=8, n_jobs=1),
        "lgb": lambda: extra("lightgbm").LGBMClassifier(n_estimators=8, n_jobs=1, verbose=-1, min_child_samples=4),
        "cat": lambda: extra("catboost").CatBoostClassifier(iterations=8, depth=4, verbose=0, thread_count=1, allow_writing_files=False),
    }


@pytest.mark.parametrize("name", boosters())
def test_leaves_of_boosted_models_hold_the_records_of_their_rounds(name):
    made = boosters()[name]
    model = (made() if callable(made) else made).fit(*TRAIN)
    inside = np.ones((8, N), dtype=bool)
    if name == "gb subsample":
        # The rows of a round are drawn as scikit-learn documents it; the model counts them itself.
        sizes = np.array([tree[0].tree_.n_node_samples for tree in model.estimators_], dtype=object)
        assert all(part[0] == N // 2 for part in sizes)
    leaves = {
        "gb": lambda: model.apply(TRAIN[0])[:, :, 0].T,
        "gb subsample": lambda: model.apply(TRAIN[0])[:, :, 0].T,
        "xgb": lambda: model.apply(TRAIN[0]).T,
        "lgb": lambda: model.predict(TRAIN[0], pred_leaf=True).T,
        "cat": lambda: model.calc_leaf_indexes(TRAIN[0]).T,
    }[name]()
    audit = audited(model)
    found = audit.records["leaf_size"].to_numpy()
    if name == "gb subsample":
        # Half of the records share a leaf with half as many.
        assert np.median(found) < np.median(by_hand(leaves, inside))
        total = sum(int((part[tree[0].tree_.children_left == -1] == 1).sum()) for part, tree in zip(sizes, model.estimators_, strict=True))
        assert audit.provenance["inputs"]["leaves"]["by_size"][0] == total
    else:
        np.testing.assert_allclose(found, by_hand(leaves, inside), rtol=1e-12)
    assert audit.provenance["inputs"]["leaves"]["deepest"] <= {"xgb": 6, "lgb": 31, "cat": 4}.get(name, 3)


def test_records_held_out_to_stop_a_training_share_no_leaf():
    model = HistGradientBoostingClassifier(max_iter=20, early_stopping=True, random_state=0).fit(*TRAIN)
    audit = audited(model)
    held = np.isinf(audit.records["leaf_size"].to_numpy())
    assert held.sum() == N // 10 and not audit.records["shift"].to_numpy()[held].any()


def test_larger_leaves_lose_the_finding_and_the_folder_keeps_it(tmp_path):
    grown = audited(RandomForestClassifier(20, random_state=0).fit(*TRAIN))
    large = audited(RandomForestClassifier(20, min_samples_leaf=8, random_state=0).fit(*TRAIN))
    status = [next(f.status for f in audit.findings if f.code == "NS017") for audit in (grown, large)]
    assert status == ["found", "passed"]
    change = ns.compare(grown, large)
    assert "NS017" in [finding.code for finding in change.lost]
    grown.save(tmp_path / "audit")
    assert ns.findings(ns.load(tmp_path / "audit")) == grown.findings


def test_models_without_trees_have_no_leaf_size():
    audit = audited(KNeighborsClassifier().fit(*TRAIN))
    assert "leaf_size" not in audit.records and "leaves" not in audit.provenance["inputs"]
    assert {f.status for f in audit.findings if f.code in ("NS016", "NS017")} == {"not applicable"}


def test_a_boosted_model_of_other_records_is_found_out():
    model = GradientBoostingClassifier(n_estimators=8, random_state=0).fit(X[30 : N + 30], Y[30 : N + 30])
    finding = next(f for f in audited(model).findings if f.code == "NS044")
    assert finding.status == "found" and "fitted on other records" in finding.sentence
    own = audited(GradientBoostingClassifier(n_estimators=8, random_state=0).fit(*TRAIN))
    assert next(f.status for f in own.findings if f.code == "NS044") == "passed"
    # Constraints bend leaves as other records would: no figure is called doubtful for them.
    bent = audited(HistGradientBoostingClassifier(max_iter=8, monotonic_cst=[-1] * 6).fit(*TRAIN))
    assert "monotonic_cst" in bent.not_applicable["shift"]
    assert next(f.status for f in bent.findings if f.code == "NS044") == "not applicable"


@pytest.mark.parametrize("model", [RandomForestClassifier(10, random_state=0), GradientBoostingClassifier(n_estimators=8)])
def test_pages_speak_of_trees_where_they_spoke_of_heads(model, tmp_path):
    page = ns.write_report(audited(model.fit(*TRAIN)), tmp_path / "page.html").read_text()
    told = re.search(r'<p id="model-words">(.*?)</p>', page)
    assert told is not None and re.search(r"^Trees: .*\btrees, .*\bleaves, depth \d+ at most", told[1])
    assert (
        "leaves with 1 record<" in page
        and "hence no diagnostics" not in page
        and "stationarity" not in page.split('id="diagnostics"')[1].split("</section>")[0]
    )
