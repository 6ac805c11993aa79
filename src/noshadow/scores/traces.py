"""What a record's losses over a training say about it: LT-IQR and the early loss."""

import numpy as np

from noshadow.checks import Array, numeric_array, refuse, require_whole


def loss_trace_iqr(loss_traces: object) -> Array:
    """Interquartile range Q75 − Q25 of each record's loss over training, (n,) ≥ 0.

    Args:
        loss_traces: (n, epochs + 1) losses in evaluation mode on un-augmented records, before
            training and after each epoch; at least two columns.

    Raises:
        InputError: not 2-dimensional, not finite, or fewer than two columns.

    Cost: O(n·epochs·log epochs). Exact (linear interpolation between order statistics).
    Reference: [TAIL] §5 and Pollock et al. 2025 (arXiv 2411.05743).

    Example:
        >>> loss_trace_iqr([[4.0, 3.0, 2.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0]]).tolist()
        [2.0, 0.0]
    """
    traces = numeric_array(loss_traces, "loss_trace_iqr", "loss_traces", ndim=2)
    if traces.shape[1] < 2:
        refuse("loss_trace_iqr", "loss_traces", "have at least 2 columns (before training and after each epoch)", f"shape {traces.shape}")
    low, high = np.quantile(traces.astype(np.float64), (0.25, 0.75), axis=1)
    spread: Array = high - low
    return spread


def early_loss(loss_traces: object, best_epoch: int) -> Array:
    """Mean of each record's losses up to and including the best recording, (n,).

    Σ_{t ≤ e*} loss_t / (e* + 1), where e* is the recording with the lowest mean loss on records
    that the training does not see. What is learnt by heart is learnt after it, so that a training
    that goes on for long does not dilute the mean as it dilutes LT-IQR. Larger is riskier: the
    model had not come to the record by itself while it still learnt what others share.

    Args:
        loss_traces: (n, epochs + 1) losses in evaluation mode on un-augmented records, before
            training and after each epoch.
        best_epoch: e*, counted from 0; `LossTraces.best_epoch`.

    Raises:
        InputError: not 2-dimensional, not finite, or no such column.

    Cost: O(n·e*). Exact.

    Example:
        >>> early_loss([[4.0, 2.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]], best_epoch=1).tolist()
        [3.0, 1.0]
    """
    traces = numeric_array(loss_traces, "early_loss", "loss_traces", ndim=2)
    last = require_whole(best_epoch, "early_loss", "best_epoch", low=0)
    if last >= traces.shape[1]:
        refuse("early_loss", "best_epoch", f"be below the {traces.shape[1]} recordings of loss_traces", last)
    mean: Array = traces[:, : last + 1].astype(np.float64).mean(axis=1)
    return mean
