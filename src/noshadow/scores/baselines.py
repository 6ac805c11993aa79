"""The cheap per-record columns beside the loss: gradient norm and entropy.

Tasks and targets are as in `losses`.
"""

from collections.abc import Sequence

import numpy as np
import torch

from noshadow.blocks import block_length, block_tensor, blocks
from noshadow.checks import Array
from noshadow.losses import record_losses


def block_residuals(outputs: torch.Tensor, targets: torch.Tensor, task: str) -> torch.Tensor:
    """∂ℓ/∂output (b, m): −2(y − f), p − y."""
    if task == "regression":
        return 2 * (outputs - targets)
    if task == "binary":
        logit = outputs[:, 0]
        return ((1 - targets) * torch.sigmoid(logit) - targets * torch.sigmoid(-logit))[:, None]
    probabilities = torch.softmax(outputs, 1)
    if targets.ndim == 2:
        return probabilities - targets
    # −(1 − p_y) as minus the sum of the others: no cancellation when p_y → 1
    others = probabilities.scatter(1, targets[:, None], 0.0)
    return others.scatter(1, targets[:, None], -others.sum(1, keepdim=True))


def block_entropies(outputs: torch.Tensor, task: str) -> torch.Tensor:
    """−Σ p log p in nats (b,)."""
    logits = torch.cat([outputs, torch.zeros_like(outputs)], 1) if task == "binary" else outputs
    log_p = torch.log_softmax(logits, 1)
    return -(log_p.exp() * log_p).sum(1)


def record_entropies(outputs: Array, task: str) -> Array:
    """Entropy −Σ p log p of every record's predicted distribution, nats, (n,)."""
    entropies = np.empty(len(outputs))
    for start, stop in blocks(len(outputs), block_length(8 * outputs.shape[1])):
        entropies[start:stop] = block_entropies(block_tensor(outputs, start, stop), task).numpy()
    return entropies


def gradient_norms(features: Array, outputs: Array, targets: Array, task: str, *, fit_intercept: bool) -> Array:
    """‖∇_Θ ℓ_i‖ = ‖∂ℓ/∂f_i‖·‖g̃_i‖ over the last layer, (n,) ≥ 0.

    Cost: O(n(d + m)), in blocks. Exact.
    """
    norms = np.empty(len(outputs))
    for start, stop in blocks(len(outputs), block_length(8 * (outputs.shape[1] + features.shape[1]))):
        residuals = block_residuals(block_tensor(outputs, start, stop), block_tensor(targets, start, stop), task)
        lengths = (block_tensor(features, start, stop) ** 2).sum(1) + fit_intercept
        norms[start:stop] = (residuals.norm(dim=1) * lengths.sqrt()).numpy()
    return norms


def baseline_columns(
    features: Array, outputs: Array, targets: Array, weight: Array | None, task: str, *, fit_intercept: bool, wanted: Sequence[str]
) -> dict[str, Array]:
    """Return the wanted columns among loss, gradient_norm and entropy.

    The sample weight scales loss and gradient_norm.
    """
    held: dict[str, Array] = {}
    scale = 1.0 if weight is None else weight
    if "loss" in wanted:
        held["loss"] = scale * record_losses(outputs, targets, task)
    if "gradient_norm" in wanted:
        held["gradient_norm"] = scale * gradient_norms(features, outputs, targets, task, fit_intercept=fit_intercept)
    if "entropy" in wanted and task != "regression":
        held["entropy"] = record_entropies(outputs, task)
    return held
