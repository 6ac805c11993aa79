"""Read and write the file of loss traces.

It is `.npz` or `.safetensors` with the keys `loss_traces` and, when there are any, `ids`.
"""

from pathlib import Path

import numpy as np

from noshadow.checks import Array, named_in_errors, numeric_array, refuse, require_same_length
from noshadow.signals import Signals
from noshadow.storage.array_files import read_arrays, read_text, require_suffix, write_arrays

KEYS = ("ids", "loss_traces")


def save_traces(path: str | Path, loss_traces: Array, ids: Array | None) -> None:
    """Write the file of losses (n, recordings) and, when there are any, ids (n,).

    It is written as `write_arrays` does.
    """
    write_arrays(path, {"loss_traces": loss_traces} | ({} if ids is None else {"ids": ids}))


@named_in_errors
def load_loss_traces(path: str | Path) -> tuple[Array, Array | None]:
    """Read losses (n, recordings), float64, and ids (n,) or None.

    The file is one that `LossTraces.save` wrote. Nothing is ever unpickled.

    Raises:
        InputError: the file is missing, has unknown or missing keys, holds pickled objects or
            losses that are not finite.
    """
    require_suffix(path)
    if not Path(path).is_file():
        refuse("path", "be a file that exists", f"'{path}'")
    arrays = read_arrays(path)
    unknown = sorted(set(arrays) - set(KEYS))
    if unknown or "loss_traces" not in arrays:
        got = f"unknown key {', '.join(unknown)}" if unknown else "no loss_traces"
        hint = "A file of signals may hold loss_traces itself." if any(key.startswith("train_") for key in unknown) else ""
        refuse("file", "hold the key loss_traces and at most ids", f"'{path}' with {got}", hint)
    losses: Array = numeric_array(arrays["loss_traces"], "loss_traces", ndim=2).astype(np.float64)
    ids = arrays.get("ids")
    if ids is None:
        return losses, None
    ids = read_text(ids, "ids")
    if ids.ndim:
        require_same_length(loss_traces=losses, ids=ids)
    return losses, Signals(None, np.zeros(len(losses)), np.zeros(len(losses)), ids).ids
