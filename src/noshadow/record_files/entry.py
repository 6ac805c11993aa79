"""Write the record table to a file: checked, ordered, private and whole."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd

from noshadow.checks import InputError, named_in_errors, refuse, require_choice, require_whole, said
from noshadow.record_files.described import described
from noshadow.record_files.formats import WRITERS, write_meanings
from noshadow.results import Audit, require_audit
from noshadow.storage.private_files import written_whole

FORMATS = tuple(WRITERS)
ORDERS = ("rank", "row")
MEANINGS = ".columns.csv"


@named_in_errors
def write_records(
    audit: Audit, path: str | Path, *, format: str = "auto", order: str = "rank", top: int | None = None, overwrite: bool = False
) -> tuple[Path, ...]:
    """Write one row a training record, every column with its meaning.

    Numbers are written so that reading them back gives the same float64. Missing values are empty
    cells in CSV and null in Parquet and JSON. Infinite ones are inf and -inf in CSV, infinite in
    Parquet, and the texts "inf" and "-inf" in JSON, which has none.

    CSV: texts (ids, labels, groups) are quoted. One that a spreadsheet might run as a formula, or
    that begins with an apostrophe, gets one apostrophe in front: white space or not, then = + - or
    @ (full width, too), or a tab, a line end or NUL first. To undo it, remove one apostrophe from
    the beginning of each text that has one. Numbers are never changed.

    Args:
        audit: what `noshadow.audit` returned or `noshadow.load` read.
        path: the file to write. Beside a CSV file, `NAME.columns.csv` says what the columns mean;
            Parquet keeps it in the metadata of its fields, JSON under `columns`.
        format: "csv", "parquet" or "json"; "auto" by the suffix of `path`.
        order: "rank", the riskiest first, or "row", as the records were given.
        top: keep the records with the best ranks only, that many.
        overwrite: replace files that are there.

    Returns:
        Paths of the files written, for their owner's eyes alone.

    Raises:
        InputError: `audit` is not an Audit, a file is there already (unless `overwrite`), the
            suffix is not that of the format, ranks are asked for where there are none, or the
            path cannot be written.

    Cost: O(n log n) in the number of records; a million take seconds.

    Example:
        >>> import noshadow as ns
        >>> ns.write_records("audit-folder", "records.csv")
        Traceback (most recent call last):
        noshadow.errors.InputError: write_records: audit must be an Audit; got str. Read a folder with noshadow.load first.
    """  # noqa: W505 - doctest compares the message on one line
    require_audit(audit)
    target = Path(path)
    kind = _format_of(target, format)
    require_choice(order, ORDERS, "order")
    if top is not None:
        top = require_whole(top, "top", low=1)
    written = (target, *([target.with_suffix(MEANINGS)] if kind == "csv" else []))
    _require_free(written, overwrite)
    found = described(audit, _ordered(audit, order, top), order)
    try:
        # Both are written before either takes its place.
        with ExitStack() as unfinished:
            for place, writer in zip(written, (WRITERS[kind], write_meanings), strict=False):
                writer(found, unfinished.enter_context(written_whole(place)))
    except UnicodeEncodeError as error:
        raise InputError(said(f"ids, labels and groups must be text that UTF-8 can hold; got {error.object[:40]!a}.")) from error
    except OSError as error:
        raise InputError(said(f"path must be writable; got '{target}' ({error}). Choose another place.")) from error
    return written


def _format_of(path: Path, format: str) -> str:
    require_choice(format, ("auto", *FORMATS), "format")
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS or format not in ("auto", kind):
        wanted = " or ".join(f".{name}" for name in (FORMATS if format == "auto" else (format,)))
        refuse("path", f"end in {wanted}", f"'{path}'", "The suffix says which format it is.")
    return kind


def _require_free(paths: tuple[Path, ...], overwrite: bool) -> None:
    for path in paths:
        if path.is_dir():
            refuse("path", "be a file", f"the folder '{path}'")
        if path.exists() and not overwrite:
            refuse("path", "not exist yet", f"'{path}'", "Choose another name, or overwrite it (overwrite=True, --force).")


def _ordered(audit: Audit, order: str, top: int | None) -> pd.DataFrame:
    table = audit.records
    if "rank" not in table:
        if order == "rank" or top is not None:
            refuse("order and top", "come with ranked records", "an audit without ranks", "Pass order='row' (--order row) and no top.")
        return table
    ranks = table["rank"].to_numpy()
    kept = np.arange(len(ranks)) if top is None else np.flatnonzero(ranks <= top)
    found: pd.DataFrame = table.iloc[kept[np.argsort(ranks[kept], kind="stable")] if order == "rank" else kept]
    return found
