"""What a set of other models says about the records of an audit.

Nothing is taken on trust: the set's own record of the audited model must be what the audit says.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from noshadow._audit.exposing import Known
from noshadow._audit.four_references import HEEDLESS, not_predicting, with_attack
from noshadow._audit.settled import Settled
from noshadow._audit.withheld import OWN_RECORDS
from noshadow._exposure import Source
from noshadow._exposure.sources import FOLDS, REFERENCES
from noshadow.checks import Array, refuse
from noshadow.joins import Held, held_by, join, loss_floor, require_agreement
from noshadow.metrics import loss_auc
from noshadow.reference import References
from noshadow.reference.ground_truth import joined_members
from noshadow.results import Evidence

ENOUGH_FOR_PARITY = 4
# Of the statistic's spread: what is left between two readings of one model.
SAME_STATISTIC = 1e-6
CLEARLY, NOT_AT_ALL = 6.0, 3.0  # standard errors of an AUC
MOST_ATTACKED = 16  # models: more would not change the answer


@dataclass(frozen=True, eq=False)
class Audited:
    """What an audit says of its records, to be held against a set of other models.

    Attributes:
        records: ids, targets and losses of the training records; sequences have no targets.
        test_losses: (t,) of the test records. weights: digest of the model's, None where it is not
            known.
        task: "regression", "classification", "binary" or "language-model".
    """

    records: Held
    test_losses: Array
    weights: str | None
    task: str

    @property
    def has_several_residuals(self) -> bool:
        """Whether a record has several residuals, whose exposure is not defined."""
        targets = self.records.targets
        return self.task == "regression" and targets is not None and targets.ndim == 2 and targets.shape[1] > 1


@dataclass(frozen=True)
class Words:
    """What asked for the models, and what they are called.

    Attributes:
        source: name of the evidence. argument: what asked for them.
        models: what they are called in a sentence.
    """

    source: str
    argument: str
    models: str


def audited_of(found: Settled) -> Audited:
    """What a running audit says of its records."""
    table = pd.DataFrame(found.identity | {"loss": found.losses[0]})
    return Audited(held_by(table, losses=True), found.losses[1], found.seen.weights_sha256 or None, found.task)


def known_references(
    references: References,
    audited: Audited,
    words: Words,
    *,
    stop: float | None = None,
    columns: tuple[str, ...] = (),
    attack: bool = False,
) -> Known:
    """Margins of a set's models on the audit's records, and whose records each was trained on.

    Args:
        references: a complete set for the audited model, of any design and number of models.
        audited: whose records. words: what the models are called.
        stop: the share of a training after which these models stopped; None for whole trainings.
        columns: record columns to write: "fold_loss", the loss under the first model that was not
            trained on the record.
        attack: attack the audited model with four of them at a time (`with_attack`).

    Returns:
        Known: margins (K, n) and membership (K, n) in the order of the audit's records, margins of
        its test records (K, t) with NaN where a model was trained on one; evidence with the stamp
        models, trainings (in trainings of the audited model, by records and epochs), seconds (mean
        per training, of one worker), seed and plan; "lira" where it attacked, or why it did not.

    Raises:
        InputError: a set of another model, task or other records; models that do not depend on the
            rows they were trained on.

    Cost: O(K(n + t)).
    """
    rows, notes = _rows(references, audited, words)
    _require_apart(references, words)
    unseen, more = _test_rows(references, audited, words)
    margins, membership, test_margins = _arrays(references, rows, unseen)
    trainings = float(references.membership.sum() / references.member.sum()) * (1.0 if stop is None else stop)
    source = Source(
        words.source,
        margins=margins,
        membership=None if margins is None else membership,
        test_margins=None if margins is None else test_margins,
        early=stop is not None,
        role=FOLDS if "design" in references.describe["plan"] else REFERENCES,
        trainings=trainings,
    )
    stamp: dict[str, Any] = {
        "models": references.plan.models,
        "trainings": trainings,
        "seconds": float(references.seconds.mean()),
        "seed": references.plan.seed,
        "plan": references.stamp()["plan_digest"],
    }
    stamp |= {} if stop is None else {"stop": stop}
    notes = (*notes, *more, *_one_sided(membership, words), *_unlike(references, stop), *_of_the_run(references))
    # Models that stop early have learnt nothing by heart, and need not know their records better.
    stamp |= {} if stop is not None else {OWN_RECORDS: _own_records(references, audited, rows, membership)}
    held = {"fold_loss": _loss_without(references, rows, membership)} if "fold_loss" in columns else {}
    known = Known(source, Evidence(words.source, held, notes=notes, stamp=stamp), votes=references.votes)
    if attack and (stamp.get(OWN_RECORDS) or {}).get("unmoved"):
        return not_predicting(known, HEEDLESS)
    return with_attack(known, references, rows, unseen, audited.task) if attack else known


def _rows(references: References, audited: Audited, words: Words) -> tuple[Array, tuple[str, ...]]:
    """Rows of the pool of the audit's records, in their order, and notes on losses that differ."""
    expected, own = references.weights_sha256, audited.weights
    if expected and own and expected != own:
        got = f"a set for a model of weights {expected[:12]}, not {own[:12]}"
        refuse(words.argument, "hold models trained for the audited model", got, "Train a set of its own for it.")
    if references.task != audited.task:
        refuse(words.argument, f"hold models of the audit's task '{audited.task}'", f"'{references.task}'")
    found, members, unknown = joined_members(references, audited.records)
    if unknown:
        rule = f"hold models for the audited records, by id; theirs are {len(members)}"
        refuse(words.argument, rule, unknown, "Give both the same ids.")
    hint = "Train the models for this model, on these records in this order, or give both the same ids."
    return members[found.second], require_agreement(found, f"the target of {words.argument}", "the audited model", hint)


def _test_rows(references: References, audited: Audited, words: Words) -> tuple[Array, tuple[str, ...]]:
    """Rows of the pool of the audit's test records, in their order; none where they differ.

    Test records are paired by position, and the losses of the audited model say whether it holds.
    """
    rows, t = np.flatnonzero(~references.member), len(audited.test_losses)
    none = np.empty(0, dtype=np.int64)
    if t == 0:
        return none, ()
    if len(rows) != t or references.target is None:
        why = "no record of the audited model was kept" if len(rows) == t else f"its pool has {len(rows)} of them, and the audit {t}"
        return none, (f"{words.models} say nothing about this audit's test records ({why}), which would show their scale",)
    places = np.arange(t)
    theirs = Held(places, losses=np.asarray(references.target.loss)[rows])
    found = join(Held(places, losses=audited.test_losses), theirs, floor=loss_floor(references.targets, references.task))
    hint = "Train the models with the test records of this audit, in this order."
    return rows, require_agreement(found, f"the test records of {words.argument}", "the audited model", hint)


def _arrays(references: References, rows: Array, unseen: Array) -> tuple[Array | None, Array, Array | None]:
    """Margins and membership of the records, and margins of test records.

    Margins are None where a record has several residuals.
    """
    membership: Array = np.asarray(references.membership)[:, rows]
    if references.residuals > 1:
        return None, membership, None
    statistic = references.statistic if len(references.queries) == 1 else references.statistic[:, :, 0]
    margins = np.array(statistic[:, rows])
    if not len(unseen):
        return margins, membership, None
    return margins, membership, np.where(np.asarray(references.membership)[:, unseen], np.nan, statistic[:, unseen])


def _loss_without(references: References, rows: Array, membership: Array) -> Array:
    """Loss (n,) of each record under the first model that was not trained on it."""
    losses: Array = np.asarray(references.loss[membership.argmin(0), rows])
    return losses


def _require_apart(references: References, words: Words) -> None:
    """Refuse models that are the same although their rows are not, or that are the audited one."""
    before, name = (None, "") if references.target is None else (references.target.statistic, "the audited model")
    for number in range(references.plan.models):
        row = references.model(number).statistic
        for other, called in ((before, name), (references.model(number - 1).statistic if number else None, f"model {number - 1}")):
            if other is not None and bool((np.abs(row - other) <= SAME_STATISTIC * float(np.std(other))).all()):
                got = f"{called} again as model {number}: the same answers on all {len(row)} records"
                rule = "train another model on other rows"
                refuse("train_fn", rule, got, "Train on the rows that indices names, and only on these.")


def _one_sided(membership: Array, words: Words) -> tuple[str, ...]:
    """How many records were in all models, or in none."""
    models, n = membership.shape
    counts = membership.sum(0)
    inside, outside = int((counts == models).sum()), int((counts == 0).sum())
    if not inside and not outside:
        return ()
    known = f"{inside} of {n} records were in all of the {words.models}, and {outside} in none"
    return (f"{known}: what is said about their other side comes from records like them",)


def _own_records(references: References, audited: Audited, rows: Array, membership: Array) -> dict[str, Any] | None:
    """Whether these models know the records that they were trained on better than others.

    Where the audited model does and they do not, either train and test differ in kind, or the
    training function does not heed its rows: then all records would seem safe. Both are judged by
    the loss attack's AUC and its error without leakage.

    Returns:
        "auc" of these models, "audited_auc", and "unmoved": whether the one shows nothing and the
        other does. None where the audited model shows nothing, or no model had a part of the
        records.
    """
    losses, unseen = audited.records.losses, audited.test_losses
    if losses is None or len(unseen) == 0:
        return None
    own = loss_auc(losses, unseen)
    halved = [model for model in range(min(references.plan.models, MOST_ATTACKED)) if 0 < membership[model].sum() < len(rows)]
    if own < 0.5 + CLEARLY * _null_error(len(losses), len(unseen)) or not halved:
        return None
    known = [np.asarray(references.loss[model, rows]) for model in halved]
    sides = [(values[membership[model]], values[~membership[model]]) for model, values in zip(halved, known, strict=True)]
    theirs = float(np.mean([loss_auc(*side) for side in sides]))
    error = float(np.sqrt(sum(_null_error(*map(len, side)) ** 2 for side in sides))) / len(sides)
    return {"auc": theirs, "audited_auc": own, "unmoved": theirs <= 0.5 + NOT_AT_ALL * error}


def _null_error(first: int, second: int) -> float:
    """Standard deviation of an AUC where both sides have one law."""
    return float(np.sqrt((first + second + 1) / (12 * first * second)))


def _unlike(references: References, stop: float | None) -> tuple[str, ...]:
    """Whether the target's mean losses are unlike those of models that were trained to the end."""
    folded = "design" in references.describe["plan"]
    if stop is not None or folded or references.plan.models < ENOUGH_FOR_PARITY:
        return ()
    parity = references.parity()
    return (parity["sentence"].rstrip("."),) if parity is not None and parity["outlying"] else ()


def _of_the_run(references: References) -> tuple[str, ...]:
    """What the run that trained them noted, beside what its plan says."""
    planned = references.describe["notes"]
    return tuple(note.rstrip(".") for note in references.notes if note not in planned)
