"""A fine-tuned model at weights between its base's and its own, without touching either."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from noshadow.checks import NotApplicable
from noshadow.views.adapters import Adapters, adapters_of, model_inside
from noshadow.views.few_bits import in_few_bits, is_plain, storage_words

LORA_A, LORA_B = ".lora_A.", ".lora_B."
BELOW = (".base_layer.", ".original_module.")  # what peft puts into the names of layers that got adapters
MOST_NAMED = 3
Change = Callable[[Tensor], Tensor]


class ModelBetween:
    """A model that is called as itself, and answers at other weights.

    Attributes:
        size: how many numbers the gradient is taken of.
    """

    def __init__(self, inside: nn.Module, changes: Mapping[str, Change]) -> None:
        self.inside, self._changes = inside, dict(changes)
        # Readers look at the arguments of a model's forward before they call it.
        self.forward = inside.forward
        self.size = sum(tensor.numel() for name, tensor in inside.named_parameters() if name in self._changes)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """Name → tensor that the gradient is taken of.

        They take memory, and are made when they are first asked for, on the device of the model
        then.
        """
        own = dict(self.inside.named_parameters())
        return {name: change(own[name].detach()).requires_grad_(True) for name, change in self._changes.items()}

    def __call__(self, **given: Any) -> Any:
        """What the model answers at these weights."""
        return functional_call(self.inside, self.weights, (), given)


def model_between(model: object, base: object | None, share: float) -> ModelBetween:
    """The audited model at base + share · (model − base), with a gradient for what differs.

    Of LoRA's adapters BA the second factor B is scaled, so that the change of every layer is; the
    gradient is that of both factors. Elsewhere it is that of every parameter in which model and
    base differ.

    Args:
        model: a language model, with adapters or without. base: its base; None where its adapters
            are what was trained. share: in (0, 1].

    Raises:
        NotApplicable: there is nothing between the two: other names or shapes, weights in few bits,
            adapters of another kind than LoRA or on another model than the base, or no difference.
    """
    inside: Any = model_inside(model)
    named = dict(inside.named_parameters())
    held = adapters_of(model)
    found = _between_adapters(named, held, base, share) if held is not None and held.active else _between(inside, base, share)
    if not found:
        raise NotApplicable("no parameter of the model differs from its base's")
    return ModelBetween(inside, found)


def _between_adapters(named: Mapping[str, Tensor], held: Adapters, base: object | None, share: float) -> dict[str, Change]:
    trained = [name for name in named if not set(held.active).isdisjoint(name.split("."))]
    others = [name for name in trained if LORA_A not in name and LORA_B not in name]
    if others or not trained:
        got = others[0] if others else "no factors of LoRA among its parameters"
        raise NotApplicable(f"only what LoRA changed in linear layers can be scaled between base and model; here is {got}")
    if held.lost:
        raise NotApplicable(f"{held.lost}, so that scaling them leads to no base")
    below: Any = None if base is None else model_inside(base)
    if isinstance(below, nn.Module):
        _require_below(named, held, below)

    def scaled(tensor: Tensor) -> Tensor:
        return tensor * share

    return {name: scaled if LORA_B in name else torch.clone for name in trained}


def _require_below(named: Mapping[str, Tensor], held: Adapters, base: nn.Module) -> None:
    """Refuse a base that is not the model that the adapters were put on."""
    origin = {_name_below(name): tensor.detach() for name, tensor in base.named_parameters()}
    own = {_name_below(name): tensor.detach() for name, tensor in named.items() if set(held.names).isdisjoint(name.split("."))}
    # What was rounded to few bits has another form there, and cannot be compared.
    plain = {name: tensor for name, tensor in own.items() if is_plain(tensor)}
    apart = [name for name, tensor in plain.items() if name not in origin or not torch.equal(_beside(origin[name], tensor), tensor)]
    if apart:
        why = f"the base has other weights than the model below the adapters ({', '.join(apart[:MOST_NAMED])})"
        raise NotApplicable(f"{why}, and only what the adapters changed can be scaled")


def _between(inside: nn.Module, base: object | None, share: float) -> dict[str, Change]:
    below: Any = model_inside(base) if base is not None else None
    if not isinstance(below, nn.Module):
        raise NotApplicable("no base with weights of its own was given")
    if in_few_bits(inside) or in_few_bits(below):
        stored = storage_words(inside) or storage_words(below) or "few bits"
        raise NotApplicable(f"weights are stored in {stored}, and there is nothing between base and model")
    named, origin = dict(inside.named_parameters()), dict(below.named_parameters())
    odd = sorted(name for name in named.keys() | origin.keys() if name not in named or name not in origin)
    odd += sorted(name for name in named.keys() & origin.keys() if named[name].shape != origin[name].shape)
    if odd:
        raise NotApplicable(f"model and base have other weights ({', '.join(odd[:MOST_NAMED])}), and there is nothing between them")

    def moved(start: Tensor) -> Change:
        return lambda tensor: torch.lerp(_beside(start, tensor), tensor, share)

    differ = (name for name, tensor in named.items() if not torch.equal(_beside(origin[name], tensor), tensor.detach()))
    return {name: moved(origin[name]) for name in differ}


def _name_below(name: str) -> str:
    for part in BELOW:
        name = name.replace(part, ".")
    return name


def _beside(start: Tensor, tensor: Tensor) -> Tensor:
    """A weight of the base where the model's is, and in its digits."""
    return start.detach().to(tensor.device, tensor.dtype)
