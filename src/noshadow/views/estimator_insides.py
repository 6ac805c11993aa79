"""What a fitted estimator keeps of its training: its stages, its bags, its leaves, its records.

Families say how it is read; here the tables are brought to them and the answers to one scale.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from noshadow.checks import Array, NotApplicable, require_weights
from noshadow.views.boosted import Boosted
from noshadow.views.estimator_family import EstimatorFamily, Refitted
from noshadow.views.estimator_tables import Fitted, raw_outputs, record_pair, record_targets, taken_apart, transformed
from noshadow.views.reader import LeftOut, OtherRecords, OutOfBag
from noshadow.views.view import Settings

# Share of the outputs' size by which a formula may differ from the model: solvers stop there.
SAME_MODEL = 1e-4


def estimator_history(family: EstimatorFamily, model: Any, data: object, *, settings: Settings) -> Iterator[Array]:
    """Outputs (n, m) after each stage of the training, on the scale of `estimator_outputs`."""
    assert not isinstance(family.history, NotApplicable)
    fitted = taken_apart(family, model, settings)
    X, _, _ = record_pair(fitted, data, "data")
    stages = family.history(fitted.last, transformed(fitted, X, "data"), fitted.task)
    # Not a generator itself: data that cannot be read are refused while the caller is running.
    return (raw_outputs(values, fitted.task)[0] for values in stages)


def estimator_out_of_bag(family: EstimatorFamily, model: Any, data: object, *, settings: Settings) -> OutOfBag:
    """What the parts trained without each record say of it, on the scale of `estimator_outputs`."""
    assert not isinstance(family.out_of_bag, NotApplicable)
    fitted = taken_apart(family, model, settings)
    X, _, _ = record_pair(fitted, data, "data")
    values, parts = family.out_of_bag(fitted.last, transformed(fitted, X, "data"), fitted.task)
    return OutOfBag(raw_outputs(values, fitted.task)[0], parts, len(fitted.last.estimators_))


def estimator_left_out(family: EstimatorFamily, model: Any, data: object, *, sample_weight: Array | None, settings: Settings) -> LeftOut:
    """What the model would say of each record without it, on the scale of `estimator_outputs`.

    Raises:
        NotApplicable: there is no formula for this model, or its solver gave up on the way.
        OtherRecords: the formula, applied to all records, does not give what the model says.
    """
    assert not isinstance(family.left_out, NotApplicable)
    fitted = taken_apart(family, model, settings)
    X, y, _ = record_pair(fitted, data, "data")
    targets = record_targets(fitted, y, "data")
    table = transformed(fitted, X, "data")
    weight = None if sample_weight is None else require_weights(sample_weight, len(targets))
    found = family.left_out(fitted.last, table, targets, fitted.task, weight)
    says = family.outputs(fitted.last, table, fitted.task)
    without, notes = _as_the_model_says(found, says, fitted)
    outputs = raw_outputs(without, fitted.task)[0].reshape(len(targets), -1)
    return LeftOut(outputs, found.how, (*found.notes, *notes), found.leaves, found.parts)


def _as_the_model_says(found: Refitted, says: Array, fitted: Fitted) -> tuple[Array, tuple[str, ...]]:
    """Answers without each record, held against what the model says with all of them; notes.

    What a solver left of its way to the minimum is kept on both sides, so that the difference of
    both is that of the formula.
    """
    spread = says.std() if fitted.task == "regression" else 1.0
    away = np.abs(found.whole - says)
    apart = away > SAME_MODEL * (np.abs(says) + spread)
    if not apart.any():
        return found.without, ()
    if found.solver is not None and found.solver.unsolved:
        raise NotApplicable(
            f"{fitted.name} {found.solver.unsolved}: records leave a model by a formula at its minimum only. Raise max_iter or scale the "
            "columns"
        )
    if found.solver is None or not found.solver.own:
        raise OtherRecords(
            f"made again from these records, {fitted.name} says something else for {int(apart.reshape(len(says), -1).any(1).sum())} of "
            f"them: it was fitted on other records, in another order, or with sample weights that were not given (sample_weight=)"
        )
    note = f"{fitted.name} stopped within its tolerance, up to {away.max() / spread:.1g} of its outputs' spread away from its minimum; "
    return found.without + (says - found.whole), (f"{note}records leave it by the formula of the minimum",)


def estimator_boosted(family: EstimatorFamily, model: Any, data: object, *, weights: Array | None, settings: Settings) -> Boosted:
    """The rounds of the training on these records, with the leaf of each."""
    assert not isinstance(family.boosted, NotApplicable)
    fitted = taken_apart(family, model, settings)
    X, y, _ = record_pair(fitted, data, "data")
    targets = record_targets(fitted, y, "data")
    if targets.ndim != 1:
        raise NotApplicable(f"{fitted.name} predicts several values per record")
    return family.boosted(fitted.last, transformed(fitted, X, "data"), targets, weights)
