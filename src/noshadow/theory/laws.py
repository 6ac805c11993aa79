"""Loss laws inside and outside the training set, their quantiles and error rates.

Letters: k = n − p, r = h̄/k, c = 1/(1 + r). Under OUT the loss is σ²r·χ′²_q(δ²) with δ = ‖ε‖/(σ√r);
under IN it is c² times that. The module works with u = √(loss/(σ²r)), or w = u − δ where δ is so
large that u would swallow the digits of w.

The residual itself is N(ε, σ²r·I) under OUT and c times that under IN. Their likelihood ratio falls
with the distance of the residual from εc/(1 + c), so its test is again one of a length: of
σ√r·√χ′²_q(δ²/(1 + c)²) under OUT and cσ√r·√χ′²_q(c²δ²/(1 + c)²) under IN.
"""

from collections.abc import Callable, Iterator

import numpy as np
from scipy import special, stats
from scipy.linalg import eigh_tridiagonal

from noshadow.checks import Array, NumericalError, said

BLOCK = 1 << 20  # elements of one temporary array
GAUSS_NODES = 20
STATISTICS = ("loss", "residual")
TINY = 1e-40  # ncx2 loses its left tail below 1e-50; raising a tail to this keeps δ a lower bound
# √χ′² is 1-Lipschitz in its Gaussian vector: beyond 9 of its centre lies less than 1e-18
REACH = 9.0
UNIT_NODES, UNIT_WEIGHTS = (np.polynomial.legendre.leggauss(10)[0] + 1) / 2, np.polynomial.legendre.leggauss(10)[1] / 2


def threshold_deltas(weights: Array, growth: Array, delta: Array, drift: Array, points: int, q: int) -> Array:
    """Best threshold advantage for each e^ε in `weights`, (records, s).

    The thresholds lie on one grid over the OUT bulk and one over the IN bulk.
    """
    with np.errstate(over="ignore"):
        # √(δ² + q) − δ, which would cancel for large δ
        centre = q / (np.sqrt(delta**2 + q) + delta)
    low = np.maximum(-delta, centre - REACH)
    w = low + (centre + REACH - low) * np.linspace(0, 1, points)
    u, stretch = delta + w, 1 + growth
    bulk = _law(u, w, delta, q)
    wide = _law(u * stretch, w + (w * growth + drift), delta, q)
    narrow = _law(u / stretch, (w - drift) / stretch, delta, q)
    best = np.zeros((len(w), len(weights)))
    # thresholds u over the OUT bulk, then c·u over the IN bulk
    for member, other in ((wide, bulk), (bulk, narrow)):
        for j, weight in enumerate(weights):
            gain = np.maximum(member[0] - weight * np.maximum(other[0], TINY), other[1] - weight * np.maximum(member[1], TINY))
            best[:, j] = np.maximum(best[:, j], gain.max(1))
    return best


def error_rates(alpha: Array, growth: Array, delta: Array, drift: Array, apart: Array, q: int, statistic: str) -> tuple[Array, Array]:
    """True-positive and false-negative rate at false-positive rate alpha.

    The test calls a member whose loss is small ("loss"), or whose residual lies near the point
    where its likelihood ratio is largest ("residual"). All arrays share one shape.
    """
    a, r, d, s = alpha.ravel(), growth.ravel(), delta.ravel(), drift.ravel()
    out, inside = (d, d) if statistic == "loss" else _from_the_best_point(d, r)
    limit = _far_from(q) + 2 * np.maximum(0, -8 - special.ndtri(a))
    u, w = np.empty(a.size), np.empty(a.size)
    near = np.flatnonzero(out < limit)
    with np.errstate(over="ignore", invalid="ignore"):
        u[near] = np.exp(_near_quantile(a[near], out[near], q))
        w[near] = u[near] - out[near]
    for i in _in_blocks(out >= limit):
        w[i] = _far_quantile(a[i], out[i], q)
        u[i] = out[i] + w[i]
    detected, missed = np.empty(a.size), np.empty(a.size)
    near = np.flatnonzero(inside < limit)
    with np.errstate(over="ignore", invalid="ignore"):
        detected[near], missed[near], _ = _near_law(u[near] * (1 + r[near]), inside[near], q)
    for i in _in_blocks(inside >= limit):
        # In both tests (1 + r)·δ_out − δ_in is δ·r, the drift.
        detected[i], missed[i], _ = _far_law(w[i] + (w[i] * r[i] + s[i]), inside[i], q)
    return np.where(apart, 1.0, detected.reshape(apart.shape)), np.where(apart, 0.0, missed.reshape(apart.shape))


def _in_blocks(chosen: Array) -> Iterator[Array]:
    """Places of the chosen values, as many at a time as the far law's temporary arrays hold."""
    where, rows = np.flatnonzero(chosen), BLOCK // GAUSS_NODES
    for start in range(0, len(where), rows):
        yield where[start : start + rows]


def _from_the_best_point(delta: Array, growth: Array) -> tuple[Array, Array]:
    """Distances of both means from εc/(1 + c), each in its own deviations.

    δ/(1 + c) and cδ/(1 + c), with c = 1/(1 + r).
    """
    return delta * (1 + growth) / (2 + growth), delta / (2 + growth)


def standardised(growth: Array, error: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
    """r, δ, δ·r, and where the two laws have nothing in common.

    r = 0 where the laws coincide and, as a placeholder, where they are apart.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scaled = np.abs(error) / np.sqrt(variance)
        delta, drift = scaled / np.sqrt(growth), scaled * np.sqrt(growth)
    same = (growth == 0) | ((error == 0) & (variance == 0))
    apart = np.isinf(growth) | (np.isinf(drift) & ~same)
    plain = ~same & ~apart
    return np.where(plain, growth, 0.0), np.where(plain, delta, np.inf), np.where(plain, drift, 0.0), apart


def _near_quantile(alpha: Array, delta: Array, q: int) -> Array:
    """log u with P(√χ′²_q(δ²) ≤ u) = α."""

    def law(x: Array, i: Array) -> tuple[Array, Array, Array]:
        cdf, sf, pdf = _near_law(np.exp(x), delta[i], q)
        return cdf, sf, pdf * np.exp(x)

    # F ≤ (u²/2)^{q/2}/Γ(q/2 + 1); F ≥ e^{−δ²/2}·F_{χ²_q}; √χ′²_q ≤ √χ²_q + δ in law; 1e-9 covers
    # the rounding of the bounds
    low = np.log(2) / 2 + (np.log(alpha) + special.gammaln(q / 2 + 1)) / q
    with np.errstate(over="ignore", divide="ignore"):
        inflated = np.minimum(alpha * np.exp(delta**2 / 2), 1.0)
        high = np.log(np.minimum(_central_quantile(alpha, q) + delta, _central_quantile(inflated, q)))
    start = np.maximum(low, high)  # high is −inf where the quantile underflows
    return _quantile(law, alpha, low - 1e-9, np.maximum(start, low + delta**2 / (2 * q)) + 1e-9, start)


def _far_quantile(alpha: Array, delta: Array, q: int) -> Array:
    """w with P(√χ′²_q(δ²) − δ ≤ w) = α."""
    low = special.ndtri(alpha)  # one Gaussian coordinate is never longer than the whole vector
    high = low if q == 1 else _central_quantile(alpha, q)
    start = low + (q - 1) / (2 * delta)  # first order in 1/δ
    return _quantile(lambda x, i: _far_law(x, delta[i], q), alpha, low - 1e-9, high + 1e-9, start)


def _central_quantile(alpha: Array, q: int) -> Array:
    return np.asarray(np.sqrt(2 * special.gammaincinv(q / 2, alpha)))


def _quantile(law: Callable[[Array, Array], tuple[Array, Array, Array]], alpha: Array, low: Array, high: Array, start: Array) -> Array:
    """Find quantiles by Newton steps on the logarithm of the smaller tail.

    The bracket is halved wherever a step leaves it.

    All records walk together: brentq takes one at a time and needs no less than eight times as
    long.
    """
    x, active = np.clip(start, low, high), np.arange(len(alpha))
    low, high = low.copy(), high.copy()
    for _ in range(200):
        with np.errstate(all="ignore"):
            cdf, sf, density = law(x[active], active)
            a = alpha[active]
            lower = a < 0.5
            gap = np.where(lower, np.log(cdf / a), np.log((1 - a) / sf))
            step = gap * np.where(lower, cdf, sf) / density
        low[active] = np.where(gap < 0, x[active], low[active])
        high[active] = np.where(gap >= 0, x[active], high[active])
        moved = x[active] - step
        settled = np.abs(step) <= 1e-13 * np.maximum(1, np.abs(x[active]))
        inside = (moved > low[active]) & (moved < high[active])
        x[active] = np.where(settled | inside, moved, (low[active] + high[active]) / 2)
        active = active[~settled & (high[active] - low[active] > 1e-15 * np.maximum(1, np.abs(x[active])))]
        if not len(active):
            return x
    raise NumericalError(said(f"{len(active)} quantiles did not converge, the first at alpha {alpha[active[0]]:g}."))


def _far_from(q: int) -> float:
    return 20 + float(np.sqrt(q))


def _law(u: Array, w: Array, delta: Array, q: int) -> tuple[Array, Array]:
    """CDF and survival function of √χ′²_q(δ²) at u = δ + w.

    Each has its own small relative error.
    """
    delta = np.broadcast_to(delta, u.shape)
    cdf, sf = np.empty(u.shape), np.empty(u.shape)
    far = delta >= _far_from(q)
    cdf[far], sf[far], _ = _far_law(w[far], delta[far], q)
    cdf[~far], sf[~far], _ = _near_law(u[~far], delta[~far], q)
    return cdf, sf


def _near_law(u: Array, delta: Array, q: int) -> tuple[Array, Array, Array]:
    """CDF, survival function and density of √χ′²_q(δ²) at u, for moderate δ."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if q > 1:
            square, centre = u * u, delta**2
            cdf = stats.ncx2.cdf(square, q, centre)
            sf = 1 - cdf
            upper = cdf > 0.5
            sf[upper] = stats.ncx2.sf(square[upper], q, centre[upper])
            return cdf, sf, 2 * u * stats.ncx2.pdf(square, q, centre)
        below, above = u - delta, u + delta
        cdf = special.ndtr(below) - special.ndtr(-above)
        # there the difference cancels; integrate 2φ(δ)·cosh(δt)·e^{−t²/2} over [0, u] instead
        small = (u <= 1) & (u * delta <= 1)
        t = u[small, None] * UNIT_NODES
        cdf[small] = 2 * u[small] * _phi(delta[small]) * ((np.cosh(delta[small, None] * t) * np.exp(-(t**2) / 2)) @ UNIT_WEIGHTS)
        return cdf, special.ndtr(-below) + special.ndtr(-above), _phi(below) + _phi(above)


def _far_law(w: Array, delta: Array, q: int) -> tuple[Array, Array, Array]:
    """CDF, survival function and density of √χ′²_q(δ²) − δ at w, for δ ≥ 20 + √q.

    The relative error is below 1e-11 (tested).

    χ′²_q(δ²) = (Z + δ)² + Y with Y ~ χ²_{q−1}; Gauss–Laguerre quadrature over Y of the folded
    normal law at √(u² − Y).
    """
    y, weights = _laguerre_rule((q - 1) / 2)
    w, delta = w[:, None], delta[:, None]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        u = w + delta
        root = np.sqrt(np.maximum(u**2 - y, 0))
        inner = np.where(u**2 > y, w - y / (root + u), -delta)
        stretch = np.where(np.isinf(root), 1.0, u / root)
        outer = -inner - 2 * delta
        cdf = special.ndtr(inner) - special.ndtr(outer)
        sf = special.ndtr(-inner) + special.ndtr(outer)
        density = np.where(root > 0, (_phi(inner) + _phi(outer)) * stretch, 0.0)
    return np.minimum(cdf @ weights, 1), np.minimum(sf @ weights, 1), density @ weights


def _laguerre_rule(shape: float, size: int = GAUSS_NODES) -> tuple[Array, Array]:
    """Gauss nodes and weights for E[f(Y)], Y ~ χ² with 2·shape degrees of freedom."""
    if shape == 0:
        return np.zeros(1), np.ones(1)
    i = np.arange(size)
    nodes, vectors = eigh_tridiagonal(2 * i + shape, np.sqrt(i[1:] * (i[1:] + shape - 1)))
    return 2 * nodes, vectors[0] ** 2


def log_chi_square_rule(k: float, h_bar: Array) -> tuple[Array, Array, Array]:
    """Nodes log V and trapezoid weights for E[f(V)] and E[f(V)/V], V ~ χ²_k.

    f is bounded, and constant for V ≪ min(h̄, 1).

    x = log(V/k) has density ∝ exp((k/2)(x − eˣ + 1)); f may add up to e^{−2x}. Both ends are cut
    where e^{−42} is left, by eˣ − 1 − x ≥ x²/2 on the right and ≥ x²/(2 + 2|x|/3) on the left. For
    k ≤ 8 the left end is a pure exponential long before it is negligible: its infinite trapezoid
    sum is the geometric series folded into the first weight.
    """
    step = min(0.2, 0.6 * float(np.sqrt(2 / k)))
    if k > 8:
        c = 84 / (k - 4)
        left = np.log1p(-4 / k) - c / 3 - np.sqrt(c**2 / 9 + 2 * c)
    else:
        smallest = float(np.min(h_bar, where=h_bar > 0, initial=1.0))
        left = min(-30.0, np.log(smallest) - 17) - np.log(k)
    x = np.arange(left, np.sqrt(168 / k) + step, step)
    exponent = k / 2 * (x - np.expm1(x))
    mass, inverse = np.exp(exponent), np.exp(exponent - x) / k
    mass[0] /= -np.expm1(-k / 2 * step)
    inverse[0] /= -np.expm1(-(k / 2 - 1) * step)
    total = mass.sum()
    return x + np.log(k), mass / total, inverse / total


def _phi(x: Array) -> Array:
    return np.asarray(np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi))
