"""Keep the state of a module in one `.safetensors` file, replaced whole."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from noshadow.checks import InputError, refuse, said
from noshadow.storage.private_files import written_whole
from noshadow.storage.weight_files import state_of

SUFFIX = ".safetensors"
_LOSS, _RECORDING = "mean_test_loss", "recording"


def checkpoint_path(path: object) -> Path:
    """The place of a checkpoint; refused now where no file could be written when training runs."""
    if not isinstance(path, (str, Path)) or Path(path).suffix != SUFFIX:
        refuse("checkpoint", f"be a path that ends in {SUFFIX}", repr(path))
    place = Path(path)
    if not place.absolute().parent.is_dir():
        refuse("checkpoint", "be in a folder that exists", f"'{place}'")
    return place


def write_checkpoint(path: Path, model: nn.Module, *, loss: float, recording: int) -> None:
    """Write the state dict of the module, whole or not at all, for its owner's eyes.

    Names are those of the module itself: wrappers for several devices and compiled modules are
    taken off. Tensors that share memory are written once each, so that any module of the same
    layout loads them. The file's text says which recording it is of, and the loss.

    Args:
        path: from `checkpoint_path`. loss: mean loss on the unseen records. recording: from 0.

    Raises:
        InputError: the state holds something that is no tensor, or the file cannot be written.
    """
    held = _state(_unwrapped(model))
    facts = {_LOSS: repr(loss), _RECORDING: str(recording)}
    try:
        with written_whole(path) as partial:
            save_file(held, partial, metadata=facts)
    except (OSError, SafetensorError) as error:
        hint = "The recording was not added; choose another place."
        raise InputError(said(f"checkpoint must be writable; got '{path}' ({error}). {hint}")) from error


def kept_loss(path: Path) -> float | None:
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
        raise InputError(said(f"checkpoint must {rule}; got '{path}' ({error}). Choose another place.")) from error


def _unwrapped(model: nn.Module) -> nn.Module:
    while isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)) or hasattr(model, "_orig_mod"):
        model = getattr(model, "_orig_mod", None) or model.module  # type: ignore[assignment]
    return model


def _state(model: nn.Module) -> dict[str, Tensor]:
    try:
        state = state_of(model.state_dict())
    except ValueError as error:
        rule = "have a state dict of tensors where a checkpoint is kept"
        raise InputError(said(f"model must {rule}; got one that is none ({error}). Build LossTraces without a checkpoint.")) from error
    return {name: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format) for name, value in state.items()}
