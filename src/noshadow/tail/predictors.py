"""What a model shows without an attack, by name: the predictors a calibration may use."""

import numpy as np

from noshadow.checks import Array, as_array, named_in_errors
from noshadow.columns import named
from noshadow.metrics import error_budget, loss_auc
from noshadow.tail.losses import Pair, given_margins, margins_of_losses, sorted_losses
from noshadow.tail.resampling import Steps, tnr_at

EXCESS_LEVELS = (0.01, 0.05, 0.1)
SHIFT_LEVELS = (0.02, 0.05, 0.1, 0.2)
SPREAD = (0.16, 0.84)  # a standard deviation to either side of a Gaussian's middle
QUANTILES = (0.9, 0.99)
COLUMNS = named(predicts=True)
TRAINED = ("weight_decay", "estimator")  # kinds of damping that are the training's


@named_in_errors
def risk_predictors(
    member_losses: object,
    nonmember_losses: object,
    scores: object = None,
    *,
    member_margins: object = None,
    nonmember_margins: object = None,
) -> dict[str, float]:
    """The predictors of one model by name, for the rows of a table that `fit_calibration` takes.

    From losses: `tnr` (at FNR 1e-3), `tnr_excess_0.01`, `_0.05`, `_0.1` (TNR at that FNR, minus
    it), `margin_shift_0.02` … `_0.2` (how far the low tail of the non-members' margins −log(e^loss
    − 1) lies below the members', in units of the members' spread; for cross-entropies),
    `auc_excess` (2 AUC − 1), `ks`, `skewness` (of non-member losses). From scores:
    `margin_leverage_mean`, `margin_leverage_q0.99` and the like, means and quantiles over the
    members of leverage, margin_leverage, loo and shift.

    Args:
        member_losses, nonmember_losses: as `model_risk`. scores: record scores of the members, or
            None.
        member_margins, nonmember_margins: as `model_risk`; without them margins are those of the
            losses, at most 36.

    Returns:
        Numbers by name; those of missing columns are left out.

    Raises:
        InputError: losses or margins that `model_risk` would refuse.

    Cost: O(n log n).
    Reference: [TAIL] §5 for TNR.

    Example:
        >>> round(risk_predictors([0.1, 0.2, 0.3, 5.0], [0.2, 0.4, 2.0, 6.0])["tnr"], 2)
        0.75
    """
    (members, own), (nonmembers, others) = (
        sorted_losses(losses, argument) for losses, argument in ((member_losses, "member_losses"), (nonmember_losses, "nonmember_losses"))
    )
    margins = given_margins((member_margins, nonmember_margins), (own, others))
    return loss_predictors(members, nonmembers, margins) | ({} if scores is None else score_predictors(scores))


def loss_predictors(members: Array, nonmembers: Array, margins: Pair | None = None) -> dict[str, float]:
    """Predictors of an attack's success from two sorted loss samples.

    They are TNR, what it exceeds its level by, margin shifts, twice the AUC above ½, KS, and the
    skewness of the non-members.

    `tnr` is read at FNR 1e-3 (or at the one member that fewer than 1,000 can spare). margins: of
    both, where they are known better than from the losses.
    """
    n = len(members)
    levels = (max(1e-3, 1 / n), *EXCESS_LEVELS)
    rates = tnr_at(members, nonmembers, np.array([error_budget(max(level, 1 / n), n) for level in levels]))
    # In units of the largest loss: cubes of losses up to 1e100 would overflow.
    centred = (nonmembers - nonmembers.mean()) / max(float(nonmembers[-1]), 1e-300)
    spread = float(centred.std())
    return {
        "tnr": float(rates[0]),
        **{f"tnr_excess_{level:g}": float(rate - level) for level, rate in zip(EXCESS_LEVELS, rates[1:], strict=True)},
        **(margin_shifts(members, nonmembers) if margins is None else shifts_of_margins(*margins)),
        "auc_excess": 2 * loss_auc(members, nonmembers) - 1,
        "ks": Steps.of(members, nonmembers).ks(),
        "skewness": float((centred**3).mean() / spread**3) if spread > 0 else 0.0,
    }


def margin_shifts(members: Array, nonmembers: Array) -> dict[str, float]:
    """`shifts_of_margins` computed from losses.

    φ = −log(e^loss − 1) is log p_y − log(1 − p_y) when the losses are cross-entropies.
    """
    return shifts_of_margins(margins_of_losses(members), margins_of_losses(nonmembers))


def shifts_of_margins(inside: Array, outside: Array) -> dict[str, float]:
    """How far the low tail of the non-members' margins lies below the members'.

    The distance is in units of the members' spread, at several levels.

    (Q_level(φ_in) − Q_level(φ_out)) / ½(Q_0.84(φ_in) − Q_0.16(φ_in)) of the attack's own statistic
    φ = log p_y − log(1 − p_y); 0 where the members' margins have no spread.
    """
    low, high = np.quantile(inside, SPREAD)
    gaps = np.quantile(inside, SHIFT_LEVELS) - np.quantile(outside, SHIFT_LEVELS)
    scaled = gaps / ((high - low) / 2) if high > low else np.zeros(len(gaps))
    return {f"margin_shift_{level:g}": float(value) for level, value in zip(SHIFT_LEVELS, scaled, strict=True)}


def score_predictors(scores: object) -> dict[str, float]:
    """Means and quantiles of record scores of the members, by column.

    Columns that are missing or hold infinities are left out.
    """
    found: dict[str, float] = {}
    for column in COLUMNS:
        values = getattr(scores, column, None)
        if values is not None:
            array = as_array(values, f"scores.{column}")
            if not np.isfinite(array).all():
                continue
            found |= {f"{column}_q{level:g}": float(np.quantile(array, level)) for level in QUANTILES}
            found[f"{column}_mean"] = float(array.mean())
    return found


def shows_last_layer(scores: object) -> bool:
    """Whether the margin leverage is that of the last layer alone, at the training's own damping.

    That of the setups was: more layers or another damping give another mean. A damping that the
    caller chose need not be the training's.
    """
    damping, head = getattr(scores, "damping", None), getattr(scores, "head_residual", None)
    return getattr(scores, "margin_leverage", None) is not None and head is not None and getattr(damping, "kind", "") in TRAINED
