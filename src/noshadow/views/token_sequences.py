"""Token ids as people hold them → sequences without padding, and which of their tokens count."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from noshadow.checks import Array, refuse
from noshadow.views.row_names import rows_behind

IGNORED = -100  # the label that transformers leaves out of its loss
FORMS = "be token-id sequences, a dict with input_ids, or a map-style Dataset of such"
FIELDS = ("input_ids", "attention_mask", "labels")


@dataclass(frozen=True)
class Vocabulary:
    """What a model says about its tokens.

    It says how many there are, which one pads, and whether that one also ends or begins texts.
    """

    size: int
    pad: int | None
    pad_is_text: bool


@dataclass(frozen=True, eq=False)
class TokenSequences:
    """The sequences of one split without their padding, in the data's own order.

    Attributes:
        tokens: one int64 array per sequence.
        counts: one bool array per sequence, whether the token is scored; never the first, which
            nothing predicts.
        rows: (n,) where each sequence stands in the data set behind Subsets, or None.
        sources: of a sequence-to-sequence model, the text that each sequence answers; its tokens
            are then the decoder's, the one that it starts with first. None elsewhere.
    """

    tokens: tuple[Array, ...]
    counts: tuple[Array, ...]
    rows: Array | None
    sources: tuple[Array, ...] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def digests(self) -> list[bytes]:
        """Compute a digest of each sequence's tokens and of those that count.

        Digests of equal sequences are equal, however the sequences were padded.
        """
        sources = (b"" if source is None else source.tobytes() for source in self.sources or [None] * len(self))
        parts = zip(self.tokens, self.counts, sources, strict=True)
        return [hashlib.sha256(tokens.tobytes() + counts.tobytes() + source).digest() for tokens, counts, source in parts]


def token_sequences(data: object, vocabulary: Vocabulary, argument: str) -> TokenSequences:
    """Read and check the sequences of a split.

    Tokens must be integers of the vocabulary, padding must stand at the ends only, and each
    sequence must have at least one token to score.

    Args:
        data: a list of token-id sequences; an integer array (n, length); a dict with `input_ids`
            and optional `attention_mask` and `labels`; or a map-style Dataset whose items are
            sequences or such dicts.
        vocabulary: of the model. argument: named in error messages.

    Raises:
        InputError: one of these rules is broken; the sentence says in which sequence.
    """
    tokens: list[Array] = []
    counts: list[Array] = []
    for number, item in enumerate(sequence_items(data, argument)):
        where = f"{argument} sequence {number}"
        ids, mask, labels = (whole_numbers(part, f"{where} {name}") for name, part in zip(FIELDS, item, strict=True))
        if ids is None:
            _refuse_form(data, argument)
        for name, part in (("attention_mask", mask), ("labels", labels)):
            if part is not None and len(part) != len(ids):
                refuse(f"{where} {name}", f"have one entry a token ({len(ids)})", len(part))
        kept = unpadded(ids, mask, vocabulary, where)
        inside = ids[kept]
        require_vocabulary(inside, vocabulary, where)
        tokens.append(inside)
        counts.append(_scored(inside, None if labels is None else labels[kept], where))
    _require_something_to_score(tokens, counts, argument)
    names = rows_behind(data, argument)
    return TokenSequences(tuple(tokens), tuple(counts), None if names is None else names.ids)


def chosen_sequences(splits: Sequence[TokenSequences], rows: Array) -> TokenSequences:
    """Some sequences of several splits, which are counted one after the other.

    Args:
        splits: of one kind of model. rows: (m,) whole numbers below the number of all sequences.
    """
    places = [(split, number) for split in splits for number in range(len(split))]
    taken = [places[row] for row in rows.tolist()]
    sources = tuple(split.sources[number] for split, number in taken if split.sources is not None)
    tokens, counts = (tuple(getattr(split, name)[number] for split, number in taken) for name in ("tokens", "counts"))
    return TokenSequences(tokens, counts, None, sources or None)


def known_sequences(sequences: TokenSequences, vocabulary: Vocabulary, argument: str) -> TokenSequences:
    """Sequences that another model has read, as this one can read them.

    Raises:
        InputError: tokens that this model's vocabulary does not have.
    """
    for number, tokens in enumerate(sequences.tokens):
        require_vocabulary(tokens, vocabulary, f"{argument} sequence {number}")
    return sequences


def sequence_items(data: object, argument: str) -> Iterator[tuple[Any, Any, Any]]:
    """(input_ids, attention_mask or None, labels or None) of each sequence."""
    if isinstance(data, DataLoader):
        refuse(argument, FORMS, "a DataLoader", "Pass its data set: sequences are padded and batched here.")
    if isinstance(data, Mapping):
        yield from _columns(data, argument)
        return
    listed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if isinstance(data, (str, bytes, IterableDataset)) or not listed:
        _refuse_form(data, argument)
    rows: Any = data
    for number in range(len(rows)):  # by number: a map-style Dataset has no end of its own
        item = rows[number]
        if isinstance(item, Mapping):
            if "input_ids" not in item:
                got = f"keys {', '.join(map(str, item))} in sequence {number}"
                refuse(argument, "hold input_ids", got, "Tokenise the texts first.")
            yield tuple(item.get(name) for name in FIELDS)  # type: ignore[misc]
        elif isinstance(item, tuple) and len(item) == 1 and isinstance(item[0], Tensor):
            yield item[0], None, None  # a TensorDataset of token ids
        else:
            yield item, None, None


def _columns(data: Mapping[Any, Any], argument: str) -> Iterator[tuple[Any, Any, Any]]:
    if "input_ids" not in data:
        refuse(argument, "hold input_ids", f"keys {', '.join(map(str, data))}", "Tokenise the texts first.")
    held = {name: data[name] for name in FIELDS if data.get(name) is not None}
    for name, column in held.items():
        if isinstance(column, str) or not hasattr(column, "__len__") or not hasattr(column, "__getitem__"):
            refuse(f"{argument}[{name!r}]", "hold one sequence a record", type(column).__name__)
        if len(column) != len(held["input_ids"]):
            got = f"{len(column)} beside {len(held['input_ids'])} of input_ids"
            refuse(f"{argument}[{name!r}]", "hold one sequence a record", got)
    for number in range(len(held["input_ids"])):
        yield tuple(held[name][number] if name in held else None for name in FIELDS)  # type: ignore[misc]


def _refuse_form(data: object, argument: str) -> NoReturn:
    refuse(argument, FORMS, type(data).__name__, "Tokenise texts first.")


def whole_numbers(part: object, argument: str) -> Array | None:
    """One row of integers as int64."""
    if part is None:
        return None
    if isinstance(part, (str, bytes)):
        refuse(argument, "be token ids", "text", "Tokenise it first.")
    if isinstance(part, Tensor):
        array = part.detach().cpu().numpy()
    elif isinstance(part, (np.ndarray, Sequence)) or (isinstance(part, Iterable) and hasattr(part, "__len__")):
        try:
            array = np.asarray(part)
        except ValueError:
            refuse(argument, "be one row of whole numbers", "rows of unequal length")
    else:
        refuse(argument, "be one row of whole numbers", type(part).__name__)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
        refuse(argument, "be one row of whole numbers", f"shape {array.shape}, dtype {array.dtype}")
    numbers: Array = array.astype(np.int64)
    return numbers


def unpadded(ids: Array, mask: Array | None, vocabulary: Vocabulary, where: str) -> slice:
    """Find the stretch of real tokens.

    It is where the mask is 1; without a mask, it is everything but pad tokens at the ends.
    """
    if mask is not None:
        if not np.isin(mask, (0, 1)).all():
            refuse(f"{where} attention_mask", "hold 0 and 1", f"{mask.min()} … {mask.max()}")
        kept = _ends(mask == 1)
        if not mask[kept].all():
            hole = kept.start + int(mask[kept].argmin())
            refuse(f"{where} attention_mask", "be 0 at the ends only", f"0 at token {hole} in between")
        return kept
    if vocabulary.pad is None:
        return slice(0, len(ids))
    kept = _ends(ids != vocabulary.pad)
    longest_run = max(kept.start, len(ids) - kept.stop)
    if not vocabulary.pad_is_text:
        return kept
    if longest_run > 1:
        got = f"{longest_run} times the token {vocabulary.pad}, which pads and also ends or begins texts"
        refuse(where, "come with an attention_mask when it may be padded", got)
    return slice(0, len(ids))


def _ends(real: Array) -> slice:
    places = np.flatnonzero(real)
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)


def require_vocabulary(ids: Array, vocabulary: Vocabulary, where: str) -> None:
    """Refuse tokens that the vocabulary does not have."""
    outside = (ids < 0) | (ids >= vocabulary.size)
    if outside.any():
        first = int(outside.argmax())
        hint = "Was it tokenised for another model?"
        refuse(where, f"hold token ids in 0 … {vocabulary.size - 1}", f"{ids[first]} at token {first}", hint)


def _scored(ids: Array, labels: Array | None, where: str) -> Array:
    counts = np.ones(len(ids), dtype=bool)
    if labels is not None:
        counts = labels != IGNORED
        other = counts & (labels != ids)
        if other.any():
            first = int(other.argmax())
            rule = f"repeat input_ids, or be {IGNORED} where a token does not count"
            refuse(f"{where} labels", rule, f"{labels[first]} for {ids[first]} at token {first}", "They are shifted here.")
    counts[:1] = False
    return counts


def _require_something_to_score(tokens: list[Array], counts: list[Array], argument: str) -> None:
    if not tokens:
        refuse(argument, "hold at least one sequence", "none")
    empty = [number for number, count in enumerate(counts) if not count.any()]
    if empty:
        length = len(tokens[empty[0]])
        kind = ("an empty one", "one token")[length] if length < 2 else f"{length} tokens whose labels are all {IGNORED}"
        got = f"{len(empty)} with nothing to predict, the first sequence {empty[0]} ({kind})"
        refuse(argument, "hold sequences of at least 2 tokens, one of them with a label", got, "Drop these sequences.")
