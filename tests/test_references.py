"""docs/references.md and the docstrings' Reference lines point at each other, and at things that exist."""

import ast
import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "references.md").read_text()
ROWS = re.findall(r"^\| (?P<source>[^|]+) \| [^|]+ \| `(?P<function>[\w.]+)` \| `(?P<test>[\w./]+)` \|$", TEXT, flags=re.MULTILINE)
PAPER = re.compile(r"\[(RET|GLS|TAIL|LOOD)\]")


def public_functions_with_references():
    """Dotted names of the public functions whose docstring cites a paper."""
    for path in sorted((ROOT / "src" / "noshadow").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                lines = re.findall(r"Reference:(.*)", ast.get_docstring(node) or "")
                if lines and PAPER.search(lines[0]):
                    yield f"{module}.{node.name}", set(PAPER.findall(lines[0]))


def defined_as(function):
    """Where the function a row names is defined, e.g. noshadow.theory.closed_forms.tradeoff."""
    module, _, name = function.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    return f"{found.__module__}.{name}"


def test_every_row_names_a_function_and_a_test_that_exist():
    assert len(ROWS) >= 15
    for source, function, test in ROWS:
        module, _, name = function.rpartition(".")
        documented = getattr(importlib.import_module(module), name)
        assert documented.__doc__, function
        path = ROOT / test
        assert path.is_file(), test
        short = function.rsplit(".", 1)[1]
        columns = {"regression_columns", "binary_columns", "block_columns", "margin_leverages", "loss_trace_iqr"}
        assert short in path.read_text() or short in columns, f"{test} never mentions {short}"
        assert PAPER.search(source) or any(word in source for word in ("ours", "Pollock", "above"))


def test_every_cited_function_has_a_row():
    listed = {defined_as(function) for _, function, _ in ROWS}
    missing = {name for name, _ in public_functions_with_references()} - listed
    assert not missing, f"cite a paper but have no row in docs/references.md: {sorted(missing)}"


def test_every_paper_key_used_is_defined():
    defined = set(re.findall(r"^- \*\*\[(\w+)\]\*\*", TEXT, flags=re.MULTILINE))
    used = {key for _, keys in public_functions_with_references() for key in keys}
    assert used <= defined
