"""`record_scores`: every last-layer column from features, outputs and targets."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noshadow.arguments import MAX_MEMORY, PROGRESS
from noshadow.checks import Array, NumericalError, named_in_errors, refuse, require_choice, require_number, require_whole
from noshadow.limits import DOUBTFUL_CONDITION, FAR_FROM_MINIMUM, NONLINEAR_HEAD
from noshadow.outcomes import Damping, Note, not_applicable
from noshadow.scores.baselines import baseline_columns
from noshadow.scores.last_layer.curvature import SoftmaxProblem
from noshadow.scores.last_layer.damping import HeadFit, damped_head, head_fit
from noshadow.scores.last_layer.design import Design
from noshadow.scores.last_layer.head_dual import more_precise, over_records, over_records_solved, single_over_records
from noshadow.scores.last_layer.inputs import head_inputs
from noshadow.scores.last_layer.precision import doubtful_gap
from noshadow.scores.last_layer.single_output import binary_columns, logit_curvature, regression_columns, single_solved, weighted_leverage
from noshadow.scores.last_layer.softmax_solver import HeadSolution, SolverOptions, softmax_solution
from noshadow.scores.result import COLUMNS, RecordScores, Solved

ASSUME_MINIMUM = "influence, newton, loo and shift assume one and may be far too large; order is more reliable than size"


@named_in_errors
def record_scores(
    features: object,
    outputs: object,
    targets: object,
    *,
    task: str = "auto",
    damping: float | str | Damping = "auto",
    fit_intercept: bool = True,
    penalize_intercept: bool = True,
    sample_weight: object = None,
    columns: Sequence[str] | None = None,
    damping_source: str | None = None,
    output_scale: str = "auto",
    method: str = "auto",
    refine: int = 48,
    precision: str = "auto",
    block_size: int | None = None,
    max_memory: float = MAX_MEMORY,
    progress: bool = PROGRESS,
) -> RecordScores:
    """Compute last-layer membership scores of every training record.

    The scores are exact, from one factorisation, wherever that fits into memory.

    With g̃ = [g; 1], H_ii = (I ⊗ g̃_iᵀ)𝓗⁻¹(I ⊗ g̃_i), W_i = diag(p) − ppᵀ and r_i = p − y for
    softmax: leverage Tr(W_iH_ii), influence r_iᵀH_ii r_i, newton r_iᵀH_ii(I − W_iH_ii)⁻¹r_i, loo
    the true loss at the Newton leave-one-out logits minus the loss, shift the fall of φ = log p_y −
    log Σ_{c≠y} p_c on the way, margin_leverage the leverage in the problem of φ itself. Regression:
    h, 2‖e‖²h, 2‖e‖²h/(1−h), ‖e‖²(2h−h²)/(1−h)², ‖e‖h/(1−h).

    Args:
        features: (n, d−1) inputs of the last layer, without the bias column.
        outputs: (n, m) logits or predictions; (n,) for one output.
        targets: (n,) labels or floats, (n, q) floats, or (n, m) rows of probabilities (soft
            labels).
        task: "regression", "classification" (softmax), "binary" (one logit) or "auto".
        damping: λ ≥ 0 added to the **sum** of curvatures (GᵀG for squared loss), or "auto"; a
            Damping also says where it comes from.
        fit_intercept: append the bias column. penalize_intercept: λ applies to it too.
        sample_weight: (n,) ≥ 0, scales each record's loss, gradient and curvature.
        columns: names to compute, all by default.
        damping_source: sentence stored beside λ.
        output_scale: what a classifier's outputs are, "logits" or "probabilities", whose logarithms
            are taken with a note; "auto" recognises rows of probabilities, and asks where one
            column within [0, 1] could be either.
        method: "exact"; "ekfac" (softmax heads too big to factor, λ > 0: everybody else's curvature
            kept on the diagonal of a Kronecker basis, the record's own exact); "auto" takes
            "ekfac", with a note, when the exact curvature exceeds max_memory.
        refine: with "ekfac", how many records, those of largest EK-FAC shift, get exact influence,
            newton, loo and shift by conjugate gradients. `exact` marks those that converged;
            leverage and margin_leverage stay approximated. On them the median error of EK-FAC is
            measured (`errors`); the other records keep its values.
        precision: "float64", "mixed" (float32 products, checked) or "auto" (mixed for large softmax
            heads; falls back to float64, with a note, when the measured error exceeds 1e-4).
        block_size: records per block; chosen from the shapes by default. No effect on values beyond
            rounding.
        max_memory: bytes the curvature may take. progress: draw bars on a terminal.

    Returns:
        RecordScores.

    Raises:
        InputError: a rule on the arguments is broken. NumericalError: the curvature cannot be
            factored.

    Exact when: the last layer alone is refitted from a minimum: `loo` equals the refit for (ridge)
        least squares and is one Newton step from it for cross-entropy. Approximates: retraining the
        whole network.
    Cost: softmax n·m²d²/2 flops twice and ((m−1)d)³; otherwise 4nd². Memory about 3·8·((m−1)d)²
        bytes plus blocks. EK-FAC n·m(20m + 20d) flops, memory O(m² + md), and for each refined
        record two systems of about ten (with inner iterations of as much again) to a hundred
        products of 4nmd flops.
    Reference: [RET] Eqs. (7)–(10), Props. B.1–B.4; [GLS] Props. C.1–C.2.

    Example:
        >>> import numpy as np, noshadow as ns
        >>> x = np.linspace(-1, 1, 8)[:, None]
        >>> targets = 2 * x[:, 0] + 0.1 * (-1.0) ** np.arange(8)
        >>> scores = ns.record_scores(x, 2 * x, targets, damping=0.0)
        >>> round(scores.effective_dof, 6), int(np.argmax(scores.loo)) in (0, 7)
        (2.0, True)
    """
    started = time.perf_counter()
    wanted = requested_columns(columns)
    _require_options(method, refine, precision, block_size, max_memory)
    head = head_inputs(features, outputs, targets, task=task, sample_weight=sample_weight, output_scale=output_scale)
    x, out, y, weight, task = head.features, head.outputs, head.targets, head.sample_weight, head.task
    _require_method(method, task)
    design, settled = damped_head(
        head, damping=damping, source=damping_source, fit_intercept=fit_intercept, penalize_intercept=penalize_intercept
    )
    value = settled.value
    if task == "classification":
        problem = SoftmaxProblem(design, out, y, weight, value)
        solution = softmax_solution(problem, wanted, SolverOptions(method, refine, precision, block_size, max_memory, progress))
    else:
        single: dict[str, Any] = {"task": task, "block_size": block_size, "max_memory": max_memory}
        solution = HeadSolution(_single_output(design, out, y, weight, value, **single))
    solved = solution.solved
    fit = head_fit(design, out, y, weight, task=task, damping=value)
    held: dict[str, Any] = solved.columns | baseline_columns(x, out, y, weight, task, fit_intercept=fit_intercept, wanted=wanted)
    return RecordScores(
        task=task,
        damping=settled,
        effective_dof=solved.dof,
        rank=design.rank + design.faint,
        condition=solved.inverse.condition,
        jitter=solved.inverse.jitter,
        stationarity=fit.stationarity,
        head_residual=fit.residual,
        precision=solved.precision,
        precision_error=solved.precision_error,
        seconds=time.perf_counter() - started,
        notes=head.notes + score_notes(solved, design, fit),
        not_applicable=absent_columns(task, wanted) | solved.absent,
        method=solution.method,
        exact=solution.exact,
        errors=solution.errors,
        **{name: held[name] for name in wanted if name in held},
    )


def _require_options(method: object, refine: object, precision: object, block_size: object, max_memory: object) -> None:
    require_choice(method, ("auto", "exact", "ekfac"), "method")
    require_whole(refine, "refine", low=0)
    require_choice(precision, ("auto", "float64", "mixed"), "precision")
    require_number(max_memory, "max_memory", low=0.0)
    if block_size is not None:
        require_whole(block_size, "block_size", low=1)


def _require_method(method: str, task: str) -> None:
    if method == "ekfac" and task != "classification":
        hint = "The exact curvature has only d² numbers there; should even these not fit, project the features to fewer dimensions first."
        refuse("method", f"be 'exact' or 'auto' in a {task} task", "'ekfac'", hint)


def requested_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """The names asked for, all by default."""
    if columns is None:
        return COLUMNS
    if isinstance(columns, str):
        refuse("columns", "be a list of column names", repr(columns))
    unknown = [c for c in columns if c not in COLUMNS]
    if unknown:
        refuse("columns", f"be among {', '.join(COLUMNS)}", ", ".join(map(repr, unknown)))
    return tuple(columns)


def _single_output(
    design: Design,
    outputs: Array,
    targets: Array,
    weight: Array | None,
    damping: float,
    *,
    task: str,
    block_size: int | None,
    max_memory: float,
) -> Solved:
    def columns(influence: Array, gaps: Array | None) -> dict[str, Array]:
        if task == "binary":
            return binary_columns(outputs[:, 0], targets, influence, weight, gaps=gaps)
        return regression_columns(targets - outputs, influence, weight, gaps=gaps)

    curvature = logit_curvature(outputs[:, 0], weight) if task == "binary" else weight
    found = weighted_leverage(design, curvature, damping, block_size=block_size)
    solved = single_solved(columns(found.self_influence, None), found.inverse)
    doubtful = float(1.0 - solved.columns["leverage"].max()) < doubtful_gap(found.inverse.condition)
    head = over_records(design, damping, outputs=1, max_memory=max_memory) if doubtful else None
    if head is None:
        return solved
    try:
        influence, gaps, inverse = single_over_records(head, curvature, damping)
    except NumericalError as error:
        return replace(solved, notes=(*solved.notes, f"solving over the records failed too: {error}"))
    return more_precise(solved, over_records_solved(columns(influence, gaps), inverse))


def absent_columns(task: str, wanted: Sequence[str]) -> dict[str, str]:
    """Wanted columns that do not exist for the task, and why."""
    if task != "regression":
        return {}
    reason = not_applicable("a regression predicts no class probabilities")
    return {name: reason for name in ("entropy", "margin_leverage") if name in wanted}


def score_notes(solved: Solved, design: Design, fit: HeadFit) -> tuple[str, ...]:
    """Sentences a reader of the scores must see."""
    notes = list(solved.notes)
    interpolated = int(np.isinf(solved.columns["newton"]).sum()) if "newton" in solved.columns else 0
    if interpolated:
        notes.append(interpolation_note(interpolated))
    rank = design.rank + design.faint
    if rank < design.width:
        notes.append(f"features have numerical rank {rank} of {design.width}: constant, collinear or more features than records")
    if design.faint:
        notes.append(
            f"{design.faint} directions of the features are so faint beside the damping that they were left out: what training has "
            "all but switched off; no leverage moves by more than 1e-10"
        )
    if solved.inverse.jitter > 0:
        notes.append(jitter_note(solved.inverse.jitter))
    if solved.inverse.condition > DOUBTFUL_CONDITION:
        words = f"the curvature is nearly singular (condition {solved.inverse.condition:.0e})"
        notes.append(Note(f"{words}: scores may be inaccurate, raise the damping", "NS022"))
    if fit.stationarity >= FAR_FROM_MINIMUM:
        words = f"(its left-over gradient is {fit.stationarity:.2g} times one typical record's): {ASSUME_MINIMUM}"
        notes.append(Note(f"the head is not at a minimum of its objective {words}", "NS020"))
    if fit.residual > NONLINEAR_HEAD:
        words = f"outputs are not a linear function of the features (relative residual {fit.residual:.2g})"
        notes.append(Note(f"{words}: is this the right layer?", "NS023"))
    return tuple(notes)


def interpolation_note(records: int) -> Note:
    """The note on records with infinite scores."""
    words = f"{records} interpolated records (leverage 1): their newton, loo and shift are +inf by convention"
    return Note(words, "NS014")


def jitter_note(jitter: float) -> Note:
    """The note on a factorisation that failed without jitter."""
    return Note(f"the factorisation needed jitter {jitter:g} on the unit diagonal: damping is doubtful", "NS022")
