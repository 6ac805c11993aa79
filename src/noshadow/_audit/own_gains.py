"""The gain over the base that other sequences do not explain, for both splits of an audit."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from noshadow._audit.language_base import Base, ReadBase
from noshadow.checks import Array, NotApplicable, NumericalError
from noshadow.scores.own_gain import own_gain, token_gain
from noshadow.views import SequenceLosses, Settings, gradient_kernel, model_between, storage_words

# Where between base and model gradients are taken; chosen on one pool of texts and judged on
# another (docs/language_models.md).
SHARE = 0.25


def own_gains(
    model: object,
    base: Base | NotApplicable,
    read: ReadBase | NotApplicable,
    splits: tuple[SequenceLosses, SequenceLosses | None],
    reading: Mapping[str, Any],
    max_memory: float,
) -> tuple[Array, Array] | NotApplicable:
    """`own_gain` of training and of test sequences, which are scored together and alike.

    Args:
        model: audited. base: its base, and what it `read`. splits: what the model says of training
            and test sequences. reading: device and progress. max_memory: bytes for gradients.

    Returns:
        ((n,), (m,)), or why there is none.
    """
    if isinstance(base, NotApplicable):
        return base
    if isinstance(read, NotApplicable):
        return read
    pairs = [(own, below) for own, below in zip(splits, (read.train, read.test), strict=True) if own is not None and below is not None]
    settings = Settings(device=reading["device"], progress=reading["progress"])
    gains = [
        token_gain(own.statistics, below.statistics) for own, below in pairs if own.statistics is not None and below.statistics is not None
    ]
    parts = [own.sequences for own, _ in pairs if own.sequences is not None]
    try:
        between = model_between(model, base.model if base.adapters else None, SHARE)
        context, stride = read.train.context, read.train.stride
        kernel = gradient_kernel(between, parts, context=context, stride=stride, settings=settings, max_memory=max_memory)
        found = own_gain(np.concatenate(gains), kernel)
    except NotApplicable as reason:
        return reason
    except NumericalError:
        stored = storage_words(model)
        through = f", which are taken through weights in {stored}" if stored else ": are the model's weights finite?"
        return NotApplicable(f"the sequences' gradients are zero or not finite{through}")
    return found[: len(gains[0])], found[len(gains[0]) :]
