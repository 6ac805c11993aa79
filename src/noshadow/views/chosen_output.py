"""Which of the tensors that a model returns is its output: the one a loss would go to."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from noshadow.checks import as_array, refuse
from noshadow.views.endings import ENDINGS, ending_of

LOGITS = ("logits", "logit")
HINTS = ("scores", "score", "predictions", "prediction", "preds", "pred", "outputs", "output", "y_hat")
FEATURES = ("embedding", "embeddings", "features", "feature", "hidden", "hidden_state", "hidden_states", "latent", "latents")
DEEPEST = 4
PARTS_NAMED = 12
Path = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Ran:
    """One Linear in a forward pass: its name, and what it was given and gave when it last ran."""

    name: str
    given: Tensor
    raw: Tensor


@dataclass(frozen=True, eq=False)
class Part:
    """One tensor of what a model returned, and the way to it.

    The way consists of names of entries and positions in tuples.
    """

    path: Path
    value: Tensor

    @property
    def word(self) -> str:
        """The last name on the way, in lower case."""
        return self.path[-1].lower() if self.path else ""

    def __str__(self) -> str:
        return f"{'.'.join(self.path)!r} {tuple(self.value.shape)}"


def parts_of(returned: object) -> list[Part]:
    """List every tensor in what a model returned, in order.

    That may be a tensor, tuple, list, dict, named tuple, dataclass or object with tensors as
    attributes.
    """
    return list(_parts(returned, ()))


def part_at(returned: object, path: Path) -> Tensor | None:
    """The tensor at the end of a path, None when there is none."""
    return next((part.value for part in _parts(returned, ()) if part.path == path), None)


def chosen_part(returned: object, target: object, ran: Mapping[nn.Linear, Ran], *, output: str | int) -> Part | None:
    """Choose the part of a model's return value that is its output for these records.

    The result is None when the return value holds no tensor.

    A single tensor is taken as it is. Of several, only those with one row per record count, and one
    called logits goes first. Otherwise the width must fit the targets. Then names of outputs are
    preferred, features are left out (by name, or as what another part's Linear was given), and the
    part that a Linear gives is taken.

    Args:
        returned: of a forward pass on a few records.
        target: their targets.
        ran: the Linears that ran.
        output: "auto", or a name or position.

    Raises:
        InputError: no such output, or more than one that may be meant; the sentence lists them with
            their shapes.
    """
    found = parts_of(returned)
    if output != "auto":
        return _asked(returned, found, output)
    if len(found) < 2:
        return found[0] if found else None
    labels = as_array(target, "targets")
    size = len(labels) if labels.ndim else 0
    rows = _different([part for part in found if _holds_rows(part.value, size)])
    if not rows:
        _refuse_choice(f"one row for each of {size} records", found)
    logits = [part for part in rows if part.word in LOGITS]
    if len(logits) == 1 or len(rows) == 1:
        return (logits or rows)[0]
    fitting = [part for part in logits or rows if _fits(part.value, labels)]
    if not fitting:
        _refuse_choice("the targets", rows)
    for narrowed in (_named, _not_features, lambda parts: _not_given(parts, ran)):
        fitting = narrowed(fitting) if len(fitting) > 1 else fitting
    chosen = fitting[0] if len(fitting) == 1 else _given_by_linear(fitting, ran)
    if chosen is None:
        _refuse_choice("the targets", fitting)
    return chosen


def _parts(value: object, path: Path) -> Iterator[Part]:
    if isinstance(value, Tensor):
        yield Part(path, value)
    elif len(path) < DEEPEST:
        for name, entry in _entries(value, top=not path):
            yield from _parts(entry, (*path, name))


def _entries(value: Any, *, top: bool) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(str(key), entry) for key, entry in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, (tuple, list)):
        return [(str(position), entry) for position, entry in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if not top or value is None or isinstance(value, (str, bytes, type)):
        return []
    held = [(name, entry) for name, entry in getattr(value, "__dict__", {}).items() if not name.startswith("_")]
    # A property or a slot is no entry of __dict__.
    return held if any(name == "logits" for name, _ in held) or not hasattr(value, "logits") else [*held, ("logits", value.logits)]


def _asked(returned: object, found: list[Part], output: str | int) -> Part:
    named = [part for part in found if output in (".".join(part.path), *part.path[:1])]
    if not named and str(output).isdigit():
        entries = [name for name, _ in _entries(returned, top=True)]
        place = int(output)
        named = [part for part in found if part.path[:1] == tuple(entries[place : place + 1])] if place < len(entries) else []
        named = found[:1] if not entries and place == 0 and isinstance(returned, Tensor) else named
    if len(named) != 1:
        several = f"{output!r}, which holds {_listed(named)}" if named else f"{output!r}; there are {_listed(found)}"
        refuse("output", "name one tensor that the model returns, or its position", several)
    return named[0]


def _holds_rows(value: Tensor, size: int) -> bool:
    return value.is_floating_point() and value.ndim in (1, 2) and len(value) == size


def _different(parts: Sequence[Part]) -> list[Part]:
    """Leave out parts that are the same tensor under another name."""
    kept: list[Part] = []
    for part in parts:
        if not any(part.value is other.value for other in kept):
            kept.append(part)
    return kept


def _fits(value: Tensor, labels: Any) -> bool:
    """Whether a loss between an output of this width and these targets exists."""
    width = value.shape[1] if value.ndim == 2 else 1
    if labels.ndim == 2 and labels.shape[1] > 1:
        return bool(width == labels.shape[1])
    if labels.dtype.kind not in "biu":
        return width == 1
    largest = int(labels.max(initial=0))
    return width > largest or (width == 1 and largest == 1)


def _named(parts: list[Part]) -> list[Part]:
    return [part for part in parts if part.word in HINTS] or parts


def _not_features(parts: list[Part]) -> list[Part]:
    return [part for part in parts if part.word not in FEATURES] or parts


def _not_given(parts: list[Part], ran: Mapping[nn.Linear, Ran]) -> list[Part]:
    """Leave out the parts that were given to the Linear behind another part.

    Such parts are features, to which no loss goes.
    """
    givers = [one for one in ran.values() if any(ending_of(one.raw, part.value) is not None for part in parts)]
    kept = [part for part in parts if not any(_is_given(one, part) for one in givers)]
    return kept or parts


def _is_given(one: Ran, part: Part) -> bool:
    return ending_of(one.raw, part.value) is None and one.given.shape == part.value.shape and torch.equal(one.given, part.value)


def _given_by_linear(parts: Sequence[Part], ran: Mapping[nn.Linear, Ran]) -> Part | None:
    """Find the part that one Linear gives; a raw output goes before one under an ending.

    The result is None when several Linear layers give a part, or when a narrower part comes from
    none of them.
    """
    givers = [(linear, part, ending_of(one.raw, part.value)) for linear, one in ran.items() for part in parts]
    given = [(linear, part, ending) for linear, part, ending in givers if ending is not None]
    if len({id(linear) for linear, _, _ in given}) != 1:
        return None
    _, best, _ = min(given, key=lambda one: list(ENDINGS).index(one[2]))
    rest = [part for part in parts if all(part is not one for _, one, _ in given)]
    # Logits may come from weights that are no nn.Linear; an embedding is then the only thing that a
    # Linear gives.
    return None if any(_width(part) < _width(best) for part in rest) else best


def _width(part: Part) -> int:
    return part.value.shape[1] if part.value.ndim == 2 else 1


def _listed(parts: Sequence[Part]) -> str:
    more = ", …" if len(parts) > PARTS_NAMED else ""
    return ", ".join(map(str, parts[:PARTS_NAMED])) + more or "no tensor"


def _refuse_choice(fits: str, parts: Sequence[Part]) -> NoReturn:
    hint = "Pass output= with the name or the position of the one that the loss goes to."
    refuse("model", f"return exactly one tensor that fits {fits}", _listed(parts), hint)
