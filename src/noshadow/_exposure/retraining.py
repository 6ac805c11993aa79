"""How far the flags of records last when the model is trained again."""

import numpy as np

from noshadow._exposure.draws import Beliefs, Truths, beliefs_of, checked_level
from noshadow._exposure.result import Exposure
from noshadow.checks import Array, whole_seed
from noshadow.figures import Retraining

TOP = 0.01
MOST_DRAWS, LEAST_DRAWS = 400, 40
NUMBERS = 2e7  # records times draws


def retraining(found: Exposure, fpr: float, *, seed: int = 0) -> Retraining:
    """What becomes of a record's flag in a fresh training, from posterior draws.

    A record's rate r_i is the share of trainings with it in which the threshold test at `fpr` flags
    it. Given the rates, a record flagged in one training is flagged in the next with probability
    Σ r_i² / Σ r_i (`flagged_again`); the records ranked highest today are flagged in a share of
    mean r_i of trainings (`top_flagged`). `top_overlap` is the share of one training's top 1 %, by
    (margin − μ_out)/σ_out, that is in the top 1 % of the next; a random order has 1 %.

    Args:
        found: with sizes. fpr: false-positive rate of the flags, in (0, 1). seed: of the draws.

    Returns:
        Retraining: each as (median, low, high) at `found.level`.

    Raises:
        NotApplicable: order only. InputError: fpr outside (0, 1).

    Exact when: the data follow the model of `exposure`, and a fresh training differs from the
        audited one as the reference models differ from each other: in other companions, too. The
        same records trained again with another seed alone keep more of their flags.
    Approximates: intervals of `flagged_again` are too short, most where spreads differ between
        records (docs/benchmarks.md has the measured cover).
    Cost: O(nD) for D draws, 40 to 400; seconds for 10⁶ records.
    """
    level, beliefs = checked_level(fpr), beliefs_of(found)
    n = len(beliefs)
    draws = int(np.clip(NUMBERS / n, LEAST_DRAWS, MOST_DRAWS))
    top = max(1, round(TOP * n))
    today = np.argsort(-found.score, kind="stable")[:top]
    generator = np.random.default_rng(whole_seed(seed))
    told = np.array([_one_draw(beliefs, level, today, top, generator) for _ in range(draws)])
    ends = [0.5, (1 - found.level) / 2, (1 + found.level) / 2]
    again, flagged, overlap = (tuple(float(end) for end in np.quantile(column, ends)) for column in told.T)
    return Retraining(
        fpr=level,
        flagged_again=(again[0], again[1], again[2]),
        top_flagged=(flagged[0], flagged[1], flagged[2]),
        top_overlap=(overlap[0], overlap[1], overlap[2]),
        top=TOP,
        top_records=top,
        level=found.level,
        draws=draws,
        seed=seed,
    )


def _one_draw(beliefs: Beliefs, fpr: float, today: Array, top: int, generator: np.random.Generator) -> tuple[float, float, float]:
    """The three shares of one draw of all records' truths and of two trainings."""
    common, n = float(generator.standard_normal()), len(beliefs)
    rates, seen = np.empty(n), np.empty((2, n), dtype=np.float32)
    for part in beliefs.blocks():
        truths = beliefs.drawn(part, common, generator)
        rates[part] = truths.rates(fpr, beliefs.direction)
        for training in seen:
            training[part] = _statistic(truths, beliefs.direction, generator)
    first, second = (np.argpartition(-training, top - 1)[:top] for training in seen)
    return float((rates**2).sum() / rates.sum()), float(rates[today].mean()), len(np.intersect1d(first, second)) / top


def _statistic(truths: Truths, direction: str, generator: np.random.Generator) -> Array:
    """What an attacker sees of each record in one training, in spreads without the record."""
    noise = generator.standard_normal(len(truths.separation), dtype=np.float32)
    seen: Array = (truths.separation + truths.inside * noise) / truths.out
    return np.abs(seen) if direction == "either" else seen
