"""Do what the commands around reference models need beside their runs.

These are columns to keep, status, tables, and what is printed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from noshadow._audit import Target, reference_columns
from noshadow.checks import Array, InputError, said
from noshadow.cli.printing import harmless, sentence
from noshadow.reference import References, status
from noshadow.results import GroundTruth
from noshadow.storage.private_files import write_private
from noshadow.visible import visible


def columns_of(target: Target, train_only: bool) -> Callable[..., Mapping[str, Array]]:
    """Return a function that gives the score columns of a reference model.

    They are on the records it was trained on, as an audit would find them.
    """

    def columns(model: object, indices: Array, seed: int) -> Mapping[str, Array]:
        return reference_columns(target, model, indices, train_only=train_only, seed=seed)

    return columns


def print_status(folder: Path, *, quiet: bool, as_json: bool) -> None:
    """How many models are done, what failed, and how long the rest will take."""
    found = status(folder)
    if as_json:
        typer.echo(json.dumps(asdict(found) | {"folder": str(found.folder), "complete": found.complete}, allow_nan=False))
        return
    if quiet:
        return
    left = "" if found.complete or found.remaining_seconds is None else f", about {_duration(found.remaining_seconds)} left"
    typer.echo(f"{found.done} of {found.planned} models done{left}; {found.bytes / 1e6:,.1f} MB in {visible(folder)}")
    for number, reason in found.failed:
        typer.echo(f"model {number} failed: {visible(reason)} (traceback in {visible(folder / 'failures' / f'{number:05d}.txt')})")
    if found.complete:
        typer.echo(f"Next: noshadow reference score {visible(folder)} --audit AUDIT")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def write_table(table: pd.DataFrame, out: Path | None) -> None:
    """Write one row per record to the file that was asked for."""
    if out is None:
        return
    content = table.to_parquet(index=False) if out.suffix == ".parquet" else table.to_csv(index=False).encode()
    try:
        write_private(out, [content])
    except OSError as error:
        raise InputError(said(f"--out must be writable; got '{out}' ({error}). Choose another place.")) from error


def print_truth(truth: GroundTruth, references: References, audit: Path | None, answered: Sequence[str] = ()) -> None:
    """The attacks, the agreement of scores with them, parity, what is missing and the notes.

    `answered` are the lines of the audit's verdict, which come last.
    """
    console = Console(highlight=False, soft_wrap=True)
    _print_attacks(truth, console)
    if truth.agreement:
        _print_table(_agreement(truth), console)
        console.print(
            "The noise ceiling is the attack's agreement with itself on two halves of the models; a score without noise may pass it."
        )
    if truth.parity is not None:
        console.print(harmless(truth.parity["sentence"]))
    for name, reason in truth.not_applicable.items():
        console.print(f"{harmless(name)}: {sentence(harmless(reason))}")
    for note in truth.notes:
        console.print(f"Note: {sentence(harmless(note))}")
    for line in answered:
        console.print(line)
    console.print(f"Added to {harmless(audit)}, report rebuilt." if audit else f"Read from {harmless(references.folder)}.")


def _print_attacks(truth: GroundTruth, console: Console) -> None:
    levels = sorted({rate.fpr for row in truth.attacks for rate in row.rates}, reverse=True)
    table = Table(title=f"Attacks with {truth.models} reference models on {truth.records} records", title_justify="left")
    for name in ("attack", "on", "AUC", *(f"TPR @ FPR {level:.3g}" for level in levels)):
        table.add_column(name, justify="left" if name in ("attack", "on") else "right", overflow="fold")
    for row in truth.attacks:
        rates = {rate.fpr: f"{rate.tpr:.3f} ({rate.low:.3f}–{rate.high:.3f})" for rate in row.rates}
        ends = f"{row.auc:.3f} ({row.auc_interval[0]:.3f}–{row.auc_interval[1]:.3f})"
        table.add_row(harmless(row.attack), harmless(row.attacked), ends, *(rates.get(level, "") for level in levels))
    _print_table(table, console)


def _print_table(table: Table, console: Console) -> None:
    """Print a table as wide as the terminal; a pipe gets its rows as whole lines."""
    if console.is_terminal:
        console.print(table, soft_wrap=False)
        return
    console.print(f"{table.title}:")
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        told = (f"{column.header} {cell}" for column, cell in zip(table.columns, cells, strict=True) if cell)
        console.print(f"  {', '.join(told)}")


def _agreement(truth: GroundTruth) -> Table:
    """Build a table of Spearman and recall of the top 1 % in the top 5 % against LiRA's d′.

    The best score comes first, and the noise ceiling last.
    """
    fewest = min(row["targets"] for row in truth.agreement)
    rows = [row for row in truth.agreement if row["attack"] == "lira_d" and row["targets"] == fewest]
    ceiling = [row for row in truth.ceiling if row["attack"] == "lira_d"]
    what = "this model" if fewest == 1 else f"{fewest} reference models"
    table = Table(title=f"Agreement with LiRA's d′ ({what})", title_justify="left")
    for name in ("score", "Spearman", "top 1 % in top 5 %"):
        table.add_column(name, justify="left" if name == "score" else "right")
    spearman = {row["score"]: row for row in (*rows, *ceiling) if row["metric"] == "spearman"}
    recall = {row["score"]: row for row in (*rows, *ceiling) if row["metric"] == "recall" and (row["top"], row["keep"]) == (0.01, 0.05)}
    order = sorted(spearman, key=lambda name: (name == "noise ceiling", -(spearman[name]["value"] or -2.0)))
    for name in order:
        table.add_row(harmless(name), _cell(spearman[name]), _cell(recall[name]))
    return table


def _cell(row: Mapping[str, Any]) -> str:
    if row["value"] is None:
        return harmless(row["note"])
    return f"{row['value']:.3f}" + ("" if row["low"] is None else f" ({row['low']:.3f}–{row['high']:.3f})")
