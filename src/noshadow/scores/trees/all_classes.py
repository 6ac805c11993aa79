"""Leaves whose values for all classes are solved for at once, and the same without each record.

CatBoost's MultiClass takes the whole Newton step of softmax: with the sums G (m) and H (m, m) of
the leaf's gradients and curvatures the step is −(H + λI)⁻¹G, where a record's curvature is
w(diag p − ppᵀ). Without record i the sums lose its part, and the system is solved again.
"""

from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array
from noshadow.scores.trees.objectives import softmax

# Numbers of small matrices held at a time: 160 MB.
_MOST_NUMBERS = 20_000_000


@dataclass(frozen=True, eq=False)
class ClassSteps:
    """What one tree's leaves are, and what leaving each record out of its leaf does to it.

    Attributes:
        steps: (nodes, m) before the rate. fall: (n, m) its leaf's step − that without the record.
        first_order: (n, m) the same to first order in the record's weight.
        share: (n,) tr((H + λI)⁻¹H_i)/(m − 1), its share of its leaf's curvature; in [0, 1].
        moved: (nodes,) Σ over the steps of 1 + the largest of them, for rounding.
    """

    steps: Array
    fall: Array
    first_order: Array
    share: Array
    moved: Array


def class_steps(leaves: Array, margins: Array, targets: Array, weights: Array, nodes: int, l2: float, steps: int) -> ClassSteps:
    """Newton steps of all classes in each leaf, with and without each record.

    A leaf that would hold no other record keeps its place with the step 0, as symmetric trees do.

    Args:
        leaves: (n,) leaf of each record. margins: (n, m) raw outputs before the round.
        targets: (n,) numbers of classes. weights: (n,); 0 for records that the round did not take.
        nodes: number of leaves. l2: λ > 0. steps: how many are added up, each from the margins
            that the last one left.

    Exact when: the other records' gradients stay as recorded.
    Cost: O(n m³) per step, in blocks.
    """
    n, m = margins.shape
    count = np.bincount(leaves[weights > 0], minlength=nodes)
    rebuilt, moved = np.zeros((nodes, m)), np.zeros(nodes)
    fall, first, share = np.zeros((n, m)), np.zeros((n, m)), np.zeros(n)
    for _ in range(steps):
        found = _one_step(leaves, margins + rebuilt[leaves], targets, weights, count, l2)
        rebuilt += found.steps
        fall += found.fall
        first += found.first_order
        share += found.share / steps
        moved += found.moved
    return ClassSteps(rebuilt, fall, first, share, moved)


def _one_step(leaves: Array, margins: Array, targets: Array, weights: Array, count: Array, l2: float) -> ClassSteps:
    (n, m), nodes = margins.shape, len(count)
    g, _ = softmax(margins, targets)
    p = g.copy()
    p[np.arange(n), targets.astype(np.intp)] += 1
    g = g * weights[:, None]
    G = np.stack([np.bincount(leaves, g[:, k], nodes) for k in range(m)], axis=1)
    A = np.zeros((nodes, m, m))
    for j in range(m):
        for k in range(j + 1):
            A[:, j, k] = A[:, k, j] = np.bincount(leaves, -weights * p[:, j] * p[:, k], nodes)
        A[:, j, j] += np.bincount(leaves, weights * p[:, j], nodes) + l2
    values = np.linalg.solve(A, -G[:, :, None])[:, :, 0]
    inverse = np.linalg.inv(A)
    fall, first, share = np.zeros((n, m)), np.zeros((n, m)), np.zeros(n)
    inside = np.flatnonzero(weights > 0)
    for rows in np.array_split(inside, max(1, len(inside) * m * m // _MOST_NUMBERS)):
        own, q, w = leaves[rows], p[rows], weights[rows, None]
        curvature = w[:, :, None] * (np.einsum("nj,jk->njk", q, np.eye(m)) - q[:, :, None] * q[:, None, :])
        without = np.linalg.solve(A[own] - curvature, -(G[own] - g[rows])[:, :, None])[:, :, 0]
        without[count[own] == 1] = 0.0
        fall[rows] = values[own] - without
        pull = g[rows] + np.einsum("njk,nk->nj", curvature, values[own])
        first[rows] = -np.einsum("njk,nk->nj", inverse[own], pull)
        share[rows] = np.einsum("njk,nkj->n", inverse[own], curvature) / (m - 1)
    return ClassSteps(values, fall, first, share, 1 + np.abs(values).max(1))
