"""What the attacks measure per record, when each reference model is attacked with the others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from noshadow.arguments import PROGRESS
from noshadow.attacks import memorization
from noshadow.checks import Array, InputError, refuse, require_choice
from noshadow.columns import LANGUAGE_MODEL, named
from noshadow.outcomes import Absent, not_applicable
from noshadow.reference.attack_list import ATTACKS, EVERY_MODEL, STATISTICS, AttackOptions, OverModels, Scene
from noshadow.reference.rmia_probabilities import SMALLEST_PROBABILITY
from noshadow.reference.sequences import NO_CLASS
from noshadow.reference.store import References


@dataclass(frozen=True, eq=False)
class RecordTruth:
    """Per-record results over all reference models, and again over two disjoint halves of them.

    Attributes:
        columns: name → (n,) truth per record: those of every attack, and memorization.
        halves: columns that scores are compared with, from the first and the second half of the
            models; None when too few.
        unaudited: the same columns from the models that were not audited; None when fewer than two
            were, or too few are left.
        found: attack → what it found over the models; attacks that do not apply are left out.
        scene: what the attacks were run on, with the choices that were settled.
        not_applicable: what is missing and why. notes: sentences a reader must see.
    """

    columns: dict[str, Array]
    halves: tuple[dict[str, Array], dict[str, Array]] | None
    unaudited: dict[str, Array] | None
    found: dict[str, OverModels]
    scene: Scene
    not_applicable: dict[str, str]
    notes: tuple[str, ...]


def record_truth(references: References, options: AttackOptions, *, levels: Sequence[float], progress: bool = PROGRESS) -> RecordTruth:
    """Attack every reference model with the others and gather what that says about each record.

    Args:
        references: a complete set. options: the attacks' choices.
        levels: false-positive rates at which each attacked model's TPR is measured.

    Cost: O(rn) per attack (Shokri: O(folds·r·n·m)); memory O(n).
    """
    if references.task == "regression" and options.variant == "offline":
        rule = "be 'online' in a regression, whose signed residual has no member-like side and whose densities are no probabilities"
        refuse("variant", rule, "'offline'")
    require_choice(options.statistic, STATISTICS, "statistic")
    if options.statistic == "loss" and references.task != "regression":
        refuse(
            "statistic",
            "be 'auto' but in a regression: Gaussians are of a class's margins, and of sequences −loss is looked at already",
            "'loss'",
        )
    scene = Scene(references, options, levels, progress)
    results = {attack.name: attack.over_models(scene, EVERY_MODEL) for attack in ATTACKS}
    found = {name: result for name, result in results.items() if isinstance(result, OverModels)}
    columns = {name: values for result in found.values() for name, values in result.columns.items()}
    absent: dict[str, str] = {
        column: why for attack in ATTACKS for column in attack.columns if isinstance(why := results[attack.name], Absent)
    }
    if references.correct is None:
        absent["memorization"] = NO_CLASS if references.task == LANGUAGE_MODEL else not_applicable("a regression has no correct class")
    else:
        columns["memorization"] = memorization(references.correct, references.membership).estimate
    scene.settled.update({name: result.settled for name, result in found.items()})
    middle, audited = references.plan.models // 2, audited_models(references)
    part = partial(_of_some_models, replace(scene, levels=(), progress=False), absent)
    halves = [part(slice(*rows), "noise ceiling") for rows in ((0, middle), (middle, None))]
    # An audited model's own signals are part of the truth it would be compared with: that truth is
    # measured without it.
    unaudited = part(slice(audited, None), "agreement over audited reference models") if audited >= 2 else None
    both = None if halves[0] is None or halves[1] is None else (halves[0], halves[1])
    floored = scene.probabilities[1] if "RMIA" in found else 0
    note = f"{floored} probabilities (or densities) that were next to zero were raised to {SMALLEST_PROBABILITY:g} for RMIA"
    return RecordTruth(columns, both, unaudited, found, scene, absent, (note,) if floored else ())


def audited_models(references: References) -> int:
    """How many reference models, the first ones, were audited when they were trained."""
    return next((t for t in range(references.plan.models) if not references.extra(t)), references.plan.models)


def _of_some_models(scene: Scene, absent: dict[str, str], rows: slice, name: str) -> dict[str, Array] | None:
    """Columns that scores are compared with, from some of the models.

    None (and why, under `name`) where those are too few.
    """
    try:
        results = [attack.over_models(scene, rows) for attack in ATTACKS if attack.of_some_models]
    except InputError:
        membership = scene.references.membership[rows]
        fewest = min(int(membership.sum(0).min()), int((~membership).sum(0).min()))
        why = f"some record has {fewest} on a side" if fewest < 3 else "their signals do not differ"
        few = f"{len(membership)} models are too few ({why}); train more, 16 or better 64"
        absent[name] = Absent("not available", few)
        return None
    held = {column: values for result in results if isinstance(result, OverModels) for column, values in result.columns.items()}
    return {column: held[column] for column in named(truth=True) if column in held}
