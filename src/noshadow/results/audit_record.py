"""Audit: the answer as a record, and its folder on disk."""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from noshadow.checks import Array, InputError, refuse, require_choice
from noshadow.columns import TASKS, named
from noshadow.reading.forms import require_form
from noshadow.reading.numpy_files import npz_arrays
from noshadow.reading.reasons import reason_of
from noshadow.results.finding import Finding
from noshadow.results.folder import AUDIT, read_folder, write_folder
from noshadow.results.folder_forms import AUDIT_FORM
from noshadow.results.ground_truth import GroundTruth
from noshadow.results.group_risk import GroupRisk
from noshadow.results.model_risk import ModelRisk
from noshadow.results.record_table import record_table, require_numbers, require_ranks, require_shares, target_columns

FORMAT = 1
OWNER = "load"
SHARES = named(kind="share")
LOOD_COLUMNS = named(source="lood")


@dataclass(frozen=True, eq=False)
class Audit:
    """How exposed a model is, which records are, and how that was found out.

    Attributes:
        records: one row a training record: id, target, group (if given), loss, the score columns that apply,
            exact (only for heads too big to factor: whether this record's gaps were solved exactly), predicted_tpr
            (with an interval in a classification), lt_iqr (if loss traces were given), rank (1 = riskiest), and what reference
            models measured (lira_success, lira_d, rmia_success, …) once `noshadow reference score` added it, and what
            `noshadow lood --audit` added (lood_kl, lood_mean_distance, lood_auc).
        model_risk: model-level figures, None when not applicable (`not_applicable["model_risk"]` says why).
        member_losses, nonmember_losses: the two loss samples, float64.
        task: "regression", "classification", "binary" or "language-model".
        ranked_by: the column behind `rank`, None when no record score applies.
        not_applicable: what was asked for and does not exist here, with the reason.
        notes: sentences a reader must see.
        provenance: arguments, head, damping, diagnostics, class names, hashes, versions (JSON-ready).
        timings: seconds per stage and the time of the audit; the only part that differs between equal runs.
        ground_truth: what reference-model attacks measured, None until it was added.
        findings: coded statements drawn when the audit was made or last added to; None in a folder of a version without
            them (`noshadow.findings` draws them anew).
        class_risk, group_risk: the loss attack within each class and each group of records, riskiest first; empty where
            `not_applicable` says why.
    """

    records: pd.DataFrame
    model_risk: ModelRisk | None
    member_losses: Array
    nonmember_losses: Array
    task: str
    ranked_by: str | None
    not_applicable: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)
    ground_truth: GroundTruth | None = None
    findings: tuple[Finding, ...] | None = None
    class_risk: tuple[GroupRisk, ...] = ()
    group_risk: tuple[GroupRisk, ...] = ()

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the audit folder: `audit.json`, `records.parquet`, `losses.npz`, all or nothing.

        Same inputs and seed give byte-identical files but for `timings`.

        Raises:
            InputError: the folder exists (unless `overwrite`), holds other files, or cannot be written.
        """
        losses = io.BytesIO()
        np.savez(losses, member=self.member_losses, nonmember=self.nonmember_losses)
        files = {"records.parquet": self.records.to_parquet(index=False), "losses.npz": losses.getvalue()}
        return write_folder(folder, self.manifest(), files, overwrite=overwrite, owner="Audit.save")

    def manifest(self) -> dict[str, Any]:
        """The content of `audit.json` but for the digests of the other files."""
        drawn = {} if self.findings is None else {"findings": [finding.to_dict() for finding in self.findings]}
        truth = {} if self.ground_truth is None else {"ground_truth": self.ground_truth.to_dict()}
        content = {
            "format": FORMAT,
            "task": self.task,
            "ranked_by": self.ranked_by,
            "records": {"count": len(self.records), "columns": list(self.records.columns)},
            "model_risk": None if self.model_risk is None else self.model_risk.to_dict(),
            "not_applicable": self.not_applicable,
            "notes": list(self.notes),
            "provenance": self.provenance,
            "timings": self.timings,
        }
        borne = {name: [row.to_dict() for row in rows] for name, rows in self._borne().items() if rows}
        return content | drawn | truth | borne

    def _borne(self) -> dict[str, tuple[GroupRisk, ...]]:
        return {"class_risk": self.class_risk, "group_risk": self.group_risk}


def load(folder: str | Path) -> Audit:
    """Read an audit folder back; model and data are not needed.

    Raises:
        InputError: not an audit, of another format, or altered since it was written.
    """
    manifest, files = read_folder(folder, OWNER, form=FORMAT, names=AUDIT.files)
    require_form(manifest, AUDIT_FORM, "", OWNER, f"{AUDIT.again}.")
    require_choice(manifest["task"], TASKS, OWNER, "task")
    member, nonmember = _losses(files["losses.npz"], manifest["records"]["count"])
    records = record_table(files["records.parquet"], manifest["records"], OWNER, AUDIT.again)
    targets = target_columns(records)
    classes = ("target",) if manifest["task"] in ("classification", "binary") else ()
    require_shares(records, SHARES, OWNER, AUDIT.again)
    if manifest["provenance"].get("lood") is not None:
        _require_lood_columns(records)
    require_numbers(records, ("loss", *dict.fromkeys((*targets, *classes))), OWNER, AUDIT.again)
    require_ranks(records, manifest["ranked_by"], OWNER, AUDIT.again)
    risk, truth, drawn = manifest["model_risk"], manifest.get("ground_truth"), manifest.get("findings")
    measured = None if risk is None else ModelRisk.from_dict(risk)
    if measured is not None and (measured.n_members, measured.n_nonmembers) != (len(member), len(nonmember)):
        got = f"{measured.n_members} and {measured.n_nonmembers} beside {len(member)} and {len(nonmember)}"
        refuse(OWNER, "model_risk", "count the losses that are there", got, f"{AUDIT.again}.")
    return Audit(
        records=records,
        model_risk=measured,
        member_losses=member,
        nonmember_losses=nonmember,
        task=manifest["task"],
        ranked_by=manifest["ranked_by"],
        not_applicable=manifest["not_applicable"],
        notes=tuple(manifest["notes"]),
        provenance=manifest["provenance"],
        timings=manifest["timings"],
        ground_truth=None if truth is None else GroundTruth.from_dict(truth),
        findings=None if drawn is None else tuple(Finding.from_dict(entry) for entry in drawn),
        class_risk=tuple(GroupRisk.from_dict(entry) for entry in manifest.get("class_risk", ())),
        group_risk=tuple(GroupRisk.from_dict(entry) for entry in manifest.get("group_risk", ())),
    )


def _require_lood_columns(records: pd.DataFrame) -> None:
    """All three columns that `with_lood` adds, known for the same records and for one at least."""
    known = records[list(LOOD_COLUMNS)].notna().to_numpy() if set(LOOD_COLUMNS) <= set(records.columns) else np.zeros((1, 3), bool)
    if not known.any() or (known.any(1) != known.all(1)).any():
        refuse(OWNER, "records.parquet", f"have the columns {', '.join(LOOD_COLUMNS)} of some records", "others", f"{AUDIT.again}.")


def _losses(content: bytes, members: int) -> tuple[Array, Array]:
    """Losses of members and non-members, of one dimension and without NaN."""
    try:
        held = npz_arrays(io.BytesIO(content), len(content))
    except ValueError as error:
        raise InputError(f"{OWNER}: losses.npz must hold plain arrays; got {reason_of(error)}. {AUDIT.again}.") from error
    if set(held) != {"member", "nonmember"}:
        refuse(OWNER, "losses.npz", "hold member and nonmember", ", ".join(sorted(held)) or "nothing", f"{AUDIT.again}.")
    for name, losses in held.items():
        if losses.ndim != 1 or losses.dtype != np.float64 or bool(np.isnan(losses).any()):
            got = f"shape {losses.shape} of {losses.dtype}" + (" with NaN" if losses.dtype.kind == "f" and np.isnan(losses).any() else "")
            refuse(OWNER, f"{name} losses", "be float64 numbers, one a record", got, f"{AUDIT.again}.")
    if len(held["member"]) != members:
        refuse(OWNER, "losses.npz", f"hold one loss for each of {members} records", f"{len(held['member'])}", f"{AUDIT.again}.")
    return held["member"], held["nonmember"]
