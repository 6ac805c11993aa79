"""Read record contents for `noshadow report --show-records`.

They come from a file of images, texts or rows, or from the user's own function.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from noshadow._audit import Target, token_gains
from noshadow.checks import Array, InputError, as_array, is_tensor, refuse, said
from noshadow.cli.targets import returned_by
from noshadow.joins import Held, held_by, join, require_agreement
from noshadow.results import Audit
from noshadow.storage.array_files import read_arrays
from noshadow.storage.numpy_files import mapped_npy
from noshadow.storage.parquet_files import parquet_table
from noshadow.storage.reasons import one_kind_of_error, reason_of

ARGUMENT = "--show-records"
SUFFIXES = (".npy", ".npz", ".txt", ".csv", ".parquet")
_IDS = "ids"
SEQUENCES = "language-model"  # the task whose Target is asked for tokens


def contents_of(what: str, audited: Audit) -> tuple[Any, Any]:
    """Read contents as `write_report` takes them, and their ids where they are apart.

    They come from a file, or from `package.module:function`.

    A function takes no arguments and returns the contents, or the Target that `noshadow audit`
    takes, when its training data are (X, y); its targets must then be those of the audit. Of a
    language model the Target gives the tokens that carry what it gained over its base.

    Raises:
        InputError: no such file, one that is not what its suffix says, a function that raises, or a
            Target with other targets.
    """
    path = Path(what)
    if ":" in what and path.suffix not in SUFFIXES:
        return _returned(what, audited)
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


def _returned(what: str, audited: Audit) -> tuple[Any, Any]:
    made = returned_by(what, "return record contents")
    if made is None or isinstance(made, bool):
        refuse(f"the function of {ARGUMENT}", "return record contents", repr(made), "Is a return missing?")
    if not isinstance(made, Target):
        return made, None
    if audited.task == SEQUENCES:
        return token_gains(made.model, made.train, base=made.base, tokenizer=made.tokenizer), made.ids
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
