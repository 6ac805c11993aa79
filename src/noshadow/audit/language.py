"""Audit of a causal language model: model-level risk from the losses of its sequences."""

import hashlib
import importlib.metadata
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from noshadow.audit.gather import _VERSIONS, RECORD_COLUMNS, Options, _timings, group_names
from noshadow.audit.notes import split_notes
from noshadow.audit.risks import EMPTY, ONE, Pair, borne_risks
from noshadow.audit.splits import _copies
from noshadow.checks import Array, refuse
from noshadow.findings import findings
from noshadow.results import Audit, ModelRisk
from noshadow.scores.traces import loss_trace_iqr
from noshadow.signals import record_ids
from noshadow.tail import model_risk
from noshadow.traces import GivenTraces
from noshadow.views import SequenceLosses, sequence_losses, weights_sha256

TASK = "language-model"
NO_PREDICTION = (
    "Losses of sequences are spread about evenly on both sides of their mean, so the calibration on loss tails does not hold for "
    "language models: the loss AUC is the figure to read, and no calibration from it to an attack's rate ships [TAIL §5.3]."
)
NO_SCORES = (
    "not applicable: a language model predicts every token of a sequence, so a record is not one row of its last layer, which is what "
    "these scores need"
)
NO_RANK = (
    "not applicable: a low loss may be a sequence learned by heart or an easy one, and nothing else is measured of one language model, "
    "so its sequences are not ranked; reference models tell the two apart"
)
NO_CLASSES = "not applicable: the records have no classes"
NO_ENTROPY = "not applicable: a language model has one entropy a token, not one a record"


@dataclass(frozen=True, eq=False)
class Belongings:
    """What belongs to the records, as given to `audit`."""

    ids: Sequence[object] | None
    groups: Sequence[object] | None
    test_groups: Sequence[object] | None
    loss_traces: GivenTraces | None


def audit_language_model(
    model: object, train: object, test: object, options: Options, belongings: Belongings, *, batch_size: int, device: object
) -> Audit:
    """Audit of a causal language model; arguments as in `audit`.

    The record table holds id, group, tokens (scored), loss (mean negative log-likelihood a token, nats) and `lt_iqr` when
    traces were given; no column is ranked by.
    """
    owner, started = options.owner, time.perf_counter()
    reading: dict[str, Any] = {"batch_size": batch_size, "device": device, "progress": options.progress, "owner": owner}
    members = sequence_losses(model, train, argument="train", **reading)
    if len(members) < 2:
        refuse(owner, "train", "hold at least 2 records", len(members))
    others = None if test is None or _length(test) == 0 else sequence_losses(model, test, argument="test", **reading)
    losses = (members.loss, np.empty(0) if others is None else others.loss)
    table = _table(members, belongings, owner)
    test_names = group_names(belongings.test_groups, len(losses[1]), owner, "test_groups").get("group")
    read = time.perf_counter()
    how: dict[str, Any] = {"fpr": options.fpr, "seed": options.seed}
    risk, absent = _risk(losses, how)
    borne, borne_absent = borne_risks(losses, {"group_risk": (table.get("group"), test_names)}, how)
    absent |= borne_absent | dict.fromkeys((*RECORD_COLUMNS, "predicted_tpr"), NO_SCORES)
    absent |= {"rank": NO_RANK, "entropy": NO_ENTROPY, "class_risk": NO_CLASSES}
    splits = _split_counts(members, others, table["id"])
    found = Audit(
        records=pd.DataFrame(table),
        model_risk=risk,
        member_losses=losses[0],
        nonmember_losses=losses[1],
        task=TASK,
        ranked_by=None,
        not_applicable=absent,
        notes=_sequence_notes(members, others, splits["shared_with_test"]) + split_notes(None, 0, risk),
        provenance=_provenance(model, members, others, table["id"], options) | {"splits": splits},
        timings=_timings(read - started, 0.0, time.perf_counter() - read),
        group_risk=borne.get("group_risk", ()),
    )
    return replace(found, findings=findings(found))


def require_language_arguments(options: Options, **given: tuple[object, object]) -> None:
    """What only record scores use must be left at its default: nothing that was asked for vanishes silently.

    Args:
        options: the common ones. given: name → (value, default) of the others.
    """
    asked = given | {"task": (options.task, "auto"), "damping": (options.damping, "auto"), "layers": (options.layers, "last")}
    for name, (value, default) in asked.items():
        if value is not default and not (isinstance(value, str) and value == default):
            got = repr(value) if isinstance(value, (str, int, float)) else type(value).__name__
            refuse(options.owner, name, "be left out for a language model, which has no record scores", got)


def _length(data: object) -> int | None:
    held = data.get("input_ids") if isinstance(data, Mapping) else data
    return len(held) if hasattr(held, "__len__") else None


def _table(members: SequenceLosses, belongings: Belongings, owner: str) -> dict[str, Any]:
    """The record table, column by column."""
    identifiers = record_ids(members.ids if belongings.ids is None else belongings.ids, len(members), owner)
    table: dict[str, Any] = {"id": identifiers} | group_names(belongings.groups, len(members), owner)
    table |= {"tokens": members.tokens, "loss": members.loss}
    if belongings.loss_traces is not None:
        table["lt_iqr"] = loss_trace_iqr(belongings.loss_traces.in_order_of(identifiers, owner))
    return table


def _risk(losses: Pair, how: Mapping[str, Any]) -> tuple[ModelRisk | None, dict[str, str]]:
    if len(losses[1]) < 2:
        return None, {"model_risk": EMPTY if len(losses[1]) == 0 else ONE}
    # Whatever calibration ships was made from other models.
    risk = model_risk(*losses, not_predicted=NO_PREDICTION, **how)
    return risk, {"predicted_tpr of the model": f"not available: {risk.reason}"}


def _split_counts(members: SequenceLosses, others: SequenceLosses | None, identifiers: Array) -> dict[str, Any]:
    """As `split_counts`, by whole sequences of tokens."""
    known = set(members.digests)
    shared = None if others is None else sum(digest in known for digest in others.digests)
    numbers = np.unique(np.array([digest.hex() for digest in members.digests]), return_inverse=True)[1]
    return {"shared_with_test": shared, "copies": _copies(numbers, identifiers), "reason": None}


def _sequence_notes(members: SequenceLosses, others: SequenceLosses | None, shared: int | None) -> tuple[str, ...]:
    notes = []
    both = [part.windows for part in (members, others) if part is not None]
    longer = sum(int((windows > 1).sum()) for windows in both)
    if longer:
        words = f"{longer} of {sum(map(len, both))} sequences are longer than the context of {members.context} tokens"
        notes.append(f"{words} and were read in windows that advance by {members.stride}: later tokens were predicted from fewer")
    if others is not None and shared:
        notes.append(f"{shared} of {len(others)} test sequences are also training sequences, token by token: the risk is understated")
    return tuple(notes)


def _provenance(
    model: object, members: SequenceLosses, others: SequenceLosses | None, identifiers: Array, options: Options
) -> dict[str, Any]:
    asked = {name: getattr(options, name) for name in ("task", "damping", "weight_decay", "fpr", "seed", "layers")}
    read = {"context": members.context, "stride": members.stride, "train_tokens": int(members.tokens.sum())}
    read |= {"test_tokens": 0 if others is None else int(others.tokens.sum())}
    return {
        "arguments": asked | {"call": options.owner},
        "head": f"{type(model).__name__}, mean loss of a sequence's tokens",
        "class_names": None,
        "sequences": read,
        "hashes": {
            "train": _hashes(members, identifiers),
            "test": {} if others is None else _hashes(others, others.ids),
            "weights": weights_sha256(model, members.loss),
        },
        "versions": {name: importlib.metadata.version(name) for name in (*_VERSIONS, "transformers")}
        | {"python": platform.python_version()},
    }


def _hashes(split: SequenceLosses, identifiers: Array) -> dict[str, str]:
    order = hashlib.sha256("\n".join(map(str, identifiers.tolist())).encode()).hexdigest()
    return {"data": split.data_sha256, "row_order": order, "targets": split.data_sha256}
