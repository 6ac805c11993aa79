"""Generalized leverage matrices of the last layer, for records one wants to look into."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from noshadow.arguments import MAX_MEMORY
from noshadow.checks import Array, named_in_errors, numeric_array, refuse, require_choice
from noshadow.linalg import pair_form_values
from noshadow.scores.last_layer.curvature import SoftmaxProblem, difference_forms, require_memory, softmax_inverse
from noshadow.scores.last_layer.damping import damped_head
from noshadow.scores.last_layer.inputs import head_inputs
from noshadow.scores.last_layer.single_output import weighted_leverage
from noshadow.scores.last_layer.softmax import square_differences


@dataclass(frozen=True, eq=False)
class GeneralizedLeverage:
    """Generalized leverage scores: the response of a record's prediction to its own label.

    Attributes:
        matrix: (k, m, m) float64. trace, frobenius, spectral: (k,) its trace, Frobenius norm and
            largest singular value.
        records: (k,) row numbers. space: "probability" or "logit".
        damping_used, damping_source: λ on the sum over records and where it comes from.
        converged, negative_curvature: (k,) bool, residual: (k,) relative, iterations: (k,), of the
            iterative solves of `generalized_leverage`; None when solved exactly.
        layers: names of the layers differentiated; empty for the last layer's closed form.
        curvature: "gauss_newton" (the same as the Hessian for a last layer) or "hessian".
        passes: over the training data, of the iterative solves.
        notes: what a reader must know about the numbers.
    """

    matrix: Array
    trace: Array
    frobenius: Array
    spectral: Array
    records: Array
    space: str
    damping_used: float
    damping_source: str
    converged: Array | None = None
    residual: Array | None = None
    iterations: Array | None = None
    negative_curvature: Array | None = None
    layers: tuple[str, ...] = ()
    curvature: str = "gauss_newton"
    passes: int = 0
    notes: tuple[str, ...] = ()


@named_in_errors
def last_layer_leverage(
    features: object,
    outputs: object,
    targets: object,
    *,
    records: Sequence[int] | None = None,
    space: str = "probability",
    task: str = "auto",
    damping: float | str = "auto",
    fit_intercept: bool = True,
    penalize_intercept: bool = True,
    sample_weight: object = None,
    output_scale: str = "auto",
    max_memory: float = MAX_MEMORY,
) -> GeneralizedLeverage:
    """GLS matrix of each chosen record: W_iH_ii in probability space, H_ii in logit space.

    H_ii = (I ⊗ g̃_iᵀ)𝓗⁻¹(I ⊗ g̃_i). For softmax, logit space is reported in the basis of class
    contrasts (rows and columns sum to zero); the full matrix adds 11ᵀ‖g̃‖²/(mλ). Regression: h·I.
    One logit: h, or h/w in logit space.

    Args:
        features, outputs, targets, task, damping, fit_intercept, penalize_intercept, sample_weight,
            output_scale, max_memory: as in `record_scores`.
        records: row numbers; all by default (n·m² numbers).
        space: "probability" or "logit".

    Exact when: the last layer alone responds to the label. Cost: as `record_scores` without the
        gaps, float64.
    Reference: [GLS] Definition 4.1, Props. 4.5, C.1 and C.2 (probability space: erratum 3).

    Example:
        >>> import numpy as np, noshadow as ns
        >>> x = np.arange(6.0)[:, None]
        >>> outputs, labels = np.hstack([x, 3 - x]), np.array([1, 1, 1, 0, 0, 0])
        >>> gls = ns.last_layer_leverage(x, outputs, labels, damping=1.0, records=[2])
        >>> gls.matrix.shape, bool(abs(gls.matrix.sum(1)).max() < 1e-12)
        ((1, 2, 2), True)
    """
    require_choice(space, ("probability", "logit"), "space")
    head = head_inputs(features, outputs, targets, task=task, sample_weight=sample_weight, output_scale=output_scale)
    out, y, weight, task = head.outputs, head.targets, head.sample_weight, head.task
    chosen = _chosen(records, len(out))
    design, settled = damped_head(head, damping=damping, source=None, fit_intercept=fit_intercept, penalize_intercept=penalize_intercept)
    value = settled.value
    if task == "classification":
        matrix = _softmax_matrices(SoftmaxProblem(design, out, y, weight, value), chosen, space, max_memory)
    else:
        curvature = _curvature_weights(out, weight, task)
        own = weighted_leverage(design, curvature, value, block_size=None).self_influence[chosen]
        logit_space = task == "binary" and space == "logit"
        size = own if logit_space or curvature is None else own * curvature[chosen]
        matrix = size[:, None, None] * np.eye(out.shape[1])
    return GeneralizedLeverage(
        matrix=matrix,
        trace=np.trace(matrix, axis1=1, axis2=2),
        frobenius=np.linalg.norm(matrix, axis=(1, 2)),
        spectral=np.linalg.norm(matrix, ord=2, axis=(1, 2)),
        records=chosen,
        space=space,
        damping_used=value,
        damping_source=settled.sentence,
        notes=head.notes,
    )


def _chosen(records: Sequence[int] | None, n: int) -> Array:
    if records is None:
        return np.arange(n)
    rows = numeric_array(records, "records", ndim=1)
    if rows.dtype.kind not in "iu" or (len(rows) and (rows.min() < 0 or rows.max() >= n)):
        refuse("records", f"be row numbers from 0 to {n - 1}", f"{rows.tolist()[:5]}")
    return rows


def _curvature_weights(outputs: Array, weight: Array | None, task: str) -> Array | None:
    if task == "regression":
        return weight
    logit = torch.from_numpy(outputs[:, 0].astype(np.float64))
    curvature: Array = (torch.sigmoid(logit) * torch.sigmoid(-logit)).numpy() * (1.0 if weight is None else weight)
    return curvature


def _softmax_matrices(problem: SoftmaxProblem, chosen: Array, space: str, max_memory: float) -> Array:
    require_memory(problem, max_memory)
    contrast = softmax_inverse(problem, dtype=torch.float64, block_size=None, progress=False)
    m = problem.classes
    forms = difference_forms(contrast, m, problem.design.rank, torch.float64)
    centring = torch.eye(m, dtype=torch.float64) - 1.0 / m
    matrices = np.empty((len(chosen), m, m))
    for k, i in enumerate(map(int, chosen)):
        differences = pair_form_values(forms, problem.design.rows(i, i + 1, torch.float64))
        square = square_differences(differences, m)[0]
        p = torch.softmax(torch.from_numpy(problem.outputs[i].astype(np.float64)), 0)
        top = int(p.argmax())
        # Covariances against the most probable class: the huge variance of a rare class stays in
        # its own row and column.
        covariance = 0.5 * (square[:, top, None] + square[top] - square)
        if space == "logit":
            matrices[k] = (centring @ covariance @ centring).numpy()
        else:
            response = problem.weights(i, i + 1) * p[:, None] * (covariance - p @ covariance)
            matrices[k] = (response - response.mean(1, keepdim=True)).numpy()
    return matrices
