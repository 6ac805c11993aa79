"""Numbers that two rooms need come from one function."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import spearmanr

import noshadow
from noshadow.metrics import error_budget
from noshadow.metrics.agreement import rank_correlation
from noshadow.tail.record_rates import curve_rates, rates_averaging_to, shipped_curves

PACKAGE = Path(noshadow.__file__).parent
# (what a copy looks like, the one file that may hold it)
HOMES = {
    r"spearmanr|def _?spearman\(": {"metrics/agreement.py", "metrics/ranking.py"},
    r"(n_members|len\(\w+(\.\w+)*\)|records) \* \(1 [+-] (1e-\d+|\w*(SLACK|ROUNDING)\w*)\)": {"metrics/rates.py", "metrics/inputs.py"},
    r"n \* \w*decay": {"weight_decay.py"},
    r"MIXED_TOLERANCE|ROUNDING_TOLERANCE = ": {"limits.py"},
    r"clamp\(min=torch\.finfo\(torch\.float64\)\.tiny\)\)\.max\(\)": {"scores/last_layer/precision.py"},
}


@pytest.mark.parametrize("pattern", HOMES)
def test_each_has_one_home(pattern):
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if re.search(pattern, path.read_text())}
    assert found <= HOMES[pattern]


def test_rank_correlation_is_scipys_and_nan_where_there_is_none():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 9, 50).astype(float), rng.normal(size=50)
    second[:2] = np.inf
    # Whole numbers up to the last division: a few units in the last place.
    assert rank_correlation(first, second) == pytest.approx(spearmanr(first, second).statistic, abs=1e-14)
    assert math.isnan(rank_correlation(np.ones(5), np.arange(5.0)))
    assert math.isnan(rank_correlation(np.array([1.0, np.nan, 2.0]), np.arange(3.0)))


def halved(coefficients, model_rate, z, fpr):
    """The rates by halving the bracket a hundred times: the oracle."""
    floor = min(fpr, model_rate)
    logits = logit(np.clip(curve_rates(coefficients, model_rate, z), 1e-12, 1 - 1e-12))
    low, high = -60.0, 60.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if float(np.maximum(expit(logits + middle), floor).mean()) < model_rate else (low, middle)
    return np.maximum(expit(logits + (low + high) / 2), floor)


@pytest.mark.parametrize("fpr", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("model_rate", [1e-6, 0.002, 0.1, 0.5, 1 - 1e-9])
def test_rates_that_average_to_the_models_are_those_of_a_bisection(model_rate, fpr):
    # brentq stops at 1e-14 in the logit, so that a rate moves by that much of itself.
    # 1e-12 leaves room for the rounding of the mean.
    z = np.random.default_rng(0).normal(size=400)
    for curve in shipped_curves():
        rates = rates_averaging_to(curve.coefficients, model_rate, z, fpr)
        np.testing.assert_allclose(rates, halved(curve.coefficients, model_rate, z, fpr), rtol=1e-12)


def test_a_budget_of_three_in_a_hundred_is_three():
    assert [error_budget(k / 100, 100) for k in range(1, 100)] == list(range(1, 100))
