"""Numbers and text as a reader sees them, on pages, in terminals and in notebooks."""

import math
import re
from typing import Any

from markupsafe import Markup

from noshadow.visible import visible

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_NARROW_SPACE = "\u202f"
_WORD = re.compile(r"[a-z]{2,}[ :,]")


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


def shown(value: Any) -> Any:
    r"""Write some characters of a text as codes.

    These are characters that HTML cannot hold, that reorder their neighbours, or that are not seen.

    Example:
        >>> shown("ab\u202ecd\x00")
        'ab⟨U+202E⟩cd⟨U+0000⟩'
    """
    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value)
