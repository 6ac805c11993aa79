"""Count which records of the two splits look alike.

A report needs these counts, and only the features can give them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from noshadow.checks import Array
from noshadow.signals import Signals

NUMBERS_AT_ONCE = 1 << 17  # a block that stays in the caches
_DIGITS = 1e4  # per standard deviation of a feature: what differs by less looks alike
_EXAMPLES = 10


def split_counts(train: Signals, test: Signals) -> dict[str, Any]:
    """Count records that look alike and have the same target (JSON-ready).

    Records look alike when they agree to four digits of each feature's spread.

    Without features (coarse probabilities repeat by nature) only a split that equals the other as a
    whole counts.

    Returns:
        shared_with_test: test records that look like a training record. copies: training records
            that look like another one (records, groups, largest group and up to ten of its ids).
            Each is None where records cannot be told apart; reason says why.

    Cost: O(nd), and O(n log n) for n numbers. Exact: records whose digests agree are compared.
    """
    spread, reason = _spread(train)
    if spread is None:
        return {"shared_with_test": _whole_split(train, test), "copies": None, "reason": reason}
    if not _comparable(train, test):
        alike = _first_alike([train], spread)
        return {
            "shared_with_test": _whole_split(train, test),
            "copies": copies_among(alike, train.ids),
            "reason": "the splits differ in form",
        }
    alike = _first_alike([train, test], spread)
    # A test record that looks like a training record has that record's row number, which is below
    # the number of training records.
    shared = int((alike[len(train) :] < len(train)).sum()) if len(test) else None
    return {"shared_with_test": shared, "copies": copies_among(alike[: len(train)], train.ids), "reason": None}


def ids_in_both(train: Signals, test: Signals, sources: Mapping[str, Any] | None, *, given: bool) -> dict[str, Any] | None:
    """Count test records whose id is that of a training record; None where ids say nothing.

    The result is JSON-ready and holds up to ten of these ids.

    Args:
        train, test: with their ids. given: whether the training records' were given to the audit
            itself.
        sources: where each split's ids come from: "given", "index" (labels of a data frame), "rows"
            (of one data set behind both splits), or None for row numbers.
    """
    kinds = ("given" if given else (sources or {}).get("train"), (sources or {}).get("test"))
    named = all(kind in ("given", "index") for kind in kinds) or kinds == ("rows", "rows")
    # Files hold row numbers as if they had been given.
    counted = all(bool(np.array_equal(split.ids, np.arange(len(split)))) for split in (train, test))
    if not named or counted or len(test) == 0:
        return None
    other = test.ids.astype(str)
    shared = other[np.isin(other, train.ids.astype(str))]
    return {"count": len(shared), "first": shared[:_EXAMPLES].tolist()}


def _spread(train: Signals) -> tuple[Array | None, str | None]:
    """The spread of each feature, or why there is none."""
    if train.features is None:
        return None, "no features were given"
    spread = feature_spread(train.features)
    return (None, "the features do not vary") if np.isinf(spread).all() else (spread, None)


def feature_spread(features: Array) -> Array:
    """Compute the standard deviation (d,) of each feature.

    It is infinite where a feature does not vary and tells no records apart.
    """
    mean, squares = features.mean(0, dtype=np.float64), np.zeros(features.shape[1])
    for rows in _blocks(features):
        centred = features[rows] - mean
        squares += np.einsum("nd,nd->d", centred, centred)
    spread: Array = np.sqrt(squares / len(features))
    spread[spread <= 1e-12 * np.abs(features).max(0)] = np.inf
    return spread


def _comparable(train: Signals, test: Signals) -> bool:
    same_width = train.features is not None and test.features is not None and train.features.shape[1] == test.features.shape[1]
    return same_width and train.targets.shape[1:] == test.targets.shape[1:]


def _whole_split(train: Signals, test: Signals) -> int | None:
    same = len(test) > 0 and train.features is None and train.sha256()["data"] == test.sha256()["data"]
    return len(test) if same else None


def copies_among(alike: Array, ids: Array) -> dict[str, Any]:
    """Count groups of records with the same number.

    Of equally large groups, the one with the smallest number is named.
    """
    _, group, counts = np.unique(alike, return_inverse=True, return_counts=True)
    several = counts > 1
    largest: Array = np.flatnonzero(group == counts.argmax())[:_EXAMPLES] if several.any() else np.empty(0, dtype=np.int64)
    return {
        "records": int(counts[several].sum()),
        "groups": int(several.sum()),
        "largest": int(counts.max()),
        "first_ids": [str(ids[row]) for row in largest],
    }


def _first_alike(splits: list[Signals], spread: Array) -> Array:
    """Find, for every record of the splits, the row of the first record that looks like it.

    Rows are counted through both splits.
    """
    digests = np.concatenate([_digests(split, spread) for split in splits])
    _, firsts, group = np.unique(digests, return_index=True, return_inverse=True)
    alike: Array = firsts[group].astype(np.int64)
    later = np.flatnonzero(alike != np.arange(len(alike)))
    several: dict[tuple[int, bytes], int] = {}
    for start in range(0, len(later), step := max(NUMBERS_AT_ONCE // len(spread), 1)):
        rows = later[start : start + step]
        contents = _rounded(splits, spread, rows)
        # Different records with one digest, next to impossible: told apart by their bytes.
        for place in np.flatnonzero((contents != _rounded(splits, spread, alike[rows])).any(1)).tolist():
            row = int(rows[place])
            alike[row] = several.setdefault((int(digests[row]), contents[place].tobytes()), row)
    return alike


def _blocks(features: Array) -> Iterator[slice]:
    step = max(NUMBERS_AT_ONCE // features.shape[1], 1)
    return (slice(start, start + step) for start in range(0, len(features), step))


def _rounded(splits: list[Signals], spread: Array, rows: Array) -> Array:
    """Round features of chosen rows to four digits of their spread, and add the targets.

    Rows are counted through both splits.
    """
    parts, start = [], 0
    of_split = np.searchsorted(np.cumsum([len(split) for split in splits]), rows, side="right")
    for number, split in enumerate(splits):
        parts.append(_rounded_rows(split, spread, rows[of_split == number] - start))
        start += len(split)
    values = np.empty((len(rows), parts[0].shape[1]))
    values[np.argsort(of_split, kind="stable")] = np.concatenate(parts)
    return values


def _rounded_rows(split: Signals, spread: Array, rows: Array | slice) -> Array:
    assert split.features is not None
    features, targets = split.features[rows], split.targets[rows]
    values = np.empty((len(features), len(spread) + (targets.shape[1] if targets.ndim == 2 else 1)))
    np.multiply(features, _DIGITS / spread, out=values[:, : len(spread)])
    np.rint(values[:, : len(spread)], out=values[:, : len(spread)])
    values[:, len(spread) :] = targets if targets.ndim == 2 else targets[:, None]
    values += 0.0  # −0.0 is 0.0
    return values


def _digests(split: Signals, spread: Array) -> Array:
    """Compute 64 bits of every record, (n,) uint64.

    Each number's bits are mixed with its column's own constants, and added up.

    The bits are the same on every machine and in every run. The mixing is that of splitmix64, so
    that numbers with few digits fill all bits.
    """
    assert split.features is not None
    found = np.empty(len(split), dtype=np.uint64)
    for rows in _blocks(split.features):
        words = _rounded_rows(split, spread, rows).view(np.uint64)
        words ^= np.random.default_rng(0).integers(0, 2**64, words.shape[1], dtype=np.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            words ^= words >> np.uint64(shift)
            words *= np.uint64(factor)
        words ^= words >> np.uint64(31)
        found[rows] = words.sum(1, dtype=np.uint64)
    return found
