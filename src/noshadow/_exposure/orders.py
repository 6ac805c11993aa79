"""Orders of records where no size is known: free columns and levels, by the mean of their ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from noshadow._exposure.basis import normal_scores
from noshadow._exposure.result import Exposure
from noshadow._exposure.rules import FREE_ORDER
from noshadow.checks import Array
from noshadow.sizing import would_identify

# Share of the range of all values below which two are the same but for rounding.
ROUNDING = 1e-12


def order_of(score: Array, rule: str, direction: str, level: float) -> Exposure:
    """An order without sizes: no margin of a model without the record is known.

    Args:
        score: (n,) ranks the records. rule: what it is. direction, level: as in `exposure`.
    """
    nothing = np.full(len(score), np.nan)
    return Exposure(
        score=score,
        rule=rule,
        separation=nothing,
        variance=nothing,
        d_prime=nothing,
        interval=np.full((len(score), 2), np.nan),
        spread_in=nothing,
        spread_out=nothing,
        ratio_variance=nothing,
        order_only=True,
        reason=f"there are no margins of models without the record. {would_identify(len(score))}",
        level=level,
        direction=direction,
        weights={rule: 1.0},
        notes=(),
    )


def free_order(covariates: Mapping[str, Array]) -> Array | None:
    """Mean normal score (n,) of the free columns that rank records; None where there is none.

    A missing value counts as the middle.
    """
    known = [covariates[name] for name in FREE_ORDER if name in covariates]
    return mean_score(known) if known else None


def mean_score(orders: Sequence[Array]) -> Array:
    """Mean (n,) of the normal scores of several orders' ranks.

    What differs by rounding alone is tied: its order would be another one on another machine.
    """
    found: Array = np.stack([normal_scores(_told_apart(order))[0] for order in orders]).mean(axis=0, dtype=np.float64)
    return found


def _told_apart(order: Array) -> Array:
    """The order (n,) in units of ROUNDING of its range; infinite and missing values stay."""
    held = order[np.isfinite(order)]
    spread = float(np.ptp(held)) if len(held) else 0.0
    return np.round(order / (ROUNDING * spread)) if spread > 0 else order


def with_free_order(found: Exposure, covariates: Mapping[str, Array], level: Array) -> Exposure:
    """Where sizes are not identified, the separation is one of three orders that count alike.

    The others are the record's level without it and the free columns, where these are known.

    Args:
        found: ranked by the separation. covariates: by name. level: (n,) of models without the
            record; of signed residuals, in the direction of the audited model's own.
    """
    free = free_order(covariates)
    if free is None:
        return found
    orders = [found.score, level if found.direction == "either" else -level, free]
    return replace(found, score=mean_score(orders), rule="mean rank of separation, level without the record and free columns")
