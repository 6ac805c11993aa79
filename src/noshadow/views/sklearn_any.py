"""Any other estimator of scikit-learn: its predictions or class probabilities alone."""

from dataclasses import replace

from sklearn.base import BaseEstimator

from noshadow.views.estimator_family import EstimatorFamily
from noshadow.views.estimators import estimator_reader

# A pipeline that ends in no estimator is read here too, and refused with its reason.
ANY_ESTIMATOR = replace(
    estimator_reader(EstimatorFamily(name="any estimator", reads=lambda _: True)),
    reads=lambda model: isinstance(model, BaseEstimator),
)
