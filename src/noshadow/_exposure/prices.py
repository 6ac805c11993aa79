"""A price list of certainty: what each source changed, and what the next reference models buy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom

from noshadow._exposure.posterior import slope_variance
from noshadow._exposure.result import Exposure
from noshadow._exposure.sources import Source, weighed
from noshadow._exposure.spread import d_prime_error
from noshadow.checks import Array

TOP = 0.01


@dataclass(frozen=True)
class Step:
    """What one more source changed.

    Attributes:
        source: its name. trainings: what it cost, in trainings of the audited model.
        moved: share of the 1 % of records ranked highest before that are no longer among them.
        width: mean width of the interval of d′ after it; None while there is an order only.
    """

    source: str
    trainings: float
    moved: float
    width: float | None


def stepwise(margins: Array, test_margins: Array, sources: Sequence[Source], **how: Any) -> tuple[Exposure, tuple[Step, ...]]:
    """Weigh the sources one after the other, and say what each changed.

    Args:
        margins, test_margins, sources: as in `weighed`. how: its other arguments.

    Returns:
        What all sources say together, and a step per source.

    Cost: one `weighed` per source, and one for none.
    """
    found, steps = weighed(margins, test_margins, [], **how), []
    for count, source in enumerate(sources, start=1):
        before, found = found, weighed(margins, test_margins, sources[:count], **how)
        steps.append(Step(source.name, source.trainings, moved(before.score, found.score), mean_width(found)))
    return found, tuple(steps)


def moved(before: Array, after: Array) -> float:
    """Share of the top 1 % by `before` (at least one record) that left the top 1 % by `after`."""
    count = max(1, round(TOP * len(before)))
    first, second = (set(np.argsort(-score, kind="stable")[:count].tolist()) for score in (before, after))
    return len(first - second) / count


def mean_width(found: Exposure) -> float | None:
    """Mean width of the intervals of d′; None for an order only."""
    return None if found.order_only else float((found.interval[:, 1] - found.interval[:, 0]).mean())


def width_with(found: Exposure, models: int) -> float | None:
    """Expected mean width of the intervals of d′ with `models` more references on random halves.

    The variance of a record's slope is that of the mixed model with the new models counted, in the
    mean over who is drawn into how many; what estimation adds to it falls with the number of
    models; a spread gains a degree of freedom per model. Centres stay where they are.

    Args:
        found: from margins of other models. models: how many more.

    Returns:
        The width; None for an order only, whose spreads are not known.

    Exact when: the data follow the mixed model and its variances are known.
    Cost: O(n · models).
    """
    if found.order_only or found.state is None:
        return None
    state, variances = found.state, np.stack([found.spread_out**2, found.spread_in**2])
    now = slope_variance(state.counts, state.slopes, variances, state.scales)
    d_prime = found.separation / np.sqrt(variances.mean(0))
    error = d_prime_error(d_prime, found.variance, variances, state.freedom)
    seen = float(state.counts.sum(0).mean())
    added = (found.variance - now) * seen / (seen + models)
    width = np.zeros(len(now))
    for inside in range(models + 1):
        more = np.array([[models - inside], [inside]])
        variance = slope_variance(state.counts + more, state.slopes, variances, state.scales) + added
        width += binom.pmf(inside, models, 0.5) * d_prime_error(d_prime, variance, variances, state.freedom + more)
    narrower = np.where(error > 0, width / np.where(error > 0, error, 1.0), 1.0)
    return float((narrower * (found.interval[:, 1] - found.interval[:, 0])).mean())
