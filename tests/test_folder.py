"""The audit folder: whole or not there, strict JSON, checked when read, the same bytes for the same run."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from noshadow import InputError, Signals, audit_signals, load
from noshadow.results import ModelRisk, require_writable_folder, write_file
from noshadow.results import folder as folder_module

FILES = {"audit.json", "records.parquet", "losses.npz"}


def made(seed=0, *, task="classification", **options):
    rng = np.random.default_rng(3)
    x, noise = rng.normal(size=(60, 3)), rng.normal(size=(60, 2))
    outputs = x @ rng.normal(size=(3, 2))
    targets = (outputs + noise).argmax(1) if task == "classification" else outputs + noise
    train, test = (Signals(x[rows], outputs[rows], targets[rows]) for rows in (slice(0, 30), slice(30, 60)))
    return audit_signals(train, test, seed=seed, damping=1.0, **options)


def refused(match, function, *args, **kwargs):
    with pytest.raises(InputError, match=match) as caught:
        function(*args, **kwargs)
    assert "\n" not in str(caught.value)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def strict(path):
    def refuse_constant(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse_constant)


def assert_same_audit(one, two):
    pd.testing.assert_frame_equal(one.records, two.records, check_exact=True)
    np.testing.assert_array_equal(one.member_losses, two.member_losses)
    np.testing.assert_array_equal(one.nonmember_losses, two.nonmember_losses)
    assert json.loads(json.dumps(one.manifest())) == json.loads(json.dumps(two.manifest()))


@pytest.mark.parametrize("options", [{}, {"task": "regression"}, {"ids": [f"é-{i}" for i in range(30)], "groups": list("ab") * 15}])
def test_an_audit_comes_back_as_it_was_saved(tmp_path, options):
    audit = made(**options)
    assert audit.save(tmp_path / "a") == tmp_path / "a"
    assert set(names(tmp_path / "a")) == FILES and names(tmp_path) == ["a"]
    back = load(str(tmp_path / "a"))
    assert_same_audit(back, audit)
    assert back.model_risk == audit.model_risk and back.notes == audit.notes


def test_the_manifest_is_strict_json_with_the_stamps(tmp_path):
    manifest = strict(made().save(tmp_path / "a") / "audit.json")
    assert manifest["format"] == 1 and manifest["records"]["count"] == 30
    assert set(manifest["files"]) == FILES
    assert set(manifest["provenance"]) >= {"arguments", "head", "hashes", "versions", "scores"}
    assert manifest["provenance"]["scores"]["damping_used"] == 1.0


def test_infinite_scores_and_numpy_numbers_go_to_the_folder(tmp_path):
    x = np.vstack([np.zeros((9, 1)), [[1.0]]])  # the last record alone sees its feature: leverage 1
    outputs = np.append(np.linspace(-1, 1, 9), 3.0)
    signals = Signals(x, outputs, outputs + 0.5)
    audit = audit_signals(signals, signals, damping=np.float32(0), seed=np.int64(4), fpr=np.float32(0.25))
    assert np.isinf(audit.records["loo"].iloc[-1])
    manifest = strict(audit.save(tmp_path / "a") / "audit.json")
    assert manifest["provenance"]["arguments"] | {"seed": 4, "damping": 0.0, "fpr": 0.25} == manifest["provenance"]["arguments"]
    pd.testing.assert_frame_equal(load(tmp_path / "a").records, audit.records)


def test_an_audit_without_model_risk_or_scores_comes_back(tmp_path):
    whole = made()
    bare = replace(whole, model_risk=None, ranked_by=None, nonmember_losses=np.empty(0), records=whole.records.drop(columns="rank"))
    assert_same_audit(load(bare.save(tmp_path / "a")), bare)


def test_the_same_seed_gives_the_same_bytes_but_for_timings(tmp_path):
    one, two, other = (made(seed).save(tmp_path / name) for seed, name in ((7, "one"), (7, "two"), (8, "other")))
    for name in ("records.parquet", "losses.npz"):
        assert (one / name).read_bytes() == (two / name).read_bytes() == (other / name).read_bytes()
    manifests = [strict(folder / "audit.json") for folder in (one, two, other)]
    for manifest in manifests:
        assert set(manifest["timings"]) == {"created", "signals_seconds", "scores_seconds", "risk_seconds"}
        manifest["timings"] = None
    rewritten = [json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) for manifest in manifests]
    assert rewritten[0] == rewritten[1] != rewritten[2]  # another seed moves the bootstrap intervals
    # The bytes on disk differ in the block of timings only.
    kept = [re.sub(r'(?s) "timings": \{.*?\}', "", (folder / "audit.json").read_text()) for folder in (one, two)]
    assert kept[0] == kept[1]


def test_an_existing_folder_is_refused_and_replaced_on_request(tmp_path):
    first, second = made(seed=1), made(seed=2)
    folder = first.save(tmp_path / "a")
    (folder / "report.html").write_text("old")
    refused("Audit.save: folder must not exist yet; got '.*a'. Choose another name, or overwrite it", second.save, folder)
    assert load(folder).model_risk.seed == 1 and (folder / "report.html").exists()
    second.save(folder, overwrite=True)
    assert load(folder).model_risk.seed == 2 and set(names(folder)) == FILES
    assert names(tmp_path) == ["a"]


def test_an_empty_folder_is_used(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    load(made().save(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    load(made().save("."))
    assert names(tmp_path) == ["a", "b"] and set(names(tmp_path / "b")) == FILES


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_other_files_is_never_touched(tmp_path, overwrite):
    folder = made().save(tmp_path / "a")
    (folder / "thesis.tex").write_text("years of work")
    refused("folder must .*; got '.*a'", made(seed=2).save, folder, overwrite=overwrite)
    assert (folder / "thesis.tex").read_text() == "years of work" and load(folder).model_risk.seed == 0
    other = tmp_path / "other"
    other.mkdir()
    (other / "losses.npz").write_bytes(b"somebody else's")  # our name, but no audit beside it
    refused("folder must .*; got '.*other'", made().save, other, overwrite=overwrite)
    assert names(other) == ["losses.npz"]


def test_what_stands_in_the_way_is_named_when_overwriting(tmp_path):
    folder = made().save(tmp_path / "a")
    (folder / "notes").mkdir()
    refused("not exist yet, or hold an audit and nothing else; got '.*a' with notes", made().save, folder, overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_places_that_cannot_be_written_are_refused_before_any_work(tmp_path, overwrite):
    file = tmp_path / "file"
    file.write_text("a file")
    for place, match in (
        (file, "folder must be a folder; got the file"),
        (file / "a", "folder must be writable; got '.*file/a' under '.*file'"),
        (file / "deep" / "er", "folder must be writable; got '.*' under '.*file'"),
        (tmp_path / ("x" * 300), "folder must be writable; got '.*x' .*name too long"),
        (Path("/"), "folder must (not exist yet|hold an audit and nothing else)"),
    ):
        refused(match, require_writable_folder, place, overwrite=overwrite)
        refused(match, made().save, place, overwrite=overwrite)
    assert names(tmp_path) == ["file"] and file.read_text() == "a file"


def test_a_full_disk_is_an_input_error_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    refused("folder must be writable; got '.*a' .the disk is full.", made().save, tmp_path / "a")
    assert names(tmp_path) == []


class Crash(BaseException):
    """Not an Exception: like a signal, nothing in the package may catch it."""


def crash_on(monkeypatch, name, call):
    original, calls = getattr(os, name), []

    def crashing(*args, **kwargs):
        calls.append(args)
        if len(calls) == call:
            raise Crash
        return original(*args, **kwargs)

    monkeypatch.setattr(os, name, crashing)
    return calls


@pytest.mark.parametrize("when", [("fsync", 1), ("fsync", 2), ("fsync", 3), ("rename", 1)])
def test_a_crash_leaves_no_folder_that_loads(tmp_path, monkeypatch, when):
    audit = made()
    with monkeypatch.context() as patch:
        calls = crash_on(patch, *when)
        with pytest.raises(Crash):
            audit.save(tmp_path / "a")
    assert len(calls) == when[1]
    assert not (tmp_path / "a").exists()
    refused("folder must hold an audit", load, tmp_path / "a")
    load(audit.save(tmp_path / "a"))


@pytest.mark.parametrize("when", [("fsync", 1), ("fsync", 2), ("fsync", 3), ("rename", 1), ("rename", 2)])
def test_a_crash_while_overwriting_keeps_the_old_audit(tmp_path, monkeypatch, when):
    folder = made(seed=1).save(tmp_path / "a")
    before = {name: (folder / name).read_bytes() for name in FILES}
    replacement = made(seed=2)
    with monkeypatch.context() as patch:
        crash_on(patch, *when)
        with pytest.raises(Crash):
            replacement.save(folder, overwrite=True)
    assert {name: (folder / name).read_bytes() for name in FILES} == before
    assert load(folder).model_risk.seed == 1 and names(tmp_path) == ["a"]


def test_an_old_audit_that_cannot_move_back_is_not_deleted(tmp_path, monkeypatch):
    folder = made(seed=1).save(tmp_path / "a")
    original, calls = os.rename, []

    def only_once(*args, **kwargs):
        calls.append(args)
        if len(calls) > 1:
            raise OSError(5, "Input/output error")
        return original(*args, **kwargs)

    replacement = made(seed=2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", only_once)
        refused("folder must be writable; got '.*a' .*Input/output error", replacement.save, folder, overwrite=True)
    (retired,) = tmp_path.glob(".a.retired-*")
    assert load(retired / "a").model_risk.seed == 1


KILLED = """
import os, sys, time
from pathlib import Path
import numpy as np
import pandas as pd
from noshadow.results import Audit
calls = []
original = os.fsync
def blocking(descriptor):
    calls.append(descriptor)
    if len(calls) == 2:
        Path(sys.argv[2]).touch()
        time.sleep(600)
    original(descriptor)
os.fsync = blocking
Audit(pd.DataFrame({"id": [1, 2]}), None, np.ones(2), np.ones(2), "regression", None).save(sys.argv[1])
"""


def test_a_killed_process_leaves_no_folder_that_loads(tmp_path):
    folder, reached = tmp_path / "a", tmp_path / "reached"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder), str(reached)])
    try:
        deadline = time.monotonic() + 60
        while not reached.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert reached.exists() and process.poll() is None
    finally:
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert not folder.exists()
    (partial,) = tmp_path.glob(".a.partial-*")
    refused("folder must hold an audit", load, partial)
    refused("folder must hold an audit", load, folder)
    load(made().save(folder))


def test_other_folders_are_refused(tmp_path):
    refused("load: folder must hold an audit .audit.json.; got '.*absent'", load, tmp_path / "absent")
    refused("load: folder must hold an audit", load, tmp_path)
    (tmp_path / "audit.json").write_text("{")
    refused("load: audit.json must be JSON; got", load, tmp_path)
    (tmp_path / "audit.json").write_text('{"files": {}, "format": NaN}')
    refused("audit.json must be JSON; got .*NaN is not JSON", load, tmp_path)
    (tmp_path / "audit.json").write_bytes(b"\xff\xfe")
    refused("audit.json must be JSON", load, tmp_path)
    for content in ("[]", "{}", '{"files": 3}'):
        (tmp_path / "audit.json").write_text(content)
        refused("audit.json must list the files beside it", load, tmp_path)


@pytest.mark.parametrize("name", ["records.parquet", "losses.npz"])
def test_missing_and_altered_files_are_refused(tmp_path, name):
    folder = made().save(tmp_path / "a")
    match = f"load: folder must be as it was written; got '.*a' with {name} missing or altered. Run the audit again"
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    refused(match, load, folder)
    (folder / name).unlink()
    refused(match, load, folder)
    (folder / name).mkdir()
    refused(match, load, folder)


def test_an_altered_manifest_is_refused(tmp_path):
    folder = made().save(tmp_path / "a")
    manifest = strict(folder / "audit.json")
    match = "folder must be as it was written; got '.*a' with .*audit.json missing or altered"
    for change in ({"model_risk": manifest["model_risk"] | {"auc": 0.5}}, {"model_risk": None}, {"notes": ["all is well"]}):
        (folder / "audit.json").write_text(json.dumps(manifest | change))
        refused(match, load, folder)
    for files in ({}, {name: manifest["files"][name] for name in ("records.parquet", "losses.npz")}):
        (folder / "audit.json").write_text(json.dumps(manifest | {"files": files}))
        refused("missing or altered", load, folder)
    (folder / "audit.json").write_text(json.dumps(manifest))  # other white space is the same manifest
    load(folder)


@pytest.mark.parametrize("number", [0, 2, None, "1"])
def test_another_format_number_is_refused(tmp_path, number):
    folder = made().save(tmp_path / "a")
    manifest = strict(folder / "audit.json") | {"format": number}
    (folder / "audit.json").write_text(json.dumps(manifest))
    refused(f"load: folder must be of format 1; got {number}. Run the audit again with this version", load, folder)


def test_a_report_beside_the_audit_changes_nothing(tmp_path):
    folder = made().save(tmp_path / "a")
    (folder / "report.html").write_text("<html>")
    load(folder)


def test_a_moved_and_copied_folder_still_loads(tmp_path):
    folder = made().save(tmp_path / "a")
    shutil.copytree(folder, tmp_path / "copy")
    folder.rename(tmp_path / "moved")
    assert_same_audit(load(tmp_path / "copy"), load(tmp_path / "moved"))


def test_one_file_is_replaced_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    assert write_file(path, b"one") == path and path.read_bytes() == b"one"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        refused("^path must be writable; got '.*report.html' .*Input/output error", write_file, path, b"two")
    assert path.read_bytes() == b"one" and names(tmp_path) == ["report.html"]
    refused("path must be writable", write_file, path / "below", b"")
    refused("path must be a file; got the folder", write_file, tmp_path, b"")


def test_an_unfinished_report_does_not_block_overwriting(tmp_path):
    folder = made(seed=1).save(tmp_path / "a")
    (folder / ".report.html.partial-123").write_text("half")
    assert load(made(seed=2).save(folder, overwrite=True)).model_risk.seed == 2
    assert set(names(folder)) == FILES


def test_model_risk_goes_to_json_and_back():
    risk = made().model_risk
    assert ModelRisk.from_dict(json.loads(json.dumps(risk.to_dict(), allow_nan=False))) == risk
    refused(
        "data must hold exactly the fields of ModelRisk; got missing auc",
        ModelRisk.from_dict,
        {k: v for k, v in risk.to_dict().items() if k != "auc"},
    )
    refused("got unknown extra. Written by another version", ModelRisk.from_dict, risk.to_dict() | {"extra": 1})
    refused("auc must be a finite Python number; got nan", replace, risk, auc=float("nan"))
    refused("tnr_interval must have low ≤ high", replace, risk, tnr_interval=(0.5, 0.1))


def test_strict_json_has_no_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder_module.strict_json({"x": float("nan")})
