"""A fine-tuned model at weights between its base's and its own, without touching either."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from noshadow.checks import NotApplicable
from noshadow.views.adapters import adapters_of, model_inside

LORA_A, LORA_B = ".lora_A.", ".lora_B."
MOST_NAMED = 3


class ModelBetween:
    """A model that is called as itself, and answers at other weights.

    Attributes:
        weights: name → tensor that the gradient is taken of.
    """

    def __init__(self, inside: nn.Module, weights: Mapping[str, Tensor]) -> None:
        self.inside, self.weights = inside, dict(weights)
        # Readers look at the arguments of a model's forward before they call it.
        self.forward = inside.forward

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
            adapters of another kind than LoRA, or no difference.
    """
    inside: Any = model_inside(model)
    named = dict(inside.named_parameters())
    held = adapters_of(model)
    active = () if held is None else held.active
    found = _between_adapters(named, active, share) if active else _between(named, base, share)
    if not found:
        raise NotApplicable("no parameter of the model differs from its base's")
    return ModelBetween(inside, {name: tensor.detach().requires_grad_(True) for name, tensor in found.items()})


def _between_adapters(named: Mapping[str, Tensor], active: tuple[str, ...], share: float) -> dict[str, Tensor]:
    ends = [f".{name}.{part}" for name in active for part in ("weight", "bias")]
    trained = {name: tensor for name, tensor in named.items() if any(name.endswith(end) for end in ends)}
    others = [name for name in trained if LORA_A not in name and LORA_B not in name]
    if others or not trained:
        got = others[0] if others else "no factors of LoRA among its parameters"
        raise NotApplicable(f"only what LoRA changed in linear layers can be scaled between base and model; here is {got}")
    return {name: tensor * share if LORA_B in name else tensor.clone() for name, tensor in trained.items()}


def _between(named: Mapping[str, Tensor], base: object | None, share: float) -> dict[str, Tensor]:
    below: Any = model_inside(base) if base is not None else None
    if not isinstance(below, nn.Module):
        raise NotApplicable("no base with weights of its own was given")
    origin = dict(below.named_parameters())
    odd = sorted(name for name in named.keys() | origin.keys() if name not in named or name not in origin)
    odd += sorted(name for name in named.keys() & origin.keys() if named[name].shape != origin[name].shape)
    if odd:
        raise NotApplicable(f"model and base have other weights ({', '.join(odd[:MOST_NAMED])}), and there is nothing between them")
    if not all(tensor.is_floating_point() for tensor in (*named.values(), *origin.values())):
        raise NotApplicable("weights are stored in few bits, and there is nothing between base and model")
    found = {}
    for name, tensor in named.items():
        start = origin[name].detach().to(tensor.device, tensor.dtype)
        if not torch.equal(start, tensor.detach()):
            found[name] = torch.lerp(start, tensor.detach(), share)
    return found
