"""Gradients and curvatures of the losses that boosted trees are fitted to.

Every function takes raw outputs (n, m) and targets (n,) and returns arrays (n, m), in the precision
of the outputs: libraries that keep float32 round here, and so do we.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array
from noshadow.views.boosted import EXPONENTIAL, GAMMA, LOGISTIC, LOGISTIC_OF_G, LOGISTIC_OF_P, POISSON, SOFTMAX, SQUARED


@dataclass(frozen=True)
class Objective:
    """A loss as boosting sees it.

    Attributes:
        gradients: (raw, targets) → g = ∂ℓ/∂f and h = ∂²ℓ/∂f² (of softmax its diagonal), (n, m).
        sizes: (raw, targets) → (n, m) the numbers that g is a difference of: rounding of g is a
            share of them.
        predictions: raw outputs → predictions of a regression; None for classifiers.
    """

    gradients: Callable[[Array, Array], tuple[Array, Array]]
    sizes: Callable[[Array, Array], Array]
    predictions: Callable[[Array], Array] | None = None


def squared(raw: Array, targets: Array) -> tuple[Array, Array]:
    """ℓ = (f − y)²/2: g = f − y, h = 1."""
    return raw - targets.astype(raw.dtype)[:, None], np.ones_like(raw)


def logistic(raw: Array, targets: Array) -> tuple[Array, Array]:
    """ℓ = log(1 + eᶠ) − yf: g = p − y, h = p(1 − p), without cancellation for either label."""
    signed = np.where(targets[:, None] > 0, raw, -raw)
    with np.errstate(over="ignore"):
        wrong = 1 / (1 + np.exp(signed))  # 1 − p of the record's own class
    return np.where(targets[:, None] > 0, -wrong, wrong), wrong * (1 - wrong)


def logistic_of_p(raw: Array, targets: Array) -> tuple[Array, Array]:
    """As `logistic`, as libraries do it that round p first: g = p − y, h = p(1 − p)."""
    with np.errstate(over="ignore"):
        p = 1 / (1 + np.exp(-raw))
    return p - targets.astype(raw.dtype)[:, None], p * (1 - p)


def logistic_of_g(raw: Array, targets: Array) -> tuple[Array, Array]:
    """As `logistic`, with p = y + g rounded before h = p(1 − p), as scikit-learn's leaves do it."""
    gradients, _ = logistic(raw, targets)
    p = targets[:, None] + gradients
    return gradients, p * (1 - p)


def softmax(raw: Array, targets: Array) -> tuple[Array, Array]:
    """ℓ = −log p_y: g_k = p_k − [y = k], h_k = p_k(1 − p_k)."""
    p = np.exp(raw - raw.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    gradients = p.copy()
    gradients[np.arange(len(raw)), targets.astype(np.intp)] -= 1
    return gradients, p * (1 - p)


def exponential(raw: Array, targets: Array) -> tuple[Array, Array]:
    """ℓ = exp(−(2y − 1)f): g = −(2y − 1)ℓ, h = ℓ."""
    sign = 2 * targets[:, None] - 1
    loss = np.exp(-sign * raw)
    return -sign * loss, loss


def poisson(raw: Array, targets: Array) -> tuple[Array, Array]:
    """ℓ = eᶠ − yf: g = eᶠ − y, h = eᶠ."""
    mean = np.exp(raw)
    return mean - targets.astype(raw.dtype)[:, None], mean


def gamma(raw: Array, targets: Array) -> tuple[Array, Array]:
    """ℓ = f + y·e⁻ᶠ: g = 1 − y·e⁻ᶠ, h = y·e⁻ᶠ."""
    ratio = targets.astype(raw.dtype)[:, None] * np.exp(-raw)
    return 1 - ratio, ratio


def _ones(raw: Array, targets: Array) -> Array:
    return np.ones_like(raw)


def _both(raw: Array, targets: Array) -> Array:
    sizes: Array = np.abs(raw) + np.abs(targets)[:, None]
    return sizes


def _curved(formula: Callable[[Array, Array], tuple[Array, Array]]) -> Callable[[Array, Array], Array]:
    def sizes(raw: Array, targets: Array) -> Array:
        gradients, curvatures = formula(raw, targets)
        found: Array = np.abs(gradients) + (1 + np.abs(raw)) * curvatures
        return found

    return sizes


OBJECTIVES = {
    SQUARED: Objective(squared, _both, lambda raw: raw),
    LOGISTIC: Objective(logistic, _ones),
    LOGISTIC_OF_P: Objective(logistic_of_p, _ones),
    LOGISTIC_OF_G: Objective(logistic_of_g, _ones),
    SOFTMAX: Objective(softmax, _ones),
    EXPONENTIAL: Objective(exponential, _curved(exponential)),
    POISSON: Objective(poisson, _curved(poisson), np.exp),
    GAMMA: Objective(gamma, _curved(gamma), np.exp),
}
