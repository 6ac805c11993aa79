"""The command line: parse, call, write.

Exit codes are 0 for fine, 1 when a gate said no, 2 for wrong input, 3 for a numerical failure and
70 for an error of our own.
"""

import io
import os
import sys
import traceback

from noshadow.cli import audits, comparisons, lood, references, reports
from noshadow.cli.failures import NOBODY_READS, STOPPED, told_failure
from noshadow.cli.options import TRACEBACK, app
from noshadow.visible import visible

__all__ = ["app", "audits", "comparisons", "lood", "main", "references", "reports"]


def main() -> None:
    """Run a command; whatever it raises becomes an exit code and one sentence.

    The traceback comes before the sentence on request.
    """
    arguments = [word for word in sys.argv[1:] if word != TRACEBACK]
    with_traceback = len(arguments) < len(sys.argv) - 1 or os.environ.get("NOSHADOW_TRACEBACK", "0") not in ("", "0")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a console without our characters gets their codes
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(arguments or ["--help"], prog_name="noshadow", standalone_mode=False)
        if code == STOPPED:  # what typer makes of an interrupt
            raise KeyboardInterrupt
        sys.stdout.flush()
    except BaseException as error:
        code, sentence = told_failure(error, arguments)
        if sentence is None:
            raise
        if code == NOBODY_READS:
            # The flush at exit must not fail once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if with_traceback:
            print(visible("".join(traceback.format_exception(error)), keep="\n"), end="", file=sys.stderr)
        print(f"noshadow: {visible(' '.join(sentence.split()))}", file=sys.stderr)
    sys.exit(code)
