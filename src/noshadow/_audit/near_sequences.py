"""Find training sequences that are the same as another one, word for word or nearly.

What a model repeats it has mostly seen more than once, and of nearly equal texts each looks safe
while the others stay.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noshadow.checks import Array
from noshadow.results import Evidence
from noshadow.views.token_sequences import TokenSequences

SHINGLE = 5  # tokens in a row that count as one piece of a text
SIMILAR = 0.5  # share of the pieces of two texts that both have
BANDS, ROWS = 50, 3  # a pair with half of its pieces in common is missed with probability 0.0013
NEIGHBOURS = 3  # texts of one bucket that each is compared with
NUMBERS_AT_ONCE = 2**24
_EXAMPLES = 10


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Groups of sequences that are the same or nearly so.

    Attributes:
        copies: (n,) how many sequences each one's group holds, itself counted.
        near: facts about near twins (JSON-ready): `records` with one that is no exact copy,
            `looked` at, `of` all, `similarity`, and ids of up to ten, one group after the other.
    """

    copies: Array
    near: dict[str, Any]


def duplicate_evidence(found: Duplicates) -> Evidence:
    """`copies` of each sequence."""
    return Evidence("duplicates", {"copies": found.copies})


def near_sequence_facts(found: Duplicates) -> dict[str, Any]:
    """Near twins in the form in which an audit keeps them; no features or inputs were compared."""
    return {"features": None, "inputs": None, "sequences": found.near, "reasons": {}}


def duplicate_sequences(sequences: TokenSequences, digests: Sequence[bytes], ids: Array, *, seed: int = 0) -> Duplicates:
    """Group sequences whose pieces agree.

    The pieces of a text are its runs of five tokens; two texts are near when their Jaccard index
    |A ∩ B|/|A ∪ B| is at least ½: one other token in 32 leaves 0.70, two apart leave 0.47. Pairs
    are found by MinHash (150 hashes in 50 bands of 3: a pair at ½ is missed with probability
    0.0013, one at 0.7 never) and held against the index itself. Groups are what chains of such
    pairs join. Texts below five tokens are one piece, so that only exact copies count.

    Args:
        sequences: of the training split. digests: equal for exact copies. ids: (n,).
        seed: of the hashes.

    Cost: 150 operations a token and a few comparisons a text; memory 1.2 kB a text.
    Reference: Broder 1997; runs of five tokens as in Lee et al. 2022.
    """
    _, first, number = np.unique(np.array([digest.hex() for digest in digests]), return_index=True, return_inverse=True)
    texts = [_whole(sequences, int(row)) for row in first]
    parents = np.arange(len(texts))
    signatures = _signatures(texts, np.random.default_rng(seed))
    for one, other in _candidates(signatures):
        roots = _root(parents, one), _root(parents, other)
        if roots[0] != roots[1] and similarity(texts[one], texts[other]) >= SIMILAR:
            parents[max(roots)] = min(roots)
    groups = np.array([_root(parents, text) for text in range(len(texts))], dtype=np.int64)
    sizes = np.bincount(groups, minlength=len(texts))
    twins = sizes[groups] > 1
    of_records = groups[number]
    rows = np.flatnonzero(twins[number])
    named = rows[np.argsort(of_records[rows], kind="stable")][:_EXAMPLES]
    near = {
        "records": len(rows),
        "looked": len(number),
        "of": len(number),
        "similarity": SIMILAR,
        "first_ids": [str(ids[row]) for row in named],
    }
    return Duplicates(np.bincount(of_records)[of_records].astype(np.int64), near)


def similarity(one: Array, other: Array) -> float:
    """Jaccard index of the pieces of two texts, in [0, 1]."""
    pieces, others = (np.unique(_pieces(text)) for text in (one, other))
    both = len(np.intersect1d(pieces, others, assume_unique=True))
    return both / (len(pieces) + len(others) - both)


def _whole(sequences: TokenSequences, row: int) -> Array:
    tokens = sequences.tokens[row]
    return tokens if sequences.sources is None else np.concatenate([sequences.sources[row], [-1], tokens])


def _pieces(text: Array) -> Array:
    """64 bits of each run of five tokens; of a shorter text, of all of it."""
    runs = np.lib.stride_tricks.sliding_window_view(text, min(SHINGLE, len(text)))
    found = np.full(len(runs), runs.shape[1], dtype=np.uint64)
    for column in runs.T:
        found = _mixed(found * np.uint64(0x100000001B3) ^ column.astype(np.uint64))
    return found


def _mixed(words: Array) -> Array:
    """Bits spread over the whole word, as splitmix64 does."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    mixed: Array = words ^ (words >> np.uint64(31))
    return mixed


def _signatures(texts: list[Array], rng: np.random.Generator) -> Array:
    """(texts, BANDS·ROWS) uint64: the least of each hash over a text's pieces."""
    factors, terms = (rng.integers(0, 2**64, BANDS * ROWS, dtype=np.uint64) for _ in range(2))
    factors |= np.uint64(1)
    found = np.empty((len(texts), BANDS * ROWS), dtype=np.uint64)
    for row, text in enumerate(texts):
        pieces = _pieces(text)
        step = max(NUMBERS_AT_ONCE // len(factors), 1)
        parts = [(pieces[i : i + step, None] * factors + terms).min(0) for i in range(0, len(pieces), step)]
        found[row] = np.minimum.reduce(parts)
    return found


def _candidates(signatures: Array) -> Iterator[tuple[int, int]]:
    """Pairs of texts that agree in all hashes of some band."""
    for band in range(BANDS):
        keys = np.zeros(len(signatures), dtype=np.uint64)
        for column in signatures[:, band * ROWS : (band + 1) * ROWS].T:
            keys = _mixed(keys * np.uint64(0x100000001B3) ^ column)
        order = np.argsort(keys, kind="stable")
        for step in range(1, NEIGHBOURS + 1):
            same = np.flatnonzero(keys[order[step:]] == keys[order[:-step]])
            yield from zip(order[same].tolist(), order[same + step].tolist(), strict=True)


def _root(parents: Array, text: int) -> int:
    while parents[text] != text:
        parents[text] = parents[parents[text]]
        text = int(parents[text])
    return text
