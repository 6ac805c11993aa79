"""Layers whose gradients are kept in factors: plain linear layers and lookup tables.

A linear layer that runs once on one row per record has the outer product of what came in and of the
slope of what came out as its gradient. A table of embeddings that is looked up once has the slopes
in the rows it was asked for, and zeros in all others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noshadow.views.layers import shared_parameters
from noshadow.views.loading import Batch
from noshadow.views.network import Network


@dataclass(frozen=True, eq=False)
class Factors:
    """Gradients of one plain linear layer in factors.

    The weight gradient is Δ ⊗ A; the bias gradient is Δ if the layer has a trainable bias.

    inputs: (b, d_in) A. slopes: (b, d_out) Δ. bias: whether the bias counts.
    """

    inputs: Tensor
    slopes: Tensor
    bias: bool

    def whole(self) -> list[Tensor]:
        """The gradients themselves: (b, d_out, d_in), and (b, d_out) of a bias."""
        weight = self.slopes[:, :, None] * self.inputs[:, None, :]
        return [weight, self.slopes] if self.bias else [weight]


@dataclass(frozen=True, eq=False)
class Lookups:
    """Gradients of one lookup table, Σ_t e_{rows_t} ⊗ Δ_t, where rows may repeat.

    rows: (b, T) whole numbers. slopes: (b, T, d) Δ, zero where padding was asked for. size: rows of
    the table.
    """

    rows: Tensor
    slopes: Tensor
    size: int

    def whole(self) -> list[Tensor]:
        """The gradient itself, (b, size, d)."""
        empty = self.slopes.new_zeros((len(self.rows), self.size, self.slopes.shape[2]))
        return [empty.scatter_add_(1, self.rows[:, :, None].expand_as(self.slopes), self.slopes)]


@dataclass(frozen=True, eq=False)
class RecordGradients:
    """Gradients of one scalar per record.

    It holds factors of plain layers by module name, and (b, …) tensors of other parameters.
    """

    factors: dict[str, Factors]
    lookups: dict[str, Lookups]
    full: dict[str, Tensor]


@dataclass(frozen=True)
class PlainLinear:
    """A linear layer whose gradient is taken in factors, and the parameters that covers."""

    name: str
    bias: bool
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class PlainLookup:
    """A lookup table whose gradient is taken in factors.

    It holds the (size, width) of the table, the row that is padding, and the rows that a record
    asks for.
    """

    name: str
    parameters: tuple[str, ...]
    size: int
    width: int
    padding: int | None
    asked: int


Plain = PlainLinear | PlainLookup


def candidates(network: Network, few: Batch) -> tuple[Plain, ...]:
    """Choose layers whose gradients may be kept in factors.

    A layer must run once, on one row of inputs per record, and its weight must be trainable and its
    own.

    A table of no more rows than a record asks for is left out: its gradient is no larger than its
    factors.
    """
    runs: dict[nn.Module, list[Any]] = {}

    def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        runs.setdefault(module, []).append(args[0] if args else None)

    layers = {name: module for name, module in network.module.named_modules() if type(module) in (nn.Linear, nn.Embedding)}
    hooked(network, {module: note for module in layers.values()}, few.args, few.kwargs)
    shared = {name for group in shared_parameters(network.module) for name in group}
    found: list[Plain] = []
    for name, module in layers.items():
        weight, bias = (f"{name}.{kind}".removeprefix(".") for kind in ("weight", "bias"))
        covered = tuple(parameter for parameter in (weight, bias) if parameter in network.parameters)
        given = runs.get(module, [])
        once = len(given) == 1 and isinstance(given[0], Tensor) and given[0].ndim > 0 and len(given[0]) == len(few.target)
        if not once or weight not in covered or shared & set(covered):
            continue
        if isinstance(module, nn.Linear) and given[0].ndim == 2:
            found.append(PlainLinear(name, bias in covered, covered))
        elif isinstance(module, nn.Embedding) and not module.scale_grad_by_freq and given[0][0].numel() < module.num_embeddings:
            found.append(PlainLookup(name, covered, module.num_embeddings, module.embedding_dim, module.padding_idx, given[0][0].numel()))
    return tuple(found)


def hooked(network: Network, hooks: dict[nn.Module, Callable[..., Any]], args: Any, kwargs: Any) -> Tensor:
    """The network's outputs with forward hooks in place."""
    handles = [module.register_forward_hook(hook) for module, hook in hooks.items()]
    try:
        return network.outputs(network.parameters, args, kwargs)
    finally:
        for handle in handles:
            handle.remove()


def probe_zeros(network: Network, plain: tuple[Plain, ...], args: Any, kwargs: Any) -> dict[str, Tensor]:
    """Zeros of the shape of each plain layer's output for the one record passed.

    The slopes are taken with respect to these zeros.
    """
    modules = dict(network.module.named_modules())
    linears = [layer.name for layer in plain if isinstance(layer, PlainLinear)]
    shapes: dict[str, tuple[int, ...]] = {name: (1, modules[name].out_features) for name in linears}

    def noting(name: str) -> Callable[..., None]:
        def note(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            shapes[name] = tuple(output.shape)

        return note

    # How many rows of a table are asked for may differ from batch to batch.
    tables = {modules[layer.name]: noting(layer.name) for layer in plain if isinstance(layer, PlainLookup)}
    if tables:
        with torch.no_grad():
            hooked(network, tables, args, kwargs)
    return {layer.name: torch.zeros(shapes[layer.name], dtype=torch.float64, device=network.device) for layer in plain}


def lookups(layer: PlainLookup, rows: Tensor, slopes: Tensor) -> Lookups:
    """The gradient of a lookup table in factors.

    It comes from the rows each record asked for (b, …) and the slopes of what it got (b, …, d).
    """
    numbers, flat = rows.reshape(len(rows), -1), slopes.reshape(len(rows), -1, layer.width)
    if layer.padding is not None:
        flat = flat * (numbers != layer.padding)[:, :, None]
    return Lookups(numbers.long(), flat, layer.size)
