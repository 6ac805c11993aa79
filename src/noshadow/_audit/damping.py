"""λ of a training's weight decay."""

from noshadow.outcomes import Absent, Damping


def weight_decay_damping(weight_decay: float | None, n: int, outputs: int, task: str) -> Damping | Absent:
    """λ on the sum for mean(loss) + (wd/2)‖θ‖²; MSELoss averages over outputs."""
    if weight_decay is None:
        return Absent("not available", "weight_decay was not given")
    value = n * weight_decay * (outputs / 2 if task == "regression" else 1.0)
    return Damping(value, "weight_decay", f"weight_decay={weight_decay:g} of the training objective")
