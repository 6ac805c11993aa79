"""Who bears the risk: the loss attack within each class or group of records.

Each group is compared with all the others.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from noshadow.checks import Array, named_in_errors, refuse, require_number, require_same_length, require_unmasked, require_whole
from noshadow.metrics import error_budget
from noshadow.results import GroupRisk
from noshadow.tail.losses import resolved_level, sorted_losses
from noshadow.tail.resampling import Bootstrap, tnr_at, tnr_draws

LEAST_RECORDS = 20
MISSING = "(missing)"
FIGURES = ("auc", "auc_interval", "auc_difference", "auc_p", "fnr", "tnr", "tnr_interval", "tnr_difference", "tnr_p")
# members that may exceed a group's threshold: with fewer, the interval of TNR is too short
MISSES = 10


@named_in_errors
def group_risk(
    member_losses: object,
    nonmember_losses: object,
    member_groups: object,
    nonmember_groups: object,
    *,
    fpr: float | str = "auto",
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[GroupRisk, ...]:
    """Loss AUC and TNR within each group of records, with flags that hold over all groups together.

    For each group: AUC and TNR of its own members against its own non-members (TNR at its own
    threshold, at one level for all groups), and their differences to those of all other records.
    z-tests of both differences (DeLong's variance for AUC, the bootstrap's for TNR) are adjusted by
    Holm's method over every test of the table: if no group differs, the chance that any is flagged
    is at most about 1 − level.

    Args:
        member_losses, nonmember_losses: as `model_risk`.
        member_groups: (n_members,) group or class of each member. nonmember_groups: (n_nonmembers,)
            likewise.
        fpr: as `model_risk`. The rate used is at least 10 over the members of the smallest group
            judged.
        level: coverage of intervals; flags at 1 − level. resamples: of the bootstrap of TNR, ≥ 100.
            seed: of it.

    Returns:
        One GroupRisk per group, the largest AUC first; groups with fewer than 20 members or
        non-members last, without figures and with the reason.

    Raises:
        InputError: losses or groups that do not fit together, fewer than two groups, an argument
            out of range.

    Approximates: both tests are normal approximations; at 20 records per side they are rough.
    Cost: O(n log n + G (n + resamples)), G the groups that are judged.
    Reference: DeLong et al. 1988; Holm 1979; [TAIL] §5 for TNR.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> scale = np.repeat([1.0, 0.1], 500)
        >>> names = np.repeat(["old", "young"], 500)
        >>> found = group_risk(rng.exponential(scale), rng.exponential(size=1000), names, names)
        >>> [(row.group, row.riskier) for row in found]
        [('young', True), ('old', False)]
    """
    losses = [sorted_losses(member_losses, "member_losses")[1], sorted_losses(nonmember_losses, "nonmember_losses")[1]]
    names = [_names(groups, which) for groups, which in ((member_groups, "member_groups"), (nonmember_groups, "nonmember_groups"))]
    for which, values, own in zip(("member", "nonmember"), losses, names, strict=True):
        require_same_length(**{f"{which}_losses": values, f"{which}_groups": own})
    bootstrap = Bootstrap(
        resamples=require_whole(resamples, "resamples", low=100),
        level=require_number(level, "level", low=0, high=1, low_open=True, high_open=True),
        seed=require_whole(seed, "seed", low=0),
    )
    groups = sorted({*names[0].tolist(), *names[1].tolist()})
    if len(groups) < 2:
        refuse("member_groups", "name at least two groups", f"{len(groups)}", "Use model_risk for all records together.")
    sides = [_Side.of(values, own, groups) for values, own in zip(losses, names, strict=True)]
    inside = np.stack([side.counts for side in sides])
    enough = (np.minimum(inside, inside.sum(1, keepdims=True) - inside) >= LEAST_RECORDS).all(0)
    used = resolved_level(fpr, min(map(len, losses)))
    if enough.any():
        used = max(used, min(MISSES / int(inside[0, enough].min()), 0.5))
    rng = np.random.default_rng(bootstrap.seed)
    found = [_judged(groups[number], number, sides, used, bootstrap, rng) for number in np.flatnonzero(enough).tolist()]
    few = [_unjudged(groups[number], *inside[:, number].tolist()) for number in np.flatnonzero(~enough).tolist()]
    return (*sorted(_flagged(found, 1 - bootstrap.level), key=lambda row: -(row.auc or 0.0)), *few)


@dataclass(frozen=True, eq=False)
class _Side:
    """Members or non-members.

    It holds the losses in ascending order, the number of each one's group, and the records per
    group.
    """

    losses: Array
    group: Array
    counts: Array

    @classmethod
    def of(cls, losses: Array, names: Array, groups: list[str]) -> "_Side":
        group: Array = pd.Index(groups, dtype=object).get_indexer(pd.Index(names))
        order = np.argsort(losses, kind="stable")
        return cls(losses[order], group[order], np.bincount(group, minlength=len(groups)))


def _names(groups: object, argument: str) -> Array:
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        refuse(argument, "be one name a record", repr(groups)[:60])
    return np.array(named_groups(groups, argument), dtype=object)


def named_groups(groups: Iterable[object], argument: str) -> list[str]:
    """Each record's group as text.

    1 and 1.0 are one group, and so is everything that is missing (None, NaN).
    """
    require_unmasked(groups, argument)
    held: list[Any] = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if {*map(type, held)} <= {str}:
        return held
    if any(isinstance(name, (list, tuple, np.ndarray)) for name in held):
        refuse(argument, "hold one name a record", f"{type(held[0]).__name__}s")
    missing = pd.isna(pd.Series(held, dtype=object)).tolist()
    whole = [isinstance(name, float) and name.is_integer() for name in held]
    return [MISSING if gone else str(int(name) if plain else name) for name, gone, plain in zip(held, missing, whole, strict=True)]


def _unjudged(group: str, members: int, nonmembers: int) -> GroupRisk:
    needed = f"{LEAST_RECORDS} members and {LEAST_RECORDS} non-members, in the group and outside of it"
    reason = f"needs {needed}; the group has {members} and {nonmembers}"
    nothing: dict[str, Any] = dict.fromkeys(
        ("auc", "auc_interval", "auc_difference", "auc_p", "fnr", "tnr", "tnr_interval", "tnr_difference", "tnr_p")
    )
    return GroupRisk(group=group, n_members=members, n_nonmembers=nonmembers, riskier=False, reason=reason, **nothing)


def _judged(group: str, number: int, sides: list[_Side], level: float, bootstrap: Bootstrap, rng: np.random.Generator) -> GroupRisk:
    inside = [side.losses[side.group == number] for side in sides]
    others = [side.losses[side.group != number] for side in sides]
    (auc, auc_error), (other_auc, other_auc_error) = _auc(*inside), _auc(*others)
    (tnr, draws), (other_tnr, other_draws) = (_tnr(side, level, bootstrap.resamples, rng) for side in (inside, others))
    reach = float(ndtri(0.5 + bootstrap.level / 2)) * auc_error
    return GroupRisk(
        group=group,
        n_members=len(inside[0]),
        n_nonmembers=len(inside[1]),
        auc=auc,
        auc_interval=(max(auc - reach, 0.0), min(auc + reach, 1.0)),
        auc_difference=auc - other_auc,
        auc_p=_p_value(auc - other_auc, math.hypot(auc_error, other_auc_error)),
        fnr=level,
        tnr=tnr,
        tnr_interval=bootstrap.interval(draws),
        tnr_difference=tnr - other_tnr,
        tnr_p=_p_value(tnr - other_tnr, math.hypot(draws.std(), other_draws.std(), 1 / len(inside[1]))),
        riskier=False,
    )


def _auc(members: Array, nonmembers: Array) -> tuple[float, float]:
    """AUC of two sorted samples and DeLong's standard error.

    The error is never below that of one record's step.
    """
    below = np.searchsorted(nonmembers, members, side="left") + np.searchsorted(nonmembers, members, side="right")
    above = np.searchsorted(members, nonmembers, side="left") + np.searchsorted(members, nonmembers, side="right")
    of_members, of_nonmembers = 1 - below / (2 * len(nonmembers)), above / (2 * len(members))
    variance = of_members.var(ddof=1) / len(members) + of_nonmembers.var(ddof=1) / len(nonmembers)
    return float(of_members.mean()), float(max(math.sqrt(variance), 0.5 / min(len(members), len(nonmembers))))


def _tnr(sides: list[Array], level: float, resamples: int, rng: np.random.Generator) -> tuple[float, Array]:
    members, nonmembers = sides
    misses = np.array([error_budget(level, len(members))])
    return float(tnr_at(members, nonmembers, misses)[0]), tnr_draws(members, nonmembers, misses, resamples, rng)[0]


def _p_value(difference: float, error: float) -> float:
    return float(2 * ndtr(-abs(difference) / error))


def _flagged(rows: list[GroupRisk], alpha: float) -> list[GroupRisk]:
    """Holm: the k-th smallest of m p-values times m − k + 1, made monotone."""
    values = [value for row in rows for value in (row.auc_p, row.tnr_p) if value is not None]
    order = np.argsort(values, kind="stable")
    adjusted = np.empty(len(values))
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(values[index] * (len(values) - place), 1.0))
        adjusted[index] = running
    found = []
    for row, (auc_p, tnr_p) in zip(rows, adjusted.reshape(-1, 2).tolist(), strict=True):
        riskier = (auc_p < alpha and (row.auc_difference or 0) > 0) or (tnr_p < alpha and (row.tnr_difference or 0) > 0)
        found.append(replace(row, auc_p=auc_p, tnr_p=tnr_p, riskier=bool(riskier)))
    return found
