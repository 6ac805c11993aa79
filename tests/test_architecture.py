"""The import table of ARCHITECTURE.md is true."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "noshadow"
FILES = sorted(PACKAGE.rglob("*.py"))
TRAINING = {"backward", "step", "fit"}


def table():
    """Room → rooms it may import, from the rows `| `room` | job | `a`, `b` |` of ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|([^|]*)\|$", text, flags=re.MULTILINE)
    return {room: set(re.findall(r"`(\w+)`", allowed)) for room, allowed in rows}


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "noshadow":
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "a relative import"
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("noshadow."))


@pytest.mark.parametrize("path", [f for f in FILES if f != PACKAGE / "__init__.py"], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_table(path):
    room, rooms = room_of(path), table()
    assert room in rooms, f"{room} has no row in ARCHITECTURE.md"
    wrong = {name for name in imported_rooms(ast.parse(path.read_text())) if name != room and name not in rooms[room]}
    assert not wrong, f"{path.name} imports {wrong}"


def test_the_table_has_no_cycle_and_every_room_of_the_first_part_exists():
    rooms = table()
    done, active = set(), []

    def visit(room):
        assert room not in active, f"cycle through {active}"
        if room in done:
            return
        active.append(room)
        for other in rooms[room]:
            visit(other)
        active.pop()
        done.add(room)

    for room in rooms:
        visit(room)
    present = {room_of(f) for f in FILES} - {"__init__"}
    assert present <= set(rooms)
    assert set(rooms) == present


def test_scores_and_attacks_never_meet():
    rooms = table()
    assert "attacks" not in rooms["scores"]
    assert "scores" not in rooms["attacks"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_is_imported_inside_a_function(path):
    for function in (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, (ast.FunctionDef, ast.Lambda))):
        inner = [n.lineno for n in ast.walk(function) if isinstance(n, (ast.Import, ast.ImportFrom))]
        assert not inner, f"import inside a function at line {inner[0]}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_reference_and_demo_train(path):
    if room_of(path) in ("reference", "demo"):
        return
    # Attack classifiers learn from outputs; nobody's model is trained there.
    allowed = {"fit"} if path == PACKAGE / "attacks" / "shokri.py" else set()
    calls = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    assert not [c.lineno for c in calls if c.func.attr in TRAINING - allowed]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_is_unpickled(path):
    source = path.read_text()
    assert not re.search(r"\bpickle\b|\bdill\b|joblib\.load|allow_pickle=True|weights_only=False|yaml\.(unsafe_)?load\(", source)
    for call in (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)):
        if ast.unparse(call.func) in ("np.load", "numpy.load", "torch.load"):
            safe = {("allow_pickle", False), ("weights_only", True)}
            assert safe & {(k.arg, getattr(k.value, "value", None)) for k in call.keywords}, ast.unparse(call)


def test_import_runs_nothing_and_loads_no_extra():
    extras = [
        "transformers",
        "lightning",
        "pytorch_lightning",
        "opacus",
        "distributed",
        "ray",
        "dask",
        "plotly",
        "matplotlib",
        "statsmodels",
        "dattri",
        "IPython",
    ]
    code = f"import sys, threading; import noshadow; print([m for m in {extras} if m in sys.modules], threading.active_count())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[] 1"
    assert result.stderr == ""
