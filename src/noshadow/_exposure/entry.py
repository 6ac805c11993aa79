"""`exposure`: one rank and one number per record from all that is known about it."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from noshadow._exposure.basis import Basis, basis_of, clipped_scores, normal_scores
from noshadow._exposure.held_out import left_out_margins, tail_of
from noshadow._exposure.inputs import Given, given, within_reach
from noshadow._exposure.mixed_model import Fitted, fitted_model
from noshadow._exposure.odd_rows import require_margins
from noshadow._exposure.orders import order_of, with_free_order
from noshadow._exposure.posterior import Posterior, coefficient_variance, expected_levels, posterior_of
from noshadow._exposure.result import Exposure, State, shares
from noshadow._exposure.rules import CHOSEN, Rules
from noshadow._exposure.scales import fitted_scales
from noshadow._exposure.sizes import Sizes, held_against, sizes_of
from noshadow._exposure.spread import Compared, Spreads, d_prime_error, sides_compared, spreads_of, with_own_squares
from noshadow._exposure.sufficient import Sides, sides_of, sums_of
from noshadow.checks import Array, named_in_errors, whole_seed

WORTH_A_NOTE = 0.001  # share of margins drawn in that a reader should know of
REFITS = 5  # of the slopes' covariance, once each record has a spread of its own


@named_in_errors
def exposure(
    margins: object,
    *,
    covariates: object = None,
    references: object = None,
    membership: object = None,
    direction: str = "larger",
    level: float = 0.9,
    seed: int = 0,
) -> Exposure:
    """How far each record's margin moves when a model has been trained on it.

    The answer weighs all evidence given and has an interval.

    The mixed model y_ki = f(x_i) + a_i + m_ki (g(x_i) + b_i) + σ_ki ε_ki over records i and models
    k: m = 1 if model k was trained on record i; x the audited model's margin and the covariates, as
    normal scores of their ranks (value, square, two hinges); (a_i, b_i) ~ N(0, T) the record's own
    level and slope. f, g, T and a spread per side by marginal likelihood; spreads by a gamma
    regression on the ranks of the two fitted levels and their squares, each record's own shrunk to
    it; (a_i, b_i) vary more where f and g say so. All this is estimated with margins further than
    four robust standard deviations from the median drawn in to there. The posterior of g(x_i) + b_i
    given the record's own margins is its separation; over a spread it is d′.

    Args:
        margins: (n,) the audited model's φ = log p_y − log Σ_{c≠y} p_c on its own training records;
            in a regression the signed residual, with direction="either".
        covariates: name → (n,) numbers that may say something about a record (`shift`, leverage,
            …); infinities and NaN allowed.
        references: (K, n) margins of the same records under other models, NaN where unknown, on the
            audited model's scale.
        membership: (K, n) booleans, whether that model was trained on that record; any pattern
            (halves, folds, leave-many-out).
        direction: "larger", members have larger margins; "either" for signed residuals: sizes of
            separations.
        level: coverage of intervals, in (0, 1). seed: kept in the signature for evidence that
            resamples; nothing here is random.

    Returns:
        Exposure. Order only unless 300 records have two margins of models without them and 300 two
        of models with them, or 200 have eight: a spread is not told from a record's own level then.
        Order only, too, where more than one in a hundred margins is tied at an end, as clipped
        probabilities are, and where margins of left-out references without a record reach less far
        than the others' spread says (`state.tail`), so that rates would be off.
        Without references the score is `shift` where the covariates have it, else −margin. Order
        only with references: where the covariates have `shift`, `checkpoint_shift`, `early_loss` or
        `lt_iqr`, the mean rank of these together, of the separation and of the level without the
        record.

    Raises:
        InputError: arrays that do not fit together, references that are the audited model (or it on
            another scale), losses or probabilities, members whose numbers are smaller far beyond
            chance, a quarter of the records or fewer left out of any model, fewer than 20 records.
        NumericalError: a likelihood that is not finite.

    Exact when: the data follow the model: the posterior is then the exact conditional one at the
        estimated variances.
    Approximates: variances and spreads are plugged in; their uncertainty widens intervals to second
        order.
    Cost: O(n(c log n + p² + K)) for c covariates and p = 1 + 4(c + 1) columns; memory O(n(c + 1))
        single precision beside the inputs.
    Reference: ours; spreads shrunk as Smyth 2004.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> member = rng.random((4, 1000)) < 0.5
        >>> margins = rng.normal(size=1000) + 2
        >>> references = rng.normal(size=(4, 1000)) + 2 * member
        >>> found = exposure(margins, references=references, membership=member)
        >>> found.order_only, round(float(np.median(found.d_prime)), 1)
        (False, 2.0)
    """
    whole_seed(seed)
    arguments = given(margins, covariates, references, membership, direction, level)
    if len(arguments.references) == 0:
        return _from_final_weights(arguments)
    odd = require_margins(arguments.references, arguments.membership, arguments.margins, arguments.direction)
    return answered(replace(arguments, notes=arguments.notes + odd))


def _from_final_weights(arguments: Given) -> Exposure:
    """Exposure without references (K = 0): the order of `shift`, or of the margin."""
    shift, direction, notes = arguments.covariates.get("shift"), arguments.direction, arguments.notes
    if shift is not None and not normal_scores(shift)[0].any():
        shift, notes = None, (*notes, "Covariate 'shift' does not vary and says nothing: the margins rank.")
    if shift is not None:
        score, rule, source = np.where(np.isnan(shift), -np.inf, shift), "shift", "shift"
    elif direction == "either":
        score, rule, source = np.abs(arguments.margins), "|residual|", "margins"
    else:
        score, rule, source = -arguments.margins, "−margin", "margins"
    found = order_of(score, rule, direction, arguments.level)
    return replace(found, weights={source: 1.0}, notes=notes)


def answered(arguments: Given, rules: Rules = CHOSEN) -> Exposure:
    """The answer of `exposure` to checked arguments with references, under given rules."""
    sizes = sizes_of(arguments.references, arguments.membership, arguments.counted)
    near, drawn_in = within_reach(arguments, rules.reach)
    given_rows, _, _ = _observed(arguments.turned)  # none of them drawn in
    arguments = near.turned
    rows, inside, columns = _observed(arguments)
    sides, basis = sides_of(rows, inside), basis_of(columns, len(arguments.margins))
    fitted = fitted_model(sums_of(sides, basis), float(np.nanstd(rows)) or 1.0)
    expected = expected_levels(basis, fitted)
    posterior = posterior_of(sides, expected, fitted.slopes, fitted.variances[:, None])
    spreads = spreads_of(sides, posterior.levels, fitted.variances, rules)
    own = _own_covariances(sides, expected, fitted.slopes, spreads, rules)
    # What all records share is estimated from margins within reach; each record is judged by its
    # own margins as they are.
    sides = sides_of(given_rows, inside)
    spreads = with_own_squares(spreads, sides)
    posterior = posterior_of(sides, expected, own.slopes, spreads.record, own.scales)
    posterior = replace(posterior, variance=posterior.variance + coefficient_variance(basis, fitted, posterior.gains))
    if not sizes.order_only:
        posterior = replace(
            posterior, variance=posterior.variance + _variance_of_variances(sides, expected, fitted, own, spreads, posterior)
        )
    weights = shares(_parts(basis, fitted.coefficients[1], posterior))
    notes = arguments.notes + tuple(f"Covariate {name!r} does not vary and says nothing." for name in basis.left_out)
    if drawn_in > WORTH_A_NOTE:
        notes += (f"A share of {drawn_in:.2g} of the margins lies far from all others; variances are estimated with these drawn in.",)
    state = State(sides.counts, own.slopes, spreads.free, own.scales, posterior.separation)
    compared = sides_compared(spreads, sides)
    if sizes.order_only:
        found = _answer(arguments, posterior, spreads, compared, sizes, weights, notes, rules)
        return replace(with_free_order(found, arguments.covariates, posterior.levels[0]), state=state)
    outside = left_out_margins(given_rows, inside, expected, own.slopes, spreads, own.scales)
    tail = tail_of(outside, arguments.direction == "either") if len(outside) else None
    # Refused rates say nothing against the order: separations and spreads are as well known.
    found = _answer(arguments, posterior, spreads, compared, held_against(tail), weights, notes, rules)
    return replace(found, state=replace(state, tail=tail))


@dataclass(frozen=True, eq=False)
class _Covariances:
    """T (2, 2), and the factors (2, n) on each record's standard deviations of a and b."""

    slopes: Array
    scales: Array | None


def _own_covariances(sides: Sides, expected: Array, slopes: Array, spreads: Spreads, rules: Rules) -> _Covariances:
    """T estimated anew under each record's spread, and how its size differs between records."""
    scales = None
    at = clipped_scores(expected, rules.clip)
    for _ in range(REFITS):
        found = posterior_of(sides, expected, slopes, spreads.record, scales)
        slopes = found.second
        if rules.own_scales:
            scales = fitted_scales(found.means, found.told, at)
    return _Covariances(slopes, scales)


def _variance_of_variances(sides: Sides, expected: Array, fitted: Fitted, own: _Covariances, spreads: Spreads, at: Posterior) -> Array:
    """Variance (n,) that the uncertainty of σ² and T adds to the separation.

    It is the mean over points around σ² and T, beyond the variance at the centre.

    The points are moved along with T where record spreads have moved it (T → A T Aᵀ), and spreads
    keep their shape over records.
    """
    moved = np.linalg.cholesky(own.slopes) @ np.linalg.inv(np.linalg.cholesky(fitted.slopes))
    beside = [
        posterior_of(sides, expected, moved @ other @ moved.T, spreads.record * (noise / fitted.variances)[:, None], own.scales)
        for noise, other in fitted.around
    ]
    centre = at.separation
    alone = posterior_of(sides, expected, own.slopes, spreads.record, own.scales).variance
    within = np.mean([point.variance for point in beside], axis=0) - alone
    between: Array = np.mean([(point.separation - centre) ** 2 for point in beside], axis=0)
    added: Array = np.maximum(within, 0.0) + between
    return added


def _observed(arguments: Given) -> tuple[Array, Array, dict[str, Array]]:
    """Rows and membership of the model, and its covariates.

    The audited margin is one of the covariates, once.

    Where no reference had any record, the audited model is the only one that had them: its margins
    are then observations, and covariates, which come from the same training, are left out.
    """
    if not (arguments.membership & ~np.isnan(arguments.references)).any():
        n = len(arguments.margins)
        return np.vstack([arguments.references, arguments.margins]), np.vstack([arguments.membership, np.ones((1, n), dtype=bool)]), {}
    return arguments.references, arguments.membership, {"margins": arguments.margins} | dict(arguments.covariates)


def _parts(basis: Basis, slopes: Array, posterior: Posterior) -> dict[str, Array]:
    """Contributions (n,) to the separation.

    They are those of each covariate through g, and that of the record's own margins.
    """
    owners = basis.owners
    parts = {name: np.empty(len(basis.scores)) for name in basis.names}
    for part, x in basis.blocks():
        for number, name in enumerate(basis.names):
            mine = owners == number
            parts[name][part] = x[:, mine] @ slopes[mine]
    return parts | {"references": posterior.own}


def _answer(
    arguments: Given,
    posterior: Posterior,
    spreads: Spreads,
    compared: Compared,
    sizes: Sizes,
    weights: dict[str, float],
    notes: tuple[str, ...],
    rules: Rules,
) -> Exposure:
    width = np.sqrt(compared.record.mean(0))
    separation, variance = posterior.separation, posterior.variance
    if arguments.direction == "either":
        separation = _folded_mean(separation, np.sqrt(variance))
    d_prime = separation / width
    error = d_prime_error(d_prime, variance, compared.record, spreads.free)
    centre = posterior.separation / width
    ends = _interval(centre, error, arguments.level, arguments.direction)
    return Exposure(
        score=separation / spreads.record.mean(0) ** (rules.power / 2),
        rule=rules.named,
        separation=separation,
        variance=variance,
        d_prime=d_prime,
        interval=np.full_like(ends, np.nan) if sizes.order_only else ends,
        spread_in=np.sqrt(compared.record[1]),
        spread_out=np.sqrt(compared.record[0]),
        ratio_variance=compared.log_ratio,
        order_only=sizes.order_only,
        reason=sizes.reason,
        level=arguments.level,
        direction=arguments.direction,
        weights=weights,
        notes=notes,
    )


def _folded_mean(mean: Array, error: Array) -> Array:
    """E|b| of b ~ N(mean, error²)."""
    ratio = np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)
    density = np.exp(-(ratio**2) / 2) * np.sqrt(2 / np.pi)
    found: Array = np.where(error > 0, error * density + mean * (1 - 2 * ndtr(-ratio)), np.abs(mean))
    return found


def _interval(centre: Array, error: Array, level: float, direction: str) -> Array:
    """Central interval of d′, or of |d′|.

    The interval of |d′| starts at 0 where that of d′ holds 0.
    """
    half = -ndtri((1 - level) / 2) * error
    low, high = centre - half, centre + half
    if direction == "larger":
        return np.column_stack([low, high])
    holds = (low <= 0) & (high >= 0)
    return np.column_stack([np.where(holds, 0.0, np.minimum(np.abs(low), np.abs(high))), np.maximum(np.abs(low), np.abs(high))])
