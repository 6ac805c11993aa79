"""What sources beyond the final weights know about each record, weighed into the exposure columns.

A source is put into words twice: as a `Source` for the mixed model, and as `Evidence` with columns
of its own in the record table.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from noshadow._audit.evidence import Scores, loss_evidence, score_evidence
from noshadow._audit.options import Options
from noshadow._audit.settled import Settled
from noshadow._audit.tracing import trace_covariates
from noshadow._audit.withheld import why_withheld
from noshadow._exposure import Exposure, Source, Step, largest_rate, line_to, mean_width, parted, retraining, stepwise, width_with
from noshadow._exposure.inputs import LEAST_RECORDS
from noshadow._exposure.sources import NO_SCALE, REFERENCES
from noshadow.checks import Array, NotApplicable
from noshadow.losses import record_margins
from noshadow.outcomes import Absent, not_applicable
from noshadow.results import Evidence
from noshadow.scores.trees.boosting import LeafScores
from noshadow.sizing import LEAST_TEST_RECORDS, would_identify
from noshadow.tail.losses import resolved_level
from noshadow.votes import VOTES, margins_in_votes, vote_margins, vote_shares

SOURCE = "exposure"
# Columns of one model that the mixed model reads beside its margin.
FREE = ("shift", "leverage", "newton", "margin_leverage", "entropy")
# The same of sequences, beside their loss.
FREE_OF_SEQUENCES = ("base_gain",)
# A trace that has it says more than the final weights; the others only help beside other sources.
EARLY_LOSS = "early_loss"
# How many more reference models an audit says the price and the worth of.
MORE_REFERENCES = (2, 4, 8)
# What votes vary by is not what the mixed model takes it for.
OF_VOTES = (
    "margins are votes of a forest's trees, and intervals from such margins did not hold on the calibration forests, with four "
    "references alone and with out-of-bag votes beside them"
)
SEVERAL_RESIDUALS = not_applicable("a record of several outputs has several residuals, and the exposure is that of one")


@dataclass(frozen=True, eq=False)
class Known:
    """What one source knows about the records of an audit.

    Attributes:
        source: its margins and covariates, for the mixed model of `exposure`.
        evidence: its columns, notes and stamp in the audit, and the seconds it took. The stamp
            holds "trainings", what it cost in trainings of the audited model.
        votes: the number of parts whose votes its margins are; 0 where they are log-odds.
        reference_tpr: what LiRA with four of its models finds at a false-positive rate of 0.01;
            None where it was not asked for or does not exist.
    """

    source: Source
    evidence: Evidence
    votes: int = 0
    reference_tpr: float | None = None


SourceOf = Callable[[Settled], Known]


def statistic_of(outputs: Array, targets: Array, task: str) -> Array:
    """The statistic that attacks read and `exposure` weighs, float64 (n,).

    It is the margin φ of a classifier (soft targets count as their most probable class) and the
    signed residual target − output of a regression with one output, as in `reference`.
    """
    if task != "regression":
        return record_margins(outputs, targets, task)
    residuals: Array = targets[:, 0] - outputs[:, 0].astype(np.float64)
    return residuals


def free_columns(found: Settled, scores: Scores) -> dict[str, Array]:
    """Columns of a model's weights that the mixed model reads beside its margin, name → (n,)."""
    held = score_evidence(scores).columns | dict(found.formula) | loss_evidence(found).columns
    return {name: held[name] for name in FREE if name in held}


def with_traces(known: Sequence[Known], traces: Sequence[Evidence], scores: Scores) -> tuple[Known, ...]:
    """The sources with loss traces beside them, whose columns are covariates.

    Traces alone are a source where they hold the mean loss up to the best epoch. Without it they
    rank no better than the final weights do, and nothing is weighed. Nor is it where the shift of
    boosted trees is known: it is made of the same rounds and ranks better than their losses.
    """
    beside = tuple(Known(Source("loss traces", covariates=trace_covariates(trace.columns, trace.stamp)), trace) for trace in traces)
    alone = any(EARLY_LOSS in trace.columns for trace in traces) and not isinstance(scores, LeafScores)
    return (*known, *beside) if known or alone else ()


def exposure_evidence(found: Settled, known: Sequence[Known], scores: Scores, options: Options) -> Evidence:
    """Weigh the final weights and all other sources into one rank and one size per record.

    Args:
        found: the audited model's records. known: at least one source beyond its final weights.
        scores: of its final weights. options: of the audit, for its false-positive rate and seed.

    Returns:
        Evidence of the source "exposure": `exposure_score`, which ranks, and `exposure` (d′) and
        `attack_rate` at the audit's false-positive rate with their intervals, or why the sources
        give the order only. The stamp holds the rule behind the score, each source's share, the
        line that put it on the audited model's scale, what it changed, how wide intervals would be
        with more references, and with sizes the largest rate of any record and what becomes of
        flags in a retraining.
    """
    why = _not_weighed(found)
    if why is not None:
        return _without(why)
    unseen = found.seen.test
    own = statistic_of(found.train.outputs, found.targets, found.task)
    test = statistic_of(unseen.outputs, found.unseen, found.task) if len(unseen) else np.empty(0)
    votes = int(found.seen.inputs.get(VOTES, 0))
    statistics = Statistics(own, test, "either" if found.task == "regression" else "larger", votes)
    statistics, voted = in_votes(statistics, known)
    return weighed_exposure(statistics, voted, free_columns(found, scores), fpr=audited_rate(found, options), seed=options.seed)


@dataclass(frozen=True, eq=False)
class Statistics:
    """The audited model's statistic of its records, as `statistic_of` gives it.

    Attributes:
        own: (n,) of the training records. test: (t,) of the test records.
        direction: "larger", or "either" for signed residuals.
        votes: how many parts of the model vote; 0 where its outputs are no votes.
    """

    own: Array
    test: Array
    direction: str
    votes: int = 0


def in_votes(statistics: Statistics, known: Sequence[Known]) -> tuple[Statistics, list[Known]]:
    """All margins as log((k + ½)/(B − k + ½)) of the audited model's B parts, where these vote.

    Clipped log-odds of shares of exactly 0 or 1 would stand far from all others, and those of
    models with other numbers of parts on other scales. A model that does not say that it votes is
    known to by its references. Margins that are votes already are brought to the same B.
    """
    parts = statistics.votes or max((entry.votes for entry in known), default=0)
    if not parts:
        return statistics, list(known)

    def moved(values: Array | None, votes: int) -> Array | None:
        if values is None:
            return None
        return vote_margins(vote_shares(values, votes), parts) if votes else margins_in_votes(values, parts)

    def source_in_votes(source: Source, votes: int) -> Source:
        return replace(source, margins=moved(source.margins, votes), test_margins=moved(source.test_margins, votes))

    own, test = margins_in_votes(statistics.own, parts), margins_in_votes(statistics.test, parts)
    voted = [replace(entry, source=source_in_votes(entry.source, entry.votes), votes=parts) for entry in known]
    return replace(statistics, own=own, test=test, votes=parts), voted


def weighed_exposure(statistics: Statistics, known: Sequence[Known], free: Mapping[str, Array], *, fpr: float, seed: int) -> Evidence:
    """Weigh sources beside a model's own statistic and columns.

    Args:
        statistics: of the audited model, and known: at least one source beyond its final weights;
            margins of votes all of the same number of parts (`in_votes`).
        free: name → (n,) columns that are covariates. fpr: of the attack rate. seed: of the fit.

    Returns:
        The evidence that `exposure_evidence` describes.
    """
    started = time.perf_counter()
    try:
        weighing = _weighed(statistics, [entry.source for entry in known], free, seed)
    except NotApplicable as reason:
        return _without(not_applicable(reason))
    sources = [entry.source for entry in known if entry.source.name not in weighing.covariates_only]
    rests_on = {source.name for source in sources if source.observed}
    held = [entry.evidence for entry in known if entry.source.name in rests_on]
    withheld = OF_VOTES if statistics.votes else why_withheld(weighing.found, held, fpr)
    if withheld is not None:
        steps = tuple(replace(step, width=None) for step in weighing.steps)
        weighing = replace(weighing, found=_order_of(weighing.found, withheld), steps=steps)
        sources = []  # whatever they say about test records, there are no sizes
    columns, absent = _columns(weighing.found, fpr, _order_reason(weighing.found, sources, len(statistics.test)))
    notes = tuple(f"{note[:1].lower()}{note[1:].rstrip('.')}" for note in weighing.found.notes)
    stamp = _stamp(weighing, known, fpr) | _of_all_records(weighing.found, fpr, seed)
    return Evidence(SOURCE, columns, absent, notes, stamp, time.perf_counter() - started)


def _order_of(found: Exposure, reason: str) -> Exposure:
    """The order alone, whose sizes are withheld for this reason."""
    return replace(found, order_only=True, interval=np.full_like(found.interval, np.nan), reason=reason)


def _without(why: Absent) -> Evidence:
    return Evidence(SOURCE, absent=dict.fromkeys(("exposure_score", "exposure", "attack_rate"), why))


def audited_rate(found: Settled, options: Options) -> float:
    """The false-positive rate of the audit: as asked for, or the one that its model risk has."""
    sizes = [len(losses) for losses in found.losses if len(losses) > 1]
    return resolved_level("auto", min(sizes)) if isinstance(options.fpr, str) else options.fpr


@dataclass(frozen=True, eq=False)
class _Weighing:
    """The exposure, how each source was put on the scale, and which count as covariates alone.

    `steps` says what each source changed.
    """

    found: Exposure
    steps: tuple[Step, ...]
    lines: Mapping[str, Any]
    covariates_only: tuple[str, ...]


def _not_weighed(found: Settled) -> Absent | None:
    if found.task == "regression" and found.targets.shape[1] > 1:
        return SEVERAL_RESIDUALS
    return too_few_records(len(found.train))


def too_few_records(n: int) -> Absent | None:
    """Why so few records are not weighed; None where they are enough."""
    if n >= LEAST_RECORDS:
        return None
    return not_applicable(f"{n} records are fewer than the {LEAST_RECORDS} that can be told apart from noise")


def _weighed(statistics: Statistics, sources: Sequence[Source], free: Mapping[str, Array], seed: int) -> _Weighing:
    """Weigh all sources, and say how each was put on the scale and which are covariates alone."""
    own, test = statistics.own, statistics.test
    found, steps = stepwise(own, test, sources, free=free, direction=statistics.direction, seed=seed)
    lines = {source.name: line_to(source, test) for source in sources if source.observed}
    known = {
        name: {"records": line.records, "offset": line.offset, "slope": line.slope} if line.records >= LEAST_TEST_RECORDS else None
        for name, line in lines.items()
    }
    return _Weighing(found, steps, known, tuple(source.name for source in parted(sources, test).aside))


def _order_reason(found: Exposure, sources: Sequence[Source], test_records: int) -> str:
    """Why sizes are not known, by the sources whose margins were weighed.

    More test records are no help to a source that says nothing about any of them; where there are
    too few, no further model helps.
    """
    observed = [source for source in sources if source.observed]
    references = [source for source in observed if source.role == REFERENCES]
    if observed and test_records < LEAST_TEST_RECORDS:
        more = "" if references else ", and have two reference models trained beside them"
        return NO_SCALE.format(least=LEAST_TEST_RECORDS, count=test_records).rstrip(".") + more
    silent = [source.name for source in observed if source.test_margins is None]
    if not silent:
        return found.reason.rstrip(".")
    identify = would_identify(len(found.score)).rstrip(".")
    return f"{' and '.join(silent)} say nothing about test records, which would show their scale. {identify}"


def _columns(found: Exposure, fpr: float, reason: str) -> tuple[dict[str, Array], dict[str, str]]:
    columns: dict[str, Array] = {"exposure_score": found.score}
    if found.order_only:
        why = not_applicable(f"the sources give the order of the records only: {reason}")
        return columns, {"exposure": why, "attack_rate": why}
    rates = found.tpr_interval(fpr)
    columns |= {"exposure": found.d_prime, "exposure_low": found.interval[:, 0], "exposure_high": found.interval[:, 1]}
    return columns | {"attack_rate": found.tpr(fpr), "attack_rate_low": rates[:, 0], "attack_rate_high": rates[:, 1]}, {}


def _of_all_records(found: Exposure, fpr: float, seed: int) -> dict[str, Any]:
    """Figures about all records together; none where only the order is known."""
    if found.order_only:
        return {}
    return {"largest_rate": largest_rate(found, fpr, seed=seed).to_dict(), "retraining": retraining(found, fpr, seed=seed).to_dict()}


def _stamp(weighing: _Weighing, known: Sequence[Known], fpr: float) -> dict[str, Any]:
    found = weighing.found
    return {
        "rule": found.rule,
        "order_only": found.order_only,
        "level": found.level,
        "fpr": fpr,
        "direction": found.direction,
        "weights": {name: float(share) for name, share in found.weights.items()},
        "trainings": {entry.source.name: float(entry.source.trainings) for entry in known},
        "lines": dict(weighing.lines),
        "covariates_only": list(weighing.covariates_only),
        "changed": [asdict(step) for step in weighing.steps],
        "tail": None if found.state is None or found.state.tail is None else asdict(found.state.tail),
        "width": mean_width(found),
        "width_with": {} if found.order_only else {str(more): width_with(found, more) for more in MORE_REFERENCES},
    }
