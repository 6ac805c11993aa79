"""What a reader must know about the splits and the damping before trusting an audit."""

from collections.abc import Iterator

import numpy as np
from torch import nn

from noshadow.checks import Array
from noshadow.metrics import error_budget
from noshadow.results import ModelRisk
from noshadow.scores.result import RecordScores
from noshadow.signals import Signals

ROWS_AT_ONCE = 8192


def split_notes(train: Signals, test: Signals, risk: ModelRisk | None) -> tuple[str, ...]:
    """What looks wrong with the two splits, and what makes the TNR interval too short."""
    notes = []
    shared = _look_alikes(train, test)
    if len(test) and shared == len(test):
        notes.append(
            "every test record has the features and target of a training record: if they are the same records, the model risk means nothing"
        )
    elif shared:
        notes.append(
            f"{shared} of {len(test)} test records have the features and target of a training record: "
            "if they are the same records, the risk is understated"
        )
    if risk is not None and risk.auc_interval[1] < 0.5:
        notes.append("members have larger losses than non-members (loss AUC below 0.5): are the two splits swapped?")
    if risk is not None and error_budget(risk.fpr, risk.n_members) <= 1:
        notes.append("the interval of TNR rests on one member's loss and is too short: more members or a larger level would help")
    return tuple(notes)


def _look_alikes(train: Signals, test: Signals) -> int:
    """Test records whose features, to four digits of their spread, and targets occur in the training split.

    Without features (coarse probabilities repeat by nature) only a split that equals the other as a whole counts.
    """
    if len(test) == 0 or train.targets.ndim != test.targets.ndim:
        return 0
    if train.features is None or test.features is None or train.features.shape[1] != test.features.shape[1]:
        return len(test) if train.sha256()["data"] == test.sha256()["data"] else 0
    spread = train.features.std(0, dtype=np.float64)
    spread[spread <= 1e-12 * np.abs(train.features).max(0)] = np.inf  # a feature that does not vary tells no records apart
    if np.isinf(spread).all():
        return 0
    known = set(_row_digests(train, spread))
    return sum(digest in known for digest in _row_digests(test, spread))


def _row_digests(signals: Signals, spread: Array) -> Iterator[int]:
    assert signals.features is not None
    for start in range(0, len(signals), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        rounded = np.round(signals.features[part] / spread * 1e4) + 0.0
        targets = signals.targets[part].reshape(len(rounded), -1)
        yield from (hash(row.tobytes()) for row in np.column_stack([rounded, targets]))


def deeper_notes(model: object, task: str, layers: str | int) -> tuple[str, ...]:
    """Said when the layers before the last would say more: in regressions, where all layers found the exposed records far better."""
    if task != "regression" or layers != "last" or not isinstance(model, nn.Module):
        return ()
    trainable = [module for module in model.modules() if any(p.requires_grad for p in module.parameters(recurse=False))]
    if len(trainable) < 2:
        return ()
    return ("only the last layer was scored: for regression networks all layers together rank the exposed records better (layers='all')",)


def damping_notes(scores: RecordScores | None) -> tuple[str, ...]:
    """Said when nobody told us how the training was regularised."""
    if scores is None or not scores.damping_source.startswith("automatic"):
        return ()
    return ("the damping λ of the training is unknown, so a tiny one was taken: pass weight_decay= (or damping=) as the training had it",)
