"""Forms over pairs of rows, each product one matrix multiplication over records.

`vech` order throughout: the upper triangle row by row, (0,0), (0,1) … (0,d−1), (1,1) ….
Rows are held as (row, record).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

_PANEL_ROWS = 512
# Rows that start on 64-byte boundaries run a third faster through the BLAS: 16 float32 numbers.
_ALIGNED = 16


def vech_offsets(d: int) -> list[int]:
    """Where row i of the upper triangle starts in vech order; the last entry is d(d+1)/2."""
    return [i * d - i * (i - 1) // 2 for i in range(d + 1)]


def pair_products(rows: torch.Tensor, *, strict: bool = False) -> torch.Tensor:
    """Products of all pairs of rows, (d, b) → (d(d+1)/2, b) in vech order.

    `strict` leaves out squares.
    """
    d, b = rows.shape
    out = rows.new_empty((d * (d - 1) // 2 if strict else d * (d + 1) // 2, b))
    start = 0
    for i in range(d):
        partners = rows[i + 1 :] if strict else rows[i:]
        torch.mul(rows[i], partners, out=out[start : start + len(partners)])
        start += len(partners)
    return out


def pair_gram(parts: Iterable[tuple[torch.Tensor, torch.Tensor]], k: int, d: int) -> torch.Tensor:
    """Σ_b weights[:, b] · vech(rows_b rows_bᵀ)ᵀ over parts of the records, (k, d(d+1)/2) float64.

    Args:
        parts: pairs of weights (k, b) and rows (d, b) of one dtype, in which each part is
            multiplied; parts are added up in float64.

    Cost: k·d²·b flops up to the panel's corner. Whichever of the two sides is smaller gets
        multiplied out, so the work beside the matrix product is O(min(k, d)·d·b). Memory: twice the
        result.
    """
    if k >= d:
        total = torch.zeros((k, d * (d + 1) // 2), dtype=torch.float64)
        for weights, rows in parts:
            products = pair_products(rows)
            total += _aligned_product(weights, products)[:, : len(products)]
        return total
    # Whole panels are added up, below their diagonal too, and taken apart once: a row at a time
    # costs as much as the product.
    panels = _panels(d, k)
    sums = [torch.zeros(((high - low) * k, _aligned(d - low)), dtype=torch.float64) for low, high in panels]
    for weights, rows in parts:
        for (low, high), held in zip(panels, sums, strict=True):
            held += _aligned_product((rows[low:high, None, :] * weights).flatten(0, 1), rows[low:])
    offsets, total = vech_offsets(d), torch.empty((k, d * (d + 1) // 2), dtype=torch.float64)
    for low, high in panels:
        panel = sums.pop(0).view(high - low, k, -1)
        for i in range(low, high):
            total[:, offsets[i] : offsets[i + 1]] = panel[i - low, :, i - low : d - low]
    return total


def _panels(d: int, k: int) -> list[tuple[int, int]]:
    """Runs of rows whose products with k weights fill about `_PANEL_ROWS` rows of one matrix."""
    panel = max(1, _PANEL_ROWS // k)
    return [(low, min(low + panel, d)) for low in range(0, d, panel)]


def _aligned(length: int) -> int:
    """The next multiple of the alignment."""
    return length + -length % _ALIGNED


def _aligned_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left·rightᵀ, (p, b)·(b, q) → (p, q′), with q′ ≥ q a multiple of the alignment.

    Columns past q are zero.
    """
    short = _aligned(len(right)) - len(right)
    padded = torch.cat([right, right.new_zeros((short, right.shape[1]))]) if short else right
    return left @ padded.T


@dataclass(frozen=True, eq=False)
class PairForms:
    """Quadratic forms over d coordinates, laid out for fast evaluation on blocks of records.

    There are `count` = k forms.

    `dense` holds (k, d(d+1)/2) vech coefficients when k ≥ d; otherwise `panels` holds, for each run
    of rows, the coefficients as one matrix.
    """

    count: int
    dense: torch.Tensor | None
    panels: Sequence[tuple[int, int, torch.Tensor]]


def pair_forms(coefficients: torch.Tensor, d: int) -> PairForms:
    """Lay out forms given by vech coefficients (k, d(d+1)/2).

    Off-diagonal entries are already doubled.
    """
    k = len(coefficients)
    if k >= d:
        return PairForms(k, coefficients, ())
    offsets = vech_offsets(d)
    panels = []
    for low, high in _panels(d, k):
        block = coefficients.new_zeros((high - low, k, d - low))
        for i in range(low, high):
            block[i - low, :, i - low :] = coefficients[:, offsets[i] : offsets[i + 1]]
        panels.append((low, high, block.flatten(0, 1)))
    return PairForms(k, None, panels)


def pair_form_values(forms: PairForms, rows: torch.Tensor) -> torch.Tensor:
    """Values (k, b) of the forms at the columns of `rows` (d, b)."""
    if forms.dense is not None:
        return forms.dense @ pair_products(rows)
    values = rows.new_zeros((forms.count, rows.shape[1]))
    for low, high, block in forms.panels:
        partial = (block @ rows[low:]).view(high - low, *values.shape)
        for i in range(low, high):
            values.addcmul_(partial[i - low], rows[i])  # one read of the product, no write
    return values
