"""Noise as a share of the kernel's mean diagonal: against the same variance written out, and against refits."""

import re
from functools import partial

import numpy as np
import pytest
import torch

from lood_oracles import brute_force
from noshadow._lood import lood, lood_bounds, lood_scores, nngp_kernel, optimal_query, posterior_of, query_lood
from noshadow.checks import InputError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 3)) * RNG.uniform(0.3, 3, size=(20, 1)), RNG.normal(size=(20, 2))
KERNEL = partial(nngp_kernel, depth=2, activation="gelu")
SHARE = 0.07
VARIANCE = SHARE * float(np.mean([float(KERNEL(row[None])) for row in X]))


def test_scores_are_those_of_the_variance_written_out_and_of_refits():
    matrix = KERNEL(X).numpy()
    found, truth = lood_scores(matrix, Y, relative_noise=SHARE), lood_scores(matrix, Y, noise=VARIANCE)
    # The mean of the diagonal is summed in another order.
    assert found.noise == pytest.approx(VARIANCE, rel=1e-14)
    np.testing.assert_allclose(found.kl, truth.kl, rtol=1e-9)
    for record in (0, 7):
        left_out = brute_force(lambda a, b: KERNEL(a, b).numpy(), X, Y, [record], X[[record]], found.noise)
        # Two inverses of matrices whose condition is near 100 leave about 13 digits.
        assert found.kl[record] == pytest.approx(left_out["kl"], rel=1e-9)
        assert found.mean_distance[record] == pytest.approx(left_out["mean_distance"], rel=1e-9)


def test_groups_queries_and_bounds_take_the_same_noise():
    shared = {"kernel": KERNEL, "relative_noise": SHARE}
    group = lood(X, Y, differing=[3, 4], **shared)
    truth = lood(X, Y, differing=[3, 4], kernel=KERNEL, noise=VARIANCE)
    assert group.noise == pytest.approx(VARIANCE, rel=1e-14)
    assert (group.kl, group.auc) == pytest.approx((truth.kl, truth.auc), rel=1e-9)
    bounds = lood_bounds(X, Y, groups=[[3, 4]], tolerance=1e-6, progress=False, **shared)
    assert bounds.noise == pytest.approx(VARIANCE, rel=1e-14)
    assert bounds.kl_low[0] * (1 - 1e-9) <= group.kl <= bounds.kl_high[0] * (1 + 1e-9)
    kl, _ = query_lood(X, Y, differing=[3], queries=X[[3]], **shared)
    # 1e-6: the objective's own nugget of 1e-10 of the prior.
    assert kl[0] == pytest.approx(lood(X, Y, differing=[3], **shared).kl, rel=1e-6)
    assert optimal_query(X, Y, differing=[3], steps=2, restarts=1, progress=False, **shared).noise == group.noise


def test_a_factor_serves_both_ways_of_asking():
    factor = posterior_of(X, Y, kernel=KERNEL, relative_noise=SHARE)
    for noise in ({"relative_noise": SHARE}, {"noise": factor.noise}):
        assert lood(X, Y, differing=[3], kernel=KERNEL, factor=factor, **noise).noise == factor.noise
    with pytest.raises(InputError, match="factor must come from the same x, y, kernel and noise; got another noise"):
        lood(X, Y, differing=[3], kernel=KERNEL, factor=factor, relative_noise=2 * SHARE)


def nothing(a, b):
    return torch.zeros(len(a), len(b), dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lood_scores(np.eye(3), [0.0, 1.0, 2.0]), "noise must be given, or relative_noise in its place; got neither"),
        (lambda: lood_scores(np.eye(3), [0.0, 1.0, 2.0], noise=1.0, relative_noise=1.0), "got both"),
        (lambda: lood_scores(np.eye(3), [0.0, 1.0, 2.0], relative_noise=-1.0), "relative_noise must"),
        (
            lambda: lood(X, Y, differing=[0], kernel=nothing, relative_noise=0.1),
            "relative_noise must come with a kernel whose diagonal is positive",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(call, words):
    with pytest.raises(InputError, match=re.escape(words)):
        call()
