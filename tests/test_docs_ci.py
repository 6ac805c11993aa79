"""The workflow and the hook of docs/how-to/ci.md are run as scripts: they pass within limits, and fail by name beyond them."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from noshadow import cli

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "ci.md"
LIMIT = re.compile(r"--max-(\S+) (\S+)")


def block(language, first_line):
    """The code block of the page that begins with this remark."""
    (found,) = re.findall(rf"```{language}\n# {re.escape(first_line)}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return found


def workflow_steps():
    (job,) = yaml.safe_load(block("yaml", ".github/workflows/membership-risk.yml"))["jobs"].values()
    return job["steps"]


def workflow_lines():
    """The `run:` lines; the first installs and is not run here."""
    return [step["run"] for step in workflow_steps() if "run" in step]


def hook():
    (repository,) = yaml.safe_load(block("yaml", ".pre-commit-config.yaml"))["repos"]
    (only,) = repository["hooks"]
    assert repository["repo"] == "local"
    return only


def in_shell(line, folder):
    """Run a line as a runner does: bash that stops at the first error."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", line], cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A checkout with the page's audits.py in which the workflow's audit has run."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "audits.py").write_text(block("python", "audits.py"))
    _, audit, _ = workflow_lines()
    done = in_shell(audit, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "--quiet prints nothing"
    return folder


def test_the_workflow_installs_before_it_runs():
    uses = [step["uses"].partition("@")[0] for step in workflow_steps() if "uses" in step]
    assert uses == ["actions/checkout", "actions/setup-python"]
    install, *commands = workflow_lines()
    assert install == "pip install -r requirements.txt"
    assert "`requirements.txt` names what your model needs and `noshadow`" in PAGE.read_text()
    assert [shlex.split(line)[:2] for line in commands] == [["noshadow", "audit"], ["noshadow", "gate"]]


def test_the_hook_is_one_that_pre_commit_accepts():
    given = hook()
    assert {"id", "name", "entry", "language"} <= set(given)
    assert given["language"] == "system"  # whatever is on the path, as `noshadow` is
    assert given["always_run"] and not given["pass_filenames"]  # the folder is not among the files of a push
    assert given["stages"] == ["pre-push"]


def test_hook_and_workflow_ask_for_the_same():
    assert shlex.split(hook()["entry"]) == shlex.split(workflow_lines()[-1])


def test_within_limits_the_gate_passes(audited):
    done = in_shell(workflow_lines()[-1], audited)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("pass") == len(LIMIT.findall(workflow_lines()[-1])) == 2


def stricter(line, name):
    """The line with one limit set to 0, which no figure of the audit is."""
    return LIMIT.sub(lambda limit: f"--max-{limit[1]} {0 if limit[1] == name else limit[2]}", line)


def test_beyond_a_limit_the_hook_fails_and_names_it(audited):
    done = in_shell(stricter(hook()["entry"], "tnr"), audited)
    assert done.returncode == 1
    assert re.fullmatch(r"1 of 2 limits exceeded: tnr 0\.\d+ > 0", done.stdout.splitlines()[-1])


# In this process, since every start of Python with torch takes seconds.
def test_beyond_the_other_limit_the_gate_names_that_one(audited, run_here):
    code, told = run_here(stricter(workflow_lines()[-1], "auc"), audited)
    assert code == 1
    assert re.fullmatch(r"1 of 2 limits exceeded: auc 0\.\d+ > 0", told.out.splitlines()[-1])


def test_without_an_audit_the_gate_cannot_decide(tmp_path, run_here):
    code, told = run_here(hook()["entry"], tmp_path)
    assert code == 2
    assert "must hold an audit" in told.err


@pytest.fixture
def run_here(monkeypatch, capsys):
    def run(line, folder):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code, capsys.readouterr()

    return run
