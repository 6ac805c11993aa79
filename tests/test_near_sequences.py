"""Sequences that are nearly the same, against a comparison of all pairs."""

import itertools

import numpy as np
import pytest
import torch

import noshadow as ns
from extras import extra
from noshadow._audit.near_sequences import SIMILAR, Duplicates, duplicate_sequences, similarity
from noshadow.views.token_sequences import TokenSequences
from tiny_language_models import VOCABULARY, gpt2

WORDS = 500


def found_in(texts, sources=None):
    held = tuple(np.asarray(text, dtype=np.int64) for text in texts)
    counts = tuple(np.arange(len(text)) > 0 for text in held)
    pairs = None if sources is None else tuple(np.asarray(text, dtype=np.int64) for text in sources)
    sequences = TokenSequences(held, counts, None, pairs)
    return duplicate_sequences(sequences, sequences.digests(), np.arange(len(held)))


def jaccard(one, other):
    runs = [{tuple(text[i : i + 5]) for i in range(len(text) - min(len(text), 5) + 1)} for text in (one, other)]
    return len(runs[0] & runs[1]) / len(runs[0] | runs[1])


def groups_by_hand(texts):
    """Sizes of the groups that chains of near pairs join, by all pairs and plain sets."""
    group = list(range(len(texts)))
    for i, j in itertools.combinations(range(len(texts)), 2):
        if jaccard(texts[i], texts[j]) >= SIMILAR:
            group = [group[i] if one == group[j] else one for one in group]
    return np.array([group.count(one) for one in group])


def written(seed, count=60):
    """Random texts, some with copies in which tokens were replaced, dropped or added."""
    rng = np.random.default_rng(seed)
    texts = [rng.integers(0, WORDS, rng.integers(3, 60)).tolist() for _ in range(count)]
    for text in texts[:20]:
        other = list(text)
        for _ in range(rng.integers(0, 4)):
            place = int(rng.integers(len(other)))
            if rng.random() < 0.5:
                other[place] = int(rng.integers(WORDS))
            elif rng.random() < 0.5 and len(other) > 3:
                del other[place]
            else:
                other.insert(place, int(rng.integers(WORDS)))
        texts.append(other)
    return texts


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_those_of_all_pairs(seed):
    texts = written(seed)
    found = found_in(texts)
    np.testing.assert_array_equal(found.copies, groups_by_hand(texts))
    # A near twin is no exact copy.
    unlike = [any(jaccard(a, b) >= SIMILAR and a != b for b in texts) for a in texts]
    chained = found.near["records"]
    assert sum(unlike) <= chained <= int((found.copies > 1).sum())
    for i, j in itertools.combinations(range(0, 80, 7), 2):
        assert similarity(np.array(texts[i]), np.array(texts[j])) == pytest.approx(jaccard(texts[i], texts[j]))


def test_exact_copies_are_no_near_twins():
    text = list(range(40))
    found = found_in([text, text, list(range(50, 90))])
    assert found.copies.tolist() == [2, 2, 1] and found.near["records"] == 0


def test_short_texts_are_compared_whole():
    found = found_in([[1, 2], [1, 2], [1, 3], [7]])
    assert found.copies.tolist() == [2, 2, 1, 1] and found.near["records"] == 0


def test_answers_to_other_texts_are_others():
    answer = [0, 5, 6, 7, 8]
    far = [list(range(i, i + 30)) for i in (100, 200)]
    assert found_in([answer, answer], far).copies.tolist() == [1, 1]
    assert isinstance(found_in([answer, answer], [far[0], far[0]]), Duplicates)


def test_a_text_that_nearly_everybody_repeats():
    rng = np.random.default_rng(0)
    page = rng.integers(0, WORDS, 80)
    texts = []
    for _ in range(300):
        text = page.copy()
        text[rng.integers(80)] = rng.integers(WORDS)
        texts.append(text.tolist())
    assert (found_in(texts).copies == 300).all()


def test_an_audit_counts_copies_and_says_so():
    extra("transformers")
    rng = np.random.default_rng(0)
    texts = [rng.integers(1, VOCABULARY, 16).tolist() for _ in range(30)]
    texts[1] = [*texts[0][:-1], (texts[0][-1] + 1) % VOCABULARY or 1]
    texts[2] = texts[0]
    audit = ns.audit(gpt2(), texts, torch.randint(1, VOCABULARY, (20, 16)), progress=False)
    assert audit.records["copies"].tolist() == [3, 3, 3, *[1] * 27]
    finding = next(one for one in audit.findings if one.code == "NS018")
    assert finding.status == "found" and "runs of five tokens" in finding.sentence
    assert set(finding.records) == {"0", "1", "2"}
