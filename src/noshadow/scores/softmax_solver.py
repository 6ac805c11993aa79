"""Softmax columns end to end: choose a precision, factor, walk the records, measure the error."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from noshadow.checks import Array, NumericalError
from noshadow.linalg import PairForms, pair_form_values
from noshadow.scores.curvature import ContrastInverse, SoftmaxProblem, difference_blocks, difference_forms, require_memory, softmax_inverse
from noshadow.scores.margin import margin_leverages
from noshadow.scores.precision import newton_error, probe_records
from noshadow.scores.result import Solved
from noshadow.scores.softmax import SHIFT_ROUNDING, block_columns

# Below this many flops float64 takes about a second: not worth a second precision.
MIXED_FROM_FLOPS = 4e10
MIXED_TOLERANCE = 1e-4


def softmax_columns(
    problem: SoftmaxProblem,
    wanted: Sequence[str],
    precision: str,
    *,
    block_size: int | None,
    max_memory: float,
    progress: bool,
    owner: str,
) -> Solved:
    """All wanted columns of a softmax head that need the curvature.

    precision "auto" takes float32 products for large problems, measures what they did to the largest Newton
    gaps, and starts again in float64 when that is more than `MIXED_TOLERANCE`; "mixed" and "float64" are taken
    as they are.
    """
    require_memory(problem, max_memory, owner)
    chosen = _automatic_precision(problem) if precision == "auto" else precision
    solved = _at_precision(problem, chosen, block_size=block_size, progress=progress, owner=owner)
    if precision == "auto" and solved.precision_error is not None and not solved.precision_error <= MIXED_TOLERANCE:
        note = f"float32 products moved the largest Newton gaps by {solved.precision_error:.1e}, so everything was redone in float64"
        redone = _at_precision(problem, "float64", block_size=block_size, progress=progress, owner=owner)
        solved = replace(redone, notes=(note,))
    if "margin_leverage" not in wanted:
        return solved
    try:
        extra = {"margin_leverage": margin_leverages(problem, block_size=block_size, progress=progress)}
    except NumericalError as error:
        # Its curvature has rank one a record and may be singular where the cross-entropy's is not.
        return replace(solved, absent={"margin_leverage": f"not available: {error}"})
    return replace(solved, columns=solved.columns | extra)


def _automatic_precision(problem: SoftmaxProblem) -> str:
    r, m = problem.design.rank, problem.classes
    return "mixed" if len(problem.design) * m * (m - 1) * r * (r + 1) > MIXED_FROM_FLOPS else "float64"


def _at_precision(problem: SoftmaxProblem, precision: str, *, block_size: int | None, progress: bool, owner: str) -> Solved:
    mixed = precision == "mixed"
    dtype = torch.float32 if mixed else torch.float64
    contrast = softmax_inverse(problem, dtype=dtype, block_size=block_size, progress=progress, owner=owner)
    forms = difference_forms(contrast, problem.classes, problem.design.rank, dtype)
    columns: dict[str, Array] = {}
    for start, stop, differences in difference_blocks(problem, forms, dtype=dtype, block_size=block_size, progress=progress):
        values, _ = block_columns(problem, start, stop, differences)
        for name, value in values.items():
            columns.setdefault(name, np.empty(len(problem.design)))[start:stop] = value.numpy()
    rounding = columns.pop(SHIFT_ROUNDING)
    error = _mixed_error(problem, contrast, forms, columns, rounding) if mixed else None
    return Solved(columns, contrast.inverse, float(columns["leverage"].sum()), precision, error)


def _mixed_error(problem: SoftmaxProblem, contrast: ContrastInverse, forms: PairForms, columns: dict[str, Array], rounding: Array) -> float:
    """Relative error of the top records: measured for Newton gaps, bounded by rounding for shifts.

    Infinite when float32 saw a record as interpolated or could not hold a number.
    """
    if not all(np.isfinite(column).all() for column in columns.values()):
        return float("inf")
    top = columns["shift"] >= np.quantile(columns["shift"], 0.95)
    shift_error = float((rounding[top] / np.maximum(columns["shift"][top], np.finfo(float).tiny)).max())
    probes = probe_records(columns)
    directions = []
    for i in map(int, probes):
        differences = pair_form_values(forms, problem.design.rows(i, i + 1, torch.float32))
        _, direction = block_columns(problem, i, i + 1, differences)
        directions.append(direction)
    return max(shift_error, newton_error(problem, contrast, probes, torch.cat(directions), columns["newton"][probes]))
