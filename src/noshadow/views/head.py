"""The Linear layer that produces a model's output, found by what actually runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import torch
from torch import Tensor, nn

from noshadow.checks import refuse, users_code
from noshadow.outcomes import Note
from noshadow.views.chosen_output import LOGITS, Part, Path, Ran, chosen_part, part_at, parts_of
from noshadow.views.endings import ENDINGS, as_rows, ending_of, ends_as, row_differences
from noshadow.views.loading import Batch, moved
from noshadow.views.pooled_head import pooled, watched_positions
from noshadow.views.view import Settings

CANDIDATES_NAMED = 12
Layers = dict[nn.Linear, Ran]


@dataclass(frozen=True)
class Head:
    """The Linear that is read, and what the model does to its output (`ending`, a key of ENDINGS).

    `asked`: the caller named the Linear, so its own output counts, whatever the model makes of it.
    `pooled`: it runs at every position of a record, and the model pools its outputs to one row.
    """

    name: str
    layer: nn.Linear
    ending: str
    notes: tuple[str, ...]
    asked: bool = False
    pooled: bool = False

    def __str__(self) -> str:
        pooled = ", pooled over positions" if self.pooled else ""
        return f"{described(self.name, self.layer)[:-1]}, {'without' if self.layer.bias is None else 'with'} bias{pooled})"


@dataclass(frozen=True)
class Source:
    """Where a model's outputs are read.

    A source holds the way to them in what the model returns, and the Linear that gives them.

    `path` is None when a Linear was named and nothing that the model returns can be held against
    it.
    """

    path: Path | None
    head: Head | None


def described(name: str, layer: nn.Linear) -> str:
    """A Linear in words: its name and its two widths."""
    return f"Linear '{name or 'model'}' ({layer.in_features} → {layer.out_features})"


def called(model: nn.Module, batch: Batch, device: torch.device) -> object:
    """Run the model on one batch.

    The batch is moved to the device and, where floating, to the parameters' dtype.
    """
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    advice = "integer inputs stay integers, so pass floats if it expects them" if _has_integers(batch) else "check the inputs"
    with users_code(f"model must accept the data's batches ({advice})"):
        return model(*moved(batch.args, device, dtype), **moved(batch.kwargs, device, dtype))


def found_source(model: nn.Module, batch: Batch, device: torch.device, settings: Settings, *, headless: str = "refuse") -> Source:
    """Find the output of a model on a few records, and the Linear that gives it.

    The Linear gives the output raw or under an ending, or is named by the caller.

    Args:
        model: in eval mode, under no_grad.
        batch: a few records.
        device: where the model is.
        settings: `layer`, "auto" or the name of a Linear that runs; `output`, "auto" or a name or
            position.
        headless: where no Linear gives the output, "refuse", take what is called "logits" alone, or
            "take" any output.

    Raises:
        InputError: no output or more than one may be meant, no Linear gives it (the sentence names
            those that ran, in order), or its output is not one row per record.
    """
    returned, ran = _probed(model, batch, device)
    if settings.layer != "auto":
        return _named_source(model, returned, batch, device, ran, settings)
    part = chosen_part(returned, batch.target, ran, output=settings.output)
    if part is None:
        refuse("model", "return a tensor, a tuple or dict of tensors, or an object with .logits", type(returned).__name__)
    taken = headless == "take" or (headless == "logits" and (part.word in LOGITS or settings.output != "auto") and part.value.ndim == 2)
    if not torch.isfinite(part.value).all():
        if taken and headless == "logits":
            return Source(part.path, None)
        refuse("model", "give finite outputs", "NaN or infinite values on the first records", "Check inputs and weights.")
    tries = ((ending, linear) for ending in ENDINGS for linear, one in reversed(ran.items()) if ends_as(ending, one.raw, part.value))
    ending, linear = next(tries, (None, None))
    if linear is not None and ending is not None:
        _require_row_per_record(ran[linear].raw, ran[linear].name)
        return Source(part.path, Head(ran[linear].name, linear, ending, _ending_note(ending)))
    pooling = _pooled_source(model, batch, device, ran, part)
    if pooling is not None:
        return pooling
    if not taken:
        got = f"an output of shape {tuple(part.value.shape)} that none of them gives"
        _refuse_head("model", "end in an nn.Linear, raw or under softmax, log_softmax or sigmoid", got, ran, [part])
    return Source(part.path, None)


def _pooled_source(model: nn.Module, batch: Batch, device: torch.device, ran: Layers, part: Part) -> Source | None:
    """Find a Linear that runs at every position and whose outputs the model pools to one row.

    Exact where pooling is linear: the pooled outputs are held against the model's on these records.
    """
    own = as_rows(part.value, len(batch.target))
    if own is None:
        return None
    fitting = [layer for layer, one in ran.items() if one.raw.ndim == 3 and one.raw.shape[::2] == own.shape]
    for layer in reversed(fitting):
        with watched_positions(layer) as seen:
            again = part_at(called(model, batch, device), part.path)
            found = None if again is None else pooled(seen, again)
        if found is not None and not bool(row_differences("", found[1].cpu(), own.cpu()).any()):
            return Source(part.path, Head(ran[layer].name, layer, "", (), pooled=True))
    return None


def _named_source(model: nn.Module, returned: object, batch: Batch, device: torch.device, ran: Layers, settings: Settings) -> Source:
    layer = settings.layer
    wanted = dict(model.named_modules(remove_duplicate=False)).get(layer)
    if not isinstance(wanted, nn.Linear) or wanted not in ran:
        idle = " that did not run" if isinstance(wanted, nn.Linear) else ""
        kind = "no such layer" if wanted is None else f"a {type(wanted).__name__}{idle}"
        _refuse_head("layer", "name an nn.Linear that runs", f"{layer!r} ({kind})", ran, parts_of(returned))
    raw, parts = ran[wanted].raw, parts_of(returned)
    if settings.output != "auto" or raw.ndim == 3:
        part = chosen_part(returned, batch.target, ran, output=settings.output)
        parts = [] if part is None else [part]
    pooling = _pooled_source(model, batch, device, {wanted: ran[wanted]}, parts[0]) if parts and raw.ndim == 3 else None
    if pooling is not None:
        return pooling
    _require_row_per_record(raw, layer)
    part, ending = _given_by(raw, parts)
    if ending is None:
        words = f"The outputs are those of layer {layer!r}, as asked for; the model's own output differs from them."
        note = Note(words, "NS043")
        return Source(None if part is None else part.path, Head(layer, wanted, "", (note,), asked=True))
    return Source(None if part is None else part.path, Head(layer, wanted, ending, _ending_note(ending), asked=True))


def _given_by(raw: Tensor, parts: Sequence[Part]) -> tuple[Part | None, str | None]:
    """The part that a Linear's output is, and its ending; a single part and None when it is not."""
    found = ((part, ending_of(raw, part.value)) for part in parts)
    lone = parts[0] if len(parts) == 1 else None
    return next(((part, ending) for part, ending in found if ending is not None), (lone, None))


def _ending_note(ending: str) -> tuple[str, ...]:
    return (f"The model ends in a {ending}; the raw output of its head is used as logits.",) if ending else ()


def _probed(model: nn.Module, batch: Batch, device: torch.device) -> tuple[object, Layers]:
    """Run the model and return its output with each Linear that ran.

    Each Linear comes with its last input and output, in the order of these last runs.
    """
    ran: Layers = {}

    def note(name: str, layer: nn.Linear, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> None:
        ran.pop(layer, None)
        given = args[0] if args else kwargs["input"]
        # Copied: a later operation in place would otherwise pass for the Linear's own output.
        ran[layer] = Ran(name, given.detach().clone(), output.detach().clone())

    linears = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    hooks = [module.register_forward_hook(partial(note, name), with_kwargs=True) for name, module in linears]
    try:
        return called(model, batch, device), ran
    finally:
        for hook in hooks:
            hook.remove()


def _has_integers(batch: Batch) -> bool:
    inputs = (*batch.args, *batch.kwargs.values())
    return any(isinstance(value, Tensor) and not value.is_floating_point() for value in inputs)


def _require_row_per_record(raw: Tensor, name: str) -> None:
    if raw.ndim != 2:
        refuse(
            "model",
            "give one row of outputs per record",
            f"outputs of shape {tuple(raw.shape)} from '{name}'",
            "Pool the positions of a record to one row by a weighted mean or by a choice, or pass arrays as Signals.",
        )


def _refuse_head(argument: str, rule: str, got: str, ran: Layers, parts: Sequence[Part]) -> NoReturn:
    """Refuse a model without a head that is read.

    A layer is asked for only where a Linear that ran has the shape of an output.
    """
    names = [described(one.name, layer) for layer, one in ran.items()]
    more = "…, " if len(names) > CANDIDATES_NAMED else ""
    listed = f"ran in order: {more}{', '.join(names[-CANDIDATES_NAMED:])}" if names else "no nn.Linear ran"
    fitting = any(one.raw.shape == part.value.shape for one in ran.values() for part in parts)
    hint = "Name the head with layer=…" if fitting else "For model risk alone pass Signals(None, outputs, targets) to audit_signals."
    refuse(argument, rule, f"{got} ({listed})", hint)
