"""Linear layers that run at every token of a record, in factors, against the dense Jacobian."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import noshadow as ns
from extras import extra
from noshadow.scores.network import kernel_terms
from noshadow.scores.network.factored_layers import PlainLinear
from noshadow.scores.network.gradients import record_differentiation
from noshadow.scores.network.problem import network_problem
from noshadow.scores.network.projected import projected_features, sketches
from noshadow.views.network import network_view
from test_network_scores import assert_columns, dense_jacobian, margin_oracle, primal_oracle

RECORDS, TOKENS, WORDS = 14, 3, 11


class Tokens(nn.Module):
    """Positions, two linear layers at every token (one without a bias), and a pooled head."""

    def __init__(self, linear=nn.Linear):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 8), nn.Embedding(9, 8)
        self.wide, self.narrow = linear(8, 9), nn.Linear(9, 7, bias=False)
        self.head = nn.Linear(7, 3)

    def forward(self, ids):
        seen = self.words(ids) + self.places(torch.arange(ids.shape[1])[None])
        hidden = self.narrow(torch.tanh(self.wide(seen)).cumsum(1)).tanh()
        used = (ids != 0).to(hidden.dtype)[:, :, None]
        return self.head((hidden * used).sum(1) / used.sum(1))


def made(**options):
    torch.manual_seed(0)
    return Tokens(**options).double()


def texts(tokens=TOKENS):
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(1, WORDS, (RECORDS, tokens), generator=draw)
    ids[::3, tokens - 1 :] = 0
    return ids, torch.randint(0, 3, (RECORDS,), generator=draw)


def plain_layers(model, data, batch_size=RECORDS):
    with (
        network_view(model, data, layers="all") as (network, records),
        record_differentiation(network, next(iter(records.batches(batch_size)))) as (_, plain),
    ):
        return {layer.name: layer for layer in plain}


@pytest.mark.parametrize("way", ["pairs", "formed", "chosen"])
@pytest.mark.parametrize("outputs", ["margin", "all"])
def test_tokens_match_the_dense_jacobian(way, outputs, monkeypatch):
    if way != "chosen":
        for name in ("_add_pairs", "_add_formed"):
            monkeypatch.setattr(kernel_terms, name, getattr(kernel_terms, f"_add_{way}"))
    monkeypatch.setattr(kernel_terms, "NUMBERS", 300)  # several blocks of records, and of a weight's rows
    model, (x, y) = made(), texts()
    plain = plain_layers(model, (x, y))
    assert set(plain) == {"words", "places", "wide", "narrow", "head"}
    assert plain["wide"].positions == TOKENS and plain["head"].positions is None
    found = ns.network_scores(model, (x, y), damping=0.3, outputs=outputs, method="dual", batch_size=5)
    jacobian, given = dense_jacobian(model, x), model.eval()(x).detach()
    oracle = margin_oracle(jacobian, given, y, 0.3) if outputs == "margin" else primal_oracle(jacobian, given, y, 0.3, "classification")
    assert_columns(found, oracle)


def test_both_ways_are_taken_where_they_are_cheaper(monkeypatch):
    taken = []
    for name in ("_add_pairs", "_add_formed"):
        monkeypatch.setattr(kernel_terms, name, lambda *_, name=name: taken.append(name))
    for tokens, d in ((4, 256), (64, 64)):
        kernel_terms.add_linear(torch.zeros(20, 20), torch.zeros(20, tokens, d), torch.zeros(20, tokens, 1, d), bias=True)
    assert taken == ["_add_pairs", "_add_formed"]


def test_many_tokens_in_narrow_layers_are_differentiated_in_full():
    model, (x, y) = made(), texts(9)
    assert set(plain_layers(model, (x, y))) == {"words", "head"}
    found = ns.network_scores(model, (x, y), damping=0.3, method="dual")
    assert_columns(found, margin_oracle(dense_jacobian(model, x), model.eval()(x).detach(), y, 0.3))


def test_batches_of_different_lengths():
    model, (x, y) = made(), texts()
    x = x.clone()
    x[:4, 2:] = 0

    def collate(items):
        ids, labels = torch.stack([item[0] for item in items]), torch.tensor([item[1] for item in items])
        return ids[:, : int((ids != 0).sum(1).max())], labels

    loader = DataLoader(list(zip(x, y, strict=True)), batch_size=4, collate_fn=collate)
    found = ns.network_scores(model, loader, damping=0.3, method="dual", batch_size=4)
    assert_columns(found, margin_oracle(dense_jacobian(model, x), model.eval()(x).detach(), y, 0.3))
    near = ns.network_scores(model, loader, damping=0.3, method="projected", dimension=found.parameters, batch_size=4)
    # Features are kept in float32.
    np.testing.assert_allclose(near.shift, found.shift, rtol=1e-4)
    np.testing.assert_allclose(near.gradient_norm, found.gradient_norm, rtol=1e-10)


@pytest.mark.parametrize("outputs", ["margin", "all"])
def test_projected_factors_are_projected_gradients(outputs):
    model, (x, y) = made(), texts()
    with network_view(model, (x, y), layers="all") as (network, records):
        problem = network_problem(network, records, task="auto", outputs=outputs, sample_weight=None, batch_size=5, progress=False)
        with record_differentiation(network, next(iter(records.batches(5)))) as (differentiate, plain):
            drawn = sketches(network, plain, dimension=90, seed=0, draw=0)
            features = projected_features(network, records, problem, differentiate, [drawn], progress=False)
            whole = differentiate(next(iter(records.batches(RECORDS))), problem.cotangents(0, RECORDS))
    linears = {layer.name: layer for layer in plain if isinstance(layer, PlainLinear)}
    start = 0
    for sketch in drawn:
        rows = features.draws[0][:, start : start + sketch.width].double().view(RECORDS, problem.columns, -1)
        start += sketch.width
        if sketch.name not in linears:
            continue
        for column, gradients in enumerate(whole):
            parts = gradients.factors[sketch.name].whole()
            matrix = torch.cat([parts[0], parts[1][:, :, None]], 2) if len(parts) > 1 else parts[0]
            matrix = matrix if sketch.right is None else matrix @ sketch.right.T
            matrix = matrix if sketch.left is None else sketch.left @ matrix
            # float32 features
            torch.testing.assert_close(rows[:, column], matrix.flatten(1), rtol=1e-5, atol=1e-6)
    squares = [sum(float((part**2).sum()) for g in whole[:1] for f in (g.factors[n].whole() for n in linears) for part in f)]
    tables = sum(float((part**2).sum()) for name in whole[0].lookups for part in whole[0].lookups[name].whole())
    assert float(features.norms[:, 0, 0].sum()) == pytest.approx(squares[0] + tables, rel=1e-10)


def test_the_linear_layer_of_gpt2_is_taken_in_factors():
    conv = extra("transformers.pytorch_utils").Conv1D
    model, (x, y) = made(linear=lambda d_in, d_out: conv(d_out, d_in)), texts()
    assert plain_layers(model, (x, y))["wide"].transposed
    found = ns.network_scores(model, (x, y), damping=0.3, method="dual", batch_size=5)
    assert_columns(found, margin_oracle(dense_jacobian(model, x), model.eval()(x).detach(), y, 0.3))


def test_a_layer_that_runs_twice_is_differentiated_in_full():
    class Twice(Tokens):
        def forward(self, ids):
            self.wide(self.words(ids))
            return super().forward(ids)

    torch.manual_seed(0)
    model, (x, y) = Twice().double(), texts()
    assert "wide" not in plain_layers(model, (x, y))
