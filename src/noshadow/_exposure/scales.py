"""How much a record's own level and slope may vary, by what its covariates predict.

Records whose covariates predict a large slope also differ more from that prediction: one covariance
for all would give the riskiest records intervals that are too short.
"""

import numpy as np

from noshadow.checks import Array

STEPS = 25
LEAST_TOLD = 50.0  # records' worth of margins, below which one size serves all
STEEPEST = 1.5  # of log variance per standard deviation: a factor of 20 between −1 and +1


def fitted_scales(means: Array, told: Array, at: Array) -> Array:
    """Standard deviations (2, n) of level and slope relative to the mean record.

    The posterior mean of a or b has the variance told · prior variance, whose logarithm is linear
    in the predictors: a gamma regression of mean²/told, each record counting as far as its margins
    say something about it.

    Args:
        means: (2, n) posterior means of a and b. told: (2, n) in [0, 1], the share of the prior
            variance that a record's margins explain. at: (2, n) predictors.
    """
    design = np.column_stack([np.ones(at.shape[1]), at.T])
    found = np.ones_like(means)
    for row, (mean, weight) in enumerate(zip(means, told, strict=True)):
        if weight.sum() < LEAST_TOLD:
            continue
        square = mean**2 / np.maximum(weight, 1e-12)
        numbers = np.array([np.log(max(float(np.average(square, weights=weight)), 1e-300)), 0.0, 0.0])
        information = (design * weight[:, None]).T @ design + 1e-6 * weight.sum() * np.eye(3)
        for _ in range(STEPS):
            step = np.linalg.solve(information, design.T @ (weight * (square * np.exp(-design @ numbers) - 1)))
            numbers = numbers + np.clip(step, -0.5, 0.5)
            if np.abs(step).max() < 1e-8:
                break
        found[row] = np.exp(0.5 * (at.T @ np.clip(numbers[1:], -STEEPEST, STEEPEST)))
    return found
