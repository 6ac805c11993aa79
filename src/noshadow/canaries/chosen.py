"""Records as canaries: which ones, and with labels that are not theirs."""

import numpy as np

from noshadow.checks import Array, as_array, named_in_errors, refuse, require_choice, require_whole, whole_seed
from noshadow.results import Audit, require_audit

RULES = ("rank", "exposure", "random")
EXPOSED = "exposure_score"


@named_in_errors
def choose(audit: Audit, count: int, *, by: str = "rank", seed: int = 0) -> Array:
    """Rows of the training records to make canaries of: the first by an audit, or any.

    A canary tells most where the model is most likely to remember: "rank" takes the first records
    of the audit's rank, whatever column it follows, and "exposure" those of a rank by exposure
    alone. "random" takes the same number of any, to compare with.

    Args:
        audit: of a model trained on the records before canaries were put in.
        count: of rows, at most the audit's records. by: "rank", "exposure" or "random". seed: of "random".

    Returns:
        (count,) row numbers in the order of `audit.records`, best rank first.

    Raises:
        InputError: no Audit, one without a rank, one that ranks by another column than exposure where
            that was asked for, or more rows than it has.

    Cost: O(n log n).

    Example:
        >>> import noshadow as ns
        >>> ns.canaries.choose("audit-folder", 3)
        Traceback (most recent call last):
        noshadow.errors.InputError: choose: audit must be an Audit; got str. Read a folder with noshadow.load first.
    """  # noqa: W505 - doctest compares the message on one line
    require_audit(audit)
    require_choice(by, RULES, "by")
    wanted, n = require_whole(count, "count", low=1), len(audit.records)
    if wanted > n:
        refuse("count", f"be at most {n}, the audit's records", wanted)
    if by == "random":
        return np.random.default_rng(whole_seed(seed)).choice(n, wanted, replace=False)
    if audit.ranked_by is None:
        refuse("audit", "rank its records", "one without a rank", "Take by='random', or audit again with scores.")
    if by == "exposure" and audit.ranked_by != EXPOSED:
        hint = "Audit again with models trained on other records, or take by='rank'."
        refuse("audit", "rank its records by exposure", f"one that ranks by {audit.ranked_by}", hint)
    order: Array = np.argsort(audit.records["rank"].to_numpy(), kind="stable")[:wanted]
    return order


@named_in_errors
def mislabel(labels: object, rows: object, *, classes: int | None = None, seed: int = 0) -> Array:
    """Labels in which chosen records have one that is not theirs, drawn uniformly from the others.

    A record with a wrong label can only be predicted by a model that remembers it.

    Args:
        labels: (n,) whole numbers 0 … classes − 1. rows: of the canaries, different row numbers.
        classes: number of classes; None: one more than the largest label. seed: of the draws.

    Returns:
        (n,) a copy; only `rows` differ.

    Raises:
        InputError: labels that are no class numbers, rows beyond them or repeated, one class.

    Cost: O(n).

    Example:
        >>> import noshadow as ns
        >>> changed = ns.canaries.mislabel([0, 1, 2, 1], [1, 3])
        >>> changed[[0, 2]].tolist(), bool((changed[[1, 3]] != 1).all())
        ([0, 2], True)
    """
    held = as_array(labels, "labels")
    if held.ndim != 1 or held.dtype.kind not in "iu" or (len(held) and int(held.min()) < 0):
        refuse("labels", "be (n,) whole numbers from 0", f"dtype {held.dtype}, shape {held.shape}")
    places = as_array(rows, "rows")
    inside = places.ndim == 1 and places.dtype.kind in "iu" and len(places) > 0 and int(places.min()) >= 0
    if not inside or int(places.max()) >= len(held) or len(np.unique(places)) < len(places):
        refuse("rows", f"be different row numbers below {len(held)}", f"shape {places.shape}")
    largest = int(held.max())
    known = largest + 1 if classes is None else require_whole(classes, "classes", low=2)
    if known < 2 or largest >= known:
        refuse("classes", f"be at least {max(largest + 1, 2)}", known)
    changed: Array = held.copy()
    moved = np.random.default_rng(whole_seed(seed)).integers(1, known, len(places))
    changed[places] = (held[places] + moved) % known
    return changed
