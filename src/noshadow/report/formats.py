"""Numbers and text as a page shows them: those of the whole house, and what pages add."""

import re

from noshadow._answer import per_thousand, per_thousand_between
from noshadow.formats import number, power_of_ten, sentence, shown

# Pages take every format from here.
__all__ = [
    "figure",
    "interval",
    "number",
    "out_of_a_hundred",
    "people",
    "people_between",
    "power_of_ten",
    "sentence",
    "shown",
    "timestamp",
]

_UTC_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def figure(value: float) -> dict[str, str]:
    """Give a number twice: as shown, and exactly for whoever reads the page by machine."""
    return {"text": number(value, padded=True), "exact": repr(value)}


def interval(ends: tuple[float, float]) -> str:
    """Both ends of an interval."""
    return f"{number(ends[0], padded=True)} to {number(ends[1], padded=True)}"


def out_of_a_hundred(share: float) -> str:
    """Write a share in words for people who do not read fractions.

    It is out of 10,000 when it is below one in a hundred.

    Example:
        >>> (
        ...     out_of_a_hundred(0.0746),
        ...     out_of_a_hundred(0.506),
        ...     out_of_a_hundred(0.00123),
        ...     out_of_a_hundred(1e-6),
        ... )
        ('7.5 in 100', '51 in 100', '12 in 10,000', 'fewer than 1 in 10,000')
    """
    if 0 < share < 1e-4:
        return "fewer than 1 in 10,000"
    many = 100 if share >= 0.01 or share == 0 else 10_000
    return f"{share * many:.2g} in {many:,}" if share < 0.995 else f"{share * 100:.4g} in 100"


def people(share: float) -> dict[str, str]:
    """Give a share as people in a thousand, and exactly for whoever reads the page by machine."""
    return {"text": per_thousand(share), "exact": repr(share)}


def people_in_table(share: float, ends: tuple[float, float] | None = None) -> dict[str, str]:
    """A share and its interval as people in a thousand; the table's head names the unit."""
    told = {"text": _bare(per_thousand(share)), "exact": repr(share)}
    return told | {"interval": "" if ends is None else _bare(per_thousand_between(ends))}


def _bare(text: str) -> str:
    return text.removesuffix(" in 1,000")


def people_between(ends: tuple[float, float]) -> str:
    """Both ends of an interval of shares as people in a thousand."""
    return per_thousand_between(ends)


def timestamp(created: str) -> str:
    """An ISO time in UTC with the T and offset spelled out; anything else as it is."""
    return f"{created[:10]} {created[11:19]} UTC" if _UTC_STAMP.fullmatch(created) else created
