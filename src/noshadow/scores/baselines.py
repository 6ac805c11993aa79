"""Losses and the cheap per-record columns: gradient norm, entropy, correctness.

Tasks are already resolved here; targets are what `checks` returns for the task: (n, q) floats for
regression, (n,) floats in [0, 1] for binary, (n,) labels or (n, m) rows of probabilities for
classification.
"""

import numpy as np
import torch
import torch.nn.functional as F

from noshadow.checks import Array, binary_targets, class_targets, regression_targets
from noshadow.scores.design import block_length, blocks


def task_targets(outputs: Array, targets: Array, task: str, owner: str) -> Array:
    """Targets checked against the task and the outputs, in the layout this module works on."""
    if task == "regression":
        return regression_targets(targets, outputs, owner)
    if task == "binary":
        return binary_targets(targets, owner)
    return class_targets(targets, outputs.shape[1], owner)


def hard_labels(targets: Array) -> Array:
    """Labels (n,): as given, or the first most probable class of soft rows."""
    labels: Array = targets if targets.ndim == 1 else targets.argmax(1)
    return labels


def margins(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """φ = f_y − log Σ_{c≠y} e^{f_c}, the attack's statistic, (b, m) → (b,). Exact in float64 for any p."""
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return logits.gather(1, labels[:, None])[:, 0] - torch.logsumexp(others, 1)


def block_losses(outputs: torch.Tensor, targets: torch.Tensor, task: str) -> torch.Tensor:
    """Loss of each record in nats (squared units for regression), float64 (b,)."""
    if task == "regression":
        return ((targets - outputs) ** 2).sum(1)
    if task == "binary":
        logit = outputs[:, 0]
        # softplus of the signed logit for hard labels; linear in the target in between
        return targets * F.softplus(-logit) + (1 - targets) * F.softplus(logit)
    if targets.ndim == 1:
        return F.softplus(-margins(outputs, targets))
    return -(targets * torch.log_softmax(outputs, 1)).sum(1)


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


def as_blocks_of(array: Array, start: int, stop: int) -> torch.Tensor:
    """Rows of an array as a tensor: float64, or int64 for labels."""
    rows = array[start:stop]
    return torch.from_numpy(rows.astype(np.int64 if rows.dtype.kind in "iub" else np.float64))


def record_losses(outputs: Array, targets: Array, task: str) -> Array:
    """Loss of every record, float64 (n,).

    Squared error ‖y − f‖², or cross-entropy in nats through the margin φ: ℓ = log(1 + e^{−φ}), which keeps
    full relative precision as p_y → 1.

    Args:
        outputs: (n, m). targets: as `task_targets` returns them.
        task: "regression", "binary" or "classification".

    Cost: O(nm), in blocks.
    """
    losses = np.empty(len(outputs))
    for start, stop in blocks(len(outputs), block_length(8 * outputs.shape[1])):
        losses[start:stop] = block_losses(as_blocks_of(outputs, start, stop), as_blocks_of(targets, start, stop), task).numpy()
    return losses


def record_entropies(outputs: Array, task: str) -> Array:
    """Entropy −Σ p log p of every record's predicted distribution, nats, (n,)."""
    entropies = np.empty(len(outputs))
    for start, stop in blocks(len(outputs), block_length(8 * outputs.shape[1])):
        entropies[start:stop] = block_entropies(as_blocks_of(outputs, start, stop), task).numpy()
    return entropies


def gradient_norms(features: Array, outputs: Array, targets: Array, task: str, *, fit_intercept: bool) -> Array:
    """‖∇_Θ ℓ_i‖ = ‖∂ℓ/∂f_i‖·‖g̃_i‖ over the last layer, (n,) ≥ 0.

    Cost: O(n(d + m)), in blocks. Exact.
    """
    norms = np.empty(len(outputs))
    for start, stop in blocks(len(outputs), block_length(8 * (outputs.shape[1] + features.shape[1]))):
        residuals = block_residuals(as_blocks_of(outputs, start, stop), as_blocks_of(targets, start, stop), task)
        lengths = (as_blocks_of(features, start, stop) ** 2).sum(1) + fit_intercept
        norms[start:stop] = (residuals.norm(dim=1) * lengths.sqrt()).numpy()
    return norms


def correct_predictions(outputs: Array, targets: Array, task: str) -> Array:
    """Whether the predicted class is the (most probable) label, bool (n,)."""
    predicted = outputs[:, 0] > 0 if task == "binary" else outputs.argmax(1)
    return np.equal(predicted, targets > 0.5 if task == "binary" else hard_labels(targets))
