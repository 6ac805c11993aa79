"""Any nn.Module whose output is produced by a final nn.Linear → Signals."""

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noshadow.checks import ONE_LABEL, InputError, refuse, require_choice, require_number, resolved_task
from noshadow.outcomes import Absent, Damping
from noshadow.signals import Signals
from noshadow.views.forward import disagreement, forward_pass, head_agreement
from noshadow.views.head import Head, Source, described, found_source
from noshadow.views.loading import Records, records_of
from noshadow.views.repeated import run_again
from noshadow.views.row_names import name_facts
from noshadow.views.view import Settings, View, no_records
from noshadow.views.walk import Collected

PROBE_RECORDS = 8


def torch_view(model: nn.Module, train: object, test: object, *, task: str, weight_decay: float | None, settings: Settings) -> View:
    """The View of an nn.Module; arguments as in `view`."""
    owner = settings.owner
    require_choice(task, ("auto", "regression", "classification", "binary"), owner, "task")
    decay = None if weight_decay is None else require_number(weight_decay, owner, "weight_decay", low=0)
    train_records = _present(records_of(train, owner, "train", seed=settings.seed), owner, "train")
    test_records = None if test is None else records_of(test, owner, "test", seed=settings.seed)
    with _undisturbed(model, settings) as device:
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
        settled = resolved_task(task, seen.outputs, seen.targets, owner)
        require_fitting_task(head, settled, owner)
    return View(
        train=seen,
        test=unseen,
        task=settled,
        head=str(head),
        fit_intercept=head.layer.bias is not None,
        penalize_intercept=True,
        penalty=_penalty(*training_damping(decay, settled, *seen.outputs.shape)),
        sample_weight=None,
        class_names=None,
        not_applicable=_not_applicable(head, agreement),
        notes=(*head.notes, *train_records.notes, *(() if test_records is None else test_records.reading_notes)),
        weights_sha256=_weights_sha256(model),
        inputs=facts | {"head_outputs": agreement},
    )


def _facts(
    model: nn.Module, source: Source, splits: dict[str, tuple[Records | None, Signals]], device: torch.device, settings: Settings
) -> dict[str, Any]:
    """How the records of both splits are named, and what became of some of them when they were read and run again."""
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
    records = _present(records_of(data, settings.owner, "data", seed=settings.seed), settings.owner, "data")
    with _undisturbed(model, settings) as device:
        source = _source(model, records, device, settings)
        found = _passed(model, source, records, device, settings, "data")
    head = source.head
    assert head is not None
    differs = disagreement(head, head_agreement(source, {"data": found}))
    if differs is not None and not head.asked:
        hint = f"Pass layer={head.name!r} for the output of that layer; audit takes the model's own outputs for its losses."
        refuse(settings.owner, "model", "return the output of its head for every record", f"another: {differs}", hint)
    return _signals(found)


def _not_applicable(head: Head, agreement: Mapping[str, Any]) -> str | None:
    """Why a head that the model changes afterwards has no record scores, and what has."""
    differs = disagreement(head, agreement)
    if differs is None or head.asked:
        return None
    through = "" if head.ending in ("softmax", "sigmoid") else ", or layers='all' to score through what follows it"
    return (
        f"{differs}, and the closed form knows the head alone (losses and model risk are of the model's own outputs; pass "
        f"layer={head.name!r} to audit the head by itself{through})"
    )


def _present(records: Records, owner: str, argument: str) -> Records:
    if records.count == 0:
        refuse(owner, argument, "hold at least one record", "none")
    return records


def _penalty(value: float | None, sentence: str) -> Damping | Absent:
    return Absent("not available", sentence) if value is None else Damping(value, "weight_decay", sentence)


def training_damping(decay: float | None, task: str, n: int, q: int) -> tuple[float | None, str]:
    """λ on the sum scale of a mean loss with (weight_decay/2)‖θ‖² added to it (the table of damping conventions)."""
    if decay is None:
        return None, "The optimiser's weight_decay was not given, so the λ of the training is unknown."
    nominal = "AdamW's decoupled decay counted the same (nominal)"
    if task == "regression":
        return (
            n * decay * q / 2,
            f"n·weight_decay·q/2 with n={n}, weight_decay={decay:g}, q={q} (MSELoss averaged over q outputs); {nominal}.",
        )
    return n * decay, f"n·weight_decay with n={n}, weight_decay={decay:g} (cross-entropy averaged over records); {nominal}."


def require_fitting_task(head: Head, task: str, owner: str) -> None:
    """Refuse a model whose ending does not belong to the task: probabilities in a regression, sigmoids over classes."""
    if head.ending and task == "regression":
        refuse(
            owner,
            "model",
            "give the raw output of its last Linear in a regression",
            f"the {head.ending} of {described(head.name, head.layer)}",
            "If the targets are probabilities, pass task='binary' or 'classification'.",
        )
    if head.ending == "sigmoid" and task == "classification":
        refuse(
            owner,
            "model",
            "end in a softmax over its classes in classification",
            f"the sigmoid of {described(head.name, head.layer)}",
            ONE_LABEL,
        )


@contextmanager
def _undisturbed(model: nn.Module, settings: Settings) -> Iterator[torch.device]:
    """Eval mode without gradients on the wanted device; flags, device and random states are as before afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    homes = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    home = next((p.device for p in model.parameters()), torch.device("cpu"))
    away = home if settings.device is None else _device(settings.device, settings.owner)
    if away != home and len(homes) > 1:
        refuse(settings.owner, "device", "be None for a model spread over several devices", repr(settings.device))
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - users' transforms draw from it
    try:
        model.eval()
        if away != home:
            model.to(away)
        with torch.random.fork_rng(devices=[away] if away.type == "cuda" else []), torch.no_grad():
            yield away
    finally:
        if away != home:
            model.to(home)
        for module, flag in flags:
            module.training = flag
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002


def _device(device: object, owner: str) -> torch.device:
    try:
        wanted = torch.empty(0, device=torch.device(device)).device  # type: ignore[call-overload]
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"{owner}: device must be one that torch can use here; got {device!r} ({reason}).") from error
    if wanted.type == "meta":
        refuse(owner, "device", "hold values", repr(device))
    return wanted


def seed_everything(seed: int) -> None:
    """Seed torch, Python and NumPy, so that random transforms of a data set repeat."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - random transforms of users' data sets may draw from it


def _source(model: nn.Module, records: Records, device: torch.device, settings: Settings) -> Source:
    seed_everything(settings.seed)
    batch = next(iter(records.batches(min(PROBE_RECORDS, settings.batch_size))))
    return found_source(model, batch, device, settings)


def _passed(model: nn.Module, source: Source, records: Records, device: torch.device, settings: Settings, argument: str) -> Collected:
    seed_everything(settings.seed)
    return forward_pass(model, source, records, device, settings, argument, features=True)


def _signals(found: Collected) -> Signals:
    return Signals(found.features, found.outputs, found.targets, found.ids)


def _weights_sha256(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, Tensor):
            digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
