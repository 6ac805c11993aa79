"""Audit: the answer as a record, and its folder on disk."""

import io
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from noshadow._findings import findings
from noshadow.checks import Array, InputError, named_in_errors, refuse, require_choice, said
from noshadow.columns import COLUMNS, TASKS, column, named, ranking_order
from noshadow.figures import Evidence, EvidenceEntry, Finding, GroundTruth, GroupRisk, MeasuredAttack, ModelRisk, attack_from_dict
from noshadow.results.folder import AUDIT, read_folder, write_folder
from noshadow.results.folder_forms import AUDIT_FORM
from noshadow.results.record_table import record_table, require_numbers, require_ranks, require_shares, target_columns
from noshadow.storage.forms import require_form
from noshadow.storage.numpy_files import npz_arrays
from noshadow.storage.reasons import reason_of

FORMAT = 1
SHARES = named(kind="share")
LOOD_COLUMNS = named(source="lood")


@dataclass(frozen=True, eq=False)
class Audit:
    """How exposed a model is, which records are, and how that was found out.

    Attributes:
        records: one row a training record: id, target, group (if given), loss, the score columns
            that apply, exact (only for heads too big to factor: whether this record's gaps were
            solved exactly), predicted_tpr (with an interval in a classification), lt_iqr (if loss
            traces were given; early_loss with those of unseen records), left_out_loss and
            out_of_bag_loss (of forests), rank (1 = riskiest), and what reference models measured
            (lira_success, lira_d, rmia_success, …) once `noshadow reference score` added it, and
            what `noshadow lood --audit` added (lood_kl, lood_mean_distance, lood_auc).
        model_risk: model-level figures, None when not applicable (`not_applicable["model_risk"]`
            says why).
        member_losses, nonmember_losses: the two loss samples, float64.
        task: "regression", "classification", "binary" or "language-model".
        ranked_by: the column behind `rank`: `loss` where nothing else is known (NS027), None in
            folders of older versions.
        not_applicable: what was asked for and does not exist here, with the reason.
        notes: sentences a reader must see.
        provenance: arguments, head, damping, diagnostics, class names, hashes, versions
            (JSON-ready).
        timings: seconds per stage and the time of the audit; the only part that differs between
            equal runs.
        ground_truth: what reference-model attacks measured, None until it was added.
        findings: coded statements drawn when the audit was made or last added to; None in a folder
            of a version without them (`noshadow.findings` draws them anew).
        evidence: who wrote which columns, how, and what could not be given; one entry per source.
        class_risk, group_risk: the loss attack within each class and each group of records,
            riskiest first; empty where `not_applicable` says why.
        sequence_attacks: of a language model, what each column finds when it is used as an attack
            on training against test sequences; `_known.DECLARED` is the one that counts, chosen
            before anything was measured.
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
    evidence: tuple[EvidenceEntry, ...] = ()
    sequence_attacks: tuple[MeasuredAttack, ...] = ()

    @named_in_errors
    def with_evidence(self, *evidence: Evidence) -> "Audit":
        """The audit with what further sources say about its records.

        What a source wrote before is replaced: its columns, absences, notes and stamp. Records are
        then ranked anew, by the first column of the registry's ranking order that is there, and the
        findings are drawn anew.

        Args:
            evidence: columns of one source each, in the order of `records`.

        Raises:
            InputError: other numbers of records; a column that another source has written.

        Cost: O(n log n) in the number of records.
        """
        found = self
        for entry in evidence:
            found = _with_one(found, entry)
        found = _ranked(found)
        return replace(found, findings=findings(found))

    @named_in_errors
    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the audit folder: `audit.json`, `records.parquet`, `losses.npz`, all or nothing.

        Same inputs and seed give byte-identical files but for `timings`.

        Raises:
            InputError: the folder exists (unless `overwrite`), holds other files, or cannot be
                written.
        """
        losses = io.BytesIO()
        np.savez(losses, member=self.member_losses, nonmember=self.nonmember_losses)
        files = {"records.parquet": self.records.to_parquet(index=False), "losses.npz": losses.getvalue()}
        return write_folder(folder, self.manifest(), files, overwrite=overwrite)

    @named_in_errors
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
        borne = {"class_risk": self.class_risk, "group_risk": self.group_risk}
        listed = {name: [row.to_dict() for row in rows] for name, rows in borne.items() if rows}
        listed |= {"sequence_attacks": [_plain(row) for row in self.sequence_attacks]} if self.sequence_attacks else {}
        listed |= {"evidence": [entry.to_dict() for entry in self.evidence]} if self.evidence else {}
        return content | drawn | truth | listed


@named_in_errors
def load(folder: str | Path) -> Audit:
    """Read an audit folder back; model and data are not needed.

    Raises:
        InputError: not an audit, of another format, or altered since it was written.
    """
    manifest, files = read_folder(folder, form=FORMAT, names=AUDIT.files)
    require_form(manifest, AUDIT_FORM, "", f"{AUDIT.again}.")
    require_choice(manifest["task"], TASKS, "task")
    member, nonmember = _losses(files["losses.npz"], manifest["records"]["count"])
    records = record_table(files["records.parquet"], manifest["records"], AUDIT.again)
    targets = target_columns(records)
    classes = ("target",) if manifest["task"] in ("classification", "binary") else ()
    require_shares(records, SHARES, AUDIT.again)
    if manifest["provenance"].get("lood") is not None:
        _require_lood_columns(records)
    require_numbers(records, ("loss", *dict.fromkeys((*targets, *classes))), AUDIT.again)
    require_ranks(records, manifest["ranked_by"], AUDIT.again)
    _require_rows_named(manifest["provenance"].get("inputs", {}), len(records))
    risk, truth, drawn = manifest["model_risk"], manifest.get("ground_truth"), manifest.get("findings")
    measured = None if risk is None else ModelRisk.from_dict(risk)
    if measured is not None and (measured.n_members, measured.n_nonmembers) != (len(member), len(nonmember)):
        got = f"{measured.n_members} and {measured.n_nonmembers} beside {len(member)} and {len(nonmember)}"
        refuse("model_risk", "count the losses that are there", got, f"{AUDIT.again}.")
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
        evidence=_entries(manifest.get("evidence", ()), records),
        sequence_attacks=tuple(attack_from_dict(entry) for entry in manifest.get("sequence_attacks", ())),
    )


def _with_one(audit: Audit, evidence: Evidence) -> Audit:
    """Put one source's columns, absences, notes and stamp in place of what it wrote before."""
    if not isinstance(evidence, Evidence):
        refuse("evidence", "be Evidence", type(evidence).__name__)
    for name, values in evidence.columns.items():
        if len(values) != len(audit.records):
            refuse(name, f"have one value for each of {len(audit.records)} records", f"{len(values)}")
    held = next((entry for entry in audit.evidence if entry.source == evidence.source), None)
    written = {*named(source=evidence.source), *(() if held is None else held.columns)}
    kept = audit.records.drop(columns=[name for name in audit.records if name in written])
    taken = sorted(set(evidence.columns) & set(kept.columns))
    if taken:
        refuse("evidence", "write columns of its own", f"{', '.join(taken)} of another source")
    absent = {name: why for name, why in audit.not_applicable.items() if held is None or name not in held.absent}
    notes = [note for note in audit.notes if held is None or note not in held.notes]
    seconds = {} if evidence.seconds is None else {f"{evidence.source.replace(' ', '_')}_seconds": evidence.seconds}
    return replace(
        audit,
        records=kept.assign(**evidence.columns),
        not_applicable={name: why for name, why in (absent | evidence.absent).items() if name not in evidence.columns},
        notes=(*notes, *evidence.notes),
        timings=audit.timings | seconds,
        evidence=(*(entry for entry in audit.evidence if entry is not held), evidence.entry()),
    )


def _ranked(audit: Audit) -> Audit:
    """The table ranked by the best column that it has, in the order of the registry."""
    table = audit.records.drop(columns=[name for name in audit.records if name == "rank"])
    score = next((name for name in ranking_order(table.columns) if name in table), None)
    if score is not None:
        table = table.assign(rank=ranks(table[score].to_numpy(np.float64)))
    places = {entry.name: place for place, entry in enumerate(COLUMNS)}
    known = {name: column(str(name)) for name in table.columns}
    order = sorted(known, key=lambda name: len(places) if (entry := known[name]) is None else places[entry.name])
    absent = {name: why for name, why in audit.not_applicable.items() if score is None or name != "rank"}
    return replace(audit, records=table[order], ranked_by=score, not_applicable=absent)


def _plain(attack: MeasuredAttack) -> dict[str, Any]:
    """An attack in plain JSON types."""
    plain = asdict(attack)
    return plain | {"auc_interval": list(plain["auc_interval"]), "rates": list(plain["rates"])}


def ranks(score: Array) -> Array:
    """1 for the largest score; equal scores keep their row order."""
    places = np.empty(len(score), dtype=np.int64)
    places[np.argsort(-score, kind="stable")] = np.arange(1, len(score) + 1)
    return places


def _entries(listed: Any, records: pd.DataFrame) -> tuple[EvidenceEntry, ...]:
    """Entries of a folder, whose columns must be there, each written by one source."""
    entries = tuple(EvidenceEntry.from_dict(entry) for entry in listed)
    written = [name for entry in entries for name in entry.columns]
    if len(set(written)) < len(written) or not set(written) <= set(records.columns):
        refuse("evidence", "name columns that are there, each once", ", ".join(written), f"{AUDIT.again}.")
    return entries


def _require_rows_named(inputs: dict[str, Any], count: int) -> None:
    """Rows of records that a fact of the reading names are rows of the table."""
    for fact, field_name in (("head_outputs", "train_rows"), ("alone_in_leaves", "first")):
        rows = (inputs.get(fact) or {}).get(field_name, [])
        if rows and max(rows) >= count:
            refuse(f"provenance.inputs.{fact}.{field_name}", f"be rows of {count} records", f"{max(rows)}", f"{AUDIT.again}.")


def _require_lood_columns(records: pd.DataFrame) -> None:
    """Refuse a table without all three columns that `with_lood` adds.

    They must be known for the same records, and for one at least.
    """
    known = records[list(LOOD_COLUMNS)].notna().to_numpy() if set(LOOD_COLUMNS) <= set(records.columns) else np.zeros((1, 3), bool)
    if not known.any() or (known.any(1) != known.all(1)).any():
        refuse("records.parquet", f"have the columns {', '.join(LOOD_COLUMNS)} of some records", "others", f"{AUDIT.again}.")


def _losses(content: bytes, members: int) -> tuple[Array, Array]:
    """Losses of members and non-members, of one dimension and without NaN."""
    try:
        held = npz_arrays(io.BytesIO(content), len(content))
    except ValueError as error:
        raise InputError(said(f"losses.npz must hold plain arrays; got {reason_of(error)}. {AUDIT.again}.")) from error
    if set(held) != {"member", "nonmember"}:
        refuse("losses.npz", "hold member and nonmember", ", ".join(sorted(held)) or "nothing", f"{AUDIT.again}.")
    for name, losses in held.items():
        if losses.ndim != 1 or losses.dtype != np.float64 or bool(np.isnan(losses).any()):
            got = f"shape {losses.shape} of {losses.dtype}" + (" with NaN" if losses.dtype.kind == "f" and np.isnan(losses).any() else "")
            refuse(f"{name} losses", "be float64 numbers, one a record", got, f"{AUDIT.again}.")
    if len(held["member"]) != members:
        refuse("losses.npz", f"hold one loss for each of {members} records", f"{len(held['member'])}", f"{AUDIT.again}.")
    return held["member"], held["nonmember"]
