"""A kernel by name: which options it has, what they are when not given, and its matrix of a data set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import pdist

from noshadow._lood.kernels import laplace_kernel, nngp_kernel, rbf_kernel
from noshadow.checks import Array, refuse, require_choice

_NETWORK: dict[str, Any] = {"depth": 2, "activation": "relu", "weight_variance": 2.0, "bias_variance": 0.0}
# Options of each kernel with their values when not given; None must be given, or be read off the inputs.
OPTIONS: dict[str, dict[str, Any]] = {
    "fc": _NETWORK,
    "conv": _NETWORK | {"filter_size": 3, "image_shape": None},
    "rbf": {"length_scale": None},
    "laplace": {"length_scale": None},
}
NETWORKS = ("fc", "conv")
_SAMPLE = 400


@dataclass(frozen=True)
class KernelChoice:
    """A kernel and all of its options.

    Attributes:
        name: "fc", "conv", "rbf" or "laplace". options: every option it has, JSON-ready.
    """

    name: str
    options: dict[str, Any]

    def matrix(self, x: torch.Tensor) -> Array:
        """(n, n) float64 kernel matrix of the records."""
        kernels: dict[str, Callable[..., torch.Tensor]] = {
            "fc": nngp_kernel,
            "conv": partial(nngp_kernel, architecture="conv"),
            "rbf": rbf_kernel,
            "laplace": laplace_kernel,
        }
        with torch.no_grad():
            return kernels[self.name](x, **self.options).numpy()

    def with_options(self, **changes: Any) -> "KernelChoice":
        """The same kernel with other values of some options."""
        return replace(self, options=self.options | changes)


def kernel_choice(name: str, given: Mapping[str, Any], x: torch.Tensor, owner: str) -> KernelChoice:
    """The named kernel with the options given (not None) and its defaults; options it does not have are refused.

    Raises:
        InputError: another kernel, an option of another one, no length scale, no shape of the images.
    """
    require_choice(name, tuple(OPTIONS), owner, "kernel")
    # NumPy's scalars as Python's, which JSON holds.
    asked = {option: value.item() if isinstance(value, np.generic) else value for option, value in given.items() if value is not None}
    foreign = sorted(set(asked) - set(OPTIONS[name]))
    if foreign:
        owners = ", ".join(kernel for kernel, options in OPTIONS.items() if foreign[0] in options)
        refuse(owner, foreign[0], f"come with a kernel that has it ({owners})", f"kernel '{name}'", "Leave it out.")
    options = OPTIONS[name] | asked
    if "length_scale" in options and options["length_scale"] is None:
        sample = x.flatten(1)[:: max(len(x) // _SAMPLE, 1)][:_SAMPLE].numpy()
        hint = f"The median distance between records is {float(np.median(pdist(sample))):.3g}."
        refuse(owner, "length_scale", f"be given for kernel '{name}'", "none", hint)
    if "image_shape" in options and options["image_shape"] is None:
        if x.ndim != 4:
            hint = "Store images as (n, channels, height, width), or name the shape, such as 3,32,32."
            refuse(owner, "image_shape", "be given for kernel 'conv' when x is not (n, channels, height, width)", "none", hint)
        options = options | {"image_shape": tuple(x.shape[1:])}
    if isinstance(options.get("image_shape"), tuple):
        options = options | {"image_shape": list(options["image_shape"])}  # as JSON will hold it
    return KernelChoice(name, options)
