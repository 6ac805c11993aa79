"""A module run as if nothing had happened: eval mode, the wanted device, random states put back."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from noshadow.checks import InputError, refuse, said
from noshadow.views.view import Settings


@contextmanager
def undisturbed(model: nn.Module, settings: Settings) -> Iterator[torch.device]:
    """Hold the model in eval mode without gradients on the wanted device.

    Flags, device and random states are as before afterwards.
    """
    flags = [(module, module.training) for module in model.modules()]
    homes = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    home = next((p.device for p in model.parameters()), torch.device("cpu"))
    away = home if settings.device is None else _device(settings.device)
    if away != home and len(homes) > 1:
        refuse("device", "be None for a model spread over several devices", repr(settings.device))
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - users' transforms draw from it
    try:
        model.eval()
        if away != home:
            model.to(away)
        with torch.random.fork_rng(devices=[away] if away.type == "cuda" else []), torch.no_grad():
            yield away
    finally:
        if away != home:
            model.to(home)
        for module, flag in flags:
            module.training = flag
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002


def _device(device: object) -> torch.device:
    try:
        wanted = torch.empty(0, device=torch.device(device)).device  # type: ignore[call-overload]
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(said(f"device must be one that torch can use here; got {device!r} ({reason}).")) from error
    if wanted.type == "meta":
        refuse("device", "hold values", repr(device))
    return wanted


def seed_everything(seed: int) -> None:
    """Seed torch, Python and NumPy, so that random transforms of a data set repeat."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - random transforms of users' data sets may draw from it
