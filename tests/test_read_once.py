"""Records are read once, however many walks the scores over many layers take."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, Dataset

import noshadow as ns
from noshadow.views.loading import records_of
from noshadow.views.read_once import read_once
from noshadow.views.repeated import SAMPLED
from noshadow.views.torch import PROBE_RECORDS

N = 200


class Counted(Dataset):
    """Records that count how often each of them is read; with noise, every reading draws anew."""

    def __init__(self, noise=0.0):
        rng = torch.Generator().manual_seed(0)
        self.x = torch.randn(N, 4, generator=rng)
        self.y = torch.randint(3, (N,), generator=rng)
        self.reads, self.noise = Counter(), noise

    def __len__(self):
        return N

    def __getitem__(self, row):
        self.reads[row] += 1
        return self.x[row] + self.noise * torch.randn(4), self.y[row]


def network(*first):
    torch.manual_seed(0)
    return nn.Sequential(*first, nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize("layers", ["all", 2])
def test_an_audit_over_many_layers_reads_its_training_records_once(layers):
    data = Counted()
    ns.audit(network(), data, None, layers=layers, weight_decay=0.1, batch_size=64, progress=False)
    # NS040 reads a sample twice more, and each of the two views probes the first records.
    probed = {row for row in range(PROBE_RECORDS)}
    assert sum(data.reads.values()) == N + 2 * SAMPLED + 2 * PROBE_RECORDS
    assert all(data.reads[row] in (1, 3) for row in range(N) if row not in probed)


@pytest.mark.parametrize("call", [ns.network_scores, ns.damping_sweep])
def test_scores_over_many_layers_read_their_records_once(call):
    data = Counted()
    call(network(), data, weight_decay=0.1, batch_size=64)
    assert sum(data.reads.values()) == N + PROBE_RECORDS


def test_conjugate_gradients_do_not_read_the_data_at_every_step():
    data = Counted()
    ns.generalized_leverage(network(), data, (data.x[:3], data.y[:3]), damping=1.0, layers="all", batch_size=64)
    # The products' sizing looks at batches of 1 and 2 records, and the check of independence at one of three.
    assert sum(data.reads.values()) <= N + PROBE_RECORDS + 16


@pytest.mark.parametrize("options", [{}, {"unvectorised": "loop"}], ids=["batches", "record by record"])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_scores_are_those_of_data_that_are_read_on_every_walk(noise, options, monkeypatch):
    model = network()
    kept = ns.audit(model, Counted(noise), None, layers="all", weight_decay=0.1, score_options=options, progress=False)
    monkeypatch.setattr("noshadow.views.read_once.read_once.__kwdefaults__", {"most_bytes": 0})
    data = Counted(noise)
    anew = ns.audit(model, data, None, layers="all", weight_decay=0.1, score_options=options, progress=False)
    assert sum(data.reads.values()) > 3 * N
    # The same bytes: the same inputs reach the same operations.
    assert kept.records.equals(anew.records) and kept.notes == anew.notes


def walk(records, size=64):
    return list(records.batches(size))


def test_what_a_model_does_to_its_inputs_does_not_reach_what_is_kept():
    records = read_once(records_of(Counted(), "data", seed=0))
    first = walk(records)
    before = [batch.args[0].clone() for batch in first]
    for batch in first:
        batch.args[0].zero_()
    for batch, clean in zip(walk(records), before, strict=True):
        assert torch.equal(batch.args[0], clean)
        batch.args[0].zero_()
    assert all(torch.equal(batch.args[0], clean) for batch, clean in zip(walk(records), before, strict=True))


def test_only_whole_walks_that_fit_are_kept():
    data = Counted()
    records = read_once(records_of(data, "data", seed=0))
    next(iter(records.batches(64)))
    walk(records)
    assert sum(data.reads.values()) == N + 64
    walk(records)
    assert sum(data.reads.values()) == N + 64
    # A collate_fn may pad batches of another size otherwise.
    walk(records, 50)
    assert sum(data.reads.values()) == 2 * N + 64
    size = N * (4 * 4 + 8)
    for most, readings in ((size, 1), (size - 1, 3)):
        data = Counted()
        records = read_once(records_of(data, "data", seed=0), most_bytes=most)
        for _ in range(3):
            walk(records)
        assert sum(data.reads.values()) == readings * N


class Ragged(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, row):
        return torch.arange(row + 1.0)[:, None], row


def test_packed_and_nested_inputs_are_kept_and_unknown_ones_are_not():
    def packed(items):
        return pack_sequence([x for x, _ in items], enforce_sorted=False), torch.tensor([y for _, y in items])

    records = read_once(records_of(DataLoader(Ragged(), batch_size=3, collate_fn=packed), "data", seed=0))
    first, second = walk(records, 3), walk(records, 3)
    for one, other in zip(first, second, strict=True):
        assert isinstance(other.args[0], PackedSequence) and other.args[0].data is not one.args[0].data
        assert all(torch.equal(a, b) for a, b in zip(one.args[0], other.args[0], strict=True))

    class Graph:
        pass

    def graphs(items):
        return Graph(), torch.tensor([y for _, y in items])

    def dicts(items):
        ids = np.ones(len(items))
        return {"x": torch.ones(len(items), 2), "names": ["a"] * len(items), "ids": ids, "labels": torch.zeros(len(items))}

    unknown = read_once(records_of(DataLoader(Ragged(), batch_size=3, collate_fn=graphs), "data", seed=0))
    assert walk(unknown, 3)[0].args[0] is not walk(unknown, 3)[0].args[0]
    named = read_once(records_of(DataLoader(Ragged(), batch_size=3, collate_fn=dicts), "data", seed=0))
    one, other = walk(named, 3)[0], walk(named, 3)[0]
    assert torch.equal(one.kwargs["x"], other.kwargs["x"]) and other.kwargs["names"] == ["a"] * 3


def test_arrays_are_in_memory_already():
    records = records_of((np.ones((3, 2)), np.zeros(3)), "data", seed=0)
    assert read_once(records) is records and records_of(records, "data", seed=0) is records
