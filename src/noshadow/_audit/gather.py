"""One view of a model, what it says about its records, and its risk, gathered into an Audit."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from noshadow._audit.evidence import Contradicted, LayeredScores, Scores, loss_evidence, rate_evidence, score_evidence, scored
from noshadow._audit.exposing import Known, SourceOf, exposure_evidence, with_traces
from noshadow._audit.four_references import calibrated
from noshadow._audit.known_references import audited_of
from noshadow._audit.leaves import leaf_evidence, leaf_facts
from noshadow._audit.near_twins import near_facts
from noshadow._audit.notes import damping_note, risk_notes
from noshadow._audit.options import GivenColumns, Options
from noshadow._audit.other_models import CHECKPOINTS
from noshadow._audit.risks import Pair, correct_of, margins_of, measured_risk, naming_record_rates, risks_by_group, shown_family
from noshadow._audit.settled import Settled, settled
from noshadow._audit.solved import contradicted_by_gradient
from noshadow._audit.splits import split_counts
from noshadow._audit.stages import Stages
from noshadow._audit.stamps import provenance, timings
from noshadow._audit.tracing import trace_evidence, traced_facts
from noshadow._audit.trained_sources import TrainedSource
from noshadow._audit.without_records import Without, formula_evidence
from noshadow.checks import Array
from noshadow.columns import named
from noshadow.outcomes import uncoded
from noshadow.results import Audit, Evidence, GroupRisk, MeasuredAttack, ModelRisk
from noshadow.scores.result import RecordScores
from noshadow.scores.trees.boosting import LeafScores
from noshadow.views import View

NO_INPUTS = "not given"


@dataclass(frozen=True, eq=False)
class Gathered:
    """What an audit says beside its records' columns, whatever the kind of model."""

    task: str
    identity: dict[str, Any]
    losses: Pair
    risk: ModelRisk | None
    borne: dict[str, tuple[GroupRisk, ...]]
    absent: dict[str, str]
    notes: tuple[str, ...]
    provenance: dict[str, Any]
    timings: dict[str, Any] = field(default_factory=dict)
    sequence_attacks: tuple[MeasuredAttack, ...] = ()


def audit_of(found: Gathered, evidence: Sequence[Evidence]) -> Audit:
    """The audit: who the records are, then what each source says about them."""
    bare = Audit(
        records=pd.DataFrame(found.identity),
        model_risk=found.risk,
        member_losses=found.losses[0],
        nonmember_losses=found.losses[1],
        task=found.task,
        ranked_by=None,
        not_applicable=found.absent,
        notes=found.notes,
        provenance=found.provenance,
        timings=found.timings,
        class_risk=found.borne.get("class_risk", ()),
        group_risk=found.borne.get("group_risk", ()),
        sequence_attacks=found.sequence_attacks,
    )
    return bare.with_evidence(*evidence)


def audit_view(
    seen: View,
    options: Options,
    given: GivenColumns,
    *,
    signal_seconds: float,
    layered_scores: LayeredScores | None = None,
    sources: Sequence[SourceOf] = (),
    trained: Sequence[TrainedSource] = (),
    stages: Callable[[Settled], Stages] | None = None,
    beside: Callable[[Settled], Without] | None = None,
    inputs: Array | str = NO_INPUTS,
) -> Audit:
    """Check what belongs to the records, score them and measure the risk.

    The table and the stamps are then put together.

    Args:
        seen: the model's view of its records. options, given: as the audit was asked for.
        signal_seconds: that the view took.
        layered_scores: gives the scores over more layers than the last, or over trees, for the
            settled task, in place of the last layer's.
        sources: say what is known beyond the final weights, each a function of the settled records.
            They are asked first, since they may refuse what they were given.
        trained: further ones that train when they are asked: last, when all else has worked.
        stages: gives the loss traces and the checkpoint that a model keeps of itself, where none
            were given.
        beside: asks the model itself what it says of each record without it.
        inputs: what the model was given of its training records, or why they are not known.
    """
    found = settled(seen, options, given)
    known = [source(found) for source in sources]
    without = Without() if beside is None else beside(found)
    found = replace(found, formula=without.columns)
    history = _history(found, given, stages, known)
    traces = history.traces
    started = time.perf_counter()
    scores = scored(found, options, layered_scores)
    scoring = time.perf_counter() - started
    held = scores if isinstance(scores, RecordScores) else None
    risk, absent, family = _model_risk(found, options, held)
    groups = {"class_risk": found.classes, "group_risk": found.groups}
    borne, borne_absent = risks_by_group(found.losses, groups, options.resampling)
    counts = split_counts(found.train, seen.test) | {"near": near_facts(found, inputs, options.seed)}
    counted = scores.leaves if isinstance(scores, LeafScores) else without.leaves
    yielding = scores.yielding_shift if isinstance(scores, LeafScores) else None
    facts = dict(found.seen.inputs) | {"family": family} | traced_facts(traces) | without.facts | leaf_facts(counted)
    contradicted = scores.reason if isinstance(scores, Contradicted) else contradicted_by_gradient(found, held)
    facts |= {} if contradicted is None else {"other_records": contradicted}
    found = replace(found, seen=replace(found.seen, inputs=facts))
    measuring = time.perf_counter() - started - scoring
    # Everything else has worked: now models are trained.
    known += [source(audited_of(found)) for source in trained]
    known, reference_tpr = calibrated(known, family)
    if reference_tpr is not None:
        risk, absent, _ = _model_risk(found, options, held, reference_tpr)
    rates = rate_evidence(found, options, scores, risk)
    if found.task == "regression" and rates.columns:
        risk, absent = naming_record_rates(risk, absent)
    gathered = Gathered(
        task=found.task,
        identity=found.identity,
        losses=found.losses,
        risk=risk,
        borne=borne,
        absent=absent | borne_absent,
        notes=uncoded((*seen.notes, *risk_notes(risk), *damping_note(options.damping, held))),
        provenance=provenance(found, options, held) | {"splits": counts},
        timings=timings(signal_seconds, scoring, measuring),
    )
    evidence = (loss_evidence(found), formula_evidence(score_evidence(scores), without), rates, *leaf_evidence(counted, yielding), *traces)
    # Trees order records by themselves; beside other sources what they say is weighed with them.
    own = (*without.known, *history.known)
    told = () if known else tuple(entry.evidence for entry in own)
    beyond = [*known, *own] if known else []
    return audit_of(gathered, (*evidence, *told, *weighed_evidence(found, beyond, traces, scores, options)))


def _history(found: Settled, given: GivenColumns, stages: Callable[[Settled], Stages] | None, known: Sequence[Known]) -> Stages:
    """Loss traces as they were given, or those that the model keeps of itself.

    Its best stage comes with these, unless a checkpoint was given (one of `known`).
    """
    if stages is None or given.loss_traces is not None:
        return Stages(trace_evidence(given.loss_traces, found.train.ids, found.losses, found.targets, found.task))
    kept = stages(found)
    handed = any(entry.evidence.source == CHECKPOINTS for entry in known)
    return replace(kept, known=()) if handed else kept


def weighed_evidence(
    found: Settled, known: Sequence[Known], traces: Sequence[Evidence], scores: Scores, options: Options
) -> tuple[Evidence, ...]:
    """What the sources beyond the final weights say, and all evidence weighed together.

    Nothing is weighed without such a source.
    """
    told = tuple(entry.evidence for entry in known)
    beyond = with_traces(known, traces, scores)
    return (*told, exposure_evidence(found, beyond, scores, options)) if beyond else told


def score_columns(
    seen: View,
    options: Options,
    *,
    layered_scores: LayeredScores | None = None,
    beside: Callable[[Settled], Without] | None = None,
) -> dict[str, Array]:
    """Compute every score that one model has for its training records: name → (n,).

    No risk is measured, and nothing that needs test records. `layered_scores` and `beside` as in
    `audit_view`.
    """
    found = settled(seen, options, GivenColumns())
    without = Without() if beside is None else beside(found)
    found = replace(found, formula=without.columns)
    scores = scored(found, options, layered_scores)
    own = (formula_evidence(score_evidence(scores), without), *(entry.evidence for entry in without.known))
    evidence = (loss_evidence(found), rate_evidence(found, options, scores, None), *own)
    held = {name: values for entry in evidence for name, values in entry.columns.items()}
    return {name: held[name] for name in named(score=True) if name in held}


def _model_risk(
    found: Settled, options: Options, scores: RecordScores | None, reference_tpr: float | None = None
) -> tuple[ModelRisk | None, dict[str, str], str]:
    """Measure the model's risk.

    An attack's rate is predicted from what LiRA with four reference models finds, where that is
    known. Beside it stand what of the risk does not exist, and the family of models that it was
    predicted for.
    """
    seen = found.seen
    correct = correct_of(found.train, found.targets, seen.test, found.unseen, found.task)
    margins = margins_of(found.train, found.targets, seen.test, found.unseen, found.task, soft=found.soft)
    family = shown_family(seen, scores, found.task)
    how: dict[str, Any] = {"margins": margins, "family": family, "soft": found.soft, "reference_tpr": reference_tpr}
    risk, absent = measured_risk(found.losses, correct, found.task, scores, options.resampling, **how)
    return risk, absent, family
