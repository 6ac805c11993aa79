"""Commands that write files of an audit folder for others: report, export."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from noshadow.arguments import SHOW_TOP
from noshadow.cli.file_options import IdColumn, TargetColumn, TextColumn
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
            "package.module:function returning them, or the Target of a language model: its tokens, with what it gained on each over its "
            "base. With --model FOLDER the file of the training texts (.jsonl, .csv, .parquet, .txt) shows the same. Without ids the "
            "order is that of the training data.",
        ),
    ] = None,
    model_folder: Annotated[
        Path | None,
        typer.Option("--model", metavar="FOLDER", help="The audited language model or adapters, whose tokens --show-records then shows."),
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="MODEL", help="Base of the audited language model, as --base of the audit.")
    ] = None,
    text_column: TextColumn = None,
    target_column: TargetColumn = None,
    id_column: IdColumn = None,
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
    from noshadow.report import write_annex, write_lood_report, write_report
    from noshadow.results import ANNEX, LOOD, load, load_lood

    if show_ids and not annex:
        raise InputError(said("--show-ids must come with --annex; got it alone. The report itself always names records."))
    read_with: dict[str, Any] = {"model": model_folder, "base": base, "text": text_column, "target": target_column, "id": id_column}
    if show_records is None and any(value is not None for value in read_with.values()):
        raise InputError(said("--model, --base and columns must come with --show-records FILE; got them without. Name the training texts."))
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
            from noshadow.cli.contents import Beside, contents_of

            contents, ids = contents_of(show_records, audited, Beside(**read_with))
        page = write_report(
            audited, out or folder / "report.html", show_records=contents, show_ids=ids, show_top=SHOW_TOP if show_top is None else show_top
        )
        beside = write_annex(audited, page.with_name(ANNEX[0]), folder=folder, show_ids=show_ids) if annex else ()
        paths = (page, *beside)
    if not quiet:
        for path in paths:
            typer.echo(visible(path))


class TableFormat(str, Enum):
    """Formats that the record table is exported in."""

    csv = "csv"
    parquet = "parquet"
    json = "json"


class Order(str, Enum):
    """Orders of the rows."""

    rank = "rank"
    row = "row"


@app.command(
    epilog="Example: noshadow export my-audit --format csv --out records.csv  ·  noshadow export my-audit --top 100 --out top.json"
)
@named_command("export")
def export(
    folder: Annotated[Path, typer.Argument(help="An audit folder.")],
    table_format: Annotated[
        TableFormat | None,
        typer.Option("--format", help="csv (with NAME.columns.csv beside it), parquet or json; default by the suffix of --out, or csv."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write; default beside the folder, with its name and the format as suffix.")
    ] = None,
    order: Annotated[Order, typer.Option("--order", help="Riskiest first, or as the records were given.")] = Order.rank,
    top: Annotated[int | None, typer.Option("--top", min=1, help="Only the records with the best ranks, that many.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is already there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write one row a training record, every column with its meaning: ids, scores, rates, ranks.

    The file names who was in the training data: it is as sensitive as the data.

    CSV holds what the columns mean in a second file, NAME.columns.csv; Parquet in the metadata of
    its fields; JSON under columns. Texts that a spreadsheet might run as a formula get an
    apostrophe in front (remove one from the beginning of each text to undo it); numbers are never
    changed. Missing values are empty cells or null, infinite ones inf and -inf.
    """
    from noshadow.record_files import write_records
    from noshadow.results import load

    chosen = "auto" if table_format is None else table_format.value
    if out is None:
        place = folder.resolve()
        out = place.with_name(f"{place.name}.{'csv' if table_format is None else chosen}")
    if folder.resolve() in out.resolve().parents:
        raise InputError(said(f"--out must lie outside of the audit folder, which is replaced whole; got '{out}' inside '{folder}'."))
    written = write_records(load(folder), out, format=chosen, order=order.value, top=top, overwrite=force)
    if not quiet:
        for path in written:
            typer.echo(visible(path))
