"""Folders whose digests fit and whose contents do not: whoever edits them can hash as well as we can."""

import hashlib
import io
import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

import noshadow as ns
from noshadow import InputError
from noshadow.reference import load_references, status, train_references
from noshadow.reference.manifest import plan_digest
from noshadow.results.folder import _own_digest
from noshadow.storage.safetensors_files import layout

N = 12
SEQUENCE_ATTACK = {"attack": "base_gain", "attacked": "target", "auc": 0.5, "auc_interval": [0.4, 0.6], "rates": [], "models": 1}


def halves():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2 * N, 2))
    out = x @ rng.normal(size=(2, 2))
    targets = (out + rng.normal(size=out.shape)).argmax(1)
    return [ns.Signals(x[rows], out[rows], targets[rows]) for rows in (slice(N), slice(N, 2 * N))]


@pytest.fixture
def audit(tmp_path):
    return ns.audit_signals(*halves(), damping=1.0).save(tmp_path / "a")


@pytest.fixture
def lood(tmp_path):
    train = halves()[0]
    return ns.lood_audit(train.features, train.targets, progress=False).save(tmp_path / "l")


def resealed(folder, change=None, name="audit.json"):
    """The manifest after `change(manifest)`, with digests that fit."""
    manifest = json.loads((folder / name).read_text())
    if change is not None:
        change(manifest)
    others = [file for file in folder.iterdir() if file.name != name]
    manifest["files"] = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in others}
    manifest["files"][name] = _own_digest(manifest)
    (folder / name).write_text(json.dumps(manifest))


def refused(match, function, *arguments):
    with pytest.raises(InputError, match=match) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)


def put(*path):
    """A change of a manifest: `put("a", "b", value)` sets manifest["a"]["b"]."""

    def change(manifest):
        *above, last, value = path
        for name in above:
            manifest = manifest[name]
        manifest[last] = value

    return change


def test_folders_resealed_as_they_are_still_load(audit, lood):
    resealed(audit)
    resealed(lood, name="lood.json")
    ns.load(audit)
    ns.load_lood(lood)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (put("task", "astrology"), "load: task must be one of 'regression', .*; got 'astrology'"),
        (put("task", ["regression"]), "load: task must be text"),
        (put("ranked_by", "luck"), "load: ranked_by must name a column of numbers"),
        (put("ranked_by", None), "load: ranked_by must name a column exactly when there are ranks"),
        (put("records", "count", -1), "load: records.count must be a whole number ≥ 0; got -1"),
        (put("records", "count", 10**13), r"losses.npz must hold one loss for each of 10000000000000 records; got 12"),
        (put("records", "columns", "id"), "load: records.columns must be a list"),
        (put("model_risk", "auc", "0.5"), "model_risk.auc must be a finite number; got '0.5'"),
        (put("model_risk", "auc", 2.5), "model_risk.auc must be a finite number ≥ 0 and ≤ 1; got 2.5"),
        (put("model_risk", "fpr", 0), "model_risk.fpr must be a finite number > 0 and < 1; got 0"),
        (put("model_risk", "n_members", -3), "model_risk.n_members must be a whole number ≥ 0"),
        (put("model_risk", "n_members", 99), "load: model_risk must count the losses that are there; got 99 and 12 beside 12 and 12"),
        (put("model_risk", "curve", "levels", "many"), "model_risk.curve.levels must be a list"),
        (put("model_risk", []), "load: model_risk must be null or an object"),
        (put("not_applicable", {"x": 1}), "load: not_applicable.x must be text; got 1"),
        (put("notes", [None]), r"load: notes\[0\] must be text; got None"),
        (put("provenance", "scores", "damping_used", "tiny"), "provenance.scores.damping_used must be a finite number"),
        (put("provenance", "class_names", [1, 2]), r"provenance.class_names\[0\] must be text"),
        (put("provenance", "splits", {}), "provenance.splits must hold shared_with_test, copies, reason; got none"),
        (put("findings", 0, "severity", "dreadful"), "severity must be one of 'high', 'medium', 'low'; got 'dreadful'"),
        (put("findings", {}), "findings must be null or a list|load: findings"),
        (put("class_risk", [{}]), "load: data must hold exactly its fields"),
        (put("sequence_attacks", [{}]), r"sequence_attacks\[0\] must hold"),
        (
            put("sequence_attacks", [SEQUENCE_ATTACK | {"auc": 2.0}]),
            r"sequence_attacks\[0\].auc must be a finite number ≥ 0 and ≤ 1; got 2.0",
        ),
        (
            put("sequence_attacks", [SEQUENCE_ATTACK | {"rates": [{"fpr": 0, "tpr": 1, "low": 0, "high": 1}]}]),
            "fpr must be a finite number > 0",
        ),
        (put("ground_truth", {"models": 3}), "load: data must hold exactly the fields"),
        (put("timings", "created", {}), "load: timings.created must be"),
        (put("format", True), "load: folder must be of format 1; got True"),
    ],
)
def test_manifests_of_an_audit_are_checked_value_by_value(audit, change, match):
    resealed(audit, change)
    refused(match, ns.load, audit)


def edited(folder, change, name="audit.json"):
    """The record table after `change(table)`, manifest and digests made to fit."""
    table = pd.read_parquet(folder / "records.parquet")
    made = change(table)
    table = table if made is None else made
    table.to_parquet(folder / "records.parquet", index=False)

    def fit(manifest):
        manifest["records"] = {"count": len(table), "columns": list(table.columns)}

    resealed(folder, fit, name)


def cell(column, value, row=0):
    def change(table):
        table[column] = table[column].astype(object)
        table.loc[row, column] = value

    return change


def column(name, values):
    return lambda table: table.assign(**{name: values})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (cell("rank", None), "load: rank must hold each of 1 … 12 once"),
        (column("rank", np.full(N, np.nan)), "load: rank must hold each of 1 … 12 once; got nan"),
        (column("rank", 1), "load: rank must hold each of 1 … 12 once"),
        (column("rank", -np.arange(N)), "load: rank must hold"),
        (column("loss", ["low"] * N), "load: loss must be a column of numbers; got one of"),
        (column("loss", [np.nan] + [1.0] * (N - 1)), "load: loss must hold no NaN; got 1 in 12 records"),
        (column("shift", [np.nan] * N), "load: ranked_by must name a column of numbers without NaN; got 'shift'"),
        (column("target", [None] * N), "target must be a column of numbers"),
        (column("id", 3), "records.parquet must have a column id of unique ids; got one id twice"),
        (column("id", np.linspace(0, 1, N)), "id must be a column of text or whole numbers"),
        (column("predicted_tpr", 3.5), "predicted_tpr must lie between 0 and 1; got 3.5 in record 0"),
        (column("leverage", [[1.0]] * N), "leverage must be a column of numbers"),
        (lambda table: table.drop(columns="loss"), "records.parquet must have a column loss"),
        (lambda table: table.drop(columns="id"), "records.parquet must have a column id of unique ids; got none"),
        (lambda table: table.drop(columns="target"), "records.parquet must have a column target"),
        (lambda table: table.head(5), "losses.npz must hold one loss for each of 5 records; got 12"),
    ],
)
def test_record_tables_of_an_audit_are_checked(audit, change, match):
    edited(audit, change)
    refused(match, ns.load, audit)


@pytest.mark.parametrize(
    ("losses", "match"),
    [
        ({"member": np.ones(N)}, "losses.npz must hold member and nonmember; got member"),
        ({"member": np.ones((N, 1)), "nonmember": np.ones(N)}, r"member losses must be float64 numbers, one a record; got shape \(12, 1\)"),
        ({"member": np.full(N, np.nan), "nonmember": np.ones(N)}, "member losses must be float64 numbers, one a record; got .* with NaN"),
        ({"member": np.array(["x"] * N), "nonmember": np.ones(N)}, "member losses must be float64"),
        ({"member": np.ones(N), "nonmember": np.ones(3)}, "model_risk must count the losses that are there"),
    ],
)
def test_losses_of_an_audit_are_checked(audit, losses, match):
    np.savez(audit / "losses.npz", **losses)
    resealed(audit)
    refused(match, ns.load, audit)


def test_files_that_are_no_table_and_no_archive_are_one_sentence(audit, lood):
    (audit / "losses.npz").write_bytes(b"PK\x03\x04 no archive")
    resealed(audit)
    refused("load: losses.npz must hold plain arrays; got", ns.load, audit)
    for folder, name, load in ((audit, "audit.json", ns.load), (lood, "lood.json", ns.load_lood)):
        packed = io.BytesIO()
        np.savez(packed, member=np.ones(N), nonmember=np.ones(N))
        if folder is audit:
            (folder / "losses.npz").write_bytes(packed.getvalue())
        (folder / "records.parquet").write_bytes(b"PAR1 no table PAR1")
        resealed(folder, name=name)
        refused("records.parquet must be the record table; got one that cannot be read", load, folder)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (put("kernel", {"name": "magic"}), "load_lood: kernel.name must be 'fc' or 'conv'; got 'magic'"),
        (put("noise", -1.0), "load_lood: noise must be a finite number ≥ 0; got -1.0"),
        (put("fpr", 1), "load_lood: fpr must be a finite number > 0 and < 1"),
        (put("summary", "kl", {}), "load_lood: summary.kl must hold mean, median, quantile_90, max"),
        (put("conditioning", "diagonal", [1]), "load_lood: conditioning.diagonal must be a list of 2"),
        (put("sweep", [1]), r"load_lood: sweep\[0\] must be an object"),
        (put("joined", {}), "load_lood: joined must hold|load_lood: joined must be"),
        (put("provenance", "hashes", "x", 1), "load_lood: provenance.hashes.x must be text"),
    ],
)
def test_manifests_of_a_leave_one_out_audit_are_checked(lood, change, match):
    resealed(lood, change, "lood.json")
    refused(match, ns.load_lood, lood)


def test_record_tables_of_a_leave_one_out_audit_are_checked(lood):
    edited(lood, column("auc", 4.0), "lood.json")
    refused("load_lood: auc must lie between 0 and 1; got 4 in record 0", ns.load_lood, lood)
    edited(lood, lambda table: table.drop(columns=["auc"]), "lood.json")
    refused("load_lood: records.parquet must have a column auc", ns.load_lood, lood)


@pytest.fixture
def references(tmp_path):
    def outputs(indices, seed):
        made = np.random.default_rng(seed).normal(size=(2 * N, 2))
        made[indices] += 1
        return made

    data = [(split.features, split.targets) for split in halves()]
    options = {"models": 4, "workers": 1, "progress": False}
    return train_references(tmp_path / "r", outputs, *data, model=outputs(np.arange(N), 9), **options).folder


def reworked(folder, change=None, **arrays):
    """Plan, membership and records after a change, with every digest made to fit, those in the models' files too."""
    if "membership" in arrays:
        np.save(folder / "membership.npy", arrays["membership"])
    with np.load(folder / "records.npz") as held:
        kept = {name: arrays.get(name, held[name]) for name in held.files}
    np.savez(folder / "records.npz", **{name: array for name, array in kept.items() if array is not None})
    plan = json.loads((folder / "plan.json").read_text())
    for name, file in (("membership", "membership.npy"), ("records", "records.npz")):
        plan["hashes"][name] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    if change is not None:
        change(plan)
    (folder / "plan.json").write_text(json.dumps(plan))
    for file in (*(folder / "models").iterdir(), folder / "target.safetensors"):
        rewritten(file, plan=plan_digest(plan))


def rewritten(file, arrays=None, **metadata):
    held = load_file(file) | (arrays or {})
    save_file({name: array for name, array in held.items() if array is not None}, file, dict(layout(file).metadata) | metadata)


def test_references_reworked_as_they_are_still_load(references):
    reworked(references)
    assert load_references(references).loss.shape == (4, 2 * N)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (put("plan", "models", 10**13), "plan.models must be the 4 models of membership.npy; got 10000000000000"),
        (put("plan", "models", "4"), "plan.models must be a whole number; got '4'"),
        (put("plan", "records", 7), "plan.records must be the 24 records of membership.npy; got 7"),
        (put("plan", "fraction", 2), "plan.fraction must be a finite number > 0 and < 1"),
        (put("plan", []), "plan must be an object"),
        (put("signals", {}), "signals must hold queries, traces, keep_outputs, extra_models; got none"),
        (put("notes", "all is well"), "notes must be a list"),
        (put("pool", "swimming"), "pool must be 'all' or 'train'; got 'swimming'"),
        (put("signals", "queries", ["mirrored"]), "statistic must have a column for each of 2 queries"),
    ],
)
def test_plans_are_checked(references, change, match):
    reworked(references, change)
    refused(f"load_references: {match}", load_references, references)


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"membership": np.ones((4, 2 * N), bool)}, "membership.npy must put every record in some of the models"),
        ({"membership": np.ones((4, 2 * N))}, "membership.npy must hold true or false, models by records"),
        ({"membership": np.full((4, 2 * N), 7, np.uint8).view(bool)}, "membership.npy must hold true or false; got 7 in model 0"),
        ({"seeds": np.arange(3)}, r"records.npz, seeds must have one entry per model; got shape \(3,\)"),
        ({"member": np.ones(2 * N)}, "records.npz, member must have one entry per record"),
        ({"member": np.zeros(2 * N, bool)}, "records.npz, member must name the target's training records"),
        ({"ids": np.zeros(2 * N, int)}, "ids must be unique"),
        ({"targets": np.full(2 * N, np.nan)}, "records.npz, targets must hold one finite row per record"),
        ({"targets": None}, "records.npz, targets must have one entry per record; got none"),
    ],
)
def test_membership_and_records_are_checked(references, arrays, match):
    reworked(references, **arrays)
    refused(f"load_references: {match}", load_references, references)


def test_models_that_do_not_fit_the_plan_do_not_count(references):
    file = references / "models" / "00002.safetensors"
    for arrays, metadata in (
        ({"loss": np.ones(3)}, {}),
        ({"loss": None}, {}),
        ({"statistic": np.ones(2 * N, np.float32)}, {}),
        ({}, {"seconds": "soon"}),
        ({}, {"workers": "-1"}),
        ({}, {"task": "astrology"}),
    ):
        kept = file.read_bytes()
        rewritten(file, arrays, **metadata)
        refused(r"hold all 4 models of its plan; got 3 of 4 \(missing: 2\)", load_references, references)
        assert status(references).missing == (2,)
        file.write_bytes(kept)


def test_arrays_of_models_and_target_are_checked(references):
    file, target = references / "models" / "00002.safetensors", references / "target.safetensors"
    kept = file.read_bytes(), target.read_bytes()
    rewritten(file, {"loss": np.full(2 * N, np.nan)})
    refused(
        "References.loss: loss must be finite; got 24 NaN or infinite values in 00002.safetensors", lambda: load_references(references).loss
    )
    file.write_bytes(kept[0])
    rewritten(target, {"statistic": np.ones((2 * N, 3))})
    refused("load_references: models must be of one task and form", load_references, references)
    target.write_bytes(kept[1][:-4])
    refused("load_references: target.safetensors must be whole", load_references, references)
    target.write_bytes(kept[1])
    rewritten(target, plan="0" * 64)
    refused("load_references: target.safetensors must belong to this plan", load_references, references)


def test_a_torn_stack_is_written_anew(references):
    expected = np.array(load_references(references).loss)
    (stack,) = (references / "stacked").glob("loss-*.npy")
    for content in (b"", stack.read_bytes()[:-8], b"\x93NUMPY\x01\x00"):
        stack.write_bytes(content)
        np.testing.assert_array_equal(load_references(references).loss, expected)
