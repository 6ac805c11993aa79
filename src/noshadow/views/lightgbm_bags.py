"""Bags of LightGBM's rounds, drawn again as the library draws them."""

from collections.abc import Callable

import numpy as np

from noshadow.checks import Array

# LightGBM draws for each block of so many rows with a generator of its own, seeded by
# bagging_seed + the block's number (`bagging.hpp`, `random.h`).
BLOCK = 1024
FACTOR, INCREMENT, MODULUS = 214013, 2531011, 2**32
LEVELS = 32768.0


def lightgbm_bags(settings: dict[str, str], targets: Array) -> Callable[[int], Array] | None:
    """Round number → which records it took; rounds are asked in their order. None without bagging.

    A row is taken where its draw, one of 32,768 levels of [0, 1), is below bagging_fraction, or
    below the fraction of its class (pos_bagging_fraction, neg_bagging_fraction). Every
    bagging_freq rounds there is a new draw.

    Args:
        settings: the parameters that the model keeps. targets: (n,) targets of the records.

    Exact when: the leaves that follow from it are the model's, which the scores check.
    Cost: O(n) per draw.
    """
    whole, positive, negative = (float(settings.get(f"{part}bagging_fraction", 1)) for part in ("", "pos_", "neg_"))
    every = int(settings.get("bagging_freq", 0))
    if every <= 0 or min(whole, positive, negative) >= 1:
        return None
    by_class = min(positive, negative) < 1
    fractions = np.where(targets > 0, positive, negative) if by_class else np.full(len(targets), whole)
    seed = int(settings.get("bagging_seed", 3))
    held: dict[str, Array] = {}

    def bag(number: int) -> Array:
        if number == 0:
            held["states"] = (seed + np.arange(-(-len(targets) // BLOCK), dtype=np.uint64)) % MODULUS
        if number % every == 0:
            draws, held["states"] = _draws(held["states"], len(targets))
            held["bag"] = draws < fractions
        return held["bag"]

    return bag


def _draws(states: Array, n: int) -> tuple[Array, Array]:
    """n draws in [0, 1), block after block, and the states of the generators behind them."""
    factors, increments = np.empty(BLOCK, dtype=np.uint64), np.empty(BLOCK, dtype=np.uint64)
    factor, increment = 1, 0
    for step in range(BLOCK):
        factor, increment = factor * FACTOR % MODULUS, (increment * FACTOR + INCREMENT) % MODULUS
        factors[step], increments[step] = factor, increment
    found = (states[:, None] * factors + increments) % MODULUS
    levels = (found >> np.uint64(16)) & np.uint64(0x7FFF)
    after = found[:, -1].copy()
    after[-1] = found[-1, (n - 1) % BLOCK]  # the last block may be short
    return levels.ravel()[:n] / LEVELS, after
