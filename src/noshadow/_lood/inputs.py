"""The arrays that leave-one-out distinguishability starts from, checked once."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from noshadow.checks import (
    Array,
    InputError,
    as_array,
    numeric_array,
    refuse,
    require_finite,
    require_number,
    require_same_length,
    require_squarable,
    said,
    users_code,
)

Kernel = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def target_columns(targets: object, argument: str) -> Array:
    """Targets as float64 (n, C).

    Floats stay as they are; 1-dimensional integer labels 0 … C − 1 become one-hot rows.
    """
    array = numeric_array(targets, argument, ndim=(1, 2))
    if not array.size:
        refuse(argument, "hold at least one record and one column", f"shape {array.shape}")
    if array.ndim == 1 and array.dtype.kind in "biu":
        labels = array.astype(np.int64)
        missing = np.setdiff1d(np.arange(labels.max() + 1), labels)
        if labels.min() < 0 or len(missing):
            got = f"label {labels.min()}" if labels.min() < 0 else f"no record with label {missing[0]}"
            refuse(argument, "cover every label 0 … C − 1 when integer", got, "Relabel them, or pass one-hot rows or floats.")
        return np.eye(labels.max() + 1)[labels]
    columns = array.astype(np.float64)
    require_squarable(columns, argument)
    return columns[:, None] if columns.ndim == 1 else columns


def input_rows(x: object, argument: str) -> torch.Tensor:
    """Inputs as a float64 tensor (n, …) of its own memory, one row per record."""
    array = as_array(x, argument)
    if array.ndim < 2 or not array.size:
        refuse(argument, "have one row a record and at least one feature", f"shape {array.shape}", "Reshape it to (n, d).")
    if array.dtype.kind not in "biuf":
        refuse(argument, "be numeric", f"dtype {array.dtype}")
    require_finite(array, argument)
    return torch.from_numpy(array.astype(np.float64))


def query_rows(queries: object, x: torch.Tensor, argument: str = "queries") -> torch.Tensor:
    """Queries as a float64 tensor with the shape of the training inputs' rows."""
    rows = input_rows(queries, argument)
    if rows.shape[1:] != x.shape[1:]:
        refuse(argument, f"have rows of the shape of x's, {tuple(x.shape[1:])}", f"shape {tuple(rows.shape)}")
    return rows


def box_of(bounds: tuple[object, object] | None, shape: torch.Size) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Lowest and highest allowed value of every feature, or None for no bounds."""
    if bounds is None:
        return None
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        refuse("bounds", "be a pair (low, high)", repr(bounds))
    ends = []
    for name, end in zip(("low", "high"), bounds, strict=True):
        array = as_array(end, "bounds")
        if array.dtype.kind not in "biuf" or np.isnan(array).any() or array.shape not in ((), tuple(shape)):
            refuse("bounds", f"be numbers or arrays of a record's shape {tuple(shape)}", f"{name} of shape {array.shape}")
        ends.append(torch.from_numpy(np.broadcast_to(array, tuple(shape)).astype(np.float64)))
    if bool((ends[0] >= ends[1]).any()):
        refuse("bounds", "have low < high everywhere", f"{float((ends[1] - ends[0]).min()):g} between them")
    return ends[0], ends[1]


def group_indices(differing: object, n: int, argument: str = "differing") -> Array:
    """The differing group as distinct row numbers (s,), in the order given.

    The group must have fewer records than the data.
    """
    given = np.atleast_1d(as_array(differing, argument))
    if given.ndim != 1 or given.dtype.kind not in "iu" or not len(given):
        refuse(argument, "be one or more whole row numbers", f"dtype {given.dtype}, shape {given.shape}")
    rows = given.astype(np.int64)
    outside = (rows < 0) | (rows >= n)
    if outside.any():
        refuse(argument, f"lie between 0 and {n - 1}", f"{int(rows[outside][0])}")
    values, counts = np.unique(rows, return_counts=True)
    if (counts > 1).any():
        refuse(argument, "name each record once", f"{int(values[counts > 1][0])} {int(counts.max())} times")
    if len(rows) >= n:
        refuse(argument, "leave at least one record", f"all {n} records", "Without any record the model is its prior.")
    return rows


@dataclass(frozen=True)
class Noise:
    """The observation noise that was asked for.

    Attributes:
        value: a variance σ² > 0, or, when `relative`, a share of the kernel's mean diagonal.
        relative: which of the two it is.
    """

    value: float
    relative: bool

    def noise_variance(self, mean_diagonal: float) -> float:
        """σ² beside a kernel matrix of this mean diagonal, the prior variance of a prediction."""
        if not self.relative:
            return self.value
        if not mean_diagonal > 0:
            hint = "Pass noise= instead, or check the inputs."
            refuse("relative_noise", "come with a kernel whose diagonal is positive in the mean", f"a mean of {mean_diagonal:g}", hint)
        return self.value * mean_diagonal


def asked_noise(noise: object, relative_noise: object = None) -> Noise:
    """The one of `noise` and `relative_noise` that was given; both or neither are refused."""
    if (noise is None) == (relative_noise is None):
        got = "neither" if noise is None else "both"
        refuse("noise", "be given, or relative_noise in its place", got, "Pass noise=0.1 or relative_noise=0.05, whichever you mean.")
    if relative_noise is not None:
        return Noise(require_number(relative_noise, "relative_noise", low=0, low_open=True), relative=True)
    return Noise(require_number(noise, "noise", low=0, low_open=True), relative=False)


def require_rows_match(x: torch.Tensor, y: Array) -> None:
    """One target row per record, and at least two records."""
    n = require_same_length(x=x.numpy(), y=y)
    if n < 2:
        refuse("x", "hold at least 2 records", str(n))


def require_memory(needed: float, limit: object, n: int, hint: str) -> None:
    """Refuse work whose arrays would take more bytes than allowed, saying how many."""
    allowed = require_number(limit, "max_memory", low=0, low_open=True)
    if needed > allowed:
        raise InputError(said(f"{n} records must fit in max_memory ({allowed / 1e9:.3g} GB); got a need of {needed / 1e9:.3g} GB. {hint}"))


def kernel_values(kernel: Kernel, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """kernel(x, z) as float64 (len(x), len(z)), gradients kept; anything else is refused."""
    if not callable(kernel):
        refuse("kernel", "be a callable (x, z) → tensor of kernel values", type(kernel).__name__)
    with users_code("kernel(x, z) must return a kernel matrix"):
        values = kernel(x, z)
    if not isinstance(values, torch.Tensor):
        values = torch.from_numpy(np.array(as_array(values, "kernel(x, z)"), dtype=np.float64))
    if values.shape != (len(x), len(z)):
        refuse("kernel(x, z)", f"have shape {(len(x), len(z))}", f"{tuple(values.shape)}")
    values = values.double()
    if not bool(torch.isfinite(values).all()):
        bad = int((~torch.isfinite(values)).sum())
        refuse("kernel(x, z)", "be finite", f"{bad} NaN or infinite values", "Rescale the inputs?")
    return values
