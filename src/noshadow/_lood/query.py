"""The queries that reveal most about a group of records, found by gradient ascent.

Such queries show whether records can be reconstructed from the leak.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noshadow._lood.divergence import variance_excess
from noshadow._lood.factor import Posterior
from noshadow._lood.inputs import Kernel, asked_noise, box_of, input_rows, query_rows
from noshadow._lood.objective import (
    JITTER,
    OBJECTIVES,
    QueryMoments,
    QueryProblem,
    ascended,
    greedy_queries,
    query_moments,
    query_problem,
    set_divergences,
    starting_queries,
)
from noshadow.arguments import MAX_MEMORY, PROGRESS
from noshadow.checks import Array, named_in_errors, require_choice, require_number, require_whole, whole_seed

_DEFAULT_RATE = 0.2
_SETTLED = 1e-3


@dataclass(frozen=True, eq=False)
class QueryResult:
    """Queries that maximise the distinguishability of a group of records.

    The result also says how close they come to the records of the group.

    Attributes:
        queries: (q, …) the best set over restarts. value: its objective. kl, mean_distance: both
            objectives there.
        values: (restarts,) best value of each restart. all_queries: (restarts, q, …) where it was
            reached.
        trace: (restarts, steps + 1) the objective along the way.
        record_values: (s,) the objective with each differing record as the only query.
        ceiling: KL with the whole group as the query set, which no query set exceeds; None with
            `kernel_without`.
        nearest: (q,) the differing record closest to each query, as a row number of x.
        distance: (q,) Euclidean distance to it, as a share of the root-mean-square distance of x
            from its mean.
        cosine: (q,) cosine between the query and that record (kernels of relu networks without
            biases see no more).
        prediction_gap: (q, 2) distance between the posterior means at the query and at that record,
            with and without the group.
        prediction_kl: (q,) KL between the predictions at the query and at that record of the model
            with the group.
        converged: whether the best restart settled. settled: (restarts,) over its last tenth the
            objective rose by less than a thousandth.
        differing, objective, noise, steps, rate, seed, jitter: what was asked and used.
    """

    queries: Array
    value: float
    kl: float
    mean_distance: float
    values: Array
    all_queries: Array
    trace: Array
    record_values: Array
    ceiling: float | None
    nearest: Array
    distance: Array
    cosine: Array
    prediction_gap: Array
    prediction_kl: Array
    converged: bool
    settled: Array
    differing: Array
    objective: str
    noise: float
    steps: int
    rate: float
    seed: int
    jitter: float


@named_in_errors
def optimal_query(
    x: object,
    y: object,
    *,
    differing: object,
    kernel: Kernel,
    noise: float | None = None,
    relative_noise: float | None = None,
    objective: str = "kl",
    queries: int = 1,
    restarts: int = 5,
    bounds: tuple[object, object] | None = None,
    seed: int = 0,
    steps: int = 300,
    lr: float | None = None,
    start: object = "random",
    kernel_without: Kernel | None = None,
    factor: Posterior | None = None,
    max_memory: float = MAX_MEMORY,
    progress: bool = PROGRESS,
) -> QueryResult:
    """Find the query set at which training with a group of records shows most.

    There a model trained with the group is easiest to tell from one trained without it.

    argmax_Q LOOD(Q), by Adam on log LOOD (the same maxima, and a gradient that does not fade where
    the leak is small), with a step size that falls by a cosine to a fiftieth, projected on
    `bounds`. The best query over all steps and restarts is returned. When it resembles the record,
    the leak allows reconstruction. KL has a known ceiling: the two models differ by a likelihood
    that depends on f(S) alone, so f(S) is sufficient and no query set tells them apart better than
    S itself. That needs one kernel for both models, and does not hold for the mean distance.

    Args:
        x, y, differing, kernel, noise, relative_noise: as in `lood`; the kernel must be
            differentiable in its first argument.
        objective: "kl" or "mean_distance". queries: size q of the query set. restarts: starting
            sets, optimised together.
        bounds: (low, high), numbers or arrays of a record's shape; None: no bounds (the mean
            distance of a kernel that grows with its inputs then has no maximum).
        seed: for the starts. steps: ascent steps. lr: first step size, in units of the inputs;
            None: a fifth of the root-mean-square deviation of a feature.
        start: "random" (uniform in the bounds, or in each feature's range), "greedy" (random too,
            but query by query: each ascends beside the best ones before it, which stay, and then
            all ascend together; for groups, where random sets mostly crowd around one record),
            "record" (the differing records; all but the first restart with 5 % noise), or an array
            (q, …) or (restarts, q, …).
        kernel_without: kernel of the model trained without the group when the training data change
            it, as with data-dependent normalisation; None: the same kernel.
        factor: `posterior_of(…, with_inverse=True)` the same x, y, kernel and noise, to reuse it.
        max_memory: bytes that factor and inverse may take. progress: draw a bar on a terminal.

    Returns:
        QueryResult.

    Raises:
        InputError: arguments as in `lood`, empty or crossed bounds, starts of the wrong shape.
        NumericalError: a covariance or a gradient that float64 cannot resolve.

    Approximates: the maximum of a non-convex function; `values` over restarts shows how reliably.
    Cost: n³ flops once, then n²·q·restarts flops and one kernel call with gradient per step;
        "greedy" takes q + 1 ascents, together (q + 3)/2 times the flops.
    Reference: [LOOD] Section 4, Eq. (2), Appendices D.3–D.4, E and F.3.

    >>> near = lambda a, b: torch.exp(-((a[:, None] - b) ** 2).sum(2))
    >>> x, y = [[0.0], [1.0], [3.0]], [0.0, 1.0, 0.0]
    >>> how = {"kernel": near, "noise": 0.1, "steps": 9, "start": "record"}
    >>> found = optimal_query(x, y, differing=2, **how)
    >>> found.nearest
    array([2])
    """
    require_choice(objective, OBJECTIVES, "objective")
    size, sets = require_whole(queries, "queries", low=1), require_whole(restarts, "restarts", low=1)
    count, chosen_seed = require_whole(steps, "steps", low=1), whole_seed(seed)
    box = box_of(bounds, input_rows(x, "x").shape[1:])
    problem = query_problem(x, y, differing, kernel, asked_noise(noise, relative_noise), kernel_without, factor, max_memory)
    rows = problem.full.x
    deviation = float((rows - rows.mean(0)).square().mean().sqrt())
    rate = _DEFAULT_RATE * (deviation or 1.0) if lr is None else require_number(lr, "lr", low=0, low_open=True)
    initial = starting_queries(start, problem, box, sets, size, np.random.default_rng(chosen_seed))
    if isinstance(start, str) and start == "greedy":
        initial = greedy_queries(problem, initial, box, objective, count, rate, progress)
    best, trace = ascended(problem, initial, box, objective, count, rate, progress)
    return _result(problem, best, trace, objective, rate, chosen_seed)


@named_in_errors
def query_lood(
    x: object,
    y: object,
    *,
    differing: object,
    queries: object,
    kernel: Kernel,
    noise: float | None = None,
    relative_noise: float | None = None,
    kernel_without: Kernel | None = None,
    factor: Posterior | None = None,
    max_memory: float = MAX_MEMORY,
) -> tuple[Array, Array]:
    """KL and mean-distance distinguishability of a group at many single queries.

    Args:
        x, y, differing, kernel, noise, relative_noise, kernel_without, factor, max_memory: as in
            `optimal_query`.
        queries: (k, …) inputs, each queried alone.

    Returns:
        (kl (k,), mean_distance (k,)); as from `lood` one query at a time.

    Raises:
        InputError, NumericalError: as in `optimal_query`.

    Exact when: always, up to rounding and a variance of 1e-10 of the prior's added to both models.
    Cost: n³ flops once, then n² flops per query.
    Reference: [LOOD] Definitions C.1 and C.3, Figures 4 and 12.
    """
    problem = query_problem(x, y, differing, kernel, asked_noise(noise, relative_noise), kernel_without, factor, max_memory)
    points = query_rows(queries, problem.full.x)
    with torch.no_grad():
        values = [set_divergences(problem, query_moments(problem, block[:, None])) for block in torch.split(points, 64)]
    return torch.cat([kl for kl, _ in values]).numpy(), torch.cat([distance for _, distance in values]).numpy()


def _result(problem: QueryProblem, best: Tensor, trace: Array, objective: str, rate: float, seed: int) -> QueryResult:
    values = trace.max(1)
    top = int(values.argmax())
    records = problem.full.x[torch.from_numpy(problem.rows)]
    with torch.no_grad():
        kl, mean_distance = (float(part[0]) for part in set_divergences(problem, query_moments(problem, best[top : top + 1])))
        alone = query_moments(problem, records[:, None])
        record_values = set_divergences(problem, alone)[OBJECTIVES.index(objective)].numpy()
        ceiling = float(set_divergences(problem, query_moments(problem, records[None]))[0])
        nearest, distance, cosine = _likeness(best[top].flatten(1), records.flatten(1), problem.full.x.flatten(1))
        gap, prediction_kl = _prediction_similarity(query_moments(problem, best[top][:, None]), alone, nearest)
    recent = max(1, trace.shape[1] // 10)
    settled = values <= (1 + _SETTLED) * trace[:, :-recent].max(1)
    return QueryResult(
        queries=best[top].numpy(),
        value=float(values[top]),
        kl=kl,
        mean_distance=mean_distance,
        values=values,
        all_queries=best.numpy(),
        trace=trace,
        record_values=record_values,
        ceiling=None if problem.without is not None else ceiling,
        nearest=problem.rows[nearest.numpy()],
        distance=distance,
        cosine=cosine,
        prediction_gap=gap,
        prediction_kl=prediction_kl,
        converged=bool(settled[top]),
        settled=settled,
        differing=problem.rows,
        objective=objective,
        noise=problem.noise,
        steps=trace.shape[1] - 1,
        rate=rate,
        seed=seed,
        jitter=JITTER,
    )


def _likeness(queries: Tensor, records: Tensor, x: Tensor) -> tuple[Tensor, Array, Array]:
    """Nearest record of each query (q,), distance to it, and cosine with it.

    The distance is a share of the data's spread.
    """
    apart = torch.cdist(queries, records, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = apart.argmin(1)
    spread = float((x - x.mean(0)).square().sum(1).mean().sqrt()) or 1.0
    return nearest, (apart.amin(1) / spread).numpy(), torch.cosine_similarity(queries, records[nearest], dim=1).numpy()


def _prediction_similarity(each: QueryMoments, alone: QueryMoments, nearest: Tensor) -> tuple[Array, Array]:
    """How similar the predictions at queries are to those at their nearest records.

    Returns gaps (q, 2) between the means, and KL (q,) between the full model's predictions.
    """
    gap = each.mean[:, 0] - alone.mean[nearest, 0]
    without = gap + each.shift[:, 0] - alone.shift[nearest, 0]
    variance = alone.covariance[nearest, 0, 0]
    excess = (each.covariance[:, 0, 0] - variance) / variance
    kl = 0.5 * (gap.shape[1] * variance_excess(excess.numpy()) + (gap.square().sum(1) / variance).numpy())
    return torch.stack([gap.norm(dim=1), without.norm(dim=1)], 1).numpy(), kl
