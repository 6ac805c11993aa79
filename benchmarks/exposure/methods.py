"""Every method's score of one target's members, with the trainings it spends."""

from dataclasses import dataclass

import numpy as np

from benchmarks.exposure import rivals
from benchmarks.exposure.evidence import first_models
from noshadow._exposure import Source, weighed

REFERENCES = (1, 2, 4, 8, 16)
SHORT = (3, 7)
BESIDE = (1, 2, 4)


@dataclass(frozen=True, eq=False)
class Scored:
    """One method on one target.

    Attributes:
        name: of the method. trainings: spent beyond the audited model's own. score: (m,).
        found: the Exposure behind it, or None. ours: whether it is `ns.exposure`.
    """

    name: str
    trainings: float
    score: np.ndarray
    found: object = None

    @property
    def ours(self):
        """Whether `weighed` made it."""
        return self.found is not None


def scored(evidence, pool, whole):
    """All methods on one target; `whole` = (own margins of all records, member, order of the references)."""
    return [
        *free_scores(evidence, pool),
        *fold_scores(evidence, pool),
        *short_scores(evidence, pool),
        *reference_scores(evidence, pool, whole),
    ]


def free_sources(evidence, *, trace=True):
    """Sources without a training: the checkpoint, and the loss trace."""
    found = [Source("checkpoint", evidence.checkpoint)]
    return [*found, Source("loss trace", evidence.trace)] if trace else found


def ours(name, trainings, evidence, pool, sources):
    """One answer of `weighed`."""
    found = weighed(evidence.margins, evidence.test_margins, sources, free=evidence.final, direction=pool.direction)
    return Scored(name, trainings, found.score, found)


def free_scores(evidence, pool):
    """Columns of the model itself, of its checkpoint and of its trace."""
    size = np.abs(evidence.margins) if pool.direction == "either" else -evidence.margins
    plain = {"loss": size, "shift": evidence.final["shift"], "lt_iqr": evidence.trace["lt_iqr"], "early_loss": evidence.trace["early_loss"]}
    plain |= {name: evidence.checkpoint[name] for name in ("checkpoint_shift", "checkpoint_loss")}
    yield from (Scored(name, 0.0, np.where(np.isnan(score), -np.inf, score)) for name, score in plain.items())
    yield ours("exposure", 0.0, evidence, pool, [])
    yield ours("exposure_checkpoint", 0.0, evidence, pool, free_sources(evidence, trace=False))
    yield ours("exposure_trace", 0.0, evidence, pool, free_sources(evidence))


def fold_scores(evidence, pool):
    """Cross-validation of the training set itself."""
    for k, source in evidence.folds.items():
        yield Scored(f"label_quality_folds{k}", k - 1, rivals.label_quality(source, pool.direction))
        yield ours(f"exposure_final_folds{k}", k - 1, evidence, pool, [source])
        yield ours(f"exposure_folds{k}", k - 1, evidence, pool, [*free_sources(evidence), source])


def short_scores(evidence, pool):
    """References stopped at the audited training's best epoch, alone and beside full ones."""
    for count in SHORT:
        spent = count * evidence.price
        short = first_models(evidence.short, count, spent)
        yield ours(f"exposure_short{count}", spent, evidence, pool, [*free_sources(evidence), short])
        for full in BESIDE if count == SHORT[0] else ():
            sources = [*free_sources(evidence), short, first_models(evidence.references, full, full)]
            yield ours(f"exposure_short{count}_{full}", full + spent, evidence, pool, sources)


def reference_scores(evidence, pool, whole):
    """K reference models: ours beside plain differences, LiRA and RMIA."""
    own, member, order = whole
    for count in REFERENCES:
        if count > len(order):
            return
        source = first_models(evidence.references, count, count)
        yield Scored(f"difference_{count}", count, rivals.differences(evidence.margins, source, pool.direction))
        for name, score in rivals.lira(evidence.margins, source, pool.direction).items():
            yield Scored(f"{name}_{count}", count, score)
        chosen = order[:count]
        yield Scored(f"rmia_{count}", count, rivals.rmia(own, member, pool.references[chosen], pool.membership[chosen], pool.task))
        yield ours(f"exposure_final_{count}", count, evidence, pool, [source])
        yield ours(f"exposure_{count}", count, evidence, pool, [*free_sources(evidence), source])
