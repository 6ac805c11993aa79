"""Numbers and text as a reader sees them."""

import math
import re
from typing import Any

from markupsafe import Markup

from noshadow._answer import per_thousand, per_thousand_between
from noshadow.visible import visible

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_NARROW_SPACE = "\u202f"
_WORD = re.compile(r"[a-z]{2,}[ :,]")
_UTC_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def number(value: float, *, padded: bool = False) -> str:
    """Write a number to three significant digits.

    It is whole from a thousand on, and a power of ten when very small or large.

    Whole numbers of type int are given in full. `padded` keeps zeros at the end, so that columns
    line up.

    Example:
        >>> (
        ...     number(0.0745),
        ...     number(2894.6),
        ...     number(1.26e-8),
        ...     number(float("inf")),
        ...     number(-0.5),
        ...     number(0.5, padded=True),
        ... )
        ('0.0745', '2,895', '1.26\u202f×\u202f10⁻⁸', '∞', '−0.5', '0.500')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    size = abs(value)
    if size == 0:
        return "0"
    if 1e-4 <= size < 1e6:
        text = f"{value:,.0f}" if size >= 999.5 else f"{value:#.3g}"
        return _trimmed(text, padded).replace("-", "−")
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{_trimmed(mantissa, padded).replace('-', '−')}{_NARROW_SPACE}×{_NARROW_SPACE}{power_of_ten(int(exponent))}"


def _trimmed(text: str, padded: bool) -> str:
    return text.rstrip("0").rstrip(".") if "." in text and not padded else text.rstrip(".")


def power_of_ten(exponent: int) -> str:
    """10 with a superscript.

    Example:
        >>> power_of_ten(-12)
        '10⁻¹²'
    """
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


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


def sentence(text: str) -> str:
    """End a text with a full stop, and start it with a capital.

    It gets no capital where it starts with a symbol and not a word.

    Example:
        >>> sentence("features are constant"), sentence("n·weight_decay, nominal.")
        ('Features are constant.', 'n·weight_decay, nominal.')
    """
    stripped = text.strip()
    start = stripped[:1].upper() if _WORD.match(stripped) else stripped[:1]
    return start + stripped[1:] + ("" if stripped.endswith((".", "!", "?")) else ".")


def timestamp(created: str) -> str:
    """An ISO time in UTC with the T and offset spelled out; anything else as it is."""
    return f"{created[:10]} {created[11:19]} UTC" if _UTC_STAMP.fullmatch(created) else created


def shown(value: Any) -> Any:
    r"""Write some characters of a text as codes.

    These are characters that HTML cannot hold, that reorder their neighbours, or that are not seen.

    Example:
        >>> shown("ab\u202ecd\x00")
        'ab⟨U+202E⟩cd⟨U+0000⟩'
    """
    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value)
