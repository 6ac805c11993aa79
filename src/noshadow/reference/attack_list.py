"""The attacks that a set of reference models is scored with, one entry each.

A new attack is its formula in `noshadow.attacks`, an entry of `ATTACKS` here, and its columns in
`noshadow.columns`. Tables, pages and agreement with the scores follow from these.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noshadow.attacks import attack_success, lira_scores, loss_scores, rmia_scores
from noshadow.attacks.shokri import shokri_scores, shokri_success
from noshadow.checks import Array, InputError, unnamed
from noshadow.columns import LANGUAGE_MODEL
from noshadow.outcomes import Absent, not_applicable
from noshadow.reference.rmia_probabilities import probabilities_of, reference_probabilities
from noshadow.reference.sequences import NO_OUTPUTS
from noshadow.reference.store import Recorded, References
from noshadow.votes import one_vote

EVERY_MODEL = slice(None)
STATISTICS = ("auto", "loss")
_STATISTICS = {"regression": "signed residual", LANGUAGE_MODEL: "−loss, the mean log-likelihood of a sequence's tokens"}
_PROBABILITIES = {LANGUAGE_MODEL: "exp(−loss), the geometric mean over a sequence's tokens"}
# The paper's γ. Of sequences p is a mean over tokens, whose ratios are near 1: a factor of 2 would
# be ln 2 nats for every token. The authors' tool takes the same p, and 1.
_GAMMA, _GAMMAS = 2.0, {LANGUAGE_MODEL: 1.0}


@dataclass(frozen=True)
class AttackOptions:
    """The named choices behind the attacks, as recorded in the result.

    Attributes:
        gamma: RMIA's γ; None = 2, and 1 for sequences.
        statistic: what LiRA looks at in a regression: "auto", the signed residual from both sides,
            or "loss", −loss, which is larger with the record than without it ([RET]'s choice).
    """

    variant: str = "online"
    variance: str = "auto"
    center: str = "mean"
    floor: float = 0.0
    gamma: float | None = None
    a: float = 0.3
    shokri: bool = True
    seed: int = 0
    statistic: str = "auto"


@dataclass(frozen=True, eq=False)
class Scene:
    """What every attack is run on.

    Attributes:
        references: a complete set. options: the attacks' choices.
        levels: false-positive rates at which each attacked model's TPR is measured.
        settled: attack → choices that its first run settled for all later ones, e.g. LiRA's
            variance.
        kept: what several attacks share and one of them computed.
    """

    references: References
    options: AttackOptions
    levels: Sequence[float] = ()
    progress: bool = False
    settled: dict[str, dict[str, Any]] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def probabilities(self) -> tuple[Array, int]:
        """RMIA's p(x | θ), (r, n), memory-mapped, and how many were raised off zero."""
        if "probabilities" not in self.kept:  # computed once for this scene and its variants
            self.kept["probabilities"] = reference_probabilities(self.references)
        found: tuple[Array, int] = self.kept["probabilities"]
        return found


@dataclass(frozen=True, eq=False)
class OverModels:
    """What one attack found when every reference model was attacked with the others.

    Attributes:
        columns: name → (n,) for the record table.
        auc: (models,) of each attacked model. tpr: (models, levels), None where it is not measured.
        settled: choices that later runs must share.
    """

    columns: dict[str, Array]
    auc: Array
    tpr: Array | None
    settled: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Attack:
    """One attack, as functions of a scene.

    Attributes:
        name: as pages show it. columns: what it writes into the record table.
        over_models: (scene, rows of the models) → what it found; `Absent` where it does not apply.
        on_target: scene → (n,) score of every record of the pool under the target.
        of_some_models: whether it is measured again with a part of the models, for the noise
            ceiling and for agreement over audited models.
        choices: scene → the named choices behind it, None where it has none.
    """

    name: str
    columns: tuple[str, ...]
    over_models: Callable[[Scene, slice], OverModels | Absent]
    on_target: Callable[[Scene], Array]
    of_some_models: bool = False
    choices: Callable[[Scene], dict[str, Any]] | None = None


def _lira_settings(scene: Scene) -> dict[str, Any]:
    chosen = {name: getattr(scene.options, name) for name in ("variant", "variance", "center", "floor")}
    if scene.references.votes:
        # Models may all give a record the same votes, without spread: one vote is the least.
        chosen["floor"] = max(chosen["floor"], one_vote(scene.references.votes))
    return chosen | scene.settled.get("LiRA", {})


def _lira_over_models(scene: Scene, rows: slice) -> OverModels:
    references = scene.references
    found = attack_success(
        _lira_signals(scene, references)[rows],
        references.membership[rows],
        attack="lira",
        # A signed residual has no member-like direction: the members' side differs by record.
        direction="either" if references.task == "regression" and scene.options.statistic == "auto" else "larger",
        fprs=scene.levels,
        progress=scene.progress,
        **_lira_settings(scene),
    )
    columns = {"lira_success": found.success, "lira_d": found.d_prime, "lira_tpr": found.tpr}
    return OverModels(columns, found.model_auc, found.model_tpr, {"variance": found.variance})


def _lira_signals(scene: Scene, of: References | Recorded) -> Array:
    """What LiRA looks at, of all models or of one: a memory map, or −loss in memory."""
    return of.statistic if scene.options.statistic == "auto" else -np.asarray(of.loss)


def _lira_on_target(scene: Scene) -> Array:
    references = scene.references
    assert references.target is not None
    own, others = (_lira_signals(scene, of) for of in (references.target, references))
    return lira_scores(own, others, references.membership, **_lira_settings(scene))


def _lira_choices(scene: Scene) -> dict[str, Any]:
    references = scene.references
    if scene.options.statistic == "loss":
        return {"statistic": "−loss", "queries": references.queries[0]} | _lira_settings(scene)
    statistic = _STATISTICS.get(references.task, "margin log p_y − log Σ p_c of the other classes")
    if references.votes:
        statistic = f"margin of votes log((k + ½)/(B − k + ½)), B = {references.votes}"
    return {"statistic": statistic, "queries": ", ".join(references.queries)} | _lira_settings(scene)


def _rmia_over_models(scene: Scene, rows: slice) -> OverModels:
    found = attack_success(
        scene.probabilities[0][rows],
        scene.references.membership[rows],
        attack="rmia",
        fprs=scene.levels,
        progress=scene.progress,
        **_rmia_settings(scene),
    )
    return OverModels({"rmia_success": found.success}, found.model_auc, found.model_tpr)


def _rmia_settings(scene: Scene) -> dict[str, Any]:
    chosen = {name: getattr(scene.options, name) for name in ("variant", "gamma", "a")}
    return chosen if chosen["gamma"] is not None else chosen | {"gamma": _GAMMAS.get(scene.references.task, _GAMMA)}


def _rmia_on_target(scene: Scene) -> Array:
    """RMIA with the target's own non-members as the population."""
    references, probabilities = scene.references, scene.probabilities[0]
    assert references.target is not None
    own, _ = probabilities_of(references.target.statistic, references.member, references.task, references.residuals)
    outside = ~references.member
    population = (own[outside], probabilities[:, outside])
    among = references.membership[:, outside]
    return rmia_scores(own, probabilities, references.membership, *population, population_membership=among, **_rmia_settings(scene))


def _rmia_choices(scene: Scene) -> dict[str, Any]:
    chosen, probability = _rmia_settings(scene), _PROBABILITIES.get(scene.references.task)
    stated = {} if probability is None else {"probability": probability}
    return stated | (chosen if scene.options.variant == "offline" else {name: chosen[name] for name in ("variant", "gamma")})


def _loss_over_models(scene: Scene, rows: slice) -> OverModels:
    references = scene.references
    found = attack_success(references.loss[rows], references.membership[rows], attack="loss", fprs=scene.levels, progress=scene.progress)
    return OverModels({"out_loss": losses_without(references)}, found.model_auc, found.model_tpr)


def _loss_on_target(scene: Scene) -> Array:
    assert scene.references.target is not None
    return loss_scores(scene.references.target.loss)


def losses_without(references: References) -> Array:
    """(n,) mean loss of every record under the models that were not trained on it."""
    total, count = np.zeros(references.plan.records), np.zeros(references.plan.records)
    for losses, inside in zip(references.loss, references.membership, strict=True):
        total += np.where(inside, 0.0, losses)
        count += ~inside
    found: Array = total / count
    return found


def _shokri_over_models(scene: Scene, rows: slice) -> OverModels | Absent:
    references = scene.references
    if not scene.options.shokri:
        return Absent("not available", "it was not asked for")
    if references.task == LANGUAGE_MODEL:
        return NO_OUTPUTS
    if not references.has_outputs:
        return not_applicable("the outputs were not kept (train_references(…, keep_outputs=False))")
    folds = min(4, references.plan.models)
    try:
        found = shokri_success(
            references.all_outputs,
            references.targets,
            references.membership,
            task=references.task,
            folds=folds,
            seed=scene.options.seed,
            progress=False,
        )
    except InputError as error:
        return not_applicable(unnamed(error))
    return OverModels({"shokri_success": found.success}, found.model_auc, None)


def _shokri_on_target(scene: Scene) -> Array:
    references = scene.references
    assert references.target is not None
    given = (references.target.outputs, references.targets, references.all_outputs, references.membership)
    return shokri_scores(*given, task=references.task, seed=scene.options.seed)


ATTACKS = (
    Attack("LiRA", ("lira_success", "lira_d", "lira_tpr"), _lira_over_models, _lira_on_target, of_some_models=True, choices=_lira_choices),
    Attack("RMIA", ("rmia_success",), _rmia_over_models, _rmia_on_target, of_some_models=True, choices=_rmia_choices),
    Attack("LOSS", ("out_loss",), _loss_over_models, _loss_on_target),
    Attack("Shokri", ("shokri_success",), _shokri_over_models, _shokri_on_target),
)
