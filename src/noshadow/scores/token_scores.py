"""Scores of sequences from what a language model, and its base, say of every token.

p is the audited model, q its base, x_t the scored tokens t = 1 … T of a sequence. All are attack
scores: larger = more like a member. What papers leave open is settled here, and said where.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from noshadow.checks import Array
from noshadow.views import TokenStatistics

LEAST_ERRORS = 2  # error positions below which the error zone says nothing, as in public code
NOTHING_SAID = 0.5
SHARE_OF_TOKENS = 0.2  # k of Min-K %, a common choice; never tuned here
# Roughly geometric from 2 to 40, as the authors' code of the attack lists them; never tuned here.
WINDOW_LENGTHS = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)


def error_zone(own: TokenStatistics, base: TokenStatistics) -> Array:
    """Share of upward moves among all moves of log p from the base, at the model's errors; (n,).

    Errors E are the tokens that the audited model does not put first. With Δ_t = log p(x_t) −
    log q(x_t), P = Σ_{t∈E} max(Δ_t, 0) and N = Σ_{t∈E} max(−Δ_t, 0) the score is P/(P + N), in
    [0, 1]. The paper's score is P/N (its §3.3–3.4), which orders sequences alike; P/(P + N) is
    among the alternatives of its appendix E.3, within 0.01 of AUC. Where sources differ:

    - N = 0 after two errors or more: 1, the ratio's limit. Appendix E.6 ranks such a sequence
      highest, too; the authors' code gives it 0, the least.
    - No error at all: ½, nothing is said. Appendix E.5 ranks it above all others, the code gives 0.
      A short text is often without errors under both models, and would lead by its length.
    - One error, or errors that did not move: ½. The appendix has no rule for these; the code gives
      0 below two errors.
    - A token that shares the first place is no error; the code takes one of the equals.
    - All scored tokens count; the code leaves out the first. Another implementation measured both
      on GPT-2: the AUC changed by 0.0001, the TPR at FPR 0.01 by 0.007 at most.

    The paper is known here from its abstract and introduction, its authors' code, and another
    public implementation (LeakPro's) that quotes its sections; the whole text was not at hand.

    Cost: O(N) in the number of tokens.
    Reference: Ilić et al. 2026.
    """
    found = np.full(len(own), NOTHING_SAID)
    for number, part in _parts(own):
        errors = ~own.is_first[part]
        moved = (own.log_probability[part] - base.log_probability[part])[errors]
        size = float(np.abs(moved).sum())
        if len(moved) >= LEAST_ERRORS and size > 0:
            found[number] = float(moved[moved > 0].sum()) / size
    return found


def window_votes(own: TokenStatistics, base: TokenStatistics) -> Array:
    """Share of windows of tokens over which the base's loss exceeds the model's; (n,) in [0, 1].

    For a length w, V_w = mean over all T − w + 1 windows of 1[Σ −log q > Σ −log p]; the score is
    the mean of V_w over w in WINDOW_LENGTHS. A length beyond T is taken as T, as public code of the
    attack does, so that short sequences are judged by their whole more often. Equal sums are no
    vote. The paper's equation for lengths, round(2 · 20^((k − 1)/9)) for k = 1 … 10, gives 2, 3, 4,
    5, 8, 11, 15, 21, 29 and 40 (eq. 12); no rounding of it gives the list of its authors' code,
    which is taken here and which appendix C.1.5 repeats. The paper is known from its abstract, its
    authors' page about it, and two other public implementations that quote its sections.

    Cost: O(N · number of lengths).
    Reference: Chen et al. 2026.
    """
    found = np.empty(len(own))
    for number, part in _parts(own):
        sums = np.concatenate([[0.0], np.cumsum(own.log_probability[part] - base.log_probability[part])])
        lengths = [min(length, len(sums) - 1) for length in WINDOW_LENGTHS]
        found[number] = np.mean([float((sums[length:] > sums[:-length]).mean()) for length in lengths])
    return found


def min_k(own: TokenStatistics) -> Array:
    """Mean log p of the sequence's least probable tokens: Min-K %, k = 20; (n,) nats, ≤ 0.

    The mean is over the max(⌊T/5⌋, 1) smallest; public code has none below T = 5.

    Cost: O(N).
    Reference: Shi et al. 2024.
    """
    return _mean_of_smallest(own, own.log_probability)


def min_k_plus(own: TokenStatistics) -> Array:
    """Mean standing of the sequence's lowest tokens: Min-K %++, k = 20; (n,) deviations.

    The standing of a token is (log p(x_t) − μ_t)/σ_t, with mean and standard deviation of log p(z)
    over z ~ p (`TokenStatistics`); tokens are counted as in `min_k`.

    Cost: O(N); the standings come from the forward pass.
    Reference: Zhang et al. 2025.
    """
    return _mean_of_smallest(own, own.standing)


def zlib_ratio(losses: Array, texts: Sequence[str]) -> Array:
    """Minus the loss over the bytes that zlib needs for the text; (n,) nats per byte, ≤ 0.

    A text that zlib finds simple has a small loss under any model. The loss is the mean over
    tokens.

    Args:
        losses: (n,) mean negative log-likelihoods. texts: of the same sequences.

    Cost: O(bytes).
    Reference: Carlini et al. 2021.
    """
    found: Array = -losses / np.array([len(zlib.compress(text.encode("utf-8", "surrogatepass"))) for text in texts])
    return found


def _mean_of_smallest(own: TokenStatistics, values: Array) -> Array:
    found = np.empty(len(own))
    for number, part in _parts(own):
        count = max(int(SHARE_OF_TOKENS * (part.stop - part.start)), 1)
        found[number] = np.partition(values[part], count - 1)[:count].mean()
    return found


def _parts(own: TokenStatistics) -> Iterator[tuple[int, slice]]:
    """The rows of each sequence."""
    yield from enumerate(slice(int(start), int(stop)) for start, stop in zip(own.starts[:-1], own.starts[1:], strict=True))


# Columns that one model gives by itself, and those that also need its base.
ALONE: dict[str, Callable[[TokenStatistics], Array]] = {"min_k": min_k, "min_k_plus": min_k_plus}
WITH_BASE: dict[str, Callable[[TokenStatistics, TokenStatistics], Array]] = {"error_zone": error_zone, "window_votes": window_votes}
