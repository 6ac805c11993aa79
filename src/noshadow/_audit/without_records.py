"""What a model itself says of each record without it: out-of-bag parts, and closed forms."""

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from noshadow._audit.exposing import Known, statistic_of
from noshadow._audit.settled import Settled
from noshadow._exposure import Source
from noshadow._exposure.sources import FOLDS, REFERENCES
from noshadow.checks import Array, NotApplicable
from noshadow.losses import hard_labels, record_losses
from noshadow.outcomes import not_applicable
from noshadow.results import Evidence
from noshadow.scores.closed_form.left_out import left_out_columns
from noshadow.views import LeftOut, OtherRecords, OutOfBag, Reader, Settings
from noshadow.views.leaf_counts import LeafCounts
from noshadow.votes import VOTES, vote_losses

OUT_OF_BAG, LEFT_OUT = "out of bag", "left out"
# Parts without a record below which a reader is told that its vote is coarse.
FEW_PARTS = 20


@dataclass(frozen=True, eq=False)
class Without:
    """What the audited model itself knows of the side without each record.

    Attributes:
        columns: `loo` and `shift` by a closed form; none where there is no such form.
        absent: why not. notes: sentences a reader must see. stamp: how it was done.
        known: losses with the record out of its leaves, and out-of-bag answers, where they exist.
        facts: what findings are drawn from, for `provenance["inputs"]`.
        leaves: how many records share the leaves of its trees; None without trees.
    """

    columns: dict[str, Array] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stamp: dict[str, Any] = field(default_factory=dict)
    known: tuple[Known, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    leaves: LeafCounts | None = None


def without_records(reader: Reader, model: object, train: object, found: Settled) -> Without:
    """Ask a model's family for what it says of each record without it.

    Nothing is trained. A model that contradicts the records it is said to be fitted on gives
    nothing here, and a fact that a finding states.
    """
    settings = Settings()
    absent: dict[str, str] = {}
    facts: dict[str, Any] = {}
    left: LeftOut | None = None
    bagged: OutOfBag | None = None
    started = time.perf_counter()
    try:
        if not isinstance(reader.left_out, NotApplicable):
            left = reader.left_out(model, train, sample_weight=found.seen.sample_weight, settings=settings)
    except NotApplicable as reason:
        absent = dict.fromkeys(("loo", "shift"), not_applicable(reason))
        facts |= {"other_records": str(reason)} if isinstance(reason, OtherRecords) else {}
    try:
        if not facts and not isinstance(reader.out_of_bag, NotApplicable):
            bagged = reader.out_of_bag(model, train, settings=settings)
    except NotApplicable as reason:
        absent |= {"out_of_bag_loss": not_applicable(reason)}
        facts |= {"other_records": str(reason)} if isinstance(reason, OtherRecords) else {}
    votes = {VOTES: parts} if (parts := reader.votes(model)) else {}
    if facts:
        bags = () if isinstance(reader.out_of_bag, NotApplicable) else ("out_of_bag_loss",)
        return Without(absent=absent | dict.fromkeys(bags, not_applicable(facts["other_records"])), facts=facts | votes)
    columns = {} if left is None else left_out_columns(found.train.outputs, left.outputs, found.targets, found.task)
    if left is not None:
        facts |= {"closed_form": left.how}
    known = () if bagged is None else (_bags_known(bagged, left, found, started, votes=bool(votes)),)
    facts |= votes
    if left is None:
        return Without(absent=absent, known=known, facts=facts)
    known = (*known, _leaves_known(left, found)) if left.parts > 1 and found.task != "regression" else known
    return Without(columns, absent, left.notes, {"method": "left out", "how": left.how}, known, facts, left.leaves)


def formula_evidence(scores: Evidence, without: Without) -> Evidence:
    """Record scores with those of a closed form in the place of a head's, where there is one."""
    absent = {name: why for name, why in (scores.absent | without.absent).items() if name not in without.columns}
    if not without.columns:
        return replace(scores, absent=absent)
    stamp = dict(scores.stamp) | without.stamp
    return replace(scores, columns=scores.columns | without.columns, absent=absent, notes=(*scores.notes, *without.notes), stamp=stamp)


def _leaves_known(left: LeftOut, found: Settled) -> Known:
    """Losses of a forest whose trees lose the record from their leaves, as `left_out_loss`."""
    outputs = np.where(np.isnan(left.outputs), found.train.outputs, left.outputs)
    columns = {"left_out_loss": vote_losses(_own_shares(outputs, found.targets), left.parts)}
    return Known(Source(LEFT_OUT, covariates=columns), Evidence(LEFT_OUT, columns, stamp={"trainings": 0.0, "parts": left.parts}))


def _own_shares(outputs: Array, targets: Array) -> Array:
    """Votes for each record's own class, (n,), from logarithms of shares."""
    shares: Array = np.exp(outputs)[np.arange(len(outputs)), hard_labels(targets).astype(np.int64)]
    return shares


def _bags_known(bagged: OutOfBag, left: LeftOut | None, found: Settled, started: float, *, votes: bool) -> Known:
    """Out-of-bag answers as a source of margins without the record, and as `out_of_bag_loss`."""
    missing, outputs = bagged.parts == 0, bagged.outputs.reshape(len(bagged.parts), -1).copy()
    notes = _bag_notes(bagged, missing, closed=left is not None)
    outputs[missing] = (found.train.outputs if left is None else left.outputs)[missing]
    # A record that nothing else says anything of keeps its own answer.
    outputs = np.where(np.isnan(outputs), found.train.outputs, outputs)
    margins, test = None, None
    if found.task == "regression":
        losses = record_losses(outputs, found.targets, found.task)
    else:
        losses = vote_losses(_own_shares(outputs, found.targets), bagged.whole)
    if found.task != "regression" or found.targets.shape[1] == 1:
        margins = statistic_of(outputs, found.targets, found.task)
        test = statistic_of(found.seen.test.outputs, found.unseen, found.task) if len(found.unseen) else None
    stamp = {
        "trainings": 0.0,
        "parts": bagged.whole,
        "fewest": int(bagged.parts.min()),
        "median": float(np.median(bagged.parts)),
        "in_every_bag": int(missing.sum()),
    }
    source = Source(OUT_OF_BAG)
    if margins is not None:
        source = Source(
            OUT_OF_BAG,
            margins=margins[None],
            membership=np.zeros((1, len(margins)), dtype=bool),
            test_margins=None if test is None else test[None],
            # Votes give no sizes whatever stands beside them; their order was measured as it is.
            role=REFERENCES if votes else FOLDS,
        )
    evidence = Evidence(OUT_OF_BAG, {"out_of_bag_loss": losses}, notes=notes, stamp=stamp, seconds=time.perf_counter() - started)
    return Known(source, evidence)


def _bag_notes(bagged: OutOfBag, missing: Array, *, closed: bool) -> tuple[str, ...]:
    notes = []
    if missing.any():
        instead = "its leaves without the record stand in" if closed else "the model's own answer stands in, which is too good"
        notes.append(
            f"{int(missing.sum())} of {len(missing)} records are in every bag, so that no part of the model was trained without them: "
            f"{instead}"
        )
    if np.median(bagged.parts) < FEW_PARTS:
        notes.append(
            f"half of the records have fewer than {int(np.median(bagged.parts)) + 1} of {bagged.whole} parts that were trained without "
            f"them (the fewest {int(bagged.parts.min())}): out-of-bag losses are coarse, and more trees would order the records better"
        )
    return tuple(notes)
