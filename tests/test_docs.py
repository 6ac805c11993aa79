"""README and docs: their Python runs, their claims about versions and files are true, and examples work."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

import noshadow as ns
from extras import extra
from noshadow import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BUILT = ("demo", "audit", "report", "gate", "compare", "reference", "lood")
RUN = [ROOT / "docs" / "compare.md"]  # pages whose commands work after their Python


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if python_blocks(p)], ids=lambda p: p.name)
def test_python_blocks_run(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    if any("from transformers import" in block for block in python_blocks(page)):
        extra("transformers")
    for block in python_blocks(page):
        exec(compile(block, page.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_run(example, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_the_ten_line_example_is_ten_lines():
    (block,) = python_blocks(ROOT / "README.md")
    assert len([line for line in block.splitlines() if line.strip()]) <= 10


def test_versions_agree():
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{ns.__version__}"' in project
    (minimum,) = re.findall(r'^requires-python = ">=([\d.]+)"$', project, flags=re.MULTILINE)
    assert f"Python {minimum} or newer" in (ROOT / "README.md").read_text()


def test_links_between_files_resolve():
    for page in (*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} → {target}"


def test_commands_of_readme_and_docs_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for name in re.findall(r"^\$ make (\w+)", page.read_text(), flags=re.MULTILINE):
            assert re.search(rf"^{name}:", makefile, flags=re.MULTILINE), name
        for name in re.findall(r"noshadow (demo|audit|report|gate|compare|lood|reference)\b", page.read_text()):
            assert name in BUILT, f"{page.name} names a command that is not built: {name}"


@pytest.mark.parametrize("page", RUN, ids=lambda p: p.name)
def test_commands_run_after_the_pages_python(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    for block in python_blocks(page):
        exec(compile(block, page.name, "exec"), {"__name__": "__main__"})
    lines = re.findall(r"^\$ (noshadow .*)$", page.read_text(), flags=re.MULTILINE)
    assert lines
    for line in lines:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code, (line, capsys.readouterr().err)


def test_public_names_are_documented():
    for name in ns.__all__:
        assert getattr(ns, name).__doc__, name
