"""Hold many modules of one architecture as one.

Parameters and buffers are stacked along a leading axis of models.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from noshadow.checks import refuse, users_code
from noshadow.reference.job import output_rows

# Blocks start at multiples of 16 numbers: 64 bytes in float32, a cache line and the width vector
# units like.
_ALIGNMENT = 16


@dataclass(frozen=True, eq=False)
class Stack:
    """M modules trained together.

    Attributes:
        modules: the modules; the first one lends its code, all get their values back at the end.
        memory: 1-dimensional, all trainable parameters one after the other.
        parameters: name → (M, …) leaf tensors that lie in `memory`.
        constants: name → (M, …) frozen parameters and buffers.
    """

    modules: Sequence[nn.Module]
    memory: Tensor
    parameters: dict[str, Tensor]
    constants: dict[str, Tensor]

    def outputs(self, x: Tensor) -> Tensor:
        """(n, …) inputs → (M, n, m) outputs of every module in eval mode."""
        base = self.modules[0]

        def predict(parameters: dict[str, Tensor], constants: dict[str, Tensor]) -> Tensor:
            return output_rows(functional_call(base, (parameters, constants), (x,)), len(x))

        base.eval()
        try:
            with torch.no_grad(), users_code("the module must predict records of the pool"):
                outputs: Tensor = torch.vmap(predict)(self.parameters, self.constants)
        finally:
            base.train()
        return outputs

    def finite(self) -> Tensor:
        """Whether all parameters of each module are finite, bool (M,)."""
        each = [stacked.detach().flatten(1).isfinite().all(1) for stacked in self.parameters.values()]
        return torch.stack(each).all(0)

    def unstacked(self) -> list[nn.Module]:
        """The modules with their own slices written back, in eval mode."""
        stacked = self.parameters | self.constants
        with torch.no_grad():
            for position, module in enumerate(self.modules):
                for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                    tensor.copy_(stacked[name][position])
                module.eval()
        return list(self.modules)


def stacked_modules(modules: Sequence[nn.Module]) -> Stack:
    """The Stack of modules that `build` made; refuses those that differ in names or shapes."""
    trained, fixed = (_tensors_by_name(modules, trainable=trainable) for trainable in (True, False))
    shapes = {name: torch.Size((len(modules), *tensors[0].shape)) for name, tensors in trained.items()}
    memory = next(iter(trained.values()))[0].new_zeros(sum(map(_room, shapes.values())))
    parameters = blocks_of(memory, shapes)
    for name, tensors in trained.items():
        torch.stack(tensors, out=parameters[name])
        parameters[name].requires_grad_(True)
    return Stack(modules, memory, parameters, {name: torch.stack(tensors) for name, tensors in fixed.items()})


def blocks_of(memory: Tensor, shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
    """Cut 1-dimensional memory into aligned contiguous blocks of the given shapes.

    The blocks stand one after the other.
    """
    blocks, start = {}, 0
    for name, shape in shapes.items():
        blocks[name] = memory[start : start + shape.numel()].view(shape)
        start += _room(shape)
    return blocks


def _room(shape: torch.Size) -> int:
    return -(-shape.numel() // _ALIGNMENT) * _ALIGNMENT


def _tensors_by_name(modules: Sequence[nn.Module], *, trainable: bool) -> dict[str, list[Tensor]]:
    """Map each name to one tensor per module.

    These are trainable parameters, or all else that the modules hold.
    """
    named: list[dict[str, Tensor]] = []
    for module in modules:
        own: dict[str, Tensor] = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad == trainable}
        named.append(own if trainable else own | dict(module.named_buffers()))
    shapes = [{name: (tensor.shape, tensor.dtype) for name, tensor in own.items()} for own in named]
    odd = next((own for own in shapes if own != shapes[0]), None)
    if odd is not None:
        name = next(name for name in (odd | shapes[0]) if odd.get(name) != shapes[0].get(name))
        refuse("build", "make the same architecture every time", f"modules that differ in '{name}'")
    return {name: [own[name].detach() for own in named] for name in named[0]}
