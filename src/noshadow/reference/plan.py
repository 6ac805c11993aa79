"""Plan which records each reference model is trained on.

The plan is balanced over records, models and halves of the models.
"""

from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array, named_in_errors, refuse, require_number, require_whole, whole_seed

FEWEST_MODELS = 4
ROWS_AT_ONCE = 1 << 15


@dataclass(frozen=True, eq=False)
class Plan:
    """Membership of n records in r reference models, and a seed for each model.

    Attributes:
        membership: (r, n) bool: membership[t, i] says whether model t is trained on record i.
        seeds: (r,) distinct whole numbers < 2³¹, one for the training of each model.
        fraction: share of the records in each model.
        seed: what membership and seeds were drawn from.
    """

    membership: Array
    seeds: Array
    fraction: float
    seed: int

    @property
    def models(self) -> int:
        """Number r of reference models."""
        return int(self.membership.shape[0])

    @property
    def records(self) -> int:
        """Number n of records."""
        return int(self.membership.shape[1])

    @property
    def halves(self) -> tuple[Array, Array]:
        """Two disjoint sets of models, each balanced by itself: the first r // 2 and the rest."""
        middle = self.models // 2
        return np.arange(middle), np.arange(middle, self.models)

    def members(self, model: int) -> Array:
        """The records a model is trained on, sorted int64."""
        return np.flatnonzero(self.membership[model])


@named_in_errors
def plan(records: int, *, models: int = 64, fraction: float = 0.5, seed: int = 0) -> Plan:
    """Balanced random membership of records in reference models.

    Every record is in round(fraction·r) models to within one, and in fraction·r/2 of each half of
    the models to within one; every model has round(fraction·n) records to within one. Beyond that,
    chance decides.

    Args:
        records: number n of records.
        models: number r ≥ 4 of reference models.
        fraction: share of the records each model is trained on, > 0 and < 1.
        seed: of membership and of the models' seeds.

    Raises:
        InputError: some record would be in no model or in all of them, or some model would have no
            records.

    Cost: O(nr) time (about ten seconds for a million records and 256 models); memory of the
        membership and a block.

    Example:
        >>> drawn = plan(10, models=8)
        >>> drawn.membership.sum(0).tolist(), drawn.membership.sum(1).tolist()
        ([4, 4, 4, 4, 4, 4, 4, 4, 4, 4], [5, 5, 5, 5, 5, 5, 5, 5])
    """
    n, r, share, number = checked_arguments(records, models, fraction, seed)
    total = round(share * n * r)
    of_membership, of_seeds = (np.random.default_rng(part) for part in np.random.SeedSequence(number).spawn(2))
    first = round(total * (r // 2) / r)
    membership = np.zeros((r, n), dtype=bool)
    order = of_membership.permutation(n)
    # The records with one model more than the others in the second half follow those of the first,
    # so that no record gets neither or both without need: the total stays within one of its mean.
    _fill(membership[: r // 2], first, order, of_membership)
    _fill(membership[r // 2 :], total - first, np.roll(order, -(first % n)), of_membership)
    seeds = of_seeds.choice(2**31, size=r, replace=False).astype(np.int64)
    return Plan(membership, seeds, share, number)


def checked_arguments(records: object, models: object, fraction: object, seed: object) -> tuple[int, int, float, int]:
    """Turn the arguments of a plan into plain numbers (n, r, fraction, seed).

    Arguments for which no plan exists are refused.
    """
    n, r = require_whole(records, "records", low=1), require_whole(models, "models", low=FEWEST_MODELS)
    share = require_number(fraction, "fraction", low=0, high=1, low_open=True, high_open=True)
    total = round(share * n * r)
    if total < n or -(-total // n) >= r:
        rule = f"put every record in at least one of {r} models and leave it out of one"
        refuse("fraction", rule, f"{share:g}", f"Choose it between {1 / r:.3g} and {1 - 1 / r:.3g}, or more models.")
    if total < r:
        refuse("records", f"give each model at least one at fraction {share:g}", n)
    return n, r, share, whole_seed(seed)


def _fill(membership: Array, total: int, order: Array, rng: np.random.Generator) -> None:
    """Draw `total` places for the records among the models (rows).

    Records that stand first in `order` get one place more than the others.
    """
    models, n = membership.shape
    each, more = divmod(total, n)
    extended = np.zeros(n, dtype=bool)
    extended[order[:more]] = True
    for start in range(0, n, ROWS_AT_ONCE):
        extra = extended[start : start + ROWS_AT_ONCE]
        rows = np.arange(len(extra))
        chosen = np.zeros((len(extra), models), dtype=bool)
        # Row by row the models of the smallest keys; position `each` of the partition is the next
        # one after them.
        ranked = rng.random((len(extra), models), dtype=np.float32).argpartition(min(each, models - 1), axis=1)
        chosen[rows[:, None], ranked[:, :each]] = True
        chosen[rows[extra], ranked[extra, min(each, models - 1)]] = True
        membership[:, start : start + ROWS_AT_ONCE] = chosen.T
    _level(membership, total, rng)


def _level(membership: Array, total: int, rng: np.random.Generator) -> None:
    """Move random records from over-full models (rows) to under-full ones.

    The number of models of each record stays.
    """
    models = len(membership)
    each, more = divmod(total, models)
    wanted = np.full(models, each)
    wanted[rng.permutation(models)[:more]] += 1
    surplus = membership.sum(1) - wanted
    while surplus.any():
        # The larger model has more records of its own than the smaller one, so there is always
        # enough to move; one of the two is then done.
        giver, taker = int(surplus.argmax()), int(surplus.argmin())
        count = int(min(surplus[giver], -surplus[taker]))
        moved = rng.choice(np.flatnonzero(membership[giver] & ~membership[taker]), size=count, replace=False)
        membership[giver, moved], membership[taker, moved] = False, True
        surplus[giver] -= count
        surplus[taker] += count
