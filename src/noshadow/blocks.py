"""Rows in blocks: how arrays larger than the caches are walked."""

import numpy as np
import torch

from noshadow.checks import Array


def blocks(n: int, size: int) -> list[tuple[int, int]]:
    """Consecutive (start, stop) pairs that cover n records."""
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def block_length(numbers_per_record: int, *, low: int = 64, high: int = 32768, numbers: int = 1 << 24) -> int:
    """Records per block so that a block's temporaries stay near `numbers` numbers.

    The length is a multiple of `low`, for aligned rows.
    """
    return min(max(numbers // max(numbers_per_record, 1) // low * low, low), high)


def block_tensor(array: Array, start: int, stop: int) -> torch.Tensor:
    """Rows of an array as a tensor: float64, or int64 for labels."""
    rows = array[start:stop]
    return torch.from_numpy(rows.astype(np.int64 if rows.dtype.kind in "iub" else np.float64))
