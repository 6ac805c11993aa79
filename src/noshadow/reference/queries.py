"""Queries: other views of the same record under which a model is asked as well."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from noshadow.checks import Array, named_in_errors, refuse, require_whole
from noshadow.reference.function_names import function_name

Images = TypeVar("Images", Array, torch.Tensor)
Query = Callable[[Any], Any]


@named_in_errors
def mirrored(x: Images) -> Images:
    """Images with left and right exchanged: x[…, h, w] flipped along w.

    Args:
        x: (n, …, h, w) tensor or array, a batch of images.

    Raises:
        InputError: flat rows.

    Example:
        >>> mirrored(np.array([[[1, 2], [3, 4]]])).tolist()
        [[[2, 1], [4, 3]]]
    """
    _require_images(x)
    if isinstance(x, torch.Tensor):
        return torch.flip(x, (-1,))
    flipped: Array = np.flip(x, -1).copy()
    return flipped


@named_in_errors
def shifted(x: Images, rows: int, columns: int) -> Images:
    """Images moved `rows` down and `columns` to the right (negative: up, left), filled with zeros.

    Args:
        x: (n, …, h, w) tensor or array, a batch of images.
        rows: whole number. columns: whole number.

    Example:
        >>> shifted(np.array([[[1, 2], [3, 4]]]), 0, 1).tolist()
        [[[0, 1], [0, 3]]]
    """
    _require_images(x)
    for name, value in (("rows", rows), ("columns", columns)):
        require_whole(abs(value) if isinstance(value, int) else value, name, low=0)
    moved = torch.zeros_like(x) if isinstance(x, torch.Tensor) else np.zeros_like(x)
    (above, into_rows), (left, into_columns) = (_moved(size, by) for size, by in zip(x.shape[-2:], (rows, columns), strict=True))
    moved[..., into_rows, into_columns] = x[..., above, left]
    return moved


def checked_queries(queries: Sequence[Query]) -> tuple[Query, ...]:
    """Queries as a tuple of callables."""
    if callable(queries) or isinstance(queries, str):
        refuse("queries", "be a sequence of callables", function_name(queries) if callable(queries) else repr(queries))
    found = tuple(queries)
    for query in found:
        if not callable(query):
            refuse("queries", "be callables on a batch of inputs", repr(query), "For instance queries=(mirrored,).")
    return found


def _moved(size: int, by: int) -> tuple[slice, slice]:
    """Where the part that stays visible comes from, and where it goes."""
    kept = max(size - abs(by), 0)
    start = min(max(-by, 0), size)
    into = min(max(by, 0), size)
    return slice(start, start + kept), slice(into, into + kept)


def _require_images(x: object) -> None:
    if not isinstance(x, (np.ndarray, torch.Tensor)) or x.ndim < 3:
        got = f"shape {tuple(x.shape)}" if isinstance(x, (np.ndarray, torch.Tensor)) else type(x).__name__
        refuse("x", "be a batch of images (n, …, height, width)", got, "Flat rows have no left and right: write your own query.")
