"""LoodAudit → one self-contained HTML file."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from noshadow.checks import named_in_errors, refuse
from noshadow.report.charts import NARROW, WIDE, loss_bins, loss_chart
from noshadow.report.formats import figure, interval, number, out_of_a_hundred, sentence, timestamp
from noshadow.report.lood_charts import auc_chart, leak_map, scatter_charts, sweep_chart
from noshadow.report.rendering import flat_rows, rendered
from noshadow.report.top_records import TARGET_COLUMNS
from noshadow.results import LoodAudit, write_file

ROWS = 20
_MEASURES = ("kl", "auc", "tpr", "mean_distance", "loo_variance")
_SHORT_HASH = 12
_ROUNDING = float(np.finfo(np.float64).eps)


@named_in_errors
def write_lood_report(found: LoodAudit, path: str | Path) -> Path:
    """Write a leave-one-out audit as one HTML file that opens anywhere.

    It needs no network, no scripts and nothing beside it.

    The page shows ids, targets and scores of the riskiest records, and where all records lie along
    the two principal components of the inputs.

    Args:
        found: what `noshadow.lood_audit` returned or `noshadow.load_lood` read.
        path: the file to write; an existing one is replaced in one step.

    Returns:
        The path written.

    Raises:
        InputError: not a LoodAudit, or a place that cannot be written.

    Cost: milliseconds; at most 3,000 points are drawn in a map.
    """
    if not isinstance(found, LoodAudit):
        refuse("found", "be a LoodAudit", type(found).__name__, "Read a folder with noshadow.load_lood first.")
    return write_file(path, rendered("lood.html.j2", lood_page(found)))


def lood_page(found: LoodAudit) -> dict[str, Any]:
    """Everything the templates show, as text, plain numbers, lists and dictionaries."""
    kl, auc = found.records["kl"].to_numpy(), found.records["auc"].to_numpy()
    ids = [str(identifier) for identifier in found.records["id"]]
    bins = loss_bins(kl, np.empty(0), None)
    return {
        "summary": _summary(found),
        "top": _top(found),
        "map": leak_map(found.records["map_1"].to_numpy(), found.records["map_2"].to_numpy(), kl, ids, named=ROWS),
        "shares": [number(share) for share in found.provenance["map"]["variance_shares"]],
        "kl_charts": [loss_chart(bins, None, frame) for frame in (WIDE, NARROW)],
        "kl_tiny": bins.tiny.get("members", 0.0),
        "auc_charts": [auc_chart(auc, frame) for frame in (WIDE, NARROW)],
        "conditioning": _conditioning(found),
        "joined": _joined(found),
        "sweep": _sweep(found),
        "notes": [sentence(note) for note in found.notes],
        "provenance": _provenance(found),
    }


def _summary(found: LoodAudit) -> dict[str, Any]:
    held = found.summary
    names = ("kl", "auc", "tpr", "mean_distance")
    above = int((found.records["auc"] > 0.9).sum())
    share = held["kl_share_of_riskiest_tenth"]
    return {name: {key: figure(value) for key, value in held[name].items()} for name in names} | {
        "created": timestamp(str(found.timings.get("created", "not recorded"))),
        "records": number(held["records"]),
        "outputs": number(held["outputs"]),
        "typical": out_of_a_hundred(held["auc"]["median"]),
        "worst": out_of_a_hundred(held["auc"]["max"]),
        "above": number(above),
        "one_above": above == 1,
        "tenth": number(held["riskiest_tenth"]),
        "tenth_share": None if share is None else out_of_a_hundred(share),
        "fpr": number(found.fpr),
        "noise": number(found.noise),
        "architecture": architecture(found.kernel),
        "hashes": [{"name": name, "short": found.provenance["hashes"][name][:_SHORT_HASH]} for name in ("x", "y", "row_order")],
        "targets": found.provenance["targets"]["kind"],
        "inputs": found.provenance["inputs"],
        "shape": " × ".join(map(str, found.provenance["inputs"]["shape"])),
    }


def architecture(kernel: dict[str, Any]) -> str:
    """A kernel in words.

    Example:
        >>> architecture({"name": "rbf", "length_scale": 2.0})
        'a Gaussian process with the RBF kernel of length scale 2'
    """
    if kernel["name"] in ("rbf", "laplace"):
        title = {"rbf": "RBF", "laplace": "Laplace"}[kernel["name"]]
        return f"a Gaussian process with the {title} kernel of length scale {number(float(kernel['length_scale']))}"
    layers = "1 hidden layer" if kernel["depth"] == 1 else f"{kernel['depth']} hidden layers"
    start = "a fully connected" if kernel["name"] == "fc" else "a convolutional"
    filters = f", {kernel['filter_size']} × {kernel['filter_size']} filters" if kernel["name"] == "conv" else ""
    weights = " and weights on the edge of chaos" if kernel.get("weights") == "critical" else ""
    return f"{start} {kernel['activation']} network of infinite width with {layers}{filters}{weights}"


def _top(found: LoodAudit) -> dict[str, Any]:
    table = found.records.sort_values("rank", kind="stable").head(ROWS)
    targets = [name for name in table.columns if name == "target" or str(name).startswith("target_")]
    extra = [] if found.joined is None else [name for name in ("audit_rank", found.joined["score"]) if name in table]
    return {
        "rows": [
            {
                "rank": number(int(row["rank"])),
                "id": str(row["id"]),
                "targets": [_cell(row[name]) for name in targets[:TARGET_COLUMNS]],
                "measures": [figure(float(row[name])) for name in _MEASURES],
                "extra": [_cell(row[name]) for name in extra],
            }
            for row in table.to_dict("records")
        ],
        "targets": targets[:TARGET_COLUMNS],
        "hidden_targets": max(len(targets) - TARGET_COLUMNS, 0),
        "measures": list(_MEASURES),
        "extra": extra,
    }


def _cell(value: Any) -> str:
    if value is None or value != value or str(value) == "<NA>":
        return "none"
    whole = isinstance(value, (bool, int, np.integer, np.bool_))
    return str(int(value)) if whole else number(float(value))


def _conditioning(found: LoodAudit) -> dict[str, Any]:
    held = found.conditioning
    single = ("largest_eigenvalue", "smallest_eigenvalue", "condition", "condition_1_norm", "effective_dof", "constant", "distance")
    return {name: figure(held[name]) for name in single} | {
        "relative": None if held["relative"] is None else figure(held["relative"]),
        "bound": None if held.get("bound") is None else figure(held["bound"]),
        "diagonal": interval(tuple(held["diagonal"])),
        "entries": interval(tuple(held["entries"])),
        "rounding": figure(held["condition"] * _ROUNDING),
    }


def _joined(found: LoodAudit) -> dict[str, Any] | None:
    held = found.joined
    if held is None:
        return None
    chosen = held["score"]
    rows = [row for row in held["agreement"] if row["compared"] == "kl"]
    main = next((row for row in rows if row["score"] == chosen), None)
    known = found.records[found.records[chosen].notna()] if chosen in found.records else found.records.head(0)
    return {name: number(held[name]) for name in ("matched", "unmatched", "unmatched_in_audit")} | {
        "score": chosen.removeprefix("audit_"),
        "spearman": None if main is None or main["spearman"] is None else figure(main["spearman"]) | {"interval": _ends(main)},
        "reason": "" if main is None else sentence(main["note"] or ""),
        "charts": scatter_charts(known["kl"].to_numpy(), known[chosen].to_numpy(dtype=np.float64)) if len(known) else [],
        "rows": [
            {
                "score": row["score"].removeprefix("audit_"),
                "value": None if row["spearman"] is None else figure(row["spearman"]),
                "interval": _ends(row),
                "note": row["note"],
            }
            for row in sorted(rows, key=lambda row: -(row["spearman"] if row["spearman"] is not None else -math.inf))
        ],
    }


def _ends(row: dict[str, Any]) -> str:
    return "" if row["low"] is None else interval((row["low"], row["high"]))


def _sweep(found: LoodAudit) -> dict[str, Any] | None:
    if not found.sweep:
        return None
    names = ("noise", "kl_mean", "kl_median", "kl_max", "auc_mean", "mean_distance_max", "bound", "distance", "relative", "condition")
    measured = [row for row in found.sweep if row["kl_mean"] is not None]
    return {
        "charts": [
            {
                "title": title,
                "axis": axis,
                "drawings": [chart for frame in (WIDE, NARROW) if (chart := sweep_chart(found.sweep, name, frame))],
            }
            for name, title, axis in (
                ("kl_mean", "Mean KL over depth", "mean KL (nats), log scale"),
                ("kl_max", "Largest KL over depth", "largest KL (nats), log scale"),
                ("distance", "Distance of the kernel to a constant one, h(α_min), over depth", "h(α_min), log scale"),
            )
        ],
        "names": list(dict.fromkeys(row["activation"] for row in found.sweep)),
        "rows": [
            {"activation": row["activation"], "depth": str(row["depth"]), "reason": sentence(row["reason"] or "")}
            | {name: None if row.get(name) is None else figure(row[name]) for name in names}
            for row in found.sweep
        ],
        # Folders of earlier versions swept with one noise and did not say so.
        "shared_noise": found.provenance["arguments"].get("sweep_noise", "absolute") == "absolute",
        "least": min(measured, key=lambda row: row["kl_mean"]) if measured else None,
        "most": max(measured, key=lambda row: row["kl_mean"]) if measured else None,
        "least_kl": figure(min(row["kl_mean"] for row in measured)) if measured else None,
        "most_kl": figure(max(row["kl_mean"] for row in measured)) if measured else None,
    }


def _provenance(found: LoodAudit) -> list[dict[str, Any]]:
    tables = {
        "Arguments": found.provenance["arguments"],
        "Kernel": found.kernel | {"noise": found.noise},
        "Data": {"inputs": found.provenance["inputs"], "targets": found.provenance["targets"], "ids given": found.provenance["ids_given"]},
        "SHA-256 hashes": found.provenance["hashes"] | ({} if found.joined is None else {"audit": found.joined["hashes"]}),
        "Versions": found.provenance["versions"],
        "Timings": {name: number(value) if isinstance(value, float) else value for name, value in found.timings.items()},
    }
    return [{"title": title, "rows": flat_rows(content)} for title, content in tables.items() if content]
