"""Read and write JSON without its traps.

The traps are NaN, duplicate names, numbers no float holds, half characters, and nesting without
end.
"""

import json
import math
from typing import Any, NoReturn

DEEPEST = 64
LARGEST = 2**64


def strict_json(value: object) -> bytes:
    """Canonical JSON without NaN or infinity, UTF-8: equal values give equal bytes."""
    return (json.dumps(value, allow_nan=False, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def parsed_json(content: bytes | str) -> Any:
    """The value that UTF-8 JSON spells.

    Raises:
        ValueError: it is not JSON, holds NaN, an infinite number, a whole number beyond ±2⁶⁴ or a
            name twice in one object, text that UTF-8 cannot hold, or is nested deeper than 64
            levels.
    """
    text = content if isinstance(content, str) else content.decode("utf-8")
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_int=_whole_number,
            parse_float=_finite_number,
            object_pairs_hook=_object,
        )
    except RecursionError as error:
        raise ValueError(f"nested deeper than {DEEPEST} levels") from error
    _require_depth_and_text(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _whole_number(digits: str) -> int:
    # Python itself refuses thousands of digits; a float cannot hold what lies far below that.
    if len(digits) > 21 or abs(int(digits)) > LARGEST:
        raise ValueError(f"the number {digits[:24]}… is beyond ±2⁶⁴")
    return int(digits)


def _finite_number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:24]} is beyond the range of a float")
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} stands twice in one object")
    return held


def _require_depth_and_text(value: Any) -> None:
    """Check depth and text level by level, so that nesting costs no recursion."""
    level, depth = [value], 0
    while level:
        if depth == DEEPEST and any(isinstance(item, (dict, list)) for item in level):
            raise ValueError(f"nested deeper than {DEEPEST} levels")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, str):
                _require_text(item)
            elif isinstance(item, dict):
                inner += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                inner += item
        level, depth = inner, depth + 1


def _require_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"half a character in {text[:40]!a}") from error
