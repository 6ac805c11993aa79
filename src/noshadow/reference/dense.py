"""Train stacks of plain Linear networks without autograd.

Products are written out, memory is reused, and nothing is computed twice.

A network that is an nn.Sequential of Linear layers, elementwise activations and SeededDropout
(after at most one Flatten) is trained by batched products over all models of the stack. The
gradient by the inputs is skipped, gradients land where the optimiser reads them, and every buffer
is allocated once per batch length.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noshadow.reference.dropout import SeededDropout, dropout_mask
from noshadow.reference.job import TrainingSetup
from noshadow.reference.stacks import Stack, blocks_of

aten = torch.ops.aten
Step = Callable[[Tensor, float], None]


@dataclass(frozen=True, eq=False)
class Affine:
    """M linear layers: weight (M, o, i), bias (M, o) or None, and where their gradients go."""

    weight: Tensor
    bias: Tensor | None
    weight_gradient: Tensor
    bias_gradient: Tensor | None

    def forward(self, x: Tensor, out: Tensor) -> None:
        """(M, b, i) → (M, b, o)."""
        if self.bias is None:
            torch.bmm(x, self.weight.mT, out=out)
        else:
            torch.baddbmm(self.bias[:, None], x, self.weight.mT, out=out)

    def backward(self, delta: Tensor, x: Tensor, out: Tensor | None) -> None:
        """Compute gradients by the parameters from the gradient by the outputs.

        The gradient by the inputs is computed as well, unless `out` is None.
        """
        torch.bmm(delta.mT, x, out=self.weight_gradient)
        if self.bias_gradient is not None:
            torch.sum(delta, 1, out=self.bias_gradient)
        if out is not None:
            torch.bmm(delta, self.weight, out=out)


@dataclass(frozen=True, eq=False)
class Activation:
    """An elementwise function, and its gradient from what went in and what came out."""

    forward: Callable[[Tensor, Tensor], object]
    backward: Callable[[Tensor, Tensor, Tensor], object]


@dataclass(frozen=True, eq=False)
class Dropout:
    """SeededDropout of M models: key and step (M,)."""

    p: float
    key: Tensor
    step: Tensor

    def forward(self, x: Tensor, out: Tensor, mask: Tensor) -> None:
        """Draws this step's masks into `mask` and applies them."""
        key, step = self.key[:, None, None], self.step[:, None, None]
        mask.copy_(dropout_mask(key, step, x.shape[1:], p=self.p, dtype=x.dtype))
        self.step.add_(1)
        torch.mul(x, mask, out=out)


Layer = Affine | Activation | Dropout
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: Activation(
        lambda x, out: torch.clamp_min(x, 0, out=out),
        lambda delta, x, out: aten.threshold_backward.grad_input(delta, out, 0, grad_input=delta),
    ),
    nn.Tanh: Activation(
        lambda x, out: torch.tanh(x, out=out), lambda delta, x, out: aten.tanh_backward.grad_input(delta, out, grad_input=delta)
    ),
    nn.Sigmoid: Activation(
        lambda x, out: torch.sigmoid(x, out=out), lambda delta, x, out: aten.sigmoid_backward.grad_input(delta, out, grad_input=delta)
    ),
}


def _gelu(approximate: str) -> Activation:
    return Activation(
        lambda x, out: aten.gelu.out(x, approximate=approximate, out=out),
        lambda delta, x, out: aten.gelu_backward.grad_input(delta, x, approximate=approximate, grad_input=delta),
    )


def plain_parts(module: nn.Module, input_dimensions: int) -> list[tuple[str, nn.Module]] | None:
    """List (name, layer) in order when the module is a plain Linear network, else None.

    The network must take inputs of `input_dimensions` dimensions.
    """
    parts = _flattened(module, "")
    if parts and type(parts[0][1]) is nn.Flatten and (parts[0][1].start_dim, parts[0][1].end_dim) == (1, -1):
        parts, input_dimensions = parts[1:], 1
    kept = [(name, part) for name, part in parts if not _does_nothing(part)]
    allowed = (nn.Linear, nn.GELU, SeededDropout, *ACTIVATIONS)
    if input_dimensions != 1 or any(type(part) not in allowed for _, part in kept) or not any(type(part) is nn.Linear for _, part in kept):
        return None
    own = [parameter for _, part in kept for parameter in part.parameters(recurse=False)]
    held = list(module.parameters())
    # A layer or weight used twice is held once; a hook may change anything.
    same = len(own) == len(held) and len({id(part) for _, part in kept}) == len(kept)
    hooked = any(getattr(part, hooks) for part in module.modules() for hooks in _HOOKS) or any(p._backward_hooks for p in held)
    return kept if same and not hooked and all(parameter.requires_grad for parameter in held) else None


def _flattened(module: nn.Module, name: str) -> list[tuple[str, nn.Module]]:
    """The parts of nested Sequentials in order, under their full names."""
    if type(module) is not nn.Sequential:
        return [(name, module)]
    prefix = f"{name}." if name else ""
    # By position in the container: named_children() would show a part that is used twice only once.
    return [pair for key, child in module._modules.items() if child is not None for pair in _flattened(child, prefix + key)]


def _does_nothing(part: nn.Module) -> bool:
    return type(part) is nn.Identity or (type(part) in (nn.Dropout, SeededDropout) and bool(getattr(part, "p", 1) == 0))


def dense_step(job: TrainingSetup, stack: Stack) -> Step | None:
    """Make the training step of a stack of plain Linear networks; None for other stacks.

    A step takes rows (M, b) of the pool and a learning rate.
    """
    parts = plain_parts(stack.modules[0], job.x.ndim - 1)
    if parts is None:
        return None
    weights = nn.Parameter(stack.memory)
    weights.grad = torch.zeros_like(stack.memory)
    gradients = blocks_of(weights.grad, {name: tensor.shape for name, tensor in stack.parameters.items()})
    layers = [_layer(name, part, stack, gradients) for name, part in parts]
    optimiser = job.optimiser([weights], fused=True)
    pool, spaces = job.x.flatten(1), dict[int, Workspace]()

    @torch.no_grad()
    def step(rows: Tensor, rate: float) -> None:
        models, batch = rows.shape
        if batch not in spaces:
            spaces[batch] = _workspace(layers, models, batch, pool.new_empty(models, batch, pool.shape[1]))
        space, chosen = spaces[batch], rows.reshape(-1)
        torch.index_select(pool, 0, chosen, out=space.values[0].view(-1, pool.shape[1]))
        _forward(layers, space)
        _output_gradient(space.values[-1], job.y.index_select(0, chosen), job.task, out=space.deltas[-1])
        _backward(layers, space)
        optimiser.param_groups[0]["lr"] = rate
        optimiser.step()

    return step


def _layer(name: str, part: nn.Module, stack: Stack, gradients: dict[str, Tensor]) -> Layer:
    prefix = f"{name}." if name else ""
    if isinstance(part, nn.Linear):
        weight, bias = f"{prefix}weight", f"{prefix}bias"
        held = {key: tensor.detach() for key, tensor in stack.parameters.items()}
        return Affine(held[weight], held.get(bias), gradients[weight], gradients.get(bias))
    if isinstance(part, SeededDropout):
        return Dropout(part.p, stack.constants[f"{prefix}key"], stack.constants[f"{prefix}step"])
    return _gelu(part.approximate) if isinstance(part, nn.GELU) else ACTIVATIONS[type(part)]


@dataclass(frozen=True, eq=False)
class Workspace:
    """Buffers of one batch length.

    They hold what enters each layer and leaves the last, the gradients by these, and dropout's
    masks.
    """

    values: list[Tensor]
    deltas: list[Tensor]
    masks: list[Tensor]


def _workspace(layers: list[Layer], models: int, batch: int, x: Tensor) -> Workspace:
    # the gradient by the inputs is never formed: its place is never written
    values, deltas = [x], [x]
    for layer in layers:
        if isinstance(layer, Affine):
            values.append(x.new_empty(models, batch, layer.weight.shape[1]))
            deltas.append(torch.empty_like(values[-1]))
        else:
            values.append(torch.empty_like(values[-1]))
            deltas.append(deltas[-1])  # elementwise layers work in place
    masks = [torch.empty_like(value) if isinstance(layer, Dropout) else value for layer, value in zip(layers, values[1:], strict=True)]
    return Workspace(values, deltas, masks)


def _forward(layers: list[Layer], space: Workspace) -> None:
    for layer, mask, x, out in zip(layers, space.masks, space.values[:-1], space.values[1:], strict=True):
        if isinstance(layer, Dropout):
            layer.forward(x, out, mask)
        else:
            layer.forward(x, out)


def _backward(layers: list[Layer], space: Workspace) -> None:
    first = next(place for place, layer in enumerate(layers) if isinstance(layer, Affine))
    for place in range(len(layers) - 1, first - 1, -1):
        layer, delta = layers[place], space.deltas[place + 1]
        if isinstance(layer, Affine):
            layer.backward(delta, space.values[place], None if place == first else space.deltas[place])
        elif isinstance(layer, Dropout):
            delta.mul_(space.masks[place])
        else:
            layer.backward(delta, space.values[place], space.values[place + 1])


def _output_gradient(outputs: Tensor, targets: Tensor, task: str, *, out: Tensor) -> None:
    """Compute the gradient of each model's mean loss by its outputs (M, b, m).

    Targets are those of the M·b rows.
    """
    models, batch, columns = outputs.shape
    if task == "regression":
        torch.sub(outputs, targets.view(models, batch, columns), out=out)
        out.mul_(2 / (batch * columns))
        return
    if task == "binary":
        torch.sigmoid(outputs, out=out)
        out.sub_(targets.view(models, batch, 1))
    else:
        torch.softmax(outputs, 2, out=out)
        if targets.ndim == 1:
            labels = targets.view(models, batch, 1)
            out.scatter_add_(2, labels, out.new_full((), -1.0).expand_as(labels))
        else:
            out.sub_(targets.view(models, batch, columns))
    out.mul_(1 / batch)
