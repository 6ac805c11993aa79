"""Recognise what a model does to the output of its last Linear.

The ending is recognised on a few records, and held against every record after that.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from noshadow.checks import refuse

ENDINGS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "": lambda z: z,
    "log_softmax": partial(torch.log_softmax, dim=-1),
    "softmax": partial(torch.softmax, dim=-1),
    "sigmoid": torch.sigmoid,
}
# Below this share of a record's largest output a difference is rounding: no loss moves by it.
ROUNDING = 1e-6
# Of probabilities and their logarithms, which two programs round differently (float32 or float64;
# shorter floats).
ENDING_ROUNDING = (1e-4, 5e-2)
SUM_TOLERANCE = 1e-3


def ending_of(raw: Tensor, final: Tensor) -> str | None:
    """The ending under which a Linear's output `raw` is the tensor `final`; None when it is not."""
    return next((ending for ending in ENDINGS if ends_as(ending, raw, final)), None)


def ends_as(ending: str, raw: Tensor, final: Tensor) -> bool:
    """Whether `final` is this ending of `raw`, exactly where nothing follows the Linear."""
    if ending.endswith("softmax") and raw.shape[-1] == 1:
        return False
    # A width of one may have been squeezed away or added.
    if _without_last_one(raw.shape) != _without_last_one(final.shape):
        return False
    expected = ENDINGS[ending](raw).reshape(final.shape).double()
    if not ending:
        # Exact: a tanh of small values is the identity to any tolerance.
        return torch.equal(expected, final.double())
    tolerance = 1e-5 if raw.dtype in (torch.float32, torch.float64) else 1e-2
    return torch.allclose(expected, final.double(), rtol=tolerance, atol=tolerance * 1e-2)


def as_rows(value: Tensor, size: int) -> Tensor | None:
    """Reshape a tensor to (size, columns); None when it does not hold one row per record.

    A single record may have lost its row axis.
    """
    if size == 1 and value.ndim < 2:
        return value.reshape(1, -1)
    if value.ndim not in (1, 2) or len(value) != size:
        return None
    return value[:, None] if value.ndim == 1 else value


def row_differences(ending: str, raw: Tensor, own: Tensor) -> Tensor:
    """Measure by how much each record's output differs from this ending of its head's output.

    The differences are (n,) float64, and 0 within rounding.

    Args:
        ending: a key of ENDINGS.
        raw: (n, m) output of the head.
        own: (n, m) output of the model. Probabilities are compared relative to their size, since a
            loss is their logarithm.
    """
    expected, given = ENDINGS[ending](raw), own
    if torch.equal(expected, given):  # the usual case, at the price of the ending alone
        return torch.zeros(len(raw), dtype=torch.float64)
    wide = torch.float64 if torch.float64 in (expected.dtype, given.dtype) else torch.float32
    expected, given = expected.to(wide), given.to(wide)
    rounding = ENDING_ROUNDING[0 if raw.dtype in (torch.float32, torch.float64) else 1]
    smallest = torch.finfo(own.dtype if own.is_floating_point() else torch.float32).tiny
    if not ending:
        allowed = ROUNDING * expected.abs().amax(1, keepdim=True)
    elif ending == "log_softmax":
        # A probability that underflows has a logarithm of −∞, or one made of a few bits.
        floor = math.log(smallest)
        expected, given = expected.clamp(min=floor), given.clamp(min=floor)
        allowed = rounding * expected.abs().clamp(min=1)
    else:
        allowed = rounding * torch.maximum(expected.abs(), given.abs()) + smallest
    same = (expected == given) | (expected.isnan() & given.isnan())
    gaps = torch.where(same, 0.0, (expected - given).abs().nan_to_num(nan=torch.inf))
    return torch.where(same | (gaps <= allowed), 0.0, gaps).amax(1).double()


def logits_of(ending: str, own: Tensor) -> Tensor:
    """Turn the model's own outputs (n, m) into logits.

    Logits stay as they are; probabilities become log p or log p/(1 − p).

    Raises:
        InputError: probabilities of 0 or 1, or rows that do not sum to one: they have no logits.
    """
    if ending in ("", "log_softmax"):
        return own
    values = own.double()
    within = (values > 0) & (values < 1)
    if ending == "softmax":
        within = (values > 0) & ((values.sum(1, keepdim=True) - 1).abs() <= SUM_TOLERANCE)
    if not bool(within.all()):
        row = int((~within.all(1)).nonzero()[0])
        got = f"a row {[round(value, 6) for value in values[row, :4].tolist()]}{'…' if values.shape[1] > 4 else ''} behind its {ending}"
        rule = "give probabilities above 0 that sum to one" if ending == "softmax" else "give probabilities between 0 and 1"
        refuse("model", rule, got, "Return the logits.")
    logits = values.log() if ending == "softmax" else values.log() - torch.log1p(-values)
    return logits.to(own.dtype)


def _without_last_one(shape: torch.Size) -> tuple[int, ...]:
    return tuple(shape[:-1]) if len(shape) > 1 and shape[-1] == 1 else tuple(shape)
