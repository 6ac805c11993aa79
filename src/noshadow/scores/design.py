"""The last layer's design matrix, streamed in whitened coordinates.

Everything a linear head can see lies in the row space of G = [features, 1]. We walk it in coordinates
g′ = A g̃ in which Σ g′g′ᵀ = nI: a change of basis, exact for every score because the penalty is carried
along as λ·Π. It brings the rounding error from κ(G)² down to about κ(G), as in Cholesky-QR2, and lets
the large products run in float32.
"""

from dataclasses import dataclass

import numpy as np
import torch

from noshadow.checks import Array, refuse

RANK_TOLERANCE = 1e-13


@dataclass(frozen=True, eq=False)
class Design:
    """Whitened view of n feature rows with an optional bias column.

    Attributes:
        features: (n, p) float, the user's array, or an isometric copy with n columns when p > n.
        fit_intercept: whether a column of ones is appended (d = p + 1, else p).
        whitening: (r, d) float64, A; r is the numerical rank of G.
        penalty: (r, r) float64, Π: ‖θ‖² of the penalised weights, least over those with equal predictions.
        gram: (d, d) float64, GᵀG.
        penalised: (d,) 1 for penalised coordinates, 0 for an unpenalised bias.
        width: d before the isometric reduction.
    """

    features: Array
    fit_intercept: bool
    whitening: torch.Tensor
    penalty: torch.Tensor
    gram: torch.Tensor
    penalised: torch.Tensor
    width: int

    @property
    def rank(self) -> int:
        """Numerical rank of G, the dimension every curvature is built in."""
        return len(self.whitening)

    def __len__(self) -> int:
        return len(self.features)

    def raw(self, start: int, stop: int) -> torch.Tensor:
        """Rows of G, (b, d) float64."""
        return raw_rows(self.features, start, stop, self.fit_intercept)

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> torch.Tensor:
        """Whitened rows as columns, (r, b). Always whitened in float64, then rounded."""
        return (self.whitening @ self.raw(start, stop).T).to(dtype)


def raw_rows(features: Array, start: int, stop: int, fit_intercept: bool) -> torch.Tensor:
    """Feature rows with the bias column, float64."""
    block = torch.ones((stop - start, features.shape[1] + fit_intercept), dtype=torch.float64)
    block[:, : features.shape[1]] = torch.from_numpy(np.array(features[start:stop], dtype=np.float64))
    return block


def blocks(n: int, size: int) -> list[tuple[int, int]]:
    """Consecutive (start, stop) pairs that cover n records."""
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def block_length(numbers_per_record: int, *, low: int = 64, high: int = 32768, numbers: int = 1 << 24) -> int:
    """Records per block so that a block's temporaries stay near `numbers` numbers; a multiple of `low`, for aligned rows."""
    return min(max(numbers // max(numbers_per_record, 1) // low * low, low), high)


def whitened_design(features: Array, *, fit_intercept: bool, penalize_intercept: bool, owner: str) -> Design:
    """Build the whitened design of a head.

    With more features than records the rows are first expressed in their own span (X = RᵀQᵀ, rows of Rᵀ):
    inner products and the isotropic penalty are unchanged, so nothing is approximated.

    Cost: one pass, 2nd² flops, and an eigendecomposition of a d × d matrix, d ≤ n + 1.
    """
    n, p = features.shape
    if p + fit_intercept == 0:
        refuse(owner, "features", "have at least one column when fit_intercept=False", f"shape {features.shape}")
    if p > n:
        triangle: Array = np.asarray(np.linalg.qr(features.astype(np.float64).T, mode="r"))
        features = np.ascontiguousarray(triangle.T)
    d = features.shape[1] + fit_intercept
    gram = torch.zeros((d, d), dtype=torch.float64)
    for start, stop in blocks(n, block_length(2 * d)):
        rows = raw_rows(features, start, stop, fit_intercept)
        gram += rows.T @ rows
    penalised = torch.ones(d, dtype=torch.float64)
    if fit_intercept and not penalize_intercept:
        penalised[-1] = 0.0
    whitening, penalty = _whitening(gram, penalised, n, owner)
    return Design(features, fit_intercept, whitening, penalty, gram, penalised, p + fit_intercept)


def _whitening(gram: torch.Tensor, penalised: torch.Tensor, n: int, owner: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A (r × d) with A·gram·Aᵀ = nI, and the penalty it carries."""
    lengths = gram.diagonal().sqrt()
    if not (lengths > 0).any():
        refuse(owner, "features", "not all be zero", "a design of zeros")
    unit = torch.where(lengths > 0, lengths, torch.ones_like(lengths)) / n**0.5
    # Unit-length columns first, so that units of measurement cannot be mistaken for collinearity.
    values, vectors = torch.linalg.eigh(gram / n / unit[:, None] / unit)
    kept = values > RANK_TOLERANCE * values[-1]
    whitening = (vectors[:, kept] / values[kept].sqrt()).T / unit
    dead = vectors[:, ~kept].T / unit
    penalty = (whitening * penalised) @ whitening.T
    if len(dead):
        # Directions no record can see are free: minimise the penalty over them (Schur complement).
        cross = (whitening * penalised) @ dead.T
        own = (dead * penalised) @ dead.T
        penalty = penalty - cross @ torch.linalg.solve(own, cross.T)
    return whitening, (penalty + penalty.T) / 2
