"""Kernels by name.

This file holds the options of each kernel, its matrix of a data set, and a sweep over activations
and depths.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import pdist

from noshadow._lood.activations import ACTIVATIONS
from noshadow._lood.critical import critical_weights
from noshadow._lood.inputs import Noise
from noshadow._lood.kernels import laplace_kernel, nngp_kernel, rbf_kernel
from noshadow._lood.scores import lood_scores
from noshadow._lood.theory import flatness_bound, kernel_flatness
from noshadow.checks import Array, InputError, refuse, require_choice, require_whole, unnamed
from noshadow.progress import tracked

Cell = tuple[str, int]
_NETWORK: dict[str, Any] = {"depth": 2, "activation": "relu", "weight_variance": 2.0, "bias_variance": 0.0}
# Options of each kernel with their values when not given; None must be given, or be read off the
# inputs.
OPTIONS: dict[str, dict[str, Any]] = {
    "fc": _NETWORK,
    "conv": _NETWORK | {"filter_size": 3, "image_shape": None},
    "rbf": {"length_scale": None},
    "laplace": {"length_scale": None},
}
NETWORKS = ("fc", "conv")
WEIGHTS = ("critical",)
SWEEP_NOISES = ("relative", "absolute")
_SAMPLE = 400
# Numbers of one row of a sweep.
SWEPT = (
    *("noise", "mean_diagonal", "kl_mean", "kl_median", "kl_max", "auc_mean", "mean_distance_max", "bound"),
    *("constant", "distance", "relative", "condition"),
)


@dataclass(frozen=True)
class KernelChoice:
    """A kernel and all of its options.

    Attributes:
        name: "fc", "conv", "rbf" or "laplace". options: every option it has, JSON-ready.
        weights: "critical" when the variances are those of the activation's critical point.
    """

    name: str
    options: dict[str, Any]
    weights: str | None = None

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
        """The same kernel with other values of some options; critical weights follow them."""
        options = self.options | changes
        if self.weights == "critical":
            weight, bias = critical_weights(options["activation"])
            options |= {"weight_variance": weight, "bias_variance": bias}
        return replace(self, options=options)

    def described(self) -> dict[str, Any]:
        """Name and options, JSON-ready."""
        return {"name": self.name} | self.options | ({} if self.weights is None else {"weights": self.weights})


def kernel_choice(name: str, given: Mapping[str, Any], x: torch.Tensor) -> KernelChoice:
    """The named kernel with the options given (not None) and its defaults for the others.

    Options that the kernel does not have are refused.

    Raises:
        InputError: another kernel, an option of another one, no length scale, no shape of the
            images.
    """
    require_choice(name, tuple(OPTIONS), "kernel")
    # NumPy's scalars as Python's, which JSON holds.
    asked = {option: value.item() if isinstance(value, np.generic) else value for option, value in given.items() if value is not None}
    weights = _named_weights(name, asked)
    foreign = sorted(set(asked) - set(OPTIONS[name]))
    if foreign:
        owners = ", ".join(kernel for kernel, options in OPTIONS.items() if foreign[0] in options)
        refuse(foreign[0], f"come with a kernel that has it ({owners})", f"kernel '{name}'", "Leave it out.")
    options = OPTIONS[name] | asked
    if "length_scale" in options and options["length_scale"] is None:
        sample = x.flatten(1)[:: max(len(x) // _SAMPLE, 1)][:_SAMPLE].numpy()
        hint = f"The median distance between records is {float(np.median(pdist(sample))):.3g}."
        refuse("length_scale", f"be given for kernel '{name}'", "none", hint)
    if "image_shape" in options and options["image_shape"] is None:
        if x.ndim != 4:
            hint = "Store images as (n, channels, height, width), or name the shape, such as 3,32,32."
            refuse("image_shape", "be given for kernel 'conv' when x is not (n, channels, height, width)", "none", hint)
        options = options | {"image_shape": tuple(x.shape[1:])}
    if isinstance(options.get("image_shape"), tuple):
        options = options | {"image_shape": list(options["image_shape"])}  # as JSON will hold it
    return KernelChoice(name, options, weights).with_options()


def _named_weights(name: str, asked: dict[str, Any]) -> str | None:
    """The choice of weights by name, taken out of the options given."""
    weights = asked.pop("weights", None)
    if weights is None:
        return None
    if name not in NETWORKS:
        refuse("weights", f"come with a kernel that has them ({', '.join(NETWORKS)})", f"kernel '{name}'", "Leave it out.")
    require_choice(weights, WEIGHTS, "weights")
    numbers = [option for option in ("weight_variance", "bias_variance") if option in asked]
    if numbers:
        refuse("weights", "be given without weight_variance and bias_variance", f"{numbers[0]} too", "Leave one of them out.")
    require_choice(asked.get("activation", _NETWORK["activation"]), tuple(ACTIVATIONS), "activation")
    return str(weights)


def sweep_cells(activations: Sequence[str], depths: Sequence[int], kernel: KernelChoice) -> list[Cell]:
    """Every pair of an activation and a depth, in the order given; none when neither is given.

    Raises:
        InputError: only one of the two is given, names or depths are unknown or repeated, or the
            kernel is no network.
    """
    names, layers = list(activations), list(depths)
    if not names and not layers:
        return []
    if not names or not layers:
        refuse("sweep_activations and sweep_depths", "be given together", "one of them")
    if kernel.name not in NETWORKS:
        refuse("kernel", f"be one of {', '.join(NETWORKS)} for a sweep", f"'{kernel.name}'", "It has no activation and no depth.")
    for name in names:
        require_choice(name, tuple(ACTIVATIONS), "sweep_activations")
    whole = [require_whole(depth, "sweep_depths", low=0) for depth in layers]
    for argument, values in (("sweep_activations", names), ("sweep_depths", whole)):
        if len(set(values)) < len(values):
            refuse(argument, "name each value once", f"{values}")
    return [(name, depth) for name in names for depth in whole]


def sweep_rows(
    x: torch.Tensor, y: Array, cells: Sequence[Cell], kernel: KernelChoice, *, noise: Noise, fpr: float, max_memory: float, progress: bool
) -> tuple[dict[str, Any], ...]:
    """Compute one row per cell, or the reason why there is none.

    A row holds the noise σ² and the kernel's mean diagonal, the mean, median and largest kl, the
    mean auc, the largest mean distance and its bound, the flatness of the kernel and its condition.

    Cost: one kernel and one factorisation per cell; one kernel is held at a time.
    """
    return tuple(
        {"activation": name, "depth": depth}
        | _cell(x, y, kernel.with_options(activation=name, depth=depth), noise=noise, fpr=fpr, max_memory=max_memory)
        for name, depth in tracked(cells, "Activations and depths", show=progress)
    )


def _cell(x: torch.Tensor, y: Array, kernel: KernelChoice, *, noise: Noise, fpr: float, max_memory: float) -> dict[str, Any]:
    try:
        matrix = kernel.matrix(x)
        diagonal = float(matrix.diagonal().mean())
        scores = lood_scores(matrix, y, noise=noise.noise_variance(diagonal), fpr=fpr, max_memory=max_memory)
    except InputError as error:
        # A kernel that explodes or degenerates at one depth is an answer about that depth, not the
        # end of the sweep.
        return dict.fromkeys(SWEPT) | {"reason": unnamed(error)}
    flat = kernel_flatness(matrix)
    return {
        "noise": scores.noise,
        "mean_diagonal": diagonal,
        "kl_mean": float(scores.kl.mean()),
        "kl_median": float(np.median(scores.kl)),
        "kl_max": float(scores.kl.max()),
        "auc_mean": float(scores.auc.mean()),
        "mean_distance_max": float(scores.mean_distance.max()),
        "bound": flatness_bound(matrix, y, noise=scores.noise),
        "constant": flat.constant,
        "distance": flat.distance,
        "relative": flat.relative if np.isfinite(flat.relative) else None,
        "condition": float(f"{scores.condition:.3g}"),
        "reason": None,
    }
