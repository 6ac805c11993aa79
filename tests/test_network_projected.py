"""Projected gradients: unbiased inner products, equality with the dual where nothing is lost, convergence, honest errors."""

from functools import partial
from inspect import signature

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

import noshadow as ns
from noshadow.scores.network.dual import dual_bytes
from noshadow.scores.network.gradients import record_differentiation
from noshadow.scores.network.problem import network_problem
from noshadow.scores.network.projected import _widths, projected_features, sketches
from noshadow.scores.network.tangent_kernel import tangent_kernel
from noshadow.views.network import network_view

COLUMNS = ("influence", "newton", "loo", "shift")


def network(outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 20), nn.Tanh(), nn.Linear(20, outputs)).double()


def records(n=80, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((n, 1, 6, 6))), torch.from_numpy(rng.integers(0, 3, n))


@pytest.mark.parametrize("outputs", ["margin", "all"])
def test_a_dimension_that_holds_everything_is_the_dual(outputs):
    model, (x, y) = network(), records()
    dual = ns.network_scores(model, (x, y), damping=0.5, outputs=outputs)
    whole = ns.network_scores(model, (x, y), damping=0.5, outputs=outputs, method="projected", dimension=dual.parameters)
    # Features are kept in float32: relative rounding 6e-8 of each, a few of them in a quadratic form.
    for name in COLUMNS:
        np.testing.assert_allclose(getattr(whole, name), getattr(dual, name), rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(whole.gradient_norm, dual.gradient_norm, rtol=1e-10)
    assert whole.effective_dof == pytest.approx(dual.effective_dof, rel=1e-5)
    assert whole.stationarity == pytest.approx(dual.stationarity, rel=1e-9)


def test_several_outputs_of_a_regression_go_through_too():
    x, _ = records()
    y = torch.from_numpy(np.random.default_rng(1).standard_normal((80, 2)))
    dual = ns.network_scores(network(2), (x, y), damping=0.5)
    whole = ns.network_scores(network(2), (x, y), damping=0.5, method="projected", dimension=dual.parameters)
    for name in ("leverage", *COLUMNS):
        np.testing.assert_allclose(getattr(whole, name), getattr(dual, name), rtol=1e-4, err_msg=name)


def test_inner_products_are_unbiased():
    model, (x, y) = network(), records(6)
    with network_view(model, (x, y), layers="all") as (view, data):
        problem = network_problem(view, data, task="auto", outputs="margin", sample_weight=None, batch_size=6, progress=False)
        with record_differentiation(view, next(iter(data.batches(6)))) as (differentiate, plain):
            kernel = tangent_kernel(view, data, problem, differentiate, plain, progress=False).numpy()
            drawn = [sketches(view, plain, dimension=60, seed=3, draw=draw) for draw in range(400)]
            features = projected_features(view, data, problem, differentiate, drawn, progress=False)
    grams = np.stack([(draw.double() @ draw.double().T).numpy() for draw in features.draws])
    deviation = grams.std(0) / np.sqrt(len(grams))
    # 21 distinct entries, 5 standard errors each: fails by chance about once in 80,000 runs, and the seed is fixed.
    assert (np.abs(grams.mean(0) - kernel) < 5 * deviation).all()
    assert (grams.std(0) > 0.01 * np.abs(kernel)).any()


def test_more_dimensions_come_closer_and_the_error_says_so():
    model, (x, y) = network(), records(120)
    dual = ns.network_scores(model, (x, y), damping=5.0)
    found = [ns.network_scores(model, (x, y), damping=5.0, method="projected", dimension=k) for k in (50, 400, 1500)]
    close = [spearmanr(f.margin_leverage, dual.margin_leverage).statistic for f in found]
    assert close[0] < close[1] < close[2]
    assert close[2] > 0.95
    errors = [f.errors["margin_leverage"] for f in found]
    assert errors[0] > errors[1] > errors[2] > 0
    assert all(any("two independent projections" in note for note in f.notes) for f in found)
    assert dual.errors == {}


def test_same_seed_same_scores_and_another_seed_others():
    model, data = network(), records()
    one, again, other = (
        ns.network_scores(model, data, damping=0.5, method="projected", dimension=100, seed=seed).shift for seed in (4, 4, 5)
    )
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 1e-6


def test_crowded_dimensions_are_noted():
    scores = ns.network_scores(network(), records(), damping=1e-3, method="projected", dimension=30)
    assert any("raise dimension" in note for note in scores.notes)
    assert scores.dimensions <= 30 and scores.effective_dof > 0.25 * scores.dimensions


def memorised():
    """300 records with labels of their own, learned by heart: the degrees of freedom are nearly as many as the records."""
    torch.manual_seed(1)
    x = torch.randn(300, 20, dtype=torch.float64)
    y = torch.randint(0, 4, (300,))
    model = nn.Sequential(nn.Linear(20, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 4)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(150):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return model, (x, y)


@pytest.fixture(scope="module")
def learned_by_heart():
    model, data = memorised()
    return model, data, {wd: ns.network_scores(model, data, weight_decay=wd, method="dual") for wd in (1e-4, 1e-2, 1.0)}


@pytest.mark.parametrize("dimension", [64, 256, 1024])
@pytest.mark.parametrize("weight_decay", [1e-4, 1e-2, 1.0])
def test_the_reported_error_is_that_of_the_exact_scores(learned_by_heart, weight_decay, dimension):
    """Crowded projections are all too small together: their difference alone said 0.1 where shift was 50 times too small."""
    model, data, exact = learned_by_heart
    truth = exact[weight_decay]
    found = ns.network_scores(model, data, weight_decay=weight_decay, method="projected", dimension=dimension)
    for name in COLUMNS:
        one, other = getattr(truth, name), getattr(found, name)
        finite = np.isfinite(one) & np.isfinite(other)
        off = np.median(np.abs(other[finite] / one[finite] - 1))
        # An extrapolation from two dimensions, whose own chance is in it: the size of the error, not its digits.
        assert 0.6 * off < found.errors[name] <= min(3 * off + 0.1, 1.0), (name, off, found.errors[name])
    crowded = found.effective_dof > 0.25 * found.dimensions or found.errors["shift"] > 0.5
    assert crowded == any("crowd" in note for note in found.notes)


def test_crowding_is_found_by_the_audit_and_the_dual_is_taken_where_it_fits(learned_by_heart, monkeypatch):
    model, (x, y), _ = learned_by_heart
    splits = (x[:200], y[:200]), (x[200:], y[200:])
    options = {"layers": "all", "weight_decay": 1e-4, "progress": False}
    exact = {finding.code: finding for finding in ns.audit(model, *splits, **options).findings}
    assert exact["NS025"].status == "not applicable" and "dual" in exact["NS025"].sentence
    monkeypatch.setattr("noshadow._audit.entry.network_scores", partial(ns.network_scores, method="projected", dimension=128))
    projected = ns.audit(model, *splits, **options)
    (crowded,) = (finding for finding in projected.findings if finding.code == "NS025")
    stamp = projected.provenance["scores"]
    assert crowded.status == "found" and crowded.severity == "high"
    assert crowded.figure == pytest.approx(stamp["effective_dof"] / stamp["dimensions"]) and crowded.figure > 0.25
    (approximate,) = (finding for finding in projected.findings if finding.code == "NS024")
    assert approximate.status == "found" and approximate.figure > 0.5


def test_automatic_is_the_dual_up_to_eight_gigabytes():
    """22,000 records: the kernel and its inverse in float64."""
    for function in (ns.network_scores, ns.damping_sweep):
        assert signature(function).parameters["max_memory"].default == 8e9
    assert dual_bytes(22_000) < 8e9 < dual_bytes(22_500)
    model, data = network(), records()
    assert ns.network_scores(model, data, damping=0.5).method == "dual"
    small = ns.network_scores(model, data, damping=0.5, max_memory=dual_bytes(80) - 1, dimension=500)
    assert small.method == "projected" and any("more than max_memory" in note for note in small.notes)


@pytest.mark.parametrize(
    ("d_out", "d_in", "share", "expected"), [(3, 5, 20, (3, 5)), (3, 500, 60, (3, 20)), (500, 3, 60, (20, 3)), (90, 90, 100, (10, 10))]
)
def test_widths_fill_their_share_and_keep_small_sides(d_out, d_in, share, expected):
    assert _widths(d_out, d_in, share) == expected
