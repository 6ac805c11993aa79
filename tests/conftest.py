"""Fixtures that several test files share."""

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
