"""A data set for leave-one-out distinguishability: its file, its scaling and its map."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.sparse.linalg import svds

from noshadow._lood.inputs import input_rows, require_rows_match, target_columns
from noshadow.checks import Array, as_array, refuse, require_choice, require_squarable
from noshadow.signals import record_ids
from noshadow.storage.array_files import read_arrays
from noshadow.storage.digests import arrays_sha256, ids_sha256

KEYS = ("x", "y", "ids")
NORMALIZATIONS = {
    "none": "inputs as given",
    "standardize": "each feature less its mean over all records and divided by its standard deviation over them (ddof 0); "
    "constant features become 0",
    "unit": "each record divided by the root of the mean square of its numbers, so that its mean square is 1",
}
_DENSE = 64  # least side of the inputs from which a truncated decomposition is worth it


@dataclass(frozen=True, eq=False)
class DataSet:
    """Inputs and targets of n records, checked.

    Attributes:
        x: (n, …) float64. y: (n, C) targets as columns. targets: as given, for the record table.
        ids: (n,) unique. has_ids: whether they were given.
        hashes: SHA-256 of the values of x and y as given, and of the ids.
    """

    x: torch.Tensor
    y: Array
    targets: Array
    ids: Array
    has_ids: bool
    hashes: dict[str, str]


def data_arrays(path: str | Path) -> tuple[Array, Array, Array | None]:
    """x, y and ids (or None) of a `.npz` file, never unpickled.

    Raises:
        InputError: no such file, not an archive of plain arrays, or keys other than x, y and ids.
    """
    file = Path(path)
    if file.suffix != ".npz":
        refuse("data", "end in .npz", f"'{path}'", "Save it with np.savez(path, x=…, y=…, ids=…).")
    if not file.is_file():
        refuse("data", "be a file that exists", f"'{path}'")
    arrays = read_arrays(file)
    missing, unknown = [key for key in KEYS[:2] if key not in arrays], sorted(set(arrays) - set(KEYS))
    if missing or unknown:
        got = "; ".join(f"{what} {', '.join(keys)}" for what, keys in (("missing key", missing), ("unknown key", unknown)) if keys)
        refuse("data", "hold the keys x, y and, if you like, ids", got)
    return arrays["x"], arrays["y"], arrays.get("ids")


def data_set(x: object, y: object, ids: object) -> DataSet:
    """Check the arrays of a data set.

    They must hold finite numbers, one target row and one id per record, and at least two records.
    """
    rows, columns = input_rows(x, "x"), target_columns(y, "y")
    require_rows_match(rows, columns)
    require_squarable(rows.numpy(), "x")
    targets, named = as_array(y, "y"), record_ids(ids, len(rows))
    hashes = {"x": arrays_sha256(as_array(x, "x")), "y": arrays_sha256(targets), "row_order": ids_sha256(named)}
    return DataSet(rows, columns, targets, named, ids is not None, hashes)


def normalized(x: torch.Tensor, how: str) -> torch.Tensor:
    """The inputs scaled as `NORMALIZATIONS` says."""
    require_choice(how, tuple(NORMALIZATIONS), "normalize")
    if how == "none":
        return x
    if how == "standardize":
        constant = x.amax(0) == x.amin(0)
        centred = x - x.mean(0)
        return torch.where(constant, 0.0, centred / torch.where(constant, 1.0, centred.square().mean(0).sqrt()))
    sizes = x.flatten(1).square().mean(1).sqrt()
    if bool((sizes == 0).any()):
        refuse("x", "hold no record of zeros for normalize='unit'", f"one at index {int((sizes == 0).int().argmax())}")
    return x / sizes.reshape(-1, *[1] * (x.ndim - 1))


def plane(x: torch.Tensor) -> tuple[Array, tuple[float, float]]:
    """Positions of the records in the plane of their first two principal components.

    The share of variance along each component is returned too.

    The sign of a component makes its largest loading positive. Without a second component, or
    variance, positions are 0 there.

    Cost: a few products with the centred inputs, of which one copy is made.
    """
    flat = x.flatten(1).numpy()
    centred = flat - flat.mean(0)
    total = float(np.einsum("nd,nd->", centred, centred))
    positions, shares = np.zeros((len(flat), 2)), [0.0, 0.0]
    if total == 0:
        return positions, (0.0, 0.0)
    if min(centred.shape) <= _DENSE:
        left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    else:
        left, sizes, right = svds(centred, k=2, v0=np.random.default_rng(0).normal(size=min(centred.shape)))
    for place, k in enumerate(np.argsort(-sizes, kind="stable")[:2]):
        sign = np.sign(right[k][np.abs(right[k]).argmax()])
        positions[:, place], shares[place] = sign * left[:, k] * sizes[k], float(sizes[k] ** 2 / total)
    return positions, (shares[0], shares[1])


def copies(x: torch.Tensor, y: Array) -> int:
    """How many records have an exact copy, input and targets, elsewhere in the data set."""
    rows = Counter(hashlib.sha256(a.tobytes() + b.tobytes()).digest() for a, b in zip(x.flatten(1).numpy(), y, strict=True))
    return sum(count for count in rows.values() if count > 1)
