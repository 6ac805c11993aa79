"""Arguments that many public functions share: their one default, and old names that still work.

The words and their meanings stand in docs/words.md; tests/test_api_words.py holds every public
signature against them.
"""

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from noshadow.errors import called, refuse

BATCH_SIZE = 256  # records that go through a model at once
MAX_MEMORY = 8e9  # bytes that matrices may take
SHOW_TOP = 100  # riskiest records whose contents a page shows, when it is handed any
PROGRESS = True  # a bar in a terminal or notebook after two seconds; a pipe never sees it

P = ParamSpec("P")
T = TypeVar("T")


def renamed(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function be called by old names of its arguments, `old="new"`.

    Each call by an old name gives a DeprecationWarning.

    An old name may be the new name of another argument. It then has its old meaning only in a call
    that lacks its successor, which no call by the new names does when the successor is required.
    Only what is `named_in_errors` above this can be renamed: the warning says its name.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        places = tuple(inspect.signature(function).parameters)

        @functools.wraps(function)
        def by_either_name(*given: Any, **named: Any) -> T:
            return cast(Callable[..., T], function)(*given, **_by_new_names(names, places, given, named))

        return cast(Callable[P, T], by_either_name)

    return decorate


def renamed_attribute(old: str, new: str) -> Any:
    """An attribute's old name: a property that warns and reads the new one."""

    def read(self: object) -> Any:
        _warn(type(self).__name__, {old: new}, stacklevel=3)
        return getattr(self, new)

    return property(read, doc=f"Old name of `{new}`.")


def _by_new_names(names: Mapping[str, str], places: Sequence[str], given: Sequence[object], named: Mapping[str, Any]) -> dict[str, Any]:
    present = {*places[: len(given)], *named}
    old = {name: names[name] for name in named if name in names and not (name in places and names[name] in present)}
    for name, new in old.items():
        if new in present - set(old):
            refuse(new, "be given once", f"it and its old name {name}", "Leave the old name out.")
    if old:
        # The caller stands behind this function, both decorators and `_warn`.
        _warn(called(), old, stacklevel=5)
    return {old.get(name, name): value for name, value in named.items()}


def _warn(spoken_of: str, names: Mapping[str, str], *, stacklevel: int) -> None:
    words = " and ".join(f"{old} is now called {new}" for old, new in names.items())
    warnings.warn(f"{spoken_of}: {words}; the old name will go in a later version.", DeprecationWarning, stacklevel=stacklevel)
