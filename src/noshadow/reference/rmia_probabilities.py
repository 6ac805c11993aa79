"""RMIA's p(x | θ) of every record under every reference model, on disk, and under the target."""

import tempfile

import numpy as np
from scipy.special import expit

from noshadow.checks import Array
from noshadow.columns import LANGUAGE_MODEL
from noshadow.reference.store import References

# Probabilities are raised to this, so that a residual of 37 standard deviations or a margin of −710
# does not divide by zero.
SMALLEST_PROBABILITY = 1e-300


def reference_probabilities(references: References) -> tuple[Array, int]:
    """Compute p(x | θ_t) for all models and records, and count how many were raised to 1e-300.

    The probabilities are a temporary memory-mapped (r, n).

    Classification: the probability of the true class, 1/(1 + e^{−φ}). Regression: the Gaussian
    density N(y; f(x), σ̂²) with σ̂² the model's mean squared error on the records it was not
    trained on. Sequences of a language model: exp(−loss) = Π p(x_t | x_<t)^(1/T), the geometric
    mean of the probabilities of their T tokens, so that long and short sequences have ratios of one
    size; the paper has no language models, and its authors' tool (Privacy Meter) takes this mean.

    Cost: O(rn); memory O(n).
    """
    shape = references.membership.shape
    with tempfile.TemporaryFile() as file:
        # The mapping keeps the pages alive after the (already nameless) file is closed.
        probabilities: Array = np.memmap(file, dtype=np.float64, mode="w+", shape=shape)
    raised = 0
    for model in range(shape[0]):
        row, count = probabilities_of(references.statistic[model], references.membership[model], references.task, references.residuals)
        probabilities[model] = row
        raised += count
    return probabilities, raised


def probabilities_of(statistic: Array, member: Array, task: str, residuals: int = 1) -> tuple[Array, int]:
    """p(x | θ) of the records under one model, (n,), and how many were raised to 1e-300.

    Args:
        statistic: (n,) or (n, queries) margins, of which the plain record's is used; (n, q) signed
            residuals; or (n,) −losses of sequences.
        member: (n,) whether the model was trained on the record.
        task: of the model. residuals: number q of outputs of a regression.
    """
    if task == LANGUAGE_MODEL:
        return _raised(np.exp(np.asarray(statistic, dtype=np.float64).reshape(len(statistic))))
    if task != "regression":
        margins = statistic if statistic.ndim == 1 else statistic[:, 0]
        return _raised(expit(np.asarray(margins, dtype=np.float64)))
    columns = np.asarray(statistic, dtype=np.float64).reshape(len(statistic), -1)[:, :residuals]
    squares = (columns**2).sum(1)
    variance = float(squares[~member].mean()) / columns.shape[1]
    if variance == 0:
        return np.where(squares == 0, 1.0, SMALLEST_PROBABILITY), int((squares > 0).sum())
    density = np.exp(-squares / (2 * variance)) / (2 * np.pi * variance) ** (columns.shape[1] / 2)
    return _raised(density)


def _raised(probabilities: Array) -> tuple[Array, int]:
    return np.maximum(probabilities, SMALLEST_PROBABILITY), int((probabilities < SMALLEST_PROBABILITY).sum())
