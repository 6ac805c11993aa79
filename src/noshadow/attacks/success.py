"""Per-record attack success.

Every reference model is attacked in turn with the others as references.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from noshadow.arguments import PROGRESS, renamed
from noshadow.attacks.inputs import doubles, require_models_on_side, side_counts
from noshadow.attacks.lira import model_lira_scores, reference_arrays, require_lira_choices
from noshadow.attacks.moments import Side, require_spread, resolved_variance, side_moments, spreads
from noshadow.attacks.ratio_test import ratio_test_rate
from noshadow.attacks.rmia import model_rmia_scores, probability_arrays, require_rmia_choices
from noshadow.attacks.thresholds import best_thresholds, score_sample
from noshadow.checks import LARGEST, Array, advice, named_in_errors, refuse, require_choice, require_number
from noshadow.metrics import error_budget, loss_auc, share_intervals, tpr_at_fpr
from noshadow.progress import tracked

ATTACKS = ("lira", "rmia", "loss")
DIRECTIONS = ("larger", "either")
Scorer = Callable[[int], Array]


@dataclass(frozen=True, eq=False)
class AttackSuccess:
    """How well an attack tells, record by record, the models trained on it from the others.

    Attributes:
        attack: "lira", "rmia" or "loss".
        success: (n,) in [0, 1], ½ [share of IN models called members + share of OUT models called
            non-members].
        interval: (n, 2), binomial. d_prime: (n,). tpr: (n,) at false-positive rate `fpr`, from the
            fitted Gaussians.
        fpr: false-positive rate of `tpr`.
        thresholds: (r,) the score above which a record of that model was called a member.
        model_auc: (r,) area under the ROC curve over the records of each attacked model.
        model_tpr: (r, len(fprs)) its true-positive rate at each false-positive rate of `fprs`.
        variance: "record" or "global", as resolved. settings: the arguments.
    """

    attack: str
    success: Array
    interval: Array
    d_prime: Array
    tpr: Array
    fpr: float
    thresholds: Array
    model_auc: Array
    model_tpr: Array
    variance: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class _Settings:
    attack: str
    variant: str
    variance: str
    center: str
    tail: str
    floor: float
    gamma: float
    a: float
    fpr: float
    direction: str
    fprs: tuple[float, ...]
    level: float

    def __post_init__(self) -> None:
        require_choice(self.attack, ATTACKS, "attack")
        require_lira_choices(self.variant, self.variance, self.center, self.tail)
        require_rmia_choices(self.variant, self.gamma, self.a)
        require_choice(self.direction, DIRECTIONS, "direction")
        require_number(self.floor, "floor", low=0)
        require_number(self.fpr, "fpr", low=0, high=1, low_open=True, high_open=True)
        require_number(self.level, "level", low=0, high=1, low_open=True, high_open=True)

    @property
    def has_own_threshold(self) -> bool:
        """Online LiRA decides by the sign of its log-ratio."""
        return self.attack == "lira" and self.variant == "online"


@named_in_errors
@renamed(levels="fprs")
def attack_success(
    reference: object,
    membership: object,
    *,
    attack: str = "lira",
    variant: str = "online",
    variance: str = "auto",
    center: str = "mean",
    tail: str = "cdf",
    floor: float = 0.0,
    gamma: float = 2.0,
    a: float = 0.3,
    fpr: float = 1e-3,
    direction: str = "larger",
    fprs: Sequence[float] = (),
    level: float = 0.95,
    progress: bool = PROGRESS,
) -> AttackSuccess:
    """Success of an attack on every record.

    Each of r models is attacked in turn with the others as references.

    success_i = ½ [mean over IN models t of D_ti + mean over OUT models t of (1 − D_ti)], D_ti =
    score of record i under model t > threshold of model t, scores from the r − 1 other models.
    Online LiRA's threshold is 0 (Λ > 0). Elsewhere it is the one with the best balanced accuracy
    over the pooled scores of the other models: `thresholds`' grid of quantiles, within 1e-3 of the
    exhaustive best. d′ = (μ_in − μ_out)/√((s²_in + s²_out)/2) over all r models; several queries:
    √Σ d′_q² with the sign of Σ d′_q. TPR at FPR α for Gaussians: with online LiRA that of the
    likelihood-ratio test, by which it decides and which looks at the spreads as well; elsewhere of
    a threshold, 1 − Φ((μ_out + s_out z_{1−α} − μ_in)/s_in); several queries: Φ(d′ − z_{1−α}).

    Args:
        reference: (r, n) or, for LiRA, (r, n, q): LiRA's statistic; "rmia": probabilities or
            densities of the record's own target, ≥ 0; "loss": losses. A memory map is read in
            blocks and rows.
        membership: (r, n) boolean, True = that model was trained on that record; every record IN
            and OUT for at least 3 models with LiRA and variance "record", 2 otherwise.
        attack: "lira", "rmia" (the population of a model is its own non-members among the n
            records) or "loss" (−loss).
        variant: "online" or "offline", for "lira" and "rmia".
        variance: "record", "global" or "auto" (global when r < 64, r counting the attacked model);
            see `lira_scores`.
        center: "mean" or "median" of the Gaussians. tail: offline LiRA's score. floor: least
            standard deviation.
        gamma: RMIA's γ. a: RMIA's offline map.
        fpr: α of the per-record `tpr`, in (0, 1).
        direction: "larger": members have larger statistics; "either" for statistics without a
            member-like direction (signed residuals): d′ ≥ 0, and TPR counted on the side of μ_in.
            Online LiRA's TPR is the same for both.
        fprs: false-positive rates of `model_tpr`, each at least 1/(non-members of a model).
        level: coverage of `interval`, in (0, 1).
        progress: draw a bar.

    Returns:
        AttackSuccess. With "loss", d′ and TPR are those of −loss. Where both standard deviations
        are 0 ("rmia" and "loss" only; LiRA refuses), d′ is 0 for equal means and ±inf otherwise.

    Raises:
        InputError: arrays that do not fit together or are not finite, membership that is not
            boolean, too few models on a side of a record, a model without members or non-members, a
            standard deviation of 0 (LiRA), p(x) = 0 (RMIA), an unknown choice, or a level that the
            non-members cannot resolve.
        NumericalError: scores beyond float64.

    Exact when: scores always: model t leaves the moments in closed form, as if they were computed
        without it.
    Approximates: `interval` is Clopper–Pearson's with 4 k_in k_out/(k_in + k_out) trials, and the
        attacked models share references and records, so that trials are not independent: in
        simulation a nominal 95 % covers 85–92 % of records that do not leak at all (d′ = 0) and
        93–96 % from d′ = 1 on, with 16 models and with 64. An attacked model leaves its own side of
        a record one model smaller than the other, which pulls LiRA on records that do not leak
        below a coin toss when models are few: success 0.47 and AUC 0.46 with 6 models, 0.49 with
        16, 0.50 from 32 on (variance "global"; more with "record"). RMIA's population holds the
        attacked model's non-members themselves, which lifts its AUC by about 1/n. `tpr` and
        `d_prime` rest on Gaussians: fair for LiRA's statistic, poor for probabilities and losses.
    Cost: O(rnq) for scores and O(rn log n) for the ROC curves; two passes over the signals, three
        where a threshold is sought; memory O(nq) beside the input.
    Reference: Carlini et al. 2022; Zarifzadeh et al. 2024; Yeom et al. 2018; Neyman and
        Pearson 1933.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> member = rng.permuted(np.arange(200)[:, None] % 2 == np.zeros((1, 50)), axis=0)
        >>> found = attack_success(rng.normal(size=(200, 50)) + 2 * member, member)
        >>> print(f"{found.success.mean():.2f}, {found.d_prime.mean():.1f}")  # Φ(2/2) = 0.84 and 2
        0.84, 2.0
    """
    if not isinstance(fprs, Sequence):
        refuse("fprs", "be a sequence of false-positive rates", repr(fprs), "Pass fprs=(1e-3,) for one.")
    how = _Settings(attack, variant, variance, center, tail, floor, gamma, a, fpr, direction, tuple(fprs), level)
    signals, member = _arrays(reference, membership, how)
    chosen = resolved_variance(variance, len(member))
    counts = side_counts(member)
    _require_enough(member, counts, 3 if attack == "lira" and chosen == "record" else 2, how.fprs)
    sides = side_moments(signals, member, sides=(True, False), median=center == "median")
    d_prime, tpr = _gaussian_separation(sides, chosen, how)
    scorer = _scorer(signals, member, sides, chosen, how)
    success, thresholds, auc, model_tpr = _attacked(scorer, member, counts, how, progress)
    return AttackSuccess(
        attack=attack,
        success=success,
        interval=share_intervals(success, 4.0 * counts[0] * counts[1] / (counts[0] + counts[1]), level=level),
        d_prime=d_prime,
        tpr=tpr,
        fpr=fpr,
        thresholds=thresholds,
        model_auc=auc,
        model_tpr=model_tpr,
        variance=chosen,
        settings=asdict(how),
    )


def _arrays(reference: object, membership: object, how: _Settings) -> tuple[Array, Array]:
    """Signals (q, r, n) and membership (r, n)."""
    if how.attack == "rmia":
        signals, member = probability_arrays(reference, membership, 1.0 if how.variant == "offline" else LARGEST)
        return signals[None], member
    return reference_arrays(reference, membership, ndim=(2, 3) if how.attack == "lira" else (2,))


def _require_enough(member: Array, counts: tuple[Array, Array], least: int, fprs: tuple[float, ...]) -> None:
    """Check that there are enough models and records.

    Each record needs models on each side and each model records on each side, and the non-members
    must resolve the false-positive rates.
    """
    for side, count in zip(("IN", "OUT"), counts, strict=True):
        hint = f"Pass {advice('variance', 'global')}, which needs 2, or train more models." if least == 3 else "Train more models."
        require_models_on_side(count, least, side, hint)
    members = np.array([int(row.sum()) for row in member])
    lopsided = (members == 0) | (members == member.shape[1])
    if lopsided.any():
        first = int(lopsided.argmax())
        got = f"{int(lopsided.sum())} models without, the first model {first} with {members[first]} members of {member.shape[1]} records"
        refuse("membership", "give every model members and non-members", got, "Leave those models out.")
    nonmembers = int(member.shape[1] - members.max())
    for rate in fprs:
        if error_budget(require_number(rate, "fprs", low=0, high=1, low_open=True), nonmembers) == 0:
            rule = f"be at least {1 / nonmembers}, the smallest rate that {nonmembers} non-members resolve"
            refuse("fprs", rule, f"{rate:g}", "Raise it or give more records.")


def _scorer(signals: Array, member: Array, sides: list[Side], variance: str, how: _Settings) -> Scorer:
    """Scores (n,) of one model attacked with the others."""

    def lira(model: int) -> Array:
        return model_lira_scores(signals, member, sides, model, variant=how.variant, variance=variance, tail=how.tail, floor=how.floor)

    def rmia(model: int) -> Array:
        return model_rmia_scores(signals, member, sides, model, variant=how.variant, gamma=how.gamma, a=how.a)

    def loss(model: int) -> Array:
        return 0.0 - doubles(signals[0, model])

    return {"lira": lira, "rmia": rmia, "loss": loss}[how.attack]


def _attacked(
    scorer: Scorer, member: Array, counts: tuple[Array, Array], how: _Settings, progress: bool
) -> tuple[Array, Array, Array, Array]:
    """Per-record success, per-model thresholds, AUC and TPR.

    Scores are computed again for the decisions rather than kept.
    """
    r, n = member.shape
    right = np.zeros((2, n), dtype=np.int64)
    auc, tpr, thresholds = np.empty(r), np.empty((r, len(how.fprs))), np.zeros(r)
    samples: tuple[list[Any], list[Any]] = ([], [])
    for model in tracked(range(r), f"Attacking each model ({how.attack})", show=progress):
        scores, inside = scorer(model), member[model]
        classes = scores[inside], scores[~inside]
        auc[model] = loss_auc(-classes[0], -classes[1])
        tpr[model] = [tpr_at_fpr(*classes, rate) for rate in how.fprs]
        if how.has_own_threshold:
            _count_right(right, scores > 0, inside)
        else:
            for sample, values in zip(samples, classes, strict=True):
                sample.append(score_sample(values))
    if not how.has_own_threshold:
        thresholds = best_thresholds(*samples)
        for model in tracked(range(r), f"Deciding on each model ({how.attack})", show=progress):
            _count_right(right, scorer(model) > thresholds[model], member[model])
    return 0.5 * (right[0] / counts[0] + right[1] / counts[1]), thresholds, auc, tpr


def _count_right(right: Array, called: Array, inside: Array) -> None:
    right[0] += called & inside
    right[1] += ~called & ~inside


def _gaussian_separation(sides: list[Side], variance: str, how: _Settings) -> tuple[Array, Array]:
    """d′ and TPR at `fpr` of every record, from the Gaussians fitted to all models."""
    widths = [spreads(side, variance, how.floor) for side in sides]
    if how.attack == "lira":
        for width, name in zip(widths, ("their IN models", "their OUT models"), strict=True):
            require_spread(width, name)
    gap = sides[0].center - sides[1].center
    if how.attack == "loss":
        gap = -gap
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(gap == 0, 0.0, gap / np.sqrt((widths[0] ** 2 + widths[1] ** 2) / 2))
        d_prime = each[0] if len(each) == 1 else np.copysign(np.sqrt((each**2).sum(0)), each.sum(0))
        bar = -ndtri(how.fpr)
        if how.direction == "either":
            d_prime, gap = np.abs(d_prime), np.abs(gap)
        if len(each) > 1:
            return d_prime, ndtr(d_prime - bar)
        if how.has_own_threshold:
            return d_prime, ratio_test_rate(gap[0], widths[0][0], widths[1][0], how.fpr)
        lead = (gap[0] - widths[1][0] * bar) / widths[0][0]
    # Without any spread and with equal means nothing tells the sides apart, and the test is a coin
    # of rate α.
    return d_prime, np.where(np.isnan(lead), how.fpr, ndtr(lead))
