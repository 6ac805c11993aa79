"""A price list of certainty: what further evidence costs here, and what it would buy."""

from dataclasses import asdict, dataclass
from typing import Any

from noshadow._known import models_on_halves, needed_references, weighed_entry
from noshadow._known.audited import Audited
from noshadow.figures import EvidenceEntry
from noshadow.outcomes import Absent
from noshadow.sizing import LEAST_RECORDS

# Sources whose stamps hold the seconds of one training, and the share of a training that each ran.
_TRAINED = ("few references", "folds", "short references", "reference models")
_EARLIER = ("checkpoints", "base model", "traces")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
# What ranks forests that classify, whatever else is known, and why.
OF_FORESTS = "loo"
OWN_TREES = "the records stay ranked by loo, which found more of the exposed on the calibration forests than exposure_score did"
_SIZES = "an exposure and an attack rate with intervals per record"
_ORDER = "a better order"
# The least that can show how margins vary on either side.
_FIRST = 2


@dataclass(frozen=True)
class Offer:
    """One kind of further evidence.

    Attributes:
        argument: of `audit`, that asks for it. trainings: its price in trainings of the audited
            model, beyond those that there are.
        seconds: the same on this machine, None where no training was measured.
        narrower: share by which intervals of the exposure would become narrower; None where sizes
            are not known yet.
        sentence: both in words, without a full stop.
    """

    argument: str
    trainings: float
    seconds: float | None
    narrower: float | None
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """The offer in plain JSON types."""
        return asdict(self)


def offers(audit: Audited) -> tuple[Offer, ...]:
    """What the next pieces of evidence would cost and buy, the cheapest first.

    Sizes are promised from as many reference models as `exposure` takes for them with this many
    records (`needed_references`), and an order from fewer. Widths are those that the exposure
    promised when it was weighed. Trainings cost what those of the audit took, where it trained any.
    There are no offers for language models and for records with several outputs, whose exposure is
    not defined. Nor are there any for forests: no sizes follow from votes, and their own trees
    order the records better than references did. Where as many reference models as sizes take gave
    none, no more are offered: `why_no_sizes` says why they did not.
    """
    entries = {entry.source: entry for entry in audit.evidence}
    if audit.task == "language-model" or "target_1" in audit.records or not entries:
        return ()
    weighed = weighed_entry(audit)
    if weighed is not None and "exposure_score" in weighed.absent:
        return ()
    found = [] if any(source in entries for source in _EARLIER) or not _is_network(audit) else [_earlier()]
    if audit.provenance.get("inputs", {}).get("votes"):
        return tuple(found)
    had, seconds = models_on_halves(audit), _seconds(entries)
    widths = {} if weighed is None else weighed.stamp.get("width_with", {})
    if weighed is None or not widths:
        return (*found, *_first_references(audit, had, seconds))
    now = weighed.stamp["width"]
    return (
        *found,
        *(_references(int(more), had, seconds, *_narrower(1 - width / now if now > 0 else 0.0)) for more, width in widths.items()),
    )


def _first_references(audit: Audited, had: int, seconds: float | None) -> tuple[Offer, ...]:
    """Reference models for an order, and for sizes, where these are not known yet."""
    needed, found = needed_references(audit), []
    if had == 0 and needed.models != _FIRST and len(audit.records) >= LEAST_RECORDS:
        why = "" if needed.models is not None else f", no sizes: {needed.reason[:1].lower()}{needed.reason[1:]}"
        found.append(_references(_FIRST, had, seconds, None, _ORDER + why))
    if needed.models is not None and had < needed.models:
        found.append(_references(needed.models - had, had, seconds, None, _SIZES))
    return tuple(found)


def why_no_sizes(audit: Audited) -> str | None:
    """Why no record has a rate of its own although evidence was weighed, without a full stop.

    None where records have them, or where nothing was weighed.
    """
    weighed = weighed_entry(audit)
    if weighed is None or "attack_rate" in weighed.columns or "attack_rate" not in weighed.absent:
        return None
    return Absent.of(weighed.absent["attack_rate"]).reason.removesuffix(".")


def evidence_changes(audit: Audited) -> tuple[str, ...]:
    """What each source beyond the final weights changed, in the order they were weighed in."""
    entry, told, width = weighed_entry(audit), [], None
    for step in [] if entry is None else entry.stamp.get("changed", []):
        price = "" if step["trainings"] == 0 else f" ({_counted(step['trainings'], 'training')})"
        line = f"{step['source']}{price}: {round(100 * step['moved'])} % of the top 1 % of records changed"
        if step["width"] is not None:
            before = "the order alone was known before" if width is None else f"{width:.2g} before"
            line += f", intervals of the exposure are {step['width']:.2g} wide in the mean ({before})"
        width = step["width"]
        told.append(line)
    return (*told, OWN_TREES) if told and audit.ranked_by == OF_FORESTS else tuple(told)


def _is_network(audit: Audited) -> bool:
    inputs: dict[str, Any] = audit.provenance.get("inputs", {})
    return inputs.get("family") == "network"


def _seconds(entries: dict[str, EvidenceEntry]) -> float | None:
    """Mean seconds of one whole training, over the models that the audit trained."""
    held = [entries[name].stamp for name in _TRAINED if name in entries and "seconds" in entries[name].stamp]
    whole = [stamp["seconds"] * stamp["models"] / stamp["trainings"] for stamp in held if stamp.get("trainings")]
    return sum(whole) / len(whole) if whole else None


def _earlier() -> Offer:
    kept = "an earlier checkpoint or loss traces with test records (kept while training, no training more)"
    buys = "a better order where the network knows its records by heart"
    return Offer("checkpoint", 0.0, None, None, f"{kept}: {buys}")


def _narrower(share: float) -> tuple[float, str]:
    return share, f"intervals about {round(100 * share):d} % narrower"


def _references(more: int, had: int, seconds: float | None, narrower: float | None, buys: str) -> Offer:
    """More reference models, beyond those the audit had; a set of another size is drawn anew."""
    total = None if seconds is None else more * seconds
    price = _counted_in_words(more, "training") + ("" if total is None else f", about {_time(total)} here")
    models = _counted_in_words(more, "more reference model" if had or narrower is not None else "reference model")
    again = f"; reference_models={had + more} trains all {had + more} anew" if had else ""
    return Offer("reference_models", float(more), total, narrower, f"{models} ({price}): {buys}{again}")


def _time(seconds: float) -> str:
    if seconds < 90:
        return _counted(max(round(seconds), 1), "second")
    return _counted(round(seconds / 60), "minute") if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _counted(count: float, what: str) -> str:
    return f"{count:.3g} {what}" + ("" if count == 1 else "s")


def _counted_in_words(count: int, what: str) -> str:
    """The count as a word where it is a small one."""
    number = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    return f"{number} {what}" + ("" if count == 1 else "s")
