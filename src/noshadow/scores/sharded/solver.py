"""The columns of a head over shards.

One curvature is summed over all shards and inverted here; then the columns of every shard follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from noshadow.checks import Array, InputError, NumericalError, said
from noshadow.limits import ROUNDING_TOLERANCE
from noshadow.linalg import PairForms, pair_form_values, spd_inverse
from noshadow.outcomes import Absent, Damping
from noshadow.scores.last_layer.curvature import ContrastInverse, SoftmaxProblem, curvature_bytes, difference_forms, grounded_laplacian
from noshadow.scores.last_layer.damping import HeadFit, curvature_size, fit_of_sums, largest_weight, least_squares_head, resolved_damping
from noshadow.scores.last_layer.design import Design, damped_design
from noshadow.scores.last_layer.precision import (
    at_most_all,
    first_order_error,
    nearly_interpolated,
    probe_records,
    probe_steps,
    refined_shift_error,
    rounding_note,
    shift_error,
)
from noshadow.scores.last_layer.single_output import single_solved
from noshadow.scores.last_layer.softmax import LEFT_OUT_GAP, SHIFT_ROUNDING, block_columns
from noshadow.scores.last_layer.softmax_solver import MIXED_FROM_FLOPS
from noshadow.scores.result import Solved
from noshadow.scores.sharded import passes as passes
from noshadow.scores.sharded.passes import Values, packed_design, packed_forms
from noshadow.scores.sharded.shards import whole
from noshadow.scores.sharded.walk import ShardWalk

DTYPES = {"float64": "float64", "mixed": "float32"}


@dataclass(frozen=True, eq=False)
class SolvedHead:
    """A solved head.

    It holds the columns, how well the head fits its own assumptions, the damping with its source,
    and the coordinates it was solved in.
    """

    solved: Solved
    fit: HeadFit
    damping: Damping
    design: Design


@dataclass(frozen=True, eq=False)
class ShardedHead:
    """What every pass after the design starts from.

    It holds the walk, whitened coordinates, mean outputs and wanted columns.
    """

    walk: ShardWalk
    design: Design
    output_means: Array
    wanted: Sequence[str]

    @property
    def task(self) -> str:
        """The task as the walk reads the records."""
        return self.walk.reading.task

    @property
    def classes(self) -> int:
        """Number of outputs m."""
        return len(self.output_means)

    def curvature_sums(self, problems: Sequence[str], dtype: str, *, fit: bool) -> Values:
        """Σ over records of the problems' curvatures.

        With `fit`, the sums that damping and the head's fit need come with them.
        """
        given = {"design": packed_design(self.design), "dtype": dtype, "problems": problems, "fit": fit, "centre": self.output_means}
        return self.walk.total(passes.curvatures, given, "curvature")


def solved_head(head: ShardedHead, *, damping: float | str, damping_source: str | None, precision: str, max_memory: float) -> SolvedHead:
    """Everything `record_scores` would find about the same records.

    Cost: two passes over the records, one more when float32 products are checked.
    """
    n, softmax = len(head.walk.records), head.task == "classification"
    if not isinstance(damping, str):
        head = _damped(head, damping)
    chosen = _precision(head, precision) if softmax else "float64"
    problems = ["single"]
    if softmax:
        _require_memory(head, max_memory)
        problems = ["cross_entropy", *(["margin"] if "margin_leverage" in head.wanted else [])]
    sums = head.curvature_sums(problems, DTYPES[chosen], fit=True)
    scale = float(sums["trace"]) / curvature_size(head.design.width, head.classes, head.task)
    settled = resolved_damping(damping, scale if isinstance(damping, str) else 0.0, damping_source)
    value = settled.value
    if isinstance(damping, str) and (damped := _damped(head, value)) is not head:
        # λ was not known before the pass; features this faint are rare enough to read the records
        # once more.
        head = damped
        sums = head.curvature_sums(problems, DTYPES[chosen], fit=True)
    curvature = {name: sums.pop(name) for name in problems}
    fitted = {name: torch.from_numpy(np.asarray(total)) for name, total in sums.items()}
    theta = least_squares_head(head.design, fitted["cross"], n)
    if softmax:
        solved, off = _softmax(head, curvature, value, theta, precision, chosen)
    else:
        solved, off = _single(head, curvature["single"], value, theta)
    fit = fit_of_sums(head.design, fitted, theta, off, n=n, task=head.task, damping=value)
    return SolvedHead(solved, fit, settled, head.design)


def _damped(head: ShardedHead, damping: float) -> ShardedHead:
    """The head in coordinates without directions too faint beside λ; itself where there is none."""
    records = head.walk.records
    weight = None if records.sample_weight is None else whole(records.sample_weight)
    design = damped_design(head.design, damping, len(records), largest_weight(weight))
    return head if design is head.design else replace(head, design=design)


def _precision(head: ShardedHead, precision: str) -> str:
    r, m = head.design.rank, head.classes
    if precision != "auto":
        return precision
    return "mixed" if len(head.walk.records) * m * (m - 1) * r * (r + 1) > MIXED_FROM_FLOPS else "float64"


def _require_memory(head: ShardedHead, limit: float) -> None:
    m, r = head.classes, head.design.rank
    need = curvature_bytes(m, r)
    if need > limit:
        raise InputError(
            said(
                f"(classes − 1) × features must be small enough for an exact curvature within max_memory ({limit / 1e9:.1f} GB); "
                f"got {m} classes × {r} dimensions, which needs {need / 1e9:.1f} GB. "
                "Raise max_memory, score a narrower representation, or approximate on one machine with record_scores(method='ekfac')."
            )
        )


def _columns_given(head: ShardedHead, theta: torch.Tensor, dtype: str) -> dict[str, Any]:
    return {"design": packed_design(head.design), "theta": theta.numpy(), "dtype": dtype, "wanted": tuple(head.wanted), "fit": True}


def _single(head: ShardedHead, gram: Array, damping: float, theta: torch.Tensor) -> tuple[Solved, float]:
    inverse = spd_inverse(damping * head.design.penalty.numpy() + gram)
    given = _columns_given(head, theta, "float64") | {"single": inverse.matrix}
    columns, off = head.walk.columns(passes.columns, given, "records")
    return single_solved(columns, inverse), off


def _softmax(
    head: ShardedHead, curvature: Values, damping: float, theta: torch.Tensor, precision: str, chosen: str
) -> tuple[Solved, float]:
    absent: dict[str, str] = {}
    given = _columns_given(head, theta, DTYPES[chosen])
    if "margin" in curvature:
        try:
            margin = _contrast(head, curvature.pop("margin"), damping)
            given["margin"] = packed_forms(difference_forms(margin, head.classes, head.design.rank, torch.float64))
            del margin
        except NumericalError as error:
            # Its curvature has rank one per record and may be singular where the cross-entropy's is
            # not.
            absent = {"margin_leverage": Absent("not available", str(error))}
    contrast = _contrast(head, curvature.pop("cross_entropy"), damping)
    solved, off = _at_precision(head, contrast, given, damping, chosen)
    if precision == "auto" and solved.precision_error is not None and not solved.precision_error <= ROUNDING_TOLERANCE:
        note = f"float32 products moved the largest Newton gaps by {solved.precision_error:.1e}, so everything was redone in float64"
        contrast = _contrast(head, head.curvature_sums(["cross_entropy"], "float64", fit=False)["cross_entropy"], damping)
        again = {"design": given["design"], "theta": given["theta"], "dtype": "float64", "wanted": (), "fit": False}
        redone, _ = _at_precision(head, contrast, again, damping, "float64")
        solved = replace(redone, notes=(note, *redone.notes), columns=solved.columns | redone.columns)
    return replace(solved, absent=absent), off


def _contrast(head: ShardedHead, total: Array, damping: float) -> ContrastInverse:
    curvature, others = grounded_laplacian(torch.from_numpy(total), head.classes, damping * head.design.penalty)
    del total
    return ContrastInverse(spd_inverse(curvature, overwrite=True), others)


def _at_precision(
    head: ShardedHead, contrast: ContrastInverse, given: dict[str, Any], damping: float, precision: str
) -> tuple[Solved, float]:
    forms = difference_forms(contrast, head.classes, head.design.rank, getattr(torch, DTYPES[precision]))
    columns, off = head.walk.columns(passes.columns, given | {"cross_entropy": packed_forms(forms)}, "records")
    rounding, gaps = columns.pop(SHIFT_ROUNDING), columns.pop(LEFT_OUT_GAP)
    solved = Solved(columns, contrast.inverse, float(columns["leverage"].sum()), precision)
    if precision == "mixed":
        return replace(solved, precision_error=_mixed_error(head, contrast, forms, columns, rounding, damping)), off
    probes = nearly_interpolated(columns, gaps, contrast.inverse.condition)
    if not len(probes):
        return solved, off
    error = _probed_error(head, contrast, forms, columns, probes, damping, torch.float64)
    note = (rounding_note(error, contrast.inverse.condition, float(gaps[probes].min())),)
    return replace(solved, precision_error=error, notes=() if error <= ROUNDING_TOLERANCE else note), off


def _mixed_error(
    head: ShardedHead, contrast: ContrastInverse, forms: PairForms, columns: dict[str, Array], rounding: Array, damping: float
) -> float:
    """Relative error of the top records, as `softmax_solver` measures it."""
    scores = [column for name, column in columns.items() if name in ("leverage", "influence", "newton", "loo", "shift")]
    if not all(np.isfinite(column).all() for column in scores):
        return float("inf")
    newton = _probed_error(head, contrast, forms, columns, probe_records(columns), damping, torch.float32)
    return max(shift_error(columns["shift"], rounding), newton)


def _probed_error(
    head: ShardedHead,
    contrast: ContrastInverse,
    forms: PairForms,
    columns: dict[str, Array],
    probes: Array,
    damping: float,
    dtype: torch.dtype,
) -> float:
    own = _probe_problem(head, probes, damping)
    _, directions = block_columns(own, 0, len(probes), pair_form_values(forms, own.design.rows(0, len(probes), dtype)))
    steps = probe_steps(own, contrast, directions)
    given = {"design": packed_design(head.design), "steps": steps.numpy()}
    products = torch.from_numpy(head.walk.total(passes.products, given, "precision")["products"])
    newton = first_order_error(own, steps, products, columns["newton"][probes])
    if dtype == torch.float32:
        return newton
    return at_most_all(max(newton, refined_shift_error(own, contrast, steps, products, columns["shift"][probes])))


def _probe_problem(head: ShardedHead, probes: Array, damping: float) -> SoftmaxProblem:
    """The head seen by a few records, read one by one."""
    seen = [head.walk.reading.head(head.walk.records, int(i), int(i) + 1) for i in probes]
    weights = [record.sample_weight for record in seen if record.sample_weight is not None]
    return SoftmaxProblem(
        replace(head.design, features=np.concatenate([record.features for record in seen])),
        np.concatenate([record.outputs for record in seen]),
        np.concatenate([record.targets for record in seen]),
        np.concatenate(weights) if weights else None,
        damping,
    )
