"""Read record contents for `noshadow report --show-records`.

They come from a file of images, texts or rows, or from the user's own function.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from noshadow._audit import Target, token_gains
from noshadow._audit.given_language_models import why_no_base
from noshadow.checks import Array, InputError, as_array, is_tensor, refuse, said
from noshadow.cli.model_tables import Files
from noshadow.cli.model_texts import texts_target
from noshadow.cli.targets import base_of, returned_by
from noshadow.joins import Held, held_by, join, require_agreement
from noshadow.results import Audit, TokenGains
from noshadow.storage.array_files import read_arrays
from noshadow.storage.numpy_files import mapped_npy
from noshadow.storage.parquet_files import parquet_table
from noshadow.storage.reasons import one_kind_of_error, reason_of

ARGUMENT = "--show-records"
SUFFIXES = (".npy", ".npz", ".txt", ".csv", ".parquet")
_IDS = "ids"
TEXTS = (".jsonl",)
SEQUENCES = "language-model"  # the task whose Target is asked for tokens


@dataclass(frozen=True)
class Beside:
    """What --show-records is read with: a language model's folder, its base, and names of columns.

    None for what was not given.
    """

    model: Path | None = None
    base: str | None = None
    text: str | None = None
    target: str | None = None
    id: str | None = None


def contents_of(what: str, audited: Audit, beside: Beside | None = None) -> tuple[Any, Any]:
    """Read contents as `write_report` takes them, and their ids where they are apart.

    They come from a file, or from `package.module:function`.

    A function takes no arguments and returns the contents, or the Target that `noshadow audit`
    takes, when its training data are (X, y); its targets must then be those of the audit. Of a
    language model the Target gives the tokens that carry what it gained over its base, and so does
    a file of texts beside the model's folder.

    Raises:
        InputError: no such file, one that is not what its suffix says, a function that raises, or a
            Target with other targets.
    """
    path, given = Path(what), beside or Beside()
    is_function = ":" in what and path.suffix not in (*SUFFIXES, *TEXTS)
    _require_alike(given, audited, is_function)
    if given.model is not None:
        files = Files(given.model, path, None, given.target, given.id, None, (), None, (), given.text)
        target, base = texts_target(files, given.base, ARGUMENT)
        return _gains(target, base), target.ids
    if is_function:
        return _returned(what, audited, given.base)
    if path.suffix not in SUFFIXES:
        refuse(ARGUMENT, f"end in {', '.join(SUFFIXES)} or name a package.module:function", f"'{what}'")
    if not path.is_file():
        refuse(ARGUMENT, "be a file that exists", f"'{what}'")
    if path.suffix == ".npz":
        return _archive(path)
    try:
        return _read(path), None
    except (ValueError, OSError) as error:
        raise InputError(said(f"{ARGUMENT} must be a readable {path.suffix} file; got '{what}' ({reason_of(error)}).")) from error


def _require_alike(given: Beside, audited: Audit, is_function: bool) -> None:
    """Refuse a model or a base where nothing would be asked of it."""
    named = [f"--{name}" for name, value in vars(given).items() if value is not None]
    if named and audited.task != SEQUENCES:
        refuse(named[0], "come with the audit of a language model", f"one of a {audited.task}")
    if given.model is not None and is_function:
        refuse("--model", f"be left out beside a function in {ARGUMENT}", f"'{given.model}'", "The function returns the model.")
    if given.model is not None and not given.model.is_dir():
        refuse("--model", "be the folder of the audited language model, or of its adapters", f"'{given.model}'")
    needs = [name for name in named if name not in ("--model", *(["--base"] if is_function else []))]
    if needs and given.model is None:
        refuse(needs[0], f"come with --model FOLDER and a file of texts in {ARGUMENT}", "it without a model")


def _gains(target: Target, base: object) -> TokenGains:
    """What the model gained on each token; who does not say what over is told how to."""
    if base is None and (why := why_no_base(target.model)) is not None:
        hint = "Pass --base FOLDER, or --base package.module:function."
        refuse("--base", "be the model that the fine-tuning started from", f"none ({why})", hint)
    return token_gains(target.model, target.train, base=base, tokenizer=target.tokenizer)


def _returned(what: str, audited: Audit, base: str | None) -> tuple[Any, Any]:
    made = returned_by(what, "return record contents")
    if made is None or isinstance(made, bool):
        refuse(f"the function of {ARGUMENT}", "return record contents", repr(made), "Is a return missing?")
    if not isinstance(made, Target):
        return made, None
    if audited.task == SEQUENCES:
        if base is not None and made.base is not None:
            refuse("--base", "come from one place", f"'{base}' beside that of the Target", "Leave one of the two out.")
        return _gains(made, made.base if base is None else base_of(base)), made.ids
    if not isinstance(made.train, (tuple, list)) or len(made.train) != 2:
        got = f"one with {type(made.train).__name__}"
        refuse(f"the Target of {ARGUMENT}", "hold its training data as (X, y)", got, "Return the contents themselves.")
    _require_same_targets(made.train[1], made.ids, audited)
    return made.train[0], made.ids


def _require_same_targets(y: Any, ids: Any, audited: Audit) -> None:
    """Refuse contents whose targets are not those of the audit.

    Rows of contents are paired by position when they have no ids, and the targets beside them tell
    whether that is right.
    """
    targets = None if y is None else as_array(y, "y of the Target") if is_tensor(y) else np.asarray(y)
    if targets is None or targets.ndim not in (1, 2) or len(targets) != len(audited.records):
        return
    if targets.dtype.kind not in "biuf":
        # as scikit-learn numbers classes
        targets = np.unique(targets.astype(str), return_inverse=True)[1].reshape(targets.shape)
    theirs = held_by(audited.records)
    found = join(Held(theirs.ids if ids is None else np.asarray(ids), targets), theirs)
    if found.relabelled is not None:
        hint = "Are the rows in another order? Return the data that were audited."
        require_agreement(found, f"the Target of {ARGUMENT}", "the audit", hint)


def _archive(path: Path) -> tuple[Array, Array | None]:
    arrays = read_arrays(path)
    others = [name for name in arrays if name != _IDS]
    if len(others) != 1:
        got = f"'{path}' with {', '.join(sorted(arrays)) or 'nothing'}"
        refuse(ARGUMENT, "hold one array of contents and, if you like, ids", got, "Save it with np.savez(path, images=…, ids=…).")
    return arrays[others[0]], arrays.get(_IDS)


def _read(path: Path) -> Any:
    if path.suffix == ".npy":
        return mapped_npy(path)
    if path.suffix == ".txt":
        return path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    if path.suffix == ".csv":
        # As text: contents are shown as they stand in the file, ids such as 007 among them.
        with one_kind_of_error():
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
        if not isinstance(table.index, pd.RangeIndex):
            raise ValueError("its rows have more fields than its first line has names")
        return table
    return parquet_table(path)
