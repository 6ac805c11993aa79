"""Each training record's raw outputs had it been left out of every leaf it helped to make.

The structure of the trees and the other records' gradients are those of the training.
"""

from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array
from noshadow.scores.trees.all_classes import class_steps
from noshadow.scores.trees.leaf_values import depths, leaf_steps, sums_of, with_descendants
from noshadow.scores.trees.objectives import OBJECTIVES
from noshadow.scores.trees.yielding_splits import yielding_steps
from noshadow.views.boosted import Boosted, LeafRule, Round, Tree
from noshadow.views.leaf_counts import LeafCounts

# Each gradient may be off by this share of the numbers it is a difference of: some 64 roundings of
# float32, where margins pile up in float32 over the rounds; of float64 far more, and still nothing.
ROUNDING = {np.dtype(np.float32): 4e-6, np.dtype(np.float64): 1e-9}


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What leaving a record out does to its own raw outputs, with the structure fixed.

    Attributes:
        fall: (n, m) raw outputs of the model − raw outputs without the record.
        yielding: (n, m) the same where splits give way that the record paid for (`yielding_steps`).
        first_order: (n, m) the same to first order in the record's weight.
        share: (n,) mean over the rounds of h_i/(H + λ), its share of its leaf's curvature, in the
            trees of its own class; 0 in rounds that did not take it.
        rounds_inside: (n,) number of rounds all of whose trees held its gradient.
        leaves: how many records share the leaves of the trees.
        deviation: largest |rebuilt − own| value of a leaf. excess: the same in units of what
            rounding allows; ≤ 1 where the model was fitted to these records.
        margin_deviation: largest |Σ leaf values − the model's own raw output|.
        largest_step: largest size of a leaf's value.
    """

    fall: Array
    yielding: Array
    first_order: Array
    share: Array
    rounds_inside: Array
    leaves: LeafCounts
    deviation: float
    excess: float
    margin_deviation: float
    largest_step: float


def left_out(training: Boosted) -> LeftOut:
    """Each record's own raw outputs without its gradient and curvature in its leaves.

    In round t the leaf of record i has the value v = −η·(G, l1)/(H + λ). Without i it has
    v₋ᵢ = −η·(G − g_i, l1)/(H − h_i + λ), and `fall` = Σ_t (v − v₋ᵢ). A leaf that holds no other
    record would not exist: record i then gets what its parent's node gives without it, and the
    step 0 where the tree keeps empty leaves. Rounds that did not take the record change nothing.

    The rebuilt v is held against the model's own leaves in every round; gradients come from the
    model's own margins.

    Exact when: leaf values are refitted without the record and everything else is as recorded.
    Approximates: a training without the record, whose trees and other gradients would also change.
    Cost: O(n · rounds · outputs), streamed; memory O(n · outputs) beside one round's leaves. Where
    the values of all classes are solved for at once, O(n · rounds · outputs³).
    """
    margins = np.broadcast_to(training.start, training.margins.shape).astype(training.margin_dtype)
    n, m = margins.shape
    fall, yielding, first, share = np.zeros((n, m)), np.zeros((n, m)), np.zeros((n, m)), np.zeros(n)
    rounds, counted = np.zeros(n, dtype=np.int64), LeafCounts.of(n)
    deviation = excess = largest = 0.0
    for one in training.rounds():
        before = before_round(training, margins.copy(), one)
        always = before.taken
        trees_of = np.bincount([tree.output for tree in one.trees], minlength=m)
        changes = _class_changes(training, one, before) if training.rule.all_classes else None
        for number, tree in enumerate(one.trees):
            k, taken = tree.output, before.taken_by(tree)
            always = always & taken
            found = tree_change(training, tree, before) if changes is None else changes[number]
            fall[:, k] += found.fall
            yielding[:, k] += found.yielding
            first[:, k] += found.first_order
            share += np.where(before.own(k), found.share / trees_of[k], 0.0)
            counted.add(tree.leaves, found.count, taken, _depth(tree))
            deviation, excess = max(deviation, found.deviation), max(excess, found.excess)
            largest = max(largest, float(np.abs(tree.values[tree.leaves]).max(initial=0.0)))
            margins[:, k] += tree.values[tree.leaves].astype(training.margin_dtype)
        rounds += always
    apart = float(np.abs(margins.astype(np.float64) - training.margins).max(initial=0.0))
    return LeftOut(fall, yielding, first, share / max(training.count, 1), rounds, counted, deviation, excess, apart, largest)


@dataclass(frozen=True, eq=False)
class Before:
    """What a round starts from: margins, and the derivatives of the loss there, all (n, m).

    `sizes` are the numbers that a gradient is a difference of, `taken` (n,) says whose gradients
    the round took.
    """

    margins: Array
    gradients: Array
    curvatures: Array
    sizes: Array
    taken: Array
    targets: Array

    def taken_by(self, tree: Tree) -> Array:
        """Whose gradients are in the leaves of a tree, (n,)."""
        found: Array = self.taken if tree.inside is None else self.taken & tree.inside
        return found

    def own(self, output: int) -> Array:
        """Whether an output is that of the record's class; always where there is one output."""
        single = self.margins.shape[1] == 1
        found: Array = np.ones(len(self.taken), dtype=bool) if single else self.targets == output
        return found


def before_round(training: Boosted, margins: Array, one: Round) -> Before:
    """What a round starts from, given the margins (n, m) before it."""
    taken = np.ones(len(margins), dtype=bool) if one.inside is None else one.inside
    sizes = OBJECTIVES[training.objective].sizes(margins.astype(np.float64), training.targets)
    if training.weights is not None:
        taken = taken & (training.weights > 0)
        sizes = sizes * training.weights[:, None]
    g, h = _gradients(training, margins)
    if one.drawn is not None:
        factors = one.drawn(g, h)
        taken, sizes = taken & (factors > 0), sizes * factors[:, None]
        g, h = (_kept(training, part * factors[:, None]) for part in (g, h))
    return Before(margins, g, h, sizes, taken, training.targets)


def _gradients(training: Boosted, margins: Array) -> tuple[Array, Array]:
    """Weighted gradients and curvatures (n, m), rounded as the library keeps them."""
    g, h = OBJECTIVES[training.objective].gradients(margins, training.targets)
    h = np.maximum(h * margins.dtype.type(training.curvature), training.curvature_floor) if training.rule.newton else np.ones_like(h)
    if training.weights is not None:
        weights = training.weights.astype(g.dtype)[:, None]
        g, h = g * weights, h * weights
    return _kept(training, g), _kept(training, h)


def _kept(training: Boosted, values: Array) -> Array:
    """Values rounded as the library keeps them, in float64."""
    found: Array = values.astype(training.gradient_dtype).astype(np.float64)
    return found


@dataclass(frozen=True, eq=False)
class TreeChange:
    """What one tree adds to `LeftOut`: (n,) changes of records, (nodes,) records in each leaf."""

    fall: Array
    yielding: Array
    first_order: Array
    share: Array
    count: Array
    deviation: float
    excess: float


def tree_change(training: Boosted, tree: Tree, before: Before) -> TreeChange:
    """What leaving each record out of its leaf of one tree does to its own output.

    Where the rule takes several steps per leaf, each starts from the margins that the one before
    left, as recorded. Cost: O(n · steps).
    """
    rule, k, leaves, nodes, taken = training.rule, tree.output, tree.leaves, len(tree.values), before.taken_by(tree)
    count = np.bincount(leaves[taken], minlength=nodes)
    size = np.bincount(leaves[taken], before.sizes[taken, k], nodes)
    rebuilt, allowed = np.zeros(nodes), np.zeros(nodes)
    fall, yielding, first, share = (np.zeros(len(leaves)) for _ in range(4))
    g, h = before.gradients[:, k], before.curvatures[:, k]
    for step in range(rule.steps):
        if step:
            g, h = (part[:, 0] for part in _gradients(training, before.margins + rebuilt[leaves][:, None]))
        found = _step_change(tree, np.where(taken, g, 0.0), np.where(taken, h, 0.0), taken, count, rule)
        rebuilt += found.steps
        allowed += size * (1 + np.abs(found.steps)) / np.maximum(found.bottom, np.finfo(float).tiny)
        fall += found.fall
        yielding += found.yielding
        first += found.first_order
        share += found.share / rule.steps
    used = count > 0
    apart = np.abs(tree.rate * rebuilt - tree.values)[used]
    allowed = np.abs(tree.rate) * ROUNDING[np.dtype(training.gradient_dtype)] * allowed[used]
    return TreeChange(
        fall=tree.rate * np.where(taken, fall, 0.0),
        yielding=tree.rate * np.where(taken, yielding, 0.0),
        first_order=tree.rate * np.where(taken, first, 0.0),
        share=np.where(taken, share, 0.0),
        count=count,
        deviation=float(apart.max(initial=0.0)),
        excess=float((apart / np.maximum(allowed, np.finfo(float).tiny)).max(initial=0.0)),
    )


def _class_changes(training: Boosted, one: Round, before: Before) -> tuple[TreeChange, ...]:
    """The same for a round whose trees share their leaves, one for each class.

    H + λI is never below λ, which bounds what rounding of the gradients does to a value.
    """
    rule, first = training.rule, one.trees[0]
    leaves, nodes, taken = first.leaves, len(first.values), before.taken
    weights = np.where(taken, 1.0 if training.weights is None else training.weights, 0.0)
    found = class_steps(leaves, before.margins, before.targets, weights, nodes, rule.l2, rule.steps)
    count = np.bincount(leaves[taken], minlength=nodes)
    size = np.bincount(leaves[taken], before.sizes[taken].max(1), nodes)
    allowed = ROUNDING[np.dtype(training.gradient_dtype)] * size * found.moved / rule.l2
    changes = []
    for tree in one.trees:
        apart = np.abs(tree.rate * found.steps[:, tree.output] - tree.values)[count > 0]
        limit = np.maximum(np.abs(tree.rate) * allowed[count > 0], np.finfo(float).tiny)
        changes.append(
            TreeChange(
                fall=tree.rate * found.fall[:, tree.output],
                yielding=tree.rate * found.fall[:, tree.output],
                first_order=tree.rate * found.first_order[:, tree.output],
                share=found.share,
                count=count,
                deviation=float(apart.max(initial=0.0)),
                excess=float((apart / limit).max(initial=0.0)),
            )
        )
    return tuple(changes)


@dataclass(frozen=True, eq=False)
class _Change:
    """One step of a tree's leaves, before the rate: (nodes,) steps, and (n,) changes of records."""

    steps: Array
    bottom: Array
    fall: Array
    yielding: Array
    first_order: Array
    share: Array


def _step_change(tree: Tree, g: Array, h: Array, taken: Array, count: Array, rule: LeafRule) -> _Change:
    leaves, parents, nodes = tree.leaves, tree.parents, len(count)
    G, H = sums_of(leaves, g, nodes), sums_of(leaves, h, nodes)
    steps = leaf_steps(G.whole, H.whole, rule)
    without = leaf_steps(G.others, H.others, rule)
    alone = np.flatnonzero(count[leaves] == 1)
    if len(alone):
        without[alone] = 0.0 if parents is None else _parent_steps(leaves[alone], G.whole, H.whole, parents, rule)
    # Splits of a whole level, as in symmetric trees, are no record's own, and stand.
    stand = parents is None or rule.steps > 1
    yielding = without if stand or parents is None else yielding_steps(leaves, g, h, taken, (G, H), parents, rule)
    bottom = H.whole + rule.l2
    usable = bottom > rule.least
    slope = np.where(usable, 1 / np.where(usable, bottom, 1.0), 0.0)
    # At a limit or within the l1 threshold a leaf's value does not move with its sums.
    still = (np.abs(steps) >= rule.most if rule.most else False) | ((steps == 0) if rule.l1 else False)
    first = np.where(still, 0.0, -slope)[leaves] * (g + steps[leaves] * h)
    return _Change(steps, bottom, steps[leaves] - without, steps[leaves] - yielding, first, h * slope[leaves])


def _parent_steps(leaves: Array, G: Array, H: Array, parents: Array, rule: LeafRule) -> Array:
    """Steps of the parents of leaves that hold one record each, without that record.

    The parent's other records are those of the sibling and of all nodes below it, so nothing is
    subtracted. A root has no parent: nobody else is there, and the step is 0.
    """
    sibling = _siblings(parents)[leaves]
    whole = [with_descendants(sums, parents)[sibling] for sums in (G, H)]
    return np.where(parents[leaves] >= 0, leaf_steps(whole[0], whole[1], rule), 0.0)


def _depth(tree: Tree) -> int:
    """Steps from a tree's root to its lowest leaf; at least so many where leaves alone are kept."""
    if tree.parents is None:
        return max(0, len(tree.values) - 1).bit_length()
    return int(depths(tree.parents).max(initial=0))


def _siblings(parents: Array) -> Array:
    """Number of the node that shares its parent with each node; the node itself for the root."""
    children = np.flatnonzero(parents >= 0)
    total = np.zeros(len(parents), dtype=np.int64)
    np.add.at(total, parents[children], children)
    found = np.arange(len(parents))
    found[children] = total[parents[children]] - children
    return found
