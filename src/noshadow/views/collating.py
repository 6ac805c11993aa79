"""Tell whether a collate_fn leaves records in their order.

What it makes of a batch is compared with what it makes of parts of that batch.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from noshadow.checks import Array, InputError, as_array
from noshadow.views.batch import batch_of

Collate = Callable[[list[Any]], Any]
_IMMUTABLE = frozenset({Tensor, np.ndarray, int, float, str, bool})  # but for what stands in arrays


@dataclass(frozen=True, eq=False)
class Collated:
    """What became of one batch of records.

    Attributes:
        whole: as the user's collate_fn made it of all records.
        records: how many they were.
        alone: as it made it of each record by itself, where the whole cannot be trusted; None where
            it can.
        trouble: why single records could not be collated, or "".
    """

    whole: Any
    records: int
    alone: tuple[Any, ...] | None = None
    trouble: str = ""


def collated(items: list[Any], *, collate: Collate) -> Collated:
    """Collate a batch as the user does, and each record alone if that does not keep the order.

    The batch is trusted when inputs and targets of every record are the same in it as in smaller
    batches (padding apart). A collate_fn that sorts, drops, repeats, mixes or changes records at
    random is not; a single record is right whatever it does.

    Cost: 2√n more calls for n records, none of which moves the random states. This runs where the
        loader collates: in its workers.
    """
    if len(items) == 1:
        return Collated(collate(items), 1)
    with _random_states_kept():
        renewed = partial(_renewed, arrays=_changes_arrays(items[:2], collate))
    # before the user's function sorts the list, or pops from its records
    kept = [renewed(item) for item in items]
    whole = collate(items)
    with _random_states_kept():
        if _in_order(whole, kept, collate, renewed):
            return Collated(whole, len(kept))
    try:
        return Collated(whole, len(kept), tuple(collate([item]) for item in kept))
    except Exception as error:  # the loader's process turns it into a sentence
        reason = (str(error).strip() or "no message").splitlines()[0].rstrip(".")
        return Collated(whole, len(kept), (), f"{type(error).__name__}: {reason}")


def _in_order(whole: Any, items: list[Any], collate: Collate, renewed: Callable[[Any], Any]) -> bool:
    """Whether every record stands at its own place in the batch.

    Two ways to cut n places into about √n groups are compared: neighbours, and every √n-th. A batch
    whose places hold what the groups hold maps each group of both kinds onto itself, and one place
    is all that a group of the one kind shares with one of the other.
    """
    count = len(items)
    size = math.ceil(math.sqrt(count)) if count > 2 else 1
    neighbours = [range(start, min(start + size, count)) for start in range(0, count, size)]
    strided = [range(start, count, size) for start in range(size)] if size > 1 else []

    def collate_some(rows: range) -> Any:
        return collate([renewed(items[row]) for row in rows])

    return all(_same_places(whole, collate_some, rows, count) for rows in (*neighbours, *strided))


def _same_places(whole: Any, collate_some: Callable[[range], Any], rows: range, count: int) -> bool:
    try:
        part = collate_some(rows)
        held, own = batch_of(whole, ""), batch_of(part, "")
    except InputError:
        return True  # a form that nobody reads: refused where the batch is taken apart
    except Exception:
        return False  # the user's function needs more records than these; single ones will show
    inputs = _agreement((held.args, dict(held.kwargs)), (own.args, dict(own.kwargs)), rows, count)
    return inputs is True and _agreement(held.target, own.target, rows, count) is True


def _agreement(whole: Any, part: Any, rows: Sequence[int], count: int) -> bool | None:
    """Tell whether `part`, made of `rows` alone, is what `whole` holds at these places.

    `whole` has `count` places. The answer is None when nothing in it goes by rows.
    """
    if isinstance(whole, PackedSequence) and isinstance(part, PackedSequence):
        whole, part = (pad_packed_sequence(value, batch_first=True) for value in (whole, part))
    if isinstance(whole, (Tensor, np.ndarray)) and isinstance(part, (Tensor, np.ndarray)):
        return _same_rows(whole, part, rows, count)
    if isinstance(whole, Mapping) and isinstance(part, Mapping):
        return _all_agree([_agreement(whole[key], part[key], rows, count) for key in whole]) if whole.keys() == part.keys() else False
    if isinstance(whole, (list, tuple)) and isinstance(part, (list, tuple)):
        if len(whole) == count and len(part) == len(rows):
            return all(same_values(whole[row], value) for row, value in zip(rows, part, strict=True))
        if len(whole) == len(part):
            return _all_agree([_agreement(a, b, rows, count) for a, b in zip(whole, part, strict=True)])
    return None


def _all_agree(found: list[bool | None]) -> bool | None:
    return False if False in found else True if True in found else None


def _same_rows(whole: Tensor | Array, part: Tensor | Array, rows: Sequence[int], count: int) -> bool | None:
    """Tell whether `part` holds the `rows` of `whole`; None where they cannot be compared by rows.

    Records may stand along any axis, and the batch may be padded behind or in front of them.
    """
    if any(isinstance(value, Tensor) and value.layout != torch.strided for value in (whole, part)) or whole.ndim != part.ndim:
        return None
    a, b = _values(whole), _values(part)
    axes = [axis for axis in range(a.ndim) if a.shape[axis] == count and b.shape[axis] == len(rows)]
    return any(_padded_alike(a.take(list(rows), axis), b) for axis in axes) if axes else None


def _values(value: Tensor | Array) -> Array:
    return as_array(value, "batch") if isinstance(value, Tensor) else np.asarray(value)


def _padded_alike(longer: Array, own: Array) -> bool:
    if any(has < needs for has, needs in zip(longer.shape, own.shape, strict=True)):
        return False
    behind = longer[tuple(slice(size) for size in own.shape)]
    before = longer[tuple(slice(has - size, None) for has, size in zip(longer.shape, own.shape, strict=True))]
    return _equal(behind, own) or _equal(before, own)


def _equal(a: Array, b: Array) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())


def same_values(a: Any, b: Any) -> bool:
    """Whether two batches, or parts of them, hold the same values; NaN equals NaN."""
    if isinstance(a, (Tensor, np.ndarray)) and isinstance(b, (Tensor, np.ndarray)):
        if any(isinstance(value, Tensor) and value.layout != torch.strided for value in (a, b)):
            return a is b
        first, second = _values(a), _values(b)
        return first.shape == second.shape and _equal(first, second)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_values(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same_values(x, y) for x, y in zip(a, b, strict=True))
    plain = (str, bytes, bool, int, float, complex, np.generic, type(None))
    return a is b or (isinstance(a, plain) and isinstance(b, plain) and bool(a == b or (a != a and b != b)))


def _changes_arrays(few: list[Any], collate: Collate) -> bool:
    """Tell whether the user's function writes into the arrays of its records.

    It is tried on copies of a few records.
    """
    copies = [_renewed(item, arrays=True) for item in few]
    held = [*_arrays(copies)]
    try:
        collate(copies)
    except Exception:
        return True  # not known, and copies are always right
    return not all(same_values(own, other) for own, other in zip(held, _arrays(few), strict=True))


def _arrays(value: Any) -> Iterator[Tensor | Array]:
    if isinstance(value, (Tensor, np.ndarray)):
        yield value
    elif type(value) is dict:
        yield from (array for item in value.values() for array in _arrays(item))
    elif isinstance(value, (list, tuple)):
        yield from (array for item in value for array in _arrays(item))


def _renewed(item: Any, *, arrays: bool) -> Any:
    """Copy a record so that changes to the copy do not reach other copies.

    Lists and dicts are copied, and arrays as well if `arrays` is set; other objects are shared.
    """
    if not arrays and type(item) is tuple and _IMMUTABLE.issuperset(map(type, item)):
        return item
    if arrays and isinstance(item, Tensor):
        return item.detach().clone()
    if arrays and isinstance(item, np.ndarray):
        return item.copy()
    if type(item) is dict:
        return {key: _renewed(value, arrays=arrays) for key, value in item.items()}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(_renewed(value, arrays=arrays) for value in item))
    if type(item) in (list, tuple):
        return type(item)(_renewed(value, arrays=arrays) for value in item)
    return item


@contextmanager
def _random_states_kept() -> Iterator[None]:
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002 - users' functions draw from it
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])  # noqa: NPY002
