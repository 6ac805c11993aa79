"""One function per input rule; whatever breaks it is refused in one sentence."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from noshadow.errors import TRAINING_OPTIONS as TRAINING_OPTIONS
from noshadow.errors import DoesNotFit as DoesNotFit
from noshadow.errors import InputError as InputError
from noshadow.errors import NotApplicable as NotApplicable
from noshadow.errors import NumericalError as NumericalError
from noshadow.errors import advice as advice
from noshadow.errors import called as called
from noshadow.errors import its_place as its_place
from noshadow.errors import named_as as named_as
from noshadow.errors import named_command as named_command
from noshadow.errors import named_in_errors as named_in_errors
from noshadow.errors import open_to_names as open_to_names
from noshadow.errors import refuse as refuse
from noshadow.errors import said as said
from noshadow.errors import speaking_for as speaking_for
from noshadow.errors import unnamed as unnamed

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]
LARGEST = 1e100
TASKS = ("regression", "classification", "binary")
ONE_LABEL = "Multi-label heads are not supported: audit one label at a time as task='binary' (docs/how-to/multi-label.md)."


# What scikit-learn says of a table's columns; which ones differ, or that their order does, follows.
_NAMES_DIFFER = "The feature names should match"


@contextmanager
def users_code(rule: str) -> Iterator[None]:
    """Turn whatever the user's model or transform raises into one sentence that says so.

    A public function that the user's code calls names itself. No generator may be suspended in
    here: see `open_to_names`.
    """
    try:
        with open_to_names():
            yield
    except (InputError, NumericalError, NotApplicable):
        raise
    except Exception as error:
        lines = (str(error).strip() or "no message").splitlines()
        # A loader's worker hands over a whole traceback, which ends with what happened.
        reason = lines[-1 if lines[0].startswith("Caught ") else 0].rstrip(".")
        if lines[0].startswith(_NAMES_DIFFER):
            reason = " ".join(line.strip() for line in lines).rstrip(".")
        raise InputError(said(f"{rule}; got {type(error).__name__} ({reason}).")) from error


def is_tensor(value: object) -> "TypeGuard[torch.Tensor]":
    """Whether a value is a torch tensor.

    torch is not loaded to find out, since without it there are no tensors.
    """
    loaded = sys.modules.get("torch")
    return loaded is not None and isinstance(value, loaded.Tensor)


def require_unmasked(value: object, argument: str) -> None:
    """Refuse a masked array with masked values.

    What stands behind a mask would be read as if it were there.
    """
    if isinstance(value, np.ma.MaskedArray) and value.mask.any():
        hint = "Drop these records, or fill the values in with .filled(…)."
        refuse(argument, "hold no masked values", f"{int(value.mask.sum())} of {value.size} masked", hint)


def as_array(value: object, argument: str) -> Array:
    """Anything NumPy or torch accepts, as a NumPy array (no copy where none is needed).

    Masked values are refused.
    """
    require_unmasked(value, argument)
    if is_tensor(value):
        tensor = value.detach().cpu()
        # NumPy has no bfloat16, and few operations in float16.
        return (tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor).numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(said(f"{argument} must be a plain array; got rows of unequal length ({error}).")) from error
    if array.dtype == object:
        refuse(argument, "be a plain numeric array", "an array of Python objects", "Missing values, or rows of unequal length?")
    return array


def require_finite(array: Array, argument: str, *, block: int = 1 << 16) -> None:
    """Refuse NaN and infinity, saying how many there are and where the first one is."""
    if array.dtype.kind not in "fc":
        return
    bad, first = 0, None
    for start in range(0, len(array), block):
        rows = array[start : start + block]
        mask = ~np.isfinite(rows)
        found = int(mask.sum())
        if found and first is None:
            index = np.argwhere(mask)[0]
            first = (start + int(index[0]), *map(int, index[1:]))
        bad += found
    if first is not None:
        where = first[0] if len(first) == 1 else first
        refuse(argument, "be finite", f"{bad} NaN or infinite values, the first at index {where}", "Drop or repair those rows.")


def require_squarable(array: Array, argument: str) -> None:
    """Refuse values beyond ±1e100, whose sums of squares may overflow float64."""
    if not array.size or max(abs(float(array.min())), abs(float(array.max()))) <= LARGEST:
        return
    for extreme in (array.argmin(), array.argmax()):
        if abs(float(array.flat[extreme])) > LARGEST:
            index = tuple(map(int, np.unravel_index(extreme, array.shape)))
            where = index[0] if len(index) == 1 else index
            refuse(argument, f"stay within ±{LARGEST:g}", f"{array.flat[extreme]:g} at index {where}", "Rescale it.")


def numeric_array(value: object, argument: str, *, ndim: int | tuple[int, ...]) -> Array:
    """A finite numeric array with an allowed number of dimensions."""
    array = as_array(value, argument)
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if array.ndim not in allowed:
        shapes = " or ".join(f"{k}-dimensional" for k in allowed)
        refuse(argument, f"be {shapes}", f"shape {array.shape}")
    if array.dtype.kind not in "biuf":
        refuse(argument, "be numeric", f"dtype {array.dtype}")
    require_finite(array, argument)
    return array


def floating(array: Array) -> Array:
    """The array in float32 or float64: integers and other floats become float64."""
    values: Array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    return values


def require_same_length(**arrays: Array | Sequence[object] | None) -> int:
    """All given arrays have the same number of rows; returns it."""
    lengths = {name: len(a) for name, a in arrays.items() if a is not None}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{name} {length}" for name, length in lengths.items())
        refuse(" and ".join(lengths), "have one row per record", f"lengths {got}")
    return next(iter(lengths.values()))


def require_choice(value: object, choices: Sequence[object], argument: str) -> None:
    """The value is one of a short list."""
    if value not in choices:
        refuse(argument, f"be one of {', '.join(map(repr, choices))}", repr(value))


def require_number(
    value: object, argument: str, *, low: float, high: float = np.inf, low_open: bool = False, high_open: bool = False
) -> float:
    """A finite real number in an interval; returns it as a float."""
    rule = f"be a number {'>' if low_open else '≥'} {low:g}" + ("" if high == np.inf else f" and {'<' if high_open else '≤'} {high:g}")
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        refuse(argument, rule, repr(value))
    number = float(value)
    inside = (number > low if low_open else number >= low) and (number < high if high_open else number <= high)
    if not np.isfinite(number) or not inside:
        refuse(argument, rule, f"{number:g}")
    return number


def require_weights(value: object, n: int) -> Array:
    """Sample weights of n records: ≥ 0 and not all zero, float64 (n,)."""
    weight: Array = numeric_array(value, "sample_weight", ndim=1).astype(np.float64)
    require_same_length(train=range(n), sample_weight=weight)
    if (weight < 0).any() or not (weight > 0).any():
        refuse("sample_weight", "be ≥ 0 and not all zero", f"minimum {weight.min():g}, maximum {weight.max():g}")
    return weight


def whole_seed(seed: object) -> int:
    """A seed that NumPy and torch both take, as a plain int."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        refuse("seed", "be a whole number ≥ 0 and < 2⁶³", repr(seed))
    return int(seed)


def require_whole(value: object, argument: str, *, low: int) -> int:
    """A whole number from `low` on; returns it as an int."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        refuse(argument, f"be a whole number ≥ {low}", repr(value))
    return int(value)


def resolved_task(task: str, outputs: Array, targets: Array) -> str:
    """The task named, or inferred from dtypes and shapes where that is not a guess.

    Float targets mean regression; integers with m ≥ 2 outputs classification; integers 0/1 with one
    output binary. Anything else is asked for, and so are look-alikes that a guess would get wrong:
    floats 0.0/1.0 beside one output (a BCE head), rows that sum to one (soft labels) and several
    columns of 0 and 1 (multi-label).
    """
    require_choice(task, ("auto", *TASKS), "task")
    if task != "auto":
        return task
    integers = targets.dtype.kind in "biu"
    one_output = outputs.shape[1] == 1
    if integers and targets.ndim == 1 and not one_output:
        return "classification"
    require_one_label(targets)
    zero_one = bool(np.isin(targets, (0, 1)).all())
    if integers and one_output and zero_one:
        return "binary"
    if integers:
        refuse("task", "be named when integer targets do not settle it", "'auto'", "Pass task='regression', 'classification' or 'binary'.")
    if one_output and zero_one:
        refuse("task", "be named when one output meets targets 0.0 and 1.0", "'auto'", "Pass task='binary' or task='regression'.")
    if targets.ndim == 2 and targets.shape[1] > 1 and targets.min() >= 0 and np.allclose(targets.sum(1), 1, atol=1e-4):
        refuse("task", "be named when target rows sum to one", "'auto'", "Pass task='classification' (soft labels) or task='regression'.")
    return "regression"


def require_one_label(targets: Array) -> None:
    """Refuse several columns of 0 and 1 that are not one-hot rows.

    Call it only where the caller has not said what they are.
    """
    several = targets.ndim == 2 and targets.shape[1] > 1 and bool(np.isin(targets, (0, 1)).all())
    if several and bool((targets.sum(1) != 1).any()):
        got = f"{targets.shape[1]} columns of 0 and 1"
        refuse("targets", "be one label per record", got, f"{ONE_LABEL} If they are measured numbers, pass task='regression'.")


def require_output_columns(outputs: Array, task: str) -> None:
    """Softmax needs a column per class, a binary task one logit."""
    if task == "classification" and outputs.shape[1] < 2:
        refuse("outputs", "have at least 2 columns in classification", f"shape {outputs.shape}", "Pass task='binary' for one logit.")
    if task == "binary" and outputs.shape[1] != 1:
        refuse("outputs", "have one column in a binary task", f"shape {outputs.shape}", "Pass task='classification'.")


def class_targets(targets: Array, classes: int) -> Array:
    """Targets of a softmax problem.

    They are integer labels (n,) as int64, or soft rows (n, m) as float64.
    """
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim == 2:
        return soft_targets(targets, classes)
    return integer_labels(targets, classes)


def soft_targets(targets: Array, classes: int) -> Array:
    """Rows of probabilities (n, m), scaled to sum to one, or labels when all are one-hot.

    Labels have the shape (n,). Multi-label targets are refused.
    """
    if targets.shape[1] != classes:
        refuse("targets", f"have one column per output ({classes})", f"shape {targets.shape}")
    sums = targets.sum(1, dtype=np.float64)
    off = ~np.isclose(sums, 1.0, atol=1e-4)
    if (targets < 0).any() or off.any():
        row = int(np.argmax(off | (targets < 0).any(1)))
        refuse("targets", "be labels or rows of probabilities that sum to one", f"row {row} with sum {sums[row]:g}", ONE_LABEL)
    rows: Array = targets / sums[:, None]
    # Rows of one 1 and zeros are labels, and labels keep their digits as p → 1.
    return rows.argmax(1) if bool(((rows == 0) | (rows == 1)).all()) else rows


def integer_labels(targets: Array, classes: int) -> Array:
    """Integer labels in 0 … classes − 1, at least two of them present."""
    if targets.ndim != 1:
        refuse("targets", "be 1-dimensional labels", f"shape {targets.shape}", ONE_LABEL)
    if targets.dtype.kind == "f":
        refuse("targets", "be integers in classification", f"dtype {targets.dtype}", "Cast the labels, or pass task='regression'.")
    labels = targets.astype(np.int64)
    low, high = (int(labels.min()), int(labels.max())) if len(labels) else (0, 0)
    if low < 0:
        refuse("targets", "be ≥ 0", f"label {low} at index {int(labels.argmin())}")
    if high >= classes:
        refuse("targets", f"be < {classes}, the number of outputs", f"label {high} at index {int(labels.argmax())}")
    return labels


def binary_targets(targets: Array) -> Array:
    """Targets of a one-logit problem: numbers in [0, 1] (soft labels allowed), float64 (n,)."""
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim != 1:
        refuse("targets", "be 1-dimensional beside one output", f"shape {targets.shape}", ONE_LABEL)
    values = targets.astype(np.float64)
    outside = (values < 0) | (values > 1)
    if outside.any():
        row = int(np.argmax(outside))
        refuse("targets", "be 0, 1 or a probability in a binary task", f"{values[row]:g} at index {row}")
    return values


def require_two_classes(labels: Array) -> None:
    """Membership scores of a classifier need at least two classes among the training labels."""
    present = np.unique(labels)
    if len(present) < 2:
        refuse("targets", "hold at least two classes", f"only class {present[0]}", "Audit a data set with more than one class.")


def regression_targets(targets: Array, outputs: Array) -> Array:
    """Targets of a regression, float64 (n, q) with one column per output."""
    values = targets.astype(np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.shape != outputs.shape:
        labels = "Labels of a classification must be integers." if targets.ndim == 1 and outputs.shape[1] > 1 else ""
        refuse("targets", f"have the shape of the outputs {outputs.shape}", f"{values.shape}", labels)
    return values
