"""LossTraces: a recorder for training loops that takes one loss per record at each call."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from noshadow.arguments import BATCH_SIZE
from noshadow.checks import TASKS, Array, as_array, named_in_errors, refuse, require_choice
from noshadow.losses import record_losses, task_targets
from noshadow.signals import Signals
from noshadow.traces.callbacks import lightning_callback, transformers_callback
from noshadow.traces.files import save_traces
from noshadow.traces.forward import module_losses
from noshadow.views import readable_models, reader_of, view
from noshadow.views.head import Source
from noshadow.views.loading import records_of
from noshadow.views.view import Settings


class LossTraces:
    """Losses of every record over a training, (n, recordings).

    `audit(…, loss_traces=)` turns them into `lt_iqr`.

    One recorder belongs to one training. Call `record(model)` before the first step and after every
    epoch, or hand one of the callbacks to a trainer; a training without PyTorch or scikit-learn
    gives its own losses to `append`.

    Args:
        data: the training records: (X, y), a map-style Dataset or a DataLoader, without random
            augmentation. They are read in the data's own order even when the loader shuffles. None
            when only `append` is used.
        task: "auto", "regression", "classification" or "binary".
        batch_size: records in one forward pass. The audit's losses are the same to the last digit
            under its batch size.
        device: where to run an nn.Module; it returns to its own device after each recording. None:
            where it is.
        ids: (n,) unique integers or strings; the audit then matches records by id. None: by
            position.
        layer: name of the nn.Linear to read, or "auto" for the one that produces the model's
            output.
        output: of a model that returns several tensors, the name or position of its output, or
            "auto"; as in `audit`.

    Raises:
        InputError: an argument breaks a rule.

    Cost: a recording is one forward pass over the data and holds the outputs of all records, not
        their features; 8 bytes per record and recording are kept.
    Reference: Pollock et al. 2025 (arXiv 2411.05743).

    Example:
        >>> traces = LossTraces()
        >>> for losses in ([2.0, 1.0], [1.0, 0.9], [0.0, 0.8]):
        ...     traces.append(losses)
        >>> len(traces), traces.array.tolist()
        (3, [[2.0, 1.0, 0.0], [1.0, 0.9, 0.8]])
    """

    @named_in_errors
    def __init__(
        self,
        data: object = None,
        *,
        task: str = "auto",
        batch_size: int = BATCH_SIZE,
        device: object = None,
        ids: object = None,
        layer: str = "auto",
        output: str | int = "auto",
    ) -> None:
        require_choice(task, ("auto", *TASKS), "task")
        # refuses a wrong size now, not when training starts
        Settings(batch_size=batch_size, output=output)
        if data is not None and not (isinstance(data, (tuple, list)) and len(data) == 2):
            records_of(data, "data", seed=0)
        self._data, self._task = data, task
        how: dict[str, Any] = {"layer": layer, "batch_size": batch_size, "device": device, "output": output}
        self._settings = Settings(**how, progress=False)
        self._ids = None if ids is None else _identifiers(ids)
        self._columns: list[Array] = []
        self._source: Source | None = None

    def __len__(self) -> int:
        """Number of recordings."""
        return len(self._columns)

    @property
    def array(self) -> Array:
        """Losses so far, float64 (n, recordings); a copy."""
        return np.stack(self._columns, axis=1) if self._columns else np.empty((0, 0))

    @property
    def ids(self) -> Array | None:
        """The ids given, (n,); None when records are matched by position."""
        return None if self._ids is None else self._ids.copy()

    @named_in_errors
    def record(self, model: object) -> None:
        """Add the loss of every record under the model as it is now.

        The model runs in eval mode without gradients. Its training flags, its device, its BatchNorm
        statistics and the random states of Python, NumPy and torch are afterwards as they were,
        also when its forward raises.

        Args:
            model: an nn.Module whose output comes from a final nn.Linear or has `.logits`, or a
                fitted scikit-learn estimator.

        Raises:
            InputError: no data was given, the model cannot be read, or a loss is NaN or infinite;
                nothing is added then.

        Exact: the audit's `loss` column for the same weights, data and batch size.
        Cost: one forward pass; the outputs of all records are held while it runs.
        """
        if self._data is None:
            refuse("data", "be given to LossTraces", "none", "Build LossTraces((X, y)), or append losses of your own.")
        reader = reader_of(model)
        if reader is None:
            got = f"an object of type {type(model).__name__}"
            refuse("model", f"be {readable_models()}", got, "Append losses of other frameworks.")
        if isinstance(model, nn.Module):
            losses, self._source = module_losses(model, self._data, task=self._task, settings=self._settings, last=self._source)
        else:
            losses = self._table_losses(model)
        self._add(losses)

    @named_in_errors
    def append(self, losses: object) -> None:
        """Add losses of any framework, in the order of the training records.

        There must be one finite number per record.

        Args:
            losses: (n,), computed in evaluation mode on un-augmented records.

        Raises:
            InputError: not one finite number per record, or not as many as in the first recording;
                nothing is added then.
        """
        self._add(as_array(losses, "losses"))

    @named_in_errors
    def save(self, path: str | Path) -> None:
        """Write `loss_traces` and, when given, `ids` to a `.npz` or `.safetensors` file.

        The file is written whole or not at all.

        Raises:
            InputError: nothing was recorded, another suffix, or a place that cannot be written.
        """
        if not self._columns:
            refuse("traces", "hold at least one recording", "none", "Call record or append first.")
        save_traces(path, self.array, self._ids)

    @named_in_errors
    def lightning_callback(self, *, module_attribute: str | None = None) -> Any:
        """Make a Lightning Callback that records when training starts and after each epoch.

        The first recording comes after any sanity check.

        Only global rank zero records. A recorder that already holds recordings skips the one at the
        start, so that a training in several `fit` calls gives one column per epoch.

        Args:
            module_attribute: name of the sub-module whose forward gives the outputs, when the
                LightningModule's does not.

        Raises:
            InputError: Lightning is not installed; later, inside `fit`, whatever `record` refuses.
        """
        return lightning_callback(self, module_attribute)

    @named_in_errors
    def transformers_callback(self) -> Any:
        """A transformers TrainerCallback that records when training begins and after each epoch.

        It records on world process zero, and skips the start as `lightning_callback` does. Data
        come as for `record`: where the Trainer has a collator, pass a DataLoader with it as
        `collate_fn`.

        Raises:
            InputError: transformers is not installed; later, inside `train`, whatever `record`
                refuses.
        """
        return transformers_callback(self)

    def _table_losses(self, model: object) -> Array:
        asked = self._settings
        how: dict[str, Any] = {"layer": asked.layer, "output": asked.output, "device": asked.device}
        seen = view(model, self._data, None, task=self._task, progress=False, **how)
        return record_losses(seen.train.outputs, task_targets(seen.train.outputs, seen.train.targets, seen.task), seen.task)

    def _add(self, losses: Array) -> None:
        if losses.ndim != 1 or losses.dtype.kind not in "biuf":
            refuse("losses", "be 1-dimensional numbers, one a record", f"shape {losses.shape}, dtype {losses.dtype}")
        known = len(self._columns[0]) if self._columns else None if self._ids is None else len(self._ids)
        if len(losses) == 0 or known not in (None, len(losses)):
            source = "as many as ids" if not self._columns else "as many as in the first recording"
            rule = "have one value per record" if known is None else f"have {known} values, {source}"
            refuse("losses", rule, len(losses))
        wrong = np.flatnonzero(~np.isfinite(losses))
        if len(wrong):
            number = len(self._columns)
            when = f"recording {number + 1} (epoch {number} if the first was made before training)"
            got = f"NaN or infinite losses of {len(wrong)} of {len(losses)} records in {when}, the first at row {wrong[0]}"
            refuse("losses", "be finite", got, "The training diverged here; the recordings before it are kept.")
        self._columns.append(losses.astype(np.float64))


def _identifiers(ids: Any) -> Array:
    if not hasattr(ids, "__len__"):
        refuse("ids", "be a list of integers or strings", repr(ids))
    checked: Array = Signals(None, np.zeros(len(ids)), np.zeros(len(ids)), ids).ids.copy()
    return checked
