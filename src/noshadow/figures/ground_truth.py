"""Hold what the real attacks found, beside the audit's cheap scores.

The values are frozen, and go to JSON and back.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from noshadow.checks import named_in_errors, refuse
from noshadow.storage.forms import Count, Keys, Level, OneOf, Share, Such, require_form

Interval = tuple[float, float]
_NUMBER = float | None
AGREEMENT = Such(
    Keys(
        {"attack": str, "score": str, "metric": str, "note": str, "targets": Count, "records": Count}
        | dict.fromkeys(("top", "keep", "value", "low", "high"), _NUMBER)
    ),
    "have both ends of its interval or none",
    lambda row: (row["low"] is None) == (row["high"] is None),
)
_COMPARED = Keys(dict.fromkeys(("target", "mean", "sd", "low", "high", "z"), float) | {"outlying": bool})
PARITY = Keys({"member": _COMPARED, "nonmember": OneOf(None, _COMPARED), "outlying": bool, "sentence": str})


@dataclass(frozen=True)
class MeasuredRate:
    """True-positive rate of an attack at one false-positive rate, with its interval; fractions."""

    fpr: Level
    tpr: Share
    low: float
    high: float


@dataclass(frozen=True)
class MeasuredAttack:
    """One attack on one model, or averaged over several attacked models.

    Attributes:
        attack: "LiRA", "RMIA", "Shokri" or "LOSS"; of sequences, the column it scores them by.
        attacked: "target", or "reference models" (each attacked with the others; the mean over
            them).
        auc: probability that a member scores above a non-member.
        auc_interval: 95 % interval: over records for the target, over models for the reference
            models.
        rates: true-positive rates at the levels the non-members resolve.
        models: number of models attacked.
    """

    attack: str
    attacked: str
    auc: Share
    auc_interval: Interval
    rates: tuple[MeasuredRate, ...]
    models: Count


@dataclass(frozen=True)
class GroundTruth:
    """What reference-model attacks measured, and how closely each score ranks records as they do.

    Attributes:
        models, records: size of the experiment: reference models and records they were trained on
            halves of.
        fraction: share of the records each model was trained on.
        variants: the named choices behind each attack (JSON-ready).
        attacks: AUC and TPR of each attack.
        agreement: rows of `metrics.agreement_table`, one per attack, score and metric.
        ceiling: rows of `metrics.noise_ceiling`: how well the attack agrees with itself.
        targets: number of audited models behind the agreement rows.
        parity: the target's losses beside the reference models', None when no target was recorded.
        not_applicable: what could not be measured, with the reason.
        notes: sentences a reader must see.
        provenance: plan digest, data hashes, seeds, versions (JSON-ready).
    """

    models: Count
    records: Count
    fraction: Share
    variants: dict[str, Any]
    attacks: tuple[MeasuredAttack, ...]
    agreement: tuple[dict[str, Any], ...]
    ceiling: tuple[dict[str, Any], ...]
    targets: Count
    parity: dict[str, Any] | None = None
    not_applicable: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    @named_in_errors
    def __post_init__(self) -> None:
        for measured in self.attacks:
            rates = [(rate.fpr, rate.tpr, rate.low, rate.high) for rate in measured.rates]
            for value in (measured.auc, *measured.auc_interval, *(number for rate in rates for number in rate)):
                if type(value) is not float or not math.isfinite(value):
                    refuse(measured.attack, "hold finite Python numbers", repr(value))

    def to_dict(self) -> dict[str, Any]:
        """The record in plain JSON types."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return plain

    @classmethod
    @named_in_errors
    def from_dict(cls, data: Mapping[str, Any]) -> "GroundTruth":
        """The record that `to_dict` wrote, through JSON or not.

        Raises:
            InputError: fields are missing or unknown.
        """
        known = {f.name for f in fields(cls)}
        if not isinstance(data, Mapping) or set(data) != known:
            got = (
                type(data).__name__
                if not isinstance(data, Mapping)
                else f"fields {', '.join(sorted(set(data) ^ known))} missing or unknown"
            )
            refuse("data", "hold exactly the fields of GroundTruth", got, "Written by another version?")
        require_form(data, cls, "data", "Written by another version?")
        for name, form in (("agreement", [AGREEMENT]), ("ceiling", [AGREEMENT]), ("parity", OneOf(None, PARITY))):
            require_form(data[name], form, name, "Written by another version?")
        attacks = tuple(attack_from_dict(entry) for entry in data["attacks"])
        lists = {name: tuple(data[name]) for name in ("agreement", "ceiling", "notes")}
        return cls(**(dict(data) | lists | {"attacks": attacks}))


def attack_from_dict(entry: Mapping[str, Any]) -> MeasuredAttack:
    """The attack that `asdict` wrote, through JSON or not; its form was checked before."""
    rates = tuple(MeasuredRate(**rate) for rate in entry["rates"])
    low, high = entry["auc_interval"]
    return MeasuredAttack(**(dict(entry) | {"rates": rates, "auc_interval": (low, high)}))
