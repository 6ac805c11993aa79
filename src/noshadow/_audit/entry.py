"""From a trained model to an Audit."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from noshadow._audit.boosting import leaf_scores
from noshadow._audit.evidence import Scores
from noshadow._audit.gather import audit_view
from noshadow._audit.given_models import base_of, models_given
from noshadow._audit.language import audit_language_model, require_language_arguments
from noshadow._audit.near_twins import given_inputs
from noshadow._audit.notes import deeper_notes
from noshadow._audit.options import GivenColumns, Options, source_of
from noshadow._audit.other_models import base_source, checkpoint_source
from noshadow._audit.out_of_fold import out_of_fold_source
from noshadow._audit.output_files import given_outputs
from noshadow._audit.scale import model_in_logits
from noshadow._audit.score_options import HEAD, NETWORK, SEQUENCES, checked_score_options
from noshadow._audit.sequence_sources import OtherModels
from noshadow._audit.stages import stage_evidence
from noshadow._audit.target import Target, stated_by
from noshadow._audit.trained_sources import Subject, trained_sources
from noshadow._audit.trainings import checked_trainings, traced_epochs
from noshadow._audit.without_records import without_records
from noshadow.arguments import BATCH_SIZE, PROGRESS
from noshadow.checks import named_in_errors, refuse, require_weights
from noshadow.reference import References
from noshadow.results import Audit
from noshadow.scores.network.entry import network_scores
from noshadow.traces import given_traces
from noshadow.views import View, model_family, reader_of, view
from noshadow.views.loading import records_of
from noshadow.views.pairing import require_index_of
from noshadow.views.read_once import read_once
from noshadow.views.wrapped_module import module_in


@named_in_errors
def audit(
    model: object,
    train: object = ...,
    test: object = ...,
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
    checkpoint: object = None,
    out_of_fold: object = None,
    base: object = None,
    tokenizer: object = None,
    folds: int | None = None,
    reference_models: int | str | Path | References | None = None,
    short_references: int | None = None,
    stop: float | int | None = None,
    train_fn: Callable[..., Any] | None = None,
    work: str | Path | None = None,
    training_options: Mapping[str, Any] | None = None,
    batch_size: int = BATCH_SIZE,
    device: object = None,
    progress: bool = PROGRESS,
    seed: int = 0,
) -> Audit:
    """Audit one trained model: how exposed it is, and which of its training records are.

    Args:
        model: nn.Module whose output comes from a final nn.Linear, a fitted scikit-learn estimator,
            or a language model of transformers, causal or sequence-to-sequence, with adapters of
            PEFT or without (its records are sequences: see docs/language_models.md for what is
            scored); or a Target, which holds a model, its data and options, so that train and test
            are left out.
        train: the training records, (X, y), a Dataset or a DataLoader (its order is fixed by us);
            for a language model what `sequence_losses` takes.
        test: records the model has not seen, in the same form; may be empty or None (no model-level
            risk then).
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
        loss_traces: (n, epochs + 1) losses over training, a tuple of them and of losses of unseen
            records, a LossTraces or the path of its file; adds `lt_iqr` and, with losses of unseen
            records, `early_loss`. Rows are matched by id when the traces have ids, else by
            position; the last recording must be the audited model's.
        sample_weight: (n,) weights the training used.
        output_scale: "auto"; or "logits" or "probabilities", what an nn.Module's outputs are where
            no Linear gives them. A head's own outputs are logits.
        score_options: options handed on to the function behind the record scores: of
            `record_scores` (columns, method, refine, precision, block_size, max_memory) for
            layers="last", of `network_scores` (method, outputs, dimension, unvectorised,
            max_memory) for more layers; class_basis and max_memory for a language model. For
            instance {"unvectorised": "loop"}.
        checkpoint: an earlier state of the same training, best the one with the lowest loss on
            unseen records: a module or estimator, a state dict of the model, the path of a
            .safetensors or .pt file of one, or a list of these. Adds `checkpoint_loss` and
            `checkpoint_shift` (of several, of the one with the lowest loss on test records).
        out_of_fold: (n,) or (n, m) outputs on the training records, each of a model that was not
            trained on the record: what `cross_val_predict` gives (probabilities, logits or
            predictions, in the order of `train`), or the path of a .npy, .npz, .csv or .parquet
            file with them, whose ids are matched where it has any. Adds `out_of_fold_loss`.
        base: the model that a fine-tuned one started from, with the same outputs, given as a
            checkpoint is. Adds `base_loss`. For a language model also a folder of
            `save_pretrained`; adds `base_gain`, `error_zone` and `window_votes` as well, and is
            found by itself where the model has adapters that can be switched off.
        tokenizer: of a language model; adds `zlib_ratio`, which compresses texts.
        folds: k ≥ 2: k models are trained, each on the training records without one of k folds.
            Adds `fold_loss`. Price: k − 1 trainings.
        reference_models: K ≥ 1: K models are trained on random halves of train and test (two and
            three independently of each other, more balanced); or such a set, or its folder, made by
            `train_references` for this model, with any number of models. Price: about K trainings.
            With four models or more, LiRA's rate is predicted from what it finds with four.
        short_references: K ≥ 1: K models on random halves, each stopped early (`stop`). Price: that
            share of K trainings. With any source from checkpoint to here, all evidence is weighed
            by `exposure` and `exposure_score` ranks the records.
        stop: where short references stop: a share of the training (above 0 and below 1) or, where
            train_fn is a Recipe or loss_traces are given, an epoch; None: at the epoch with the
            lowest loss on unseen records, which loss_traces must hold.
        train_fn: `train_fn(indices, seed)` trains a model on those rows of train followed by test,
            as `train_references` takes it, or a Recipe. For short references it is called with a
            third argument `stop`, the share of the training after which to end; its schedule must
            be that of the whole training.
        work: folder in which trained models are kept: the same call goes on where an earlier one
            was stopped. None: a temporary folder, removed in the end.
        training_options: how and where models are trained, of `train_references`: workers, threads,
            backend, address, attempts, engine, stack, settings. For instance {"threads": 8}.
        batch_size: records per forward pass. device: where to run the model.
        progress: bars in a terminal or notebook. seed: of bootstrap intervals and data transforms.

    Returns:
        Audit.

    Raises:
        InputError: an argument breaks a rule. NumericalError: a factorisation failed.

    Cost: one forward pass over both splits and `record_scores`. More layers walk the training
        records several times, from memory where their inputs take at most 1 GB. folds,
        reference_models and short_references cost what their trainings cost.

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
    asked = dict(locals())  # every argument by name, before anything else has one
    if isinstance(model, Target):
        return audit(**stated_by(model, asked))
    for name in ("train", "test"):
        if asked[name] is ...:
            refuse(name, "be given with a model that is no Target", "nothing")
    reader = reader_of(model)
    form = None if reader is None else reader.form
    route = SEQUENCES if form == "sequences" else HEAD if layers == "last" else NETWORK
    handed_on = checked_score_options(score_options, route)
    options = Options(task, damping, weight_decay, fpr, seed, progress, "audit", layers, output_scale, handed_on, source_of(train_fn))
    if layers != "last" and form in (None, "table"):
        refuse("layers", "be 'last' for a model that is no nn.Module", repr(layers), "Its last layer is scored exactly.")
    given = GivenColumns(ids, groups, test_groups, given_traces(loss_traces))
    trainings = checked_trainings(
        folds=folds,
        reference_models=reference_models,
        short_references=short_references,
        stop=stop,
        train_fn=train_fn,
        work=work,
        training_options=training_options,
        layer=layer,
        traced=traced_epochs(given.loss_traces),
    )
    if form == "sequences":
        require_language_arguments(
            options,
            layer=(layer, "auto"),
            output=(output, "auto"),
            sample_weight=(sample_weight, None),
            output_scale=(output_scale, "auto"),
            short_references=(short_references, None),
        )
        how: dict[str, Any] = {"base": base, "tokenizer": tokenizer, "batch_size": batch_size, "device": device}
        subject = Subject(model, train, test, {"batch_size": batch_size, "device": device})
        others = OtherModels(checkpoint, given_outputs(out_of_fold, "out_of_fold"), trained_sources(trainings, subject, options))
        return audit_language_model(model, train, test, options, given, **how, others_given=others)
    if tokenizer is not None:
        refuse("tokenizer", "come with a language model", f"one beside {type(model).__name__}", "Leave it out.")
    folds_out = given_outputs(out_of_fold, "out_of_fold")
    earlier = models_given(checkpoint, model, "checkpoint")
    origin, base_notes = base_of(base, model)
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
    how_read = {"batch_size": batch_size, "device": device, "output": output, "output_scale": output_scale}

    def read(one: object) -> View:
        own = reader_of(one)
        found = view(one, records, test, task=task, **reading)
        return model_in_logits(found, output_scale, is_module=own is not None and (own.form == "batches" or own.open_scale))

    seen = read(model)
    seen = replace(seen, inputs=dict(seen.inputs) | {"family": model_family(model)}, notes=(*seen.notes, *base_notes))
    if sample_weight is not None:
        if (seen.inputs.get("ids") or {}).get("train") == "index":
            require_index_of(seen.train, sample_weight, "sample_weight")
        seen = replace(seen, sample_weight=require_weights(sample_weight, len(seen.train)))
    signal_seconds = time.perf_counter() - started

    def layered(settled: str) -> Scores:
        how: dict[str, Any] = {"layers": layers, "damping": damping, "sample_weight": seen.sample_weight}
        return network_scores(module_in(model), records, task=settled, **how, **reading, **handed_on)

    found = audit_view(
        seen,
        options,
        given,
        signal_seconds=signal_seconds,
        layered_scores=layered if layers != "last" else None if reader is None else leaf_scores(reader, model, train, seen, options),
        stages=None if reader is None else partial(stage_evidence, reader, model, train, test),
        sources=(
            *checkpoint_source(earlier, read, options),
            *out_of_fold_source(folds_out, options),
            *base_source(origin, read, options),
        ),
        trained=trained_sources(trainings, Subject(model, train, test, how_read), options),
        beside=None if reader is None or form != "table" else partial(without_records, reader, model, train),
        inputs=given_inputs(train),
    )
    return replace(found, notes=found.notes + deeper_notes(model, found.task, layers))
