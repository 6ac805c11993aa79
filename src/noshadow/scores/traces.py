"""LT-IQR: how much a record's loss moved while the model was being trained."""

import numpy as np

from noshadow.checks import Array, named_in_errors, numeric_array, refuse


@named_in_errors
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
    traces = numeric_array(loss_traces, "loss_traces", ndim=2)
    if traces.shape[1] < 2:
        refuse("loss_traces", "have at least 2 columns (before training and after each epoch)", f"shape {traces.shape}")
    low, high = np.quantile(traces.astype(np.float64), (0.25, 0.75), axis=1)
    spread: Array = high - low
    return spread
