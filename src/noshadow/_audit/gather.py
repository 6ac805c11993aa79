"""One view of a model, its scores and its risk, gathered into an Audit."""

import hashlib
import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pandas as pd

from noshadow import theory
from noshadow._audit.notes import damping_notes, split_notes
from noshadow._audit.risks import (
    borne_risks,
    class_names,
    classified_rates,
    correct_of,
    have_soft_targets,
    margins_of,
    measured_risk,
    nonmember_losses,
    shown_family,
)
from noshadow._audit.splits import ids_in_both, split_counts
from noshadow._audit.tracing import traced
from noshadow._findings import findings
from noshadow.checks import (
    TASKS,
    Array,
    NotApplicable,
    refuse,
    require_choice,
    require_number,
    require_output_columns,
    require_same_length,
    require_whole,
    resolved_task,
    whole_seed,
)
from noshadow.columns import named
from noshadow.losses import hard_labels, record_losses, task_targets
from noshadow.output_scale import SCALES
from noshadow.results import Audit
from noshadow.scores.baselines import record_entropies
from noshadow.scores.last_layer.entry import record_scores
from noshadow.scores.result import RecordScores
from noshadow.signals import Signals
from noshadow.tail.groups import named_groups
from noshadow.traces import GivenTraces
from noshadow.views import View
from noshadow.views.pairing import require_index_of

# Ranks best against measured attacks: benchmarks/which_layers.py.
RANKED_BY = "shift"
RECORD_COLUMNS = named(source="last layer", score=True)
NO_ENTROPY = "not applicable: a regression predicts no class probabilities"
_VERSIONS = ("noshadow", "torch", "numpy", "scipy", "pandas", "scikit-learn")


@dataclass(frozen=True)
class Options:
    """What the caller asked for, apart from model and data; recorded in the audit as given."""

    task: str
    damping: float | str
    weight_decay: float | None
    fpr: float | str
    seed: int
    progress: bool
    owner: str
    layers: str | int = "last"
    output_scale: str = "auto"
    score_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checked before any work, and kept as plain numbers that JSON holds."""
        require_choice(self.task, ("auto", *TASKS), self.owner, "task")
        require_choice(self.output_scale, SCALES, self.owner, "output_scale")
        plain: dict[str, Any] = {"seed": whole_seed(self.seed, self.owner)}
        if not _is_auto(self.damping):
            plain["damping"] = require_number(self.damping, self.owner, "damping", low=0.0)
        if self.weight_decay is not None:
            plain["weight_decay"] = require_number(self.weight_decay, self.owner, "weight_decay", low=0.0)
        if isinstance(self.layers, str):
            require_choice(self.layers, ("last", "all"), self.owner, "layers")
        else:
            plain["layers"] = require_whole(self.layers, self.owner, "layers", low=1)
        if not _is_auto(self.fpr):
            plain["fpr"] = require_number(self.fpr, self.owner, "fpr", low=0.0, high=1.0, low_open=True, high_open=True)
        for name, value in plain.items():
            object.__setattr__(self, name, value)


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"


def weight_decay_damping(weight_decay: float, n: int, outputs: int, task: str) -> float:
    """λ on the sum for mean(loss) + (wd/2)‖θ‖²; MSELoss averages over outputs."""
    return n * weight_decay * (outputs / 2 if task == "regression" else 1.0)


def audit_view(
    seen: View,
    options: Options,
    *,
    ids: Sequence[object] | None,
    groups: Sequence[object] | None,
    loss_traces: GivenTraces | None,
    signal_seconds: float,
    test_groups: Sequence[object] | None = None,
    layered_scores: Callable[[str], RecordScores] | None = None,
) -> Audit:
    """Check what belongs to the records, score them, measure the risk, put the table and the stamps together.

    `layered_scores` gives the scores over more layers than the last for the settled task, and stands in for the last layer's.
    """
    train, owner = seen.train if ids is None else seen.train.with_ids(ids), options.owner
    if len(train) < 2:
        refuse(owner, "train", "hold at least 2 records", len(train))
    _require_indexes(seen, {"train": {"ids": ids, "groups": groups}, "test": {"test_groups": test_groups}}, owner)
    in_both = ids_in_both(train, seen.test, seen.inputs.get("ids"), given=ids is not None)
    seen = replace(seen, inputs={**seen.inputs, "ids_in_both": in_both})
    task = resolved_task(seen.task, train.outputs, train.targets, owner)
    require_output_columns(train.outputs, task, owner)
    targets = task_targets(train.outputs, train.targets, task, owner)
    nonmembers, unseen = nonmember_losses(seen.test, task, owner)
    soft = have_soft_targets(targets, unseen, task, owner)
    identity = _identity_columns(train, targets, task, groups, owner)
    if seen.class_names is not None and task != "regression":
        identity["label"] = [seen.class_names[int(number)] for number in identity["target"]]
    members = record_losses(train.outputs, targets, task)
    traces = traced(loss_traces, train.ids, members, targets, task, owner)
    seen = replace(seen, notes=seen.notes + traces.notes, inputs=dict(seen.inputs) | traces.inputs)
    started = time.perf_counter()
    scores, absent = _scores(seen, train, task, options, layered_scores)
    scored = time.perf_counter()
    test_names = group_names(test_groups, len(seen.test), owner, "test_groups").get("group")
    how: dict[str, Any] = {"fpr": options.fpr, "seed": options.seed}
    correct = correct_of(train, targets, seen.test, unseen, task)
    margins = margins_of(train, targets, seen.test, unseen, task, soft=soft)
    family = shown_family(seen.inputs.get("family"), scores, len(train))
    seen = replace(seen, inputs=dict(seen.inputs) | {"family": family})
    risk, risk_absent = measured_risk((members, nonmembers), correct, task, scores, how, margins=margins, family=family, soft=soft)
    groups_of = {"class_risk": class_names(targets, unseen, seen.class_names, task), "group_risk": (identity.get("group"), test_names)}
    borne, borne_absent = borne_risks((members, nonmembers), groups_of, how)
    absent = absent | risk_absent | borne_absent | ({"entropy": NO_ENTROPY} if task == "regression" else {})
    table = identity | {"loss": members}
    table |= {} if task == "regression" else {"entropy": record_entropies(train.outputs, task)}
    if scores is not None:
        table |= {name: values for name, values in scores.columns().items() if name in RECORD_COLUMNS}
        table |= {} if scores.exact is None else {"exact": scores.exact}
        if task == "regression" and seen.sample_weight is not None:
            absent["predicted_tpr"] = "not applicable: the Gaussian theory has equal weights, and this head was trained with sample weights"
        elif task != "regression":
            extra, why = classified_rates(scores, risk, options.layers)
            table, absent = table | extra, absent | why
        else:
            extra, why = _predicted_tpr(scores, targets - train.outputs, options.fpr if risk is None else risk.fpr)
            table, absent = table | extra, absent | why
    table |= traces.columns
    ranked_by = RANKED_BY if scores is not None else None
    if ranked_by is not None:
        table["rank"] = ranks(table[ranked_by])
    counts = split_counts(train, seen.test)
    notes = split_notes(counts["shared_with_test"], len(seen.test), risk)
    found = Audit(
        records=pd.DataFrame(table),
        model_risk=risk,
        member_losses=members,
        nonmember_losses=nonmembers,
        task=task,
        ranked_by=ranked_by,
        not_applicable=absent,
        notes=seen.notes + (() if scores is None else scores.notes) + notes + damping_notes(scores),
        provenance=_provenance(seen, train, options, scores) | {"splits": counts},
        timings=_timings(signal_seconds, scored - started, time.perf_counter() - scored),
        class_risk=borne.get("class_risk", ()),
        group_risk=borne.get("group_risk", ()),
    )
    return replace(found, findings=findings(found))


def _require_indexes(seen: View, columns: Mapping[str, Mapping[str, object]], owner: str) -> None:
    """Where a data frame's index names the records, pandas columns beside them must have its order."""
    sources = seen.inputs.get("ids") or {}
    for split, records in (("train", seen.train), ("test", seen.test)):
        for argument, value in columns[split].items() if sources.get(split) == "index" else ():
            require_index_of(records, value, owner, argument)


def _scores(
    seen: View, train: Signals, task: str, options: Options, layered_scores: Callable[[str], RecordScores] | None
) -> tuple[RecordScores | None, dict[str, str]]:
    if layered_scores is not None:
        found = layered_scores(task)
        return found, dict(found.not_applicable)
    if seen.not_applicable is not None:
        require_no_score_options(options, seen.not_applicable)
        wanted = (*RECORD_COLUMNS, *(("predicted_tpr",) if task == "regression" else ()), "rank")
        return None, dict.fromkeys(wanted, f"not applicable: {seen.not_applicable}")
    known = options.damping == "auto" and seen.damping is not None
    scores = record_scores(
        train.features,
        train.outputs,
        train.targets,
        task=task,
        damping=seen.damping if known and seen.damping is not None else options.damping,
        damping_source=seen.damping_source if known else None,
        fit_intercept=seen.fit_intercept,
        penalize_intercept=seen.penalize_intercept,
        sample_weight=seen.sample_weight,
        columns=RECORD_COLUMNS,
        output_scale="auto" if task == "regression" else "logits",  # they are by now
        progress=options.progress,
        owner=options.owner,
        **options.score_options,
    )
    return scores, dict(scores.not_applicable)


def require_no_score_options(options: Options, reason: str) -> None:
    """Options for scores that do not exist are refused: nothing that was asked for vanishes silently."""
    if options.score_options:
        got = ", ".join(options.score_options)
        refuse(options.owner, "score_options", "be left out where there are no record scores", f"{got} ({reason})")


def _identity_columns(train: Signals, targets: Array, task: str, groups: Sequence[object] | None, owner: str) -> dict[str, Any]:
    table: dict[str, Any] = {"id": train.ids}
    if task == "regression" and targets.shape[1] > 1:
        table |= {f"target_{k}": targets[:, k] for k in range(targets.shape[1])}
    else:
        table["target"] = targets[:, 0] if task == "regression" else _labels(targets, task)
    return table | group_names(groups, len(train), owner)


def group_names(groups: Sequence[object] | None, n: int, owner: str, argument: str = "groups") -> dict[str, list[str]]:
    """The column `group` of n records, as text; no column without groups."""
    if groups is None:
        return {}
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        refuse(owner, argument, "be one name a record", repr(groups))
    names = named_groups(groups, owner, argument)
    require_same_length(owner, **{"test" if argument == "test_groups" else "train": range(n), argument: names})
    return {"group": names}


def _labels(targets: Array, task: str) -> Array:
    """Whole-number labels; a binary target that is a probability stays one."""
    hard = task == "classification" or bool(np.isin(targets, (0, 1)).all())
    labels: Array = hard_labels(targets).astype(np.int64) if hard else targets
    return labels


def _predicted_tpr(scores: RecordScores, residuals: Array, fpr: float | str) -> tuple[dict[str, Array], dict[str, str]]:
    """Plug-in TPR of the loss-threshold attack on each record, where the theory's n − dof > 2 holds."""
    n, q = residuals.shape
    level = max(1e-3, 1 / n) if isinstance(fpr, str) else fpr
    squares = (residuals**2).sum(1)
    spare = n - scores.effective_dof
    if spare <= 2:
        return {}, {"predicted_tpr": f"not applicable: the Gaussian theory needs n − dof > 2; this head has {spare:.3g}"}
    assert scores.leverage is not None
    try:
        values = theory.predicted_tpr(
            level,
            scores.leverage,
            np.sqrt(squares),
            noise_variance=float(squares.sum()) / (spare * q),
            n=n,
            dof=scores.effective_dof,
            outputs=q,
        )
    except NotApplicable as reason:
        return {}, {"predicted_tpr": f"not applicable: {reason}"}
    return {"predicted_tpr": values}, {}


def ranks(score: Array) -> Array:
    """1 for the largest score; equal scores keep their row order."""
    ranks = np.empty(len(score), dtype=np.int64)
    ranks[np.argsort(-score, kind="stable")] = np.arange(1, len(score) + 1)
    return ranks


def _provenance(seen: View, train: Signals, options: Options, scores: RecordScores | None) -> dict[str, Any]:
    asked = {name: getattr(options, name) for name in ("task", "damping", "weight_decay", "fpr", "seed", "output_scale")}
    stamp: dict[str, Any] = {
        "arguments": asked | {"layers": options.layers, "score_options": dict(options.score_options), "call": options.owner},
        "inputs": dict(seen.inputs),
        "head": seen.head or ("given as arrays" if seen.not_applicable is None else "none was read"),
        "class_names": None if seen.class_names is None else list(seen.class_names),
        "hashes": {"train": _hashes(train), "test": _hashes(seen.test), "weights": seen.weights_sha256 or None},
        "versions": {name: importlib.metadata.version(name) for name in _VERSIONS} | {"python": platform.python_version()},
    }
    if scores is not None:
        stamp["scores"] = score_stamp(scores) | {"fit_intercept": seen.fit_intercept, "penalize_intercept": seen.penalize_intercept}
    return stamp


def score_stamp(scores: RecordScores) -> dict[str, Any]:
    """How the scores were obtained, for JSON."""
    names = ("damping_used", "damping_source", "effective_dof", "rank", "condition", "jitter", "stationarity", "head_residual")
    stamp = {
        name: getattr(scores, name) for name in (*names, "precision", "precision_error", "method", "parameters", "dimensions", "errors")
    }
    stamp["layers"] = list(scores.layers)
    # Infinite when every record is fitted exactly under a penalty; JSON has no infinity, the notes say it.
    stamp["stationarity"] = scores.stationarity if np.isfinite(scores.stationarity) else None
    # An estimate whose last digits depend on where the arrays lie in memory: three digits are the same in every run.
    stamp["condition"] = float(f"{scores.condition:.3g}")
    return stamp


def _hashes(split: Signals) -> dict[str, str]:
    """Digests of a split; that of the targets says nothing about the model, so that two audits of the same records share it."""
    targets = np.ascontiguousarray(split.targets, dtype=np.float64)
    return split.sha256() | {"targets": hashlib.sha256(f"{targets.shape}".encode() + targets.tobytes()).hexdigest()}


def _timings(signals: float, scores: float, risk: float) -> dict[str, Any]:
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "signals_seconds": signals,
        "scores_seconds": scores,
        "risk_seconds": risk,
    }
