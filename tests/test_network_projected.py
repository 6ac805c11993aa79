"""Projected gradients: unbiased inner products, equality with the dual where nothing is lost, convergence, honest errors."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

import noshadow as ns
from noshadow.scores.gradients import record_differentiation
from noshadow.scores.network_problem import network_problem
from noshadow.scores.projected import _widths, projected_features, sketches
from noshadow.scores.tangent_kernel import tangent_kernel
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
    with network_view(model, (x, y), layers="all", owner="test") as (view, data):
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


@pytest.mark.parametrize(
    ("d_out", "d_in", "share", "expected"), [(3, 5, 20, (3, 5)), (3, 500, 60, (3, 20)), (500, 3, 60, (20, 3)), (90, 90, 100, (10, 10))]
)
def test_widths_fill_their_share_and_keep_small_sides(d_out, d_in, share, expected):
    assert _widths(d_out, d_in, share) == expected
