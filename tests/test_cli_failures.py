"""Whose error it was: exit 1 is a gate's no and nothing else; ours, the user's and the system's each have a code and a sentence."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

import noshadow as ns
from noshadow.cli import failures

MAIN = [sys.executable, "-m", "noshadow"]


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 3)), rng.integers(0, 2, 80)
    train, test = (ns.Signals(x[part], x[part, :2], y[part]) for part in (slice(0, 40), slice(40, None)))
    return ns.audit_signals(train, test).save(tmp_path_factory.mktemp("saved") / "audit")


GATE = ("--max-auc", "1")


def test_a_gate_that_says_no_is_the_only_1(run, audit):
    assert run("gate", audit, "--max-auc", "0")[0] == 1
    assert run("gate", audit, "--max-auc", "1")[0] == 0


BREAKS_GATE = """
import sys
import noshadow.cli.gating as gating
from noshadow.cli import main
def sabotage(name, code):
    exec(compile(code, gating.__file__, "exec"), gating.__dict__)
sabotage("checked", {code!r})
sys.argv = ["noshadow", *{arguments!r}]
main()
"""


def broken_run(code, *arguments, environment=None):
    """The gate in a process of its own, with `checked` replaced by code that stands in our file."""
    script = BREAKS_GATE.format(code=dedent(code), arguments=[str(word) for word in arguments])
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=os.environ | (environment or {}), check=False
    )


BUG = """
def checked(*_):
    return {}["lost\\x1b[2J"]
"""


@pytest.mark.parametrize(
    ("arguments", "environment", "traced"),
    [
        ((), {}, False),
        (("--traceback",), {}, True),
        ((), {"NOSHADOW_TRACEBACK": "1"}, True),
        ((), {"NOSHADOW_TRACEBACK": "0"}, False),
        ((), {"NOSHADOW_TRACEBACK": ""}, False),
    ],
)
def test_a_bug_ends_with_70_and_its_traceback_on_request(audit, arguments, environment, traced):
    done = broken_run(BUG, "gate", audit, *GATE, *arguments, environment=environment)
    assert (done.returncode, done.stdout) == (70, "")
    *before, last = done.stderr.splitlines()
    assert last.startswith("noshadow: an error in noshadow itself, not in your input: KeyError: ")
    assert last.endswith("(line 3 of gating.py). Run again with --traceback (or NOSHADOW_TRACEBACK=1) and report what it prints.")
    assert bool(before) == ("Traceback" in done.stderr) == traced and "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("code", "ended", "words"),
    [
        ("def checked(*_): raise MemoryError('Unable to allocate 7 TiB')", 2, "there must be enough memory; got MemoryError: Unable to"),
        ("def checked(*_): raise PermissionError(13, 'Permission denied', 'x')", 2, "the system refused: PermissionError: [Errno 13]"),
        ("def checked(*_): raise EOFError('a file ended')", 70, "an error in noshadow itself, not in your input: EOFError: a file ended"),
        ("def checked(*_): raise RecursionError", 70, "not in your input: RecursionError (line 1 of gating.py)"),
        ("def checked(*_): raise KeyboardInterrupt", 130, "noshadow: stopped."),
    ],
)
def test_everything_else_has_a_code_and_a_sentence(audit, code, ended, words):
    done = broken_run(code, "gate", audit, *GATE)
    assert (done.returncode, done.stdout) == (ended, "") and words in done.stderr and "\n" not in done.stderr.strip()


USERS = """
    import sys
    import numpy as np
    import torch
    import noshadow as ns
    x, y = torch.randn(20, 3), torch.arange(20) % 2

    class Records(torch.utils.data.Dataset):
        def __init__(self, error): self.error = error
        def __len__(self): return 20
        def __getitem__(self, row):
            if row == 13: raise self.error
            return x[row], y[row]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(3, 2)
        def forward(self, x):
            if len(x) > 10: sys.exit(1)
            return self.head(x)

    def reads(): return ns.Target(torch.nn.Linear(3, 2), Records(ValueError("no such scan")), (x, y))
    def leaves(): return ns.Target(torch.nn.Linear(3, 2), Records(SystemExit(1)), (x, y))
    def exits(): return ns.Target(Model(), (x, y), (x, y))
    def works():
        data = torch.utils.data.DataLoader(Records(ValueError("no such scan")), num_workers=1)
        return ns.Target(torch.nn.Linear(3, 2), data, (x, y))
    def ragged():
        rows = [(torch.zeros(3 + row % 2), row % 2) for row in range(20)]
        return ns.Target(torch.nn.Linear(3, 2), rows, (x, y))
    def raises(): return {}["a key"]
"""


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("reads", "audit: train must give its records batch by batch; got ValueError (no such scan)."),
        ("works", "audit: train must give its records batch by batch; got ValueError (ValueError: no such scan)."),
        ("ragged", "audit: train must give its records batch by batch; got RuntimeError (stack expects"),
        ("ragged", "records of different lengths take a DataLoader whose collate_fn pads them"),
        ("raises", "must return a noshadow.Target; it raised KeyError: 'a key' (line "),
        ("leaves", "your code must run without an error; it raised SystemExit: 1 (line 12 of users_failures.py)."),
        ("exits", "your code must run without an error; it raised SystemExit: 1 (line 20 of users_failures.py)."),
    ],
)
def test_what_the_users_code_raises_is_the_users(run, tmp_path, function, words):
    (tmp_path / "users_failures.py").write_text(dedent(USERS))
    sys.modules.pop("users_failures", None)
    code, out, err = run("audit", f"users_failures:{function}", "--out", "a")
    assert (code, out) == (2, "") and words in err and err.count("\n") == 1, err
    assert not Path("a").exists()


def test_the_origin_is_the_last_line_of_ours_or_theirs():
    """The frames of other packages belong to whoever called them."""
    try:
        np.linalg.inv(np.ones((2, 3)))
    except np.linalg.LinAlgError as error:
        place, is_users = failures._origin(error, ())
        assert is_users and "test_cli_failures.py" in place
    try:
        ns.load("nowhere")
    except ns.InputError as error:
        place, is_users = failures._origin(error, ())
        assert not is_users and "errors.py" in place
    installed = {"__name__": "users_package.models"}
    code = compile("def raises():\n    raise ValueError\n", "/usr/lib/python3/dist-packages/users_package/models.py", "exec")
    exec(code, installed)
    try:
        installed["raises"]()
    except ValueError as error:
        assert failures._origin(error, {"users_package"}) == (" (line 2 of models.py)", True)


def test_an_output_nobody_reads_is_no_gate(audit):
    for arguments in (("gate", str(audit), *GATE), ("compare", str(audit), str(audit))):
        read, write = os.pipe()
        os.close(read)
        try:
            done = subprocess.run([*MAIN, *arguments], stdout=write, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        finally:
            os.close(write)
        assert (done.returncode, done.stderr) == (141, "noshadow: the output was not read to its end.\n"), arguments


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_the_output_is_no_gate(audit):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*MAIN, "gate", str(audit), *GATE], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 2 and "the system refused: OSError: [Errno 28]" in done.stderr and "Traceback" not in done.stderr


def test_a_console_without_our_characters_gets_their_codes(audit):
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [*MAIN, "compare", str(audit), str(audit)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "\\u2192" in done.stdout


def test_codes_are_those_of_the_help_and_the_documentation(run):
    help_text = " ".join(run("--help")[1].split())
    folder = (Path(__file__).parents[1] / "docs" / "folder.md").read_text(encoding="utf-8")
    for code in (0, 1, failures.WRONG_INPUT, failures.NUMERICAL, failures.OWN_ERROR, failures.STOPPED):
        assert f"{code} " in help_text.split("Exit codes:")[1] and f"\n| {code} |" in folder
    assert f"\n| {failures.NOBODY_READS} |" in folder
    assert "--traceback" in help_text and "NOSHADOW_TRACEBACK" in folder
