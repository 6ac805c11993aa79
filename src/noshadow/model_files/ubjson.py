"""Universal Binary JSON, as XGBoost writes it, read without trusting any of its counts."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from noshadow.storage.json_text import DEEPEST

# Marker → type, all of them with the most significant byte first (ubjson.org, draft 12).
NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
COUNTS = "iUIlL"
CONSTANTS = {"Z": None, "T": True, "F": False}


def parsed_ubjson(content: bytes) -> Any:
    """The value that the bytes spell; typed arrays become lists of numbers.

    Raises:
        ValueError: not such bytes, a name twice in one object, a count beyond what is there,
            anything behind the value, or nesting deeper than 64 levels.
    """
    reading = _Reading(content)
    value = reading.value(reading.marker(), 0)
    if reading.place != len(content):
        raise ValueError(f"{len(content) - reading.place} bytes behind its end")
    return value


@dataclass
class _Reading:
    """Bytes and the place that is read next."""

    content: bytes
    place: int = 0

    def taken(self, count: int) -> bytes:
        if not 0 <= count <= len(self.content) - self.place:
            raise ValueError(f"{count} bytes claimed where {len(self.content) - self.place} are left")
        self.place += count
        return self.content[self.place - count : self.place]

    def marker(self) -> str:
        return self.taken(1).decode("latin1")

    def number(self, marker: str) -> int | float:
        kind = np.dtype(NUMBERS[marker])
        found: int | float = np.frombuffer(self.taken(kind.itemsize), kind)[0].item()
        return found

    def count(self) -> int:
        marker = self.marker()
        if marker not in COUNTS:
            raise ValueError(f"{marker!r} where a count is due")
        return int(self.number(marker))

    def text(self) -> str:
        return self.taken(self.count()).decode("utf-8")

    def value(self, marker: str, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST} levels")
        if marker == "{":
            return self.object(depth)
        if marker == "[":
            return self.array(depth)
        if marker == "S":
            return self.text()
        if marker in CONSTANTS:
            return CONSTANTS[marker]
        if marker in NUMBERS:
            return self.number(marker)
        raise ValueError(f"{marker!r} where a value is due")

    def object(self, depth: int) -> dict[str, Any]:
        held: dict[str, Any] = {}
        while self.content[self.place : self.place + 1] != b"}":
            name = self.text()
            if name in held:
                raise ValueError(f"the name {name!r} stands twice in one object")
            held[name] = self.value(self.marker(), depth + 1)
        self.place += 1
        return held

    def array(self, depth: int) -> list[Any]:
        first = self.content[self.place : self.place + 1]
        if first == b"$":
            self.place += 1
            kind = self.marker()
            if kind not in NUMBERS or self.marker() != "#":
                raise ValueError(f"an array of {kind!r}")
            dtype, length = np.dtype(NUMBERS[kind]), self.count()
            if length < 0:
                raise ValueError(f"an array of {length} values")
            numbers: list[Any] = np.frombuffer(self.taken(dtype.itemsize * length), dtype).tolist()
            return numbers
        if first == b"#":
            self.place += 1
            length = self.count()
            # Every value takes a byte at least.
            if not 0 <= length <= len(self.content) - self.place:
                raise ValueError(f"an array of {length} values in {len(self.content) - self.place} bytes")
            return [self.value(self.marker(), depth + 1) for _ in range(length)]
        held = []
        while self.content[self.place : self.place + 1] != b"]":
            held.append(self.value(self.marker(), depth + 1))
        self.place += 1
        return held
