"""Write an audit as one self-contained HTML file.

An audit becomes a dictionary of text and numbers, and templates become the page.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noshadow._answer import evidence_changes, offers
from noshadow._glance import no_rates
from noshadow._known import best_known
from noshadow.arguments import SHOW_TOP
from noshadow.checks import Array, named_in_errors, refuse
from noshadow.limits import FAR_FROM_MINIMUM, FEW_MEMBERS
from noshadow.metrics import error_budget
from noshadow.outcomes import not_applicable
from noshadow.report.charts import NARROW, WIDE, curve_chart, loss_bins, loss_chart
from noshadow.report.contents import ShownContents, shown_contents
from noshadow.report.findings_section import findings_section
from noshadow.report.first_screen import first_screen
from noshadow.report.formats import figure, interval, number, people, people_between, sentence, timestamp
from noshadow.report.ground_truth import ground_truth_section
from noshadow.report.group_bars import groups_section
from noshadow.report.lood_section import lood_provenance, lood_section
from noshadow.report.predictions import measured_beside_predicted
from noshadow.report.record_data import RecordData, record_data
from noshadow.report.rendering import flat_rows, page_script, rendered
from noshadow.report.reviewed import reviewed_section
from noshadow.report.score_agreement import agreement_absent, score_agreement
from noshadow.report.sequence_attacks import sequence_attacks_section
from noshadow.report.tail_chart import tail_section
from noshadow.report.top_records import ROWS, top_records
from noshadow.report.trees import model_words, tree_rows
from noshadow.results import Audit, ModelRisk, require_audit, write_file

_UNITS = {"regression": "squared error"}
_TASKS = {"binary": "two classes", "language-model": "language model"}
_HUNDREDTH = 0.01


@named_in_errors
def write_report(audit: Audit, path: str | Path, *, show_records: object = None, show_ids: object = None, show_top: int = SHOW_TOP) -> Path:
    """Write the audit as one HTML file that opens anywhere.

    It needs no network and nothing beside it, and has one script that its own hash lets run.

    The page holds ids, labels, groups and scores of the training records (the riskiest 100,000). It
    shows their contents only when they are handed over here, and says on its first screen whether
    it does; an audit and its folder never hold any.

    Args:
        audit: what `noshadow.audit` returned or `noshadow.load` read.
        path: the file to write; an existing one is replaced in one step.
        show_records: contents of all n training records, of which those of the riskiest `show_top`
            go into the page: images (n, h, w), (n, h, w, 3) or (n, 3, h, w); a sequence of n texts;
                the `token_gains` of a language model; or a table, a DataFrame or (n, d). A
            DataFrame with a column
            `id` is matched by it, and holds texts when a single column of text is beside it. None
            or False: no contents. Bytes and whole numbers within 0 … 255 are pixels as they are,
                floats within 0 … 1 from black to white, any others
            are stretched from the smallest to the largest over all images. Images with a side above
            96 pixels are made smaller, texts cut after 500 characters, rows after 50 columns.
        show_ids: (n,) ids of the contents, in any order; None: they stand in the order of
            `audit.records`.
        show_top: of how many of the riskiest records contents are shown, by rank or else by loss.

    Returns:
        The path written. The same audit and contents give the same bytes.

    Raises:
        InputError: `audit` is not an Audit, `show_records` holds no contents, another number of
            them or other ids than the audit, or the path cannot be written.

    Cost: O(n log n) in the number of records; about a second and at most 8 MB for 100,000.

    Example:
        >>> import noshadow as ns
        >>> ns.write_report("audit-folder", "report.html")
        Traceback (most recent call last):
        noshadow.errors.InputError: write_report: audit must be an Audit; got str. Read a folder with noshadow.load first.
    """  # noqa: W505 - doctest compares the message on one line
    require_audit(audit)
    asked = show_records is not None and show_records is not False
    if show_ids is not None and not asked:
        refuse("show_ids", "come with show_records", "ids alone")
    contents = shown_contents(show_records, audit, ids=show_ids, top=show_top) if asked else None
    return write_file(path, rendered("report.html.j2", page(audit, contents)))


def page(audit: Audit, contents: ShownContents | None = None) -> dict[str, Any]:
    """Everything the templates show, as text, plain numbers, lists and dictionaries."""
    ranked = audit.ranked_by is not None
    held = record_data(audit, None if contents is None else {"kind": contents.kind, "items": contents.items})
    return {
        "contents": None if contents is None else _contents(contents, ranked),
        "lood": lood_section(audit),
        "script": page_script(),
        "data": _data(held),
        "agreement": score_agreement(audit, held.measures),
        "agreement_absent": agreement_absent(audit, held.measures),
        "groups": groups_section(audit),
        "tail": tail_section(audit),
        "predicted": measured_beside_predicted(audit),
        "first": first_screen(audit),
        "reviewed": reviewed_section(audit),
        "summary": _summary(audit),
        "risk": None if audit.model_risk is None else _risk(audit.model_risk, audit.member_losses, audit.nonmember_losses),
        "risk_absent": sentence(audit.not_applicable.get("model_risk", not_applicable("the audit holds no model-level risk"))),
        "top": top_records(audit) if ranked else None,
        "scores_absent": sentence(audit.not_applicable.get("rank", not_applicable("the audit holds no record scores"))),
        "findings": findings_section(audit),
        "losses": _losses(audit),
        "curve": None if audit.model_risk is None else _curves(audit, audit.model_risk),
        "sequence_attacks": sequence_attacks_section(audit),
        "truth": None if audit.ground_truth is None else ground_truth_section(audit.ground_truth),
        "changes": [sentence(line) for line in evidence_changes(audit)],
        "no_sizes": no_rates(audit),
        "offers": [sentence(offer.sentence) for offer in offers(audit)],
        "absent": _absent(_untold(audit)),
        "notes": [sentence(note) for note in audit.notes],
        "diagnostics": _diagnostics(audit.provenance.get("scores")),
        "trees": tree_rows(audit),
        "provenance": _provenance(audit),
    }


def _data(held: RecordData) -> dict[str, Any]:
    return {
        "text": held.text,
        "records": number(held.records),
        "left_out": number(held.left_out) if held.left_out else None,
        "hidden": ", ".join(held.hidden),
        "cut": None if held.cut_ids is None else number(held.cut_ids),
    }


def _contents(contents: ShownContents, ranked: bool) -> dict[str, Any]:
    first = zip(contents.ranks[:ROWS], contents.ids[:ROWS], contents.items[:ROWS], strict=True)
    return {
        "kind": contents.kind,
        "words": contents.words,
        "whose": f"the {number(len(contents.items))} " + ("highest-ranked records" if ranked else "records with the highest loss"),
        "notes": contents.notes,
        "first": [{"rank": rank, "id": identifier, "item": item} for rank, identifier, item in first],
    }


def _curves(audit: Audit, risk: ModelRisk) -> list[dict[str, Any]]:
    """The curve twice, with the measured rates of the attack that the verdict rests on."""
    known = best_known(audit)
    attacks = () if audit.ground_truth is None or known.attacked != "target" else audit.ground_truth.attacks
    measured = [rate for attack in attacks if (attack.attack, attack.attacked) == (known.attack, "target") for rate in attack.rates]
    return [curve_chart(risk, frame, measured) | {"attack": known.attack} for frame in (WIDE, NARROW)]


def _summary(audit: Audit) -> dict[str, Any]:
    return {
        "created": timestamp(str(audit.timings.get("created", "not recorded"))),
        "task": audit.task,
        "task_words": _TASKS.get(audit.task, audit.task),
        "model": model_words(audit),
        "records": number(len(audit.records)),
        "unit": _UNITS.get(audit.task, "nats"),
    }


def _risk(risk: ModelRisk, members: Array, nonmembers: Array) -> dict[str, Any]:
    allowed = error_budget(risk.fpr, risk.n_members)
    figures = {name: _measured(risk, name) for name in ("tnr", "auc", "loss_gap", "accuracy_gap", "predicted_tpr", "ks", "wasserstein")}
    return figures | {
        "level": figure(risk.fpr) | {"text": number(risk.fpr)},
        "threshold": figure(risk.threshold),
        "interval_level": f"{100 * risk.interval_level:g}\u202f%",
        "resamples": number(risk.resamples),
        "seed": str(risk.seed),
        "tnr_people": people(risk.tnr) | {"interval": people_between(risk.tnr_interval)},
        "predicted_people": _predicted(risk),
        "level_people": people(risk.fpr)["text"],
        "beats_guessing": risk.tnr_interval[0] > risk.fpr,
        "members": number(risk.n_members),
        "nonmembers": number(risk.n_nonmembers),
        "members_above": number(int((members > risk.threshold).sum())),
        "nonmembers_above": number(int((nonmembers > risk.threshold).sum())),
        "allowed": number(allowed),
        "rests_on_one": allowed <= 1,
        "rests_on_few": 1 < allowed < FEW_MEMBERS,
        "member_accuracy": None if risk.member_accuracy is None else number(risk.member_accuracy),
        "nonmember_accuracy": None if risk.nonmember_accuracy is None else number(risk.nonmember_accuracy),
        "reason": sentence(risk.reason),
        "outside_calibration": risk.in_calibration_domain is False,
        "attack": risk.predicted_attack or "LiRA",
        "predicted_from": risk.predicted_from,
        "references": None if risk.reference_models is None else number(risk.reference_models),
        "prediction_level": "prediction" if risk.prediction_level is None else f"{100 * risk.prediction_level:g}\u202f% prediction",
        "has_extrapolated": risk.extrapolated is not None,
        "notes": [sentence(note) for note in risk.notes],
    }


def _measured(risk: ModelRisk, name: str) -> dict[str, str] | None:
    value, ends = getattr(risk, name), getattr(risk, f"{name}_interval")
    return None if value is None else figure(value) | {"interval": "" if ends is None else interval(ends)}


def _predicted(risk: ModelRisk) -> dict[str, str] | None:
    if risk.predicted_tpr is None:
        return None
    ends = risk.predicted_tpr_interval
    return people(risk.predicted_tpr) | {"interval": "" if ends is None else people_between(ends)}


def _losses(audit: Audit) -> dict[str, Any]:
    threshold = None if audit.model_risk is None else audit.model_risk.threshold
    bins = loss_bins(audit.member_losses, audit.nonmember_losses, threshold)
    medians = {name: number(float(np.median(losses))) for name, losses in _splits(audit).items()}
    return {
        "charts": [loss_chart(bins, threshold, frame) for frame in (WIDE, NARROW)],
        "medians": medians,
        "tiny": {name: people(share)["text"] for name, share in bins.tiny.items()},
        "tiny_label": bins.tiny_label,
        "undrawn": bins.undrawn,
    }


def _splits(audit: Audit) -> dict[str, Array]:
    both = {"members": audit.member_losses, "nonmembers": audit.nonmember_losses}
    return {name: losses for name, losses in both.items() if len(losses)}


def _untold(audit: Audit) -> dict[str, str]:
    """What is missing, without the reason that the answer from losses alone has just given."""
    told = {"predicted_tpr of the model"} if best_known(audit).source == "losses" else set()
    return {name: reason for name, reason in audit.not_applicable.items() if name not in told}


def _absent(reasons: Mapping[str, str]) -> list[dict[str, str]]:
    """List what is missing by reason, since many columns often share one.

    The order is that of names, as a folder read back has no order.
    """
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(reasons.items()):
        by_reason.setdefault(sentence(reason), []).append(name)
    return [{"names": ", ".join(names), "reason": reason} for reason, names in by_reason.items()]


def _diagnostics(scores: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if scores is None:
        return None
    numbers = ("damping_used", "effective_dof", "rank", "condition", "jitter", "stationarity", "head_residual", "precision_error")
    shown_numbers = {name: None if scores.get(name) is None else figure(scores[name]) for name in numbers}
    stationarity = scores.get("stationarity")
    return shown_numbers | {
        "damping_source": sentence(str(scores.get("damping_source", "not recorded"))),
        "precision": str(scores.get("precision", "not recorded")),
        "at_minimum": stationarity is not None and stationarity < FAR_FROM_MINIMUM,
        "layers": list(scores.get("layers", ["last"])),
        "parameters": number(scores["parameters"]) if scores.get("parameters") is not None else "not recorded",
        "method": str(scores.get("method", "exact")),
    }


def _seconds(value: float) -> str:
    """Seconds to a hundredth below ten: nobody asks for less."""
    if value < _HUNDREDTH:
        return "less than 0.01"
    return f"{value:.2f}" if value < 10 else number(value)


def _provenance(audit: Audit) -> list[dict[str, Any]]:
    names = audit.provenance.get("class_names")
    model = {"task": audit.task, "head": audit.provenance.get("head")} | ({} if names is None else {"classes": len(names)})
    tables = {
        "Arguments": audit.provenance.get("arguments", {}),
        "Model": model,
        "Versions": audit.provenance.get("versions", {}),
        "Leave-one-out distinguishability": lood_provenance(audit),
        "Timings": {name: _seconds(value) if isinstance(value, float) else value for name, value in audit.timings.items()},
        "SHA-256 hashes": audit.provenance.get("hashes", {}),
    }
    return [{"title": title, "rows": flat_rows(content)} for title, content in tables.items() if content]
