"""Any nn.Module whose output is produced by a final nn.Linear → Signals."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noshadow.checks import ONE_LABEL, refuse, require_choice, require_number, resolved_task, users_code
from noshadow.signals import Signals
from noshadow.views.forward import disagreement, forward_pass, head_agreement
from noshadow.views.head import Head, Source, described, found_source
from noshadow.views.loading import Batch, Records, records_of
from noshadow.views.reader import NETWORK, Reader, Transform
from noshadow.views.repeated import run_again
from noshadow.views.row_names import name_facts
from noshadow.views.undisturbed import seed_everything, undisturbed
from noshadow.views.view import Settings, View, no_records
from noshadow.views.walk import Collected
from noshadow.weight_decay import training_damping

PROBE_RECORDS = 8


def torch_view(model: nn.Module, train: object, test: object, *, task: str, weight_decay: float | None, settings: Settings) -> View:
    """The View of an nn.Module; arguments as in `view`."""
    require_choice(task, ("auto", "regression", "classification", "binary"), "task")
    decay = None if weight_decay is None else require_number(weight_decay, "weight_decay", low=0)
    train_records = present(records_of(train, "train", seed=settings.seed), "train")
    test_records = None if test is None else records_of(test, "test", seed=settings.seed)
    with undisturbed(model, settings) as device:
        source = _source(model, train_records, device, settings)
        passes = {"train": _passed(model, source, train_records, device, settings, "train")}
        if test_records is not None and test_records.count:
            passes["test"] = _passed(model, source, test_records, device, settings, "test")
        seen = _signals(passes["train"])
        unseen = _signals(passes["test"]) if "test" in passes else no_records(seen)
        facts = _facts(model, source, {"train": (train_records, seen), "test": (test_records, unseen)}, device, settings)
    head = source.head
    assert head is not None
    agreement = head_agreement(source, passes)
    settled = task
    if decay is not None or head.ending:
        settled = resolved_task(task, seen.outputs, seen.targets)
        require_fitting_task(head, settled)
    return View(
        train=seen,
        test=unseen,
        task=settled,
        head=str(head),
        fit_intercept=head.layer.bias is not None,
        penalize_intercept=True,
        penalty=training_damping(decay, settled, *seen.outputs.shape),
        sample_weight=None,
        class_names=None,
        not_applicable=_not_applicable(head, agreement),
        notes=(*head.notes, *train_records.notes, *(() if test_records is None else test_records.reading_notes)),
        weights_sha256=weights_sha256(model),
        inputs=facts | {"head_outputs": agreement},
    )


def _facts(
    model: nn.Module, source: Source, splits: dict[str, tuple[Records | None, Signals]], device: torch.device, settings: Settings
) -> dict[str, Any]:
    """Report how the records of both splits are named, and what changed when some ran again."""
    again = {}

    def collect(argument: str, records: Records, seed: int) -> Signals:
        return _signals(_passed(model, source, records, device, replace(settings, seed=seed, progress=False), argument))

    for argument, (records, signals) in splits.items():
        if records is not None and len(signals):
            own = partial(collect, argument)
            again[argument] = run_again(model, records, signals, own, batch_size=settings.batch_size, seed=settings.seed)
    names = {argument: None if records is None else records.names for argument, (records, _) in splits.items()}
    return name_facts(names) | {"run_again": again}


def torch_signals(model: nn.Module, data: object, *, settings: Settings) -> Signals:
    """The Signals of one split; arguments as in `collect_signals`."""
    records = present(records_of(data, "data", seed=settings.seed), "data")
    with undisturbed(model, settings) as device:
        source = _source(model, records, device, settings)
        found = _passed(model, source, records, device, settings, "data")
    head = source.head
    assert head is not None
    differs = disagreement(head, head_agreement(source, {"data": found}))
    if differs is not None and not head.asked:
        hint = f"Pass layer={head.name!r} for the output of that layer; audit takes the model's own outputs for its losses."
        refuse("model", "return the output of its head for every record", f"another: {differs}", hint)
    return _signals(found)


def torch_outputs(model: nn.Module, data: object, *, task: str, transform: Transform | None, settings: Settings) -> tuple[Signals, str]:
    """Read Signals without features, and the task the model's ending settles or "auto".

    Arguments are as in `collect_outputs`.
    """
    records = present(records_of(data, "data", seed=settings.seed), "data")
    records = records if transform is None else _transformed(records, transform)
    with undisturbed(model, settings) as device:
        seed_everything(settings.seed)
        probe = next(iter(records.batches(min(PROBE_RECORDS, settings.batch_size))))
        source = found_source(model, probe, device, settings, headless="take")
        seed_everything(settings.seed)
        found = forward_pass(model, source, records, device, settings, "data", features=False)
    head, signals = source.head, Signals(None, found.outputs, found.targets, found.ids)
    settled = {"softmax": "classification", "log_softmax": "classification", "sigmoid": "binary", "": "auto"}[head.ending if head else ""]
    if settled == "binary" and signals.outputs.shape[1] > 1:
        refuse("model", "predict one label per record", f"a sigmoid of {signals.outputs.shape[1]} outputs", ONE_LABEL)
    if head is None:
        require_logits(signals, task)
    return signals, settled


def _transformed(records: Records, transform: Transform) -> Records:
    """Transform the inputs of the records batch by batch.

    Inputs are one tensor, or the tuple or dict of several.
    """

    def changed(batch: Batch) -> Batch:
        with users_code("queries must accept the data's inputs"):
            if batch.kwargs:
                return replace(batch, kwargs=transform(dict(batch.kwargs)))
            if len(batch.args) == 1:
                return replace(batch, args=(transform(batch.args[0]),))
            return replace(batch, args=tuple(transform(batch.args)))

    return replace(records, batches=lambda size: (changed(batch) for batch in records.batches(size)))


def require_logits(signals: Signals, task: str) -> None:
    """Refuse a classifier without a readable head that does not give logits.

    Attacks need the logits before they saturate.
    """
    outputs, targets = signals.outputs, signals.targets
    if task == "regression" or (targets.dtype.kind == "f" and not bool(np.isin(targets, (0, 1)).all())):
        return
    low, high = float(outputs.min()), float(outputs.max())
    if low >= 0 and high <= 1 and (outputs.shape[1] == 1 or bool(np.allclose(outputs.sum(1, dtype=np.float64), 1, atol=1e-4))):
        rule = "give logits, not probabilities, when no nn.Linear gives its output"
        refuse("model", rule, f"values in [{low:.3g}, {high:.3g}]", "Return the logits, or end in an nn.Linear.")


def _not_applicable(head: Head, agreement: Mapping[str, Any]) -> str | None:
    """Say why a head whose output the model changes has no record scores, and what to do."""
    differs = disagreement(head, agreement)
    if differs is None or head.asked:
        return None
    through = "" if head.ending in ("softmax", "sigmoid") else ", or layers='all' to score through what follows it"
    return (
        f"{differs}, and the closed form knows the head alone (losses and model risk are of the model's own outputs; pass "
        f"layer={head.name!r} to audit the head by itself{through})"
    )


def present(records: Records, argument: str) -> Records:
    """Return the records, and refuse a split without any."""
    if records.count == 0:
        refuse(argument, "hold at least one record", "none")
    return records


def require_fitting_task(head: Head, task: str) -> None:
    """Refuse a model whose ending does not belong to the task.

    Probabilities do not belong to a regression, nor sigmoids to a classification.
    """
    if head.ending and task == "regression":
        refuse(
            "model",
            "give the raw output of its last Linear in a regression",
            f"the {head.ending} of {described(head.name, head.layer)}",
            "If the targets are probabilities, pass task='binary' or 'classification'.",
        )
    if head.ending == "sigmoid" and task == "classification":
        refuse(
            "model", "end in a softmax over its classes in classification", f"the sigmoid of {described(head.name, head.layer)}", ONE_LABEL
        )


def _source(model: nn.Module, records: Records, device: torch.device, settings: Settings) -> Source:
    seed_everything(settings.seed)
    batch = next(iter(records.batches(min(PROBE_RECORDS, settings.batch_size))))
    return found_source(model, batch, device, settings)


def _passed(model: nn.Module, source: Source, records: Records, device: torch.device, settings: Settings, argument: str) -> Collected:
    seed_everything(settings.seed)
    return forward_pass(model, source, records, device, settings, argument, features=True)


def _signals(found: Collected) -> Signals:
    return Signals(found.features, found.outputs, found.targets, found.ids)


def weights_sha256(model: nn.Module) -> str:
    """Hex digest of names, types, shapes and values of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        for part in _plain_parts(tensor):
            digest.update(f"{name}|{part.dtype}|{tuple(part.shape)}|".encode())
            digest.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _plain_parts(held: Any) -> Iterator[Tensor]:
    """The tensors of numbers that one of a state is made of; several where it is in few bits."""
    if isinstance(held, (tuple, list)):  # packed weights and biases of torch.ao
        for one in held:
            yield from _plain_parts(one)
    elif isinstance(held, Tensor) and hasattr(held, "__tensor_flatten__"):
        for name in held.__tensor_flatten__()[0]:
            yield from _plain_parts(getattr(held, name))
    elif isinstance(held, Tensor):
        yield held.dequantize() if held.is_quantized else held


MODULE = Reader(
    name="nn.Module",
    form="batches",
    reads=lambda model: isinstance(model, nn.Module),
    family=lambda _: NETWORK,
    view=torch_view,
    signals=torch_signals,
    outputs=torch_outputs,
    weights_sha256=lambda model, _: weights_sha256(model),
)
