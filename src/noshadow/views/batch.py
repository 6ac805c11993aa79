"""One batch of records: the model's arguments and the targets, however a loader hands them over."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from noshadow.checks import refuse

TARGET_KEYS = ("labels", "label", "targets", "target", "y")


@dataclass(frozen=True)
class Batch:
    """Arguments for one call of the model, and the targets of those records."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    target: Any


def batch_of(item: object, argument: str) -> Batch:
    """Take apart what a collate_fn returned.

    It is (inputs, …, targets), or a dict with the targets under one of TARGET_KEYS.

    Raises:
        InputError: it has another form.
    """
    if isinstance(item, Mapping):
        key = next((k for k in TARGET_KEYS if k in item), None)
        if key is None:
            refuse(argument, f"give targets under one of the keys {', '.join(TARGET_KEYS)}", f"keys {', '.join(map(str, item))}")
        return Batch((), {k: v for k, v in item.items() if k != key}, item[key])
    if not isinstance(item, (tuple, list)) or len(item) < 2:
        got = f"batches of {len(item)} element" if isinstance(item, (tuple, list)) else f"batches of type {type(item).__name__}"
        refuse(argument, "give batches (inputs, …, targets) or a dict with targets", got, "Add the targets to the data set.")
    *inputs, target = item
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        return Batch((), inputs[0], target)
    # A PackedSequence is a tuple to Python and one input to a model.
    nested = len(inputs) == 1 and isinstance(inputs[0], (tuple, list)) and not isinstance(inputs[0], PackedSequence)
    return Batch(tuple(inputs[0] if nested else inputs), {}, target)


def moved(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The value with every tensor in it on the device, floating ones in the model's dtype."""
    if isinstance(value, Tensor):
        return value.to(device, dtype) if value.is_floating_point() else value.to(device)
    if isinstance(value, PackedSequence):
        kept = dtype if value.data.is_floating_point() else value.data.dtype
        return value.to(device=device, dtype=kept)  # type: ignore[call-arg]
    if isinstance(value, Mapping):
        return {key: moved(item, device, dtype) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(item, device, dtype) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(moved(item, device, dtype) for item in value)
    return value
