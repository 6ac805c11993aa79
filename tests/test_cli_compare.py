"""The commands around findings and two audits: compare, the terminal's summary, help everywhere, completion in the shell."""

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console

from noshadow import Signals, audit_signals, cli, findings, load
from noshadow._findings import most_severe
from noshadow.cli.printing import print_audit

MAIN = [sys.executable, "-c", "from noshadow.cli import main; main()"]
PLAIN = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "NO_COLOR")}


def made(scale=1.0, ids=None):
    rng = np.random.default_rng(8)
    x = rng.normal(size=(400, 3))
    logits = x @ rng.normal(size=(3, 3))
    labels = (logits + rng.gumbel(size=(400, 3))).argmax(1)
    logits[:200] += scale * np.eye(3)[labels[:200]]  # the more, the better the model knows its own
    train, test = (Signals(x[s], logits[s], labels[s]) for s in (slice(200), slice(200, 400)))
    return audit_signals(train, test, damping=1.0, fpr=0.05, ids=ids)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("audits")
    return [made(scale).save(place / name) for scale, name in ((0.0, "before"), (3.0, "after"))]


# compare


def test_compare_says_what_changed(run, folders):
    code, out, err = run("compare", *folders)
    assert (code, err) == (0, "") and "\x1b" not in out and "─" not in out
    assert out.startswith("Model risk rose by more than noise: ")
    assert "TNR of the loss attack at FNR 0.05: " in out and "more than noise" in out and "Rank correlation over shared records: " in out
    assert re.search(r"Entered the top 1 %: \d", out) and "Findings gained: " in out and "Findings lost: " in out
    assert "Differs: training signals (SHA-256): " in out and "Note: the intervals speak of the records" in out


def test_compare_writes_a_page_and_speaks_json(run, folders):
    code, out, err = run("compare", *folders, "--out", "change.html", "--json", "--fpr", 0.1, "--seed", 3)
    assert (code, err) == (0, "") and out.count("\n") == 1
    said = json.loads(out)
    assert said["changes"][0]["label"] == "TNR of the loss attack at FNR 0.1" and said["seed"] == 3 and said["shared"] == 200
    page = Path("change.html").read_text(encoding="utf-8")
    assert said["verdict"].split(":")[0] in page and repr(said["changes"][0]["difference"]) in page
    assert run("compare", *folders, "--quiet", "--out", "other.html") == (0, "", "") and Path("other.html").exists()
    assert run("compare", *folders, "--out", "shown.html")[1].endswith("Page: shown.html\n")


def test_compare_on_other_data_says_what_can_still_be_compared(run, folders, tmp_path):
    other = made(ids=[f"[/b]\x1b[31m{i}" for i in range(200)]).save(tmp_path / "other")
    code, out, err = run("compare", folders[0], other)
    assert (code, err) == (0, "") and "Records: 0 in both, 200 in the first only, 200 in the second only" in out
    assert "no record id in common" in out and "TNR of the loss attack" in out and "Rank correlation: not applicable" in out


def test_compare_refuses_what_is_no_audit_in_one_line(run, folders, tmp_path):
    broken = made().save(tmp_path / "broken")
    (broken / "losses.npz").write_bytes(b"other")
    newer = made().save(tmp_path / "newer")
    manifest = json.loads((newer / "audit.json").read_text())
    (newer / "audit.json").write_text(json.dumps(manifest | {"format": 99}))
    for args, match in (
        (("absent", folders[0]), "load: folder must hold an audit .audit.json.; got 'absent'"),
        ((folders[0], broken), "with losses.npz missing or altered"),
        ((newer, folders[0]), "folder must be of format 1; got 99. Run the audit again with this version, or update noshadow"),
        ((*folders, "--out", "x.pdf"), "--out must end in .html; got 'x.pdf'"),
        ((*folders, "--out", "no/such/x.html"), "path must be writable; got 'no/such/x.html'"),
        ((*folders, "--fpr", 0.001), "compare: fpr must be at least 0.005"),
        ((folders[0],), "Missing argument"),
    ):
        code, out, err = run("compare", *args)
        assert (code, out) == (2, "") and err.count("\n") == 1 and "Traceback" not in err
        assert re.search(match, err), err


# gate


def test_the_gate_says_which_limit_failed(run, folders):
    risk = load(folders[1]).model_risk
    code, out, err = run("gate", folders[1], "--max-auc", 0.01, "--max-tnr", 1)
    assert (code, err) == (1, "") and out.splitlines()[-1] == f"1 of 2 limits exceeded: auc {risk.auc:.4g} > 0.01"
    assert "exceeded" not in run("gate", folders[1], "--max-auc", 1)[1]


def test_the_gate_reads_predictions_without_an_interval(run, folders, tmp_path):
    audited = load(folders[0])
    risk = replace(audited.model_risk, predicted_tpr=0.4, predicted_tpr_interval=None, in_calibration_domain=True)
    predicted = replace(audited, model_risk=risk).save(tmp_path / "predicted")
    code, out, err = run("gate", predicted, "--max-predicted-tpr", 0.3)
    assert (code, err) == (1, "") and "FAIL  predicted_tpr = 0.4 (no interval), limit 0.3" in out


# audit's summary


@pytest.fixture
def signals(tmp_path):
    audited = np.random.default_rng(1)
    x = audited.normal(size=(300, 3))
    arrays = {}
    for split, rows in (("train", slice(150)), ("test", slice(150, 300))):
        arrays |= {f"{split}_features": x[rows], f"{split}_outputs": x[rows], f"{split}_targets": np.arange(300)[rows] % 3}
    np.savez(tmp_path / "signals.npz", **arrays)
    return tmp_path / "signals.npz"


def test_findings_are_in_the_json_and_in_the_lines(run, signals):
    code, out, err = run("audit", signals, "--out", "a", "--json")
    said = json.loads(out)
    assert (code, err) == (0, "") and said["findings"] == [finding.to_dict() for finding in findings(load("a"))]
    code, out, err = run("audit", signals, "--out", "b")
    assert (code, err) == (0, "") and "\x1b" not in out and not re.search("[─│┃╭]", out)
    drawn = load("b").findings
    found = [finding for finding in drawn if finding.status == "found"]
    assert f"Findings: {len(found)} found, " in out and all(f"{finding.code} {finding.severity}" in out for finding in found[:1])
    assert out.rstrip().splitlines()[-1].startswith("Report: b/report.html")


def on_a_terminal(audited):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, highlight=False, soft_wrap=True)
    print_audit(audited, Path("a/report.html"), 1.0, console)
    return file.getvalue()


def test_on_a_terminal_there_is_a_panel_with_risk_findings_and_the_report():
    audited = made(3.0)
    text = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal(audited))
    assert "╭─ Membership audit" in text and "Loss AUC" in text and "interval" in text and "Report: a/report.html" in text
    assert all(len(line) <= 100 for line in text.splitlines() if line.startswith(("│", "╭", "╰")))
    found = most_severe(audited.findings)
    assert found and all(finding.code in text for finding in found[:5])
    risk = replace(audited.model_risk, predicted_tpr=0.25, predicted_tpr_interval=(0.2, 0.3), in_calibration_domain=True)
    assert "Predicted attack TPR at FPR 0.05" in on_a_terminal(replace(audited, model_risk=risk))


def test_hostile_ids_and_groups_are_harmless_on_a_terminal():
    audited = made(ids=[f"[/red]\x1b[5m\r{i}" for i in range(200)])
    text = on_a_terminal(replace(audited, records=audited.records.assign(label="[blink]x\x1b[0m")))
    assert "\x1b[5m" not in text and "\r" not in text and "[/red]" in text


def read_to_the_end(descriptor, process, seconds=240):
    """What a process writes to a pseudo-terminal until it closes it."""
    content, deadline = b"", time.monotonic() + seconds
    while time.monotonic() < deadline:
        if select.select([descriptor], [], [], 0.2)[0]:
            try:
                part = os.read(descriptor, 65536)
            except OSError:  # Linux: the other side is closed
                break
            if not part:
                break
            content += part
        elif process.poll() is not None:
            break
    return content


def test_a_real_terminal_gets_colours_and_a_pipe_does_not(signals, tmp_path):
    ours, theirs = pty.openpty()
    command = [*MAIN, "audit", str(signals), "--out", "a"]
    environment = PLAIN | {"TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    try:
        content = read_to_the_end(ours, process).decode()
        assert process.wait(60) == 0
    finally:
        os.close(ours)
    assert "\x1b[" in content and "Membership audit" in content and "Report: a/report.html" in re.sub(r"\x1b\[[0-9;]*m", "", content)


# Help and completion


def commands(group, path=()):
    """Every command of the application, by the words that call it."""
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


ALL = list(commands(typer.main.get_command(cli.app)))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_explains_itself_with_an_example(run, words):
    code, out, err = run(*words, "--help")
    assert (code, err) == (0, "")
    text = " ".join(re.sub("[│╭╰─╮╯]", " ", out).split())
    assert f"noshadow {' '.join(words)}" in text.split("Example: ")[1]


def test_the_commands_are_these():
    assert {("audit",), ("compare",), ("demo",), ("gate",), ("report",), ("reference", "train")} <= set(ALL)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_is_told_how_to_complete(run, shell, monkeypatch):
    # The shell is otherwise read from the parent process, which is none in a test.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    code, out, err = run("--show-completion", shell)
    assert (code, err) == (0, "") and "_NOSHADOW_COMPLETE" in out and f"complete_{shell}" in out


def test_completion_completes(tmp_path):
    """What the installed script asks for when somebody types `noshadow com<TAB>`."""
    script = Path(sys.executable).with_name("noshadow")
    if not script.exists():
        pytest.skip("the console script is not installed beside this Python")
    environment = PLAIN | {"_NOSHADOW_COMPLETE": "complete_bash", "COMP_WORDS": "noshadow com", "COMP_CWORD": "1"}
    done = subprocess.run([str(script)], cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=240)
    assert done.stdout.split() == ["compare"] and done.stderr == ""
