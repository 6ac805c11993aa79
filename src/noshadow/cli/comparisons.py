"""The command for two audits: compare."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from noshadow.checks import InputError
from noshadow.cli.options import Json, Quiet, app
from noshadow.cli.printing import harmless, sentence
from noshadow.compare import Change, Comparison, Mover, compare
from noshadow.report import write_comparison
from noshadow.results import load

_MOVERS = 5
_DIGEST = 64


@app.command("compare", epilog="Example: noshadow compare before after --out change.html")
def show_comparison(
    before: Annotated[Path, typer.Argument(help="The first audit folder.")],
    after: Annotated[Path, typer.Argument(help="The second audit folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="Write the comparison as one HTML file.")] = None,
    fpr: Annotated[float | None, typer.Option("--fpr", help="Level to read both TNRs at; default the larger of the two audits'.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the bootstrap.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Say what changed between two audits, and whether it is more than noise.

    Model risk with the interval of the difference, records entering and leaving the top 1 %, rank correlation, findings gained
    and lost. Two audits of different data: what differs, and what can still be compared.
    """
    if out is not None and out.suffix not in (".html", ".htm"):
        raise InputError(f"compare: --out must end in .html; got '{out}'. For machines there is --json.")
    found = compare(load(before), load(after), fpr="auto" if fpr is None else fpr, seed=seed)
    if out is not None:
        write_comparison(found, out)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
    elif not quiet:
        _print_comparison(found, out)


def _print_comparison(found: Comparison, out: Path | None) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{harmless(found.verdict)}[/bold]")
    if found.changes and console.is_terminal:
        console.print(_table(found))
    elif found.changes:
        for change in found.changes:
            console.print(f"{change.label}: {_number(change.before)} → {_number(change.after)}, {_difference(change)}")
    console.print(f"Records: {found.shared} in both, {found.only_before} in the first only, {found.only_after} in the second only")
    if found.rank_correlation is not None:
        console.print(f"Rank correlation over shared records: {found.rank_correlation:.3f}")
    if "records entering and leaving" not in found.not_applicable:
        for words, moved in (("Entered", found.entered), ("Left", found.left)):
            console.print(f"{words} the top 1 %: {len(moved)}{_named(moved)}")
    for words, drawn in (("gained", found.gained), ("lost", found.lost)):
        console.print(f"Findings {words}: {', '.join(f'{finding.code} {finding.name}' for finding in drawn) or 'none'}")
    for name, (before, after) in found.differences.items():
        console.print(f"Differs: {name}: {_short(before)} | {_short(after)}")
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
        table.add_row(change.label, _number(change.before), _number(change.after), _difference(change))
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
