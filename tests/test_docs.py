"""README and docs: their Python and commands run, their claims about versions and files are true, and examples work."""

import pkgutil
import re
import runpy
import shlex
import sys
from pathlib import Path
from types import FunctionType

import pytest
import typer

import noshadow as ns
from extras import extra
from noshadow import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# tests/test_examples.py runs these and looks at what they say.
LOOKED_AT = set(re.findall(r'example\("(\w+)"\)', (ROOT / "tests" / "test_examples.py").read_text()))
# Pages whose commands work after their Python; commands of the others name audits and models that a page does not make.
RUN = [ROOT / "README.md"]
RUN += [
    DOCS / f"{name}.md"
    for name in ("compare", "quickstart", "how-to/torch", "how-to/scikit-learn", "how-to/arrays", "how-to/own-loop", "how-to/files")
]
EXTRAS = ("transformers", "opacus", "lightning", "matplotlib", "skops", "onnxruntime")


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)


def commands(path):
    """The command lines of a page, `a && b` as two, without remarks."""
    lines = re.findall(r"^\$ (noshadow .*)$", path.read_text(), flags=re.MULTILINE)
    return [shlex.split(part, comments=True) for line in lines for part in line.split(" && ")]


def page_name(path):
    return str(path.relative_to(ROOT))


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty folder to be in, from which modules can be imported that are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    # What a page registers is forgotten with it.
    monkeypatch.setattr("noshadow.views.readers._registered", [])
    yield tmp_path
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


def run_python(page, folder):
    """Run a page's blocks one by one; a block that begins with a file's name is saved under it, as the reader is told to."""
    for block in python_blocks(page):
        named = re.match(r"# (\w+\.py)\n", block)
        if named:
            (folder / named[1]).write_text(block)
        exec(compile(block, page.name, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", [p for p in PAGES if python_blocks(p)], ids=page_name)
def test_python_and_commands_run(page, folder, monkeypatch, capsys):
    for name in EXTRAS:
        if any(re.search(rf"^\s*(from|import) {name}\b", block, flags=re.MULTILINE) for block in python_blocks(page)):
            extra(name)
    run_python(page, folder)
    assert capsys.readouterr().out
    if page not in RUN:
        return
    assert commands(page)
    for line in commands(page):
        monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code, (line, capsys.readouterr().err)


def test_the_finding_that_quickstart_explains_is_the_one_it_prints(folder, capsys):
    page = DOCS / "quickstart.md"
    run_python(page, folder)
    assert set(re.findall(r"NS\d{3}", page.read_text())) == set(re.findall(r"^NS\d{3}", capsys.readouterr().out, flags=re.MULTILINE))


def test_examples_are_scripts():
    assert {path.stem for path in EXAMPLES} >= LOOKED_AT
    assert all('if __name__ == "__main__":' in path.read_text() for path in EXAMPLES if path.stem in LOOKED_AT)


@pytest.mark.parametrize("example", [path for path in EXAMPLES if path.stem not in LOOKED_AT], ids=lambda p: p.stem)
def test_examples_run(example, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    # Reference models are trained here: workers would start Python with torch anew, and the other core runs tests of its own.
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
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


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_commands_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    for name in re.findall(r"^\$ make (\w+)", page.read_text(), flags=re.MULTILINE):
        assert re.search(rf"^{name}:", makefile, flags=re.MULTILINE), name
    known = typer.main.get_command(cli.app)
    for words in commands(page):
        command, rest = known, words[1:]
        while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            assert rest[0] in command.commands, words
            command, rest = command.commands[rest[0]], rest[1:]
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
        assert {word for word in rest if word.startswith("--")} <= options, words


def documented():
    """Heading → dotted path of everything on the API page."""
    entries = re.findall(r"^::: (\S+)\n    options:\n      heading: ns\.(\S+)$", (DOCS / "api.md").read_text(), flags=re.MULTILINE)
    return {heading: path for path, heading in entries}


def test_public_names_are_documented():
    for name in ns.__all__:
        assert getattr(ns, name).__doc__, name


def test_every_public_name_is_on_the_api_page():
    packages = {name: getattr(ns, name) for name in ("attacks", "canaries", "metrics", "reference", "theory")}
    public = {name: getattr(ns, name) for name in ns.__all__ if name not in packages}
    public |= {f"{package}.{name}": getattr(module, name) for package, module in packages.items() for name in module.__all__}
    shown = {heading: pkgutil.resolve_name(path) for heading, path in documented().items()}
    for name, thing in public.items():
        if isinstance(thing, (type, FunctionType)):
            assert shown.get(name) is thing or (thing in shown.values() and name not in shown), name
    assert set(shown) <= set(public), "the page names something that is not public"


def test_the_site_is_pages_and_pictures_and_what_renders_them_is_elsewhere():
    assert not list(DOCS.rglob("*.py")) and (ROOT / "tools" / "render_benchmarks.py").is_file()


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    for page in DOCS.rglob("*.md"):
        assert f" {page.relative_to(DOCS)}\n" in navigation, page
