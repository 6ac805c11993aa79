"""Softmax columns from start to end.

Choose a method and a precision, factor, walk the records and measure the error.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from noshadow.checks import Array, NumericalError, advice, refuse
from noshadow.limits import ROUNDING_TOLERANCE
from noshadow.linalg import PairForms, SpdInverse, pair_form_values
from noshadow.outcomes import Absent
from noshadow.scores.last_layer.curvature import (
    ContrastInverse,
    SoftmaxProblem,
    curvature_bytes,
    difference_blocks,
    difference_forms,
    does_not_fit,
    require_memory,
    softmax_inverse,
)
from noshadow.scores.last_layer.design import with_kept_rows
from noshadow.scores.last_layer.ekfac import (
    EkfacCurvature,
    ekfac_block_columns,
    ekfac_bytes,
    ekfac_columns,
    ekfac_curvature,
    ekfac_margin_leverages,
    softmax_class_sums,
    softmax_shares,
)
from noshadow.scores.last_layer.head_dual import more_precise, over_records, softmax_over_records
from noshadow.scores.last_layer.margin import margin_leverages
from noshadow.scores.last_layer.precision import (
    doubtful_gap,
    float64_error,
    nearly_interpolated,
    newton_error,
    probe_records,
    rounding_note,
    shift_error,
)
from noshadow.scores.last_layer.refinement import REFINED_COLUMNS, Refinement, refined
from noshadow.scores.last_layer.softmax import LEFT_OUT_GAP, SHIFT_ROUNDING, block_columns
from noshadow.scores.result import Solved

# Below this many flops float64 takes about a second: not worth a second precision.
MIXED_FROM_FLOPS = 4e10


def softmax_columns(
    problem: SoftmaxProblem, wanted: Sequence[str], precision: str, *, block_size: int | None, max_memory: float, progress: bool
) -> Solved:
    """All wanted columns of a softmax head that need the curvature.

    precision "auto" takes float32 products for large problems, measures what they did to the
    largest Newton gaps, and starts again in float64 when that is more than `ROUNDING_TOLERANCE`;
    "mixed" and "float64" are taken as they are.
    """
    require_memory(problem, max_memory, instead=f"pass {advice('method', 'ekfac')}, or score a narrower representation")
    chosen = _automatic_precision(problem) if precision == "auto" else precision
    how: Any = {"block_size": block_size, "max_memory": max_memory, "progress": progress}
    if chosen == "mixed" and "margin_leverage" in wanted:
        problem = replace(problem, design=with_kept_rows(problem.design))  # four passes read them
    solved = _at_precision(problem, chosen, **how)
    if precision == "auto" and solved.precision_error is not None and not solved.precision_error <= ROUNDING_TOLERANCE:
        note = f"float32 products moved the largest Newton gaps by {solved.precision_error:.1e}, so everything was redone in float64"
        redone = _at_precision(problem, "float64", **how)
        solved = replace(redone, notes=(note, *redone.notes))
    return (
        solved if "margin_leverage" not in wanted else _with_margins(problem, solved, precision, block_size=block_size, progress=progress)
    )


def _with_margins(problem: SoftmaxProblem, solved: Solved, precision: str, *, block_size: int | None, progress: bool) -> Solved:
    """Add the margin leverages to the other columns, in the precision of these.

    They are computed in float64 where "auto" finds that float32 is not enough.
    """
    try:
        dtype = torch.float32 if solved.precision == "mixed" else torch.float64
        found = margin_leverages(problem, dtype=dtype, block_size=block_size, progress=progress)
        if precision == "auto" and found.error is not None and not found.error <= ROUNDING_TOLERANCE:
            note = f"float32 products moved the largest margin leverages by {found.error:.1e}, so these were redone in float64"
            solved = replace(solved, notes=(*solved.notes, note))
            found = margin_leverages(problem, block_size=block_size, progress=progress)
    except NumericalError as error:
        # Its curvature has rank one per record and may be singular where the cross-entropy's is
        # not.
        return replace(solved, absent={"margin_leverage": Absent("not available", str(error))})
    errors = [error for error in (solved.precision_error, found.error) if error is not None]
    return replace(solved, columns=solved.columns | {"margin_leverage": found.values}, precision_error=max(errors, default=None))


def _automatic_precision(problem: SoftmaxProblem) -> str:
    r, m = problem.design.rank, problem.classes
    return "mixed" if len(problem.design) * m * (m - 1) * r * (r + 1) > MIXED_FROM_FLOPS else "float64"


def _at_precision(problem: SoftmaxProblem, precision: str, *, block_size: int | None, max_memory: float, progress: bool) -> Solved:
    mixed = precision == "mixed"
    dtype = torch.float32 if mixed else torch.float64
    contrast = softmax_inverse(problem, dtype=dtype, block_size=block_size, progress=progress)
    forms = difference_forms(contrast, problem.classes, problem.design.rank, dtype)
    columns: dict[str, Array] = {}
    for start, stop, differences in difference_blocks(problem, forms, dtype=dtype, block_size=block_size, progress=progress):
        values, _ = block_columns(problem, start, stop, differences)
        for name, value in values.items():
            columns.setdefault(name, np.empty(len(problem.design)))[start:stop] = value.numpy()
    rounding, gaps = columns.pop(SHIFT_ROUNDING), columns.pop(LEFT_OUT_GAP)
    solved = Solved(columns, contrast.inverse, float(columns["leverage"].sum()), precision)
    if mixed:
        return replace(solved, precision_error=_mixed_error(problem, contrast, forms, columns, rounding))
    solved = _measured_in_float64(problem, contrast, forms, solved, gaps)
    doubtful = float(gaps.min()) < doubtful_gap(contrast.inverse.condition)
    head = over_records(problem.design, problem.damping, outputs=problem.classes - 1, max_memory=max_memory) if doubtful else None
    if head is None:
        return solved
    try:
        return more_precise(solved, softmax_over_records(head, problem))
    except NumericalError as error:
        return replace(solved, notes=(*solved.notes, f"solving over the records failed too: {error}"))


def _measured_in_float64(problem: SoftmaxProblem, contrast: ContrastInverse, forms: PairForms, solved: Solved, gaps: Array) -> Solved:
    """The same with the error of records whose 1 − h may have few digits, where there are any."""
    probes = nearly_interpolated(solved.columns, gaps, contrast.inverse.condition)
    if not len(probes):
        return solved
    error = float64_error(problem, contrast, probes, _directions(problem, forms, probes, torch.float64), solved.columns)
    note = (rounding_note(error, contrast.inverse.condition, float(gaps[probes].min())),)
    return replace(solved, precision_error=error, notes=() if error <= ROUNDING_TOLERANCE else note)


def _mixed_error(problem: SoftmaxProblem, contrast: ContrastInverse, forms: PairForms, columns: dict[str, Array], rounding: Array) -> float:
    """Relative error of the top records: measured for Newton gaps, bounded by rounding for shifts.

    Infinite when float32 saw a record as interpolated or could not hold a number.
    """
    if not all(np.isfinite(column).all() for column in columns.values()):
        return float("inf")
    probes = probe_records(columns)
    directions = _directions(problem, forms, probes, torch.float32)
    return max(shift_error(columns["shift"], rounding), newton_error(problem, contrast, probes, directions, columns["newton"][probes]))


def _directions(problem: SoftmaxProblem, forms: PairForms, probes: Array, dtype: torch.dtype) -> torch.Tensor:
    """(I − WH)⁻¹g of chosen records, (k, m) float64."""
    found = []
    for i in map(int, probes):
        _, direction = block_columns(problem, i, i + 1, pair_form_values(forms, problem.design.rows(i, i + 1, dtype)))
        found.append(direction)
    return torch.cat(found)


@dataclass(frozen=True, eq=False)
class HeadSolution:
    """Columns of a head and the method behind them; `exact` and `errors` as in `RecordScores`."""

    solved: Solved
    method: str = "exact"
    exact: Array | None = None
    errors: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SolverOptions:
    """How to solve; each as in `record_scores`."""

    method: str
    refine: int
    precision: str
    block_size: int | None
    max_memory: float
    progress: bool


def softmax_solution(problem: SoftmaxProblem, wanted: Sequence[str], options: SolverOptions) -> HeadSolution:
    """All wanted columns by the named method.

    "auto" is the exact method where its curvature fits into the memory, else EK-FAC with a note.
    """
    need = curvature_bytes(problem.classes, problem.design.rank)
    walk: Any = {"block_size": options.block_size, "progress": options.progress}
    if options.method == "exact" or (options.method == "auto" and need <= options.max_memory):
        return HeadSolution(softmax_columns(problem, wanted, options.precision, max_memory=options.max_memory, **walk))
    _require_ekfac(problem, options.max_memory)
    note = "columns are approximated by EK-FAC"
    if options.method == "auto":
        note = f"the exact curvature needs {need / 1e9:.1f} GB, more than max_memory ({options.max_memory / 1e9:.1f} GB): {note}"
    notes: tuple[str, ...] = (note,)
    dtype = _ekfac_dtype(problem, options.precision)
    solved, curvature = _ekfac_solved(problem, wanted, dtype, **walk)
    if options.precision == "auto" and solved.precision_error is not None and not solved.precision_error <= ROUNDING_TOLERANCE:
        notes += (f"float32 products moved the largest gaps by {solved.precision_error:.1e}, so everything was redone in float64",)
        dtype = torch.float64
        solved, curvature = _ekfac_solved(problem, wanted, dtype, **walk)
    exact, errors = np.zeros(len(problem.design), dtype=bool), {}
    if options.refine and set(wanted) & set(REFINED_COLUMNS):
        top = np.argsort(-solved.columns["shift"], kind="stable")[: options.refine]
        found = refined(problem, curvature, top, wanted, dtype=dtype, max_memory=options.max_memory, progress=options.progress)
        errors, done = _ekfac_errors(solved.columns, found), found.records[found.converged]
        notes += _refinement_notes(solved.columns, found)
        exact[done] = True
        for name, values in found.columns.items():
            solved.columns[name][done] = values[found.converged]
    return HeadSolution(replace(solved, notes=notes), "ekfac", exact, errors)


def _require_ekfac(problem: SoftmaxProblem, limit: float) -> None:
    need = ekfac_bytes(problem.classes, problem.design.rank)
    if need > limit:
        raise does_not_fit(problem, "EK-FAC", need, limit, "score a narrower representation")
    if not problem.damping > 0:
        refuse("damping", "be > 0 for EK-FAC", f"{problem.damping:g}", "Pass the training's own λ, or damping='auto'.")


def _ekfac_dtype(problem: SoftmaxProblem, precision: str) -> torch.dtype:
    m = problem.classes
    large = 20.0 * len(problem.design) * m * (m + problem.design.rank) > MIXED_FROM_FLOPS
    return torch.float32 if precision == "mixed" or (precision == "auto" and large) else torch.float64


def _ekfac_solved(
    problem: SoftmaxProblem, wanted: Sequence[str], dtype: torch.dtype, *, block_size: int | None, progress: bool
) -> tuple[Solved, EkfacCurvature]:
    curvature = ekfac_curvature(problem, softmax_class_sums, softmax_shares, dtype=dtype, progress=progress)
    columns = ekfac_columns(problem, curvature, dtype=dtype, block_size=block_size, progress=progress)
    error = None if dtype == torch.float64 else _rounding_error(problem, curvature, columns)
    # Diagonal in its basis: scaled to unit diagonal there is nothing left to condition, and nothing
    # was factored.
    nothing = SpdInverse(np.empty((0, 0)), 0.0, 1.0)
    solved = Solved(columns, nothing, float(columns["leverage"].sum()), "float64" if error is None else "mixed", error)
    if "margin_leverage" not in wanted:
        return solved, curvature
    try:
        columns["margin_leverage"] = ekfac_margin_leverages(problem, dtype=dtype, block_size=block_size, progress=progress)
    except NumericalError as failure:
        return replace(solved, absent={"margin_leverage": Absent("not available", str(failure))}), curvature
    return solved, curvature


def _rounding_error(problem: SoftmaxProblem, curvature: EkfacCurvature, columns: dict[str, Array]) -> float:
    """Measure what float32 did to the riskiest records.

    Returns the largest relative change of newton and shift.
    """
    worst = 0.0
    for i in map(int, probe_records(columns)):
        precise = ekfac_block_columns(problem, curvature, i, i + 1, torch.float64)
        for name in ("newton", "shift"):
            truth = float(precise[name][0])
            same = columns[name][i] == truth  # both infinite, or both zero
            worst = max(worst, 0.0 if same else abs(columns[name][i] - truth) / max(abs(truth), np.finfo(float).tiny))
    return worst if np.isfinite(worst) else float("inf")


def _ekfac_errors(columns: dict[str, Array], found: Refinement) -> dict[str, float]:
    """Median |EK-FAC/exact − 1| over the refined records, per column."""
    errors = {}
    for name, values in found.columns.items():
        approximated = columns[name][found.records]
        usable = found.converged & np.isfinite(approximated) & (values != 0)
        if usable.any():
            errors[name] = float(np.median(np.abs(approximated[usable] / values[usable] - 1.0)))
    return errors


def _refinement_notes(columns: dict[str, Array], found: Refinement) -> tuple[str, ...]:
    names, done = ", ".join(found.columns), int(found.converged.sum())
    notes = []
    if done:
        sentence = f"{names} of the {done} records with the largest EK-FAC shift are exact (`exact` says which)"
        if "shift" in found.columns:
            approximated, values = columns["shift"][found.records], found.columns["shift"]
            ratio = np.divide(approximated, values, out=np.ones_like(values), where=values != 0)[found.converged]
            sentence += f"; their EK-FAC shift was {np.median(ratio):.2f} of the exact one in the median"
        notes.append(sentence)
    failed = len(found.records) - done
    if failed:
        notes.append(
            f"{failed} of {len(found.records)} refined records did not converge (largest relative residual {found.residual.max():.1e}) "
            "and keep their EK-FAC values"
        )
    return tuple(notes)
