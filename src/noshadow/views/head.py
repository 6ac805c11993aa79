"""The Linear layer that produces a model's output, found by what actually runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import torch
from torch import Tensor, nn

from noshadow.checks import refuse, users_code
from noshadow.views.loading import Batch, moved

CANDIDATES_NAMED = 12
ENDINGS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "": lambda z: z,
    "log_softmax": partial(torch.log_softmax, dim=-1),
    "softmax": partial(torch.softmax, dim=-1),
    "sigmoid": torch.sigmoid,
}
Ran = dict[nn.Linear, tuple[str, Tensor]]


@dataclass(frozen=True)
class Head:
    """The Linear that is read, and what the model does to its output (`ending`, a key of ENDINGS)."""

    name: str
    layer: nn.Linear
    ending: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{described(self.name, self.layer)[:-1]}, {'without' if self.layer.bias is None else 'with'} bias)"


def described(name: str, layer: nn.Linear) -> str:
    """A Linear in words: its name and its two widths."""
    return f"Linear '{name or 'model'}' ({layer.in_features} → {layer.out_features})"


def called(model: nn.Module, batch: Batch, device: torch.device, owner: str) -> object:
    """The model's output for one batch, moved to the device and, where floating, to the parameters' dtype."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    advice = "integer inputs stay integers, so pass floats if it expects them" if _has_integers(batch) else "check the inputs"
    with users_code(owner, f"model must accept the data's batches ({advice})"):
        return model(*moved(batch.args, device, dtype), **moved(batch.kwargs, device, dtype))


def found_head(model: nn.Module, batch: Batch, device: torch.device, *, layer: str, owner: str) -> Head:
    """The Linear whose output is the model's output on a few records, or the one the caller names.

    Args:
        model: in eval mode, under no_grad.
        batch: a few records.
        device: where the model is.
        layer: "auto", or the name of a Linear that runs.
        owner: the function named in error messages.

    Raises:
        InputError: no Linear gives the output (the sentence names those that ran, in order), or its output is
            not one row per record.
    """
    head, final, ran = _sought(model, batch, device, layer=layer, owner=owner)
    if head is None:
        got = f"an output of shape {tuple(final.shape)} that none of them gives"
        _refuse_head(owner, "model", "end in an nn.Linear, raw or under softmax, log_softmax or sigmoid", got, ran)
    return head


def head_or_none(model: nn.Module, batch: Batch, device: torch.device, *, layer: str, owner: str) -> Head | None:
    """As `found_head`, but None when no Linear gives the model's output."""
    return _sought(model, batch, device, layer=layer, owner=owner)[0]


def first_tensor(output: object) -> Tensor | None:
    """The tensor a model's output is, names as its logits, or holds first."""
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    return next((value for value in (output, logits, *parts) if isinstance(value, Tensor)), None)


def _sought(model: nn.Module, batch: Batch, device: torch.device, *, layer: str, owner: str) -> tuple[Head | None, Tensor, Ran]:
    output, ran = _probed(model, batch, device, owner)
    final = first_tensor(output)
    if layer != "auto":
        head = _named_head(model, final, ran, layer=layer, owner=owner)
        return head, torch.empty(0) if final is None else final, ran
    if final is None:
        refuse(owner, "model", "return a tensor, a tuple or dict of tensors, or an object with .logits", type(output).__name__)
    if not torch.isfinite(final).all():
        refuse(owner, "model", "give finite outputs", "NaN or infinite values on the first records", "Check inputs and weights.")
    tries = ((ending, linear, name) for ending in ENDINGS for linear, (name, raw) in reversed(ran.items()) if _ends_as(ending, raw, final))
    match = next(tries, None)
    if match is None:
        return None, final, ran
    ending, linear, name = match
    _require_row_per_record(ran[linear][1], name, owner)
    return Head(name, linear, ending, _ending_note(ending)), final, ran


def _named_head(model: nn.Module, final: Tensor | None, ran: Ran, *, layer: str, owner: str) -> Head:
    wanted = dict(model.named_modules(remove_duplicate=False)).get(layer)
    if not isinstance(wanted, nn.Linear) or wanted not in ran:
        idle = " that did not run" if isinstance(wanted, nn.Linear) else ""
        kind = "no such layer" if wanted is None else f"a {type(wanted).__name__}{idle}"
        _refuse_head(owner, "layer", "name an nn.Linear that runs", f"{layer!r} ({kind})", ran)
    raw = ran[wanted][1]
    _require_row_per_record(raw, layer, owner)
    ending = None if final is None else next((e for e in ENDINGS if _ends_as(e, raw, final)), None)
    if ending is None:
        note = f"The outputs are those of layer {layer!r}, as asked for; the model's own output differs from them."
        return Head(layer, wanted, "", (note,))
    return Head(layer, wanted, ending, _ending_note(ending))


def _ending_note(ending: str) -> tuple[str, ...]:
    return (f"The model ends in a {ending}; the raw output of its head is used as logits.",) if ending else ()


def _probed(model: nn.Module, batch: Batch, device: torch.device, owner: str) -> tuple[object, Ran]:
    """The model's output, and each Linear that ran with its name and last output, in the order of these last runs."""
    ran: Ran = {}

    def note(name: str, layer: nn.Linear, _: object, output: Tensor) -> None:
        ran.pop(layer, None)
        # Copied: a later operation in place would otherwise pass for the Linear's own output.
        ran[layer] = (name, output.detach().clone())

    hooks = [m.register_forward_hook(partial(note, name)) for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    try:
        return called(model, batch, device, owner), ran
    finally:
        for hook in hooks:
            hook.remove()


def _has_integers(batch: Batch) -> bool:
    inputs = (*batch.args, *batch.kwargs.values())
    return any(isinstance(value, Tensor) and not value.is_floating_point() for value in inputs)


def _ends_as(ending: str, raw: Tensor, final: Tensor) -> bool:
    if ending.endswith("softmax") and raw.shape[-1] == 1:
        return False
    # A width of one may have been squeezed away or added.
    if _without_last_one(raw.shape) != _without_last_one(final.shape):
        return False
    expected = ENDINGS[ending](raw).reshape(final.shape).double()
    if not ending:
        # Exact: a tanh of small values is the identity to any tolerance.
        return torch.equal(expected, final.double())
    tolerance = 1e-5 if raw.dtype in (torch.float32, torch.float64) else 1e-2
    return torch.allclose(expected, final.double(), rtol=tolerance, atol=tolerance * 1e-2)


def _without_last_one(shape: torch.Size) -> tuple[int, ...]:
    return tuple(shape[:-1]) if len(shape) > 1 and shape[-1] == 1 else tuple(shape)


def _require_row_per_record(raw: Tensor, name: str, owner: str) -> None:
    if raw.ndim != 2:
        refuse(
            owner,
            "model",
            "give one row of outputs per record",
            f"outputs of shape {tuple(raw.shape)} from '{name}'",
            "Token-level heads are not supported: pool to one row per record, or pass arrays as Signals.",
        )


def _refuse_head(owner: str, argument: str, rule: str, got: str, ran: Ran) -> NoReturn:
    names = [described(name, layer) for layer, (name, _) in ran.items()]
    more = "…, " if len(names) > CANDIDATES_NAMED else ""
    listed = f"ran in order: {more}{', '.join(names[-CANDIDATES_NAMED:])}" if names else "no nn.Linear ran"
    hint = "Name the head with layer=…" if names else "For model risk alone pass Signals(None, outputs, targets) to audit_signals."
    refuse(owner, argument, rule, f"{got} ({listed})", hint)
