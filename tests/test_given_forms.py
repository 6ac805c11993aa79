"""Data in forms that people hold: targets in another order, half precision, columns in another order, options that do not apply."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

import noshadow as ns
from noshadow.checks import InputError
from noshadow.reference.function_names import function_name

RNG = np.random.default_rng(0)
NAMES = pd.Index([f"p{row:03d}" for row in range(160)])
X = pd.DataFrame(RNG.normal(size=(160, 4)), index=NAMES, columns=list("abcd"))
REAL = X["a"] + 0.3 * RNG.normal(size=160)
Y = (REAL > 0).astype(int)
IN, OUT = slice(0, 80), slice(80, 160)


def audited(model, train, test, **options):
    return ns.audit(model, train, test, progress=False, **options)


@pytest.mark.parametrize(
    ("model", "y"),
    [(HistGradientBoostingClassifier(max_iter=5), Y), (GradientBoostingRegressor(n_estimators=5), REAL)],
    ids=["classes", "values"],
)
def test_targets_in_another_order_go_with_their_inputs_in_boosting(model, y):
    model.fit(X[IN], y[IN])
    moved = y[IN].sample(frac=1, random_state=0)
    held, other = (audited(model, (X[IN], targets), (X[OUT], y[OUT])) for targets in (y[IN], moved))
    assert other.records.equals(held.records) and "lt_iqr" in held.records
    assert any("were moved to the inputs of their label" in note for note in other.notes)


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def halved(records, seed, *, x, dtype):
    """A model that is a little other than the audited one."""
    model, noise = network(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for values in model.parameters():
            values += 0.1 * torch.randn(values.shape, generator=noise)
    return model.to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("how", ["last", "all", "references"])
def test_half_precision_is_audited_end_to_end(dtype, how, tmp_path):
    x, y = torch.from_numpy(X.to_numpy(copy=True)).to(dtype), torch.from_numpy(Y.to_numpy(copy=True))
    options = {"layers": how} if how != "references" else {"reference_models": 2, "work": tmp_path / "work"}
    options |= {"train_fn": partial(halved, x=x, dtype=dtype)} if how == "references" else {}
    audit = audited(network().to(dtype), (x[IN], y[IN]), (x[OUT], y[OUT]), weight_decay=1e-4, **options)
    assert np.isfinite(audit.records[audit.ranked_by]).all()
    again = ns.load(audit.save(tmp_path / "audit"))
    assert again.records["loss"].tolist() == audit.records["loss"].tolist()


def test_a_tensor_of_bfloat16_has_a_digest_of_its_values():
    value = torch.tensor([1.0, 2.5], dtype=torch.bfloat16)
    named = function_name(partial(halved, x=value))
    assert named == function_name(partial(halved, x=value.clone())) != function_name(partial(halved, x=value + 1))


def test_columns_in_another_order_are_named_as_that():
    model = LogisticRegression().fit(X[IN], Y[IN])
    turned = X[["d", "c", "b", "a"]]
    with pytest.raises(InputError, match="must be in the same order as they were in fit"):
        audited(model, (turned[IN], Y[IN]), (turned[OUT], Y[OUT]))
    with pytest.raises(InputError, match=r"unseen at fit time: - q .* now missing: - a\)"):
        other = X.rename(columns={"a": "q"})
        audited(model, (other[IN], Y[IN]), (other[OUT], Y[OUT]))


def test_a_damping_that_nothing_uses_is_said():
    boosted, linear = HistGradientBoostingClassifier(max_iter=5).fit(X[IN], Y[IN]), LogisticRegression().fit(X[IN], Y[IN])
    splits = (X[IN], Y[IN]), (X[OUT], Y[OUT])
    assert any("damping=1e+06 was given and nothing uses it" in note for note in audited(boosted, *splits, damping=1e6).notes)
    assert not any("damping" in note for note in (*audited(boosted, *splits).notes, *audited(linear, *splits, damping=1e6).notes))
