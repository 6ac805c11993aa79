"""Every record keeps its own loss and its own id, however a loader, a sampler or a data frame hands it over."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_sequence
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset

import noshadow as ns
from noshadow.reference.pool import record_pool
from noshadow.views import collect_outputs

N, D, M = 41, 4, 3
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = RNG.integers(0, M, size=N)
LENGTHS = RNG.integers(1, 7, size=N)
SEQUENCES = [torch.tensor(RNG.normal(size=(length, D)).astype(np.float32)) for length in LENGTHS]
TEXTS = list(zip(SEQUENCES, Y.tolist(), strict=True))
DATA = TensorDataset(torch.tensor(X), torch.tensor(Y))
TEST = (X[:20] + 1, Y[:20])


def seeded(model, seed=0):
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) / 2)
    return model


def net():
    return seeded(nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, M)))


def entropy(outputs, labels):
    return nn.functional.cross_entropy(outputs, torch.as_tensor(labels), reduction="none").detach().numpy()


def own_losses(model=None):
    return entropy((model or net())(torch.tensor(X)), Y)


def assert_losses(records, expected):
    # float32 logits of sums of a few products, in batches of another size.
    np.testing.assert_allclose(records["loss"], expected, rtol=1e-4, atol=1e-6)


# Collate functions


class Recurrent(nn.Module):
    """Takes what a sorting collate_fn gives: sequences that must come longest first."""

    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.GRU(D, 5, batch_first=True), nn.Linear(5, M)
        seeded(self)

    def forward(self, x, lengths):
        return self.head(self.cells(pack_padded_sequence(x, lengths, batch_first=True))[1][-1])


def longest_first(rows):
    rows.sort(key=lambda row: -len(row[0]))
    lengths = torch.tensor([len(x) for x, _ in rows])
    return pad_sequence([x for x, _ in rows], batch_first=True), lengths, torch.tensor([y for _, y in rows])


def recurrent_losses(model):
    alone = [model(x[None], torch.tensor([len(x)])) for x in SEQUENCES]
    return entropy(torch.cat(alone), Y)


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (2, 0), (7, 0), (7, 1), (256, 0)])
def test_sequences_that_are_sorted_by_length_keep_their_losses(batch_size, workers):
    model = Recurrent()
    loader = DataLoader(TEXTS, batch_size=6, shuffle=True, collate_fn=longest_first, num_workers=workers)
    test = DataLoader(TEXTS[:20], collate_fn=longest_first)
    audit = ns.audit(model, loader, test, batch_size=batch_size, progress=False)
    assert_losses(audit.records, recurrent_losses(model))
    assert audit.records["target"].tolist() == Y.tolist() and audit.records["id"].tolist() == list(range(N))
    assert sum("was collated and run by itself" in note for note in audit.notes) == (2 if batch_size > 1 else 0)


def by_first_feature(rows):
    rows = sorted(rows, key=lambda row: float(row[0][0]))
    return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])


def test_every_reader_of_a_sorting_loader_has_the_records_in_order(tmp_path):
    loader, plain = DataLoader(DATA, batch_size=8, collate_fn=by_first_feature), (X, Y)
    expected = own_losses()
    for signals in (ns.collect_signals(net(), loader), collect_outputs(net(), loader)[0]):
        np.testing.assert_array_equal(signals.targets, Y)
        np.testing.assert_allclose(entropy(torch.tensor(signals.outputs), Y), expected, rtol=1e-4, atol=1e-6)
    traces = ns.LossTraces(loader)
    traces.record(net())
    np.testing.assert_allclose(traces.array[:, 0], expected, rtol=1e-4, atol=1e-6)
    found, whole = (ns.network_scores(net(), data, damping=0.1, layers="all", progress=False) for data in (loader, plain))
    np.testing.assert_allclose(found.shift, whole.shift, rtol=1e-6)
    assert any("by itself" in note for note in found.notes)
    pool = record_pool(loader, plain, pool="all", ids=None)
    np.testing.assert_array_equal(pool.targets[:N], Y)


def padded(rows, batch_first=True):
    x = pad_sequence([x for x, _ in rows], batch_first=batch_first)
    return x, torch.tensor([len(x) for x, _ in rows]), torch.tensor([y for _, y in rows])


def padded_in_front(rows):
    longest = max(len(x) for x, _ in rows)
    x = torch.stack([torch.cat([torch.zeros(longest - len(x), D), x]) for x, _ in rows])
    return {"x": x, "labels": [y for _, y in rows]}


class Summed(nn.Module):
    """Sums over time, along `axis`: padding adds nothing."""

    def __init__(self, axis=1):
        super().__init__()
        self.head, self.axis = seeded(nn.Linear(D, M)), axis

    def forward(self, x, lengths=None):
        return self.head(x.sum(self.axis))


@pytest.mark.parametrize(
    ("collate", "axis"),
    [(padded, 1), (lambda rows: padded(rows, batch_first=False), 0), (padded_in_front, 1)],
    ids=["behind", "time", "front"],
)
def test_padding_is_no_change_of_order(collate, axis):
    model, sizes = Summed(axis), []
    model.register_forward_hook(lambda _, args, kwargs, output: sizes.append(len(output)), with_kwargs=True)
    expected = entropy(model.head(torch.stack([x.sum(0) for x in SEQUENCES])), Y)
    sizes.clear()
    signals = ns.collect_signals(model, DataLoader(TEXTS, collate_fn=collate), batch_size=16)
    assert sizes == [8, 16, 16, 9]  # the probe, then whole batches: nothing was run one by one
    np.testing.assert_allclose(entropy(torch.tensor(signals.outputs), Y), expected, rtol=1e-4, atol=1e-6)


class Packed(Recurrent):
    def forward(self, x):
        return self.head(self.cells(x)[1][-1])


@pytest.mark.parametrize("is_sorted", [False, True])
def test_packed_sequences(is_sorted):
    def packed(rows):
        rows = sorted(rows, key=lambda row: -len(row[0])) if is_sorted else rows
        return pack_sequence([x for x, _ in rows], enforce_sorted=is_sorted), torch.tensor([y for _, y in rows])

    model = Packed()
    audit = ns.audit(model, DataLoader(TEXTS, collate_fn=packed), DataLoader(TEXTS, collate_fn=packed), batch_size=8, progress=False)
    assert_losses(audit.records, entropy(torch.cat([model(pack_sequence([x])) for x in SEQUENCES]), Y))
    assert any("by itself" in note for note in audit.notes) == is_sorted


def mixed_up(rows):
    x, y = torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])
    return 0.6 * x + 0.4 * x.roll(1, 0), y


def test_mixed_records_are_audited_unmixed():
    audit = ns.audit(net(), DataLoader(DATA, collate_fn=mixed_up), TEST, batch_size=10, progress=False)
    assert_losses(audit.records, own_losses())


@pytest.mark.parametrize("kind", ["popped", "in place"])
def test_functions_that_change_their_records_see_each_only_once(kind):
    class Fresh(torch.utils.data.Dataset):
        def __len__(self):
            return N

        def __getitem__(self, i):
            return {"x": torch.tensor(X[i]), "y": int(Y[i])}

    def popping(rows):
        labels = torch.tensor([row.pop("y") for row in rows])
        return torch.stack([row["x"] for row in rows]), labels

    def halving(rows):
        return torch.stack([row["x"].mul_(0.5) for row in rows]), torch.tensor([row["y"] for row in rows])

    signals = ns.collect_signals(net(), DataLoader(Fresh(), collate_fn=popping if kind == "popped" else halving), batch_size=9)
    expected = net()(torch.tensor(X * (1 if kind == "popped" else 0.5))).detach().numpy()
    np.testing.assert_allclose(signals.outputs, expected, rtol=1e-4, atol=1e-6)


def stacked(rows):
    return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])


@pytest.mark.parametrize(
    ("collate", "message"),
    [
        (
            lambda rows: stacked(rows[1:]),
            r"audit: train must give every record of its data set; got 7 rows from 8 records. Does collate_fn drop",
        ),
        (lambda rows: stacked([*rows, rows[0]]), "got 9 rows from 8 records"),
        (
            lambda rows: stacked([*rows[1:], rows[-1]][: len(rows)] if len(rows) > 1 else []),
            r"audit: train must have batches in the order of its data set; got a collate_fn that does not keep it, and fails on a single "
            r"record \(RuntimeError: .*\). Use a collate_fn that keeps its records in order.$",
        ),
    ],
    ids=["dropped", "repeated", "one for another"],
)
def test_lost_records_are_refused(collate, message):
    with pytest.raises(ns.InputError, match=message):
        ns.audit(net(), DataLoader(DATA, collate_fn=collate), TEST, progress=False)


# Rows behind Subsets and samplers


def ids_of(data):
    return ns.collect_signals(net(), data).ids.tolist()


@pytest.mark.parametrize(
    ("data", "ids", "rows"),
    [
        (Subset(DATA, [5, -1, -41, 7]), [5, 40, 0, 7], [5, 40, 0, 7]),
        (Subset(DATA, torch.tensor([5, 9])), [5, 9], [5, 9]),
        (Subset(Subset(DATA, [9, -2, 4]), [-1, 1]), [4, 39], [4, 39]),
        (Subset(DATA, [5, 9, 5, 5]), ["5", "9", "5#2", "5#3"], [5, 9, 5, 5]),
        (Subset(DATA, [-1, 40]), ["40", "40#2"], [40, 40]),
        (Subset(Subset(DATA, [3, 8]), [1, 0, 1]), ["8", "3", "8#2"], [8, 3, 8]),
        (DataLoader(DATA, sampler=SubsetRandomSampler([9, -1, 2])), [2, 9, 40], [2, 9, 40]),
        (DataLoader(DATA, sampler=SubsetRandomSampler([9, 9, 2])), ["2", "9", "9#2"], [2, 9, 9]),
        (DataLoader(Subset(DATA, [7, 1, 5]), sampler=SubsetRandomSampler([-1, 0])), [7, 5], [7, 5]),
    ],
)
def test_ids_are_rows_of_the_data_set(data, ids, rows):
    signals = ns.collect_signals(net(), data)
    assert signals.ids.tolist() == ids
    np.testing.assert_array_equal(signals.targets, Y[rows])
    np.testing.assert_allclose(signals.outputs, net()(torch.tensor(X[rows])).detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([3, 41], "data must choose among the 41 records of its data set; got the index 41"),
        ([-42], "got the index -42"),
        (["a"], "data must choose its records by whole numbers; got the index 'a'"),
    ],
)
def test_indices_of_no_record_are_refused(indices, message):
    with pytest.raises(ns.InputError, match=message):
        ids_of(Subset(DATA, indices))


def test_repeated_rows_are_found_and_counted():
    audit = ns.audit(net(), Subset(DATA, [*range(20), 3, 3, -38]), Subset(DATA, [30, 31, 30]), progress=False)
    (found,) = (finding for finding in audit.findings if finding.code == "NS041")
    # 20 rows, of which row 3 comes back three times; one of three test records.
    assert (found.status, found.figure) == ("found", 4) and "3 training and 1 test records" in found.sentence
    assert audit.records["id"].tolist()[-3:] == ["3#2", "3#3", "3#4"]
    plain = ns.audit(net(), Subset(DATA, [*range(20)]), Subset(DATA, [30, 31]), progress=False)
    assert next(finding for finding in plain.findings if finding.code == "NS041").status == "passed"


def test_an_index_that_repeats_or_starts_elsewhere_still_names_records():
    frame = pd.DataFrame(X, index=[f"p{i // 2}" for i in range(N)], columns=list("abcd"))
    for model in (net(), LogisticRegression().fit(frame, Y)):
        assert ns.collect_signals(model, (frame[:4], Y[:4])).ids.tolist() == ["p0", "p0#2", "p1", "p1#2"]
        sliced = frame.reset_index(drop=True)[10:]
        assert ns.collect_signals(model, (sliced, Y[10:])).ids.tolist() == list(range(10, N))
    clash = pd.DataFrame(X[:3], index=["a", "a#2", "a"])
    assert ids_of((clash, Y[:3])) == ["a", "a#2", "a#3"]
    audit = ns.audit(net(), (frame, Y), TEST, progress=False)
    assert next(finding for finding in audit.findings if finding.code == "NS041").figure == N // 2


# X and y that belong together


def shuffled(seed=1):
    order = np.random.default_rng(seed).permutation(N)
    frame = pd.DataFrame(X, index=[f"p{i}" for i in range(N)], columns=list("abcd"))
    return frame, pd.Series(Y, index=frame.index).iloc[order]


@pytest.mark.parametrize("kind", ["torch", "scikit-learn"])
def test_targets_are_paired_with_inputs_by_label(kind):
    frame, targets = shuffled()
    model = net() if kind == "torch" else LogisticRegression().fit(frame, Y)
    audit = ns.audit(model, (frame, targets), (frame[:9], Y[:9]), progress=False)
    assert audit.records["target"].tolist() == Y.tolist() and audit.records["id"].tolist() == frame.index.tolist()
    moved = int((targets.index != frame.index).sum())
    assert f"The index of train y holds the labels of X in another order: {moved} of {N} targets were moved" in audit.notes[0]
    kept = ns.audit(model, (frame, targets.loc[frame.index]), (frame[:9], Y[:9]), progress=False)
    pd.testing.assert_frame_equal(audit.records, kept.records)
    assert not any("another order" in note for note in kept.notes)
    by_row = ns.audit(model, (frame, targets.to_numpy()), (frame[:9], Y[:9]), progress=False)
    assert by_row.records["target"].tolist() == targets.tolist()


def test_the_pool_of_reference_models_pairs_as_an_audit_does():
    frame, targets = shuffled()
    pool = record_pool((frame, targets), None, pool="train", ids=None)
    assert pool.targets.tolist() == Y.tolist() and "another order" in pool.notes[0]


@pytest.mark.parametrize(
    ("index_x", "index_y", "message"),
    [
        (
            range(100, 100 + N),
            range(N),
            r"train y must have the index of X; got 41 of 41 labels that X does not have, 0 first. Pass y.to_numpy\(\)",
        ),
        (["a"] * N, ["a"] * (N - 1) + ["b"], "got 1 of 41 labels that X does not have, 'b' first"),
        (["a", "b"] * 20 + ["c"], ["b", "a"] * 20 + ["c"], "got its labels in another order, some of them more than once"),
        (range(N), range(N - 1, -1, -1), "two readings: X counts its rows, and y has the same numbers in another order"),
        (range(N - 1, -1, -1), range(N), r"two readings: y counts its rows.*or y.loc\[X.index\] if"),
    ],
)
def test_indexes_that_settle_nothing_are_refused(index_x, index_y, message):
    frame, targets = pd.DataFrame(X, index=list(index_x)), pd.Series(Y, index=list(index_y))
    for model in (net(), LogisticRegression().fit(X, Y)):
        with pytest.raises(ns.InputError, match=message):
            ns.audit(model, (frame, targets), TEST, progress=False)


def test_one_index_or_the_same_shuffled_one_is_taken_as_it_stands():
    order = np.random.default_rng(0).permutation(N)
    frame, targets = pd.DataFrame(X).iloc[order], pd.Series(Y).iloc[order]
    for data in ((frame, targets), (frame, targets.to_numpy()), (X[order], targets), (frame, pd.DataFrame({"y": targets}))):
        audit = ns.audit(net(), data, TEST, progress=False)
        assert audit.records["target"].tolist() == Y[order].tolist()
    repeated = [0] * N
    same = pd.DataFrame(X, index=repeated), pd.Series(Y, index=repeated)
    assert ns.audit(net(), same, TEST, progress=False).records["target"].tolist() == Y.tolist()


def test_several_inputs_share_one_index():
    frame, targets = shuffled()
    with pytest.raises(ns.InputError, match="train X must hold inputs with one index; got inputs whose indexes differ"):
        ns.audit(net(), ((frame, frame[::-1]), targets), TEST, progress=False)


@pytest.mark.parametrize("argument", ["groups", "ids", "sample_weight", "test_groups"])
def test_columns_beside_a_frame_have_its_order(argument):
    frame = shuffled()[0]
    values = {"ids": [f"q{k}" for k in range(N)], "sample_weight": np.ones(N)}.get(argument, [f"g{k % 2}" for k in range(N)])
    own = pd.Series(values, index=frame.index)
    for network in (net(), LogisticRegression().fit(frame, Y)):
        audit = {"train": (frame, Y), "test": (frame, Y), "progress": False}
        ns.audit(network, **audit, **{argument: own})
        ns.audit(network, **audit, **{argument: own[::-1].to_numpy()})
        ns.audit(network, **audit, **{argument: own.reset_index(drop=True)})
        with pytest.raises(
            ns.InputError, match=f"audit: {argument} must have the index of the records' X, in its order; got another index"
        ):
            ns.audit(network, **audit, **{argument: own[::-1]})


# Masked arrays

HIDDEN = np.ma.masked_equal(np.arange(N), 3)


def masked(array):
    hidden = np.ma.MaskedArray(array)
    hidden[3] = np.ma.masked
    return hidden


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: ns.audit(net(), (masked(X), Y), TEST), "audit: train X"),
        (lambda: ns.audit(net(), (X, masked(Y)), TEST), "audit: train y"),
        (lambda: ns.audit(net(), (X, Y), (X, masked(Y))), "audit: test y"),
        (lambda: ns.audit(LogisticRegression().fit(X, Y), (masked(X), Y), TEST), "audit: train X"),
        (lambda: ns.audit(LogisticRegression().fit(X, Y), (X, masked(Y)), TEST), "audit: train y"),
        (lambda: ns.audit(net(), ({"input": masked(X)}, Y), TEST), "audit: train X"),
        (lambda: ns.Signals(masked(X), X[:, :3], Y), "Signals: features"),
        (lambda: ns.Signals(X, masked(X), Y), "Signals: outputs"),
        (lambda: ns.Signals(X, X[:, :3], masked(Y)), "Signals: targets"),
        (lambda: ns.Signals(X, X[:, :3], Y, HIDDEN), "Signals: ids"),
        (lambda: ns.Signals(X, X[:, :3], Y, HIDDEN.astype(object)), "Signals: ids"),
        (lambda: ns.audit(net(), (X, Y), TEST, ids=HIDDEN), "ids"),
        (lambda: ns.audit(net(), (X, Y), TEST, groups=HIDDEN), "audit: groups"),
        (lambda: ns.audit(net(), (X, Y), TEST, test_groups=HIDDEN[:20]), "audit: test_groups"),
        (lambda: ns.audit(net(), (X, Y), TEST, sample_weight=masked(np.ones(N))), "audit: sample_weight"),
        (lambda: ns.audit(net(), (X, Y), TEST, loss_traces=masked(np.ones((N, 2)))), "audit: loss_traces"),
        (lambda: record_pool((masked(X), Y), None, pool="train", ids=None), "^train X"),
        (lambda: ns.record_scores(masked(X), X[:, :3], Y), "record_scores: features"),
    ],
)
def test_masked_values_are_refused(call, argument):
    with pytest.raises(ns.InputError, match=rf"{argument} must hold no masked values; got \d+ of \d+ masked. Drop these records, or fill"):
        call()


def test_a_mask_that_hides_nothing_is_no_matter():
    assert len(ns.Signals(np.ma.MaskedArray(X), X[:, :3], Y)) == N


# Ids in both splits


def shared(audit):
    (found,) = (finding for finding in audit.findings if finding.code == "NS008")
    return found.status, found.figure, found.records


def test_ids_in_both_splits_are_found():
    names = [f"p{i}" for i in range(N)]
    frame, model = pd.DataFrame(X, index=names), LogisticRegression().fit(X, Y)
    apart = {"progress": False}
    found = shared(ns.audit(net(), (frame[:30], Y[:30]), (frame[27:], Y[27:]), **apart))
    assert found == ("found", 3, ("p27", "p28", "p29"))
    assert shared(ns.audit(net(), (X[:30], Y[:30]), (frame[27:], Y[27:]), ids=names[:30], **apart)) == found
    assert shared(ns.audit(model, (frame[:30].to_numpy(), Y[:30]), (X[27:], Y[27:]), ids=names[:30], **apart))[0] == "not applicable"
    assert shared(ns.audit(net(), (frame[:30], Y[:30]), (frame[30:], Y[30:]), **apart)) == ("passed", 0, ())
    assert shared(ns.audit(net(), (X[:30], Y[:30]), (X[27:], Y[27:]), **apart))[0] == "not applicable"


def test_rows_are_compared_within_one_data_set_only():
    other = TensorDataset(torch.tensor(X) + 5, torch.tensor(Y))
    train = Subset(DATA, list(range(30)))
    assert shared(ns.audit(net(), train, Subset(DATA, [28, 29, 35, 36]), progress=False))[:2] == ("found", 2)
    assert shared(ns.audit(net(), train, Subset(other, [28, 29, 35, 36]), progress=False))[0] == "not applicable"


def test_ids_of_signals_are_compared_where_both_were_given():
    def signals(rows, ids):
        return ns.Signals(X[rows], net()(torch.tensor(X[rows])).detach().numpy(), Y[rows], ids)

    early, late = slice(0, 25), slice(16, 41)
    assert shared(ns.audit_signals(signals(early, range(25)), signals(late, range(16, 41)), progress=False))[:2] == ("found", 9)
    assert shared(ns.audit_signals(signals(early, None), signals(late, range(16, 41)), progress=False))[0] == "not applicable"
    assert shared(ns.audit_signals(signals(early, range(25)), signals(late, range(25)), progress=False))[0] == "not applicable"
    kept = signals(early, list("abcdefghijklmnopqrstuvwxy"))
    assert shared(ns.audit_signals(kept, signals(late, [*"abc", *range(22)]), progress=False)) == ("found", 3, ("a", "b", "c"))


# Soft targets beside hard ones


@pytest.mark.parametrize("soft_split", ["train", "test"])
@pytest.mark.parametrize("kind", ["classes", "binary"])
def test_soft_targets_beside_hard_ones_are_refused(soft_split, kind):
    hard, outputs, task = (Y, X[:, :3], "classification") if kind == "classes" else ((Y > 0).astype(float), X[:, 0], "binary")
    soft = 0.9 * np.eye(3)[Y] + 0.1 / 3 if kind == "classes" else 0.9 * hard + 0.05
    pair = {name: ns.Signals(X, outputs, soft if name == soft_split else hard) for name in ("train", "test")}
    other = {"train": "test", "test": "train"}[soft_split]
    message = f"audit_signals: train and test must have targets of one kind; got soft ones in {soft_split} beside hard labels in {other}."
    with pytest.raises(ns.InputError, match=re.escape(message)):
        ns.audit_signals(**pair, task=task, progress=False)
    both = ns.Signals(X, outputs, soft)
    assert ns.audit_signals(both, both, task=task, progress=False).model_risk is not None
    assert ns.audit_signals(both, ns.Signals(X[:0], outputs[:0], soft[:0]), task=task, progress=False).model_risk is None


def test_soft_targets_of_a_network_and_one_hot_rows():
    one_hot = np.eye(3)[Y]
    with pytest.raises(ns.InputError, match="audit: train and test must have targets of one kind; got soft ones in train"):
        ns.audit(net(), (X, 0.9 * one_hot + 0.1 / 3), TEST, task="classification", progress=False)
    # Rows of one 1 and zeros are labels.
    assert ns.audit(net(), (X, one_hot), TEST, task="classification", progress=False).model_risk is not None
    ridge = Ridge().fit(X, X[:, 0])
    assert ns.audit(ridge, (X, X[:, 0]), (X, np.round(X[:, 0])), progress=False).model_risk is not None
