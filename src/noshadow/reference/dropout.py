"""Dropout whose masks follow from a key and a counter.

Masks are the same whether one model is trained at a time or many at once.
"""

import torch
from torch import Tensor, nn

from noshadow.checks import named_in_errors, require_number

# Odd constants with well-mixed bits, as signed 32-bit numbers: the golden ratio's bits and two
# multipliers of an avalanche hash.
_GOLDEN = -1640531527
_FIRST, _SECOND = 2146121005, -2073254261


class SeededDropout(nn.Module):
    """Dropout with masks that are a function of (key, step, element).

    No generator is read while training.

    In training mode an element is zeroed with probability p and the others are divided by 1 − p; in
    eval mode nothing happens. The key is drawn once, when the module is built (so
    `torch.manual_seed` before building decides it), and the step counts the training calls. Both
    are buffers: they move, save and stack with the module.

    Args:
        p: share of elements zeroed, in [0, 1).

    Raises:
        InputError: p outside [0, 1).

    Exact when: always; masks depend on an element's place in the batch, not on the order of
        computation.
    Cost: about nine integer operations per element.

    Example:
        >>> layer = SeededDropout(0.5)
        >>> x = torch.ones(4, 3)
        >>> bool((layer.eval()(x) == x).all())
        True
    """

    key: Tensor
    step: Tensor

    @named_in_errors
    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = require_number(p, "p", low=0, high=1, high_open=True)
        self.register_buffer("key", torch.randint(2**31 - 1, (), dtype=torch.int32))
        self.register_buffer("step", torch.zeros((), dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        """The input with elements dropped in training mode; the input itself otherwise."""
        if not self.training or self.p == 0:
            return x
        mask = dropout_mask(self.key, self.step, x.shape, p=self.p, dtype=x.dtype)
        self.step.add_(1)
        return x * mask

    def extra_repr(self) -> str:
        """What `print(model)` shows inside the brackets."""
        return f"p={self.p:g}"


def dropout_mask(key: Tensor, step: Tensor, shape: torch.Size, *, p: float, dtype: torch.dtype) -> Tensor:
    """Draw 0 with probability p and 1/(1 − p) otherwise, for each place of `shape`.

    Key and step broadcast against `shape`.
    """
    places = torch.arange(shape.numel(), dtype=torch.int32, device=key.device).view(shape)
    mixed = _mixed(places * _GOLDEN + _mixed(key + _mixed(step * _GOLDEN + 1)))
    # Signed 32-bit numbers start at −2³¹; the share p of them lies below the threshold.
    below = min(round(p * 2**32) - 2**31, 2**31 - 1)
    return (mixed >= below).to(dtype) * (1 / (1 - p))


def _mixed(bits: Tensor) -> Tensor:
    """Compute an avalanche hash of 32-bit numbers.

    It is two multiplications between xor-shifts; the masks undo the sign extension.
    """
    bits = bits ^ ((bits >> 16) & 0xFFFF)
    bits = bits * _FIRST
    bits = bits ^ ((bits >> 15) & 0x1FFFF)
    bits = bits * _SECOND
    return bits ^ ((bits >> 16) & 0xFFFF)
