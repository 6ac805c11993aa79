"""The embedded default: real data, a model trained here, the same numbers every time."""

import json
import resource
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from noshadow import InputError, load
from noshadow.demo import demo_audit, digit_halves, half_rows


@pytest.fixture(scope="module")
def first():
    return demo_audit(progress=False)


def test_the_halves_cover_the_digits_once():
    inside, outside = half_rows(0)
    assert (len(inside), len(outside)) == (898, 899)
    assert sorted([*inside, *outside]) == list(range(1797))
    assert not np.array_equal(inside, half_rows(1)[0])
    (train_x, train_y), (test_x, test_y) = digit_halves(0)
    digits = load_digits()
    np.testing.assert_allclose(train_x * 16, digits.data[inside], atol=1e-5)  # float32 rounding of sixteenths
    np.testing.assert_array_equal(np.r_[train_y, test_y], digits.target[np.r_[inside, outside]])
    assert train_x.min() >= 0 and test_x.max() <= 1


def test_the_demo_is_the_same_twice_and_leaves_the_random_state_alone(first):
    state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 - is it left alone?
    second = demo_audit(progress=False)
    assert torch.equal(torch.random.get_rng_state(), state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    pd.testing.assert_frame_equal(first.records, second.records, check_exact=True)
    one, two = first.manifest(), second.manifest()
    assert {k: v for k, v in one.items() if k != "timings"} == {k: v for k, v in two.items() if k != "timings"}


def test_the_demo_shows_a_model_that_fits_its_own_half_better(first):
    risk = first.model_risk
    assert first.task == "classification" and first.ranked_by == "shift" and len(first.records) == 898
    assert risk.member_accuracy == 1.0 and risk.accuracy_gap > 0.01 and risk.loss_gap > 0.05
    assert risk.tnr_interval[0] > 10 * risk.fpr  # far above what guessing reaches at that level
    assert first.provenance["scores"]["damping_used"] == pytest.approx(898 * 1e-4)
    assert all(name.startswith("digit-") for name in first.records["id"])


def test_a_seed_that_is_none_is_refused():
    with pytest.raises(InputError, match="demo: seed must be a whole number ≥ 0"):
        demo_audit(seed=-1)


def test_the_demo_command_runs_from_start_to_report_and_another_seed_is_another_demo(first, tmp_path):
    command = [sys.executable, "-c", "from noshadow.cli import main; main()", "demo", "--seed", "1", "--out", "made/demo", "--json"]
    # Processor time, and no limit on the clock: on a busy machine the demo waits for its turn.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0 and done.stderr == ""
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60
    folder = tmp_path / "made" / "demo"
    assert sorted(entry.name for entry in folder.iterdir()) == ["audit.json", "losses.npz", "records.parquet", "report.html"]
    second = load(folder)
    assert json.loads(done.stdout)["model_risk"] == second.model_risk.to_dict()
    assert "digit-" in (folder / "report.html").read_text(encoding="utf-8")
    assert second.records["id"].tolist() != first.records["id"].tolist()
