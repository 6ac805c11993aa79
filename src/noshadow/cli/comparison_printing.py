"""A comparison of two audits in a few lines."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from noshadow._compare import Change, Comparison, Mover
from noshadow.cli.printing import harmless, sentence

_MOVERS = 5
_DIGEST = 64


def print_comparison(found: Comparison, out: Path | None) -> None:
    """Print the verdict, the changes, the records and findings that moved, and what differs.

    The last line says where the page is, if there is one.
    """
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{harmless(found.verdict)}[/bold]")
    if found.changes and console.is_terminal:
        console.print(_table(found), soft_wrap=False)
    elif found.changes:
        for change in found.changes:
            console.print(f"{harmless(change.label)}: {_number(change.before)} → {_number(change.after)}, {_difference(change)}")
    console.print(f"Records: {found.shared} in both, {found.only_before} in the first only, {found.only_after} in the second only")
    if found.rank_correlation is not None:
        console.print(f"Rank correlation over shared records: {found.rank_correlation:.3f}")
    if "records entering and leaving" not in found.not_applicable:
        for words, moved in (("Entered", found.entered), ("Left", found.left)):
            console.print(f"{words} the top 1 %: {len(moved)}{_named(moved)}")
    for words, drawn in (("gained", found.gained), ("lost", found.lost)):
        console.print(f"Findings {words}: {', '.join(harmless(f'{finding.code} {finding.name}') for finding in drawn) or 'none'}")
    for name, (before, after) in found.differences.items():
        console.print(f"Differs: {harmless(name)}: {_short(before)} | {_short(after)}")
    for name, reason in found.not_applicable.items():
        console.print(f"{harmless(name).capitalize()}: {sentence(harmless(reason))}")
    for note in found.notes:
        console.print(f"Note: {sentence(harmless(note))}")
    if out is not None:
        console.print(f"Page: {harmless(out)}")


def _table(found: Comparison) -> Table:
    table = Table()
    for name in ("figure", "before", "after", "difference"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for change in found.changes:
        table.add_row(harmless(change.label), _number(change.before), _number(change.after), _difference(change))
    return table


def _difference(change: Change) -> str:
    words = {True: "more than noise", False: "within noise", None: "noise not known"}
    ends = "" if change.interval is None else f" ({change.interval[0]:+.3f} to {change.interval[1]:+.3f})"
    return f"{change.difference:+.3f}{ends}, {words[change.more_than_noise]}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _named(moved: tuple[Mover, ...]) -> str:
    """The first few by id, with both ranks."""
    told = [f"{harmless(mover.id)} ({mover.rank_before or 'new'} → {mover.rank_after or 'gone'})" for mover in moved[:_MOVERS]]
    return f": {', '.join(told)}{', …' if len(moved) > _MOVERS else ''}" if told else ""


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return harmless(text[:12] if len(text) == _DIGEST else text)
