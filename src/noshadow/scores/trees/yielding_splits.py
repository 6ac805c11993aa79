"""Leaf values without a record whose splits stand only as far as the other records pay for them.

A tree's structure is made for the records it was grown on. A split that owes most of its gain to
one record would hardly have been made without it, and that record would have got what the node
above says. With the structure fixed (`leaf_values`) it keeps a leaf of its own making.
"""

import numpy as np

from noshadow.checks import Array
from noshadow.scores.trees.leaf_values import Sums, leaf_steps, with_descendants
from noshadow.views.boosted import LeafRule

# Rival splits whose gains are taken to lie evenly between none and the split's own: the best of
# them is the larger with the chance 1 − share^RIVALS. Chosen by `benchmarks`, see docs/trees.md.
RIVALS = 8
# Splits above a leaf that may give way; a record is little of the gain of those further up.
LEVELS = 4
# Share of a node's worth below which a split gains nothing but rounding.
NO_GAIN = 1e-12
_TINY = np.finfo(float).tiny


def yielding_steps(leaves: Array, g: Array, h: Array, taken: Array, sums: tuple[Sums, Sums], parents: Array, rule: LeafRule) -> Array:
    """Each record's step without it, its splits standing as far as others pay for them, (n,).

    On record i's way from its ancestor LEVELS above down to its leaf, let γ be the gain S(child) +
    S(sibling) − S(node) of a split with S = (G, l1)²/(H + λ), and γ₋ᵢ the same without record i.
    The split stands with w = (γ₋ᵢ/γ)^RIVALS, limited to [0, 1], and 0 where the child would be
    empty. From the step u of the node, without i, the child's is w · step(child without i) +
    (1 − w) · u.

    Args:
        leaves: (n,) node of each record. g, h: (n,) gradients and curvatures, 0 for records that
            the tree did not take. taken: (n,) which it took. sums: of both in each leaf.
        parents: (nodes,), −1 for the root.
        rule: how a step is made of sums.

    Exact when: RIVALS is 0 and each leaf holds others: the step of the leaf without the record.
    Approximates: trees grown anew without the record.
    Cost: O(n · LEVELS + nodes · depth).
    """
    whole = [with_descendants(part.whole, parents) for part in sums]
    others = with_descendants(np.bincount(leaves, taken, len(parents)), parents)
    way = [leaves]
    for _ in range(LEVELS):
        above = parents[way[-1]]
        way.append(np.where(above >= 0, above, way[-1]))
    step = None
    for level in range(LEVELS, -1, -1):
        node = way[level]
        rest = [part.others if level == 0 else total[node] - own for part, total, own in zip(sums, whole, (g, h), strict=True)]
        rest[1] = np.maximum(rest[1], 0.0)
        held = others[node] > taken
        found = np.where(held, leaf_steps(rest[0], rest[1], rule), 0.0)
        if step is None:
            step, above_rest = found, rest
            continue
        split = way[level + 1] != node
        share = _gain_share(node, way[level + 1], rest, above_rest, whole, rule)
        stands = np.where(held, share**RIVALS, 0.0)
        step = np.where(split, stands * found + (1 - stands) * step, step)
        above_rest = rest
    assert step is not None
    return step


def _gain_share(node: Array, above: Array, rest: list[Array], above_rest: list[Array], whole: list[Array], rule: LeafRule) -> Array:
    """Share of a split's gain that the other records pay for, (n,) in [0, 1]."""
    G, H = whole
    own, joint = _worth(G[node], H[node], rule), _worth(G[above], H[above], rule)
    sibling = _worth(G[above] - G[node], H[above] - H[node], rule)
    without = _worth(rest[0], rest[1], rule) + sibling - _worth(above_rest[0], above_rest[1], rule)
    # A gain of rounding is none: both sides say the same then.
    gained = own + sibling - joint > NO_GAIN * joint
    share: Array = np.where(gained, np.clip(without / np.where(gained, own + sibling - joint, 1.0), 0.0, 1.0), 0.0)
    return share


def _worth(gradients: Array, curvatures: Array, rule: LeafRule) -> Array:
    """What a node takes off the loss: (G, l1)²/(H + λ), twice over, 0 where it is not usable."""
    bottom = curvatures + rule.l2
    pulled = np.maximum(np.abs(gradients) - rule.l1, 0.0) if rule.l1 else gradients
    usable = bottom > max(rule.least, _TINY)
    worth: Array = np.where(usable, pulled**2 / np.where(usable, bottom, 1.0), 0.0)
    return worth
