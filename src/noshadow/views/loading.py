"""Torch data as people hold it → batches in the data set's own order."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    default_collate,
)

from noshadow.checks import Array, as_array, refuse, require_same_length, users_code
from noshadow.views.batch import Batch as Batch
from noshadow.views.batch import batch_of
from noshadow.views.batch import moved as moved
from noshadow.views.collating import Collated, collated
from noshadow.views.pairing import paired_targets
from noshadow.views.row_names import RowNames, index_names, row_numbers, rows_behind

FORMS = "be (X, y), a map-style Dataset or a DataLoader"
KEEP_ORDER = "Use a collate_fn that keeps its records in order."


@dataclass(frozen=True)
class Records:
    """A split whose batches can be walked again and again in the same order.

    Attributes:
        count: records in it.
        batches: size → its batches, whose records stand in the data set's own order.
        chosen: groups of places → the batches of each group, read anew.
        names: what the data call the records; None where that is 0 … count − 1.
        data_notes: what a reader must know of the data; reading_notes: of how they were read,
            filled while they are.
        in_memory: whether the batches are held already: a second walk need not read the data.
    """

    count: int
    batches: Callable[[int], Iterable[Batch]]
    chosen: Callable[[Sequence[Sequence[int]]], Iterator[list[Batch]]]
    names: RowNames | None = None
    data_notes: tuple[str, ...] = ()
    reading_notes: list[str] = field(default_factory=list)
    in_memory: bool = False

    @property
    def rows(self) -> Array | None:
        """The records' ids in the data's own terms, (count,); None where they are row numbers."""
        return None if self.names is None else self.names.ids

    @property
    def notes(self) -> tuple[str, ...]:
        """What is known once the records were read."""
        return (*self.data_notes, *self.reading_notes)


def records_of(data: object, argument: str, *, seed: int) -> Records:
    """The records of a split in the data set's own order, even when its loader shuffles.

    Args:
        data: (X, y) with X an array, a tuple of arrays (several inputs) or a dict of arrays (named
            inputs); a map-style Dataset; or a DataLoader, of which data set, collate_fn and workers
            are used; or Records, which are returned as they are.
        argument: the argument named in error messages.
        seed: of the workers of a loader.

    Raises:
        InputError: the records have no fixed order (iterable data set, custom sampler) or no
            targets, or X and y do not belong together.
    """
    if isinstance(data, Records):
        return data
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return _records_of_arrays(data[0], data[1], argument)
    if isinstance(data, DataLoader):
        return _records_of_loader(data, argument, seed)
    if isinstance(data, IterableDataset):
        refuse(argument, "have a fixed order of records", "an IterableDataset", "Pass (X, y) or a map-style Dataset.")
    bare = isinstance(data, (Tensor, np.ndarray, Mapping, str, tuple)) or hasattr(data, "iloc")
    if bare or not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        refuse(argument, FORMS, f"an object of type {type(data).__name__} without targets" if bare else f"{type(data).__name__}")
    return _records_of_loader(DataLoader(data), argument, seed)  # type: ignore[arg-type]


def _records_of_arrays(inputs: object, targets: object, argument: str) -> Records:
    targets, notes = paired_targets(inputs, targets, argument)
    y = as_array(targets, f"{argument} y")
    if y.ndim == 0:
        refuse(f"{argument} y", "have one row per record", "a single number")
    if isinstance(inputs, Mapping):
        named = {str(key): _numeric(value, f"{argument} X[{key!r}]") for key, value in inputs.items()}
        unnamed: tuple[Array | Tensor, ...] = ()
    else:
        named = {}
        parts = inputs if isinstance(inputs, tuple) else (inputs,)
        unnamed = tuple(_numeric(value, f"{argument} X") for value in parts)
    for part in (*unnamed, *named.values()):
        require_same_length(X=range(len(part)), y=range(len(y)))

    def taken(rows: slice | list[int]) -> Batch:
        return Batch(tuple(_tensor(a[rows]) for a in unnamed), {k: _tensor(a[rows]) for k, a in named.items()}, y[rows])

    def batches(size: int) -> Iterator[Batch]:
        return (taken(slice(start, start + size)) for start in range(0, len(y), size))

    def chosen(groups: Sequence[Sequence[int]]) -> Iterator[list[Batch]]:
        return ([taken(list(group))] for group in groups)

    return Records(len(y), batches, chosen, index_names(inputs), notes, in_memory=True)


def _numeric(value: object, argument: str) -> Array | Tensor:
    if isinstance(value, Tensor):
        array: Array | Tensor = value
    else:
        array = as_array(value, argument)
        if array.dtype.kind not in "biuf":
            refuse(argument, "be numeric", f"dtype {array.dtype}")
    if array.ndim == 0:
        refuse(argument, "have one row per record", "a single number")
    return array


def _tensor(rows: Array | Tensor) -> Tensor:
    if isinstance(rows, Tensor):
        return rows
    # A fresh, native, contiguous copy: torch shares memory with what it is given and warns when
    # that is read-only.
    return torch.from_numpy(np.array(rows, dtype=rows.dtype.newbyteorder("="), order="C"))


def _records_of_loader(loader: DataLoader[Any], argument: str, seed: int) -> Records:
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset):
        refuse(argument, "have a fixed order of records", "a DataLoader over an IterableDataset", "Pass (X, y) or a map-style Dataset.")
    if inspect.getattr_static(type(loader), "__iter__") is not DataLoader.__iter__:
        refuse(argument, "be a plain DataLoader", f"{type(loader).__name__} with its own iteration", "Pass its data set or (X, y).")
    batch_sampler = loader.batch_sampler
    if type(batch_sampler) is not BatchSampler:
        got = "automatic batching switched off" if batch_sampler is None else f"batch sampler {type(batch_sampler).__name__}"
        refuse(argument, "have a fixed order of records", f"a DataLoader with {got}", "Wrap the data set in Subset or pass (X, y).")
    chosen_rows = _chosen_rows(batch_sampler.sampler, len(dataset), argument)  # type: ignore[arg-type]
    kept: Any = dataset if chosen_rows is None else Subset(dataset, chosen_rows)
    told: list[str] = []
    read = partial(_read_in_order, loader, kept, seed=seed, argument=argument)
    in_order = partial(_batches_in_order, told=told, argument=argument)

    def batches(size: int) -> Iterator[Batch]:
        return (batch for group in in_order(read(batch_size=size, num_workers=loader.num_workers)) for batch in group)

    def chosen(groups: Sequence[Sequence[int]]) -> Iterator[list[Batch]]:
        return in_order(read(batch_sampler=[list(group) for group in groups], num_workers=min(loader.num_workers, 1)))

    names = rows_behind(kept, argument)
    return Records(len(kept), batches, chosen, names, _dropped_note(batch_sampler, len(kept)), told)


def _read_in_order(loader: DataLoader[Any], kept: Any, *, seed: int, argument: str, **how: Any) -> Iterator[Collated]:
    """A loader's data set collated by its collate_fn and its workers, in an order of ours."""
    # torch's own function stacks records as they come; nobody else's is taken at its word.
    trusted = loader.collate_fn is default_collate
    ordered = DataLoader(
        kept,
        collate_fn=_stacked if trusted else partial(collated, collate=loader.collate_fn),
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        timeout=loader.timeout,
        generator=torch.Generator().manual_seed(seed),
        **how,
    )
    items = _items(ordered, argument)
    return (Collated(item, 0) for item in items) if trusted else items


def _stacked(items: list[Any]) -> Any:
    """What torch makes of records, and how to pad them where their lengths differ."""
    try:
        return default_collate(items)
    except RuntimeError as error:
        if "equal size" not in str(error):
            raise
        raise RuntimeError(f"{error}; records of different lengths take a DataLoader whose collate_fn pads them") from error


def _items(loader: DataLoader[Any], argument: str) -> Iterator[Any]:
    """What a loader gives; what the data set or its collate_fn raises is told as theirs."""
    end = object()
    with users_code(f"{argument} must give its records batch by batch"):
        walk = iter(loader)
    while True:
        with users_code(f"{argument} must give its records batch by batch"):
            item = next(walk, end)
        if item is end:
            return
        yield item


def _batches_in_order(read: Iterator[Collated], *, told: list[str], argument: str) -> Iterator[list[Batch]]:
    """Yield the batches of each group of records.

    A group is one batch, or one batch per record where the collate_fn does not keep their order.
    """
    for group in read:
        whole = batch_of(group.whole, argument)
        rows = _row_count(whole.target)
        if group.records and rows is not None and rows != group.records:
            got = f"{rows} rows from {group.records} records"
            refuse(argument, "give every record of its data set", got, "Does collate_fn drop some, or repeat some?")
        if group.alone is None:
            yield [whole]
            continue
        if group.trouble:
            got = f"a collate_fn that does not keep it, and fails on a single record ({group.trouble})"
            refuse(argument, "have batches in the order of its data set", got, KEEP_ORDER)
        note = (
            f"The collate_fn of {argument} does not give the same records in the same order in batches of another size (it sorts, mixes or "
            "draws at random): each record was collated and run by itself."
        )
        told += [] if note in told else [note]
        yield [batch_of(item, argument) for item in group.alone]


def _row_count(target: Any) -> int | None:
    """Rows of a batch's targets, where they have any."""
    if isinstance(target, (Tensor, np.ndarray)):
        return len(target) if target.ndim else None
    nested = isinstance(target, (list, tuple)) and any(isinstance(value, (Tensor, np.ndarray)) and value.ndim for value in target)
    return len(target) if isinstance(target, (list, tuple)) and not nested else None


def _chosen_rows(sampler: object, rows: int, argument: str) -> list[int] | None:
    """Row numbers a sampler restricts the data to, sorted; None for all rows."""
    if type(sampler) is SubsetRandomSampler:
        return sorted(row_numbers(sampler.indices, rows, argument))
    whole = type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)
    if not whole or len(sampler) != rows:  # type: ignore[arg-type]
        part = f" over {len(sampler)} of {rows} records" if whole else ""  # type: ignore[arg-type]
        again = " with replacement" if type(sampler) is RandomSampler and sampler.replacement else ""
        got = f"a DataLoader with {type(sampler).__name__}{again}{part}"
        refuse(argument, "visit each record of its data set once", got, "Wrap the data set in Subset or pass (X, y).")
    return None


def _dropped_note(batch_sampler: BatchSampler, rows: int) -> tuple[str, ...]:
    left = rows % batch_sampler.batch_size
    if not (batch_sampler.drop_last and left and type(batch_sampler.sampler) is SequentialSampler):
        return ()
    return (
        f"The loader drops its last incomplete batch in a fixed order: if it trained the model, the last {left} records were never seen.",
    )
