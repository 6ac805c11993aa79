"""What ends a command that cannot go on: whose error it is, the exit code and the one sentence."""

import errno
import sysconfig
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path

import typer

from noshadow.errors import InputError, NotApplicable, NumericalError

WRONG_INPUT, NUMERICAL, OWN_ERROR, STOPPED, NOBODY_READS = 2, 3, 70, 130, 141
# click's UsageError and its base, wherever the installed typer keeps them.
USAGE_ERRORS: tuple[type[BaseException], ...] = typer.BadParameter.__mro__[1:3]
_PACKAGE = Path(__file__).parents[1]
_INSTALLED = {"site-packages", "dist-packages"}


def told_failure(error: BaseException, arguments: Sequence[str]) -> tuple[int, str | None]:
    """Return the exit code of whatever a command raised, and what to say.

    The code is never 1, since that means that a gate said no.

    None stands instead of words for a command that did what it should, such as completion in a
    shell.
    """
    if isinstance(error, USAGE_ERRORS):
        return WRONG_INPUT, f"{error.format_message().removesuffix('.')}. Try --help."  # type: ignore[attr-defined]
    if isinstance(error, (InputError, NotApplicable)):
        return WRONG_INPUT, str(error)
    if isinstance(error, NumericalError):
        return NUMERICAL, str(error)
    if isinstance(error, typer.Abort) and isinstance(error.__cause__, EOFError):
        error = error.__cause__  # typer takes the end of any file for a prompt that nobody answers
    if isinstance(error, (typer.Abort, KeyboardInterrupt)):
        resumable = list(arguments[:2]) == ["reference", "train"]
        return STOPPED, "stopped." + (" Every finished model is kept: run the same command to go on." if resumable else "")
    # typer and rich turn one into SystemExit(1)
    if _is_broken_pipe(error) or _is_broken_pipe(error.__context__):
        return NOBODY_READS, "the output was not read to its end."
    return _unforeseen(error, {word.partition(":")[0].partition(".")[0] for word in arguments if ":" in word})


def _is_broken_pipe(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _unforeseen(error: BaseException, modules: Collection[str]) -> tuple[int, str | None]:
    """An exception nobody planned for: of the user's code, of the system, or of ours."""
    story = f"{type(error).__name__}: {error}".strip(": ").removesuffix(".")
    place, is_users = _origin(error, modules)
    if is_users:
        return WRONG_INPUT, f"your code must run without an error; it raised {story}{place}."
    if isinstance(error, SystemExit):
        return 0, None
    if isinstance(error, OSError):
        return WRONG_INPUT, f"the system refused: {story}. Mend that, or choose another place."
    if isinstance(error, MemoryError):
        return WRONG_INPUT, f"there must be enough memory; got {story}. Take a machine with more, or fewer records."
    hint = "Run again with --traceback (or NOSHADOW_TRACEBACK=1) and report what it prints."
    return OWN_ERROR, f"an error in noshadow itself, not in your input: {story}{place}. {hint}"


def _origin(error: BaseException, modules: Collection[str]) -> tuple[str, bool]:
    """Find where the last line of ours or of the user's was, and whether it is the user's.

    What both call (torch, …) belongs to the caller.

    The user's are files outside of installed packages and the standard library, and the `modules`
    named on the command line.
    """
    place, is_users = "", False
    for frame, line in traceback.walk_tb(error.__traceback__):
        file, module = Path(frame.f_code.co_filename), str(frame.f_globals.get("__name__", "")).partition(".")[0]
        ours = file.is_relative_to(_PACKAGE)
        installed = bool(_INSTALLED & set(file.parts)) or file.is_relative_to(sysconfig.get_path("stdlib"))
        theirs = not ours and (module in modules or (file.is_file() and not installed))
        if ours or theirs:
            place, is_users = f" (line {line} of {file.name})", theirs
    return place, is_users
