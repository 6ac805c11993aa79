"""What ends `noshadow demo` and `noshadow audit`: the folder, the report and the answer."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import typer

from noshadow.cli.printing import print_audit, summary
from noshadow.report import write_report
from noshadow.results import Audit, require_writable_folder


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
