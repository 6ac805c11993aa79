"""An audit in a few lines, for people and for machines."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from noshadow._answer import accusations, best_known, evidence_changes, next_action, retraining, verdict, worst_record
from noshadow._glance import (
    TOP_RECORDS,
    Line,
    drawn,
    figure_lines,
    note_lines,
    record_cells,
    record_lines,
    records_title,
    verdict_lines,
)
from noshadow.outcomes import Absent
from noshadow.results import Audit
from noshadow.visible import visible

# By level of a verdict, and by severity of a finding.
_COLOURS = {"strong": "bold red", "some": "bold yellow", "none": "bold green", "unknown": "bold"}
_COLOURS |= {"high": "bold red", "medium": "yellow", "low": "cyan"}
_COLUMN = 8  # letters that a column of a table takes at least, with its frame


def summary(audited: Audit, page: Path) -> dict[str, Any]:
    """What `--json` prints of an audit."""
    manifest = audited.manifest()
    kept = ("task", "ranked_by", "records", "model_risk", "not_applicable", "notes")
    shown = [] if audited.ranked_by is None else audited.records.nsmallest(TOP_RECORDS, "rank")[["rank", "id"]].to_dict("records")
    return (
        answer(audited)
        | {name: manifest[name] for name in kept}
        | {
            "findings": [finding.to_dict() for finding in drawn(audited)],
            "most_exposed": [{"rank": int(row["rank"]), "id": str(row["id"])} for row in shown],
            "scores": audited.provenance.get("scores"),
            "evidence": manifest.get("evidence", []),
            "evidence_changes": list(evidence_changes(audited)),
            "offers": [offer.to_dict() for offer in audited.offers],
            "sequence_attacks": manifest.get("sequence_attacks", []),
            "folder": str(page.parent),
            "report": str(page),
        }
    )


def answer(audited: Audit) -> dict[str, Any]:
    """The verdict, what it rests on, the most exposed record and what to do next, for `--json`.

    Beside them stand how often an accusation is right, and what a retraining would flag again.
    """
    known, worst, again = best_known(audited), worst_record(audited), retraining(audited)
    return {
        "verdict": verdict(audited).to_dict(),
        "best_known": known.to_dict(),
        "accusations": [one.to_dict() for one in accusations(known)],
        "worst_record": None if worst is None else worst.to_dict(),
        "retraining": {"absent": str(again)} if isinstance(again, Absent) else again.to_dict(),
        "next_action": next_action(audited).to_dict(),
    }


def print_audit(audited: Audit, page: Path, seconds: float, console: Console | None = None) -> None:
    """The answer, what was found, the most exposed records, the notes and where the report is.

    A terminal gets a panel and a table, and a pipe gets plain lines.
    """
    screen = console or plain_console()
    lines = [*verdict_lines(audited, show_ids=True), *figure_lines(audited)]
    if screen.is_terminal:
        screen.print(
            Panel(Text("\n").join(map(coloured, lines)), title="Membership audit", title_align="left", expand=False), soft_wrap=False
        )
    else:
        print_lines(lines, screen)
    _print_records(audited, screen)
    print_lines(note_lines(audited), screen)
    screen.print(f"Report: {harmless(page)}  ({seconds:.1f} s)")


def _print_records(audited: Audit, screen: Console) -> None:
    if audited.ranked_by is None or not screen.is_terminal:
        print_lines(record_lines(audited, show_ids=True), screen)
        return
    names, rows = record_cells(audited, TOP_RECORDS, show_ids=True)
    print_table(records_title(audited), names, rows, screen)


def plain_console() -> Console:
    """Standard output: a terminal breaks long lines, and a pipe gets them whole."""
    return Console(highlight=False, soft_wrap=True)


def coloured(line: Line) -> Text:
    """A line with its marked part in the colour of its tone."""
    text = Text(line.text)
    if line.tone:
        text.stylize(_COLOURS[line.tone], 0, line.marked)
    return text


def print_lines(lines: Iterable[Line], screen: Console) -> None:
    """Print lines as they are."""
    for line in lines:
        screen.print(coloured(line))


def print_table(title: str, names: Sequence[str], rows: Iterable[Sequence[str]], screen: Console, *, left: Sequence[str] = ()) -> None:
    """Print a table as wide as the terminal, whose cells are folded and never cut.

    A pipe, and a terminal that is too narrow for that, gets its rows as whole lines, without empty
    cells.

    Args:
        title: of the table. names: of the columns. rows: their cells, visible text without markup.
        screen: where to print. left: names of columns that stand at the left.
    """
    rows = [list(row) for row in rows]
    table = Table(title=Text(title), title_justify="left")
    for name in names:
        table.add_column(Text(name), justify="left" if name in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    if screen.is_terminal and screen.width >= _COLUMN * len(names):
        screen.print(table, soft_wrap=False)
        return
    screen.print(Text(f"{title}:"))
    for row in rows:
        told = (f"{name} {cell}" for name, cell in zip(names, row, strict=True) if cell)
        screen.print(Text(f"  {', '.join(told)}"))


def harmless(value: object) -> str:
    """Make text of others harmless for rich to print.

    It holds no markup, and nothing that steers a terminal or is not seen.
    """
    return escape(visible(value))
