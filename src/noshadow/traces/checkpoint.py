"""Keep the state of a module in one `.safetensors` file, replaced whole."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from noshadow.checks import InputError, refuse
from noshadow.storage.private_files import written_whole

SUFFIX = ".safetensors"
_LOSS, _RECORDING = "mean_test_loss", "recording"


def checkpoint_path(path: object, owner: str) -> Path:
    """The place of a checkpoint; refused now where no file could be written when training runs."""
    if not isinstance(path, (str, Path)) or Path(path).suffix != SUFFIX:
        refuse(owner, "checkpoint", f"be a path that ends in {SUFFIX}", repr(path))
    place = Path(path)
    if not place.absolute().parent.is_dir():
        refuse(owner, "checkpoint", "be in a folder that exists", f"'{place}'")
    return place


def write_checkpoint(path: Path, model: nn.Module, *, loss: float, recording: int, owner: str) -> None:
    """Write the state dict of the module, whole or not at all, for its owner's eyes.

    Names are those of the module itself: wrappers for several devices and compiled modules are
    taken off. Tensors that share memory are written once each, so that any module of the same
    layout loads them. The file's text says which recording it is of, and the loss.

    Args:
        path: from `checkpoint_path`. loss: mean loss on the unseen records. recording: from 0.

    Raises:
        InputError: the state holds something that is no tensor, or the file cannot be written.
    """
    held = _state(_unwrapped(model), owner)
    facts = {_LOSS: repr(loss), _RECORDING: str(recording)}
    try:
        with written_whole(path) as partial:
            save_file(held, partial, metadata=facts)
    except (OSError, SafetensorError) as error:
        hint = "The recording was not added; choose another place."
        raise InputError(f"{owner}: checkpoint must be writable; got '{path}' ({error}). {hint}") from error


def kept_loss(path: Path, owner: str) -> float | None:
    """The loss that a checkpoint says it has; None where there is no file.

    Raises:
        InputError: the file is not one that `write_checkpoint` wrote.
    """
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            return float((file.metadata() or {})[_LOSS])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        rule = "be a file that LossTraces wrote, or a new one"
        raise InputError(f"{owner}: checkpoint must {rule}; got '{path}' ({error}). Choose another place.") from error


def _unwrapped(model: nn.Module) -> nn.Module:
    while isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)) or hasattr(model, "_orig_mod"):
        model = getattr(model, "_orig_mod", None) or model.module  # type: ignore[assignment]
    return model


def _state(model: nn.Module, owner: str) -> dict[str, Tensor]:
    state: Mapping[str, object] = model.state_dict()
    other = next((name for name, value in state.items() if not isinstance(value, Tensor)), None)
    if other is not None:
        got = f"{other!r} of type {type(state[other]).__name__}"
        refuse(owner, "model", "have a state dict of tensors where a checkpoint is kept", got, "Build LossTraces without a checkpoint.")
    return {
        name: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, value in state.items()
        if isinstance(value, Tensor)
    }
