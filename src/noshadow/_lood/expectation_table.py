"""Costly Gaussian expectations of many pairs at once, interpolated between a few exact ones.

As a function of the angle θ between two records, and of the logarithm of their standard deviations
s, t, E[φ(u)φ(v)]/(nₛnₜ) is analytic, nₛ = √(s² + s₀²) the size of φ(u), divided by √(1 + s²) when φ
is bounded. Products of Chebyshev polynomials in the three then find it to ten digits from a few
thousand values. About ten combinations of those in the deviations are enough, so a kernel costs one
thin matrix product and a fused multiply–add for each polynomial in θ.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import fft
from torch import Tensor

from noshadow._lood.activations import Activation
from noshadow.checks import Array

# Below s₀ the scale of the standard deviations is linear, so that records of variance zero have a
# place.
_LINEAR_BELOW = 0.03
_TOLERANCE = 1e-11
_DROPPED = 1e-12
_FIRST_SIZES = (6, 24)
_LEAST_HALF_WIDTH = 1e-3
# Pairs per tabulated value from which a table pays.
_PAIRS_PER_VALUE = 4


@dataclass(frozen=True, eq=False)
class ExpectationTable:
    """Chebyshev coefficients of one activation's expectation over a range of variances.

    Attributes:
        coefficients: (angles, r, r), of products of r functions of a deviation.
        functions: (deviations, r), their Chebyshev coefficients.
        centre, half_width: the range of asinh(s/s₀).
        bounded: whether the activation is.
    """

    coefficients: Tensor
    functions: Tensor
    centre: float
    half_width: float
    bounded: bool

    def value(self, p: Tensor, q: Tensor, c: Tensor) -> Tensor:
        """E[φ(u)φ(v)] of shape (…, i, j) for variances within the range of the table.

        The variances are p (…, i) and q (…, j), the covariances c (…, i, j).
        """
        rows, columns = (self._basis(v).flatten(0, -3) if v.ndim > 1 else self._basis(v)[None] for v in (p, q))
        x = _angle(p[..., :, None], q[..., None, :], c).mul_(2 / math.pi).sub_(1).reshape(len(rows), rows.shape[1], columns.shape[1])
        coefficients = self.coefficients.to(x.device)
        twice, across = 2 * x, columns.transpose(1, 2)
        older, newer = torch.zeros_like(x), torch.zeros_like(x)
        for coefficient in coefficients[1:].flip(0):  # Clenshaw's recurrence in the angle
            older.baddbmm_(rows @ coefficient, across, beta=-1).addcmul_(twice, newer)
            older, newer = newer, older
        return older.baddbmm_(rows @ coefficients[0], across, beta=-1).addcmul_(x, newer).reshape(c.shape)

    def _basis(self, variance: Tensor) -> Tensor:
        place = (torch.asinh(variance.sqrt() / _LINEAR_BELOW) - self.centre) / self.half_width
        order = torch.arange(len(self.functions), dtype=variance.dtype, device=variance.device)
        chebyshev = torch.cos(torch.acos(place.clamp(-1, 1))[..., None] * order)
        return chebyshev @ self.functions.to(variance.device) * _size(variance, self.bounded)[..., None]


def expectation_table(activation: Activation, smallest: float, largest: float, pairs: int) -> ExpectationTable | None:
    """A table for variances from `smallest` to `largest`, or None if it does not pay.

    It does not pay when `pairs` are too few for a table that is accurate.

    Grown in each direction until the last coefficients are below 1e-11 of the largest, which bounds
    the error of the expectation by about 1e-10·nₛnₜ.

    Cost: a few thousand values for records of like size, 10⁵ for variances from 0 to 10³.
    """
    low, high = (math.asinh(math.sqrt(v) / _LINEAR_BELOW) for v in (smallest, largest))
    centre, half_width = (low + high) / 2, max((high - low) / 2, _LEAST_HALF_WIDTH)
    deviations, angles = _FIRST_SIZES
    while deviations**2 * angles * _PAIRS_PER_VALUE <= pairs:
        coefficients = _coefficients(activation, centre, half_width, deviations, angles)
        size = np.abs(coefficients)
        angles_done = size[-2:].max() <= _TOLERANCE * size.max()
        deviations_done = size[:, -2:].max() <= _TOLERANCE * size.max()
        if angles_done and deviations_done:
            return ExpectationTable(*_compressed(torch.from_numpy(coefficients)), centre, half_width, activation.bounded)
        angles += 0 if angles_done else angles // 2
        deviations += 0 if deviations_done else deviations // 2
    return None


def _coefficients(activation: Activation, centre: float, half_width: float, deviations: int, angles: int) -> Array:
    place = np.cos(math.pi * (np.arange(deviations) + 0.5) / deviations)
    s = _LINEAR_BELOW * np.abs(np.sinh(centre + half_width * place))
    cosine = np.cos(math.pi / 2 * (1 + np.cos(math.pi * (np.arange(angles) + 0.5) / angles)))
    variance = torch.from_numpy(s**2)
    p, q = variance[None, :, None], variance[None, None, :]
    c = torch.from_numpy(cosine)[:, None, None] * (p * q).sqrt()
    size = _size(variance, activation.bounded)
    values = activation.value(p, q, c) / (size[:, None] * size)
    coefficients: Array = fft.dctn(values.numpy(), type=2) / (angles * deviations**2)
    coefficients[0] /= 2
    coefficients[:, 0] /= 2
    coefficients[:, :, 0] /= 2
    return coefficients


def _compressed(coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """The same table in terms of the few combinations of Chebyshev polynomials it needs.

    The combinations are taken in both deviations.
    """
    vectors, values, _ = torch.linalg.svd(coefficients.permute(1, 0, 2).flatten(1), full_matrices=False)
    functions = vectors[:, values > _DROPPED * values[0]]
    return functions.T @ coefficients @ functions, functions


def _size(variance: Tensor, bounded: bool) -> Tensor:
    size = variance + _LINEAR_BELOW**2
    return (size / (1 + variance) if bounded else size).sqrt()


def _angle(p: Tensor, q: Tensor, c: Tensor) -> Tensor:
    scale = (p * q).sqrt()
    c = torch.clamp(c, -scale, scale)
    return torch.atan2((scale - c).mul_(scale + c).sqrt_(), c)
