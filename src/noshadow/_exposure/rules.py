"""Rules of exposure that no formula decides, each chosen on calibration setups.

The figures of all alternatives are in benchmarks/results/exposure/rules.json.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """One choice of each rule.

    Attributes:
        reach: robust standard deviations from the median beyond which a margin is drawn in.
        power: score = separation / spread^power.
        clip: normal scores of a level beyond which the spread no longer follows it.
        side_slopes: whether the spread of each side follows the levels in its own way.
        bent: whether the spread may rise and fall again with a level.
        own_spreads: whether a record's own margins move its spread away from that of its levels.
        own_scales: whether records whose covariates predict a large slope may vary more.
    """

    reach: float = 4.0
    power: float = 0.5
    clip: float = 2.0
    side_slopes: bool = True
    bent: bool = True
    own_spreads: bool = True
    own_scales: bool = True

    @property
    def named(self) -> str:
        """Name of the score's rule, as results store it."""
        return {0.0: "separation", 0.5: "separation / √spread", 1.0: "separation / spread"}[self.power]


CHOSEN = Rules()
# Free columns that rank records where no size is known: each counts as the normal score of its
# ranks, all alike.
FREE_ORDER = ("shift", "checkpoint_shift", "early_loss", "lt_iqr")
