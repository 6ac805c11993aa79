"""Losses and margins of records under a model's outputs: the one place where tasks become formulas.

Tasks are already resolved here; targets are what `task_targets` returns for the task: (n, q) floats
for regression, (n,) floats in [0, 1] for binary, (n,) labels or (n, m) rows of probabilities for
classification.
"""

import numpy as np
import torch
import torch.nn.functional as F

from noshadow.blocks import block_length, block_tensor, blocks
from noshadow.checks import Array, binary_targets, class_targets, regression_targets


def task_targets(outputs: Array, targets: Array, task: str) -> Array:
    """Targets checked against the task and the outputs, in the layout this module works on."""
    if task == "regression":
        return regression_targets(targets, outputs)
    if task == "binary":
        return binary_targets(targets)
    return class_targets(targets, outputs.shape[1])


def hard_labels(targets: Array) -> Array:
    """Labels (n,): as given, or the first most probable class of soft rows."""
    labels: Array = targets if targets.ndim == 1 else targets.argmax(1)
    return labels


def margins(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """φ = f_y − log Σ_{c≠y} e^{f_c}, the attack's statistic, (b, m) → (b,).

    It is exact in float64 for any p.
    """
    # Differences first: a shift shared by all logits costs no digits.
    beyond = logits - logits.gather(1, labels[:, None])
    return -torch.logsumexp(beyond.scatter(1, labels[:, None], -torch.inf), 1)


def softplus(values: torch.Tensor) -> torch.Tensor:
    """log(1 + eˣ) to all digits; torch's own is x itself from 20 on, 1e-10 too small."""
    return F.softplus(values, threshold=40.0)


def block_losses(outputs: torch.Tensor, targets: torch.Tensor, task: str) -> torch.Tensor:
    """Loss of each record in nats (squared units for regression), float64 (b,)."""
    if task == "regression":
        return ((targets - outputs) ** 2).sum(1)
    if task == "binary":
        logit = outputs[:, 0]
        # softplus of the signed logit for hard labels; linear in the target in between
        return targets * softplus(-logit) + (1 - targets) * softplus(logit)
    if targets.ndim == 1:
        return softplus(-margins(outputs, targets))
    return -(targets * torch.log_softmax(outputs, 1)).sum(1)


def record_losses(outputs: Array, targets: Array, task: str) -> Array:
    """Loss of every record, float64 (n,).

    Squared error ‖y − f‖², or cross-entropy in nats through the margin φ: ℓ = log(1 + e^{−φ}),
    which keeps full relative precision as p_y → 1.

    Args:
        outputs: (n, m). targets: as `task_targets` returns them.
        task: "regression", "binary" or "classification".

    Cost: O(nm), in blocks.
    """
    losses = np.empty(len(outputs))
    for start, stop in blocks(len(outputs), block_length(8 * outputs.shape[1])):
        losses[start:stop] = block_losses(block_tensor(outputs, start, stop), block_tensor(targets, start, stop), task).numpy()
    return losses


def record_margins(outputs: Array, targets: Array, task: str) -> Array:
    """Margin φ = log p_y − log Σ_{c≠y} p_c of every record, float64 (n,).

    This is LiRA's statistic; a larger one is more member-like.

    Through logits, so that it neither saturates nor loses digits as p_y → 0 or 1; p_y = 1/(1 +
    e^{−φ}). Soft targets count as their most probable class (the first of several).

    Args:
        outputs: (n, m) logits. targets: as `task_targets` returns them.
        task: "binary" or "classification".

    Cost: O(nm), in blocks. Exact.
    """
    if task == "binary":
        signed: Array = np.where(targets > 0.5, 1.0, -1.0) * outputs[:, 0].astype(np.float64)
        return signed
    labels, found = hard_labels(targets), np.empty(len(outputs))
    for start, stop in blocks(len(outputs), block_length(8 * outputs.shape[1])):
        found[start:stop] = margins(block_tensor(outputs, start, stop), block_tensor(labels, start, stop)).numpy()
    return found


def correct_predictions(outputs: Array, targets: Array, task: str) -> Array:
    """Whether the predicted class is the (most probable) label, bool (n,)."""
    predicted = outputs[:, 0] > 0 if task == "binary" else outputs.argmax(1)
    return np.equal(predicted, targets > 0.5 if task == "binary" else hard_labels(targets))
