"""Put two audits side by side.

A comparison holds figures with intervals, records that rose and fell, and findings gained and lost.
"""

from typing import Any

import numpy as np

from noshadow._compare.intervals import Samples, auc_difference_interval, separate_difference_interval, tnr_difference_interval
from noshadow._compare.matching import Matched, differences, matched
from noshadow._compare.result import Change, Comparison, Mover
from noshadow._compare.words import figure_words
from noshadow._findings import findings
from noshadow._known import KnownRate, best_known, is_level
from noshadow.checks import Array, NotApplicable, named_in_errors, refuse, require_number, whole_seed
from noshadow.limits import FEW_MEMBERS
from noshadow.metrics import error_budget, loss_auc, spearman, tnr_at_fnr
from noshadow.metrics.inputs import places
from noshadow.outcomes import Absent, not_applicable
from noshadow.results import Audit, Interval, require_audit

TOP = 0.01
_WAYS = {
    "measured": "measured",
    "exposure": "by exposure",
    "compared": "by comparison with the base",
    "predicted": "predicted",
    "losses": "by the losses alone",
    "unknown": "not at all",
}
_KNOWN_AS = {
    "measured": ("measured_tpr", "measured attack TPR"),
    "exposure": ("attack_rate", "mean attack rate of the records"),
    "compared": ("compared_tpr", "TPR of the comparison with the base"),
}
ONLY_SAMPLING = (
    "the intervals speak of the records that happened to be sampled; training again with another seed moves the figures as well, "
    "and is not in them"
)


@named_in_errors
def compare(before: Audit, after: Audit, *, fpr: float | str = "auto", level: float = 0.95, seed: int = 0) -> Comparison:
    """Compare two audits: what changed from the first to the second.

    The comparison holds model risk with intervals, records entering and leaving the top 1 %, and
    findings.

    Records that both models were trained or tested on are resampled together, which is what makes a
    small change visible: training records are matched by id and target, test records by the digests
    of both. The difference of TNR has a percentile-bootstrap interval, that of the AUC a normal one
    with DeLong's variance, that of predicted rates is put together from the two audits' own
    intervals.

    Args:
        before: the first Audit. after: the second.
        fpr: "auto", the larger of the two audits' rates, or a rate in [1/min(n), 1) at which both
            TNRs are read.
        level: coverage of the intervals, in (0, 1).
        seed: of the bootstrap.

    Returns:
        Comparison.

    Raises:
        InputError: an argument is not an Audit, or out of range.

    Approximates: the intervals (docs/compare.md has their simulated coverage); the noise of
        training is not in them.
    Cost: O(n log n), and 2,000 resamples.

    Example:
        >>> import noshadow as ns
        >>> one = ns.audit_signals(
        ...     ns.Signals(None, [0.1, 0.2, 0.3], [0.5] * 3),
        ...     ns.Signals(None, [1.0, 2.0], [0.5] * 2),
        ... )
        >>> ns.compare(one, one).verdict
        'No change in model risk beyond noise.'
    """
    for name, audit in (("before", before), ("after", after)):
        require_audit(audit, name)
    coverage = require_number(level, "level", low=0, high=1, low_open=True, high_open=True)
    chosen, common = whole_seed(seed), _level(before, after, fpr)
    found = matched(before, after)
    absent: dict[str, Absent] = {}
    changes = _changes(before, after, found, common, coverage, chosen, absent)
    entered, left, sizes, correlation = _movements(before, after, found, absent)
    drawn = [{finding.code: finding for finding in findings(audit) if finding.status == "found"} for audit in (before, after)]
    return Comparison(
        verdict=_verdict(changes, absent),
        changes=changes,
        differences=differences(before, after, found),
        shared=found.shared_ids,
        only_before=len(before.records) - found.shared_ids,
        only_after=len(after.records) - found.shared_ids,
        same_records=found.reason is None,
        same_tests=found.same_tests,
        top=TOP,
        top_before=sizes[0],
        top_after=sizes[1],
        entered=entered,
        left=left,
        rank_correlation=correlation,
        gained=tuple(finding for code, finding in drawn[1].items() if code not in drawn[0]),
        lost=tuple(finding for code, finding in drawn[0].items() if code not in drawn[1]),
        kept=tuple(code for code in drawn[0] if code in drawn[1]),
        not_applicable=dict(absent),
        notes=_notes(before, after, found, common),
        level=coverage,
        seed=chosen,
        provenance={name: _stamp(audit) for name, audit in (("before", before), ("after", after))},
    )


def _level(before: Audit, after: Audit, fpr: float | str) -> float | None:
    """The level both TNRs are read at; None when an audit has no model-level risk."""
    risks = [audit.model_risk for audit in (before, after)]
    if fpr != "auto":
        asked = require_number(fpr, "fpr", low=0, high=1, low_open=True, high_open=True)
        fewest = min((min(risk.n_members, risk.n_nonmembers) for risk in risks if risk is not None), default=0)
        if fewest and error_budget(asked, fewest) == 0:
            rule = f"be at least {1 / fewest:g}, the smallest level that {fewest} records resolve"
            refuse("fpr", rule, f"{asked:g}", "Raise fpr.")
        return None if None in risks else asked
    return max(risk.fpr for risk in risks if risk is not None) if None not in risks else None


def _changes(
    before: Audit, after: Audit, found: Matched, fpr: float | None, level: float, seed: int, absent: dict[str, Absent]
) -> tuple[Change, ...]:
    if fpr is None or before.model_risk is None or after.model_risk is None:
        without = [name for name, audit in (("first", before), ("second", after)) if audit.model_risk is None]
        absent["model risk"] = not_applicable(f"the {' and the '.join(without)} audit has no model-level risk")
        return ()
    samples = Samples(
        (before.member_losses, after.member_losses),
        (before.nonmember_losses, after.nonmember_losses),
        (found.first, found.second),
        found.same_tests,
    )
    together = [name for name, shared in (("training", len(found.first) > 0), ("test", found.same_tests)) if shared]
    drawn = f"shared {' and '.join(together)} records resampled together" if together else "records resampled separately"
    rates = [tnr_at_fnr(inside, outside, fpr) for inside, outside in zip(samples.members, samples.nonmembers, strict=True)]
    tnr_ends = tnr_difference_interval(samples, fpr, coverage=level, seed=seed)
    aucs = [loss_auc(inside, outside) for inside, outside in zip(samples.members, samples.nonmembers, strict=True)]
    auc_ends = auc_difference_interval(samples, coverage=level)
    auc_method = "normal, DeLong's variance" if auc_ends else "no interval: the losses do not vary enough for a variance"
    return (
        *_attack_change(before, after, absent),
        _change("tnr", f"TNR of the loss attack at FNR {fpr:.3g}", rates, tnr_ends, f"percentile bootstrap, {drawn}"),
        _change("auc", "loss AUC", aucs, auc_ends, auc_method + (f", covariance of {drawn.split(' resampled')[0]}" if together else "")),
    )


def _attack_change(before: Audit, after: Audit, absent: dict[str, Absent]) -> tuple[Change, ...]:
    """The change of the attack's rate, as it is best known in both audits.

    A rate that was measured in one audit only is not held against a prediction in the other.
    """
    first, second = best_known(before), best_known(after)
    named = ("measured", "exposure", "compared")
    if first.source not in named and second.source not in named:
        return _predicted_change(before, after, absent)
    levels = sorted((first.fpr, second.fpr))
    if first.source != second.source:
        why = f"it is known in different ways, {_WAYS[first.source]} in the first audit and {_WAYS[second.source]} in the second"
    elif not is_level(*levels):
        why = f"it is known at different levels ({levels[0]:g} and {levels[1]:g})"
    elif first.attacked != second.attacked:
        why = "in one audit the model itself was attacked, and in the other its reference models"
    else:
        return (_known_change(first, second),)
    absent["attack's rate"] = not_applicable(why)
    return ()


def _known_change(first: KnownRate, second: KnownRate) -> Change:
    assert first.rate is not None and second.rate is not None and first.interval is not None and second.interval is not None
    ends = separate_difference_interval((first.rate, first.interval), (second.rate, second.interval))
    name, words = _KNOWN_AS[first.source]
    method = "the audits' own intervals, as if independent"
    return _change(name, f"{words} at FPR {first.fpr:.3g}", [first.rate, second.rate], ends, method)


def _predicted_change(before: Audit, after: Audit, absent: dict[str, Absent]) -> tuple[Change, ...]:
    risks = [risk for risk in (before.model_risk, after.model_risk) if risk is not None]
    values = [risk.predicted_tpr for risk in risks]
    if None in values:
        held = [risk for risk in risks if risk.predicted_tpr is not None]
        reason = "only one of the two audits holds one" if held else risks[1].reason.rstrip(".")
        absent["predicted_tpr"] = Absent("not available", reason)
        return ()
    levels = sorted({risk.fpr for risk in risks})
    if len(levels) > 1:
        absent["predicted_tpr"] = not_applicable(f"predicted at different levels ({levels[0]:g} and {levels[1]:g})")
        return ()
    ends = [risk.predicted_tpr_interval for risk in risks]
    interval = None
    if values[0] is not None and values[1] is not None and ends[0] is not None and ends[1] is not None:
        interval = separate_difference_interval((values[0], ends[0]), (values[1], ends[1]))
    method = "the audits' own intervals, as if independent" if interval else "no interval: the predictions have none"
    return (_change("predicted_tpr", f"predicted attack TPR at FPR {levels[0]:.3g}", values, interval, method),)


def _change(name: str, label: str, values: list[Any], interval: Interval | None, method: str) -> Change:
    noise = None if interval is None else not interval[0] <= 0 <= interval[1]
    return Change(name, label, float(values[0]), float(values[1]), float(values[1] - values[0]), interval, noise, method)


def _verdict(changes: tuple[Change, ...], absent: dict[str, Absent]) -> str:
    if not changes:
        return f"The change in model risk is not known: {absent['model risk'].reason}."
    told = [change for change in changes if change.more_than_noise]
    if not told:
        return "No change in model risk beyond noise."
    words = [
        f"{c.label} {'fell' if (c.difference or 0) < 0 else 'rose'} from {figure_words(c, c.before)} to {figure_words(c, c.after)}"
        for c in told
    ]
    fell = {(change.difference or 0) < 0 for change in told}
    start = "Model risk fell" if fell == {True} else "Model risk rose" if fell == {False} else "Model risk changed both ways"
    return f"{start} by more than noise: {', '.join(words)}."


def _movements(
    before: Audit, after: Audit, found: Matched, absent: dict[str, Absent]
) -> tuple[tuple[Mover, ...], tuple[Mover, ...], tuple[int, int], float | None]:
    """Find the records entering and leaving the top, its two sizes, and the rank correlation.

    What cannot be compared is said in `absent`.
    """
    unranked = [name for name, audit in (("first", before), ("second", after)) if audit.ranked_by is None]
    sizes = (_top_size(before), _top_size(after))
    reason = f"the {' and the '.join(unranked)} audit ranks no records" if unranked else found.reason
    if reason:
        absent["records entering and leaving"] = absent["rank correlation"] = not_applicable(reason)
        return (), (), sizes, None
    ranks = [dict(zip(audit.records["id"].astype(str), audit.records["rank"].tolist(), strict=True)) for audit in (before, after)]
    tops = [{name for name, rank in held.items() if rank <= size} for held, size in zip(ranks, sizes, strict=True)]
    entered = sorted(tops[1] - tops[0], key=lambda name: ranks[1][name])
    left = sorted(tops[0] - tops[1], key=lambda name: ranks[0][name])
    moved = [tuple(Mover(name, ranks[0].get(name), ranks[1].get(name)) for name in names) for names in (entered, left)]
    return moved[0], moved[1], sizes, _correlation(before, after, found, absent)


def _correlation(before: Audit, after: Audit, found: Matched, absent: dict[str, Absent]) -> float | None:
    if len(found.first) < 2:
        absent["rank correlation"] = not_applicable("fewer than two records are in both audits")
        return None
    try:
        return spearman(_scores(before)[found.first], _scores(after)[found.second])
    except NotApplicable:
        absent["rank correlation"] = not_applicable("in one audit all shared records have the same score")
        return None


def _scores(audit: Audit) -> Array:
    scores: Array = audit.records[str(audit.ranked_by)].to_numpy(np.float64)
    return scores


def _top_size(audit: Audit) -> int:
    return places(TOP, len(audit.records))


def _notes(before: Audit, after: Audit, found: Matched, fpr: float | None) -> tuple[str, ...]:
    notes = [] if fpr is None else [ONLY_SAMPLING]
    if before.task != after.task:
        notes.append(f"the tasks differ ({before.task} and {after.task}): rates can be compared, losses and scores cannot")
    if found.reason is not None:
        notes.append(f"{found.reason}: model-level figures and findings can be compared, ranks cannot")
    elif found.relabelled:
        notes.append(
            f"{found.relabelled} of the {found.shared_ids} records in both audits have another target, and are compared all the same"
        )
    if fpr is not None and not found.same_tests:
        notes.append("the test records are not known to be the same, so they were resampled separately: a small change is harder to see")
    if before.ranked_by and after.ranked_by and before.ranked_by != after.ranked_by:
        notes.append(f"ranked by {before.ranked_by} before and by {after.ranked_by} after: records may move for that reason alone")
    risks = [risk for risk in (before.model_risk, after.model_risk) if risk is not None]
    if fpr is not None and any(risk.fpr != fpr for risk in risks):
        notes.append(f"an audit has another level α than {fpr:.3g}; both TNRs are read at that one from the stored losses")
    if fpr is not None and any(error_budget(fpr, risk.n_members) < FEW_MEMBERS for risk in risks):
        notes.append("TNR rests on few members at this level: a larger one (fpr=, --fpr) sees smaller changes")
    return tuple(notes)


def _stamp(audit: Audit) -> dict[str, Any]:
    hashes = audit.provenance.get("hashes", {})
    return {
        "created": audit.timings.get("created"),
        "task": audit.task,
        "records": len(audit.records),
        "hashes": hashes,
        "head": audit.provenance.get("head"),
    }
