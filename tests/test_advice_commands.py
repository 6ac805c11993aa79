"""Errors of commands made to happen: each names its command or the function behind it, and what it advises exists there."""

from pathlib import Path

import numpy as np
import pytest

import noshadow as ns
from advised import commands, owner_of, wrong_advice

RNG = np.random.default_rng(8)
X, Y = RNG.normal(size=(40, 3)), RNG.integers(0, 3, 40)
POINTS = np.linspace(-1, 1, 12).reshape(6, 2)


TARGETS = """
import numpy as np
import torch
import noshadow as ns
X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = np.arange(40) % 3
def nothing(): return None
def plain(): return ns.Target(torch.nn.Linear(3, 3), (X, Y), (X, Y))
def several(): return ns.Target(Several(), (X, Y), (X, Y))
def tanh(): return ns.Target(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()), (X, Y), (X, Y))
def folded(): return ns.Target(Folded(), (X, Y), (X, Y))
class Several(torch.nn.Linear):
    def __init__(self): super().__init__(3, 3)
    def forward(self, x): return super().forward(x).sin(), super().forward(x).cos()
class Folded(torch.nn.Linear):
    def __init__(self): super().__init__(3, 6)
    def forward(self, x): return super().forward(x).view(-1, 3, 2).amax(2)
"""
COMMANDS = [
    ("load_splits", ("signals.txt", "--out", "a")),
    ("audit", ("signals.npz", "--out", "held")),
    ("audit", ("signals.npz", "--out", "a", "--layer", "fc")),
    ("audit", ("signals.npz", "--out", "a", "--output", "1")),
    ("audit", ("signals.npz", "--out", "a", "--layers", "all")),
    ("audit", ("signals.npz", "--out", "a", "--score-option", "max_memory")),
    ("audit_signals", ("signals.npz", "--out", "a", "--score-option", "method=exact", "--score-option", "max_memory=10")),
    ("audit", ("made:plain", "--out", "a", "--no-intercept")),
    ("audit", ("made:plain", "--out", "a", "--family", "forest")),
    ("audit", ("made:nothing", "--out", "a")),
    ("audit", ("made:absent", "--out", "a")),
    ("audit", ("made:several", "--out", "a")),
    ("audit", ("made:tanh", "--out", "a")),
    ("audit", ("made:folded", "--out", "a")),
    ("gate", ("held",)),
    ("gate", ("held", "--max-tnr", "2")),
    ("gate", ("held", "--max-predicted-tpr", "0.1")),
    ("gate", ("held", "--max-measured-tpr", "0.1")),
    ("gate", ("held", "--max-record-rate", "0.1")),
    ("load", ("held/report.html", "--max-tnr", "0.5")),
    ("report", ("held", "--show-records", "nowhere.npy")),
    ("report", ("held", "--show-ids")),
    ("export", ("held", "--out", "held/records.csv")),
    ("write_records", ("held", "--out", "records.txt")),
    ("write_records", ("held", "--out", "signals.npz", "--format", "csv")),
    ("compare", ("held", "held", "--out", "page.txt")),
    ("lood", ("nowhere.npz", "--out", "leak")),
    ("lood", ("data.npz", "--out", "leak", "--sweep-depths", "2,3")),
    ("lood", ("data.npz", "--out", "leak", "--image-shape", "3")),
    ("lood_audit", ("data.npz", "--out", "leak", "--max-memory", "1e-9")),
    ("lood_audit", ("data.npz", "--out", "leak", "--kernel", "rbf")),
    ("reference train", ("made:plain", "--out", "references")),
    ("reference train", ("made:nothing", "--out", "references")),
    ("status", ("held",)),
    ("reference score", ("held", "--out", "table.txt")),
    ("demo", ("--out", "held")),
]


def _typed(owner, function):
    """The command of a row: that of its owner, or the one that calls the function which speaks."""
    return {
        "audit_signals": "audit",
        "load_splits": "audit",
        "lood_audit": "lood",
        "status": "reference status",
        "load": "gate",
        "write_records": "export",
    }.get(owner, function).split()


@pytest.fixture
def place(run):
    """A folder with what the commands read, as the working directory."""
    Path("made.py").write_text(TARGETS)
    splits = [ns.Signals(X[part], X[part], Y[part]) for part in (slice(0, 20), slice(20, 40))]
    ns.save_splits("signals.npz", *splits)
    np.savez("data.npz", x=POINTS, y=POINTS[:, 0])
    ns.audit_signals(*splits, progress=False).save("held")
    return run


@pytest.mark.parametrize(("owner", "words"), COMMANDS, ids=lambda value: value if isinstance(value, str) else "-".join(value))
def test_a_provoked_error_of_a_command_advises_what_it_has(place, owner, words):
    code, out, err = place(*_typed(owner, owner), *words)
    message = err.strip().splitlines()[-1].removeprefix("noshadow: ").removeprefix("Error: ")
    assert (code, out) == (2, ""), (out, err)
    assert owner_of(message) == owner, message
    assert wrong_advice(owner, message.partition(": ")[2]) == [], message


def test_the_commands_are_covered():
    assert {" ".join(_typed(owner, owner)) for owner, _ in COMMANDS} == set(commands())
