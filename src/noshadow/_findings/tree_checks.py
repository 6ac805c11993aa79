"""Checks on how many training records share the leaves of trees."""

import numpy as np

from noshadow._findings.outcome import Limits, Outcome, judged, not_applicable
from noshadow._findings.rule import rule
from noshadow._known.audited import Audited

_NO_LEAVES = "the model has no trees whose leaves were rebuilt from its training records"
_AGAIN = "fit again and compare the two audits."
# What makes leaves larger, by the family that an audit names; scikit-learn's trees share one name.
_LARGER_LEAVES = {
    "XGBoost": "lower max_depth, or raise min_child_weight, which is a sum of curvatures and no number of records",
    "LightGBM": "raise min_child_samples (min_data_in_leaf), or lower num_leaves",
    "CatBoost": "make the trees shallower, or raise min_data_in_leaf with the grow_policy Depthwise or Lossguide, "
    "since symmetric trees do not read it",
}
_SCIKIT_LEARN = "raise min_samples_leaf, or lower max_depth"


@rule(
    "NS016",
    "alone-in-leaves",
    "medium",
    found_when="> {share} of the records are the only training record of their leaf in most trees that saw them",
    next_step=f"Such a leaf repeats one person's target: {_SCIKIT_LEARN}, {_AGAIN}",
    limits={"share": 0.01},
)
def alone_in_leaves(audit: Audited, limits: Limits) -> Outcome:
    """NS016: records that share their leaves with nobody."""
    fact = audit.provenance.get("inputs", {}).get("alone_in_leaves")
    if fact is None:
        return not_applicable(_NO_LEAVES)
    count, n, trees = int(fact["records"]), int(fact["of"]), int(fact["trees"])
    among = "their leaf" if trees == 1 else f"their leaf in most of those of {trees} trees that saw them"
    sentence = f"{count} of {n} records are the only training record of {among}."
    found = judged(count > limits["share"] * n, count / n, sentence)
    if found.status != "found":
        return found
    ids = np.asarray(audit.records["id"])[np.array(fact["first"], dtype=np.int64)]
    step = f"Such a leaf repeats one person's target: {_larger_leaves(audit)}, {_AGAIN}"
    return Outcome("found", sentence, found.figure, examples=tuple(map(str, ids)), next_step=step)


@rule(
    "NS017",
    "small-leaves",
    "low",
    found_when="> {share} of the records share their leaf with fewer than {k} training records, themselves counted (leaf_size < {k})",
    next_step=f"Few people stand behind such a leaf's answer: {_SCIKIT_LEARN}, {_AGAIN}",
    # k = 5 is judgement: a usual smallest cell of tables about people.
    limits={"share": 0.05, "k": 5.0},
)
def small_leaves(audit: Audited, limits: Limits) -> Outcome:
    """NS017: the k-anonymity of leaves."""
    fact = audit.provenance.get("inputs", {}).get("leaves")
    if fact is None or "leaf_size" not in audit.records:
        return not_applicable(_NO_LEAVES)
    k, sizes = limits["k"], audit.records["leaf_size"].to_numpy(np.float64)
    rows = np.flatnonzero(sizes < k)
    rows = rows[np.argsort(sizes[rows], kind="stable")]
    small = sum(fact["by_size"][: int(k) - 1])
    trees = "the tree" if fact["trees"] == 1 else f"{fact['trees']} trees"
    typical = "" if fact["trees"] == 1 else f"{fact['depth']:g} in most, "
    sentence = (
        f"{len(rows)} of {len(sizes)} records share their leaf with fewer than {k:g} training records, themselves counted. Of the "
        f"{fact['leaves']:,} leaves of {trees} (depth {typical}{fact['deepest']} at most), {small:,} hold fewer than {k:g}."
    )
    found = judged(len(rows) > limits["share"] * len(sizes), len(rows) / len(sizes), sentence, rows)
    step = f"Few people stand behind such a leaf's answer: {_larger_leaves(audit)}, {_AGAIN}"
    return Outcome(found.status, sentence, found.figure, found.rows, next_step=step if found.status == "found" else None)


def _larger_leaves(audit: Audited) -> str:
    """What makes leaves larger in the library that the model comes from."""
    # "XGBoost with parallel trees" is of XGBoost, too.
    library = str(audit.provenance.get("inputs", {}).get("family")).partition(" ")[0]
    return _LARGER_LEAVES.get(library, _SCIKIT_LEARN)
