"""Models made of parts that each saw a bag of the records: what the others say of a record."""

from collections.abc import Callable, Iterable

import numpy as np

from noshadow.checks import Array, NotApplicable

# Trees whose leaves are counted before bags are believed: one would do for any other records.
COMPARED = 3
OTHER_BAGS = (
    "the leaves of {name} hold other numbers of records than its bags of these records: it was fitted on other records, or on these in "
    "another order"
)


def out_of_bag_means(answers: Iterable[Callable[[Array], Array]], bags: list[Array], n: int, name: str) -> tuple[Array, Array]:
    """Mean answer of the parts whose bags a record was not in, and how many they are.

    Args:
        answers: rows → predictions (or class probabilities) of each part for these records.
        bags: row numbers that each part was trained on, in the same order.
        n: number of records. name: of the model, in words.

    Returns:
        (n,) or (n, m) means, NaN for records in every bag; (n,) numbers of parts.

    Raises:
        NotApplicable: a bag with rows that are not there, or every record is in every bag.

    Cost: one prediction of every part for the records outside of its bag.
    """
    total: Array | None = None
    parts = np.zeros(n, dtype=np.int64)
    for answer, bag in zip(answers, bags, strict=True):
        if len(bag) and (bag.min() < 0 or bag.max() >= n):
            raise NotApplicable(f"{name} was fitted on other records than these {n}: its bags name record {int(bag.max())}")
        outside = np.flatnonzero(np.bincount(bag, minlength=n) == 0)
        if len(outside):
            found = answer(outside)
            total = np.zeros((n, *found.shape[1:])) if total is None else total
            total[outside] += found
            parts[outside] += 1
    if total is None:
        raise NotApplicable(f"every part of this {name} has seen every record")
    with np.errstate(invalid="ignore"):
        return total / (parts if total.ndim == 1 else parts[:, None]), parts
