"""The jackknife of a boosted model's margins, which was tried as a denominator: against leaf values refitted without each record."""

import numpy as np
import pytest
from benchmarks.tail_calibration.tree_rivals import quantile_margin, structural
from benchmarks.tail_calibration.tree_spread import movements, rounds_of, spread_and_parts
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier

from noshadow.scores.trees.boosting import boosting_scores


def fitted(classes):
    x, y = make_classification(150, 5, n_informative=4, n_classes=classes, n_redundant=0, n_clusters_per_class=1, random_state=0)
    return HistGradientBoostingClassifier(max_iter=4, learning_rate=0.02, early_stopping=False).fit(x, y), x, y


@pytest.mark.parametrize("classes", [2, 3])
def test_movements_are_those_of_refitted_leaves_double_sum(classes):
    """Every pair, by brute force: the leaf of i without j, at small steps, where the margin is nearly linear."""
    model, x, y = fitted(classes)
    training = rounds_of(model, x, y)
    found = movements(training)
    shift = boosting_scores(training).columns["shift"]
    np.testing.assert_allclose(np.diag(found), shift, rtol=0.05, atol=2e-3)
    margins = np.zeros((150, training.margins.shape[1])) + training.start
    own, i = np.zeros((150, training.margins.shape[1])), int(np.diag(found).argmax())
    for one in training.rounds():
        if margins.shape[1] == 1:
            p = 1 / (1 + np.exp(-margins))
            g, h = p - y[:, None], p * (1 - p)
        else:
            p = np.exp(margins - margins.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            g, h = p - np.eye(classes)[y], p * (1 - p)
        for tree in one.trees:
            mates = np.flatnonzero(tree.leaves == tree.leaves[i])
            G, H = g[mates, tree.output].sum(), h[mates, tree.output].sum()
            for j in mates:
                rest = -tree.rate * (G - g[j, tree.output]) / (H - h[j, tree.output])
                own[j, tree.output] += -tree.rate * G / H - rest
            margins[:, tree.output] += tree.values[tree.leaves]

    def margin(outputs):
        logits = np.stack([0 * outputs[:, 0], outputs[:, 0]], axis=1) if outputs.shape[1] == 1 else outputs
        others = np.delete(logits, y[i], axis=1)
        return logits[:, y[i]] - np.log(np.exp(others).sum(1))

    expected = margin(margins[i : i + 1]) - margin(margins[i] - own)
    np.testing.assert_allclose(found[i], expected, rtol=0.05, atol=2e-3)
    assert np.abs(found[i]).max() > 0.005
    held = spread_and_parts(model, x, y)
    assert held["jackknife_variance"] == pytest.approx((found.astype(float) ** 2).sum(1), rel=1e-5)
    expected = np.sign(held["yielding_fall"]) * np.sqrt(np.abs(held["yielding_fall"]) * held["yielding_loss"])
    np.testing.assert_allclose(boosting_scores(training).yielding_shift, expected, rtol=1e-6, atol=1e-9)


def test_structural_flags_by_hand():
    """Three groups: twelve mixed records, three with a class of probability 0, and one with rare classes alone."""
    outputs = np.array([[0.5, 0.5]] * 40 + [[1.0, 0.0]] * 3 + [[0.9, 0.1]])
    found = structural(outputs)
    np.testing.assert_allclose(found, [1 / 40] * 40 + [3 + 1 / 3] * 3 + [2 + 1] * 1)


def test_the_quantile_attack_leaves_one_non_member_in_a_hundred_above():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3000, 3)), rng.integers(0, 2, 3000)
    p = np.clip(0.5 + 0.3 * (2 * y - 1) * (x[:, 0] > 0) + 0.05 * rng.normal(size=3000), 0.01, 0.99)
    member = np.arange(3000) < 1000
    p[member & (y == 1)] = 0.995
    margins = quantile_margin(x, y, np.stack([1 - p, p], axis=1), member)
    assert (margins[~member] > 0).mean() < 0.03 and (margins[member & (y == 1)] > 0).mean() > 0.9
