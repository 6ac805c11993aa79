"""Which models an audit's records were weighed with, and how many would give them sizes."""

from noshadow._known.audited import Audited
from noshadow.figures import EvidenceEntry
from noshadow.sizing import LEAST_RECORDS, Needed, needed_for_sizes

EXPOSURE = "exposure"
# Sources whose models are trained to the end on random halves of all records.
ON_HALVES = ("few references", "reference models")


def weighed_entry(audit: Audited) -> EvidenceEntry | None:
    """The evidence that the exposure of the records is; None where nothing was weighed."""
    return next((entry for entry in audit.evidence if entry.source == EXPOSURE), None)


def needed_references(audit: Audited) -> Needed:
    """The fewest reference models that would give this audit's records sizes, or why none would."""
    if "target_1" in audit.records:
        return Needed(None, "a record of several outputs has no exposure")
    if audit.provenance.get("inputs", {}).get("votes"):
        return Needed(None, "intervals from votes of a forest's trees do not hold")
    if len(audit.records) < LEAST_RECORDS:
        return Needed(None, f"{len(audit.records)} records cannot be told apart from noise")
    return needed_for_sizes(len(audit.records), len(audit.nonmember_losses))


def trained_sources(audit: Audited) -> tuple[EvidenceEntry, ...]:
    """Sources of the exposure whose models were trained for it."""
    weighed = weighed_entry(audit)
    prices = {} if weighed is None else weighed.stamp.get("trainings", {})
    return tuple(entry for entry in audit.evidence if prices.get(entry.source, 0) > 0)


def models_on_halves(audit: Audited) -> int:
    """How many whole reference models the exposure was weighed with."""
    return sum(_models(entry) for entry in trained_sources(audit) if entry.source in ON_HALVES)


def trained_models(audit: Audited) -> int:
    """How many trained models the sizes of the records rest on, beside the audited one.

    Models that stopped early, and those of sources that are not on the audited model's scale, count
    as covariates: they order records and say nothing of a rate.
    """
    return sum(_models(entry) for entry in trained_sources(audit) if not _covariates_alone(audit, entry))


def models_beside(audit: Audited) -> int:
    """How many trained models counted as covariates alone."""
    return sum(_models(entry) for entry in trained_sources(audit) if _covariates_alone(audit, entry))


def _covariates_alone(audit: Audited, entry: EvidenceEntry) -> bool:
    weighed = weighed_entry(audit)
    alone = [] if weighed is None else weighed.stamp.get("covariates_only", [])
    return "stop" in entry.stamp or entry.source in alone


def _models(entry: EvidenceEntry) -> int:
    return int(entry.stamp.get("models", 0))
