"""benchmarks/papers: a slice of --quick runs from one command on made-up files, and its tables are what they say."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from noshadow.reference import load_references

ROOT = Path(__file__).parents[1]
PUBLISHED = json.loads((ROOT / "benchmarks" / "papers" / "published.json").read_text())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files of the real data sets' form, with made-up numbers."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    (folder / "california_housing").mkdir()
    (folder / "energy_efficiency").mkdir()
    houses = rng.uniform(1, 9, (400, 9))
    with gzip.open(folder / "california_housing" / "cal_housing.data.gz", "wt") as file:
        np.savetxt(file, houses, delimiter=",")
    heat = rng.normal(size=(300, 10))
    np.savetxt(folder / "energy_efficiency" / "ENB2012_data.csv", heat, delimiter=",", header="a,b", comments="")
    return folder


def run(data, work, *arguments):
    command = [sys.executable, "-m", "benchmarks.papers.run", "--data", str(data), "--work", str(work), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def quick(data, tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    done = run(data, work, "--quick", "--only", "energy_mlp", "california_ridge")
    assert done.returncode == 0, done.stderr
    return work / "quick"


@pytest.mark.slow
def test_a_quick_run_writes_every_table_into_the_work_folder_alone(quick):
    entry = json.loads((quick / "energy_mlp.json").read_text())
    attacks = {"lira_success", "lira_d", "lira_loss_success", "lira_loss_d", "rmia_success", "shokri_success"}
    assert {row["attack"] for row in entry["agreement"]} == attacks
    assert {"network_shift", "shift", "newton"} <= {row["score"] for row in entry["agreement"]}
    assert all(row["targets"] == entry["targets"] == 3 for row in entry["agreement"])
    assert {"train_model", "audit", "references", "scores", "network", "ground_truth", "tables"} == set(entry["seconds"])
    for curve in entry["curves"]["attacks"]["lira_success"].values():
        # Keeping everything finds everything.
        assert curve["mean"][-1] == pytest.approx(1.0)
    assert (quick / "energy_mlp" / "report.html").exists()
    ridge = json.loads((quick / "california_ridge.json").read_text())
    assert not any(row["score"].startswith("network_") for row in ridge["agreement"])


@pytest.mark.slow
def test_a_second_run_trains_nothing(quick, data):
    before = {path: path.stat().st_mtime_ns for path in (quick / "energy_mlp" / "references" / "models").iterdir()}
    seconds = json.loads((quick / "energy_mlp.json").read_text())["seconds"]
    done = run(data, quick.parent, "--quick", "--only", "energy_mlp")
    assert done.returncode == 0, done.stderr
    assert before == {path: path.stat().st_mtime_ns for path in before}
    again = json.loads((quick / "energy_mlp.json").read_text())["seconds"]
    assert {name: again[name] for name in again if name != "tables"} == {name: seconds[name] for name in seconds if name != "tables"}


@pytest.mark.slow
def test_a_target_has_no_vote_in_its_own_truth(quick):
    """The stored truth of target 0 is LiRA over the other models: recomputed here from the signals, record by record."""
    entry = json.loads((quick / "california_ridge.json").read_text())
    references = load_references(quick / "california_ridge" / "references")
    signals, member = np.asarray(references.statistic)[1:], np.asarray(references.membership)[1:]
    signals = signals[..., 0] if signals.ndim == 3 else signals
    rows, recalls = references.plan.members(0), []
    # With so few models one variance serves all records, so that d′ ranks by the distance of the means.
    d = np.array([abs(signals[member[:, i], i].mean() - signals[~member[:, i], i].mean()) for i in rows])
    kept = np.argsort(-np.asarray(references.extra(0)["shift"]), kind="stable")
    for k in entry["curves"]["k"]:
        count = int(np.ceil(k * len(rows) - 1e-9))
        truth = np.argsort(-d, kind="stable")[:count]
        recalls.append(len(set(truth.tolist()) & set(kept[:count].tolist())) / count)
    # Curves are stored to five digits.
    np.testing.assert_allclose(entry["curves"]["attacks"]["lira_d"]["shift"]["one"], recalls, atol=1e-5)


def test_published_tables_agree_with_each_other():
    """Table 1's settings are Table 4's and 5's; recalls are percentages; the best of Table 1 are those the goals were set by."""
    first, fourth, fifth = (PUBLISHED[name]["rows"] for name in ("ret_table_1", "ret_table_4", "ret_table_5"))
    assert set(first) == set(fourth) == set(fifth)
    best = {name: max(pair[0] for pair in row.values()) for name, row in first.items()}
    assert best["california_mlp"] == 75.5
    assert best["pneumonia_probe"] == 90.4
    assert all(0 <= value <= 100 for row in fifth.values() for cells in row.values() for value in cells[:3] if value is not None)


def test_the_published_speed_of_the_frozen_features_is_not_that_of_its_table():
    """Erratum 12: the text's 50,000 is not the ratio of Table 4's own figures."""
    row = PUBLISHED["ret_table_4"]["rows"]["pneumonia_probe"]
    assert row["references"] / row["score_target"] == 14_400


def test_the_published_gradient_norm_of_the_ridge_is_its_loss():
    """Erratum 7: in Tables 1 and 5 both columns agree to the last digit, which 2|e|·‖x̃‖ and e² do not in any data."""
    for table in ("ret_table_1", "ret_table_5"):
        row = PUBLISHED[table]["rows"]["california_ridge"]
        assert row["gradient_norm"] == row["loss"]
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=(2000, 8)), np.ones(2000)])
    errors = rng.normal(size=2000)
    top = [set(np.argsort(-score)[:100].tolist()) for score in (errors**2, 2 * np.abs(errors) * np.linalg.norm(x, axis=1))]
    assert len(top[0] & top[1]) < 90
    ours = json.loads((ROOT / "benchmarks" / "results" / "papers" / "california_ridge.json").read_text())["agreement"]
    found = {
        name: [row["value"] for row in ours if (row["score"], row["attack"], row["metric"]) == (name, "lira_success", "recall")]
        for name in ("loss", "gradient_norm")
    }
    assert found["loss"] != found["gradient_norm"] and len(found["loss"]) == len(found["gradient_norm"]) > 1


def test_every_published_setting_can_be_run_and_says_how_it_differs():
    source = (ROOT / "benchmarks" / "papers" / "settings.py").read_text()
    names = set(re.findall(r'Setting\(\s+"(\w+)"', source))
    assert set(PUBLISHED["ret_table_1"]["rows"]) <= names
    assert set(json.loads((ROOT / "benchmarks" / "papers" / "differs.json").read_text())) == names


def test_an_unknown_setting_is_refused(data, tmp_path):
    done = run(data, tmp_path, "--only", "mnist")
    assert done.returncode == 2
    assert "invalid choice: 'mnist'" in done.stderr


PATH_SEPARATION = """
import json, sys
from types import SimpleNamespace
import numpy as np
from benchmarks.papers.early_stop import path_separation, stopping_decay
rng = np.random.default_rng(0)
x, logits, losses, damping = rng.normal(size=(9, 3)), rng.normal(size=(9, 2)), rng.exponential(size=(9, 4)), 0.3
found = path_separation(SimpleNamespace(features=x, outputs=logits), losses, damping)
rows, p = np.column_stack([x, np.ones(9)]), 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
curvature = damping * np.eye(4)
for i in range(9):
    curvature += p[i] * (1 - p[i]) * np.outer(rows[i], rows[i])
inverse, slopes, naive = np.linalg.inv(curvature), [np.mean(1 - np.exp(-own)) for own in losses], []
for i in range(9):
    moves = [slopes[j] * rows[i] @ inverse @ rows[j] for j in range(9)]
    naive.append(moves[i] / np.sqrt(sum(move**2 for move in moves)))
recipe = SimpleNamespace(epochs=100, batch_size=512, momentum=0.9, lr=0.01)
print(json.dumps([found.tolist(), naive, stopping_decay(recipe, 2354)]))
"""


def test_the_separation_along_the_path_is_its_formula_record_by_record(told):
    found, naive, decay = told[0]
    # Two ways to solve a well-conditioned system of four.
    np.testing.assert_allclose(found, naive, rtol=1e-10)
    # 500 steps of 0.01, each ten times as long with the momentum.
    assert decay == pytest.approx(0.02)


SIDES = """
import json
import numpy as np
from benchmarks.papers.sides import side_losses
rng = np.random.default_rng(0)
loss, member = rng.exponential(size=(6, 9)), rng.random((6, 9)) < 0.5
member[0], member[1] = True, False
found = side_losses(loss, member)
naive = {"with": [], "without": []}
for i in range(9):
    naive["with"].append(np.mean([loss[m, i] for m in range(6) if member[m, i]]))
    naive["without"].append(np.mean([loss[m, i] for m in range(6) if not member[m, i]]))
print(json.dumps([{name: values.tolist() for name, values in found.items()}, naive]))
"""


def test_the_two_sides_of_a_record_are_means_over_models_with_and_without_it(told):
    found, naive = told[1]
    for side in ("with", "without"):
        np.testing.assert_allclose(found[side], naive[side], rtol=1e-12)


HALVED = """
import json
import numpy as np
from benchmarks.papers.pools import halved
x = np.random.default_rng(0).normal(size=(3, 2, 4, 6))
small, labels = halved(lambda data, work, limit: (x, [7]))(None, None)
means = [[[[x[n, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean() for j in range(3)] for i in range(2)] for c in range(2)] for n in range(3)]
print(json.dumps([small.tolist(), means, labels]))
"""


@pytest.fixture(scope="module")
def told():
    """What the three pieces above print: one process for all, since each start of Python with torch takes seconds."""
    done = subprocess.run([sys.executable, "-c", PATH_SEPARATION + SIDES + HALVED], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_halved_images_are_the_means_of_four_pixels(told):
    small, means, labels = told[2]
    np.testing.assert_allclose(small, means, rtol=1e-12)
    assert labels == [7]


@pytest.mark.slow
def test_scores_of_the_targets_have_a_clock_of_their_own(quick):
    """A line a target; what they took is no longer the references', and nothing is counted twice."""
    entry, folder = json.loads((quick / "energy_mlp.json").read_text()), quick / "energy_mlp"
    lines = [json.loads(line) for line in (folder / "score_seconds.jsonl").read_text().splitlines()]
    kept = json.loads((folder / "seconds.json").read_text())
    assert len(lines) == entry["targets"]
    for clock in ("wall", "processor"):
        assert entry["seconds"]["scores"][clock] == pytest.approx(sum(line[clock] for line in lines), abs=0.01)
        both = entry["seconds"]["scores"][clock] + entry["seconds"]["references"][clock]
        assert both == pytest.approx(kept["references"][clock], abs=0.02)
        assert entry["seconds"]["references"][clock] > 0
