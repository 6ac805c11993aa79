"""Attention masks of transformers that are always built, never skipped by their values.

transformers leaves a mask out where no token of the batch is padding. That is a choice by the data,
which torch.func cannot make for many records at once, and it changes no output.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

MASKS = "transformers.masking_utils"
BUILDERS = ("sdpa", "eager")


@contextmanager
def whole_masks() -> Iterator[None]:
    """Have transformers build every mask, while the context lasts; nothing where it is not loaded.

    Releases before 4.53 build their masks elsewhere and are left alone.
    """
    table: Any = getattr(sys.modules.get(MASKS), "ALL_MASK_ATTENTION_FUNCTIONS", {})
    known = {name: table[name] for name in BUILDERS if name in table}
    try:
        for name, builder in known.items():
            table[name] = partial(_never_skipped, builder)
        yield
    finally:
        for name, builder in known.items():
            del table[name]
            # What stood there may have been of the user's own.
            if table[name] is not builder:
                table[name] = builder


def _never_skipped(builder: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return builder(*args, **(kwargs | {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}))
