"""Several labels per record: refused on every way in, and what is advised instead works."""

import functools

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import noshadow as ns
from noshadow import InputError
from noshadow.reference import Recipe, train_references
from noshadow.scores.last_layer.entry import record_scores
from noshadow.scores.network.generalized_leverage import generalized_leverage

N, D, Q = 60, 4, 3
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, D)).astype(np.float32)
LABELS = (X[:, :Q] + RNG.normal(size=(N, Q)) > 0).astype(np.float32)
MESSAGE = "targets must be one label per record; got 3 columns of 0 and 1. Multi-label heads are not supported: audit one label"


def head(end=lambda z: z):
    torch.manual_seed(0)

    class Labels(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(D, Q)

        def forward(self, x):
            return end(self.head(x))

    return Labels()


def split(rows=slice(None)):
    return X[rows], LABELS[rows]


def signals(rows=slice(None)):
    return ns.Signals(X[rows], X[rows] @ np.ones((D, Q), np.float32), LABELS[rows])


def never(indices, seed):
    raise AssertionError("nothing needs to be trained to see that")


WAYS = {
    "audit": lambda _: ns.audit(head(), split(slice(40)), split(slice(40, N)), progress=False),
    "audit with a weight decay": lambda _: ns.audit(head(), split(slice(40)), split(slice(40, N)), weight_decay=0.1, progress=False),
    "audit of all layers": lambda _: ns.audit(head(), split(slice(40)), split(slice(40, N)), layers="all", progress=False),
    "audit of sigmoids": lambda _: ns.audit(head(torch.sigmoid), split(slice(40)), split(slice(40, N)), progress=False),
    "audit_signals": lambda _: ns.audit_signals(signals(slice(40)), signals(slice(40, N))),
    "record_scores": lambda _: record_scores(X, X @ np.ones((D, Q)), LABELS, damping=1.0),
    "network_scores": lambda _: ns.network_scores(head(), split(), damping=1.0),
    "generalized_leverage": lambda _: generalized_leverage(head(), split(), split(slice(2)), damping=1.0),
    "LossTraces": lambda _: ns.LossTraces(split()).record(head()),
    "Recipe": lambda _: Recipe(functools.partial(nn.Linear, D, Q), X, LABELS, epochs=1, batch_size=8, lr=0.1),
    "references": lambda path: train_references(path / "r", never, split(slice(40)), split(slice(40, N)), models=4, workers=1),
}


@pytest.mark.parametrize("way", WAYS)
def test_several_labels_are_refused_on_every_way_in(way, tmp_path):
    with pytest.raises(InputError, match=MESSAGE):
        WAYS[way](tmp_path)


def test_a_regression_onto_zeros_and_ones_is_one_when_it_is_said():
    audit = ns.audit(head(), split(slice(40)), split(slice(40, N)), task="regression", progress=False)
    assert audit.task == "regression" and audit.ranked_by == "shift"


def test_one_label_at_a_time_is_the_audit_of_that_label():
    """The rows of a Linear under separate sigmoids are separate logistic regressions: scikit-learn fits each, the oracle."""
    fitted = [LogisticRegression(C=1.0, tol=1e-12, max_iter=5000).fit(X[:40], LABELS[:40, k]) for k in range(Q)]
    model = head(torch.sigmoid).double()
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor(np.vstack([one.coef_ for one in fitted])))
        model.head.bias.copy_(torch.tensor(np.concatenate([one.intercept_ for one in fitted])))
    train, test = (ns.collect_signals(model, split(rows)) for rows in (slice(40), slice(40, N)))
    for k, one in enumerate(fitted):
        members, others = (ns.Signals(s.features, s.outputs[:, k], s.targets[:, k], s.ids) for s in (train, test))
        label = ns.audit_signals(members, others, task="binary", damping=1.0, penalize_intercept=False, progress=False)
        whole = ns.audit(one, (X[:40], LABELS[:40, k]), (X[40:], LABELS[40:, k]), progress=False)
        # Both are float64 solutions of one problem from outputs that differ by rounding.
        np.testing.assert_allclose(label.records["shift"], whole.records["shift"], rtol=1e-6)
        assert label.model_risk.auc == pytest.approx(whole.model_risk.auc)
