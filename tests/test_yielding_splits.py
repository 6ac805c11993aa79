"""Splits that give way without a record: held against a walk down the tree, record by record, and against trees grown anew."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeRegressor
from tests.test_boosting_leaf_values import RULES, brute_step

import noshadow as ns
from noshadow.scores.trees import yielding_splits
from noshadow.scores.trees.boosting import boosting_scores
from noshadow.scores.trees.leaf_values import leaf_steps, sums_of
from noshadow.scores.trees.left_out import left_out
from noshadow.scores.trees.yielding_splits import yielding_steps
from noshadow.views import Settings, reader_of
from noshadow.views.boosted import LeafRule

# As the rule is written down, not as the code has it.
RIVALS, LEVELS = 8, 4
# A chain of splits on the left, deeper than LEVELS, and one split on the right.
PARENTS = np.array([-1, 0, 0, 1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 2, 2])
LEAVES = np.array([4, 6, 8, 10, 11, 12, 13, 14])


def ancestors(node):
    way = [node]
    while PARENTS[way[-1]] >= 0:
        way.append(int(PARENTS[way[-1]]))
    return way


def worth(g, h, rule):
    bottom = h.sum() + rule.l2
    return 0.0 if bottom <= 0 else max(abs(g.sum()) - rule.l1, 0.0) ** 2 / bottom


def brute(leaves, g, h, taken, rule, record, rivals=RIVALS):
    """The definition, by sets of records under each node."""
    under = {node: {i for i in np.flatnonzero(taken) if node in ancestors(leaves[i])} for node in range(len(PARENTS))}

    def of(rows, formula):
        rows = sorted(rows)
        return formula(g[rows], h[rows], rule)

    def step(node):
        rest = under[node] - {record}
        return of(rest, brute_step) if rest else 0.0

    way = ancestors(leaves[record])[: LEVELS + 1][::-1]
    value = step(way[0])
    for node, child in pairwise(way):
        (sibling,) = set(np.flatnonzero(node == PARENTS)) - {child}
        whole = of(under[child], worth) + of(under[sibling], worth) - of(under[node], worth)
        rest = of(under[child] - {record}, worth) + of(under[sibling], worth) - of(under[node] - {record}, worth)
        stands = min(max(rest / whole, 0.0), 1.0) ** rivals if whole > 0 else 0.0
        stands = stands if under[child] - {record} else 0.0
        value = stands * step(child) + (1 - stands) * value
    return value


def drawn(seed, n=60):
    rng = np.random.default_rng(seed)
    leaves = rng.choice(LEAVES[:6], size=n)
    leaves[:2] = 13, 14  # alone
    taken = rng.random(n) < 0.85
    taken[:4] = True
    g, h = rng.normal(size=n) + 0.4 * leaves, rng.uniform(0.05, 1, n)
    return leaves, np.where(taken, g, 0.0), np.where(taken, h, 0.0), taken


def found(leaves, g, h, taken, rule):
    nodes = len(PARENTS)
    return yielding_steps(leaves, g, h, taken, (sums_of(leaves, g, nodes), sums_of(leaves, h, nodes)), PARENTS, rule)


@pytest.mark.parametrize("rule", ["plain", "ridge", "lasso", "limited"])
@pytest.mark.parametrize("seed", range(3))
def test_steps_are_those_of_a_walk_down_the_tree(rule, seed):
    held = drawn(seed)
    values = found(*held, RULES[rule])
    expected = [brute(*held, RULES[rule], record) for record in range(len(values))]
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-12)


def test_without_rivals_splits_stay(monkeypatch):
    """Then a record in company gets its leaf without it, as `shift` has it."""
    monkeypatch.setattr(yielding_splits, "RIVALS", 0)
    leaves, g, h, taken = drawn(4)
    rule, nodes = RULES["ridge"], len(PARENTS)
    G, H = sums_of(leaves, g, nodes), sums_of(leaves, h, nodes)
    count = np.bincount(leaves[taken], minlength=nodes)[leaves]
    company = taken & (count > 1)
    np.testing.assert_allclose(found(leaves, g, h, taken, rule)[company], leaf_steps(G.others, H.others, rule)[company], rtol=1e-9)


def test_a_split_made_for_one_record_gives_way_and_one_made_for_many_stands():
    """One odd record beside a like one in its leaf: the leaf without it is the like one's, the tree without it is not."""
    parents = np.array([-1, 0, 0])
    leaves = np.array([1] * 40 + [2] * 2)
    g = np.array([0.1, -0.1] * 20 + [0.0, -30.0])
    h, taken = np.ones(42), np.ones(42, bool)
    rule = LeafRule(l2=1.0)
    sums = sums_of(leaves, g, 3), sums_of(leaves, h, 3)
    values = yielding_steps(leaves, g, h, taken, sums, parents, rule)
    assert values[41] == pytest.approx(0.0, abs=1e-6)  # the root's without it
    many = np.array([1.0] * 20 + [-1.0] * 20)
    both = np.repeat([1, 2], 20)
    sums = sums_of(both, many, 3), sums_of(both, np.ones(40), 3)
    stands = yielding_steps(both, many, np.ones(40), np.ones(40, bool), sums, parents, rule)
    # S is 20²/21 on both sides and 0 above; without a record 19²/20 on its side, and 1/40 above.
    stays = ((19**2 / 20 + 20**2 / 21 - 1 / 40) / (2 * 20**2 / 21)) ** RIVALS
    np.testing.assert_allclose(stands, np.where(many > 0, -1, 1) * (stays * 19 / 20 - (1 - stays) / 40))
    assert 0.75 < stays < 0.85


def test_trees_grown_anew_are_nearer_to_the_yielding_steps():
    """For real without each record, and on halves without it: nearer to steps that yield than to leaves that stay."""
    n, rule, errors, orders = 120, LeafRule(), [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(2 * n, 4))
        y = np.sign(x[:, 0]) + rng.standard_t(3, size=2 * n)
        tree = grown(x[:n], y[:n])
        leaves, nodes, parents = tree.apply(x[:n]), tree.tree_.node_count, np.full(tree.tree_.node_count, -1)
        for side in (tree.tree_.children_left, tree.tree_.children_right):
            parents[side[side >= 0]] = np.flatnonzero(side >= 0)
        sums = sums_of(leaves, -y[:n], nodes), sums_of(leaves, np.ones(n), nodes)
        yielding = yielding_steps(leaves, -y[:n], np.ones(n), np.ones(n, bool), sums, parents, rule)
        staying = np.where(np.bincount(leaves)[leaves] > 1, leaf_steps(sums[0].others, sums[1].others, rule), yielding)
        rest = [np.delete(np.arange(n), i) for i in range(n)]
        anew = np.array([grown(x[k], y[k]).predict(x[i : i + 1])[0] for i, k in enumerate(rest)])
        total, count = np.zeros(n), np.zeros(n)
        for _ in range(60):
            half = rng.permutation(2 * n)[:n]
            outside = np.setdiff1d(np.arange(n), half)
            total[outside] += grown(x[half], y[half]).predict(x[outside])
            count[outside] += 1
        errors.append([np.abs(values - total / count).mean() for values in (yielding, staying)])
        orders.append([spearmanr(values, anew).statistic for values in (yielding, staying)])
    (near, far), (better, worse) = np.mean(errors, axis=0), np.mean(orders, axis=0)
    assert near < 0.96 * far and better > worse + 0.02, (near, far, better, worse)


def grown(x, y):
    return DecisionTreeRegressor(max_depth=4, random_state=0).fit(x, y)


X, Y = make_classification(600, 8, n_informative=4, flip_y=0.15, random_state=0)
TRAIN, TEST = (X[:300], Y[:300]), (X[300:], Y[300:])


def test_the_column_is_made_of_both_answers():
    """±√(fall · loss), from the raw outputs that `left_out` gives; here of three classes by the softmax of the reader's own margins."""
    x, y = make_classification(240, 6, n_informative=4, n_classes=3, n_clusters_per_class=1, random_state=1)
    model = HistGradientBoostingClassifier(max_iter=5, early_stopping=False, min_samples_leaf=2).fit(x, y)
    training = reader_of(model).boosted(model, (x, y), weights=None, settings=Settings())
    raw = left_out(training)
    assert (np.abs(raw.yielding - raw.fall) > 1e-6).any()

    def log_odds(outputs):
        p = np.exp(outputs - outputs.max(1, keepdims=True))
        p = (p / p.sum(1, keepdims=True))[np.arange(len(y)), y]
        return np.log(p) - np.log1p(-p)

    fall = log_odds(training.margins) - log_odds(training.margins - raw.yielding)
    expected = np.sign(fall) * np.sqrt(np.abs(fall) * np.log1p(np.exp(-log_odds(training.margins - raw.yielding))))
    np.testing.assert_allclose(boosting_scores(training).yielding_shift, expected, rtol=1e-6, atol=1e-9)


def test_boosted_classifiers_are_ranked_by_it(tmp_path):
    audit = ns.audit(GradientBoostingClassifier(n_estimators=20, random_state=0).fit(*TRAIN), TRAIN, TEST, progress=False)
    assert audit.ranked_by == "yielding_shift"
    order = audit.records.sort_values("rank")["yielding_shift"].to_numpy()
    assert (np.diff(order) <= 0).all()
    audit.save(tmp_path / "audit")
    assert ns.load(tmp_path / "audit").ranked_by == "yielding_shift"


def test_records_that_were_held_out_have_none():
    model = HistGradientBoostingClassifier(max_iter=20, early_stopping=True, random_state=0, validation_fraction=0.3).fit(*TRAIN)
    audit = ns.audit(model, TRAIN, TEST, progress=False)
    held_out = audit.records["shift"] == 0
    assert 60 <= held_out.sum() <= 120 and (audit.records["yielding_shift"][held_out] == 0).all()
