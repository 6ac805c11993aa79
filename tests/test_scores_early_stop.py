"""A linear head stopped early: what gradient descent without the record gives, after as many steps, is the truth."""

import numpy as np
import pytest

import noshadow as ns

LEARNING_RATE = 0.1


def descended(rows, labels, weights, steps):
    """Logistic regressions after so many steps of gradient descent from zero on the mean loss, one for each row of weights."""
    theta = np.zeros((len(weights), rows.shape[1]))
    counts = weights.sum(1, keepdims=True)
    for _ in range(steps):
        slopes = (1 / (1 + np.exp(-theta @ rows.T)) - labels) * weights
        theta -= LEARNING_RATE * slopes @ rows / counts
    return theta


@pytest.fixture(scope="module")
def problem():
    """Many features, most of them faint: directions that few steps do not reach."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 60)) * np.geomspace(1, 0.02, 60)
    return features, (rng.random(200) < 1 / (1 + np.exp(-2 * features[:, 0]))).astype(int)


@pytest.mark.parametrize("steps", [100, 400])
def test_the_decay_of_stopping_early_gives_order_and_size(problem, steps):
    features, labels = problem
    n = len(features)
    rows = np.column_stack([features, np.ones(n)])
    outputs = rows @ descended(rows, labels, np.ones((1, n)), steps)[0]
    without = (descended(rows, labels, 1 - np.eye(n), steps) * rows).sum(1)
    truth = (2 * labels - 1) * (outputs - without)

    def shift(decay):
        return ns.record_scores(features, outputs, labels, task="binary", damping=n * decay).shift

    trained, stopped = shift(1e-6), shift(1e-6 + 1 / (LEARNING_RATE * steps))
    # Descent and ridge regression shrink directions nearly alike; what a record did on the way is not in the final weights.
    assert ns.metrics.spearman(truth, stopped) > 0.975 > ns.metrics.spearman(truth, trained)
    assert 0.5 < np.median(stopped / truth) < 1 < 4 < np.median(trained / truth)
