"""Lookup tables (nn.Embedding) in scores over many layers: their gradients are never formed, and the scores are those of formed ones."""

import numpy as np
import pytest
import torch
from torch import nn

import noshadow as ns
from noshadow.scores.network.factored_layers import PlainLookup
from noshadow.scores.network.gradients import record_differentiation
from noshadow.scores.network.tangent_kernel import kernel_parts
from noshadow.views.network import network_view
from test_network_scores import assert_columns, dense_jacobian, margin_oracle, primal_oracle

WORDS, LENGTH, RECORDS = 30, 6, 24


class FormedEmbedding(nn.Embedding):
    """Not an nn.Embedding by its type, so its gradient is formed."""


class Sentences(nn.Module):
    """Word vectors, a mixing layer over the words of a sentence, and a head."""

    def __init__(self, table=nn.Embedding, outputs=3, **options):
        super().__init__()
        self.words = table(WORDS, 4, **options)
        self.mix = nn.Linear(4, 5)
        self.head = nn.Linear(5, outputs)

    def forward(self, x):
        return self.head(torch.tanh(self.mix(self.words(x.long()))).mean(1))


class Customers(nn.Module):
    """Two categories with a table each, one number: the shape of tabular networks."""

    def __init__(self, table=nn.Embedding):
        super().__init__()
        self.town, self.bank = table(9, 3), table(5, 2)
        self.layers = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))

    def forward(self, x):
        found = [self.town(x[:, 0].long()), self.bank(x[:, 1].long()), x[:, 2:]]
        return self.layers(torch.cat(found, 1))


class Tied(Sentences):
    """The same word vectors read once more as the weights of a layer."""

    def forward(self, x):
        inner = torch.tanh(self.mix(self.words(x.long()))).mean(1)
        return self.head(inner) + (inner[:, :4] @ self.words.weight[:3].T)


def made(build, seed=0, **options):
    torch.manual_seed(seed)
    return build(**options).double()


def sentences(words=WORDS, seed=0):
    """Numbers with repetitions within a sentence; zeros at the end, as padding."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, words, (RECORDS, LENGTH)) * (np.arange(LENGTH) < rng.integers(2, LENGTH + 1, RECORDS)[:, None])
    return torch.from_numpy(x), torch.from_numpy(rng.integers(0, 3, RECORDS))


def customers(seed=0):
    rng = np.random.default_rng(seed)
    x = np.c_[rng.integers(0, 9, RECORDS), rng.integers(0, 5, RECORDS), rng.standard_normal(RECORDS)]
    return torch.from_numpy(x), torch.from_numpy(rng.integers(0, 2, RECORDS))


def plain_tables(model, x, y):
    with network_view(model, (x, y), layers="all") as (network, records):
        probe = next(iter(records.batches(len(y))))
        with record_differentiation(network, probe) as (_, plain):
            return {layer.name for layer in plain if isinstance(layer, PlainLookup)}


@pytest.mark.parametrize("outputs", ["margin", "all"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 0}, {"padding_idx": -1}, {"sparse": True}])
def test_sentences_match_the_dense_jacobian(outputs, options):
    model, (x, y) = made(Sentences, **options), sentences()
    assert plain_tables(model, x, y) == {"words"}
    found = ns.network_scores(model, (x, y), damping=0.3, outputs=outputs, method="dual", batch_size=7)
    assert model.words.sparse == options.get("sparse", False)
    model.words.sparse = False
    jacobian, given = dense_jacobian(model, x), model.eval()(x).detach()
    oracle = margin_oracle(jacobian, given, y, 0.3) if outputs == "margin" else primal_oracle(jacobian, given, y, 0.3, "classification")
    assert_columns(found, oracle)


def test_small_memory_cuts_a_table_into_several_passes_and_changes_nothing(monkeypatch):
    monkeypatch.setattr("noshadow.scores.network.tangent_kernel.LEAST_NUMBERS", 1)
    monkeypatch.setattr("noshadow.scores.network.tangent_kernel.ROWS", 5)
    model, (x, y) = made(Sentences, padding_idx=0), sentences()
    with (
        network_view(model, (x, y), layers="all") as (network, records),
        record_differentiation(network, next(iter(records.batches(RECORDS)))) as (_, plain),
    ):
        passes = kernel_parts(network, plain, rows=RECORDS, numbers=RECORDS**2)
    assert [(p.start, p.stop) for group in passes for p in group if p.name == "words"] == [(0, 3), (3, 4)]
    found = ns.network_scores(model, (x, y), damping=0.3, method="dual", batch_size=7)
    assert_columns(found, margin_oracle(dense_jacobian(model, x), model.eval()(x).detach(), y, 0.3))


def test_categories_match_the_dense_jacobian():
    model, (x, y) = made(Customers), customers()
    assert plain_tables(model, x, y) == {"town", "bank"}
    found = ns.network_scores(model, (x, y), damping=0.3, outputs="margin", method="dual", batch_size=7)
    assert_columns(found, margin_oracle(dense_jacobian(model, x), model.eval()(x).detach(), y, 0.3))


@pytest.mark.parametrize("outputs", ["margin", "all"])
@pytest.mark.parametrize("dimension", [40, 100_000])
@pytest.mark.parametrize(("build", "draw"), [(Sentences, sentences), (Customers, customers)])
def test_projected_factors_are_the_projection_of_the_formed_gradient(build, draw, dimension, outputs):
    """The same random numbers meet both; features are kept in single precision, hence 1e-4."""
    x, y = draw()
    settings = {"damping": 0.3, "method": "projected", "dimension": dimension, "outputs": outputs, "batch_size": 7}
    plain = ns.network_scores(made(build), (x, y), **settings)
    formed = ns.network_scores(made(build, table=FormedEmbedding), (x, y), **settings)
    assert plain_tables(made(build, table=FormedEmbedding), x, y) == set()
    for name in ("influence", "newton", "loo", "shift", "gradient_norm"):
        np.testing.assert_allclose(getattr(plain, name), getattr(formed, name), rtol=1e-4)


def test_batches_of_different_length_are_joined():
    x, y = sentences()
    order = torch.argsort((x > 0).sum(1))
    x, y = x[order], y[order]
    length = (x > 0).sum(1)

    def collated(rows):
        inputs, targets = torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])
        return inputs[:, : int((inputs > 0).sum(1).max())], targets

    class Counted(Sentences):
        """Padding has no share in the mean, so that it may be cut off."""

        def forward(self, x):
            real = (x > 0)[..., None]
            inner = torch.tanh(self.mix(self.words(x.long()))) * real
            return self.head(inner.sum(1) / real.sum(1))

    model = made(Counted, padding_idx=0)
    loader = torch.utils.data.DataLoader(list(zip(x, y, strict=True)), batch_size=6, collate_fn=collated)
    assert int(length[:6].max()) < LENGTH
    found = ns.network_scores(model, loader, damping=0.3, method="dual")
    whole = ns.network_scores(model, (x, y), damping=0.3, method="dual")
    np.testing.assert_allclose(found.shift, whole.shift, rtol=1e-9)


@pytest.mark.parametrize("reason", ["tied", "counted", "small"])
def test_tables_that_are_no_plain_lookups_are_formed(reason):
    options = {"scale_grad_by_freq": True} if reason == "counted" else {}
    model = made(Tied if reason == "tied" else Sentences, **options)
    x, y = sentences()
    if reason == "small":
        # Six words a sentence from a table of six rows: the factors would be no smaller.
        model.words = nn.Embedding(LENGTH, 4).double()
        x = x % LENGTH
    assert plain_tables(model, x, y) == set()


class Large(Sentences):
    """A table whose formed gradients of 24 records would take 0.8 GB."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(1_000_000, 4)


def test_of_a_large_table_only_the_rows_that_were_asked_for_are_kept():
    x, y = sentences(words=1_000_000)
    with network_view(made(Large), (x, y), layers="all") as (network, records):
        batch = next(iter(records.batches(RECORDS)))
        with record_differentiation(network, batch) as (differentiate, _):
            (found,) = differentiate(batch, torch.ones((RECORDS, 1, 3), dtype=torch.float64))
    assert "words.weight" not in found.full
    assert found.lookups["words"].slopes.shape == (RECORDS, LENGTH, 4)


def test_the_projection_of_a_large_table_is_as_far_off_as_it_says():
    x, y = sentences(words=1_000_000)
    exact = ns.network_scores(made(Large), (x, y), damping=0.3, method="dual")
    projected = ns.network_scores(made(Large), (x, y), damping=0.3, method="projected", dimension=64)
    # Two projections of 64 numbers on 24 records: the median error is stated, and it is what it says to a factor of three.
    apart = np.abs(projected.shift - exact.shift) / (np.abs(projected.shift) + np.abs(exact.shift))
    assert np.median(apart) < 3 * projected.errors["shift"]
