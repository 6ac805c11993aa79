"""The few curves that turn predictors into an attack's true-positive rate.

All of them but "factors" pass through the origin.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares, minimize_scalar, nnls

from noshadow.checks import Array
from noshadow.results.calibration import FORMS, WITH_FACTOR

__all__ = ["FORMS", "as_read", "fitted_coefficients", "predicted_rates"]

# Where b is sought: from a straight line, and from almost a step, to far steeper than any rate was
# seen to rise.
LARGEST_EXPONENT = 100.0  # squares of the curve stay finite
BENDS = {"exponential": (1e-3, 20.0), "power": (0.05, 5.0)}
# "factors" takes logarithms: what a rate of 0 stands at, and for a predictor the least value that
# is told apart and what is added to it. The form was judged with these.
RATE_ADDED = 0.002
KEPT_FROM_0 = {"tnr": (0.0, 1e-3), "skewness": (0.25, 0.0)}
OTHERWISE = (1e-3, 0.0)


def as_read(form: str, predictors: Sequence[str], x: Array) -> Array:
    """Predictors (n, p) as the form reads them.

    "factors" keeps each away from 0; others take them as they are.
    """
    if form != "factors":
        return x
    least, added = np.array([KEPT_FROM_0.get(name, OTHERWISE) for name in predictors]).T
    read: Array = np.maximum(x, least) + added
    return read


def predicted_rates(form: str, coefficients: tuple[float, ...], x: Array) -> Array:
    """TPR (n,) from predictors x (n, p), clipped to [0, 1].

    linear Σ_k a_k x_k; exponential a (e^{bx} − 1); quadratic a x + b x²; power a Π_k x_k^{b_k}
    (x ≥ 0); factors a Π_k x_k^{b_k} − 0.002 of predictors `as_read`. Negative predictors count as
    0: no curve promises less than nothing.
    """
    positive = np.maximum(x, 0.0)
    if form == "linear":
        rates = positive @ np.array(coefficients)
    elif form in WITH_FACTOR:
        rates = coefficients[0] * np.prod(positive ** np.array(coefficients[1:]), axis=1) - (RATE_ADDED if form == "factors" else 0.0)
    else:
        a, b = coefficients
        first = positive[:, 0]
        rates = a * _exponential(first, b) if form == "exponential" else a * first + b * first**2
    clipped: Array = np.clip(rates, 0.0, 1.0)
    return clipped


def fitted_coefficients(form: str, x: Array, y: Array, weights: Array) -> tuple[float, ...]:
    """Coefficients of least weighted squared error; for "factors" of log(y + 0.002).

    The coefficients of "linear" and the factor a are not negative.

    For "exponential" and "power" the factor is solved for at each bend b, which leaves one number
    to search: a grid, refined. Powers of several predictors are sought together, from the plane
    through the logarithms of the rows where nothing is 0.
    """
    positive, root = np.maximum(x, 0.0), np.sqrt(weights)
    if form == "linear":
        found, _ = nnls(positive * root[:, None], y * root)
        return tuple(found.tolist())
    if form == "factors":
        plane = np.column_stack((np.ones(len(x)), np.log(x)))
        line = np.linalg.lstsq(plane * root[:, None], np.log(y + RATE_ADDED) * root, rcond=None)[0]
        return float(np.exp(line[0])), *(float(bend) for bend in line[1:])
    if form == "power" and x.shape[1] > 1:
        return _several_powers(positive, y, root)
    first = positive[:, 0]
    if form == "quadratic":
        design = np.stack((first, first**2), axis=1) * root[:, None]
        return tuple(float(value) for value in np.linalg.lstsq(design, y * root, rcond=None)[0])
    basis = _exponential if form == "exponential" else _power
    bends = np.geomspace(*BENDS[form], 60)
    best = int(np.argmin([_best_factor(basis(first, bend), y, weights)[1] for bend in bends]))
    ends = bends[max(best - 1, 0)], bends[min(best + 1, len(bends) - 1)]
    found = minimize_scalar(lambda bend: _best_factor(basis(first, bend), y, weights)[1], bounds=ends, method="bounded")
    return _best_factor(basis(first, float(found.x)), y, weights)[0], float(found.x)


def _several_powers(x: Array, y: Array, root: Array) -> tuple[float, ...]:
    """(a, b_1, …, b_p) of a Π_k x_k^{b_k} of least weighted squared error, b within `BENDS`."""
    seen = (x > 0).all(axis=1) & (y > 0)
    plane = np.column_stack((np.ones(seen.sum()), np.log(x[seen]))) * root[seen, None]
    start = np.linalg.lstsq(plane, np.log(y[seen]) * root[seen], rcond=None)[0]
    low, high = ([end, *[bend] * x.shape[1]] for end, bend in zip((-LARGEST_EXPONENT, LARGEST_EXPONENT), BENDS["power"], strict=True))

    def errors(found: Array) -> Array:
        left: Array = root * (np.exp(found[0]) * np.prod(x ** found[1:], axis=1) - y)
        return left

    found = least_squares(errors, np.clip(start, low, high), bounds=(low, high), xtol=1e-12, ftol=1e-12, gtol=1e-12).x
    return float(np.exp(found[0])), *(float(bend) for bend in found[1:])


def _exponential(x: Array, bend: float) -> Array:
    curve: Array = np.expm1(np.minimum(bend * x, LARGEST_EXPONENT))
    return curve


def _power(x: Array, bend: float) -> Array:
    curve: Array = x**bend
    return curve


def _best_factor(curve: Array, y: Array, weights: Array) -> tuple[float, float]:
    """The factor a ≥ 0 on a curve that comes closest to y, and the error it leaves.

    The error is weighted and squared.
    """
    factor = max(float((weights * curve * y).sum() / max((weights * curve**2).sum(), 1e-300)), 0.0)
    return factor, float((weights * (y - factor * curve) ** 2).sum())
