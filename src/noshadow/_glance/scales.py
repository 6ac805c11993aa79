"""Logarithmic axes: positions and ticks."""

import math
from dataclasses import dataclass
from typing import Any

from noshadow.formats import number, power_of_ten


@dataclass(frozen=True)
class LogScale:
    """Positions on an axis in powers of ten.

    Exponent `low` stands at `start`, and exponent `high` at `stop`.
    """

    low: float
    high: float
    start: float
    stop: float

    def at(self, value: float) -> float:
        """Position of a positive value, kept on the axis."""
        return self.at_exponent(math.log10(value))

    def at_exponent(self, exponent: float) -> float:
        """Position of 10^exponent, also where that overflows."""
        part = (exponent - self.low) / (self.high - self.low)
        return round(self.start + min(max(part, 0.0), 1.0) * (self.stop - self.start), 2)


def decade_ticks(scale: LogScale, spacing: float) -> list[dict[str, Any]]:
    """Place ticks of a logarithmic axis, at least `spacing` apart where labelled.

    Ticks are 1, 2, 5 of each decade, or every k-th decade.
    """
    first, last = math.ceil(scale.low - 1e-9), math.floor(scale.high + 1e-9)
    decade = (scale.stop - scale.start) / (scale.high - scale.low)
    plain = plain_axis(math.floor(scale.low), math.ceil(scale.high))
    if plain and decade * math.log10(2) >= spacing * 0.7:
        values = [factor * 10.0**k for k in range(first - 1, last + 1) for factor in (1, 2, 5)]
        inside = [v for v in values if scale.low - 1e-9 <= math.log10(v) <= scale.high + 1e-9]
        return [{"x": scale.at(v), "label": number(v)} for v in inside]
    every = max(1, math.ceil(spacing * 0.6 / decade))
    labels = {k: decade_label(k, plain=plain) for k in range(first, last + 1) if k % every == 0}
    return [{"x": scale.at_exponent(k), "label": label} for k, label in labels.items()]


def plain_axis(low: int, high: int) -> bool:
    """Whether the decades of an axis are near enough to one to be written without powers."""
    return low >= -4 and high <= 4


def decade_label(exponent: int, *, plain: bool) -> str:
    """10^exponent, as a plain number or as a power."""
    return number(10.0**exponent) if plain else power_of_ten(exponent)
