"""An audit in a few lines, for people and for machines."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from noshadow.results import Audit


def summary(audited: Audit, page: Path) -> dict[str, Any]:
    """What `--json` prints of an audit."""
    manifest = audited.manifest()
    kept = ("task", "ranked_by", "records", "model_risk", "not_applicable", "notes")
    shown = [] if audited.ranked_by is None else audited.records.nsmallest(5, "rank")[["rank", "id"]].to_dict("records")
    return {name: manifest[name] for name in kept} | {
        "most_exposed": [{"rank": int(row["rank"]), "id": str(row["id"])} for row in shown],
        "scores": audited.provenance.get("scores"),
        "folder": str(page.parent),
        "report": str(page),
    }


def print_audit(audited: Audit, page: Path, seconds: float) -> None:
    """The answer, the most exposed records, the notes and where the report is."""
    console = Console(highlight=False, soft_wrap=True)
    risk = audited.model_risk
    if risk is None:
        console.print(f"Model risk: {harmless(audited.not_applicable['model_risk'])}")
    else:
        low, high = risk.tnr_interval
        console.print(f"Loss-tail TNR at level {risk.fpr:g}: [bold]{risk.tnr:.3f}[/bold]  (95 % interval {low:.3f}–{high:.3f})")
        console.print(f"Loss AUC: [bold]{risk.auc:.3f}[/bold]  (95 % interval {risk.auc_interval[0]:.3f}–{risk.auc_interval[1]:.3f})")
    if audited.ranked_by is None:
        console.print(f"Record scores: {harmless(audited.not_applicable['rank'])}")
    else:
        table = Table(title=f"Most exposed records, by {audited.ranked_by}", title_justify="left")
        named = "label" if "label" in audited.records else "target"
        shown = [c for c in ("rank", "id", named, "loss", "leverage", audited.ranked_by) if c in audited.records]
        for name in shown:
            table.add_column(name, justify="right")
        for row in audited.records.nsmallest(5, "rank")[shown].itertuples(index=False):
            table.add_row(*(f"{value:.4g}" if isinstance(value, float) else harmless(value) for value in row))
        console.print(table)
    for note in audited.notes:
        console.print(f"Note: {harmless(note).removesuffix('.')}.")
    console.print(f"Report: {harmless(page)}  ({seconds:.1f} s)")


def harmless(value: object) -> str:
    """Text of others without rich's markup or a terminal's control characters."""
    return escape("".join(c if c.isprintable() else "�" for c in str(value)))
