"""What docs/exposure.md, its picture and the README read: stored results of the settings that judge, and how a figure is looked up."""

import json
from pathlib import Path

RUNS = Path(__file__).parents[1] / "benchmarks" / "results" / "exposure"
# The order of benchmarks/exposure/setups.py.
ORDER = (
    "energy_mlp",
    "california_ridge",
    "pneumonia_probe",
    "california_mlp",
    "cifar10_residual",
    "sst2_probe",
    "cifar10_cnn",
    "sst2_bert",
    "cifar100_resnet",
)
COUNTS = (1, 2, 4, 8, 16)


def runs():
    """Stored results of the settings that judge, by name."""
    paths = {name: RUNS / f"{name}.json" for name in ORDER}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def rules():
    path = RUNS / "rules.json"
    return json.loads(path.read_text()) if path.exists() else None


def mean(entry, method, truth="d_prime", measure="recall"):
    """Mean over targets; None where the method was not run."""
    return entry["methods"][method][truth][measure]["mean"] if method in entry["methods"] else None


def earlier(entry):
    """Whether the setting was judged before the rules were what they are."""
    chosen = rules()
    return chosen is not None and entry.get("rules") != chosen["chosen"]


def titled(entry):
    """The setting's title, marked where it was judged with earlier rules."""
    return entry["title"] + (" ‡" if earlier(entry) else "")


def earlier_lines(entries):
    """What the mark means, where there is one."""
    if not any(earlier(entry) for entry in entries.values()):
        return []
    return ["", "‡ Judged before the spread could bend, and not yet again."]


def cell(value, error=None):
    if value is None:
        return "–"
    return f"{100 * value:.0f}" + ("" if error is None else f" ± {100 * error:.0f}")
