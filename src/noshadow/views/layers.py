"""Which parameters make up the layers of a module, by the order in which they run."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from noshadow.checks import refuse


@dataclass(frozen=True)
class Layer:
    """A module that ran, and the trainable parameters it answers for.

    The parameters go by their names in the whole model.
    """

    name: str
    kind: str
    parameters: tuple[str, ...]
    frozen: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"


def ran_layers(model: nn.Module, run: Callable[[], object]) -> tuple[Layer, ...]:
    """The layers of a model in the order in which they last started to run.

    A parameter belongs to the innermost module around it that ran: attention, say, answers for
    weights of submodules it never calls. A parameter used by several modules belongs to the one
    that ran last, and is counted once.
    """
    order: dict[nn.Module, None] = {}

    def started(module: nn.Module, _: object) -> None:
        order.pop(module, None)
        order[module] = None

    hooks = [module.register_forward_pre_hook(started) for module in model.modules()]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    place = {module: position for position, module in enumerate(order)}
    holders: dict[str, nn.Module] = {}
    first_name: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        holder = _innermost_that_ran(model, name, place)
        known = first_name.setdefault(id(parameter), name)
        if known not in holders or place.get(holder, -1) > place.get(holders[known], -1):
            holders[known] = holder
    names = {module: name or "model" for name, module in model.named_modules()}
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    found = []
    for module in order:
        own = [name for name, holder in holders.items() if holder is module]
        free, fixed = (tuple(n for n in own if (n in trainable) is wanted) for wanted in (True, False))
        if own:
            found.append(Layer(names[module], type(module).__name__, free, fixed))
    return tuple(found)


def _innermost_that_ran(model: nn.Module, parameter: str, place: dict[nn.Module, int]) -> nn.Module:
    path = parameter.split(".")[:-1]
    # What a layer's weight is computed from belongs to the layer.
    path = path[: path.index("parametrizations")] if "parametrizations" in path else path
    for depth in range(len(path), -1, -1):
        module = model.get_submodule(".".join(path[:depth]))
        if module in place:
            return module
    return model


def chosen_layers(
    model: nn.Module, ran: Sequence[Layer], layers: str | int, *, idle: Set[str]
) -> tuple[tuple[Layer, ...], tuple[str, ...]]:
    """Choose the last k layers that have trainable parameters, or all of them.

    The notes say what a reader must know about the rest.

    Args:
        ran: all layers in order. layers: "last", "all" or k ≥ 1.
        idle: names of parameters the output does not depend on; they make no layer.

    Raises:
        InputError: layers is none of these, k exceeds their number, or nothing is trainable.
    """
    reaching = [replace(layer, parameters=tuple(name for name in layer.parameters if name not in idle)) for layer in ran]
    usable = [layer for layer in reaching if layer.parameters]
    if not usable:
        refuse("model", "have trainable parameters in layers that run", "none", "Are all of them frozen (requires_grad=False)?")
    number = isinstance(layers, (int, np.integer)) and not isinstance(layers, bool)
    if not number and not (isinstance(layers, str) and layers in ("last", "all")):
        refuse("layers", "be 'last', 'all' or a whole number ≥ 1", repr(layers))
    count = {"last": 1, "all": len(usable)}[layers] if isinstance(layers, str) else int(layers)
    if not 1 <= count <= len(usable):
        named = ", ".join(map(str, usable[-12:]))
        refuse("layers", f"be from 1 to {len(usable)}, the number of layers with trainable parameters", count, f"They are: {named}.")
    frozen = sum(len(layer.frozen) for layer in ran)
    notes = []
    if frozen:
        notes.append(f"{frozen} frozen parameter tensors (requires_grad=False) are left out of the scores")
    shared = [" = ".join(group) for group in shared_parameters(model)]
    if shared:
        notes.append(f"parameters used in several places are counted once: {', '.join(shared)}")
    if idle:
        notes.append(f"{len(idle)} trainable parameter tensors do not reach the output and are left out of the scores")
    return tuple(usable[-count:]), tuple(notes)


def shared_parameters(model: nn.Module) -> list[list[str]]:
    """Names of parameters that are one and the same tensor, in groups."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]
