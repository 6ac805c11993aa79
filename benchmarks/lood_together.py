"""Query searches for many single records at once: the same ascents as `optimal_query` makes one record after the other.

Records share kernel, factor and inverse, and each step reads those from memory once for all of them.
"""

from dataclasses import replace

import numpy as np
import torch
from lood_data import BOX

from noshadow._lood.inputs import asked_noise, box_of
from noshadow._lood.objective import ascended, query_moments, query_problem, set_divergences, starting_queries
from noshadow.arguments import MAX_MEMORY

RATE = 0.2  # of a feature's root-mean-square deviation, as `optimal_query` has it


class OwnColumns:
    """Columns (n, R), one a query: rows (R, n) times this are each row times its own column (R, 1)."""

    def __init__(self, columns):
        self.rows = columns.T.contiguous()

    def __rmatmul__(self, rows):
        return (rows * self.rows).sum(1, keepdim=True)


def best_queries(x, y, records, *, kernel, noise, factor, restarts, steps):
    """For each record the best single query of a few random starts, all of them drawn with the record's number as the seed."""
    box = box_of(BOX, x.shape[1:])
    problems = [query_problem(x, y, i, kernel, asked_noise(noise), None, factor, MAX_MEMORY) for i in records]
    starts = [starting_queries("random", p, box, restarts, 1, np.random.default_rng(i)) for p, i in zip(problems, records, strict=True)]
    spread, shift = (OwnColumns(torch.cat([getattr(p, part).expand(-1, restarts) for p in problems], 1)) for part in ("spread", "shift"))
    rows = problems[0].full.x
    rate = RATE * float((rows - rows.mean(0)).square().mean().sqrt())
    best, trace = ascended(replace(problems[0], spread=spread, shift=shift), torch.cat(starts), box, "kl", steps, rate, False)
    found = zip(problems, best.split(restarts), np.split(trace.max(1), len(records)), strict=True)
    return [similarity(problem, queries, values) for problem, queries, values in found]


def similarity(problem, queries, values):
    """How close the best of a record's queries (restarts, 1, …) comes to it."""
    record = problem.full.x[int(problem.rows[0])]
    with torch.no_grad():
        ceiling = float(set_divergences(problem, query_moments(problem, record[None, None]))[0])
    query = queries[int(values.argmax()), 0]
    return {
        "record": int(problem.rows[0]),
        "share_of_ceiling": float(values.max()) / ceiling,
        "cosine": float(torch.cosine_similarity(query.flatten(), record.flatten(), dim=0)),
        "restarts_near_ceiling": float((values > 0.9 * ceiling).mean()),
    }
