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

from noshadow._answer import per_thousand, per_thousand_between
from noshadow._audit import Target, reference_columns
from noshadow._glance import Line, ended
from noshadow.checks import Array, InputError, said
from noshadow.cli.printing import harmless, plain_console, print_lines, print_table
from noshadow.formats import number
from noshadow.record_files.harmless_text import harmless_cell
from noshadow.reference import References, status
from noshadow.results import GroundTruth, Interval
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
    for failed, reason in found.failed:
        typer.echo(f"model {failed} failed: {visible(reason)} (traceback in {visible(folder / 'failures' / f'{failed:05d}.txt')})")
    if found.complete:
        typer.echo(f"Next: noshadow reference score {visible(folder)} --audit AUDIT")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def write_table(table: pd.DataFrame, out: Path | None) -> None:
    """Write one row per record to the file that was asked for; texts in a CSV are harmless."""
    if out is None:
        return
    safe = table.map(lambda cell: harmless_cell(cell) if isinstance(cell, str) else cell)
    content = table.to_parquet(index=False) if out.suffix == ".parquet" else safe.to_csv(index=False).encode()
    try:
        write_private(out, [content])
    except OSError as error:
        raise InputError(said(f"--out must be writable; got '{out}' ({error}). Choose another place.")) from error


def print_truth(truth: GroundTruth, references: References, audit: Path | None, answered: Sequence[Line] = ()) -> None:
    """The attacks, the agreement of scores with them, parity, what is missing and the notes.

    `answered` are the lines of the audit's verdict, which come last.
    """
    console = plain_console()
    _print_attacks(truth, console)
    if truth.agreement:
        _print_agreement(truth, console)
        console.print(
            "The noise ceiling is the attack's agreement with itself on two halves of the models; a score without noise may pass it."
        )
    if truth.parity is not None:
        console.print(harmless(truth.parity["sentence"]))
    for name, reason in truth.not_applicable.items():
        console.print(f"{harmless(name)}: {ended(harmless(reason))}")
    for note in truth.notes:
        console.print(f"Note: {ended(harmless(note))}")
    print_lines(answered, console)
    console.print(f"Added to {harmless(audit)}, report rebuilt." if audit else f"Read from {harmless(references.folder)}.")


def _print_attacks(truth: GroundTruth, console: Console) -> None:
    """One row an attack: its AUC, and how many of a thousand people it recognises at each level."""
    levels = sorted({rate.fpr for row in truth.attacks for rate in row.rates}, reverse=True)
    names = ("attack", "on", "AUC", *(f"TPR at FPR {number(level)}" for level in levels))
    rows = []
    for row in truth.attacks:
        rates = {rate.fpr: f"{per_thousand(rate.tpr)} ({per_thousand_between((rate.low, rate.high))})" for rate in row.rates}
        auc = _with_ends(row.auc, row.auc_interval)
        rows.append([visible(row.attack), visible(row.attacked), auc, *(rates.get(level, "") for level in levels)])
    title = f"Attacks with {number(truth.models)} reference models on {number(truth.records)} records"
    print_table(title, names, rows, console, left=("attack", "on"))


def _print_agreement(truth: GroundTruth, console: Console) -> None:
    """A table of Spearman and recall of the top 1 % in the top 5 % against LiRA's d′.

    The best score comes first, and the noise ceiling last.
    """
    fewest = min(row["targets"] for row in truth.agreement)
    rows = [row for row in truth.agreement if row["attack"] == "lira_d" and row["targets"] == fewest]
    ceiling = [row for row in truth.ceiling if row["attack"] == "lira_d"]
    what = "this model" if fewest == 1 else f"{number(fewest)} reference models"
    spearman = {row["score"]: row for row in (*rows, *ceiling) if row["metric"] == "spearman"}
    recall = {row["score"]: row for row in (*rows, *ceiling) if row["metric"] == "recall" and (row["top"], row["keep"]) == (0.01, 0.05)}
    order = sorted(spearman, key=lambda name: (name == "noise ceiling", -(spearman[name]["value"] or -2.0)))
    cells = [[visible(name), _cell(spearman[name]), _cell(recall[name])] for name in order]
    print_table(f"Agreement with LiRA's d′ ({what})", ("score", "Spearman", "top 1 % in top 5 %"), cells, console, left=("score",))


def _cell(row: Mapping[str, Any]) -> str:
    if row["value"] is None:
        return visible(row["note"])
    return _with_ends(row["value"], None if row["low"] is None else (row["low"], row["high"]))


def _with_ends(value: float, ends: Interval | None) -> str:
    told = number(value, padded=True)
    return told if ends is None else f"{told} ({number(ends[0], padded=True)} to {number(ends[1], padded=True)})"
