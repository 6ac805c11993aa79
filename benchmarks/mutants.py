"""Break the joints of `joints.py` one at a time in a copy of the source tree; a test that is named there must fail for each.

Formulas have oracles; a threshold or an argument that is lost between two rooms is seen by nobody unless a test pins it.
`python benchmarks/mutants.py` stores the result, `python benchmarks/mutants.py TEXT` tries those whose name holds TEXT, and
`python benchmarks/mutants.py --missing` tries those that the stored result does not list yet and stores them beside the others.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

# Loaded once, before the forks below, since each test run needs them; noshadow itself must be loaded from the copy.
import pandas  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import sklearn.linear_model  # noqa: F401
import torch
from environment import environment
from joints import MUTANTS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
COPIED = ("src", "tests", "docs", "pyproject.toml", "mkdocs.yml")
PASSED, FAILED = 0, 1  # exit codes of pytest; any other means that tests could not be run


def copied(folder):
    """The tree in `folder`, without compiled files: a mutant of the same length within a second would be taken for its original."""
    for name in COPIED:
        here = ROOT / name
        if here.is_dir():
            shutil.copytree(here, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(here, folder / name)
    return folder


def tested(tree, tests, log):
    """Exit code of pytest over the named tests, in a process of its own that imports noshadow from the tree."""
    child = os.fork()
    if child == 0:
        with log.open("w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            os.chdir(tree)
            sys.path.insert(0, str(tree / "src"))
            os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header", *tests])))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def nodes(mutant):
    return [name if "::" in name else f"tests/test_wiring.py::{name}" for name in mutant.tests]


def outcome(tree, mutant, log):
    """Whether the mutant was killed (a named test failed), survived (all passed), or what went wrong."""
    path = tree / "src" / "noshadow" / mutant.file
    source = path.read_text(encoding="utf-8")
    if source.count(mutant.before) != 1:
        return f"stale: the text stands {source.count(mutant.before)} times in the file"
    path.write_text(source.replace(mutant.before, mutant.after), encoding="utf-8")
    try:
        code = tested(tree, nodes(mutant), log)
    finally:
        path.write_text(source, encoding="utf-8")
    return {PASSED: "survived", FAILED: "killed"}.get(code, f"not run: pytest ended with code {code}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="?", default="", help="try the mutants whose name holds this text; nothing is stored")
    parser.add_argument("--missing", action="store_true", help="try what the stored result does not list, and keep what it lists")
    given = parser.parse_args()
    asked = given.only
    held = {row["mutant"]: row for row in json.loads(RESULTS.read_text(encoding="utf-8"))["mutants"]} if given.missing else {}
    chosen = [mutant for mutant in MUTANTS if asked in mutant.name and mutant.name not in held]
    sys.dont_write_bytecode = True
    torch.set_num_threads(1)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tree, log = copied(Path(folder)), Path(folder) / "pytest.log"
        if chosen and tested(tree, sorted({node for mutant in chosen for node in nodes(mutant)}), log) != PASSED:
            sys.exit(f"The named tests must pass before anything is broken:\n{log.read_text()}")
        rows = []
        for mutant in chosen:
            found = outcome(tree, mutant, log)
            rows.append({"mutant": mutant.name, "tests": list(mutant.tests), "outcome": found})
            print(f"{found:10s} {mutant.name}", flush=True)
    held |= {row["mutant"]: row for row in rows}
    rows = [held[mutant.name] for mutant in MUTANTS if mutant.name in held]
    alive = [row for row in rows if row["outcome"] != "killed"]
    print(f"{len(rows) - len(alive)} of {len(rows)} killed in {time.perf_counter() - started:.0f} s")
    if not asked:
        stored = {"killed": len(rows) - len(alive), "listed": len(rows), "mutants": rows, "environment": environment()}
        RESULTS.write_text(json.dumps(stored, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(1 if alive else 0)


if __name__ == "__main__":
    main()
