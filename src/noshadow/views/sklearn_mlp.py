"""Multi-layer perceptrons of scikit-learn: the head is their last layer."""

from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.neural_network import MLPClassifier, MLPRegressor

from noshadow.checks import Array
from noshadow.views.estimator_family import WITHOUT, EstimatorFamily, estimator_task, type_name
from noshadow.views.estimators import estimator_reader
from noshadow.views.penalty import perceptron_penalty
from noshadow.views.reader import NETWORK

ACTIVATIONS = {"identity": lambda z: z, "logistic": expit, "tanh": np.tanh, "relu": lambda z: np.maximum(z, 0)}


def _task(last: Any) -> str:
    several = getattr(last, "out_activation_", None) == "logistic" and last.n_outputs_ > 1
    return estimator_task(last, several_labels=several)


def _headless(last: Any) -> str | None:
    if isinstance(last, MLPRegressor) and last.out_activation_ != "identity":
        return f"{type_name(last)} with loss={last.loss!r} has no linear output under squared loss; {WITHOUT}"
    return None


def _head(last: Any, X: Any, dense: Array) -> tuple[Array, Array]:
    # For scikit-learn's own checks of names and order of columns.
    last.predict(X[:1])
    features = dense
    for weights, bias in zip(last.coefs_[:-1], last.intercepts_[:-1], strict=True):
        features = ACTIVATIONS[last.activation](features @ weights + bias)
    return features, features @ last.coefs_[-1] + last.intercepts_[-1]


PERCEPTRON = estimator_reader(
    EstimatorFamily(
        name="multi-layer perceptron",
        reads=lambda last: isinstance(last, (MLPClassifier, MLPRegressor)),
        calibrated_as=lambda _: NETWORK,
        task=_task,
        headless=_headless,
        head=_head,
        penalty=perceptron_penalty,
    )
)
