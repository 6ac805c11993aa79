"""Trees of an audited model on a page: how many, how deep, and how few records share a leaf."""

from collections.abc import Mapping
from typing import Any

from noshadow.report.formats import number
from noshadow.results import Audit

_SMALLEST = 4  # sizes of leaves that are listed one by one
_LARGER = 10


def _facts(audit: Audit) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = audit.provenance.get("inputs", {}).get("leaves")
    return found


def model_words(audit: Audit) -> dict[str, str]:
    """What the scores are read from: the trees of a model that has some, its head otherwise."""
    trees = _facts(audit)
    if trees is None:
        return {"name": "Head", "words": str(audit.provenance.get("head", "not recorded"))}
    count = "one tree" if trees["trees"] == 1 else f"{number(trees['trees'])} trees"
    return {"name": "Trees", "words": f"{count}, {number(trees['leaves'])} leaves, depth {trees['deepest']} at most"}


def tree_rows(audit: Audit) -> list[dict[str, str]] | None:
    """Figures of the trees with their meaning; None for a model without trees."""
    trees = _facts(audit)
    if trees is None:
        return None
    sizes = trees["by_size"]
    counted = [(f"leaves with {size} record{'s' if size > 1 else ''}", sizes[size - 1]) for size in range(1, _SMALLEST + 1)]
    counted.append((f"leaves with {_SMALLEST + 1} to {_LARGER} records", sum(sizes[_SMALLEST:_LARGER])))
    shown = [
        ("trees", number(trees["trees"]), "Of all rounds and classes together."),
        ("depth", f"{trees['depth']:g}; at most {trees['deepest']}", "Questions from the root to the lowest leaf of half of the trees."),
        (
            "leaves",
            f"{number(trees['leaves'])}; {trees['leaves_of_a_tree']:g} a tree",
            "Those that hold a training record; the median tree.",
        ),
        *((name, number(count), "Training records that the tree was fitted to, each counted once.") for name, count in counted),
    ]
    return [{"name": name, "value": value, "meaning": meaning} for name, value, meaning in shown]
