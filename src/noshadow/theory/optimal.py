"""The most powerful test of one record, with the law of V kept whole.

A record's residual is a mixture of Gaussians over V ~ χ²_k, on both sides. The line of residuals is
cut into cells. Cells are called a member's in the order of their likelihood ratios, which is the
most powerful test that knows the cell: cutting more finely can only gain.
"""

import numpy as np
from scipy import special

from noshadow.checks import Array, named_in_errors, require_choice
from noshadow.theory.arguments import broadcast, degrees_left, gap_inputs, rates_within
from noshadow.theory.laws import STATISTICS, log_chi_square_rule

# Components whose quantiles are edges of cells, and standard deviations that they reach to.
COMPONENTS, REACH, EDGES = 15, 9.0, 240


@named_in_errors
def optimal_tradeoff(
    alpha: object,
    h_bar: object,
    error: object,
    *,
    noise_variance: object,
    n: float,
    p: float,
    statistic: str = "residual",
) -> Array:
    """False-negative rate of the most powerful attack on one record, at any number of records.

    β(α) = 1 − P_IN(R), R the region where f_IN/f_OUT is largest with P_OUT(R) = α (Neyman–Pearson).
    Without the record its residual is ε + σ√(h̄/V)·Z, with it V/(V + h̄) times that, V ~ χ²_k. Both
    densities are sums over V by the trapezoid rule of `expected_gap`.

    Args:
        alpha: false-positive rates in (0, 1), broadcast with the record arguments.
        h_bar, error, noise_variance, n, p: as in `expected_gap`, for one output.
        statistic: "residual", which has a sign, or "loss", its square, for an attacker who is told
            no more than that.

    Returns:
        β in [0, 1 − α], of the broadcast shape. It is never above that of `tradeoff` by more than
        what replacing V by its mean costs there: with few degrees of freedom the tails of the
        residual matter, where `tradeoff` has none.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.

    Exact when: as in `expected_gap`. The cells make β too large, by less than 1e-5 of the TPR
        (tested against the closed form of `tradeoff(statistic="residual")` at k = 10⁷).
    Cost: about 10 ms per record and α.
    Reference: [RET] Proposition 3.2; Neyman and Pearson 1933.

    Example:
        >>> round(float(optimal_tradeoff(0.01, 20.0, 1.0, noise_variance=1.0, n=105, p=5)), 4)
        0.9849
    """
    require_choice(statistic, STATISTICS, "statistic")
    k = degrees_left(n, p)
    a, h, e, v = broadcast(alpha=rates_within(alpha, "alpha", 1), **_records(h_bar, error, noise_variance))
    rows = zip(a.ravel(), h.ravel(), e.ravel(), v.ravel(), strict=True)
    found = [_missed(*row, k=k, statistic=statistic) for row in rows]
    return np.array(found, dtype=np.float64).reshape(a.shape)


def _records(h_bar: object, error: object, noise_variance: object) -> dict[str, Array]:
    h, e, v = gap_inputs(h_bar, error, noise_variance, 1)
    return {"h_bar": h, "error": e, "noise_variance": v}


def _missed(alpha: float, h: float, error: float, variance: float, *, k: float, statistic: str) -> float:
    if h == 0 or (variance == 0 and error == 0):
        return 1 - alpha  # one law
    if variance == 0:
        return 0.0  # the residual without the record is ε, and with it another number
    nodes, mass, _ = log_chi_square_rule(k, np.array([h]))
    spread = np.sqrt(variance * h) * np.exp(-nodes / 2)
    kept = special.expit(nodes - np.log(h))  # V/(V + h̄)
    sides = ((abs(error) * np.ones_like(nodes), spread), (kept * abs(error), kept * spread))
    edges = _edges(mass, sides)
    cells = [_cell_masses(edges, mean, deviation, mass, statistic) for mean, deviation in sides]
    return 1 - _power(alpha, *cells)


def _edges(mass: Array, sides: tuple[tuple[Array, Array], ...]) -> Array:
    """Edges of the cells: evenly spaced quantiles of components that span the law of V."""
    total = np.cumsum(mass)
    levels = special.ndtr(np.linspace(-6, 6, COMPONENTS))
    chosen = np.unique(np.searchsorted(total, levels).clip(0, len(mass) - 1))
    # Staggered, so that components that hardly differ cut the line more finely.
    step = 2 * REACH / EDGES
    steps = step * (np.arange(EDGES + 1) + np.linspace(0, 1, len(chosen), endpoint=False)[:, None]) - REACH - step
    return np.unique(np.concatenate([(mean[chosen, None] + deviation[chosen, None] * steps).ravel() for mean, deviation in sides]))


def _cell_masses(edges: Array, mean: Array, deviation: Array, mass: Array, statistic: str) -> Array:
    """Mass of a mixture of Gaussians in each cell, the two unbounded ones included."""
    if statistic == "residual":
        return _between(edges, mean, deviation, mass)
    sizes = np.unique(np.abs(edges))
    right = _between(sizes, mean, deviation, mass)[1:]
    left = _between(-sizes[::-1], mean, deviation, mass)[-2::-1]
    middle = 1 - right.sum() - left.sum()
    return np.concatenate([[max(middle, 0.0)], right + left])


def _between(edges: Array, mean: Array, deviation: Array, mass: Array) -> Array:
    """Mass left of the first edge, between edges, and right of the last, each to its own digits."""
    place = (edges[:, None] - mean) / deviation
    below, above = special.ndtr(place) @ mass, special.ndtr(-place) @ mass
    inner = np.where(below[:-1] < 0.5, np.diff(below), -np.diff(above))
    return np.concatenate([below[:1], np.maximum(inner, 0.0), above[-1:]])


def _power(alpha: float, outside: Array, inside: Array) -> float:
    """Largest IN mass of cells whose OUT mass is alpha; the last cell counts by its share."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(outside > 0, inside / outside, np.where(inside > 0, np.inf, 0.0))
    order = np.argsort(-ratio, kind="stable")
    false, true = np.cumsum(outside[order]), np.cumsum(inside[order])
    last = int(np.searchsorted(false, alpha))
    if last >= len(false):
        return 1.0
    before = (0.0, 0.0) if last == 0 else (false[last - 1], true[last - 1])
    share = (alpha - before[0]) / outside[order][last] if outside[order][last] > 0 else 1.0
    return float(min(1.0, before[1] + share * inside[order][last]))
