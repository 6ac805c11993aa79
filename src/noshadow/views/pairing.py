"""Check that X and y of one split belong together row by row.

They are held against their indexes where both have one.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from noshadow.checks import refuse, require_unmasked
from noshadow.signals import Signals
from noshadow.views.row_names import index_names


def paired_targets(inputs: object, targets: Any, argument: str) -> tuple[Any, tuple[str, ...]]:
    """The targets in the order of the inputs, and a note where that was not their own.

    Where inputs and targets both have a pandas index, its labels say which belong together. Another
    order of the same labels is put right. What labels cannot settle is refused: other labels,
    repeated ones, or plain row numbers beside the same numbers in another order, which shuffled
    data leave behind as often as data shuffled on one side alone.

    Args:
        inputs: X, or a tuple or dict of several; targets: y. argument: named in error messages.

    Raises:
        InputError: the indexes contradict each other, or an array is masked.
    """
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else (inputs,)
    for part in parts:
        require_unmasked(part, f"{argument} X")
    require_unmasked(targets, f"{argument} y")
    indexes = [part.index for part in parts if _has_index(part)]
    if any(not indexes[0].equals(other) for other in indexes[1:]):
        hint = "Put them into one order first, or pass arrays."
        refuse(f"{argument} X", "hold inputs with one index", "inputs whose indexes differ", hint)
    if not indexes or not _has_index(targets) or indexes[0].equals(targets.index) or len(indexes[0]) != len(targets):
        return targets, ()
    own, other = indexes[0], targets.index
    _require_one_reading(own, other, argument)
    places = other.get_indexer(own)
    moved = int((places != np.arange(len(own))).sum())
    note = (
        f"The index of {argument} y holds the labels of X in another order: {moved} of {len(own)} targets were moved to the inputs of "
        "their label (pass y.to_numpy() if the rows were right as they stood)."
    )
    return targets.iloc[places], (note,)


def require_index_of(records: Signals, value: object, argument: str) -> None:
    """Refuse a column whose index does not fit the data frame's index that names the records.

    It does not fit when it has other labels, or the same labels in another order.

    Args:
        records: of one split, with the labels of that index as ids. value: a column with one entry
            per record, a Series or anything else.
        argument: named in error messages.
    """
    own = index_names(value)
    if own is not None and not np.array_equal(own.ids.astype(str), records.ids.astype(str)):
        hint = "Put it into that order, or pass .to_numpy() if row k of it belongs to record k."
        refuse(argument, "have the index of the records' X, in its order", "another index", hint)


def _has_index(part: object) -> bool:
    return isinstance(part, (pd.DataFrame, pd.Series))


def _require_one_reading(own: pd.Index, other: pd.Index, argument: str) -> None:
    """Refuse indexes that do not say which target belongs to which input."""
    rule, by_row = "have the index of X", "Pass y.to_numpy() if row k of y belongs to row k of X"
    strangers = other.difference(own, sort=False)
    if len(strangers):
        got = f"{len(strangers)} of {len(other)} labels that X does not have, {strangers.tolist()[0]!r} first"
        refuse(f"{argument} y", rule, got, f"{by_row}.")
    if not (own.is_unique and other.is_unique):
        refuse(f"{argument} y", rule, "its labels in another order, some of them more than once", f"{by_row}.")
    if any(index.equals(pd.RangeIndex(len(index))) for index in (own, other)):
        which = "X counts its rows, and y has" if own.equals(pd.RangeIndex(len(own))) else "y counts its rows, and X has"
        hint = f"{by_row}, or y.loc[X.index] if its label belongs to X's."
        refuse(f"{argument} y", rule, f"two readings: {which} the same numbers in another order", hint)
