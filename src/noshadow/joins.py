"""Join two tables by record id, and check that they agree about each record.

This is the one place where records are paired.

Ids alone are no proof, since they are row numbers unless somebody named the records. Targets, and
losses where both tables hold them, are therefore compared wherever tables meet.
"""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from noshadow.checks import Array, NotApplicable, refuse
from noshadow.metrics import spearman

# share of joined records whose targets may differ where a few corrected labels are no other data
# set
MOST_RELABELLED = 0.01
# float32 logits up to about 100 round a cross-entropy by as much: below it, losses have no order
FLOOR_NATS = 1e-5
# of the mean squared target: the square of what float32 predictions are rounded by, with room for
# sums
FLOOR_SQUARES = 1e-12
# losses after the second epoch of a training and at its end: measured 0.16 to 1, digits and random
# labels
LEAST_CORRELATION = 0.1
FEWEST_RANKED = 30  # records; with fewer, a correlation below the least is no proof
_TARGET = re.compile(r"target(_\d+)?")
_ROUNDING = 1e-6  # of targets in float32, relative to their size and to their spread
_SAME_LOSS = 1e-2  # records whose losses are so close, relatively, may change places without harm
# sorted losses of one model on the same records, relatively: what batch sizes and devices move them
# by
_SAME_SORTED = 1e-4

_ABSOLUTE = 1e-2  # part of either share that is allowed relative to the mean loss


@dataclass(frozen=True, eq=False)
class Held:
    """What a table says about its records.

    Attributes:
        ids: (n,). targets: (n,) or (n, q), None when it has none. losses: (n,) under the audited
            model, None when it has none.
    """

    ids: Array
    targets: Array | None = None
    losses: Array | None = None


@dataclass(frozen=True, eq=False)
class LossAgreement:
    """How two losses of each record go together.

    Attributes:
        kind: "equal"; "reordered": the same numbers under other records; "unrelated": no rank
            correlation although both vary; "related": neither, as of a model at another time or in
            training mode.
        differing: (k,) joined records whose losses differ, counted from 0 in the order of the join.
        correlation: Spearman's, None where one side is constant.
    """

    kind: str
    differing: Array
    correlation: float | None


@dataclass(frozen=True, eq=False)
class Join:
    """Rows of two tables that name the same records.

    Attributes:
        first, second: (shared,) rows in each table, in the first one's order.
        names: (shared,) their ids as text.
        relabelled: (k,) joined records with another target, counted from 0 in the order of the
            join; None when the targets have forms that cannot be compared.
        losses: how the losses go together, None unless both tables hold them.
    """

    first: Array
    second: Array
    names: Array
    relabelled: Array | None
    losses: LossAgreement | None

    def __len__(self) -> int:
        return len(self.first)


def join(first: Held, second: Held, *, floor: float = FLOOR_NATS) -> Join:
    """The records that both tables name, and where the tables contradict each other.

    Ids are compared as text.

    Targets agree when they are equal up to the rounding of float32, or when one is an increasing
    recoding of the other over all joined records (labels counted from 1, −1 and 1 for 0 and 1,
    scaled numbers, one-hot rows): records in another order are no such recoding.

    Args:
        first, second: the tables.
        floor: losses below it have no order, see `loss_agreement`.

    Raises:
        InputError: an id names two records of one table.

    Cost: O(n log n). Exact.
    """
    names = [pd.Index([str(name) for name in np.asarray(table.ids).tolist()]) for table in (first, second)]
    for index in names:
        if not index.is_unique:
            refuse("ids", "be unique", f"'{index[index.duplicated()][0]}' more than once")
    places = names[1].get_indexer(names[0])
    rows = np.flatnonzero(places >= 0)
    others = places[rows]
    relabelled: Array | None = np.empty(0, dtype=np.int64)
    if first.targets is not None and second.targets is not None:
        relabelled = _relabelled(first.targets[rows], second.targets[others])
    elif (first.targets is None) != (second.targets is None):
        relabelled = None
    losses = None
    if first.losses is not None and second.losses is not None:
        losses = loss_agreement(first.losses[rows], second.losses[others], floor=floor)
    return Join(rows, others, names[0][rows].to_numpy(), relabelled, losses)


def require_agreement(found: Join, argument: str, other: str, hint: str) -> tuple[str, ...]:
    """Refuse tables that contradict each other about a record.

    Returns notes on losses that only resemble each other.

    Args:
        found: of the two tables. argument: as in `refuse`. other: what the argument was
            joined with, in words.
        hint: what to do.

    Raises:
        InputError: a target differs, or the losses are those of other records: how many of how
            many, and the first id.
    """
    n = len(found)
    if found.relabelled is None:
        refuse(argument, f"have targets of the form that {other} has", "another", hint)
    if len(found.relabelled):
        refuse(argument, f"have the targets of {other}", f"another target {_told(found, found.relabelled)}", hint)
    losses = found.losses
    if losses is None or losses.kind == "equal":
        return ()
    if losses.kind == "reordered":
        got = f"its losses in another order: they differ {_told(found, losses.differing)}"
        refuse(argument, f"have the losses of {other} record by record", got, hint)
    if losses.kind == "unrelated":
        got = (
            f"losses without relation to them: rank correlation {losses.correlation:.2f}, and they differ {_told(found, losses.differing)}"
        )
        refuse(argument, f"have the losses of {other} record by record", got, hint)
    ranked = "one of the two does not vary" if losses.correlation is None else f"rank correlation {losses.correlation:.3f}"
    return (f"the losses of {argument} are not those of {other} for {len(losses.differing)} of {n} records ({ranked})",)


def held_by(records: pd.DataFrame, *, losses: bool = False) -> Held:
    """What a record table says.

    It gives ids, the columns target or target_0, … where it has any, and losses if they are to be
    compared.
    """
    names = [name for name in records.columns if _TARGET.fullmatch(str(name))]
    targets = records[names].to_numpy(np.float64) if names else None
    return Held(records["id"].to_numpy(), targets, records["loss"].to_numpy(np.float64) if losses else None)


def loss_agreement(given: Array, expected: Array, *, floor: float) -> LossAgreement:
    """Whether two losses of the same records are equal, reordered, unrelated or related.

    `LossAgreement` says what these words mean.

    Args:
        given, expected: (n,). floor: losses below it count as equal to it on both sides, since
            rounding alone orders them.

    Cost: O(n log n).
    """
    one, other = (np.maximum(np.asarray(losses, dtype=np.float64), floor) for losses in (given, expected))
    scale = float(np.abs(other).mean()) if len(other) else 0.0

    def apart(a: Array, b: Array, share: float) -> Array:
        wide: Array = np.abs(a - b) > share * np.maximum(np.abs(a), np.abs(b)) + _ABSOLUTE * share * scale
        return wide

    differing = np.flatnonzero(apart(one, other, _SAME_LOSS))
    if not len(differing):
        return LossAgreement("equal", differing, 1.0)
    try:
        correlation = spearman(one, other) if len(one) > 1 else None
    except NotApplicable:
        correlation = None
    if not apart(np.sort(one), np.sort(other), _SAME_SORTED).any():
        return LossAgreement("reordered", differing, correlation)
    lost = correlation is not None and correlation < LEAST_CORRELATION and len(one) >= FEWEST_RANKED
    return LossAgreement("unrelated" if lost else "related", differing, correlation)


def loss_floor(targets: Array | None, task: str) -> float:
    """The loss below which rounding alone orders records.

    It is that of a cross-entropy, or of squares at the size of these targets.
    """
    if task != "regression" or targets is None:
        return FLOOR_NATS
    return FLOOR_SQUARES * float((_columns(targets) ** 2).sum(1).mean()) if len(targets) else 0.0


def _columns(targets: Array) -> Array:
    values = np.asarray(targets, dtype=np.float64)
    return values if values.ndim == 2 else values[:, None]


def _told(found: Join, places: Array) -> str:
    return f"for {len(places)} of {len(found)} records, the first '{found.names[places[0]]}'"


def _relabelled(first: Array, second: Array) -> Array | None:
    """Rows whose targets differ, or None where they cannot be compared.

    That is so when one table has one column and the other several that are no rows of that label.
    """
    a, b = (_columns(values) for values in (first, second))
    if a.shape[1] == b.shape[1]:
        differ = np.column_stack([_different(a[:, k], b[:, k]) for k in range(a.shape[1])]) if a.shape[1] else np.zeros((len(a), 0), bool)
        return np.flatnonzero(differ.any(1))
    wide, narrow = (a, b) if a.shape[1] > b.shape[1] else (b, a)
    if narrow.shape[1] == 1 and not _different(wide.argmax(1).astype(np.float64), narrow[:, 0]).any():
        return np.empty(0, dtype=np.int64)
    return None


def _different(a: Array, b: Array) -> Array:
    """Which targets differ beyond rounding.

    None differ where one side is an increasing recoding of the other.
    """
    close = np.abs(a - b) <= _ROUNDING * (np.maximum(np.abs(a), np.abs(b)) + (float(a.std()) if len(a) else 0.0))
    if close.all() or _same_up_to_recoding(a, b):
        return np.zeros(len(a), dtype=bool)
    apart: Array = ~close
    return apart


def _same_up_to_recoding(a: Array, b: Array) -> bool:
    codes = [np.unique(values, return_inverse=True)[1] for values in (a, b)]
    return bool(codes[0].any()) and bool(np.array_equal(codes[0], codes[1]))
