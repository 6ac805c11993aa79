"""The one function that decides what is known about an attack's rate on a model."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from noshadow._known.audited import Audited
from noshadow._known.bases import base_left_out, splits_differ
from noshadow._known.needed import models_beside, trained_models
from noshadow._known.words import per_thousand
from noshadow.checks import require_number
from noshadow.figures import EvidenceEntry, GroundTruth, Interval, MeasuredAttack, MeasuredRate
from noshadow.metrics import error_budget, tnr_at_fnr
from noshadow.outcomes import Absent

SOURCES = ("measured", "exposure", "compared", "predicted", "losses", "unknown")
# The attacks that a careful attacker would run; others are beside them for comparison.
STRONGEST = ("LiRA", "RMIA")
TARGET = "target"
# The column of sequences whose rate counts: the first of these that an audit has, in a sentence and
# as a title. The order is that of their rates on the texts that chose (finetuned.json and
# own_gain.json of benchmarks/results), before any audit: the largest of several rates on the same
# records would be too large by chance.
DECLARED = {
    "own_gain": ("its gain over the base model beyond what other sequences explain", "Gain over the base from each sequence itself"),
    "window_votes": ("the share of windows of tokens in which it beats the base model", "Windows of tokens won against the base"),
    "error_zone": ("its moves away from the base model where it errs", "Moves away from the base where the model errs"),
    "base_gain": ("its gain over the base model", "Gain over the base"),
}
INTERVAL_OF_MEASURED = 0.95
# An audit that has neither risk, exposure nor measured attacks is asked about the usual rate.
USUAL_FPR = 1e-3
SAME_LEVEL = 1e-6


@dataclass(frozen=True)
class KnownRate:
    """What is best known about an attack's rate on a model. Larger = riskier.

    Attributes:
        fpr: false-positive rate that it is known at; a guess has this rate, too.
        rate: share of the members that the attack recognises; None when nothing is known. From
            "losses" it is the share of non-members that the loss attack rules out while it misses a
            share `fpr` of the members.
        interval: (low, high) at `interval_level`; None where there is none.
        source: "measured" by attacks with reference models, "exposure" of the records from some
            trained models, "compared" with the model that a language model was fine-tuned from,
            "predicted" by a calibration, "losses" alone, or "unknown"; the best first.
        attack: "LiRA" or "RMIA" when measured.
        trainings: how many models were trained for it.
        reason: one sentence on where it comes from, and why nothing better is known.
        attacked: "target" when the audited model itself was attacked, "reference models" when the
            rate is the mean over these; None unless measured or compared.
        interval_level: coverage of `interval`.
    """

    fpr: float
    rate: float | None
    interval: Interval | None
    source: str
    attack: str | None
    trainings: int
    reason: str
    attacked: str | None = None
    interval_level: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The same in plain JSON types."""
        ends = None if self.interval is None else list(self.interval)
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"interval": ends}


def best_known(audit: Audited, fpr: float | None = None) -> KnownRate:
    """Decide what is known about an attack's rate on the audited model, the best source first.

    1. Measured: the stronger of LiRA and RMIA on the audited model, or the mean over the reference
       models where only these were attacked. At another level than asked for when it was not
       measured there: the nearest one, which `fpr` then says.
    2. Exposure: the mean over records of `attack_rate`, where models were trained for it. Its
       interval is the mean of the records' interval ends: wide on purpose, since what records share
       errs in the same direction for all of them.
    3. Compared: what the gain over the base that other sequences do not explain finds when
       sequences of the audited language model are attacked with it; where it cannot be had, votes
       of windows between model and base (`DECLARED`). A measurement, by one attack that needs no
       training: a stronger one may find more. It does not count where the base is worse than a
       guess (NS032), and neither does 5. where the base tells the splits apart (NS031).
    4. Predicted by a calibration, where the model resembles its setups. 5. The tail of the losses.

    Args:
        audit: an Audit, or whatever has its fields.
        fpr: false-positive rate in (0, 1); None: the audit's own.

    Returns:
        KnownRate.

    Raises:
        InputError: fpr outside (0, 1).

    Exact when: always; it chooses among figures that the audit holds.
    Cost: O(n), and O(n log n) for losses at another level than the audit's.
    """
    asked = own_fpr(audit) if fpr is None else require_number(fpr, "fpr", low=0, high=1, low_open=True, high_open=True)
    found = (known(audit, asked) for known in (_measured, _exposed, _compared, _predicted, _from_losses))
    return next((known for known in found if known is not None), _unknown(audit, asked))


def own_fpr(audit: Audited) -> float:
    """The false-positive rate that an audit is about."""
    if audit.model_risk is not None:
        return audit.model_risk.fpr
    entry = _entry(audit.evidence, "exposure")
    if entry is not None and "fpr" in entry.stamp:
        return float(entry.stamp["fpr"])
    levels = [] if audit.ground_truth is None else [rate.fpr for row in audit.ground_truth.attacks for rate in row.rates]
    return min(levels, default=USUAL_FPR)


def is_level(first: float, second: float) -> bool:
    """Whether two false-positive rates are the same but for rounding."""
    return abs(first / second - 1) < SAME_LEVEL


def _measured(audit: Audited, fpr: float) -> KnownRate | None:
    truth = audit.ground_truth
    rows = [] if truth is None else [row for row in truth.attacks if row.attack in STRONGEST and row.rates]
    rows = [row for row in rows if row.attacked == TARGET] or rows
    if truth is None or not rows:
        return None
    level = min((rate.fpr for row in rows for rate in row.rates), key=lambda held: abs(math.log(held / fpr)))
    at_level = [(row, rate) for row in rows for rate in row.rates if is_level(rate.fpr, level)]
    strongest, rate = max(at_level, key=lambda pair: pair[1].tpr)
    return KnownRate(
        fpr=level,
        rate=rate.tpr,
        interval=(rate.low, rate.high),
        source="measured",
        attack=strongest.attack,
        trainings=truth.models,
        reason=_measured_reason(truth, strongest, at_level, fpr),
        attacked=strongest.attacked,
        interval_level=INTERVAL_OF_MEASURED,
    )


def _measured_reason(truth: GroundTruth, strongest: MeasuredAttack, found: list[tuple[MeasuredAttack, MeasuredRate]], fpr: float) -> str:
    level = next(rate.fpr for row, rate in found if row is strongest)
    weaker = [f"{row.attack}, which found {per_thousand(rate.tpr)}" for row, rate in found if row is not strongest]
    told = f"Measured on this model by {strongest.attack} with {truth.models} reference models"
    if strongest.attacked != TARGET:
        told = f"Measured by {strongest.attack} on {strongest.models} reference models, in the mean; this model itself was not attacked"
    told += f", the stronger attack beside {' and '.join(weaker)}" if weaker else ""
    told += "" if is_level(level, fpr) else f"; at a false-positive rate of {level:.3g}, the measured one that is nearest to {fpr:.3g}"
    if truth.parity is not None and truth.parity["outlying"]:
        told += "; the model is unlike these reference models, and the rate may be too small (NS030)"
    return f"{told}."


def _exposed(audit: Audited, fpr: float) -> KnownRate | None:
    entry = _entry(audit.evidence, "exposure")
    columns = ("attack_rate", "attack_rate_low", "attack_rate_high")
    if entry is None or not set(columns) <= set(audit.records.columns) or not is_level(float(entry.stamp.get("fpr", math.inf)), fpr):
        return None
    rate, low, high = (float(np.mean(audit.records[name].to_numpy(np.float64))) for name in columns)
    models = trained_models(audit)
    many = f"{_counted(models)} trained" if models else "models trained earlier"
    beside = models_beside(audit)
    told = f"The mean over records of each one's attack rate, from {many} for this audit"
    told += f" (beside {_counted(beside)} that helped to order the records and not to find rates)" if beside else ""
    reason = f"{told}; the model itself has not been attacked."
    return KnownRate(float(fpr), rate, (low, high), "exposure", None, models, reason, None, float(entry.stamp["level"]))


def declared_attack(attacks: Iterable[MeasuredAttack]) -> MeasuredAttack | None:
    """The attack on sequences that counts: the first of `DECLARED` that is there."""
    found = {row.attack: row for row in attacks}
    return next((found[name] for name in DECLARED if name in found), None)


def _compared(audit: Audited, fpr: float) -> KnownRate | None:
    row = declared_attack(audit.sequence_attacks)
    if row is None or not row.rates or base_left_out(audit) is not None:
        return None
    rate = min(row.rates, key=lambda held: abs(math.log(held.fpr / fpr)))
    told = f"Measured on this model by {DECLARED[row.attack][0]}, a comparison that was declared before it was measured"
    told += "" if is_level(rate.fpr, fpr) else f"; at a false-positive rate of {rate.fpr:.3g}, the measured one nearest to {fpr:.3g}"
    reason = f"{told}. Attacks with reference models may find more."
    return KnownRate(rate.fpr, rate.tpr, (rate.low, rate.high), "compared", None, 0, reason, TARGET, INTERVAL_OF_MEASURED)


def _predicted(audit: Audited, fpr: float) -> KnownRate | None:
    risk = audit.model_risk
    if risk is None or risk.predicted_tpr is None or not risk.in_calibration_domain or not is_level(risk.fpr, fpr):
        return None
    of = "" if risk.reference_models is None else f" with {risk.reference_models} reference models"
    attack = risk.predicted_attack or "LiRA"
    read = "" if risk.predicted_from is None else f" from {risk.predicted_from}"
    reason = f"Predicted for {attack}{of}{read} by a calibration on models like this one; that attack was not run on this model."
    level = risk.prediction_level or risk.interval_level  # older folders have one level for all
    return KnownRate(risk.fpr, risk.predicted_tpr, risk.predicted_tpr_interval, "predicted", None, 0, reason, None, level)


def _from_losses(audit: Audited, fpr: float) -> KnownRate | None:
    risk = audit.model_risk
    if risk is None or error_budget(fpr, risk.n_members) == 0 or splits_differ(audit) is not None:
        return None
    why = f"none is predicted, because {_lowered(risk.reason.rstrip('.'))}"
    if risk.predicted_tpr is not None:
        why = "the rate that is predicted for one is for another level"
        if not risk.in_calibration_domain:
            why = "the rate that is predicted for one is a hint, because the model is unlike the setups that predictions come from"
    if (unfit := base_left_out(audit)) is not None:
        why = f"{why}; {unfit}"
    reason = f"From the losses of members and non-members alone; no attack was measured, and {why}."
    if is_level(risk.fpr, fpr):
        return KnownRate(risk.fpr, risk.tnr, risk.tnr_interval, "losses", None, 0, reason, None, risk.interval_level)
    return KnownRate(float(fpr), tnr_at_fnr(audit.member_losses, audit.nonmember_losses, fpr), None, "losses", None, 0, reason)


def _counted(models: int) -> str:
    return f"{models} model{'' if models == 1 else 's'}"


def _unknown(audit: Audited, fpr: float) -> KnownRate:
    missing = audit.not_applicable.get("model_risk", "the audit holds no model-level risk")
    if audit.model_risk is not None:
        missing = splits_differ(audit) or f"{audit.model_risk.n_members} members do not resolve a rate of {fpr:.3g}"
    reason = f"Nothing is known about an attack's rate, because {_lowered(Absent.of(missing).reason.rstrip('.'))}."
    return KnownRate(float(fpr), None, None, "unknown", None, 0, reason)


def _entry(evidence: Iterable[EvidenceEntry], source: str) -> EvidenceEntry | None:
    return next((entry for entry in evidence if entry.source == source), None)


def _lowered(text: str) -> str:
    """The text as it stands inside a sentence: names in capitals stay as they are."""
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text
