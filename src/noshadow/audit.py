"""From a trained model to an Audit: view, score, gather."""

import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pandas as pd

from noshadow import theory
from noshadow.checks import (
    TASKS,
    Array,
    NotApplicable,
    refuse,
    require_choice,
    require_number,
    require_output_columns,
    require_same_length,
    require_weights,
    resolved_task,
    whole_seed,
)
from noshadow.results import Audit, ModelRisk
from noshadow.scores.baselines import correct_predictions, hard_labels, record_entropies, record_losses, task_targets
from noshadow.scores.last_layer import record_scores
from noshadow.scores.result import COLUMNS, RecordScores
from noshadow.scores.traces import loss_trace_iqr
from noshadow.signals import Signals
from noshadow.tail import model_risk
from noshadow.views import View, view

RANKED_BY = {"regression": "loo", "classification": "shift", "binary": "shift"}
RECORD_COLUMNS = tuple(c for c in COLUMNS if c not in ("loss", "entropy"))
NO_ENTROPY = "not applicable: a regression predicts no class probabilities"
_VERSIONS = ("noshadow", "torch", "numpy", "scipy", "pandas", "scikit-learn")


@dataclass(frozen=True, eq=False)
class Target:
    """What a `package.module:function` hands to `noshadow audit`: a model, its data and how it was trained.

    Attributes: as the arguments of `audit`; `train_fn(indices, seed) -> model` is for reference models.
    """

    model: object
    train: object
    test: object
    task: str = "auto"
    weight_decay: float | None = None
    ids: Sequence[object] | None = None
    groups: Sequence[object] | None = None
    loss_traces: object = None
    train_fn: Callable[..., object] | None = None


@dataclass(frozen=True)
class _Options:
    """What the caller asked for, apart from model and data; recorded in the audit as given."""

    task: str
    damping: float | str
    weight_decay: float | None
    fpr: float | str
    seed: int
    progress: bool
    owner: str

    def __post_init__(self) -> None:
        """Checked before any work, and kept as plain numbers that JSON holds."""
        require_choice(self.task, ("auto", *TASKS), self.owner, "task")
        plain: dict[str, Any] = {"seed": whole_seed(self.seed, self.owner)}
        if not _is_auto(self.damping):
            plain["damping"] = require_number(self.damping, self.owner, "damping", low=0.0)
        if self.weight_decay is not None:
            plain["weight_decay"] = require_number(self.weight_decay, self.owner, "weight_decay", low=0.0)
        if not _is_auto(self.fpr):
            plain["fpr"] = require_number(self.fpr, self.owner, "fpr", low=0.0, high=1.0, low_open=True, high_open=True)
        for name, value in plain.items():
            object.__setattr__(self, name, value)


def audit(
    model: object,
    train: object,
    test: object,
    *,
    task: str = "auto",
    layers: str = "last",
    layer: str = "auto",
    damping: float | str = "auto",
    weight_decay: float | None = None,
    fpr: float | str = "auto",
    ids: Sequence[object] | None = None,
    groups: Sequence[object] | None = None,
    loss_traces: object = None,
    sample_weight: object = None,
    batch_size: int = 256,
    device: object = None,
    progress: bool = True,
    seed: int = 0,
) -> Audit:
    """Audit one trained model: how exposed it is, and which of its training records are.

    Args:
        model: nn.Module whose output comes from a final nn.Linear, or a fitted scikit-learn estimator.
        train: the training records, (X, y), a Dataset or a DataLoader (its order is fixed by us).
        test: records the model has not seen, in the same form; may be empty (no model-level risk then).
        task: "auto", "regression", "classification" or "binary".
        layers: "last"; scores over more layers are not in this version.
        layer: name of the head to use instead of the one found.
        damping: "auto" (the training's own λ if known) or λ ≥ 0 on the sum over records.
        weight_decay: of the optimiser, for mean(loss) + (wd/2)‖θ‖²; gives λ.
        fpr: "auto" or the false-positive level of the attack in question.
        ids: record ids, row numbers by default. groups: a group name a record.
        loss_traces: (n, epochs + 1) losses over training, adds `lt_iqr`.
        sample_weight: (n,) weights the training used.
        batch_size: records per forward pass. device: where to run the model.
        progress: bars on a terminal. seed: of bootstrap intervals and of data transforms.

    Returns:
        Audit.

    Raises:
        InputError: an argument breaks a rule. NumericalError: a factorisation failed.

    Cost: one forward pass over both splits and `record_scores`.

    Example:
        >>> import noshadow as ns
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> x, y = load_iris(return_X_y=True)
        >>> result = ns.audit(LogisticRegression(max_iter=1000).fit(x[::2], y[::2]), (x[::2], y[::2]), (x[1::2], y[1::2]))
        >>> result.ranked_by, len(result.records)
        ('shift', 75)
    """
    if layers != "last":
        refuse("audit", "layers", "be 'last' in this version", repr(layers), "Scores over more layers are not built yet.")
    options = _Options(task, damping, weight_decay, fpr, seed, progress, "audit")
    started = time.perf_counter()
    seen = view(
        model,
        train,
        test,
        task=task,
        weight_decay=weight_decay,
        layer=layer,
        batch_size=batch_size,
        device=device,
        progress=progress,
        seed=seed,
        owner="audit",
    )
    if sample_weight is not None:
        seen = replace(seen, sample_weight=require_weights(sample_weight, len(seen.train), "audit"))
    return _audit_view(seen, options, ids=ids, groups=groups, loss_traces=loss_traces, signal_seconds=time.perf_counter() - started)


def audit_signals(
    train: Signals,
    test: Signals,
    *,
    task: str = "auto",
    damping: float | str = "auto",
    weight_decay: float | None = None,
    fpr: float | str = "auto",
    ids: Sequence[object] | None = None,
    groups: Sequence[object] | None = None,
    loss_traces: object = None,
    fit_intercept: bool = True,
    penalize_intercept: bool = True,
    sample_weight: object = None,
    progress: bool = True,
    seed: int = 0,
) -> Audit:
    """Audit any framework's model from arrays: Signals of the training records and of unseen ones.

    Arguments as in `audit`; `fit_intercept` and `penalize_intercept` describe the head the outputs came from.
    Without features the model-level risk remains and record scores read "not applicable".
    """
    owner = "audit_signals"
    options = _Options(task, damping, weight_decay, fpr, seed, progress, owner)
    for name, split in (("train", train), ("test", test)):
        if not isinstance(split, Signals):
            refuse(owner, name, "be Signals", type(split).__name__, "Build it with ns.Signals(features, outputs, targets).")
    if train.outputs.shape[1] != test.outputs.shape[1]:
        refuse(owner, "test", f"have the {train.outputs.shape[1]} outputs of train", f"{test.outputs.shape[1]}")
    resolved = resolved_task(task, train.outputs, train.targets, owner)
    penalty = None if weight_decay is None else _weight_decay_damping(weight_decay, len(train), train.outputs.shape[1], resolved)
    seen = View(
        train=train,
        test=test,
        task=resolved,
        head=None,
        fit_intercept=fit_intercept,
        penalize_intercept=penalize_intercept,
        damping=penalty,
        damping_source="" if penalty is None else f"weight_decay={weight_decay:g} of the training objective",
        sample_weight=None if sample_weight is None else require_weights(sample_weight, len(train), owner),
        class_names=None,
        not_applicable=None if train.features is not None else "no features were given, and record scores need the last layer's inputs",
        notes=(),
        weights_sha256="",
    )
    return _audit_view(seen, options, ids=ids, groups=groups, loss_traces=loss_traces, signal_seconds=0.0)


def audit_target(target: Target, **options: Any) -> Audit:
    """Audit what a user's function returned; options complete what the target states and may not contradict it."""
    stated = {name: getattr(target, name) for name in ("task", "weight_decay", "ids", "groups", "loss_traces")}
    for name, open_value in (("task", "auto"), ("weight_decay", None)):
        asked = options.pop(name, open_value)
        if stated[name] == open_value:
            stated[name] = asked
        elif asked not in (open_value, stated[name]):
            refuse("audit", name, f"agree with the Target's {stated[name]!r}", repr(asked), "Leave one of the two out.")
    return audit(target.model, target.train, target.test, **stated, **options)


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"


def _weight_decay_damping(weight_decay: float, n: int, outputs: int, task: str) -> float:
    """λ on the sum for mean(loss) + (wd/2)‖θ‖²; MSELoss averages over outputs."""
    return n * weight_decay * (outputs / 2 if task == "regression" else 1.0)


def _audit_view(
    seen: View,
    options: _Options,
    *,
    ids: Sequence[object] | None,
    groups: Sequence[object] | None,
    loss_traces: object,
    signal_seconds: float,
) -> Audit:
    train, owner = seen.train if ids is None else seen.train.with_ids(ids), options.owner
    if len(train) < 2:
        refuse(owner, "train", "hold at least 2 records", len(train))
    task = resolved_task(seen.task, train.outputs, train.targets, owner)
    require_output_columns(train.outputs, task, owner)
    targets = task_targets(train.outputs, train.targets, task, owner)
    identity = _identity_columns(train, targets, task, groups, owner)
    traces = {} if loss_traces is None else {"lt_iqr": _traces(loss_traces, len(train), owner)}
    started = time.perf_counter()
    scores, absent = _scores(seen, train, task, options)
    members = record_losses(train.outputs, targets, task)
    scored = time.perf_counter()
    risk, nonmembers, risk_absent = _risk(members, seen, train, targets, task, scores, options)
    absent = absent | risk_absent | ({"entropy": NO_ENTROPY} if task == "regression" else {})
    table = identity | {"loss": members}
    table |= {} if task == "regression" else {"entropy": record_entropies(train.outputs, task)}
    if scores is not None:
        table |= {name: values for name, values in scores.columns().items() if name in RECORD_COLUMNS}
        if task == "regression":
            extra, why = _predicted_tpr(scores, targets - train.outputs, options.fpr if risk is None else risk.fpr)
            table, absent = table | extra, absent | why
    table |= traces
    ranked_by = RANKED_BY[task] if scores is not None else None
    if ranked_by is not None:
        table["rank"] = _ranks(table[ranked_by])
    return Audit(
        records=pd.DataFrame(table),
        model_risk=risk,
        member_losses=members,
        nonmember_losses=nonmembers,
        task=task,
        ranked_by=ranked_by,
        not_applicable=absent,
        notes=seen.notes + (() if scores is None else scores.notes),
        provenance=_provenance(seen, train, options, scores),
        timings=_timings(signal_seconds, scored - started, time.perf_counter() - scored),
    )


def _scores(seen: View, train: Signals, task: str, options: _Options) -> tuple[RecordScores | None, dict[str, str]]:
    if seen.not_applicable is not None:
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
        progress=options.progress,
    )
    return scores, dict(scores.not_applicable)


def _risk(
    members: Array, seen: View, train: Signals, targets: Array, task: str, scores: RecordScores | None, options: _Options
) -> tuple[ModelRisk | None, Array, dict[str, str]]:
    test = seen.test
    if len(test) == 0:
        return (
            None,
            np.empty(0),
            {"model_risk": "not applicable: the test split is empty, so there are no non-member losses to compare with"},
        )
    test_targets = task_targets(test.outputs, test.targets, task, options.owner)
    nonmembers = record_losses(test.outputs, test_targets, task)
    if len(test) < 2:
        return None, nonmembers, {"model_risk": "not applicable: one test record is too few to compare losses"}
    correct: tuple[Array | None, Array | None] = (None, None)
    if task != "regression":
        correct = (correct_predictions(train.outputs, targets, task), correct_predictions(test.outputs, test_targets, task))
    risk = model_risk(
        members, nonmembers, scores=scores, fpr=options.fpr, seed=options.seed, member_correct=correct[0], nonmember_correct=correct[1]
    )
    return risk, nonmembers, {"predicted_tpr of the model": f"not available: {risk.reason}"} if risk.predicted_tpr is None else {}


def _identity_columns(train: Signals, targets: Array, task: str, groups: Sequence[object] | None, owner: str) -> dict[str, Any]:
    table: dict[str, Any] = {"id": train.ids}
    if task == "regression" and targets.shape[1] > 1:
        table |= {f"target_{k}": targets[:, k] for k in range(targets.shape[1])}
    else:
        table["target"] = targets[:, 0] if task == "regression" else hard_labels(targets)
    if groups is not None:
        if isinstance(groups, str) or not isinstance(groups, Iterable):
            refuse(owner, "groups", "be one name a record", repr(groups))
        table["group"] = [str(group) for group in (groups.tolist() if hasattr(groups, "tolist") else groups)]
        require_same_length(owner, train=range(len(train)), groups=table["group"])
    return table


def _predicted_tpr(scores: RecordScores, residuals: Array, fpr: float | str) -> tuple[dict[str, Array], dict[str, str]]:
    """Plug-in TPR of the optimal loss attack on each record, where the theory's n − dof > 2 holds."""
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


def _traces(loss_traces: object, n: int, owner: str) -> Array:
    values = loss_trace_iqr(loss_traces)
    require_same_length(owner, train=range(n), loss_traces=values)
    return values


def _ranks(score: Array) -> Array:
    """1 for the largest score; equal scores keep their row order."""
    ranks = np.empty(len(score), dtype=np.int64)
    ranks[np.argsort(-score, kind="stable")] = np.arange(1, len(score) + 1)
    return ranks


def _provenance(seen: View, train: Signals, options: _Options, scores: RecordScores | None) -> dict[str, Any]:
    asked = {name: getattr(options, name) for name in ("task", "damping", "weight_decay", "fpr", "seed")}
    stamp: dict[str, Any] = {
        "arguments": asked | {"layers": "last", "call": options.owner},
        "head": seen.head or "given as arrays",
        "class_names": None if seen.class_names is None else list(seen.class_names),
        "hashes": {"train": train.sha256(), "test": seen.test.sha256(), "weights": seen.weights_sha256 or None},
        "versions": {name: importlib.metadata.version(name) for name in _VERSIONS} | {"python": platform.python_version()},
    }
    if scores is not None:
        names = ("damping_used", "damping_source", "effective_dof", "rank", "condition", "jitter", "stationarity", "head_residual")
        stamp["scores"] = {name: getattr(scores, name) for name in (*names, "precision", "precision_error")}
        # An estimate whose last digits depend on where the arrays lie in memory: three digits are the same in every run.
        stamp["scores"]["condition"] = float(f"{scores.condition:.3g}")
        stamp["scores"] |= {"fit_intercept": seen.fit_intercept, "penalize_intercept": seen.penalize_intercept}
    return stamp


def _timings(signals: float, scores: float, risk: float) -> dict[str, Any]:
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "signals_seconds": signals,
        "scores_seconds": scores,
        "risk_seconds": risk,
    }
