"""Train many models at once.

Modules are stacked, one step trains all models of a stack, and stacks follow one after the other.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call

from noshadow.checks import InputError, users_code
from noshadow.reference.dense import Step, dense_step, plain_parts
from noshadow.reference.job import TrainingSetup, epoch_orders, fresh_module, mean_loss, output_rows, require_still_finite
from noshadow.reference.one_by_one import FORWARD_RULE, trained_module
from noshadow.reference.snapshots import Observer, Snapshot
from noshadow.reference.stacks import Stack, stacked_modules

CACHE_BYTES = 8 << 20
MOST_BYTES = 256 << 20
LARGEST_STACK = 32
PROBE_RECORDS = 8
_GLOBAL_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def trained_modules(
    job: TrainingSetup, indices: Sequence[Tensor], seeds: Sequence[int], *, observe: Observer, stack: int | None = None
) -> list[nn.Module]:
    """Train the modules of these seeds on these rows, and return them in eval mode.

    The result is that of `one_by_one.trained_module` for all of them.

    Models with equally many rows are stacked, `stack` at a time (None: chosen by `stack_size`), and
    each stack is trained to its end before the next one starts. A stack of one goes through the
    plain loop unless the written-out products of `dense` apply.
    """
    sample = fresh_module(job.build, seeds[0], job.x.dtype)
    size = stack_size(job, sample, len(indices)) if stack is None else stack
    stackable = size > 1 or plain_parts(sample, job.x.ndim - 1) is not None
    finished: dict[int, nn.Module] = {}
    for positions in stacks_of_equal_length([len(rows) for rows in indices], size):
        own_rows, own_seeds = [indices[i] for i in positions], [seeds[i] for i in positions]
        if stackable:
            modules = trained_stack(job, own_rows, own_seeds, observe=observe, positions=positions)
        else:
            modules = [trained_module(job, own_rows[0], own_seeds[0], observe=observe, position=positions[0])]
        finished.update(zip(positions, modules, strict=True))
    return [finished[position] for position in range(len(indices))]


def stacks_of_equal_length(lengths: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Positions grouped by length, in groups of nearly equal size, at most `size`."""
    groups: dict[int, list[int]] = {}
    for position, length in enumerate(lengths):
        groups.setdefault(length, []).append(position)
    stacks: list[tuple[int, ...]] = []
    for group in groups.values():
        parts = math.ceil(len(group) / size)
        edges = [round(part * len(group) / parts) for part in range(parts + 1)]
        stacks += [tuple(group[start:stop]) for start, stop in pairwise(edges)]
    return stacks


def stack_size(job: TrainingSetup, module: nn.Module, models: int) -> int:
    """Choose how many models to train at once.

    They are as many as keep weights, gradients, optimiser state and batch in a shared cache, but at
    least two per thread unless that takes much memory, so that threads share models and not
    products. Networks with convolutions are trained one at a time: stacked, they become grouped
    convolutions, which CPU kernels run no faster than one convolution after the other.
    """
    if any(isinstance(part, _CONVOLUTIONS) for part in module.modules()):
        return 1
    # Beside weights and gradients, SGD keeps a momentum if it has one, and Adam keeps two moments.
    states = (1 if job.options["momentum"] else 0) if job.optimizer == "sgd" else 2
    weights = sum(parameter.numel() for parameter in module.parameters()) * (2 + states)
    each = (weights + job.batch_size * job.x[0].numel()) * job.x.element_size()
    several = max(min(2 * torch.get_num_threads(), MOST_BYTES // each), 1)
    return min(max(min(CACHE_BYTES // each, LARGEST_STACK), several), models)


def trained_stack(
    job: TrainingSetup, indices: Sequence[Tensor], seeds: Sequence[int], *, observe: Observer, positions: tuple[int, ...]
) -> list[nn.Module]:
    """The modules of one stack, whose row lists are equally long, trained together."""
    stack = stacked_modules([fresh_module(job.build, seed, job.x.dtype) for seed in seeds])
    step = dense_step(job, stack) or vmapped_step(job, stack)
    n, snapshot = len(indices[0]), Snapshot(positions, stack.outputs)
    batches, rates = job.batches(n), job.rates(n)
    orders = [epoch_orders(job, rows, seed) for rows, seed in zip(indices, seeds, strict=True)]
    observe(0, snapshot)
    for epoch in range(1, job.last_epoch + 1):
        rows = torch.stack([next(order) for order in orders])
        for start, stop in batches:
            step(rows[:, start:stop], next(rates))
        require_still_finite(stack.finite().numpy(), positions, epoch)
        observe(epoch, snapshot)
    return stack.unstacked()


def vmapped_step(job: TrainingSetup, stack: Stack) -> Step:
    """Make the training step of any stack that torch.vmap can run.

    A step takes rows (M, b) of the pool and a learning rate.

    The models' losses are summed, so one backward pass outside of vmap gives each model its own
    gradient.
    """
    leaves = list(stack.parameters.values())
    optimiser = job.optimiser(leaves, fused=True)
    base, spaces = stack.modules[0], dict[int, Tensor]()

    def loss(parameters: dict[str, Tensor], constants: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return mean_loss(output_rows(functional_call(base, (parameters, constants), (x,)), len(x)), y, job.task)

    def step(rows: Tensor, rate: float) -> None:
        models, batch = rows.shape
        if batch not in spaces:
            spaces[batch] = job.x.new_empty(models * batch, *job.x.shape[1:])
        chosen = rows.reshape(-1)
        torch.index_select(job.x, 0, chosen, out=spaces[batch])
        x = spaces[batch].view(models, batch, *job.x.shape[1:])
        y = job.y.index_select(0, chosen).view(models, batch, *job.y.shape[1:])
        with users_code(FORWARD_RULE):
            losses = torch.vmap(loss)(stack.parameters, stack.constants, x, y)
            gradients = torch.autograd.grad(losses.sum(), leaves, allow_unused=True)
        for leaf, gradient in zip(leaves, gradients, strict=True):
            # The one-pass kernels read memory in order.
            leaf.grad = None if gradient is None else gradient.contiguous()
        optimiser.param_groups[0]["lr"] = rate
        optimiser.step()

    return step


def reason_not_vectorisable(job: TrainingSetup) -> str | None:
    """Why the module cannot be trained in stacks, in one sentence; None when it can.

    Two models are trained for one step on a few records, stacked and one by one, and compared.
    """
    module = fresh_module(job.build, 0, job.x.dtype)
    if plain_parts(module, job.x.ndim - 1) is not None:
        return None
    for name, part in module.named_modules():
        if isinstance(part, _GLOBAL_DROPOUT) and part.p > 0:
            return f"{type(part).__name__} '{name}' draws its masks from torch's global generator: use reference.dropout.SeededDropout"
    if any(parameter._backward_hooks for parameter in module.parameters()):
        return "hooks on parameters are not called for stacked parameters"
    return _probed_difference(job)


def _probed_difference(job: TrainingSetup) -> str | None:
    rows = torch.arange(min(PROBE_RECORDS, len(job.x)))
    plain = {"optimizer": "sgd", "options": {"lr": 1e-2, "momentum": 0.0}, "schedule": "constant", "milestones": (), "warmup": 0.0}
    probe = replace(job, epochs=1, stop=None, batch_size=len(rows), drop_last=False, **plain)  # type: ignore[arg-type]
    seen: list[Tensor] = []

    def look(_: int, snapshot: Snapshot) -> None:
        seen.append(snapshot.outputs(job.x[rows]))

    alone = [trained_module(probe, rows, seed, observe=look) for seed in (0, 1)]
    try:
        together = trained_stack(probe, [rows, rows], (0, 1), observe=look, positions=(0, 1))
    except InputError as error:
        cause = str(error.__cause__ or error).strip().splitlines()[0].split(". ")[0].rstrip(".")
        return f"torch.vmap cannot run it: {cause}"
    compared = [("outputs", torch.cat(seen[1:4:2]), seen[5])]
    for one, other in zip(alone, together, strict=True):
        compared += [(name, tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items()]
    differing = [name for name, one, other in compared if not torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-3)]
    return f"one step in a stack changes '{differing[0]}' in another way than one step alone" if differing else None
