"""Leaves without one of their records: held against brute force over plain arrays."""

from types import SimpleNamespace

import numpy as np
import pytest

from noshadow.scores.trees.all_classes import class_steps
from noshadow.scores.trees.leaf_values import depths, leaf_steps, sums_of, with_descendants
from noshadow.scores.trees.left_out import left_out
from noshadow.scores.trees.objectives import OBJECTIVES
from noshadow.views.boosted import Boosted, LeafRule, Round, Tree

RULES = {
    "plain": LeafRule(),
    "ridge": LeafRule(l2=1.5),
    "lasso": LeafRule(l1=0.3, l2=0.5),
    "limited": LeafRule(l2=0.2, most=0.4),
    "gradient": LeafRule(l2=1.0, newton=False),
    "three steps": LeafRule(l2=1.0, steps=3),
}
# A root with two inner nodes; one of them has a leaf and an inner node with two leaves.
PARENTS = np.array([-1, 0, 0, 1, 1, 2, 2, 6, 6])
LEAVES = np.array([3, 4, 5, 7, 8])


def brute_step(g, h, rule):
    bottom = h.sum() + rule.l2
    if bottom <= rule.least:
        return 0.0
    total = g.sum()
    value = -np.sign(total) * max(abs(total) - rule.l1, 0.0) / bottom
    return float(np.clip(value, -rule.most, rule.most)) if rule.most else float(value)


def below(node):
    found = {node}
    while True:
        more = {child for child, parent in enumerate(PARENTS) if parent in found} - found
        if not more:
            return found
        found |= more


def derivatives(setting, margins):
    g, h = OBJECTIVES[setting.objective].gradients(margins, setting.targets)
    h = h if setting.rule.newton else np.ones_like(h)
    return g * setting.weights[:, None], h * setting.weights[:, None]


def setting_of(objective, rule, *, n=40, outputs=1, rounds=4, seed=0, keep=1.0, structure=True):
    """Random leaves of some rounds; two records are alone in theirs in the first."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, max(outputs, 2), n).astype(float) if objective != "squared" else rng.normal(size=n)
    weights = rng.uniform(0.5, 2.0, n)
    leaves = rng.choice(LEAVES[:3], size=(rounds, outputs, n))
    leaves[0, :, 0], leaves[0, :, 1] = 7, 8
    inside = rng.random((rounds, n)) < keep
    inside[0, :2] = True
    return SimpleNamespace(
        objective=objective,
        rule=rule,
        targets=targets,
        weights=weights,
        leaves=leaves,
        inside=inside,
        outputs=outputs,
        start=rng.normal(size=outputs),
        parents=PARENTS if structure else None,
        rate=0.3,
    )


def trained(setting):
    """Fit the leaf values round by round; the training as a model would keep it, and all margins."""
    n, margins = len(setting.targets), [np.tile(setting.start, (len(setting.targets), 1))]
    rounds = []
    for leaves, inside in zip(setting.leaves, setting.inside, strict=True):
        after, trees = margins[-1].copy(), []
        for k in range(setting.outputs):
            values = np.zeros(len(PARENTS))
            for _ in range(setting.rule.steps):
                at = margins[-1].copy()
                at[:, k] += values[leaves[k]]
                g, h = derivatives(setting, at)
                steps = np.zeros(len(PARENTS))
                for leaf in np.unique(leaves[k][inside]):
                    rows = inside & (leaves[k] == leaf)
                    steps[leaf] = brute_step(g[rows, k], h[rows, k], setting.rule)
                values += steps
            trees.append(Tree(leaves[k], setting.rate * values, setting.rate, setting.parents, k))
            after[:, k] += setting.rate * values[leaves[k]]
        rounds.append(Round(tuple(trees), inside))
        margins.append(after)
    held = Boosted(
        library="by hand",
        rounds=lambda: iter(rounds),
        count=len(rounds),
        start=setting.start,
        margins=margins[-1],
        objective=setting.objective,
        targets=setting.targets,
        weights=setting.weights,
        rule=setting.rule,
    )
    return held, margins, n


def brute_without(setting, margins, record):
    """Raw outputs of a record after all rounds, its gradients removed from every leaf, by loops over records."""
    raw = setting.start.astype(float).copy()
    for number, (leaves, inside) in enumerate(zip(setting.leaves, setting.inside, strict=True)):
        for k in range(setting.outputs):
            leaf, total, value, others = leaves[k][record], 0.0, 0.0, inside.copy()
            others[record] = False if inside[record] else others[record]
            rows = others & (leaves[k] == leaf)
            if not rows.any() and setting.parents is not None:
                rows = others & np.isin(leaves[k], list(below(PARENTS[leaf])))
            recorded = np.zeros(len(setting.targets))
            for _ in range(setting.rule.steps):
                at = margins[number].copy()
                at[:, k] += recorded
                g, h = derivatives(setting, at)
                value = brute_step(g[rows, k], h[rows, k], setting.rule) if rows.any() else 0.0
                total += value
                for one in np.unique(leaves[k][inside]):
                    members = inside & (leaves[k] == one)
                    recorded[leaves[k] == one] += brute_step(g[members, k], h[members, k], setting.rule)
            raw[k] += setting.rate * total
    return raw


CASES = [
    *(("logistic", rule, 1) for rule in RULES),
    ("softmax", "ridge", 3),
    ("squared", "plain", 1),
    ("exponential", "ridge", 1),
]


@pytest.mark.parametrize(("objective", "rule", "outputs"), CASES)
@pytest.mark.parametrize("keep", [1.0, 0.6])
def test_outputs_left_out_are_those_of_refitted_leaves(objective, rule, outputs, keep):
    """To 1e-10: both add up the same numbers in float64, in another order."""
    setting = setting_of(objective, RULES[rule], outputs=outputs, keep=keep)
    held, margins, n = trained(setting)
    found = left_out(held)
    brute = np.array([brute_without(setting, margins, record) for record in range(n)])
    assert np.abs(margins[-1] - found.fall - brute).max() < 1e-10
    assert found.deviation < 1e-12 and found.margin_deviation < 1e-12 and found.excess < 1e-3
    assert found.rounds_inside.tolist() == setting.inside.sum(0).tolist()
    outside = ~setting.inside.any(0)
    assert not found.fall[outside].any() and not found.first_order[outside].any()


@pytest.mark.parametrize("structure", [True, False], ids=["parent", "no step"])
def test_a_record_alone_in_its_leaf_falls_back_on_its_parent_or_takes_no_step(structure):
    setting = setting_of("logistic", RULES["ridge"], rounds=1, structure=structure)
    held, margins, _ = trained(setting)
    found = left_out(held)
    assert found.leaves.alone.tolist()[:2] == [1, 1] and found.leaves.alone[2:].max() == 0
    for record, sibling in ((0, 1), (1, 0)):
        g, h = derivatives(setting, margins[0])
        step = setting.rate * brute_step(g[[sibling], 0], h[[sibling], 0], setting.rule) if structure else 0.0
        assert margins[1][record, 0] - found.fall[record, 0] == pytest.approx(setting.start[0] + step, abs=1e-12)


@pytest.mark.parametrize("rule", ["plain", "ridge", "lasso", "gradient"])
def test_the_first_order_is_the_derivative_in_the_records_weight(rule):
    """By a central difference of one round; its error is of the order of the step squared, 1e-10."""
    setting = setting_of("logistic", RULES[rule], rounds=1)
    found = left_out(trained(setting)[0])
    step = 1e-5
    for record in (2, 7, 11):
        ends = []
        for sign in (1, -1):
            moved = setting_of("logistic", RULES[rule], rounds=1)
            moved.weights[record] *= 1 + sign * step
            ends.append(trained(moved)[1][-1][record, 0])
        assert found.first_order[record, 0] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)


def test_shares_of_curvature_add_up_to_the_leaves_in_use():
    """Without a penalty each leaf in use has the shares 1 in all; with one less."""
    setting = setting_of("logistic", RULES["plain"])
    found = left_out(trained(setting)[0])
    used = np.mean([len(np.unique(leaves[0])) for leaves in setting.leaves])
    assert found.share.sum() == pytest.approx(used, abs=1e-10)
    setting.rule = RULES["ridge"]
    damped = left_out(trained(setting)[0])
    assert damped.share.sum() < used and (damped.share >= 0).all() and (damped.share <= 1).all()


def test_a_record_that_outweighs_its_leaf_keeps_the_others_digits():
    """Subtracting 0.25 from 0.25 + 3e-17 leaves nothing; the sum of the others has all its digits."""
    values, leaves = np.array([0.25, 1e-17, 2e-17, 0.5, 0.5]), np.array([0, 0, 0, 1, 1])
    found = sums_of(leaves, values, 2)
    assert found.others == pytest.approx([3e-17, 0.25, 0.25, 0.5, 0.5], rel=1e-15, abs=0)
    assert (found.whole[leaves] - values)[0] == 0.0


def test_sums_of_subtrees():
    own = np.arange(9.0)
    assert depths(PARENTS).tolist() == [0, 1, 1, 2, 2, 2, 2, 3, 3]
    assert with_descendants(own, PARENTS).tolist() == [sum(own[list(below(node))]) for node in range(9)]


def test_steps_of_leaves_without_curvature_are_zero():
    assert leaf_steps(np.array([1.0, 1.0]), np.array([0.0, 2.0]), LeafRule()).tolist() == [0.0, -0.5]


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_gradients_are_derivatives_of_their_loss(name):
    """Central differences of the loss in one output; their error is some 1e-9."""
    rng, step = np.random.default_rng(1), 1e-5
    outputs = 3 if name == "softmax" else 1
    raw = rng.normal(size=(30, outputs))
    targets = rng.integers(0, max(2, outputs), 30).astype(float)
    targets = rng.uniform(0.5, 2, 30) if name in ("squared", "poisson", "gamma") else targets
    losses = {
        "squared": lambda f: (f[:, 0] - targets) ** 2 / 2,
        "softmax": lambda f: np.log(np.exp(f).sum(1)) - f[np.arange(30), targets.astype(int)],
        "exponential": lambda f: np.exp(-(2 * targets - 1) * f[:, 0]),
        "poisson": lambda f: np.exp(f[:, 0]) - targets * f[:, 0],
        "gamma": lambda f: f[:, 0] + targets * np.exp(-f[:, 0]),
    }
    loss = losses.get(name, lambda f: np.log1p(np.exp(f[:, 0])) - targets * f[:, 0])
    g, h = OBJECTIVES[name].gradients(raw, targets)
    for k in range(outputs):
        moved = np.zeros(outputs)
        moved[k] = step
        up, down = raw + moved, raw - moved
        assert g[:, k] == pytest.approx((loss(up) - loss(down)) / (2 * step), abs=1e-8)
        slopes = [OBJECTIVES[name].gradients(part, targets)[0][:, k] for part in (up, down)]
        assert h[:, k] == pytest.approx((slopes[0] - slopes[1]) / (2 * step), abs=1e-8)
    assert (OBJECTIVES[name].sizes(raw, targets) >= 0).all()


def test_well_fitted_records_keep_the_digits_of_their_gradients():
    g, h = OBJECTIVES["logistic"].gradients(np.array([[50.0], [-50.0]]), np.array([1.0, 0.0]))
    assert g[:, 0] == pytest.approx([-np.exp(-50), np.exp(-50)], rel=1e-12, abs=0)
    assert h[:, 0] == pytest.approx([np.exp(-50)] * 2, rel=1e-12, abs=0)
    # Libraries that round p first lose them, and their leaves are rebuilt as they made them.
    assert OBJECTIVES["logistic of p"].gradients(np.array([[50.0]]), np.array([1.0]))[0][0, 0] == 0.0
    assert OBJECTIVES["logistic of g"].gradients(np.array([[50.0]]), np.array([1.0]))[1][0, 0] == 0.0


def newton(rows, margins, targets, weights, l2):
    """One leaf's step for all classes: loops over its records, dense and in the letters of the formula."""
    m = margins.shape[1]
    G, H = np.zeros(m), l2 * np.eye(m)
    for i in rows:
        p = np.exp(margins[i]) / np.exp(margins[i]).sum()
        G += weights[i] * (p - np.eye(m)[targets[i]])
        H += weights[i] * (np.diag(p) - np.outer(p, p))
    return -np.linalg.solve(H, G)


@pytest.mark.parametrize("steps", [1, 3])
def test_leaves_of_all_classes_at_once_without_each_record(steps, monkeypatch):
    """Against a solve per record and leaf; 1e-12 is rounding. Blocks of few records give the same."""
    monkeypatch.setattr("noshadow.scores.trees.all_classes._MOST_NUMBERS", 64)
    rng = np.random.default_rng(0)
    n, m, l2 = 40, 4, 0.7
    leaves, targets = rng.integers(0, 5, n), rng.integers(0, m, n)
    leaves[7] = 5  # alone
    margins, weights = rng.normal(size=(n, m)), rng.uniform(0.3, 2.0, n)
    weights[3] = 0.0
    found = class_steps(leaves, margins, targets, weights, 7, l2, steps)
    now, fall = margins.copy(), np.zeros((n, m))
    for _ in range(steps):
        step = np.stack([newton(np.flatnonzero(leaves == leaf), now, targets, weights, l2) for leaf in range(7)])
        for i in range(n):
            others = np.flatnonzero((leaves == leaves[i]) & (np.arange(n) != i) & (weights > 0))
            without = newton(others, now, targets, weights, l2) if len(others) else np.zeros(m)
            fall[i] += step[leaves[i]] - without if weights[i] else 0.0
        now = now + step[leaves]
    np.testing.assert_allclose(margins + found.steps[leaves], now, atol=1e-12)
    np.testing.assert_allclose(found.fall, fall, atol=1e-12)
    assert not found.steps[6].any() and not found.fall[3].any() and not found.share[3]
    assert ((found.share >= 0) & (found.share <= 1)).all() and found.share[7] == found.share[leaves == 5].max()


def test_the_first_order_of_all_classes_is_the_derivative_in_the_records_weight():
    rng = np.random.default_rng(1)
    leaves, targets, margins = np.zeros(12, dtype=int), rng.integers(0, 3, 12), rng.normal(size=(12, 3))
    weights = rng.uniform(0.5, 2.0, 12)
    found = class_steps(leaves, margins, targets, weights, 1, 0.5, 1)
    for i in range(12):
        sides = [weights * np.where(np.arange(12) == i, 1 + sign * 1e-5, 1.0) for sign in (1, -1)]
        up, down = (class_steps(leaves, margins, targets, side, 1, 0.5, 1).steps[0] for side in sides)
        np.testing.assert_allclose(found.first_order[i], (up - down) / 2e-5, atol=1e-8)
