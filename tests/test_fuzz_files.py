"""2,000 seeded mutations of every file we read: each is read, or refused in one sentence; never a traceback."""

import copy
import hashlib
import io
import json
import random
import re
import shutil
import struct
import zipfile

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save

import noshadow as ns
from damaged_bytes import flipped, truncated
from noshadow import InputError
from noshadow._compare import compare
from noshadow._findings import findings
from noshadow.reference import load_references, status, train_references
from noshadow.reference.manifest import plan_digest
from noshadow.report.lood_page import lood_page
from noshadow.report.page import page
from noshadow.report.rendering import rendered
from noshadow.results.folder import _own_digest
from noshadow.storage.json_text import parsed_json
from noshadow.traces.files import load_loss_traces

SEED = 17
COUNTS = {"npz": 350, "safetensors": 350, "audit": 600, "reference": 400, "lood": 150, "traces": 150}
N = 12
IDS = [f"id{i}" for i in range(N)]
VALUES = [None, True, 0, -1, 1, 0.5, 10**13, 2**63, -2.5, 1e308, 1e-308, "", "x", "10", "a\nb\x1b[31m", [], {}, [1], ["a"], {"a": 1}, [[]]]


def test_the_numbers_of_mutations_add_up():
    assert sum(COUNTS.values()) == 2000


def swapped(rng, value):
    """A copy of a JSON value in which one inner value is gone, doubled, exchanged for another one or for something odd."""
    made = copy.deepcopy(value)
    places = [place for place in walked(made) if place and place[0] != "files"]
    *above, last = rng.choice(places)
    parent = found(made, above)
    how = rng.randrange(5)
    if how == 0:
        parent.pop(last)
    elif how == 1 and isinstance(parent, dict):
        parent[f"{last}\n"] = parent[last]
    elif how == 2:
        parent[last] = copy.deepcopy(found(made, rng.choice(places)))
    else:
        parent[last] = copy.deepcopy(rng.choice(VALUES))
    return made


def walked(value, at=()):
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inner:
        yield from walked(item, (*at, name))


def found(value, place):
    for name in place:
        value = value[name]
    return value


def claimed(rng, content):
    """A `.npy` header in which one word is another."""
    end = content.index(b"\n")
    words = [match.span() for match in re.finditer(rb"\d+|<f8|<i8|\|b1|<U\d|False|shape|descr", content[10:end])]
    if not words:
        return flipped(rng, content)
    start, stop = rng.choice(words)
    word = rng.choice((b"10000000000000", b"0", b"-1", b"1e3", b"|O", b"<f4", b"<U0", b"(1,)", b"True", b"x", b"9" * 30, b"[" * 200))
    header = content[10 + 0 : end][:start] + word + content[10:end][stop:] + b"\n"
    return content[:8] + struct.pack("<H", len(header)) + header + content[end + 1 :]


def archived(rng, content):
    """A zip archive with one member renamed, gone, doubled, edited, encrypted by its flag, or claiming another size."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    how, k = rng.randrange(7), rng.randrange(len(members))
    name, data = members[k]
    if how == 0:
        members[k] = (rng.choice(("x.npy", "train_ids.npy", "loss_traces", "\n.npy", "../up.npy")), data)
    elif how == 1:
        members.pop(k)
    elif how <= 4:
        members[k] = (name, claimed(rng, data) if data[:6] == b"\x93NUMPY" else flipped(rng, data))
    elif how == 5:
        members.append((rng.choice(("new.npy", "loss_traces.npy")), flipped(rng, data)))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))) as archive:
        for name, data in members:
            archive.NameToInfo.pop(name, None)  # a name twice, without zipfile's warning
            archive.writestr(name, data)
    made = bytearray(packed.getvalue())
    if how == 6:
        directory = made.index(b"PK\x01\x02")
        offset, size = rng.choice(((8, 2), (20, 4), (24, 4), (42, 4)))  # flags, compressed size, size, place of the member
        made[directory + offset : directory + offset + size] = rng.choice((1, 0xFFFF, 7)).to_bytes(size, "little")
    return bytes(made)


def reheaded(rng, content):
    """A safetensors file whose header is another JSON value."""
    size = int.from_bytes(content[:8], "little")
    header = swapped(rng, json.loads(content[8 : 8 + size]))
    text = json.dumps(header).encode()
    if rng.random() < 0.2:
        text = text.replace(b"F64", rng.choice((b"BF16", b"F8_E4M3", b"C64", b"F32")))
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def tabled(rng, content):
    """A record table with a column gone, shuffled, of another type, with NaN or with ids twice; or damaged bytes."""
    if rng.random() < 0.3:
        return flipped(rng, content)
    table = pd.read_parquet(io.BytesIO(content))
    column, how = rng.choice(list(table.columns)), rng.randrange(7)
    if how == 0:
        table = table.drop(columns=column)
    elif how == 1:
        table[column] = table[column].iloc[::-1].to_numpy()
    elif how == 2:
        table[column] = [str(value) for value in table[column]]
    elif how == 3:
        table[column] = pd.array([None, *table[column].iloc[1:]], dtype=object)
    elif how == 4:
        table = table.iloc[: rng.randrange(len(table))]
    elif how == 5:
        table[column] = table[column].iloc[0]
    else:
        table[column] = rng.choice(([-1.0] * len(table), [np.inf] * len(table), [[1]] * len(table), [2**62] * len(table)))
    made = io.BytesIO()
    table.to_parquet(made, index=False)
    return made.getvalue()


def outcome(read, *arguments):
    """Whether a file was read; a refusal is one sentence."""
    try:
        read(*arguments)
    except InputError as error:
        message = str(error)
        assert re.match(r"[\w. ]+: ", message) and "\n" not in message and len(message) < 2000, message
        return False
    return True


def halves():
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(2 * N, 2))
    outputs = x @ rng.normal(size=(2, 3))
    targets = (outputs + rng.normal(size=outputs.shape)).argmax(1)
    return [ns.Signals(x[rows], outputs[rows], targets[rows], IDS) for rows in (slice(0, N), slice(N, 2 * N))]


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_signals(tmp_path, suffix):
    path, rng = tmp_path / f"s.{suffix}", random.Random(f"{SEED} {suffix}")
    ns.save_splits(path, *halves(), loss_traces=np.ones((N, 3)))
    content = path.read_bytes()
    edits = (flipped, truncated, archived, archived, archived) if suffix == "npz" else (flipped, truncated, reheaded, reheaded, reheaded)
    read = 0
    for _ in range(COUNTS[suffix]):
        path.write_bytes(rng.choice(edits)(rng, content))
        read += outcome(ns.load_splits, path)
    assert 0 < read < COUNTS[suffix] // 2


def test_loss_traces(tmp_path):
    rng = random.Random(f"{SEED} traces")
    arrays = {"loss_traces": np.ones((N, 3)), "ids": np.arange(N), "test_loss_traces": np.ones((N, 3))}
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    for number in range(COUNTS["traces"]):
        suffix, content, edit = ("npz", packed.getvalue(), archived) if number % 2 else ("safetensors", save(arrays), reheaded)
        path = tmp_path / f"traces.{suffix}"
        path.write_bytes(rng.choice((flipped, truncated, edit, edit))(rng, content))
        outcome(load_loss_traces, path)


def redigested(folder, manifest, name):
    """The manifest written with digests that fit, as whoever tampers with a folder would."""
    files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.name != name}
    stamped = manifest | {"files": files}
    stamped["files"][name] = _own_digest(stamped)
    (folder / name).write_text(json.dumps(stamped))


def tampered(rng, folder, name, edits):
    """One file of a folder changed, digests made to fit; what must be put back."""
    manifest = json.loads((folder / name).read_text())
    before = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    what = rng.choice((name, name, *edits))
    if what == name:
        manifest = swapped(rng, manifest)
    else:
        (folder / what).write_bytes(edits[what](rng, (folder / what).read_bytes()))
    redigested(folder, manifest, name)
    return before


def restored(before):
    for file, content in before.items():
        file.write_bytes(content)


def test_audit_folder(tmp_path):
    train, test = halves()
    groups = list("ab") * (N // 2)
    audit = ns.audit_signals(train, test, damping=1.0, groups=groups, test_groups=groups)
    inputs = ns.lood_audit(train.features, train.targets, ids=IDS, progress=False)
    folder, rng = ns.with_lood(audit, inputs).save(tmp_path / "a"), random.Random(f"{SEED} audit")
    edits = {"records.parquet": tabled, "losses.npz": archived}

    def used(number=0):
        back = ns.load(folder)
        findings(back)
        if number % 4 == 0:
            rendered("report.html.j2", page(back))
        if number % 16 == 0:
            compare(audit, back)

    read = 0
    for number in range(COUNTS["audit"]):
        before = tampered(rng, folder, "audit.json", edits)
        read += outcome(used, number)
        restored(before)
    assert 0 < read < COUNTS["audit"] // 2
    used()


def test_lood_folder(tmp_path):
    train, test = halves()
    audit = ns.audit_signals(train, test, damping=1.0)
    swept = {"sweep_activations": ["relu"], "sweep_depths": [1, 2]}
    found_ = ns.lood_audit(train.features, train.targets, ids=IDS, audit=audit, progress=False, **swept)
    folder, rng = found_.save(tmp_path / "l"), random.Random(f"{SEED} lood")

    def used():
        rendered("lood.html.j2", lood_page(ns.load_lood(folder)))

    for _ in range(COUNTS["lood"]):
        before = tampered(rng, folder, "lood.json", {"records.parquet": tabled})
        outcome(used)
        restored(before)
    used()


@pytest.fixture
def references(tmp_path):
    train, test = halves()

    def outputs(indices, seed):
        made = np.random.default_rng(seed).normal(size=(2 * N, 3))
        made[indices] += 1
        return made

    data = [(split.features, split.targets) for split in (train, test)]
    kept = {"extra": lambda model, indices, seed: {"loss": np.ones(len(indices))}, "extra_models": 2}
    options = {"models": 4, "workers": 1, "progress": False} | kept
    return train_references(tmp_path / "r", outputs, *data, model=outputs(np.arange(N), 9), **options).folder


def resealed(folder):
    """Digests of the plan's files, and of the plan in every model's file, made to fit."""
    plan = json.loads((folder / "plan.json").read_text())
    if isinstance(plan.get("hashes"), dict):
        for name, file in (("membership", "membership.npy"), ("records", "records.npz")):
            plan["hashes"][name] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    (folder / "plan.json").write_text(json.dumps(plan))
    sealed = plan_digest(parsed_json(json.dumps(plan)))
    for file in (*(folder / "models").iterdir(), folder / "target.safetensors"):
        content = file.read_bytes()
        size = int.from_bytes(content[:8], "little")
        try:
            header = json.loads(content[8 : 8 + size])
            header["__metadata__"]["plan"] = sealed
        except (ValueError, KeyError, TypeError):
            continue
        text = json.dumps(header).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])


def test_reference_folder(references, tmp_path):
    rng = random.Random(f"{SEED} reference")
    edits = {
        "plan.json": lambda r, content: json.dumps(swapped(r, json.loads(content))).encode(),
        "membership.npy": lambda r, content: r.choice((flipped, claimed, truncated))(r, content),
        "records.npz": archived,
        "models/00001.safetensors": lambda r, content: r.choice((flipped, reheaded))(r, content),
        "target.safetensors": lambda r, content: r.choice((flipped, reheaded))(r, content),
    }

    def used():
        there = load_references(references)
        assert there.statistic.shape[:2] == there.loss.shape == there.membership.shape
        there.parity()

    read = 0
    for _ in range(COUNTS["reference"]):
        kept = shutil.copytree(references, tmp_path / "kept", dirs_exist_ok=True)
        name = rng.choice(("plan.json", "plan.json", *edits))
        (references / name).write_bytes(edits[name](rng, (references / name).read_bytes()))
        resealed(references)
        read += outcome(used)
        outcome(status, references)
        shutil.rmtree(references)
        kept.rename(references)
    assert 0 < read < COUNTS["reference"]
    used()
