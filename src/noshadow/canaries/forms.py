"""Forms of secrets: fixed parts and slots, and secrets drawn from them."""

import math
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noshadow.checks import Array, named_in_errors, refuse, require_whole, users_code, whole_seed

SYMBOLS = {"digits": string.digits, "letters": string.ascii_lowercase, "hex": "0123456789abcdef"}
LONGEST = 1000
_FORMS = "be a text with slots such as 'the code is {digits:6}', or a list of token ids and of lists of them"


@dataclass(frozen=True)
class Slot:
    """One place that is filled in: what it may be filled with, and whether that is secret."""

    options: tuple[str, ...] | tuple[int, ...]
    secret: bool = True


@dataclass(frozen=True, eq=False)
class Form:
    """What all secrets of one kind have in common.

    Attributes:
        pieces: fixed texts or token ids, and slots, in order.
        tokenize: text → token ids; None where pieces are token ids.
    """

    pieces: tuple[str | int | Slot, ...]
    tokenize: Callable[[str], list[int]] | None

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The places that are filled in, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Slot))

    @property
    def secret(self) -> Array:
        """(slots,) bool, whether each slot is secret."""
        return np.array([slot.secret for slot in self.slots])

    @property
    def space(self) -> int:
        """|R|: how many secrets there are, context slots held."""
        return math.prod(len(slot.options) for slot in self.slots if slot.secret)

    def text(self, filling: Sequence[int]) -> str | None:
        """The text of one filling (an option's number for each slot); None for token ids."""
        return None if self.tokenize is None else "".join(map(str, self._parts(filling)))

    def tokens(self, filling: Sequence[int]) -> Array:
        """The token ids of one filling."""
        if self.tokenize is None:
            return np.array(self._parts(filling), dtype=np.int64)
        with users_code("tokenizer must turn a text into token ids"):
            found: Array = np.asarray(self.tokenize("".join(map(str, self._parts(filling)))), dtype=np.int64)
        if found.ndim != 1 or len(found) < 2:
            refuse("tokenizer", "give at least two token ids for a secret", f"shape {found.shape}")
        return found

    def _parts(self, filling: Sequence[int]) -> list[str | int]:
        chosen = iter(filling)
        return [piece.options[int(next(chosen))] if isinstance(piece, Slot) else piece for piece in self.pieces]


@dataclass(frozen=True, eq=False)
class Canaries:
    """Secrets that were drawn, no two the same.

    Attributes:
        form: what they have in common. fillings: (count, slots) the number of each slot's option.
        sequences: their token ids. texts: the same as texts; None for forms of token ids.
        space: |R|, how many secrets each was drawn from.
    """

    form: Form
    fillings: Array
    sequences: tuple[Array, ...]
    texts: tuple[str, ...] | None
    space: int

    def __len__(self) -> int:
        return len(self.sequences)


@named_in_errors
def make(
    form: str | Sequence[Any],
    count: int = 1,
    *,
    tokenizer: object = None,
    choices: Mapping[str, Sequence[str]] | None = None,
    context: Sequence[str] = (),
    seed: int = 0,
) -> Canaries:
    """Draw secrets of a form, uniformly and no two the same.

    Args:
        form: a text with slots in braces: `{digits:6}`, `{letters:4}`, `{hex:8}` for that many
            random symbols, `{name}` for one of `choices["name"]`; `{{` is a brace. Or token ids: a
            list of whole numbers (fixed) and of lists or ranges of them (slots). It begins with
            something fixed: nothing predicts a first token.
        count: of secrets, at most as many as there are.
        tokenizer: of the model, or a function text → token ids; for a text.
        choices: slot's name → different texts that it may be filled with.
        context: names of slots that are drawn, but are no secret: a secret is compared with others
            that share them.
        seed: of the draws.

    Returns:
        Canaries with `sequences` of token ids (and `texts`), and `space`, the number |R| of
        possible secrets with context slots held.

    Raises:
        InputError: a form without a secret slot or a fixed beginning, a slot that is not known,
            more secrets than there are.

    Cost: O(count); every secret is tokenised once.
    Reference: Carlini et al. 2019 (arXiv 1802.08232).

    Example:
        >>> import noshadow as ns
        >>> digits = range(10, 20)
        >>> canaries = ns.canaries.make([1, 2, 3, digits, digits, digits], 4)
        >>> canaries.space, len(canaries), canaries.sequences[0][:3].tolist()
        (1000, 4, [1, 2, 3])
    """
    wanted = require_whole(count, "count", low=1)
    made = _text_form(form, tokenizer, choices or {}, tuple(context)) if isinstance(form, str) else _token_form(form, tokenizer)
    if not made.secret.any():
        refuse("form", "hold a secret slot", repr(form) if isinstance(form, str) else "fixed tokens alone")
    fillings = _drawn(made, wanted, np.random.default_rng(whole_seed(seed)))
    sequences = tuple(made.tokens(filling) for filling in fillings)
    if len({int(tokens[0]) for tokens in sequences}) > 1 and not any(isinstance(piece, Slot) and not piece.secret for piece in made.pieces):
        refuse("form", "begin with something fixed", "secrets that differ in their first token", "Nothing predicts a first token.")
    texts = tuple(made.text(filling) or "" for filling in fillings) if made.tokenize is not None else None
    return Canaries(made, fillings, sequences, texts, made.space)


def _text_form(form: str, tokenizer: Any, choices: Mapping[str, Sequence[str]], context: tuple[str, ...]) -> Form:
    if tokenizer is None or not callable(tokenizer):
        got = "none" if tokenizer is None else type(tokenizer).__name__
        refuse("tokenizer", "be the model's, or a function from text to token ids, for a form that is a text", got)
    try:
        parsed = list(string.Formatter().parse(form))
    except ValueError as error:
        refuse("form", _FORMS, f"{form!r} ({error})", "A brace that is no slot is written twice.")
    pieces: list[str | int | Slot] = []
    names = set()
    for literal, name, length, _ in parsed:
        pieces += [literal] if literal else []
        if name is not None:
            names.add(name)
            pieces += _slots(name, length or "", choices, secret=name not in context)
    for argument, given in (("choices", set(choices)), ("context", set(context))):
        if given - names:
            refuse(argument, "name slots of the form", f"'{sorted(given - names)[0]}', which is none of them")
    if not pieces or isinstance(pieces[0], Slot):
        refuse("form", "begin with fixed text", repr(form), "Nothing predicts a first token.")
    return Form(tuple(pieces), _tokenize(tokenizer))


def _slots(name: str, length: str, choices: Mapping[str, Sequence[str]], *, secret: bool) -> list[Slot]:
    if name in choices:
        if length:
            refuse("form", "give a length to random symbols only", f"{{{name}:{length}}}")
        return [Slot(_different(choices[name], f"choices['{name}']", str), secret)]
    if name not in SYMBOLS:
        known = ", ".join([*SYMBOLS, *choices])
        refuse("form", f"have slots among {known}", f"{{{name}}}", "Give what it may be filled with: choices={name: texts}.")
    if length and not (length.isascii() and length.isdigit() and 1 <= int(length) <= LONGEST):
        refuse("form", f"give slots a length from 1 to {LONGEST}", f"{{{name}:{length}}}")
    return [Slot(tuple(SYMBOLS[name]), secret)] * int(length or 1)


def _token_form(form: Any, tokenizer: object) -> Form:
    if tokenizer is not None:
        refuse("tokenizer", "be left out for a form of token ids", type(tokenizer).__name__)
    if not isinstance(form, Iterable) or isinstance(form, (bytes, Mapping)):
        refuse("form", _FORMS, type(form).__name__)
    pieces: list[str | int | Slot] = []
    for piece in form:
        whole = isinstance(piece, (int, np.integer)) and not isinstance(piece, bool)
        pieces.append(int(piece) if whole else Slot(_different(piece, "a slot of the form", int)))
    if len(pieces) < 2 or isinstance(pieces[0], Slot):
        refuse("form", "begin with a fixed token and hold a slot", f"{len(pieces)} pieces", "Nothing predicts a first token.")
    return Form(tuple(pieces), None)


def _different(options: Any, argument: str, kind: type) -> Any:
    """The options of a slot: at least two, all of one kind and different."""
    if isinstance(options, str) or not isinstance(options, Iterable):
        refuse(argument, "be a list of what a slot may be filled with", type(options).__name__)
    held = list(options)
    right = (str,) if kind is str else (int, np.integer)
    if len(held) < 2 or not all(isinstance(one, right) and not isinstance(one, bool) for one in held) or len(set(held)) < len(held):
        what = "texts" if kind is str else "token ids"
        refuse(argument, f"hold at least two different {what}", f"{len(held)} entries")
    return tuple(kind(one) for one in held)


def _tokenize(tokenizer: Any) -> Callable[[str], list[int]]:
    def tokens(text: str) -> list[int]:
        found = tokenizer(text)
        return list(found["input_ids"] if isinstance(found, Mapping) or hasattr(found, "input_ids") else found)

    return tokens


def _drawn(form: Form, count: int, rng: np.random.Generator) -> Array:
    """`count` different fillings, (count, slots)."""
    possible = math.prod(len(slot.options) for slot in form.slots)
    if count > possible:
        refuse("count", f"be at most {possible:,}, the number of secrets of this form", count)
    found: dict[tuple[int, ...], None] = {}
    while len(found) < count:
        found[tuple(int(rng.integers(len(slot.options))) for slot in form.slots)] = None
    return np.array(list(found), dtype=np.int64)
