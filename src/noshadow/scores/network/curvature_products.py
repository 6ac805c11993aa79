"""Products with the summed curvature of a network's loss, many vectors in one pass over the data.

One scale: curvature of Σ_j ℓ_j for cross-entropy and of half of it for the squared loss, so that
Gauss–Newton is Σ_j J_jᵀW_jJ_j and JᵀJ. Vectors are rows (c, p) over the chosen parameters, in the
order of `Network.parameters`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.func import vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from noshadow.blocks import block_tensor
from noshadow.checks import NumericalError, said
from noshadow.scores.baselines import block_residuals
from noshadow.scores.network.problem import NetworkProblem
from noshadow.views.loading import Batch, Records, moved
from noshadow.views.network import Network, naming_the_module
from noshadow.views.undisturbed import seed_everything
from noshadow.views.walk import walked

CURVATURES = ("gauss_newton", "hessian")
PRECISIONS = {"float64": torch.float64, "float32": torch.float32}
# Copies of what a backward pass keeps that one vector needs: tangents forward, cotangents back, and
# room to work.
COPIES = 4
# Bytes of activations beyond which more vectors at once only cost time (measured on convolutions,
# half to twice that is as good).
CACHED = 1e8

Tree = dict[str, Tensor]
Product = Callable[[Tensor], Tensor]


def curvature_product(
    network: Network,
    records: Records,
    problem: NetworkProblem,
    *,
    curvature: str,
    precision: str = "float64",
    memory: float,
    seed: int,
    progress: bool,
) -> Product:
    """The map V (c, p) → V·C with C the undamped curvature summed over the records.

    Rows of zeros cost nothing.

    "gauss_newton": C = Σ_j J_jᵀW_jJ_j, by v ↦ Jv and u ↦ Jᵀu. "hessian": the second derivative
    itself, by the derivative of the gradient.

    Args:
        precision: "float64", or "float32" for faster and rougher derivatives, summed in float64.
        memory: bytes that activations may take; more vectors than fit go over a batch in turns.
        seed: repeats random transforms of the data in every pass. progress: a bar for each pass.

    Raises:
        NumericalError: (from the map) derivatives are not finite.

    Cost: about two backward passes over the records per vector.
    """
    dtype = PRECISIONS[precision]
    working = replace(network, parameters=_cast(network.parameters, dtype), constants=_cast(network.constants, dtype))
    itemsize = torch.finfo(dtype).bits // 8
    at_once = max(int(min(memory, CACHED) / (COPIES * itemsize * problem.batch_size * _kept_per_record(network, records))), 1)

    def product(vectors: Tensor) -> Tensor:
        live = (vectors != 0).any(1)
        if not bool(live.all()):
            full = torch.zeros_like(vectors)
            if bool(live.any()):
                full[live] = product(vectors[live])
            return full
        total = torch.zeros_like(vectors)
        how: dict[str, Any] = {"description": f"Products of {len(vectors)} vectors", "progress": progress}
        seed_everything(seed)
        for step in walked(records, problem.batch_size, argument="train", **how):
            targets = block_tensor(problem.targets, step.start, step.stop)
            with _differentiating(network):
                along = _batch_product(working, step.inputs, targets, problem.task, curvature)
                for low in range(0, len(vectors), at_once):
                    chunk = unflattened(network, vectors[low : low + at_once].to(dtype))
                    total[low : low + at_once] += flattened(network, over_columns(network, along, chunk))
        if not bool(total.isfinite().all()):
            raise NumericalError(said("derivatives of the model are not finite at records of train. Check the model there."))
        return total

    return product


def _batch_product(network: Network, batch: Batch, targets: Tensor, task: str, curvature: str) -> Callable[[Tree], Tree]:
    dtype = next(iter(network.parameters.values())).dtype
    args, kwargs, targets = (moved(part, network.device, dtype) for part in (batch.args, dict(batch.kwargs), targets))

    def outputs(parameters: Tree) -> Tensor:
        return network.outputs(parameters, args, kwargs)

    def gradient(parameters: Tree) -> Any:
        values, pullback = vjp(outputs, parameters)[:2]
        slopes = block_residuals(values, targets, task)
        # 𝓗 of a regression is half the curvature of the squared loss.
        return pullback(slopes / 2 if task == "regression" else slopes)[0]

    if curvature == "hessian":
        hessian = vjp(gradient, network.parameters)[1]
        return lambda direction: hessian(direction)[0]
    trained, pullback, pushforward = _linearised(outputs, network.parameters)
    return lambda direction: pullback(output_curvature(trained, pushforward(direction), task))


def _linearised(function: Callable[[Tree], Tensor], parameters: Tree) -> tuple[Tensor, Callable[[Tensor], Tree], Callable[[Tree], Tensor]]:
    """The function's value, u ↦ Jᵀu and v ↦ Jv, all by backward derivatives.

    More modules have two backward derivatives than one forward derivative.
    """
    value, transposed = vjp(function, parameters)[:2]
    twice = vjp(transposed, torch.ones_like(value))[1]  # linear in u: any u will do
    return value, lambda cotangent: transposed(cotangent)[0], lambda direction: twice((direction,))[0]


def output_curvature(outputs: Tensor, vectors: Tensor, task: str) -> Tensor:
    """W_j v for each row.

    This is (diag p − ppᵀ)v for a softmax, p(1 − p)v for one logit, and v itself (½ of 2v) for the
    squared loss.
    """
    if task == "regression":
        return vectors
    if task == "binary":
        return torch.sigmoid(outputs) * torch.sigmoid(-outputs) * vectors
    probabilities = torch.softmax(outputs, -1)
    return probabilities * (vectors - (probabilities * vectors).sum(-1, keepdim=True))


def pulled_back(network: Network, point: Batch, cotangents: Tensor) -> Tensor:
    """Jᵀu of one record for each row u of (c, m), as rows (c, p)."""
    with _differentiating(network):
        _, pullback, _ = _linearised(_one_record(network, point), network.parameters)
        return flattened(network, over_columns(network, pullback, cotangents))


def pushed_forward(network: Network, point: Batch, vectors: Tensor) -> Tensor:
    """Jz of one record for each row z of (c, p), as rows (c, m)."""
    with _differentiating(network):
        _, _, pushforward = _linearised(_one_record(network, point), network.parameters)
        rows: Tensor = over_columns(network, pushforward, unflattened(network, vectors))
    return rows


def _one_record(network: Network, point: Batch) -> Callable[[Tree], Tensor]:
    args, kwargs = network.inputs(point)
    return lambda parameters: network.outputs(parameters, args, kwargs)[0]


def over_columns(network: Network, function: Callable[[Any], Any], columns: Any) -> Any:
    """Apply the function to each column.

    All columns go at once, or one after the other where the network is not to be vectorised.
    """
    if network.unvectorised == "refuse":
        return vmap(function, randomness="same")(columns)
    count = len(columns if isinstance(columns, Tensor) else next(iter(columns.values())))
    found = [function(tree_map(lambda tensor, c=c: tensor[c], columns)) for c in range(count)]
    return tree_map(lambda *parts: torch.stack(parts), *found)


def flattened(network: Network, trees: Tree) -> Tensor:
    """Rows (c, p) in float64 from a (c, …) tensor for each parameter."""
    return torch.cat([trees[name].reshape(len(trees[name]), -1).double() for name in network.parameters], 1)


def unflattened(network: Network, vectors: Tensor) -> Tree:
    """A (c, …) tensor for each parameter from rows (c, p)."""
    parts = torch.split(vectors, [tensor.numel() for tensor in network.parameters.values()], 1)
    return {name: part.reshape(len(vectors), *tensor.shape) for (name, tensor), part in zip(network.parameters.items(), parts, strict=True)}


def _cast(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> Tree:
    return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


@contextmanager
def _differentiating(network: Network) -> Iterator[None]:
    # Fused attention has one derivative, and two are taken.
    with naming_the_module(network), sdpa_kernel(SDPBackend.MATH):
        yield


def _kept_per_record(network: Network, records: Records) -> int:
    """Numbers that a backward pass through the chosen layers keeps of one more record."""
    counts = []
    for size in (1, 2):
        batch = next(iter(records.batches(size)))
        kept: list[int] = []

        def keep(tensor: Tensor, kept: list[int] = kept) -> Tensor:
            kept.append(tensor.numel())
            return tensor

        leaves = {name: tensor.clone().requires_grad_() for name, tensor in network.parameters.items()}
        with naming_the_module(network), torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
            network.outputs(leaves, *network.inputs(batch))
        counts.append(sum(kept))
    return max(counts[1] - counts[0], 1)
