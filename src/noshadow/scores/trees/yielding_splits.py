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
    G, H = (with_descendants(part.whole, parents) for part in sums)
    count = with_descendants(np.bincount(leaves, taken, len(parents)), parents)
    beside, gains = _beside_and_gains(G, H, parents, rule)
    way = [leaves]
    for _ in range(LEVELS):
        above = parents[way[-1]]
        way.append(np.where(above >= 0, above, way[-1]))
    step = worth_above = np.zeros(0)
    # From the highest ancestor, whose step stands as it is, down to the leaf.
    for level in range(LEVELS, -1, -1):
        node = way[level]
        g_rest, h_rest = (part.others for part in sums) if level == 0 else (G[node] - g, np.maximum(H[node] - h, 0.0))
        held = count[node] > taken
        found, worth = np.where(held, leaf_steps(g_rest, h_rest, rule), 0.0), _worth(g_rest, h_rest, rule)
        if level == LEVELS:
            step, worth_above = found, worth
            continue
        gain = gains[node]
        paid = np.where(gain > 0, (worth + beside[node] - worth_above) / np.where(gain > 0, gain, 1.0), 0.0)
        stands = np.where(held, _none_of_the_rivals(np.clip(paid, 0.0, 1.0)), 0.0)
        # Where the way began further down, node and child are one.
        step = np.where(way[level + 1] != node, stands * found + (1 - stands) * step, step)
        worth_above = worth
    return step


def _none_of_the_rivals(share: Array) -> Array:
    """share^RIVALS by squaring: NumPy's power takes several times as long."""
    chance, factor, left = np.ones_like(share), share, RIVALS
    while left:
        chance = chance * factor if left % 2 else chance
        factor, left = factor * factor, left // 2
    return chance


def _beside_and_gains(G: Array, H: Array, parents: Array, rule: LeafRule) -> tuple[Array, Array]:
    """What each node's sibling is worth, and what the split above both gained, (nodes,).

    Both are 0 at the root. A gain of rounding is none: both sides say the same then.
    """
    inner = parents >= 0
    above = np.where(inner, parents, 0)
    joint = _worth(G, H, rule)
    beside = np.where(inner, _worth(G[above] - G, H[above] - H, rule), 0.0)
    gains = np.where(inner, joint + beside - joint[above], 0.0)
    return beside, np.where(gains > NO_GAIN * joint[above], gains, 0.0)


def _worth(gradients: Array, curvatures: Array, rule: LeafRule) -> Array:
    """What a node takes off the loss: (G, l1)²/(H + λ), twice over, 0 where it is not usable."""
    bottom = curvatures + rule.l2
    pulled = np.maximum(np.abs(gradients) - rule.l1, 0.0) if rule.l1 else gradients
    usable = bottom > max(rule.least, _TINY)
    worth: Array = np.where(usable, pulled**2 / np.where(usable, bottom, 1.0), 0.0)
    return worth
