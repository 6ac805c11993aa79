"""Fit of the curve that deals a model's rate out over its records, to what attacks found."""

import numpy as np
from scipy.special import expit

from noshadow.checks import Array, NumericalError
from noshadow.tail.record_rates import curve_terms

TERMS = 5
MOST_STEPS = 100


def fitted_curve(model_rate: Array, z: Array, count: Array, found: Array, weight: Array) -> tuple[float, ...]:
    """Coefficients of largest weighted binomial likelihood, by Newton's method.

    Args:
        model_rate, z: (rows,) rate of the row's model and normal score of its records.
        count, found: (rows,) records in the row and how many of them were found. weight: of each record of the row.

    Raises:
        NumericalError: no maximum was found in 100 steps.
    """
    x = curve_terms(model_rate, z)
    theta = np.array([0.0, 1.0, 0.0, 0.0, 0.0])
    for _ in range(MOST_STEPS):
        rates = expit(x @ theta)
        gradient = x.T @ (weight * (found - count * rates))
        curvature = (x * (weight * count * rates * (1 - rates))[:, None]).T @ x
        step = np.linalg.solve(curvature + 1e-12 * np.trace(curvature) * np.eye(TERMS), gradient)
        theta += step * min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-9:
            return tuple(theta.tolist())
    raise NumericalError(f"fitted_curve: no maximum of the likelihood after {MOST_STEPS} steps.")
