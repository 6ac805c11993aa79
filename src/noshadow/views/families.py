"""Which family a model belongs to, by the names that calibrations know: what held for one family need not hold for another."""

from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from torch import nn

from noshadow.views.sklearn import _taken_apart
from noshadow.views.view import Settings

LINEAR, NETWORK = "linear", "network"


def model_family(model: object) -> str | None:
    """Family of a model: "network" (nn.Module, multi-layer perceptron), "linear" (logistic regression), else the estimator's own name.

    A pipeline or a search is what it ends in. None for anything that is neither a module nor an estimator.
    """
    if isinstance(model, nn.Module):
        return NETWORK
    if not isinstance(model, BaseEstimator):
        return None
    last = _taken_apart(model, Settings(owner="audit")).last
    if isinstance(last, (MLPClassifier, MLPRegressor)):
        return NETWORK
    logistic = isinstance(last, LogisticRegression) or (isinstance(last, SGDClassifier) and last.loss == "log_loss")
    return LINEAR if logistic else type(last).__name__
