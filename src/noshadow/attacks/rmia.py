"""RMIA: a likelihood-ratio attack that compares a record with a population.

The ratio says how much the attacked model prefers a record, relative to the reference models. The
score is the share of the population whose ratio the record exceeds by a factor.
"""

import numpy as np

from noshadow.attacks.inputs import NUMBERS_AT_ONCE, doubles, flags, require_models_on_side, side_counts, signal_array
from noshadow.attacks.lira import VARIANTS
from noshadow.attacks.moments import Side, without_model
from noshadow.blocks import block_length, blocks
from noshadow.checks import LARGEST, Array, NumericalError, advice, named_in_errors, refuse, require_choice, require_number, said


@named_in_errors
def rmia_scores(
    target: object,
    reference: object,
    membership: object,
    population_target: object,
    population_reference: object,
    *,
    gamma: float = 2.0,
    variant: str = "online",
    a: float = 0.3,
    population_membership: object = None,
) -> Array:
    """RMIA score of every record.

    It is the share of a population whose likelihood ratio the record exceeds γ times.

    ratio_x = p(x|θ)/p(x) compares the attacked model θ with the reference models; score(x) = share
    of z with ratio_x > γ · ratio_z (the pairwise test ratio_x/ratio_z > γ, strict, also where
    ratio_z = 0). Online: p(x) = ½ (mean of p(x|θ') over IN models + mean over OUT models). Offline:
    p(x) = ½ ((1 + a) p_out + 1 − a) with p_out the mean over OUT models alone. The same maps give
    p(z).

    Args:
        target: (n,) probability of the record's own label under the attacked model, ≥ 0; for
            regression the density of its target. Offline needs values in [0, 1]: the map with 1 − a
            has no meaning for densities.
        reference: (r, n) the same under r reference models, the attacked one not among them; a
            memory map is read in blocks.
        membership: (r, n) boolean, True = that model was trained on that record.
        population_target: (n_z,) the same for population records, which the attacked model was not
            trained on.
        population_reference: (r, n_z) under the reference models.
        gamma: > 0; 2 in the paper, 1 in later code.
        variant: "online" or "offline".
        a: in [0, 1], how far the offline map trusts p_out (1: p(x) = p_out).
        population_membership: (r, n_z) boolean; None = no reference model was trained on any z.
            Online, a z with models on one side only gets the mean over those.

    Returns:
        (n,) fractions in [0, 1], larger = more member-like.

    Raises:
        InputError: arrays that do not fit together, values that are negative or not finite (above 1
            offline), membership that is not boolean, a record without IN (online) or OUT models, or
            p(x) = 0.
        NumericalError: a ratio beyond float64.

    Exact when: always, as arithmetic: the test is ratio_x > γ · ratio_z in float64.
    Approximates: the prior p(x) of the paper, by the mean over r models.
    Cost: O(r (n + n_z) + (n + n_z) log n_z); memory O(n + n_z) beside the input.
    Reference: Zarifzadeh et al. 2024.

    Example:
        >>> member = np.array([[True, False], [False, True]])
        >>> reference, population = [[0.5, 0.5], [0.25, 0.5]], [[0.4, 0.4, 0.6], [0.4, 0.4, 0.6]]
        >>> rmia_scores([0.75, 0.1], reference, member, [0.2, 0.5, 0.6], population)
        array([0.33333333, 0.        ])
    """
    require_rmia_choices(variant, gamma, a)
    most = 1.0 if variant == "offline" else LARGEST
    signals, member = probability_arrays(reference, membership, most)
    values = _probabilities(target, "target", 1, most)
    if values.shape != signals.shape[1:]:
        refuse("target", f"have the records of reference, shape {signals.shape[1:]}", f"shape {values.shape}")
    counts = side_counts(member)
    if variant == "online":
        require_models_on_side(counts[0], 1, "IN", f"Pass {advice('variant', 'offline')}, which needs no IN model.")
    require_models_on_side(counts[1], 1, "OUT")
    prior = _prior(signals, member, counts, variant, a)
    population = _population_ratios(population_target, population_reference, population_membership, len(signals), variant, a)
    return shares_exceeded(likelihood_ratios(doubles(values), prior, "reference"), population, gamma)


def require_rmia_choices(variant: str, gamma: float, a: float) -> None:
    """The named variant, γ > 0 and a in [0, 1]."""
    require_choice(variant, VARIANTS, "variant")
    require_number(gamma, "gamma", low=0, low_open=True, high=LARGEST)
    require_number(a, "a", low=0, high=1)


def probability_arrays(reference: object, membership: object, most: float) -> tuple[Array, Array]:
    """Probabilities (or densities) (r, n) and membership (r, n), checked."""
    signals = _probabilities(reference, "reference", 2, most)
    return signals, flags(membership, "membership", signals.shape, "reference")


def model_rmia_scores(signals: Array, membership: Array, sides: list[Side], model: int, *, variant: str, gamma: float, a: float) -> Array:
    """RMIA scores (n,) of one reference model attacked with the others.

    The model's own non-members are the population.

    Args:
        signals: (1, r, n). membership: (r, n). sides: [IN, OUT] moments over all r models.
        model: the attacked one, taken out of the means in closed form.

    Cost: O(n log n).
    """
    outside = without_model(sides[1], signals, membership, model, inside=False).mean[0]
    if variant == "online":
        prior = 0.5 * (without_model(sides[0], signals, membership, model, inside=True).mean[0] + outside)
    else:
        prior = offline_prior(outside, a)
    ratios = likelihood_ratios(doubles(signals[0, model]), prior, "reference", f" without model {model}")
    return shares_exceeded(ratios, ratios[~membership[model]], gamma)


def offline_prior(outside: Array, a: float) -> Array:
    """p(x) guessed from OUT models alone, ½ ((1 + a) p_out + 1 − a)."""
    prior: Array = 0.5 * ((1 + a) * outside + (1 - a))
    return prior


def likelihood_ratios(values: Array, prior: Array, argument: str, where: str = "") -> Array:
    """p(x|θ)/p(x), (n,); p(x) = 0 is refused."""
    empty = prior <= 0
    if empty.any():
        got = f"{int(empty.sum())} records with p(x) = 0{where}, the first at index {int(empty.argmax())}"
        refuse(argument, "give every record a probability > 0 under some model", got, "Compute probabilities in float64.")
    with np.errstate(over="ignore"):
        ratios: Array = values / prior
    finite = np.isfinite(ratios)
    if not finite.all():
        bad = f"{int((~finite).sum())} ratios p(x|θ)/p(x) are beyond float64, the first at index {int(finite.argmin())}"
        raise NumericalError(said(f"{bad}. Rescale {argument}."))
    return ratios


def shares_exceeded(ratios: Array, population: Array, gamma: float) -> Array:
    """Share of the population with ratio > γ · population ratio (strict), (n,)."""
    # A product that overflows is a bar no finite ratio clears.
    with np.errstate(over="ignore"):
        bars = np.sort(gamma * population)
    # Looking up sorted ratios walks the bars once; in any other order each look-up misses the
    # caches.
    order = np.argsort(ratios)
    shares = np.empty(len(ratios))
    shares[order] = np.searchsorted(bars, ratios[order], side="left") / len(bars)
    return shares


def _probabilities(value: object, argument: str, ndim: int, most: float) -> Array:
    hint = "Pass probabilities or densities."
    if most == 1:
        hint = f"Offline RMIA needs probabilities; pass {advice('variant', 'online')} for densities."
    return signal_array(value, argument, ndim=(ndim,), low=0.0, high=most, hint=hint)


def _population_ratios(target: object, reference: object, membership: object, models: int, variant: str, a: float) -> Array:
    most = 1.0 if variant == "offline" else LARGEST
    values = _probabilities(target, "population_target", 1, most)
    signals = _probabilities(reference, "population_reference", 2, most)
    if signals.shape != (models, len(values)):
        expected = f"have one row per reference model and one column per population record, shape {(models, len(values))}"
        refuse("population_reference", expected, f"shape {signals.shape}")
    if membership is None:
        member = np.broadcast_to(np.False_, signals.shape)
    else:
        member = flags(membership, "population_membership", signals.shape, "population_reference")
    counts = side_counts(member)
    if variant == "offline":
        require_models_on_side(counts[1], 1, "OUT", argument="population_membership")
    prior = _prior(signals, member, counts, variant, a)
    return likelihood_ratios(doubles(values), prior, "population_reference")


def _prior(signals: Array, member: Array, counts: tuple[Array, Array], variant: str, a: float) -> Array:
    """p(x) of every record, (n,), one pass in blocks."""
    r, n = signals.shape
    sums = np.empty((2, n))
    for start, stop in blocks(n, block_length(r, numbers=NUMBERS_AT_ONCE)):
        values, inside = doubles(signals[:, start:stop]), member[:, start:stop]
        sums[0, start:stop] = np.where(inside, values, 0.0).sum(0)
        sums[1, start:stop] = np.where(inside, 0.0, values).sum(0)
    if variant == "offline":
        return offline_prior(sums[1] / counts[1], a)
    means = sums / np.maximum(counts, 1)
    both = (counts[0] > 0) & (counts[1] > 0)
    prior: Array = np.where(both, 0.5, 1.0) * means.sum(0)
    return prior
