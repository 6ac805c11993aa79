"""Fixtures that several test files share."""

import os
import sys
from pathlib import Path

import pytest

from noshadow import cli

# Helpers of tests hold no tests: collected as doctest modules they would import clusters that are not installed.
collect_ignore = sorted(str(path) for path in Path(__file__).parent.rglob("*.py") if not path.name.startswith(("test_", "conftest")))


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a command in tmp_path as the console script does: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["noshadow", *map(str, args)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        return stopped.value.code or 0, out, err

    return call


def pytest_terminal_summary(terminalreporter):
    """Keep the names of skipped tests where NOSHADOW_SKIPPED says: `.ci/run` runs them again with every extra."""
    kept = os.environ.get("NOSHADOW_SKIPPED")
    if kept and not os.environ.get("NOSHADOW_REQUIRE_EXTRAS"):
        names = sorted({report.nodeid for report in terminalreporter.stats.get("skipped", [])})
        Path(kept).write_text("".join(f"{name}\n" for name in names))


def pytest_sessionfinish(session):
    """Where everything must be installed, a skipped test is a failed run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("NOSHADOW_REQUIRE_EXTRAS") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
