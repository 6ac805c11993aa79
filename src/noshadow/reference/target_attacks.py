"""The attacks on the target itself, and on the reference models, as rates with intervals."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

from noshadow._known import is_level
from noshadow.checks import Array, refuse
from noshadow.metrics import auc, auc_interval, error_budget, tpr_at_fpr, tpr_interval
from noshadow.reference.attack_list import ATTACKS
from noshadow.reference.store import References
from noshadow.reference.truth import RecordTruth
from noshadow.results import MeasuredAttack, MeasuredRate

LEVELS = (1e-3, 1e-2, 1e-1)
LEVEL_OF_INTERVALS = 0.95


def resolved_levels(references: References, asked: float | Sequence[float] | None = None, own: float | None = None) -> tuple[float, ...]:
    """The false-positive rates that every attacked model's non-members resolve.

    They are those asked for, or 0.001, 0.01 and 0.1; and an audit's own, where it is resolved and
    is none of them.
    """
    fewest = int((~np.asarray(references.membership)).sum(1).min())
    if references.target is not None and not references.member.all():
        fewest = min(fewest, int((~references.member).sum()))
    rates = LEVELS if asked is None else (asked,) if isinstance(asked, (int, float)) else tuple(asked)
    for level in () if asked is None else rates:
        if not 0 < level < 1 or error_budget(level, fewest) == 0:
            refuse("fpr", f"lie between {1 / fewest:.3g}, the least that {fewest} non-members resolve, and 1", f"{level:g}")
    if own is not None and not any(is_level(own, level) for level in rates):
        rates = (*rates, own)
    return tuple(level for level in rates if error_budget(level, fewest) > 0)


def attacks_on_target(truth: RecordTruth, levels: Sequence[float]) -> tuple[MeasuredAttack, ...]:
    """Every attack that applies, on the target with all reference models.

    Rates are over its members and non-members in the pool.
    """
    inside, seed = truth.scene.references.member, truth.scene.options.seed
    scores = {attack.name: attack.on_target(truth.scene) for attack in ATTACKS if attack.name in truth.found}
    return tuple(measured_attack(name, values[inside], values[~inside], levels, seed) for name, values in scores.items())


def attacks_on_references(truth: RecordTruth, levels: Sequence[float]) -> tuple[MeasuredAttack, ...]:
    """Mean AUC and TPR over the reference models, each attacked with the others.

    Intervals are Student's, over models.
    """
    found = []
    for name, result in truth.found.items():
        measured = () if result.tpr is None else tuple(enumerate(levels))
        rates = tuple(MeasuredRate(level, *_mean(result.tpr[:, k])) for k, level in measured if result.tpr is not None)
        found.append(_over_models(name, result.auc, rates))
    return tuple(found)


def _over_models(name: str, aucs: Array, rates: tuple[MeasuredRate, ...]) -> MeasuredAttack:
    value, low, high = _mean(aucs)
    return MeasuredAttack(name, "reference models", value, (low, high), rates, len(aucs))


def _mean(values: Array) -> tuple[float, float, float]:
    """Mean with its Student interval, kept within [0, 1]."""
    spread = float(values.std(ddof=1)) / len(values) ** 0.5 * float(student.ppf((1 + LEVEL_OF_INTERVALS) / 2, len(values) - 1))
    mean = float(values.mean())
    return mean, max(mean - spread, 0.0), min(mean + spread, 1.0)


def measured_attack(name: str, members: Array, others: Array, levels: Sequence[float], seed: int) -> MeasuredAttack:
    """One attack on one model: AUC and rates with intervals, from its scores of both kinds."""
    rates = []
    for level in levels:
        low, high = tpr_interval(members, others, level, level=LEVEL_OF_INTERVALS, seed=seed)
        rates.append(MeasuredRate(float(level), tpr_at_fpr(members, others, level), low, high))
    return MeasuredAttack(name, "target", auc(members, others), auc_interval(members, others, level=LEVEL_OF_INTERVALS), tuple(rates), 1)
