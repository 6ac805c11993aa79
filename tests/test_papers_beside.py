"""Pieces of benchmarks/papers and of the two uses of scores, each against a slow and obvious computation."""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from benchmarks.canaries import CANARIES, chosen_rows, mislabelled, power
from benchmarks.papers.counts import by_count, disjoint_draws
from benchmarks.papers.dampings import chosen_records, squared_gradients, top_shares, ways, weighted_recall
from benchmarks.papers.replaced import ROW, repeated
from benchmarks.papers.ridge import fitted
from benchmarks.papers.run import told_notes
from benchmarks.papers.settings import SETTINGS, members, quick
from benchmarks.papers.truth import lira_truth

from noshadow.metrics import top_recall
from noshadow.reference import plan

ROOT = Path(__file__).parents[1]


class Fake(SimpleNamespace):
    """What the functions ask of a set of reference models."""


def made_up(models=40, records=300, task="classification", seed=0):
    rng = np.random.default_rng(seed)
    drawn = plan(records, models=models, seed=seed)
    member = np.asarray(drawn.membership)
    exposed = rng.exponential(1.0, records)
    signals = rng.normal(size=(models, records)) + member * exposed
    return Fake(membership=member, statistic=signals, loss=np.exp(-signals), task=task, plan=drawn), exposed


def test_draws_are_disjoint_and_of_the_asked_size():
    pairs = disjoint_draws(np.arange(10, 60), 8)
    flat = np.concatenate([models for pair in pairs for models in pair])
    assert [len(models) for pair in pairs for models in pair] == [8] * 6
    assert len(set(flat.tolist())) == 48 and flat.min() >= 10
    assert disjoint_draws(np.arange(15), 8) == []


def test_recall_by_count_is_that_of_a_truth_from_these_models_alone():
    references, exposed = made_up()
    scores = [{"known": exposed[references.plan.members(target)]} for target in range(2)]
    found = by_count(references, scores)["lira_d"]
    values = {"known": [], "second": []}
    for pair in disjoint_draws(np.arange(2, 40), 16):
        d, enough = [], np.ones(300, bool)
        for models in pair:
            signals, member = references.statistic[models], references.membership[models]
            enough &= np.minimum(member.sum(0), (~member).sum(0)) >= 3
            # One variance for all records: the order of d′ is that of the differences of means.
            d.append(np.array([signals[member[:, i], i].mean() - signals[~member[:, i], i].mean() for i in range(300)]))
        for target in range(2):
            rows = references.plan.members(target)
            rows = rows[enough[rows]]
            values["known"].append(top_recall(d[0][rows], exposed[rows]))
            values["second"].append(top_recall(d[0][rows], d[1][rows]))
    assert set(found["known"]) == {"8", "16"}
    for name, held in values.items():
        assert found[name]["16"] == pytest.approx(np.mean(held), abs=1e-4)  # stored to four digits


def test_the_loss_statistic_has_members_above():
    references, _ = made_up(task="regression")
    found = lira_truth(references, np.arange(40), statistic="loss", variance="global")
    member, low = references.membership, -references.loss
    gaps = np.array([low[member[:, i], i].mean() - low[~member[:, i], i].mean() for i in range(300)])
    assert np.corrcoef(np.argsort(np.argsort(found.d_prime)), np.argsort(np.argsort(gaps)))[0, 1] == pytest.approx(1.0)
    # The signed residual is looked at from both sides, so that its d′ has no sign.
    assert found.d_prime.min() < 0 <= lira_truth(references, np.arange(40)).d_prime.min()


def test_four_fifths_of_the_records_are_members_where_the_paper_says_so():
    setting = SETTINGS["fashion_depths"]
    assert members(setting, 8_000) == 6_400
    assert quick(setting).references * (1 - setting.fraction) == pytest.approx(6)
    assert members(SETTINGS["energy_mlp"], 614) == 307


def test_notes_that_differ_in_their_figures_are_one(tmp_path):
    path = tmp_path / "score_seconds.jsonl"
    lines = [{"notes": {"last layer": [f"left-over gradient {k}.5e+02 times one"]}} for k in range(3)] + [{"notes": {}}, {}]
    path.write_text("\n".join(map(json.dumps, lines)))
    found = told_notes(path, SimpleNamespace(notes=("a",)))
    assert found == {
        "audit": ["a"],
        "targets": [{"layers": "last layer", "note": "left-over gradient 0.5e+02 times one", "targets": 3}],
    }


def test_squared_gradients_of_a_linear_regression_are_their_closed_form():
    torch.manual_seed(0)
    model, x, y = torch.nn.Linear(3, 1), torch.randn(7, 3), torch.randn(7)
    found = squared_gradients(SimpleNamespace(task="regression"), model, (x, y.numpy()))
    error = (model(x)[:, 0] - y).detach()
    np.testing.assert_allclose(found, 4 * error**2 * (1 + (x**2).sum(1)), rtol=1e-5)  # float32
    assert {way["damping"] for way in ways(1e-3).values()} == {10.0, 1e-3}


def test_ridge_in_closed_form_is_the_minimum_of_the_training_objective():
    rng = np.random.default_rng(0)
    x, y, decay = rng.normal(size=(40, 3)), rng.normal(size=40), 0.3
    weights = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    wide = torch.from_numpy(np.column_stack([x, np.ones(40)]))
    descent = torch.optim.LBFGS([weights], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe")

    def objective():
        descent.zero_grad()
        value = ((wide @ weights - torch.from_numpy(y)) ** 2).mean() + decay / 2 * (weights**2).sum()
        value.backward()
        return value

    descent.step(objective)
    # A quadratic in four unknowns: the search ends within 1e-8 of its minimum.
    np.testing.assert_allclose(fitted(x, y, 40 * decay / 2), weights.detach(), atol=1e-7)


def test_runs_that_trained_alike_and_anew_are_compared_row_by_row():
    def entry(seconds, values, epochs=3):
        training = dict.fromkeys(("build", "batch_size", "lr", "optimizer", "schedule", "input_shape"), "any") | {"epochs": epochs}
        rows = [dict.fromkeys(ROW, k) | {"value": value} for k, value in enumerate(values)]
        return {"training": training, "records": 9, "references": 4, "seconds": {"train_model": seconds}, "agreement": rows}

    runs = [("a", entry(1, [0.1])), ("b", entry(1, [0.1, 0.2])), ("c", entry(2, [0.1, 0.25, 0.3])), ("d", entry(5, [0.9], epochs=4))]
    # From a to b tables were added; from c to d the training is another.
    assert repeated(runs) == [{"commit": "b", "rows": 2, "same": 1, "largest": 0.05}]


def test_wrong_labels_are_wrong_and_the_others_stay():
    y = np.random.default_rng(0).integers(0, 10, 500)
    rows = np.arange(0, 500, 5)
    found = mislabelled(y, rows)
    assert (found[rows] != y[rows]).all() and found.min() >= 0 and found.max() <= 9
    others = np.setdiff1d(np.arange(500), rows)
    assert (found[others] == y[others]).all()


def test_canaries_with_more_to_find_are_found_more_often():
    references, exposed = made_up(records=1_000)
    columns = dict.fromkeys(("shift", "leverage", "loss", "influence"), exposed[:500])
    chosen = chosen_rows(columns, 500, exposed, np.random.default_rng(0))
    assert set(chosen["shift"]) == set(np.argsort(-exposed[:500])[:CANARIES])
    assert all(len(set(rows.tolist())) == CANARIES and rows.max() < 500 for rows in chosen.values())
    high, drawn = power(references, chosen["shift"]), power(references, chosen["random 0"])
    assert high["auc"] > drawn["auc"] and high["tpr_0.05"] > drawn["tpr_0.05"] and high["d_prime"] > drawn["d_prime"]


# Opacus hooks the first layer, whose inputs need no gradient.
@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_each_record_is_clipped_at_its_own_bound():
    pytest.importorskip("opacus")
    from benchmarks.private_training import BoundedByRecord, margins  # noqa: PLC0415  (needs the extra)
    from opacus import GradSampleModule  # noqa: PLC0415

    torch.manual_seed(0)
    plain = torch.nn.Linear(4, 3)
    x, y, bounds = torch.randn(6, 4), torch.randint(0, 3, (6,)), torch.tensor([0.01, 0.1, 0.2, 0.5, 1.0, 9.0])
    module = GradSampleModule(torch.nn.Linear(4, 3))
    module.load_state_dict({f"_module.{name}": value for name, value in plain.state_dict().items()})
    optimiser = BoundedByRecord(
        torch.optim.SGD(module.parameters(), lr=1.0), noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=6
    )
    optimiser.bounds = bounds
    before = plain.weight.detach().clone()
    torch.nn.functional.cross_entropy(module(x), y).backward()
    optimiser.step()
    total = torch.zeros(3, 4)
    for i in range(6):
        slopes = torch.autograd.grad(torch.nn.functional.cross_entropy(plain(x[i : i + 1]), y[i : i + 1]), tuple(plain.parameters()))
        norm = torch.sqrt(sum((slope**2).sum() for slope in slopes))
        total += slopes[0] * min(1.0, float(bounds[i] / norm))
    # Opacus adds 1e-6 to norms; float32.
    torch.testing.assert_close(before - module._module.weight.detach(), total / 6, rtol=1e-4, atol=1e-6)
    outputs = np.random.default_rng(0).normal(size=(2, 5, 3))
    labels = np.array([0, 1, 2, 0, 1])
    p = np.exp(outputs) / np.exp(outputs).sum(2, keepdims=True)
    own = np.take_along_axis(p, np.broadcast_to(labels[None, :, None], (2, 5, 1)), 2)[..., 0]
    np.testing.assert_allclose(margins(outputs, labels), np.log(own / (1 - own)), rtol=1e-10)


def test_recall_from_some_records_is_that_of_all_when_all_are_chosen():
    rng = np.random.default_rng(0)
    truth, score = np.round(rng.normal(size=700), 1), rng.normal(size=700)
    rows, weights = chosen_records([truth], None, 0)
    found = weighted_recall(top_shares(truth)[rows], score[rows], weights, 700)
    assert found == pytest.approx(top_recall(truth, score, top=0.01, keep=0.05), abs=1e-12)


def test_recall_from_some_records_tends_to_that_of_all():
    rng = np.random.default_rng(1)
    truth = rng.normal(size=4_000)
    score = truth + 1.2 * rng.normal(size=4_000)
    found = []
    for seed in range(200):
        rows, weights = chosen_records([truth], 300, seed)
        assert weights.sum() == pytest.approx(4_000) and set(np.argsort(-truth)[:40]) <= set(rows)
        found.append(weighted_recall(top_shares(truth)[rows], score[rows], weights, 4_000))
    # The mean of 200 draws, whose standard error is well below a point.
    assert np.mean(found) == pytest.approx(top_recall(truth, score, top=0.01, keep=0.05), abs=0.02)


def test_costs_at_the_published_size_are_those_measured_where_nothing_differs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    costs = importlib.import_module("papers_costs")
    seconds = {
        part: {"processor": spent} for part, spent in (("references", 100.0), ("scores", 1.0), ("ground_truth", 8.0), ("audit", 3.0))
    }
    entry = {"records": 500, "references": 200, "targets": 4, "task": "classification", "agreement": [], "seconds": seconds}
    assert costs.at_size(entry, 500) == {"references": 100.0, "attacks": 8.0, "score": 3.0}
    # Twice the records with four times the models: trainings and attacks go by both, a score by its own model's records.
    assert costs.at_size(entry | {"references": 50}, 1_000) == {"references": 800.0, "attacks": 64.0, "score": 6.0}
