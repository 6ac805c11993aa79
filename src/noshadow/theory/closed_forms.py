"""Public functions of the Gaussian linear model; the letters are those of `laws`."""

import numpy as np
from scipy import special

from noshadow.checks import Array, named_in_errors, numeric_array, refuse, require_choice, require_number, require_whole
from noshadow.theory.arguments import broadcast, degrees_left, gap_inputs, numbers_within, plug_in, rates_within
from noshadow.theory.laws import BLOCK, GAUSS_NODES, STATISTICS, error_rates, log_chi_square_rule, standardised, threshold_deltas


@named_in_errors
def expected_gap(h_bar: object, error: object, *, noise_variance: object, n: float, p: float, outputs: int = 1) -> Array:
    """Expected rise of a record's squared loss when it is left out of a least-squares fit.

    The design is random and Gaussian.

    E over V ~ χ²_k of (ε² + qσ²h̄/V)·h̄(2V + h̄)/(V + h̄)², k = n − p: the trapezoid rule in log V,
    relative error below 1e-10.

    Args:
        h_bar: population leverage xᵀΣ⁻¹x ≥ 0 of each record; `h_bar`, `error` and `noise_variance`
            broadcast.
        error: structural error y − xᵀθ; its norm when `outputs` > 1.
        noise_variance: σ² ≥ 0 of each output.
        n: training records, this one included.
        p: parameters per output, or effective degrees of freedom; n − p > 2.
        outputs: q, the number of outputs.

    Returns:
        Gaps ≥ 0 in squared units, of the broadcast shape.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.

    Exact when: covariates and noise are Gaussian, the fit is ordinary least squares, noise is
        independent of the record.
    Approximates: a ridge fit, when p is its effective degrees of freedom.
    Cost: about 30 nodes a record for large k, a few hundred for k ≤ 8; memory for 2²⁰ numbers at a
        time.
    Reference: [RET] Eq. (5), App. A.5 Eq. (17).

    Example:
        >>> round(float(expected_gap(3.0, 1.5, noise_variance=1.0, n=50, p=5)), 4)
        0.2919
    """
    h, e, v = gap_inputs(h_bar, error, noise_variance, outputs)
    nodes, mass, inverse = log_chi_square_rule(degrees_left(n, p), h)
    flat, rows = h.ravel(), max(1, BLOCK // len(nodes))
    kept, noisy = np.empty(flat.size), np.empty(flat.size)
    for start in range(0, flat.size, rows):
        part = flat[start : start + rows, None]
        with np.errstate(divide="ignore"):
            leverage = special.expit(np.log(part) - nodes)  # h̄/(V + h̄) without overflow
        drop = leverage * (2 - leverage)
        kept[start : start + rows], noisy[start : start + rows] = drop @ mass, part[:, 0] * (drop @ inverse)
    return np.asarray(e**2 * kept.reshape(h.shape) + outputs * v * noisy.reshape(h.shape))


@named_in_errors
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
    h, e, v = gap_inputs(h_bar, error, noise_variance, outputs)
    k = degrees_left(n, p)
    square = e**2
    return np.asarray(2 * square * h / k + (4 * square * h + h**2 * (2 * outputs * v - 3 * square)) / k**2)


@named_in_errors
def tradeoff(
    alpha: object,
    h_bar: object,
    error: object,
    *,
    noise_variance: object,
    n: float,
    p: float,
    outputs: int = 1,
    statistic: str = "loss",
) -> Array:
    """False-negative rate of an attack on one record at false-positive rate `alpha`.

    "loss": the attack calls a record a member when its loss is small.
    β(α) = 1 − F_OUT(F_OUT⁻¹(α)/c²), F_OUT the law of (σ²h̄/k)·χ′²_q(δ²), δ² = ‖ε‖²k/(σ²h̄),
    c = k/(k + h̄).

    "residual": the attack sees the residual with its sign and tests the likelihood ratio of
    N(ε, σ²h̄/k) without the record and c times that with it. It calls a record a member when the
    residual is near εc/(1 + c): β(α) = 1 − G_IN(G_OUT⁻¹(α)/c²), G_OUT the law of χ′²_q(δ²/(1 + c)²)
    and G_IN that of χ′²_q(c²δ²/(1 + c)²). No attack on the residual does better in this limit, so
    β is never above that of the loss.

    h̄ = 0, or ε = 0 with σ² = 0: both losses have one law and β = 1 − α. σ² = 0 otherwise: two
    different points, β = 0.

    Args:
        alpha: false-positive rates in (0, 1), broadcast with the record arguments.
        h_bar, error, noise_variance, n, p, outputs: as in `expected_gap`.
        statistic: "loss" or "residual".

    Returns:
        β in [0, 1 − α], of the broadcast shape; falls with α and with |ε|, not always with h̄.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.
        NumericalError: a quantile did not converge.

    Exact when: k → ∞ (V is replaced by its mean k) for this attack; `optimal_tradeoff` does without
        that. "loss" is the most powerful test of the loss when the noncentrality δ² is at most q;
        above, the likelihood ratio rises before it falls in the loss and a two-sided test does
        better at low α.
    Cost: about 1 µs per record and α (one output), 10 µs (more outputs).
    Reference: [RET] Corollary 3.3, Eq. (4).

    Example:
        >>> round(float(tradeoff(0.1, 20.0, 1.0, noise_variance=1.0, n=105, p=5)), 4)
        0.8616
    """
    require_choice(statistic, STATISTICS, "statistic")
    h, e, v = gap_inputs(h_bar, error, noise_variance, outputs)
    a = rates_within(alpha, "alpha", outputs)
    a, h, e, v = broadcast(alpha=a, h_bar=h, error=e, noise_variance=v)
    return error_rates(a, *standardised(h / degrees_left(n, p), e, v), outputs, statistic)[1]


@named_in_errors
def fixed_design_tradeoff(alpha: object, leverage: object, *, outputs: int = 1) -> Array:
    """False-negative rate of the likelihood-ratio attack on least-squares residuals.

    The design is held fixed.

    β(α) = 1 − F_m((1 + h)/(1 − h)·F_m⁻¹(α)), F_m the law of χ²_m; h = 1 gives 0.

    Args:
        alpha: false-positive rates in (0, 1), broadcast with `leverage`.
        leverage: h in [0, 1].
        outputs: m, the number of outputs.

    Returns:
        β in [0, 1 − α], of the broadcast shape.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.

    Exact when: noise is Gaussian with one variance for all outputs and a non-member is a fresh
        target at the same features.
    Cost: O(records).
    Reference: [GLS] Prop. 3.3, Eq. (8).

    Example:
        >>> fixed_design_tradeoff(0.1, [0.0, 0.5, 1.0]).round(4)
        array([0.9   , 0.8277, 0.    ])
    """
    require_whole(outputs, "outputs", low=1)
    a = numbers_within(alpha, "alpha", low=0, high=1, open_ends=True)
    a, h = broadcast(alpha=a, leverage=numbers_within(leverage, "leverage", low=0, high=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        beta = special.gammaincc(outputs / 2, (1 + h) / (1 - h) * special.gammaincinv(outputs / 2, a))
    return np.where(h == 1, 0.0, beta)  # also where the quantile underflows, and inf·0 would be NaN


@named_in_errors
def fixed_design_statistic(residual: object, leverage: object, *, noise_variance: float) -> Array:
    """Log-likelihood ratio of member to non-member given a least-squares residual.

    The design is held fixed. A larger ratio means more likely a member.

    S = (m/2)·ln((1 + h)/(1 − h)) − h‖r‖²/(σ²(1 − h²)). At h = 1 a member's residual is 0: S is +inf
    there, −inf for any other residual.

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
    given = numeric_array(residual, "residual", ndim=(1, 2)).astype(np.float64)
    r = given[:, None] if given.ndim == 1 else given
    h = numbers_within(leverage, "leverage", low=0, high=1)
    if h.shape != r.shape[:1]:
        refuse("leverage", f"have one value per residual row ({len(r)})", f"shape {h.shape}")
    variance = require_number(noise_variance, "noise_variance", low=0, low_open=True)
    square = (r**2).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = r.shape[1] * np.arctanh(h) - h * square / (variance * (1 - h) * (1 + h))
    return np.where(h == 1, np.where(square == 0, np.inf, -np.inf), statistic)


@named_in_errors
def predicted_tpr(
    fpr: object,
    leverage: object,
    residual_norm: object,
    *,
    noise_variance: object,
    n: float,
    dof: float,
    outputs: int = 1,
    statistic: str = "loss",
) -> Array:
    """True-positive rate of an attack on each record of a fitted regression.

    The rate is taken at false-positive rate `fpr`.

    `tradeoff` with h̄ = k·h/(1 − h), ε = e/(1 − h), k = n − dof plugged in; k then only enters
    through σ² = RSS/(k·q). Leverage 1 gives 1 (the model reproduces the target whatever it is).
    σ² = 0: 1 where e > 0 and h > 0, else `fpr`.

    Args:
        fpr: false-positive rates in (0, 1), broadcast with the record arguments.
        leverage: fitted leverage h in [0, 1].
        residual_norm: ‖y − f(x)‖ ≥ 0 of each training record.
        noise_variance: σ² ≥ 0 of each output, usually RSS/((n − dof)·outputs).
        n: training records.
        dof: (effective) degrees of freedom of the fit per output, Σh.
        outputs: q, the number of outputs.
        statistic: "loss" for the attack that calls small losses members, "residual" for the
            likelihood-ratio test of the residual, which finds at least as much.

    Returns:
        TPR in [fpr, 1], of the broadcast shape.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.
        NotApplicable: n − dof ≤ 2.

    Approximates: `tradeoff`, with estimates in the place of the population leverage, structural
        error and noise.
    Cost: as `tradeoff`.
    Reference: [RET] Corollary 3.3, Eq. (2) and (4).

    Example:
        >>> leverage, residual = [0.05, 0.5, 1.0], [2.0, 2.0, 0.0]
        >>> predicted_tpr(0.01, leverage, residual, noise_variance=1.0, n=100, dof=5).round(4)
        array([0.0247, 0.257 , 1.    ])
    """
    require_choice(statistic, STATISTICS, "statistic")
    growth, error, variance = plug_in(leverage, residual_norm, noise_variance, n, dof, outputs)
    a = rates_within(fpr, "fpr", outputs)
    a, growth, error, variance = broadcast(fpr=a, leverage=growth, residual_norm=error, noise_variance=variance)
    return error_rates(a, *standardised(growth, error, variance), outputs, statistic)[0]


@named_in_errors
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
    """LOWER BOUND on each record's privacy loss, never a guarantee.

    It is the δ that threshold attacks on the record's loss already show at each ε.

    Largest, over thresholds t, of P_IN(ℓ < t) − e^ε·P_OUT(ℓ < t) and P_OUT(ℓ ≥ t) − e^ε·P_IN(ℓ ≥
    t), not below 0, with the plug-in laws of `predicted_tpr`. The thresholds form a grid; a coarser
    grid gives a smaller, still valid lower bound. Another attack, or a model whose assumptions
    fail, may lose more privacy than this.

    Args:
        epsilon: (s,) values in [0, 700], nats.
        leverage, residual_norm, noise_variance, n, dof, outputs: as in `predicted_tpr`; at most
            1-dimensional.
        thresholds: grid points on each of two grids, one over the bulk of each law.

    Returns:
        delta_lower_bound: (records, s) in [0, 1], non-increasing in ε; column of ε = 0 is the
            largest TPR − FPR. 1 at leverage 1.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.
        NotApplicable: n − dof ≤ 2.

    Approximates: the best threshold attack under the plug-in laws, from below.
    Cost: O(records·thresholds·s); with several outputs about 1 ms per record.
    Reference: [RET] Corollary 3.3; (ε, δ) read off the trade-off curve as in f-differential
        privacy.

    Example:
        >>> epsilon, leverage, residual = [0.0, 1.0], [0.01, 0.5], [1.0, 3.0]
        >>> privacy_curve(epsilon, leverage, residual, noise_variance=1.0, n=100, dof=5).round(3)
        array([[0.04 , 0.   ],
               [0.957, 0.943]])
    """
    eps = numbers_within(epsilon, "epsilon", low=0, high=700)
    if eps.ndim != 1:
        refuse("epsilon", "be 1-dimensional", f"shape {eps.shape}")
    require_whole(thresholds, "thresholds", low=2)
    fitted = [np.atleast_1d(a) for a in plug_in(leverage, residual_norm, noise_variance, n, dof, outputs)]
    if fitted[0].ndim != 1:
        refuse("leverage, residual_norm and noise_variance", "be at most 1-dimensional", f"shape {fitted[0].shape}")
    growth, delta, drift, apart = standardised(*fitted)
    delta_lower_bound = np.zeros((len(growth), len(eps)))
    rows = max(1, BLOCK // (thresholds * (1 if outputs == 1 else GAUSS_NODES)))
    for start in range(0, len(growth), rows):
        part = slice(start, start + rows)
        delta_lower_bound[part] = threshold_deltas(
            np.exp(eps), growth[part, None], delta[part, None], drift[part, None], thresholds, outputs
        )
    return np.where(apart[:, None], 1.0, delta_lower_bound)
