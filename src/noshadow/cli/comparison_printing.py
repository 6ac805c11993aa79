"""A comparison of two audits in a few lines."""

from pathlib import Path

from noshadow._compare import Change, Comparison, Mover, difference_words, figure_words, interval_words
from noshadow._glance import ended
from noshadow.cli.printing import harmless, plain_console, print_table
from noshadow.formats import number
from noshadow.visible import visible

_MOVERS = 5
_DIGEST = 64


def print_comparison(found: Comparison, out: Path | None) -> None:
    """Print the verdict, the changes, the records and findings that moved, and what differs.

    The last line says where the page is, if there is one.
    """
    console = plain_console()
    console.print(f"[bold]{harmless(found.verdict)}[/bold]")
    if found.changes and console.is_terminal:
        cells = [[visible(change.label), *_figures(change), _difference(change)] for change in found.changes]
        print_table("Model risk", ("figure", "before", "after", "difference"), cells, console, left=("figure",))
    elif found.changes:
        for change in found.changes:
            before, after = _figures(change)
            console.print(f"{harmless(change.label)}: {before} → {after}, {_difference(change)}")
    counts = zip((found.shared, found.only_before, found.only_after), ("both", "the first only", "the second only"), strict=True)
    console.print(f"Records: {', '.join(f'{number(count)} in {where}' for count, where in counts)}")
    if found.rank_correlation is not None:
        console.print(f"Rank correlation over shared records: {number(found.rank_correlation, padded=True)}")
    if "records entering and leaving" not in found.not_applicable:
        for words, moved in (("Entered", found.entered), ("Left", found.left)):
            console.print(f"{words} the top 1 %: {len(moved)}{_named(moved)}")
    for words, drawn in (("gained", found.gained), ("lost", found.lost)):
        console.print(f"Findings {words}: {', '.join(harmless(f'{finding.code} {finding.name}') for finding in drawn) or 'none'}")
    for name, (before, after) in found.differences.items():
        console.print(f"Differs: {harmless(name)}: {_short(before)} | {_short(after)}")
    for name, reason in found.not_applicable.items():
        console.print(f"{harmless(name).capitalize()}: {ended(harmless(reason))}")
    for note in found.notes:
        console.print(f"Note: {ended(harmless(note))}")
    if out is not None:
        console.print(f"Page: {harmless(out)}")


def _figures(change: Change) -> list[str]:
    """The figure before and after: a rate in people per thousand, an AUC as a number."""
    return [figure_words(change, value) for value in (change.before, change.after)]


def _difference(change: Change) -> str:
    words = {True: "more than noise", False: "within noise", None: "noise not known"}
    ends = "" if change.interval is None else f" ({interval_words(change)})"
    return f"{difference_words(change, change.difference)}{ends}, {words[change.more_than_noise]}"


def _named(moved: tuple[Mover, ...]) -> str:
    """The first few by id, with both ranks."""
    told = [f"{harmless(mover.id)} ({mover.rank_before or 'new'} → {mover.rank_after or 'gone'})" for mover in moved[:_MOVERS]]
    return f": {', '.join(told)}{', …' if len(moved) > _MOVERS else ''}" if told else ""


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return harmless(text[:12] if len(text) == _DIGEST else text)
