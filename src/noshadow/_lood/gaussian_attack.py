"""The AUC and the TPR at a given FPR of the likelihood-ratio attack on Gaussian predictions.

The attack decides between two Gaussian predictions; both figures are exact.

Member means trained with the record, N(μ′, Σ′); non-member means trained without it, N(μ, Σ). Every
independent direction k of the predictions is described by two numbers that stay accurate when the
two laws merge:

    separation D = (μ − μ′)²/Σ′, summed over the outputs that share Σ′,   and   excess t = Σ/Σ′ −
    1 ≥ 0.

The attack calls a prediction a member when its likelihood ratio is large; larger figures mean more
risk. In units of Σ′ the log likelihood ratio of one direction is a constant minus ½·t/(1 + t)·‖f +
c‖², so that ‖f + c‖² is a noncentral χ² with one scale under each law.
"""

import numpy as np
from scipy import special

from noshadow.checks import Array, named_in_errors, numeric_array, refuse, require_number, require_whole

_NODES = 360
_LOWEST = -10.0
_NEGLIGIBLE = 33.0  # −log of 5e-15
_MERGED = 1e100
_CERTAIN = 50.0
_RECORDS_A_BLOCK = 512
_RADIUS_NODES = 64
_RADIUS_REACH = 8.5
_NEWTON_STEPS = 60


@named_in_errors
def likelihood_ratio_auc(separation: object, excess: object, *, outputs: int = 1) -> Array:
    """Area under the ROC curve of the likelihood-ratio attack between two Gaussian predictions.

    AUC = P(log-ratio of a member's prediction > that of a non-member's), a probability about an
    indefinite quadratic form in Gaussians. Imhof's inversion gives, with u = 1 + t, a = tτ/u, b =
    tτ and sums over directions k,

        AUC = ½ + (1/π) ∫ sin θ/ρ dτ/τ,
        θ = ½ Σ [outputs·atan((b − a)/(1 + ab)) + D(2 + t)τ/(u(1 + a²)(1 + b²))],
        log ρ = ½ Σ [½ outputs·log((1 + a²)(1 + b²)) + Dτ²(1/(u²(1 + a²)) + u/(1 + b²))],

    smooth in log τ, so that the trapezoidal rule converges geometrically; t = 0 is the closed form
    Φ(√(ΣD/2)).

    Args:
        separation: D ≥ 0, (n,) for one query or (n, q) for q independent directions; summed over
            outputs.
        excess: t ≥ 0, the same shape.
        outputs: number of outputs that share each direction's variance, ≥ 1.

    Returns:
        (n,), in [½, 1]; ½ means that the attack guesses.

    Raises:
        InputError: negative or non-finite numbers, unequal shapes.

    Exact when: always, to about 1e-12 absolute (quadrature).
    Cost: about 2,000·q elementary functions per record.
    Reference: Imhof 1961; Neyman and Pearson 1933.

    >>> likelihood_ratio_auc([2.0], [0.0]).round(6)  # Φ(1)
    array([0.841345])
    """
    d, t = _checked(separation, excess, outputs)
    blocks = [
        _auc_block(d[low : low + _RECORDS_A_BLOCK], t[low : low + _RECORDS_A_BLOCK], outputs) for low in range(0, len(d), _RECORDS_A_BLOCK)
    ]
    return np.concatenate(blocks) if blocks else np.zeros(0)


@named_in_errors
def likelihood_ratio_tpr(separation: object, excess: object, *, fpr: float, outputs: int = 1) -> Array:
    """True-positive rate of the likelihood-ratio attack at a given FPR, for one query.

    With u = 1 + t and m = √(Du)/t: under the non-member law ‖f + c‖² is u·χ′²(outputs, m²), under
    the member law χ′²(outputs, m²/u). The threshold w solves P(χ′²(outputs, m²) ≤ w) = fpr and
    TPR = P(χ′²(outputs, m²/u) ≤ u·w). Thresholds are held as √w − m, so that nothing is lost as t →
    0, where TPR = Φ(√D + Φ⁻¹(fpr)).

    Args:
        separation: D ≥ 0, (n,), summed over outputs. excess: t ≥ 0, (n,).
        fpr: in (0, 1). outputs: number of outputs that share the variance, ≥ 1.

    Returns:
        (n,), in [fpr, 1]; fpr means that the attack guesses.

    Raises:
        InputError: negative or non-finite numbers, unequal shapes, a rate outside (0, 1).

    Exact when: always, by quadrature over the length orthogonal to the shift: to about 1e-12
        relative up to 10 outputs, 1e-8 at 1,000.
    Cost: some 600 normal distribution functions per record.
    Reference: Neyman and Pearson 1933.

    >>> likelihood_ratio_tpr([4.0], [0.0], fpr=0.5).round(6)  # Φ(2)
    array([0.97725])
    """
    d, t = _checked(separation, excess, outputs)
    alpha = require_number(fpr, "fpr", low=0, high=1, low_open=True, high_open=True)
    if d.shape[1] != 1:
        refuse("separation", "be 1-dimensional (one query)", f"{d.shape[1]} directions", "The AUC takes several.")
    blocks = [
        _tpr_block(d[low : low + _RECORDS_A_BLOCK, 0], t[low : low + _RECORDS_A_BLOCK, 0], alpha, outputs)
        for low in range(0, len(d), _RECORDS_A_BLOCK)
    ]
    return np.concatenate(blocks) if blocks else np.zeros(0)


def _checked(separation: object, excess: object, outputs: int) -> tuple[Array, Array]:
    """Both arrays as float64 (n, q), refused when negative."""
    require_whole(outputs, "outputs", low=1)
    arrays = []
    for name, value in (("separation", separation), ("excess", excess)):
        array = numeric_array(value, name, ndim=(1, 2)).astype(np.float64)
        if array.size and array.min() < 0:
            refuse(name, "be ≥ 0", f"{array.min():g}")
        arrays.append(array[:, None] if array.ndim == 1 else array)
    if arrays[0].shape != arrays[1].shape:
        refuse("separation and excess", "have one shape", f"{arrays[0].shape} and {arrays[1].shape}")
    return arrays[0], arrays[1]


def _auc_block(d: Array, t: Array, outputs: int) -> Array:
    u = 1.0 + t
    # 1 − AUC ≤ (∫√(p p′))²: where that is nothing, the integral below would oscillate for nothing.
    certain = (d / (2 * (1 + u)) + outputs * np.log1p(t / u * t / 4) / 2).sum(1) > _CERTAIN
    with np.errstate(over="ignore"):  # of the certain ones only
        spread = np.sqrt((2 * outputs * t * t * (1 + u**-2) + 4 * d * (u**-2 + u)).sum(1))
    value = np.where(certain, 1.0, 0.5)
    open_ = ~certain & (spread > 0)
    if not open_.any():
        return value
    d, t, u, scale = d[open_, None, :], t[open_, None, :], u[open_, None, :], 1 / spread[open_, None]

    def angle_and_log_radius(x: Array) -> tuple[Array, Array]:
        tau = (np.exp(x) * scale)[:, :, None]
        a, b = t * tau / u, t * tau
        damp_a, damp_b = 1 / (1 + a * a), 1 / (1 + b * b)
        angle = 0.5 * (outputs * np.arctan(t * a / (1 + a * b)) + d * (2 + t) * tau / u * damp_a * damp_b).sum(2)
        bulk = -0.5 * outputs * np.log(damp_a * damp_b) + d * tau * tau * (damp_a / u**2 + u * damp_b)
        return angle, 0.5 * bulk.sum(2)

    low, high = np.full((len(scale), 1), _LOWEST), np.full((len(scale), 1), 300.0)
    # log ρ rises with τ and θ falls in the end: find where the integrand has died out. All records
    # are halved together, since brentq takes one at a time, which took five times as long as the
    # whole function.
    for _ in range(16):
        middle = (low + high) / 2
        angle, log_radius = angle_and_log_radius(middle)
        dead = log_radius - np.log(np.clip(angle, 1e-300, 1)) > _NEGLIGIBLE
        low, high = np.where(dead, low, middle), np.where(dead, middle, high)
    step = (high - _LOWEST) / _NODES
    angle, log_radius = angle_and_log_radius(_LOWEST + step * np.arange(_NODES + 1))
    inside = (np.sin(angle) * np.exp(-log_radius)).sum(1)
    # the integrand is θ ∝ τ there, and its sum a geometric series
    below = angle[:, 0] / np.expm1(step[:, 0])
    value[open_] = np.clip(0.5 + step[:, 0] / np.pi * (inside + below), 0.5, 1.0)
    return value


def _tpr_block(d: Array, t: Array, alpha: float, outputs: int) -> Array:
    value = np.full(len(d), alpha)
    differ = (d > 0) | (t > 0)
    d, t = d[differ], t[differ]
    u = 1.0 + t
    with np.errstate(divide="ignore", over="ignore"):
        # m, infinite where the variances are equal
        centre = np.minimum(np.sqrt(d * u) / t, _MERGED)
    # ‖z + m‖ ≥ its first coordinate's size, and ≥ the central law: two lower ends for the
    # threshold, from which Newton climbs to the root without passing it, the log of the
    # distribution function being concave.
    central = np.sqrt(2 * special.gammaincinv(outputs / 2, alpha))
    threshold = np.maximum(special.ndtri(alpha), central - centre)
    # SciPy's Newton would integrate twice per step, for the mass and for its slope
    for _ in range(_NEWTON_STEPS):
        mass, density = _mass_within(threshold, centre, threshold + centre, outputs)
        step = np.log(alpha / mass) * mass / density
        threshold = threshold + step
        if np.abs(step).max(initial=0.0) < 1e-8:  # quadratic: the next one would be below rounding
            break
    root = np.sqrt(u)
    value[differ] = _mass_within(np.sqrt(d) + root * threshold, centre / root, root * (threshold + centre), outputs)[0]
    clipped: Array = np.clip(value, alpha, 1.0)
    return clipped


def _mass_within(gap: Array, centre: Array, radius: Array, outputs: int) -> tuple[Array, Array]:
    """P(‖z + m‖ ≤ r) of a standard normal z in `outputs` dimensions and its derivative in r.

    gap = r − m is passed beside r and m, because their difference would lose digits.

    Integrates over the length R of z orthogonal to m, a χ variable with one degree less: |R| ≤ r,
    and the coordinate along m falls within ±√(r² − R²).
    """
    if outputs == 1:
        return special.ndtr(gap) - special.ndtr(-radius - centre), _normal(gap) + _normal(radius + centre)
    nodes, weights = np.polynomial.legendre.leggauss(_RADIUS_NODES)
    middle = np.sqrt(outputs - 2.0)
    near, far = max(middle - _RADIUS_REACH, 0.0), middle + _RADIUS_REACH
    # Where the sphere cuts the χ law short, R = r·sin φ removes the square root at the edge.
    cut = (radius < far)[:, None]
    r = np.where(cut, radius[:, None], 1.0)
    first = np.arcsin(np.where(r > near, near / r, 0.0))
    phi = first + (np.pi / 2 - first) * (nodes + 1) / 2
    lengths = np.where(cut, r * np.sin(phi), near + (far - near) * (nodes + 1) / 2)
    measure = np.where(cut, r * np.cos(phi) * weights * (np.pi / 2 - first) / 2, weights * (far - near) / 2)
    log_constant = (outputs - 3) / 2 * np.log(2.0) + special.gammaln((outputs - 1) / 2)
    measure = measure * np.exp(special.xlogy(outputs - 2, lengths) - lengths**2 / 2 - log_constant)
    wide = np.where(cut, r, radius[:, None])
    half = np.where(cut, r * np.cos(phi), np.sqrt(np.maximum(wide**2 - lengths**2, 0.0)))
    ahead = gap[:, None] - lengths**2 / (half + wide)
    behind = half + centre[:, None]
    slope = wide / half
    mass = (measure * (special.ndtr(ahead) - special.ndtr(-behind))).sum(1)
    return mass, (measure * (_normal(ahead) + _normal(behind)) * slope).sum(1)


def _normal(x: Array) -> Array:
    """Standard normal density."""
    density: Array = np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    return density
