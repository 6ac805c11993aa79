"""Near twins: planted ones are found by features and inputs, ordinary data have none; distances against brute force."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine, make_blobs
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge

import noshadow as ns
from noshadow._audit import near_twins as room
from noshadow._audit.near_twins import given_inputs, near_twins
from test_findings import of, with_splits, with_twins

DATA = {"digits": load_digits, "breast cancer": load_breast_cancer, "iris": load_iris, "wine": load_wine, "diabetes": load_diabetes}


def looked(x, labels=None, **how):
    return near_twins(np.asarray(x, dtype=float), np.array([f"r{row}" for row in range(len(x))]), labels=labels, **how)


def planted(x, count, noise, rng):
    """The table with noisy copies of its first rows behind it; noise in spreads of each feature."""
    return np.vstack([x, x[:count] + noise * x.std(0) * rng.normal(size=(count, x.shape[1]))])


@pytest.mark.parametrize("name", DATA)
def test_ordinary_data_have_none(name):
    x, y = DATA[name](return_X_y=True)
    assert looked(x, None if name == "diabetes" else y)["records"] == looked(x)["records"] == 0


def test_continuous_data_of_any_dimension_have_none():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        for d in (1, 2, 3, 5, 20):
            # Chance puts one record in 10⁵ as near: 3,000 records have one in 3 of 100 looks.
            assert looked(rng.normal(size=(3000, d)))["records"] <= 1
        assert looked(np.exp(rng.normal(size=(2000, 10))))["records"] == 0
        assert looked(make_blobs(2000, 10, centers=30, random_state=seed)[0])["records"] == 0


def test_tables_of_few_values_have_none():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        categories = np.eye(3)[rng.integers(0, 3, (3000, 8))].reshape(3000, -1)
        clinic = np.column_stack([rng.integers(18, 90, 3000), rng.integers(0, 2, 3000), rng.poisson(2, 3000), rng.normal(size=3000)])
        for table in (
            categories,
            np.hstack([categories, rng.normal(size=(3000, 2))]),
            np.hstack([categories[:, :12], rng.normal(size=(3000, 5))]),
            clinic,
        ):
            found = looked(table)
            assert isinstance(found, dict) and found["records"] <= 1
    assert "many exact copies" in looked(np.eye(2)[rng.integers(0, 2, 3000)])


def test_planted_twins_are_found_and_named():
    rng = np.random.default_rng(0)
    x, y = load_breast_cancer(return_X_y=True)
    found = looked(planted(x, 10, 0.02, rng), np.r_[y, y[:10]])
    assert found["records"] == 20 and (found["looked"], found["of"]) == (579, 579)
    assert found["first_ids"] == [f"r{row}" for row in (0, 569, 1, 570, 2, 571, 3, 572, 4, 573)]
    assert looked(planted(x, 10, 0.02, rng), np.r_[y, 1 - y[:10]])["records"] == 0  # of another label they do not hide each other
    digits = load_digits().data
    assert looked(planted(digits, 50, 0.02, rng))["records"] == 100
    gaussian = rng.normal(size=(1500, 10))
    everybody = looked(planted(gaussian, 1500, 0.02, rng))
    assert everybody["records"] >= 2990 and everybody["dimension"] == pytest.approx(looked(gaussian)["dimension"], rel=0.2)
    in_fives = np.vstack([gaussian, *(gaussian[:50] + 0.02 * rng.normal(size=(50, 10)) for _ in range(4))])
    assert looked(in_fives)["records"] == 250


def test_one_changed_field_makes_a_twin_and_an_exact_copy_does_not():
    rng = np.random.default_rng(1)
    labs = np.round(3 * rng.normal(size=(1500, 30)), 1)
    changed = labs[:20].copy()
    changed[:, 3] += 0.1
    assert looked(np.vstack([labs, changed]))["records"] == 40
    assert looked(np.vstack([labs, labs[:20]]))["records"] == 0
    assert looked(np.vstack([labs, *[labs[:20]] * 5]))["records"] == 0


def test_scales_and_dimension_are_those_of_all_distances():
    rng = np.random.default_rng(2)
    x = planted(rng.normal(size=(400, 6)) @ rng.normal(size=(6, 6)) + 50, 8, 0.01, rng)
    scaled = (x - x.mean(0)) / x.std(0)
    distances = cdist(scaled, scaled)
    np.fill_diagonal(distances, np.inf)
    ordered = np.sort(distances, axis=1)
    dimension = np.log(0.5) / np.median(np.log(ordered[:, 4] / ordered[:, 9]))
    ratio = min((1e-5 / 9) ** (1 / dimension), 0.1)
    found = looked(x)
    # Float32 products choose the neighbours, and float64 differences measure them.
    assert (found["dimension"], found["ratio"]) == (pytest.approx(dimension, rel=1e-6), pytest.approx(ratio, rel=1e-6))
    assert found["records"] == int((ordered[:, 0] < ratio * ordered[:, 9]).sum()) > 0


def test_many_records_are_looked_at_in_part(monkeypatch):
    rng = np.random.default_rng(3)
    x = planted(rng.normal(size=(1000, 12)), 1000, 0.02, rng)
    monkeypatch.setattr(room, "PAIRS", 2000 * 300)
    found = looked(x)
    assert (found["looked"], found["of"]) == (300, 2000) and found["records"] >= 298
    assert looked(x) == found != looked(x, seed=1)
    monkeypatch.setattr(room, "NUMBERS", 2000 * 12 * 150)
    assert looked(x)["looked"] == 150
    monkeypatch.setattr(room, "BLOCK", 5000)
    assert looked(x) == looked(x) and looked(x)["looked"] == 150


def test_what_cannot_be_told_says_why():
    assert looked(np.random.default_rng(0).normal(size=(99, 5))) == "fewer than 100 records"
    assert looked(np.ones((200, 3))) == "they do not vary"
    x = np.ones((5, 2, 3))
    assert given_inputs((x, [0] * 5)).shape == given_inputs((torch.tensor(x), [0] * 5)).shape == (5, 6)
    assert given_inputs((pd.DataFrame({"a": [1, 2]}), [0, 1])).tolist() == [[1], [2]]
    for train, why in (
        (torch.utils.data.TensorDataset(torch.ones(3, 2)), "not given as an array"),
        (((x, x), [0] * 5), "not one array"),
        ((pd.DataFrame({"a": ["x", "y"]}), [0, 1]), "not numbers alone"),
        ((np.array([[np.nan], [1.0]]), [0, 1]), "missing"),
    ):
        assert why in given_inputs(train)


def audit_of(x, y, model, **how):
    return ns.audit(model.fit(x, y), (x, y), (x[:50] + 1.0, y[:50]), progress=False, **how)


def test_an_audit_looks_by_features_and_by_inputs(tmp_path):
    rng = np.random.default_rng(4)
    x, y = load_breast_cancer(return_X_y=True)
    x, y = planted(x / x.std(0), 10, 0.02, rng), np.r_[y, y[:10]]
    linear = audit_of(x, y, LogisticRegression(max_iter=2000))
    near = linear.provenance["splits"]["near"]
    assert near["features"]["records"] == 20 and near["inputs"] is None and near["reasons"]["inputs"] == "the same as the features"
    finding = of(linear, "NS018")
    assert finding.status == "found" and finding.records[:2] == ("0", "569") and "By features, 20 of 579 records have" in finding.sentence
    linear.save(tmp_path / "a")
    assert of(ns.load(tmp_path / "a"), "NS018") == finding
    forest = audit_of(x, y, RandomForestClassifier(5, random_state=0))
    near = forest.provenance["splits"]["near"]
    assert near["features"] is None and near["inputs"]["records"] == 20 and "By inputs" in of(forest, "NS018").sentence
    other = audit_of(x, np.r_[y[:569], 1 - y[569:]], LogisticRegression(max_iter=2000))
    assert other.provenance["splits"]["near"]["features"]["records"] == 0
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.Tanh(), torch.nn.Linear(20, 2))
    both = ns.audit(network, (x.astype(np.float32), y), (x[:50].astype(np.float32) + 1, y[:50]), progress=False)
    assert {name: both.provenance["splits"]["near"][name]["records"] for name in ("features", "inputs")} == {"features": 20, "inputs": 20}
    given = ns.audit_signals(*(ns.Signals(x[:, :2], np.c_[x[:, 0], -x[:, 0]], y) for _ in range(2)), task="classification", progress=False)
    assert given.provenance["splits"]["near"]["reasons"]["inputs"] == "not given"


def test_the_target_of_a_regression_is_one_more_feature():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 8))
    y = x @ rng.normal(size=8) + rng.normal(size=300)
    twins, moved = np.vstack([x, x[:10] + 0.01]), np.r_[y, y[:10] + 5]
    near = [audit_of(twins, target, Ridge()).provenance["splits"]["near"]["features"]["records"] for target in (np.r_[y, y[:10]], moved)]
    assert near == [20, 0]


def test_statuses_of_the_finding():
    assert of(with_twins(5, 1000, "inputs"), "NS018").status == "found"
    assert "5 of 1000 records that were looked at, of 5000" in of(with_twins(5, 1000), "NS018").sentence
    nothing = {"features": None, "inputs": None, "reasons": {"features": "not given", "inputs": "some are missing"}}
    found = of(with_splits(near=nothing), "NS018")
    assert found.status == "not applicable" and "(features: not given; inputs: some are missing)" in found.sentence
    assert "compared as a whole" in of(with_splits(near=None), "NS018").sentence
    old = with_splits()
    del (splits := dict(old.provenance["splits"]))["near"]
    assert of(replace(old, provenance=old.provenance | {"splits": splits}), "NS018").status == "skipped"
