"""Signals: validated once and read-only; both file formats give back what was written and unpickle nothing."""

import dataclasses
import pickle
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

from noshadow import InputError, Signals, load_splits, save_splits

SUFFIXES = (".npz", ".safetensors")
RNG = np.random.default_rng(5)
X, OUT, Y = RNG.normal(size=(6, 3)), RNG.normal(size=(6, 2)), np.array([0, 1, 1, 0, 1, 0])


def arrays(**changes):
    """The six arrays of a signals file, with changes; None leaves a key out."""
    held = {f"{split}_{field}": a for split in ("train", "test") for field, a in (("features", X), ("outputs", OUT), ("targets", Y))}
    return {name: a for name, a in (held | changes).items() if a is not None}


def write(path, **changes):
    (np.savez if path.suffix == ".npz" else lambda p, **a: save_file(a, p))(path, **arrays(**changes))
    return path


def refused(match, function, *args, **kwargs):
    with pytest.raises(InputError, match=match) as caught:
        function(*args, **kwargs)
    assert "\n" not in str(caught.value)


def assert_equal(one, two):
    for name in ("features", "outputs", "targets", "ids"):
        a, b = getattr(one, name), getattr(two, name)
        if a is None or b is None:
            assert a is b
        else:
            assert a.dtype.kind == b.dtype.kind and a.shape == b.shape
            np.testing.assert_array_equal(a, b)


def test_signals_cannot_be_written_to():
    signals = Signals(X.copy(), OUT.copy(), Y.copy(), np.arange(6))
    for name in ("features", "outputs", "targets", "ids"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(signals, name)[0] = 0
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(signals, name, X)


def test_inputs_stay_writable_unchanged_and_shared():
    held = [X.copy(), OUT.copy(), Y.copy(), np.arange(6)]
    before = [a.copy() for a in held]
    signals = Signals(*held)
    for name, array, copy in zip(("features", "outputs", "targets", "ids"), held, before, strict=True):
        assert np.shares_memory(getattr(signals, name), array)
        assert array.flags.writeable
        np.testing.assert_array_equal(array, copy)


def test_tensors_and_lists_are_accepted_and_float32_is_kept():
    tensor = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    signals = Signals(tensor, OUT.tolist(), torch.tensor(Y))
    assert signals.features.dtype == np.float32 and np.shares_memory(signals.features, tensor.detach().numpy())
    assert signals.outputs.dtype == np.float64 and len(signals) == 6
    assert signals.ids.tolist() == list(range(6))


def test_one_output_may_be_a_vector_and_integers_become_floats():
    signals = Signals(X.astype(np.int32), [1, 2, 3, 4, 5, 6], Y)
    assert signals.outputs.shape == (6, 1) and signals.outputs.dtype == np.float64
    assert signals.features.dtype == np.float64


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([3, 1, 2, 5, 4, 0], [3, 1, 2, 5, 4, 0]),
        (list("abcdeé"), list("abcdeé")),
        (np.array([b"a", b"b", b"c", b"d", b"e", "é".encode()]), list("abcdeé")),
        (np.array([1, "x", None, 2.5, "日本", "z"], dtype=object), ["1", "x", "None", "2.5", "日本", "z"]),
        (torch.arange(6), list(range(6))),
        (range(6), list(range(6))),
    ],
)
def test_ids_are_integers_or_text(ids, expected):
    assert Signals(X, OUT, Y, ids).ids.tolist() == expected


@pytest.mark.parametrize(
    ("ids", "match"),
    [
        ([1, 2, 2, 3, 4, 2], r"ids must be unique; got '2' 3 times"),
        (["a"] * 6, "ids must be unique; got .*'a'.* 6 times"),
        ([1, 2], "records and ids must have one row per record; got lengths records 6, ids 2"),
        ([0.5, 1.5, 2.5, 3.5, 4.5, 5.5], "ids must be a 1-dimensional list of integers or strings; got shape .6,., dtype float64"),
        (np.zeros((6, 1), int), "ids must be a 1-dimensional list"),
        (7, "ids must be a 1-dimensional list"),
        ([[1], [2, 3]], "ids must be a plain array; got rows of unequal length"),
        (np.array([b"\xff", b"b", b"c", b"d", b"e", b"f"]), "ids must be valid text"),
        (["\ud800", "b", "c", "d", "e", "f"], "ids must be valid text"),
    ],
)
def test_other_ids_are_refused(ids, match):
    refused(match, Signals, X, OUT, Y, ids)


def bad(array, place, value):
    copy = array.astype(float)
    copy[place] = value
    return copy


@pytest.mark.parametrize(
    ("features", "outputs", "targets", "match"),
    [
        (X[:5], OUT, Y, "outputs and targets and features must have one row per record; got lengths outputs 6, targets 6, features 5"),
        (X, OUT, Y[:4], "lengths outputs 6, targets 4, features 6"),
        (bad(X, (2, 1), np.nan), OUT, Y, r"features must be finite; got 1 NaN or infinite values, the first at index \(2, 1\)"),
        (X, bad(OUT, (slice(3, 5), 0), np.inf), Y, r"outputs must be finite; got 2 NaN or infinite values, the first at index \(3, 0\)"),
        (X, OUT, bad(Y, 5, np.nan), "targets must be finite; got 1 NaN or infinite values, the first at index 5"),
        (bad(X, (1, 0), 1e200), OUT, Y, r"features must stay within ±1e.100; got 1e.200 at index \(1, 0\)"),
        (X[:, 0], OUT, Y, r"features must be 2-dimensional; got shape \(6,\)"),
        (X, OUT[:, :0], Y, "outputs must have at least one column"),
        (X, OUT, list("abcdef"), "targets must be numeric; got dtype <U1"),
        (X, [[1.0], [1.0, 2.0]], Y, "outputs must be a plain array; got rows of unequal length"),
    ],
)
def test_arrays_that_break_a_rule_are_refused(features, outputs, targets, match):
    refused(f"Signals: .*{match}|Signals: {match}", Signals, features, outputs, targets)


def test_digests_see_values_shapes_and_order():
    def digest(**changes):
        return Signals(**({"features": X, "outputs": OUT, "targets": Y, "ids": None} | changes)).sha256()

    first = digest()
    assert first == digest() and set(first) == {"data", "row_order"}
    assert digest(features=X[::-1])["data"] != first["data"]
    assert digest(features=X.astype(np.float32))["data"] != first["data"]
    assert digest(features=None)["data"] != first["data"]
    assert digest(ids=list("abcdef")) == {"data": first["data"], "row_order": digest(ids=list("abcdef"))["row_order"]}
    assert digest(ids=list("abcdef"))["row_order"] != first["row_order"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("ids", "targets", "features"),
    [
        (None, Y, X),
        ([60, 50, 40, 30, 20, 10], Y, X.astype(np.float32)),
        (["a", "bb", "Zürich", "日本語", "🙂", " spaced "], Y, X),
        (None, RNG.dirichlet([1, 1], size=6), X),
        (None, RNG.normal(size=(6, 2)), X[:, ::-1]),
        (None, Y, None),
        (None, Y, np.asfortranarray(X)),
    ],
)
def test_files_give_back_what_was_written(tmp_path, suffix, ids, targets, features):
    train, test = Signals(features, OUT, targets, ids), Signals(features, OUT[::-1], targets)
    traces = RNG.random((6, 4))
    path = tmp_path / f"signals{suffix}"
    save_splits(path, train, test, loss_traces=traces)
    read_train, read_test, read_traces = load_splits(path)
    assert_equal(read_train, train)
    assert_equal(read_test, test)
    np.testing.assert_array_equal(read_traces, traces)
    save_splits(path, train, test)
    assert load_splits(path)[2] is None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_test_split_survives_the_file(tmp_path, suffix):
    nobody = Signals(X[:0], OUT[:0], Y[:0], np.empty(0, dtype=str))
    save_splits(tmp_path / f"s{suffix}", Signals(X, OUT, Y), nobody)
    read = load_splits(tmp_path / f"s{suffix}")[1]
    assert len(read) == 0 and read.outputs.shape == (0, 2)


@settings(max_examples=25, deadline=None)
@given(
    ids=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1, max_size=5, unique_by=lambda t: t.rstrip("\0"))
)
def test_any_text_survives_as_id(tmp_path_factory, ids):
    kept = np.array(ids, dtype=str)  # NumPy drops trailing zero characters of text
    rows = len(ids)
    folder = tmp_path_factory.mktemp("ids")
    for suffix in SUFFIXES:
        save_splits(folder / f"s{suffix}", Signals(None, OUT[:1].repeat(rows, 0), Y[:1].repeat(rows), kept), Signals(None, OUT, Y))
        np.testing.assert_array_equal(load_splits(folder / f"s{suffix}")[0].ids, kept)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_with_wrong_keys_are_refused(tmp_path, suffix):
    path = tmp_path / f"s{suffix}"
    refused(
        "file must hold keys among .*; got unknown key labels, train_logits$|got unknown key labels, train_logits[.]",
        load_splits,
        write(path, labels=Y, train_logits=OUT),
    )
    refused("got missing key test_targets, train_outputs[.]", load_splits, write(path, train_outputs=None, test_targets=None))
    refused("got unknown key other; missing key train_targets[.]", load_splits, write(path, other=Y, train_targets=None))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_truncated_and_foreign_files_are_refused(tmp_path, suffix):
    path = write(tmp_path / f"whole{suffix}")
    broken = tmp_path / f"broken{suffix}"
    content = path.read_bytes()
    for size in (0, 3, 100, len(content) // 2, len(content) - 1):
        broken.write_bytes(content[:size])
        refused("load_splits: file must be a .*got '.*broken", load_splits, broken)
    broken.write_bytes(b"not an archive at all")
    refused("load_splits: file must be a", load_splits, broken)
    refused("path must be a file that exists; got '.*absent", load_splits, tmp_path / f"absent{suffix}")
    refused("path must be a file that exists", load_splits, tmp_path.parent / tmp_path.name / "folder.npz")


def test_damaged_compressed_archives_are_refused(tmp_path):
    path = tmp_path / "s.npz"
    np.savez_compressed(path, **arrays())
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.infolist()[0].header_offset + 60
    content[start : start + 40] = b"\x55" * 40
    path.write_bytes(content)
    refused("file must be a .npz archive of plain arrays", load_splits, path)


class Trap:
    """Creates a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_nothing_is_ever_unpickled(tmp_path):
    sprung = tmp_path / "sprung"
    path = tmp_path / "s.npz"
    trapped = np.empty(6, dtype=object)
    trapped[:] = [Trap(sprung)] * 6
    np.savez(path, **arrays(train_ids=trapped))
    refused("Pickled objects are never loaded", load_splits, path)
    path.write_bytes(pickle.dumps(Trap(sprung)))
    refused("Pickled objects are never loaded", load_splits, path)
    assert not sprung.exists()


def test_archives_of_something_else_are_refused(tmp_path):
    path = tmp_path / "s.npz"
    with path.open("wb") as file:
        np.save(file, X)
    refused("one bare array, not an archive", load_splits, path)
    write(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("train_ids", b"plain bytes, no array")
    refused("member 'train_ids' is no array", load_splits, path)


def test_safetensors_of_other_number_formats_or_bad_text_are_refused(tmp_path):
    path = tmp_path / "s.safetensors"
    save_torch_file({name: torch.tensor(a).to(torch.bfloat16) for name, a in arrays().items()}, path)
    refused("file must be a safetensors file NumPy can read", load_splits, path)
    write(path, train_ids=np.full((6, 2), 0xFF, np.uint8))
    refused("train_ids must be UTF-8 text", load_splits, path)


def test_other_suffixes_are_refused(tmp_path):
    refused(
        "path must end in .npz or .safetensors; got 'signals.pkl'. A model is given as package.module:function", load_splits, "signals.pkl"
    )
    refused("save_splits: path must end in .npz or .safetensors; got 's.csv'", save_splits, "s.csv", Signals(X, OUT, Y), Signals(X, OUT, Y))


def test_values_in_files_are_checked_like_others(tmp_path):
    refused("load_splits: outputs must be finite", load_splits, write(tmp_path / "s.npz", train_outputs=bad(OUT, (0, 0), np.nan)))
    refused(
        "save_splits: loss_traces must be 2-dimensional",
        save_splits,
        tmp_path / "s.npz",
        Signals(X, OUT, Y),
        Signals(X, OUT, Y),
        loss_traces=Y,
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_place_that_cannot_be_written_is_refused(tmp_path, suffix):
    signals = Signals(X, OUT, Y)
    refused("save_splits: path must be writable; got '.*absent", save_splits, tmp_path / "absent" / f"s{suffix}", signals, signals)
