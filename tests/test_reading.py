"""Files of strangers: what a header claims is held against what is there, and whatever is wrong is one sentence."""

import io
import json
import re
import struct
import subprocess
import sys
import zipfile
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save

import noshadow as ns
from noshadow import InputError
from noshadow.storage.forms import Count, Keys, Level, OneOf, Such, require_form
from noshadow.storage.json_text import DEEPEST, parsed_json
from noshadow.storage.numpy_files import mapped_npy, npz_arrays
from noshadow.storage.parquet_files import parquet_table
from noshadow.storage.safetensors_files import layout, safetensors_arrays

ROWS = 10**13


def npy(array, shape=None):
    """Bytes of a `.npy` file, whose header may claim another shape."""
    made = io.BytesIO()
    np.save(made, array)
    content = made.getvalue()
    if shape is None:
        return content
    data = content[10 + int.from_bytes(content[8:10], "little") :]
    header = f"{{'descr': '{np.dtype(array.dtype).str}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def npz(**members):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return made.getvalue()


def splits(**edited):
    arrays = {"outputs": np.arange(8.0).reshape(4, 2), "targets": np.array([0, 1, 0, 1])}
    plain = {f"{split}_{name}": npy(array) for split in ("train", "test") for name, array in arrays.items()}
    return npz(**(plain | edited))


def tensors(**entries):
    """A safetensors file of four float64 numbers, whose header says what is asked."""
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + bytes(32)


def entry(dtype="F64", shape=(4,), offsets=(0, 32)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def parquet(claimed=None, rows=777):
    """A table of two columns; `claimed` rows wherever the footer counts them."""
    made = io.BytesIO()
    pd.DataFrame({"id": np.arange(rows), "loss": np.ones(rows)}).to_parquet(made, index=False)
    content = made.getvalue()
    if claimed is None:
        return content
    size = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - size : -8].replace(varint(rows), varint(claimed))
    return content[: -8 - size] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def varint(number):
    """A whole number as parquet's footer writes it."""
    number, made = number << 1, b""
    while number >= 128:
        made, number = made + bytes([number & 127 | 128]), number >> 7
    return made + bytes([number])


def refused(match, function, *arguments):
    with pytest.raises((InputError, ValueError), match=match) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)


CLAIMS = {
    "rows.npz": splits(train_outputs=npy(np.ones((4, 2)), (ROWS, 2))),
    "empty.npz": splits(train_features=npy(np.empty((4, 0)), (ROWS, 0))),
    "rows.safetensors": tensors(train_outputs=entry(shape=(ROWS,))),
    "offsets.safetensors": tensors(train_outputs=entry(shape=(ROWS,), offsets=(0, 8 * ROWS))),
    "empty.safetensors": tensors(train_outputs=entry(shape=(ROWS, 0), offsets=(32, 32)), rest=entry()),
    "header.safetensors": (2**62).to_bytes(8, "little") + b"{}",
}
SHOWN = {"rows.npy": npy(np.ones((4, 2)), (ROWS, 2)), "rows.parquet": parquet(ROWS), "one.npz": npz(images=npy(np.ones(4), (ROWS,)))}
LIMITED = """
import resource, sys
import noshadow as ns
from noshadow.cli.contents import contents_of
from noshadow.cli.audits import audit
held = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize")][0]
resource.setrlimit(resource.RLIMIT_AS, (held + (256 << 20),) * 2)
for path in sys.argv[1:]:
    try:
        contents_of(path, None) if "shown" in path else ns.load_splits(path)
    except ns.InputError as error:
        print("refused", error)
    except BaseException as error:
        print("raised", type(error).__name__)
"""


def test_a_header_that_claims_ten_trillion_rows_allocates_nothing(tmp_path):
    paths = []
    for name, content in (CLAIMS | {f"shown-{name}": content for name, content in SHOWN.items()}).items():
        (tmp_path / name).write_bytes(content)
        paths.append(tmp_path / name)
    # A quarter of a gigabyte on top of what the imports took: 10¹³ rows of eight bytes are eighty terabytes.
    done = subprocess.run([sys.executable, "-c", LIMITED, *map(str, paths)], capture_output=True, text=True, timeout=300)
    told = done.stdout.splitlines()
    assert len(told) == len(paths) and all(line.startswith("refused ") for line in told), done.stdout + done.stderr
    assert all(re.search(r"claims|bytes|header", line) for line in told), told


def test_the_command_ends_with_two(run, tmp_path):
    (tmp_path / "s.npz").write_bytes(CLAIMS["rows.npz"])
    code, out, err = run("audit", "s.npz", "--out", "a")
    assert (code, out) == (2, "") and err.count("\n") == 1 and "claims shape (10000000000000, 2)" in err


def test_an_encrypted_member_is_named(tmp_path):
    content = bytearray(splits())
    for start in (content.index(b"PK\x01\x02"), content.index(b"PK\x03\x04")):
        content[start + (8 if content[start + 2] == 1 else 6)] |= 1
    (tmp_path / "s.npz").write_bytes(content)
    refused(r"load_splits: file must be .* got '.*' \(member 'train_outputs.npy' is encrypted\)", ns.load_splits, tmp_path / "s.npz")


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_without_a_bound_are_refused(tmp_path, compression):
    with zipfile.ZipFile(tmp_path / "s.npz", "w", compression) as archive:
        archive.writestr("x.npy", npy(np.ones(4)))
    refused("member 'x.npy' is compressed in another way than by deflate", ns.load_splits, tmp_path / "s.npz")


def test_compressed_archives_of_numpy_are_read(tmp_path):
    np.savez_compressed(tmp_path / "s.npz", x=np.zeros(100_000))
    with (tmp_path / "s.npz").open("rb") as file:
        np.testing.assert_array_equal(npz_arrays(file, (tmp_path / "s.npz").stat().st_size)["x"], np.zeros(100_000))


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F8_E5M2", "C64", "I4", 7, None, ["F64"]])
def test_tensors_of_types_numpy_does_not_have_are_named(tmp_path, dtype):
    (tmp_path / "s.safetensors").write_bytes(tensors(train_outputs=entry(dtype=dtype, shape=(16,))))
    what = re.escape(f"'train_outputs' of type {dtype!r}, which NumPy does not have: save it as float32")
    refused(f"load_splits: file must be a safetensors file NumPy can read; .*{what}", ns.load_splits, tmp_path / "s.safetensors")


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"x": entry(shape=(5,))}, r"'x' claims shape \(5,\)"),
        ({"x": entry(shape=(3,))}, r"'x' of shape \(3,\) in 32 bytes"),
        ({"x": entry(shape=(-4,))}, "'x' with shape"),
        ({"x": entry(shape=(True, 4))}, "'x' with shape"),
        ({"x": entry(offsets=(32, 0))}, "'x' at bytes 32 to 0"),
        ({"x": entry(offsets=(8, 40))}, "'x' at bytes 8 to 40 where 32 are there"),
        ({"x": entry() | {"more": 1}}, "'x' without exactly"),
        ({"x": 3}, "'x' without exactly"),
        ({"x": entry(shape=(2,), offsets=(0, 16))}, "bytes where its header says"),
        ({"x": entry(), "__metadata__": {"a": 1}}, "metadata other than text"),
    ],
)
def test_headers_that_do_not_fit_their_bytes_are_refused(tmp_path, entries, match):
    (tmp_path / "x").write_bytes(tensors(**entries))
    refused(match, layout, tmp_path / "x")


def test_arrays_of_safetensors_come_back(tmp_path):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False]), "c": np.empty((0, 2), np.float32), "d": np.array(7)}
    (tmp_path / "x").write_bytes(save(arrays))
    back = safetensors_arrays(tmp_path / "x")
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested deeper than 64 levels"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nested deeper"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested deeper"),
        ('{"a": 1, "a": 2}', "the name 'a' stands twice"),
        ("1e999", "beyond the range of a float"),
        ("1" + "0" * 40, "beyond ±2⁶⁴"),
        ("1" * 5000, "beyond ±2⁶⁴"),
        ("NaN", "NaN is not JSON"),
        ('"\\ud800"', "half a character"),
        ('{"\\ud800": 1}', "half a character"),
    ],
)
def test_json_that_others_trip_over_later_is_refused(text, match):
    refused(match, parsed_json, text)


def test_json_at_the_limits_is_read():
    assert parsed_json("[" * DEEPEST + "]" * DEEPEST) is not None
    assert parsed_json(b'{"a": [18446744073709551616, -1.5e300, "\xc3\xa9"]}') == {"a": [2**64, -1.5e300, "é"]}


def test_manifests_nested_without_end_are_one_sentence(tmp_path):
    for name, load, command in (("audit.json", ns.load, "load"), ("lood.json", ns.load_lood, "load_lood")):
        (tmp_path / name).write_text('{"files": {}, "notes": ' + "[" * 100_000 + "]" * 100_000 + "}")
        refused(f"{command}: {name} must be JSON; got .*nested deeper than 64 levels", load, tmp_path)
    (tmp_path / "plan.json").write_text("[" * 100_000)
    refused("load_references: plan.json must be JSON", ns.reference.load_references, tmp_path)
    (tmp_path / "c.json").write_text("[" * 100_000)
    refused("Calibration.load: path must hold JSON", ns.Calibration.load, tmp_path / "c.json")


def test_arrays_are_mapped_only_where_they_fit(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(mapped_npy(tmp_path / "x.npy"), [[0, 1, 2], [3, 4, 5]])
    for content, match in (
        (npy(np.ones(4), (5,)), r"it claims shape \(5,\)"),
        (npy(np.ones(4), (-4,)), "it claims shape"),
        (npy(np.ones(4), "(" * 90), "header|Cannot parse|TokenError"),
        (npy(np.array([{}], dtype=object)), "pickled objects"),
        (splits(), "an archive of several arrays"),
        (b"", "it is no array"),
    ):
        (tmp_path / "x.npy").write_bytes(content)
        refused(match, mapped_npy, tmp_path / "x.npy")


def test_tables_are_read_by_the_rows_they_have():
    assert len(parquet_table(parquet())) == len(parquet_table(parquet(), rows=777)) == 777
    refused("it claims 777 rows, not 30", lambda: parquet_table(parquet(), rows=30))
    refused("it claims 10000000000000 rows in", parquet_table, parquet(ROWS))
    refused("777 rows where it claims 1000", parquet_table, parquet(1000))


@dataclass
class Inner:
    name: str
    size: Count
    share: Level | None = None


FORM = Keys(
    {"inner": Inner, "pair": tuple[float, float], "rows": [Keys({"a": int})], "kind": OneOf("x", "y"), "text": str | None},
    {"even": Such(int, "be even", lambda value: value % 2 == 0)},
)
FITS = {"inner": {"name": "n", "size": 2}, "pair": [1, 2.5], "rows": [{"a": 1}], "kind": "y", "text": None, "even": 4, "more": []}


def test_values_are_held_against_their_form_by_place():
    require_form(FITS, FORM, "")
    for change, match in (
        ({"inner": {"name": "n"}}, "inner must hold size; got none. Hint."),
        ({"inner": {"name": "n", "size": -1}}, "inner.size must be a whole number ≥ 0; got -1. Hint."),
        ({"inner": {"name": "n", "size": True}}, "inner.size must be a whole number; got True. Hint."),
        ({"inner": {"name": 3, "size": 1}}, "inner.name must be text; got 3. Hint."),
        ({"inner": {"name": "n", "size": 1, "share": 1}}, "inner.share must be a finite number > 0 and < 1 or null; got 1. Hint."),
        ({"inner": {"name": "n", "size": 1, "b": 1}}, "inner must hold nothing but the fields of Inner; got b. Hint."),
        ({"inner": None}, "inner must be an object; got None. Hint."),
        ({"pair": [1]}, "pair must be a list of 2; got [1]. Hint."),
        ({"pair": [1, "2"]}, "pair[1] must be a finite number; got '2'. Hint."),
        ({"rows": [{"a": 1}, {"a": 1.5}]}, "rows[1].a must be a whole number; got 1.5. Hint."),
        ({"rows": {}}, "rows must be a list; got {}. Hint."),
        ({"kind": "z"}, "kind must be 'x' or 'y'; got 'z'. Hint."),
        ({"text": 0}, "text must be text or null; got 0. Hint."),
        ({"even": 3}, "even must be even; got 3. Hint."),
    ):
        with pytest.raises(InputError) as caught:
            require_form(FITS | change, FORM, "", "Hint.")
        assert str(caught.value) == match
    refused("^the file must be an object; got 3", require_form, 3, FORM, "")
