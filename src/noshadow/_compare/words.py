"""Figures of a comparison as a reader sees them: rates in people per thousand, an AUC as it is."""

from noshadow._compare.result import Change
from noshadow._known import per_thousand, per_thousand_more
from noshadow.formats import number

_NUMBERS = ("auc",)


def figure_words(change: Change, value: float | None) -> str:
    """The change's figure in one of its audits."""
    if value is None:
        return "none"
    return number(value, padded=True) if change.name in _NUMBERS else per_thousand(value)


def difference_words(change: Change, value: float | None) -> str:
    """A difference of two such figures, with its sign."""
    if value is None:
        return "none"
    if change.name not in _NUMBERS:
        return per_thousand_more(value)
    return f"{'+' if value > 0 else ''}{number(value, padded=True)}"


def interval_words(change: Change) -> str:
    """Both ends of the difference's interval; empty where there is none."""
    if change.interval is None:
        return ""
    low, high = (difference_words(change, end) for end in change.interval)
    # The unit stands once.
    return f"{low.removesuffix(' in 1,000')} to {high}"
