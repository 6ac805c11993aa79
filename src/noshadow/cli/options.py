"""The command line's application, and the options that several commands share."""

import contextlib
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from noshadow import __version__
from noshadow.errors import InputError, said

TRACEBACK = "--traceback"

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="How exposed are the people in the training data of the model you just trained?\n\n"
    "Start with [bold]noshadow demo --out demo-audit[/bold], then audit your own model with [bold]noshadow audit[/bold].",
    epilog="Exit codes: 0 fine · 1 a gate said no · 2 the input is wrong · 3 a numerical failure · "
    "70 an error in noshadow itself · 130 stopped.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"noshadow {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
    traceback: Annotated[
        bool,
        typer.Option(TRACEBACK, help="On an error, print its Python traceback too, as with NOSHADOW_TRACEBACK=1; anywhere in the line."),
    ] = False,
) -> None:
    """Options before any command."""


class TaskChoice(str, Enum):
    """Tasks the command line offers."""

    auto = "auto"
    regression = "regression"
    classification = "classification"
    binary = "binary"


class OutputScale(str, Enum):
    """What a classifier's outputs are."""

    auto = "auto"
    logits = "logits"
    probabilities = "probabilities"


Out = Annotated[Path, typer.Option("--out", help="Folder to write: audit.json, records.parquet, losses.npz, report.html.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an audit that is already there.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of training (demo) and bootstrap intervals.")]


def named_values(given: list[str], option: str) -> dict[str, int | float | str]:
    """Values by name from texts such as max_memory=3e10; a value that is a number becomes one."""
    found: dict[str, int | float | str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or not value or name in found:
            raise InputError(said(f"{option} must be NAME=VALUE, each name once; got '{text}'."))
        found[name] = _number(value)
    return found


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
