"""Settle both splits as scores and risk read them.

The task is settled, ids and groups are in place, and losses are computed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from noshadow._audit.options import GivenColumns, Options
from noshadow._audit.risks import Names, Pair, class_names, have_soft_targets, nonmember_losses
from noshadow._audit.splits import ids_in_both
from noshadow.checks import Array, refuse, require_output_columns, require_same_length, resolved_task
from noshadow.losses import hard_labels, record_losses, task_targets
from noshadow.signals import Signals
from noshadow.tail.groups import named_groups
from noshadow.views import View
from noshadow.views.pairing import require_index_of


@dataclass(frozen=True, eq=False)
class Settled:
    """What every part of an audit starts from.

    Attributes:
        seen: the view, whose training records have their ids.
        task: "regression", "classification" or "binary".
        targets: of the training records, in the form that losses take. unseen: of the test records.
        losses: of members and of non-members.
        soft: whether the targets are probabilities of classes.
        identity: the columns that say who a record is.
        classes, groups: names of each record's class and group in both splits, None where there are
            none.
        formula: `loo` and `shift` of a model that has them in closed form, without a head.
    """

    seen: View
    task: str
    targets: Array
    unseen: Array
    losses: Pair
    soft: bool
    identity: dict[str, Any]
    classes: Names
    groups: Names
    formula: Mapping[str, Array] = field(default_factory=dict)

    @property
    def train(self) -> Signals:
        """Signals of the training records."""
        return self.seen.train


def settled(seen: View, options: Options, given: GivenColumns) -> Settled:
    """Check what belongs to the records, settle the task, compute the losses.

    Raises:
        InputError: fewer than two training records; ids, groups or targets that do not fit.
    """
    train = seen.train if given.ids is None else seen.train.with_ids(given.ids)
    if len(train) < 2:
        refuse("train", "hold at least 2 records", len(train))
    beside = {"train": {"ids": given.ids, "groups": given.groups}, "test": {"test_groups": given.test_groups}}
    _require_indexes(seen, beside)
    in_both = ids_in_both(train, seen.test, seen.inputs.get("ids"), given=given.ids is not None)
    task = resolved_task(seen.task, train.outputs, train.targets)
    require_output_columns(train.outputs, task)
    targets = task_targets(train.outputs, train.targets, task)
    nonmembers, unseen = nonmember_losses(seen.test, task)
    soft = have_soft_targets(targets, unseen, task)
    identity = _identity(train, targets, task, given.groups)
    if seen.class_names is not None and task != "regression":
        identity["label"] = [seen.class_names[int(number)] for number in identity["target"]]
    return Settled(
        seen=replace(seen, train=train, inputs={**seen.inputs, "ids_in_both": in_both}),
        task=task,
        targets=targets,
        unseen=unseen,
        losses=(record_losses(train.outputs, targets, task), nonmembers),
        soft=soft,
        identity=identity,
        classes=class_names(targets, unseen, seen.class_names, task),
        groups=(identity.get("group"), group_names(given.test_groups, len(seen.test), "test_groups").get("group")),
    )


def group_names(groups: Sequence[object] | None, n: int, argument: str = "groups") -> dict[str, list[str]]:
    """The column `group` of n records, as text; no column without groups."""
    if groups is None:
        return {}
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        refuse(argument, "be one name per record", repr(groups))
    names = named_groups(groups, argument)
    require_same_length(**{"test" if argument == "test_groups" else "train": range(n), argument: names})
    return {"group": names}


def _require_indexes(seen: View, columns: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse pandas columns that do not have the order of the index which names the records."""
    sources = seen.inputs.get("ids") or {}
    for split, records in (("train", seen.train), ("test", seen.test)):
        for argument, value in columns[split].items() if sources.get(split) == "index" else ():
            require_index_of(records, value, argument)


def _identity(train: Signals, targets: Array, task: str, groups: Sequence[object] | None) -> dict[str, Any]:
    table: dict[str, Any] = {"id": train.ids}
    if task == "regression" and targets.shape[1] > 1:
        table |= {f"target_{k}": targets[:, k] for k in range(targets.shape[1])}
    else:
        table["target"] = targets[:, 0] if task == "regression" else _labels(targets, task)
    return table | group_names(groups, len(train))


def _labels(targets: Array, task: str) -> Array:
    """Whole-number labels; a binary target that is a probability stays one."""
    hard = task == "classification" or bool(np.isin(targets, (0, 1)).all())
    labels: Array = hard_labels(targets).astype(np.int64) if hard else targets
    return labels
