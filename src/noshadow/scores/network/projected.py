"""Many layers and many records: the primal problem on randomly projected gradients.

Each layer's gradient is a matrix (outputs × inputs) a record; it is projected from both sides,
inputs and output slopes separately, so that plain linear layers and lookup tables never form it.
Two independent projections are drawn in the same pass over the records, and a third to half as many
dimensions. The mean of the two is reported. Their difference says how far chance moved it; what
both have in common, that too few dimensions make every record look safer, shows in how much is
gained from half the dimensions to all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noshadow.blocks import blocks
from noshadow.checks import Array
from noshadow.linalg import spd_inverse
from noshadow.metrics.agreement import rank_correlation
from noshadow.scores.network.columns import SelfResponse, many_output_columns, one_output_columns, roots
from noshadow.scores.network.factored_layers import Factors, Lookups, Plain, PlainLinear, RecordGradients
from noshadow.scores.network.gradients import Differentiated
from noshadow.scores.network.problem import NetworkProblem
from noshadow.views.loading import Records
from noshadow.views.network import Network
from noshadow.views.walk import walked

DRAWS = 2
# The projection that shows the bias has this many times fewer dimensions.
COARSER = 2
ROWS = 2048
# Pairs of positions that are held at a time.
PAIRS = 1 << 22


@dataclass(frozen=True, eq=False)
class Sketch:
    """Projections of one layer's gradient, left (k_out, d_out) and right (k_in, d_in).

    None keeps that side as it is.

    Of a plain layer the factors are projected, those of a linear one with a column of ones where it
    has a bias.
    """

    name: str
    left: Tensor | None
    right: Tensor | None
    width: int


@dataclass(frozen=True, eq=False)
class ProjectedFeatures:
    """Projected gradients of all records under each draw, float32 (n·c, D).

    Beside them stand the exact squared norms (n, c, c) of the gradients.

    Of the draws the first `DRAWS` are averaged; one behind them has fewer dimensions.
    """

    draws: tuple[Tensor, ...]
    norms: Tensor


@dataclass(frozen=True, eq=False)
class ProjectedColumns:
    """Mean columns of the draws with their diagnostics.

    These are Σ leverage, the inverse's condition and jitter, and what the draws say about the
    error.
    """

    columns: dict[str, Array]
    dof: float
    condition: float
    jitter: float
    errors: dict[str, float]
    rank_agreement: dict[str, float]


def sketches(network: Network, plain: tuple[Plain, ...], *, dimension: int, seed: int, draw: int) -> list[Sketch]:
    """Draw Gaussian projections whose widths add up to about `dimension`.

    Layers smaller than their share are kept as they are.
    """
    shapes: dict[str, tuple[int, int]] = {}
    covered = {name for layer in plain for name in layer.parameters}
    for layer in plain:
        if isinstance(layer, PlainLinear):
            shapes[layer.name] = (layer.d_out, layer.d_in + layer.bias)
        else:
            shapes[layer.name] = (layer.size, layer.width)
    for name, tensor in network.parameters.items():
        if name not in covered:
            first = len(tensor) if tensor.ndim > 1 else 1
            shapes[name] = (first, tensor.numel() // first)
    left, found = dimension, []
    # Smallest first: what a small layer does not use of its share goes to the larger ones.
    order = sorted(shapes.items(), key=lambda item: item[1][0] * item[1][1])
    for position, (name, (d_out, d_in)) in enumerate(order):
        share = max(left // (len(order) - position), 1)
        k_out, k_in = _widths(d_out, d_in, share)
        rng = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, draw, position]).generate_state(1)[0]))
        found.append(Sketch(name, _gaussian(k_out, d_out, rng), _gaussian(k_in, d_in, rng), k_out * k_in))
        left -= k_out * k_in
    return found


def _widths(d_out: int, d_in: int, share: int) -> tuple[int, int]:
    if d_out * d_in <= share:
        return d_out, d_in
    side = max(int(share**0.5), 1)
    if d_out <= side:
        return d_out, max(share // d_out, 1)
    if d_in <= side:
        return max(share // d_in, 1), d_in
    return side, share // side


def _gaussian(k: int, d: int, rng: torch.Generator) -> Tensor | None:
    return None if k == d else torch.randn((k, d), generator=rng, dtype=torch.float64) / k**0.5


def projected_features(
    network: Network,
    records: Records,
    problem: NetworkProblem,
    differentiate: Differentiated,
    drawn: list[list[Sketch]],
    *,
    progress: bool,
) -> ProjectedFeatures:
    """Projected gradients of every record under each set of sketches, in one pass.

    Cost: c backward passes over the records and, per layer, two thin products per draw;
        4·draws·n·c·D bytes.
    """
    n, c = len(problem), problem.columns
    draws = [torch.empty((n * c, sum(sketch.width for sketch in sketch_list)), dtype=torch.float32) for sketch_list in drawn]
    norms = torch.empty((n, c, c), dtype=torch.float64)
    how: dict[str, Any] = {"argument": "train", "description": "Gradients", "progress": progress}
    for step in walked(records, problem.batch_size, **how):
        start, stop = step.start, step.stop
        directions = problem.cotangents(start, stop).to(network.device)
        gradients = differentiate(step.inputs, directions)
        for features, sketch_list in zip(draws, drawn, strict=True):
            rows = torch.stack([_projected(own, sketch_list) for own in gradients], 1)
            features[start * c : stop * c] = rows.flatten(0, 1).to("cpu", torch.float32)
        norms[start:stop] = _inner_products(gradients).cpu()
    return ProjectedFeatures(tuple(draws), norms)


def _projected(gradients: RecordGradients, drawn: list[Sketch]) -> Tensor:
    parts = []
    for sketch in drawn:
        if sketch.name in gradients.factors:
            parts.append(_projected_factors(gradients.factors[sketch.name], sketch))
        elif sketch.name in gradients.lookups:
            parts.append(_projected_lookups(gradients.lookups[sketch.name], sketch))
        else:
            whole = gradients.full[sketch.name]
            matrix = whole.flatten(2) if whole.ndim > 2 else whole[:, None, :] if whole.ndim == 2 else whole[:, None, None]
            matrix = matrix if sketch.right is None else matrix @ sketch.right.T.to(matrix.device)
            matrix = matrix if sketch.left is None else sketch.left.to(matrix.device) @ matrix
            parts.append(matrix.flatten(1))
    return torch.cat(parts, 1)


def _projected_factors(factors: Factors, sketch: Sketch) -> Tensor:
    """Σ_t (left Δ_t) ⊗ (right A_t): both factors are projected before they meet."""
    inputs = _with_ones(factors.inputs) if factors.bias else factors.inputs
    inner = inputs if sketch.right is None else inputs @ sketch.right.T.to(inputs.device)
    outer = factors.slopes if sketch.left is None else factors.slopes @ sketch.left.T.to(inputs.device)
    return (outer.mT @ inner).flatten(1)


def _projected_lookups(found: Lookups, sketch: Sketch) -> Tensor:
    """Σ_t left[:, rows_t] ⊗ (right Δ_t).

    Only the columns of the left projection that were asked for are read.
    """
    inner = found.slopes if sketch.right is None else found.slopes @ sketch.right.T.to(found.slopes.device)
    left = torch.eye(found.size, dtype=torch.float64) if sketch.left is None else sketch.left
    asked = left.T.to(found.slopes.device)[found.rows]
    return (asked.mT @ inner).flatten(1)


def _with_ones(inputs: Tensor) -> Tensor:
    return torch.cat([inputs, inputs.new_ones((*inputs.shape[:-1], 1))], -1)


def _inner_products(gradients: list[RecordGradients]) -> Tensor:
    """Exact J_iJ_iᵀ of a batch, (b, c, c)."""
    c = len(gradients)
    total: Tensor | None = None
    for name, first in gradients[0].factors.items():
        part = _factored_products(first, torch.stack([g.factors[name].slopes for g in gradients], 1))
        total = part if total is None else total + part
    for name, table in gradients[0].lookups.items():
        slopes = torch.stack([g.lookups[name].slopes for g in gradients], 1)
        same = (table.rows[:, :, None] == table.rows[:, None, :]).to(slopes.dtype)
        part = slopes.flatten(2) @ (same[:, None] @ slopes).flatten(2).mT
        total = part if total is None else total + part
    for name in gradients[0].full:
        rows = torch.stack([g.full[name].flatten(1) for g in gradients], 1)
        total = rows @ rows.mT if total is None else total + rows @ rows.mT
    assert total is not None and total.shape[1] == c
    return total


def _factored_products(factors: Factors, slopes: Tensor) -> Tensor:
    """Σ_st (A_s·A_t + 1)(Δ_s·Δ_t) of each record, (b, c, c), from slopes (b, c, T, d_out)."""
    size, c, positions, _ = slopes.shape
    parts = []
    for start, stop in blocks(size, max(PAIRS // (c * positions) ** 2, 1)):
        inputs, flat = factors.inputs[start:stop], slopes[start:stop].flatten(1, 2)
        alike = (inputs @ inputs.mT + float(factors.bias)).repeat(1, c, c)
        parts.append((alike * (flat @ flat.mT)).view(stop - start, c, positions, c, positions).sum((2, 4)))
    return torch.cat(parts)


def all_sketches(network: Network, plain: tuple[Plain, ...], *, dimension: int, seed: int) -> list[list[Sketch]]:
    """The draws that are averaged, and a coarser one; no coarser one where nothing is projected."""
    drawn = [sketches(network, plain, dimension=dimension, seed=seed, draw=draw) for draw in range(DRAWS)]
    if all(sketch.left is None and sketch.right is None for sketch in drawn[0]):
        return drawn
    return [*drawn, sketches(network, plain, dimension=max(dimension // COARSER, 1), seed=seed, draw=DRAWS)]


def projected_columns(features: ProjectedFeatures, problem: NetworkProblem, *, damping: float) -> ProjectedColumns:
    """Columns of the weighted primal problem on projected gradients.

    They are the mean of the draws; an estimate of their error stands beside them.

    Approximates: the dual form, with an error that falls as the dimension grows; Σ leverage cannot
        exceed the dimension.
    Cost: draws · (4·n·c·D² + D³) flops, and an eighth more for the coarser draw.
    """
    solved = [_draw_columns(draw, problem, damping) for draw in features.draws]
    first, second, coarser = solved[0].columns, solved[DRAWS - 1].columns, solved[DRAWS:]
    mean = {name: 0.5 * (first[name] + second[name]) for name in first}
    errors, agreement = {}, {}
    for name in first:
        chance = _median_apart(first[name], second[name], 0.5 * (np.abs(first[name]) + np.abs(second[name]))) / 2
        bias = max((_median_apart(mean[name], part.columns[name], np.abs(part.columns[name])) for part in coarser), default=0.0)
        errors[name] = min(max(chance, bias), 1.0)
        agreement[name] = rank_correlation(first[name], second[name])
    averaged = solved[:DRAWS]
    return ProjectedColumns(
        mean,
        float(np.mean([part.dof for part in averaged])),
        max(part.condition for part in averaged),
        max(part.jitter for part in averaged),
        errors,
        agreement,
    )


def _median_apart(first: Array, second: Array, size: Array) -> float:
    """Median of |first − second|/size over the records for which it is defined.

    All three must be finite, and the size must not be zero.

    With `second` from half the dimensions and `size` its own, this is the relative error of
    `first`: one over a score is about linear in one over the dimension, so that exact/first =
    1/(2 − first/second), until nothing can be said from a doubling on.
    """
    usable = np.isfinite(first) & np.isfinite(second) & (size > 0)
    return float(np.median(np.abs(first[usable] - second[usable]) / size[usable])) if usable.any() else 0.0


def _draw_columns(features: Tensor, problem: NetworkProblem, damping: float) -> ProjectedColumns:
    n, c, d = len(problem), problem.columns, features.shape[1]
    walk = blocks(n, max(ROWS // c, 1))
    curvature = damping * torch.eye(d, dtype=torch.float64)
    for start, stop in walk:
        rows = _weighted(features, problem, start, stop).flatten(0, 1)
        curvature.addmm_(rows.T, rows)
    inverse = spd_inverse(curvature.numpy(), overwrite=True)
    matrix = torch.from_numpy(inverse.matrix)
    own = torch.empty((n, c, c), dtype=torch.float64)
    for start, stop in walk:
        rows = _weighted(features, problem, start, stop)
        own[start:stop] = (rows.flatten(0, 1) @ matrix).view_as(rows) @ rows.mT
    dof = float(own.diagonal(dim1=1, dim2=2).sum())
    if c == 1:
        leverage = own[:, 0, 0].clamp(max=1.0).numpy()
        weights = (roots(problem, 0, n).scale[:, 0] ** 2).numpy()
        columns = one_output_columns(problem, leverage / weights, 1.0 - leverage)
        return ProjectedColumns(columns, dof, inverse.condition, inverse.jitter, {}, {})
    parts: dict[str, list[Tensor]] = {}
    for start, stop in walk:
        block = own[start:stop]
        response = SelfResponse(block / roots(problem, start, stop).scale[:, :, None], torch.eye(c, dtype=torch.float64) - block)
        for name, values in many_output_columns(problem, start, stop, response).items():
            parts.setdefault(name, []).append(values)
    found = {name: torch.cat(values).numpy() for name, values in parts.items()}
    return ProjectedColumns(found, dof, inverse.condition, inverse.jitter, {}, {})


def _weighted(features: Tensor, problem: NetworkProblem, start: int, stop: int) -> Tensor:
    """R_iᵀΦ_i of a block, (b, c, D) float64."""
    c = problem.columns
    rows = features[start * c : stop * c].double().view(stop - start, c, -1)
    root = roots(problem, start, stop)
    scaled = rows * root.scale[:, :, None]
    return scaled if root.mixing is None else root.mixing.mT @ scaled
