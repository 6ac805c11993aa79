"""A Gaussian test on the margin.

It says what a shift of the attack's statistic is worth to the attacker.
"""

import numpy as np
from scipy.stats import norm

from noshadow.checks import Array, named_in_errors
from noshadow.theory.arguments import broadcast, numbers_within, rates_within


@named_in_errors
def margin_tpr(fpr: object, gap: object, deviation_in: object, deviation_out: object) -> Array:
    """True-positive rate of the test on the margin φ at false-positive rate `fpr`.

    The test calls a record a member when its φ is large.

    φ ~ N(μ + gap, s_in²) for models trained with the record and N(μ, s_out²) without it:
    TPR = Φ((gap − z·s_out)/s_in), z the 1 − fpr quantile of the normal law.

    Args:
        fpr: false-positive rates in (0, 1), broadcast with the others.
        gap: how much larger φ is with the record; measured, or a `shift` brought to scale.
        deviation_in, deviation_out: standard deviations > 0 of φ over trainings with and without
            the record.

    Returns:
        TPR in [0, 1], of the broadcast shape.

    Raises:
        InputError: an argument is out of range, or shapes do not broadcast.

    Exact when: φ is Gaussian on both sides. The likelihood-ratio test of two Gaussians with unequal
        deviations is two-sided and reaches at least as much.
    Cost: O(1) a value.
    Reference: Carlini et al. 2022.

    Example:
        >>> margin_tpr(0.01, [0.0, 2.0, 6.0], 1.0, 1.0).round(3)
        array([0.01 , 0.372, 1.   ])
    """
    rates = rates_within(fpr, "fpr", 1)
    inside = numbers_within(deviation_in, "deviation_in", low=0, open_ends=True)
    outside = numbers_within(deviation_out, "deviation_out", low=0, open_ends=True)
    distance = numbers_within(gap, "gap")
    a, distance, inside, outside = broadcast(fpr=rates, gap=distance, deviation_in=inside, deviation_out=outside)
    rate: Array = norm.cdf((distance - norm.isf(a) * outside) / inside)
    return np.asarray(rate)
