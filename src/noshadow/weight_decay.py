"""λ of a training's weight decay.

This is the one place that turns a decay beside a mean loss into a damping beside a sum.
"""

from noshadow.outcomes import Absent, Damping

RECORDS = "cross-entropy averaged over records"
SEQUENCES = "loss averaged over a sequence's tokens, then over sequences"
UNKNOWN = "The optimiser's weight_decay was not given, so the λ of the training is unknown."


def training_damping(decay: float | None, task: str, n: int, outputs: int, *, averaged: str = RECORDS) -> Damping | Absent:
    """λ on the sum over records of a training that minimised mean(loss) + (weight_decay/2)‖θ‖².

    λ = n·weight_decay. In a regression λ = n·weight_decay·q/2: MSELoss averages over the q outputs
    too, and λ stands beside GᵀG, half the curvature of the squared loss.

    Args:
        decay: weight decay ≥ 0, None when it is not known. task: of the model.
        n: training records. outputs: q, columns of the outputs.
        averaged: in words, over what a classifier's mean loss was taken.

    Returns:
        λ with one sentence on where it comes from, or why it is not known.

    Example:
        >>> training_damping(0.01, "regression", 100, 3).value
        1.5
    """
    if decay is None:
        return Absent("not available", UNKNOWN)
    regression = task == "regression"
    rule = "n·weight_decay·q/2" if regression else "n·weight_decay"
    with_q, how = (f", q={outputs}", "MSELoss averaged over q outputs") if regression else ("", averaged)
    source = f"{rule} with n={n}, weight_decay={decay:g}{with_q} ({how}); AdamW's decoupled decay counted the same (nominal)."
    return Damping(n * decay * (outputs / 2 if regression else 1.0), "weight_decay", source)
