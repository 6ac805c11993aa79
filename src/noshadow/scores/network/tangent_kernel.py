"""The empirical tangent kernel K = JJᵀ of the chosen layers, built in place without ever holding J.

A plain linear layer adds (AAᵀ + 1) ∘ ΔΔᵀ from its two factors, one that runs at many positions
Σ_st (A_s·A'_t + 1)(Δ_s·Δ'_t), a lookup table the inner products of the slopes of records that asked
for the same row; other parameters add the inner products of their gradients. What is kept at a time
is bounded: when factors and gradients of all layers do not fit, the records are walked several
times.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noshadow.blocks import blocks
from noshadow.scores.network.factored_layers import Plain, PlainLinear, PlainLookup, RecordGradients
from noshadow.scores.network.gradients import Differentiated
from noshadow.scores.network.kernel_terms import add_gram, add_linear
from noshadow.scores.network.problem import NetworkProblem
from noshadow.views.loading import Records
from noshadow.views.network import Network
from noshadow.views.walk import walked

ROWS = 1024
# A quarter of a gigabyte of factors beside a small kernel saves passes over the records.
LEAST_NUMBERS = 1 << 25


@dataclass(frozen=True)
class Part:
    """What one pass keeps of one layer, and how many numbers per row of the kernel that is.

    A linear layer's factors; columns start … stop of a table's slopes, or of a parameter's flat
    gradient.
    """

    name: str
    width: int
    start: int = 0
    stop: int = 0
    plain: Plain | None = None


def kernel_parts(network: Network, plain: tuple[Plain, ...], *, rows: int, numbers: int) -> list[list[Part]]:
    """Group the parts of the Jacobian into passes.

    Each pass has at most `numbers` numbers over `rows` rows, or a single part.
    """
    covered = {name for layer in plain for name in layer.parameters}
    widest = max(numbers // rows, 1)
    parts = []
    for layer in plain:
        if isinstance(layer, PlainLinear):
            parts.append(Part(layer.name, layer.numbers, plain=layer))
        else:
            # For as many rows of the table as the first records asked for, and the numbers of those
            # rows.
            parts += [
                Part(layer.name, layer.asked * (stop - start + 1), start, stop, layer)
                for start, stop in blocks(layer.width, max(widest // layer.asked - 1, 1))
            ]
    for name, tensor in network.parameters.items():
        if name not in covered:
            parts += [Part(name, stop - start, start, stop) for start, stop in blocks(tensor.numel(), widest)]
    passes: list[list[Part]] = []
    for part in sorted(parts, key=lambda p: -p.width):
        fitting = next((group for group in passes if sum(p.width for p in group) + part.width <= widest), None)
        if fitting is None:
            passes.append([part])
        else:
            fitting.append(part)
    return passes


def tangent_kernel(
    network: Network,
    records: Records,
    problem: NetworkProblem,
    differentiate: Differentiated,
    plain: tuple[Plain, ...],
    *,
    progress: bool,
) -> Tensor:
    """K (nc, nc) in float64, exact.

    Rows and columns are records, and within them the differentiated outputs.

    Cost: passes · c backward passes over the records, and n²c²(Σ (d_in + d_out) + Σ other
        parameters) flops; beside K as many numbers as K has, or LEAST_NUMBERS, or the factors of
        one layer.
    """
    size = len(problem) * problem.columns
    kernel = torch.zeros((size, size), dtype=torch.float64)
    passes = kernel_parts(network, plain, rows=size, numbers=max(size * size, LEAST_NUMBERS))
    for number, group in enumerate(passes):
        label = "Gradients" if len(passes) == 1 else f"Gradients, pass {number + 1} of {len(passes)}"
        kept = _collected(network, records, problem, differentiate, group, label, progress)
        for part in group:
            arrays = kept.pop(part)
            if isinstance(part.plain, PlainLinear):
                add_linear(kernel, arrays[0], arrays[1], bias=part.plain.bias)
            elif isinstance(part.plain, PlainLookup):
                _add_lookups(kernel, arrays[0], arrays[1])
            else:
                add_gram(kernel, arrays[0])
    return _mirrored(kernel)


def _collected(
    network: Network,
    records: Records,
    problem: NetworkProblem,
    differentiate: Differentiated,
    group: list[Part],
    label: str,
    progress: bool,
) -> dict[Part, tuple[Tensor, ...]]:
    found: dict[Part, list[tuple[Tensor, ...]]] = {part: [] for part in group}
    how: dict[str, Any] = {"argument": "train", "description": label, "progress": progress}
    for step in walked(records, problem.batch_size, **how):
        directions = problem.cotangents(step.start, step.stop).to(network.device)
        gradients = differentiate(step.inputs, directions)
        for part in group:
            found[part].append(_kept(part, gradients))
    return {part: tuple(_joined(pieces) for pieces in zip(*arrays, strict=True)) for part, arrays in found.items()}


def _joined(pieces: tuple[Tensor, ...]) -> Tensor:
    """Join all batches into one.

    Records may have different numbers of positions; shorter batches are filled up with zeros, whose
    slopes add nothing.
    """
    if pieces[0].ndim < 2 or len({piece.shape[1] for piece in pieces}) == 1:
        return torch.cat(pieces)
    longest = max(piece.shape[1] for piece in pieces)
    behind = [(0, 0) * (piece.ndim - 2) + (0, longest - piece.shape[1]) for piece in pieces]
    return torch.cat([nn.functional.pad(piece, fill) for piece, fill in zip(pieces, behind, strict=True)])


def _kept(part: Part, gradients: list[RecordGradients]) -> tuple[Tensor, ...]:
    """What is kept of the gradients of one part.

    This is (A (b, T, d_in), Δ (b, T, c, d_out)) for a linear layer, (rows (b, T), Δ (b, T, c, d))
    for a table, or columns of a flat gradient.
    """
    if isinstance(part.plain, PlainLookup):
        slopes = torch.stack([g.lookups[part.name].slopes[:, :, part.start : part.stop] for g in gradients], 2)
        return gradients[0].lookups[part.name].rows.cpu(), slopes.cpu()
    if part.plain is not None:
        slopes = torch.stack([g.factors[part.name].slopes for g in gradients], 2)
        return gradients[0].factors[part.name].inputs.cpu(), slopes.cpu()
    columns = [g.full[part.name].flatten(1)[:, part.start : part.stop] for g in gradients]
    return (torch.stack(columns, 1).flatten(0, 1).cpu(),)


def _add_lookups(kernel: Tensor, rows: Tensor, slopes: Tensor) -> None:
    """Add Σ over the table's rows of G_rG_rᵀ to `kernel`.

    G_r are the summed slopes of the records that asked for row r.
    """
    n, asked, columns, width = slopes.shape
    # One entry per record and row of the table, however often the record asked for it; sorted by
    # row.
    pairs, place = torch.unique(rows * n + torch.arange(n)[:, None], return_inverse=True)
    summed = torch.zeros((len(pairs), columns, width), dtype=slopes.dtype)
    summed.index_add_(0, place.flatten(), slopes.reshape(n * asked, columns, width))
    # Padding is asked for by nearly every record, and adds nothing.
    moved = summed.flatten(1).any(1)
    pairs, summed = pairs[moved], summed[moved]
    _, counts = torch.unique_consecutive(pairs // n, return_counts=True)
    for start, stop in itertools.pairwise([0, *counts.cumsum(0).tolist()]):
        at = ((pairs[start:stop] % n)[:, None] * columns + torch.arange(columns)).flatten()
        flat = summed[start:stop].flatten(0, 1)
        for low, high in blocks(len(at), ROWS):
            kernel[at[low:high, None], at] += flat[low:high] @ flat.T


def _mirrored(kernel: Tensor) -> Tensor:
    for start, stop in blocks(len(kernel), ROWS):
        kernel[stop:, start:stop] = kernel[start:stop, stop:].T
        corner = kernel[start:stop, start:stop]
        kernel[start:stop, start:stop] = corner.triu() + corner.triu(1).T
    return kernel
