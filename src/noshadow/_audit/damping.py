"""λ of a training's weight decay."""


def weight_decay_damping(weight_decay: float, n: int, outputs: int, task: str) -> float:
    """λ on the sum for mean(loss) + (wd/2)‖θ‖²; MSELoss averages over outputs."""
    return n * weight_decay * (outputs / 2 if task == "regression" else 1.0)
