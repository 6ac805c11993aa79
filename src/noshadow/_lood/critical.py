"""Weights on the edge of chaos, where a deep network neither forgets nor scrambles its inputs."""

import torch

from noshadow._lood.activations import ACTIVATIONS
from noshadow.checks import named_in_errors, refuse, require_choice, require_number


@named_in_errors
def critical_weights(activation: str, *, variance: float = 1.0) -> tuple[float, float]:
    """Weight and bias variance of an activation on the edge of chaos.

    With them every layer keeps a prediction's variance q and, to first order, the distance of two
    records close to each other:

        weight = 1/E[φ′(u)²],   bias = q − weight·E[φ(u)²],   u ~ N(0, q).

    The first says that the slope χ₁ = weight·E[φ′²] of the correlation's recursion is 1 at
    coinciding inputs; the second that q is a fixed point of the variance's. Correlations c then
    tend to 1 like a power of the depth L and not exponentially: 1 − c ≈ 2/(weight·q·E[φ″²]·L) where
    φ″ exists in the mean square, and 9π²/(2L²) for relu.

    Args:
        activation: "relu", "gelu", "erf", "tanh" or "elu".
        variance: q > 0, the variance that layers keep.

    Returns:
        (weight_variance, bias_variance), as `nngp_kernel` takes them; (2, 0) for relu at any q.

    Raises:
        InputError: an unknown activation, variance ≤ 0 or too far from 1 for float64.

    Exact when: up to the accuracy of the expectations (1e-9 for tanh and elu, 1e-12 otherwise).
        Networks whose inputs start from another variance are drawn to q, except gelu networks with
        q below about 3.6, which drift away from it by at most a tenth of the gap a layer.
    Reference: [LOOD] Prop. G.1; Schoenholz et al. 2017; Hayou, Doucet and Rousseau 2019.

    >>> critical_weights("relu")
    (2.0, 0.0)
    >>> tuple(round(value, 4) for value in critical_weights("tanh"))
    (2.1533, 0.151)
    """
    require_choice(activation, tuple(ACTIVATIONS), "activation")
    kept = require_number(variance, "variance", low=0, low_open=True)
    if activation == "relu":
        return 2.0, 0.0
    at = torch.tensor([kept], dtype=torch.float64)
    moment = float(ACTIVATIONS[activation].value(at, at, at))
    slope = float(ACTIVATIONS[activation].slopes(at, at, at)[2])
    weight = 1.0 / slope if slope > 0 else float("inf")
    bias = kept - weight * moment
    if not 0 <= bias < float("inf"):
        refuse(
            "variance", f"have a critical point for '{activation}'", f"{kept:g}, where the biases would need variance {bias:g}", "Try 1."
        )
    return weight, bias
