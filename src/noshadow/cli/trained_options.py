"""Options of `noshadow audit` for models that are trained as evidence."""

from pathlib import Path
from typing import Annotated, Any

import typer

from noshadow.cli.options import named_values
from noshadow.errors import InputError, said
from noshadow.sizing import ENOUGH_FOR_TWO, SIZED_RECORDS

Folds = Annotated[
    int | None,
    typer.Option("--folds", min=2, help="Train this many models with the target's train_fn, each without one fold of the training data."),
]
ReferenceModels = Annotated[
    str | None,
    typer.Option(
        "--reference-models",
        metavar="K|FOLDER",
        help="Train this many models on random halves of train and test; four give rates with intervals "
        f"from {SIZED_RECORDS} training records on, two from {ENOUGH_FOR_TWO:,} on. Or the folder of a set that "
        "`noshadow reference train` made for this model.",
    ),
]
ShortReferences = Annotated[
    int | None,
    typer.Option("--short-references", min=1, help="Train this many models on random halves, each stopped early (--stop)."),
]
Stop = Annotated[
    str | None,
    typer.Option(
        "--stop",
        metavar="SHARE|EPOCH",
        help="Where short references stop: a share of the training such as 0.1, or an epoch; default the best epoch of --loss-traces.",
    ),
]
Work = Annotated[
    Path | None,
    typer.Option(
        "--work",
        file_okay=False,
        help="Folder of the models trained as evidence: run again after a stop, and it goes on; default OUT-work beside --out.",
    ),
]
TrainingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--training-option",
        metavar="NAME=VALUE",
        help="How models are trained: --training-option workers=4, threads=2, backend=ray, address=…, engine=one-by-one; repeatable.",
    ),
]


def training_arguments(
    *,
    folds: int | None,
    reference_models: str | None,
    short_references: int | None,
    stop: str | None,
    work: Path | None,
    training_option: list[str] | None,
) -> dict[str, Any]:
    """The options as arguments of `audit`; those that were not given are None."""
    return {
        "folds": folds,
        "reference_models": int(reference_models) if reference_models and reference_models.isdigit() else reference_models,
        "short_references": short_references,
        "stop": None if stop is None else _place(stop),
        "work": work,
        "training_options": named_values(training_option or [], "--training-option") or None,
    }


def require_nothing_trained(arguments: dict[str, Any], what: str) -> None:
    """Refuse options of trainings beside a file of signals, which cannot train a model."""
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        option = "--training-option" if given[0] == "training_options" else f"--{given[0].replace('_', '-')}"
        raise InputError(said(f"{option} must come with a module:function; got '{what}'. A file of signals cannot train a model."))


def _place(text: str) -> int | float:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise InputError(said(f"--stop must be a share of the training or an epoch; got '{text}'. Pass --stop 0.1 for a tenth.")) from None
