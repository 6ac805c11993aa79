"""Linear support vector machines of scikit-learn: least squares on the records within the margin.

They give no probabilities. Their decision values stand for log-odds: these order records as the
decision values do, and losses made of them are no nats of a probability that was fitted.
"""

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight

from noshadow.checks import Array, NotApplicable
from noshadow.views.estimator_family import WITHOUT, EstimatorFamily, Refitted, type_name
from noshadow.views.estimators import estimator_reader
from noshadow.views.sklearn_decisions import decision_outputs, decision_task, stands_for
from noshadow.views.stored_trees import as_columns, probabilities

HOW = "the record leaves the least squares on the records within the margin; which records these are and the penalty stay"
# How many times its tolerance, as a share of the gradient at zero, liblinear may leave of it.
LEFT_OVER = 10.0


def _left_out(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """½‖w‖² + C Σ c max(0, 1 − tf)², t = ±1, is ridge regression of t where tf < 1; one per class.

    A record beyond the margin leaves nothing behind. One within it leaves the least squares:
    f₋ᵢ = t − (t − f)/(1 − c h), h = x(Σ c xxᵀ + I/2C)⁻¹x over the records within, x with
    `intercept_scaling` as its last entry. What liblinear left of its way to the minimum is kept on
    both sides.

    Exact when: no other record comes to the other side of the margin.
    """
    if last.loss != "squared_hinge" or last.penalty != "l2" or last.multi_class != "ovr":
        reason = f"penalty={last.penalty!r}, loss={last.loss!r}, multi_class={last.multi_class!r}"
        raise NotApplicable(f"records leave a LinearSVC of the squared hinge with an l2 penalty by a formula; this one has {reason}")
    if int(np.max(last.n_iter_)) >= last.max_iter:
        raise NotApplicable(f"LinearSVC was stopped after max_iter={last.max_iter} iterations, before it was solved to its tolerance")
    if last.class_weight == "balanced" and sample_weight is not None:
        raise NotApplicable("versions of scikit-learn balance the classes of a LinearSVC with sample weights in different ways")
    table = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    design = np.column_stack([table, np.full(len(y), float(last.intercept_scaling))]) if last.fit_intercept else table
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    by_class = np.ones(len(y)) if last.class_weight is None else compute_sample_weight(last.class_weight, np.asarray(last.classes_)[y])
    values = as_columns(last.decision_function(X), len(y))
    single = values.shape[1] == 1
    sides = []
    for k in range(values.shape[1]):
        own = y == (1 if single else k)
        # Against the rest, liblinear weighs the class itself alone.
        weights = weight * (by_class if single else np.where(own, by_class, 1.0))
        parameters = np.append(last.coef_[k], last.intercept_[k] / last.intercept_scaling) if last.fit_intercept else last.coef_[k]
        sides.append(_one_class(design, np.where(own, 1.0, -1.0), weights, values[:, k], parameters, last))
    whole, without = (probabilities(np.column_stack(side)) for side in zip(*sides, strict=True))
    return Refitted(whole, without, HOW)


def _one_class(design: Array, sign: Array, weight: Array, values: Array, parameters: Array, last: Any) -> tuple[Array, Array]:
    """Decision values of one class with and without each record.

    With them are the model's own where these are its records, by the gradient that it left;
    otherwise those of the formula, which contradict it.
    """
    within = weight * (sign * values < 1)
    matrix = (design * within[:, None]).T @ design + np.eye(design.shape[1]) / (2 * last.C)
    factor = cho_factor(matrix)
    formula = design @ cho_solve(factor, design.T @ (within * sign))
    reach = within * np.einsum("nd,dn->n", design, cho_solve(factor, design.T))
    fall = np.where(within > 0, (sign - formula) * reach / (1 - reach), 0.0)
    left = np.linalg.norm(matrix @ parameters - design.T @ (within * sign))
    start = np.linalg.norm(design.T @ (weight * sign))
    own = left <= LEFT_OVER * last.tol * max(start, np.finfo(float).tiny)
    return (values if own else formula), values - fall


LINEAR_SVC = estimator_reader(
    EstimatorFamily(
        name="linear support vector machine",
        reads=lambda last: isinstance(last, LinearSVC),
        task=decision_task,
        outputs=decision_outputs,
        headless=lambda last: f"{type_name(last)} was trained on hinges, so no head of a softmax exists; {WITHOUT}",
        notes=lambda last: (stands_for(last),),
        left_out=_left_out,
    )
)
