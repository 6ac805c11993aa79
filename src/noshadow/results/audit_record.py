"""Audit: the answer as a record, and its folder on disk."""

import io
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import noshadow
from noshadow._answer import Offer
from noshadow._answer import offers as price_list
from noshadow._findings import findings
from noshadow._glance import Glance, brief_text, exposure_plot, glance, summary_text, top_table
from noshadow.arguments import SHOW_TOP
from noshadow.checks import Array, named_in_errors, refuse, require_whole
from noshadow.columns import COLUMNS, column, named, ranking_order
from noshadow.figures import Evidence, EvidenceEntry, Finding, GroundTruth, GroupRisk, MeasuredAttack, ModelRisk
from noshadow.results.folder import write_folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = 1
_GO_ON = 'Go on: .top() the riskiest, .summary(), .plot(), .report("report.html") the page, .save("folder")'


@dataclass(frozen=True, eq=False, repr=False)
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

    @property
    def offers(self) -> tuple[Offer, ...]:
        """What further evidence would cost and buy, the cheapest first.

        Each `Offer` has the argument of `audit` that asks for it, its price in trainings of the
        model and in seconds on this machine where any were measured, the share by which intervals
        become narrower where sizes are known, and a sentence. Empty where nothing helps, as for
        language models and records of several outputs, whose exposure is not offered.

        Cost: O(n) in the number of records.
        """
        return price_list(self)

    def __repr__(self) -> str:
        """The audit in at most twenty lines, without ids."""
        return brief_text(self, _GO_ON)

    def _repr_html_(self) -> str:
        """Verdict, picture and the ten riskiest records for a notebook, without ids."""
        return self.show().html

    @named_in_errors
    def show(self, *, show_ids: bool = False, top: int = 10) -> Glance:
        """Verdict, picture and the riskiest records: HTML in a notebook, text elsewhere.

        Args:
            show_ids: name the records. Outputs are kept in a notebook's file, so that an audit by
                itself shows ranks without ids.
            top: how many of the riskiest records are listed.

        Returns:
            An object that a notebook shows; its `html` is a fragment without scripts.

        Raises:
            InputError: top is no whole number above zero.

        Cost: O(n log n) in the number of records.
        """
        return glance(self, show_ids=show_ids, top=require_whole(top, "top", low=1))

    @named_in_errors
    def summary(self, *, show_ids: bool = False) -> str:
        """What `noshadow audit` prints, as plain text.

        The first five lines are the verdict, the rate in people per thousand, how it is known, the
        most exposed record and what to do next. Then come figures, findings, the five riskiest
        records, notes, and what further evidence would buy.

        Args:
            show_ids: name the records, as the command does.

        Cost: O(n log n) in the number of records.
        """
        return summary_text(self, show_ids=show_ids)

    @named_in_errors
    def top(self, count: int = 20) -> pd.DataFrame:
        """The riskiest records by rank, with their ids and the columns that matter.

        These are rank, id, label or targets, group, loss, the record's own rate with its interval
        where one is known, and what ranks. `records` has every column.

        Args:
            count: how many, at most.

        Raises:
            InputError: count is no whole number above zero, or records are not ranked.

        Cost: O(n).
        """
        return top_table(self, count)

    @named_in_errors
    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw how many records have which exposure, the largest marked, by matplotlib.

        Exposure is each record's own rate, beside the model's rate and a guess, or else the score
        that ranks. No record is named.

        Args:
            ax: where to draw; None: a new figure of pyplot.

        Returns:
            The Axes drawn in.

        Raises:
            InputError: matplotlib is not installed (`pip install noshadow[plot]`), or the audit
                holds neither rates nor scores that differ.
        """
        return exposure_plot(self, ax)

    @named_in_errors
    def report(self, path: str | Path, *, show_records: object = None, show_ids: object = None, show_top: int = SHOW_TOP) -> Path:
        """Write the report: `noshadow.write_report` of this audit, with the same arguments.

        The page names records. Pass it on as carefully as the data.

        Returns:
            The path written.

        Raises:
            InputError: as `write_report`.
        """
        # The page stands above the audit, and is found by its public name when it is asked for.
        return noshadow.write_report(self, path, show_records=show_records, show_ids=show_ids, show_top=show_top)

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


def require_audit(value: object, argument: str = "audit") -> None:
    """Refuse what is no Audit, as a path of its folder is none."""
    if not isinstance(value, Audit):
        refuse(argument, "be an Audit", type(value).__name__, "Read a folder with noshadow.load first.")


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
