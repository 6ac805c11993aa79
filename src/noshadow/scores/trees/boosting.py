"""Record scores of boosted trees: leverage, influence, loo and shift with their structure fixed."""

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from noshadow.checks import Array, NotApplicable
from noshadow.losses import record_losses, record_margins
from noshadow.scores.trees.left_out import LeftOut, left_out
from noshadow.scores.trees.objectives import OBJECTIVES
from noshadow.views.boosted import Boosted
from noshadow.views.leaf_counts import LeafCounts
from noshadow.views.reader import OtherRecords

METHOD = "leaf values"
# Raw outputs that add up in another order than the library's: some roundings of float32.
SAME_OUTPUT = 1e-4


@dataclass(frozen=True, eq=False)
class LeafScores:
    """Scores of n training records of an ensemble of trees; larger = riskier in every column.

    Attributes:
        columns: name → float64 (n,). method: how they were obtained. notes: sentences a reader must
            see. facts: how far the model agrees with its records, ready for JSON. leaves: how many
            records share the leaves of its trees. yielding_shift: (n,) of a classifier.
    """

    columns: dict[str, Array]
    method: str = METHOD
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    leaves: LeafCounts | None = None
    yielding_shift: Array | None = None


def boosting_scores(training: Boosted) -> LeafScores:
    """Exposure of each training record of a boosted model, its trees' structure fixed.

    In every round record i's leaf has the value −η·G/(H + λ), and without it −η·(G − g_i)/(H −
    h_i + λ), the other records' gradients as recorded (`left_out`). From the record's own raw
    outputs f with and f₋ᵢ without it:

    - shift = φ(f) − φ(f₋ᵢ), φ the log-odds of its class; in a regression |y − f₋ᵢ| − |y − f|;
    - loo = ℓ(f₋ᵢ) − ℓ(f), ℓ the cross-entropy, or the squared error of predictions;
    - influence = the same to first order in the record's weight;
    - leverage = mean over the rounds of h_i/(H + λ), in the trees of its class; in [0, 1];
    - yielding_shift = ±√(|φ(f) − φ(f̃₋ᵢ)| · ℓ(f̃₋ᵢ)) of a classifier, with the sign of the fall; f̃₋ᵢ
      is f₋ᵢ where splits stand as far as other records pay for them (`yielding_steps`). It orders.

    Args:
        training: the rounds of a fitted model, from a reader of `noshadow.views`.

    Returns:
        LeafScores. Its facts hold the largest deviation of a rebuilt leaf value from the model's.

    Raises:
        OtherRecords: the rebuilt leaves are not the model's: it was fitted on other records or
            weights, refitted or pruned.
        NotApplicable: the same, where settings that are not read explain it as well.

    Exact when: the leaf values are refitted without the record and all else stays as recorded.
    Approximates: a training without the record, whose later gradients and trees would change too.
    Cost: O(n · rounds · outputs), one pass; memory O(n · outputs) and one block of leaf numbers.
    Reference: [BOOST], whose BoostIn and LeafInfluence are first-order relatives.
    """
    found = left_out(training)
    _require_own_records(training, found)
    raw, targets = training.margins, training.targets
    objective = OBJECTIVES[training.objective]
    yielding = None
    if objective.predictions is None:
        columns, yielding = _classified(raw * training.logit_scale, found, training)
    else:
        with_it, without = objective.predictions(raw[:, 0]), objective.predictions((raw - found.fall)[:, 0])
        slope = with_it if training.objective != "squared" else np.ones_like(with_it)
        columns = {
            "influence": 2 * (targets - with_it) * slope * found.first_order[:, 0],
            "loo": (targets - without) ** 2 - (targets - with_it) ** 2,
            "shift": np.abs(targets - without) - np.abs(targets - with_it),
        }
    facts = {
        "library": training.library,
        "rounds": training.count,
        "largest_leaf_value": found.largest_step,
        "largest_deviation": found.deviation,
        "alone_in_a_leaf": int((found.leaves.alone > 0).sum()),
        "left_out_of_some_round": int((found.rounds_inside < training.count).sum()),
    }
    return LeafScores({"leverage": found.share} | columns, METHOD, training.notes, facts, found.leaves, yielding)


def stage_scores(training: Boosted, rounds: int) -> LeafScores:
    """The scores of the model after its first rounds, as `boosting_scores` gives them of all.

    Cost: two passes over these rounds.
    """
    margins = np.array(np.broadcast_to(training.start, training.margins.shape), dtype=training.margin_dtype)
    for one in islice(training.rounds(), rounds):
        for tree in one.trees:
            margins[:, tree.output] += tree.values[tree.leaves].astype(training.margin_dtype)
    first = replace(training, rounds=lambda: islice(training.rounds(), rounds), count=rounds, margins=margins.astype(np.float64))
    return boosting_scores(first)


def _classified(logits: Array, found: LeftOut, training: Boosted) -> tuple[dict[str, Array], Array]:
    """Influence, loo and shift of class probabilities, and the yielding shift.

    One raw output is the logit of class 1.
    """
    labels = training.targets.astype(np.int64)
    fall, yielding, first = (part * training.logit_scale for part in (found.fall, found.yielding, found.first_order))
    if logits.shape[1] == 1:
        logits, fall, yielding, first = (np.concatenate([np.zeros_like(part), part], axis=1) for part in (logits, fall, yielding, first))
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    residuals = -p
    residuals[np.arange(len(p)), labels] += 1
    task = "classification"
    own, lost = record_margins(logits, labels, task), record_losses(logits - yielding, labels, task)
    moved = own - record_margins(logits - yielding, labels, task)
    columns = {
        "influence": (residuals * first).sum(1),
        "loo": record_losses(logits - fall, labels, task) - record_losses(logits, labels, task),
        "shift": own - record_margins(logits - fall, labels, task),
    }
    return columns, np.sign(moved) * np.sqrt(np.abs(moved) * lost)


def _require_own_records(training: Boosted, found: LeftOut) -> None:
    """Let the model say whether these are the records, weights and settings it was fitted with."""
    size = max(1.0, float(np.abs(training.margins).max(initial=0.0)))
    if found.margin_deviation > SAME_OUTPUT * size:
        raise NotApplicable(
            f"the leaf values of this {training.library} model do not add up to its own outputs (largest difference "
            f"{found.margin_deviation:.3g})"
        )
    if found.excess > 1:
        # Settings that bend leaves explain it as well as other records would.
        kind = NotApplicable if training.unread else OtherRecords
        settings = f" ({training.unread})" if training.unread else ""
        raise kind(
            f"leaf values rebuilt from these records differ from the {training.library} model's own by up to {found.deviation:.3g} (its "
            f"largest is {found.largest_step:.3g}): it was fitted on other records or with sample weights that were not given "
            f"(sample_weight=), was changed after its training, or keeps settings that are not read here{settings}"
        )
