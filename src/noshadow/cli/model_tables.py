"""A model and its tables in files, as the Target that `noshadow audit` runs on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from noshadow._audit import Target
from noshadow.checks import InputError, refuse, said
from noshadow.cli.targets import returned_by
from noshadow.model_files import Columns, load_model, read_model, read_split, require_same_columns
from noshadow.outcomes import FILES
from noshadow.results import Audit
from noshadow.storage.weight_files import SUFFIXES as WEIGHTS


@dataclass(frozen=True)
class Files:
    """What was given for an audit from files; None for what was not."""

    model: Path | None
    train: Path | None
    test: Path | None
    target: str | None
    id: str | None
    group: str | None
    drop: Sequence[str]
    module: str | None
    trust: Sequence[str]
    text: str | None = None

    @property
    def of_language_model(self) -> bool:
        """Whether the model is in a folder, as language models are."""
        return self.model is not None and self.model.is_dir()

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        return [f"--{name}" for name, value in vars(self).items() if value]


def require_one_source(what: str | None, files: Files) -> None:
    """Refuse WHAT beside options of files, neither of them, or a model without its tables."""
    if what is not None and files.given:
        raise InputError(said(f"WHAT must stand without {files.given[0]}; got '{what}'. Pass either WHAT or --model."))
    if what is None and files.model is None:
        raise InputError(said("WHAT or --model must be given; got neither. Pass signals.npz, package.module:function or --model FILE."))
    if what is None:
        # A name with a suffix is that of a file, which its reader looks for.
        if files.model is not None and not files.model.suffix and not files.model.exists():
            refuse("--model", "be a file or a folder that exists", f"'{files.model}'")
        needed = ("--train", "--test") if files.of_language_model else ("--train", "--test", "--target")
        missing = [name for name in needed if name not in files.given]
        if missing:
            listed = " and ".join((", ".join(needed[:-1]), needed[-1]))
            raise InputError(said(f"--model must come with {listed}; got none for {', '.join(missing)}."))
        if files.text is not None and not files.of_language_model:
            raise InputError(said(f"--text must come with the folder of a language model; got --model {files.model}. Leave it out."))


def files_target(files: Files) -> Target:
    """The Target of a model and two tables in files.

    Raises:
        InputError: as `read_model` and `read_split`.
    """
    assert files.model is not None and files.train is not None and files.test is not None and files.target is not None
    held = read_model(files.model, module=_module(files.module), trust=tuple(files.trust))
    columns = Columns(files.target, files.id, files.group, tuple(files.drop))
    train, test = (read_split(path, held, columns, option=name) for path, name in ((files.train, "--train"), (files.test, "--test")))
    require_same_columns(train, test, held)
    return Target(held.model, (train.X, train.y), (test.X, test.y), ids=train.ids, groups=train.groups, test_groups=test.groups)


def of_files(audited: Audit) -> Audit:
    """The audit with a fact that its model came from files, which cannot be trained again."""
    return replace(audited, provenance=audited.provenance | {"source": FILES})


def other_model(path: Path) -> Any:
    """A checkpoint or base in a file: weights stay a path, other formats become their model."""
    return path if path.suffix in WEIGHTS else load_model(path)


def require_untrained(trainings: dict[str, Any]) -> None:
    """Refuse trainings beside a model from a file, which cannot be trained again."""
    asked = [name for name, value in trainings.items() if value is not None and not (name == "reference_models" and isinstance(value, str))]
    if asked:
        option = "--training-option" if asked[0] == "training_options" else f"--{asked[0].replace('_', '-')}"
        hint = "A file cannot be trained again: pass --reference-models FOLDER, or WHAT as package.module:function."
        raise InputError(said(f"{option} must come with a module:function; got --model. {hint}"))


def _module(what: str | None) -> nn.Module | None:
    if what is None:
        return None
    made = returned_by(what, "return an nn.Module")
    if not isinstance(made, nn.Module):
        refuse("--module", "name a function that returns an nn.Module", f"'{what}' returning {type(made).__name__}")
    return made
