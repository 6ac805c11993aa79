"""Naive Bayes of scikit-learn: a record leaves the sums that the model is made of."""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import softmax
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB

from noshadow.checks import Array, NotApplicable
from noshadow.views.estimator_family import EstimatorFamily, Refitted, type_name
from noshadow.views.estimators import estimator_reader

HOW = "the record leaves the counts, means and variances of its class; exact"


def _gaussian(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """GaussianNB made again from class sums, with and without each record. Cost: O(nmd)."""
    table = np.asarray(X, dtype=np.float64)
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    sides = [_gaussian_posterior(last, table, y, weight, leave=leave) for leave in (False, True)]
    return Refitted(sides[0], sides[1], HOW)


def _gaussian_posterior(last: Any, X: Array, y: Array, weight: Array, *, leave: bool) -> Array:
    """p(c | x_i) of all records, from class means and variances without record i if `leave`.

    N, μ, σ² of a class without a record of weight w: N − w, μ − w(x − μ)/(N − w),
    (Nσ² − wN(x − μ)²/(N − w))/(N − w). The smoothing is a share of the largest variance of any
    feature, which also loses the record, unweighted as scikit-learn has it.
    """
    n, m = len(y), len(last.classes_)
    counts = np.bincount(y, weight, m)
    joint = np.empty((n, m))
    noise = np.broadcast_to(last.var_smoothing * _feature_variances(X, leave=leave).max(-1, keepdims=True), (n, 1))
    for c in range(m):
        own = (y == c) & leave
        inside = y == c
        mean = np.average(X[inside], axis=0, weights=weight[inside])
        spread = np.average((X[inside] - mean) ** 2, axis=0, weights=weight[inside])
        centre, variance, rest = np.tile(mean, (n, 1)), np.tile(spread, (n, 1)), counts[c] - weight[own]
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond, share = X[own] - mean, (weight[own] / rest)[:, None]
            centre[own] -= share * beyond
            variance[own] = np.maximum(counts[c] / rest[:, None] * (spread - share * beyond**2), 0.0)
            variance = variance + noise
            # A class of this record alone is gone without it.
            joint[:, c] = -0.5 * (np.log(2 * np.pi * variance) + (X - centre) ** 2 / variance).sum(1)
        joint[np.flatnonzero(own)[rest <= 0], c] = np.nan
    return _posterior(joint + _log_priors(last.priors, counts, y, weight, leave=leave))


def _feature_variances(X: Array, *, leave: bool) -> Array:
    """Variance of each feature: (1, d) over all records, (n, d) without each of them."""
    spread, n = X.var(0), len(X)
    found: Array
    if not leave:
        found = spread[None]
        return found
    found = n / (n - 1) * (spread - (X - X.mean(0)) ** 2 / (n - 1))
    return found


def _log_priors(given: Any, counts: Array, y: Array, weight: Array, *, leave: bool) -> Array:
    """log p(c) that each record meets, (n, m): shares of the weights, less its own if `leave`."""
    if given is not None:
        return np.log(np.broadcast_to(np.asarray(given, dtype=np.float64), (len(y), len(counts))))
    held = np.tile(counts, (len(y), 1))
    if leave:
        held[np.arange(len(y)), y] -= weight
    with np.errstate(divide="ignore"):
        found: Array = np.log(held) - np.log(held.sum(1, keepdims=True))
    return found


def _posterior(joint: Array) -> Array:
    gone = np.isnan(joint).any(1)
    found: Array = softmax(np.where(np.isnan(joint), -np.inf, joint), axis=1)
    found[gone] = np.nan
    return found


def _counted(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """Naive Bayes of counts made again, with and without each record. Cost: O(m · entries of X)."""
    if isinstance(last, ComplementNB) and last.norm:
        raise NotApplicable("ComplementNB with norm=True divides by a sum over all features, which is not taken apart here")
    table = sparse.csr_array(X, dtype=np.float64)
    if isinstance(last, BernoulliNB) and last.binarize is not None:
        table = sparse.csr_array(np.asarray(table.toarray() > last.binarize, dtype=np.float64))
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    m = len(last.classes_)
    members = sparse.csr_array((weight, (y, np.arange(len(y)))), shape=(m, len(y)))
    features, counts = (members @ table).toarray(), np.bincount(y, weight, m)
    alpha = np.broadcast_to(np.asarray(last.alpha, dtype=np.float64), features.shape[1:])
    alpha = alpha if last.force_alpha else np.maximum(alpha, 1e-10)
    joint_of = {MultinomialNB: _multinomial, ComplementNB: _complement, BernoulliNB: _bernoulli}[type(last)]
    sides = []
    for leave in (False, True):
        taken = weight * leave
        joint = np.column_stack([joint_of(table, features, counts, alpha, c, np.where(y == c, taken, 0.0), taken) for c in range(m)])
        if not isinstance(last, ComplementNB):
            given = last.class_prior if last.class_prior is not None else None if last.fit_prior else np.full(m, 1 / m)
            joint = joint + _log_priors(given, counts, y, weight, leave=leave)
        if leave:
            joint[counts[y] - weight <= 0] = np.nan
        sides.append(_posterior(joint))
    return Refitted(sides[0], sides[1], HOW)


def _log_shares(table: Any, features: Array, alpha: Array, taken: Array) -> Array:
    """Σ_j x_ij log((F_j − w_i x_ij + α_j)/Σ_j(F_j − w_i x_ij + α_j)), (n,)."""
    rows = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    held = np.maximum(features[table.indices] - taken[rows] * table.data, 0.0) + alpha[table.indices]
    size = np.asarray(table.sum(1)).ravel()
    whole = features.sum() + alpha.sum() - taken * size
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.bincount(rows, table.data * np.log(held), table.shape[0]) - size * np.log(whole)
    return found


def _multinomial(table: Any, features: Array, counts: Array, alpha: Array, c: int, own: Array, taken: Array) -> Array:
    return _log_shares(table, features[c], alpha, own)


def _complement(table: Any, features: Array, counts: Array, alpha: Array, c: int, own: Array, taken: Array) -> Array:
    # A record leaves the complements of all classes but its own.
    return -_log_shares(table, features.sum(0) - features[c], alpha, taken - own)


def _bernoulli(table: Any, features: Array, counts: Array, alpha: Array, c: int, own: Array, taken: Array) -> Array:
    seen = table.toarray()
    held = np.maximum(features[c] - own[:, None] * seen, 0.0) + alpha
    whole = counts[c] - own[:, None] + 2 * alpha
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.where(seen > 0, np.log(held), np.log(whole - held)).sum(1) - np.log(whole).sum(1)
    return found


def _categorical(last: Any, X: Any, y: Array, task: str, sample_weight: Array | None) -> Refitted:
    """CategoricalNB made again from its counts, with and without each record. Cost: O(nmd).

    The number of categories of each feature stays, as `min_categories` would keep it.
    """
    table = np.asarray(X, dtype=np.int64)
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    n, m = len(y), len(last.classes_)
    counts, alpha = np.bincount(y, weight, m), float(last.alpha if last.force_alpha else max(last.alpha, 1e-10))
    given = last.class_prior if last.class_prior is not None else None if last.fit_prior else np.full(m, 1 / m)
    sides = []
    for leave in (False, True):
        own = np.zeros((n, m))
        own[np.arange(n), y] = weight * leave
        joint = np.zeros((n, m))
        for column, categories in zip(table.T, last.n_categories_, strict=True):
            held = np.stack([np.bincount(column[y == c], weight[y == c], categories) for c in range(m)])
            with np.errstate(divide="ignore", invalid="ignore"):
                joint += np.log(held.T[column] - own + alpha) - np.log(held.sum(1) - own + alpha * categories)
        joint = joint + _log_priors(given, counts, y, weight, leave=leave)
        if leave:
            joint[counts[y] - weight <= 0] = np.nan
        sides.append(_posterior(joint))
    return Refitted(sides[0], sides[1], HOW)


GAUSSIAN_BAYES = estimator_reader(
    EstimatorFamily(
        name="Gaussian naive Bayes",
        reads=lambda last: isinstance(last, GaussianNB),
        left_out=_gaussian,
    )
)

COUNTING_BAYES = estimator_reader(
    EstimatorFamily(
        name="naive Bayes of counts",
        reads=lambda last: (
            type_name(last) in ("MultinomialNB", "ComplementNB", "BernoulliNB")
            and isinstance(last, (MultinomialNB, ComplementNB, BernoulliNB))
        ),
        left_out=_counted,
    )
)

CATEGORICAL_BAYES = estimator_reader(
    EstimatorFamily(name="naive Bayes of categories", reads=lambda last: isinstance(last, CategoricalNB), left_out=_categorical)
)
