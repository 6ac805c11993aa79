"""Trees of a boosted model as its library stores them, asked block by block for their leaves.

Families of boosted models outside of scikit-learn are read through this file. Their libraries are
never imported here: whoever has such a model has imported its library.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noshadow.checks import Array
from noshadow.views.boosted import Round, Tree

# Leaf numbers held at a time, of all records and some rounds: 160 MB.
_MOST_NUMBERS = 20_000_000


@dataclass(frozen=True, eq=False)
class StoredTree:
    """One tree without the records in it; attributes as in `Tree`.

    `counts` (nodes,) says how many records the library counted in each leaf, where it keeps that.
    """

    values: Array
    rate: float
    parents: Array | None
    output: int
    counts: Array | None = None


@dataclass(frozen=True, eq=False)
class StoredTrees:
    """All rounds of a model. `leaves`: (first, last round) → (n, trees of them) node numbers."""

    rounds: tuple[tuple[StoredTree, ...], ...]
    leaves: Callable[[int, int], Array]
    records: int

    def walked(self) -> Iterator[Round]:
        """The rounds with the leaf of every record, a block of them in memory."""
        width = max((len(trees) for trees in self.rounds), default=1)
        block = max(1, _MOST_NUMBERS // max(1, self.records * width))
        for first in range(0, len(self.rounds), block):
            held = self.rounds[first : first + block]
            # Rows of a tree lie together, as every later pass reads them.
            numbers = np.ascontiguousarray(self.leaves(first, first + len(held)).T)
            column = 0
            for trees in held:
                found = []
                for tree in trees:
                    found.append(Tree(numbers[column].astype(np.intp), tree.values, tree.rate, tree.parents, tree.output))
                    column += 1
                yield Round(tuple(found))

    def bagged(self, bag: Callable[[int], Array] | None) -> Iterator[Round]:
        """The same with the records that each round took, (n,), or each of its trees, (trees, n).

        None where all of them took all.
        """
        for number, one in enumerate(self.walked()):
            if bag is None:
                yield one
                continue
            taken = bag(number)
            if taken.ndim == 1:
                yield Round(one.trees, taken)
            else:
                yield Round(tuple(replace(tree, inside=inside) for tree, inside in zip(one.trees, taken, strict=True)))

    def staged(self, start: Array) -> Iterator[Array]:
        """Raw outputs (n, m) after each round; the array is one's own."""
        raw = np.array(np.broadcast_to(start, (self.records, start.shape[-1])), dtype=np.float64)
        for one in self.walked():
            for tree in one.trees:
                raw[:, tree.output] += tree.values[tree.leaves]
            yield raw.copy()


def library_of(model: object) -> str:
    """The boosting library that a model's class or one of its bases comes from; "" for none."""
    packages = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    return next((name for name in ("xgboost", "lightgbm", "catboost") if name in packages), "")


def library(name: str) -> Any:
    """A library that the model's owner has imported."""
    return sys.modules[name]


def probabilities(raw: Array) -> Array:
    """Class probabilities (n, max(m, 2)) of raw outputs (n, m), float64; one output is a logit."""
    raw = np.asarray(raw, dtype=np.float64)
    logits = np.concatenate([np.zeros_like(raw), raw], axis=1) if raw.shape[1] == 1 else raw
    powers = np.exp(logits - logits.max(1, keepdims=True))
    found: Array = powers / powers.sum(1, keepdims=True)
    return found


def as_columns(raw: Any, n: int) -> Array:
    """Raw outputs as (n, m) in float64."""
    return np.asarray(raw, dtype=np.float64).reshape(n, -1)


def single(values: Array) -> Array:
    """Values rounded to float32, as these libraries keep labels and weights."""
    return values.astype(np.float32).astype(np.float64)
