"""Columns of records from the outputs of a model with and without each of them."""

import numpy as np

from noshadow.checks import Array
from noshadow.losses import record_losses, record_margins


def left_out_columns(outputs: Array, without: Array, targets: Array, task: str) -> dict[str, Array]:
    """`loo` and `shift` of n records, float64 (n,) each; larger = riskier.

    loo = ℓ₋ᵢ(i) − ℓ(i), the rise of the record's loss when it leaves. shift = φ(i) − φ₋ᵢ(i), the
    fall of its margin; in a regression ‖r₋ᵢ‖ − ‖r‖, the rise of its residual's size. Both are +inf
    where no other record determines an answer.

    Args:
        outputs: (n, m) logits or predictions of the model. without: (n, m) of the model without
            the record, NaN where there is none.
        targets: as `task_targets` returns them. task: "regression", "binary" or "classification".

    Exact when: `without` is. Cost: O(nm).
    """
    gone = np.asarray(np.isnan(without).any(1))
    left = np.where(gone[:, None], outputs, without)
    losses, after = (record_losses(values, targets, task) for values in (outputs, left))
    if task == "regression":
        shift = np.sqrt(after) - np.sqrt(losses)
    else:
        shift = record_margins(outputs, targets, task) - record_margins(left, targets, task)
    return {"loo": np.where(gone, np.inf, after - losses), "shift": np.where(gone, np.inf, shift)}
