"""Torch data as people hold it → batches in the data set's own order."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
)

from noshadow.checks import Array, as_array, refuse, require_same_length, users_code

TARGET_KEYS = ("labels", "label", "targets", "target", "y")
FORMS = "be (X, y), a map-style Dataset or a DataLoader"


@dataclass(frozen=True)
class Batch:
    """Arguments for one call of the model, and the targets of those records."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    target: Any


@dataclass(frozen=True)
class Records:
    """A split whose batches can be walked again and again in the same order.

    rows: where each record stands in the data set behind Subsets and samplers, when that is not 0 … count − 1.
    """

    count: int
    batches: Callable[[int], Iterable[Batch]]
    notes: tuple[str, ...] = ()
    rows: tuple[int, ...] | None = None


def records_of(data: object, owner: str, argument: str, *, seed: int) -> Records:
    """The records of a split in the data set's own order, even when its loader shuffles.

    Args:
        data: (X, y) with X an array, a tuple of arrays (several inputs) or a dict of arrays (named inputs);
            a map-style Dataset; or a DataLoader, of which data set, collate_fn and workers are used.
        owner: the function named in error messages.
        argument: the argument named in error messages.
        seed: of the workers of a loader.

    Raises:
        InputError: the records have no fixed order (iterable data set, custom sampler) or no targets.
    """
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return _records_of_arrays(data[0], data[1], owner, argument)
    if isinstance(data, DataLoader):
        return _records_of_loader(data, owner, argument, seed)
    if isinstance(data, IterableDataset):
        refuse(owner, argument, "have a fixed order of records", "an IterableDataset", "Pass (X, y) or a map-style Dataset.")
    bare = isinstance(data, (Tensor, np.ndarray, Mapping, str, tuple)) or hasattr(data, "iloc")
    if bare or not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        refuse(owner, argument, FORMS, f"an object of type {type(data).__name__} without targets" if bare else f"{type(data).__name__}")
    return _records_of_loader(DataLoader(data), owner, argument, seed)  # type: ignore[arg-type]


def moved(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The value with every tensor in it on the device, floating ones in the model's dtype."""
    if isinstance(value, Tensor):
        return value.to(device, dtype) if value.is_floating_point() else value.to(device)
    if isinstance(value, Mapping):
        return {key: moved(item, device, dtype) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(item, device, dtype) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(moved(item, device, dtype) for item in value)
    return value


def _records_of_arrays(inputs: object, targets: object, owner: str, argument: str) -> Records:
    y = as_array(targets, owner, f"{argument} y")
    if y.ndim == 0:
        refuse(owner, f"{argument} y", "have one row per record", "a single number")
    if isinstance(inputs, Mapping):
        named = {str(key): _numeric(value, owner, f"{argument} X[{key!r}]") for key, value in inputs.items()}
        unnamed: tuple[Array | Tensor, ...] = ()
    else:
        named = {}
        parts = inputs if isinstance(inputs, tuple) else (inputs,)
        unnamed = tuple(_numeric(value, owner, f"{argument} X") for value in parts)
    for part in (*unnamed, *named.values()):
        require_same_length(owner, X=range(len(part)), y=range(len(y)))

    def batches(size: int) -> Iterator[Batch]:
        for start in range(0, len(y), size):
            rows = slice(start, start + size)
            yield Batch(tuple(_tensor(a[rows]) for a in unnamed), {k: _tensor(a[rows]) for k, a in named.items()}, y[rows])

    return Records(len(y), batches)


def _numeric(value: object, owner: str, argument: str) -> Array | Tensor:
    if isinstance(value, Tensor):
        array: Array | Tensor = value
    else:
        array = as_array(value, owner, argument)
        if array.dtype.kind not in "biuf":
            refuse(owner, argument, "be numeric", f"dtype {array.dtype}")
    if array.ndim == 0:
        refuse(owner, argument, "have one row per record", "a single number")
    return array


def _tensor(rows: Array | Tensor) -> Tensor:
    if isinstance(rows, Tensor):
        return rows
    # A fresh, native, contiguous copy: torch shares memory with what it is given and warns when that is read-only.
    return torch.from_numpy(np.array(rows, dtype=rows.dtype.newbyteorder("="), order="C"))


def _records_of_loader(loader: DataLoader[Any], owner: str, argument: str, seed: int) -> Records:
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset):
        refuse(
            owner, argument, "have a fixed order of records", "a DataLoader over an IterableDataset", "Pass (X, y) or a map-style Dataset."
        )
    if inspect.getattr_static(type(loader), "__iter__") is not DataLoader.__iter__:
        refuse(owner, argument, "be a plain DataLoader", f"{type(loader).__name__} with its own iteration", "Pass its data set or (X, y).")
    batch_sampler = loader.batch_sampler
    if type(batch_sampler) is not BatchSampler:
        got = "automatic batching switched off" if batch_sampler is None else f"batch sampler {type(batch_sampler).__name__}"
        refuse(owner, argument, "have a fixed order of records", f"a DataLoader with {got}", "Wrap the data set in Subset or pass (X, y).")
    chosen = _chosen_rows(batch_sampler.sampler, len(dataset), owner, argument)  # type: ignore[arg-type]
    kept: Any = dataset if chosen is None else Subset(dataset, list(chosen))

    def batches(size: int) -> Iterator[Batch]:
        ordered = DataLoader(
            kept,
            batch_size=size,
            shuffle=False,
            drop_last=False,
            collate_fn=loader.collate_fn,
            num_workers=loader.num_workers,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            timeout=loader.timeout,
            generator=torch.Generator().manual_seed(seed),
        )
        return (_batch(item, owner, argument) for item in _items(ordered, owner, argument))

    return Records(len(kept), batches, _dropped_note(batch_sampler, len(kept)), _original_rows(kept))


def _items(loader: DataLoader[Any], owner: str, argument: str) -> Iterator[object]:
    """What a loader gives; what the data set or its collate_fn raises is told as theirs."""
    end = object()
    with users_code(owner, f"{argument} must give its records batch by batch"):
        walk = iter(loader)
    while True:
        with users_code(owner, f"{argument} must give its records batch by batch"):
            item = next(walk, end)
        if item is end:
            return
        yield item


def _original_rows(dataset: object) -> tuple[int, ...] | None:
    """Row numbers in the data set behind nested Subsets; None without a Subset, or when a row is taken twice."""
    rows: list[int] | None = None
    while type(dataset) is Subset:
        own = [int(i) for i in dataset.indices]
        rows = own if rows is None else [own[i] for i in rows]
        dataset = dataset.dataset
    return tuple(rows) if rows is not None and len(set(rows)) == len(rows) and min(rows, default=0) >= 0 else None


def _chosen_rows(sampler: object, rows: int, owner: str, argument: str) -> Sequence[int] | None:
    """Row numbers a sampler restricts the data to, sorted; None for all rows."""
    if type(sampler) is SubsetRandomSampler:
        return sorted(int(i) for i in sampler.indices)
    whole = type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)
    if not whole or len(sampler) != rows:  # type: ignore[arg-type]
        part = f" over {len(sampler)} of {rows} records" if whole else ""  # type: ignore[arg-type]
        again = " with replacement" if type(sampler) is RandomSampler and sampler.replacement else ""
        got = f"a DataLoader with {type(sampler).__name__}{again}{part}"
        refuse(owner, argument, "visit each record of its data set once", got, "Wrap the data set in Subset or pass (X, y).")
    return None


def _dropped_note(batch_sampler: BatchSampler, rows: int) -> tuple[str, ...]:
    left = rows % batch_sampler.batch_size
    if not (batch_sampler.drop_last and left and type(batch_sampler.sampler) is SequentialSampler):
        return ()
    return (
        f"The loader drops its last incomplete batch in a fixed order: if it trained the model, the last {left} records were never seen.",
    )


def _batch(item: object, owner: str, argument: str) -> Batch:
    if isinstance(item, Mapping):
        key = next((k for k in TARGET_KEYS if k in item), None)
        if key is None:
            refuse(owner, argument, f"give targets under one of the keys {', '.join(TARGET_KEYS)}", f"keys {', '.join(map(str, item))}")
        return Batch((), {k: v for k, v in item.items() if k != key}, item[key])
    if not isinstance(item, (tuple, list)) or len(item) < 2:
        got = f"batches of {len(item)} element" if isinstance(item, (tuple, list)) else f"batches of type {type(item).__name__}"
        refuse(owner, argument, "give batches (inputs, …, targets) or a dict with targets", got, "Add the targets to the data set.")
    *inputs, target = item
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        return Batch((), inputs[0], target)
    nested = len(inputs) == 1 and isinstance(inputs[0], (tuple, list))
    return Batch(tuple(inputs[0] if nested else inputs), {}, target)
