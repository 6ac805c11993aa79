"""Query searches for many records at once find what `optimal_query` finds for one record after the other."""

import importlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from noshadow._lood import nngp_kernel, optimal_query, posterior_of

ROOT = Path(__file__).parents[1]
KERNEL, NOISE, STEPS, RESTARTS = partial(nngp_kernel, depth=2), 0.1, 12, 3


@pytest.fixture
def together(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("lood_together")


def test_records_that_ascend_together_end_where_each_ends_alone(together):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(*together.BOX, (14, 3, 2, 2)), rng.choice([-1.0, 1.0], 14)
    factor = posterior_of(x, y, kernel=KERNEL, noise=NOISE, with_inverse=True)
    shared = {"kernel": KERNEL, "noise": NOISE, "factor": factor, "restarts": RESTARTS, "steps": STEPS}
    records = [9, 2, 5]
    for record, found in zip(records, together.best_queries(x, y, records, **shared), strict=True):
        alone = optimal_query(x, y, differing=record, bounds=together.BOX, seed=record, progress=False, **shared)
        # Sums of products in another order, over a dozen steps.
        assert found["record"] == record
        assert found["share_of_ceiling"] == pytest.approx(alone.value / alone.ceiling, rel=1e-9)
        assert found["cosine"] == pytest.approx(float(alone.cosine[0]), rel=1e-9)
        assert found["restarts_near_ceiling"] == (alone.values > 0.9 * alone.ceiling).mean()
