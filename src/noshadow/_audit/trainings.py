"""What an audit was asked to train beside the audited model, checked before any work."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from noshadow.checks import TRAINING_OPTIONS, InputError, refuse, require_number, require_whole, said
from noshadow.reference import Recipe, References
from noshadow.traces import GivenTraces

# Of train_references: where and how models are trained. What is trained and read is the audit's.
_TRAINS = "f(indices, seed) trains a model on those rows of train followed by test"


@dataclass(frozen=True, eq=False)
class Trainings:
    """Models to train as evidence, each kind None where it is not asked for.

    Attributes:
        folds: number of folds of the training records.
        reference_models: number of models on halves of all records, or the folder of such a set.
        short_references: number of models that stop early.
        train_fn: trains a model on given rows. short_fn: the same, up to where short references
            stop.
        stop: that place as a share of the whole training.
        work: folder in which trainings are kept and resumed; None for one that is removed.
        options: of `train_references`.
    """

    folds: int | None = None
    reference_models: int | Path | None = None
    short_references: int | None = None
    train_fn: Callable[..., Any] | None = None
    short_fn: Callable[..., Any] | None = None
    stop: float = 1.0
    work: Path | None = None
    options: Mapping[str, Any] | None = None


def checked_trainings(
    *,
    folds: object,
    reference_models: object,
    short_references: object,
    stop: object,
    train_fn: object,
    work: object,
    training_options: object,
    traced: tuple[int, int] | None,
    layer: str = "auto",
) -> Trainings:
    """What is to be trained, as plain values.

    Args:
        folds, reference_models, short_references, stop, train_fn, work, training_options: of
            `audit`.
        traced: the best epoch of the audited training and the number of its epochs, None where loss
            traces do not show it.
        layer: of `audit`; other models are read at their own output alone.

    Raises:
        InputError: a count out of its range, nothing to train with, nowhere to stop, or options of
            no training.
    """
    counts: dict[str, Any] = {
        "folds": None if folds is None else require_whole(folds, "folds", low=2),
        "reference_models": _set_or_count(reference_models),
        "short_references": None if short_references is None else require_whole(short_references, "short_references", low=1),
    }
    trained = [name for name, value in counts.items() if isinstance(value, int)]
    wanted = [name for name, value in counts.items() if value is not None]
    if wanted and layer != "auto":
        refuse("layer", f"be 'auto' with {' and '.join(wanted)}, whose models are read at their own output", repr(layer))
    options = _checked_options(training_options, trained)
    if short_references is None and stop is not None:
        refuse("stop", "come with short_references", repr(stop))
    if trained:
        _require_train_fn(train_fn, trained)
    place = None if work is None else _folder(work, "work")
    asked = Trainings(**counts, train_fn=train_fn if callable(train_fn) else None, work=place, options=options)
    return asked if short_references is None else _stopping(asked, stop, traced)


def traced_epochs(traces: GivenTraces | None) -> tuple[int, int] | None:
    """The best epoch of a traced training and the number of its epochs.

    None where no loss of an unseen record was traced, or nothing but the start.
    """
    if traces is None or traces.best is None or traces.losses.shape[1] < 2:
        return None
    return traces.best, traces.losses.shape[1] - 1


def _set_or_count(given: object) -> int | Path | None:
    if given is None:
        return None
    if isinstance(given, References):  # what train_references and load_references return
        return given.folder
    if not isinstance(given, (str, Path)):
        return require_whole(given, "reference_models", low=1)
    path = _folder(given, "reference_models")
    if not path.is_dir():
        refuse("reference_models", "be a number of models, or the folder of such a set", f"'{path}', where nothing is")
    return path


def _folder(given: object, argument: str) -> Path:
    if not isinstance(given, (str, Path)) or not str(given):
        refuse(argument, "be the path of a folder", repr(given))
    path = Path(given)
    if path.exists() and not path.is_dir():
        refuse(argument, "be a folder", f"the file '{path}'")
    return path


def _checked_options(given: object, trained: list[str]) -> dict[str, Any]:
    if given is None or given == {}:
        return {}
    if not isinstance(given, Mapping):
        refuse("training_options", "be a dictionary of options", type(given).__name__)
    unknown = [str(name) for name in given if name not in TRAINING_OPTIONS]
    if unknown:
        refuse("training_options", f"name options of train_references ({', '.join(TRAINING_OPTIONS)})", ", ".join(unknown))
    if not trained:
        refuse("training_options", "come with folds, reference_models or short_references", ", ".join(map(str, given)))
    return {str(name): value for name, value in given.items()}


def _require_train_fn(train_fn: object, trained: list[str]) -> None:
    if callable(train_fn):
        return
    got = "none" if train_fn is None else type(train_fn).__name__
    refuse(
        "train_fn",
        f"be given with {' and '.join(trained)}",
        got,
        f"Pass train_fn=f where {_TRAINS}; of a command, ns.Target(…, train_fn=f) holds it.",
    )


def _stopping(asked: Trainings, stop: object, traced: tuple[int, int] | None) -> Trainings:
    """The same with a function that stops where short references do."""
    train_fn = asked.train_fn
    assert train_fn is not None
    epochs = train_fn.epochs if isinstance(train_fn, Recipe) else None if traced is None else traced[1]
    share = _share(stop, epochs, traced)
    if isinstance(train_fn, Recipe):
        epoch = max(round(share * train_fn.epochs), 1)
        return replace(asked, short_fn=replace(train_fn, stop=epoch), stop=epoch / train_fn.epochs)
    try:
        signature = inspect.signature(train_fn)
        signature.bind(None, None, stop=share)
    except TypeError as error:
        rule = "take a third argument 'stop' for short_references, the share of the training after which it ends"
        raise InputError(said(f"train_fn must {rule}; got a function of {signature}. Or pass a Recipe.")) from error
    except ValueError:
        pass  # a callable without a readable signature: the call itself will tell
    return replace(asked, short_fn=partial(train_fn, stop=share), stop=share)


def _share(stop: object, epochs: int | None, traced: tuple[int, int] | None) -> float:
    """The share of the training after which it stops, in (0, 1]."""
    if stop is None:
        if traced is None:
            rule = "be given unless loss_traces hold losses of unseen records, which show the best epoch"
            refuse("stop", rule, "None", "Pass stop=0.1 for a tenth of the training.")
        return max(traced[0], 1) / traced[1]
    if isinstance(stop, int) and not isinstance(stop, bool):
        if epochs is None:
            rule = "be a share of the training, above 0 and below 1, where nobody says how many epochs it has"
            refuse("stop", rule, stop, "Or pass a Recipe as train_fn.")
        if not 1 <= stop <= epochs:
            refuse("stop", f"be one of the {epochs} epochs of the training, or a share of it below 1", stop)
        return stop / epochs
    return require_number(stop, "stop", low=0, high=1, low_open=True, high_open=True)
