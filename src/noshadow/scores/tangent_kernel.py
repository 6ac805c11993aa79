"""The empirical tangent kernel K = JJᵀ of the chosen layers, built in place without ever holding J.

A plain linear layer adds (AAᵀ + 1) ∘ ΔΔᵀ from its two factors; other parameters add the inner products of their gradients.
What is kept at a time is bounded: when factors and gradients of all layers do not fit, the records are walked several times.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from noshadow.blocks import blocks
from noshadow.scores.gradients import Differentiated, PlainLinear, RecordGradients
from noshadow.scores.network_problem import NetworkProblem, walked
from noshadow.views.loading import Records
from noshadow.views.network import Network

ROWS = 1024
LEAST_NUMBERS = 1 << 22


@dataclass(frozen=True)
class Part:
    """What one pass keeps of one layer: the factors of a linear layer, or some columns of a parameter's flat gradient."""

    name: str
    width: int
    start: int = 0
    factored: bool = False


def kernel_parts(network: Network, plain: tuple[PlainLinear, ...], *, rows: int, numbers: int) -> list[list[Part]]:
    """Parts of the Jacobian grouped into passes, each with at most `numbers` numbers over `rows` rows (one part at least)."""
    modules = dict(network.module.named_modules())
    covered = {name for layer in plain for name in layer.parameters}
    widest = max(numbers // rows, 1)
    parts = [Part(layer.name, modules[layer.name].in_features + modules[layer.name].out_features, factored=True) for layer in plain]
    for name, tensor in network.parameters.items():
        if name not in covered:
            parts += [Part(name, min(widest, tensor.numel() - low), low) for low in range(0, tensor.numel(), widest)]
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
    plain: tuple[PlainLinear, ...],
    *,
    progress: bool,
) -> Tensor:
    """K (nc, nc), float64: rows and columns are records, and within them the differentiated outputs. Exact.

    Cost: passes · c backward passes over the records, and n²c²(Σ (d_in + d_out) + Σ other parameters) flops; beside K as many
    numbers as K has.
    """
    size = len(problem) * problem.columns
    kernel = torch.zeros((size, size), dtype=torch.float64)
    passes = kernel_parts(network, plain, rows=size, numbers=max(size * size, LEAST_NUMBERS))
    for number, group in enumerate(passes):
        label = "Gradients" if len(passes) == 1 else f"Gradients, pass {number + 1} of {len(passes)}"
        kept = _collected(network, records, problem, differentiate, group, label, progress)
        bias = {layer.name: layer.bias for layer in plain}
        for part in group:
            arrays = kept.pop(part)
            if part.factored:
                _add_factored(kernel, arrays[0], arrays[1], problem.columns, bias[part.name])
            else:
                _add_gram(kernel, arrays[0])
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
    start = 0
    for batch in walked(records, problem.batch_size, label, progress):
        stop = start + len(batch.target)
        directions = problem.cotangents(start, stop).to(network.device)
        gradients = differentiate(batch, directions)
        for part in group:
            found[part].append(_kept(part, gradients))
        start = stop
    return {part: tuple(torch.cat(pieces) for pieces in zip(*arrays, strict=True)) for part, arrays in found.items()}


def _kept(part: Part, gradients: list[RecordGradients]) -> tuple[Tensor, ...]:
    """(A (b, d_in), Δ (b·c, d_out)) of a linear layer, or the chosen columns of a flat gradient (b·c, width)."""
    if part.factored:
        inputs = gradients[0].factors[part.name].inputs
        slopes = torch.stack([g.factors[part.name].slopes for g in gradients], 1)
        return inputs.cpu(), slopes.flatten(0, 1).cpu()
    columns = [g.full[part.name].flatten(1)[:, part.start : part.start + part.width] for g in gradients]
    return (torch.stack(columns, 1).flatten(0, 1).cpu(),)


def _add_factored(kernel: Tensor, inputs: Tensor, slopes: Tensor, columns: int, bias: bool) -> None:
    """Add (AAᵀ + 1) ∘ ΔΔᵀ to the upper triangle of `kernel`, block by block."""
    for start, stop in blocks(len(inputs), max(ROWS // columns, 1)):
        rows = slice(start * columns, stop * columns)
        inner = inputs[start:stop] @ inputs[start:].T
        inner += 1.0 if bias else 0.0
        product = slopes[rows] @ slopes[rows.start :].T
        shaped = product.view(stop - start, columns, len(inputs) - start, columns)
        shaped *= inner[:, None, :, None]
        kernel[rows, rows.start :] += product


def _add_gram(kernel: Tensor, gradients: Tensor) -> None:
    """Add GGᵀ to the upper triangle of `kernel`, block by block."""
    for start, stop in blocks(len(gradients), ROWS):
        kernel[start:stop, start:].addmm_(gradients[start:stop], gradients[start:].T)


def _mirrored(kernel: Tensor) -> Tensor:
    for start, stop in blocks(len(kernel), ROWS):
        kernel[stop:, start:stop] = kernel[start:stop, stop:].T
        corner = kernel[start:stop, start:stop]
        kernel[start:stop, start:stop] = corner.triu() + corner.triu(1).T
    return kernel
