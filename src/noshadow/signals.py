"""Signals: a model's features and outputs on one split of data, and two file formats."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from noshadow.checks import (
    Array,
    InputError,
    as_array,
    floating,
    named_in_errors,
    numeric_array,
    refuse,
    require_same_length,
    require_squarable,
    require_unmasked,
    said,
)
from noshadow.storage.array_files import read_arrays, read_text, require_suffix, write_arrays
from noshadow.storage.digests import arrays_sha256, ids_sha256

FIELDS = ("features", "outputs", "targets", "ids")
SPLIT_KEYS = frozenset(f"{split}_{field}" for split in ("train", "test") for field in FIELDS) | {"loss_traces"}


@dataclass(frozen=True, eq=False, init=False)
class Signals:
    """Features, outputs, targets and ids of the records of one split; validated once, read-only.

    Attributes:
        features: (n, d) inputs of the last linear layer, **without** the bias column; None when the
            model has no linear head (record scores are then not applicable).
        outputs: (n, m) logits, or predictions of a regression.
        targets: (n,) integer labels, (n,) or (n, q) floats, or (n, m) rows of probabilities.
        ids: (n,) unique integers or strings; row numbers unless given. has_ids: whether they were
            given.

    Example:
        >>> import noshadow as ns
        >>> s = ns.Signals([[1.0], [2.0]], [[0.1, 0.9], [0.8, 0.2]], [1, 0])
        >>> len(s), s.outputs.shape, s.ids.tolist()
        (2, (2, 2), [0, 1])
    """

    features: Array | None
    outputs: Array
    targets: Array
    ids: Array
    has_ids: bool = field(init=False)

    @named_in_errors
    def __init__(self, features: object, outputs: object, targets: object, ids: object = None) -> None:
        given = numeric_array(outputs, "outputs", ndim=(1, 2))
        out = floating(given[:, None] if given.ndim == 1 else given)
        y = numeric_array(targets, "targets", ndim=(1, 2))
        x = None if features is None else floating(numeric_array(features, "features", ndim=2))
        n = require_same_length(outputs=out, targets=y, features=x)
        for name, array in (("features", x), ("outputs", out), ("targets", y)):
            if array is not None:
                require_squarable(array, name)
        if out.shape[1] == 0:
            refuse("outputs", "have at least one column", f"shape {out.shape}")
        identifiers = record_ids(ids, n)
        for name, array in (("features", x), ("outputs", out), ("targets", y), ("ids", identifiers)):
            object.__setattr__(self, name, None if array is None else _read_only(array))
        object.__setattr__(self, "has_ids", ids is not None)

    def __len__(self) -> int:
        return len(self.outputs)

    @named_in_errors
    def with_ids(self, ids: object) -> "Signals":
        """The same signals under other record ids."""
        return Signals(self.features, self.outputs, self.targets, ids)

    def sha256(self) -> dict[str, str]:
        """Hex digests of the values in their row order (`data`) and of the ids (`row_order`)."""
        held = (array for array in (self.features, self.outputs, self.targets) if array is not None)
        return {"data": arrays_sha256(*held), "row_order": ids_sha256(self.ids)}


@named_in_errors
def save_splits(path: str | Path, train: Signals, test: Signals, *, loss_traces: object = None) -> None:
    """Write both splits to one `.npz` or `.safetensors` file that `noshadow audit` reads.

    Keys: `train_features, train_outputs, train_targets, train_ids` and the same for `test`,
    optional `loss_traces`. Text ids go to safetensors as zero-padded UTF-8 rows. Whole or not at
    all; only the owner can read the file.

    Raises:
        InputError: another suffix, or a place that cannot be written.
    """
    arrays = {f"train_{k}": v for k, v in _fields(train)} | {f"test_{k}": v for k, v in _fields(test)}
    if loss_traces is not None:
        arrays["loss_traces"] = numeric_array(loss_traces, "loss_traces", ndim=2)
    write_arrays(path, arrays)


@named_in_errors
def load_splits(path: str | Path) -> tuple[Signals, Signals, Array | None]:
    """Read (train, test, loss_traces or None) from a `.npz` or `.safetensors` file.

    Nothing is ever unpickled.

    Raises:
        InputError: the file is missing, has unknown or missing keys, or holds pickled objects.
    """
    require_suffix(path, "A model is given as package.module:function.")
    if not Path(path).is_file():
        refuse("path", "be a file that exists", f"'{path}'")
    arrays = read_arrays(path)
    unknown = sorted(set(arrays) - SPLIT_KEYS)
    required = {"train_outputs", "train_targets", "test_outputs", "test_targets"}
    missing = sorted(required - set(arrays))
    if unknown or missing:
        got = "; ".join(f"{what} {', '.join(keys)}" for what, keys in (("unknown key", unknown), ("missing key", missing)) if keys)
        refuse("file", f"hold keys among {', '.join(sorted(SPLIT_KEYS))}", got)
    return _split(arrays, "train"), _split(arrays, "test"), arrays.get("loss_traces")


def _read_only(array: Array) -> Array:
    view: Array = array.view()
    view.flags.writeable = False
    return view


def record_ids(ids: object, n: int) -> Array:
    """Ids of n records, (n,) unique integers or text; row numbers when None."""
    if ids is None:
        return np.arange(n)
    require_unmasked(ids, "ids")
    given = as_array([str(i) for i in ids] if _are_objects(ids) else ids, "ids")  # type: ignore[attr-defined]
    array = _text(given) if given.dtype.kind in "US" else given
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        refuse("ids", "be a 1-dimensional list of integers or strings", f"shape {array.shape}, dtype {array.dtype}")
    require_same_length(records=range(n), ids=array)
    values, counts = np.unique(array, return_counts=True)
    if len(values) < n:
        refuse("ids", "be unique", f"'{values[counts.argmax()]}' {int(counts.max())} times")
    return array


def _are_objects(ids: object) -> bool:
    """Whether these are ids of mixed kinds, as pandas holds them.

    Rows of unequal length are left to `as_array`, which refuses them in its own words.
    """
    try:
        array = np.asarray(ids)
    except ValueError:
        return False
    return array.dtype == object and array.ndim == 1


def _text(ids: Array) -> Array:
    try:
        text: Array = np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids.astype(str)
        np.char.encode(text, "utf-8")
    except UnicodeError as error:
        raise InputError(said(f"ids must be valid text; got {error}.")) from error
    return text


def _fields(signals: Signals) -> list[tuple[str, Array]]:
    return [(name, getattr(signals, name)) for name in FIELDS if getattr(signals, name) is not None]


def _split(arrays: Mapping[str, Array], split: str) -> Signals:
    ids = arrays.get(f"{split}_ids")
    ids = None if ids is None else read_text(ids, f"{split}_ids")
    return Signals(arrays.get(f"{split}_features"), arrays[f"{split}_outputs"], arrays[f"{split}_targets"], ids)
