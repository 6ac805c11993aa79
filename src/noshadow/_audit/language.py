"""Audit a language model.

Model-level risk comes from the losses of its sequences, record scores come from its output head,
and what is known beyond the final weights comes from the model that it was fine-tuned from.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from noshadow._audit.evidence import RECORD_COLUMNS, score_evidence
from noshadow._audit.gather import Gathered, audit_of
from noshadow._audit.language_base import Base, base_given, read_base
from noshadow._audit.near_sequences import duplicate_evidence, duplicate_sequences, near_sequence_facts
from noshadow._audit.notes import risk_notes
from noshadow._audit.options import GivenColumns, Options
from noshadow._audit.other_models import BASE
from noshadow._audit.own_gains import own_gains
from noshadow._audit.risks import EMPTY, ONE, Pair, risks_by_group, without_findings
from noshadow._audit.sequence_evidence import (
    attacks_absent,
    base_columns,
    base_evidence,
    sequence_attacks,
    texts_of,
    token_columns,
    token_evidence,
)
from noshadow._audit.sequence_sources import OtherModels, Sequences, other_models_known, sequence_exposure
from noshadow._audit.settled import group_names
from noshadow._audit.splits import copies_among
from noshadow._audit.stamps import PACKAGES, asked, score_stamp, timings
from noshadow._audit.tracing import trace_evidence, traced_facts
from noshadow.arguments import MAX_MEMORY
from noshadow.checks import Array, NotApplicable, refuse
from noshadow.columns import named
from noshadow.outcomes import Absent, not_applicable, uncoded
from noshadow.results import Audit, Evidence, ModelRisk
from noshadow.scores.result import RecordScores
from noshadow.scores.sequences import SCORED, TASK, sequence_scores
from noshadow.signals import record_ids
from noshadow.storage.digests import ids_sha256
from noshadow.storage.versions import versions_of
from noshadow.tail import model_risk
from noshadow.views import SequenceLosses, TokenHead, sequence_features, sequence_losses, storage_words, weights_sha256
from noshadow.views.row_names import repeats_among

NO_PREDICTION = (
    "Losses of sequences are spread about evenly on both sides of their mean, so the calibration on loss tails does not hold for "
    "language models: the loss AUC is the figure to read, and no calibration from it to an attack's rate ships [TAIL §5.3]."
)
NO_GAPS = not_applicable(
    "a sequence has a margin at every token, and leaving it out takes all of them away at once, which is not one step of the last layer"
)
NO_RECORD_RATE = not_applicable("no calibration from scores of sequences to an attack's rate ships")
NO_CLASSES = not_applicable("the records have no classes")
NO_ENTROPY = not_applicable("a language model has one entropy per token, not one per record")


def audit_language_model(
    model: object,
    train: object,
    test: object,
    options: Options,
    given: GivenColumns,
    *,
    base: object,
    tokenizer: object,
    batch_size: int,
    device: object,
    others_given: OtherModels,
) -> Audit:
    """Audit of a language model; arguments as in `audit`; `others_given` are other models.

    The record table holds id, group, tokens (scored), loss (mean negative log-likelihood per token,
    nats), gradient_norm, leverage and influence over the output head, min_k, min_k_plus and, with a
    tokenizer, zlib_ratio; `lt_iqr` when traces were given (and `early_loss` with those of unseen
    sequences). With a base it holds base_loss, base_gain, error_zone and window_votes. It ranks by
    influence. With models that were trained without some of the sequences it ranks by
    `exposure_score`, and has sizes where they identify them. Where the head cannot be read or is
    too large, the losses remain.
    """
    origin = base_given(base, model, tokenizer)
    sources = other_models_known(others_given, model)
    started = time.perf_counter()
    reading: dict[str, Any] = {"batch_size": batch_size, "device": device, "progress": options.progress}
    memory = {name: value for name, value in options.score_options.items() if name == "max_memory"}
    members, head = sequence_features(model, train, argument="train", statistics=True, **reading, **memory)
    if len(members) < 2:
        refuse("train", "hold at least 2 records", len(members))
    nobody = test is None or _length(test) == 0
    others = None if nobody else sequence_losses(model, test, argument="test", statistics=True, **reading)
    below = origin if isinstance(origin, NotApplicable) else read_base(origin, model, members, others, reading)
    beside = (None, None) if isinstance(below, NotApplicable) else (below.train, below.test)
    seen, unseen = (_columns(split, base_split, tokenizer) for split, base_split in zip((members, others), beside, strict=True))
    memory_for = float(memory.get("max_memory", MAX_MEMORY))
    gained = own_gains(model, origin, below, (members, others), reading, memory_for)
    if not isinstance(gained, NotApplicable):
        seen["own_gain"], unseen["own_gain"] = gained
    losses = (members.loss, np.empty(0) if others is None else others.loss)
    identity = _identity(members, given)
    test_names = group_names(given.test_groups, len(losses[1]), "test_groups").get("group")
    traces = trace_evidence(given.loss_traces, identity["id"], losses, None, TASK)
    read = time.perf_counter()
    scores = _scores(head, options)
    held = None if isinstance(scores, Absent) else scores
    scoring = time.perf_counter() - read
    risk, absent = _risk(losses, options.resampling)
    borne, borne_absent = risks_by_group(losses, {"group_risk": (identity.get("group"), test_names)}, options.resampling)
    assert members.sequences is not None
    duplicates = duplicate_sequences(members.sequences, members.digests, identity["id"], seed=options.seed)
    splits = _split_counts(members, others, identity["id"]) | {"near": near_sequence_facts(duplicates)}
    facts = traced_facts(traces)
    attacks = sequence_attacks(seen, unseen, own=None if risk is None else risk.fpr, seed=options.seed)
    stamp = _provenance(model, members, others, identity["id"], options, held)
    gathered = Gathered(
        task=TASK,
        identity=identity,
        losses=losses,
        risk=risk,
        borne=borne,
        absent=absent | borne_absent | attacks_absent(len(losses[1])) | {"class_risk": NO_CLASSES},
        notes=uncoded((*_base_notes(base, origin), *_storage_notes(model), *_window_notes(members, others), *risk_notes(risk))),
        provenance=stamp | {"splits": splits, "inputs": stamp["inputs"] | facts},
        timings=timings(read - started, scoring, time.perf_counter() - read - scoring),
        sequence_attacks=attacks,
    )
    tokens = token_evidence({name: seen[name] for name in named(source="tokens") if name in seen})
    told = base_evidence({name: seen[name] for name in named(source=BASE) if name in seen}, below, unseen, gained)
    everything = Sequences(members, others, identity, stamp["hashes"]["weights"], reading)
    # Those that train come last, when all else has worked.
    known = [source(everything) for source in sources]
    exposed = sequence_exposure(everything, known, seen, below, options)
    others_told = (entry.evidence for entry in known)
    return audit_of(
        gathered, (*_evidence(members.loss, scores), tokens, duplicate_evidence(duplicates), *traces, told, *others_told, *exposed)
    )


def require_language_arguments(options: Options, **given: tuple[object, object]) -> None:
    """Refuse options that have no meaning for a language model and are not at their defaults.

    So nothing that was asked for vanishes silently.

    Args:
        options: the common ones. given: name → (value, default) of the others.
    """
    if not isinstance(options.damping, str) and options.damping <= 0:
        hint = "Its rarest tokens have next to no curvature of their own."
        refuse("damping", "be a number > 0 for a language model", f"{options.damping:g}", hint)
    asked = given | {"task": (options.task, "auto"), "layers": (options.layers, "last")}
    for name, (value, default) in asked.items():
        if value is not default and not (isinstance(value, str) and value == default):
            got = repr(value) if isinstance(value, (str, int, float)) else type(value).__name__
            hint = "A fine-tune is short as it is: reference_models= trains whole ones." if name == "short_references" else ""
            refuse(name, "be left out for a language model, whose records are sequences scored by its output head", got, hint)


def _length(data: object) -> int | None:
    held = data.get("input_ids") if isinstance(data, Mapping) else data
    return len(held) if hasattr(held, "__len__") else None


def _identity(members: SequenceLosses, given: GivenColumns) -> dict[str, Any]:
    """The columns that say which sequence a record is."""
    identifiers = record_ids(members.ids if given.ids is None else given.ids, len(members))
    table: dict[str, Any] = {"id": identifiers} | group_names(given.groups, len(members))
    return table | {"tokens": members.tokens}


def _columns(split: SequenceLosses | None, base: SequenceLosses | None, tokenizer: object) -> dict[str, Array]:
    """Everything that tokens, and the base's, say of the sequences of a split: name → (n,)."""
    if split is None:
        return {"loss": np.empty(0)}
    found = {"loss": split.loss} | token_columns(split, texts_of(split, tokenizer))
    return found if base is None else found | base_columns(split, base)


def _scores(head: TokenHead | NotApplicable, options: Options) -> RecordScores | Absent:
    """Score every sequence by the output head.

    The result is a reason where the head cannot be read or is too large.
    """
    how: dict[str, Any] = {"damping": options.damping, "weight_decay": options.weight_decay, "progress": options.progress}
    how |= options.score_options
    try:
        if isinstance(head, NotApplicable):
            raise head
        return sequence_scores(head, **how)
    except NotApplicable as reason:
        return not_applicable(reason)


def _evidence(losses: Array, scores: RecordScores | Absent) -> tuple[Evidence, ...]:
    """Gather losses, scores of the output head and rates.

    Each column that sequences do not have gets its reason.
    """
    gaps = {name: NO_GAPS for name in RECORD_COLUMNS if name not in SCORED}
    found = score_evidence(scores)
    return (
        Evidence("losses", {"loss": losses}, absent={"entropy": NO_ENTROPY}),
        replace(found, absent=found.absent | gaps),
        Evidence("rates", absent={"predicted_tpr": NO_RECORD_RATE}),
    )


def _risk(losses: Pair, how: Mapping[str, Any]) -> tuple[ModelRisk | None, dict[str, str]]:
    if len(losses[1]) < 2:
        return None, {"model_risk": EMPTY if len(losses[1]) == 0 else ONE}
    # Whatever calibration ships was made from other models.
    risk = without_findings(model_risk(*losses, not_predicted=NO_PREDICTION, **how))
    return risk, {"predicted_tpr of the model": Absent("not available", risk.reason)}


def _split_counts(members: SequenceLosses, others: SequenceLosses | None, identifiers: Array) -> dict[str, Any]:
    """As `split_counts`, by whole sequences of tokens."""
    known = set(members.digests)
    shared = None if others is None else sum(digest in known for digest in others.digests)
    numbers = np.unique(np.array([digest.hex() for digest in members.digests]), return_inverse=True)[1]
    return {"shared_with_test": shared, "copies": copies_among(numbers, identifiers), "reason": None}


def _storage_notes(model: object) -> tuple[str, ...]:
    held = storage_words(model)
    return (f"the model's weights are stored in {held}: losses are those of the rounded model, as it answers",) if held else ()


def _base_notes(given: object, origin: Base | NotApplicable) -> tuple[str, ...]:
    """That a base is wanted: without one a text that was learnt looks like one that is easy."""
    if given is not None or not isinstance(origin, NotApplicable):
        return ()
    return (f"nothing was compared with a base, since {origin}: give the model before its fine-tuning (base=, --base FOLDER)",)


def _window_notes(members: SequenceLosses, others: SequenceLosses | None) -> tuple[str, ...]:
    both = [part.windows for part in (members, others) if part is not None]
    longer = sum(int((windows > 1).sum()) for windows in both)
    if not longer:
        return ()
    words = f"{longer} of {sum(map(len, both))} sequences are longer than the context of {members.context} tokens"
    return (f"{words} and were read in windows that advance by {members.stride}: later tokens were predicted from fewer",)


def _provenance(
    model: object,
    members: SequenceLosses,
    others: SequenceLosses | None,
    identifiers: Array,
    options: Options,
    scores: RecordScores | None,
) -> dict[str, Any]:
    read = {"context": members.context, "stride": members.stride, "train_tokens": int(members.tokens.sum())}
    splits = {"train": members, "test": others}
    read |= {"test_tokens": 0 if others is None else int(others.tokens.sum())}
    return {
        "arguments": asked(options),
        "source": options.source,
        "inputs": {"repeated_rows": {name: repeats_among(part.ids) for name, part in splits.items() if part is not None}},
        "head": f"{type(model).__name__}, mean loss of a sequence's tokens",
        "class_names": None,
        "sequences": read,
        "hashes": {
            "train": _hashes(members, identifiers),
            "test": {} if others is None else _hashes(others, others.ids),
            "weights": weights_sha256(model, members.loss),
        },
        "versions": versions_of(*PACKAGES, "transformers"),
    } | ({} if scores is None else {"scores": score_stamp(scores)})


def _hashes(split: SequenceLosses, identifiers: Array) -> dict[str, str]:
    return {"data": split.data_sha256, "row_order": ids_sha256(identifiers), "targets": split.data_sha256}
