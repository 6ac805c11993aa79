"""Rates in one unit, people in a thousand: the same on pages, in terminals and in sentences."""

from noshadow.checks import require_number

_UNIT = "in 1,000"


def per_thousand(rate: float) -> str:
    """Write a share as people in a thousand.

    Whole people from ten on, and one decimal below: a guess at 1/898 is 1.1 in 1,000. No share is
    rounded to nobody or to everybody unless it is 0 or 1.

    Args:
        rate: a fraction in [0, 1].

    Raises:
        InputError: not a fraction.

    Example:
        >>> per_thousand(0.0614), per_thousand(1 / 898), per_thousand(2e-4), per_thousand(0)
        ('61 in 1,000', '1.1 in 1,000', 'fewer than 1 in 1,000', '0 in 1,000')
    """
    return f"{_people(require_number(rate, 'rate', low=0, high=1))} {_UNIT}"


def per_thousand_between(interval: tuple[float, float]) -> str:
    """Write both ends of an interval of shares as people in a thousand.

    Ends that round to one number are still an interval: the words stay, the number stands twice.

    Args:
        interval: (low, high), fractions in [0, 1] with low ≤ high.

    Raises:
        InputError: not two fractions.

    Example:
        >>> per_thousand_between((0.0402, 0.0821)), per_thousand_between((0.0002, 0.012))
        ('40 to 82 in 1,000', 'under 1 to 12 in 1,000')
    """
    low, high = (require_number(end, "interval", low=0, high=1) for end in interval)
    return f"{_people(low)} to {_people(high)} {_UNIT}".replace("fewer than 1", "under 1").replace("more than 999", "over 999")


def per_thousand_more(difference: float) -> str:
    """Write a difference of two shares as people in a thousand, with its sign.

    Whole people from ten on, and one decimal below.

    Args:
        difference: in [−1, 1].

    Raises:
        InputError: not such a number.

    Example:
        >>> per_thousand_more(-0.2104), per_thousand_more(0.0042), per_thousand_more(0)
        ('−210 in 1,000', '+4.2 in 1,000', '0 in 1,000')
    """
    people = 1000 * require_number(difference, "difference", low=-1, high=1)
    size = f"{abs(people):,.0f}" if abs(people) >= 9.95 else f"{abs(people):.1f}".removesuffix(".0")
    sign = "+" if people > 0 else "−" if people < 0 else ""
    if people and size == "0":
        size = "less than 0.1"
    return f"{sign}{size} {_UNIT}"


def _people(rate: float) -> str:
    people = 1000 * rate
    if 0 < rate < 1e-3 * (1 - 1e-9):
        return "fewer than 1"
    if people < 9.95:
        return f"{people:.1f}".removesuffix(".0")
    if 999.5 <= people < 1000:
        return "more than 999"
    return f"{people:,.0f}"
