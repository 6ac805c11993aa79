"""The folder of reference models: refused when it is another's, memory-mapped, rebuilt when stale; parity; queries; files."""

import io
import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from noshadow import InputError
from noshadow.reference import load_references, mirrored, shifted, status, train_references
from noshadow.reference.function_names import function_name
from noshadow.reference.parity import loss_parity
from noshadow.storage.numpy_files import npy_header
from noshadow.storage.safetensors_files import layout
from reference_training import RECORDS, Stacked, data, fit, splits

X, Y = data()
TRAIN, TEST = splits()


def outputs(indices, seed):
    """Outputs that tell models apart: random, but members are predicted right."""
    found = np.random.default_rng(seed).normal(size=(RECORDS, 3))
    found[indices, Y[indices]] += 3
    return found


def other(indices, seed):
    return outputs(indices, seed)


def trained(folder, train_fn=outputs, train=TRAIN, test=TEST, **options):
    return train_references(folder, train_fn, train, test, **({"models": 6, "workers": 1, "progress": False} | options))


def refused(match, function, *args, **options):
    with pytest.raises(InputError, match=match) as caught:
        function(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("set") / "r", model=outputs(np.arange(30), 99)).folder


@pytest.fixture
def folder(complete, tmp_path):
    return shutil.copytree(complete, tmp_path / "r")


def again(folder, train_fn=outputs, **options):
    return trained(folder, train_fn, **({"model": outputs(np.arange(30), 99)} | options))


def test_arrays_over_all_models_are_memory_mapped_and_those_of_each_model(folder):
    references = load_references(folder)
    for name in ("statistic", "loss", "correct"):
        stacked = getattr(references, name)
        assert isinstance(stacked, np.memmap) and stacked.shape == (6, RECORDS) and not stacked.flags.writeable
        for t in range(6):
            expected = load_file(folder / "models" / f"0000{t}.safetensors")[name]
            assert stacked.dtype == expected.dtype
            np.testing.assert_array_equal(stacked[t], expected)
    assert isinstance(references.membership, np.memmap) and isinstance(references.outputs(2), np.memmap)
    np.testing.assert_array_equal(references.outputs(2), outputs(references.plan.members(2), int(references.plan.seeds[2])))
    assert references.all_outputs.shape == (6, RECORDS, 3) and len(references.all_outputs) == 6
    np.testing.assert_array_equal(np.stack(list(references.all_outputs)), [references.outputs(t) for t in range(6)])
    np.testing.assert_array_equal(references.all_outputs[-1], references.outputs(5))
    assert isinstance(references.target.outputs, np.memmap) and "6 reference models of 60 records" in str(references)


def test_gathered_files_are_used_again_and_rebuilt_when_a_model_changes(folder):
    load_references(folder).loss
    (first,) = (folder / "stacked").glob("loss-*.npy")
    stamp = first.stat().st_mtime_ns
    load_references(folder).loss
    assert first.stat().st_mtime_ns == stamp
    path = folder / "models" / "00004.safetensors"
    arrays, metadata = load_file(path), dict(layout(path).metadata)
    save_file(arrays | {"loss": arrays["loss"] + 1}, path, metadata)
    changed = load_references(folder).loss
    np.testing.assert_array_equal(changed[4], arrays["loss"] + 1)
    assert len(list((folder / "stacked").glob("loss-*.npy"))) == 1 and not first.exists()


def test_a_folder_moved_elsewhere_still_loads(folder, tmp_path):
    statistic = np.array(load_references(folder).statistic)
    folder.rename(tmp_path / "elsewhere")
    np.testing.assert_array_equal(load_references(tmp_path / "elsewhere").statistic, statistic)


def test_missing_models_are_counted_and_named(folder):
    (folder / "models" / "00002.safetensors").unlink()
    damaged = folder / "models" / "00005.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    refused(r"hold all 6 models of its plan; got 4 of 6 \(missing: 2, 5\). Run train_references", load_references, folder)
    assert status(folder).missing == (2, 5) and status(folder).failed == ()
    again(folder)
    assert load_references(folder).plan.models == 6


def test_a_model_of_another_plan_does_not_count(folder, tmp_path):
    foreign = trained(tmp_path / "other", seed=1).folder
    shutil.copy(foreign / "models" / "00001.safetensors", folder / "models" / "00001.safetensors")
    refused(r"got 5 of 6 \(missing: 1\)", load_references, folder)
    shutil.copy(folder / "models" / "00000.safetensors", folder / "models" / "00001.safetensors")
    refused(r"got 5 of 6 \(missing: 1\)", load_references, folder)


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ({"models": 8}, r"plan.models: 6 → 8"),
        ({"fraction": 0.4}, r"plan.fraction: 0.5 → 0.4"),
        ({"seed": 3}, r"plan.seed: 0 → 3"),
        ({"train": (X[:30] + 1, Y[:30])}, r"hashes.data: [0-9a-f]{12} → [0-9a-f]{12}\)"),
        ({"ids": [f"p{i}" for i in range(60)]}, r"hashes.row_order: "),
        ({"model": None}, r"hashes.weights: [0-9a-f]{12} → null"),
        ({"model": outputs(np.arange(30), 98)}, r"hashes.weights"),
        ({"train_fn": other}, r"train.function: \S*outputs → \S*other"),
        ({"settings": {"lr": 0.1}}, r"train.settings.lr: nothing → 0.1"),
        ({"threads": 2}, r"train.threads: 1 → 2"),
        ({"traces": True, "train_fn": lambda indices, seed, record: None}, r"signals.traces: false → true"),
        ({"keep_outputs": False}, r"signals.keep_outputs: true → false"),
        ({"queries": (), "task": "classification"}, r"task: auto → classification"),
        ({"extra": other, "extra_models": 2}, r"signals.extra_models: 0 → 2"),
        ({"batch_size": 16}, r"signals.batch_size: 256 → 16"),
        ({"train": (X[:40], Y[:40]), "test": (X[40:], Y[40:])}, r"hashes.data"),
    ],
)
def test_another_experiment_is_refused_and_what_differs_is_named(folder, options, differs):
    message = refused(f"hold the same experiment; got other values .*{differs}", again, folder, **options)
    assert "Use the same arguments and data, or another folder" in message


def test_several_differences_are_all_listed_and_queries_are_compared(tmp_path):
    trained(tmp_path / "r", Stacked(), stack=4)
    message = refused("same experiment", trained, tmp_path / "r", Stacked(epochs=5), stack=3)
    assert "train.settings.epochs: 4 → 5" in message and "train.stack: 4 → 3" in message
    assert "signals.queries: [] → " in refused("same", trained, tmp_path / "r", Stacked(), stack=4, queries=(torch.neg,))
    assert "train.engine: vectorised → one-by-one" in refused("same", trained, tmp_path / "r", Stacked("because"), stack=4)


def test_workers_and_versions_do_not_matter_but_other_versions_are_noted(folder):
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "models" / "00000.safetensors").unlink()
    plan["versions"]["torch"] = "1.0"
    plan["source"] = "0" * 64
    (folder / "plan.json").write_text(json.dumps(plan))
    references = again(folder, attempts=7)
    assert any("trained with other versions: torch 1.0 → " in note for note in references.notes)
    assert any("source text of train_fn is not the one" in note for note in references.notes)


def test_nothing_is_trained_again_when_all_is_there(folder):
    stamps = {f.name: f.stat().st_mtime_ns for f in (folder / "models").iterdir()}
    again(folder)
    assert stamps == {f.name: f.stat().st_mtime_ns for f in (folder / "models").iterdir()}


def test_foreign_files_are_refused(folder, tmp_path):
    for name in ("notes.txt", "models/weights.pt", "failures/readme"):
        (folder / name).write_text("mine")
        refused(rf"not exist yet, or hold reference models and nothing else; got .* with {name}", again, folder)
        (folder / name).unlink()
    (tmp_path / "mine").mkdir()
    assert trained(tmp_path / "mine").plan.models == 6  # an empty folder is used
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    refused("hold reference models and nothing else; got .*full' with a", trained, tmp_path / "full")
    (tmp_path / "models").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "models").mkdir()
    refused("nothing else; got .*half' with models", trained, tmp_path / "half")
    refused("folder must be a folder; got the file", trained, tmp_path / "full" / "a")


def test_altered_files_are_refused(folder):
    path = folder / "membership.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    refused("be as it was written; got .* with membership.npy missing or altered", load_references, folder)
    refused("membership.npy missing or altered", again, folder)
    (folder / "plan.json").write_text("{")
    refused("plan.json must be JSON", load_references, folder)
    (folder / "plan.json").write_text('{"format": 7}')
    refused("hold a plan of format 1; got 7", load_references, folder)
    (folder / "plan.json").unlink()
    refused(r"load_references: folder must hold reference models \(plan.json\)", load_references, folder)
    refused("status: folder must hold reference models", status, folder)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    refused("folder must be writable; got .*Choose another place", trained, tmp_path / "file" / "r")


def test_status_tells_time_and_size(folder):
    seen = status(folder)
    assert (seen.planned, seen.done, seen.failed, seen.missing, seen.complete) == (6, 6, (), (), True)
    assert seen.remaining_seconds == 0 and seen.bytes == sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    each = [float(layout(f).metadata["seconds"]) for f in (folder / "models").iterdir()]
    np.testing.assert_allclose(seen.seconds_per_model, np.mean(each), rtol=1e-12)
    for t in (1, 2):
        (folder / "models" / f"0000{t}.safetensors").unlink()
    np.testing.assert_allclose(status(folder).remaining_seconds, 2 * status(folder).seconds_per_model, rtol=1e-12)
    for f in (folder / "models").iterdir():
        f.unlink()
    assert status(folder).seconds_per_model is None and status(folder).remaining_seconds is None


def test_metadata_name_the_model(folder):
    references = load_references(folder)
    metadata = layout(folder / "models" / "00003.safetensors").metadata
    assert metadata["model"] == "3" and metadata["seed"] == str(references.plan.seeds[3]) and metadata["engine"] == "one-by-one"
    assert metadata["plan"] == references.stamp()["plan_digest"] and float(metadata["seconds"]) >= 0


def like(references_mean, sd, seed=0, models=12, n=200):
    """Losses whose means over members and non-members scatter around the given ones."""
    rng = np.random.default_rng(seed)
    membership = rng.random((models, n)) < 0.5
    means = np.where(membership, references_mean[0], references_mean[1])
    return means + sd * rng.normal(size=(models, 1)), membership


def test_parity_is_quiet_for_a_target_like_the_others_and_speaks_up_otherwise():
    losses, membership = like((0.2, 0.9), 0.05)
    member = np.arange(200) < 100
    usual = loss_parity(np.where(member, 0.22, 0.88), member, losses, membership)
    assert not usual["outlying"] and usual["sentence"] == "The target's mean losses are like those of the reference models."
    odd = loss_parity(np.where(member, 0.6, 0.92), member, losses, membership)
    assert odd["outlying"] and odd["member"]["outlying"] and not odd["nonmember"]["outlying"]
    inside = np.array([row[m].mean() for row, m in zip(losses, membership, strict=True)])
    np.testing.assert_allclose(odd["member"]["z"], (0.6 - inside.mean()) / inside.std(ddof=1), rtol=1e-9)
    assert "probably trained differently" in odd["sentence"] and "0.6 on members" in odd["sentence"]
    assert (odd["member"]["low"], odd["member"]["high"]) == (inside.min(), inside.max())
    json.dumps(odd, allow_nan=False)
    alone = loss_parity(np.full(200, 0.2), np.ones(200, bool), losses, membership)
    assert alone["nonmember"] is None and not alone["outlying"]


def test_parity_survives_models_that_are_all_the_same():
    member = np.arange(200) < 100
    losses, membership = like((0.0, 0.0), 0.0)
    assert loss_parity(np.zeros(200), member, losses, membership)["outlying"] is False
    losses, membership = like((0.0, 1.0), 0.0)
    assert not loss_parity(np.where(member, 1e-9, 1.0), member, losses, membership)["outlying"]
    # 3 % from models that do not differ at all is not yet another training; 10 % is
    losses, membership = like((0.5, 1.0), 0.0)
    assert not loss_parity(np.where(member, 0.515, 1.0), member, losses, membership)["outlying"]
    far = loss_parity(np.where(member, 0.55, 1.0), member, losses, membership)
    assert far["outlying"] and np.isfinite(far["member"]["z"])
    huge = loss_parity(np.where(member, 1e30, 1.0), member, *like((0.0, 1e-30), 0.0))
    assert huge["outlying"] and json.dumps(huge, allow_nan=False)


def test_references_say_whether_the_target_is_like_them(folder, tmp_path):
    parity = load_references(folder).parity()
    assert not parity["outlying"]
    assert trained(tmp_path / "none").parity() is None
    untrained = np.random.default_rng(5).normal(size=(RECORDS, 3))
    assert trained(tmp_path / "odd", model=untrained).parity()["member"]["outlying"]


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_images_are_mirrored_and_shifted(kind):
    x = kind(np.arange(24.0).reshape(2, 1, 3, 4))
    before = np.asarray(x).copy()
    np.testing.assert_array_equal(np.asarray(mirrored(x)), before[..., ::-1])
    for rows in range(-4, 5):
        for columns in range(-5, 6):
            expected = np.zeros_like(before)
            for i in range(3):
                for j in range(4):
                    if 0 <= i + rows < 3 and 0 <= j + columns < 4:
                        expected[..., i + rows, j + columns] = before[..., i, j]
            np.testing.assert_array_equal(np.asarray(shifted(x, rows, columns)), expected)
    np.testing.assert_array_equal(np.asarray(x), before)
    assert type(mirrored(x)) is type(x) and type(shifted(x, 1, 1)) is type(x) and mirrored(x).dtype == x.dtype


def test_queries_refuse_what_is_no_image():
    refused(r"mirrored: x must be a batch of images \(n, …, height, width\); got shape \(3, 64\)", mirrored, np.zeros((3, 64)))
    refused("shifted: x must be a batch of images .* got list", shifted, [[1.0]], 0, 0)
    refused("shifted: rows must be a whole number", shifted, np.zeros((1, 2, 2)), 0.5, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 10**7), min_size=0, max_size=4), st.sampled_from(["<f8", "|b1", "<f4", "<i8"]))
def test_headers_of_gathered_files_are_those_numpy_writes(shape, dtype):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": tuple(shape)})
    ours = npy_header(np.dtype(dtype), tuple(shape))
    assert len(ours) % 64 == 0
    stream = io.BytesIO(ours)
    assert np.lib.format.read_magic(stream) == (1, 0)
    assert np.lib.format.read_array_header_1_0(stream) == (tuple(shape), False, np.dtype(dtype)) and stream.read() == b""


def test_layouts_read_what_safetensors_wrote_and_refuse_the_rest(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"a": rng.normal(size=(3, 2)), "b": rng.random(5) < 0.5, "c": rng.normal(size=4).astype(np.float32), "d": np.arange(3)}
    save_file(arrays, tmp_path / "x", {"k": "v"})
    there = layout(tmp_path / "x")
    assert there.metadata == {"k": "v"} and set(there.places) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(there.array(name), array)
        assert there.array(name).dtype == array.dtype
    whole = (tmp_path / "x").read_bytes()
    for broken in (
        b"",
        whole[:4],
        whole[:-1],
        whole + b"x",
        b"\xff" * 64,
        (2).to_bytes(8, "little") + b"[]",
        (9).to_bytes(8, "little") + b'{"a": 12}',
    ):
        (tmp_path / "y").write_bytes(broken)
        with pytest.raises(ValueError, match=r"."):
            layout(tmp_path / "y")


def test_the_demo_function_of_these_tests_trains(tmp_path):
    """`fit` is what other files' trainings stand on: it must learn, or equal arrays would mean nothing."""
    references = trained(tmp_path / "r", fit, models=8)
    inside = references.loss[references.membership].mean()
    assert inside < np.log(3) * 0.9 and len({row.tobytes() for row in references.loss}) == 8


def test_a_partial_is_named_without_memory_addresses():
    class Plain:
        pass

    def threshold(_, by):
        return by

    named = function_name(partial(threshold, partial(Plain().__class__), by=Plain()))
    assert "0x" not in named
    assert named == function_name(partial(threshold, partial(Plain), by=Plain()))


def bound(x, y, indices, seed, *, names, rate=0.1):
    """A training function whose data came with it, as `functools.partial` makes them."""
    return fit(indices, seed)


def test_data_bound_to_a_training_function_never_reach_a_file(tmp_path):
    x, names = np.full((40, 3), 0.123456789), [f"patient-{row}" for row in range(40)]
    train_fn = partial(bound, x, torch.full((40,), 0.987654321), names=names, rate=0.25)
    told = function_name(train_fn)
    assert "rate=0.25" in told and "numpy.ndarray(40, 3)" in told and "torch.Tensor(40,)" in told and len(told) < 300
    assert told == function_name(partial(bound, x.copy(), torch.full((40,), 0.987654321), names=list(names), rate=0.25))
    assert told != function_name(partial(bound, x + 1, torch.full((40,), 0.987654321), names=names, rate=0.25))
    trained(tmp_path / "r", train_fn, models=4)
    written = b"".join(path.read_bytes() for path in (tmp_path / "r").rglob("*.json"))
    assert b"bound(" in written and not any(secret in written for secret in (b"0.123456", b"0.98765", b"patient-"))
