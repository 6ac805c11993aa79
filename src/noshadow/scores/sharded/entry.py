"""`sharded_record_scores`: the exact last-layer columns of records in files.

They are computed as sums and columns over shards.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from noshadow.arguments import MAX_MEMORY, PROGRESS
from noshadow.blocks import block_length
from noshadow.checks import (
    Array,
    InputError,
    named_in_errors,
    refuse,
    require_choice,
    require_number,
    require_output_columns,
    require_two_classes,
    require_weights,
    require_whole,
    resolved_task,
)
from noshadow.output_scale import ASK, LEAST_RECORDS, require_scale
from noshadow.scores.last_layer.design import MEAN_ROUNDS, Design, column_lengths, framed, gram_directions, triangle_directions
from noshadow.scores.last_layer.entry import absent_columns, requested_columns, score_notes
from noshadow.scores.result import RecordScores
from noshadow.scores.sharded import passes as passes
from noshadow.scores.sharded.passes import Reading
from noshadow.scores.sharded.shards import HeadRecords, cut, head_records, whole
from noshadow.scores.sharded.solver import ShardedHead, SolvedHead, solved_head
from noshadow.scores.sharded.walk import ShardWalk
from noshadow.workers import Wording, WorkerOptions, ready_workers

WORDING = Wording("features, outputs, targets and sample_weight", "score", "scored", "shard")
SHARDS_A_WORKER = 4
SMALLEST_SHARD = 1024


@named_in_errors
def sharded_record_scores(
    features: object,
    outputs: object,
    targets: object,
    *,
    task: str = "auto",
    damping: float | str = "auto",
    fit_intercept: bool = True,
    penalize_intercept: bool = True,
    sample_weight: object = None,
    columns: Sequence[str] | None = None,
    damping_source: str | None = None,
    output_scale: str = "auto",
    precision: str = "auto",
    max_memory: float = MAX_MEMORY,
    shards: int | None = None,
    workers: int | None = None,
    threads: int = 1,
    backend: str = "loky",
    address: str | None = None,
    attempts: int = 3,
    progress: bool = PROGRESS,
) -> RecordScores:
    """Compute exact last-layer membership scores of records that lie in files.

    Each worker walks a share of the records.

    The columns of `record_scores`, from the same functions: sums over shards give the whitened
    coordinates, the curvature and the head's fit, one process inverts the curvature, and a last
    pass gives every record its columns. Workers open the files themselves, memory-mapped, so
    **every worker has to see them under the same path**: on a cluster, a shared file system. A
    worker that dies costs its shard of the current pass, which is given out again.

    Args:
        features: path of a .npy file (n, d−1), or a list of paths, consecutive parts of one array;
            an array or memory map for what is small, which travels to the workers.
        outputs, targets, sample_weight: likewise, as `record_scores` takes them; parts need not
            match those of the features.
        task: as `record_scores`. damping, fit_intercept, penalize_intercept, columns,
            damping_source, max_memory: likewise.
        output_scale: what a classifier's outputs are, "logits" or "probabilities"; "auto" asks
            where all rows could be probabilities.
        precision: "float64", "mixed" (float32 products, checked) or "auto", as `record_scores`.
        shards: into how many about equal runs of records the work is cut; by default four for each
            worker.
        workers: how many; None: all cores, here or in the cluster, divided by `threads`; 1 with
            loky: this process.
        threads: of torch and BLAS in each worker.
        backend: "loky", "ray" or "dask". address: of a running Ray or Dask cluster.
        attempts: rounds in a row in which workers die and no shard arrives before the run gives up.
        progress: draw bars on a terminal.

    Returns:
        RecordScores, in the order of the records; in float64 the numbers of `record_scores` to
        1e-10, whatever the shards, workers and backend; with float32 products to their measured
        `precision_error`.

    Raises:
        InputError: a rule on the arguments is broken, a file cannot be opened by a worker, or
            workers keep dying.
        NumericalError: the curvature cannot be factored.

    Exact when: as `record_scores`. Not for heads that only EK-FAC can take, nor for more features
        than records.
    Cost: five reads of the features (six with checked float32 products, seven for nearly collinear
        features) and the flops of `record_scores`, both divided by the workers; here ((m−1)d)³ for
        the inverse, and O(m²d²) numbers from each shard. Memory: a worker holds one stretch of its
        shard and 8·m²d²/4 bytes of sums; this process about 3·8·((m−1)d)² bytes, sums that wait for
        their neighbours (about half as many as workers), and 8 bytes for each record and column.
    Reference: those of `record_scores`.

    Example:
        >>> import numpy as np, noshadow as ns
        >>> x = np.linspace(-1, 1, 8)[:, None]
        >>> targets = 2 * x[:, 0] + 0.1 * (-1.0) ** np.arange(8)
        >>> scores = ns.sharded_record_scores(x, 2 * x, targets, damping=0.0, shards=3, workers=1)
        >>> round(scores.effective_dof, 6), int(np.argmax(scores.loo)) in (0, 7)
        (2.0, True)
    """
    started = time.perf_counter()
    wanted = requested_columns(columns)
    require_choice(precision, ("auto", "float64", "mixed"), "precision")
    _require_counts(shards=shards, workers=workers, threads=threads, attempts=attempts)
    if damping != "auto":
        require_number(damping, "damping", low=0.0)
    records = head_records(features, outputs, targets, sample_weight)
    if records.features.width[0] + fit_intercept == 0:
        refuse("features", "have at least one column when fit_intercept=False", f"shape {records.features.shape}")
    reading = Reading(_common_task(records, task), None, output_scale == "probabilities")
    require_scale(reading.task, output_scale)
    if records.sample_weight is not None:
        require_weights(whole(records.sample_weight), len(records))
    with ready_workers(WorkerOptions(backend, workers, threads, address, attempts), WORDING) as ready:
        pieces = tuple(cut(records, shards or _automatic_shards(len(records), ready.workers), _stretch(records)))
        walk = ShardWalk(ready, records, pieces, reading, WORDING, threads, attempts, progress)
        first = walk.total(passes.counts, {}, "checks")
        if reading.task != "regression":
            require_two_classes(np.flatnonzero(first["classes"]))
            if output_scale == "auto" and int(first["probable"]) == len(records) >= LEAST_RECORDS:
                refuse("outputs", "be logits, or have their scale named", "what could be probabilities in every row", ASK)
        walk = replace(walk, reading=replace(reading, soft=bool(first["soft"])))
        design = _design(walk, first["features"], fit_intercept=fit_intercept, penalize_intercept=penalize_intercept)
        head = ShardedHead(walk, design, first["outputs"] / len(records), wanted)
        found = solved_head(head, damping=damping, damping_source=damping_source, precision=precision, max_memory=max_memory)
        notes = ready.notes
    return _scores(head, found, notes, time.perf_counter() - started)


def _scores(head: ShardedHead, found: SolvedHead, notes: tuple[str, ...], seconds: float) -> RecordScores:
    solved = found.solved
    held: dict[str, Any] = solved.columns
    return RecordScores(
        task=head.task,
        damping=found.damping,
        effective_dof=solved.dof,
        rank=found.design.rank + found.design.faint,
        condition=solved.inverse.condition,
        jitter=solved.inverse.jitter,
        stationarity=found.fit.stationarity,
        head_residual=found.fit.residual,
        precision=solved.precision,
        precision_error=solved.precision_error,
        seconds=seconds,
        notes=score_notes(solved, found.design, found.fit) + notes,
        not_applicable=absent_columns(head.task, head.wanted) | solved.absent,
        **{name: held[name] for name in head.wanted if name in held},
    )


def _require_counts(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None or name in ("threads", "attempts"):
            require_whole(value, name, low=1)


def _common_task(records: HeadRecords, task: str) -> str:
    """The task named, or the one that the parts of the targets have in common."""
    # Only the shape of the outputs counts: no memory is taken for them.
    width = records.outputs.width[0] if records.outputs.width else 1
    outputs: Array = np.broadcast_to(np.float64(0), (len(records), width))
    found, refusals = set(), []
    for i in range(len(records.targets.held) if task == "auto" else 1):
        try:
            found.add(resolved_task(task, outputs, records.targets.part(i)))
        except InputError as error:
            refusals.append(error)
    # Floats that look like labels in one part are numbers when another part has others; integers
    # must be labels everywhere.
    if refusals and (not found or records.targets.kind in "biu"):
        raise refusals[0]
    (common,) = found
    require_output_columns(outputs, common)
    return str(common)


def _automatic_shards(n: int, workers: int) -> int:
    return max(min(SHARDS_A_WORKER * workers, n // SMALLEST_SHARD), 1)


def _stretch(records: HeadRecords) -> int:
    """Number of records to read at a time.

    It is large enough to keep the products busy, and small enough for the records to stay in memory
    between them.
    """
    return block_length(sum(int(np.prod(parts.width)) for parts in records.given), high=1 << 16)


def _design(walk: ShardWalk, sums: Array, *, fit_intercept: bool, penalize_intercept: bool) -> Design:
    """The whitened coordinates, as `whitened_design` builds them."""
    n, p = walk.records.features.shape
    shift = torch.zeros(p + fit_intercept, dtype=torch.float64)
    if fit_intercept:
        shift[:-1] = torch.from_numpy(sums) / n
        for _ in range(MEAN_ROUNDS - 1):
            left = walk.total(passes.offsets, {"means": shift[:-1].numpy()}, "means")["features"]
            shift[:-1] += torch.from_numpy(left) / n
    given: dict[str, Any] = {"shift": shift.numpy(), "fit_intercept": fit_intercept}
    gram = torch.from_numpy(walk.total(passes.grams, given, "second moments")["gram"])
    unit, seen = column_lengths(gram, n, shift)
    directions = gram_directions(gram, n, unit, seen)
    if directions is None:
        given |= {"unit": unit.numpy(), "seen": seen.numpy()}
        triangle = walk.total(passes.triangles, given, "directions", merged=passes.stacked)["triangle"]
        directions = triangle_directions(torch.from_numpy(triangle), n)
    return framed(shift, unit, directions, width=len(shift), fit_intercept=fit_intercept, penalize_intercept=penalize_intercept)
