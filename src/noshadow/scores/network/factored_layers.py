"""Layers whose gradients are kept in factors: linear layers and lookup tables.

A linear layer that runs once per record, on one row or on one for each of T positions (the tokens
of a text), has Σ_t Δ_t ⊗ A_t as its gradient: what came in, and the slope of what came out. A table
of embeddings that is looked up once has the slopes in the rows it was asked for, and zeros in all
others.
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
    """Gradients of one linear layer in factors.

    The weight gradient is Σ_t Δ_t ⊗ A_t; the bias gradient is Σ_t Δ_t if the layer has a trainable
    bias.

    inputs: (b, T, d_in) A. slopes: (b, T, d_out) Δ, with T = 1 for one row per record. bias:
    whether the bias counts. transposed: whether the weight is stored as (d_in, d_out).
    """

    inputs: Tensor
    slopes: Tensor
    bias: bool
    transposed: bool = False

    def whole(self) -> list[Tensor]:
        """The gradients themselves: (b, d_out, d_in) or its transpose, and (b, d_out) of a bias."""
        left, right = (self.inputs, self.slopes) if self.transposed else (self.slopes, self.inputs)
        weight = left.mT @ right
        return [weight, self.slopes.sum(1)] if self.bias else [weight]


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
    """A linear layer whose gradient is taken in factors, and the parameters that covers.

    It holds the layer's two widths, the positions of a record that it ran on (None where it takes
    one row per record), and whether its weight is stored as (d_in, d_out).
    """

    name: str
    bias: bool
    parameters: tuple[str, ...]
    d_in: int
    d_out: int
    positions: int | None = None
    transposed: bool = False

    @property
    def numbers(self) -> int:
        """Numbers that the factors of one record take."""
        return (self.positions or 1) * (self.d_in + self.d_out)


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

    A layer must run once, on inputs of one row or several per record, and its weight must be
    trainable and its own. Positions may be looked up once for all records.

    A table of no more rows than a record asks for is left out, and so is a linear layer with so
    many positions: their gradients are no larger than their factors.
    """
    runs: dict[nn.Module, list[Any]] = {}

    def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        runs.setdefault(module, []).append(args[0] if args else None)

    layers = {name: module for name, module in network.module.named_modules() if _is_linear(module) or type(module) is nn.Embedding}
    hooked(network, {module: note for module in layers.values()}, few.args, few.kwargs)
    shared = {name for group in shared_parameters(network.module) for name in group}
    found: list[Plain] = []
    for name, module in layers.items():
        weight, bias = (f"{name}.{kind}".removeprefix(".") for kind in ("weight", "bias"))
        covered = tuple(parameter for parameter in (weight, bias) if parameter in network.parameters)
        given = runs.get(module, [])
        once = len(given) == 1 and isinstance(given[0], Tensor) and given[0].ndim > 0
        if not once or weight not in covered or shared & set(covered):
            continue
        if isinstance(module, nn.Embedding):
            asked, together = given[0][0].numel(), len(given[0]) in (1, len(few.target))
            if together and not module.scale_grad_by_freq and asked < module.num_embeddings:
                found.append(PlainLookup(name, covered, module.num_embeddings, module.embedding_dim, module.padding_idx, asked))
        elif len(given[0]) == len(few.target) and given[0].ndim > 1:
            layer = _plain_linear(name, module, given[0], covered, bias in covered)
            if layer.positions is None or layer.numbers < layer.d_in * layer.d_out:
                found.append(layer)
    return tuple(found)


def _is_linear(module: nn.Module) -> bool:
    """Whether a module is a linear layer of torch, or the one of GPT-2 in transformers."""
    return type(module) is nn.Linear or _is_transposed(module)


def _is_transposed(module: nn.Module) -> bool:
    # By name: transformers is an optional extra. The factors are held against the full gradient.
    return type(module).__name__ == "Conv1D" and type(module).__module__.startswith("transformers.")


def _plain_linear(name: str, module: Any, given: Tensor, covered: tuple[str, ...], bias: bool) -> PlainLinear:
    transposed = _is_transposed(module)
    d_in, d_out = module.weight.shape if transposed else module.weight.shape[::-1]
    positions = None if given.ndim == 2 else given[0, ..., 0].numel()
    return PlainLinear(name, bias, covered, d_in, d_out, positions, transposed)


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
    shapes: dict[str, tuple[int, ...]] = {layer.name: (1, layer.d_out) for layer in plain if isinstance(layer, PlainLinear)}

    def noting(name: str) -> Callable[..., None]:
        def note(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            shapes[name] = tuple(output.shape)

        return note

    # How many positions a record has may differ from batch to batch.
    several = {modules[layer.name]: noting(layer.name) for layer in plain if isinstance(layer, PlainLookup) or layer.positions}
    if several:
        with torch.no_grad():
            hooked(network, several, args, kwargs)
    return {layer.name: torch.zeros(shapes[layer.name], dtype=torch.float64, device=network.device) for layer in plain}


def lookups(layer: PlainLookup, rows: Tensor, slopes: Tensor) -> Lookups:
    """The gradient of a lookup table in factors.

    It comes from the rows each record asked for (b, …) and the slopes of what it got (b, …, d).
    """
    numbers, flat = rows.reshape(len(rows), -1), slopes.reshape(len(rows), -1, layer.width)
    if layer.padding is not None:
        flat = flat * (numbers != layer.padding)[:, :, None]
    return Lookups(numbers.long(), flat, layer.size)


def factors(layer: PlainLinear, inputs: Tensor, slopes: Tensor) -> Factors:
    """The gradient of a linear layer in factors.

    It comes from what the layer was given (b, …, d_in) and the slopes of what it gave (b, …,
    d_out).
    """
    size = len(inputs)
    return Factors(inputs.reshape(size, -1, layer.d_in), slopes.reshape(size, -1, layer.d_out), layer.bias, layer.transposed)
