"""What others offer for the records of a model with probabilities, written down from their descriptions."""

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold

NEIGHBOURS = 5
REPEATS = 5


def shapley_of_neighbours(outputs, labels, test_outputs, test_labels, k=NEIGHBOURS):
    """SHAPr (Duddu, Szyller and Asokan, arXiv 2112.02230): Shapley value of each training record for a vote of k neighbours, (n,).

    Neighbours are near in the model's outputs; the value is the mean over test records of the recursion of Jia et al. (arXiv 1908.08619)
    over training records sorted by distance: s_N = 1[y_N = y]/N, s_i = s_{i+1} + (1[y_i = y] − 1[y_{i+1} = y])/k · min(k, i)/i.
    """
    n, total = len(labels), np.zeros(len(labels))
    places = np.arange(1, n)
    for row, label in zip(test_outputs, test_labels, strict=True):
        order = np.argsort(((outputs - row) ** 2).sum(1), kind="stable")
        same = (labels[order] == label).astype(np.float64)
        steps = (same[:-1] - same[1:]) / k * np.minimum(k, places) / places
        values = np.empty(n)
        values[-1] = same[-1] / n
        values[:-1] = values[-1] + np.cumsum(steps[::-1])[::-1]
        total[order] += values
    return total / len(test_labels)


def worst_case(outputs, member):
    """The worst-case attack as SACRO-ML describes it (after Rezaei and Liu 2021): a forest that tells members by their probabilities.

    Sorted probabilities of members and others, a random forest fitted to half of them, its chance of membership for the other half;
    both halves, averaged over five draws. Returns (n,) over all records.
    """
    features, found = -np.sort(-outputs, axis=1), np.zeros(len(outputs))
    for draw in range(REPEATS):
        for fit, judge in StratifiedKFold(2, shuffle=True, random_state=draw).split(features, member):
            attack = RandomForestClassifier(max_depth=5, min_samples_leaf=10, random_state=draw).fit(features[fit], member[fit])
            found[judge] += attack.predict_proba(features[judge])[:, 1] / REPEATS
    return found


def label_quality(labels, outside):
    """cleanlab's self-confidence (Northcutt, Jiang and Chuang 2021), turned over: minus the out-of-fold probability of the label, (n,)."""
    return -outside[np.arange(len(labels)), labels]
