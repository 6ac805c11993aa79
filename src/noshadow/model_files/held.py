"""A model that a file held, what it says about its table, and the libraries that files need."""

import importlib
from dataclasses import dataclass
from typing import Any

from noshadow.checks import InputError, said


@dataclass(frozen=True, eq=False)
class HeldModel:
    """A model from a file, and what the file says about the tables that it reads.

    Attributes:
        model: as `noshadow.audit` takes it.
        columns: names of its columns in their order; None where the file names none.
        classes: labels of its classes in their order; None where it has none or names none.
        categories: columns that become pandas categories, by name, or by place without names.
        texts: columns whose values are text, though they may look like numbers (007).
        numbers: whether all others must hold numbers.
        module: whether it is an nn.Module, which takes tensors.
    """

    model: Any
    columns: tuple[str, ...] | None = None
    classes: tuple[Any, ...] | None = None
    categories: frozenset[str | int] = frozenset()
    texts: frozenset[str | int] = frozenset()
    numbers: bool = False
    module: bool = False


def needed(library: str, extra: str) -> Any:
    """A library that a format needs.

    Raises:
        InputError: it is not installed; the message names the extra that has it.
    """
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise InputError(said(f"{library} must be installed for this file; got {error}. Run pip install noshadow[{extra}].")) from error
