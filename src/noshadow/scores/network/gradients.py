"""Gradients of each record's outputs, one vmapped pass of torch.func over a batch of records.

A plain layer (`factored_layers`) is not differentiated at all: the factors of its gradient are kept
instead. They are read off by adding zeros to the layer's output and differentiating in those.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vjp, vmap
from torch.utils._pytree import tree_map

from noshadow.checks import InputError, advice, said
from noshadow.scores.network.factored_layers import (
    Factors,
    Lookups,
    Plain,
    PlainLinear,
    PlainLookup,
    RecordGradients,
    candidates,
    factors,
    lookups,
    probe_zeros,
)
from noshadow.views.loading import Batch
from noshadow.views.network import Network, naming_the_module

# Records on which the factored gradients of plain layers are compared with the full ones.
COMPARED = 3
AGREE = 1e-9


Differentiated = Callable[[Batch, Tensor], list[RecordGradients]]


@contextmanager
def record_differentiation(network: Network, probe: Batch) -> Iterator[tuple[Differentiated, tuple[Plain, ...]]]:
    """Return a function that differentiates records, and the layers it takes in factors.

    The function maps (batch, cotangents (b, c, m)) to c RecordGradients of Σ_k
    cotangent_k·output_k.

    Which layers are plain is tried on a few records, not guessed: a layer whose factors do not give
    the full gradient is differentiated in full. So is it tried that records do not depend on each
    other, unless they go through one by one.

    Args:
        network: the chosen layers. probe: some records.

    Raises:
        InputError: torch.func cannot run the model (the module is named), or a record's output
            depends on the others'.
    """
    few = first_records(probe, COMPARED, network)
    # Record by record a layer may run a different number of times for each, so none is taken in
    # factors there.
    tried = candidates(network, few) if network.unvectorised == "refuse" else ()
    differentiate = _function(network, tried)
    with torch.random.fork_rng(devices=[]), naming_the_module(network):
        if network.unvectorised == "refuse":
            require_independent(network, few)
        plain = _confirmed(network, few, tried, differentiate)
    final = differentiate if plain == tried else _function(network, plain)

    def named(batch: Batch, cotangents: Tensor) -> list[RecordGradients]:
        with naming_the_module(network):
            return final(batch, cotangents)

    yield named, plain


def first_records(batch: Batch, count: int, network: Network) -> Batch:
    """The first records of a batch, on the network's device and in its precision."""
    args, kwargs = network.inputs(batch)
    size = len(batch.target)

    def cut(value: Any) -> Any:
        return value[:count] if isinstance(value, Tensor) and value.ndim and len(value) == size else value

    return Batch(tree_map(cut, args), tree_map(cut, kwargs), batch.target[:count])


def _function(network: Network, plain: tuple[Plain, ...]) -> Differentiated:
    modules = dict(network.module.named_modules())
    covered = {name for layer in plain for name in layer.parameters}
    held = {name: tensor for name, tensor in network.parameters.items() if name in covered}
    free = {name: tensor for name, tensor in network.parameters.items() if name not in covered}

    def value(free: dict[str, Tensor], probes: dict[str, Tensor], args: Any, kwargs: Any) -> Any:
        inputs: dict[str, Tensor] = {}
        hooks = [modules[layer.name].register_forward_hook(_probing(layer.name, probes, inputs)) for layer in plain]
        try:
            output = network.outputs(held | free, args, kwargs)
        finally:
            for hook in hooks:
                hook.remove()
        return output[0], inputs

    def slopes(zeros: dict[str, Tensor], args: Any, kwargs: Any, cotangents: Tensor) -> Any:
        def pulled(unused: Tensor) -> Any:
            # One forward pass for all cotangents: with few layers at the end of a deep network it
            # is nearly all the work.
            _, pull, inputs = vjp(lambda free, probes: value(free, probes, args, kwargs), free, zeros, has_aux=True)  # type: ignore[misc]
            return unused, ([pull(cotangent) for cotangent in cotangents], inputs)

        # The pulls run inside a differentiation: outside of one, parts of derivatives (weight
        # norm's) have no batching rule in torch.
        *_, found = vjp(pulled, cotangents.new_zeros(()), has_aux=True)
        return found

    def differentiate(batch: Batch, cotangents: Tensor) -> list[RecordGradients]:
        args, kwargs = network.inputs(batch)
        if network.unvectorised == "loop":
            return _one_by_one(network, args, kwargs, cotangents)
        zeros = probe_zeros(network, plain, *_record((args, kwargs), 0, len(cotangents)))
        pulled, inputs = _vectorised(partial(slopes, zeros), (args, kwargs, cotangents))
        return [_gathered(plain, inputs, probes, full) for full, probes in pulled]

    return differentiate


def _gathered(plain: tuple[Plain, ...], inputs: dict[str, Tensor], slopes: dict[str, Tensor], full: dict[str, Tensor]) -> RecordGradients:
    linears = [layer for layer in plain if isinstance(layer, PlainLinear)]
    tables = [layer for layer in plain if isinstance(layer, PlainLookup)]
    return RecordGradients(
        {layer.name: factors(layer, inputs[layer.name][:, 0], slopes[layer.name][:, 0]) for layer in linears},
        {layer.name: lookups(layer, inputs[layer.name][:, 0], slopes[layer.name][:, 0]) for layer in tables},
        full,
    )


def _probing(name: str, probes: dict[str, Tensor], inputs: dict[str, Tensor]) -> Callable[..., Tensor]:
    def hook(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if name in inputs or len(args[0]) != 1:
            raise InputError(
                said(
                    f"model must run a layer equally often for all records; got layer '{name}' with {len(args[0])} rows for one "
                    f"record and once for others. Pass {advice('unvectorised', 'loop')} to go record by record."
                )
            )
        inputs[name] = args[0]
        return output + probes[name]

    return hook


def _vectorised(slopes: Callable[..., Any], rows: tuple[Any, ...]) -> Any:
    """All records at once; each sees itself as a batch of one."""
    args, kwargs, cotangents = rows
    size = len(cotangents)
    places = tree_map(lambda value: 0 if _has_rows(value, size) else None, (args, kwargs))

    def one(args: Any, kwargs: Any, cotangents: Tensor) -> Any:
        args, kwargs = tree_map(lambda value, place: value if place is None else value[None], (args, kwargs), places)
        return slopes(args, kwargs, cotangents)

    return vmap(one, in_dims=(*places, 0), randomness="same")(args, kwargs, cotangents)


def _one_by_one(network: Network, args: Any, kwargs: Any, cotangents: Tensor) -> list[RecordGradients]:
    """Differentiate one record after the other by plain autograd, which runs whatever trains."""
    size, names = len(cotangents), list(network.parameters)
    found: list[list[list[Tensor]]] = [[] for _ in range(cotangents.shape[1])]
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in network.parameters.items()}
        values = list(leaves.values())
        for i in range(size):
            output = network.outputs(leaves, *_record((args, kwargs), i, size))[0]
            for column, cotangent in zip(found, cotangents[i], strict=True):
                slopes = torch.autograd.grad(output, values, cotangent, retain_graph=True, allow_unused=True)
                column.append([torch.zeros_like(value) if slope is None else slope for value, slope in zip(values, slopes, strict=True)])
    return [RecordGradients({}, {}, dict(zip(names, map(torch.stack, zip(*column, strict=True)), strict=True))) for column in found]


def _record(inputs: Any, i: int, size: int) -> Any:
    """The inputs of one record as a batch of one."""
    return tree_map(lambda value: value[i : i + 1] if _has_rows(value, size) else value, inputs)


def _has_rows(value: Any, size: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == size


def require_independent(network: Network, few: Batch) -> None:
    """Refuse a model whose output for a record depends on the others in its batch."""
    args, kwargs = few.args, few.kwargs
    together = network.outputs(network.parameters, args, kwargs)
    size = len(few.target)
    for i in range(size):
        alone = network.outputs(network.parameters, *_record((args, kwargs), i, size))[0]
        if not torch.allclose(alone, together[i], rtol=1e-6, atol=1e-6 * float(together.abs().max())):
            raise InputError(
                said(
                    f"model must give a record the same output in any batch; got outputs of record {i} that differ by "
                    f"{float((alone - together[i]).abs().max()):.2g} alone and among {size}. Does it use batch statistics in eval mode?"
                )
            )


def _confirmed(network: Network, few: Batch, tried: tuple[Plain, ...], differentiate: Differentiated) -> tuple[Plain, ...]:
    """The layers whose factors give the gradient that torch.func gives."""
    if not tried:
        return ()
    outputs = network.outputs(network.parameters, few.args, few.kwargs)
    cotangents = torch.linspace(0.5, 1.5, outputs.shape[1], dtype=torch.float64, device=network.device).expand_as(outputs)[:, None]
    (factored,) = differentiate(few, cotangents)
    (full,) = (own.full for own in _function(network, ())(few, cotangents))
    parts: dict[str, Factors | Lookups] = {**factored.factors, **factored.lookups}
    kept = []
    for layer in tried:
        expected = [full[name] for name in layer.parameters]
        # Gradients that vanish on these records prove nothing.
        if bool(expected[0].any()) and all(
            torch.allclose(a, b, rtol=AGREE, atol=AGREE * float(b.abs().max()))
            for a, b in zip(parts[layer.name].whole(), expected, strict=True)
        ):
            kept.append(layer)
    return tuple(kept)
