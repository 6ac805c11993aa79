"""From a trained model to an Audit: `audit`, `audit_signals`, and `Target` for the command line."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from noshadow._audit.gather import audit_view
from noshadow._audit.language import audit_language_model, require_language_arguments
from noshadow._audit.notes import deeper_notes
from noshadow._audit.options import GivenColumns, Options
from noshadow._audit.scale import in_logits, model_in_logits
from noshadow._audit.score_options import HEAD, NETWORK, SEQUENCES, checked_score_options, joined_options
from noshadow.arguments import BATCH_SIZE, PROGRESS
from noshadow.checks import (
    named_as,
    named_in_errors,
    refuse,
    require_weights,
    resolved_task,
)
from noshadow.results import Audit
from noshadow.scores.network.entry import network_scores
from noshadow.scores.result import RecordScores
from noshadow.signals import Signals
from noshadow.traces import given_traces
from noshadow.views import View, model_family, reader_of, view
from noshadow.views.loading import records_of
from noshadow.views.pairing import require_index_of
from noshadow.views.read_once import read_once
from noshadow.weight_decay import training_damping


@dataclass(frozen=True, eq=False)
class Target:
    """What a `package.module:function` hands to `noshadow audit`.

    It holds a model, its data and how it was trained.

    Attributes: as the arguments of `audit`; `train_fn(indices, seed) -> model` is for reference
        models.
    """

    model: object
    train: object
    test: object
    task: str = "auto"
    weight_decay: float | None = None
    ids: Sequence[object] | None = None
    groups: Sequence[object] | None = None
    loss_traces: object = None
    train_fn: Callable[..., object] | None = None
    test_groups: Sequence[object] | None = None
    output: str | int = "auto"
    output_scale: str = "auto"
    score_options: Mapping[str, Any] | None = None


@named_in_errors
def audit(
    model: object,
    train: object,
    test: object,
    *,
    task: str = "auto",
    layers: str | int = "last",
    layer: str = "auto",
    output: str | int = "auto",
    damping: float | str = "auto",
    weight_decay: float | None = None,
    fpr: float | str = "auto",
    ids: Sequence[object] | None = None,
    groups: Sequence[object] | None = None,
    test_groups: Sequence[object] | None = None,
    loss_traces: object = None,
    sample_weight: object = None,
    output_scale: str = "auto",
    score_options: Mapping[str, Any] | None = None,
    batch_size: int = BATCH_SIZE,
    device: object = None,
    progress: bool = PROGRESS,
    seed: int = 0,
) -> Audit:
    """Audit one trained model: how exposed it is, and which of its training records are.

    Args:
        model: nn.Module whose output comes from a final nn.Linear, a fitted scikit-learn estimator,
            or a causal language model of transformers (its records are sequences: see
            docs/language_models.md for what is scored).
        train: the training records, (X, y), a Dataset or a DataLoader (its order is fixed by us);
            for a language model what `sequence_losses` takes.
        test: records the model has not seen, in the same form; may be empty (no model-level risk
            then).
        task: "auto", "regression", "classification" or "binary".
        layers: "last" (exact), "all", or the number k of last layers with trainable parameters, by
            `network_scores` (an nn.Module only): the columns are then those of a Gauss–Newton step
            over these layers.
        layer: name of the head to audit instead of the model's own output.
        output: of a model that returns several tensors (a tuple, dict or object), the name or
            position of its output, or "auto" for the one that fits the targets and that a Linear
            gives; where more than one may be meant they are listed and refused.
        damping: "auto" (the training's own λ if known) or λ ≥ 0 on the sum over records.
        weight_decay: of the optimiser, for mean(loss) + (wd/2)‖θ‖²; gives λ.
        fpr: "auto" or the false-positive rate of the attack in question.
        ids: record ids, row numbers by default. groups: a group name a training record.
            test_groups: of the test records; with both, `group_risk` says which group bears the
                risk.
        loss_traces: (n, epochs + 1) losses over training, a LossTraces or the path of its file;
            adds `lt_iqr`. Rows are matched by id when the traces have ids, else by position; the
            last recording must be the audited model's.
        sample_weight: (n,) weights the training used.
        output_scale: "auto"; or "logits" or "probabilities", what an nn.Module's outputs are where
            no Linear gives them. A head's own outputs are logits.
        score_options: options handed on to the function behind the record scores: of
            `record_scores` (columns, method, refine, precision, block_size, max_memory) for
            layers="last", of `network_scores` (method, outputs, dimension, unvectorised,
            max_memory) for more layers; class_basis and max_memory for a language model. For
            instance {"unvectorised": "loop"}.
        batch_size: records per forward pass. device: where to run the model.
        progress: bars on a terminal. seed: of bootstrap intervals and of data transforms.

    Returns:
        Audit.

    Raises:
        InputError: an argument breaks a rule. NumericalError: a factorisation failed.

    Cost: one forward pass over both splits and `record_scores`. More layers walk the training
        records several times, from memory where their inputs take at most 1 GB.

    Example:
        >>> import noshadow as ns
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> x, y = load_iris(return_X_y=True)
        >>> result = ns.audit(
        ...     LogisticRegression(max_iter=1000).fit(x[::2], y[::2]),
        ...     (x[::2], y[::2]),
        ...     (x[1::2], y[1::2]),
        ... )
        >>> result.ranked_by, len(result.records)
        ('shift', 75)
    """
    reader = reader_of(model)
    form = None if reader is None else reader.form
    route = SEQUENCES if form == "sequences" else HEAD if layers == "last" else NETWORK
    handed_on = checked_score_options(score_options, route)
    options = Options(task, damping, weight_decay, fpr, seed, progress, "audit", layers, output_scale, handed_on)
    if layers != "last" and form in (None, "table"):
        refuse("layers", "be 'last' for a model that is no nn.Module", repr(layers), "Its last layer is scored exactly.")
    given = GivenColumns(ids, groups, test_groups, given_traces(loss_traces))
    if form == "sequences":
        require_language_arguments(
            options,
            layer=(layer, "auto"),
            output=(output, "auto"),
            sample_weight=(sample_weight, None),
            output_scale=(output_scale, "auto"),
        )
        return audit_language_model(model, train, test, options, given, batch_size=batch_size, device=device)
    started = time.perf_counter()
    # Many layers walk the training records several times: only the view's walk reads them.
    records = train if layers == "last" else read_once(records_of(train, "train", seed=seed))
    # The view and the scores over many layers read the model and its records alike.
    reading: dict[str, Any] = {
        "weight_decay": weight_decay,
        "layer": layer,
        "output": output,
        "batch_size": batch_size,
        "device": device,
        "progress": progress,
        "seed": seed,
    }
    seen = view(model, records, test, task=task, **reading)
    seen = model_in_logits(seen, output_scale, is_module=form == "batches")
    seen = replace(seen, inputs=dict(seen.inputs) | {"family": model_family(model)})
    if sample_weight is not None:
        if (seen.inputs.get("ids") or {}).get("train") == "index":
            require_index_of(seen.train, sample_weight, "sample_weight")
        seen = replace(seen, sample_weight=require_weights(sample_weight, len(seen.train)))
    signal_seconds = time.perf_counter() - started

    def layered(settled: str) -> RecordScores:
        how: dict[str, Any] = {"layers": layers, "damping": damping, "sample_weight": seen.sample_weight}
        return network_scores(model, records, task=settled, **how, **reading, **handed_on)

    found = audit_view(
        seen,
        options,
        given,
        signal_seconds=signal_seconds,
        layered_scores=None if layers == "last" else layered,
    )
    return replace(found, notes=found.notes + deeper_notes(model, found.task, layers))


@named_in_errors
def audit_signals(
    train: Signals,
    test: Signals,
    *,
    task: str = "auto",
    damping: float | str = "auto",
    weight_decay: float | None = None,
    fpr: float | str = "auto",
    ids: Sequence[object] | None = None,
    groups: Sequence[object] | None = None,
    test_groups: Sequence[object] | None = None,
    loss_traces: object = None,
    fit_intercept: bool = True,
    penalize_intercept: bool = True,
    sample_weight: object = None,
    output_scale: str = "auto",
    family: str = "auto",
    score_options: Mapping[str, Any] | None = None,
    progress: bool = PROGRESS,
    seed: int = 0,
) -> Audit:
    """Audit any framework's model from arrays: Signals of the training records and of unseen ones.

    Arguments as in `audit`; `fit_intercept` and `penalize_intercept` describe the head the outputs
    came from. Without features the model-level risk remains and record scores read "not
    applicable".

    `output_scale` says whether the outputs of a classifier are "logits" or "probabilities" (log p
    is then taken, with a finding). "auto" recognises rows of probabilities; log-probabilities of
    classes are logits; one column within [0, 1] could be either and is asked for, unless the
    features or the labels settle it.

    `family` is the kind of model behind the outputs: "linear" and "network" are those the attack's
    rate is predicted for, any other name ("random forest") is not. "auto" takes outputs that are a
    linear function of the features for a linear head; without such features nothing is known, and
    nothing is predicted.
    """
    handed_on = checked_score_options(score_options, HEAD)
    options = Options(task, damping, weight_decay, fpr, seed, progress, "audit_signals", output_scale=output_scale, score_options=handed_on)
    given = GivenColumns(ids, groups, test_groups, given_traces(loss_traces))
    for name, split in (("train", train), ("test", test)):
        if not isinstance(split, Signals):
            refuse(name, "be Signals", type(split).__name__, "Build it with ns.Signals(features, outputs, targets).")
    if train.outputs.shape[1] != test.outputs.shape[1]:
        refuse("test", f"have the {train.outputs.shape[1]} outputs of train", f"{test.outputs.shape[1]}")
    if not isinstance(family, str) or not family:
        refuse("family", "be 'auto' or a name", repr(family))
    resolved = resolved_task(task, train.outputs, train.targets)
    seen = View(
        train=train,
        test=test,
        task=resolved,
        head=None,
        fit_intercept=fit_intercept,
        penalize_intercept=penalize_intercept,
        penalty=training_damping(options.weight_decay, resolved, *train.outputs.shape),
        sample_weight=None if sample_weight is None else require_weights(sample_weight, len(train)),
        class_names=None,
        not_applicable=None if train.features is not None else "no features were given, and record scores need the last layer's inputs",
        notes=(),
        weights_sha256="",
        inputs={"ids": {name: "given" if split.has_ids else None for name, split in (("train", train), ("test", test))}}
        | ({} if family == "auto" else {"family": family}),
    )
    seen = in_logits(seen, output_scale)
    return audit_view(seen, options, given, signal_seconds=0.0)


@named_as("audit")
def audit_target(target: Target, **options: Any) -> Audit:
    """Audit what a user's function returned.

    Options complete what the target states and may not contradict it.
    """
    names = ("task", "weight_decay", "output", "output_scale", "ids", "groups", "test_groups", "loss_traces")
    stated = {name: getattr(target, name) for name in names}
    for name, open_value in (("task", "auto"), ("weight_decay", None), ("output", "auto"), ("output_scale", "auto")):
        asked = options.pop(name, open_value)
        if stated[name] == open_value:
            stated[name] = asked
        elif asked not in (open_value, stated[name]):
            refuse(name, f"agree with the Target's {stated[name]!r}", repr(asked), "Leave one of the two out.")
    stated["score_options"] = joined_options(target.score_options, options.pop("score_options", None))
    traces = options.pop("loss_traces", None)
    if traces is not None and stated["loss_traces"] is not None:
        refuse("loss_traces", "come from one place", f"'{traces}' beside those of the Target", "Leave one of the two out.")
    stated["loss_traces"] = stated["loss_traces"] if traces is None else traces
    return audit(target.model, target.train, target.test, **stated, **options)
