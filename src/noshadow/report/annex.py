"""Write an audit's evidence for a reviewer: one JSON file, and one HTML file that is made of it."""

from pathlib import Path
from typing import Any

from noshadow._annex import annex_content
from noshadow.checks import named_in_errors, refuse
from noshadow.report.formats import interval, number, people, people_between, sentence, timestamp
from noshadow.report.rendering import flat_rows, rendered
from noshadow.results import Audit, files_of, require_audit, write_file
from noshadow.storage.json_text import parsed_json, strict_json

_SUFFIXES = (".html", ".htm")
_LARGEST = 50_000_000  # bytes that a JSON file which is in the way is read up to
_SECTIONS = (
    ("about", "About this file"),
    ("threat-model", "Threat model"),
    ("attacks", "Attacks run and not run"),
    ("data", "Data and dates"),
    ("parameters", "Parameters"),
    ("results", "Results"),
    ("limits", "Limits"),
    ("reproduction", "Who can reproduce it, and how"),
    ("for-readers", "Where to find what"),
    ("to-complete", "To be completed by people"),
)
_SOURCES = {
    "measured": "measured with reference models",
    "exposure": "estimated from all evidence on each record",
    "compared": "measured by a comparison with the base model",
    "predicted": "predicted by a calibration",
    "losses": "from the losses alone",
    "unknown": "not known",
}
_DATA = {
    "task": "task",
    "model_family": "kind of model",
    "model_part_read": "part of it that was read",
    "training_records": "training records (members)",
    "test_records": "test records (non-members)",
    "classes": "classes",
    "groups": "groups",
    "records_shared_with_test": "test records that are copies of training records",
    "records_with_a_copy": "training records with a copy among them",
    "reference_models": "reference models",
    "reference_records": "records that these were trained on shares of",
    "reference_fraction": "share of them that each was trained on",
}
# Units that are shares of people, and are shown in a thousand.
_OF_PEOPLE = "share"


@named_in_errors
def write_annex(audit: Audit, path: str | Path, *, folder: str | Path | None = None, show_ids: bool = False) -> tuple[Path, Path]:
    """Write the evidence file for a reviewer, as HTML and as JSON.

    It states the threat model, attacks run and not run with the reasons, data and dates,
    parameters, results with intervals and sources, limits, and how to reproduce the audit, with
    tables that tell a data protection impact assessment, a supervisor (EDPB Opinion 28/2024) and a
    research environment where to find what. It claims no compliance.

    Args:
        audit: what `noshadow.audit` returned or `noshadow.load` read.
        path: the HTML file to write. The JSON goes beside it, with the suffix .json. Existing ones
            are replaced in one step each.
        folder: where the audit is saved; its files are then listed with their SHA-256.
        show_ids: name the most exposed record and those that findings speak of. Contents of
            records are never written.

    Returns:
        Paths of the HTML and of the JSON. The same folder and version give the same bytes: there
        is no clock in them but the audit's own dates.

    Raises:
        InputError: `audit` is not an Audit, `path` does not end in .html, a JSON file that is no
            annex is in the way, `folder` holds another audit, or a path cannot be written.

    Exact when: always; every figure is one that the audit holds, and the page is made of the JSON.
    Cost: O(n log n) in the number of records; about a second for a million.

    Example:
        >>> import noshadow as ns
        >>> ns.write_annex("audit-folder", "annex.html")
        Traceback (most recent call last):
        noshadow.errors.InputError: write_annex: audit must be an Audit; got str. Read a folder with noshadow.load first.
    """  # noqa: W505 - doctest compares the message on one line
    require_audit(audit)
    page = Path(path)
    if page.suffix not in _SUFFIXES:
        refuse("path", "end in .html", f"'{page}'", "The JSON is written beside it.")
    data = page.with_suffix(".json")
    _require_annex_or_nothing(data)
    content = annex_content(audit, files=None if folder is None else files_of(folder, audit.manifest()), show_ids=show_ids)
    written = strict_json(content)
    # Through JSON once: the page says what the file says.
    shown = rendered("annex.html.j2", annex_page(parsed_json(written)))
    return write_file(page, shown), write_file(data, written)


def annex_page(content: dict[str, Any]) -> dict[str, Any]:
    """What the template shows: the content of `annex.json`, and its figures as text."""
    results = content["results"]
    return {
        "content": content,
        "sections": [{"id": name, "title": title, "number": place} for place, (name, title) in enumerate(_SECTIONS, start=1)],
        "created": timestamp(str(content["data"]["audited_at"] or "not recorded")),
        "answer": _answer(results),
        "worst": _worst(results["worst_record"]),
        "spread": _spread(results["records"]),
        "measured": [_measured(row, f"results.measured_attacks.{place}") for place, row in enumerate(results["measured_attacks"])],
        "figures": [_named(row, f"results.figures.{place}") for place, row in enumerate(results["figures"])],
        "found": [_finding(row, f"results.findings.found.{place}") for place, row in enumerate(results["findings"]["found"])],
        "tables": [_group_table(results[name], name) for name in ("classes", "groups")],
        "data": _data_rows(content["data"]),
        "parameters": _parameter_tables(content["parameters"]),
        "hashes": flat_rows(content["reproduction"]["hashes"]),
        "source_words": _SOURCES,
    }


def _answer(results: dict[str, Any]) -> dict[str, Any]:
    known = results["best_known"]
    ends, level = known["interval"], known["interval_level"]
    return {
        "rate": None if known["rate"] is None else _share(known["rate"], "results.best_known.rate"),
        "guess": _share(known["fpr"], "results.best_known.fpr"),
        "interval": None if ends is None else _ends_of_shares(ends, "results.best_known.interval"),
        "level": "" if level is None else f"{100 * level:g}\u202f%",
        "source": _SOURCES[known["source"]],
        "by": "" if known["attack"] is None else known["attack"],
        "ruled_out": known["source"] == "losses",
        "reason": sentence(known["reason"]),
    }


def _worst(worst: dict[str, Any] | None) -> dict[str, Any] | None:
    if worst is None:
        return None
    ends = worst["interval"]
    return {
        "rate": _share(worst["rate"], "results.worst_record.rate"),
        "interval": None if ends is None else _ends_of_shares(ends, "results.worst_record.interval"),
        "source": _SOURCES[worst["source"]],
        "guess": _share(worst["fpr"], "results.worst_record.fpr"),
        "id": worst.get("id"),
    }


def _spread(records: dict[str, Any] | None) -> dict[str, Any] | None:
    if records is None:
        return None
    at = "results.records"
    rows = [("mean", records["mean"], f"{at}.mean")]
    rows += [(name.replace("_", " "), records["quantiles"][name], f"{at}.quantiles.{name}") for name in _in_order(records["quantiles"])]
    rows += [("largest", records["largest"], f"{at}.largest"), ("a guess", records["guess"], f"{at}.guess")]
    return {
        "rows": [{"name": name, "value": _share(value, key)} for name, value, key in rows],
        "rated": _count(records["rated"], f"{at}.rated"),
        "above": _count(records["above_ten_guesses"], f"{at}.above_ten_guesses"),
        "source": _SOURCES[records["source"]],
    }


def _in_order(quantiles: dict[str, float]) -> list[str]:
    """Names of quantiles, the smallest first: JSON has them in the order of letters."""
    return [name for name in ("median", "ninety_per_cent", "ninety_nine_per_cent") if name in quantiles]


def _measured(row: dict[str, Any], at: str) -> dict[str, Any]:
    return {
        "attack": row["attack"],
        "attacked": row["attacked"],
        "models": number(row["models"]),
        "auc": _plain(row["auc"], f"{at}.auc") | {"interval": interval(tuple(row["auc_interval"]))},
        "rates": [
            {
                "fpr": _share(rate["fpr"], f"{at}.rates.{place}.fpr"),
                "tpr": _share(rate["tpr"], f"{at}.rates.{place}.tpr"),
                "interval": _ends_of_shares(rate["interval"], f"{at}.rates.{place}.interval"),
            }
            for place, rate in enumerate(row["rates"])
        ],
    }


def _named(row: dict[str, Any], at: str) -> dict[str, Any]:
    of_people, value, ends = row["unit"] == _OF_PEOPLE, row["value"], row["interval"]
    shown = _share if of_people else _plain
    return {
        "title": row["title"],
        "value": None if value is None else shown(value, f"{at}.value"),
        "interval": "" if ends is None else people_between(tuple(ends)) if of_people else interval(tuple(ends)),
        "level": "" if row["interval_level"] is None or ends is None else f"{100 * row['interval_level']:g}\u202f%",
        "unit": "" if of_people else row["unit"],
        "source": _SOURCES.get(row["source"], row["source"]),
        "meaning": sentence(row["meaning"]),
        "reason": sentence(row["reason"]),
    }


def _finding(row: dict[str, Any], at: str) -> dict[str, Any]:
    records = row["records"]
    return row | {
        "title": row["name"].replace("-", " "),
        "sentence": sentence(row["sentence"]),
        "many": None if records is None else _count(records, f"{at}.records"),
        "ids": row.get("ids", []),
    }


def _group_table(table: dict[str, Any], name: str) -> dict[str, Any]:
    at = f"results.{name}"
    return {
        "name": name,
        "one": {"classes": "class", "groups": "group"}[name],
        "small": _count(table["small"], f"{at}.small"),
        "riskier": _count(table["riskier"], f"{at}.riskier"),
        "absent": None if table["absent"] is None else sentence(table["absent"]),
        "rows": [_group(row, f"{at}.rows.{place}") for place, row in enumerate(table["rows"])],
    }


def _group(row: dict[str, Any], at: str) -> dict[str, Any]:
    return {
        "name": row["group"],
        "members": _count(row["n_members"], f"{at}.n_members"),
        "nonmembers": _count(row["n_nonmembers"], f"{at}.n_nonmembers"),
        "auc": None if row["auc"] is None else _plain(row["auc"], f"{at}.auc") | {"interval": interval(tuple(row["auc_interval"]))},
        "tnr": None if row["tnr"] is None else _share(row["tnr"], f"{at}.tnr") | {"interval": people_between(tuple(row["tnr_interval"]))},
        "riskier": row["riskier"],
        "reason": None if row["reason"] is None else sentence(row["reason"]),
    }


def _data_rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Counts and dates in the order that a reader asks."""
    rows = [(title, _said(data[name])) for name, title in _DATA.items() if data[name] is not None]
    seconds = sum(data["seconds"].values())
    return [("audited at", timestamp(str(data["audited_at"] or "not recorded"))), *rows, ("seconds it took", number(float(seconds)))]


def _parameter_tables(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Tables of pairs: what has names of its own apart from what has none."""
    plain = {name: value for name, value in parameters.items() if not isinstance(value, (dict, list)) or name == "layers"}
    titles = {
        "arguments": "Arguments of the call",
        "damping": "Damping (λ on the sum over records)",
        "intervals": "Intervals of the loss attack",
        "calibration": "Calibration",
        "reference_models": "Reference models",
    }
    tables = [
        {"title": title, "rows": _pairs(parameters[name])}
        for name, title in titles.items()
        if parameters[name] and _is_there(name, parameters)
    ]
    evidence = {entry["source"]: {"columns": ", ".join(entry["columns"]) or "none", **entry["facts"]} for entry in parameters["evidence"]}
    return [
        {"title": "Level, order and method", "rows": _pairs(plain)},
        *tables,
        {"title": "Evidence on records", "rows": _pairs(evidence)},
    ]


def _is_there(name: str, parameters: dict[str, Any]) -> bool:
    """Whether there is anything to say: no calibration has no name."""
    return name != "calibration" or parameters[name]["name"] is not None


def _pairs(content: dict[str, Any]) -> list[tuple[str, str]]:
    return flat_rows(_in_words(content))


def _in_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_words(inner) for name, inner in value.items()}
    return ", ".join(map(str, value)) if isinstance(value, list) else _said(value) if isinstance(value, bool) else value


def _said(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else number(value) if isinstance(value, int) else str(value)


def _share(value: float, key: str) -> dict[str, str]:
    return people(value) | {"key": key}


def _plain(value: float, key: str) -> dict[str, str]:
    return {"text": number(value, padded=True), "exact": repr(value), "key": key}


def _count(value: int, key: str) -> dict[str, str]:
    return {"text": number(value), "exact": repr(value), "key": key}


def _ends_of_shares(ends: list[float], key: str) -> dict[str, Any]:
    return {"text": people_between((ends[0], ends[1])), "exact": f"{ends[0]!r} {ends[1]!r}", "key": key}


def _require_annex_or_nothing(data: Path) -> None:
    """Refuse to replace a JSON file that is no annex, such as the manifest of an audit folder."""
    if not data.exists():
        return
    try:
        held = parsed_json(data.read_bytes()) if data.is_file() and data.stat().st_size <= _LARGEST else None
    except (ValueError, OSError):
        held = None
    # of any format: an older one is replaced, too
    if not isinstance(held, dict) or type(held.get("annex_format")) is not int:
        refuse("path", "be beside no JSON file of the same name but an annex", f"'{data}'", "Choose another name.")
