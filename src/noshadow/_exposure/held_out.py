"""Margins of left-out models without a record, held against the spread that the others give it.

A rate at a small false-positive rate rests on how far margins without the record reach. The mixed
model takes them for Gaussian. A network that is sure of its mistakes has them at two ends, surely
right or surely wrong: they end before a Gaussian of their spread does, and every rate is off.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from noshadow._exposure.posterior import level_variances, posterior_of
from noshadow._exposure.spread import Spreads, with_own_squares
from noshadow._exposure.sufficient import sides_of
from noshadow.checks import Array

# How much farther their spread may say that margins reach than they do, beyond twice the standard
# error. Chosen on the calibration setups (benchmarks/results/exposure/held_out.json). Margins that
# reach farther than their spread are not refused: no setup showed that rates are off there.
FARTHER = 1.2
FPR = 0.05  # the false-positive rate at which the reach is taken
# At most, evenly spaced. Margins of one model share its offset: the offsets of a part of the models
# would count as reach, so that fewer records are judged before fewer models are left out.
MODELS, RECORDS, MARGINS = 64, 20_000, 160_000


@dataclass(frozen=True)
class Tail:
    """How far left-out margins without the record reach, over how far their spread says they do.

    Attributes:
        ratio: the quantile at 1 − FPR of the margins in units of their predicted spread, over that
            of a Gaussian; of their sizes at 1 − FPR for signed residuals. 1 for Gaussian margins.
        error: its relative standard error. margins: how many it rests on.
    """

    ratio: float
    error: float
    margins: int

    @property
    def refused(self) -> bool:
        """Whether margins end too early for rates."""
        return bool(-np.log(max(self.ratio, 1e-12)) > np.log(FARTHER) + 2 * self.error)


def tail_of(outside: Array, either: bool) -> Tail:
    """The tail of margins without the record in units of their predicted spread, (q ≥ 1,)."""
    usual = float(-ndtri(FPR / 2 if either else FPR))
    seen = float(np.quantile(np.abs(outside) if either else outside, 1 - FPR))
    density = (2 if either else 1) * float(np.exp(-(usual**2) / 2) / np.sqrt(2 * np.pi))
    error = float(np.sqrt(FPR * (1 - FPR) / len(outside))) / density / usual
    return Tail(max(seen, 0.0) / usual, error, len(outside))


def left_out_margins(rows: Array, inside: Array, expected: Array, slopes: Array, spreads: Spreads, scales: Array | None) -> Array:
    """Margins (q,) of left-out models without the record, in units of what the others predict.

    Each model is left out of every record's posterior in turn. The others give the OUT level a with
    variance v, and the margin of a further model varies around it by σ²_out + v. What all records
    share (coefficients, variances, how spreads follow levels) stays as it was fitted with all
    models: it rests on many records.

    Args:
        rows, inside: (K, n) margins and membership. expected: (2, n) f and g. slopes: T. spreads,
            scales: of all records.

    Cost: O(K · min(nK, 160,000)).
    """
    models, count = _evenly(len(rows), MODELS), rows.shape[1]
    chosen = _evenly(count, min(RECORDS, MARGINS // len(models)))
    rows, inside, expected = rows[:, chosen], inside[:, chosen], expected[:, chosen]
    spreads = Spreads(spreads.level[:, chosen], spreads.record[:, chosen], spreads.free[:, chosen], spreads.prior, spreads.slopes)
    scales = None if scales is None else scales[:, chosen]
    found = []
    for model in models:
        others = np.arange(len(rows)) != model
        sides = sides_of(rows[others], inside[others])
        record = with_own_squares(spreads, sides).record
        level = posterior_of(sides, expected, slopes, record, scales).levels[0]
        width = np.sqrt(record[0] + level_variances(sides.counts, slopes, record, scales)[0])
        # Without any other margin of a record the prior alone would be judged.
        asked = ~inside[model] & ~np.isnan(rows[model]) & (sides.counts.sum(0) > 0)
        found.append(((rows[model] - level) / width)[asked])
    return np.concatenate(found)


def _evenly(count: int, most: int) -> Array:
    """Numbers below `count`, all of them or `most` evenly spaced ones."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(int)
