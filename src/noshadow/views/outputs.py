"""Outputs without features: what a reference model, or one in the middle of its training, leaves behind."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from noshadow.checks import Array, as_array, refuse, users_code
from noshadow.progress import tracked
from noshadow.signals import Signals
from noshadow.views.head import Head, called, first_tensor, head_or_none
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
        head = head_or_none(model, probe, device, layer=settings.layer, owner=owner)
        signals = _collected(model, head, records, device, settings)
    settled = {"softmax": "classification", "log_softmax": "classification", "sigmoid": "binary", "": "auto"}[head.ending if head else ""]
    if settled == "binary" and signals.outputs.shape[1] > 1:
        hint = "Multi-label heads are not supported: audit one label at a time as task='binary'."
        refuse(owner, "model", "predict one label per record", f"a sigmoid of {signals.outputs.shape[1]} outputs", hint)
    if head is None:
        require_logits(signals, task, owner)
    return signals, settled


def estimator_outputs(estimator: BaseEstimator, data: object, *, transform: Transform | None, settings: Settings) -> tuple[Signals, str]:
    """Signals without features, and the estimator's task; arguments as in `collect_outputs`."""
    owner = settings.owner
    fitted = _taken_apart(estimator, settings)
    X, y = _pair(data, owner, "data")
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


def _collected(model: nn.Module, head: Head | None, records: Records, device: torch.device, settings: Settings) -> Signals:
    """One forward pass: the head's output for each record, or the model's own where no Linear gives it."""
    owner, rows = settings.owner, 0
    outputs: Array | None = None
    targets: list[Array] = []
    seed_everything(settings.seed)
    steps = tracked(
        records.batches(settings.batch_size), "Reading data", total=-(-records.count // settings.batch_size), show=settings.progress
    )
    with closing(steps) as batches, _last_output(head) as last:  # type: ignore[type-var]
        for batch in batches:
            target = as_array(batch.target, owner, "data targets")
            last.clear()
            whole = first_tensor(called(model, batch, device, owner))
            found = whole if head is None else last[0] if last else None
            block = _as_rows(found)
            size = len(target) if target.ndim else 0
            if outputs is None and block is not None:
                outputs = np.empty((records.count, block.shape[1]), block.dtype)
            if block is None or outputs is None or block.shape != (size, outputs.shape[1]) or rows + size > records.count:
                got = "nothing" if found is None else f"shape {tuple(found.shape)}"
                hint = "Token-level heads are not supported: pool to one row per record, or return arrays."
                refuse(owner, "model", f"give one row of outputs per record ({size} in a batch)", got, hint)
            outputs[rows : rows + size] = block
            targets.append(target)
            rows += size
    if rows != records.count or outputs is None:
        hint = "Does collate_fn drop some?"
        refuse(owner, "data", "give every record of its data set", f"{rows} rows from {records.count} records", hint)
    stacked = np.concatenate(targets)
    ids = None if records.rows is None else np.array(records.rows)
    return Signals(None, outputs, stacked[:, 0] if stacked.ndim == 2 and stacked.shape[1] == 1 else stacked, ids)


@contextmanager
def _last_output(head: Head | None) -> Iterator[list[Tensor]]:
    """A list that holds the head's output of the latest forward pass."""
    last: list[Tensor] = []

    def keep(_: object, __: object, output: Tensor) -> None:
        # Copied: a later operation in place would otherwise change it.
        last[:] = [output.detach().clone()]

    hook = None if head is None else head.layer.register_forward_hook(keep)
    try:
        yield last
    finally:
        if hook is not None:
            hook.remove()


def _as_rows(tensor: Tensor | None) -> Array | None:
    """A tensor as (rows, columns) in float32, or float64 when it is that; None when it has another form."""
    if tensor is None or tensor.ndim not in (1, 2):
        return None
    kept = tensor.detach().to("cpu", torch.float64 if tensor.dtype == torch.float64 else torch.float32)
    rows: Array = (kept[:, None] if kept.ndim == 1 else kept).numpy()
    return rows


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
