"""How often an accusation is right, by how many of those asked about are in the data."""

from dataclasses import asdict, dataclass
from typing import Any

from noshadow._known.rate import KnownRate
from noshadow.figures import Interval
from noshadow.metrics import accusation_precision

# One in a hundred, one in ten, every other of the people whom an attacker asks about.
PRIORS = (0.01, 0.1, 0.5)


@dataclass(frozen=True)
class Accusation:
    """How often "this person was in the training data" is right when the attack says so.

    Attributes:
        prior: share of the people asked about who are in the data.
        precision: share of accusations that are right. Larger = riskier.
        interval: (low, high), from the rate's own; None where that has none.
        guess: precision of a guess, which is the prior.
    """

    prior: float
    precision: float
    interval: Interval | None
    guess: float

    def to_dict(self) -> dict[str, Any]:
        """The figure in plain JSON types."""
        return asdict(self) | {"interval": None if self.interval is None else list(self.interval)}


def accusations(known: KnownRate, priors: tuple[float, ...] = PRIORS) -> tuple[Accusation, ...]:
    """Precision of an accusation at each prior, from what is best known about the attack.

    π TPR / (π TPR + (1 − π) FPR). Known "from losses" alone, the attack accuses whom it does not
    rule out: TPR is then 1 − fpr, and FPR is 1 − rate.

    Args:
        known: of `best_known`. priors: shares π in (0, 1).

    Returns:
        One Accusation per prior; none when no rate is known.

    Exact when: the false-positive rate is the one that the rate is known at; an interval holds the
        uncertainty of the rate alone.
    Cost: O(1).
    """
    if known.rate is None:
        return ()

    def precision(rate: float, prior: float) -> float:
        tpr, fpr = (1 - known.fpr, 1 - rate) if known.source == "losses" else (rate, known.fpr)
        return accusation_precision(tpr, fpr, prior)

    told = []
    for prior in priors:
        ends = None if known.interval is None else (precision(known.interval[0], prior), precision(known.interval[1], prior))
        told.append(Accusation(prior, precision(known.rate, prior), ends, prior))
    return tuple(told)
