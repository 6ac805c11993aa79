"""Out-of-fold outputs as a source: what each record's cross-validation model says without it."""

import time
from functools import partial

import numpy as np

from noshadow._audit.exposing import Known, SourceOf, statistic_of
from noshadow._audit.options import Options
from noshadow._audit.output_files import GivenOutputs
from noshadow._audit.settled import Settled
from noshadow._audit.standing import require_other_model, require_same_records
from noshadow._exposure import Source
from noshadow._exposure.sources import FOLDS
from noshadow.checks import Array, refuse
from noshadow.losses import hard_labels, record_losses
from noshadow.output_scale import logits_of, probable_rows
from noshadow.results import Evidence
from noshadow.sizing import LEAST_RECORDS
from noshadow.views.pairing import require_index_of

ARGUMENT = "out_of_fold"
SOURCE = "out-of-fold outputs"
CLEARLY = 3.0  # standard errors by which labels must speak for logits or for probabilities
_LABELS = "Ask cross_val_predict for 'predict_proba' or 'decision_function' instead."


def out_of_fold_source(given: GivenOutputs | None, options: Options) -> tuple[SourceOf, ...]:
    """The source that out-of-fold outputs are; none where none were given."""
    return () if given is None else (partial(out_of_fold_known, given, options),)


def out_of_fold_known(given: GivenOutputs, options: Options, found: Settled) -> Known:
    """One margin per record of a model that was not trained on it, and `out_of_fold_loss`.

    No test record has an output of these models, so that they give the order of the records only.

    Args:
        given: logits, probabilities or predictions, a row per training record. options: of the
            audit. found: the audited model's records, which the rows are held against.

    Raises:
        InputError: outputs of another shape or scale, predicted labels, the audited model's own
            outputs, rows or classes in another order.
    """
    started = time.perf_counter()
    if (found.seen.inputs.get("ids") or {}).get("train") == "index":
        require_index_of(found.train, given.given, ARGUMENT)
    values = given.in_order_of(found.train.ids, ARGUMENT)
    outputs = _on_models_scale(values, found)
    if (outputs == outputs[:1]).all() and not (found.train.outputs == found.train.outputs[:1]).all():
        refuse(ARGUMENT, "differ between records", "the same output for every record", _LABELS if found.task != "regression" else "")
    require_other_model(outputs, found, ARGUMENT, "Give the outputs of models that were not trained on the record.")
    hint = "Give the rows in the order of train, or a file with the ids beside them, and classes in the order of the model's."
    notes = require_same_records(outputs, found, ARGUMENT, hint)
    losses = record_losses(outputs, found.targets, found.task)
    margins = None
    if found.task != "regression" or found.targets.shape[1] == 1:
        margins = statistic_of(outputs, found.targets, found.task)[None, :]
        if len(found.train) >= LEAST_RECORDS and margins.min() == margins.max():
            refuse(ARGUMENT, "differ between records", f"the margin {margins[0, 0]:.6g} for every record")
    inside = None if margins is None else np.zeros(margins.shape, dtype=bool)
    source = Source(SOURCE, margins=margins, membership=inside, role=FOLDS)
    stamp = {"trainings": 0.0, "matched_by": "position" if given.ids is None else "id"}
    return Known(source, Evidence(SOURCE, {"out_of_fold_loss": losses}, notes=notes, stamp=stamp, seconds=time.perf_counter() - started))


def _on_models_scale(values: Array, found: Settled) -> Array:
    """Logits or predictions (n, m) in the audited model's columns."""
    m = found.train.outputs.shape[1]
    if found.task == "regression":
        if values.shape[1] != m:
            refuse(ARGUMENT, f"have the model's {m} outputs per record", f"{values.shape[1]} columns")
        return values
    two_classes = m <= 2
    if values.shape[1] == 1 and two_classes:
        logit = _one_logit(values, found)
        return logit if m == 1 else np.column_stack([np.zeros(len(logit)), logit[:, 0]])
    if values.shape[1] != (2 if m == 1 else m):
        rule = f"have {'1 or 2 columns' if two_classes else f'the model’s {m} columns, one per class'}"
        refuse(ARGUMENT, rule, f"{values.shape[1]}", _LABELS if values.shape[1] == 1 else "")
    rows = _logit_rows(values)
    return rows if m > 1 else rows[:, 1:] - rows[:, :1]


def _logit_rows(values: Array) -> Array:
    """Logits (n, k) of logits, log-probabilities or rows of probabilities."""
    if probable_rows(values) == len(values):
        return logits_of([values], "classification")[0][0]
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        got = f"rows that do not sum to one with all values in [{low:.3g}, {high:.3g}]"
        refuse(ARGUMENT, "be logits, or probabilities that sum to one in every row", got)
    return values


def _one_logit(values: Array, found: Settled) -> Array:
    """The logit (n, 1) of class 1 from one column: a logit, or a probability within [0, 1].

    Within [0, 1] it may be either, and the labels decide: as a logit it would never speak for class
    0.
    """
    if np.isin(values, (0.0, 1.0)).all():
        refuse(ARGUMENT, "be probabilities or logits", "predicted labels, all 0 or 1", _LABELS)
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 1:
        return values
    as_probability = logits_of([values], "binary")[0][0]
    labels = hard_labels(found.targets).astype(np.float64)
    gains = record_losses(values, labels, "binary") - record_losses(as_probability, labels, "binary")
    error = float(gains.std()) / np.sqrt(len(gains))
    if abs(float(gains.mean())) <= CLEARLY * error:
        got = f"one column with all values in [{low:.3g}, {high:.3g}], which may be either"
        refuse(ARGUMENT, "be recognisable as logits or probabilities", got, "Give the probabilities of both classes.")
    return as_probability if gains.mean() > 0 else values
