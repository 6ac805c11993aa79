"""Turn a trained module into a function of the parameters of some of its layers.

Derivatives are taken of this function.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from noshadow.arguments import BATCH_SIZE
from noshadow.checks import InputError, advice, refuse, require_choice, said, users_code
from noshadow.outcomes import Note
from noshadow.views.chosen_output import part_at
from noshadow.views.forward import disagreement, forward_pass, head_agreement
from noshadow.views.head import Head, Source, called, found_source
from noshadow.views.layers import Layer, chosen_layers, ran_layers
from noshadow.views.loading import Batch, Records, moved, records_of
from noshadow.views.read_once import read_once
from noshadow.views.torch import PROBE_RECORDS, present
from noshadow.views.undisturbed import seed_everything, undisturbed
from noshadow.views.vectorisable import make_vectorisable
from noshadow.views.view import Settings
from noshadow.views.whole_masks import whole_masks

UNVECTORISED = ("refuse", "loop")


@dataclass(frozen=True, eq=False)
class Network:
    """A module in eval mode, its chosen parameters apart from all else, in float64.

    Attributes:
        module: a copy of the user's; parameters are swapped in for each call.
        layers: the chosen layers, in the order in which they last started to run.
        parameters: name → float64 tensor of every chosen parameter.
        constants: name → float64 tensor of the other parameters and of floating buffers.
        source: where the outputs are: of the Linear whose output is taken, or without one the
            model's own.
        device: where it runs.
        unvectorised: "refuse", or "loop" to go record by record where torch.func cannot.
        notes: what was left out, and why.
    """

    module: nn.Module
    layers: tuple[Layer, ...]
    parameters: dict[str, Tensor]
    constants: dict[str, Tensor]
    source: Source
    device: torch.device
    unvectorised: str
    notes: tuple[str, ...]

    @property
    def head(self) -> Head | None:
        """The Linear whose output is taken, None when the model's own output is."""
        return self.source.head

    @property
    def size(self) -> int:
        """Number of chosen parameters, p."""
        return sum(tensor.numel() for tensor in self.parameters.values())

    def inputs(self, batch: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a batch on the network's device, floating ones in float64."""
        return moved(batch.args, self.device, torch.float64), moved(dict(batch.kwargs), self.device, torch.float64)

    def outputs(self, parameters: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
        """Compute raw outputs (b, m) under the given values of the chosen parameters.

        The outputs are differentiable in these values.
        """
        kept: list[Tensor] = []
        # Of a pooled head the model's own output counts: pooling is what makes one row per record.
        alone = self.head is not None and not self.head.pooled

        def keep(_: object, __: object, output: Tensor) -> None:
            kept[:] = [output.clone()]  # an operation in place on it must not reach us

        hook = self.head.layer.register_forward_hook(keep) if self.head is not None and alone else None
        try:
            whole = functional_call(self.module, self.constants | dict(parameters), args, dict(kwargs))
        finally:
            if hook is not None:
                hook.remove()
        found = kept[0] if alone else part_at(whole, self.source.path or ())
        if found is None or found.ndim not in (1, 2):
            shape = "no tensor" if found is None else f"outputs of shape {tuple(found.shape)}"
            refuse("model", "give one row of outputs per record", shape, "Pool token-level outputs to one row per record.")
        return found[:, None] if found.ndim == 1 else found


@contextmanager
def network_view(
    model: object,
    data: object,
    *,
    layers: str | int,
    layer: str = "auto",
    output: str | int = "auto",
    unvectorised: str = "refuse",
    batch_size: int = BATCH_SIZE,
    device: object = None,
    seed: int = 0,
) -> Iterator[tuple[Network, Records]]:
    """Build a network over the chosen layers, and read the records the model was trained on.

    The network works on a copy, so the caller's module is left alone.

    Args:
        model: an nn.Module. data: (X, y), a map-style Dataset or a DataLoader (its order is fixed
            by us).
        layers: "last", "all" or the number k of last parameterised layers, by the order in which
            they run.
        layer: name of the nn.Linear whose output counts, "auto" for the model's own.
        output: of a model that returns several tensors, the name or position of its output, or
            "auto".
        batch_size: records in the forward pass that compares the model's outputs with its head's.
        unvectorised: "refuse", or "loop" to differentiate record by record where torch.func cannot
            go over many at once.
        device: where to run. seed: repeats random transforms of the data.

    Raises:
        InputError: no such layers, nothing trainable in them, or a model that cannot be read.
    """
    require_choice(unvectorised, UNVECTORISED, "unvectorised")
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        refuse("model", "be a plain nn.Module", type(model).__name__, "Other models have record_scores of their last layer.")
    settings = Settings(layer=layer, output=output, batch_size=batch_size, device=device, progress=False, seed=seed)
    records = _repeated(read_once(present(records_of(data, "train", seed=seed), "train")), seed)
    with ExitStack() as stack:
        # A forward pass may leave things behind (caches, weight_norm's weight, counters): not in
        # the user's own module.
        with users_code("model must be copyable by copy.deepcopy"):
            model = copy.deepcopy(model)
        _with_dense_gradients(model)
        if unvectorised == "refuse":
            make_vectorisable(model)
        where = stack.enter_context(undisturbed(model, settings))
        stack.enter_context(_plain_attention())
        stack.enter_context(whole_masks())
        probe = next(iter(records.batches(PROBE_RECORDS)))
        source, changed = _agreed(model, found_source(model, probe, where, settings, headless="take"), records, where, settings)
        ran = ran_layers(model, partial(_run, model, probe, where))
        double = {name: _doubled(tensor) for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        trainable = {name: double[name] for name, parameter in model.named_parameters() if parameter.requires_grad}
        rest = {name: value for name, value in double.items() if name not in trainable}
        whole = Network(model, ran, trainable, rest, source, where, unvectorised, ())
        picked, notes = chosen_layers(model, ran, layers, idle=_idle_parameters(whole, probe))
        names = {name for item in picked for name in item.parameters}
        yield (
            replace(
                whole,
                layers=picked,
                parameters={name: value for name, value in double.items() if name in names},
                constants={name: value for name, value in double.items() if name not in names},
                notes=(*(source.head.notes if source.head else ()), *changed, *records.notes, *notes),
            ),
            records,
        )


def _agreed(model: nn.Module, source: Source, records: Records, device: torch.device, settings: Settings) -> tuple[Source, tuple[str, ...]]:
    """Return the source, without its head when the model says something else of a record.

    Without a head, the model's own output is differentiated.
    """
    if source.head is None or source.head.asked:
        return source, ()
    found = forward_pass(model, source, records, device, settings, "train", features=False)
    differs = disagreement(source.head, head_agreement(source, {"train": found}))
    if differs is None:
        return source, ()
    return replace(source, head=None), (Note(f"The model's own output is scored: {differs}.", "NS043"),)


def require_agreement(network: Network, records: Records) -> None:
    """Refuse records whose outputs are not those of the head that was scored."""
    head = network.head
    if head is None or head.asked:
        return
    settings = Settings(device=network.device, progress=False)
    found = forward_pass(network.module, network.source, records, network.device, settings, "points", features=False)
    differs = disagreement(head, head_agreement(network.source, {"points": found}))
    if differs is not None:
        hint = f"Pass layer={head.name!r} to score the output of that layer."
        refuse("points", "get the output of the model's head, as the training records do", f"others: {differs}", hint)


def _with_dense_gradients(model: nn.Module) -> None:
    """Make embedding tables give dense gradients.

    The sparse gradient is the same gradient in a form that torch.func does not know.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False


def _idle_parameters(network: Network, probe: Batch) -> set[str]:
    """Find the trainable parameters that the outputs do not depend on.

    They belong to other heads, or to layers that never run.
    """
    leaves = {name: value.clone().requires_grad_() for name, value in network.parameters.items()}
    args, kwargs = network.inputs(probe)
    with torch.enable_grad(), naming_the_module(network):
        outputs = network.outputs(leaves, args, kwargs)
        if not leaves or not outputs.requires_grad:
            return set(leaves)
        slopes = torch.autograd.grad(outputs.sum(), list(leaves.values()), allow_unused=True)
    return {name for name, slope in zip(leaves, slopes, strict=True) if slope is None}


def _repeated(records: Records, seed: int) -> Records:
    """Make the random transforms of the records the same on every walk.

    Outputs and gradients must be of the same inputs.
    """

    def batches(size: int) -> Iterator[Batch]:
        seed_everything(seed)
        yield from records.batches(size)

    return replace(records, batches=batches)


def _run(model: nn.Module, probe: Batch, device: torch.device) -> None:
    called(model, probe, device)


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.detach().double().clone() if tensor.is_floating_point() else tensor.detach().clone()


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Compute attention from its parts.

    The fused paths run no submodule, or have no rule for many records at once.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def naming_the_module(network: Network) -> Iterator[None]:
    """Turn an error of torch.func inside a module into one sentence that names the module."""
    names = {module: name or "model" for name, module in network.module.named_modules()}
    running: list[nn.Module] = []
    hooks = [module.register_forward_pre_hook(lambda m, _: running.append(m)) for module in names]
    # Only a forward pass that ends well is taken off: after an error the innermost module is still
    # there.
    hooks += [module.register_forward_hook(lambda _, __, ___: _taken_off(running)) for module in names]
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        inside = f"in {type(running[-1]).__name__} '{names[running[-1]]}'" if running else "in taking its derivatives"
        reason = (str(error).strip() or "no message").splitlines()[0].rstrip(".")
        raise InputError(
            said(
                f"model must run under torch.func, one record at a time (no choices by the data, no work in place on "
                f"inputs); got {type(error).__name__} {inside} ({reason}). Change that module, or pass "
                f"{advice('unvectorised', 'loop')} to go record by record."
            )
        ) from error
    finally:
        for hook in hooks:
            hook.remove()


def _taken_off(running: list[nn.Module]) -> None:
    running.pop()
