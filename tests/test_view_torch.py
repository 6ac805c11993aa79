"""Views of nn.Modules: the head that ran, records in the data's order, and a model left as it was found."""

import random
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from noshadow import InputError
from noshadow.errors import speaking_for
from noshadow.views import collect_signals, view
from noshadow.views.torch import PROBE_RECORDS

N, D, M = 23, 4, 3
RNG = np.random.default_rng(11)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = RNG.integers(0, M, size=N)
REAL = RNG.normal(size=N).astype(np.float32)
DATA = TensorDataset(torch.tensor(X), torch.tensor(Y))


def net(outputs=M, *, bias=True, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(OrderedDict(body=nn.Linear(D, 5), act=nn.Tanh(), head=nn.Linear(5, outputs, bias=bias))).to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    return model


class Ended(nn.Module):
    """A network with something done to its output, and any forward signature."""

    def __init__(self, end, outputs=M, **options):
        super().__init__()
        self.net, self.end = net(outputs, **options), end

    def forward(self, x):
        return self.end(self.net(x))


class Calls(nn.Module):
    """A network called through a function of itself and the batch's inputs."""

    def __init__(self, how, outputs=M):
        super().__init__()
        self.net, self.how = net(outputs), how

    def forward(self, *args, **kwargs):
        return self.how(self.net, *args, **kwargs)


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.conv, self.norm, self.drop, self.fc = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Linear(4 * 4, M)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator))

    def forward(self, x):
        return self.fc(self.drop(torch.relu(self.norm(self.conv(x)))).flatten(1))


def assert_linear(signals, head):
    bias = 0 if head.bias is None else head.bias.detach().numpy()
    # float32 sums of at most 16 products.
    np.testing.assert_allclose(signals.features @ head.weight.detach().numpy().T + bias, signals.outputs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_a_network_is_read_at_its_last_linear(bias):
    model = net(bias=bias)
    seen = view(model, (X, Y), (X[:6], Y[:6]), batch_size=5)
    with torch.no_grad():
        np.testing.assert_allclose(seen.train.outputs, model(torch.tensor(X)).numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(seen.train.features, model[:2](torch.tensor(X)).numpy(), rtol=1e-5, atol=1e-6)
    assert_linear(seen.train, model.head)
    np.testing.assert_array_equal(seen.train.targets, Y)
    np.testing.assert_allclose(seen.test.outputs, seen.train.outputs[:6], rtol=1e-5, atol=1e-6)
    assert seen.head == f"Linear 'head' (5 → 3, {'with' if bias else 'without'} bias)"
    assert (seen.fit_intercept, seen.penalize_intercept, seen.task, seen.notes) == (bias, True, "auto", ())
    assert (seen.damping, seen.not_applicable, seen.sample_weight, seen.class_names) == (None, None, None, None)
    assert "weight_decay was not given" in seen.damping_source


def test_a_bare_linear_is_its_own_head():
    model = nn.Linear(D, 2)
    seen = view(model, (X, Y % 2), None)
    np.testing.assert_array_equal(seen.train.features, X)
    assert seen.head == "Linear 'model' (4 → 2, with bias)"


@pytest.mark.parametrize(
    ("end", "name"),
    [
        (lambda z: functional.log_softmax(z, dim=1), "log_softmax"),
        (lambda z: functional.softmax(z, dim=1), "softmax"),
        (lambda z: z.mul_(1).softmax(1), "softmax"),
        (lambda z: z, ""),
    ],
)
def test_softmax_ends_give_raw_logits(end, name):
    model = Ended(end)
    seen = view(model, (X, Y), None)
    assert_linear(seen.train, model.net.head)
    assert seen.notes == ((f"The model ends in a {name}; the raw output of its head is used as logits.",) if name else ())


@pytest.mark.parametrize(
    "end",
    [
        torch.sigmoid,
        lambda z: torch.sigmoid(z).squeeze(1),
        # In place: the hook must have seen the raw values before they were overwritten.
        lambda z: z.sigmoid_(),
    ],
)
def test_one_logit_under_a_sigmoid(end):
    model = Ended(end, outputs=1)
    seen = view(model, (X, Y % 2), None, weight_decay=0.1)
    assert seen.train.outputs.shape == (N, 1)
    assert_linear(seen.train, model.net.head)
    assert (seen.task, seen.damping) == ("binary", pytest.approx(0.1 * N))
    assert seen.notes[0].startswith("The model ends in a sigmoid")


@pytest.mark.parametrize(
    "end",
    [
        lambda z: z.squeeze(1),
        lambda z: (z, z * 2),
        lambda z: [None, z],
        lambda z: {"loss": None, "logits": z},
        lambda z: OrderedDict(hidden=z * 3, logits=z),
        lambda z: {"prediction": z},
        lambda z: SimpleNamespace(logits=z, hidden_states=None),
        lambda z: namedtuple("Out", "first second")(z, z),
    ],
)
def test_outputs_in_many_wrappings(end):
    model = Ended(end, outputs=1)
    signals = collect_signals(model, (X, REAL))
    assert signals.outputs.shape == (N, 1)
    assert_linear(signals, model.net.head)


def test_batch_norm_and_dropout_run_in_eval_mode_and_flags_return():
    model, images = Pictures(), torch.tensor(RNG.normal(size=(N, 1, 4, 4)).astype(np.float32))
    model.train()
    model.norm.eval()
    running = model.norm.running_mean.clone()
    signals = collect_signals(model, (images, Y), batch_size=4)
    assert (model.training, model.norm.training, model.drop.training) == (True, False, True)
    assert torch.equal(model.norm.running_mean, running)
    assert not model.fc._forward_hooks
    assert_linear(signals, model.fc)
    model.eval()
    with torch.no_grad():
        np.testing.assert_allclose(signals.outputs, model(images).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("failing_call", [1, 3])
def test_everything_is_restored_after_an_exception(failing_call):
    calls = []

    def end(z):
        calls.append(len(z))
        if len(calls) == failing_call:
            raise KeyError("broken")
        return z

    model = Ended(end)
    model.train()
    model.net.act.eval()
    before = torch.get_rng_state()
    with pytest.raises(InputError, match=r"got KeyError .*broken"):
        collect_signals(model, (X, Y), batch_size=4)
    assert (model.training, model.net.training, model.net.act.training) == (True, True, False)
    assert not any(m._forward_hooks for m in model.modules())
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()


def test_a_shared_head_counts_its_last_call():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(D, M)

        def forward(self, x):
            return self.head(input=x + self.head(x).sum(1, keepdim=True))

    model = Twice()
    signals = collect_signals(model, (X, Y))
    assert_linear(signals, model.head)
    assert not np.allclose(signals.features, X)


def test_a_layer_can_be_named():
    model = net()
    seen = view(model, (X, Y), None, layer="body")
    np.testing.assert_array_equal(seen.train.features, X)
    assert seen.head == "Linear 'body' (4 → 5, with bias)"
    assert "the model's own output differs" in seen.notes[0]
    assert view(model, (X, Y), None, layer="head").notes == ()
    ended = Ended(lambda z: z.log_softmax(1))
    assert view(ended, (X, Y), None, layer="net.head").notes[0].startswith("The model ends in a log_softmax")
    odd = Ended(lambda z: "text")
    assert collect_signals(odd, (X, Y), layer="net.head").outputs.shape == (N, M)


def test_dtypes_follow_the_model():
    double = collect_signals(net(dtype=torch.float64), (X, Y))
    assert (double.features.dtype, double.outputs.dtype) == (np.float64, np.float64)
    half = collect_signals(net(dtype=torch.bfloat16), (X.astype(np.float64), Y.astype(np.int32)))
    assert (half.features.dtype, half.outputs.dtype, half.targets.dtype) == (np.float32, np.float32, np.int32)
    assert collect_signals(net(1), (X, REAL.astype(np.float64)[:, None])).targets.dtype == np.float64
    assert collect_signals(net(1), (X, REAL[:, None])).targets.shape == (N,)


def test_arrays_of_any_layout_are_accepted_and_untouched():
    frozen = X.copy()
    frozen.flags.writeable = False
    expected = collect_signals(net(), (X, Y)).sha256()
    for inputs in (frozen, np.asfortranarray(X), X[::-1][::-1], X.astype(">f4"), X.tolist(), torch.tensor(X, requires_grad=True)):
        assert collect_signals(net(), [inputs, Y]).sha256() == expected
    np.testing.assert_array_equal(frozen, X)


def test_integer_inputs_reach_embeddings_as_integers():
    model = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, M))
    words = RNG.integers(0, 7, size=(N, 2))
    assert_linear(collect_signals(model, (words, Y)), model[2])


NAMED = TensorDataset(torch.tensor(X[:, :2]), torch.tensor(X[:, 2:]), torch.tensor(Y))


def rows(build):
    """A list as a map-style data set: what default_collate makes of each row is the batch."""
    return [build(torch.tensor(x), int(y)) for x, y in zip(X, Y, strict=True)]


@pytest.mark.parametrize(
    ("how", "data"),
    [
        (lambda f, a, b: f(torch.cat([a, b], 1)), NAMED),
        (lambda f, a, b: f(torch.cat([a, b], 1)), rows(lambda x, y: ((x[:2], x[2:]), y))),
        (lambda f, a, b: f(torch.cat([a, b], 1)), ((X[:, :2], X[:, 2:]), Y)),
        (lambda f, first, last: f(torch.cat([first, last], 1)), rows(lambda x, y: {"first": x[:2], "last": x[2:], "labels": y})),
        (lambda f, first, last: f(torch.cat([first, last], 1)), rows(lambda x, y: ({"first": x[:2], "last": x[2:]}, y))),
        (lambda f, first, last: f(torch.cat([first, last], 1)), ({"last": X[:, 2:], "first": X[:, :2]}, Y)),
        *((lambda f, x: f(x), rows(lambda x, y, key=key: {"x": x, key: y})) for key in ("label", "targets", "target", "y")),
        (lambda f, x: f(x["deep"][0]), rows(lambda x, y: {"x": {"deep": [x.double()]}, "y": y})),
    ],
)
def test_batches_of_many_forms(how, data):
    signals = collect_signals(Calls(how), data, batch_size=7)
    plain = collect_signals(net(), (X, Y), batch_size=7)
    np.testing.assert_array_equal(signals.outputs, plain.outputs)
    np.testing.assert_array_equal(signals.targets, Y)


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(DATA, batch_size=6, shuffle=True, drop_last=True),
        DataLoader(DATA, batch_size=3),
        DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 4, False)),
        DataLoader(DATA, batch_size=5, collate_fn=lambda items: (torch.stack([x for x, _ in items]), [int(y) for _, y in items])),
        DATA,
    ],
)
def test_records_keep_the_data_set_s_order(loader):
    signals = collect_signals(net(), loader, batch_size=4)
    np.testing.assert_array_equal(signals.targets, Y)
    np.testing.assert_array_equal(signals.outputs, collect_signals(net(), (X, Y), batch_size=4).outputs)


def test_subsets_keep_the_data_set_s_order():
    sampled = DataLoader(DATA, batch_size=2, sampler=SubsetRandomSampler([9, 1, 5]))
    np.testing.assert_array_equal(collect_signals(net(), sampled).targets, Y[[1, 5, 9]])
    np.testing.assert_array_equal(collect_signals(net(), Subset(DATA, [9, 1, 5])).targets, Y[[9, 1, 5]])


def test_a_fixed_order_that_drops_its_last_batch_is_told():
    seen = view(net(), DataLoader(DATA, batch_size=5, drop_last=True), None)
    assert "the last 3 records were never seen" in seen.notes[0]
    assert view(net(), DataLoader(DATA, batch_size=5, drop_last=True, shuffle=True), None).notes == ()


class Noisy(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        noise = torch.rand(()) + random.random() + np.random.rand()  # noqa: NPY002
        return torch.tensor(X[i]) + noise, int(Y[i])


def test_random_transforms_repeat_and_global_states_are_left_alone():
    model = net()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = view(model, Noisy(), Noisy(), seed=4)
    again = view(model, Noisy(), None, seed=4)
    other = view(model, Noisy(), None, seed=5)
    assert first.train.sha256() == again.train.sha256() == first.test.sha256()
    assert first.train.sha256() != other.train.sha256()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    np.testing.assert_array_equal(np.random.get_state()[1], states[2])  # noqa: NPY002


@pytest.mark.parametrize("empty", [None, (X[:0], Y[:0]), Subset(DATA, []), DataLoader(Subset(DATA, [])), []])
def test_no_test_records(empty):
    seen = view(net(), (X, Y), empty)
    assert (len(seen.test), seen.test.features.shape, seen.test.outputs.shape) == (0, (0, 5), (0, M))


def test_damping_from_weight_decay():
    assert view(net(), (X, Y), None, weight_decay=0.01).damping == pytest.approx(0.01 * N)
    assert view(net(1), (X, Y % 2), None, weight_decay=0.01).damping == pytest.approx(0.01 * N)
    assert view(net(1), (X, REAL), None, weight_decay=0.01).damping == pytest.approx(0.01 * N / 2)
    pairs = view(net(2), (X, np.stack([REAL, -REAL], 1)), None, weight_decay=0.01)
    assert pairs.damping == pytest.approx(0.01 * N * 2 / 2)
    assert pairs.task == "regression"
    assert "nominal" in pairs.damping_source
    assert view(net(1), (X, Y), None, weight_decay=0, task="regression").damping == 0


@pytest.mark.parametrize("case", ["classification", "regression"])
def test_the_damping_makes_the_summed_gradient_vanish(case):
    """Fit a head to the optimiser's own objective, then ask for stationarity on the sum scale."""
    decay, model = 0.2, net(M if case == "classification" else 2, dtype=torch.float64)
    targets = torch.tensor(Y) if case == "classification" else torch.tensor(RNG.normal(size=(N, 2)))
    loss = nn.CrossEntropyLoss() if case == "classification" else nn.MSELoss()
    optimiser = torch.optim.SGD(model.head.parameters(), lr=0.3, weight_decay=decay)
    for _ in range(400):
        optimiser.zero_grad()
        loss(model(torch.tensor(X).double()), targets).backward()
        optimiser.step()
    seen = view(model, (X, targets), None, weight_decay=decay)
    z = torch.tensor(seen.train.outputs)
    residual = z.softmax(1) - functional.one_hot(targets, M) if case == "classification" else z - targets
    extended = np.hstack([seen.train.features, np.ones((N, 1))])
    head = np.hstack([model.head.weight.detach().numpy(), model.head.bias.detach().numpy()[:, None]]).T
    # 400 full-batch steps shrink the slowest direction by 0.94 each: the rest is far below 1e-6.
    np.testing.assert_allclose(extended.T @ residual.numpy() + seen.damping * head, 0, atol=1e-6)


def test_the_digest_follows_the_weights():
    model = Pictures()
    images = torch.zeros(N, 1, 4, 4)
    first = view(model, (images, Y), None).weights_sha256
    assert first == view(Pictures(), (images, Y), None).weights_sha256
    with torch.no_grad():
        model.fc.bias[0] += 1e-6
    assert first != view(model, (images, Y), None).weights_sha256


def test_a_device_is_only_visited():
    model = net()
    signals = collect_signals(model, (X, Y), device="cpu")
    assert signals.sha256() == collect_signals(model, (X, Y)).sha256()
    with pytest.raises(InputError, match="device must be one that torch can use here; got 'abacus'"):
        collect_signals(model, (X, Y), device="abacus")
    with pytest.raises(InputError, match="device must hold values; got 'meta'"):
        collect_signals(model, (X, Y), device="meta")
    assert all(p.device.type == "cpu" for p in model.parameters())


def test_a_tanh_close_to_the_identity_is_not_taken_for_it():
    model = Ended(torch.tanh)
    with torch.no_grad():
        model.net.head.weight *= 1e-3
        model.net.head.bias.zero_()
    with pytest.raises(InputError, match="that none of them gives"):
        collect_signals(model, (X, Y))


def test_workers_read_the_same_records():
    loader = DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=1)
    first, again = collect_signals(net(), loader), collect_signals(net(), loader)
    assert first.sha256() == again.sha256()
    np.testing.assert_array_equal(first.targets, Y)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(DATA)


class OwnLoader(DataLoader):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Stream(), "train must have a fixed order of records; got an IterableDataset"),
        (DataLoader(Stream()), "got a DataLoader over an IterableDataset"),
        (OwnLoader(DATA), "train must be a plain DataLoader; got OwnLoader"),
        (DataLoader(DATA, batch_size=None), "automatic batching switched off"),
        (DataLoader(DATA, batch_sampler=[[0, 1], [2]]), "batch sampler list. Wrap the data set in Subset"),
        (
            DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * N, N)),
            "visit each record of its data set once; got .* WeightedRandomSampler",
        ),
        (DataLoader(DATA, sampler=RandomSampler(DATA, replacement=True)), "RandomSampler with replacement"),
        (DataLoader(DATA, sampler=RandomSampler(DATA, num_samples=5)), "RandomSampler over 5 of 23 records"),
        (DataLoader(DATA, sampler=SequentialSampler(range(4))), "SequentialSampler over 4 of 23 records"),
        (TensorDataset(torch.tensor(X)), r"give batches \(inputs, …, targets\) or a dict with targets; got batches of 1 element"),
        (list(torch.tensor(X)), "got batches of type Tensor. Add the targets"),
        ([{"x": x} for x in torch.tensor(X)], "targets under one of the keys labels, label, targets, target, y; got keys x"),
        (X, "got an object of type ndarray without targets"),
        ({"X": X}, "got an object of type dict without targets"),
        (5, r"train must be \(X, y\), a map-style Dataset or a DataLoader; got int"),
        ((X, Y[:5]), "X and y must have one row per record; got lengths X 23, y 5"),
        ((X, 3), "train y must have one row per record; got a single number"),
        ((1.0, Y), "train X must have one row per record; got a single number"),
        ((np.array(["a"] * N), Y), "train X must be numeric; got dtype <U1"),
        ((X[:0], Y[:0]), "train must hold at least one record; got none"),
        ((X.astype(int), Y), r"model must accept the data's batches \(integer inputs stay integers.*got RuntimeError"),
        ((X[:, :2], Y), r"model must accept the data's batches \(check the inputs\); got RuntimeError"),
        (({"z": X}, Y), r"model must accept the data's batches \(check the inputs\); got TypeError"),
        ((X * np.nan, Y), "model must give finite outputs"),
        (DataLoader(DATA, collate_fn=lambda b: (torch.stack([x for x, _ in b]), 0)), "one row of outputs per record"),
        (
            DataLoader(DATA, collate_fn=lambda b: (torch.stack([x for x, _ in b[1:]]), torch.zeros(len(b) - 1).long())),
            "train must give every record of its data set; got 5 rows from 6 records",
        ),
    ],
)
def test_data_that_cannot_be_read_gets_a_sentence(data, message):
    with pytest.raises(InputError, match=message):
        view(net(), data, None, batch_size=6)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lm_head = nn.Embedding(7, 3), nn.Linear(3, 7)

    def forward(self, x):
        return self.lm_head(self.words(x))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.Sequential(nn.Flatten()), {}, r"^model must end in an nn.Linear.*\(no nn.Linear ran\)"),
        (Ended(torch.tanh), {}, r"ran in order: Linear 'net.body' \(4 → 5\), Linear 'net.head' \(5 → 3\)\). Name the head with layer="),
        (nn.Sequential(*[m for _ in range(20) for m in (nn.Linear(D, D), nn.Tanh())]), {}, r"ran in order: …, Linear '16' .*Linear '38'"),
        (Ended(lambda z: "text"), {}, "model must return a tensor, a tuple or dict of tensors, or an object with .logits; got str"),
        (net(), {"layer": "fc"}, r"layer must name an nn.Linear that runs; got 'fc' \(no such layer\) \(ran in order: Linear 'body'"),
        (net(), {"layer": "act"}, r"got 'act' \(a Tanh\)"),
        (Calls(lambda f, x: f.body(x)), {"layer": "net.head"}, r"got 'net.head' \(a Linear that did not run\)"),
        (net(), {"weight_decay": -0.1}, "weight_decay must be a number ≥ 0; got -0.1"),
        (net(), {"batch_size": 0}, "batch_size must be a whole number ≥ 1; got 0"),
        (net(), {"task": "ranking"}, "task must be one of 'auto'"),
        (Ended(torch.sigmoid), {}, "model must end in a softmax over its classes in classification; got the sigmoid of Linear 'net.head'"),
        (Ended(torch.sigmoid, outputs=1), {"task": "regression"}, "raw output of its last Linear in a regression; got the sigmoid"),
    ],
)
def test_models_that_cannot_be_read_get_a_sentence(model, options, message):
    with pytest.raises(InputError, match=message):
        view(model, (X, Y), None, **options)


def test_token_level_heads_are_refused():
    words = RNG.integers(0, 7, size=(N, 2))
    for layer in ("auto", "lm_head"):
        with pytest.raises(
            InputError, match=r"one row of outputs per record; got outputs of shape \(8, 2, 7\) from 'lm_head'. Pool the positions"
        ):
            collect_signals(Tokens(), (words, words), layer=layer)


@pytest.mark.parametrize(("model", "got"), [(object(), "an object of type object"), (nn.Linear, "the class Linear"), (None, "NoneType")])
def test_other_models_are_refused(model, got):
    with pytest.raises(
        InputError, match=rf"^model must be an nn.Module, a fitted scikit-learn estimator or a function predict\(X\); got .*{got}"
    ):
        view(model, (X, Y), None)
    with pytest.raises(InputError, match="collect_signals: model must be"):
        collect_signals(model, (X, Y))


def test_a_sentence_names_the_function_that_was_called():
    with speaking_for("audit"), pytest.raises(InputError, match=r"^audit: train must hold"):
        view(net(), (X[:0], Y[:0]), None)


def test_a_model_that_fails_on_a_later_batch_or_on_the_test_split_is_one_sentence():
    class Fussy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, x):
            if x.shape[0] > PROBE_RECORDS:
                raise KeyError("weights\nof the second page")
            return self.layer(x)

    with pytest.raises(InputError, match=r"^model must accept .*got KeyError \('weights") as caught:
        view(Fussy(), (X, Y), (X, Y), progress=False)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"^model must accept the data's batches .*got RuntimeError"):
        view(torch.nn.Linear(X.shape[1], 3), (X, Y), (X[:, :2], Y), progress=False)
