"""Models that return several tensors: the output is the one a loss would go to, or it is asked for."""

from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional

import noshadow as ns
from noshadow import InputError
from noshadow.reference import train_references
from noshadow.views import collect_outputs, collect_signals, view

N, D, M, WIDE = 30, 4, 3, 6
RNG = np.random.default_rng(1)
X = torch.tensor(RNG.normal(size=(N, D)).astype(np.float32))
Y = torch.tensor(np.arange(N) % M)
REAL = torch.tensor(RNG.normal(size=N).astype(np.float32))
EMBEDDING = {"tanh": torch.tanh, "normalised": lambda h: functional.normalize(h, dim=1), "linear": lambda h: h}


class TwoOutputs(nn.Module):
    """An embedding, wide enough for all classes, and logits from it."""

    def __init__(self, wrap, *, embedding="tanh", outputs=M, between=None):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(D, WIDE), nn.Linear(WIDE, outputs)
        self.wrap, self.embed, self.between = wrap, EMBEDDING[embedding], between or (lambda h: h)

    def forward(self, x):
        embedding = self.embed(self.body(x))
        return self.wrap(embedding, self.head(self.between(embedding)))

    def logits(self, x):
        with torch.no_grad():
            return self.head(self.between(self.embed(self.body(x)))).numpy()


@dataclass
class Outputs:
    embedding: Any
    classes: Any


@dataclass
class Reversed:
    classes: Any
    embedding: Any


WRAPS = {
    "tuple": lambda e, z: (e, z),
    "tuple reversed": lambda e, z: (z, e),
    "list": lambda e, z: [e, z],
    "list reversed": lambda e, z: [z, e],
    "dict": lambda e, z: {"embedding": e, "logits": z},
    "dict reversed": lambda e, z: {"logits": z, "embedding": e},
    "dict of other names": lambda e, z: {"a": e, "b": z},
    "named tuple": lambda e, z: namedtuple("Out", "features classes")(e, z),
    "named tuple reversed": lambda e, z: namedtuple("Out", "classes features")(z, e),
    "dataclass": Outputs,
    "dataclass reversed": lambda e, z: Reversed(z, e),
    "object": lambda e, z: SimpleNamespace(embedding=e, scores=z),
    "object reversed": lambda e, z: SimpleNamespace(scores=z, embedding=e),
    "nested": lambda e, z: ({"logits": z}, e),
    "loss first": lambda e, z: (z.mean(), e, z),
    "tokens and integers": lambda e, z: (e[:, :, None], z.argmax(1), e, z),
    "probabilities beside": lambda e, z: (z.softmax(1), z, e),
    "the same twice": lambda e, z: (e, z, z),
}


@pytest.mark.parametrize("embedding", ["tanh", "normalised"])
@pytest.mark.parametrize("wrap", WRAPS)
def test_the_logits_are_found_in_every_order(wrap, embedding):
    model = TwoOutputs(WRAPS[wrap], embedding=embedding)
    seen = view(model, (X, Y), None, batch_size=9)
    np.testing.assert_allclose(seen.train.outputs, model.logits(X), rtol=1e-5, atol=1e-6)
    assert seen.head.startswith("Linear 'head'") and seen.not_applicable is None
    np.testing.assert_array_equal(collect_outputs(model, (X, Y), batch_size=9)[0].outputs, seen.train.outputs)


@pytest.mark.parametrize("wrap", ["tuple", "tuple reversed", "dict", "named tuple"])
def test_a_linear_embedding_that_the_head_is_given_is_no_output(wrap):
    model = TwoOutputs(WRAPS[wrap], embedding="linear")
    np.testing.assert_allclose(collect_signals(model, (X, Y)).outputs, model.logits(X), rtol=1e-5, atol=1e-6)


AMBIGUOUS = {"embedding": "linear", "between": torch.relu}


@pytest.mark.parametrize(("wrap", "output"), [("tuple", 1), ("tuple", "1"), ("list reversed", 0), ("dict of other names", "b")])
def test_where_two_may_be_meant_the_output_is_asked_for_and_taken(wrap, output, tmp_path):
    model = TwoOutputs(WRAPS[wrap], **AMBIGUOUS)
    listed = r"model must return exactly one tensor that fits the targets; got '\w' \(8, \d\), '\w' \(8, \d\)\. Pass output="
    train, test, how = (X[:20], Y[:20]), (X[20:], Y[20:]), {"progress": False}
    with pytest.raises(InputError, match=f"^audit: {listed}"):
        ns.audit(model, train, test, **how)
    audit = ns.audit(model, train, test, output=output, **how)
    expected = functional.cross_entropy(torch.tensor(model.logits(X)), Y, reduction="none").numpy()
    # float32 logits in batches of other sizes.
    np.testing.assert_allclose(audit.member_losses, expected[:20], rtol=1e-5)
    np.testing.assert_allclose(audit.nonmember_losses, expected[20:], rtol=1e-5)
    target = ns.Target(model, train, test, output=output)
    np.testing.assert_array_equal(ns.audit(target, **how).member_losses, audit.member_losses)
    for function, arguments in (
        (collect_signals, {}),
        (collect_outputs, {}),
        (ns.network_scores, {"damping": 0.1}),
        (ns.damping_sweep, {"damping": 0.1, "factors": (1.0,)}),
    ):
        with pytest.raises(InputError, match=f"^{function.__name__}: {listed}"):
            function(model, (X, Y), **arguments)
        function(model, (X, Y), output=output, **arguments)
    np.testing.assert_allclose(ns.network_scores(model, (X, Y), damping=0.1, output=output).loss, expected, rtol=1e-5)
    with pytest.raises(InputError, match=rf"^LossTraces\.record: {listed}"):
        ns.LossTraces((X, Y)).record(model)
    traces = ns.LossTraces((X, Y), output=output)
    traces.record(model)
    np.testing.assert_allclose(traces.array[:, 0], expected, rtol=1e-5)
    arguments = {"models": 4, "workers": 1, "progress": False}
    stored = train_references(tmp_path / "r", lambda indices, seed: model, train, test, output=output, **arguments)
    np.testing.assert_allclose(stored.loss[0], expected, rtol=1e-5)
    with pytest.raises(InputError, match="same"):
        train_references(tmp_path / "r", lambda indices, seed: model, train, test, output=0 if output != 0 else 1, **arguments)


def test_logits_without_a_linear_beside_a_linear_embedding_are_ambiguous():
    class Cosine(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.classes = nn.Linear(D, WIDE), nn.Parameter(torch.randn(M, WIDE))

        def forward(self, x):
            embedding = self.body(x)
            return embedding, functional.normalize(embedding, dim=1) @ functional.normalize(self.classes, dim=1).T

    with pytest.raises(InputError, match=r"got '0' \(8, 6\), '1' \(8, 3\)\. Pass output="):
        ns.audit(Cosine(), (X, Y), None, progress=False)
    with pytest.raises(InputError, match=r"must end in an nn\.Linear"):
        ns.audit(Cosine(), (X, Y), None, output=1, progress=False)


def test_what_is_called_logits_is_not_exchanged_for_something_wider():
    model = TwoOutputs(lambda e, z: {"embedding": e, "logits": z}, outputs=2)
    with pytest.raises(InputError, match="targets must be < 2, the number of outputs; got label 2"):
        ns.audit(model, (X, Y), None, progress=False)


def test_a_regression_takes_the_output_of_its_width():
    model = TwoOutputs(lambda e, z: (e, z.squeeze(1)), embedding="linear", outputs=1, between=torch.relu)
    np.testing.assert_allclose(collect_signals(model, (X, REAL)).outputs, model.logits(X), rtol=1e-5, atol=1e-6)
    pair = TwoOutputs(lambda e, z: (z[:, :1] * 1, z[:, 1:] * 1), outputs=2)
    with pytest.raises(InputError, match=r"got '0' \(8, 1\), '1' \(8, 1\)"):
        collect_signals(pair, (X, REAL))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (2, r"audit: output must name one tensor that the model returns, or its position; got 2; there are '0' \(8, 6\), '1' \(8, 3\)"),
        ("logits", r"got 'logits'; there are '0' \(8, 6\)"),
        (-1, "output must be 'auto', the name of an output or its position from 0; got -1"),
        (True, "got True"),
        ("", "got ''"),
    ],
)
def test_an_output_that_is_not_there_is_refused(output, message):
    with pytest.raises(InputError, match=message):
        ns.audit(TwoOutputs(WRAPS["tuple"]), (X, Y), None, output=output, progress=False)


def test_one_tensor_is_its_own_output():
    assert collect_signals(TwoOutputs(lambda e, z: z), (X, Y), output=0).outputs.shape == (N, M)
    with pytest.raises(InputError, match="output must name one tensor"):
        collect_signals(TwoOutputs(lambda e, z: z), (X, Y), output="logits")


def test_an_output_may_be_read_beside_a_named_layer():
    model = TwoOutputs(WRAPS["tuple"], **AMBIGUOUS)
    np.testing.assert_allclose(collect_signals(model, (X, Y), layer="head").outputs, model.logits(X), rtol=1e-5, atol=1e-6)
    assert collect_signals(model, (X, Y), layer="body").outputs.shape == (N, WIDE)


def test_estimators_have_one_output():
    with pytest.raises(InputError, match="output must be 'auto' for a scikit-learn estimator; got 1"):
        ns.audit(LogisticRegression().fit(X, Y), (X, Y), None, output=1)
