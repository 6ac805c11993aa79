"""LoodAudit records how much a data set would leak through an architecture.

It has a folder on disk.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from noshadow.checks import named_in_errors
from noshadow.results.folder import FolderKind, read_folder, write_folder
from noshadow.results.folder_forms import LOOD_FORM
from noshadow.results.record_table import record_table, require_numbers, require_ranks, require_shares, target_columns
from noshadow.storage.forms import require_form

FORMAT = 1
COLUMNS = ("kl", "mean_distance", "loo_variance", "auc", "tpr", "leverage", "map_1", "map_2")
LOOD = FolderKind("a leave-one-out audit", "lood.json", ("records.parquet",), "lood.html", "Run noshadow lood again")


@dataclass(frozen=True, eq=False)
class LoodAudit:
    """Leave-one-out distinguishability of every record under a Gaussian process. Larger = riskier.

    Attributes:
        records: one row per record: id, target (or target_0, …), kl (nats), mean_distance,
            loo_variance, auc, tpr (at `fpr`), leverage, map_1 and map_2 (principal components of
            the inputs), rank (1 = largest kl), and audit_… columns once joined.
        kernel: its name and options (JSON-ready).
        noise: variance σ² of the observation noise.
        fpr: false-positive rate of `tpr`.
        summary: mean, median, 90 % quantile and maximum of kl, mean_distance, auc and tpr; how
            concentrated kl is.
        conditioning: eigenvalue range of the kernel matrix, condition of K + σ²I, effective degrees
            of freedom, flatness h(α_min).
        sweep: one row per activation and depth; empty unless asked for.
        joined: how the records of an audit of a trained model compare; None unless one was joined.
        notes: sentences a reader must see.
        provenance: arguments, targets, normalization, projection, hashes, versions (JSON-ready).
        timings: seconds per stage and the time of the run; the only part that differs between equal
            runs.
    """

    records: pd.DataFrame
    kernel: dict[str, Any]
    noise: float
    fpr: float
    summary: dict[str, Any]
    conditioning: dict[str, Any]
    sweep: tuple[dict[str, Any], ...] = ()
    joined: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)

    @named_in_errors
    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the folder: `lood.json` and `records.parquet`, all or nothing.

        Raises:
            InputError: the folder exists (unless `overwrite`), holds other files, or cannot be
                written.
        """
        files = {"records.parquet": self.records.to_parquet(index=False)}
        return write_folder(folder, self.manifest(), files, overwrite=overwrite, kind=LOOD)

    def manifest(self) -> dict[str, Any]:
        """The content of `lood.json` but for the digests of the files."""
        return {
            "format": FORMAT,
            "kernel": self.kernel,
            "noise": self.noise,
            "fpr": self.fpr,
            "records": {"count": len(self.records), "columns": list(self.records.columns)},
            "summary": self.summary,
            "conditioning": self.conditioning,
            "sweep": list(self.sweep),
            "joined": self.joined,
            "notes": list(self.notes),
            "provenance": self.provenance,
            "timings": self.timings,
        }


@named_in_errors
def load_lood(folder: str | Path) -> LoodAudit:
    """Read back what `LoodAudit.save` or `noshadow lood` wrote; the data are not needed.

    Raises:
        InputError: not such a folder, of another format, or altered since it was written.
    """
    manifest, files = read_folder(folder, form=FORMAT, names=LOOD.files, kind=LOOD)
    require_form(manifest, LOOD_FORM, "", f"{LOOD.again}.")
    records = record_table(files["records.parquet"], manifest["records"], LOOD.again)
    require_numbers(records, (*COLUMNS, *target_columns(records)), LOOD.again)
    require_ranks(records, "kl", LOOD.again)
    require_shares(records, ("auc", "tpr"), LOOD.again)
    plain = ("kernel", "noise", "fpr", "summary", "conditioning", "joined", "provenance", "timings")
    return LoodAudit(
        records=records,
        sweep=tuple(manifest["sweep"]),
        notes=tuple(manifest["notes"]),
        **{name: manifest[name] for name in plain},
    )
