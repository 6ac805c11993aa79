"""The storage room: one way each to write whole files, digest, stamp versions and hold text."""

import hashlib
import importlib.metadata
import platform
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import noshadow
from noshadow import InputError
from noshadow.storage.array_files import read_arrays, read_text, write_arrays
from noshadow.storage.digests import add_array, arrays_sha256, file_sha256, ids_sha256, sha256
from noshadow.storage.folders import folder_written_whole
from noshadow.storage.numpy_files import write_npy
from noshadow.storage.safetensors_files import write_safetensors
from noshadow.storage.text_ids import rows_as_text, text_as_rows
from noshadow.storage.versions import NUMERICS, versions_of

PACKAGE = Path(noshadow.__file__).parent
# What writes files, packs text or asks for versions, and has its one place in `storage`.
ONE_COPY = re.compile(
    r"mkdtemp|\.replace\(target\)|os\.(replace|rename)|\.rename\(|fsync|np\.char\.(en|de)code\(.*view|dtype_to_descr"
    r"|safetensors\.numpy|importlib\.metadata|python_version\(|\\n\"\.join\(map\(str, \w+(\.\w+)*\.tolist"
)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_are_written_and_stamped_in_one_room(path):
    if path.parent.name == "storage" or path == PACKAGE / "__init__.py":
        return
    found = [line for line in path.read_text().splitlines() if ONE_COPY.search(line)]
    assert not found, found


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3).T, np.array(3), np.zeros((0, 2)), np.array(["a", "bc"])], ids=str)
def test_an_arrays_digest_counts_type_shape_and_values_in_row_order(array):
    plain = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode() + array.tobytes()).hexdigest()
    assert arrays_sha256(array) == plain
    assert arrays_sha256(array, array) != plain


def test_digests_in_blocks_are_those_of_the_whole(monkeypatch, tmp_path):
    array = np.random.default_rng(0).normal(size=(7, 3))
    whole = arrays_sha256(array)
    monkeypatch.setattr("noshadow.storage.digests.BLOCK", 50)
    digest = hashlib.sha256()
    add_array(digest, array)
    assert digest.hexdigest() == whole
    (tmp_path / "x").write_bytes(array.tobytes())
    assert file_sha256(tmp_path / "x") == sha256(array.tobytes()) == hashlib.sha256(array.tobytes()).hexdigest()


def test_ids_are_digested_as_lines_of_text():
    assert ids_sha256(np.array([3, 1])) == ids_sha256(np.array(["3", "1"])) == hashlib.sha256(b"3\n1").hexdigest()


def test_versions_are_those_installed():
    expected = {name: importlib.metadata.version(name) for name in NUMERICS}
    assert versions_of(*NUMERICS) == expected | {"python": platform.python_version()}


@pytest.mark.parametrize("text", [["é", "abc", ""], ["", ""], []], ids=str)
def test_text_comes_back_from_rows_of_bytes(text):
    rows = text_as_rows(np.array(text, dtype=str))
    assert rows.dtype == np.uint8 and rows.shape == (len(text), max([len(t.encode()) for t in text] + [1]))
    assert rows_as_text(rows).tolist() == text


@pytest.mark.parametrize("rows", [np.full((2, 3), 255, dtype=np.uint8), np.zeros((2, 0), dtype=np.uint8)], ids=["bytes", "none"])
def test_bytes_that_are_no_text_are_refused_by_name(rows):
    with pytest.raises(InputError, match=r"^train_ids must be UTF-8 text"):
        read_text(rows, "train_ids")


def test_the_library_reads_what_we_write_as_safetensors(tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": np.array([True, False]),
        "c": np.zeros((0, 2), np.float32),
        "d": np.arange(3, dtype=">i4"),
    }
    write_safetensors(tmp_path / "x", arrays)
    there = load_file(tmp_path / "x")
    assert set(there) == set(arrays)
    assert all(np.array_equal(there[name], arrays[name]) and there[name].shape == arrays[name].shape for name in arrays)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_named_arrays_and_text_come_back(suffix, tmp_path):
    write_arrays(tmp_path / f"x{suffix}", {"a": np.arange(3), "ids": np.array(["u", "vé", "w"])})
    there = read_arrays(tmp_path / f"x{suffix}")
    assert there["a"].tolist() == [0, 1, 2] and read_text(there["ids"], "ids").tolist() == ["u", "vé", "w"]


def test_numbers_that_safetensors_cannot_hold_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"^arrays must hold .* got 'a' of type complex128.* Save a \.npz file"):
        write_arrays(tmp_path / "x.safetensors", {"a": np.zeros(2, complex)})
    assert not list(tmp_path.iterdir())


def test_an_array_written_by_rows_is_the_array(tmp_path):
    rows = np.random.default_rng(0).normal(size=(4, 3, 2))
    write_npy(tmp_path / "x.npy", rows.dtype, rows.shape, iter(rows))
    assert np.array_equal(np.load(tmp_path / "x.npy", allow_pickle=False), rows)


def test_a_folder_is_whole_or_not_there(tmp_path):
    target = tmp_path / "deep" / "folder"
    with pytest.raises(RuntimeError), folder_written_whole(target, replace=False) as partial:
        (partial / "a").write_text("half")
        raise RuntimeError
    assert not target.exists() and not list(target.parent.iterdir())
    with folder_written_whole(target, replace=False) as partial:
        (partial / "a").write_text("1")
    assert (target / "a").read_text() == "1" and target.stat().st_mode & 0o777 == 0o700


def test_a_folder_with_something_in_it_is_replaced_only_when_asked(tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    for replace, content in ((False, "1"), (True, "2")):
        with folder_written_whole(target, replace=replace) as partial:
            (partial / "a").write_text(content)
    with pytest.raises(OSError), folder_written_whole(target, replace=False) as partial:
        (partial / "a").write_text("3")
    assert (target / "a").read_text() == "2" and [entry.name for entry in tmp_path.iterdir()] == ["folder"]
