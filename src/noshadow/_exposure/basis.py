"""Covariates of records as a small basis of functions that needs no choice of scale."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from noshadow.checks import Array

BLOCK = 1 << 15
HINGES = (-1.0, 1.0)
# Below this many records per column only the straight terms are kept: squares and hinges would be
# fitted to noise.
RECORDS_PER_COLUMN = 20


@dataclass(frozen=True, eq=False)
class Basis:
    """Functions of the covariates, made block by block.

    A constant comes first, then the terms of each covariate.

    Attributes:
        scores: (n, c) float32 normal scores of the covariates' ranks; 0 where a value is missing.
        missing: (n, k) indicators of covariates with missing values, in the order of `missing_of`.
        names: names of the c covariates. missing_of: numbers of those that have an indicator.
        straight: only the scores themselves, without squares and hinges.
        left_out: names of covariates that do not vary.
    """

    scores: Array
    missing: Array
    names: tuple[str, ...]
    missing_of: tuple[int, ...]
    straight: bool
    left_out: tuple[str, ...]

    @property
    def width(self) -> int:
        """Number of columns, the constant included."""
        return 1 + len(self.names) * (1 if self.straight else 2 + len(HINGES)) + len(self.missing_of)

    @property
    def owners(self) -> Array:
        """(width,) number of the covariate that each column belongs to; −1 for the constant."""
        terms = 1 if self.straight else 2 + len(HINGES)
        return np.concatenate([[-1], np.tile(np.arange(len(self.names)), terms), self.missing_of]).astype(np.int64)

    def rows(self, part: slice | Array) -> Array:
        """(b, width) float64 values of some records."""
        z = self.scores[part].astype(np.float64)
        terms = [np.ones((len(z), 1)), z]
        if not self.straight:
            terms += [z**2 - 1, *(np.maximum(np.sign(knot) * (z - knot), 0.0) for knot in HINGES)]
        return np.hstack([*terms, self.missing[part]])

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """All records in blocks: (rows, values)."""
        for start in range(0, len(self.scores), BLOCK):
            part = slice(start, min(start + BLOCK, len(self.scores)))
            yield part, self.rows(part)


def basis_of(covariates: Mapping[str, Array], n: int) -> Basis:
    """The basis of n records.

    Each covariate gives its normal score z, z² − 1, hinges beyond ±1, and whether it is missing.

    z = Φ⁻¹((rank − ½)/n) with mean ranks for ties needs no choice of transform and takes
    infinities. Columns that do not vary are left out. Cost: O(cn log n).
    """
    kept: list[str] = []
    dull: list[str] = []
    flagged: list[int] = []
    columns, flags = [], []
    for name, values in covariates.items():
        scores, absent = normal_scores(values)
        if not scores.any() and not (0 < absent.sum() < n):
            dull.append(name)
            continue
        if absent.any():
            flagged.append(len(kept))
            flags.append(absent - absent.mean())
        kept.append(name)
        columns.append(scores)
    scored = np.column_stack(columns) if columns else np.empty((n, 0), dtype=np.float32)
    missing = np.column_stack(flags) if flags else np.empty((n, 0))
    many = 1 + len(kept) * (2 + len(HINGES))
    return Basis(scored, missing, tuple(kept), tuple(flagged), n < RECORDS_PER_COLUMN * many, tuple(dull))


def normal_scores(values: Array) -> tuple[Array, Array]:
    """Normal scores of ranks (n,) float32, and which values are missing.

    The score is 0 where a value is missing or where nothing varies.
    """
    absent = np.isnan(values)
    present = values[~absent]
    scores = np.zeros(len(values), dtype=np.float32)
    if len(present) and present.min() < present.max():
        _, place, counts = np.unique(present, return_inverse=True, return_counts=True)
        middle = np.cumsum(counts) - (counts - 1) / 2.0
        scores[~absent] = ndtri((middle - 0.5) / len(present))[place.reshape(-1)]
    return scores, absent


def clipped_scores(levels: Array, clip: float) -> Array:
    """Normal scores (k, n) of each row's ranks, clipped at ± clip.

    Ranks, because a few records with margins far from all others would set the scale of a standard
    deviation.
    """
    return np.clip(np.array([normal_scores(row)[0] for row in levels], dtype=np.float64), -clip, clip)
