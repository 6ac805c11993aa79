"""An audit read back from its folder, every part checked."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from noshadow.checks import Array, InputError, named_in_errors, refuse, require_choice, said
from noshadow.columns import TASKS, named
from noshadow.figures import EvidenceEntry, Finding, GroundTruth, GroupRisk, ModelRisk, attack_from_dict
from noshadow.results.audit_record import FORMAT, Audit
from noshadow.results.folder import AUDIT, read_folder
from noshadow.results.folder_forms import AUDIT_FORM
from noshadow.results.record_table import record_table, require_numbers, require_ranks, require_shares, target_columns
from noshadow.storage.forms import require_form
from noshadow.storage.numpy_files import npz_arrays
from noshadow.storage.reasons import reason_of

SHARES = named(kind="share")
LOOD_COLUMNS = named(source="lood")


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

    They must be finite, known for the same records, and for one at least.
    """
    known = records[list(LOOD_COLUMNS)].notna().to_numpy() if set(LOOD_COLUMNS) <= set(records.columns) else np.zeros((1, 3), bool)
    if not known.any() or (known.any(1) != known.all(1)).any():
        refuse("records.parquet", f"have the columns {', '.join(LOOD_COLUMNS)} of some records", "others", f"{AUDIT.again}.")
    endless = np.isinf(records[list(LOOD_COLUMNS)].to_numpy(np.float64)).any(0)
    if endless.any():
        refuse(LOOD_COLUMNS[int(np.argmax(endless))], "hold finite numbers", "∞", f"{AUDIT.again}.")


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
