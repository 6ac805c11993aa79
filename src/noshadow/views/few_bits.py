"""Weights that a library keeps in few bits: whether a model has some, and how they are stored."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from noshadow.views.adapters import model_inside

NARROW = (torch.int8, torch.uint8)
_QUANTISED = "torch.ao.nn.quantized"  # layers that keep their weights packed, and name no parameter


def is_plain(tensor: Tensor) -> bool:
    """Whether a weight is numbers that can be compared: no codes, no form of a library."""
    return tensor.is_floating_point() and not _form(tensor)


def in_few_bits(model: nn.Module) -> bool:
    """Whether some of a model's weights are codes, or in a form of a library's own."""
    return has_packed_layers(model) or not all(is_plain(parameter) for parameter in model.parameters())


def storage_words(model: object) -> str:
    """How a model's weights are stored where they were rounded to few bits; "" elsewhere."""
    inside: Any = model_inside(model)
    config = getattr(inside.config, "quantization_config", None)
    if config is not None:
        plain = config if isinstance(config, Mapping) else config.to_dict()
        method = str(plain.get("quant_method") or "a quantization_config")
        bits = "8 bits" if plain.get("load_in_8bit") else "4 bits" if plain.get("load_in_4bit") else "few bits"
        return f"{bits} ({getattr(plain.get('quant_method'), 'value', method)})"
    if not isinstance(inside, nn.Module):
        return ""
    if has_packed_layers(inside):
        return "8 bits (and activations by a scale that tokens read together share)"
    if any(parameter.dtype in NARROW for parameter in inside.parameters()):
        return "8 bits"
    return next((f"few bits ({form})" for form in map(_form, inside.parameters()) if form), "")


def has_packed_layers(model: nn.Module) -> bool:
    """Whether layers of torch.ao keep packed weights, and round activations while they run."""
    return any(type(module).__module__.startswith(_QUANTISED) for module in model.modules())


def _form(tensor: Tensor) -> str:
    """The name of a library's own kind of tensor; "" for those of torch."""
    kind = type(tensor)
    return "" if kind.__module__.split(".")[0] == "torch" else kind.__name__
