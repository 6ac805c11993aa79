"""What functions are called in a plan: their names and plain arguments, never the data in them.

A plan is compared with its rerun and is copied into audits. So a name must be the same at each
start, tell other settings and arrays apart, and hold no record.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from noshadow.storage.digests import arrays_sha256, sha256

PLAIN = (bool, int, float, complex, str, type(None), np.generic, torch.dtype, torch.device)
# Settings are short. What is longer may be data, and is told by its digest.
LONGEST = 80
SHORT_DIGEST = 16


def function_name(function: object) -> str:
    """Qualified name of a function, or of the type of a callable object.

    A partial is its function with its arguments. Arguments that may be data are told by their type,
    shape and digest.
    """
    if isinstance(function, functools.partial):
        given = [*map(_told, function.args), *(f"{name}={_told(value)}" for name, value in sorted(function.keywords.items()))]
        return f"{function_name(function.func)}({', '.join(given)})"
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _told(value: object) -> str:
    if callable(value):
        return function_name(value)
    if isinstance(value, torch.Tensor):
        dense = value.detach().cpu().to_dense()
        # NumPy has no bfloat16, each of whose numbers is one of float32.
        return f"torch.Tensor{tuple(value.shape)} {_digest((dense.float() if dense.dtype == torch.bfloat16 else dense).numpy())}"
    if isinstance(value, np.ndarray):
        return f"numpy.ndarray{value.shape} {_digest(value)}"
    if _is_plain(value):
        text = repr(value)
        return text if len(text) <= LONGEST else f"{type(value).__name__} {sha256(text.encode())[:SHORT_DIGEST]}"
    return function_name(value)


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_plain, (*value.keys(), *value.values())))
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN)


def _digest(values: np.ndarray[Any, Any]) -> str:
    return "of objects" if values.dtype.hasobject else arrays_sha256(values)[:SHORT_DIGEST]
