"""Read and write the file of loss traces.

It is `.npz` or `.safetensors` with the key `loss_traces` and, when there are any, `ids` and
`test_loss_traces`.
"""

from pathlib import Path

import numpy as np

from noshadow.checks import Array, numeric_array, refuse, require_same_length
from noshadow.signals import Signals
from noshadow.storage.array_files import read_arrays, read_text, require_suffix, write_arrays

KEYS = ("ids", "loss_traces", "test_loss_traces")
_OWNER = "load_loss_traces"


def save_traces(path: str | Path, loss_traces: Array, ids: Array | None, test_loss_traces: Array | None) -> None:
    """Write the file of losses (n, recordings) and, when there are any, ids (n,).

    Losses of t unseen records (t, recordings) go with them. It is written as `write_arrays` does.
    """
    optional = {"ids": ids, "test_loss_traces": test_loss_traces}
    held = {name: array for name, array in optional.items() if array is not None}
    write_arrays(path, {"loss_traces": loss_traces} | held, "LossTraces.save")


def load_loss_traces(path: str | Path) -> tuple[Array, Array | None]:
    """Read losses (n, recordings), float64, and ids (n,) or None.

    The file is one that `LossTraces.save` wrote. Nothing is ever unpickled.

    Raises:
        InputError: the file is missing, has unknown or missing keys, holds pickled objects or
            losses that are not finite.
    """
    return read_traces(path)[:2]


def read_traces(path: str | Path) -> tuple[Array, Array | None, Array | None]:
    """Read what `load_loss_traces` does, and losses (t, recordings) of unseen records or None.

    Raises:
        InputError: as `load_loss_traces`, or another number of recordings of unseen records.
    """
    require_suffix(path, _OWNER)
    if not Path(path).is_file():
        refuse(_OWNER, "path", "be a file that exists", f"'{path}'")
    arrays = read_arrays(path, _OWNER)
    unknown = sorted(set(arrays) - set(KEYS))
    if unknown or "loss_traces" not in arrays:
        got = f"unknown key {', '.join(unknown)}" if unknown else "no loss_traces"
        hint = "A file of signals may hold loss_traces itself." if any(key.startswith("train_") for key in unknown) else ""
        refuse(_OWNER, "file", "hold the key loss_traces and at most ids and test_loss_traces", f"'{path}' with {got}", hint)
    losses: Array = numeric_array(arrays["loss_traces"], _OWNER, "loss_traces", ndim=2).astype(np.float64)
    return losses, _ids(arrays.get("ids"), losses), checked_test_traces(arrays.get("test_loss_traces"), losses, _OWNER)


def checked_test_traces(test_losses: object, losses: Array, owner: str) -> Array | None:
    """Losses of unseen records, float64 (t, recordings), as many recordings as there are of losses.

    None stays None.
    """
    if test_losses is None:
        return None
    found: Array = numeric_array(test_losses, owner, "test_loss_traces", ndim=2).astype(np.float64)
    if found.shape[1] != losses.shape[1] or len(found) == 0:
        rule = f"have one row per unseen record and the {losses.shape[1]} recordings of loss_traces"
        refuse(owner, "test_loss_traces", rule, f"shape {found.shape}")
    return found


def _ids(ids: Array | None, losses: Array) -> Array | None:
    if ids is None:
        return None
    ids = read_text(ids, _OWNER, "ids")
    if ids.ndim:
        require_same_length(_OWNER, loss_traces=losses, ids=ids)
    return Signals(None, np.zeros(len(losses)), np.zeros(len(losses)), ids).ids
