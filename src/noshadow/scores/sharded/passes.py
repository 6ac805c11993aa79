"""What a worker does with a shard: checks, sums and columns of its records.

It uses the functions that `record_scores` itself uses.

A pass is a function of what the driver knows so far; it returns a function from a stretch of
records to a dict of arrays. Sums of stretches and of shards are added, columns are put end to end.
Everything that travels is a NumPy array or plain: joblib maps those into memory once for all
workers of a machine, and Ray stores them once per node.
"""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from noshadow.checks import Array, InputError, NumericalError, floating, said
from noshadow.linalg import PairForms
from noshadow.losses import hard_labels, task_targets
from noshadow.output_scale import logits_of, probable_rows, require_probabilities
from noshadow.scores.baselines import baseline_columns
from noshadow.scores.last_layer.curvature import SoftmaxProblem, cross_entropy_pairs, difference_blocks, pair_sums
from noshadow.scores.last_layer.damping import curvature_trace, head_sums, unexplained
from noshadow.scores.last_layer.design import Design, column_sums, shifted_gram, stacked_triangle, unit_triangle
from noshadow.scores.last_layer.inputs import HeadInputs, plain_arrays
from noshadow.scores.last_layer.margin import margin_columns, margin_pairs
from noshadow.scores.last_layer.precision import curvature_products
from noshadow.scores.last_layer.single_output import binary_columns, logit_curvature, regression_columns, self_influences, weighted_gram
from noshadow.scores.last_layer.softmax import block_columns
from noshadow.scores.sharded.shards import HeadRecords, Shard
from noshadow.workers import alone_in_process

Values = dict[str, Array]
Given = Mapping[str, Any]
Walk = Callable[[HeadInputs], Values]
# Beside the columns: Σ‖outputs − GΘ̂‖² of each stretch.
UNEXPLAINED = "unexplained"
TENSORS = ("shift", "whitening", "unwhitening", "penalty")


@dataclass(frozen=True)
class Reading:
    """How records become arrays.

    It holds the resolved task, whether targets are soft or labels (None: not known yet, so
    everything is checked), and whether outputs are probabilities.
    """

    task: str
    soft: bool | None
    probabilities: bool = False

    def head(self, records: HeadRecords, start: int, stop: int) -> HeadInputs:
        """The arrays of a stretch of records."""
        x, out, raw = (parts.rows(start, stop) for parts in (records.features, records.outputs, records.targets))
        weight = None if records.sample_weight is None else records.sample_weight.rows(start, stop).astype(np.float64)
        if self.soft is None:
            try:
                x, out, raw = plain_arrays(x, out, raw)
                if self.probabilities:
                    require_probabilities(out, inside=True)
                    out = logits_of([out], self.task)[0][0]
                return HeadInputs(x, out, task_targets(out, raw, self.task), weight, self.task)
            except InputError as error:
                where = f" (Index 0 there is record {start:,}.)" if start else ""
                raise InputError(f"{error}{where}") from error
        out = floating(out if out.ndim == 2 else out[:, None])
        out = logits_of([out], self.task)[0][0] if self.probabilities else out
        y = task_targets(out, raw, self.task)
        if self.soft and y.ndim == 1:
            # One-hot rows here, others elsewhere: all records are treated alike.
            labels, y = y, np.zeros(out.shape)
            y[np.arange(len(y)), labels] = 1.0
        return HeadInputs(floating(x), out, y, weight, self.task)


@dataclass(frozen=True, eq=False)
class ShardJob:
    """A pass over shards (`workers.WorkerJob`).

    It holds what the pass starts from, where the records are, and how stretches come together.
    """

    begun: Callable[[Given], Walk]
    merged: Callable[[Values, Values], Values]
    given: Given
    records: HeadRecords
    reading: Reading
    threads: int

    def carried_out(self, shard: Shard) -> Values | Exception:
        """Return the values of a shard, or the error it met.

        Nothing is raised, because a cluster would take an exception for the death of a worker.
        """
        found: Values = {}
        with alone_in_process(self.threads):
            try:
                walk = self.begun(self.given)
                for start, stop in shard.stretches:
                    values = walk(self.reading.head(self.records, start, stop))
                    found = self.merged(found, values) if found else values
            except (InputError, NumericalError) as error:
                return error
            except Exception:
                where = said(f"a worker failed on records {shard.start:,} … {shard.stop - 1:,}")
                return RuntimeError(f"{where}:\n{traceback.format_exc()}")
        return found


def added(first: Values, second: Values) -> Values:
    """Sums of two parts of the records."""
    return {name: first[name] + second[name] for name in first}


def appended(first: Values, second: Values) -> Values:
    """Columns of two parts of the records."""
    return {name: np.concatenate([first[name], second[name]]) for name in first}


def stacked(first: Values, second: Values) -> Values:
    """The triangle of two parts of the records."""
    return {"triangle": stacked_triangle(_tensor(first["triangle"]), _tensor(second["triangle"])).numpy()}


def counts(given: Given) -> Walk:
    """Sum features and outputs, and count classes, soft targets and possible probabilities.

    The counts are how often each class occurs, whether targets are soft, and how many rows of
    outputs could be probabilities. Everything is checked on the way.
    """

    def walk(head: HeadInputs) -> Values:
        labels = hard_labels(head.targets) if head.task == "classification" else (head.targets.ravel() > 0.5).astype(np.int64)
        return {
            "features": column_sums(head.features, torch.zeros(head.features.shape[1], dtype=torch.float64)).numpy(),
            "outputs": np.asarray(head.outputs.sum(0, dtype=np.float64)),
            "classes": np.bincount(labels, minlength=max(head.outputs.shape[1], 2)),
            "soft": np.array(int(head.task == "classification" and head.targets.ndim == 2)),
            "probable": np.array(0 if head.task == "regression" else probable_rows(head.outputs)),
        }

    return walk


def offsets(given: Given) -> Walk:
    """Sums of features less their means, which correct the rounding of the means."""
    return lambda head: {"features": column_sums(head.features, _tensor(given["means"])).numpy()}


def grams(given: Given) -> Walk:
    """Second moments of the shifted design."""
    return lambda head: {"gram": shifted_gram(head.features, _tensor(given["shift"]), given["fit_intercept"]).numpy()}


def triangles(given: Given) -> Walk:
    """Triangles of the shifted design, which keep digits that second moments lose."""
    shift, unit, seen = (_tensor(given[name]) for name in ("shift", "unit", "seen"))
    return lambda head: {"triangle": unit_triangle(head.features, shift, unit, seen, given["fit_intercept"]).numpy()}


def curvatures(given: Given) -> Walk:
    """Curvature sums, by name of the problem.

    When `fit` is asked for, the trace and the sums of the head's fit come with them.
    """
    frame, dtype = design_of(given["design"]), getattr(torch, given["dtype"])

    def walk(head: HeadInputs) -> Values:
        problem = _problem(frame, head)
        found: Values = {}
        if "cross_entropy" in given["problems"]:
            found["cross_entropy"] = pair_sums(problem, cross_entropy_pairs, dtype=dtype, block_size=None, progress=False).numpy()
        if "margin" in given["problems"]:
            found["margin"] = pair_sums(problem, margin_pairs, dtype=torch.float64, block_size=None, progress=False).numpy()
        if "single" in given["problems"]:
            weights = logit_curvature(head.outputs[:, 0], head.sample_weight) if head.task == "binary" else head.sample_weight
            found["single"] = weighted_gram(problem.design, weights, block_size=None).numpy()
        if given["fit"]:
            arrays = (problem.design, head.outputs, head.targets, head.sample_weight)
            found["trace"] = np.array(curvature_trace(problem.design, head.outputs, head.sample_weight, head.task))
            found |= {name: value.numpy() for name, value in head_sums(*arrays, _tensor(given["centre"]), task=head.task).items()}
        return found

    return walk


def columns(given: Given) -> Walk:
    """Every wanted column of a stretch.

    Beside them stands what the least-squares head leaves unexplained of the stretch.
    """
    frame, theta = design_of(given["design"]), _tensor(given["theta"])
    solved = {name: forms_of(given[name]) for name in ("cross_entropy", "margin") if name in given}
    single = _tensor(given["single"]) if "single" in given else None

    def walk(head: HeadInputs) -> Values:
        problem = _problem(frame, head)
        off = unexplained(problem.design, head.outputs, theta, head.task) if given["fit"] else 0.0
        weight, wanted = head.sample_weight, given["wanted"]
        found = {UNEXPLAINED: np.array([off])}
        found |= baseline_columns(
            head.features, head.outputs, head.targets, weight, head.task, fit_intercept=frame.fit_intercept, wanted=wanted
        )
        if single is not None:
            influences = self_influences(problem.design, single, block_size=None)
            if head.task == "binary":
                return found | binary_columns(head.outputs[:, 0], head.targets, influences, weight)
            return found | regression_columns(head.targets - head.outputs, influences, weight)
        if "margin" in solved:
            found["margin_leverage"] = margin_columns(problem, solved["margin"], dtype=torch.float64, block_size=None, progress=False)
        return found | _softmax_columns(problem, solved["cross_entropy"], getattr(torch, given["dtype"]))

    return walk


def products(given: Given) -> Walk:
    """The exact curvature applied to the steps of the probed records."""
    frame, steps = design_of(given["design"]), _tensor(given["steps"])
    return lambda head: {"products": curvature_products(_problem(frame, head), steps).numpy()}


def _softmax_columns(problem: SoftmaxProblem, forms: PairForms, dtype: torch.dtype) -> Values:
    found: Values = {}
    for start, stop, differences in difference_blocks(problem, forms, dtype=dtype, block_size=None, progress=False):
        values, _ = block_columns(problem, start, stop, differences)
        for name, value in values.items():
            found.setdefault(name, np.empty(len(problem.design)))[start:stop] = value.numpy()
    return found


def _problem(frame: Design, head: HeadInputs) -> SoftmaxProblem:
    """The records of a stretch as a problem of their own; the penalty is the driver's."""
    return SoftmaxProblem(replace(frame, features=head.features), head.outputs, head.targets, head.sample_weight, 0.0)


def packed_design(design: Design) -> dict[str, Any]:
    """A design of no records in arrays that travel."""
    held = {field.name: getattr(design, field.name) for field in fields(design)}
    return {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in held.items()}


def design_of(packed: Mapping[str, Any]) -> Design:
    """The design behind `packed_design`."""
    held: dict[str, Any] = {name: _tensor(value) if name in TENSORS else value for name, value in packed.items()}
    return Design(**held)


def packed_forms(forms: PairForms) -> dict[str, Any]:
    """Quadratic forms in arrays that travel."""
    dense = None if forms.dense is None else forms.dense.numpy()
    return {"count": forms.count, "dense": dense, "panels": [(low, high, block.numpy()) for low, high, block in forms.panels]}


def forms_of(packed: Mapping[str, Any]) -> PairForms:
    """The forms behind `packed_forms`."""
    dense = None if packed["dense"] is None else _tensor(packed["dense"])
    return PairForms(packed["count"], dense, [(low, high, _tensor(block)) for low, high, block in packed["panels"]])


def _tensor(array: Array) -> torch.Tensor:
    """The array as a tensor.

    It is a copy where the array belongs to others and must not be written to (Ray's object store).
    """
    return torch.from_numpy(array if array.flags.writeable else array.copy())
