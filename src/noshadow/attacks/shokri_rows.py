"""The rows of the reference models' outputs that Shokri's classifiers learn from.

This file also says what the classifiers see of them.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from noshadow.attacks.inputs import side_counts, signal_array
from noshadow.blocks import block_length, blocks
from noshadow.checks import TASKS, Array, numeric_array, refuse, require_choice, require_output_columns, require_same_length
from noshadow.losses import hard_labels, task_targets

LEAST_PAIRS = 2


@dataclass(frozen=True)
class JudgedRecords:
    """What is known of the n records.

    These are targets as `task_targets` returns them, and which classifier judges each record.
    """

    task: str
    targets: Array
    group: Array  # (n,) class; 0 in regression
    shape: tuple[int, int]  # of a model's outputs

    @property
    def width(self) -> int:
        """Number of features of a row."""
        return {"classification": self.shape[1], "binary": 2, "regression": 3 * self.shape[1]}[self.task]

    def checked(self, outputs: object, argument: str) -> Array:
        """One model's outputs, of the shape that all have."""
        array = output_columns(outputs, argument)
        if array.shape != self.shape:
            refuse(argument, f"have the shape of the other models' outputs {self.shape}", f"shape {array.shape}")
        return array

    def features(self, outputs: Array, rows: Array) -> Array:
        """(len(rows), width) what a classifier sees of these records, float64."""
        chosen = outputs[rows].astype(np.float64)
        if self.task == "regression":
            return np.concatenate((chosen, self.targets[rows], self.targets[rows] - chosen), axis=1)
        logits = np.column_stack((np.zeros(len(rows)), chosen)) if self.task == "binary" else chosen
        probabilities: Array = softmax(logits, axis=1)
        return probabilities

    def named(self, group: int) -> str:
        """What a message calls the group."""
        return "the records" if self.task == "regression" else f"class {group}"


@dataclass(frozen=True)
class Rows:
    """Rows to learn from, those of a group side by side."""

    model: Array  # (k,)
    record: Array  # (k,)
    is_member: Array  # (k,)
    slices: dict[int, slice]


def checked_records(outputs: object, targets: object, task: str, argument: str) -> tuple[JudgedRecords, Array]:
    """The records behind a model's outputs, and those outputs as (n, m)."""
    require_choice(task, TASKS, "task")
    array = output_columns(outputs, argument)
    require_output_columns(array, task)
    given = numeric_array(targets, "targets", ndim=(1, 2))
    require_same_length(**{argument: array, "targets": given})
    checked = task_targets(array, given, task)
    group = np.zeros(len(array), dtype=np.int64)
    if task != "regression":
        group = (checked > 0.5).astype(np.int64) if task == "binary" else hard_labels(checked)
    return JudgedRecords(task, checked, group, array.shape), array


def output_columns(outputs: object, argument: str) -> Array:
    """Finite outputs (n, m); one column may come without its axis."""
    array = signal_array(outputs, argument, ndim=(1, 2))
    return array[:, None] if array.ndim == 1 else array


def drawn_rows(member: Array, models: Array, records: JudgedRecords, max_rows: int, rng: np.random.Generator) -> Rows:
    """Draw at most `max_rows` rows per group, in pairs of the same record.

    `models` are the numbers of the rows of `member`.
    """
    found: list[tuple[Array, Array, Array]] = []
    slices, start = {}, 0
    for group in np.unique(records.group).tolist():
        inside = np.flatnonzero(records.group == group)
        model, record = _drawn_pairs(member[:, inside], max_rows // 2, rng)
        if len(record) < LEAST_PAIRS:
            rule = f"hold {records.named(group)} at least {LEAST_PAIRS} times in pairs: trained on by one model and not by another"
            refuse("membership", rule, str(len(record)), "Train more models, or merge the class with another.")
        found.append((models[model].ravel(), np.tile(inside[record], 2), np.repeat((True, False), len(record))))
        slices[group] = slice(start, start + 2 * len(record))
        start += 2 * len(record)
    model, record, is_member = (np.concatenate(column) for column in zip(*found, strict=True))
    return Rows(model, record, is_member, slices)


def _drawn_pairs(member: Array, most: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw at most `most` pairs without replacement.

    Returns the models (2, k), IN and OUT, and the records (k,) of the pairs.
    """
    available = np.minimum(*side_counts(member))
    ends = available.cumsum()
    chosen = rng.choice(ends[-1], size=min(most, int(ends[-1])), replace=False, shuffle=False)
    wanted = np.bincount(np.searchsorted(ends, chosen, side="right"), minlength=len(available))
    models, drawn = [], []
    some = np.flatnonzero(wanted)
    for start, stop in blocks(len(some), block_length(len(member))):
        columns = some[start:stop]
        inside, key = member[:, columns], rng.random((len(member), stop - start))
        # Each side's models in random order, the other side's behind them.
        orders = [np.argsort(np.where(inside == side, key, 2.0), axis=0) for side in (True, False)]
        place, column = np.nonzero(np.arange(len(member))[:, None] < wanted[columns])
        models.append(np.stack([order[place, column] for order in orders]))
        drawn.append(columns[column])
    empty = np.empty((2, 0), dtype=np.int64)
    return np.concatenate((empty, *models), axis=1), np.concatenate((empty[0], *drawn))
