"""Records that are read once and walked many times: batches are kept while they fit."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, strided
from torch.nn.utils.rnn import PackedSequence

from noshadow.views.batch import Batch
from noshadow.views.loading import Records

# Inputs beyond it are read again on every walk: memory stays bounded.
MOST_KEPT_BYTES = 2**30


def read_once(records: Records, *, most_bytes: int = MOST_KEPT_BYTES) -> Records:
    """The same records, whose batches are kept after the first whole walk with a batch size.

    A later walk with that batch size gets copies, so that a model that works in place on its inputs
    does not change what is kept. Batches of another size are read from the data: a collate_fn may
    pad them otherwise. Where the batches of a walk exceed `most_bytes`, or hold something that is
    neither a tensor, an array, a number nor text, nothing is kept and every walk reads the data.
    Records of arrays are in memory already and are returned as they are.

    Args:
        records: a split. Its `chosen` groups are read from the data as before.
        most_bytes: of all that is kept.

    Cost: memory of the inputs and targets, at most `most_bytes`; a copy of a batch when it is used.
    """
    kept: dict[int, list[Batch]] = {}

    def batches(size: int) -> Iterator[Batch]:
        if size in kept:
            yield from (_copied(batch) for batch in kept[size])
            return
        spare = most_bytes - sum(_bytes_of(batch) for held in kept.values() for batch in held)
        read: list[Batch] = []
        fits = True
        for batch in records.batches(size):
            spare -= _bytes_of(batch)
            fits = fits and spare >= 0 and _is_plain(batch)
            # Copied before the model sees it; let go as soon as the whole will not fit.
            if fits:
                read.append(_copied(batch))
            else:
                read.clear()
            yield batch
        if fits:
            kept[size] = read

    return records if records.in_memory else replace(records, batches=batches, in_memory=True)


def _parts(value: Any) -> Iterator[Any]:
    """Everything in a batch that is not itself a collection."""
    if isinstance(value, Batch):
        yield from _parts((value.args, value.kwargs, value.target))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _parts(item)
    elif isinstance(value, (tuple, list)) and not isinstance(value, PackedSequence):
        for item in value:
            yield from _parts(item)
    else:
        yield value


def _is_plain(batch: Batch) -> bool:
    return all(_is_copyable(part) for part in _parts(batch))


def _is_copyable(part: Any) -> bool:
    if isinstance(part, Tensor):
        return part.layout is strided and not part.is_nested
    if isinstance(part, np.ndarray):
        return bool(part.dtype.kind != "O")
    return isinstance(part, (np.generic, PackedSequence, int, float, complex, str, bytes, type(None)))


def _bytes_of(batch: Batch) -> int:
    held = (part.data if isinstance(part, PackedSequence) else part for part in _parts(batch))
    return sum(part.nbytes for part in held if isinstance(part, (Tensor, np.ndarray)))


def _copied(value: Any) -> Any:
    if isinstance(value, Batch):
        return Batch(_copied(value.args), _copied(value.kwargs), _copied(value.target))
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, PackedSequence):
        return value._replace(data=value.data.clone())
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_copied(item) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_copied(item) for item in value)
    return value
