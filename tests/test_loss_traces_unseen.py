"""LossTraces with unseen records: the best recording, the checkpoint kept there, and what goes into files."""

import copy
import random
import stat

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file
from sklearn.neural_network import MLPClassifier
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import noshadow as ns
from noshadow.traces import given_traces, load_loss_traces

N, T, D, CLASSES = 60, 43, 6, 3


def splits(seed=0):
    """Noisy labels of two splits: a network that learns the first by heart does worse and worse on the second."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N + T, D)).astype(np.float32)
    y = np.where(rng.random(N + T) < 0.3, rng.integers(0, CLASSES, N + T), x[:, :CLASSES].argmax(1))
    x, y = torch.tensor(x), torch.tensor(y)
    return (x[:N], y[:N]), (x[N:], y[N:])


def network(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(D, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES))


def epoch_of_training(model, optimiser, x, y):
    model.train()
    for rows in torch.randperm(len(y)).split(10):
        optimiser.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()


def losses_by_hand(model, x, y):
    """Cross-entropies of torch itself, in eval mode on a copy."""
    twin = copy.deepcopy(model).eval()
    with torch.no_grad():
        return F.cross_entropy(twin(x).double(), y, reduction="none").numpy()


def trained(traces, epochs=12, model=None, optimiser=None):
    """A training that records before the first step and after every epoch; (model, losses of both splits by hand, states)."""
    train, test = splits()
    model = network() if model is None else model
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    torch.manual_seed(1)
    by_hand, states = [], []
    for epoch in range(epochs + 1):
        if epoch:
            epoch_of_training(model, optimiser, *train)
        traces.record(model)
        by_hand.append((losses_by_hand(model, *train), losses_by_hand(model, *test)))
        states.append(copy.deepcopy(model.state_dict()))
    return model, [np.stack(columns, 1) for columns in zip(*by_hand, strict=True)], states


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    train, test = splits()
    path = tmp_path_factory.mktemp("kept") / "best.safetensors"
    traces = ns.LossTraces(train, test=test, checkpoint=path)
    return traces, path, *trained(traces)


def test_unseen_losses_are_those_by_hand_and_the_best_recording_is_their_lowest_mean(training):
    traces, _, _, (seen, unseen), _ = training
    # float32 logits in one batch or in several: a few units in the last place.
    np.testing.assert_allclose(traces.array, seen, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(traces.test_array, unseen, rtol=1e-5, atol=1e-6)
    assert traces.test_array.shape == (T, len(traces)) and traces.test_array.dtype == np.float64
    means = unseen.mean(0)
    assert traces.best_epoch == means.argmin()
    # The training goes through its minimum: else nothing here is tested.
    assert 0 < traces.best_epoch < len(traces) - 1 and means[-1] > means.min() + 0.1


def test_the_kept_checkpoint_is_the_state_of_the_best_recording(training):
    traces, path, _, _, states = training
    kept = load_file(path)
    expected = states[traces.best_epoch]
    assert kept.keys() == expected.keys() and all(torch.equal(kept[name], expected[name]) for name in expected)
    fresh = network(seed=9)
    fresh.load_state_dict(kept)
    again = ns.LossTraces(splits()[0], test=splits()[1])
    again.record(fresh)
    # The same weights in the same batches: to the last digit.
    np.testing.assert_array_equal(again.test_array[:, 0], traces.test_array[:, traces.best_epoch])
    np.testing.assert_array_equal(again.array[:, 0], traces.array[:, traces.best_epoch])
    # By hand, in float32 logits of one batch.
    np.testing.assert_allclose(losses_by_hand(fresh, *splits()[1]).mean(), traces.test_array.mean(0).min(), rtol=1e-6)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and [entry.name for entry in path.parent.iterdir()] == [path.name]
    with safe_open(path, framework="pt") as file:
        facts = file.metadata()
    assert int(facts["recording"]) == traces.best_epoch
    assert float(facts["mean_test_loss"]) == pytest.approx(traces.test_array.mean(0).min(), rel=1e-12)


def test_unseen_losses_are_those_of_the_audit_for_every_form_of_data():
    train, test = splits()

    class Noisy(Dataset):
        def __len__(self):
            return T

        def __getitem__(self, row):
            noise = random.random() + np.random.rand() + torch.rand(())  # noqa: NPY002
            return (test[0][row] + noise).float(), test[1][row]

    model = network()
    for given in (test, TensorDataset(*test), DataLoader(TensorDataset(*test), batch_size=4, shuffle=True), Noisy()):
        traces = ns.LossTraces(train, test=given, batch_size=16)
        traces.record(model.train())
        audited = ns.audit(model, train, given, batch_size=16, progress=False)
        # Exact: the same forward in the same batches with the same seeds.
        np.testing.assert_array_equal(traces.test_array[:, 0], audited.nonmember_losses)
        np.testing.assert_array_equal(traces.array[:, 0], audited.member_losses)


def test_the_training_does_not_notice_unseen_records_and_checkpoints(training, tmp_path):
    train, _ = splits()
    _, _, watched, _, _ = training
    plain, _, _ = trained(ns.LossTraces(train))
    assert all(torch.equal(value, watched.state_dict()[name]) for name, value in plain.state_dict().items())


def test_the_task_is_settled_by_the_training_records():
    """Three unseen records of classes 0 and 1 alone would pass for something else."""
    train, test = splits()
    rows = np.flatnonzero(test[1].numpy() < 2)[:3]
    traces = ns.LossTraces(train, test=(test[0][rows], test[1][rows]))
    model = network()
    traces.record(model)
    np.testing.assert_allclose(traces.test_array[:, 0], losses_by_hand(model, test[0][rows], test[1][rows]), rtol=1e-5, atol=1e-6)


def test_a_resumed_training_replaces_the_checkpoint_by_a_lower_loss_only(tmp_path):
    train, test = splits()
    path = tmp_path / "best.safetensors"
    traces = ns.LossTraces(train, test=test, checkpoint=path)
    model, _, _ = trained(traces, epochs=8)
    before, best = path.read_bytes(), traces.best_epoch
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(3):  # on from where it stood: further past the best
        epoch_of_training(model, optimiser, *train)
        traces.record(model)
    assert len(traces) == 12 and traces.best_epoch == best and path.read_bytes() == before
    # In another process: the recordings of the file are appended, and the checkpoint is there.
    later = ns.LossTraces(train, test=test, checkpoint=path)
    for seen, unseen in zip(traces.array.T, traces.test_array.T, strict=True):
        later.append(seen, unseen)
    later.record(model)
    assert path.read_bytes() == before and later.best_epoch == best
    better = network()
    optimiser = torch.optim.Adam(better.parameters(), lr=0.01)
    for _ in range(30):  # trained on the unseen records themselves: as low as it gets
        epoch_of_training(better, optimiser, *test)
    later.record(better)
    assert later.best_epoch == len(later) - 1 == 13
    assert all(torch.equal(value, better.state_dict()[name]) for name, value in load_file(path).items())
    # A recorder without recordings is another training.
    ns.LossTraces(train, test=test, checkpoint=path).record(network())
    assert all(torch.equal(value, network().state_dict()[name]) for name, value in load_file(path).items())


def test_equal_losses_keep_the_first():
    traces = ns.LossTraces()
    for unseen in ([2.0, 2.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [3.0, 0.0]):
        traces.append([1.0, 2.0, 3.0], unseen)
    assert traces.best_epoch == 1
    assert ns.LossTraces().best_epoch is None and ns.LossTraces().test_array is None


class Tied(nn.Module):
    """Two names of one weight, bfloat16, and a view that is not contiguous."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(D, D, bias=False), nn.Linear(D, CLASSES)
        self.again = self.body
        self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).T)
        self.register_buffer("count", torch.tensor(3))
        self.bfloat16()

    def forward(self, x):
        return self.head(self.again(self.body(x.bfloat16())))


@pytest.mark.parametrize("wrap", [lambda model: model, nn.DataParallel, lambda model: torch.compile(model, backend="eager")])
def test_states_with_tied_weights_bfloat16_and_wrappers_load_into_the_plain_module(tmp_path, wrap):
    torch.manual_seed(0)
    model, path = Tied(), tmp_path / "best.safetensors"
    ns.LossTraces(splits()[0], test=splits()[1], checkpoint=str(path)).record(wrap(model))
    fresh = Tied()
    fresh.load_state_dict(load_file(path))
    assert all(torch.equal(value, fresh.state_dict()[name]) for name, value in model.state_dict().items())
    assert fresh.state_dict()["body.weight"].dtype == torch.bfloat16


class WithExtraState(nn.Linear):
    def get_extra_state(self):
        return {"steps": 3}

    def set_extra_state(self, state):
        pass


def test_a_checkpoint_that_cannot_be_kept_adds_nothing(tmp_path, monkeypatch):
    train, test = splits()
    path = tmp_path / "best.safetensors"
    traces = ns.LossTraces(train, test=test, checkpoint=path)
    with pytest.raises(
        ns.InputError, match=r"LossTraces.record: model must have a state dict of tensors .*; got '_extra_state' of type dict"
    ):
        traces.record(WithExtraState(D, CLASSES))
    estimator = MLPClassifier((4,), random_state=0).partial_fit(train[0].numpy(), train[1].numpy(), classes=[0, 1, 2])
    with pytest.raises(ns.InputError, match=r"model must be an nn.Module where a checkpoint is kept; got MLPClassifier, which"):
        traces.record(estimator)
    with pytest.raises(ns.InputError, match=r"LossTraces.append: checkpoint must be there already .* without a checkpoint"):
        traces.append(np.ones(N), np.ones(T))
    traces.record(network())
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("No space left on device")))
    better = network()
    optimiser = torch.optim.Adam(better.parameters(), lr=0.01)
    for _ in range(5):
        epoch_of_training(better, optimiser, *test)
    with pytest.raises(ns.InputError, match=r"LossTraces.record: checkpoint must be writable; got .* \(No space left on device\)"):
        traces.record(better)
    assert len(traces) == 1 and traces.test_array.shape == (T, 1) and path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_checkpoint_of_strangers_is_not_taken_for_ours(tmp_path):
    path = tmp_path / "best.safetensors"
    path.write_bytes(b"something else")
    traces = ns.LossTraces(splits()[0], test=splits()[1], checkpoint=path)
    traces.append(np.ones(N), np.ones(T))
    with pytest.raises(ns.InputError, match=r"LossTraces.record: checkpoint must be a file that LossTraces wrote, or a new one"):
        traces.record(network())
    assert path.read_bytes() == b"something else" and len(traces) == 1


def test_estimators_of_scikit_learn_are_traced_on_unseen_records_too():
    (x, y), (u, v) = [[part.numpy() for part in split] for split in splits()]
    names = np.array(["a", "b", "c"])
    model, traces, expected = MLPClassifier((6,), random_state=0), ns.LossTraces((x, names[y]), test=(u, names[v])), []
    for _ in range(3):
        model.partial_fit(x, names[y], classes=names)
        traces.record(model)
        expected.append(-np.log(model.predict_proba(u)[np.arange(T), v]))
    # Probabilities of float32 inputs and weights.
    np.testing.assert_allclose(traces.test_array, np.stack(expected, 1), rtol=1e-5)
    audited = ns.audit(model, (x, names[y]), (u, names[v]), progress=False)
    np.testing.assert_array_equal(traces.test_array[:, 2], audited.nonmember_losses)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ns.LossTraces(test=splits()[1]), r"LossTraces: data must be given where test is; got none\. .* leave test= out"),
        (lambda: ns.LossTraces(*[data := splits()[0]], test=data), "LossTraces: test must be records that the training does not see"),
        (lambda: ns.LossTraces(splits()[0], test=5), r"LossTraces: test must be \(X, y\), a map-style Dataset or a DataLoader; got int"),
        (
            lambda: ns.LossTraces(splits()[0], test=(np.zeros((0, D)), [])).record(network()),
            "LossTraces.record: test must hold at least one record",
        ),
        (lambda: ns.LossTraces(splits()[0], checkpoint="a.safetensors"), r"checkpoint must come with test.* Pass test= with records"),
        (
            lambda: ns.LossTraces(splits()[0], test=splits()[1], checkpoint="a.pt"),
            r"LossTraces: checkpoint must be a path that ends in \.safetensors; got 'a\.pt'",
        ),
        (
            lambda: ns.LossTraces(splits()[0], test=splits()[1], checkpoint="nowhere/a.safetensors"),
            "checkpoint must be in a folder that exists",
        ),
        (
            lambda: appended([1.0], [1.0]).append([2.0]),
            "LossTraces.append: test_losses must be given with every recording or with none; got none",
        ),
        (lambda: appended([1.0]).append([2.0], [1.0]), "test_losses must be given with every .*; got some after recordings without"),
        (
            lambda: appended([1.0], [1.0, 2.0]).append([2.0], [1.0]),
            "test_losses must have 2 values, as many as in the first recording; got 1",
        ),
        (lambda: appended([1.0], []), "LossTraces.append: test_losses must have one value per record; got 0"),
        (lambda: appended([1.0], [np.nan]), r"test_losses must be finite; got NaN or infinite losses of 1 of 1 records in recording 1"),
        (
            lambda: ns.LossTraces(splits()[0], test=splits()[1]).append(np.ones(N)),
            "test_losses must be given with every recording or with none; got none",
        ),
    ],
)
def test_the_recorder_refuses(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ns.InputError, match=message):
        call()
    assert not list(tmp_path.iterdir())


def appended(*recording):
    traces = ns.LossTraces()
    traces.append(*recording)
    return traces


def test_a_refused_recording_leaves_both_splits_as_they_were():
    traces = appended([1.0, 2.0], [3.0])
    with pytest.raises(ns.InputError, match="test_losses must be finite"):
        traces.append([1.0, 1.0], [np.inf])
    with pytest.raises(ns.InputError, match="losses must be finite"):
        traces.append([1.0, np.nan], [1.0])
    assert traces.array.tolist() == [[1.0], [2.0]] and traces.test_array.tolist() == [[3.0]]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("ids", [None, ["a", "ä", "c"]])
def test_files_hold_the_losses_of_unseen_records(tmp_path, suffix, ids):
    path, traces = tmp_path / f"traces{suffix}", ns.LossTraces(ids=ids)
    for seen, unseen in (([3.0, 1 / 3, 0.0], [1.0, 2.0]), ([1.0, 1e-300, 4.0], [0.5, 1 / 7])):
        traces.append(seen, unseen)
    traces.save(path)
    given = given_traces(path, "audit")
    np.testing.assert_array_equal(given.losses, traces.array)
    np.testing.assert_array_equal(given.test_losses, traces.test_array)
    assert given.best == traces.best_epoch == 1 and (given.ids is None) == (ids is None)
    losses, names = load_loss_traces(path)
    np.testing.assert_array_equal(losses, traces.array)
    assert (names is None) if ids is None else names.tolist() == ids


def test_files_of_before_have_no_unseen_losses(tmp_path):
    np.savez(tmp_path / "old.npz", loss_traces=np.ones((3, 2)), ids=np.arange(3))
    given = given_traces(tmp_path / "old.npz", "audit")
    assert given.test_losses is None and given.best is None and given.ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("unseen", "message"),
    [
        (np.ones((4, 3)), r"test_loss_traces must have one row per unseen record and the 2 recordings of loss_traces; got shape \(4, 3\)"),
        (np.ones((0, 2)), r"test_loss_traces must have one row per unseen record .* got shape \(0, 2\)"),
        (np.ones(2), "test_loss_traces must be .*2-dimensional"),
        (np.full((1, 2), np.nan), "test_loss_traces must .*finite"),
    ],
)
def test_unseen_losses_that_do_not_belong_are_refused(tmp_path, unseen, message):
    np.savez(tmp_path / "wrong.npz", loss_traces=np.ones((3, 2)), test_loss_traces=unseen)
    with pytest.raises(ns.InputError, match=f"^load_loss_traces: {message}"):
        given_traces(tmp_path / "wrong.npz", "audit")
    if np.ndim(unseen) == 2:
        with pytest.raises(ns.InputError, match=f"^audit: {message}"):
            given_traces((np.ones((3, 2)), unseen), "audit")


def test_a_tuple_of_two_tables_is_both_splits_and_a_tuple_of_rows_is_one():
    both = given_traces((np.ones((3, 2)), torch.tensor([[1.0, 0.5]])), "audit")
    assert both.losses.shape == (3, 2) and both.test_losses.tolist() == [[1.0, 0.5]] and both.best == 1
    rows = given_traces(([3.0, 2.0, 1.0], [1.0, 1.0, 1.0]), "audit")
    assert rows.losses.shape == (2, 3) and rows.test_losses is None
