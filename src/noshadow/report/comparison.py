"""Comparison → one self-contained HTML file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from noshadow._compare import Change, Comparison, Mover, difference_words, figure_words, interval_words
from noshadow.checks import named_in_errors, refuse
from noshadow.report.findings_section import finding_rows
from noshadow.report.formats import figure, number, sentence, timestamp
from noshadow.report.rendering import rendered
from noshadow.results import write_file

_ROWS = 100
_SHORT_HASH = 12


@named_in_errors
def write_comparison(comparison: Comparison, path: str | Path) -> Path:
    """Write a comparison as one HTML file that opens anywhere.

    It needs no network, no scripts and nothing beside it.

    Args:
        comparison: what `noshadow.compare` returned.
        path: the file to write; an existing one is replaced in one step.

    Returns:
        The path written.

    Raises:
        InputError: `comparison` is not a Comparison, or the path cannot be written.

    Cost: milliseconds.

    Example:
        >>> import noshadow as ns
        >>> ns.write_comparison("a", "b.html")
        Traceback (most recent call last):
        noshadow.errors.InputError: write_comparison: comparison must be a Comparison; got str. Make one with noshadow.compare.
    """  # noqa: W505 - doctest compares the message on one line
    if not isinstance(comparison, Comparison):
        refuse("comparison", "be a Comparison", type(comparison).__name__, "Make one with noshadow.compare.")
    return write_file(path, rendered("comparison.html.j2", _page(comparison)))


def _page(comparison: Comparison) -> dict[str, Any]:
    return {
        "verdict": comparison.verdict,
        "level": f"{100 * comparison.level:g}\u202f%",
        "audits": [{"name": name} | _audit(stamp) for name, stamp in comparison.provenance.items()],
        "changes": [_change(change) for change in comparison.changes],
        "notes": [sentence(note) for note in comparison.notes],
        "absent": [{"name": name, "reason": sentence(reason)} for name, reason in sorted(comparison.not_applicable.items())],
        "counts": {name: number(getattr(comparison, name)) for name in ("shared", "only_before", "only_after", "top_before", "top_after")},
        "correlation": None if comparison.rank_correlation is None else figure(comparison.rank_correlation),
        "compares_records": "records entering and leaving" not in comparison.not_applicable,
        "movers": [_movers("Entered the top", comparison.entered), _movers("Left the top", comparison.left)],
        "findings": [
            {"title": "Gained", "rows": finding_rows(comparison.gained)},
            {"title": "Lost", "rows": finding_rows(comparison.lost)},
        ],
        "kept": ", ".join(comparison.kept),
        "differences": [(name, _words(before), _words(after)) for name, (before, after) in comparison.differences.items()],
    }


def _audit(stamp: dict[str, Any]) -> dict[str, str]:
    created = stamp.get("created")
    return {
        "created": timestamp(str(created)) if created else "not recorded",
        "records": number(int(stamp["records"])),
        "task": str(stamp["task"]),
        "head": str(stamp.get("head") or "not recorded"),
    }


def _change(change: Change) -> dict[str, Any]:
    words = {True: "more than noise", False: "within noise", None: "not known"}
    return {
        "name": change.name,
        "label": change.label,
        "values": [
            None if change.before is None else {"text": figure_words(change, change.before), "exact": repr(change.before)},
            None if change.after is None else {"text": figure_words(change, change.after), "exact": repr(change.after)},
            None if change.difference is None else {"text": difference_words(change, change.difference), "exact": repr(change.difference)},
        ],
        "interval": interval_words(change) or "none",
        "noise": words[change.more_than_noise],
        "method": change.method,
    }


def _movers(title: str, moved: Iterable[Mover]) -> dict[str, Any]:
    everyone = list(moved)
    rows = [{"id": mover.id, "ranks": [_rank(mover.rank_before), _rank(mover.rank_after)]} for mover in everyone[:_ROWS]]
    return {"title": title, "rows": rows, "count": number(len(everyone)), "more": max(len(everyone) - _ROWS, 0)}


def _rank(rank: int | None) -> str:
    return "not in this audit" if rank is None else number(int(rank))


def _words(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    text = "none" if value is None else number(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)
    is_digest = len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
    return text[:_SHORT_HASH] if is_digest else text
