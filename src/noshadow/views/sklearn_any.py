"""Any other estimator of scikit-learn: its predictions or class probabilities, and nothing of how they arise."""

from dataclasses import replace

from sklearn.base import BaseEstimator

from noshadow.views.estimators import EstimatorFamily, estimator_reader

# Pipelines that end in no estimator are read here too: what is wrong with them is said where they are taken apart.
ANY_ESTIMATOR = replace(
    estimator_reader(EstimatorFamily(name="any estimator", reads=lambda _: True)),
    reads=lambda model: isinstance(model, BaseEstimator),
)
