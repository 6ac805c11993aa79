"""Rules of exposure that no formula decides, each chosen on calibration setups.

The figures of all alternatives are in benchmarks/results/exposure/rules.json.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """One choice of each rule.

    Attributes:
        power: score = separation / spread^power.
        clip: standard deviations of a level beyond which the spread no longer follows it.
        side_slopes: whether the spread of each side follows the levels in its own way.
        own_scales: whether records whose covariates predict a large slope may vary more.
    """

    power: float = 0.5
    clip: float = 2.0
    side_slopes: bool = True
    own_scales: bool = True

    @property
    def named(self) -> str:
        """Name of the score's rule, as results store it."""
        return {0.0: "separation", 0.5: "separation / √spread", 1.0: "separation / spread"}[self.power]


CHOSEN = Rules()
