"""A price list of certainty: what further evidence costs here, and what it would buy."""

from dataclasses import dataclass
from typing import Any

from noshadow._known.audited import Audited
from noshadow.figures import EvidenceEntry

# Sources whose stamps hold the seconds of one training, and the share of a training that each ran.
_TRAINED = ("few references", "folds", "short references", "reference models")
_ON_HALVES = ("few references", "reference models")
_EARLIER = ("checkpoints", "base model", "traces")
_NUMBERS = {2: "two", 4: "four", 8: "eight"}


@dataclass(frozen=True)
class Offer:
    """One kind of further evidence.

    Attributes:
        argument: of `audit`, that asks for it. trainings: its price in trainings of the audited
            model. seconds: the same on this machine, None where no training was measured.
        narrower: share by which intervals of the exposure would become narrower; None where sizes
            are not known yet.
        sentence: both in words, without a full stop.
    """

    argument: str
    trainings: float
    seconds: float | None
    narrower: float | None
    sentence: str


def offers(audit: Audited) -> tuple[Offer, ...]:
    """What the next pieces of evidence would cost and buy, the cheapest first.

    Widths are those that the exposure promised when it was weighed. Trainings cost what those of
    the audit took, where it trained any. There are no offers for language models and for records
    with several outputs, whose exposure is not defined. Nor are there any for forests: no sizes
    follow from votes, and their own trees order the records better than references did. Reference
    models that gave no sizes are not offered once more: the exposure says why they did not.
    """
    entries = {entry.source: entry for entry in audit.evidence}
    if audit.task == "language-model" or "target_1" in audit.records or not entries:
        return ()
    weighed = entries.get("exposure")
    if weighed is not None and "exposure_score" in weighed.absent:
        return ()
    seconds = _seconds(entries)
    found = [] if any(source in entries for source in _EARLIER) or not _is_network(audit) else [_earlier()]
    if audit.provenance.get("inputs", {}).get("votes"):
        return tuple(found)
    widths = {} if weighed is None else weighed.stamp.get("width_with", {})
    if not widths:
        return tuple(found) if _without_sizes(weighed, entries) else (*found, _references(2, seconds, None))
    now = weighed.stamp["width"] if weighed is not None else 0.0
    return (*found, *(_references(int(more), seconds, 1 - width / now if now > 0 else 0.0) for more, width in widths.items()))


def _without_sizes(weighed: EvidenceEntry | None, entries: dict[str, EvidenceEntry]) -> bool:
    """Whether two reference models or more were weighed, and the order alone is known."""
    names = {} if weighed is None else weighed.stamp.get("trainings", {})
    return any(name in names and name in entries and entries[name].stamp.get("models", 0) >= 2 for name in _ON_HALVES)


def evidence_changes(audit: Audited) -> tuple[str, ...]:
    """What each source beyond the final weights changed, in the order they were weighed in."""
    entry = next((entry for entry in audit.evidence if entry.source == "exposure"), None)
    told, width = [], None
    for step in [] if entry is None else entry.stamp.get("changed", []):
        price = "" if step["trainings"] == 0 else f" ({_counted(step['trainings'], 'training')})"
        line = f"{step['source']}{price}: {round(100 * step['moved'])} % of the top 1 % of records changed"
        if step["width"] is not None:
            before = "the order alone was known before" if width is None else f"{width:.2g} before"
            line += f", intervals of the exposure are {step['width']:.2g} wide in the mean ({before})"
        width = step["width"]
        told.append(line)
    return tuple(told)


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


def _references(more: int, seconds: float | None, narrower: float | None) -> Offer:
    price = f"{_NUMBERS[more]} trainings" + ("" if seconds is None else f", about {_time(more * seconds)} here")
    if narrower is None:
        buys, models = "an exposure and an attack rate with intervals per record", f"{_NUMBERS[more]} reference models"
    else:
        buys, models = f"intervals about {round(100 * narrower):d} % narrower", f"{_NUMBERS[more]} more reference models"
    total = None if seconds is None else more * seconds
    return Offer("reference_models", float(more), total, narrower, f"{models} ({price}): {buys}")


def _time(seconds: float) -> str:
    if seconds < 90:
        return _counted(max(round(seconds), 1), "second")
    return _counted(round(seconds / 60), "minute") if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _counted(count: float, what: str) -> str:
    return f"{count:.3g} {what}" + ("" if count == 1 else "s")
