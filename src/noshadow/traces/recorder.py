"""LossTraces: a recorder for training loops that takes one loss per record at each call.

It can trace unseen records beside the training's own, and keep the state that they liked best.
"""

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from noshadow.arguments import BATCH_SIZE
from noshadow.checks import TASKS, Array, as_array, refuse, require_choice
from noshadow.losses import record_losses, task_targets
from noshadow.signals import Signals
from noshadow.traces.best import best_recording
from noshadow.traces.callbacks import lightning_callback, transformers_callback
from noshadow.traces.checkpoint import checkpoint_path, kept_loss, write_checkpoint
from noshadow.traces.files import save_traces
from noshadow.traces.forward import module_losses
from noshadow.views import readable_models, reader_of, view
from noshadow.views.head import Source
from noshadow.views.loading import records_of
from noshadow.views.view import Settings


class LossTraces:
    """Losses of every record over a training, (n, recordings).

    `audit(…, loss_traces=)` turns them into `lt_iqr` and, with losses of unseen records (`test`),
    into `early_loss`.

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
        test: records that the training does not see, in a form of `data`, such as the test split of
            the audit or a validation split. Their losses are recorded too. They say which recording
            is the best (`best_epoch`).
        checkpoint: path of a `.safetensors` file that keeps the state dict of the nn.Module at the
            lowest mean loss on `test` so far, replaced whole whenever a lower one comes. The first
            recording of a new recorder replaces what is there.

    Raises:
        InputError: an argument breaks a rule.

    Cost: a recording is one forward pass over data and test and holds the outputs of all records,
        not their features; 8 bytes per record and recording are kept. A checkpoint is one copy of
        the state in memory and on disk.
    Reference: Pollock et al. 2025 (arXiv 2411.05743).

    Example:
        >>> traces = LossTraces()
        >>> for losses in ([2.0, 1.0], [1.0, 0.9], [0.0, 0.8]):
        ...     traces.append(losses)
        >>> len(traces), traces.array.tolist()
        (3, [[2.0, 1.0, 0.0], [1.0, 0.9, 0.8]])
    """

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
        test: object = None,
        checkpoint: str | Path | None = None,
    ) -> None:
        require_choice(task, ("auto", *TASKS), "LossTraces", "task")
        # refuses a wrong size now, not when training starts
        Settings(batch_size=batch_size, output=output, owner="LossTraces")
        for name, split in (("data", data), ("test", test)):
            if split is not None and not (isinstance(split, (tuple, list)) and len(split) == 2):
                records_of(split, "LossTraces", name, seed=0)
        if test is not None and data is None:
            refuse("LossTraces", "data", "be given where test is", "none", "To append losses of your own, leave test= out.")
        if test is not None and test is data:
            refuse("LossTraces", "test", "be records that the training does not see", "data itself")
        if checkpoint is not None and test is None:
            hint = "Pass test= with records that the training does not see."
            refuse("LossTraces", "checkpoint", "come with test, whose lowest loss says when", "none", hint)
        self._data, self._test, self._task = data, test, task
        self._checkpoint = None if checkpoint is None else checkpoint_path(checkpoint, "LossTraces")
        self._kept: float | None = None
        how: dict[str, Any] = {"layer": layer, "batch_size": batch_size, "device": device, "output": output}
        self._settings = Settings(**how, progress=False, owner="LossTraces.record")
        self._ids = None if ids is None else _identifiers(ids)
        self._columns: list[Array] = []
        self._unseen: list[Array] = []
        self._source: Source | None = None

    def __len__(self) -> int:
        """Number of recordings."""
        return len(self._columns)

    @property
    def array(self) -> Array:
        """Losses so far, float64 (n, recordings); a copy."""
        return np.stack(self._columns, axis=1) if self._columns else np.empty((0, 0))

    @property
    def test_array(self) -> Array | None:
        """Losses of unseen records so far, float64 (t, recordings); a copy, None without them."""
        return np.stack(self._unseen, axis=1) if self._unseen else None

    @property
    def best_epoch(self) -> int | None:
        """The recording with the lowest mean loss on unseen records, counted from 0.

        It is an epoch where the first recording was made before training. The first one counts
        where several are equally low; None without losses of unseen records.
        """
        unseen = self.test_array
        return None if unseen is None else best_recording(unseen)

    @property
    def ids(self) -> Array | None:
        """The ids given, (n,); None when records are matched by position."""
        return None if self._ids is None else self._ids.copy()

    def record(self, model: object) -> None:
        """Add the loss of every record under the model as it is now.

        The model runs in eval mode without gradients. Its training flags, its device, its BatchNorm
        statistics and the random states of Python, NumPy and torch are afterwards as they were,
        also when its forward raises.

        Args:
            model: an nn.Module whose output comes from a final nn.Linear or has `.logits`, or a
                fitted scikit-learn estimator.

        Raises:
            InputError: no data was given, the model cannot be read, a loss is NaN or infinite, or
                a checkpoint was asked for and cannot be kept; nothing is added then.

        Exact: the audit's losses for the same weights, data and batch size.
        Cost: one forward pass; the outputs of all records are held while it runs.
        """
        owner = self._settings.owner
        if self._data is None:
            refuse(owner, "data", "be given to LossTraces", "none", "Build LossTraces((X, y)), or append losses of your own.")
        reader = reader_of(model)
        if reader is None:
            got = f"an object of type {type(model).__name__}"
            refuse(owner, "model", f"be {readable_models()}", got, "Append losses of other frameworks.")
        if isinstance(model, nn.Module):
            splits = {"data": self._data} | ({} if self._test is None else {"test": self._test})
            losses, self._source = module_losses(model, splits, task=self._task, settings=self._settings, last=self._source)
        else:
            losses = self._table_losses(model)
        self._add(losses[0], losses[1] if len(losses) > 1 else None, owner, model)

    def append(self, losses: object, test_losses: object = None) -> None:
        """Add losses of any framework, in the order of the training records.

        There must be one finite number per record.

        Args:
            losses: (n,), computed in evaluation mode on un-augmented records.
            test_losses: (t,) of records that the training does not see, in the same way; with every
                recording or with none.

        Raises:
            InputError: not one finite number per record, or not as many as in the first recording,
                or `checkpoint` was given and there is no such file yet: no model is seen here whose
                state could be kept. Nothing is added then.
        """
        owner = "LossTraces.append"
        if self._checkpoint is not None and not self._checkpoint.exists():
            hint = "Build LossTraces without a checkpoint, and keep the best state yourself."
            refuse(owner, "checkpoint", "be there already where losses are appended, for no model is seen", f"'{self._checkpoint}'", hint)
        unseen = None if test_losses is None else as_array(test_losses, owner, "test_losses")
        self._add(as_array(losses, owner, "losses"), unseen, owner)

    def save(self, path: str | Path) -> None:
        """Write `loss_traces` and, when given, `ids` to a `.npz` or `.safetensors` file.

        Losses of unseen records are `test_loss_traces`. The file is written whole or not at all.

        Raises:
            InputError: nothing was recorded, another suffix, or a place that cannot be written.
        """
        if not self._columns:
            refuse("LossTraces.save", "traces", "hold at least one recording", "none", "Call record or append first.")
        save_traces(path, self.array, self._ids, self.test_array)

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

    def _table_losses(self, model: object) -> list[Array]:
        asked = self._settings
        if self._checkpoint is not None:
            got = f"{type(model).__name__}, which has no state dict of tensors"
            refuse(asked.owner, "model", "be an nn.Module where a checkpoint is kept", got, "Build LossTraces without a checkpoint.")
        how: dict[str, Any] = {"layer": asked.layer, "output": asked.output, "device": asked.device, "owner": asked.owner}
        seen = view(model, self._data, self._test, task=self._task, progress=False, **how)
        splits = [seen.train] if self._test is None else [seen.train, seen.test]
        return [record_losses(s.outputs, task_targets(s.outputs, s.targets, seen.task, asked.owner), seen.task) for s in splits]

    def _add(self, losses: Array, unseen: Array | None, owner: str, model: object = None) -> None:
        """Check a recording as a whole, keep the state of the model if it is the best, then add."""
        expected = bool(self._unseen) if self._columns else self._test is not None or unseen is not None
        if expected != (unseen is not None):
            got = "none" if unseen is None else "some after recordings without"
            refuse(owner, "test_losses", "be given with every recording or with none", got)
        checked = self._checked(losses, self._columns, owner, "losses")
        if unseen is not None:
            checked_unseen = self._checked(unseen, self._unseen, owner, "test_losses")
            if self._checkpoint is not None and isinstance(model, nn.Module):
                self._keep(self._checkpoint, model, float(checked_unseen.mean()), owner)
            self._unseen.append(checked_unseen)
        self._columns.append(checked)

    def _keep(self, path: Path, model: nn.Module, loss: float, owner: str) -> None:
        """Replace the checkpoint by this model's state if its loss is lower."""
        if self._kept is None and self._columns:
            # All recordings so far were appended: the file is of an earlier run of this training.
            self._kept = kept_loss(path, owner)
        if self._kept is None or loss < self._kept:
            write_checkpoint(path, model, loss=loss, recording=len(self._columns), owner=owner)
            self._kept = loss

    def _checked(self, losses: Array, before: list[Array], owner: str, name: str) -> Array:
        """One finite number per record, as many as before, in float64."""
        if losses.ndim != 1 or losses.dtype.kind not in "biuf":
            refuse(owner, name, "be 1-dimensional numbers, one a record", f"shape {losses.shape}, dtype {losses.dtype}")
        named = None if self._ids is None or name != "losses" else len(self._ids)
        known = len(before[0]) if before else named
        if len(losses) == 0 or known not in (None, len(losses)):
            source = "as many as in the first recording" if before else "as many as ids"
            rule = "have one value per record" if known is None else f"have {known} values, {source}"
            refuse(owner, name, rule, len(losses))
        wrong = np.flatnonzero(~np.isfinite(losses))
        if len(wrong):
            number = len(self._columns)
            when = f"recording {number + 1} (epoch {number} if the first was made before training)"
            got = f"NaN or infinite losses of {len(wrong)} of {len(losses)} records in {when}, the first at row {wrong[0]}"
            refuse(owner, name, "be finite", got, "The training diverged here; the recordings before it are kept.")
        return losses.astype(np.float64)


def _identifiers(ids: Any) -> Array:
    if not hasattr(ids, "__len__"):
        refuse("LossTraces", "ids", "be a list of integers or strings", repr(ids))
    checked: Array = Signals(None, np.zeros(len(ids)), np.zeros(len(ids)), ids).ids.copy()
    return checked
