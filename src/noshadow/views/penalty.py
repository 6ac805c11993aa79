"""The λ a scikit-learn estimator was trained with, on the sum scale (Σ over records + λI)."""

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.neural_network import MLPRegressor

from noshadow.outcomes import Absent, Damping

UNEVEN_LBFGS = (
    "MLPRegressor gives lbfgs a loss averaged over outputs but a gradient that is summed over them, "
    "so with several outputs the fit may stop away from a minimum."
)


@dataclass(frozen=True)
class Penalty:
    """λ and its source or why it is unknown, and what else a reader must know."""

    damping: Damping | Absent
    penalize_intercept: bool = False
    notes: tuple[str, ...] = ()
    not_applicable: str | None = None


def least_squares_penalty(estimator: Any) -> Penalty:
    """LinearRegression has no penalty."""
    return Penalty(_known(0.0, "LinearRegression has no penalty."), notes=_positive_note(estimator))


def _known(value: float, sentence: str) -> Damping:
    return Damping(value, "estimator", sentence)


def _unknown(reason: str) -> Absent:
    return Absent("not available", reason)


def _positive_note(estimator: Any) -> tuple[str, ...]:
    if not getattr(estimator, "positive", False):
        return ()
    return ("Coefficients were constrained to be ≥ 0; record scores treat the fit as unconstrained.",)


def logistic_penalty(estimator: Any) -> Penalty:
    """Read λ of a LogisticRegression, which minimises Σ ℓ + (1/2C)‖w‖².

    In `_logistic.py`, l2_reg_strength = 1/(C·sw_sum) on the mean loss.
    """
    cross_validated = hasattr(estimator, "C_")
    C = np.unique(estimator.C_ if cross_validated else estimator.C)
    name = type(estimator).__name__
    if len(C) > 1 or not getattr(estimator, "refit", True):
        return Penalty(_unknown(f"{name} averages fits with different C, so its training has no one λ."))
    share = _l1_share(estimator)
    if getattr(estimator, "penalty", "deprecated") is None or np.isinf(C[0]):
        return Penalty(_known(0.0, f"{name} was fitted without a penalty."))
    if share > 0:
        return Penalty(_unknown(f"{name} was fitted with an l1 penalty (share {share:g}), which adds no λI to the Hessian."))
    return _with_intercept_of(estimator, _known(1.0 / float(C[0]), f"1/C with C={C[0]:g} of {name}."))


def _l1_share(estimator: Any) -> float:
    """Read the share of l1 in the penalty.

    Since scikit-learn 1.8, `l1_ratio` alone gives it and `penalty` is "deprecated".
    """
    ratios: Any = getattr(estimator, "l1_ratio_", None) if hasattr(estimator, "C_") else estimator.l1_ratio
    ratio = max((float(r) for r in np.atleast_1d(ratios) if r is not None), default=0.0)
    return {"l1": 1.0, "l2": 0.0, None: 0.0}.get(getattr(estimator, "penalty", "deprecated"), ratio)


def _with_intercept_of(estimator: Any, damping: Damping) -> Penalty:
    """Add how the solver penalises the intercept.

    liblinear appends the constant s = intercept_scaling as a feature, so it penalises the bias b =
    s·w₀ by λ/s².
    """
    if estimator.solver != "liblinear" or not estimator.fit_intercept:
        return Penalty(damping)
    scaling = float(estimator.intercept_scaling)
    if scaling == 1.0:
        return Penalty(damping, penalize_intercept=True)
    # Only λ or 0 can be passed on: the nearer of the two.
    nearer = scaling**-2 > 0.5
    note = (
        f"liblinear with intercept_scaling={scaling:g} penalises the intercept by λ/{scaling:g}²; "
        f"record scores use {'λ' if nearer else 'no penalty'} on it."
    )
    return Penalty(damping, penalize_intercept=nearer, notes=(note,))


def ridge_penalty(estimator: Any) -> Penalty:
    """Ridge minimises ‖y − Xw‖² + α‖w‖² with the intercept left out, which is GᵀG + αI."""
    alphas = np.unique(estimator.alpha_ if isinstance(estimator, RidgeCV) else estimator.alpha)
    name = type(estimator).__name__
    if len(alphas) > 1:
        reason = f"{name} has a different alpha for each target, and one leverage for all outputs needs one."
        one_by_one = f"{reason} Audit one target at a time."
        return Penalty(_unknown(reason), notes=_positive_note(estimator), not_applicable=one_by_one)
    return Penalty(_known(float(alphas[0]), f"alpha={alphas[0]:g} of {name}."), notes=_positive_note(estimator))


def stochastic_penalty(estimator: Any, n: int) -> Penalty:
    """λ = nα of an SGD model, which descends the mean loss + (α/2)‖w‖², intercept left out.

    Its squared error is ½(y − f)², so that the regression convention GᵀG + λI has this same λ.
    """
    name, alpha = type(estimator).__name__, float(estimator.alpha)
    held_out = ceil(n * estimator.validation_fraction) if estimator.early_stopping else 0
    notes = (f"early_stopping held {held_out} of the {n} given records out of the training; which ones is not stored.",) if held_out else ()
    if estimator.penalty in (None, "none"):
        return Penalty(_known(0.0, f"{name} was fitted without a penalty."), notes=notes)
    if estimator.penalty != "l2":
        return Penalty(_unknown(f"{name} was fitted with penalty={estimator.penalty!r}, which adds no λI to the Hessian."), notes=notes)
    return Penalty(_known(alpha * (n - held_out), f"alpha·n with alpha={alpha:g}, n={n - held_out} of {name}."), notes=notes)


def perceptron_penalty(estimator: Any, n: int) -> Penalty:
    """Derive λ of an MLP from the gradient it follows.

    That gradient is (Σ_batch g̃ δᵀ + αW)/b with δ = output − target (`_compute_loss_grad`).

    b is the number of records in the batch (`sw_sum` in `_backprop`), intercepts get no α. Over all
    n records the sum scale is λ = α·n/b, and α for lbfgs, whose batch is all of them. δ is the same
    for squared loss and any number of outputs, although the loss value printed there is ½ the mean
    over outputs; the gradient of ‖y − f‖² + λ‖W‖² is twice Σ g̃ δᵀ + λW, so the regression
    convention GᵀG + λI has this same λ.
    """
    name, alpha = type(estimator).__name__, float(estimator.alpha)
    if estimator.solver == "lbfgs":
        source = f"alpha={alpha:g} of {name} (lbfgs over all records)."
        uneven = isinstance(estimator, MLPRegressor) and estimator.n_outputs_ > 1
        return Penalty(_known(alpha, source), notes=(UNEVEN_LBFGS,) if uneven else ())
    held_out = ceil(n * estimator.validation_fraction) if estimator.early_stopping else 0
    batch = min(200 if estimator.batch_size == "auto" else int(estimator.batch_size), n - held_out)
    notes = (f"early_stopping held {held_out} of the {n} given records out of the training; which ones is not stored.",) if held_out else ()
    source = f"alpha·n/batch with alpha={alpha:g}, n={n}, batch={batch} of {name} ({estimator.solver} divides alpha by the batch size)."
    return Penalty(_known(alpha * n / max(batch, 1), source), notes=notes)
