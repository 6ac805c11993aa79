"""The Gaussian linear model: expected gaps, trade-off curves, per-record detection rates and (ε, δ) lower bounds.

Letters: k = n − p, r = h̄/k, c = 1/(1 + r). Under OUT the loss is σ²r·χ′²_q(δ²) with δ = ‖ε‖/(σ√r); under IN it is c² times that.
The module works with u = √(loss/(σ²r)), or w = u − δ where δ is so large that u would swallow the digits of w.
"""

from collections.abc import Callable

import numpy as np
from scipy import special, stats
from scipy.linalg import eigh_tridiagonal

from noshadow.checks import Array, NotApplicable, NumericalError, as_array, numeric_array, refuse, require_number

BLOCK = 1 << 20  # elements of one temporary array
GAUSS_NODES = 20
TINY = 1e-40  # ncx2 loses its left tail below 1e-50; raising a tail to this keeps δ a lower bound
REACH = 9.0  # √χ′² is 1-Lipschitz in its Gaussian vector: beyond 9 of its centre lies less than 1e-18
UNIT_NODES, UNIT_WEIGHTS = (np.polynomial.legendre.leggauss(10)[0] + 1) / 2, np.polynomial.legendre.leggauss(10)[1] / 2


def expected_gap(h_bar: object, error: object, *, noise_variance: object, n: float, p: float, outputs: int = 1) -> Array:
    """Expected rise of a record's squared loss when it is left out of a least-squares fit with random Gaussian design.

    E over V ~ χ²_k of (ε² + qσ²h̄/V)·h̄(2V + h̄)/(V + h̄)², k = n − p: the trapezoid rule in log V, relative error below 1e-10.

    Args:
        h_bar: population leverage xᵀΣ⁻¹x ≥ 0 of each record; `h_bar`, `error` and `noise_variance` broadcast.
        error: structural error y − xᵀθ; its norm when `outputs` > 1.
        noise_variance: σ² ≥ 0 of each output.
        n: training records, this one included.
        p: parameters per output, or effective degrees of freedom; n − p > 2.
        outputs: q, the number of outputs.

    Returns:
        Gaps ≥ 0 in squared units, of the broadcast shape.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.

    Exact when: covariates and noise are Gaussian, the fit is ordinary least squares, noise is independent of the record.
    Approximates: a ridge fit, when p is its effective degrees of freedom.
    Cost: about 30 nodes a record for large k, a few hundred for k ≤ 8; memory for 2²⁰ numbers at a time.
    Reference: [RET] Eq. (5), App. A.5 Eq. (17).

    Example:
        >>> round(float(expected_gap(3.0, 1.5, noise_variance=1.0, n=50, p=5)), 4)
        0.2919
    """
    owner = "expected_gap"
    h, e, v = _gap_inputs(owner, h_bar, error, noise_variance, outputs)
    nodes, mass, inverse = _log_chi_square_rule(_degrees(owner, n, p), h)
    flat, rows = h.ravel(), max(1, BLOCK // len(nodes))
    kept, noisy = np.empty(flat.size), np.empty(flat.size)
    for start in range(0, flat.size, rows):
        part = flat[start : start + rows, None]
        with np.errstate(divide="ignore"):
            leverage = special.expit(np.log(part) - nodes)  # h̄/(V + h̄) without overflow
        drop = leverage * (2 - leverage)
        kept[start : start + rows], noisy[start : start + rows] = drop @ mass, part[:, 0] * (drop @ inverse)
    return np.asarray(e**2 * kept.reshape(h.shape) + outputs * v * noisy.reshape(h.shape))


def asymptotic_gap(h_bar: object, error: object, *, noise_variance: object, n: float, p: float, outputs: int = 1) -> Array:
    """Expansion of `expected_gap` to second order in 1/k: 2ε²h̄/k + (4ε²h̄ + h̄²(2qσ² − 3ε²))/k².

    Args, Raises: as in `expected_gap`.

    Returns:
        Approximate gaps of the broadcast shape; may be negative where h̄ is not small beside k.

    Approximates: `expected_gap`, with an error of order k⁻³.
    Cost: O(records).
    Reference: [RET] Eq. (6), App. A.5 Eq. (18).

    Example:
        >>> round(float(asymptotic_gap(3.0, 1.5, noise_variance=1.0, n=50, p=5)), 4)
        0.2922
    """
    owner = "asymptotic_gap"
    h, e, v = _gap_inputs(owner, h_bar, error, noise_variance, outputs)
    k = _degrees(owner, n, p)
    square = e**2
    return np.asarray(2 * square * h / k + (4 * square * h + h**2 * (2 * outputs * v - 3 * square)) / k**2)


def tradeoff(alpha: object, h_bar: object, error: object, *, noise_variance: object, n: float, p: float, outputs: int = 1) -> Array:
    """False-negative rate of the attack that calls a record a member when its loss is small, at false-positive rate `alpha`.

    β(α) = 1 − F_OUT(F_OUT⁻¹(α)/c²), F_OUT the law of (σ²h̄/k)·χ′²_q(‖ε‖²k/(σ²h̄)), c = k/(k + h̄).
    h̄ = 0, or ε = 0 with σ² = 0: both losses have one law and β = 1 − α. σ² = 0 otherwise: two different points, β = 0.

    Args:
        alpha: false-positive rates in (0, 1), broadcast with the record arguments.
        h_bar, error, noise_variance, n, p, outputs: as in `expected_gap`.

    Returns:
        β in [0, 1 − α], of the broadcast shape; falls with α and with |ε|, not always with h̄.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.
        NumericalError: a quantile did not converge.

    Exact when: k → ∞ (V is replaced by its mean k) for this attack. It is the most powerful test of the loss when the noncentrality
        ‖ε‖²k/(σ²h̄) is at most q; above, the likelihood ratio rises before it falls in the loss and a two-sided test does better at low α.
    Cost: about 1 µs a record and α (one output), 10 µs (more outputs).
    Reference: [RET] Corollary 3.3, Eq. (4).

    Example:
        >>> round(float(tradeoff(0.1, 20.0, 1.0, noise_variance=1.0, n=105, p=5)), 4)
        0.8616
    """
    owner = "tradeoff"
    h, e, v = _gap_inputs(owner, h_bar, error, noise_variance, outputs)
    a = _rates(alpha, owner, "alpha", outputs)
    a, h, e, v = _broadcast(owner, alpha=a, h_bar=h, error=e, noise_variance=v)
    return _error_rates(a, *_standardised(h / _degrees(owner, n, p), e, v), outputs)[1]


def fixed_design_tradeoff(alpha: object, leverage: object, *, outputs: int = 1) -> Array:
    """False-negative rate of the likelihood-ratio attack on least-squares residuals, design held fixed.

    β(α) = 1 − F_m((1 + h)/(1 − h)·F_m⁻¹(α)), F_m the law of χ²_m; h = 1 gives 0.

    Args:
        alpha: false-positive rates in (0, 1), broadcast with `leverage`.
        leverage: h in [0, 1].
        outputs: m, the number of outputs.

    Returns:
        β in [0, 1 − α], of the broadcast shape.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.

    Exact when: noise is Gaussian with one variance for all outputs and a non-member is a fresh target at the same features.
    Cost: O(records).
    Reference: [GLS] Prop. 3.3, Eq. (8).

    Example:
        >>> fixed_design_tradeoff(0.1, [0.0, 0.5, 1.0]).round(4)
        array([0.9   , 0.8277, 0.    ])
    """
    owner = "fixed_design_tradeoff"
    _whole(outputs, owner)
    a = _numbers(alpha, owner, "alpha", low=0, high=1, open_ends=True)
    a, h = _broadcast(owner, alpha=a, leverage=_numbers(leverage, owner, "leverage", low=0, high=1))
    with np.errstate(divide="ignore"):
        ratio = (1 + h) / (1 - h)
    return np.asarray(special.gammaincc(outputs / 2, ratio * special.gammaincinv(outputs / 2, a)))


def fixed_design_statistic(residual: object, leverage: object, *, noise_variance: float) -> Array:
    """Log-likelihood ratio of member to non-member given a least-squares residual, design held fixed; larger = more likely a member.

    S = (m/2)·ln((1 + h)/(1 − h)) − h‖r‖²/(σ²(1 − h²)). At h = 1 a member's residual is 0: S is +inf there, −inf for any other residual.

    Args:
        residual: (n,) or (n, m) target minus prediction.
        leverage: (n,) in [0, 1].
        noise_variance: σ² > 0 of each output.

    Returns:
        (n,) statistics in nats.

    Raises:
        InputError: an argument is out of range, or lengths differ.

    Exact when: as in `fixed_design_tradeoff`.
    Cost: O(n·m).
    Reference: [GLS] Prop. 3.2, Eq. (7).

    Example:
        >>> fixed_design_statistic([0.0, 2.0], [0.5, 0.5], noise_variance=1.0).round(4)
        array([ 0.5493, -2.1174])
    """
    owner = "fixed_design_statistic"
    given = numeric_array(residual, owner, "residual", ndim=(1, 2)).astype(np.float64)
    r = given[:, None] if given.ndim == 1 else given
    h = _numbers(leverage, owner, "leverage", low=0, high=1)
    if h.shape != r.shape[:1]:
        refuse(owner, "leverage", f"have one value per residual row ({len(r)})", f"shape {h.shape}")
    variance = require_number(noise_variance, owner, "noise_variance", low=0, low_open=True)
    square = (r**2).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = r.shape[1] * np.arctanh(h) - h * square / (variance * (1 - h) * (1 + h))
    return np.where(h == 1, np.where(square == 0, np.inf, -np.inf), statistic)


def predicted_tpr(
    fpr: object, leverage: object, residual_norm: object, *, noise_variance: object, n: float, dof: float, outputs: int = 1
) -> Array:
    """True-positive rate the small-loss attack reaches on each record of a fitted regression at false-positive rate `fpr`.

    `tradeoff` with h̄ = k·h/(1 − h), ε = e/(1 − h), k = n − dof plugged in; k then only enters through σ² = RSS/(k·q).
    Leverage 1 gives 1 (the model reproduces the target whatever it is). σ² = 0: 1 where e > 0 and h > 0, else `fpr`.

    Args:
        fpr: false-positive rates in (0, 1), broadcast with the record arguments.
        leverage: fitted leverage h in [0, 1].
        residual_norm: ‖y − f(x)‖ ≥ 0 of each training record.
        noise_variance: σ² ≥ 0 of each output, usually RSS/((n − dof)·outputs).
        n: training records.
        dof: (effective) degrees of freedom of the fit per output, Σh.
        outputs: q, the number of outputs.

    Returns:
        TPR in [fpr, 1], of the broadcast shape.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.
        NotApplicable: n − dof ≤ 2.

    Approximates: `tradeoff`, with estimates in the place of the population leverage, structural error and noise.
    Cost: as `tradeoff`.
    Reference: [RET] Corollary 3.3, Eq. (2) and (4).

    Example:
        >>> predicted_tpr(0.01, [0.05, 0.5, 1.0], [2.0, 2.0, 0.0], noise_variance=1.0, n=100, dof=5).round(4)
        array([0.0247, 0.257 , 1.    ])
    """
    owner = "predicted_tpr"
    growth, error, variance = _plug_in(owner, leverage, residual_norm, noise_variance, n, dof, outputs)
    a = _rates(fpr, owner, "fpr", outputs)
    a, growth, error, variance = _broadcast(owner, fpr=a, leverage=growth, residual_norm=error, noise_variance=variance)
    return _error_rates(a, *_standardised(growth, error, variance), outputs)[0]


def privacy_curve(
    epsilon: object,
    leverage: object,
    residual_norm: object,
    *,
    noise_variance: object,
    n: float,
    dof: float,
    outputs: int = 1,
    thresholds: int = 256,
) -> Array:
    """LOWER BOUND on each record's privacy loss: the δ that threshold attacks on its loss already show at each ε; never a guarantee.

    Largest, over thresholds t, of P_IN(ℓ < t) − e^ε·P_OUT(ℓ < t) and P_OUT(ℓ ≥ t) − e^ε·P_IN(ℓ ≥ t), not below 0, with the plug-in
    laws of `predicted_tpr`. The thresholds form a grid; a coarser grid gives a smaller, still valid lower bound. Another attack, or a
    model whose assumptions fail, may lose more privacy than this.

    Args:
        epsilon: (s,) values in [0, 700], nats.
        leverage, residual_norm, noise_variance, n, dof, outputs: as in `predicted_tpr`; at most 1-dimensional.
        thresholds: grid points on each of two grids, one over the bulk of each law.

    Returns:
        delta_lower_bound: (records, s) in [0, 1], non-increasing in ε; column of ε = 0 is the largest TPR − FPR. 1 at leverage 1.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.
        NotApplicable: n − dof ≤ 2.

    Approximates: the best threshold attack under the plug-in laws, from below.
    Cost: O(records·thresholds·s); with several outputs about 1 ms a record.
    Reference: [RET] Corollary 3.3; (ε, δ) read off the trade-off curve as in f-differential privacy.

    Example:
        >>> privacy_curve([0.0, 1.0], [0.01, 0.5], [1.0, 3.0], noise_variance=1.0, n=100, dof=5).round(3)
        array([[0.04 , 0.   ],
               [0.957, 0.943]])
    """
    owner = "privacy_curve"
    eps = _numbers(epsilon, owner, "epsilon", low=0, high=700)
    if eps.ndim != 1:
        refuse(owner, "epsilon", "be 1-dimensional", f"shape {eps.shape}")
    _whole(thresholds, owner, "thresholds", least=2)
    fitted = [np.atleast_1d(a) for a in _plug_in(owner, leverage, residual_norm, noise_variance, n, dof, outputs)]
    if fitted[0].ndim != 1:
        refuse(owner, "leverage, residual_norm and noise_variance", "be at most 1-dimensional", f"shape {fitted[0].shape}")
    growth, delta, drift, apart = _standardised(*fitted)
    delta_lower_bound = np.zeros((len(growth), len(eps)))
    rows = max(1, BLOCK // (thresholds * (1 if outputs == 1 else GAUSS_NODES)))
    for start in range(0, len(growth), rows):
        part = slice(start, start + rows)
        delta_lower_bound[part] = _threshold_deltas(
            np.exp(eps), growth[part, None], delta[part, None], drift[part, None], thresholds, outputs
        )
    return np.where(apart[:, None], 1.0, delta_lower_bound)


def _threshold_deltas(weights: Array, growth: Array, delta: Array, drift: Array, points: int, q: int) -> Array:
    """(records, s) best threshold advantage for each e^ε in `weights`, on a grid over the OUT bulk and one over the IN bulk."""
    with np.errstate(over="ignore"):
        centre = q / (np.sqrt(delta**2 + q) + delta)
    low = np.maximum(-delta, centre - REACH)
    w = low + (centre + REACH - low) * np.linspace(0, 1, points)
    u, stretch = delta + w, 1 + growth
    bulk = _law(u, w, delta, q)
    wide = _law(u * stretch, w + (w * growth + drift), delta, q)
    narrow = _law(u / stretch, (w - drift) / stretch, delta, q)
    best = np.zeros((len(w), len(weights)))
    for member, other in ((wide, bulk), (bulk, narrow)):  # thresholds u over the OUT bulk, then c·u over the IN bulk
        for j, weight in enumerate(weights):
            gain = np.maximum(member[0] - weight * np.maximum(other[0], TINY), other[1] - weight * np.maximum(member[1], TINY))
            best[:, j] = np.maximum(best[:, j], gain.max(1))
    return best


def _error_rates(alpha: Array, growth: Array, delta: Array, drift: Array, apart: Array, q: int) -> tuple[Array, Array]:
    """True-positive and false-negative rate of the threshold test at false-positive rate alpha; arguments share one shape."""
    a, r, d, s = alpha.ravel(), growth.ravel(), delta.ravel(), drift.ravel()
    detected, missed = np.empty(a.size), np.empty(a.size)
    far = d >= _far_from(q) + 2 * np.maximum(0, -8 - special.ndtri(a))
    near = np.flatnonzero(~far)
    with np.errstate(over="ignore", invalid="ignore"):
        u = np.exp(_near_quantile(a[near], d[near], q)) * (1 + r[near])
        detected[near], missed[near], _ = _near_law(u, d[near], q)
    where, rows = np.flatnonzero(far), BLOCK // GAUSS_NODES
    for start in range(0, len(where), rows):
        i = where[start : start + rows]
        w = _far_quantile(a[i], d[i], q)
        detected[i], missed[i], _ = _far_law(w + (w * r[i] + s[i]), d[i], q)
    return np.where(apart, 1.0, detected.reshape(apart.shape)), np.where(apart, 0.0, missed.reshape(apart.shape))


def _standardised(growth: Array, error: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
    """r, δ, δ·r, and where the two laws have nothing in common; r = 0 where they coincide, and, as a placeholder, where they are apart."""
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

    # F ≤ (u²/2)^{q/2}/Γ(q/2 + 1); F ≥ e^{−δ²/2}·F_{χ²_q}; √χ′²_q ≤ √χ²_q + δ in law; 1e-9 covers the rounding of the bounds
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
    """Newton steps on the logarithm of the smaller tail, halving the bracket wherever a step leaves it."""
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
    raise NumericalError(f"tradeoff: {len(active)} quantiles did not converge, the first at alpha {alpha[active[0]]:g}.")


def _far_from(q: int) -> float:
    return 20 + float(np.sqrt(q))


def _law(u: Array, w: Array, delta: Array, q: int) -> tuple[Array, Array]:
    """CDF and survival function of √χ′²_q(δ²) at u = δ + w, each with its own small relative error."""
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
        small = (u <= 1) & (u * delta <= 1)  # there the difference cancels; integrate 2φ(δ)·cosh(δt)·e^{−t²/2} over [0, u] instead
        t = u[small, None] * UNIT_NODES
        cdf[small] = 2 * u[small] * _phi(delta[small]) * ((np.cosh(delta[small, None] * t) * np.exp(-(t**2) / 2)) @ UNIT_WEIGHTS)
        return cdf, special.ndtr(-below) + special.ndtr(-above), _phi(below) + _phi(above)


def _far_law(w: Array, delta: Array, q: int) -> tuple[Array, Array, Array]:
    """CDF, survival function and density of √χ′²_q(δ²) − δ at w, for δ ≥ 20 + √q: relative error below 1e-11 (tested).

    χ′²_q(δ²) = (Z + δ)² + Y with Y ~ χ²_{q−1}; Gauss–Laguerre quadrature over Y of the folded normal law at √(u² − Y).
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


def _log_chi_square_rule(k: float, h_bar: Array) -> tuple[Array, Array, Array]:
    """Nodes log V and trapezoid weights for E[f(V)] and E[f(V)/V], V ~ χ²_k, f bounded and constant for V ≪ min(h̄, 1).

    x = log(V/k) has density ∝ exp((k/2)(x − eˣ + 1)); f may add up to e^{−2x}. Both ends are cut where e^{−42} is left, by
    eˣ − 1 − x ≥ x²/2 on the right and ≥ x²/(2 + 2|x|/3) on the left. For k ≤ 8 the left end is a pure exponential
    long before it is negligible: its infinite trapezoid sum is the geometric series folded into the first weight.
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


def _plug_in(
    owner: str, leverage: object, residual_norm: object, noise_variance: object, n: float, dof: float, outputs: int
) -> tuple[Array, Array, Array]:
    """r = h/(1 − h), ε = e/(1 − h) and σ² of a fitted regression, broadcast; r is inf at leverage 1."""
    _whole(outputs, owner)
    size, used = require_number(n, owner, "n", low=0, low_open=True), require_number(dof, owner, "dof", low=0)
    if size - used <= 2:
        raise NotApplicable(f"{owner}: the Gaussian theory needs n − dof > 2; got {size:g} − {used:g}. Raise the damping or add records.")
    h, e, v = _broadcast(
        owner,
        leverage=_numbers(leverage, owner, "leverage", low=0, high=1),
        residual_norm=_numbers(residual_norm, owner, "residual_norm", low=0),
        noise_variance=_numbers(noise_variance, owner, "noise_variance", low=0),
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return h / (1 - h), e / (1 - h), v


def _gap_inputs(owner: str, h_bar: object, error: object, noise_variance: object, outputs: int) -> tuple[Array, Array, Array]:
    _whole(outputs, owner)
    h, e, v = _broadcast(
        owner,
        h_bar=_numbers(h_bar, owner, "h_bar", low=0),
        error=_numbers(error, owner, "error", low=-np.inf if outputs == 1 else 0),
        noise_variance=_numbers(noise_variance, owner, "noise_variance", low=0),
    )
    return h, e, v


def _degrees(owner: str, n: float, p: float) -> float:
    size, used = require_number(n, owner, "n", low=0, low_open=True), require_number(p, owner, "p", low=0)
    if size - used <= 2:
        refuse(owner, "n − p", "be > 2", f"{size:g} − {used:g}", "Use more records or fewer parameters.")
    return size - used


def _whole(value: object, owner: str, argument: str = "outputs", *, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        refuse(owner, argument, f"be a whole number ≥ {least}", repr(value))


def _numbers(value: object, owner: str, argument: str, *, low: float = -np.inf, high: float = np.inf, open_ends: bool = False) -> Array:
    """A finite float64 array of any shape with every value in an interval."""
    given = as_array(value, owner, argument)
    flat = numeric_array(given.reshape(-1), owner, argument, ndim=1).astype(np.float64)
    outside = (flat <= low) | (flat >= high) if open_ends else (flat < low) | (flat > high)
    if outside.any():
        i = int(np.argmax(outside))
        rule = f"be ≥ {low:g}" if high == np.inf else f"lie {'strictly ' if open_ends else ''}between {low:g} and {high:g}"
        refuse(owner, argument, rule, f"{flat[i]:g}" + (f" at index {i}" if given.ndim else ""))
    return flat.reshape(given.shape)


def _rates(value: object, owner: str, argument: str, outputs: int) -> Array:
    rates = _numbers(value, owner, argument, low=0, high=1, open_ends=True)
    if outputs > 1 and rates.size and rates.min() < 1e-30:
        refuse(owner, argument, "be at least 1e-30 with several outputs", f"{rates.min():g}")
    return rates


def _broadcast(owner: str, **arrays: Array) -> tuple[Array, ...]:
    try:
        return np.broadcast_arrays(*arrays.values())
    except ValueError:
        got = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        refuse(owner, ", ".join(arrays), "have shapes that broadcast", got)
