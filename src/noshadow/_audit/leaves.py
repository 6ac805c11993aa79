"""How many records share the leaves of a model's trees: a column, and facts for findings."""

from typing import Any

import numpy as np

from noshadow.checks import Array
from noshadow.results import Evidence
from noshadow.views.leaf_counts import LeafCounts

# Share of the trees that saw a record from which it counts as alone.
MOSTLY = 0.5
_NAMED = 10


def leaf_evidence(counted: LeafCounts | None, yielding_shift: Array | None = None) -> tuple[Evidence, ...]:
    """`leaf_size` of each record, with what the trees are like; nothing where there are none.

    Boosted classifiers have `yielding_shift` beside it.
    """
    if counted is None:
        return ()
    columns = {"leaf_size": counted.sizes} | ({} if yielding_shift is None else {"yielding_shift": yielding_shift})
    return (Evidence("leaves", columns, stamp=counted.facts()),)


def leaf_facts(counted: LeafCounts | None) -> dict[str, Any]:
    """Facts of the trees: their depths and leaves, and who is alone in most of the trees."""
    if counted is None:
        return {}
    shares = counted.alone_share
    rows = np.flatnonzero(shares > MOSTLY)
    first = rows[np.argsort(-shares[rows], kind="stable")][:_NAMED].tolist()
    facts = counted.facts()
    return {"leaves": facts, "alone_in_leaves": {"records": len(rows), "of": len(shares), "trees": facts["trees"], "first": first}}
