"""The user's own function, found, called and checked."""

import contextlib
import importlib
import sys
import traceback
from pathlib import Path

from noshadow._audit import Target
from noshadow.checks import InputError, open_to_names, said
from noshadow.storage.weight_files import SUFFIXES


def target_of(what: str) -> Target:
    """Return what `package.module:function` returns, a Target.

    Anything else is refused in one sentence.
    """
    made = returned_by(what, "return a noshadow.Target")
    if not isinstance(made, Target):
        raise InputError(said(f"'{what}' must return a noshadow.Target; got {type(made).__name__}. Return Target(model, train, test)."))
    return made


def base_of(what: str) -> object:
    """The base model that `package.module:function` returns.

    The path of its weights, or of its folder, stays one.
    """
    if ":" not in what or Path(what).suffix in SUFFIXES or Path(what).is_dir():
        return Path(what)
    made = returned_by(what, "return the base model")
    if made is None:
        raise InputError(said(f"--base must name a function that returns a model; got '{what}' returning None. Is a return missing?"))
    return made


def returned_by(what: str, promise: str) -> object:
    """Return what `package.module:function` returns.

    What keeps it from doing so is told in one sentence.
    """
    module_name, _, function_name = what.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    # What the user's code prints is not the result: it may not mix with --json on standard output.
    with contextlib.redirect_stdout(sys.stderr), open_to_names():
        try:
            function = getattr(importlib.import_module(module_name), function_name)
        except (Exception, SystemExit) as error:
            raise InputError(said(f"'{what}' must be importable from here; got {_story(error)}. Give package.module:function.")) from error
        try:
            return function()
        except (Exception, SystemExit) as error:
            raise InputError(said(f"'{what}' must {promise}; it raised {_story(error)}.")) from error


def _story(error: BaseException) -> str:
    """What went wrong and, in the user's code, where, in one clause."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if last.filename == __file__ or "importlib" in last.filename else f" (line {last.lineno} of {Path(last.filename).name})"
    return f"{type(error).__name__}: {error}".removesuffix(".") + where
