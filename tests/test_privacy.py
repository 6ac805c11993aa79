"""What is written: readable by its owner alone, through links and never in their place, the same bytes in every run."""

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import noshadow as ns
from noshadow._audit import splits
from noshadow.checks import InputError
from noshadow.cli.reference_run import write_table
from noshadow.reference import load_references, train_references
from noshadow.storage.private_files import followed, make_private_folder, write_private

RNG = np.random.default_rng(2)
X = RNG.normal(size=(40, 3))
Y = RNG.integers(0, 2, 40)
OUTPUTS = X @ RNG.normal(size=(3, 2))


def signals(rows):
    return ns.Signals(X[rows], OUTPUTS[rows], Y[rows])


TRAIN, TEST = signals(slice(0, 20)), signals(slice(20, 40))


def made(seed=0):
    return ns.audit_signals(TRAIN, TEST, seed=seed)


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(*places):
    """Modes of everything under these places, by kind."""
    found = {"folders": set(), "files": set()}
    for place in places:
        for path in (place, *place.rglob("*")) if place.is_dir() else (place,):
            found["folders" if path.is_dir() else "files"].add(stat.S_IMODE(path.stat().st_mode))
    return found


def outputs_of(n, indices, seed):
    return np.random.default_rng(seed).normal(size=(n, 2))


def references(folder):
    half = [(X[rows], Y[rows]) for rows in (slice(0, 20), slice(20, 40))]
    return train_references(folder, partial(outputs_of, 40), *half, models=4, workers=1, progress=False)


# Who can read it


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_only_the_owner_can_read_what_is_written(tmp_path, mask):
    leak = ns.lood_audit(X, Y, progress=False)
    traces = ns.LossTraces()
    traces.append([1.0, 2.0])
    with umask(mask):
        audit = made().save(tmp_path / "deep" / "audit")
        ns.write_report(ns.load(audit), audit / "report.html")
        ns.write_annex(ns.load(audit), audit / "annex.html", folder=audit)
        ns.write_records(ns.load(audit), tmp_path / "records.csv")
        ns.write_lood_report(leak, leak.save(tmp_path / "leak") / "lood.html")
        ns.write_comparison(ns.compare(made(), made(1)), tmp_path / "c.html")
        found = references(tmp_path / "more" / "references")
        assert found.loss.shape == (4, 40)  # stacked on first use
        for suffix in (".npz", ".safetensors"):
            ns.save_splits(tmp_path / f"signals{suffix}", TRAIN, TEST)
            traces.save(tmp_path / f"traces{suffix}")
        for suffix in (".csv", ".parquet"):
            write_table(made().records, tmp_path / f"table{suffix}")
    written = [path for path in tmp_path.iterdir()]
    assert {path.name for path in written} == {
        *("deep", "leak", "more", "c.html", "signals.npz", "signals.safetensors", "traces.npz", "traces.safetensors"),
        *("table.csv", "table.parquet", "records.csv", "records.columns.csv"),
    }
    assert modes(*written) == {"folders": {0o700}, "files": {0o600}}
    load_references(tmp_path / "more" / "references")


def test_what_is_overwritten_is_closed_again(tmp_path):
    folder = made().save(tmp_path / "a")
    page = ns.write_report(ns.load(folder), folder / "report.html")
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    ns.write_report(made(), page)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    made(1).save(folder, overwrite=True)
    assert modes(folder) == {"folders": {0o700}, "files": {0o600}}


def test_a_planted_name_is_not_written_through(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("kept")
    (tmp_path / f".page.html.partial-{os.getpid()}").symlink_to(secret)
    write_private(tmp_path / "page.html", [b"new"])
    assert secret.read_text() == "kept" and (tmp_path / "page.html").read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "secret"]


def test_folders_that_are_there_stay_as_they_are(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    make_private_folder(shared / "mine" / "inner")
    assert [stat.S_IMODE(p.stat().st_mode) for p in (shared, shared / "mine", shared / "mine" / "inner")] == [0o755, 0o700, 0o700]


# Links


@pytest.mark.parametrize("there", ["audit", "empty", "nothing"])
def test_a_linked_folder_is_followed_and_the_link_stays(tmp_path, there):
    disk = tmp_path / "disk"
    disk.mkdir()
    real, link = disk / "real", tmp_path / "link"
    if there == "audit":
        made().save(real)
    elif there == "empty":
        real.mkdir()
    link.symlink_to(Path("disk") / "real")
    assert made(7).save(link, overwrite=True) == link
    assert link.is_symlink() and link.readlink() == Path("disk/real") and not real.is_symlink()
    assert ns.load(real).model_risk.seed == ns.load(link).model_risk.seed == 7
    ns.write_report(made(7), link / "report.html")
    assert sorted(path.name for path in disk.iterdir()) == ["real"] and sorted(path.name for path in tmp_path.iterdir()) == ["disk", "link"]
    with pytest.raises(InputError, match="folder must not exist yet"):
        made().save(link)


def test_the_command_follows_linked_places(run, tmp_path):
    (tmp_path / "disk").mkdir()
    for name in ("audit", "leak", "page.html", "c.html"):
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
    ns.save_splits(tmp_path / "s.npz", TRAIN, TEST)
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    assert run("audit", "s.npz", "--out", "audit", "--quiet") == (0, "", "")
    assert run("audit", "s.npz", "--out", "audit", "--quiet", "--force") == (0, "", "")
    assert run("lood", "d.npz", "--out", "leak", "--quiet", "--depth", "1") == (0, "", "")
    for _ in range(2):
        assert run("report", "audit", "--out", "page.html", "--quiet") == (0, "", "")
        assert run("compare", "audit", "audit", "--out", "c.html", "--quiet") == (0, "", "")
    assert {path.name: path.is_symlink() for path in tmp_path.iterdir() if path.suffix != ".npz"} == {
        "disk": False,
        "audit": True,
        "leak": True,
        "page.html": True,
        "c.html": True,
    }
    assert {path.name for path in (tmp_path / "disk").iterdir()} == {"audit", "leak", "page.html", "c.html"}
    assert modes(tmp_path / "disk" / "audit", tmp_path / "disk" / "page.html") == {"folders": {0o700}, "files": {0o600}}


@pytest.mark.parametrize("exists", [False, True])
def test_linked_reference_folders_are_followed(tmp_path, exists):
    real, link = tmp_path / "real", tmp_path / "link"
    if exists:
        real.mkdir()
    link.symlink_to(real)
    found = references(link)
    assert link.is_symlink() and real.is_dir() and (real / "plan.json").is_file()
    np.testing.assert_array_equal(load_references(real).loss, found.loss)
    references(link)  # resumed
    assert link.is_symlink() and sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_linked_files_are_followed(tmp_path):
    traces = ns.LossTraces()
    traces.append([1.0, 2.0])
    writers = {
        "signals.npz": lambda path: ns.save_splits(path, TRAIN, TEST),
        "signals.safetensors": lambda path: ns.save_splits(path, TRAIN, TEST),
        "traces.npz": traces.save,
        "table.csv": partial(write_table, made().records),
        "table.parquet": partial(write_table, made().records),
    }
    (tmp_path / "disk").mkdir()
    for name, write in writers.items():
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
        for _ in range(2):
            write(tmp_path / name)
        assert (tmp_path / name).is_symlink() and (tmp_path / "disk" / name).stat().st_size > 0
    assert {path.name for path in (tmp_path / "disk").iterdir()} == set(writers)


def test_links_inside_of_an_audit_are_not_replaced(tmp_path):
    folder = made().save(tmp_path / "a")
    (folder / "records.parquet").rename(tmp_path / "elsewhere")
    (folder / "records.parquet").symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    with pytest.raises(InputError, match=r"hold an audit and nothing else; got '.*a' with the link records.parquet"):
        made(1).save(folder, overwrite=True)
    assert (folder / "records.parquet").is_symlink() and (tmp_path / "elsewhere").read_bytes() == before


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InputError, match=r"Audit.save: folder must be writable; got '.*a'"):
        made().save(tmp_path / "a")
    with pytest.raises(InputError, match=r"write_report: path must be writable; got '.*a'"):
        ns.write_report(made(), tmp_path / "a")
    with pytest.raises(OSError, match="symbolic links"):
        followed(tmp_path / "a")
    assert (tmp_path / "a").readlink() == tmp_path / "b"


# The same bytes in every run


def brute_force_copies(train, test):
    """Rows as tuples of their rounded features and target, counted by hand."""
    spread = train.features.std(0)

    def names(split):
        rows = np.round(split.features / spread * 1e4) + 0.0
        return [(*row, label) for row, label in zip(rows.tolist(), split.targets.tolist(), strict=True)]

    mine, other = names(train), set(names(test))
    groups = {name: [row for row, twin in enumerate(mine) if twin == name] for name in mine}
    several = [rows for rows in groups.values() if len(rows) > 1]
    largest = max(several, key=lambda rows: (len(rows), -rows[0]), default=[])
    copies = {
        "records": sum(map(len, several)),
        "groups": len(several),
        "largest": max(map(len, several), default=1),
        "first_ids": [str(row) for row in largest[:10]],
    }
    assert other
    return {"shared_with_test": sum(name in set(mine) for name in names(test)), "copies": copies, "reason": None}


def repeated(seed, n=90):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, (n, 3)).astype(np.float64 if seed % 2 else np.float32)
    x[x == 0] *= -1  # −0.0 and 0.0 look alike
    return ns.Signals(x, rng.normal(size=(n, 2)), rng.integers(0, 2, n))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bits", [64, 3, 0])
def test_copies_are_counted_exactly_whatever_the_digests(seed, bits, monkeypatch):
    train, test = repeated(seed), repeated(seed + 10, 50)
    own = splits._digests
    monkeypatch.setattr(splits, "_digests", lambda split, spread: own(split, spread) & np.uint64(2**bits - 1))
    monkeypatch.setattr(splits, "NUMBERS_AT_ONCE", 40)
    assert splits.split_counts(train, test) == brute_force_copies(train, test)


def test_digests_of_whole_numbers_do_not_collide():
    """Floats of whole numbers end in many zero bits: sums of products with them would share most of their digits."""
    x = np.stack(np.meshgrid(*[np.arange(20.0)] * 4), -1).reshape(-1, 4)
    split = ns.Signals(x, np.zeros((len(x), 2)), np.zeros(len(x), dtype=int))
    assert len(np.unique(splits._digests(split, np.full(4, 1e4)))) == len(x)


WRITES = """
import sys
from pathlib import Path
import numpy as np
import noshadow as ns
from noshadow.reference import train_references
from noshadow.reference.ground_truth import with_ground_truth
from noshadow.reference.attack_list import AttackOptions
out = Path(sys.argv[1])
rng = np.random.default_rng(0)
x, y = rng.integers(0, 3, (160, 3)).astype(float), rng.integers(0, 3, 160)
ids = [f"record {i}" for i in range(80)]
outputs = x @ rng.normal(size=(3, 3)) + np.eye(3)[y]
train, test = ns.Signals(x[:80], outputs[:80], y[:80], ids), ns.Signals(x[80:], outputs[80:], y[80:])
groups = [f"ward {i % 5}" for i in range(80)]
audit = ns.audit_signals(train, test, groups=groups, test_groups=groups)
ns.save_splits(out / "signals.npz", train, test)
ns.save_splits(out / "signals.safetensors", train, test)
leak = ns.lood_audit(x[:80], y[:80], ids=ids, depth=1, audit=audit, progress=False)
leak.save(out / "leak")
def outputs_of(indices, seed):
    return np.random.default_rng(seed).normal(size=(160, 3))
references = train_references(out / "set", outputs_of, (x[:80], y[:80]), (x[80:], y[80:]), ids=ids, models=4, workers=1, progress=False)
scored = with_ground_truth(ns.with_lood(audit, leak), references, options=AttackOptions(shokri=False), progress=False)
ns.write_report(scored, scored.save(out / "audit") / "report.html")
ns.write_lood_report(leak, out / "leak" / "lood.html")
ns.write_comparison(ns.compare(scored, ns.audit_signals(train, test, groups=groups, damping=1.0)), out / "comparison.html")
"""


def stamped(path):
    """A digest of a file without its times."""
    content = path.read_bytes()
    if path.suffix == ".json":
        content = re.sub(rb'(?s)"(timings|created)": (\{.*?\}|"[^"]*")', b"", content)
    elif path.suffix == ".html":
        content = re.sub(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d( UTC|\+00:00)?", b"", content)
        content = re.sub(rb"(?s)<tr><th[^>]*>[^<]*seconds[^<]*</th><td[^>]*>.*?</td></tr>", b"", content)
    elif path.suffix == ".safetensors":
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        header.get("__metadata__", {}).pop("seconds", None)
        content = json.dumps(header).encode() + content[8 + size :]
    return hashlib.sha256(content).hexdigest()


def test_no_byte_depends_on_the_seed_of_pythons_hashes(tmp_path):
    found = []
    for seed in ("1", "2", "77"):
        out = tmp_path / seed
        out.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", WRITES, str(out)], env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        # The names of stacked arrays hold the times of the files they were made from.
        places = {re.sub(r"-[0-9a-f]{16}", "", str(path.relative_to(out))): path for path in out.rglob("*") if path.is_file()}
        found.append({name: stamped(path) for name, path in places.items()})
    copies = json.loads((tmp_path / "1" / "audit" / "audit.json").read_text())["provenance"]["splits"]["copies"]
    assert copies["groups"] > 3 and len(found[0]) > 12
    assert found[0] == found[1] == found[2]
