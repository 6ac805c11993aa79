"""Estimators that hold an nn.Module as skorch's do are audited as that module; skorch itself is not needed."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import nn

import noshadow as ns
from noshadow.views import model_family
from noshadow.views.readers import reader_of

X = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(np.int64)
TRAIN, TEST = (X[:60], Y[:60]), (X[60:], Y[60:])


class Wrapped(ClassifierMixin, BaseEstimator):
    """A classifier that keeps its network where skorch keeps it."""

    def fit(self, x, y):
        with torch.random.fork_rng():
            torch.manual_seed(0)
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


def test_what_holds_no_module_is_read_by_its_own_family():
    assert reader_of(Wrapped()).name == "any estimator"
    odd = Wrapped()
    odd.module_ = "no module"
    assert reader_of(odd).name == "any estimator"
    inner = nn.Linear(2, 2)
    inner.module_ = nn.Linear(2, 2)
    assert reader_of(inner).name == "nn.Module"
