"""Read a trained model into Signals, or a language model into the losses of its sequences.

Models are any nn.Module that ends in a Linear, scikit-learn estimators, and language models of
transformers.
"""

from collections.abc import Iterator
from typing import NoReturn

from noshadow.arguments import BATCH_SIZE, PROGRESS
from noshadow.checks import Array, NotApplicable, as_array, named_in_errors, refuse
from noshadow.signals import Signals
from noshadow.views.adapters import MERGED, Adapters, AdaptersOff, adapters_of, model_inside, trained_beside
from noshadow.views.causal_lm import is_causal_lm
from noshadow.views.estimator_family import EstimatorFamily
from noshadow.views.estimators import estimator_reader
from noshadow.views.few_bits import storage_words
from noshadow.views.reader import LeftOut, OtherRecords, OutOfBag, Reader, Transform
from noshadow.views.readers import model_family, readable_models, reader_of, register_reader, voting_parts, weights_sha256
from noshadow.views.seq2seq_lm import is_language_model, is_seq2seq_lm
from noshadow.views.sequence_gradients import gradient_kernel
from noshadow.views.token_features import TokenHead
from noshadow.views.token_logits import context_of, vocabulary_of
from noshadow.views.token_statistics import TokenStatistics
from noshadow.views.transformers import SequenceLosses, sequence_features, sequence_losses, sequences_of
from noshadow.views.view import Settings, View
from noshadow.views.weights_between import ModelBetween, model_between

__all__ = [
    "MERGED",
    "Adapters",
    "AdaptersOff",
    "EstimatorFamily",
    "LeftOut",
    "ModelBetween",
    "OtherRecords",
    "OutOfBag",
    "Reader",
    "SequenceLosses",
    "Settings",
    "TokenHead",
    "TokenStatistics",
    "View",
    "adapters_of",
    "collect_outputs",
    "collect_signals",
    "context_of",
    "estimator_reader",
    "gradient_kernel",
    "is_causal_lm",
    "is_language_model",
    "is_seq2seq_lm",
    "left_out_outputs",
    "model_between",
    "model_family",
    "model_inside",
    "out_of_bag_outputs",
    "readable_models",
    "reader_of",
    "register_reader",
    "sequence_features",
    "sequence_losses",
    "sequences_of",
    "stage_outputs",
    "storage_words",
    "trained_beside",
    "view",
    "vocabulary_of",
    "voting_parts",
    "weights_sha256",
]


def view(
    model: object,
    train: object,
    test: object,
    *,
    task: str = "auto",
    weight_decay: float | None = None,
    layer: str = "auto",
    output: str | int = "auto",
    batch_size: int = BATCH_SIZE,
    device: object = None,
    progress: bool = PROGRESS,
    seed: int = 0,
) -> View:
    """Signals of both splits with the model's head, its training's λ and its weights' digest.

    Args:
        model: an nn.Module whose output comes from a final nn.Linear, or a fitted scikit-learn
            estimator.
        train: the training records: (X, y), and for an nn.Module also a map-style Dataset or a
            DataLoader.
        test: records the model has not seen, in the same form; None or no records is allowed.
        task: "auto", "regression", "classification" or "binary".
        weight_decay: ≥ 0, the optimiser's, for an nn.Module; a scikit-learn estimator holds its own
            penalty.
        layer: name of the nn.Linear to read, or "auto" for the one that produces the model's
            output.
        output: of a model that returns several tensors, the name or position of its output, or
            "auto"; as in `audit`.
        batch_size: records in one forward pass.
        device: where to run an nn.Module; it returns to its own device afterwards. None: where it
            is.
        progress: draw a bar on a terminal.
        seed: repeats random transforms of the data.

    Raises:
        InputError: the model, the data or an argument cannot be read; one sentence says which and
            why.

    Cost: one forward pass over each split; memory is that of the signals and one batch.

    Example:
        >>> from sklearn.linear_model import Ridge
        >>> X, y = [[0.0], [1.0], [2.0]], [0.1, 0.9, 2.1]
        >>> seen = view(Ridge(alpha=0.5).fit(X, y), (X, y), None)
        >>> seen.damping, seen.train.features.shape, len(seen.test)
        (0.5, (3, 1), 0)
    """
    settings = Settings(layer, batch_size, device, progress, seed, output)
    read = _found_reader(model).view
    if isinstance(read, NotApplicable):
        _refuse_form(model, read)
    return read(model, train, test, task=task, weight_decay=weight_decay, settings=settings)


@named_in_errors
def collect_signals(
    model: object, data: object, *, batch_size: int = BATCH_SIZE, device: object = None, layer: str = "auto", output: str | int = "auto"
) -> Signals:
    """Features, outputs and targets of one split, in the data's own order.

    Features are the inputs of the last linear layer without the bias column, outputs its raw values
    (logits or predictions), even when the model itself ends in a softmax or a sigmoid.

    Args:
        model: an nn.Module whose output comes from a final nn.Linear, or a fitted scikit-learn
            estimator.
        data: (X, y), and for an nn.Module also a map-style Dataset or a DataLoader; at least one
            record.
        batch_size: records in one forward pass.
        device: where to run an nn.Module; it returns to its own device afterwards. None: where it
            is.
        layer: name of the nn.Linear to read, or "auto" for the one that produces the model's
            output.
        output: of a model that returns several tensors, the name or position of its output, or
            "auto"; as in `audit`.

    Returns:
        Signals with n rows; its features are None for estimators without a linear head.

    Raises:
        InputError: the model, the data or an argument cannot be read; the model returns something
            else than its head's output for some record; one sentence says which and why.

    Cost: one forward pass; memory is that of the signals and one batch.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(
        ...     torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)
        ... )
        >>> signals = collect_signals(model, (torch.ones(5, 2), torch.tensor([0, 1, 2, 1, 0])))
        >>> signals.features.shape, signals.outputs.shape
        ((5, 4), (5, 3))
    """
    settings = Settings(layer=layer, batch_size=batch_size, device=device, output=output)
    read = _found_reader(model).signals
    if isinstance(read, NotApplicable):
        _refuse_form(model, read)
    return read(model, data, settings=settings)


@named_in_errors
def collect_outputs(
    model: object,
    data: object,
    *,
    task: str = "auto",
    transform: Transform | None = None,
    batch_size: int = BATCH_SIZE,
    device: object = None,
    output: str | int = "auto",
    progress: bool = False,
) -> tuple[Signals, str]:
    """Read outputs and targets of one split in the data's order, and the task the model settles.

    No features are read.

    Outputs are raw logits or predictions, even when the model itself ends in a softmax or a sigmoid
    after its last Linear; the output of a module that no Linear gives is taken as it is, unless
    it is probabilities. So is the output for a record on which the model and its head differ.

    Args:
        model: any nn.Module with one row of outputs per record, or a fitted scikit-learn estimator.
        data: (X, y), and for an nn.Module also a map-style Dataset or a DataLoader; at least one
            record.
        task: "auto", or the task, where it is known.
        transform: changes the inputs of a batch before the model sees them.
        batch_size: records in one forward pass.
        device: where to run an nn.Module; it returns to its own device afterwards. None: where it
            is.
        output: of a model that returns several tensors, the name or position of its output, or
            "auto"; as in `audit`.
        progress: draw a bar on a terminal.

    Returns:
        (Signals, task): n rows without features; the task, or "auto" where the model leaves it
            open.

    Raises:
        InputError: the model, the data or an argument cannot be read; an output is not finite.

    Cost: one forward pass; memory is that of the outputs and one batch.
    """
    settings = Settings(batch_size=batch_size, device=device, progress=progress, output=output)
    read = _found_reader(model).outputs
    if isinstance(read, NotApplicable):
        _refuse_form(model, read)
    return read(model, data, task=task, transform=transform, settings=settings)


@named_in_errors
def stage_outputs(model: object, data: object) -> Iterator[Array]:
    """Outputs (n, m) of the records after each stage of the training; the last are the model's own.

    Args:
        model: a fitted model whose family keeps its stages: boosting of scikit-learn.
        data: (X, y).

    Raises:
        NotApplicable: the family keeps none. InputError: the model or the data cannot be read.

    Cost: one prediction of every stage; memory is that of one stage's outputs.
    """
    found = _found_reader(model).history
    if isinstance(found, NotApplicable):
        raise NotApplicable(str(found))
    return found(model, data, settings=Settings())


@named_in_errors
def out_of_bag_outputs(model: object, data: object) -> OutOfBag:
    """Ask those parts of a model that were trained without a training record what they say of it.

    Args:
        model: a fitted model whose family knows its bags: forests of scikit-learn with bootstrap.
        data: (X, y), the training records in the order of the fit.

    Raises:
        NotApplicable: the family knows none, or the model was fitted on other records.
        InputError: the model or the data cannot be read.

    Cost: one prediction of every part for the records it has not seen.
    """
    found = _found_reader(model).out_of_bag
    if isinstance(found, NotApplicable):
        raise NotApplicable(str(found))
    return found(model, data, settings=Settings())


@named_in_errors
def left_out_outputs(model: object, data: object, *, sample_weight: object = None) -> LeftOut:
    """What a model would say of each training record had it been fitted without that record.

    Nothing is trained: these are closed forms of families that have one. Neighbours drop the
    record from its own neighbourhood, naive Bayes and discriminants take it out of their sums,
    kernel models delete its row, trees take it out of its leaf.

    Args:
        model: a fitted model whose family has such a form (docs/trees.md, docs/scores.md).
        data: (X, y), the training records in the order of the fit.
        sample_weight: (n,) weights that the fit used, or None.

    Returns:
        LeftOut: outputs (n, m) on the scale of the model's own; NaN where no other record
            determines an answer.

    Raises:
        NotApplicable: the family has no such form, or made again from these records and weights
            it does not say what the model says.
        InputError: the model or the data cannot be read.

    Exact when: what `how` names stays fixed: kernel parameters, the trees' structure, the set of
        active coefficients.
    Cost: that of one fit, and O(n · trees) for trees.
    """
    found = _found_reader(model).left_out
    if isinstance(found, NotApplicable):
        raise NotApplicable(str(found))
    weight = None if sample_weight is None else as_array(sample_weight, "sample_weight")
    return found(model, data, sample_weight=weight, settings=Settings())


def _found_reader(model: object) -> Reader:
    reader = reader_of(model)
    if reader is None:
        got = f"the class {model.__name__}" if isinstance(model, type) else f"an object of type {type(model).__name__}"
        hint = "Build it first." if isinstance(model, type) else "For other frameworks pass arrays as Signals to audit_signals."
        refuse("model", f"be {readable_models()}", got, hint)
    return reader


def _refuse_form(model: object, why: NotApplicable) -> NoReturn:
    name = _found_reader(model).name
    refuse("model", "give one row of outputs per record", f"the {name} {type(model).__name__}", str(why))
