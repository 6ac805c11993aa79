"""Layers whose own code torch.func cannot run for many records at once, changed so that it can.

Recurrent layers make the zeros they start from for one record and then add to them in place; bags
of embeddings have no rule for many records. Both give the same outputs afterwards.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


def make_vectorisable(model: nn.Module) -> None:
    """Change a copy of a model in place; parameters, names and outputs stay."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.register_forward_pre_hook(_with_states, with_kwargs=True)
        if type(module) is nn.EmbeddingBag:
            module.forward = partial(_bag, module, module.forward)  # type: ignore[method-assign]


def _with_states(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Zeros as states where none are given, made of the input so that every record has its own."""
    given = args[0] if args else kwargs.get("input")
    states = args[1] if len(args) > 1 else kwargs.get("hx")
    if states is not None or not isinstance(given, Tensor):
        return None
    batch = (given.shape[0 if layer.batch_first else 1],) if given.ndim == 3 else ()
    deep = layer.num_layers * (2 if layer.bidirectional else 1)
    zeros = tuple(given.new_zeros((deep, *batch, width)) for width in (layer.proj_size or layer.hidden_size, layer.hidden_size))
    return (given, zeros if isinstance(layer, nn.LSTM) else zeros[0]), {}


def _bag(
    layer: nn.EmbeddingBag, own: Any, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
) -> Tensor:
    """A bag of each row of `input` by plain lookups; bags marked off by offsets stay torch's."""
    if input.ndim != 2 or layer.max_norm is not None:
        found: Tensor = own(input, offsets, per_sample_weights)
        return found
    words = nn.functional.embedding(input, layer.weight, layer.padding_idx)
    counted = torch.ones_like(input, dtype=torch.bool) if layer.padding_idx is None else input != layer.padding_idx
    if layer.mode == "max":
        largest = words.masked_fill(~counted[:, :, None], -torch.inf).max(1).values
        return torch.where(counted.any(1)[:, None], largest, 0.0)
    weights = counted.to(words.dtype)
    if layer.mode == "mean":
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
    if per_sample_weights is not None:
        weights = weights * per_sample_weights
    return (words * weights[:, :, None]).sum(1)
