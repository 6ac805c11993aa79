"""Canaries put among the records of a training set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noshadow.canaries.forms import Canaries
from noshadow.checks import Array, is_tensor, named_in_errors, refuse, require_whole, whole_seed

_FORMS = "be a list of token-id sequences, of texts or of dicts with input_ids, or an array of token ids"


@dataclass(frozen=True, eq=False)
class Inserted:
    """A training set with canaries in it.

    Attributes:
        data: a list of all records, in the form in which they were given: canaries among tensors
            are tensors, among arrays arrays.
        canary: (n + inserted,) the number of the canary that stands in each row, −1 for a record.
        copies: (count,) how often each canary was inserted.
    """

    data: list[Any]
    canary: Array
    copies: Array


@named_in_errors
def insert(data: object, canaries: Canaries, *, copies: int | Sequence[int] = 1, seed: int = 0) -> Inserted:
    """Put canaries into a training set, at random places, each as often as asked.

    Args:
        data: n records: a list of token-id sequences, an integer array (n, length), a list of texts
            (the canaries are texts then), or a list of dicts with `input_ids`, to which
            `attention_mask` and `labels` are added where the records have them.
        canaries: as `make` drew them.
        copies: of each canary, ≥ 0, one number or one per canary. With 0 a canary stays out: what
            is found of it is chance.
        seed: of the places.

    Returns:
        Inserted: `data`, a list of n + Σ copies records; which rows hold which canary.

    Raises:
        InputError: data of another form, texts without texts of the canaries, copies that are no
            whole numbers ≥ 0.

    Cost: O(n).

    Example:
        >>> import noshadow as ns
        >>> canaries = ns.canaries.make([1, 2, range(10, 20)], 2)
        >>> inserted = ns.canaries.insert([[5, 6, 7], [8, 9]], canaries, copies=[3, 1])
        >>> len(inserted.data), (inserted.canary == 0).sum()
        (6, np.int64(3))
    """
    if not isinstance(canaries, Canaries):
        refuse("canaries", "be what canaries.make returned", type(canaries).__name__)
    times = _times(copies, len(canaries))
    records = _records(data)
    made = _like(records, canaries)
    canary = np.concatenate([np.full(len(records), -1), np.repeat(np.arange(len(canaries)), times)])
    everything = [*records, *(made[number] for number in canary[len(records) :])]
    # Records keep their order: only the places of the canaries are random.
    inserted = len(everything) - len(records)
    places = np.sort(np.random.default_rng(whole_seed(seed)).choice(len(everything), inserted, replace=False))
    order = np.empty(len(everything), dtype=np.int64)
    is_place = np.zeros(len(everything), dtype=bool)
    is_place[places] = True
    order[~is_place] = np.arange(len(records))
    order[is_place] = len(records) + np.random.default_rng([whole_seed(seed), 1]).permutation(inserted)
    return Inserted([everything[row] for row in order], canary[order], times)


def _times(copies: Any, count: int) -> Array:
    if isinstance(copies, (int, np.integer)) and not isinstance(copies, bool):
        return np.full(count, require_whole(copies, "copies", low=0))
    if not isinstance(copies, (Sequence, np.ndarray)) or isinstance(copies, str) or len(copies) != count:
        refuse("copies", f"be one whole number, or one for each of {count} canaries", repr(copies))
    return np.array([require_whole(one, "copies", low=0) for one in copies], dtype=np.int64)


def _records(data: Any) -> list[Any]:
    if isinstance(data, (str, bytes, Mapping)) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        refuse("data", _FORMS, type(data).__name__)
    return [data[row] for row in range(len(data))]


def _like(records: list[Any], canaries: Canaries) -> list[Any]:
    """Each canary in the form of the records."""
    first = records[0] if records else []
    if isinstance(first, str):
        if canaries.texts is None:
            refuse("canaries", "be texts among texts", "token ids", "Make them from a text with a tokenizer.")
        return list(canaries.texts)
    tokens = [sequence.tolist() for sequence in canaries.sequences]
    if not isinstance(first, Mapping):
        return [_as(first, one) for one in tokens]
    if "input_ids" not in first:
        refuse("data", _FORMS, f"dicts with {', '.join(map(str, first)) or 'nothing'}")
    parts = [{"input_ids": one, "attention_mask": [1] * len(one), "labels": list(one)} for one in tokens]
    return [{name: _as(first[name], values) for name, values in row.items() if name in first} for row in parts]


def _as(record: Any, tokens: list[int]) -> Any:
    """Token ids as a record has them: a tensor or an array of its kind, or a list."""
    if is_tensor(record):
        return record.new_tensor(tokens)
    return np.asarray(tokens, dtype=record.dtype) if isinstance(record, np.ndarray) else tokens
