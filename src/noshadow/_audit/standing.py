"""Whether outputs that were handed in are those of another model about the same records.

The audited model is the oracle: it says the same as a related model about most records.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment

from noshadow._audit.exposing import statistic_of
from noshadow._audit.settled import Settled
from noshadow._exposure.odd_rows import OPPOSITE
from noshadow.checks import Array, NotApplicable, refuse
from noshadow.joins import FEWEST_RANKED, LEAST_CORRELATION
from noshadow.losses import correct_predictions, hard_labels
from noshadow.metrics import spearman

# Margins beyond it are lost in single-precision probabilities, and so is their order.
SATURATED = 8.0
SAME_MARGIN = 1e-3
SAME_PREDICTION = 1e-6  # of a prediction, as a share of the targets' spread
SINGLE_PRECISION = 2e-7  # rounding of a prediction, as a share of its size
CLEARLY = 3.0  # standard errors
WEAK = 0.3  # rank correlation below which a reader is told
FOLLOWS = 0.3  # rank correlation of predictions with targets from which a model has learnt something
FAR_BETTER = 1.5  # times as many records right, for another order of classes


def are_same(outputs: Array, others: Array, targets: Array, task: str) -> bool:
    """Whether two outputs (n, m) of the same records are one model's, up to rounding."""
    if task == "regression":
        room = SAME_PREDICTION * (float(targets.std()) or 1.0) + SINGLE_PRECISION * float(np.abs(targets).max())
        return bool((np.abs(outputs - others) <= room).all())
    one, other = (statistic_of(values, targets, task) for values in (outputs, others))
    if min(float(np.abs(one).min()), float(np.abs(other).min())) >= SATURATED:
        return bool(np.allclose(one, other, rtol=1e-6, atol=0))
    cut = [np.clip(values, -SATURATED, SATURATED) for values in (one, other)]
    return bool((np.abs(cut[0] - cut[1]) <= SAME_MARGIN).all())


def require_other_model(outputs: Array, found: Settled, argument: str, hint: str) -> None:
    """Refuse outputs on the training records that are the audited model's own, in any order."""
    own, targets = found.train.outputs, found.targets
    if are_same(outputs, own, targets, found.task):
        refuse(argument, "be another model's outputs", "the audited model's own", hint)
    # Logits are known up to a shift per record.
    theirs, ours = (values - values.mean(1, keepdims=True) * (values.shape[1] > 1) for values in (outputs, own.astype(np.float64)))
    reordered = bool(np.allclose(np.sort(theirs, axis=0), np.sort(ours, axis=0), rtol=1e-5, atol=1e-7))
    if reordered and bool((ours.std(0) > 0).any()):
        refuse(argument, "be another model's outputs", "the audited model's own in another order", hint)


def require_same_records(outputs: Array, found: Settled, argument: str, hint: str) -> tuple[str, ...]:
    """Refuse outputs whose rows or classes are in another order than the audited model's.

    Returns a note where the two models agree weakly, which may be so.

    Args:
        outputs: (n, m) logits or predictions, in the columns of the audited model. found: its
            records. argument, hint: as in `refuse`.

    Raises:
        InputError: another order of classes gets far more records right; margins fall where the
            audited model's rise; no relation to the records at all.
    """
    if found.task != "regression":
        _require_class_order(outputs, found, argument, hint)
    related = agreement(outputs, found)
    if len(found.train) < FEWEST_RANKED or related is None:
        return ()
    if related < OPPOSITE:
        got = f"outputs that contradict it (rank correlation {related:.2f})"
        refuse(argument, "agree with the audited model about most records", got, hint)
    if related < LEAST_CORRELATION and not follows_targets(outputs, found):
        got = f"outputs without relation to its records (rank correlation {related:.2f}, right no more often than by chance)"
        refuse(argument, "speak of the audited model's records in their order", got, hint)
    if related < WEAK:
        return (
            f"{argument} and the audited model agree weakly about the records (rank correlation {related:.2f}): are these its records?",
        )
    return ()


def agreement(outputs: Array, found: Settled) -> float | None:
    """Spearman correlation of margins, or of predictions in a regression (mean over outputs).

    None where one side is constant.
    """
    own, task = found.train.outputs, found.task
    try:
        if task == "regression":
            return float(np.mean([spearman(own[:, k], outputs[:, k]) for k in range(own.shape[1])]))
        return spearman(*(statistic_of(values, found.targets, task) for values in (own, outputs)))
    except NotApplicable:
        return None


def follows_targets(outputs: Array, found: Settled) -> bool:
    """Whether outputs fit the targets better than outputs of other records would.

    In a regression this asks whether the audited model has learnt anything that they could repeat.
    """
    if found.task == "regression":
        try:
            return spearman(found.train.outputs[:, 0], found.targets[:, 0]) < FOLLOWS
        except NotApplicable:
            return True
    predicted, labels = _classes(outputs, found)
    chance = sum(float((predicted == c).mean()) * float((labels == c).mean()) for c in np.unique(labels))
    right = float(correct_predictions(outputs, found.targets, found.task).mean())
    return right > chance + CLEARLY * float(np.sqrt(chance * (1 - chance) / len(labels)))


def _require_class_order(outputs: Array, found: Settled, argument: str, hint: str) -> None:
    """Refuse classes in another order.

    The best order is found on every other record and judged on the rest, so that chance alone finds
    none.
    """
    predicted, labels = _classes(outputs, found)
    m = max(outputs.shape[1], 2)
    counts = np.zeros((m, m))
    np.add.at(counts, (predicted[::2], labels[::2]), 1)
    order = linear_sum_assignment(counts, maximize=True)[1]
    kept, moved = (guess[1::2] == labels[1::2] for guess in (predicted, order[predicted]))
    if len(kept) < FEWEST_RANKED:
        return
    gain = moved.astype(np.float64) - kept
    error = float(gain.std()) / np.sqrt(len(gain))
    if gain.mean() > CLEARLY * error and moved.mean() > FAR_BETTER * kept.mean():
        got = f"columns that get {kept.mean():.0%} of the records right, and {moved.mean():.0%} in another order"
        refuse(argument, "have the classes in the order of the model's", got, hint)


def _classes(outputs: Array, found: Settled) -> tuple[Array, Array]:
    """Predicted classes and labels, whole numbers (n,)."""
    labels = hard_labels(found.targets)
    if found.task == "binary":
        return (outputs[:, 0] > 0).astype(np.int64), (labels > 0.5).astype(np.int64)
    return outputs.argmax(1), labels.astype(np.int64)
