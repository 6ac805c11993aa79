"""What the attacks measure over the reference models: per record, each model attacked with the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from noshadow.attacks import AttackSuccess, attack_success, memorization
from noshadow.attacks.shokri import CrossFitted, shokri_success
from noshadow.checks import Array, InputError, refuse
from noshadow.outcomes import Absent, not_applicable
from noshadow.reference.rmia_probabilities import SMALLEST_PROBABILITY, reference_probabilities
from noshadow.reference.store import References


@dataclass(frozen=True)
class AttackOptions:
    """The named choices behind the attacks, as recorded in the result."""

    variant: str = "online"
    variance: str = "auto"
    center: str = "mean"
    floor: float = 0.0
    gamma: float = 2.0
    a: float = 0.3
    shokri: bool = True
    seed: int = 0


@dataclass(frozen=True, eq=False)
class RecordTruth:
    """Per-record results over all reference models, and again over two disjoint halves of them.

    Attributes:
        columns: name → (n,) truth a record: lira_success, lira_d, lira_tpr (at FPR 0.001, by fitted
            Gaussians), rmia_success, shokri_success, memorization, and out_loss, the mean loss
            under models trained without the record.
        halves: the columns of LiRA and RMIA from the first and the second half of the models; None
            when too few.
        unaudited: the same columns from the models that were not audited; None when fewer than two
            were, or too few are left.
        lira, rmia, loss: the results behind them. shokri: None where it does not apply.
        probabilities: (r, n) RMIA's p(x | θ) of every record under every model, memory-mapped.
        not_applicable: what is missing and why. notes: sentences a reader must see.
    """

    columns: dict[str, Array]
    halves: tuple[dict[str, Array], dict[str, Array]] | None
    unaudited: dict[str, Array] | None
    lira: AttackSuccess
    rmia: AttackSuccess
    loss: AttackSuccess
    shokri: CrossFitted | None
    probabilities: Array
    not_applicable: dict[str, str]
    notes: tuple[str, ...]


def record_truth(references: References, options: AttackOptions, *, levels: Sequence[float], progress: bool = True) -> RecordTruth:
    """Attack every reference model with the others and gather what that says about each record.

    Args:
        references: a complete set. options: the attacks' choices.
        levels: false-positive rates at which each attacked model's TPR is measured.

    Cost: O(rn) an attack (Shokri: O(folds·r·n·m)); memory O(n).
    """
    membership = references.membership
    if references.task == "regression" and options.variant == "offline":
        rule = "be 'online' in a regression, whose signed residual has no member-like side and whose densities are no probabilities"
        refuse("ground_truth", "variant", rule, "'offline'")
    lira = attack_success(references.statistic, membership, attack="lira", levels=levels, progress=progress, **_lira(references, options))
    probabilities, floored = reference_probabilities(references)
    rmia = attack_success(
        probabilities, membership, attack="rmia", gamma=options.gamma, a=options.a, variant=options.variant, levels=levels
    )
    loss = attack_success(references.loss, membership, attack="loss", levels=levels)
    columns = {"lira_success": lira.success, "lira_d": lira.d_prime, "lira_tpr": lira.tpr, "rmia_success": rmia.success}
    columns["out_loss"] = losses_without(references)
    absent: dict[str, str] = {}
    shokri = _shokri(references, options, absent)
    if shokri is not None:
        columns["shokri_success"] = shokri.success
    if references.task == "regression":
        absent["memorization"] = not_applicable("a regression has no correct class")
    else:
        columns["memorization"] = memorization(references.correct, membership).estimate
    middle, audited = references.plan.models // 2, audited_models(references)
    settings = _lira(references, options) | {"variance": lira.variance}
    subset = partial(_columns, references, probabilities, settings, options, absent)
    halves = [subset(slice(*rows), "noise ceiling") for rows in ((0, middle), (middle, None))]
    # An audited model's own signals are part of the truth it would be compared with: that truth is
    # measured without it.
    unaudited = subset(slice(audited, None), "agreement over audited reference models") if audited >= 2 else None
    both = None if halves[0] is None or halves[1] is None else (halves[0], halves[1])
    note = f"{floored} probabilities (or densities) that were next to zero were raised to {SMALLEST_PROBABILITY:g} for RMIA"
    return RecordTruth(columns, both, unaudited, lira, rmia, loss, shokri, probabilities, absent, (note,) if floored else ())


def losses_without(references: References) -> Array:
    """(n,) mean loss of every record under the models that were not trained on it."""
    total, count = np.zeros(references.plan.records), np.zeros(references.plan.records)
    for losses, inside in zip(references.loss, references.membership, strict=True):
        total += np.where(inside, 0.0, losses)
        count += ~inside
    found: Array = total / count
    return found


def _lira(references: References, options: AttackOptions) -> dict[str, Any]:
    # A signed residual has no member-like direction: which side the members' lies on is a matter of
    # the record.
    direction = "either" if references.task == "regression" else "larger"
    chosen = {name: getattr(options, name) for name in ("variant", "variance", "center", "floor")}
    return chosen | {"direction": direction}


def _shokri(references: References, options: AttackOptions, absent: dict[str, str]) -> CrossFitted | None:
    if not options.shokri:
        absent["shokri_success"] = "not asked for"
        return None
    if not references.has_outputs:
        absent["shokri_success"] = not_applicable("the outputs were not kept (train_references(…, keep_outputs=False))")
        return None
    try:
        return shokri_success(
            references.all_outputs,
            references.targets,
            references.membership,
            task=references.task,
            folds=min(4, references.plan.models),
            seed=options.seed,
        )
    except InputError as error:
        absent["shokri_success"] = not_applicable(error)
        return None


def audited_models(references: References) -> int:
    """How many reference models, the first ones, were audited when they were trained."""
    return next((t for t in range(references.plan.models) if not references.extra(t)), references.plan.models)


def _columns(
    references: References,
    probabilities: Array,
    settings: dict[str, Any],
    options: AttackOptions,
    absent: dict[str, str],
    rows: slice,
    name: str,
) -> dict[str, Array] | None:
    """The columns of LiRA and RMIA measured with some of the models, None (and why, under `name`) where those are too few."""
    membership = references.membership[rows]
    try:
        lira = attack_success(references.statistic[rows], membership, attack="lira", **settings)
        rmia = attack_success(probabilities[rows], membership, attack="rmia", gamma=options.gamma, a=options.a, variant=options.variant)
    except InputError:
        fewest = min(int(membership.sum(0).min()), int((~membership).sum(0).min()))
        why = f"some record has {fewest} on a side" if fewest < 3 else "their signals do not differ"
        few = f"{len(membership)} models are too few ({why}); train more, 16 or better 64"
        absent[name] = Absent("not available", few)
        return None
    return {"lira_success": lira.success, "lira_d": lira.d_prime, "rmia_success": rmia.success}
