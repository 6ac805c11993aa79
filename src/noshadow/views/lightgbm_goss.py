"""Rows that LightGBM's GOSS took in each round, drawn again as the library draws them.

Gradient-based one-side sampling (Ke et al. 2017) keeps the records with the largest gradients and a
random part of the others, whose gradients are multiplied so that their sum stays what it was.
"""

from collections.abc import Callable

import numpy as np

from noshadow.checks import Array, NotApplicable
from noshadow.views.lightgbm_bags import BLOCK, FACTOR, INCREMENT, LEVELS, MODULUS

# A million records and a hundred sampled rounds: some minutes, one record after the other.
MOST_DRAWS = 100_000_000


class Goss:
    """Factors of the records' gradients, round after round; rounds are asked in their order.

    Each thread of the training drew for a run of rows of its own, a multiple of 1,024. How many
    shared the rows is not kept where the training took all cores: the first sampled round tells it,
    whose leaves hold as many records as the model says.

    Exact when: the leaves that follow from it are the model's, which the scores check.
    Cost: O(n) steps of Python per round.
    """

    def __init__(self, settings: dict[str, str], n: int, rounds: int) -> None:
        self._top, self._other = float(settings.get("top_rate", 0.2)), float(settings.get("other_rate", 0.1))
        self._seed, self._n = int(settings.get("bagging_seed", 3)), n
        # The first rounds take all records: 1/learning_rate of them.
        self.first = int(1 / float(settings.get("learning_rate", 0.1)))
        if n * max(rounds - self.first, 0) > MOST_DRAWS:
            raise NotApplicable(
                f"drawing the rows of GOSS again takes {n * (rounds - self.first):,} steps one after the other, more than {MOST_DRAWS:,}"
            )
        self._threads = int(settings.get("num_threads", 0))
        self._run = 0
        self._states: list[int] = []

    def start(self) -> None:
        """Set the generators to where the training began."""
        self._states = [(self._seed + block) % MODULUS for block in range(-(-self._n // BLOCK))]

    def drawn(self, g: Array, h: Array, fits: Callable[[Array], bool]) -> Array:
        """Factor (n,) before each record's gradient and curvature, 0 for those not taken.

        Args:
            g, h: (n, m) gradients and curvatures of the round. fits: whether the model's leaves
                hold as many records as a draw would put there.
        """
        sizes = np.zeros(self._n, dtype=np.float32)
        for one in (g.astype(np.float32) * h.astype(np.float32)).T:  # output after output, as LightGBM rounds
            sizes += np.abs(one)
        before = self._states
        for run in (self._run,) if self._run else self._runs():
            factors, states = self._of_runs(sizes, run, list(before))
            if self._run or fits(factors):
                break
        self._run, self._states = run, states
        return factors

    def _runs(self) -> list[int]:
        """Numbers of rows that a thread may have had, the likeliest first."""
        most = -(-self._n // BLOCK)
        counts = [min(self._threads, most)] if self._threads > 0 else []
        shared = [-(-self._n // (count * BLOCK)) * BLOCK if count > 1 else self._n for count in (*counts, *range(1, min(most, 128) + 1))]
        return list(dict.fromkeys(shared))

    def _of_runs(self, sizes: Array, run: int, states: list[int]) -> tuple[Array, list[int]]:
        parts = [self._of_one(sizes[first : first + run], first, states) for first in range(0, self._n, run)]
        return np.concatenate(parts), states

    def _of_one(self, sizes: Array, first: int, states: list[int]) -> Array:
        """The draw of one thread; its generators, one per 1,024 rows, move on.

        A record below the threshold is taken with the chance that the rest of the sample needs it.
        """
        n = len(sizes)
        top, other = max(1, int(n * self._top)), int(n * self._other)
        threshold = np.partition(sizes, n - top)[n - top]
        factors = np.where(sizes >= threshold, 1.0, 0.0)
        if other == 0:
            return factors
        large = np.cumsum(factors) - factors
        small = np.flatnonzero(factors == 0)
        # What is left to choose from before each record, as LightGBM counts it.
        left = ((n - small) - (top - large[small])).tolist()
        factor, taken = float(np.float32(np.float32(n - top) / np.float32(other))), 0
        state, block = 0, -1
        for row, rest in zip(small.tolist(), left, strict=True):
            if (first + row) // BLOCK != block:
                if block >= 0:
                    states[block] = state
                block = (first + row) // BLOCK
                state = states[block]
            state = (state * FACTOR + INCREMENT) % MODULUS
            if ((state >> 16) & 0x7FFF) / LEVELS * rest < other - taken:
                factors[row] = factor
                taken += 1
        if block >= 0:
            states[block] = state
        return factors
