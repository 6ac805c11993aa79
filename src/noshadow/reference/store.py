"""The folder of an experiment and what is read from it: `References`, memory-mapped."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from noshadow.checks import Array, InputError, named_in_errors, refuse, said
from noshadow.columns import LANGUAGE_MODEL
from noshadow.reference.manifest import plan_digest
from noshadow.reference.opening import (
    EXTRA,
    TARGET,
    common_votes,
    model_path,
    opened_manifest,
    require_finite_rows,
    require_one_form,
    stored_plan,
    target_layout,
    whole_models,
)
from noshadow.reference.parity import loss_parity
from noshadow.reference.plan import Plan
from noshadow.storage.digests import sha256
from noshadow.storage.numpy_files import mapped_npy, write_npy
from noshadow.storage.private_files import make_private_folder
from noshadow.storage.reasons import reason_of
from noshadow.storage.safetensors_files import Layout, layout, state_of
from noshadow.votes import margins_in_votes


@dataclass(frozen=True, eq=False)
class Recorded:
    """One model's arrays over the records, memory-mapped; names as in `References`.

    Attributes:
        layout: where its file has them. votes: as in `References`.
    """

    layout: Layout
    votes: int = 0

    @property
    def statistic(self) -> Array:
        """(n,) or (n, q) margins or signed residuals, those of forests in votes."""
        return _in_votes(self.layout.array("statistic"), self.votes)

    @property
    def loss(self) -> Array:
        """(n,) losses."""
        return self.layout.array("loss")

    @property
    def correct(self) -> Any:
        """(n,) bool, None in a regression and of sequences."""
        return self._optional("correct")

    @property
    def outputs(self) -> Any:
        """(n, m) logits or predictions, None when they were not kept."""
        return self._optional("outputs")

    @property
    def traces(self) -> Any:
        """(n, epochs + 1) losses during training, None when they were not recorded."""
        return self._optional("loss_traces")

    @property
    def extra(self) -> dict[str, Array]:
        """What the experiment's `extra` function returned for this model."""
        return {name.removeprefix(EXTRA): self.layout.array(name) for name in self.layout.places if name.startswith(EXTRA)}

    def _optional(self, name: str) -> Any:
        return self.layout.array(name) if name in self.layout.places else None


@dataclass(frozen=True)
class OutputsOfAll:
    """The outputs of every model, each mapped when asked for: [t] is (n, m)."""

    references: "References"

    def __len__(self) -> int:
        return self.references.plan.models

    def __getitem__(self, model: int) -> Array:
        if not -len(self) <= model < len(self):
            raise IndexError(model)
        return self.references.outputs(model % len(self))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(r, n, m)."""
        n, m = self[0].shape
        return len(self), n, m


@dataclass(frozen=True, eq=False)
class References:
    """A complete set of reference models: what each of them says about every record.

    Nothing is held in memory: arrays over all models are gathered once, row by row, into files that
    are then memory-mapped.

    Attributes:
        folder: where it is.
        describe: the content of plan.json.
        plan: membership, seeds, fraction, seed.
        ids: (n,) of the records. targets: (n,) or (n, q); of sequences, their scored tokens.
        member: (n,) bool, whether the record is in the target's training split.
        task: "classification", "binary", "regression" or "language-model".
        votes: number B of votes whose margins log((k + ½)/(B − k + ½)) `statistic` holds, where the
            models are forests; 0 for margins as they are.
        notes: sentences a reader needs to know.
        headers: file → its header, each read once while the file stays as it is.
    """

    folder: Path
    describe: dict[str, Any]
    plan: Plan
    ids: Array
    targets: Array
    member: Array
    task: str
    votes: int = 0
    notes: tuple[str, ...] = field(default=())
    headers: dict[Path, Layout] = field(default_factory=dict, repr=False)

    @property
    def membership(self) -> Array:
        """(r, n) bool, memory-mapped."""
        return self.plan.membership

    @cached_property
    @named_in_errors
    def statistic(self) -> Array:
        """Return margins, signed residuals or −loss of sequences, (r, n), float64, memory-mapped.

        With several queries or outputs they are (r, n, q). Margins of forests are votes: their
        shares of votes are exactly 0 or 1 for many records, where log-odds are clipped.
        """
        return _stacked(self, "statistic", self.votes)

    @cached_property
    @named_in_errors
    def loss(self) -> Array:
        """(r, n) losses, float64, memory-mapped."""
        return _stacked(self, "loss")

    @cached_property
    @named_in_errors
    def correct(self) -> Array | None:
        """(r, n) bool, memory-mapped; None in a regression and of sequences."""
        return None if self.task in ("regression", LANGUAGE_MODEL) else _stacked(self, "correct")

    @property
    def queries(self) -> tuple[str, ...]:
        """What each record was asked as: "plain", then the names of the queries."""
        return ("plain", *self.describe["signals"]["queries"])

    @property
    @named_in_errors
    def residuals(self) -> int:
        """Number of residuals a record has in a regression; 1 otherwise."""
        several = self.task == "regression" and len(self.queries) == 1 and self.statistic.ndim == 3
        return int(self.statistic.shape[2]) if several else 1

    @property
    def has_outputs(self) -> bool:
        """Whether the models' outputs were kept."""
        return bool(self.describe["signals"]["keep_outputs"])

    @property
    def all_outputs(self) -> OutputsOfAll:
        """Outputs of all models; [t] is (n, m)."""
        return OutputsOfAll(self)

    @property
    def weights_sha256(self) -> str | None:
        """Hex digest of the target's weights, None without a target."""
        value: str | None = self.describe["hashes"]["weights"]
        return value

    @property
    @named_in_errors
    def seconds(self) -> Array:
        """(r,) seconds that training and reading each model took, of one worker."""
        return np.array([float(self.model(number).layout.metadata["seconds"]) for number in range(self.plan.models)])

    @named_in_errors
    def model(self, number: int) -> Recorded:
        """The arrays of one model."""
        return Recorded(_layout(self, model_path(self.folder, number)), self.votes)

    @named_in_errors
    def outputs(self, model: int) -> Array:
        """(n, m) outputs of one model, memory-mapped."""
        return self._kept(self.model(model).outputs, "outputs", "keep_outputs=True")

    @named_in_errors
    def traces(self, model: int) -> Array:
        """Return the losses (n, epochs + 1) of every record during the training of one model.

        They are memory-mapped.
        """
        return self._kept(self.model(model).traces, "traces", "traces=True")

    @named_in_errors
    def extra(self, model: int) -> dict[str, Array]:
        """Return further columns of one model.

        Each is over all n records, or over its members in the order of `plan.members(model)`.
        """
        return self.model(model).extra

    @cached_property
    @named_in_errors
    def target(self) -> Recorded | None:
        """The target's own arrays, or None when no target was given."""
        there = self.headers.get(self.folder / TARGET)
        if there is None or not there.is_current:
            there = target_layout(self.folder, self.describe)
        if there is None:
            return None
        for name in ("statistic", "loss"):
            require_finite_rows(there.array(name), name, there.path.name)
        return Recorded(there, self.votes)

    @named_in_errors
    def parity(self) -> dict[str, Any] | None:
        """Put mean losses of the target beside those of the reference models, see `loss_parity`.

        The result is None without a target.
        """
        return None if self.target is None else loss_parity(self.target.loss, self.member, self.loss, self.membership)

    def stamp(self) -> dict[str, Any]:
        """Return what a result drawn from these models should carry (JSON-ready).

        That is plan digest, hashes, arguments and versions.
        """
        kept = ("hashes", "plan", "pool", "task", "train", "signals", "versions")
        return {"plan_digest": plan_digest(self.describe)} | {name: self.describe[name] for name in kept}

    def __str__(self) -> str:
        return f"{self.plan.models} reference models of {self.plan.records} records ({self.task}) in '{self.folder}'"

    def _kept(self, found: Array | None, name: str, option: str) -> Array:
        if found is None:
            refuse(name, f"have been recorded ({option})", f"none in '{self.folder}'", "Train again in another folder.")
        return found


@named_in_errors
def load_references(folder: str | Path) -> References:
    """A complete set of reference models from its folder.

    Args:
        folder: as given to `train_references`.

    Raises:
        InputError: it holds no plan, fewer models than planned, or a file that was altered.

    Cost: reads membership once for its digest; everything else is mapped when used.
    """
    path = Path(folder)
    manifest = opened_manifest(path)
    done = whole_models(path, manifest)
    models = manifest["plan"]["models"]
    if len(done) < models:
        missing = sorted(set(range(models)) - set(done))
        listed = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
        hint = "Run train_references (noshadow reference train) again with the same arguments: it trains only what is missing."
        refuse("folder", f"hold all {models} models of its plan", f"{len(done)} of {models} (missing: {listed})", hint)
    drawn, records = stored_plan(path, manifest)
    target = target_layout(path, manifest)
    task = require_one_form(done, target, drawn, manifest)
    headers = {there.path: there for there in (*done.values(), *(() if target is None else (target,)))}
    own = records["ids"], records["targets"], records["member"]
    votes, mixed = common_votes(done, target)
    return References(path, manifest, drawn, *own, task, votes, (*manifest["notes"], *mixed), headers)


def with_notes(references: References, notes: tuple[str, ...]) -> References:
    """The same models with further sentences for the reader."""
    return replace(references, notes=references.notes + notes)


def in_votes(references: References, parts: int) -> References:
    """The same models, their margins read as votes of B parts; 0 for margins as they are."""
    return replace(references, votes=parts)


def _in_votes(margins: Array, parts: int) -> Array:
    return margins_in_votes(margins, parts) if parts else margins


def _stacked(references: References, name: str, votes: int = 0) -> Array:
    """Map an array over all models into memory from one .npy file.

    The file is written row by row unless it is there already. Margins are brought to `votes` parts.
    """
    folder, models = references.folder, references.plan.models
    paths = [model_path(folder, t) for t in range(models)]
    states = [state_of(path.stat()) for path in paths]
    key = sha256(repr((plan_digest(references.describe), states, *([votes] if votes else []))).encode())[:16]
    target = folder / "stacked" / f"{name}-{key}.npy"
    first = _layout(references, paths[0]).array(name)
    if not _is_stack(target, (models, *first.shape), first.dtype):
        rows = (_in_votes(_row(references, path, name, first), votes) for path in paths)
        try:
            make_private_folder(target.parent)
            for stale in target.parent.glob(f"{name}-*.npy"):
                stale.unlink()
            write_npy(target, first.dtype, (models, *first.shape), rows)
        except OSError as error:
            raise InputError(said(f"folder must have room for stacked/{target.name}; got '{folder}' ({error}).")) from error
    return mapped_npy(target)


def _is_stack(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether the file is there and of this form; a torn or foreign one is written anew."""
    try:
        there = mapped_npy(path)
    except (OSError, ValueError):
        return False
    return there.shape == shape and there.dtype == dtype


def _layout(references: References, path: Path) -> Layout:
    """The header of a model's file: as read before, or anew where the file is another by now."""
    held = references.headers.get(path)
    if held is not None and held.is_current:
        return held
    try:
        references.headers[path] = layout(path)
        return references.headers[path]
    except (OSError, ValueError) as error:
        raise InputError(said(f"folder must be as it was loaded; got '{path}' ({reason_of(error)}). Load it again.")) from error


def _row(references: References, path: Path, name: str, like: Array) -> Array:
    row = _layout(references, path).array(name)
    if row.shape != like.shape or row.dtype != like.dtype:
        refuse(name, f"have the form {like.shape} of the first model", f"{row.shape} in {path.name}")
    require_finite_rows(row, name, path.name)
    return row
