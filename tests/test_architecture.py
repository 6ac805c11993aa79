"""The import table of ARCHITECTURE.md is true."""

import ast
import functools
import importlib
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import conftest
import noshadow

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "noshadow"
FILES = sorted(PACKAGE.rglob("*.py"))
TRAINING = {"backward", "step", "fit"}


def table():
    """Room → rooms it may import, from the rows `| `room` | job | `a`, `b` |` of ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|([^|]*)\|$", text, flags=re.MULTILINE)
    return {room: set(re.findall(r"`(\w+)`", allowed)) for room, allowed in rows}


@functools.cache
def parsed(path):
    """The file's syntax tree, made once for all tests that walk it."""
    return ast.parse(path.read_text())


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "noshadow":
            parts = node.module.split(".")
            # `__version__` is the package's own word, not a room.
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names if alias.name != "__version__"]
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "a relative import"
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("noshadow."))


@pytest.mark.parametrize("path", [f for f in FILES if f != PACKAGE / "__init__.py"], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_table(path):
    room, rooms = room_of(path), table()
    assert room in rooms, f"{room} has no row in ARCHITECTURE.md"
    wrong = {name for name in imported_rooms(parsed(path)) if name != room and name not in rooms[room]}
    assert not wrong, f"{path.name} imports {wrong}"


def private_imports(tree):
    """Names with a leading underscore that a file takes out of another of our modules; packages such as `_audit` are not names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "noshadow":
            inner = len(node.module.split(".")) > 1
            yield from (f"{node.module}.{alias.name}" for alias in node.names if inner and alias.name.startswith("_"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_file_imports_a_private_name_of_another(path):
    assert not list(private_imports(parsed(path)))


def test_every_permission_of_the_table_is_used():
    used = {room: set() for room in table()}
    for path in (f for f in FILES if f != PACKAGE / "__init__.py"):
        used[room_of(path)] |= set(imported_rooms(parsed(path)))
    unused = {room: sorted(allowed - used[room]) for room, allowed in table().items() if allowed - used[room]}
    assert not unused


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


def is_command(function):
    """Whether a function is a command: decorated with `app.command(…)` of a typer application."""
    calls = (d.func for d in getattr(function, "decorator_list", []) if isinstance(d, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr == "command" for call in calls)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_is_imported_inside_a_function_but_a_command(path):
    for function in (n for n in ast.walk(parsed(path)) if isinstance(n, (ast.FunctionDef, ast.Lambda))):
        if room_of(path) == "cli" and is_command(function):
            continue
        inner = [n.lineno for n in ast.walk(function) if isinstance(n, (ast.Import, ast.ImportFrom))]
        assert not inner, f"import inside a function at line {inner[0]}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_are_looked_up_by_name_in_one_lazy_table_only(path):
    # Extras (ray, dask, lightning, transformers) are found by name where a user asks for them; our own modules only in the table.
    lazy = re.findall(r"import_module\(f?[\"']noshadow", path.read_text())
    assert bool(lazy) == (path == PACKAGE / "__init__.py"), lazy


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nobody_but_an_audits_report_goes_through_the_public_list(path):
    tree = parsed(path)
    whole = [n for n in ast.walk(tree) if isinstance(n, ast.Import) and any(alias.name == "noshadow" for alias in n.names)]
    used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "noshadow"}
    upwards = path == PACKAGE / "results" / "audit_record.py"
    assert (bool(whole), used) == ((True, {"write_report"}) if upwards else (False, set()))


def test_the_lazy_table_holds_the_public_list_and_what_a_type_checker_reads():
    tree = parsed(PACKAGE / "__init__.py")
    checked = {
        alias.name: (node.module or "").removeprefix("noshadow").removeprefix(".")
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        for alias in node.names
    }
    assert checked == noshadow._HOMES
    assert sorted(checked) == sorted(noshadow.__all__) and set(checked) <= set(dir(noshadow))
    for name, home in checked.items():
        owner = importlib.import_module(f"noshadow.{home}" if home else "noshadow")
        assert getattr(noshadow, name) is getattr(owner, name), name


def test_no_public_name_is_a_package_and_something_else():
    packages = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert {name for name in noshadow.__all__ if name in packages} == {name for name, home in noshadow._HOMES.items() if home == ""}
    with pytest.raises(AttributeError, match="module 'noshadow' has no attribute 'lodd'"):
        _ = noshadow.lodd


HEAVY = ("torch", "sklearn", "scipy.stats")


def loaded_by(*arguments):
    """Modules that a run of Python has imported at its end, by `-X importtime`."""
    done = subprocess.run([sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import noshadow; dir(noshadow)"),
        ("-m", "noshadow", "--help"),
        ("-m", "noshadow", "--version"),
        ("-m", "noshadow", "audit", "--help"),
        ("-m", "noshadow", "reference", "train", "--help"),
        ("-m", "noshadow", "lood", "--help"),
        ("-m", "noshadow", "gate", "AUDIT", "--max-auc", "1"),
        ("-m", "noshadow", "compare", "AUDIT", "AUDIT", "--out", "OUT.html"),
        ("-m", "noshadow", "report", "AUDIT"),
    ],
    ids=" ".join,
)
def test_light_commands_load_nothing_heavy(arguments, saved_audit, tmp_path):
    named = {"AUDIT": str(saved_audit), "OUT.html": str(tmp_path / "out.html")}
    code, loaded = loaded_by(*(named.get(argument, argument) for argument in arguments))
    assert code == 0
    assert "noshadow" in loaded and not set(HEAVY) & loaded


def test_completion_loads_nothing_heavy():
    code = (
        "import os, sys; os.environ.update(_NOSHADOW_COMPLETE='complete_bash', COMP_WORDS='noshadow ', COMP_CWORD='1'); "
        "sys.argv = ['noshadow']; from noshadow.cli import main; main()"
    )
    _, loaded = loaded_by("-c", code)
    assert "noshadow.cli" in loaded and not set(HEAVY) & loaded


def processor_seconds(*arguments):
    """User and system time of one run of Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_starts_at_once():
    # The least of three: a busy machine adds to processor time through its caches, never takes away.
    assert min(processor_seconds("-m", "noshadow", "--help") for _ in range(3)) < 0.5


@pytest.fixture(scope="module")
def saved_audit(tmp_path_factory):
    rng = np.random.default_rng(0)
    halves = [noshadow.Signals(rng.normal(size=(40, 3)), rng.normal(size=(40, 2)), rng.integers(0, 2, 40)) for _ in range(2)]
    return noshadow.audit_signals(*halves).save(tmp_path_factory.mktemp("light") / "audit")


def test_helpers_of_tests_are_not_collected():
    helpers = {path.name for path in (ROOT / "tests").rglob("*.py") if "def test_" not in path.read_text() and path.name != "conftest.py"}
    assert {Path(path).name for path in conftest.collect_ignore} == helpers
    assert {"ray_cluster.py", "ray_shards.py"} <= helpers


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_reference_and_demo_train(path):
    if room_of(path) in ("reference", "demo"):
        return
    # Attack classifiers learn from outputs; nobody's model is trained there.
    allowed = {"fit"} if path == PACKAGE / "attacks" / "shokri.py" else set()
    calls = (n for n in ast.walk(parsed(path)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    assert not [c.lineno for c in calls if c.func.attr in TRAINING - allowed]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_is_unpickled(path):
    source = path.read_text()
    assert not re.search(r"\bpickle\b|\bdill\b|joblib\.load|allow_pickle=True|weights_only=False|yaml\.(unsafe_)?load\(", source)
    for call in (n for n in ast.walk(parsed(path)) if isinstance(n, ast.Call)):
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
        "xgboost",
        "lightgbm",
        "catboost",
        "skops",
        "onnx",
        "onnxruntime",
    ]
    code = f"import sys, threading; import noshadow; print([m for m in {extras} if m in sys.modules], threading.active_count())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[] 1"
    assert result.stderr == ""
