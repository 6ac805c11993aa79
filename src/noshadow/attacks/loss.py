"""The attack without references (LOSS), and memorisation.

Memorisation is how much training on a record helps to get it right.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from noshadow.attacks.inputs import flags, require_models_on_side, signal_array
from noshadow.checks import Array, as_array, named_in_errors, refuse, require_number


@dataclass(frozen=True, eq=False)
class Memorization:
    """Memorisation of n records.

    Attributes:
        estimate: (n,) in [−1, 1]. interval: (n, 2), low and high. level: its coverage.
    """

    estimate: Array
    interval: Array
    level: float


@named_in_errors
def loss_scores(losses: object) -> Array:
    """LOSS score of every record: the negated loss.

    Args:
        losses: (n,) or (r, n) finite losses under the attacked model (or each of r models).

    Returns:
        float64 of the same shape, −losses; larger = more member-like.

    Raises:
        InputError: losses that are not finite or not 1- or 2-dimensional.

    Exact when: always.
    Cost: O(n).
    Reference: Yeom et al. 2018.

    Example:
        >>> loss_scores([0.5, 2.0])
        array([-0.5, -2. ])
    """
    return np.subtract(0.0, signal_array(losses, "losses", ndim=(1, 2)), dtype=np.float64)


@named_in_errors
def memorization(correct: object, membership: object, *, level: float = 0.95) -> Memorization:
    """Memorisation of every record: Pr[correct | IN] − Pr[correct | OUT] over reference models.

    The interval is Newcombe's: with Wilson intervals (l, u) of the two shares p_in and p_out,
    low = d − √((p_in − l_in)² + (u_out − p_out)²) and high = d + √((u_in − p_in)² + (p_out −
    l_out)²), d = p_in − p_out.

    Args:
        correct: (r, n) boolean, the model predicts the record's class.
        membership: (r, n) boolean, True = that model was trained on that record; every record IN
            and OUT at least once.
        level: coverage of the interval, in (0, 1).

    Returns:
        Memorization.

    Raises:
        InputError: arrays that are not boolean or do not fit together, a record never IN or never
            OUT, or a level outside (0, 1).

    Exact when: the estimate always, as a difference of observed shares.
    Approximates: the interval, whose coverage is near `level` for models trained independently.
    Cost: O(rn); memory O(n).
    Reference: Feldman and Zhang 2020; Newcombe 1998 (method 10).

    Example:
        >>> correct = member = [[True], [True], [False], [False]]
        >>> found = memorization(correct, member)
        >>> found.estimate, found.interval.round(3)
        (array([1.]), array([[0.07, 1.  ]]))
    """
    coverage = require_number(level, "level", low=0, high=1, low_open=True, high_open=True)
    right = as_array(correct, "correct")
    if right.ndim != 2 or right.size == 0:
        refuse("correct", "be a 2-dimensional array with entries", f"shape {right.shape}")
    right = flags(right, "correct", right.shape, "correct")
    member = flags(membership, "membership", right.shape, "correct")
    hits, trials = np.zeros((2, right.shape[1])), np.zeros((2, right.shape[1]))
    for got_it, inside in zip(right, member, strict=True):
        for side, held in enumerate((inside, ~inside)):
            hits[side] += got_it & held
            trials[side] += held
    require_models_on_side(trials[0], 1, "IN")
    require_models_on_side(trials[1], 1, "OUT")
    share = hits / trials
    low, high = _wilson(share, trials, coverage)
    estimate = share[0] - share[1]
    down = np.hypot(share[0] - low[0], high[1] - share[1])
    up = np.hypot(high[0] - share[0], share[1] - low[1])
    return Memorization(estimate, np.stack((estimate - down, estimate + up), axis=1), coverage)


def _wilson(share: Array, trials: Array, level: float) -> tuple[Array, Array]:
    """Wilson's score interval of a binomial share."""
    z = ndtri(0.5 + level / 2)
    scale = 1 + z**2 / trials
    middle = (share + z**2 / (2 * trials)) / scale
    half = z * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2)) / scale
    # At shares 0 and 1 the end points are 0 and 1 exactly; rounding must not leave them a hair
    # outside.
    return np.minimum(np.maximum(middle - half, 0.0), share), np.maximum(np.minimum(middle + half, 1.0), share)
