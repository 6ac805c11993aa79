"""Input rules of the theory functions."""

import numpy as np

from noshadow.checks import Array, NotApplicable, as_array, numeric_array, refuse, require_number, require_whole, said


def plug_in(
    leverage: object, residual_norm: object, noise_variance: object, n: float, dof: float, outputs: int
) -> tuple[Array, Array, Array]:
    """r = h/(1 − h), ε = e/(1 − h) and σ² of a fitted regression, broadcast.

    r is inf at leverage 1.
    """
    require_whole(outputs, "outputs", low=1)
    size, used = require_number(n, "n", low=0, low_open=True), require_number(dof, "dof", low=0)
    if size - used <= 2:
        fix = "Fit on more records, or with fewer degrees of freedom (a larger damping)."
        raise NotApplicable(said(f"the Gaussian theory needs n − dof > 2; got {size:g} − {used:g}. {fix}"))
    h, e, v = broadcast(
        leverage=numbers_within(leverage, "leverage", low=0, high=1),
        residual_norm=numbers_within(residual_norm, "residual_norm", low=0),
        noise_variance=numbers_within(noise_variance, "noise_variance", low=0),
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return h / (1 - h), e / (1 - h), v


def gap_inputs(h_bar: object, error: object, noise_variance: object, outputs: int) -> tuple[Array, Array, Array]:
    """h̄, ε and σ² within their ranges, broadcast."""
    require_whole(outputs, "outputs", low=1)
    h, e, v = broadcast(
        h_bar=numbers_within(h_bar, "h_bar", low=0),
        error=numbers_within(error, "error", low=-np.inf if outputs == 1 else 0),
        noise_variance=numbers_within(noise_variance, "noise_variance", low=0),
    )
    return h, e, v


def degrees_left(n: float, p: float) -> float:
    """k = n − p > 2, the degrees of freedom left for the noise."""
    size, used = require_number(n, "n", low=0, low_open=True), require_number(p, "p", low=0)
    if size - used <= 2:
        refuse("n − p", "be > 2", f"{size:g} − {used:g}", "Use more records or fewer parameters.")
    return size - used


def numbers_within(value: object, argument: str, *, low: float = -np.inf, high: float = np.inf, open_ends: bool = False) -> Array:
    """A finite float64 array of any shape with every value in an interval."""
    given = as_array(value, argument)
    flat = numeric_array(given.reshape(-1), argument, ndim=1).astype(np.float64)
    outside = (flat <= low) | (flat >= high) if open_ends else (flat < low) | (flat > high)
    if outside.any():
        i = int(np.argmax(outside))
        rule = (
            f"be {'>' if open_ends else '≥'} {low:g}"
            if high == np.inf
            else f"lie {'strictly ' if open_ends else ''}between {low:g} and {high:g}"
        )
        refuse(argument, rule, f"{flat[i]:g}" + (f" at index {i}" if given.ndim else ""))
    return flat.reshape(given.shape)


def rates_within(value: object, argument: str, outputs: int) -> Array:
    """Check false-positive rates.

    They must lie strictly between 0 and 1 and be large enough for the quantiles of several outputs.
    """
    rates = numbers_within(value, argument, low=0, high=1, open_ends=True)
    if outputs > 1 and rates.size and rates.min() < 1e-30:
        refuse(argument, "be at least 1e-30 with several outputs", f"{rates.min():g}")
    return rates


def broadcast(**arrays: Array) -> tuple[Array, ...]:
    """The named arrays in one shape."""
    try:
        return np.broadcast_arrays(*arrays.values())
    except ValueError:
        got = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        refuse(", ".join(arrays), "have shapes that broadcast", got)
