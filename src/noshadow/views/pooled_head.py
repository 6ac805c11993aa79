"""A Linear that runs at every position of a record, and what a model makes of its outputs.

Decoders of transformers score every token and pick the last one; others take a mean over positions.
Such a pooling is linear, so that pooling after the Linear is the Linear of pooled inputs: with
weights v_t that sum to one, Σ_t v_t(Wa_t + b) = W(Σ_t v_ta_t) + b. The weights are the model's own,
read as the slope of its output in what the Linear gave.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

# Weights of one record add up to one within this; a bias would be counted otherwise wrongly.
WHOLE = 1e-5


@dataclass(eq=False)
class Positions:
    """What a Linear was given (b, T, d) and gave (b, T, m) when it last ran; None before."""

    given: Tensor | None = None
    raw: Tensor | None = None


@contextmanager
def watched_positions(layer: nn.Linear) -> Iterator[Positions]:
    """Watch a Linear, and follow what the model does with its outputs.

    From the Linear on gradients are on, so that `pooled` can ask for weights; nothing before it is
    differentiated.
    """
    seen = Positions()
    before = torch.is_grad_enabled()

    def keep(_: object, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> Tensor:
        given = args[0] if args else kwargs["input"]
        followed = output.detach().requires_grad_()
        seen.given, seen.raw = given.detach(), followed
        torch.set_grad_enabled(True)
        # A copy: an operation in place on a leaf would be refused.
        return followed.clone()

    hook = layer.register_forward_hook(keep, with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()
        torch.set_grad_enabled(before)


def pooled(seen: Positions, own: Tensor) -> tuple[Tensor, Tensor] | None:
    """Pool what a Linear was given and gave as the model did, (b, d) and (b, m).

    Args:
        seen: of a run under `watched_positions`.
        own: (b, m) or (b,) output of the model in that run.

    Returns:
        None where the output does not follow from the Linear's, or not position by position. Rows
        whose weights do not sum to one hold NaN, which no output of a model equals.
    """
    given, raw = seen.given, seen.raw
    if given is None or raw is None or raw.ndim != 3 or not own.requires_grad or len(own) != len(raw):
        return None
    first = own if own.ndim == 1 else own[:, 0]
    (slopes,) = torch.autograd.grad(first.sum(), raw, allow_unused=True, retain_graph=True)
    if slopes is None:
        return None
    weights = slopes[:, :, 0].detach()
    whole = (weights.sum(1) - 1).abs() <= WHOLE
    rows = (weights[:, None] @ raw.detach())[:, 0]
    features = (weights[:, None] @ given)[:, 0]
    return features, torch.where(whole[:, None], rows, torch.nan)
