"""Texts and their answers, as people hold them, for sequence-to-sequence models."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from noshadow.checks import Array, refuse, users_code
from noshadow.views.row_names import rows_behind
from noshadow.views.token_sequences import (
    IGNORED,
    TokenSequences,
    Vocabulary,
    require_vocabulary,
    sequence_items,
    unpadded,
    whole_numbers,
)

PAIRS = "hold a text and its answer per record: dicts with input_ids and labels, or pairs of token-id sequences"
Shift = Callable[[Array], Array]


def token_pairs(data: object, vocabulary: Vocabulary, shifted: Shift, argument: str) -> TokenSequences:
    """Read and check the pairs of a split.

    Args:
        data: a dict with `input_ids` and `labels` (and `attention_mask`), or a list or map-style
            Dataset of such dicts or of (text, answer) pairs of token ids. Labels of −100 do not
            count; without any, the model's pad token at the end of an answer is padding.
        vocabulary: of the model. shifted: the decoder's input for an answer's labels, by the model
            itself. argument: named in error messages.

    Raises:
        InputError: one of these rules is broken; the sentence says for which record.
    """
    sources: list[Array] = []
    tokens: list[Array] = []
    counts: list[Array] = []
    for number, (text, mask, answer) in enumerate(_pairs(data, argument)):
        where = f"{argument} record {number}"
        ids, seen, labels = (
            whole_numbers(part, f"{where} {name}") for name, part in (("input_ids", text), ("attention_mask", mask), ("labels", answer))
        )
        if ids is None or labels is None:
            refuse(argument, PAIRS, f"none for one of the two in record {number}", "Tokenise the answers as labels.")
        if seen is not None and len(seen) != len(ids):
            refuse(f"{where} attention_mask", f"have one entry a token ({len(ids)})", len(seen))
        source = ids[unpadded(ids, seen, vocabulary, where)]
        if not len(source):
            refuse(f"{where} input_ids", "hold at least one token", "none")
        require_vocabulary(source, vocabulary, where)
        answered = _answer(labels, vocabulary, shifted, f"{where} labels")
        sources.append(source)
        tokens.append(answered[0])
        counts.append(answered[1])
    if not tokens:
        refuse(argument, "hold at least one record", "none")
    names = rows_behind(data, argument)
    return TokenSequences(tuple(tokens), tuple(counts), None if names is None else names.ids, tuple(sources))


def known_pairs(pairs: TokenSequences, vocabulary: Vocabulary, shifted: Shift, argument: str) -> TokenSequences:
    """Pairs that another model has read, with the token that this one's decoder starts with.

    Raises:
        InputError: tokens that this model's vocabulary does not have.
    """
    assert pairs.sources is not None
    for number, source in enumerate(pairs.sources):
        require_vocabulary(source, vocabulary, f"{argument} record {number}")
    held = zip(pairs.tokens, pairs.counts, strict=True)
    answers = [np.where(counts[1:], tokens[1:], IGNORED) for tokens, counts in held]
    read = [_answer(labels, vocabulary, shifted, f"{argument} record {number} labels") for number, labels in enumerate(answers)]
    return replace(pairs, tokens=tuple(tokens for tokens, _ in read), counts=tuple(counts for _, counts in read))


def decoder_shift(model: Any) -> Shift:
    """What a decoder reads for given labels: the token it starts with, and all but the last."""

    def shifted(labels: Array) -> Array:
        with users_code("model must shift labels into its decoder's input"):
            made: Array = model.prepare_decoder_input_ids_from_labels(torch.from_numpy(labels)[None])[0].numpy()
        return made

    return shifted


def _pairs(data: object, argument: str) -> Iterator[tuple[Any, Any, Any]]:
    """(text, its mask or None, answer) of each record."""
    plain = not isinstance(data, Mapping) and hasattr(data, "__getitem__") and hasattr(data, "__len__")
    for text, mask, answer in sequence_items(data, argument):
        is_pair = plain and answer is None and isinstance(text, (tuple, list)) and len(text) == 2
        if is_pair and all(hasattr(part, "__len__") and not isinstance(part, str) for part in text):
            yield text[0], mask, text[1]
        else:
            yield text, mask, answer


def _answer(labels: Array, vocabulary: Vocabulary, shifted: Shift, where: str) -> tuple[Array, Array]:
    """The decoder's tokens with the one that it starts with first, and which of them count."""
    counted = labels != IGNORED
    if counted.all() and vocabulary.pad is not None and not vocabulary.pad_is_text:
        counted = labels != vocabulary.pad
    last = int(np.flatnonzero(counted)[-1]) + 1 if counted.any() else 0
    if not last:
        refuse(where, "hold at least one token that counts", "none", "Drop this record.")
    kept = labels[:last]
    counted = kept != IGNORED
    require_vocabulary(kept[counted], vocabulary, where)
    read = shifted(kept)
    if len(read) != last or not np.array_equal(read[1:][counted[:-1]], kept[:-1][counted[:-1]]):
        hint = "Models that put the last label first (mBART) are not read."
        refuse("model", "read the labels one place later, after a token of its own", f"another shift of {where}", hint)
    # The last label is predicted, never read, so that its own value stands at the end.
    return np.append(read, kept[-1]).astype(np.int64), np.append(False, counted)
