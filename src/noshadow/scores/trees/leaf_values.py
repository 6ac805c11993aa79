"""Values of leaves, and what they would be without each of their records: plain arrays in and out.

A leaf's step follows from the sums G and H of the gradients and curvatures in it (`LeafRule`).
Without record i the sums are G − g_i and H − h_i, the other records' gradients as recorded.
"""

from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array
from noshadow.views.boosted import LeafRule


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the records of each node, and over the others for each record.

    Attributes:
        whole: (nodes,) sum over the records that end in the node.
        others: (n,) sum over the records that end where this one does, without it.
    """

    whole: Array
    others: Array


def leaf_steps(gradients: Array, curvatures: Array, rule: LeafRule) -> Array:
    """Step of leaves with these sums G and H, before the learning rate; shapes as given.

    −sign(G)·max(|G| − l1, 0)/(H + l2), limited to ±`most`, 0 where H + l2 ≤ `least`. Exact.
    """
    bottom = curvatures + rule.l2
    usable = bottom > rule.least
    pulled = np.sign(gradients) * np.maximum(np.abs(gradients) - rule.l1, 0.0) if rule.l1 else gradients
    steps: Array = np.where(usable, -pulled / np.where(usable, bottom, 1.0), 0.0)
    return np.clip(steps, -rule.most, rule.most) if rule.most else steps


def sums_of(leaves: Array, values: Array, nodes: int) -> Sums:
    """Sums of values (n,) in each leaf, and of the others for each record.

    The largest value of a leaf is left out by adding up the rest: subtracting it from the whole
    would keep none of their digits where it outweighs them. For every other record the rest holds
    at least half of the whole's size.

    Cost: O(n), a few passes.
    """
    whole = np.bincount(leaves, values, nodes)
    sizes = np.abs(values)
    largest = np.zeros(nodes)
    np.maximum.at(largest, leaves, sizes)
    top = np.full(nodes, -1)
    reached = np.flatnonzero(sizes == largest[leaves])
    top[leaves[reached]] = reached  # one of them, where several are as large
    held = top[top >= 0]
    rest = values.copy()
    rest[held] = 0.0
    others = whole[leaves] - values
    others[held] = np.bincount(leaves, rest, nodes)[leaves[held]]
    return Sums(whole, others)


def with_descendants(sums: Array, parents: Array) -> Array:
    """Sums (nodes,) over each node's own records and those of all nodes below it.

    Cost: O(nodes), one pass per level.
    """
    total = sums.astype(np.float64)
    depth = depths(parents)
    for level in range(int(depth.max(initial=0)), 0, -1):
        below = np.flatnonzero(depth == level)
        np.add.at(total, parents[below], total[below])
    return total


def depths(parents: Array) -> Array:
    """Number of steps from each node to the root, (nodes,)."""
    depth = np.zeros(len(parents), dtype=np.int64)
    above = parents.copy()
    while (inner := above >= 0).any():
        depth[inner] += 1
        above[inner] = parents[above[inner]]
    return depth
