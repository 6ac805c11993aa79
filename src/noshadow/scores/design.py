"""The last layer's design matrix, streamed in whitened coordinates.

Everything a linear head can see lies in the row space of G = [features, 1]. We walk it in coordinates
g′ = A g̃ in which Σ g′g′ᵀ = nI: a change of basis, exact for every score because the penalty is carried
along as λ·Π. Means are taken off first when there is a bias to carry them. It brings the rounding error
from κ(G)² down to about κ(G), as in Cholesky-QR2, and lets the large products run in float32.
"""

from dataclasses import dataclass

import numpy as np
import torch

from noshadow.blocks import block_length, blocks
from noshadow.checks import Array, refuse

# Below this ratio of eigenvalues the second moments have lost too many digits: singular values are taken from a QR instead.
TRUSTED_RATIO = 1e-9


@dataclass(frozen=True, eq=False)
class Design:
    """Whitened view of n feature rows with an optional bias column.

    Attributes:
        features: (n, p) float, the user's array, or an isometric copy with n columns when p > n.
        fit_intercept: whether a column of ones is appended (d = p + 1, else p).
        shift: (d,) column means taken off before anything else when there is a bias to carry them, else 0.
        whitening: (r, d) float64, A, for shifted rows; r is the numerical rank of G.
        unwhitening: (d, r) maps a gradient in whitened coordinates back to the head's own weights.
        penalty: (r, r) float64, Π: ‖θ‖² of the penalised weights, least over those with equal predictions.
        all_penalised: whether the penalty acts on every weight, the bias too.
        width: d before the isometric reduction.
    """

    features: Array
    fit_intercept: bool
    shift: torch.Tensor
    whitening: torch.Tensor
    unwhitening: torch.Tensor
    penalty: torch.Tensor
    all_penalised: bool
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

    def shifted(self, start: int, stop: int) -> torch.Tensor:
        """Rows of G with the shift taken off, (b, d) float64."""
        return self.raw(start, stop) - self.shift

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> torch.Tensor:
        """Whitened rows as columns, (r, b). Always whitened in float64, then rounded."""
        return (self.whitening @ self.shifted(start, stop).T).to(dtype)


def raw_rows(features: Array, start: int, stop: int, fit_intercept: bool) -> torch.Tensor:
    """Feature rows with the bias column, float64."""
    block = torch.ones((stop - start, features.shape[1] + fit_intercept), dtype=torch.float64)
    block[:, : features.shape[1]] = torch.from_numpy(np.array(features[start:stop], dtype=np.float64))
    return block


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
    shift = torch.zeros(d, dtype=torch.float64)
    if fit_intercept:
        shift[:-1] = _column_means(features)
    penalised = torch.ones(d, dtype=torch.float64)
    if fit_intercept and not penalize_intercept:
        penalised[-1] = 0.0
    unit, values, vectors = _principal_directions(features, shift, fit_intercept, owner)
    whitening, unwhitening, penalty = _whitening(unit, values, vectors, shift, penalised)
    return Design(features, fit_intercept, shift, whitening, unwhitening, penalty, bool((penalised > 0).all()), p + fit_intercept)


def _column_means(features: Array) -> torch.Tensor:
    """Means to the last digits: what they miss of a constant column would pass for a feature."""
    means = torch.zeros(features.shape[1], dtype=torch.float64)
    for _ in range(2):
        left = torch.zeros_like(means)
        for start, stop in blocks(len(features), block_length(2 * features.shape[1] + 1)):
            left += (raw_rows(features, start, stop, False) - means).sum(0)
        means = means + left / len(features)
    return means


def _principal_directions(
    features: Array, shift: torch.Tensor, fit_intercept: bool, owner: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Column lengths, eigenvalues of the second moments of unit-length columns (0 below rank), and their directions.

    Unit-length columns first, so that units of measurement cannot be mistaken for collinearity.
    """
    n, d = len(features), len(shift)
    walk = blocks(n, block_length(2 * d))
    gram = torch.zeros((d, d), dtype=torch.float64)
    for start, stop in walk:
        rows = raw_rows(features, start, stop, fit_intercept) - shift
        gram += rows.T @ rows
    lengths = (gram.diagonal() / n).sqrt()
    # What rounding leaves of a constant column is not a feature.
    seen = lengths > 256 * torch.finfo(torch.float64).eps * (lengths + shift.abs())
    if not seen.any():
        refuse(owner, "features", "not all be zero", "a design of zeros")
    unit = torch.where(seen, lengths, torch.ones_like(lengths))
    values, vectors = torch.linalg.eigh(torch.where(seen[:, None] & seen, gram / n / unit[:, None] / unit, torch.zeros_like(gram)))
    count = int(seen.sum())
    if values[-count] > TRUSTED_RATIO * values[-1]:
        return unit, torch.where(torch.arange(d) >= d - count, values, torch.zeros_like(values)), vectors
    triangle = torch.zeros((0, d), dtype=torch.float64)
    for start, stop in walk:
        rows = torch.where(seen, (raw_rows(features, start, stop, fit_intercept) - shift) / unit, torch.zeros_like(unit))
        triangle = torch.linalg.qr(torch.cat([triangle, rows]), mode="r")[1]
    _, singular, right = torch.linalg.svd(triangle, full_matrices=True)
    singular = torch.cat([singular, singular.new_zeros(d - len(singular))])
    tolerance = 4 * torch.finfo(torch.float64).eps * max(n, d) * singular[0]
    return unit, torch.where(singular > tolerance, singular**2 / n, torch.zeros_like(singular)), right.T


def _whitening(
    unit: torch.Tensor, values: torch.Tensor, vectors: torch.Tensor, shift: torch.Tensor, penalised: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A (r × d) with Σ(A g̃)(A g̃)ᵀ = nI, the way back for gradients, and the penalty it carries."""
    kept = values > 0
    whitening = (vectors[:, kept] / values[kept].sqrt()).T / unit
    unwhitening = unit[:, None] * vectors[:, kept] * values[kept].sqrt()
    unwhitening = unwhitening + torch.outer(shift, unwhitening[-1])  # the shift goes back into the bias' weight
    root = penalised.sqrt()
    weights = _unshifted(whitening, shift) * root
    dead = _unshifted(vectors[:, ~kept].T / unit, shift) * root
    lengths = dead.norm(dim=1)
    dead = dead[lengths > 0] / lengths[lengths > 0, None]
    if len(dead):
        # Directions no record can see are free: the penalty is least where the weights are orthogonal to them.
        basis = torch.linalg.qr(dead.T)[0]
        for _ in range(2):  # twice is enough for orthogonality to rounding
            weights = weights - (weights @ basis) @ basis.T
    return whitening, unwhitening, weights @ weights.T


def _unshifted(directions: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """The head's own weights for weights of shifted rows: the bias takes back −shift·w."""
    out = directions.clone()
    out[:, -1] -= directions @ shift
    return out
