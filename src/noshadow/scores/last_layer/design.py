"""The last layer's design matrix, streamed in whitened coordinates.

Everything a linear head can see lies in the row space of G = [features, 1]. We walk it in
coordinates g′ = A g̃ in which Σ g′g′ᵀ = nI: a change of basis, exact for every score because the
penalty is carried along as λ·Π. Means are taken off first when there is a bias to carry them. It
brings the rounding error from κ(G)² down to about κ(G), as in Cholesky-QR2, and lets the large
products run in float32.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from noshadow.blocks import block_length, blocks
from noshadow.checks import Array, refuse

# Below this ratio of eigenvalues the second moments have lost too many digits: singular values are
# taken from a QR instead.
TRUSTED_RATIO = 1e-9
# Means to the last digits, in two rounds: what they miss of a constant column would pass for a
# feature.
MEAN_ROUNDS = 2
# A direction whose second moment is this share of the penalty has at most this leverage, and would
# cost the others their digits.
FAINT = 1e-10
# Whitened rows that more than two passes read are kept up to this size: to make them again costs a
# pass a tenth of its time.
KEPT_BYTES = 2.5e8
Directions = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Design:
    """Whitened view of n feature rows with an optional bias column.

    Attributes:
        features: (n, p) float, the user's array, or an isometric copy with n columns when p > n.
        fit_intercept: whether a column of ones is appended (d = p + 1, else p).
        shift: (d,) column means taken off before anything else when there is a bias to carry them,
            else 0.
        whitening: (r, d) float64, A, for shifted rows; r is the numerical rank of G.
        unwhitening: (d, r) maps a gradient in whitened coordinates back to the head's own weights.
        penalty: (r, r) float64, Π: ‖θ‖² of the penalised weights, least over those with equal
            predictions.
        all_penalised: whether the penalty acts on every weight, the bias too.
        width: d before the isometric reduction.
        faint: directions that the features have and `damped_design` left out.
        kept: (r, n) float32 whitened rows, where `with_kept_rows` made them once for many passes.
    """

    features: Array
    fit_intercept: bool
    shift: torch.Tensor
    whitening: torch.Tensor
    unwhitening: torch.Tensor
    penalty: torch.Tensor
    all_penalised: bool
    width: int
    faint: int = 0
    kept: torch.Tensor | None = None

    @property
    def rank(self) -> int:
        """Numerical rank of G without directions that are too faint to count.

        Every curvature is built in this dimension.
        """
        return len(self.whitening)

    def __len__(self) -> int:
        return len(self.features)

    def raw(self, start: int, stop: int) -> torch.Tensor:
        """Rows of G, (b, d) float64."""
        return raw_rows(self.features, start, stop, self.fit_intercept)

    def shifted(self, start: int, stop: int) -> torch.Tensor:
        """Rows of G with the shift taken off, (b, d) float64."""
        return self.raw(start, stop).sub_(self.shift)

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> torch.Tensor:
        """Whitened rows as columns, (r, b). Always whitened in float64, then rounded."""
        if self.kept is not None and dtype == torch.float32:
            return self.kept[:, start:stop].contiguous()
        return (self.whitening @ self.shifted(start, stop).T).to(dtype)


def with_kept_rows(design: Design, limit: float = KEPT_BYTES) -> Design:
    """The design with its float32 rows kept, if they take at most `limit` bytes.

    If they take more, the design is returned as it is.
    """
    if 4.0 * len(design) * design.rank > limit:
        return design
    kept = torch.empty((design.rank, len(design)), dtype=torch.float32)
    for start, stop in blocks(len(design), block_length(4 * design.rank)):
        kept[:, start:stop] = design.rows(start, stop, torch.float32)
    return replace(design, kept=kept)


def of_records(design: Design, records: Array) -> Design:
    """The same coordinates over some of the records."""
    return replace(design, features=design.features[records], kept=None)


def raw_rows(features: Array, start: int, stop: int, fit_intercept: bool) -> torch.Tensor:
    """Feature rows with the bias column, float64."""
    rows = np.empty((stop - start, features.shape[1] + fit_intercept))
    rows[:, : features.shape[1]] = features[start:stop]  # cast and copied in one go
    rows[:, features.shape[1] :] = 1.0
    return torch.from_numpy(rows)


def whitened_design(features: Array, *, fit_intercept: bool, penalize_intercept: bool) -> Design:
    """Build the whitened design of a head.

    With more features than records the rows are first expressed in their own span (X = RᵀQᵀ, rows
    of Rᵀ): inner products and the isotropic penalty are unchanged, so nothing is approximated.

    Cost: one pass, 2nd² flops, and an eigendecomposition of a d × d matrix, d ≤ n + 1.
    """
    n, p = features.shape
    if p + fit_intercept == 0:
        refuse("features", "have at least one column when fit_intercept=False", f"shape {features.shape}")
    if p > n:
        triangle: Array = np.asarray(np.linalg.qr(features.astype(np.float64).T, mode="r"))
        features = np.ascontiguousarray(triangle.T)
    n, d = len(features), features.shape[1] + fit_intercept
    shift = torch.zeros(d, dtype=torch.float64)
    if fit_intercept:
        for _ in range(MEAN_ROUNDS):
            shift[:-1] += column_sums(features, shift[:-1]) / n
    gram = shifted_gram(features, shift, fit_intercept)
    unit, seen = column_lengths(gram, n, shift)
    directions = gram_directions(gram, n, unit, seen)
    if directions is None:
        directions = triangle_directions(unit_triangle(features, shift, unit, seen, fit_intercept), n)
    frame = framed(shift, unit, directions, width=p + fit_intercept, fit_intercept=fit_intercept, penalize_intercept=penalize_intercept)
    return replace(frame, features=features)


def column_sums(features: Array, centre: torch.Tensor) -> torch.Tensor:
    """Σ (row − centre) over records, (p,) float64."""
    total = torch.zeros(features.shape[1], dtype=torch.float64)
    for start, stop in blocks(len(features), block_length(2 * features.shape[1] + 1)):
        total += raw_rows(features, start, stop, False).sub_(centre).sum(0)
    return total


def shifted_gram(features: Array, shift: torch.Tensor, fit_intercept: bool) -> torch.Tensor:
    """Σ (g̃ − shift)(g̃ − shift)ᵀ over records, (d, d) float64."""
    d = len(shift)
    gram = torch.zeros((d, d), dtype=torch.float64)
    for start, stop in blocks(len(features), block_length(2 * d)):
        rows = raw_rows(features, start, stop, fit_intercept).sub_(shift)
        gram += rows.T @ rows
    return gram


def unit_triangle(features: Array, shift: torch.Tensor, unit: torch.Tensor, seen: torch.Tensor, fit_intercept: bool) -> torch.Tensor:
    """R of a QR decomposition of the shifted rows with columns of unit length, (≤ d, d)."""
    triangle = torch.zeros((0, len(shift)), dtype=torch.float64)
    for start, stop in blocks(len(features), block_length(2 * len(shift))):
        rows = torch.where(seen, (raw_rows(features, start, stop, fit_intercept) - shift) / unit, torch.zeros_like(unit))
        triangle = stacked_triangle(triangle, rows)
    return triangle


def stacked_triangle(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """R of the rows of both inputs stacked.

    Inputs may be rows or the triangles of two parts of the records.
    """
    _, triangle = torch.linalg.qr(torch.cat([first, second]), mode="r")
    return torch.as_tensor(triangle)


def column_lengths(gram: torch.Tensor, n: int, shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Root mean squares of the shifted columns, and which columns are more than rounding.

    The root mean square is replaced by 1 where there is nothing to see.

    Columns are scaled to unit length, so that units of measurement cannot be mistaken for
    collinearity.
    """
    lengths = (gram.diagonal() / n).sqrt()
    # What rounding leaves of a constant column is not a feature.
    seen = lengths > 256 * torch.finfo(torch.float64).eps * (lengths + shift.abs())
    if not seen.any():
        refuse("features", "not all be zero", "a design of zeros")
    return torch.where(seen, lengths, torch.ones_like(lengths)), seen


def gram_directions(gram: torch.Tensor, n: int, unit: torch.Tensor, seen: torch.Tensor) -> Directions | None:
    """Eigenvalues and directions of the second moments of unit-length columns.

    Eigenvalues below the rank are 0. Returns None where the results cannot be trusted.
    """
    d, count = len(unit), int(seen.sum())
    values, vectors = torch.linalg.eigh(torch.where(seen[:, None] & seen, gram / n / unit[:, None] / unit, torch.zeros_like(gram)))
    if values[-count] <= TRUSTED_RATIO * values[-1]:
        return None
    return torch.where(torch.arange(d) >= d - count, values, torch.zeros_like(values)), vectors


def triangle_directions(triangle: torch.Tensor, n: int) -> Directions:
    """Eigenvalues and directions as in `gram_directions`, from the triangle of n records.

    Small eigenvalues keep their digits, because second moments are never formed.
    """
    d = triangle.shape[1]
    _, singular, right = torch.linalg.svd(triangle, full_matrices=True)
    singular = torch.cat([singular, singular.new_zeros(d - len(singular))])
    tolerance = 4 * torch.finfo(torch.float64).eps * max(n, d) * singular[0]
    return torch.where(singular > tolerance, singular**2 / n, torch.zeros_like(singular)), right.T


def framed(
    shift: torch.Tensor, unit: torch.Tensor, directions: Directions, *, width: int, fit_intercept: bool, penalize_intercept: bool
) -> Design:
    """The whitened coordinates, as a design of no records yet."""
    penalised = torch.ones_like(shift)
    if fit_intercept and not penalize_intercept:
        penalised[-1] = 0.0
    whitening, unwhitening, penalty = _whitening(unit, *directions, shift, penalised)
    nobody = np.empty((0, len(shift) - fit_intercept))
    return Design(nobody, fit_intercept, shift, whitening, unwhitening, penalty, bool((penalised > 0).all()), width)


def damped_design(design: Design, damping: float, n: int, largest_weight: float = 1.0) -> Design:
    """The design without directions that the penalty λ reduces to nothing.

    The design itself is returned where there is no such direction.

    A unit that training has all but switched off has features of, say, 1e-13: whitened, its penalty
    λ/σ² is 1e26 beside curvatures of n, and no factorisation keeps the digits of the others. Left
    out are directions (singular vectors of the shifted features) whose second moment nσ², times the
    largest weight of a record, is below 1e-10 of λ, and σ² below 1e-10 of the largest: no leverage
    moves by more than their ratio. Where the bias is penalised the direction's own mean counts
    beside σ.

    Cost: nothing where no direction is that faint, else an SVD of a d × r matrix.
    """
    limit = FAINT * damping
    if damping == 0 or not bool((damping * design.penalty.diagonal() * FAINT > n * largest_weight).any()):
        return design
    moments = design.unwhitening - torch.outer(design.shift, design.unwhitening[-1])
    left, singular, _ = torch.linalg.svd(moments, full_matrices=True)
    singular = torch.cat([singular, singular.new_zeros(len(left) - len(singular))])
    present = torch.arange(len(left)) < design.rank
    reach = singular + (left.T @ design.shift).abs() if design.all_penalised else singular
    faint = present & (n * largest_weight * singular * reach < limit) & (singular**2 < FAINT * singular[0] ** 2)
    if not design.all_penalised:
        faint &= left[-1].abs() < 0.5  # the bias itself is free
    if not bool(faint.any()):
        return design
    values = torch.where(present & ~faint, singular**2, torch.zeros_like(singular))
    penalised = torch.ones_like(design.shift)
    if design.fit_intercept and not design.all_penalised:
        penalised[-1] = 0.0
    whitening, unwhitening, penalty = _whitening(torch.ones_like(singular), values, left, design.shift, penalised)
    return replace(design, whitening=whitening, unwhitening=unwhitening, penalty=penalty, faint=int(faint.sum()))


def _whitening(
    unit: torch.Tensor, values: torch.Tensor, vectors: torch.Tensor, shift: torch.Tensor, penalised: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A (r × d) with Σ(A g̃)(A g̃)ᵀ = nI, the way back for gradients, and the carried penalty."""
    kept = values > 0
    whitening = (vectors[:, kept] / values[kept].sqrt()).T / unit
    unwhitening = unit[:, None] * vectors[:, kept] * values[kept].sqrt()
    # the shift goes back into the bias' weight
    unwhitening = unwhitening + torch.outer(shift, unwhitening[-1])
    root = penalised.sqrt()
    weights = _unshifted(whitening, shift) * root
    dead = _unshifted(vectors[:, ~kept].T / unit, shift) * root
    lengths = dead.norm(dim=1)
    dead = dead[lengths > 0] / lengths[lengths > 0, None]
    if len(dead):
        # Directions no record can see are free: the penalty is least where the weights are
        # orthogonal to them.
        basis = torch.linalg.qr(dead.T)[0]
        for _ in range(2):  # twice is enough for orthogonality to rounding
            weights = weights - (weights @ basis) @ basis.T
    return whitening, unwhitening, weights @ weights.T


def _unshifted(directions: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """The head's own weights for weights of shifted rows: the bias takes back −shift·w."""
    out = directions.clone()
    out[:, -1] -= directions @ shift
    return out
