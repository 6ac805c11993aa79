"""Checks on which records bear the risk."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betaln

from noshadow._findings.audited import why_unscored
from noshadow._findings.outcome import Limits, Outcome, judged, not_applicable, shortened, skipped
from noshadow._findings.rule import rule
from noshadow._known.audited import Audited
from noshadow.checks import Array
from noshadow.metrics.inputs import places
from noshadow.outcomes import TOO_LARGE

_GAPS = ("newton", "loo", "shift")
_NAMED = 3
UNKNOWN = object()
# A loss orders records without saying what the model owes to them.
UNSCORED = (None, "loss")


@rule(
    "NS010",
    "few-records-dominate",
    "medium",
    found_when="the top {top} of the records hold > {share} of the sum of the score",
    next_step="Look these records up first: rare, wrong or extreme ones can be checked by hand. Removing them exposes others: audit again.",
    limits={"top": 0.01, "share": 0.2, "least_records": 100.0},
)
def few_records_dominate(audit: Audited, limits: Limits) -> Outcome:
    """NS010: the share of the score that the riskiest records hold."""
    if audit.ranked_by in UNSCORED:
        return _no_scores(audit)
    n, least = len(audit.records), limits["least_records"]
    if n < least:
        return not_applicable(f"{n} records are fewer than {least:g}, and the top {limits['top']:g} of them is no group")
    if str(audit.ranked_by).endswith("_loss"):
        return not_applicable(f"the records are ordered by {audit.ranked_by}, and shares of a loss say nothing about who depends on it")
    summed = "exposure" if audit.ranked_by == "exposure_score" else audit.ranked_by
    if summed not in audit.records:
        return not_applicable("the sources give the order of the records only, and shares of an order mean nothing")
    scores, rows = audit.records[summed].to_numpy(np.float64), _top_rows(audit, limits["top"])
    # An exposure below 0 is noise around none.
    scores = np.maximum(scores, 0.0) if summed == "exposure" else scores
    infinite, total = bool(np.isinf(scores).any()), float(scores.sum())
    share = 1.0 if infinite else float(scores[rows].sum()) / total if total > 0 else 0.0
    sentence = f"The {len(rows)} riskiest of {n} records hold a share of {share:.3g} of the summed {summed}."
    return judged(share > limits["share"], share, sentence, rows)


@rule(
    "NS011",
    "class-bears-risk",
    "medium",
    found_when="a class has > {lift} times its share among the top {top} of the records, with chance p < {chance} over all classes",
    next_step="Collect more records of that class, or say in the report that its members are the exposed ones.",
    limits={"lift": 2.0, "top": 0.05, "chance": 0.01, "least_records": 100.0},
)
def class_bears_risk(audit: Audited, limits: Limits) -> Outcome:
    """NS011: a class that is over-represented among the riskiest records."""
    if audit.ranked_by in UNSCORED:
        return _no_scores(audit)
    if audit.task in ("regression", "language-model"):
        return not_applicable(f"a {audit.task.replace('-', ' ')} has no classes")
    targets = audit.records["target"].to_numpy(np.float64)
    if not (targets == np.round(targets)).all():
        return not_applicable("the targets are probabilities, not classes")
    column = "label" if "label" in audit.records else "target"
    return _bearing(audit, audit.records[column], "class", limits)


@rule(
    "NS012",
    "group-bears-risk",
    "high",
    found_when="a group has > {lift} times its share among the top {top} of the records, with chance p < {chance} over all groups",
    next_step="An average hides these people: collect more records of the group, or protect everybody with differential privacy.",
    limits={"lift": 2.0, "top": 0.05, "chance": 0.01, "least_records": 100.0},
)
def group_bears_risk(audit: Audited, limits: Limits) -> Outcome:
    """NS012: a group that is over-represented among the riskiest records."""
    if audit.ranked_by in UNSCORED:
        return _no_scores(audit)
    if "group" not in audit.records:
        return not_applicable("no groups were given (groups=)")
    return _bearing(audit, audit.records["group"], "group", limits)


@rule(
    "NS013",
    "duplicates-share-leverage",
    "low",
    found_when="> {share} of the training records have another one with the same features and target",
    next_step="Copies hide one another: each looks safe, since the others stay when one leaves. Remove copies and audit again.",
    limits={"share": 0.001},
)
def duplicates_share_leverage(audit: Audited, limits: Limits) -> Outcome:
    """NS013: training records with the same features and target."""
    counts = audit.provenance.get("splits")
    if counts is None:
        return skipped("the version that wrote this audit did not look for copies", "Run the audit again with this version.")
    copies = counts["copies"]
    if copies is None:
        return skipped(f"records cannot be told apart ({counts['reason']})", "Give features that differ between records.")
    n = len(audit.records)
    share = copies["records"] / n
    sentence = "No training record has a copy."
    if copies["records"]:
        sentence = f"{copies['records']} of {n} training records have a copy, in {copies['groups']} groups of up to {copies['largest']}."
    found = judged(share > limits["share"], share, sentence)
    return Outcome(found.status, sentence, found.figure, examples=tuple(copies["first_ids"]) if found.status == "found" else ())


@rule(
    "NS018",
    "near-duplicates",
    "low",
    found_when="> {share} of the records, at least {least}, have another one of their target far nearer than chance, or nearly its text",
    next_step="Twins hide each other: each looks safe while the other stays. If they are one person, keep one of them and audit again.",
    limits={"share": 0.001, "least": 2.0},
)
def near_duplicates(audit: Audited, limits: Limits) -> Outcome:
    """NS018: training records that are nearly the same as another one."""
    near = audit.provenance.get("splits", {}).get("near", UNKNOWN)
    if near is UNKNOWN:
        return skipped("the version that wrote this audit did not look for near twins", "Run the audit again with this version.")
    if near is None:
        return not_applicable("sequences were compared as a whole by the version that wrote this audit (NS013)")
    held = {name: near[name] for name in ("features", "inputs", "sequences") if near.get(name) is not None}
    if not held:
        told = "; ".join(f"{name}: {reason}" for name, reason in sorted(near["reasons"].items()))
        return not_applicable(f"twins cannot be told ({told})")
    shares = {name: twins["records"] / twins["looked"] for name, twins in held.items()}
    found = [name for name, twins in held.items() if twins["records"] >= limits["least"] and shares[name] > limits["share"]]
    told = " ".join(_twins_told(name, held[name]) for name in held)
    outcome = judged(bool(found), max(shares.values()), told)
    return Outcome(outcome.status, told, outcome.figure, examples=tuple(held[found[0]]["first_ids"]) if found else ())


def _twins_told(name: str, twins: Mapping[str, Any]) -> str:
    if name == "sequences":
        nearly = f"share at least {twins['similarity']:g} of their runs of five tokens with another one that is no exact copy"
        return f"{twins['records']} of {twins['of']} sequences {nearly}."
    sampled = "" if twins["looked"] == twins["of"] else f" that were looked at, of {twins['of']}"
    how = f"By {name}, {twins['records']} of {twins['looked']} records{sampled} have a near twin"
    return f"{how} (nearer than {twins['ratio']:.2g} of the way to their tenth neighbour)." if twins["records"] else f"{how}."


@rule(
    "NS014",
    "interpolated-records",
    "high",
    found_when="more than {records} records have an infinite score",
    next_step="The model fits these records by themselves alone: regularise, or remove features that single them out.",
    limits={"records": 0.0},
)
def interpolated_records(audit: Audited, limits: Limits) -> Outcome:
    """NS014: records that the model fits by themselves alone."""
    if audit.ranked_by in UNSCORED:
        return _no_scores(audit)
    held = [name for name in _GAPS if name in audit.records]
    if not held:
        return not_applicable(f"the audit holds none of {', '.join(_GAPS)}, which are infinite for such records")
    infinite = np.isinf(audit.records[held].to_numpy(np.float64)).any(1)
    rows = np.flatnonzero(infinite)
    sentence = "No record has an infinite score."
    if len(rows):
        sentence = f"{len(rows)} of {len(infinite)} records have an infinite score: taken out, nothing else determines their prediction."
    return judged(len(rows) > limits["records"], len(rows), sentence, rows)


@rule(
    "NS015",
    "label-suspects",
    "medium",
    found_when=(
        "more than {records} of the top {top} (at least {least}) records have a loss > {nats} (regression: > {times} times the mean loss) "
        "and a leverage among the top {leverage}"
    ),
    next_step="Check the labels of these records: the model disagrees with them and yet depends on them.",
    limits={"records": 0.0, "top": 0.01, "least": 10.0, "nats": 0.6931471805599453, "times": 9.0, "leverage": 0.1},
)
def label_suspects(audit: Audited, limits: Limits) -> Outcome:
    """NS015: records among the riskiest that the model disagrees with and yet depends on."""
    if audit.task == "language-model":
        return not_applicable("a sequence has no label of its own")
    if audit.ranked_by in UNSCORED:
        return _no_scores(audit)
    leverage = next((name for name in ("leverage", "margin_leverage") if name in audit.records), None)
    if leverage is None and "scores" not in audit.provenance:
        return not_applicable("these scores come from leaves or formulas of the model, which give no leverages")
    if leverage is None:
        return skipped("the audit holds no leverages", "Run the audit again with all columns.")
    top, loss = _top_rows(audit, limits["top"], int(limits["least"])), audit.records["loss"].to_numpy(np.float64)
    limit = limits["times"] * float(loss.mean()) if audit.task == "regression" else limits["nats"]
    leverages = audit.records[leverage].to_numpy(np.float64)
    rows = top[(loss[top] > limit) & (leverages[top] >= np.quantile(leverages, 1 - limits["leverage"], method="lower"))]
    sentence = f"{len(rows)} of the {len(top)} riskiest records have a loss above {limit:.3g} and a high {leverage.replace('_', ' ')}."
    return judged(len(rows) > limits["records"], len(rows), sentence, rows)


def _bearing(audit: Audited, column: "pd.Series[Any]", kind: str, limits: Limits) -> Outcome:
    """Compare each name's share among the riskiest records with its share of all records.

    The chance of a random choice is given, too.
    """
    n, least = len(column), limits["least_records"]
    if n < least:
        return not_applicable(f"{n} records are fewer than {least:g}, and shares of the top {limits['top']:g} of them say nothing")
    values, code, counts = _named_counts(column)
    if len(values) < 2:
        return not_applicable(f"there is one {kind} only")
    rows = _top_rows(audit, limits["top"])
    inside = np.bincount(code[rows], minlength=len(values))
    lift = inside / len(rows) / (counts / n)
    # Times the number of names looked at.
    chance = np.minimum(chance_of_as_many(inside, counts, len(rows), n) * len(values), 1.0)
    heavy = np.flatnonzero((lift > limits["lift"]) & (chance < limits["chance"]))
    heavy = heavy[np.argsort(-lift[heavy], kind="stable")]
    if not len(heavy):
        most = int(np.argmax(np.where(chance < limits["chance"], lift, 0.0))) if (chance < limits["chance"]).any() else int(lift.argmax())
        return judged(False, float(lift[most]), f"No {kind} is far above its share among the {len(rows)} riskiest records.", rows)
    told = ", ".join(f"{shortened(values[k])} {inside[k]} of {len(rows)} ({lift[k]:.2g} times its share)" for k in heavy[:_NAMED])
    more = f" and {len(heavy) - _NAMED} more" if len(heavy) > _NAMED else ""
    sentence = f"Among the {len(rows)} riskiest records, by {kind}: {told}{more}."
    return judged(True, float(lift[heavy[0]]), sentence, rows[np.isin(code[rows], heavy)])


def _named_counts(column: "pd.Series[Any]") -> tuple[Array, Array, Array]:
    """Names in order, the number of each record's name, and records per name.

    Text is made of each distinct value, not of each record.
    """
    number, distinct = pd.factorize(column, use_na_sentinel=False)
    values, merged = np.unique(np.asarray(distinct.astype(str)), return_inverse=True)
    code: Array = merged[number]
    return values, code, np.bincount(code, minlength=len(values))


def _top_rows(audit: Audited, share: float, least: int = 1) -> Array:
    """Rows of the riskiest records in the order of their ranks."""
    ranks = audit.records["rank"].to_numpy()
    rows: Array = np.argsort(ranks, kind="stable")[: max(least, places(share, len(ranks)))]
    return rows


def _no_scores(audit: Audited) -> Outcome:
    absent = why_unscored(audit)
    larger = "Audit again with a larger max_memory."
    return skipped(absent.reason.removesuffix("."), larger if absent.kind == TOO_LARGE else "Audit the features of the model's last layer.")


def chance_of_as_many(found: Array, counts: Array, drawn: int, n: int) -> Array:
    """Compute P(X ≥ found), the hypergeometric upper tail.

    X is the number of a name's `counts` records among `drawn` records chosen at random out of n.

    Log-binomials are summed from the tail's end, where terms are smallest. `found`, `counts` and
    the result are (names,).
    """

    def log_choose(total: Array | int, part: Array) -> Array:
        chosen: Array = -betaln(1 + np.asarray(total) - part, 1 + part) - np.log1p(total)
        return chosen

    tails = np.empty(len(found))
    for name, (least, own) in enumerate(zip(found.tolist(), counts.tolist(), strict=True)):
        inside = np.arange(min(own, drawn), max(least, own + drawn - n) - 1, -1)
        terms = log_choose(own, inside) + log_choose(n - own, drawn - inside) - log_choose(n, np.asarray(drawn))
        tails[name] = np.exp(terms).sum()
    return np.minimum(tails, 1.0)
