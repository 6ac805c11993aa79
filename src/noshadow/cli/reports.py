"""Commands that write files of an audit folder for others: report."""

from pathlib import Path
from typing import Annotated

import typer

from noshadow.cli.options import Quiet, app
from noshadow.errors import InputError, named_command, said
from noshadow.visible import visible


@app.command(
    epilog="Example: noshadow report my-audit  ·  noshadow report my-audit --annex  ·  "
    "noshadow report my-audit --show-records images.npy --out for-review.html"
)
@named_command("report")
def report(
    folder: Annotated[Path, typer.Argument(help="An audit folder, or one that `noshadow lood` wrote.")],
    show_records: Annotated[
        str | None,
        typer.Option(
            "--show-records",
            metavar="FILE",
            help="Show contents of the riskiest records from FILE, which holds all training records: images (.npy; .npz with images and, "
            "if you like, ids), texts (.txt, one a line), rows or a column of texts (.csv, .parquet; matched by a column id), or "
            "package.module:function returning them. Without ids the order is that of the training data.",
        ),
    ] = None,
    show_top: Annotated[
        int | None, typer.Option("--show-top", help="Of how many of the riskiest records contents are shown; default 100.")
    ] = None,
    annex: Annotated[
        bool,
        typer.Option(
            "--annex",
            help="Also write annex.html and annex.json beside the report: threat model, attacks run and not run, data and dates, "
            "parameters, results, limits, how to reproduce, digests; laid out for an impact assessment, EDPB Opinion 28/2024 and a "
            "research environment's egress form. It names no record and claims no compliance.",
        ),
    ] = False,
    show_ids: Annotated[
        bool, typer.Option("--show-ids", help="With --annex: name the most exposed record, and those that findings speak of.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="File to write; default report.html in the folder.")] = None,
    quiet: Quiet = False,
) -> None:
    """Rebuild report.html from an audit folder, or lood.html from a folder of lood.

    Model and data are not needed. --annex adds an evidence file for a reviewer, as HTML and JSON.

    A page with record contents is as sensitive as the data, and says so; without --show-records it
    is rebuilt without them.
    """
    from noshadow.report import TOP, write_annex, write_lood_report, write_report
    from noshadow.results import ANNEX, LOOD, load, load_lood

    if show_ids and not annex:
        raise InputError(said("--show-ids must come with --annex; got it alone. The report itself always names records."))
    paths: tuple[Path, ...]
    if (folder / LOOD.manifest).is_file():
        for option, given in (("--show-records", show_records is not None), ("--annex", annex)):
            if given:
                raise InputError(said(f"{option} must come with an audit folder; got '{folder}', which noshadow lood wrote."))
        paths = (write_lood_report(load_lood(folder), out or folder / LOOD.page),)
    else:
        audited = load(folder)
        contents = ids = None
        if show_records is not None:
            from noshadow.cli.contents import contents_of

            contents, ids = contents_of(show_records, audited)
        page = write_report(
            audited, out or folder / "report.html", show_records=contents, show_ids=ids, show_top=TOP if show_top is None else show_top
        )
        beside = write_annex(audited, page.with_name(ANNEX[0]), folder=folder, show_ids=show_ids) if annex else ()
        paths = (page, *beside)
    if not quiet:
        for path in paths:
            typer.echo(visible(path))
