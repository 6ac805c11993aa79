"""Named tensors of a file of trained weights: `.safetensors`, or what `torch.save` wrote.

Weights alone are read. A file that holds other objects is refused, and nothing is unpickled.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from noshadow.storage.reasons import one_kind_of_error

SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt")
# Where training loops keep the weights beside an optimiser's state.
PLACES = ("state_dict", "model_state_dict", "model")


def weights_in(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, in memory.

    Raises:
        ValueError: it is no such file, or holds something else than tensors. OSError: as the system
            gives it.
    """
    with one_kind_of_error():
        held = load_file(path) if path.suffix == ".safetensors" else torch.load(path, map_location="cpu", weights_only=True)
    return state_of(held)


def state_of(held: object) -> dict[str, Tensor]:
    """The tensors of a state dict, or of the state dict that a training's checkpoint holds.

    Raises:
        ValueError: it holds something else than tensors.
    """
    if not isinstance(held, Mapping):
        raise ValueError(f"it holds an object of type {type(held).__name__}, no state dict")
    inner = next((held[name] for name in PLACES if isinstance(held.get(name), Mapping)), held)
    others = [str(name) for name, value in inner.items() if not isinstance(value, Tensor) and not _is_extra(value)]
    if others or not inner:
        raise ValueError(f"'{others[0]}' is no tensor" if others else "it holds no tensors")
    return {str(name): value for name, value in inner.items() if isinstance(value, Tensor)}


def _is_extra(value: object) -> bool:
    """Whether a module without anything to say left an empty entry."""
    return value is None or (isinstance(value, Mapping) and not value)
