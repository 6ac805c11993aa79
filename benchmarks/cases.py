"""Cases of a benchmark: timed, and stored by name beside where they ran."""

import json
import time

from environment import environment


def seconds(action, repeats=1, clock=time.perf_counter):
    """Shortest time of a few runs, on the wall or by another clock, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        started = clock()
        result = action()
        best = min(best, clock() - started)
    return best, result


def run_cases(cases, results, *, only, quick):
    """Run all cases or one, and store each as it ends; a quick run stores nothing."""
    stored = json.loads(results.read_text()) if results.exists() else {}
    for name, case in cases.items():
        if only in (None, name):
            stored[name] = case() | {"environment": environment()}
            print(name, json.dumps(stored[name], indent=1))
            if not quick:
                results.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
