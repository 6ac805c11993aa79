"""Plan which records each reference model is trained on.

Few models are drawn independently; from four on the plan is balanced over records and models, from
twelve on over halves of the models as well. Folds leave each training record out of one model.
"""

from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array, named_in_errors, refuse, require_number, require_whole, whole_seed

# Two complementary halves give one margin per side and record, from which no spread can be told
# , and d′ needs two on each side; independent halves give a quarter of the records two.
BALANCED_FROM = 4
# A plan that is balanced over its halves, too, is pairs of complements with four models. What the
# rest of the training set does to a record is then opposite in the two of a pair: means with and
# without the record differ by more than the spread within each side says, twice the variance with
# four models, 1.2 times with eight, 1.1 with twelve (benchmarks/results/few_parameters.json).
HALVED_FROM = 12
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
        """Two disjoint sets of models: the first r // 2 and the rest.

        From twelve models on, each is balanced by itself.
        """
        middle = self.models // 2
        return np.arange(middle), np.arange(middle, self.models)

    def members(self, model: int) -> Array:
        """The records a model is trained on, sorted int64."""
        return np.flatnonzero(self.membership[model])


@named_in_errors
def plan(records: int, *, models: int = 64, fraction: float = 0.5, seed: int = 0) -> Plan:
    """Random membership of records in reference models, balanced from four models on.

    Four models and more: every record is in round(fraction·r) models to within one, and every model
    has round(fraction·n) records to within one. Twelve and more: every record is in fraction·r/2
    of each half of the models to within one. Beyond that, chance decides.

    One to three models: each is drawn without regard to the others and has exactly
    round(fraction·n) records. At fraction ½ and two models, a quarter of the records is in both and
    a quarter in neither, so that spreads over models can be told from levels of records.

    Args:
        records: number n of records.
        models: number r ≥ 1 of reference models.
        fraction: share of the records each model is trained on, > 0 and < 1.
        seed: of membership and of the models' seeds.

    Raises:
        InputError: some record would be in none of four or more models or in all of them, or some
            model would have no records, or all.

    Cost: O(nr) time (about ten seconds for a million records and 256 models); memory of the
        membership and a block.

    Example:
        >>> drawn = plan(10, models=8)
        >>> drawn.membership.sum(0).tolist(), drawn.membership.sum(1).tolist()
        ([4, 4, 4, 4, 4, 4, 4, 4, 4, 4], [5, 5, 5, 5, 5, 5, 5, 5])
    """
    n, r, share, number = checked_arguments(records, models, fraction, seed)
    of_membership, of_seeds = _streams(number)
    membership = (_independent if r < BALANCED_FROM else _balanced)(n, r, share, of_membership)
    return Plan(membership, _model_seeds(r, of_seeds), share, number)


@named_in_errors
def fold_plan(train: int, test: int, *, folds: int, seed: int = 0) -> Plan:
    """Cross-fitting: disjoint folds of the training records, and a model trained without each.

    Model j is trained on all training records but those of fold j. Folds are random and their sizes
    differ by at most one. Test records are in no model.

    Args:
        train: number of training records, the first of the pool. test: number of test records.
        folds: number k of folds and of models, 2 ≤ k ≤ train. seed: of folds and models' seeds.

    Raises:
        InputError: fewer than two folds, or more folds than training records.

    Cost: O(k(train + test)).

    Example:
        >>> drawn = fold_plan(6, 2, folds=3)
        >>> drawn.membership.sum(0).tolist(), drawn.membership.sum(1).tolist()
        ([2, 2, 2, 2, 2, 2, 0, 0], [4, 4, 4])
    """
    members, unseen, k, number = checked_folds(train, test, folds, seed, "folds")
    of_folds, of_seeds = _streams(number)
    fold = np.empty(members, dtype=np.int64)
    fold[of_folds.permutation(members)] = np.arange(members) % k
    membership = np.zeros((k, members + unseen), dtype=bool)
    membership[:, :members] = fold != np.arange(k)[:, None]
    return Plan(membership, _model_seeds(k, of_seeds), fold_fraction(members, unseen, k), number)


def fold_fraction(train: int, test: int, folds: int) -> float:
    """Mean share of the pool that a model of `fold_plan` is trained on."""
    return train * (folds - 1) / (folds * (train + test))


def checked_folds(train: object, test: object, folds: object, seed: object, argument: str) -> tuple[int, int, int, int]:
    """Turn the arguments of a fold plan into plain numbers (train, test, folds, seed).

    `argument` is what the number of folds is called in messages.
    """
    members, unseen = require_whole(train, "train", low=1), require_whole(test, "test", low=0)
    k = require_whole(folds, argument, low=2)
    if k > members:
        refuse(argument, f"be at most the {members} training records, each in one fold", k)
    return members, unseen, k, whole_seed(seed)


def _streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Generators of the membership and of the models' seeds."""
    first, second = np.random.SeedSequence(seed).spawn(2)
    return np.random.default_rng(first), np.random.default_rng(second)


def _model_seeds(models: int, rng: np.random.Generator) -> Array:
    return rng.choice(2**31, size=models, replace=False).astype(np.int64)


def _independent(n: int, r: int, share: float, rng: np.random.Generator) -> Array:
    membership = np.zeros((r, n), dtype=bool)
    for model in membership:
        model[rng.choice(n, size=round(share * n), replace=False)] = True
    return membership


def _balanced(n: int, r: int, share: float, rng: np.random.Generator) -> Array:
    total = round(share * n * r)
    first = round(total * (r // 2) / r)
    membership = np.zeros((r, n), dtype=bool)
    order = rng.permutation(n)
    if r < HALVED_FROM:
        _fill(membership, total, order, rng)
        return membership
    # The records with one model more than the others in the second half follow those of the first,
    # so that no record gets neither or both without need: the total stays within one of its mean.
    _fill(membership[: r // 2], first, order, rng)
    _fill(membership[r // 2 :], total - first, np.roll(order, -(first % n)), rng)
    return membership


def checked_arguments(records: object, models: object, fraction: object, seed: object) -> tuple[int, int, float, int]:
    """Turn the arguments of a plan into plain numbers (n, r, fraction, seed).

    Arguments for which no plan exists are refused.
    """
    n, r = require_whole(records, "records", low=1), require_whole(models, "models", low=1)
    share = require_number(fraction, "fraction", low=0, high=1, low_open=True, high_open=True)
    if r < BALANCED_FROM:
        if not 0 < round(share * n) < n:
            refuse("records", f"leave each model records with and without it at fraction {share:g}", n)
        return n, r, share, whole_seed(seed)
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
