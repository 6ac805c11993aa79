"""What a table of agreement compares.

These are metrics from pairs of fractions, and every target's vectors, checked and ranked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from noshadow.checks import Array, refuse, require_number, require_same_length
from noshadow.metrics.inputs import score_sample
from noshadow.metrics.ranking import Metric, Ranking, ranking

Vectors = Mapping[str, object]


@dataclass(frozen=True)
class Target:
    """One target's vectors, ranked; those of the first side serve as the truth."""

    first: tuple[Ranking, ...]
    second: tuple[Ranking, ...]
    records: int


def compared_metrics(recalls: Sequence[tuple[float, float]]) -> list[Metric]:
    """Spearman, the recalls asked for, and precisions.

    There is a precision with the fractions swapped where these differ.
    """
    pairs = []
    for pair in recalls:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            refuse("recalls", "hold pairs (top, keep)", repr(pair))
        pairs.append([require_number(fraction, "recalls", low=0, high=1, low_open=True) for fraction in pair])
    recall = [Metric("recall", top, keep) for top, keep in pairs]
    precision = [Metric("precision", keep, top) for top, keep in pairs if top != keep]
    return list(dict.fromkeys((Metric("spearman"), *recall, *precision)))


def ranked_targets(sides: Mapping[str, Sequence[Vectors]]) -> tuple[list[str], list[str], list[Target]]:
    """The names on each of the two sides, and every target's rankings.

    The names are in the order of the first target.

    Args:
        sides: argument name → one mapping name → vector per target; two of them.
    """
    for argument, side in sides.items():
        _require_mappings(side, argument)
    (one, first), (other, second) = sides.items()
    if len(first) != len(second):
        refuse(f"{one} and {other}", "hold the same number of targets", f"{len(first)} and {len(second)}")
    names, targets = {argument: list(side[0]) for argument, side in sides.items()}, []
    for t in range(len(first)):
        vectors = {argument: _vectors(side[t], names[argument], f"{argument}[{t}]") for argument, side in sides.items()}
        n = require_same_length(**vectors[one], **vectors[other])
        ranked = {argument: tuple(ranking(vector) for vector in side.values()) for argument, side in vectors.items()}
        targets.append(Target(ranked[one], ranked[other], n))
    return names[one], names[other], targets


def _require_mappings(side: object, argument: str) -> None:
    rule, hint = "be a sequence with one mapping name → array per target", "For one target pass [{...}]."
    if not isinstance(side, Sequence) or isinstance(side, str) or not side:
        refuse(argument, rule, "none" if isinstance(side, Sequence) and not side else type(side).__name__, hint)
    for t, vectors in enumerate(side):
        if not isinstance(vectors, Mapping) or not vectors:
            refuse(f"{argument}[{t}]", "be a mapping name → array that is not empty", type(vectors).__name__)


def _vectors(given: Vectors, names: Sequence[str], argument: str) -> dict[str, Array]:
    """Label for messages → scores, in the order of `names`."""
    if set(given) != set(names):
        expected, got = (", ".join(map(str, keys)) for keys in (names, given))
        refuse(argument, f"hold the same names for every target ({expected})", got)
    labels = {name: f"{argument}[{name!r}]" for name in names}
    return {label: score_sample(given[name], label, least=2) for name, label in labels.items()}
