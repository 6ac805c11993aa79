"""Do what `noshadow lood` needs around its run.

Words become numbers, the audit is joined, and results are printed.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from noshadow._glance import ended
from noshadow._lood import with_lood
from noshadow.checks import InputError, said
from noshadow.cli.finishing import written_again
from noshadow.cli.printing import harmless, plain_console, print_table
from noshadow.formats import number
from noshadow.report import architecture
from noshadow.results import Audit, LoodAudit, load, require_writable_folder
from noshadow.visible import visible


def writable_audit(folder: Path, out: Path) -> Audit:
    """The audit of a folder that may be replaced, so that a long run does not end in a refusal."""
    audited = load(folder)
    if folder.resolve() in out.resolve().parents:
        raise InputError(said(f"--out must lie outside of the audit folder, which is replaced whole; got '{out}' inside '{folder}'."))
    require_writable_folder(folder, overwrite=True)
    return audited


def with_section(found: LoodAudit, audited: Audit, folder: Path) -> Path:
    """The report of the audit, written anew with a section on what was found."""
    return written_again(with_lood(audited, found), folder)


def image_sizes(text: str) -> tuple[int, int, int]:
    """Channels, height and width from text such as 3,32,32."""
    sizes = text.replace("x", ",").split(",")
    if len(sizes) != 3 or not all(size.strip().isdecimal() for size in sizes):
        raise InputError(said(f"--image-shape must be channels,height,width, such as 3,32,32; got '{text}'."))
    channels, height, width = map(int, sizes)
    return channels, height, width


def listed_depths(text: str) -> list[int]:
    """Depths from a range such as 1-10 or a list such as 2,4,8."""
    first, dash, last = text.partition("-")
    parts = (first, last) if dash else text.split(",")
    if not all(part.strip().isdecimal() for part in parts) or (dash and int(first) > int(last)):
        raise InputError(said(f"--sweep-depths must be a range such as 1-10 or a list such as 2,4,8; got '{text}'."))
    return list(range(int(first), int(last) + 1)) if dash else [int(part) for part in parts]


def lood_summary(found: LoodAudit, page: Path, section: Path | None) -> dict[str, Any]:
    """What `--json` prints."""
    manifest = found.manifest()
    shown = found.records.nsmallest(5, "rank")
    return {name: manifest[name] for name in ("kernel", "noise", "fpr", "summary", "conditioning", "sweep", "joined", "notes")} | {
        "most_exposed": [
            {"rank": int(rank), "id": str(identifier), "kl": float(kl), "auc": float(auc)}
            for rank, identifier, kl, auc in zip(shown["rank"], shown["id"], shown["kl"], shown["auc"], strict=True)
        ],
        "folder": str(page.parent),
        "report": str(page),
        "audit_report": None if section is None else str(section),
    }


def print_lood(found: LoodAudit, page: Path, section: Path | None, seconds: float) -> None:
    """Print what the architecture leaks, the records that would leak most, and the notes.

    The last lines say where the pages are.
    """
    console = plain_console()
    kl, auc = found.summary["kl"], found.summary["auc"]
    console.print(f"Under {harmless(architecture(found.kernel))}, noise {number(found.noise)}:")
    console.print(f"KL: median [bold]{number(kl['median'])}[/bold], largest [bold]{number(kl['max'])}[/bold] nats")
    told = (f"{word} [bold]{number(auc[name], padded=True)}[/bold]" for word, name in (("median", "median"), ("largest", "max")))
    console.print(f"Attack AUC: {', '.join(told)}  (0.5 is a coin toss)")
    names = [name for name in ("rank", "id", "target", "kl", "mean_distance", "auc", "tpr", "audit_rank") if name in found.records]
    rows = found.records.nsmallest(5, "rank")[names].itertuples(index=False)
    cells = [[_cell(value) for value in row] for row in rows]
    print_table("Records that would leak most, by kl", names, cells, console)
    main = next((row for row in found.joined["agreement"] if row["score"] == found.joined["score"]), None) if found.joined else None
    if main is not None and main["spearman"] is not None:
        spearman, low, high = (number(main[name], padded=True) for name in ("spearman", "low", "high"))
        console.print(
            f"Spearman of kl with the audit's {harmless(main['score'])}: [bold]{spearman}[/bold]  (95 % interval {low} to {high})"
        )
    for note in found.notes:
        console.print(f"Note: {ended(harmless(note))}")
    if section is not None:
        console.print(f"Added to the audit: {harmless(section)}")
    console.print(f"Report: {harmless(page)}  ({seconds:.1f} s)")


def _cell(value: object) -> str:
    """Numbers as the page has them, text made visible; "none" where a rank is missing."""
    if value is pd.NA:
        return "none"
    return number(value, padded=True) if isinstance(value, float) else visible(value)
