"""Leaves of one tree of scikit-learn: what they say with and without each record in them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from noshadow.checks import Array

NO_CHILD = -1


@dataclass(frozen=True, eq=False)
class LeafAnswers:
    """What one tree says of n records with its structure fixed.

    Attributes:
        whole: (n, q) means of the leaves. without: (n, q) the same with the record taken out.
        records: (nodes,) training records that end in each leaf; 0 of inner nodes.
    """

    whole: Array
    without: Array
    records: Array


def leaf_answers(tree: Any, leaves: Array, targets: Array, weight: Array, classes: int) -> LeafAnswers:
    """Leaf means Σ w v / Σ w over the records of a leaf, with and without each record.

    A record alone in its leaf leaves nothing behind: it then gets the answer of the nearest node
    above that still holds a record, as if the split that set it apart had not been made.

    Args:
        tree: `tree_` of a fitted scikit-learn tree. leaves: (n,) leaf of each record.
        targets: (n,) class numbers, or (n, q) numbers of a regression.
        weight: (n,) weights in the tree's fit; 0 outside of its bag.
        classes: number of classes, 0 in a regression.

    Cost: O(n + nodes), times classes or outputs.
    """
    nodes, inside = int(tree.node_count), weight > 0
    if classes:
        sums = np.bincount(leaves * classes + targets, weight, nodes * classes).reshape(nodes, classes)
    else:
        sums = np.column_stack([np.bincount(leaves, weight * column, nodes) for column in targets.T])
    totals = np.bincount(leaves, weight, nodes)
    records = np.bincount(leaves[inside], minlength=nodes)
    held = records.copy()
    parents = _summed_upwards(tree, sums, totals, records)
    places = leaves.copy()
    while True:
        empty = inside & (records[places] == 1) & (places > 0)
        if not empty.any():
            break
        places[empty] = parents[places[empty]]
    own = np.zeros((len(leaves), sums.shape[1]))
    if classes:
        own[np.arange(len(leaves)), targets] = weight
    else:
        own = weight[:, None] * targets
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = sums[leaves] / totals[leaves, None]
        without = (sums[places] - own) / (totals[places] - weight)[:, None]
    without[inside & (records[places] == 1)] = np.nan
    without[~inside] = whole[~inside]
    return LeafAnswers(whole, np.clip(without, 0.0, 1.0) if classes else without, held)


def holds_these(tree: Any, leaves: Array) -> bool:
    """Whether every leaf of a tree holds as many records as it says it was grown with.

    `leaves` are the leaves of the records in the tree's bag, each record once. Weights of records
    do not matter for this, as long as none is 0.
    """
    is_leaf = tree.children_left == NO_CHILD
    found = np.bincount(leaves, minlength=tree.node_count)
    return len(found) == tree.node_count and bool(np.array_equal(found[is_leaf], tree.n_node_samples[is_leaf]))


def _summed_upwards(tree: Any, sums: Array, totals: Array, records: Array) -> Array:
    """Fill in the sums of all inner nodes from their leaves, level by level; returns parents."""
    left, right = tree.children_left, tree.children_right
    parents = np.zeros(tree.node_count, dtype=np.int64)
    levels, level = [], np.zeros(1, dtype=np.int64)
    while len(level):
        inner = level[left[level] != NO_CHILD]
        levels.append(inner)
        parents[left[inner]] = parents[right[inner]] = inner
        level = np.concatenate([left[inner], right[inner]])
    for inner in reversed(levels):
        for held in (sums, totals, records):
            held[inner] = held[left[inner]] + held[right[inner]]
    return parents
