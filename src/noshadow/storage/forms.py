"""Hold JSON of strangers against the types we declare.

The first value that does not fit is refused by its place.
"""

import dataclasses
import functools
import math
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from noshadow.checks import refuse

LONGEST = 60
Misfit = tuple[str, str, str]


@dataclass(frozen=True)
class Within:
    """Bounds of a number, for `Annotated`; `strict` leaves the bounds themselves out."""

    low: float
    high: float = math.inf
    strict: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low < value < self.high if self.strict else self.low <= value <= self.high

    def __str__(self) -> str:
        less = "<" if self.strict else "≤"
        return f"{'>' if self.strict else '≥'} {self.low:g}" + ("" if self.high == math.inf else f" and {less} {self.high:g}")


@dataclass(frozen=True, eq=False)
class Keys:
    """An object by its names; others may stand beside them.

    Attributes:
        needed: name → form of what must be there. optional: of what may be.
    """

    needed: Mapping[str, Any] = field(default_factory=dict)
    optional: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class OneOf:
    """One of several forms; text among them stands for itself."""

    choices: tuple[Any, ...]

    def __init__(self, *choices: Any) -> None:
        object.__setattr__(self, "choices", choices)


@dataclass(frozen=True, eq=False)
class Such:
    """A form with a rule on top.

    `words` complete "must …", and `holds` judges a value that is of the form.
    """

    form: Any
    words: str
    holds: Callable[[Any], bool]


Count = Annotated[int, Within(0)]
Share = Annotated[float, Within(0.0, 1.0)]
Level = Annotated[float, Within(0.0, 1.0, strict=True)]
Size = Annotated[float, Within(0.0)]

_PLAIN = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false", types.NoneType: "null"}


def require_form(value: object, form: Any, place: str, hint: str = "") -> None:
    """Refuse a JSON value that is not of a form.

    A form is int, float (whole numbers are floats too), str, bool, None, Any, a union, [form] for a
    list of them, list[…], tuple[…] (a list in JSON), dict[str, …], Annotated[…, Within(low, high)],
    a dataclass (an object with its fields), Keys, OneOf or Such.

    Raises:
        InputError: names the place, the rule and the value.
    """
    wrong = next(_misfits(value, form, place), None)
    if wrong is not None:
        where, rule, got = wrong
        refuse(where or "the file", rule, got, hint)


def _misfits(value: Any, form: Any, place: str) -> Iterator[Misfit]:
    """What does not fit, outermost first, as (place, rule, what came)."""
    origin, inner = get_origin(form), get_args(form)
    if form is Any:
        return
    if isinstance(form, Keys):
        yield from _object_misfits(value, form.needed, form.optional, place)
    elif dataclasses.is_dataclass(form) and isinstance(form, type):
        yield from _record_misfits(value, form, place)
    elif isinstance(form, OneOf) or origin in (Union, types.UnionType):
        yield from _choice_misfits(value, form.choices if isinstance(form, OneOf) else inner, place)
    elif isinstance(form, Such):
        yield from _ruled_misfits(value, form, place)
    elif isinstance(form, str):
        if value != form:
            yield place, f"be {form!r}", _short(value)
    elif origin is Annotated:
        yield from _bounded_misfits(value, inner, place)
    elif origin is dict:
        yield from _mapping_misfits(value, inner[1], place)
    elif isinstance(form, list) or origin in (list, tuple):
        yield from _list_misfits(value, tuple(form) if isinstance(form, list) else inner, origin is tuple and inner[-1] is not ..., place)
    elif not _is_plain(value, form):
        yield place, _words(form), _short(value)


def _is_plain(value: Any, form: Any) -> bool:
    if form is float:
        return type(value) in (int, float) and math.isfinite(value)
    return value is None if form in (None, types.NoneType) else type(value) is form


def _choice_misfits(value: Any, choices: tuple[Any, ...], place: str) -> Iterator[Misfit]:
    found = [list(_misfits(value, choice, place)) for choice in choices]
    if [] in found:
        return
    # Choices of the value's own kind say where inside it the trouble is; the nearest of them was
    # probably meant.
    near = [misfits for choice, misfits in zip(choices, found, strict=True) if misfits[0][:2] != (place, _words(choice))]
    if near:
        yield min(near, key=len)[0]
    else:
        words = dict.fromkeys(_words(choice) for choice in choices)
        yield place, " or ".join(words).replace(" or be ", " or "), _short(value)


def _ruled_misfits(value: Any, form: Such, place: str) -> Iterator[Misfit]:
    wrong = next(_misfits(value, form.form, place), None)
    if wrong is not None:
        yield wrong
    elif not form.holds(value):
        yield place, form.words, _short(value)


def _bounded_misfits(value: Any, inner: tuple[Any, ...], place: str) -> Iterator[Misfit]:
    if not _is_plain(value, inner[0]):
        yield place, _words(inner[0]), _short(value)
        return
    for bound in inner[1:]:
        if isinstance(bound, Within) and value not in bound:
            yield place, f"{_words(inner[0])} {bound}", _short(value)


def _words(form: Any) -> str:
    """What a value must be, for its refusal."""
    if get_origin(form) is Annotated:
        return f"{_words(get_args(form)[0])} {get_args(form)[1]}"
    if isinstance(form, str):
        return f"be {form!r}"
    if isinstance(form, list) or get_origin(form) in (list, tuple):
        return "be a list"
    return f"be {_PLAIN.get(types.NoneType if form is None else form, 'an object')}" if not isinstance(form, Keys) else "be an object"


def _object_misfits(value: Any, needed: Mapping[str, Any], optional: Mapping[str, Any], place: str) -> Iterator[Misfit]:
    if not isinstance(value, Mapping):
        yield place, "be an object", _short(value)
        return
    for name, form in (*needed.items(), *optional.items()):
        if name in value:
            yield from _misfits(value[name], form, f"{place}.{name}" if place else name)
    missing = [name for name in needed if name not in value]
    if missing:
        yield place, f"hold {', '.join(missing)}", "none"


def _record_misfits(value: Any, record: type, place: str) -> Iterator[Misfit]:
    hints = _field_forms(record)
    late = {f.name for f in dataclasses.fields(record) if (f.default, f.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)}
    yield from _object_misfits(
        value, {n: h for n, h in hints.items() if n not in late}, {n: h for n, h in hints.items() if n in late}, place
    )
    unknown = sorted(set(value) - set(hints)) if isinstance(value, Mapping) else []
    if unknown:
        yield place, f"hold nothing but the fields of {record.__name__}", _cut(", ".join(unknown))


@functools.cache
def _field_forms(record: type) -> dict[str, Any]:
    held = get_type_hints(record, include_extras=True)
    return {f.name: held[f.name] for f in dataclasses.fields(record)}


def _mapping_misfits(value: Any, form: Any, place: str) -> Iterator[Misfit]:
    if not isinstance(value, Mapping):
        yield place, "be an object", _short(value)
        return
    for name, item in value.items():
        yield from _misfits(item, form, f"{place}.{_cut(str(name))}")


def _list_misfits(value: Any, inner: tuple[Any, ...], fixed: bool, place: str) -> Iterator[Misfit]:
    if not isinstance(value, (list, tuple)):
        yield place, "be a list", _short(value)
        return
    if fixed and len(value) != len(inner):
        yield place, f"be a list of {len(inner)}", _short(value)
        return
    for k, item in enumerate(value):
        yield from _misfits(item, inner[k] if fixed else inner[0], f"{place}[{k}]")


def _short(value: object) -> str:
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
