"""The command line: parse, call, write. Exit 0 fine, 1 a gate said no, 2 wrong input, 3 a numerical failure."""

import sys

import typer

from noshadow.cli import audits, comparisons, lood, references
from noshadow.cli.options import app
from noshadow.errors import InputError, NumericalError

# click's UsageError, wherever the installed typer keeps it.
USAGE_ERROR: type[BaseException] = typer.BadParameter.__bases__[0]

__all__ = ["app", "audits", "comparisons", "lood", "main", "references"]


def main() -> None:
    """Run a command and turn the house's exceptions into exit codes and one sentence."""
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], prog_name="noshadow", standalone_mode=False))
    except USAGE_ERROR as error:
        _fail(f"{error.format_message().removesuffix('.')}. Try --help.", 2)  # type: ignore[attr-defined]
    except InputError as error:
        _fail(error, 2)
    except NumericalError as error:
        _fail(error, 3)
    except (typer.Abort, KeyboardInterrupt):
        resumable = sys.argv[1:3] == ["reference", "train"]
        _fail("stopped." + (" Every finished model is kept: run the same command to go on." if resumable else ""), 130)


def _fail(error: Exception | str, code: int) -> None:
    print(f"noshadow: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(code)
