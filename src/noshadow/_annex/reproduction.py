"""Who can make an audit again, from what, and how; with every digest that says it is the same."""

from collections.abc import Mapping
from typing import Any

from noshadow._annex.setting import without_contents
from noshadow.results import Audit

_PLACEHOLDER = "…"
# Evidence → the argument of the call that asked for it, and whether models were trained for it.
_ASKED = {
    "checkpoints": ("checkpoint", False),
    "base model": ("base", False),
    "out-of-fold outputs": ("out_of_fold", False),
    "folds": ("folds", True),
    "few references": ("reference_models", True),
    "short references": ("short_references", True),
}
_OPTIONS = {
    "task": ("--task", "auto"),
    "fpr": ("--fpr", "auto"),
    "layers": ("--layers", "last"),
    "damping": ("--damping", "auto"),
    "weight_decay": ("--weight-decay", None),
    "output_scale": ("--output-scale", "auto"),
    "seed": ("--seed", 0),
}
_OF_SIGNALS = ("task", "damping", "weight_decay", "fpr", "seed", "score_options", "output_scale")


def reproduction(audit: Audit, files: Mapping[str, str] | None) -> dict[str, Any]:
    """What is needed, the call and the commands, versions and digests.

    Args:
        audit: the audit. files: name → SHA-256 of the folder's files; None where it is in memory.
    """
    return {
        "who": "Whoever holds the model and both data sets with the digests below, in that order of rows. The folder alone is enough to "
        "rebuild the report and this file.",
        "needs": _needs(audit),
        "call": _call(audit),
        "commands": _commands(audit),
        "check": "noshadow report audit --annex writes this file again, byte for byte, from an unchanged folder and the same version.",
        "versions": dict(sorted(audit.provenance.get("versions", {}).items())),
        "hashes": without_contents(audit.provenance.get("hashes", {})),
        "files": None if files is None else dict(files),
    }


def _needs(audit: Audit) -> list[str]:
    needs = ["the trained model", "the training records", "the test records"]
    needs += ["the group of every record"] if "group" in audit.records else []
    needs += [f"what was given as {name}" for name, models in _asked(audit).items() if models is None]
    trained = audit.ground_truth is not None or any(models is not None for models in _asked(audit).values())
    needs += ["the training procedure, for the models that were trained beside it"] if trained else []
    return needs


def _arguments(audit: Audit) -> dict[str, Any]:
    given = dict(audit.provenance.get("arguments", {}))
    call = given.pop("call", "audit")
    return {name: value for name, value in sorted(given.items()) if call == "audit" or name in _OF_SIGNALS}


def _call(audit: Audit) -> str:
    """The Python call, with every recorded argument and a placeholder for what is data."""
    call = audit.provenance.get("arguments", {}).get("call", "audit")
    data = "model, train, test" if call == "audit" else "train, test"
    given = [f"{name}={_repr(value)}" for name, value in _arguments(audit).items()]
    given += [f"{name}={_PLACEHOLDER}" for name in ("groups", "test_groups")] if "group" in audit.records else []
    asked = _asked(audit)
    given += [f"{argument}={_PLACEHOLDER if models is None else models}" for argument, models in asked.items()]
    given += [f"train_fn={_PLACEHOLDER}"] if any(models is not None for models in asked.values()) else []
    return f"noshadow.{call}({', '.join([data, *given])})"


def _asked(audit: Audit) -> dict[str, int | None]:
    """Arguments that asked for evidence: how many models were trained for it, None for data."""
    found: dict[str, int | None] = {}
    for entry in audit.evidence:
        # A language model without a base has an entry that says so.
        if entry.source in _ASKED and (entry.columns or _ASKED[entry.source][1]):
            argument, trained = _ASKED[entry.source]
            found[argument] = int(entry.stamp["models"]) if trained and "models" in entry.stamp else None
        elif entry.source == "traces" and entry.columns and "rounds" not in entry.stamp:  # boosted models keep their own
            found["loss_traces"] = None
    return found


def _repr(value: Any) -> str:
    shown = without_contents(value)
    return repr(shown) if shown == value else _PLACEHOLDER


def _commands(audit: Audit) -> list[str]:
    """The same in a shell, and what added evidence later."""
    call, given = audit.provenance.get("arguments", {}).get("call", "audit"), _arguments(audit)
    words = ["noshadow audit", "package.module:function" if call == "audit" else "signals.npz", "--out audit"]
    for name, (option, default) in _OPTIONS.items():
        if name in given and given[name] != default and not (name == "task" and given[name] == "language-model"):
            words.append(f"{option} {given[name]}")
    options = given.get("score_options") or {}
    words += [f"--score-option {name}={value}" for name, value in sorted(options.items())]
    words += [f"--{name.replace('_', '-')} {'FILE' if models is None else models}" for name, models in _asked(audit).items()]
    told, truth = [" ".join(words)], audit.ground_truth
    if truth is not None:
        seed = (truth.provenance.get("plan") or {}).get("seed", 0)
        told.append(f"noshadow reference train package.module:function --out references --models {truth.models} --seed {seed}")
        told.append("noshadow reference score references --audit audit")
    if "lood_auc" in audit.records:
        told.append("noshadow lood data.npz --out lood --audit audit")
    return [*told, "noshadow report audit --annex"]
