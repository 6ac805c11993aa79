"""Gaussian process classifiers of scikit-learn: a record's term leaves Laplace's approximation."""

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import erf, expit
from sklearn.gaussian_process import GaussianProcessClassifier, _gpc

from noshadow.checks import Array, NotApplicable
from noshadow.views.estimator_family import EstimatorFamily, Refitted
from noshadow.views.estimators import estimator_reader
from noshadow.views.sklearn_kernels import require_small

HOW = "the record's term leaves the Gaussian approximation at the mode of all records; the mode and the kernel's parameters stay"
# Newton steps to the mode, and the largest step at which they end.
STEPS, SMALL_STEP = 100, 1e-9


def _laplace(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """One process for two classes, one against the rest for each of several. Cost: O(mn³)."""
    n, m = X.shape[0], len(last.classes_)
    require_small(n, last)
    if m > 2 and last.multi_class != "one_vs_rest":
        raise NotApplicable("records leave processes of one class against the rest by a formula, and these are of one class against one")
    parts = [last.base_estimator_] if m == 2 else last.base_estimator_.estimators_
    sides = [_one_process(part.kernel_, X, (y == (1 if m == 2 else k)).astype(np.float64)) for k, part in enumerate(parts)]
    shares = [np.column_stack([side[j] for side in sides]) for j in range(2)]
    whole, without = (np.column_stack([1 - one, one]) if m == 2 else one / one.sum(1, keepdims=True) for one in shares)
    return Refitted(whole, without, HOW)


def _one_process(kernel: Any, X: Any, labels: Array) -> tuple[Array, Array]:
    """Probabilities (n,) of label 1, with all records and with each record's term left out.

    At the mode f of the latent values, with W = π(1 − π) and Σ = (K⁻¹ + W)⁻¹, the latent value of
    record i without its own term has the variance v = 1/(1/Σ_ii − W_i) and the mean
    f_i − v(y_i − π_i) (Vehtari et al. 2016, section 3.3, "Laplace-LOO").
    """
    gram = np.asarray(kernel(X), dtype=np.float64)
    f = np.zeros(len(labels))
    for _ in range(STEPS):
        p = expit(f)
        root = np.sqrt(p * (1 - p))
        factor = cho_factor(np.eye(len(f)) + root[:, None] * gram * root, lower=True)
        b = root**2 * f + (labels - p)
        before, f = f, gram @ (b - root * cho_solve(factor, root * (gram @ b)))
        if np.abs(f - before).max() < SMALL_STEP:
            break
    # A white kernel is noise of the training records, and no part of what another one shares.
    shared = np.asarray(kernel(X, X), dtype=np.float64)
    spread = np.asarray(kernel.diag(X)) - _explained(factor, root, shared)
    whole = _averaged(shared @ (labels - p), spread)
    posterior = np.diag(gram) - _explained(factor, root, gram)
    variance = 1 / np.maximum(1 / posterior - root**2, np.finfo(float).tiny)
    return whole, _averaged(f - variance * (labels - p), variance)


def _explained(factor: Any, root: Array, kernel: Array) -> Array:
    """What the records explain of each latent variance, (n,)."""
    found: Array = (solve_triangular(factor[0], root[:, None] * kernel, lower=True) ** 2).sum(0)
    return found


def _averaged(mean: Array, variance: Array) -> Array:
    """∫ sigmoid(z) N(z | mean, variance) dz, by the five error functions that scikit-learn takes.

    Williams and Barber 1998, appendix A.
    """
    scales, parts = _gpc.LAMBDAS, _gpc.COEFS
    halves = erf(scales * mean / np.sqrt(1 + 2 * variance * scales**2)) / 2
    found: Array = (parts * halves).sum(0) + 0.5 * parts.sum()
    return np.clip(found, 0.0, 1.0)


GAUSSIAN_PROCESS_CLASSIFIER = estimator_reader(
    EstimatorFamily(
        name="Gaussian process classification",
        reads=lambda last: isinstance(last, GaussianProcessClassifier),
        left_out=_laplace,
    )
)
