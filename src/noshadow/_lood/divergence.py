"""x − log(1 + x) without cancellation.

It is the variance part of a Gaussian Kullback–Leibler divergence.
"""

from typing import TypeVar

import numpy as np
import torch

from noshadow.checks import Array

T = TypeVar("T", Array, torch.Tensor)
# Within this distance of 0 the plain difference loses digits; the series needs 14 terms there to
# reach the last one.
_SERIES_WITHIN = 0.4
_TERMS = 14


def variance_excess(excess: Array) -> Array:
    """x − log(1 + x) for x > −1, to full relative precision around x = 0.

    KL(N(0, 1 + x) ‖ N(0, 1)) is half of it. With s = x/(2 + x), log(1 + x) = 2 artanh(s), hence
    x − log(1 + x) = x·s − 2s³(1/3 + s²/5 + s⁴/7 + …), whose first term is never cancelled by the
    rest.

    Args:
        excess: any shape, > −1.

    Returns:
        The same shape, ≥ 0.

    >>> f"{float(variance_excess(np.array(1e-9))):.12g}"
    '4.99999999667e-19'
    """
    x = np.asarray(excess, dtype=np.float64)
    small = np.abs(x) < _SERIES_WITHIN
    series = _series(np.where(small, x, 0.0))
    with np.errstate(invalid="ignore"):
        return np.where(small, series, np.where(np.isinf(x), x, x - np.log1p(x)))


def variance_excess_tensor(excess: torch.Tensor) -> torch.Tensor:
    """`variance_excess` on tensors, differentiable to the same precision."""
    small = excess.abs() < _SERIES_WITHIN
    series = _series(torch.where(small, excess, torch.zeros_like(excess)))
    return torch.where(small, series, excess - torch.log1p(excess))


def _series(x: T) -> T:
    s = x / (2.0 + x)
    square = s * s
    total = square * 0.0
    for k in range(_TERMS, 0, -1):
        total = total * square + 1.0 / (2 * k + 1)
    return x * s - 2.0 * s * square * total
