"""Text as rows of bytes, for formats that hold numbers only.

A row is the UTF-8 of its text, padded with zero bytes to one length.
"""

import numpy as np

from noshadow.checks import Array


def text_as_rows(text: Array) -> Array:
    """(n,) text as (n, length) bytes, uint8; length ≥ 1 is that of the longest.

    Raises:
        ValueError: text that UTF-8 cannot hold.
    """
    encoded: Array = np.char.encode(text, "utf-8")
    # NumPy gives no text at all a length of 0, and a file one of at least 1.
    rows: Array = encoded.astype(f"S{max(encoded.itemsize, 1)}").view(np.uint8)
    return rows.reshape(len(text), -1) if len(text) else rows.reshape(0, 1)


def rows_as_text(rows: Array) -> Array:
    """(n, length) bytes as (n,) text, without the zero bytes at its end.

    Raises:
        ValueError: bytes that are not UTF-8, or rows without a byte.
    """
    if not rows.shape[1]:
        raise ValueError(f"{len(rows)} rows without a byte")
    text: Array = np.char.decode(np.ascontiguousarray(rows).view(f"S{rows.shape[1]}")[:, 0], "utf-8")
    return text


def is_rows_of_text(array: Array) -> bool:
    """Whether an array has the form that `text_as_rows` gives."""
    return array.dtype == np.uint8 and array.ndim == 2
