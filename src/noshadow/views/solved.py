"""What a solver that converged leaves of the gradient on the records of the fit."""

from typing import Any

import numpy as np
from sklearn.linear_model import Ridge, RidgeCV

from noshadow.signals import Signals

# These stop where no entry of the mean gradient exceeds `tol`; the others look at steps or at the
# first gradient, which bound nothing here.
_BY_GRADIENT = ("lbfgs", "newton-cg", "newton-cholesky")
_DIRECT = ("auto", "svd", "cholesky", "eigen")


def logistic_leaves(last: Any, _: Signals) -> float | None:
    """Largest entry of the mean gradient of a logistic regression that converged, or None."""
    converged = int(np.max(last.n_iter_)) < int(last.max_iter)
    return float(last.tol) if last.solver in _BY_GRADIENT and converged else None


def least_squares_leaves(last: Any, seen: Signals) -> float | None:
    """What rounding leaves of the gradient in normal equations; None of other solvers."""
    solver = getattr(last, "solver_", getattr(last, "solver", "auto")) if isinstance(last, Ridge) else "auto"
    if getattr(last, "positive", False) or solver not in _DIRECT or seen.features is None:
        return None
    gcv = isinstance(last, RidgeCV) or seen.features.dtype.itemsize < 8
    digits = np.sqrt(np.finfo(np.float32 if gcv else np.float64).eps)
    lengths, targets = np.sqrt((seen.features.astype(np.float64) ** 2).sum(1).mean() + 1), np.abs(seen.targets).mean()
    return float(digits * lengths * targets)
