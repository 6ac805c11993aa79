"""How many training records share a leaf, counted over the trees of a model."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noshadow.checks import Array

# Leaves are counted by size up to this many records; what is larger hides a record among many.
LARGEST_COUNTED = 20


@dataclass(eq=False)
class LeafCounts:
    """Leaves of a model's trees and the training records in them, added up tree by tree.

    A record counts once in a tree that was fitted to it, whatever its weight; in a tree whose bag
    it was not in, or in a round that did not take it, it counts nowhere.

    Attributes:
        shares: (n,) sum over the trees that saw a record of 1 / records in its leaf.
        alone: (n,) number of these trees in which its leaf holds nobody else.
        seen: (n,) number of trees that saw it.
        leaves, depths: of each tree: leaves that hold a record, and steps down to the lowest.
        by_size: (LARGEST_COUNTED,) leaves with exactly 1, 2, … records, over all trees.
    """

    shares: Array
    alone: Array
    seen: Array
    leaves: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    by_size: Array = field(default_factory=lambda: np.zeros(LARGEST_COUNTED, dtype=np.int64))

    @classmethod
    def of(cls, records: int) -> "LeafCounts":
        """No trees yet."""
        return cls(np.zeros(records), np.zeros(records, dtype=np.int64), np.zeros(records, dtype=np.int64))

    def add(self, places: Array, counts: Array, inside: Array, depth: int) -> None:
        """Count one tree.

        Args:
            places: (n,) node that each record ends in. counts: (nodes,) records that the tree was
                fitted to in each of them. inside: (n,) whether it was fitted to the record.
            depth: steps from its root to its lowest leaf.

        Cost: O(n + nodes).
        """
        own = counts[places]
        self.shares += inside / np.maximum(own, 1)
        self.alone += inside & (own == 1)
        self.seen += inside
        held = counts[counts > 0]
        self.leaves.append(len(held))
        self.depths.append(depth)
        self.by_size += np.bincount(held[held <= LARGEST_COUNTED], minlength=LARGEST_COUNTED + 1)[1:]

    @property
    def sizes(self) -> Array:
        """Records in a record's leaf, itself counted: the harmonic mean over trees that saw it.

        (n,), ≥ 1, and 1 exactly where it is alone in every tree; ∞ where no tree saw it. One over
        it is the record's mean share of its leaf.
        """
        found: Array = np.full(len(self.shares), np.inf)
        np.divide(self.seen, self.shares, out=found, where=self.seen > 0)
        return found

    @property
    def alone_share(self) -> Array:
        """Share of the trees that saw a record in which it is alone in its leaf, (n,)."""
        found: Array = self.alone / np.maximum(self.seen, 1)
        return found

    def facts(self) -> dict[str, Any]:
        """Number, depths and sizes of trees and leaves, ready for JSON."""
        return {
            "trees": len(self.leaves),
            "leaves": int(sum(self.leaves)),
            "leaves_of_a_tree": float(np.median(self.leaves)) if self.leaves else 0.0,
            "deepest": max(self.depths, default=0),
            "depth": float(np.median(self.depths)) if self.depths else 0.0,
            "by_size": self.by_size.tolist(),
        }
