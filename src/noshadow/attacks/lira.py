"""LiRA: the likelihood-ratio attack on a record's statistic.

It compares models trained with and without the record.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import log_ndtr, ndtr

from noshadow.attacks.inputs import doubles, flags, queries_first, require_models_on_side, side_counts, signal_array
from noshadow.attacks.moments import Side, require_spread, resolved_variance, side_moments, spreads, without_model
from noshadow.checks import Array, NumericalError, advice, named_in_errors, refuse, require_choice, require_number, said

VARIANTS = ("online", "offline")
VARIANCES = ("auto", "record", "global")
CENTERS = ("mean", "median")
TAILS = ("cdf", "logcdf", "pdf")
HALF_LOG_TWO_PI = 0.5 * np.log(2 * np.pi)


@named_in_errors
def lira_scores(
    target: object,
    reference: object,
    membership: object,
    *,
    variant: str = "online",
    variance: str = "auto",
    center: str = "mean",
    tail: str = "cdf",
    floor: float = 0.0,
) -> Array:
    """LiRA score of every record.

    It says how much better the record's statistic fits the models trained on it than the others.

    Gaussians are fitted to the statistic φ of a record over its IN and its OUT reference models.
    Online: Λ = Σ_q [log N(φ_q; μ_in, s_in) − log N(φ_q; μ_out, s_out)], summed over queries (the
    mean over queries ranks alike). Offline, from OUT models alone, with z_q = (φ_q − μ_out)/s_out:
    "cdf" Π_q Φ(z_q) (one-sided, the paper's); "logcdf" its logarithm; "pdf" −Σ_q log N(φ_q; μ_out,
    s_out) (two-sided, the reference code's: also high when φ lies below the OUT models).
    Standard deviations have ddof = 0 and are about the mean, whatever the centre.

    Args:
        target: (n,) or (n, q) statistic of the records under the attacked model, in the offline
            tails "cdf" and "logcdf" larger = more member-like. For classifiers φ = log p_y − log
            Σ_{c≠y} p_c.
        reference: (r, n) or (r, n, q) the same under r reference models, the attacked one not among
            them; a memory map is read in blocks.
        membership: (r, n) boolean, True = that model was trained on that record.
        variant: "online" or "offline"; offline never looks at IN models.
        variance: "record", each record's own; "global", one for each side and query, pooled within
            records: s² = Σ_i Σ_t (x_ti − mean_i)² / Σ_i count_i, without the spread between
                records; "auto", global when r < 64.
        center: "mean" or "median".
        tail: offline score; "cdf" is 1 to the last digit from about z = 8.3 on and ties there,
            "logcdf" is not.
        floor: least standard deviation, ≥ 0, in units of φ; smaller ones are raised to it.

    Returns:
        (n,) float64, larger = more member-like: log-ratios in nats, "cdf" in [0, 1], "logcdf" ≤ 0,
        "pdf" in nats.

    Raises:
        InputError: arrays that do not fit together or are not finite, membership that is not
            boolean, a record with fewer than 2 models on a side that is used, or a standard
            deviation of 0.
        NumericalError: scores beyond float64.

    Exact when: the statistic is Gaussian on each side; as arithmetic, always.
    Approximates: the likelihood-ratio test, by Gaussians fitted to few models; queries are taken as
        independent.
    Cost: O(rnq), O(log r) more for medians; memory O(nq) beside the input.
    Reference: Carlini et al. 2022 (Algorithm 1 and its offline variant).

    Example:
        >>> reference = np.array([[2.0], [4.0], [0.0], [-2.0]])
        >>> seen = np.array([[True], [True], [False], [False]])
        >>> lira_scores([3.0], reference, seen, variance="record")
        array([8.])
    """
    require_lira_choices(variant, variance, center, tail)
    least_spread = require_number(floor, "floor", low=0)
    signals, member = reference_arrays(reference, membership)
    values = _target_array(target, signals)
    chosen = resolved_variance(variance, len(member))
    counts = side_counts(member)
    online = variant == "online"
    for side, count in zip(("IN", "OUT"), counts, strict=True):
        if online or side == "OUT":
            hint = f"Pass {advice('variant', 'offline')}, which needs no IN model." if side == "IN" else ""
            require_models_on_side(count, 2, side, hint)
    sides = side_moments(signals, member, sides=(True, False) if online else (False,), median=center == "median")
    names = ("their IN models", "their OUT models") if online else ("their OUT models",)
    return scores_given_sides(values, sides, names, variance=chosen, tail=tail, floor=least_spread)


def require_lira_choices(variant: str, variance: str, center: str, tail: str) -> None:
    """Each named choice is one of its list."""
    require_choice(variant, VARIANTS, "variant")
    require_choice(variance, VARIANCES, "variance")
    require_choice(center, CENTERS, "center")
    require_choice(tail, TAILS, "tail")


def reference_arrays(reference: object, membership: object, *, ndim: tuple[int, ...] = (2, 3)) -> tuple[Array, Array]:
    """Signals as a view (q, r, n) and membership (r, n), checked."""
    signals = signal_array(reference, "reference", ndim=ndim)
    return queries_first(signals, trailing=2), flags(membership, "membership", signals.shape[:2], "reference")


def model_lira_scores(
    signals: Array, membership: Array, sides: list[Side], model: int, *, variant: str, variance: str, tail: str, floor: float
) -> Array:
    """LiRA scores (n,) of one reference model attacked with the others.

    Args:
        signals: (q, r, n). membership: (r, n). sides: [IN, OUT] moments over all r models.
        model: the attacked one, taken out of the moments in closed form.

    Cost: O(qn).
    """
    used = (0, 1) if variant == "online" else (1,)
    rest = [without_model(sides[k], signals, membership, model, inside=k == 0) for k in used]
    names = [f"the {'IN' if k == 0 else 'OUT'} models other than model {model}" for k in used]
    return scores_given_sides(doubles(signals[:, model]), rest, names, variance=variance, tail=tail, floor=floor)


def scores_given_sides(values: Array, sides: list[Side], names: Sequence[str], *, variance: str, tail: str, floor: float) -> Array:
    """Scores (n,) of values (q, n): online from two sides (IN, OUT), offline from one (OUT)."""
    widths = [spreads(side, variance, floor) for side in sides]
    for width, name in zip(widths, names, strict=True):
        require_spread(width, name)
    with np.errstate(over="ignore", invalid="ignore"):
        standard = [(values - side.center) / width for side, width in zip(sides, widths, strict=True)]
        if len(sides) == 2:
            scores = 0.5 * (standard[1] ** 2 - standard[0] ** 2) + np.log(widths[1] / widths[0])
        elif tail == "pdf":
            scores = 0.5 * standard[0] ** 2 + np.log(widths[0]) + HALF_LOG_TWO_PI
        else:
            scores = log_ndtr(standard[0]) if tail == "logcdf" else ndtr(standard[0])
    total: Array = scores.prod(0) if len(sides) == 1 and tail == "cdf" else scores.sum(0)
    finite = np.isfinite(total)
    if not finite.all():
        raise NumericalError(
            said(
                f"{int((~finite).sum())} scores are beyond float64, the first at index {int(finite.argmin())}: "
                f"the statistic lies too many standard deviations away. Pass {advice('floor', ...)} or {advice('variance', 'global')}."
            )
        )
    return total


def _target_array(target: object, signals: Array) -> Array:
    q, _, n = signals.shape
    values = signal_array(target, "target", ndim=(1, 2))
    if queries_first(values, trailing=1).shape != (q, n):
        expected = f"({n},)" if q == 1 else f"({n}, {q})"
        refuse("target", f"have the records and queries of reference, shape {expected}", f"shape {values.shape}")
    return doubles(queries_first(values, trailing=1))
