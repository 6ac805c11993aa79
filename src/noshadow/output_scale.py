"""Whether a classifier's outputs are logits or probabilities, and the logits of either.

The caller says which they are, or the numbers show it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from noshadow.checks import Array, refuse, require_choice
from noshadow.outcomes import Note

SCALES = ("auto", "logits", "probabilities")
LEAST_PROBABILITY = 1e-15
# How far sums of rows may be from 1: rounding of a softmax in half precision; of what the caller
# says are probabilities, a few digits.
SUM_ROUNDING, STATED_ROUNDING = 1e-3, 0.05
OUTSIDE = 1e-6  # beyond 0 and 1, by rounding
LEAST_RECORDS = 10  # as many logits within [0, 1] are no chance
# root mean square of what a linear function of the features leaves, as a share of the spread
LINEAR_HEAD = 1e-3
CLEARLY = 10.0  # times better than the other reading
DEVIATIONS = 3.0  # standard errors by which labels speak for a reading
MIDDLE = 1e-3  # probabilities this far from 0 and 1 have a logit that float32 holds
MOST_ROWS = 4096
ASK = "Pass output_scale='logits' or output_scale='probabilities'."


@dataclass(frozen=True, eq=False)
class Part:
    """Outputs (n, m) and targets of one split, with their features where there are any.

    The outputs were computed from these features.
    """

    outputs: Array
    targets: Array
    features: Array | None = None


@dataclass(frozen=True)
class OutputScale:
    """What outputs are, "logits", "log-probabilities" or "probabilities", and what settled it."""

    given: str
    settled_by: str


def settled_scale(parts: Sequence[Part], task: str, output_scale: str) -> OutputScale:
    """What the outputs of a model's splits are.

    Rows that lie in [0, 1] and sum to one are probabilities. Log-probabilities of classes are
    logits. One column within [0, 1], or rows that sum to something else, may be either: the
    features decide where one reading is a linear function of them and the other is not, labels
    where they speak for logits; what is left is asked for.

    Args:
        parts: one for each split; those without records say nothing.
        task: resolved. output_scale: "auto", "logits" or "probabilities".

    Raises:
        InputError: outputs that could be either, or that are not what `output_scale` says.
    Cost: O(nm), and a least-squares fit to 4,096 records where features decide.
    """
    require_scale(task, output_scale)
    present = [part for part in parts if len(part.outputs)]
    if task == "regression":
        return OutputScale("predictions", "task")
    if output_scale == "logits" or not present:
        return OutputScale("logits", "output_scale" if present else "values")
    if output_scale == "probabilities":
        for part in present:
            require_probabilities(part.outputs)
        return OutputScale("probabilities", "output_scale")
    return _one_column(present) if task == "binary" else _rows(present)


def require_scale(task: str, output_scale: object) -> None:
    """Refuse a scale that is not in the list, and any named scale for a regression."""
    require_choice(output_scale, SCALES, "output_scale")
    if task == "regression" and output_scale != "auto":
        refuse("output_scale", "be 'auto' in a regression", repr(output_scale), "Its outputs are predictions.")


def logits_of(arrays: Sequence[Array], task: str) -> tuple[list[Array], int]:
    """Logits of probabilities in float64, and how many entries were raised.

    The logits are log p of every class, or log p − log(1 − p) of one column.

    A zero has no logarithm and is raised to 1e-15, or to the smallest positive probability of all
    arrays if that is less: it was rounded from something no larger. Softmax and sigmoid of the
    logits are the probabilities, so losses, margins and scores are those of the model; logits are
    known up to a shift per record.
    """
    logs, raised = [np.zeros(array.shape) for array in arrays], 0
    for sign in (1, -1) if task == "binary" else (1,):
        sides = [array.astype(np.float64) if sign == 1 else 1 - array.astype(np.float64) for array in arrays]
        least = min((float(side[side > 0].min()) for side in sides if (side > 0).any()), default=1.0)
        for log, side in zip(logs, sides, strict=True):
            raised += int((side <= 0).sum())
            log += sign * np.log(np.where(side > 0, side, min(LEAST_PROBABILITY, least)))
    return logs, raised


def require_probabilities(outputs: Array, *, inside: bool = False) -> None:
    """Refuse outputs (n, m) that are not probabilities.

    They must lie in [0, 1], and rows of several columns must sum to one up to a few digits. With
    `inside`, none may be 0, and a lone one may not be 1.
    """
    low, high = float(outputs.min()), float(outputs.max())
    if inside and (low == 0 or (outputs.shape[1] == 1 and high == 1)):
        hint = "What a zero was rounded from is not known here: give logits, or raise zeros to a probability of your choice."
        refuse("outputs", "lie between 0 and 1, both excluded, in files", f"values in [{low:.3g}, {high:.3g}]", hint)
    if low < -OUTSIDE or high > 1 + OUTSIDE:
        refuse("outputs", "lie in [0, 1] with output_scale='probabilities'", f"values in [{low:.3g}, {high:.3g}]")
    if outputs.shape[1] > 1 and not _sum_to_one(outputs, STATED_ROUNDING):
        sums = outputs.sum(1, dtype=np.float64)
        row = int(np.abs(sums - 1).argmax())
        hint = "Sigmoids of several labels: audit one label at a time as task='binary'."
        refuse("outputs", "sum to one in every row with output_scale='probabilities'", f"{sums[row]:.3g} in row {row}", hint)


def probable_rows(outputs: Array) -> int:
    """How many rows of (n, m) outputs could be probabilities.

    Such rows lie within [0, 1] and, if there are several columns, sum to one.
    """
    within = ((outputs >= -OUTSIDE) & (outputs <= 1 + OUTSIDE)).all(1)
    if outputs.shape[1] > 1:
        within &= np.abs(outputs.sum(1, dtype=np.float64) - 1) <= SUM_ROUNDING
    return int(within.sum())


def raised_note(raised: int, entries: int) -> Note:
    """The note on outputs that were given as probabilities and turned into logits."""
    words = "outputs were given as probabilities, and their logarithms are the logits"
    more = f"; {raised} of {entries} entries were 0 or 1 and taken at {LEAST_PROBABILITY:g} or less from it" if raised else ""
    return Note(words + more, "NS042")


def _rows(parts: Sequence[Part]) -> OutputScale:
    """The scale of outputs with one column per class."""
    kinds = {_kind(part.outputs) for part in parts}
    if kinds == {"probabilities"}:
        return OutputScale("probabilities", "rows that sum to one")
    if "probabilities" in kinds:
        _refuse_mixture()
    if kinds == {"within"} and sum(len(part.outputs) for part in parts) >= LEAST_RECORDS:
        first = parts[0]
        left = None if first.features is None else _unexplained(first.features, first.outputs - first.outputs.mean(1, keepdims=True))
        if left is None or left > LINEAR_HEAD:
            _ask(parts, "be logits, or probabilities that sum to one in every row", "rows that do not sum to one with all values")
        return OutputScale("logits", "features")
    return OutputScale("log-probabilities" if kinds == {"log-probabilities"} else "logits", "values")


def _kind(outputs: Array) -> str:
    """One of "probabilities", "log-probabilities", "within" and "logits".

    "within" means within [0, 1], but without a sum of one.
    """
    low, high = float(outputs.min()), float(outputs.max())
    if low < high and _is_within(outputs):
        return "probabilities" if _sum_to_one(outputs, SUM_ROUNDING) else "within"
    return "log-probabilities" if high <= OUTSIDE and _sum_to_one(outputs, SUM_ROUNDING, np.exp) else "logits"


def _sum_to_one(outputs: Array, rounding: float, of: Callable[[Array], Array] = np.asarray) -> bool:
    blocks = (outputs[start : start + MOST_ROWS] for start in range(0, len(outputs), MOST_ROWS))
    return all(bool((np.abs(of(block).sum(1, dtype=np.float64) - 1) <= rounding).all()) for block in blocks)


def _one_column(parts: Sequence[Part]) -> OutputScale:
    """The scale of one number per record: a logit, or a probability of class 1."""
    low, high = min(float(part.outputs.min()) for part in parts), max(float(part.outputs.max()) for part in parts)
    within = [_is_within(part.outputs) for part in parts]
    if sum(len(part.outputs) for part in parts) < LEAST_RECORDS or low == high:
        return OutputScale("logits", "values")
    if all(within):
        return _one_within(parts)
    if any(within) and _shown_by_features(parts[within.index(True)], logs=False) == "probabilities":
        _refuse_mixture()
    if high > OUTSIDE:
        return OutputScale("logits", "values")
    shown = _shown_by_features(parts[0], logs=True)
    if shown == "probabilities" or (shown is None and _labels_for_logits(parts[0], logs=True) < -DEVIATIONS):
        got = f"what reads as log-probabilities (all values in [{low:.3g}, {high:.3g}])"
        hint = "Give log p − log(1 − p), or pass output_scale='logits' if they are logits."
        refuse("outputs", "be logits in a binary task", got, hint)
    return OutputScale("logits", "labels" if shown is None else "features")


def _one_within(parts: Sequence[Part]) -> OutputScale:
    """The scale of one column with all values in [0, 1]."""
    shown = _shown_by_features(parts[0], logs=False)
    if shown is None and _labels_for_logits(parts[0], logs=False) <= DEVIATIONS:
        _ask(parts, "be logits, or have their scale named", "one column with all values")
    return OutputScale("logits", "labels") if shown is None else OutputScale(shown, "features")


def _is_within(outputs: Array) -> bool:
    return bool(outputs.min() >= -OUTSIDE and outputs.max() <= 1 + OUTSIDE)


def _probability(part: Part, *, logs: bool) -> Array:
    """What a column would be as probabilities (`logs`: as their logarithms), within (0, 1)."""
    column = part.outputs[:, 0].astype(np.float64)
    p: Array = np.clip(np.exp(np.minimum(column, 0.0)) if logs else column, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    return p


def _shown_by_features(part: Part, *, logs: bool) -> str | None:
    """Which reading of one column is a linear function of the features.

    The readings are logits and probabilities. Returns None where both or neither is linear, or
    where it is not known.
    """
    if part.features is None:
        return None
    p = _probability(part, logs=logs)
    middle = (p > MIDDLE) & (p < 1 - MIDDLE)
    readings = (part.outputs[:, 0].astype(np.float64), np.log(p) - np.log1p(-p))
    left = [_unexplained(part.features[middle], values[middle, None]) for values in readings]
    if left[0] is None or left[1] is None or min(left[0], left[1]) > LINEAR_HEAD:
        return None
    if CLEARLY * left[0] < left[1]:
        return "logits"
    return "probabilities" if CLEARLY * left[1] < left[0] else None


def _unexplained(features: Array, values: Array) -> float | None:
    """Root mean square of what a linear function of the features leaves of `values` (n, k).

    It is relative to the spread of the values, and None where there are too few records.
    """
    n, d = features.shape
    rows = np.unique(np.linspace(0, max(n - 1, 0), min(n, max(MOST_ROWS, 3 * (d + 1)))).astype(np.int64))
    if len(rows) < 2 * (d + 1):
        return None
    x, y = (array[rows].astype(np.float64) for array in (features, values))
    x, y = x - x.mean(0), y - y.mean(0)
    size = float((y**2).sum())
    if size == 0:
        return None
    scale = np.abs(x).max(0)
    x = x / np.where(scale > 0, scale, 1.0)
    left = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return float(np.sqrt((left**2).sum() / size))


def _labels_for_logits(part: Part, *, logs: bool) -> float:
    """How much better the labels fit when a column is logits than when it is probabilities.

    The difference of the likelihoods is in standard errors.
    """
    column, p = part.outputs[:, 0].astype(np.float64), _probability(part, logs=logs)
    if part.targets.size != len(column):
        return 0.0  # targets of another form, which are refused elsewhere
    y = part.targets.reshape(len(column)).astype(np.float64)
    # Log-likelihood of each label under the column as logits, minus that as probabilities.
    gains = -y * np.log(p) - (1 - y) * np.log1p(-p) - y * np.logaddexp(0, -column) - (1 - y) * np.logaddexp(0, column)
    error = float(gains.std()) / np.sqrt(len(gains))
    return float(gains.mean()) / error if error > 0 else 0.0


def _refuse_mixture() -> NoReturn:
    got = "probabilities in one and other values in the other"
    refuse("outputs", "be of one scale in train and test", got, "Give logits, or probabilities, in both.")


def _ask(parts: Sequence[Part], rule: str, what: str) -> NoReturn:
    low, high = min(float(part.outputs.min()) for part in parts), max(float(part.outputs.max()) for part in parts)
    refuse("outputs", rule, f"{what} in [{low:.3g}, {high:.3g}]", ASK)
