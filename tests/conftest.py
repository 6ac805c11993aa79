"""Fixtures that several test files share."""

import sys

import pytest

from noshadow import cli


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
