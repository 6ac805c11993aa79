"""Recall over the number of reference models: what a truth from fewer models would have shown of every score, and a second LiRA."""

import numpy as np

from benchmarks.papers.truth import OWN_VARIANCE, lira_truth
from noshadow.metrics import top_recall

COUNTS = (8, 16, 24, 32, 64, 92)
DRAWS = 3
TOP, KEPT = 0.01, 0.05


def disjoint_draws(models, count, *, draws=DRAWS, seed=0):
    """Pairs of disjoint sets of `count` of the models each, and no model in two pairs: as many as there are models for, at most `draws`."""
    order = np.random.default_rng(seed).permutation(models)
    blocks = [np.sort(order[start : start + count]) for start in range(0, len(order) - count + 1, count)]
    return [(blocks[2 * k], blocks[2 * k + 1]) for k in range(min(draws, len(blocks) // 2))]


def by_count(references, scores):
    """Recall of LiRA's top 1 % in the top 5 % with K models, by success and by d′: {attack: {score: {K: mean over targets and draws}}}.

    Truths are of the models that are not scored, so that no target is in its own; "second" is a LiRA with K others. A score's figure is
    against a truth of K models: it rises with K where the truth of few models is noise.
    """
    found, targets = {"lira_success": {}, "lira_d": {}}, len(scores)
    for count in COUNTS:
        for first, second in disjoint_draws(np.arange(targets, references.plan.models), count):
            truth, again = _truth(references, first), _truth(references, second)
            for attack, rows_of_score in found.items():
                for target in range(targets):
                    rows = references.plan.members(target)
                    known = np.isfinite(truth[attack][rows]) & np.isfinite(again[attack][rows])
                    columns = scores[target] | {"second": again[attack][rows]}
                    for name, column in columns.items():
                        value = top_recall(truth[attack][rows][known], np.asarray(column)[known], top=TOP, keep=KEPT)
                        rows_of_score.setdefault(name, {}).setdefault(str(count), []).append(value)
    return {
        attack: {name: {count: round(float(np.mean(held)), 4) for count, held in row.items()} for name, row in rows.items()}
        for attack, rows in found.items()
    }


def _truth(references, models):
    """LiRA's success and d′ of every record with these models; NaN for records that fewer than three of them had, or had not."""
    member = np.asarray(references.membership)[models]
    known = np.flatnonzero(np.minimum(member.sum(0), (~member).sum(0)) >= 3)
    variance = "record" if len(models) >= OWN_VARIANCE else "global"
    lira = lira_truth(references, models, variance=variance, rows=known)
    found = {}
    for name, values in (("lira_success", lira.success), ("lira_d", lira.d_prime)):
        found[name] = np.full(member.shape[1], np.nan)
        found[name][known] = values
    return found
