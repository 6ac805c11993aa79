"""Scores over shards: the numbers of one process, whatever the files, shards, workers and deaths."""

import itertools
import re
from functools import partial

import numpy as np
import pytest

import noshadow as ns
from noshadow.scores.sharded import passes as shard_passes
from noshadow.scores.sharded import solver as sharded_solver
from noshadow.scores.sharded.shards import cut, head_records, mapped
from noshadow.scores.sharded.walk import merged_in_order
from shard_work import always_dying, failing, grams_after_a_death, head, in_files

TASKS = ("regression", "binary", "classification")
# Sums in another order: rounding (1e-16) times a condition of about 1e3 leaves more than two digits to spare.
SAME = {"rtol": 1e-10, "atol": 1e-300}
SCALARS = ("damping_used", "effective_dof", "stationarity")
# Features in four files, one of a single record and one of none; outputs, targets and weights cut elsewhere.
CUTS = {"features": (1, 1, 300), "outputs": (217,), "targets": (), "weights": (10, 650)}


def assert_same(first, second):
    assert first.columns().keys() == second.columns().keys()
    for name, column in first.columns().items():
        np.testing.assert_allclose(second.columns()[name], column, err_msg=name, **SAME)
    for name in SCALARS:
        assert getattr(second, name) == pytest.approx(getattr(first, name), rel=1e-10, abs=1e-300), name
    # Both are rounding for an exactly linear head.
    assert second.head_residual == pytest.approx(first.head_residual, rel=1e-10, abs=1e-7)
    for name in ("task", "rank", "jitter", "notes", "not_applicable", "damping_source", "precision", "method"):
        assert getattr(second, name) == getattr(first, name), name


def stored(folder, features, outputs, targets):
    arrays = {"features": features, "outputs": outputs, "targets": targets}
    return [in_files(folder, name, array, CUTS[name]) for name, array in arrays.items()]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "options",
    [{}, {"damping": 0.3, "penalize_intercept": False}, {"damping": 2.0, "fit_intercept": False, "columns": ["shift", "loss"]}],
    ids=["auto", "free intercept", "no intercept"],
)
def test_shards_give_the_numbers_of_one_process(tmp_path, task, options):
    arrays = head(task)
    weight = np.random.default_rng(1).random(len(arrays[0])) * 2
    weight[:20] = 0  # a shard without any weight
    weights = in_files(tmp_path, "weights", weight, CUTS["weights"])
    alone = ns.record_scores(*arrays, task=task, sample_weight=weight, **options)
    shared = ns.sharded_record_scores(*stored(tmp_path, *arrays), task=task, sample_weight=weights, shards=5, workers=1, **options)
    assert_same(alone, shared)


@pytest.mark.parametrize("task", TASKS)
def test_the_number_of_shards_and_the_kind_of_arrays_do_not_matter(tmp_path, task):
    features, outputs, targets = head(task, n=60)
    paths = stored_whole(tmp_path, features, outputs, targets)
    alone = ns.record_scores(features, outputs, targets)
    for shards in (1, 2, 20):
        assert_same(alone, ns.sharded_record_scores(*paths, shards=shards, workers=1))
    given = (np.load(paths[0], mmap_mode="r"), outputs.tolist(), str(paths[2]))
    assert_same(alone, ns.sharded_record_scores(*given, shards=7, workers=1))


def stored_whole(folder, *arrays):
    return [in_files(folder, name, array)[0] for name, array in zip(("features", "outputs", "targets"), arrays, strict=True)]


def test_soft_labels_are_soft_everywhere_when_they_are_anywhere(tmp_path):
    """One-hot rows of a shard must not become labels there: digits of 1 − p are lost for soft rows, and alike in all shards."""
    features, outputs, labels = head("classification")
    soft = np.eye(4)[labels]
    soft[500:] = 0.9 * soft[500:] + 0.025
    for targets in (soft, np.eye(4)[labels]):
        alone = ns.record_scores(features, 4 * outputs, targets, task="classification", damping=1.0)
        paths = stored(tmp_path, features, 4 * outputs, targets)
        assert_same(alone, ns.sharded_record_scores(*paths, task="classification", damping=1.0, shards=6, workers=1))


def test_constant_and_collinear_features_drop_out_alike(tmp_path):
    features, outputs, targets = head("classification", n=400)
    # Far below the ratio at which second moments have lost their digits: the triangles of the shards decide.
    features = np.column_stack([features, np.full(400, 7.3), features[:, 0] * (1 + 1e-7 * np.arange(400) / 400)]).astype(np.float64)
    features = np.column_stack([features, features[:, 1] - features[:, 2]])
    alone = ns.record_scores(features, outputs, targets, damping=0.1)
    shared = ns.sharded_record_scores(*stored(tmp_path, features, outputs, targets), damping=0.1, shards=4, workers=1)
    assert shared.rank == alone.rank == 8
    assert shared.notes == alone.notes
    for name, column in alone.columns().items():
        # Rounding times the condition 1e7 of these features, in either.
        np.testing.assert_allclose(shared.columns()[name], column, rtol=1e-6, err_msg=name)


def test_interpolated_records_are_infinite_alike(tmp_path):
    features, outputs, targets = head("regression", n=50)
    features[7] = 0
    features = np.column_stack([features, np.arange(50) == 7]).astype(np.float32)
    alone = ns.record_scores(features, outputs, targets, damping=0.0)
    shared = ns.sharded_record_scores(*stored_whole(tmp_path, features, outputs, targets), damping=0.0, shards=3, workers=1)
    assert np.isinf(shared.loo[7]) and np.isfinite(np.delete(shared.loo, 7)).all()
    assert any("interpolated" in note for note in shared.notes)
    np.testing.assert_allclose(shared.leverage, alone.leverage, rtol=1e-9)


@pytest.mark.parametrize("soft", [False, True])
def test_float32_products_are_checked_and_redone_alike(tmp_path, monkeypatch, soft):
    features, outputs, targets = head("classification")
    weight = np.linspace(0.5, 2, len(features))
    targets = 0.9 * np.eye(4)[targets] + 0.025 if soft else targets
    options = {"task": "classification", "damping": 1.0, "sample_weight": weight}
    paths = stored(tmp_path, features, outputs, targets)
    mixed = ns.record_scores(features, outputs, targets, precision="mixed", **options)
    shared = ns.sharded_record_scores(*paths, precision="mixed", shards=5, workers=1, **options)
    assert shared.precision == "mixed"
    # Single precision in both; the measured error must be of that size too, and neither nothing nor much.
    assert 1e-9 < shared.precision_error < 1e-4 and shared.precision_error < 30 * mixed.precision_error
    np.testing.assert_allclose(shared.shift, mixed.shift, rtol=1e-4)
    assert not np.array_equal(shared.shift, mixed.shift)
    monkeypatch.setattr(sharded_solver, "MIXED_FROM_FLOPS", 0)
    monkeypatch.setattr(sharded_solver, "ROUNDING_TOLERANCE", 0)
    redone = ns.sharded_record_scores(*paths, shards=5, workers=1, **options)
    exact = ns.record_scores(features, outputs, targets, precision="float64", **options)
    assert re.fullmatch(r"float32 products moved the largest Newton gaps by \S+, so everything was redone in float64", redone.notes[0])
    for name, column in exact.columns().items():
        np.testing.assert_allclose(redone.columns()[name], column, err_msg=name, **SAME)


def test_workers_in_other_processes_and_their_deaths_change_nothing(tmp_path, monkeypatch):
    arrays = head("classification")
    paths, alone = stored(tmp_path, *arrays), ns.record_scores(*arrays)
    monkeypatch.setattr(shard_passes, "grams", partial(grams_after_a_death, marker=str(tmp_path / "died")))
    assert_same(alone, ns.sharded_record_scores(*paths, workers=2, shards=5))
    assert (tmp_path / "died").exists()
    monkeypatch.setattr(shard_passes, "grams", always_dying)
    match = (
        r"^sharded_record_scores: workers must stay alive; got 1 rounds in which workers died and no shard arrived \(.*\), "
        r"with 5 shards left \(the first: 0\)\. Is memory short\? Run again with fewer workers\.$"
    )
    with pytest.raises(ns.InputError, match=match):
        ns.sharded_record_scores(*paths, workers=2, shards=5, attempts=1)


def refused(match, *given, **options):
    with pytest.raises(ns.InputError, match=match) as caught:
        ns.sharded_record_scores(*given, **({"workers": 1, "shards": 3} | options))
    assert str(caught.value).startswith("sharded_record_scores: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "row", "value", "match"),
    [
        ("features", 40, np.nan, r"features must be finite; got 1 NaN or infinite values, the first at index \(0, 2\)\. .*record 40\.\)$"),
        ("features", 3, np.inf, r"features must be finite; got 1 NaN or infinite values, the first at index \(3, 2\)\. Drop.*rows\.$"),
        ("outputs", 45, 1e101, r"outputs must stay within ±1e\+100; got 1e\+101 at index \(5, 2\)\..*record 40"),
        ("targets", 59, 4, r"targets must be < 4, the number of outputs; got label 4 at index 19\. \(Index 0 there is record 40\.\)$"),
    ],
)
def test_wrong_values_are_found_in_their_shard(tmp_path, name, row, value, match):
    arrays = dict(zip(("features", "outputs", "targets"), head("classification", n=60), strict=True))
    arrays[name][(row, 2) if arrays[name].ndim == 2 else row] = value
    refused(match, *stored_whole(tmp_path, *arrays.values()))


def test_the_first_of_several_wrong_shards_is_named(tmp_path):
    features, outputs, targets = head("regression", n=60)
    features[[50, 25], 0] = np.nan
    refused(r"index \(5, 0\).*record 20", *stored_whole(tmp_path, features, outputs, targets))


def test_files_that_cannot_be_read_are_one_sentence(tmp_path):
    features, outputs, targets = head("binary", n=60)
    paths = stored_whole(tmp_path, features, outputs, targets)
    gone = r"features must be a file that every worker can open; got '/.*nowhere\.npy' on \S+ \(No such file or directory\)\. Workers"
    refused(gone, tmp_path / "nowhere.npy", *paths[1:])
    np.savez(tmp_path / "several.npz", features)
    refused(r"features must be a \.npy file of plain numbers; got '.*several\.npz' .an archive", tmp_path / "several.npz", *paths[1:])
    np.save(tmp_path / "objects.npy", np.array([{}, None]), allow_pickle=True)
    refused(r"targets must be a \.npy file of plain numbers; got '.*objects\.npy' \(.*objects.*\)\.", *paths[:2], tmp_path / "objects.npy")
    (tmp_path / "text.npy").write_text("1, 2, 3")
    refused(
        r"outputs must be a \.npy file of plain numbers; got '.*text\.npy' \(.*\)\. Use np\.save\.$",
        paths[0],
        tmp_path / "text.npy",
        paths[2],
    )
    refused(r"features must be all paths or one array; got 1 paths among 2 things", [paths[0], features], *paths[1:])
    narrow = in_files(tmp_path, "narrow", features[:, :2])[0]
    refused(r"features must have rows of one kind in all files; got rows \(6,\) of float32, and '.*narrow0", [paths[0], narrow], *paths[1:])


def test_a_file_missing_or_changed_on_a_worker_is_one_sentence(tmp_path):
    features, outputs, targets = head("binary", n=60)
    paths = stored_whole(tmp_path, features, outputs, targets)
    records = head_records(*paths, None)
    reading = shard_passes.Reading("binary", None)
    job = shard_passes.ShardJob(shard_passes.counts, shard_passes.added, {}, records, reading, 1)
    (shard,) = cut(records, 1, 100)
    assert job.carried_out(shard)["classes"].sum() == 60
    np.save(paths[0], features[:50])
    assert re.search(r"features must not change while it is read; got '.*' with shape \(50, 6\)", str(job.carried_out(shard)))
    paths[0].unlink()
    assert re.search(r"every worker can open; got '.*' on \S+ \(No such file", str(job.carried_out(shard)))


def test_what_else_goes_wrong_in_a_worker_is_raised_here_with_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_passes, "grams", failing)
    with pytest.raises(
        RuntimeError, match=r"^sharded_record_scores: a worker failed on records 0 … 19:(.|\n)*ZeroDivisionError: by design"
    ):
        ns.sharded_record_scores(*stored_whole(tmp_path, *head("binary", n=60)), workers=1, shards=3)


def test_arguments_that_break_a_rule_are_one_sentence(tmp_path):
    features, outputs, targets = head("classification", n=60)
    paths = stored_whole(tmp_path, features, outputs, targets)
    for options, match in [
        ({"shards": 0}, "shards must be a whole number ≥ 1"),
        ({"workers": 0}, "workers must be a whole number ≥ 1"),
        ({"threads": None}, "threads must be a whole number ≥ 1"),
        ({"attempts": 0}, "attempts must be a whole number ≥ 1"),
        ({"damping": -1}, "damping must be a number ≥ 0"),
        ({"damping": "much"}, "damping must be a number ≥ 0"),
        ({"columns": ["risk"]}, "columns must be among"),
        ({"precision": "float16"}, "precision must be one of"),
        ({"backend": "threads"}, "backend must be one of 'loky', 'ray', 'dask'"),
        ({"address": "here"}, "address must be None with the backend 'loky'"),
        ({"task": "binary"}, "outputs must have one column in a binary task"),
        ({"sample_weight": np.zeros(60)}, "sample_weight must be ≥ 0 and not all zero"),
        ({"sample_weight": np.ones(59)}, "sample_weight must have one row per record; got lengths"),
        ({"max_memory": 1e3}, r"exact curvature within max_memory \(0\.0 GB\); got 4 classes × 7 dimensions.*method='ekfac'\)\.$"),
    ]:
        refused(match, *paths, **options)
    refused("targets must hold at least two classes; got only class 1", *paths[:2], np.ones(60, int))
    refused("features must have at most as many columns as records; got shape", features[:4], outputs[:4], targets[:4])
    refused("features must have at least 2 records; got 1", features[:1, :1], outputs[:1], targets[:1])
    refused("features must have at least 2 records; got 0", features[:0], outputs[:0], targets[:0])
    refused("features must have at least one column when fit_intercept=False", features[:, :0], *paths[1:], fit_intercept=False)
    refused("features must be 2-dimensional; got shape", features[:, 0], *paths[1:])
    refused("targets must be numeric; got dtype", *paths[:2], np.full(60, "a"))
    refused("features must not all be zero", np.zeros((60, 2)), *paths[1:], fit_intercept=False)


def test_the_task_is_that_of_all_parts(tmp_path):
    features, outputs, _ = head("binary", n=60)
    numbers = np.r_[np.zeros(20), np.ones(20), np.linspace(0, 3, 20)]
    parts = in_files(tmp_path, "targets", numbers, (20, 40))
    assert ns.sharded_record_scores(features, outputs, parts, workers=1, damping=1.0).task == "regression"
    refused("task must be named when one output meets targets 0.0 and 1.0", features[:40], outputs[:40], parts[:2])
    counts = in_files(tmp_path, "counts", np.r_[np.zeros(30, int), np.full(30, 5)], (30,))
    refused("task must be named when integer targets do not settle it", features, outputs, counts)


def test_results_are_merged_in_one_order_whatever_that_of_arrival():
    held = []
    for count in (1, 2, 3, 7, 12):
        for order in itertools.islice(itertools.permutations(range(count)), 200):
            results = ((i, {"order": f"({i})"}) for i in order)
            found = merged_in_order(results, count, lambda a, b: {"order": f"[{a['order']}{b['order']}]"})
            held.append((count, found["order"]))
    assert len(set(held)) == 5  # the same bracketing for every order of arrival
    assert [int(i) for i in re.findall(r"\d+", dict(held)[12])] == list(range(12))


def test_shards_cover_the_records_and_stretches_end_where_files_end(tmp_path):
    features, outputs, targets = head("regression", n=100)
    arrays = (in_files(tmp_path, "features", features, (33, 34)), outputs, in_files(tmp_path, "targets", targets, (50,)))
    records = head_records(*arrays, None)
    shards = cut(records, 3, 20)
    assert [number for shard in shards for number in (shard.number, *shard.wanted)] == [0, 0, 1, 1, 2, 2]
    pieces = [piece for shard in shards for piece in shard.stretches]
    assert [i for start, stop in pieces for i in range(start, stop)] == list(range(100))
    assert {33, 34, 50} <= {start for start, _ in pieces} and all(stop - start <= 20 for start, stop in pieces)
    for start, stop in pieces:
        np.testing.assert_array_equal(records.features.rows(start, stop), features[start:stop])
        np.testing.assert_array_equal(records.targets.rows(start, stop), targets[start:stop])
    assert isinstance(mapped(str(arrays[0][0]), "features"), np.memmap)
