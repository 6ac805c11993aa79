"""What ends commands that write an audit: the folder, its pages and the answer."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import typer

from noshadow.cli.printing import print_audit, summary
from noshadow.report import write_annex, write_report
from noshadow.results import ANNEX, Audit, require_writable_folder


def finished(run: Callable[[], Audit], out: Path, *, force: bool, quiet: bool, as_json: bool) -> None:
    """Refuse a bad folder before any work; then audit, save, write the report, say the answer."""
    require_writable_folder(out, overwrite=force)
    started = time.perf_counter()
    audited = run()
    folder = audited.save(out, overwrite=force)
    page = write_report(audited, folder / "report.html")
    if as_json:
        typer.echo(json.dumps(summary(audited, page), allow_nan=False))
    elif not quiet:
        print_audit(audited, page, time.perf_counter() - started)


def written_again(audited: Audit, folder: Path) -> Path:
    """Save an audit that gained evidence into its folder, and write its pages anew.

    An annex is written again where there was one, without ids: it spoke of the audit as it was.
    Returns the path of the report.
    """
    had_annex = (folder / ANNEX[0]).is_file()
    saved = audited.save(folder, overwrite=True)
    if had_annex:
        write_annex(audited, saved / ANNEX[0], folder=saved)
    return write_report(audited, saved / "report.html")
