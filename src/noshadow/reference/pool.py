"""The records of a reference experiment: data in, hashes; a model's outputs on them out."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from torch import Tensor

from noshadow.checks import Array, InputError, as_array, refuse, require_choice, require_same_length, said, unnamed
from noshadow.signals import Signals
from noshadow.storage.digests import add_array, array_form, ids_sha256
from noshadow.views.loading import records_of
from noshadow.views.pairing import paired_targets
from noshadow.views.row_names import index_ids
from noshadow.views.walk import walked

# of the pass that hashes a data set; fixed, so that the digest does not depend on how the models
# are run
BATCH = 256


@dataclass(frozen=True, eq=False)
class Pool:
    """All records of an experiment in a fixed order: those of `train`, then those of `test`.

    Attributes:
        splits: the data as given, train first.
        counts: records in each split.
        targets: (n,) or (n, q), as given; text labels as the numbers of their sorted names. Of a
            language model's sequences, the number of tokens that are scored.
        ids: (n,) unique integers or strings.
        hashes: hex digests: "data" of inputs and targets in row order, "row_order" of the ids.
        notes: sentences a reader needs to know.
        sequences: whether records are sequences of tokens; splits are then TokenSequences.
    """

    splits: tuple[object, ...]
    counts: tuple[int, ...]
    targets: Array
    ids: Array
    hashes: dict[str, str]
    notes: tuple[str, ...]
    sequences: bool = False

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def member(self) -> Array:
        """(n,) bool: whether the record is in the target's training split."""
        return np.arange(len(self)) < self.counts[0]


class Split(NamedTuple):
    """Targets of one split, the names that the data gives its records, and notes."""

    targets: Array
    ids: Array | None
    notes: tuple[str, ...]


def record_pool(train: object, test: object, *, pool: str, ids: object) -> Pool:
    """Read and hash the records; models are trained on halves of them.

    Args:
        train: (X, y), a map-style Dataset or a DataLoader.
        test: the same, or None.
        pool: "all" for the records of both, "train" for those of `train` alone.
        ids: (n,) unique ids of all records, or of those of `train`; None: a data frame's index, the
            rows behind a Subset, or 0 … n − 1.

    Cost: one pass over the data; memory that of the targets and one batch.
    """
    given = splits_given(train, test, pool)
    digest = hashlib.sha256()
    found = []
    for argument, data in zip(("train", "test"), given, strict=False):
        digest.update(f"|{argument}|".encode())
        found.append(_split(data, argument, digest))
    shapes = {split.targets.shape[1:] for split in found}
    if len(shapes) > 1:
        refuse("train and test", "have targets of the same form", f"shapes {', '.join(str(s.targets.shape) for s in found)}")
    return pool_of(given, found, ids, digest.hexdigest())


def splits_given(train: object, test: object, pool: str) -> tuple[object, ...]:
    """The splits that a pool is made of, train first."""
    require_choice(pool, ("all", "train"), "pool")
    if train is None:
        refuse("train", "hold the target's training records", "None")
    if pool == "all" and test is None:
        refuse("test", "be given with pool='all'", "None", "Pass pool='train' to use the training records alone.")
    return (train,) if pool == "train" else (train, test)


def pool_of(splits: tuple[object, ...], found: Sequence[Split], ids: object, digest: str, *, sequences: bool = False) -> Pool:
    """The pool of splits that were read and hashed."""
    targets, notes = _numbered(np.concatenate([split.targets for split in found]))
    identifiers, id_notes = _ids(ids, found)
    return Pool(
        splits=splits,
        counts=tuple(len(split.targets) for split in found),
        targets=targets,
        ids=identifiers,
        hashes={"data": digest, "row_order": ids_sha256(identifiers)},
        notes=(*notes, *id_notes, *(note for split in found for note in split.notes)),
        sequences=sequences,
    )


def _split(data: object, argument: str, digest: Any) -> Split:
    if isinstance(data, (tuple, list)) and len(data) == 2:
        inputs, y = data
        y, notes = paired_targets(inputs, y, argument)
        labels = as_array(y, f"{argument} y") if isinstance(y, Tensor) else np.asarray(y)
        if labels.dtype == object:
            labels = labels.astype(str)
        parts = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs if isinstance(inputs, tuple) else (inputs,))
        for name, part in parts:
            rows = part.shape[0] if hasattr(part, "shape") else len(part)
            require_same_length(X=range(rows), y=range(len(labels) if labels.ndim else 0))
            digest.update(f"|{name}|".encode())
            _hash_inputs(part, argument, digest)
        return Split(_hashed_targets(labels, argument, digest), index_ids(inputs), notes)
    records = records_of(data, argument, seed=0)
    targets = []
    for step in walked(records, BATCH, argument=argument):
        for name, part in (*enumerate(step.inputs.args), *step.inputs.kwargs.items()):
            digest.update(f"|{name}|".encode())
            _hash_inputs(part, argument, digest)
        targets.append(step.targets)
    if not targets:
        refuse(argument, "hold at least one record", "none")
    ids = None if records.rows is None else np.array(records.rows)
    return Split(_hashed_targets(np.concatenate(targets), argument, digest), ids, records.notes)


def _hashed_targets(targets: Array, argument: str, digest: Any) -> Array:
    if targets.ndim not in (1, 2) or len(targets) == 0:
        refuse(f"{argument} targets", "be one number or one row a record", f"shape {targets.shape}")
    _hash_array(targets, digest)
    return targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets


def _hash_inputs(part: object, argument: str, digest: Any) -> None:
    if hasattr(part, "iloc"):
        frame: Any = part.to_frame() if hasattr(part, "to_frame") and not hasattr(part, "columns") else part
        digest.update(repr([(str(name), str(dtype)) for name, dtype in frame.dtypes.items()]).encode())
        digest.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
    elif issparse(part):
        rows: Any = part
        for array in (rows.tocsr().data, rows.tocsr().indices, rows.tocsr().indptr):
            _hash_array(array, digest)
    elif isinstance(part, (Tensor, np.ndarray, int, float)):
        _hash_array(as_array(part, f"{argument} inputs") if isinstance(part, Tensor) else np.asarray(part), digest)
    elif isinstance(part, Mapping):
        for name, value in part.items():
            digest.update(f"|{name}|".encode())
            _hash_inputs(value, argument, digest)
    elif isinstance(part, Iterable) and not isinstance(part, (str, bytes)):
        held = list(part)
        if all(isinstance(value, (int, float, str)) for value in held):
            _hash_array(np.asarray(held), digest)
        else:
            for value in held:
                _hash_inputs(value, argument, digest)
    else:
        # Strings and None; an object's repr would hold its address.
        if part is not None and not isinstance(part, (str, bytes)):
            refuse(argument, "hold arrays, tensors, numbers or text", f"an input of type {type(part).__name__}")
        digest.update(repr(part).encode())


def _hash_array(array: Array, digest: Any) -> None:
    if array.dtype == object:
        digest.update(array_form(array))
        digest.update(pd.util.hash_array(array.astype(str).ravel()).tobytes())
    else:
        add_array(digest, array)


def _numbered(targets: Array) -> tuple[Array, tuple[str, ...]]:
    """Number the targets: numeric ones as given, text labels by their sorted names.

    scikit-learn numbers labels in the same way.
    """
    if targets.dtype.kind in "biuf":
        return targets, ()
    names, numbers = np.unique(targets, return_inverse=True)
    listed = ", ".join(map(str, names[:10])) + (", …" if len(names) > 10 else "")
    return numbers.astype(np.int64), (f"Labels are numbered in the order of their names: {listed}.",)


def _ids(ids: object, splits: Sequence[Split]) -> tuple[Array, tuple[str, ...]]:
    """Return the ids given, or the training records' own, as an audit takes them.

    The other records keep their own ids where these are not taken yet.
    """
    n, first = sum(len(split.targets) for split in splits), splits[0]
    own, other = first.ids, None if len(splits) == 1 else splits[1].ids
    if isinstance(ids, Sized) and len(ids) == len(first.targets):
        own, other = _checked_ids(ids, len(ids)), None
    elif ids is not None:
        return _checked_ids(ids, n), ()
    if own is None or len(own) == n:
        return np.arange(n) if own is None else _checked_ids(own, n), ()
    if other is not None and other.dtype.kind == own.dtype.kind and len(np.unique(np.concatenate([own, other]))) == n:
        return _checked_ids(np.concatenate([own, other]), n), ()
    fresh = np.arange(n - len(own))
    if own.dtype.kind in "iu":
        return _checked_ids(np.concatenate([own, fresh + own.max() + 1]), n), (f"Test records are numbered from {own.max() + 1} on.",)
    named = np.array([f"test-{row}" for row in fresh])
    return _checked_ids(np.concatenate([own.astype(str), named]), n), ("Test records are named test-0, test-1, ….",)


def _checked_ids(ids: object, n: int) -> Array:
    try:
        return Signals(None, np.zeros(n), np.zeros(n), ids).ids
    except InputError as error:
        raise InputError(
            said(f"ids are for all {n} records of the pool, train before test, or for those of train; {unnamed(error)}")
        ) from error
