"""Recipe: the plain loop against a loop written here, the stacked engine against the plain loop, and every refusal."""

import dataclasses
import functools
import json

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from noshadow.checks import InputError, NumericalError
from noshadow.losses import record_losses
from noshadow.reference.dense import dense_step, plain_parts
from noshadow.reference.dropout import SeededDropout
from noshadow.reference.recipe import Recipe
from noshadow.reference.schedules import schedule_factors
from noshadow.reference.stacks import stacked_modules
from noshadow.reference.vectorised import stack_size, stacks_of_equal_length

N, D, CLASSES = 40, 6, 3
# Both engines do the same float64 operations in another order; a training of some twenty steps keeps the last digits apart.
TOLERANCE = 1e-9


def pool(task="classification", shape=(D,), dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    targets = {
        "classification": rng.integers(0, CLASSES, N),
        "soft": rng.dirichlet(np.ones(CLASSES), N),
        "binary": rng.integers(0, 2, N),
        "regression": rng.normal(size=(N, 2)),
    }
    return rng.normal(size=(N, *shape)).astype(dtype), targets[task]


def mlp(*, outputs=CLASSES, activation=nn.ReLU, dropout=0.0):
    drop = [SeededDropout(dropout)] if dropout else []
    return nn.Sequential(nn.Linear(D, 8), activation(), *drop, nn.Linear(8, 7, bias=False), activation(), nn.Linear(7, outputs))


class Wrapped(nn.Module):
    """The same network where the written-out products do not look: only torch.vmap is left."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x):
        return x + torch.relu(self.norm(self.linear(x)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(2, 4, batch_first=True), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x):
        return self.head(x) if x.sum() > 0 else -self.head(x)


class Jitter(nn.Module):
    def forward(self, x):
        return x + 0.01 * torch.randn_like(x)


class Forgetful(nn.Module):
    """Assigns a buffer instead of writing into it: stacked training would lose it."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(D, CLASSES)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls = self.calls + 1
        return self.head(x)


def wrapped_mlp(**options):
    return Wrapped(mlp(**options))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3),
        nn.GroupNorm(2, 6),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, CLASSES),
    )


def one_dimensional():
    return nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(12, CLASSES))


def residual():
    return nn.Sequential(nn.Linear(D, 5), Residual(5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES))


def tied():
    module = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D), nn.ReLU(), nn.Linear(D, CLASSES))
    module[2].weight = module[0].weight
    return module


def frozen():
    module = nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, CLASSES))
    module[0].weight.requires_grad_(False)
    return module


def odd_order():
    """Elementwise layers first, last and in a row: each needs its own input and output kept."""
    parts = [nn.Tanh(), SeededDropout(0.2), nn.Linear(D, CLASSES), nn.Tanh(), nn.ReLU(), nn.GELU("tanh"), SeededDropout(0.5), nn.Sigmoid()]
    return nn.Sequential(nn.Identity(), nn.Sequential(*parts), nn.Dropout(0.0))


def recipe(build=mlp, task="classification", shape=(D,), dtype=np.float64, **options):
    x, y = pool(task, shape, dtype)
    options = {"epochs": 3, "batch_size": 8, "lr": 0.05} | options
    return Recipe(build, x, y, task="classification" if task == "soft" else task, **options)


def row_lists(lengths=(21, 21, 20, 21), seed=1):
    rng = np.random.default_rng(seed)
    return [rng.permutation(N)[:length] for length in lengths]


def largest_difference(module, other):
    pairs = zip(module.state_dict().items(), other.state_dict().items(), strict=True)
    assert [name for name in module.state_dict()] == [name for name in other.state_dict()]
    return max(float((a.double() - b.double()).abs().max()) for (_, a), (_, b) in pairs)


ADAM = {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.01}
SGD = {"momentum": 0.9, "weight_decay": 0.01}
CASES = {
    "sgd": ({}, {}),
    "momentum": (SGD, {}),
    "nesterov": (SGD | {"nesterov": True}, {}),
    "adam": (ADAM | {"betas": (0.8, 0.99), "eps": 1e-6}, {}),
    "adamw": (ADAM | {"optimizer": "adamw"}, {}),
    "cosine": (SGD | {"schedule": "cosine", "warmup": 0.3}, {}),
    "linear": (ADAM | {"schedule": "linear"}, {}),
    "step": (SGD | {"schedule": "step", "milestones": (1, 2), "gamma": 0.5}, {}),
    "callable": (SGD | {"schedule": lambda step, total: 1 / (1 + step / total)}, {}),
    "drop_last, in order": (SGD | {"drop_last": True, "shuffle": False}, {}),
    "one batch": (SGD | {"batch_size": 64}, {}),
    "tanh": (SGD, {"build": functools.partial(mlp, activation=nn.Tanh)}),
    "sigmoid": (SGD, {"build": functools.partial(mlp, activation=nn.Sigmoid)}),
    "gelu": (SGD, {"build": functools.partial(mlp, activation=nn.GELU)}),
    "dropout": (SGD, {"build": functools.partial(mlp, dropout=0.3)}),
    "binary": (SGD, {"build": functools.partial(mlp, outputs=1), "task": "binary"}),
    "regression": (SGD, {"build": functools.partial(mlp, outputs=2), "task": "regression"}),
    "soft labels": (SGD, {"task": "soft"}),
    "vmap": (ADAM, {"build": wrapped_mlp}),
    "vmap, dropout": (SGD, {"build": functools.partial(wrapped_mlp, dropout=0.3)}),
    "vmap, binary": (SGD, {"build": functools.partial(wrapped_mlp, outputs=1), "task": "binary"}),
    "vmap, regression": (SGD, {"build": functools.partial(wrapped_mlp, outputs=2), "task": "regression"}),
    "vmap, soft labels": (SGD, {"build": wrapped_mlp, "task": "soft"}),
    "convolutions, BatchNorm, GroupNorm": (ADAM, {"build": convolutional, "shape": (1, 8, 8)}),
    "one-dimensional convolutions": (SGD, {"build": one_dimensional, "shape": (2, 10)}),
    "residual, LayerNorm, BatchNorm": (SGD | {"drop_last": True}, {"build": residual}),
    "tied weights": (SGD, {"build": tied}),
    "frozen weights": (SGD, {"build": frozen}),
    "one Linear": (SGD, {"build": functools.partial(nn.Linear, D, CLASSES)}),
    "flattened": (SGD, {"build": lambda: nn.Sequential(nn.Flatten(), nn.Linear(D, CLASSES)), "shape": (2, 3)}),
    "odd order of layers": (SGD, {"build": odd_order}),
}


@pytest.mark.parametrize("name", CASES)
def test_many_at_once_equal_one_by_one(name):
    options, setup = CASES[name]
    own = recipe(**setup, **options)
    assert own.vectorisable() is None
    rows, seeds = row_lists(), [3, 1, 4, 1]
    many, traces = own.train_many(rows, seeds, traces_on=True, stack=2)
    for position, (indices, seed) in enumerate(zip(rows, seeds, strict=True)):
        module, trace = own.train_one(indices, seed, traces=True)
        assert largest_difference(many[position], module) < TOLERANCE
        np.testing.assert_allclose(traces[position], trace, rtol=0, atol=TOLERANCE)
        untrained = np.abs(trace[:, -1] - trace[:, 0]).max()
        assert untrained > 1e-3  # something was learned, or the comparison says nothing
        assert not any(part.training for part in (*many[position].modules(), *module.modules()))
        assert all(parameter.grad is None for parameter in (*many[position].parameters(), *module.parameters()))


@pytest.mark.parametrize(("build", "shape"), [(mlp, (D,)), (convolutional, (1, 8, 8))])
def test_float32_stays_float32_and_close(build, shape):
    own = recipe(build, shape=shape, dtype=np.float32, **ADAM)
    rows = row_lists()
    for one, many in zip([own(i, s) for s, i in enumerate(rows)], own.train_many(rows, range(4), stack=4), strict=True):
        assert {p.dtype for p in many.parameters()} == {torch.float32}
        # A dozen float32 steps; Adam divides small gradients by small roots, which magnifies their rounding.
        assert largest_difference(one, many) < 1e-3


@pytest.mark.parametrize("options", [{}, {"activation": nn.GELU}, {"dropout": 0.4}, {"outputs": 1}])
def test_written_out_products_equal_vmap(options):
    task = "binary" if "outputs" in options else "classification"
    dense, generic = (recipe(functools.partial(build, **options), task, **SGD) for build in (mlp, wrapped_mlp))
    assert plain_parts(dense.build(), 1) is not None
    assert plain_parts(generic.build(), 1) is None
    for plain, wrapped in zip(*(own.train_many(row_lists(), range(4)) for own in (dense, generic)), strict=True):
        assert largest_difference(plain, wrapped.inner) < 1e-12


@pytest.mark.parametrize("stack", [1, 3, 4, 100, "auto"])
def test_the_stack_size_changes_nothing(stack):
    own, rows = recipe(**SGD), row_lists()
    for one, many in zip(own.train_many(rows, range(4), stack=2), own.train_many(rows, range(4), stack=stack), strict=True):
        assert largest_difference(one, many) < 1e-12


def test_the_plain_loop_is_the_loop_anyone_would_write():
    own = recipe(optimizer="adamw", weight_decay=0.1, schedule="cosine", shuffle=False)
    rows = np.arange(20)
    torch.manual_seed(7)
    module = mlp().double()
    optimiser = torch.optim.AdamW(module.parameters(), lr=0.05, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=9)
    for _ in range(3):
        for start in (0, 8, 16):
            batch = torch.from_numpy(rows[start : start + 8])
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(own.x[batch]), own.y[batch]).backward()
            optimiser.step()
            scheduler.step()
    assert largest_difference(own(rows, 7), module) < 1e-13


class Logging(nn.Module):
    """Keeps the first column of every batch it is trained on."""

    def __init__(self, seen):
        super().__init__()
        self.head, self.seen = nn.Linear(1, 1), seen

    def forward(self, x):
        if self.training:
            self.seen.append(x[:, 0].tolist())
        return self.head(x)


def test_every_epoch_is_a_permutation_of_the_rows_decided_by_the_seed():
    seen, x = [], np.arange(10.0)[:, None]
    own = Recipe(lambda: Logging(seen), x, np.zeros(10), task="regression", epochs=2, batch_size=4, lr=1e-6)
    orders = {}
    for seed in (0, 0, 1):
        seen.clear()
        own([1, 3, 5, 7, 9], seed)
        assert [len(batch) for batch in seen] == [4, 1, 4, 1]
        first, second = [*seen[0], *seen[1]], [*seen[2], *seen[3]]
        assert sorted(first) == sorted(second) == [1, 3, 5, 7, 9]
        assert first != second
        assert orders.setdefault(seed, seen[:]) == seen
    assert orders[0] != orders[1]


@pytest.mark.parametrize(
    ("optimizer", "momentum", "nesterov"),
    [("sgd", 0.0, False), ("sgd", 0.9, False), ("sgd", 0.9, True), ("adam", 0.0, False), ("adamw", 0.0, False)],
)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_one_pass_optimisers_equal_the_plain_ones(optimizer, momentum, nesterov, weight_decay):
    job = recipe(optimizer=optimizer, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)._job()
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(3, 5, 7, dtype=torch.float64, generator=generator)
    copies = [nn.Parameter(start.clone()), nn.Parameter(start.clone())]
    optimisers = [job.optimiser([copy], fused=fused) for copy, fused in zip(copies, (False, True), strict=True)]
    for step in range(50):
        gradient = torch.randn(3, 5, 7, dtype=torch.float64, generator=generator)
        for copy, optimiser in zip(copies, optimisers, strict=True):
            copy.grad = gradient.clone()
            optimiser.param_groups[0]["lr"] = 0.1 / (1 + step)
            optimiser.step()
    assert float((copies[0].detach() - start).abs().max()) > 0.1
    torch.testing.assert_close(copies[1], copies[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("build", "shape"), [(functools.partial(mlp, dropout=0.2), (D,)), (convolutional, (1, 8, 8))])
def test_the_same_call_gives_the_same_bits(build, shape):
    own, rows = recipe(build, shape=shape, dtype=np.float32, **SGD), row_lists()
    first, second = (own.train_many(rows, range(4), stack=2) for _ in range(2))
    for one, other in zip([*first, own(rows[0], 9)], [*second, own(rows[0], 9)], strict=True):
        assert largest_difference(one, other) == 0


def test_global_dropout_follows_the_seed_in_the_plain_loop():
    own = recipe(lambda: nn.Sequential(nn.Linear(D, 9), nn.Dropout(0.5), nn.Linear(9, CLASSES)))
    rows = np.arange(20)
    assert largest_difference(own(rows, 1), own(rows, 1)) == 0


def test_the_callers_generator_and_data_are_left_alone():
    x, y = pool()
    kept = x.copy(), y.copy()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    own = Recipe(functools.partial(mlp, dropout=0.5), x, y, epochs=1, batch_size=8, lr=0.1)
    own.train_many(row_lists(), range(4), traces_on=True)
    own(np.arange(9), 3)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(x, kept[0])
    np.testing.assert_array_equal(y, kept[1])
    x.flags.writeable = False
    Recipe(mlp, x, y, epochs=1, batch_size=8, lr=0.1)


def test_traces_are_the_audits_losses_in_eval_mode_before_training_and_after_each_epoch():
    build = functools.partial(mlp, dropout=0.5)
    own, rows, column = recipe(build), np.arange(20), []

    def look(epoch, snapshot):
        column.append((epoch, snapshot.models, record_losses(snapshot.outputs(own.x)[-1].numpy(), own.y.numpy(), "classification")))

    modules, traces = own.train_many([rows, rows], [0, 8], traces_on=True, on_epoch=look)
    assert traces.shape == (2, N, 4)
    assert [(epoch, models) for epoch, models, _ in column] == [(epoch, (0, 1)) for epoch in range(4)]
    np.testing.assert_array_equal(traces[1], np.stack([losses for *_, losses in column], 1))
    torch.manual_seed(8)
    for module, index in ((build().double().eval(), 0), (modules[1], -1)):
        expected = nn.functional.cross_entropy(module(own.x), own.y, reduction="none").detach().numpy()
        np.testing.assert_allclose(traces[1, :, index], expected, atol=1e-12)
    some = own.train_many([rows, rows], [0, 8], traces_on=[4, 2])[1]
    given = own.train_many([rows, rows], [0, 8], traces_on=(own.x[[4, 2]], own.y[[4, 2]]))[1]
    np.testing.assert_allclose(some, traces[:, [4, 2]], atol=1e-12)
    np.testing.assert_allclose(given, some, atol=1e-12)
    assert own.train_one(rows, 8, traces=True)[1].shape == (N, 4)


def test_the_schedules_equal_torchs():
    epochs, steps = 4, 3
    torchs = {
        "cosine": (lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=epochs * steps), {}),
        "linear": (lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.0, total_iters=epochs * steps), {}),
        "step": (
            lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [1 * steps, 3 * steps], gamma=0.2),
            {"milestones": (1, 3), "gamma": 0.2},
        ),
    }
    for name, (scheduler, options) in torchs.items():
        optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(()))], lr=1.0)
        stepping, expected = scheduler(optimiser), []
        for _ in range(epochs * steps):
            expected.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            stepping.step()
        # torch multiplies factors up step by step, which rounds a dozen times
        np.testing.assert_allclose(schedule_factors(name, epochs=epochs, steps=steps, **options), expected, atol=1e-12)


def test_warm_up_rises_and_then_leaves_the_whole_schedule():
    factors = schedule_factors("cosine", epochs=2, steps=10, warmup=0.2)
    np.testing.assert_allclose(factors[:4], [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(factors[4:], schedule_factors("cosine", epochs=1, steps=16))
    assert schedule_factors(lambda step, total: step / total, epochs=1, steps=4, warmup=0.5) == [0.0, 0.25, 0.5, 0.75]


def test_dropout_masks_look_random_across_places_steps_and_layers():
    torch.manual_seed(0)
    layers, ones = [SeededDropout(0.3) for _ in range(3)], torch.ones(200, 50, dtype=torch.float64)
    masks = [layer(ones) for layer in layers for _ in range(4)]
    kept = torch.stack([mask.flatten() > 0 for mask in masks]).double()
    for mask in masks:
        values = mask.unique()
        torch.testing.assert_close(values, torch.tensor([0.0, 1 / 0.7], dtype=torch.float64))
    # 120,000 fair draws: five standard errors of a mean, and of correlations over 10,000 places.
    assert abs(float(kept.mean()) - 0.7) < 5 * (0.21 / kept.numel()) ** 0.5
    correlation = np.corrcoef(kept.numpy())
    assert np.abs(correlation[~np.eye(12, dtype=bool)]).max() < 5 / 100
    for lag in (1, 2, 50, 64):  # neighbours in a row and in a column
        assert abs(np.corrcoef(kept[0, :-lag], kept[0, lag:])[0, 1]) < 5 / 100


def test_dropout_in_eval_mode_and_its_counter():
    layer, x = SeededDropout(0.5), torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    assert layer.eval()(x) is x
    assert int(layer.step) == 0
    first, second = layer.train()(x), layer(x)
    assert int(layer.step) == 2
    assert not torch.equal(first, second)
    layer.step.zero_()
    assert torch.equal(layer(x), first)
    assert SeededDropout(0.0)(x) is x
    assert float((SeededDropout(1 - 1e-12)(torch.ones(1000)) > 0).float().mean()) < 0.01
    assert "p=0.5" in repr(layer)


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan"), "half"])
def test_dropout_refuses_other_shares(p):
    with pytest.raises(InputError, match="SeededDropout: p must be a number ≥ 0 and < 1"):
        SeededDropout(p)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=40), st.integers(1, 9))
def test_stacks_cover_every_model_once_and_hold_one_length(lengths, size):
    stacks = stacks_of_equal_length(lengths, size)
    assert sorted(position for stack in stacks for position in stack) == list(range(len(lengths)))
    for stack in stacks:
        assert 1 <= len(stack) <= size
        assert len({lengths[position] for position in stack}) == 1
    sizes = [len(stack) for stack in stacks if lengths[stack[0]] == lengths[0]]
    assert max(sizes) - min(sizes) <= 1


def test_stacks_are_sized_by_memory_and_convolutions_stay_alone():
    job = recipe(dtype=np.float32, **ADAM)._job()
    assert stack_size(job, mlp(), 64) == 32
    assert stack_size(job, mlp(), 5) == 5
    with torch.device("meta"):
        assert 1 <= stack_size(job, nn.Linear(1000, 1000), 64) < 32
        assert stack_size(job, nn.Linear(9000, 9000), 64) == 1
    assert stack_size(job, convolutional(), 64) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m[0].register_forward_hook(lambda *_: None),
        lambda m: m.register_forward_pre_hook(lambda *_: None),
        lambda m: m[0].weight.register_hook(lambda g: g),
        lambda m: m[0].weight.requires_grad_(False),
        lambda m: m.append(nn.Softmax(1)),
        lambda m: m.append(m[-1]),
        lambda m: nn.utils.parametrizations.weight_norm(m[0]),
        lambda m: m.insert(1, nn.Flatten(0)),
    ],
)
def test_written_out_products_leave_unusual_networks_to_vmap(change):
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    assert plain_parts(module, 1) is not None
    assert plain_parts(module, 2) is None
    change(module)
    assert plain_parts(module, 1) is None
    if not any(parameter._backward_hooks for parameter in module.parameters()) and len(module) == 3:
        job = recipe(dtype=np.float32)._job()
        assert dense_step(job, stacked_modules([module])) is None


@pytest.mark.parametrize(
    ("build", "shape", "reason"),
    [
        (Recurrent, (5, 2), "torch.vmap cannot run it: Batching rule not implemented for aten::lstm"),
        (Branching, (D,), "torch.vmap cannot run it: .*control flow"),
        (lambda: nn.Sequential(nn.Linear(D, CLASSES), nn.Dropout(0.5)), (D,), "Dropout '1' draws its masks .* use reference.dropout"),
        (lambda: nn.Sequential(nn.Linear(D, CLASSES), Jitter()), (D,), "torch.vmap cannot run it: .*random"),
        (Forgetful, (D,), "changes 'calls' in another way"),
    ],
)
def test_what_cannot_be_stacked_is_refused_with_the_reason(build, shape, reason):
    own = recipe(build, shape=shape)
    why = own.vectorisable()
    assert why is not None
    with pytest.raises(InputError, match=f"train_many: build must make a module that can be stacked; got .*{reason}"):
        own.train_many(row_lists(), range(4))
    assert isinstance(own(np.arange(20), 0), nn.Module)


def test_hooks_on_parameters_cannot_be_stacked():
    def build():
        module = mlp()
        module[0].weight.register_hook(lambda gradient: 2 * gradient)
        return module

    assert "hooks on parameters" in recipe(build).vectorisable()


@pytest.mark.parametrize("build", [mlp, wrapped_mlp])
def test_a_loss_that_becomes_nan_stops_the_training(build):
    x, y = pool("regression")
    y[7] = 1e80  # the step after meeting it overflows
    own = Recipe(functools.partial(build, outputs=2, activation=nn.Identity), x, y, epochs=5, batch_size=1, lr=1e-3)
    message = "the training loss of model {} must stay finite; it became NaN in epoch 1. Lower lr"
    with pytest.raises(NumericalError, match=message.format(0)):
        own([7, 8, 9], 0)
    with pytest.raises(NumericalError, match=message.format(1)):
        own.train_many([[0, 1, 2], [7, 8, 9]], [0, 0], stack=2)


@pytest.mark.parametrize("build", [mlp, odd_order])
@pytest.mark.parametrize("options", [SGD | {"schedule": "cosine", "warmup": 0.2}, ADAM | {"schedule": "linear"}])
def test_a_training_that_stops_is_the_whole_one_at_that_epoch(build, options):
    """Same schedule, batches and masks: the model is that of the longer training, bit for bit, and no shorter schedule's."""
    whole = recipe(build, **options, epochs=5)
    short = dataclasses.replace(whole, stop=2)
    rows, seeds = row_lists((21, 21)), [3, 4]
    for train in (
        lambda own, look: own.train_one(rows[0], seeds[0], traces=True, on_epoch=look),
        lambda own, look: own.train_many(rows, seeds, traces_on=True, on_epoch=look),
    ):
        seen = {}
        _, losses = train(whole, lambda epoch, snapshot, seen=seen: seen.setdefault(epoch, snapshot.outputs(whole.x).clone()))
        epochs = []
        stopped, own = train(short, lambda epoch, snapshot, epochs=epochs: epochs.append(epoch))
        models = stopped if isinstance(stopped, list) else [stopped]
        assert epochs == [0, 1, 2] and own.shape == (*losses.shape[:-1], 3)
        np.testing.assert_array_equal(own, losses[..., :3])
        with torch.no_grad():
            outputs = torch.stack([model(whole.x) for model in models])
        # A module by itself and as one of a stack multiply in another order: rounding of float64.
        torch.testing.assert_close(outputs, seen[2], rtol=1e-10, atol=1e-12)
    shorter = recipe(build, **options, epochs=2)
    assert largest_difference(shorter(rows[0], 3), short(rows[0], 3)) > 1e-4


def test_where_a_recipe_stops_is_part_of_the_experiment():
    whole = recipe()
    assert "stop" not in whole.settings() and dataclasses.replace(whole, stop=2).settings()["stop"] == 2
    assert largest_difference(whole([0, 1, 2], 1), dataclasses.replace(whole, stop=3)([0, 1, 2], 1)) == 0


def test_settings_are_json_and_complete():
    own = recipe(functools.partial(mlp, dropout=0.1), **SGD, schedule="step", milestones=[1, 2], drop_last=True)
    stored = json.loads(json.dumps(own.settings(), allow_nan=False))
    assert stored == own.settings()
    assert stored["build"].endswith("mlp(dropout=0.1)")
    assert stored["milestones"] == [1, 2]
    assert (stored["records"], stored["input_shape"], stored["dtype"], stored["outputs"]) == (N, [D], "float64", CLASSES)
    names = "epochs batch_size optimizer lr momentum nesterov betas eps weight_decay schedule warmup gamma drop_last shuffle task"
    assert set(names.split()) < set(stored)
    named = recipe(schedule=schedule_of_a_name).settings()
    assert named["schedule"].endswith("schedule_of_a_name")
    assert named["build"].endswith(".mlp")
    assert len(repr(own)) < 1000


def schedule_of_a_name(step, total):
    return 1.0


def test_a_recipe_travels_between_processes():
    own = recipe(lambda: mlp(dropout=0.2), **ADAM)
    copy = cloudpickle.loads(cloudpickle.dumps(own))
    assert copy.settings() == own.settings()
    rows = row_lists()
    for one, other in zip(own.train_many(rows, range(4)), copy.train_many(rows, range(4)), strict=True):
        assert largest_difference(one, other) == 0


def test_tasks_are_settled_when_the_recipe_is_made():
    assert recipe(task="classification").settings()["task"] == "classification"
    x, y = pool("regression")
    assert Recipe(functools.partial(mlp, outputs=2), x, y, epochs=1, batch_size=4, lr=0.1).task == "regression"
    x, y = pool("binary")
    assert Recipe(functools.partial(mlp, outputs=1), x, y, epochs=1, batch_size=4, lr=0.1).task == "binary"
    one = Recipe(lambda: nn.Sequential(nn.Linear(D, 1), nn.Flatten(0)), x, y, epochs=1, batch_size=4, lr=0.1)
    assert one.outputs == 1
    assert len(one.train_many(row_lists(), range(4))) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"build": 3}, "Recipe: build must be callable without arguments; got int"),
        ({"build": lambda: 3}, "Recipe: build must return a torch.nn.Module; got int"),
        ({"build": lambda width: nn.Linear(D, width)}, "Recipe: build must make a module without arguments; got TypeError"),
        ({"build": nn.Identity}, "Recipe: build must return a module with parameters to train; got Identity"),
        ({"build": lambda: nn.Linear(D + 1, 3)}, "Recipe: build must make a module that takes rows of x; got RuntimeError"),
        ({"build": lambda: nn.Unflatten(1, (2, 3)).append(1)}, "Recipe: build must make a module without arguments; got AttributeError"),
        ({"build": lambda: nn.Sequential(nn.Linear(D, 6), nn.Unflatten(1, (2, 3)))}, "gives one row of outputs a record"),
        ({"build": lambda: nn.Linear(D, 1)}, "Recipe: task must be named"),
        ({"build": lambda: nn.Linear(D, 2)}, "Recipe: targets must be < 2, the number of outputs; got label 2"),
        ({"x": np.full((N, D), np.nan)}, "Recipe: x must be finite; got 240 NaN"),
        ({"x": np.zeros(N)}, "Recipe: x must be 2-dimensional or"),
        ({"x": np.zeros((0, D)), "y": np.zeros(0)}, "Recipe: x must hold at least one record"),
        ({"y": np.zeros(3, int)}, "Recipe: x and y must have one row per record; got lengths x 40, y 3"),
        ({"y": np.full(N, np.nan)}, "Recipe: y must be finite"),
        ({"task": "ranking"}, "Recipe: task must be one of 'auto', 'regression'"),
        ({"task": "binary"}, "Recipe: outputs must have one column in a binary task"),
        ({"epochs": 0}, "Recipe: epochs must be a whole number ≥ 1; got 0"),
        ({"epochs": 1.5}, "Recipe: epochs must be a whole number ≥ 1; got 1.5"),
        ({"stop": 0}, "Recipe: stop must be a whole number ≥ 1; got 0"),
        ({"stop": 4}, "Recipe: stop must be one of the 3 epochs; got 4"),
        ({"batch_size": 0}, "Recipe: batch_size must be a whole number ≥ 1; got 0"),
        ({"lr": 0}, "Recipe: lr must be a number > 0; got 0"),
        ({"lr": float("nan")}, "Recipe: lr must be a number > 0; got nan"),
        ({"optimizer": "lbfgs"}, "Recipe: optimizer must be one of 'sgd', 'adam', 'adamw'; got 'lbfgs'"),
        ({"weight_decay": -1}, "Recipe: weight_decay must be a number ≥ 0; got -1"),
        ({"momentum": 1}, "Recipe: momentum must be a number ≥ 0 and < 1; got 1"),
        ({"optimizer": "adam", "momentum": 0.9}, "Recipe: momentum and nesterov must be left out with Adam and AdamW.*Set betas"),
        ({"betas": (0.5, 0.9)}, "Recipe: betas and eps must be left out with SGD.*Set momentum"),
        ({"optimizer": "adam", "betas": (0.5, 1.0)}, "Recipe: betas must be a number ≥ 0 and < 1; got 1"),
        ({"optimizer": "adam", "betas": 0.9}, "Recipe: betas must be a pair of numbers; got 0.9"),
        ({"optimizer": "adam", "eps": 0}, "Recipe: eps must be a number > 0; got 0"),
        ({"nesterov": True}, "Recipe: nesterov must come with momentum > 0; got momentum=0"),
        ({"nesterov": 1}, "Recipe: nesterov must be True or False; got 1"),
        ({"schedule": "exponential"}, "Recipe: schedule must be one of 'constant', 'cosine', 'linear', 'step'"),
        ({"schedule": "step"}, "Recipe: milestones must be given with schedule='step' and only then"),
        ({"milestones": (1,)}, "Recipe: milestones must be given with schedule='step' and only then"),
        ({"schedule": "step", "milestones": 1}, "Recipe: milestones must be a tuple of epochs; got 1"),
        ({"schedule": "step", "milestones": (0,)}, "Recipe: milestones must be a whole number ≥ 1; got 0"),
        ({"schedule": "step", "milestones": (2, 1)}, r"Recipe: milestones must rise and stay below the number of epochs \(3\)"),
        ({"schedule": "step", "milestones": (3,)}, r"Recipe: milestones must rise and stay below the number of epochs \(3\)"),
        ({"warmup": 1.0}, "Recipe: warmup must be a number ≥ 0 and < 1; got 1"),
        ({"gamma": 0}, "Recipe: gamma must be a number > 0; got 0"),
        ({"shuffle": "yes"}, "Recipe: shuffle must be True or False; got 'yes'"),
    ],
)
def test_wrong_recipes_are_refused(options, message):
    x, y = pool()
    right = {"build": mlp, "x": x, "y": y, "epochs": 3, "batch_size": 8, "lr": 0.1}
    with pytest.raises(InputError, match=message):
        Recipe(**(right | options))


@pytest.mark.parametrize(
    ("indices", "seed", "message"),
    [
        ([], 0, "indices must be a 1-dimensional array of row numbers"),
        (np.zeros(0, int), 0, "indices must hold at least one row; got none"),
        ([[0, 1]], 0, "indices must be a 1-dimensional array of row numbers"),
        (np.ones(N, bool), 0, "indices must be a 1-dimensional array of row numbers; got dtype bool.*np.flatnonzero"),
        ([0, N], 0, "indices must lie in 0 … 39; got 0 to 40"),
        ([-1, 3], 0, "indices must lie in 0 … 39; got -1 to 3"),
        ([5, 3, 5], 0, "indices must name each row once; got row 5 2 times"),
        ([0, 1], 0, "indices must fill one batch of 8 with drop_last; got 2 rows"),
        (np.arange(9), -1, "seed must be a whole number ≥ 0"),
        (np.arange(9), 0.5, "seed must be a whole number ≥ 0"),
        (np.arange(9), 2**32, "seed must be < 2³²"),
    ],
)
def test_wrong_rows_and_seeds_are_refused(indices, seed, message):
    own = recipe(drop_last=True)
    with pytest.raises(InputError, match=f"Recipe.train_one: {message}"):
        own(indices, seed)
    with pytest.raises(InputError, match=f"train_many: {message}"):
        own.train_many([np.arange(9), indices], [0, seed])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": [1]}, "train_many: indices_list and seeds must have one entry a model, at least one; got lengths 2 and 1"),
        ({"stack": 0}, "train_many: stack must be a whole number ≥ 1; got 0"),
        ({"stack": "many"}, "train_many: stack must be a whole number ≥ 1; got 'many'"),
        ({"traces_on": [N]}, "Recipe.train_many: traces must be True, row numbers in 0 … 39, or a pair"),
        ({"traces_on": False}, "Recipe.train_many: traces must be True, row numbers"),
        ({"traces_on": (np.zeros((2, D + 1)), np.zeros(2, int))}, r"Recipe.train_many: traced x must hold records of shape \(6,\)"),
        ({"traces_on": (np.zeros((2, D)), np.zeros(3, int))}, "Recipe.train_many: x and y must have one row per record"),
        ({"traces_on": (np.zeros((2, D)), np.array([0, 3]))}, "Recipe.train_many: targets must be < 3, the number of outputs"),
    ],
)
def test_wrong_arguments_of_many_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        recipe().train_many(**({"indices_list": [np.arange(9), np.arange(9)], "seeds": [0, 1]} | options))


def test_no_models_are_refused_and_so_are_architectures_that_differ():
    with pytest.raises(InputError, match="at least one; got lengths 0 and 0"):
        recipe().train_many([], [])
    widths = iter([4, 4, 4, 4, 4, 5, 6, 7, 8])

    def build():
        width = next(widths)
        return nn.Sequential(nn.Linear(D, width), nn.ReLU(), nn.Linear(width, CLASSES))

    own = recipe(build)
    with pytest.raises(
        InputError, match=r"train_many: build must make the same architecture every time; got modules that differ in '0[.]weight'"
    ):
        own.train_many(row_lists(), range(4))


@pytest.mark.parametrize(
    ("schedule", "got"), [(lambda s, t: -1.0, "-1.0"), (lambda s, t: None, "None"), (lambda s, t: 1 / 0, "ZeroDivisionError")]
)
def test_a_schedule_of_the_users_own_is_checked(schedule, got):
    with pytest.raises(InputError, match=f"Recipe.train_one: schedule must give a finite number ≥ 0 for every step; got {got}"):
        recipe(schedule=schedule)(np.arange(9), 0)


def test_a_module_that_fails_while_training_is_named():
    own = recipe(residual, batch_size=8)
    with pytest.raises(InputError, match=r"Recipe\.train_one: the module must train on batches of the pool; got ValueError"):
        own(np.arange(9), 0)  # BatchNorm meets a last batch of one record
    with pytest.raises(InputError, match="train_many: the module must train on batches of the pool; got ValueError"):
        own.train_many([np.arange(9)] * 2, [0, 1])
