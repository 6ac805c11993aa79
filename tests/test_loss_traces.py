"""LossTraces: what it records equals the audit's losses, training does not notice, and files and callbacks keep their word."""

import copy
import json
import random
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from sklearn.neural_network import MLPClassifier
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

import noshadow as ns
from noshadow.cli import main
from noshadow.traces import load_loss_traces

N, D, CLASSES = 37, 5, 3


def classification_data(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(n, D)), dtype=torch.float32), torch.tensor(rng.integers(0, CLASSES, n))


def network(*ending, outputs=CLASSES, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(D, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, outputs), *ending)


def losses_by_hand(model, x, y):
    """Cross-entropies of torch itself, in eval mode on a copy."""
    twin = copy.deepcopy(model).eval()
    with torch.no_grad():
        return F.cross_entropy(twin(x).double(), y, reduction="none").numpy()


def epoch_of_training(model, optimiser, x, y):
    model.train()
    for rows in torch.randperm(len(y)).split(8):
        optimiser.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()


def recorded(columns, **arguments):
    traces = ns.LossTraces(**arguments)
    for losses in np.asarray(columns).T:
        traces.append(losses)
    return traces


def signals(n=N, seed=0, ids=None):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return ns.Signals(x, x.sum(1), x.sum(1) + rng.normal(size=n), ids)


def ending_in(losses, seed, recordings=4):
    """Losses of a made-up training whose last recording is the finished model's."""
    return np.column_stack([np.random.default_rng(seed).random((len(losses), recordings - 1)), losses])


def own_losses(split):
    """Squared errors of a split's only output."""
    return (split.outputs[:, 0] - split.targets) ** 2


def quartile_range(array):
    frame = pd.DataFrame(array)
    return (frame.quantile(0.75, axis=1) - frame.quantile(0.25, axis=1)).to_numpy()


class Augmented(Dataset):
    """Draws from all three global generators, as users' transforms do."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, row):
        noise = random.random() + np.random.rand() + torch.rand(())  # noqa: NPY002
        return (self.x[row] + noise).float(), self.y[row]


def split_cases():
    x, y = classification_data()
    soft = F.one_hot(y, CLASSES) * 0.9 + 0.1 / CLASSES
    return {
        "labels": (network(), (x, y), "auto"),
        "softmax": (network(nn.Softmax(1)), (x, y), "auto"),
        "soft labels": (network(), (x, soft), "classification"),
        "one-hot": (network(), (x, F.one_hot(y, CLASSES).float()), "classification"),
        "binary": (network(outputs=1), (x, (y > 0).float()), "binary"),
        "binary, sigmoid": (network(nn.Sigmoid(), outputs=1), (x, (y > 0).long()), "auto"),
        "regression": (network(outputs=2), (x, x[:, :2] ** 2), "auto"),
        "regression, one column": (network(outputs=1), (x, x[:, :1] ** 2), "auto"),
        "float64": (network().double(), (x, y), "auto"),
        "bfloat16": (network().bfloat16(), (x, y), "auto"),
        "dataset": (network(), TensorDataset(x, y), "auto"),
        "shuffling loader": (network(), DataLoader(TensorDataset(x, y), batch_size=5, shuffle=True), "auto"),
        "subset": (network(), Subset(TensorDataset(x, y), [7, 3, 30, 11]), "auto"),
        "random transforms": (network(), Augmented(x, y), "auto"),
        "list of pairs": (network(), list(zip(x, y, strict=True)), "auto"),
    }


@pytest.mark.parametrize("name", split_cases())
def test_a_recording_is_the_loss_column_of_the_audit(name):
    model, data, task = split_cases()[name]
    traces = ns.LossTraces(data, task=task, batch_size=16)
    traces.record(model.train())
    audited = ns.audit(model, data, None, task=task, batch_size=16, progress=False)
    # Exact: the same forward in the same batches, and the same function of the logits.
    np.testing.assert_array_equal(traces.array, audited.records[["loss"]])
    assert traces.array.dtype == np.float64


def test_recordings_over_a_training_match_losses_by_hand_and_lt_iqr_the_quantiles_of_pandas(tmp_path):
    x, y = classification_data()
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    traces = ns.LossTraces((x, y), batch_size=10)
    assert (len(traces), traces.array.shape) == (0, (0, 0))
    expected = []
    for epoch in range(6):
        traces.record(model)
        expected.append(losses_by_hand(model, x, y))
        assert (len(traces), traces.array.shape) == (epoch + 1, (N, epoch + 1))
        if epoch < 5:  # The last recording is of the audited model: an audit holds them against each other.
            epoch_of_training(model, optimiser, x, y)
    # float32 logits of one batch of 37 against batches of 10: a few units in the last place.
    np.testing.assert_allclose(traces.array, np.stack(expected, 1), rtol=1e-5, atol=1e-6)
    assert (traces.array[:, 0] != traces.array[:, -1]).all()
    traces.save(tmp_path / "traces.npz")
    for given in (traces, traces.array, tmp_path / "traces.npz", str(tmp_path / "traces.npz")):
        records = ns.audit(model, (x, y), None, loss_traces=given, progress=False).records
        # Sums of two quantiles: rounding of float64 only.
        np.testing.assert_allclose(records["lt_iqr"], quartile_range(traces.array), rtol=1e-12, atol=1e-15)


def random_states():
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    return [random.getstate(), (name, keys.tolist(), position, has_gauss, cached), torch.get_rng_state().tolist()]


def test_training_does_not_notice_the_recorder():
    x, y = classification_data()

    def trained(traces):
        torch.manual_seed(3), random.seed(3), np.random.seed(3)  # noqa: NPY002
        model = network()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            if traces is not None:
                traces.record(model)
            epoch_of_training(model, optimiser, x, y)
        return model.state_dict(), random_states()

    plain, states = trained(None)
    watched, states_after = trained(ns.LossTraces(Augmented(x, y)))
    assert all(torch.equal(plain[name], watched[name]) for name in plain)
    assert states == states_after


def test_flags_hooks_gradients_and_statistics_stay():
    x, y = classification_data()
    model = network().train()
    model[1].eval()
    F.cross_entropy(model(x), y).backward()
    before = copy.deepcopy(model.state_dict()), [p.grad.clone() for p in model.parameters()]
    flags = [m.training for m in model.modules()]
    assert len(set(flags)) == 2
    ns.LossTraces((x, y), device="cpu").record(model)
    assert [m.training for m in model.modules()] == flags
    assert all(torch.equal(value, before[0][name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, held) for p, held in zip(model.parameters(), before[1], strict=True))
    assert not any(m._forward_hooks for m in model.modules())
    assert all(p.requires_grad for p in model.parameters())


class RaisesOnTheThirdCall(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.calls = network(), 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 3:
            raise RuntimeError("no memory left.\nand a second line")
        return self.body(x)


def test_a_model_that_raises_is_one_sentence_and_is_put_back():
    x, y = classification_data()
    model, traces = RaisesOnTheThirdCall(), ns.LossTraces((x, y), batch_size=8)
    states = random_states()
    with pytest.raises(ns.InputError, match=r"^LossTraces.record: model must accept .*; got RuntimeError \(no memory left\)\.$"):
        traces.record(model)
    assert all(m.training for m in model.modules())
    assert not any(m._forward_hooks for m in model.modules())
    assert random_states() == states
    assert len(traces) == 0
    traces.record(model)
    assert len(traces) == 1


def test_order_is_that_of_the_data_set_though_the_loader_shuffles():
    x, y = classification_data()
    model = network()
    traces = ns.LossTraces(DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True))
    for _ in range(2):
        traces.record(model)
    for column in traces.array.T:
        np.testing.assert_allclose(column, losses_by_hand(model, x, y), rtol=1e-5, atol=1e-6)


class LogitsOfPooledTokens(nn.Module):
    """A head over tokens, pooled afterwards: no Linear gives the output itself."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(1, CLASSES)

    def forward(self, tokens):
        return SimpleNamespace(logits=self.score(tokens[..., None]).mean(1))


def test_logits_by_name_are_read_where_no_linear_gives_the_output():
    x, y = classification_data()
    model, traces = LogitsOfPooledTokens(), ns.LossTraces((x, y), batch_size=10)
    traces.record(model)
    with torch.no_grad():
        expected = F.cross_entropy(model(x).logits.double(), y, reduction="none")
        model.score.bias[0] = torch.nan
    np.testing.assert_allclose(traces.array[:, 0], expected, rtol=1e-5)
    with pytest.raises(ns.InputError, match="NaN or infinite losses of 37 of 37 records in recording 2"):
        traces.record(model)
    with pytest.raises(ns.InputError, match=r"layer must name an nn.Linear that runs"):
        ns.LossTraces((x, y), layer="nowhere").record(model)


def test_a_named_layer_is_read():
    x, y = classification_data()
    model = network(nn.Tanh())
    with pytest.raises(ns.InputError, match=r"LossTraces.record: model must end in an nn.Linear"):
        ns.LossTraces((x, y)).record(model)
    traces = ns.LossTraces((x, y), layer="4")
    traces.record(model)
    np.testing.assert_allclose(traces.array[:, 0], losses_by_hand(model[:-1], x, y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_diverged_training_is_refused_with_its_epoch_and_count(wrapped):
    x, y = classification_data()
    model, traces = network(), ns.LossTraces((x, y))
    traces.record(model)
    traces.record(model)
    with torch.no_grad():
        model[4].weight.fill_(torch.nan)
    # A wrapper, such as those for several devices, gives the head another name.
    with pytest.raises(
        ns.InputError,
        match=r"LossTraces.record: losses must be finite; got NaN or infinite losses of 37 of 37 records in recording 3 "
        r"\(epoch 2 if the first was made before training\), the first at row 0\. The training diverged",
    ):
        traces.record(nn.Sequential(model) if wrapped else model)
    assert len(traces) == 2


def test_single_records_that_overflow_are_counted():
    x, y = classification_data()
    model = nn.Linear(D, CLASSES)
    traces = ns.LossTraces((x, y))
    traces.record(model)
    x[20:23] = torch.inf
    with pytest.raises(ns.InputError, match=r"3 of 37 records in recording 2 .* first at row 20"):
        traces.record(model)


def test_a_model_that_starts_with_nan_is_refused():
    model = nn.Linear(D, CLASSES)
    with torch.no_grad():
        model.bias[0] = torch.nan
    with pytest.raises(ns.InputError, match=r"LossTraces.record: model must give finite outputs"):
        ns.LossTraces(classification_data()).record(model)


def test_estimators_of_scikit_learn_are_recorded_epoch_by_epoch():
    x, y = (a.numpy() for a in classification_data())
    names = np.array(["a", "b", "c"])[y]
    model = MLPClassifier((6,), random_state=0)
    traces = ns.LossTraces((x, names))
    with pytest.raises(ns.InputError, match=r"LossTraces.record: model must be fitted"):
        traces.record(model)
    expected = []
    for _ in range(3):
        model.partial_fit(x, names, classes=["a", "b", "c"])
        traces.record(model)
        expected.append(-np.log(model.predict_proba(x)[np.arange(N), y]))
    # Probabilities of float32 inputs and weights.
    np.testing.assert_allclose(traces.array, np.stack(expected, 1), rtol=1e-5)
    np.testing.assert_array_equal(traces.array[:, 2], ns.audit(model, (x, names), None, progress=False).records["loss"])


def test_append_takes_any_numbers_and_keeps_a_copy():
    traces, losses = ns.LossTraces(), np.array([3.0, 1.0])
    traces.append(losses)
    losses[:] = 9
    traces.append([1, 2])
    traces.append(torch.tensor([0.5, 0.25], requires_grad=True))
    traces.append(pd.Series([-1.0, 0.0]))
    assert traces.array.tolist() == [[3.0, 1.0, 0.5, -1.0], [1.0, 2.0, 0.25, 0.0]]
    traces.array[:] = 7
    assert traces.array[0, 0] == 3.0
    assert traces.ids is None


def test_ids_are_kept_apart_from_the_callers():
    names = np.array([5, 6])
    traces = ns.LossTraces(ids=names)
    names[:] = 0
    traces.ids[:] = 1
    assert traces.ids.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ([[1.0], [2.0]], r"losses must be 1-dimensional numbers, one a record; got shape \(2, 1\)"),
        (3.0, r"must be 1-dimensional numbers, one a record; got shape \(\)"),
        (["a", "b"], "must be 1-dimensional numbers, one a record; got .*dtype <U1"),
        ([1.0, 2.0, 3.0], "losses must have 2 values, as many as in the first recording; got 3"),
        ([1.0, np.nan], r"NaN or infinite losses of 1 of 2 records in recording 2 \(epoch 1 .* first at row 1"),
        ([np.inf, -np.inf], "infinite losses of 2 of 2 records"),
        ([None, 1.0], "losses must be a plain numeric array"),
    ],
)
def test_append_refuses(losses, message):
    traces = recorded([[1.0], [2.0]])
    with pytest.raises(ns.InputError, match=f"^LossTraces.append: .*{message}"):
        traces.append(losses)
    assert traces.array.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ns.LossTraces().append([]), "LossTraces.append: losses must have one value per record; got 0"),
        (lambda: ns.LossTraces(ids=[1, 2]).append([0.5]), "losses must have 2 values, as many as ids; got 1"),
        (lambda: ns.LossTraces(ids=[1, 1]), "ids must be unique; got '1' 2 times"),
        (lambda: ns.LossTraces(ids=7), "LossTraces: ids must be a list of integers or strings; got 7"),
        (lambda: ns.LossTraces(task="ranking"), "LossTraces: task must be one of 'auto', 'regression'"),
        (lambda: ns.LossTraces(batch_size=0), "LossTraces: batch_size must be a whole number ≥ 1; got 0"),
        (lambda: ns.LossTraces(torch.zeros(3, 2)), "LossTraces: data must be .*; got an object of type Tensor without targets"),
        (lambda: ns.LossTraces(5), r"LossTraces: data must be \(X, y\), a map-style Dataset or a DataLoader; got int"),
        (lambda: ns.LossTraces().record(network()), "LossTraces.record: data must be given to LossTraces; got none"),
        (lambda: ns.LossTraces(([[1.0]], [1])).record(3), "model must be an nn.Module, .*; got an object of type int"),
        (lambda: ns.LossTraces((np.zeros((0, D)), [])).record(network()), "LossTraces.record: data must hold at least one record"),
        (lambda: ns.LossTraces(classification_data(), device="mars").record(network()), "device must be one that torch can use"),
        (lambda: ns.LossTraces(classification_data(), ids=[1, 2]).record(network()), "losses must have 2 values, as many as ids; got 37"),
        (
            lambda: ns.LossTraces((torch.zeros(9, D), torch.eye(3)[[0] * 9])).record(network(nn.Sigmoid())),
            "task must be named when target rows sum to one",
        ),
        (
            lambda: ns.LossTraces((torch.zeros(9, D), [0, 1, 2] * 3)).record(network(nn.Sigmoid())),
            "model must end in a softmax over its classes in classification",
        ),
        (lambda: ns.LossTraces().save("traces.npz"), "LossTraces.save: traces must hold at least one recording"),
    ],
)
def test_the_recorder_refuses(call, message):
    with pytest.raises(ns.InputError, match=message):
        call()


def test_another_number_of_records_is_refused():
    rows = list(zip(*classification_data(), strict=True))
    traces = ns.LossTraces(rows)
    traces.record(network())
    rows.pop()
    with pytest.raises(ns.InputError, match=r"LossTraces.record: losses must have 37 values, as many as in the first recording; got 36"):
        traces.record(network())


def test_collate_functions_that_drop_records_are_refused():
    x, y = classification_data()

    def dropping(rows):
        return torch.stack([x for x, _ in rows[1:]]), torch.stack([y for _, y in rows[1:]])

    traces = ns.LossTraces(DataLoader(TensorDataset(x, y), batch_size=4, collate_fn=dropping))
    with pytest.raises(ns.InputError, match="data must give every record of its data set; got 7 rows from 8 records"):
        traces.record(network())


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    "ids", [None, [7, -3, 2**40], ["a", "ärger", "日本語"], np.array(["x", "yy", ""])], ids=["none", "int", "text", "empty"]
)
def test_files_give_back_what_was_saved(tmp_path, suffix, ids):
    path = tmp_path / f"traces{suffix}"
    path.write_bytes(b"an older file")
    traces = recorded([[1.0, 1 / 3], [2.0, 0.0], [1e-300, 5.0]], ids=ids)
    traces.save(str(path))
    losses, names = load_loss_traces(path)
    np.testing.assert_array_equal(losses, traces.array)
    assert losses.dtype == np.float64
    assert (names is None) if ids is None else (names.tolist() == list(ids))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path, traces = tmp_path / "traces.npz", recorded([[1.0, 2.0]])
    traces.save(path)
    before = path.read_bytes()
    traces.append([3.0])

    def full_disk(_):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(ns.InputError, match=r"LossTraces.save: path must be writable; got '.*traces.npz' \(No space left on device\)"):
        traces.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["traces.npz"]


def test_save_refuses_wrong_places(tmp_path):
    traces = recorded([[1.0, 2.0]])
    with pytest.raises(ns.InputError, match=r"LossTraces.save: path must end in .npz or .safetensors; got 'traces.pt'"):
        traces.save("traces.pt")
    with pytest.raises(ns.InputError, match=r"LossTraces.save: path must be writable"):
        traces.save(tmp_path / "nowhere" / "traces.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(ns.InputError, match=r"LossTraces.save: path must be writable"):
        traces.save(tmp_path / "folder.npz")


LOSSES = np.array([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        (
            "a.npz",
            {"loss_traces": LOSSES, "notes": LOSSES},
            "file must hold the key loss_traces and at most ids and test_loss_traces; got '.*' with unknown key notes",
        ),
        ("a.npz", {"loss_traces": LOSSES, "train_ids": [1, 2]}, "A file of signals may hold loss_traces itself"),
        ("a.npz", {"ids": [1, 2]}, "with no loss_traces"),
        ("a.npz", {"loss_traces": [1.0, 2.0]}, r"loss_traces must be 2-dimensional; got shape \(2,\)"),
        ("a.npz", {"loss_traces": [["a", "b"]]}, "loss_traces must be numeric"),
        (
            "a.npz",
            {"loss_traces": [[1.0, np.nan]]},
            r"loss_traces must be finite; got 1 NaN or infinite values, the first at index \(0, 1\)",
        ),
        (
            "a.npz",
            {"loss_traces": LOSSES, "ids": [1, 2, 3]},
            "loss_traces and ids must have one row per record; got lengths loss_traces 2, ids 3",
        ),
        ("a.npz", {"loss_traces": LOSSES, "ids": 3}, "ids must be a 1-dimensional list"),
        ("a.npz", {"loss_traces": LOSSES, "ids": ["x", "x"]}, "ids must be unique; got 'x' 2 times"),
        ("a.npz", {"loss_traces": LOSSES, "ids": [0.5, 1.5]}, "ids must be a 1-dimensional list of integers or strings"),
        ("a.npz", {"loss_traces": np.array([[object()]])}, "Pickled objects are never loaded"),
        ("a.npz", None, "file must be a .npz archive of plain arrays"),
        ("a.safetensors", None, "file must be a safetensors file NumPy can read"),
        ("a.safetensors", {"loss_traces": LOSSES, "ids": np.full((2, 3), 255, np.uint8)}, "ids must be UTF-8 text"),
        ("a.safetensors", {"loss_traces": LOSSES, "ids": np.zeros((2, 0), np.uint8)}, "ids must be UTF-8 text"),
        ("a.pt", {}, r"path must end in .npz or .safetensors"),
        ("b.npz", {}, r"path must be a file that exists; got '.*b.npz'"),
    ],
)
def test_files_that_are_not_traces_are_refused(tmp_path, name, arrays, message):
    path = tmp_path / name
    if arrays is None:
        path.write_bytes(b"neither one nor the other")
    elif name == "a.safetensors":
        save_file(arrays, path)
    elif arrays:
        np.savez(path, **arrays)
    with pytest.raises(ns.InputError, match=message):
        ns.audit_signals(signals(2), signals(2), loss_traces=path)


def test_a_bare_array_is_refused(tmp_path):
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, LOSSES)
    with pytest.raises(ns.InputError, match="one bare array, not an archive of named ones"):
        load_loss_traces(tmp_path / "a.npz")


@pytest.mark.parametrize("names", [np.arange(N) * 3, np.array([f"record {i}" for i in range(N)])], ids=["numbers", "text"])
@pytest.mark.parametrize("suffix", [None, ".npz", ".safetensors"])
def test_traces_with_ids_are_matched_by_id(tmp_path, names, suffix):
    losses, order = ending_in(own_losses(signals()), 1), np.random.default_rng(1).permutation(N)
    traces = recorded(losses[order], ids=names[order])
    if suffix is not None:
        traces.save(tmp_path / f"traces{suffix}")
    given = traces if suffix is None else tmp_path / f"traces{suffix}"
    records = ns.audit_signals(signals(ids=names), signals(seed=1), loss_traces=given, progress=False).records
    np.testing.assert_allclose(records["lt_iqr"], quartile_range(losses), rtol=1e-12, atol=1e-15)
    with pytest.raises(ns.InputError, match="its losses in another order"):  # without the ids nothing but the losses tells whose they are
        ns.audit_signals(signals(ids=names), signals(seed=1), loss_traces=traces.array, progress=False)


def test_traces_of_other_records_are_refused():
    losses = np.random.default_rng(0).random((N, 3))
    names = [f"r{i}" for i in range(N)]
    other = [*names[:5], "stranger", *names[6:]]
    with pytest.raises(
        ns.InputError,
        match=r"audit_signals: loss_traces must have the ids of the training records; got no trace of record 'r5' \(row 5\), "
        r"and one of 'stranger'. Give both the same ids=",
    ):
        ns.audit_signals(signals(ids=names), signals(seed=1), loss_traces=recorded(losses, ids=other))
    # Row numbers are not their text.
    with pytest.raises(ns.InputError, match=r"no trace of record 0 \(row 0\), and one of '0'"):
        ns.audit_signals(signals(), signals(seed=1), loss_traces=recorded(losses, ids=[str(i) for i in range(N)]))
    with pytest.raises(ns.InputError, match="train and loss_traces must have one row per record; got lengths train 37, loss_traces 36"):
        ns.audit_signals(signals(), signals(seed=1), loss_traces=recorded(losses[1:], ids=names[1:]))


@pytest.mark.parametrize("recordings", [0, 1])
def test_fewer_than_two_recordings_are_refused(recordings):
    traces = recorded(np.ones((N, recordings)))
    rule = "loss_traces must have at least 2 columns" if recordings else "train and loss_traces must have one row per record"
    with pytest.raises(ns.InputError, match=rule):
        ns.audit_signals(signals(), signals(seed=1), loss_traces=traces)


def test_a_wrong_file_is_refused_before_the_model_runs():
    x, y = classification_data()
    with pytest.raises(ns.InputError, match="audit: path must be a file that exists"):
        ns.audit(RaisesOnTheThirdCall(), (x, y), (x, y), loss_traces="missing.npz", progress=False)


def command(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["noshadow", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0, *capsys.readouterr()


def test_the_command_line_reads_loss_traces(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    losses = ending_in(own_losses(signals()), 2)
    recorded(losses[::-1], ids=np.arange(N)[::-1]).save("traces.safetensors")
    ns.save_splits("signals.npz", signals(), signals(seed=1))
    ns.save_splits("both.npz", signals(), signals(seed=1), loss_traces=losses)
    code, out, error = command(
        ["audit", "signals.npz", "--out", "made", "--loss-traces", "traces.safetensors", "--json"], monkeypatch, capsys
    )
    assert (code, error, json.loads(out)["records"]["count"]) == (0, "", N)
    np.testing.assert_allclose(ns.load("made").records["lt_iqr"], quartile_range(losses), rtol=1e-12, atol=1e-15)
    code, _, error = command(["audit", "both.npz", "--out", "other", "--loss-traces", "traces.safetensors"], monkeypatch, capsys)
    assert code == 2
    assert error == "noshadow: audit: --loss-traces must come with a file that holds none; got 'both.npz' with its own. Leave one out.\n"
    code, _, error = command(["audit", "signals.npz", "--out", "other", "--loss-traces", "missing.npz"], monkeypatch, capsys)
    assert code == 2
    assert "'missing.npz' does not exist" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "other").exists()


def test_the_command_line_completes_a_target_but_does_not_contradict_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "traced_target.py").write_text(
        "import numpy as np\nimport noshadow as ns\nfrom sklearn.linear_model import Ridge\n"
        "x = np.random.default_rng(0).normal(size=(40, 2)); y = x.sum(1)\n"
        "def plain(**given): return ns.Target(Ridge().fit(x, y), (x[:20], y[:20]), (x[20:], y[20:]), **given)\n"
        "def traced(): return plain(loss_traces=np.ones((20, 3)))\n"
    )
    losses = np.random.default_rng(2).random((20, 3))
    recorded(losses).save("traces.npz")
    arguments = ["--out", "made", "--loss-traces", "traces.npz", "--quiet"]
    assert command(["audit", "traced_target:plain", *arguments], monkeypatch, capsys)[0] == 0
    np.testing.assert_allclose(ns.load("made").records["lt_iqr"], quartile_range(losses), rtol=1e-12, atol=1e-15)
    code, _, error = command(["audit", "traced_target:traced", "--force", *arguments], monkeypatch, capsys)
    assert code == 2
    assert "loss_traces must come from one place; got 'traces.npz' beside that of the Target. Leave one of the two out." in error
