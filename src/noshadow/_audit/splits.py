"""Which records of the two splits look alike: counts that a report needs and that only the features can give."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from noshadow.checks import Array
from noshadow.signals import Signals

ROWS_AT_ONCE = 8192
_EXAMPLES = 10


def split_counts(train: Signals, test: Signals) -> dict[str, Any]:
    """Records that look alike, to four digits of each feature's spread and with the same target (JSON-ready).

    Without features (coarse probabilities repeat by nature) only a split that equals the other as a whole counts.

    Returns:
        shared_with_test: test records that look like a training record; copies: training records that look like another
        one (records, groups, largest group and up to ten of its ids); each None where records cannot be told apart, with
        the reason beside them.

    Cost: O(nd), one digest a record.
    """
    spread, reason = _spread(train)
    if spread is None:
        return {"shared_with_test": _whole_split(train, test), "copies": None, "reason": reason}
    digests = np.fromiter(_row_digests(train, spread), np.int64, len(train))
    if not _comparable(train, test):
        return {"shared_with_test": _whole_split(train, test), "copies": _copies(digests, train.ids), "reason": "the splits differ in form"}
    others = np.fromiter(_row_digests(test, spread), np.int64, len(test))
    shared = int(np.isin(others, digests).sum()) if len(test) else None
    return {"shared_with_test": shared, "copies": _copies(digests, train.ids), "reason": None}


def _spread(train: Signals) -> tuple[Array | None, str | None]:
    """Standard deviation of each feature, infinite where it does not vary and tells no records apart."""
    if train.features is None:
        return None, "no features were given"
    spread: Array = train.features.std(0, dtype=np.float64)
    spread[spread <= 1e-12 * np.abs(train.features).max(0)] = np.inf
    return (None, "the features do not vary") if np.isinf(spread).all() else (spread, None)


def _comparable(train: Signals, test: Signals) -> bool:
    same_width = train.features is not None and test.features is not None and train.features.shape[1] == test.features.shape[1]
    return same_width and train.targets.ndim == test.targets.ndim


def _whole_split(train: Signals, test: Signals) -> int | None:
    same = len(test) > 0 and train.features is None and train.sha256()["data"] == test.sha256()["data"]
    return len(test) if same else None


def _copies(digests: Array, ids: Array) -> dict[str, Any]:
    _, group, counts = np.unique(digests, return_inverse=True, return_counts=True)
    several = counts > 1
    largest: Array = np.flatnonzero(group == counts.argmax())[:_EXAMPLES] if several.any() else np.empty(0, dtype=np.int64)
    return {
        "records": int(counts[several].sum()),
        "groups": int(several.sum()),
        "largest": int(counts.max()),
        "first_ids": [str(ids[row]) for row in largest],
    }


def _row_digests(signals: Signals, spread: Array) -> Iterator[int]:
    assert signals.features is not None
    for start in range(0, len(signals), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        rounded = np.round(signals.features[part] / spread * 1e4) + 0.0
        targets = signals.targets[part].reshape(len(rounded), -1)
        yield from (hash(row.tobytes()) for row in np.column_stack([rounded, targets]))
