"""The command for two audits: compare."""

import json
from pathlib import Path
from typing import Annotated

import typer

from noshadow.cli.options import Json, Quiet, app
from noshadow.errors import InputError, named_command, said


@app.command("compare", epilog="Example: noshadow compare before after --out change.html")
@named_command("compare")
def show_comparison(
    before: Annotated[Path, typer.Argument(help="The first audit folder.")],
    after: Annotated[Path, typer.Argument(help="The second audit folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="Write the comparison as one HTML file.")] = None,
    fpr: Annotated[float | None, typer.Option("--fpr", help="Rate to read both TNRs at; default the larger of the two audits'.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the bootstrap.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Say what changed between two audits, and whether it is more than noise.

    Model risk with the interval of the difference, records entering and leaving the top 1 %, rank
    correlation, findings gained and lost. Two audits of different data: what differs, and what can
    still be compared.
    """
    from noshadow._compare import compare
    from noshadow.cli.comparison_printing import print_comparison
    from noshadow.report import write_comparison
    from noshadow.results import load

    if out is not None and out.suffix not in (".html", ".htm"):
        raise InputError(said(f"--out must end in .html; got '{out}'. For machines there is --json."))
    found = compare(load(before), load(after), fpr="auto" if fpr is None else fpr, seed=seed)
    if out is not None:
        write_comparison(found, out)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
    elif not quiet:
        print_comparison(found, out)
