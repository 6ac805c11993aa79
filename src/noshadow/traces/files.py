"""The file of loss traces: `.npz` or `.safetensors` with the keys `loss_traces` and, when there are any, `ids`."""

import io
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from noshadow.checks import Array, InputError, numeric_array, refuse, require_same_length
from noshadow.signals import SUFFIXES, Signals, read_arrays
from noshadow.storage.private_files import write_private

KEYS = ("ids", "loss_traces")


def save_traces(path: str | Path, loss_traces: Array, ids: Array | None) -> None:
    """Write the file as `write_private` does; text ids go to safetensors as zero-padded UTF-8 rows."""
    owner = "LossTraces.save"
    arrays = {"loss_traces": loss_traces} | ({} if ids is None else {"ids": ids})
    if _suffix(path, owner) == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        content = buffer.getvalue()
    else:
        packed = {key: _text_as_bytes(value) if value.dtype.kind == "U" else value for key, value in arrays.items()}
        content = save({key: np.ascontiguousarray(value) for key, value in packed.items()})
    try:
        write_private(path, [content])
    except OSError as error:
        raise InputError(f"{owner}: path must be writable; got '{path}' ({error}). Choose another place.") from error


def load_loss_traces(path: str | Path) -> tuple[Array, Array | None]:
    """Losses (n, recordings), float64, and ids (n,) or None, from a file that `LossTraces.save` wrote; never unpickles.

    Raises:
        InputError: the file is missing, has unknown or missing keys, holds pickled objects or losses that are not finite.
    """
    owner = "load_loss_traces"
    _suffix(path, owner)
    if not Path(path).is_file():
        refuse(owner, "path", "be a file that exists", f"'{path}'")
    arrays = read_arrays(path, owner)
    unknown = sorted(set(arrays) - set(KEYS))
    if unknown or "loss_traces" not in arrays:
        got = f"unknown key {', '.join(unknown)}" if unknown else "no loss_traces"
        hint = "A file of signals may hold loss_traces itself." if any(key.startswith("train_") for key in unknown) else ""
        refuse(owner, "file", "hold the key loss_traces and at most ids", f"'{path}' with {got}", hint)
    losses: Array = numeric_array(arrays["loss_traces"], owner, "loss_traces", ndim=2).astype(np.float64)
    ids = arrays.get("ids")
    if ids is None:
        return losses, None
    if ids.dtype == np.uint8 and ids.ndim == 2:
        ids = _bytes_as_text(ids)
    if ids.ndim:
        require_same_length(owner, loss_traces=losses, ids=ids)
    return losses, Signals(None, np.zeros(len(losses)), np.zeros(len(losses)), ids).ids


def _suffix(path: str | Path, owner: str) -> str:
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        refuse(owner, "path", f"end in {' or '.join(SUFFIXES)}", f"'{path}'")
    return suffix


def _text_as_bytes(text: Array) -> Array:
    rows: Array = np.char.encode(text, "utf-8")
    return rows.view(np.uint8).reshape(len(rows), -1)


def _bytes_as_text(rows: Array) -> Array:
    try:
        text: Array = np.char.decode(np.ascontiguousarray(rows).view(f"S{rows.shape[1]}")[:, 0], "utf-8")
    except (UnicodeDecodeError, ValueError, TypeError) as error:
        raise InputError(f"load_loss_traces: ids must be UTF-8 text in rows of bytes; got {error}.") from error
    return text
