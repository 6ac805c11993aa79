"""Estimators that hold an nn.Module as skorch's do are audited as that module; skorch itself is not needed."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import noshadow as ns
from noshadow.checks import InputError
from noshadow.views import model_family
from noshadow.views.readers import reader_of

X = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(np.int64)
TRAIN, TEST = (X[:60], Y[:60]), (X[60:], Y[60:])


class Wrapped(ClassifierMixin, BaseEstimator):
    """A classifier that keeps its network where skorch keeps it."""

    def __init__(self, seed=0):
        self.seed = seed

    def fit(self, x, y):
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            self.module_ = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x):
        with torch.no_grad():
            return torch.softmax(self.module_(torch.as_tensor(x)), 1).numpy()


@pytest.mark.parametrize("layers", ["last", "all"])
def test_the_module_inside_is_audited_with_its_head(layers):
    model = Wrapped().fit(*TRAIN)
    found, direct = (ns.audit(one, TRAIN, TEST, weight_decay=1e-2, layers=layers, progress=False) for one in (model, model.module_))
    assert found.ranked_by == direct.ranked_by == "shift" and found.provenance["head"] == direct.provenance["head"]
    assert found.records.equals(direct.records)
    assert found.provenance["hashes"] == direct.provenance["hashes"] and model_family(model) == "network"


@pytest.mark.parametrize("search", [False, True])
def test_at_the_end_of_a_pipeline_the_module_is_audited_on_what_the_steps_make(search):
    scaled = Pipeline([("scale", StandardScaler()), ("net", Wrapped())]).fit(*TRAIN)
    model = GridSearchCV(scaled, {}, cv=2, scoring=lambda *_: 0.0).fit(*TRAIN) if search else scaled
    inside = model.best_estimator_ if search else model
    splits = [(inside["scale"].transform(x), y) for x, y in (TRAIN, TEST)]
    found = ns.audit(model, TRAIN, TEST, weight_decay=1e-2, progress=False)
    direct = ns.audit(inside["net"].module_, *splits, weight_decay=1e-2, progress=False)
    assert found.ranked_by == direct.ranked_by == "shift" and model_family(model) == "network"
    assert found.records.equals(direct.records) and found.provenance["head"] == direct.provenance["head"]
    assert found.provenance["hashes"]["weights"] == direct.provenance["hashes"]["weights"]


def test_a_pipeline_around_a_module_takes_tables_and_the_last_layer():
    model = Pipeline([("scale", StandardScaler()), ("net", Wrapped())]).fit(*TRAIN)
    data = torch.utils.data.TensorDataset(torch.as_tensor(X), torch.as_tensor(Y))
    with pytest.raises(InputError, match=r"audit: train must be \(X, y\) for a pipeline that ends in an estimator around an nn.Module"):
        ns.audit(model, data, data, progress=False)
    with pytest.raises(InputError, match="layers must be 'last'"):
        ns.audit(model, TRAIN, TEST, layers="all", progress=False)


def test_references_of_a_pipeline_around_a_module_are_read_as_it_is():
    def train_fn(rows, seed):
        return Pipeline([("scale", StandardScaler()), ("net", Wrapped(seed))]).fit(X[rows], Y[rows])

    model = train_fn(np.arange(60), 0)
    audit = ns.audit(model, TRAIN, TEST, reference_models=2, train_fn=train_fn, training_options={"workers": 1}, progress=False)
    assert audit.ranked_by == "exposure_score" and "shift" in audit.records


def test_what_holds_no_module_is_read_by_its_own_family():
    assert reader_of(Wrapped()).name == "any estimator"
    odd = Wrapped()
    odd.module_ = "no module"
    assert reader_of(odd).name == "any estimator"
    inner = nn.Linear(2, 2)
    inner.module_ = nn.Linear(2, 2)
    assert reader_of(inner).name == "nn.Module"
