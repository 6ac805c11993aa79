"""Audit: the answer as a record, and its folder on disk."""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from noshadow.checks import Array
from noshadow.results.finding import Finding
from noshadow.results.folder import read_folder, write_folder
from noshadow.results.ground_truth import GroundTruth
from noshadow.results.group_risk import GroupRisk
from noshadow.results.model_risk import ModelRisk

FORMAT = 1


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
    manifest, files = read_folder(folder, "load", form=FORMAT, names=("records.parquet", "losses.npz"))
    with np.load(io.BytesIO(files["losses.npz"]), allow_pickle=False) as losses:
        member, nonmember = losses["member"], losses["nonmember"]
    risk, truth, drawn = manifest["model_risk"], manifest.get("ground_truth"), manifest.get("findings")
    return Audit(
        records=pd.read_parquet(io.BytesIO(files["records.parquet"])),
        model_risk=None if risk is None else ModelRisk.from_dict(risk),
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
