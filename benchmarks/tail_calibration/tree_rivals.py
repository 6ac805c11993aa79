"""What others offer for the records of a model with probabilities, written down from their descriptions."""

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.model_selection import StratifiedKFold

NEIGHBOURS = 5
REPEATS = 5
SMALL_GROUP = 10  # records: the usual least count of a published table
QUANTILE = 0.99


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


def structural(outputs):
    """The structural attack as SACRO-ML describes it: training records by the group that has the same probabilities, (n,).

    Flags of a group: fewer than SMALL_GROUP records (k-anonymity), a class of probability 0 (class disclosure), a class with an expected
    count between 0 and SMALL_GROUP (small groups). The score is the number of flags, and 1/k orders records with equally many.
    """
    groups, own, counts = np.unique(outputs, axis=0, return_inverse=True, return_counts=True)
    expected = groups * counts[:, None]
    flags = [counts < SMALL_GROUP, np.isclose(groups, 0).any(1), ((expected > 0) & (expected < SMALL_GROUP)).any(1)]
    return (np.sum(flags, axis=0) + 1 / counts)[own.ravel()]


def hinge_scores(outputs, labels):
    """log p of the label − the largest log p of the others, (n,)."""
    logs = np.log(np.clip(outputs, 1e-12, None))
    own = logs[np.arange(len(labels)), labels]
    logs[np.arange(len(labels)), labels] = -np.inf
    return own - logs.max(1)


def quantile_margin(x, labels, outputs, member):
    """The quantile attack (Bertran et al., NeurIPS 2023), as SACRO-ML runs it on tables: score − its quantile for such a non-member, (n,).

    A boosted regression of the hinge score on the record and its label, fitted to non-members alone. All records.
    """
    scores, seen = hinge_scores(outputs, labels), np.column_stack([x, labels])
    outside = ~member
    how = {"loss": "quantile", "quantile": QUANTILE, "random_state": 0, "early_stopping": int(outside.sum()) >= 1000}
    fitted = HistGradientBoostingRegressor(**how).fit(seen[outside], scores[outside])
    return scores - fitted.predict(seen)
