"""The price list of certainty: what a source changed, and whether the promised width is the one that comes."""

from dataclasses import replace

import numpy as np
import pytest

import noshadow as ns
from noshadow._exposure.posterior import posterior_of, slope_variance
from noshadow._exposure.prices import mean_width, moved, stepwise, width_with
from noshadow._exposure.sources import Source
from noshadow._exposure.sufficient import sides_of

N = 3000


def drawn(models, seed):
    rng = np.random.default_rng(seed)
    level, slope = rng.normal(size=N), 1 + 0.6 * rng.normal(size=N)
    inside = rng.random((models, N)) < 0.5
    return level + slope + 0.7 * rng.normal(size=N), level + inside * slope + 0.7 * rng.normal(size=inside.shape), inside


@pytest.mark.parametrize(("now", "more"), [(2, 2), (4, 4), (2, 6)])
def test_the_promised_width_is_the_width_that_more_models_give(now, more):
    promised, arrived = [], []
    for seed in range(6):
        margins, references, inside = drawn(now + more, seed)
        before = ns.exposure(margins, references=references[:now], membership=inside[:now])
        promised.append(width_with(before, more))
        arrived.append(mean_width(ns.exposure(margins, references=references, membership=inside)))
        assert promised[-1] < mean_width(before)
    # Two models tell T and σ to about a tenth: single promises scatter by that, their mean is right to 8 %.
    assert np.mean(promised) == pytest.approx(np.mean(arrived), rel=0.08)


def test_no_more_models_leave_the_width_as_it_is():
    margins, references, inside = drawn(4, 2)
    found = ns.exposure(margins, references=references, membership=inside)
    assert width_with(found, 0) == pytest.approx(mean_width(found), rel=1e-12)


def test_an_order_has_no_width():
    margins, references, inside = drawn(1, 3)
    found = ns.exposure(margins, references=references, membership=inside)
    assert found.order_only and width_with(found, 2) is None and mean_width(found) is None


def test_the_variance_of_a_slope_is_that_of_the_posterior():
    _, references, inside = drawn(5, 4)
    sides, slopes = sides_of(references, inside), np.array([[1.0, -0.2], [-0.2, 0.4]])
    variances = np.random.default_rng(0).uniform(0.2, 1.0, (2, N))
    whole = posterior_of(sides, np.zeros((2, N)), slopes, variances).variance
    np.testing.assert_allclose(slope_variance(sides.counts, slopes, variances), whole, rtol=1e-12)


def test_steps_say_what_each_source_changed():
    margins, references, inside = drawn(4, 5)
    rng = np.random.default_rng(6)
    test = rng.normal(size=500)
    theirs = test + 0.1 * rng.normal(size=(4, 500))
    both = Source("few references", {}, references, inside, theirs, trainings=4.0)
    traces = Source("traces", {"early_loss": -margins})
    found, steps = stepwise(margins, test, [traces, both], free={"shift": rng.normal(size=N)})
    assert [step.source for step in steps] == ["traces", "few references"]
    assert steps[0].width is None and steps[1].width == pytest.approx(mean_width(found))
    assert [step.trainings for step in steps] == [0.0, 4.0]
    assert steps[1].moved == moved(-margins, found.score)
    # The same source twice over changes nobody's place.
    again, repeated = stepwise(margins, test, [traces, replace(traces, name="again")])
    assert repeated[1].moved == 0.0 and again.order_only


def test_the_share_that_moved():
    before = np.arange(300.0)
    after = before.copy()
    after[[299, 0]] = after[[0, 299]]
    # Three of 300 are the top 1 %; one of them has left.
    assert moved(before, after) == pytest.approx(1 / 3)
    assert moved(before, before) == 0.0
