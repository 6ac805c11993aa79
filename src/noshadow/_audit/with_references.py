"""An audit with a set of reference models: what attacks measure, and exposure by all of them."""

from dataclasses import replace
from typing import Any

import numpy as np

from noshadow._audit.exposing import FREE, FREE_OF_SEQUENCES, SEVERAL_RESIDUALS, SOURCE, Known, Statistics, in_votes, weighed_exposure
from noshadow._audit.known_references import Audited, Words, known_references
from noshadow._audit.other_models import BASE
from noshadow._audit.tracing import trace_covariates
from noshadow._known import own_fpr
from noshadow.checks import Array
from noshadow.columns import LANGUAGE_MODEL, named
from noshadow.joins import held_by
from noshadow.outcomes import Absent
from noshadow.reference import References, with_ground_truth
from noshadow.reference.ground_truth import OF_EXPOSURE, WITH_ITSELF, audited_rows, in_votes_of
from noshadow.reference.ground_truth import SOURCE as REFERENCES
from noshadow.results import Audit, Evidence
from noshadow.votes import VOTES

# Sources of an earlier weighing whose columns the audit still holds; their margins it does not.
TRACES = "traces"
_STILL_KNOWN = (TRACES, "checkpoints", "left out", "out of bag", "out-of-fold outputs", "folds", BASE)
NO_TARGET = Absent("not available", "the set was trained without the audited model, whose scale is not known then")


def with_references(audit: Audit, references: References, **options: Any) -> Audit:
    """The audit with what attacks by reference models measure, ranked by exposure to all of them.

    The ground truth of `with_ground_truth` at the audit's own false-positive rate, too; then the
    exposure of every record weighed anew, from the margins of all reference models beside the
    columns that the audit holds. It takes the place of an exposure from fewer models, and ranks the
    records of a model that had no scores. It is not compared with the ground truth, which comes
    from the same models.

    Args:
        audit: of the set's target. references: a complete set. options: of `with_ground_truth`.

    Raises:
        InputError: the audit is of another model or other records.

    Cost: that of `with_ground_truth`, and O(n(p² + K)) for K models and p columns.
    """
    references = in_votes_of(references, audit)
    found = with_ground_truth(audit, references, **options)
    known = _known(found, references)
    if isinstance(known, Absent):
        return _noted(found, known)
    statistics, weighed_with = _statistics(found, references), [known]
    if not references.votes:  # a set that is read by log-odds, of a model that may vote
        statistics, weighed_with = in_votes(statistics, weighed_with)
    sources = [name for name in _STILL_KNOWN if audit.task != LANGUAGE_MODEL or name != BASE]
    free = FREE_OF_SEQUENCES if audit.task == LANGUAGE_MODEL else FREE
    held = (*free, *(name for source in sources for name in named(source=source)))
    traced = next((entry.stamp for entry in found.evidence if entry.source == TRACES), {})
    covariates = trace_covariates({name: found.records[name].to_numpy(np.float64) for name in held if name in found.records}, traced)
    weighed = weighed_exposure(statistics, weighed_with, covariates, fpr=own_fpr(found), seed=references.plan.seed)
    if "exposure_score" in weighed.absent:
        return _noted(found, Absent.of(weighed.absent["exposure_score"]))
    return _without_own_agreement(found).with_evidence(_told(found, known), weighed)


def _known(audit: Audit, references: References) -> Known | Absent:
    """What the set knows of the audit's records."""
    if references.residuals > 1:
        return SEVERAL_RESIDUALS
    if references.target is None:
        return NO_TARGET
    weights = audit.provenance.get("hashes", {}).get("weights")
    audited = Audited(held_by(audit.records, losses=True), audit.nonmember_losses, weights, audit.task)
    return known_references(references, audited, Words(REFERENCES, "references", "reference models"))


def _statistics(audit: Audit, references: References) -> Statistics:
    """The audited model's statistic, as the set gives it: margins of a forest are votes already."""
    assert references.target is not None
    recorded: Array = np.asarray(references.target.statistic)
    plain = recorded if recorded.ndim == 1 else recorded[:, 0]
    direction = "either" if audit.task == "regression" else "larger"
    votes = references.votes or int(audit.provenance.get("inputs", {}).get(VOTES, 0))
    return Statistics(np.array(plain[audited_rows(audit, references)[0]]), np.array(plain[~references.member]), direction, votes)


def _told(audit: Audit, known: Known) -> Evidence:
    """What `with_ground_truth` wrote, with what the same models said of the records beside it."""
    entry = next(entry for entry in audit.evidence if entry.source == REFERENCES)
    columns = {name: audit.records[name].to_numpy() for name in entry.columns}
    stamp = dict(known.evidence.stamp) | entry.stamp
    return Evidence(REFERENCES, columns, entry.absent, (*entry.notes, *known.evidence.notes), stamp)


def _without_own_agreement(audit: Audit) -> Audit:
    """The audit whose exposure is no longer compared with attacks by the models it rests on."""
    truth = audit.ground_truth
    assert truth is not None
    rows = tuple(row for row in truth.agreement if row["score"] not in named(source=SOURCE))
    return replace(audit, ground_truth=replace(truth, agreement=rows, not_applicable=truth.not_applicable | {OF_EXPOSURE: WITH_ITSELF}))


def _noted(audit: Audit, why: Absent) -> Audit:
    """The audit with its ground truth, and the reason why exposure stays as it was."""
    truth = audit.ground_truth
    assert truth is not None
    return replace(audit, ground_truth=replace(truth, not_applicable=truth.not_applicable | {"exposure by all references": why}))
