"""Outputs without features: what a reference model, or one in the middle of its training, leaves behind."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from torch import nn

from noshadow.checks import ONE_LABEL, Array, refuse, users_code
from noshadow.signals import Signals
from noshadow.views.forward import forward_pass
from noshadow.views.head import found_source
from noshadow.views.loading import Batch, Records, records_of
from noshadow.views.sklearn import _pair, _signals, _taken_apart, _weights_sha256
from noshadow.views.torch import PROBE_RECORDS, _present, _undisturbed, seed_everything
from noshadow.views.torch import _weights_sha256 as _module_sha256
from noshadow.views.view import Settings

Transform = Callable[[Any], Any]


def module_outputs(model: nn.Module, data: object, *, task: str, transform: Transform | None, settings: Settings) -> tuple[Signals, str]:
    """Signals without features, and the task the model's ending settles or "auto"; arguments as in `collect_outputs`."""
    owner = settings.owner
    records = _present(records_of(data, owner, "data", seed=settings.seed), owner, "data")
    records = records if transform is None else _transformed(records, transform, owner)
    with _undisturbed(model, settings) as device:
        seed_everything(settings.seed)
        probe = next(iter(records.batches(min(PROBE_RECORDS, settings.batch_size))))
        source = found_source(model, probe, device, settings, headless="take")
        seed_everything(settings.seed)
        found = forward_pass(model, source, records, device, settings, "data", features=False)
    head, signals = source.head, Signals(None, found.outputs, found.targets, found.ids)
    settled = {"softmax": "classification", "log_softmax": "classification", "sigmoid": "binary", "": "auto"}[head.ending if head else ""]
    if settled == "binary" and signals.outputs.shape[1] > 1:
        refuse(owner, "model", "predict one label per record", f"a sigmoid of {signals.outputs.shape[1]} outputs", ONE_LABEL)
    if head is None:
        require_logits(signals, task, owner)
    return signals, settled


def estimator_outputs(estimator: BaseEstimator, data: object, *, transform: Transform | None, settings: Settings) -> tuple[Signals, str]:
    """Signals without features, and the estimator's task; arguments as in `collect_outputs`."""
    owner = settings.owner
    fitted = _taken_apart(estimator, settings)
    X, y, _ = _pair(data, owner, "data")
    if transform is not None:
        with users_code(owner, "queries must accept the data's inputs"):
            X = transform(X)
    signals, _ = _signals(fitted, X, y, owner, "data")
    return Signals(None, signals.outputs, signals.targets, signals.ids), fitted.task


def weights_sha256(model: object, outputs: Array) -> str:
    """Hex digest of the trained parameters as in `View`; of the outputs where there are none to read."""
    if isinstance(model, nn.Module):
        return _module_sha256(model)
    if isinstance(model, BaseEstimator):
        last = _taken_apart(model, Settings(owner="weights_sha256")).last
        return _weights_sha256(last, Signals(None, outputs, np.zeros(len(outputs))))[0]
    return hashlib.sha256(np.ascontiguousarray(outputs).data).hexdigest()


def _transformed(records: Records, transform: Transform, owner: str) -> Records:
    """The same records with their inputs transformed batch by batch: one tensor, or the tuple or dict of several."""

    def changed(batch: Batch) -> Batch:
        with users_code(owner, "queries must accept the data's inputs"):
            if batch.kwargs:
                return replace(batch, kwargs=transform(dict(batch.kwargs)))
            if len(batch.args) == 1:
                return replace(batch, args=(transform(batch.args[0]),))
            return replace(batch, args=tuple(transform(batch.args)))

    return replace(records, batches=lambda size: (changed(batch) for batch in records.batches(size)))


def require_logits(signals: Signals, task: str, owner: str) -> None:
    """A classifier without a readable head must give logits: attacks need them before they saturate."""
    outputs, targets = signals.outputs, signals.targets
    if task == "regression" or (targets.dtype.kind == "f" and not bool(np.isin(targets, (0, 1)).all())):
        return
    low, high = float(outputs.min()), float(outputs.max())
    if low >= 0 and high <= 1 and (outputs.shape[1] == 1 or bool(np.allclose(outputs.sum(1, dtype=np.float64), 1, atol=1e-4))):
        rule = "give logits, not probabilities, when no nn.Linear gives its output"
        refuse(owner, "model", rule, f"values in [{low:.3g}, {high:.3g}]", "Return the logits, or end in an nn.Linear.")
