"""Model-level risk from two loss samples.

It measures how much of the high-loss tail training has emptied of members.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from noshadow.arguments import renamed
from noshadow.checks import Array, as_array, named_in_errors, refuse, require_choice, require_number, require_same_length, require_whole
from noshadow.columns import named
from noshadow.limits import SWAPPED_AUC
from noshadow.metrics import error_budget, loss_auc
from noshadow.outcomes import Note
from noshadow.results import Calibration, ModelRisk, TnrCurve
from noshadow.tail.losses import Pair, blurred_margins, given_margins, margins_of_losses, resolved_level, sorted_losses
from noshadow.tail.pareto import extrapolated_tnrs, shows_tail
from noshadow.tail.prediction import FOUR_REFERENCES, LOSSES, READ, RULES, Prediction, predicted_tpr, shipped_calibration, shipped_for
from noshadow.tail.predictors import loss_predictors, score_predictors, shows_last_layer
from noshadow.tail.resampling import Bootstrap, Steps, atoms_of, distance_draws, threshold_places, tnr_at, tnr_draws

CURVE_LEVELS = 25
BELOW = (1e-3, 1e-4, 1e-5)  # levels that small samples do not resolve
TAIL_RESAMPLES = 200
CURVE_RANGE = (1e-4, 0.5)
SCORE_COLUMNS = (*named(source="losses", score=True), *named(source="scores", score=True))


@named_in_errors
@renamed(references="reference_models")
def model_risk(
    member_losses: object,
    nonmember_losses: object,
    *,
    scores: object = None,
    fpr: float | str = "auto",
    reference_models: int = 64,
    seed: int = 0,
    member_correct: object = None,
    nonmember_correct: object = None,
    member_margins: object = None,
    nonmember_margins: object = None,
    resamples: int = 1000,
    level: float = 0.95,
    calibration: Calibration | None = None,
    family: str | None = None,
    not_predicted: str | None = None,
    variance: str = "auto",
    reference_tpr: float | None = None,
) -> ModelRisk:
    """Model-level membership risk: TNR of the loss attack at FNR = `fpr`.

    The distances it is compared to come with it.

    τ = the smallest member loss that at most ⌊fpr · n_members⌋ member losses exceed; TNR =
    mean(nonmember_losses > τ). Beside it: loss AUC, mean loss gap, accuracy gap, Kolmogorov–Smirnov
    and Wasserstein-1 distance, and TNR over a grid of levels. Members and non-members are resampled
    with replacement, independently, for percentile intervals. Predicted TPR of LiRA with K
    references = a · (Q₁₀(φ_in) − Q₁₀(φ_out)) / ½(Q₈₄ − Q₁₆)(φ_in), φ = −log(e^loss − 1) and Q_p the
    p-th percentile, a fitted for each K and level to setups where the attack was run (the shipped
    calibration of losses; `scores` bring in another).

    Args:
        member_losses: (n_members,) finite losses ≥ 0 of training records, n_members ≥ 2.
        nonmember_losses: (n_nonmembers,) finite losses ≥ 0 of records drawn like them and not
            trained on, n_nonmembers ≥ 2.
        scores: record scores of the members. With the margin leverage of the last layer at the
            training's own damping, the shipped calibration reads its mean h̄ and TNR: predicted TPR
            = a · TNR^b · h̄^c. A calibration of your own may read other scores.
        fpr: "auto" = max(1e-3, 1/min(n_members, n_nonmembers)), or a rate in [1/min(n_members,
            n_nonmembers), 1].
        reference_models: number K of reference models of the attack in question; 4 to 64 with the
            shipped calibration.
        seed: of the resampling; the same seed gives the same intervals.
        member_correct: (n_members,) booleans, the model predicts the record's class; None = no
            accuracy gap.
        nonmember_correct: (n_nonmembers,) likewise; both or neither.
        member_margins: (n_members,) margins φ = f_y − log Σ_{c≠y} e^{f_c} of the members from the
            logits f ((2y − 1)·f for one logit), in the order of the losses; None = those of the
            losses, which end at 36, where a loss is the rounding error of 1.
        nonmember_margins: (n_nonmembers,) likewise; both or neither. The prediction and
            `extrapolated` read them.
        resamples: bootstrap resamples, ≥ 100.
        level: coverage of the intervals of measured figures, in (0, 1).
        calibration: one of your own from `fit_calibration`; None = the shipped one of the family.
        family: of the model, "linear" or "network" for those behind the shipped calibration of
            LiRA's rate, or the class of a forest or of boosting, e.g. "RandomForestClassifier",
            which have calibrations of their own; for any other nothing is predicted. None = you
            vouch that the model is like the linear models and networks of the setups.
        not_predicted: why no attack rate should be predicted; stored as `reason`. Give it for
            losses that are no cross-entropies of hard labels (squared errors, soft targets): from
            the losses alone that cannot be seen.
        variance: how the predicted LiRA takes a record's spread, as in `lira_scores`: "record",
            each record's own; "global", one for all records; "auto", global below 64 reference
            models. Linear models and networks have a calibration for each.
        reference_tpr: TPR at FPR 0.01 that LiRA with four reference models, two of them trained on
            each record, and variance="global" has on this model; where it is known, what 64 models
            would find is predicted from it, with a far smaller error than from losses.

    Returns:
        ModelRisk. `predicted_tpr` with its prediction interval comes from the calibration;
        `in_calibration_domain` and `reason` say whether this model is like the setups behind it, or
        why nothing is predicted.

    Raises:
        InputError: losses that are negative, not finite, not 1-dimensional or fewer than two;
            margins that are not those of the losses; a level below 1/min(n); an argument out of
            range.

    Exact when: the values always; the bootstrap of TNR and accuracy always; that of the other four
        up to 4,096 distinct losses.
    Approximates: beyond that, losses are gathered into 4,096 atoms by pooled quantile, an atom's
        losses moving by a Gaussian of their own variance. The interval of TNR is too short when
        fewer than about 5 members may exceed τ (raise fpr for a firmer answer;
        benchmarks/tnr_coverage.py measures by how much); those of KS and Wasserstein lean upwards
        when the two samples hardly differ.
    Cost: O(n log n + resamples · min(n, 4096)); a few seconds for two million losses.
    Reference: [TAIL] §5, Eq. 4 with erratum 4, Table 1.

    Example:
        >>> risk = model_risk([0.1, 0.2, 0.3, 5.0], [0.2, 0.4, 2.0, 6.0])
        >>> risk.fpr, risk.threshold, risk.tnr, risk.auc
        (0.25, 0.3, 0.75, 0.71875)
    """
    members, own = sorted_losses(member_losses, "member_losses")
    nonmembers, others = sorted_losses(nonmember_losses, "nonmember_losses")
    margins = given_margins((member_margins, nonmember_margins), (own, others))
    sizes = (len(members), len(nonmembers))
    used = resolved_level(fpr, min(sizes))
    shares = _correct_shares(member_correct, nonmember_correct, sizes)
    _require_member_scores(scores, len(members))
    models = require_whole(reference_models, "reference_models", low=1)
    require_choice(variance, RULES, "variance")
    bootstrap = Bootstrap(
        resamples=require_whole(resamples, "resamples", low=100),
        level=require_number(level, "level", low=0, high=1, low_open=True, high_open=True),
        seed=require_whole(seed, "seed", low=0),
    )
    measured = _measured(members, nonmembers, fpr=used, correct_shares=shares, bootstrap=bootstrap)
    predicted, source = (
        (Prediction(None, None, None, not_predicted, None), None)
        if not_predicted
        else _predicted(measured, (members, nonmembers), margins, scores, models, calibration, _name(family), variance, reference_tpr)
    )
    return replace(
        measured,
        predicted_tpr=predicted.value,
        predicted_tpr_interval=predicted.interval,
        in_calibration_domain=predicted.in_domain,
        reason=predicted.reason,
        reference_models=models,
        calibration=predicted.calibration,
        predicted_from=source,
        predicted_attack=predicted.attack,
        prediction_level=predicted.level,
        # Where nothing is predicted, the losses are no cross-entropies of one decision each.
        extrapolated=_extrapolated((members, nonmembers) if not_predicted else _negated(margins, members, nonmembers), bootstrap),
        notes=_doubts(measured, members, nonmembers),
    )


def _name(family: object) -> str | None:
    if family is not None and not (isinstance(family, str) and family):
        refuse("family", "be a name or None", repr(family))
    return family


def _predicted(
    risk: ModelRisk,
    losses: Pair,
    margins: Pair | None,
    scores: object,
    references: int,
    given: Calibration | None,
    family: str | None,
    variance: str,
    reference_tpr: float | None,
) -> tuple[Prediction, str | None]:
    """Predict the TPR by the caller's calibration, else by the shipped one of LiRA's rule."""
    if given is not None and not isinstance(given, Calibration):
        hint = "Read a file with Calibration.load."
        refuse("calibration", "be a Calibration", type(given).__name__, hint)
    shown = loss_predictors(*losses, margins) | ({} if scores is None else score_predictors(scores))
    if given is not None and variance != "auto":
        refuse("variance", "be 'auto' with a calibration of your own, which names its attack", repr(variance))
    kind = "leverage" if shows_last_layer(scores) and "margin_leverage_mean" in shown else LOSSES
    if reference_tpr is not None:
        shown[FOUR_REFERENCES], kind = require_number(reference_tpr, "reference_tpr", low=0, high=1), "references"
    chosen = shipped_for(family, variance, references, kind) if given is None else given
    if isinstance(chosen, Prediction):
        return chosen, None
    missing = sorted(name for name in chosen.predictors if name not in shown)
    if missing:
        refuse("calibration", "read what is given", f"one that needs {', '.join(missing)}", "Pass scores=.")
    sizes = risk.n_members, risk.n_nonmembers
    clear = risk.auc_interval[0] > 0.5 or risk.tnr_interval[0] > risk.fpr
    blurred = blurred_margins(losses[0], None if margins is None else margins[0])
    found = predicted_tpr(chosen, shown, fpr=risk.fpr, references=references, sizes=sizes, clear_gap=clear, blurred=blurred, family=family)
    source = "own calibration" if given is not None else READ[kind] if chosen.families == shipped_calibration().families else READ[LOSSES]
    return found, source if found.value is not None else None


def _doubts(risk: ModelRisk, members: Array, nonmembers: Array) -> tuple[str, ...]:
    """What looks wrong about the two samples."""
    if members[0] == members[-1] == nonmembers[0] == nonmembers[-1]:
        return (f"All {len(members) + len(nonmembers)} losses are equal ({members[0]:g}): is this a trained model's output?",)
    if len(members) == len(nonmembers) and np.array_equal(members, nonmembers):
        return ("Both splits have exactly the same losses: they are probably the same records, and nothing is measured.",)
    words = (
        f"Members have the larger losses (mean {members.mean():.4g} against {nonmembers.mean():.4g}): are the two splits swapped? Or "
        "is the test split easier than the training data?"
    )
    if risk.auc_interval[1] < SWAPPED_AUC:
        return (Note(words, "NS005"),)
    # The mean alone, which a few large losses move: no finding says it.
    return (words,) if risk.loss_gap_interval[1] < 0 else ()


def _negated(margins: Pair | None, members: Array, nonmembers: Array) -> Pair:
    """−φ of both samples ascending, from the losses where margins were not given."""
    if margins is not None:
        return -margins[0][::-1], -margins[1][::-1]
    return -margins_of_losses(members), -margins_of_losses(nonmembers)


def _extrapolated(values: Pair, bootstrap: Bootstrap) -> TnrCurve | None:
    """TNR at decades below the resolution of the members.

    A curve exists where a tail can be fitted to losses or to margins with their sign reversed.
    """
    levels = [level for level in BELOW if level * len(values[0]) < 1] if all(map(shows_tail, values)) else []
    # Rates do not depend on the scale: the values are taken as they are.
    how: dict[str, Any] = {"scale": "loss", "resamples": TAIL_RESAMPLES, "level": bootstrap.level, "seed": bootstrap.seed}
    if not levels:
        return None
    found = extrapolated_tnrs(*values, levels, **how)
    columns = zip(*((rate.error_rate, rate.value, *rate.interval) for rate in reversed(found)), strict=True)
    return TnrCurve(*columns)


def _measured(
    members: Array, nonmembers: Array, *, fpr: float, correct_shares: tuple[float, float] | None, bootstrap: Bootstrap
) -> ModelRisk:
    # One stream per quantity: asking for the accuracy gap does not move the other intervals.
    at_level, over_levels, atoms, accuracy = np.random.default_rng(bootstrap.seed).spawn(4)
    sizes = (len(members), len(nonmembers))
    misses = np.array([error_budget(fpr, len(members))])
    steps = Steps.of(members, nonmembers)
    auc, loss_gap, ks, wasserstein = distance_draws(atoms_of(steps), bootstrap.resamples, atoms)
    gap_interval = None
    if correct_shares is not None:
        in_share, out_share = (accuracy.binomial(n, p, bootstrap.resamples) / n for n, p in zip(sizes, correct_shares, strict=True))
        gap_interval = bootstrap.interval(in_share - out_share)
    return ModelRisk(
        fpr=fpr,
        tnr=float(tnr_at(members, nonmembers, misses)[0]),
        tnr_interval=bootstrap.interval(tnr_draws(members, nonmembers, misses, bootstrap.resamples, at_level)[0]),
        threshold=float(members[threshold_places(len(members), misses)[0]]),
        auc=loss_auc(members, nonmembers),
        auc_interval=bootstrap.interval(auc),
        predicted_tpr=None,
        predicted_tpr_interval=None,
        in_calibration_domain=None,
        reason="",
        loss_gap=float(nonmembers.mean() - members.mean()),
        loss_gap_interval=bootstrap.interval(loss_gap),
        accuracy_gap=None if correct_shares is None else correct_shares[0] - correct_shares[1],
        accuracy_gap_interval=gap_interval,
        member_accuracy=None if correct_shares is None else correct_shares[0],
        nonmember_accuracy=None if correct_shares is None else correct_shares[1],
        ks=steps.ks(),
        ks_interval=bootstrap.interval(ks),
        wasserstein=steps.wasserstein(),
        wasserstein_interval=bootstrap.interval(wasserstein),
        n_members=len(members),
        n_nonmembers=len(nonmembers),
        curve=_curve(members, nonmembers, bootstrap, over_levels),
        resamples=bootstrap.resamples,
        interval_level=bootstrap.level,
        seed=bootstrap.seed,
    )


def _curve(members: Array, nonmembers: Array, bootstrap: Bootstrap, rng: np.random.Generator) -> TnrCurve:
    n = len(members)
    grid = np.geomspace(max(1 / n, CURVE_RANGE[0]), CURVE_RANGE[1], CURVE_LEVELS)
    # Neighbouring levels that allow the same number of misses are one point of the step curve.
    misses, first = np.unique([error_budget(level, n) for level in grid], return_index=True)
    low, high = bootstrap.ends(tnr_draws(members, nonmembers, misses, bootstrap.resamples, rng))
    columns = (grid[first], tnr_at(members, nonmembers, misses), low, high)
    return TnrCurve(*(tuple(column.tolist()) for column in columns))


def _correct_shares(member_correct: object, nonmember_correct: object, sizes: tuple[int, int]) -> tuple[float, float] | None:
    if member_correct is None and nonmember_correct is None:
        return None
    given = {"member_correct": member_correct, "nonmember_correct": nonmember_correct}
    shares = []
    for (argument, value), n in zip(given.items(), sizes, strict=True):
        if value is None:
            refuse(argument, "be given together with its counterpart", "None", "Pass both, or neither.")
        array = as_array(value, argument)
        if array.dtype.kind != "b" or array.shape != (n,):
            refuse(argument, f"be {n} booleans, one for each loss", f"shape {array.shape}, dtype {array.dtype}")
        shares.append(float(array.mean()))
    return shares[0], shares[1]


def _require_member_scores(scores: object, n: int) -> None:
    if scores is None:
        return
    columns = {name: getattr(scores, name, None) for name in SCORE_COLUMNS}
    given = {name: as_array(column, f"scores.{name}") for name, column in columns.items() if column is not None}
    if not given:
        refuse("scores", "be the record scores of the members", type(scores).__name__)
    require_same_length(member_losses=range(n), **given)
