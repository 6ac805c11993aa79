"""The contract of `audit`: whatever the loader, the batch size, the ids and the form of the output, a record's loss is the model's own."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, Subset, SubsetRandomSampler, TensorDataset

import noshadow as ns

N, D = 14, 3
RNG = np.random.default_rng(21)
X = RNG.normal(size=(N, D)).astype(np.float32)
LABELS = np.arange(N) % 3
TARGETS = {"classification": LABELS, "binary": (LABELS > 0).astype(np.int64), "regression": RNG.normal(size=N).astype(np.float32)}
OUTPUTS = {"classification": 3, "binary": 1, "regression": 1}


class Wrapped(nn.Module):
    """A network that returns its output in some form."""

    def __init__(self, task, form):
        super().__init__()
        torch.manual_seed(4)
        self.net, self.form = nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, OUTPUTS[task])), form

    def forward(self, x):
        hidden = self.net[:2](x)
        z = self.net[2](hidden)
        return WITH_FEATURES[self.form](hidden, z) if self.form in WITH_FEATURES else FORMS[self.form](z)


# Form of the output → what the model makes of its head's. More forms are added here, and the test below draws from all of them.
FORMS = {
    "raw": lambda z: z,
    "tuple": lambda z: (z, 2 * z),
    "list": lambda z: [z],
    "dict": lambda z: {"loss": None, "logits": z},
    "dict, named": lambda z: {"prediction": z},
    "object": lambda z: SimpleNamespace(logits=z, hidden_states=None),
    "squeezed": lambda z: z.squeeze(-1),
    "log-probabilities": lambda z: z.log_softmax(-1) if z.shape[-1] > 1 else z,
}
# Features beside the output: an embedding must never be audited as logits.
WITH_FEATURES = {
    "features first": lambda hidden, z: (hidden, z),
    "features in a dict": lambda hidden, z: {"embedding": hidden, "logits": z},
    "features last": lambda hidden, z: [z, hidden],
}


def own_loss(model, task, row):
    """The loss of one record, from the model's network and this record alone, by torch."""
    with torch.no_grad():
        z = model.net(torch.tensor(X[row : row + 1]))
    target = torch.tensor(TARGETS[task][row : row + 1])
    if task == "classification":
        return float(functional.cross_entropy(z, target))
    if task == "binary":
        return float(functional.binary_cross_entropy_with_logits(z[:, 0], target.float()))
    return float((z[0, 0] - target[0]) ** 2)


@dataclass(frozen=True)
class Given:
    """Data for `audit`, the row of X behind each of its records in order, and the ids that the records must get."""

    data: object
    rows: list
    ids: list


def names_of(rows):
    """Rows as documented: numbers, or text with a suffix from the second time on where any comes twice."""
    if len(set(rows)) == len(rows):
        return list(rows)
    return [str(row) if rows[:k].count(row) == 0 else f"{row}#{rows[:k].count(row) + 1}" for k, row in enumerate(rows)]


def whole(data):
    return Given(data, list(range(N)), list(range(N)))


def data_set(task):
    return TensorDataset(torch.tensor(X), torch.tensor(TARGETS[task]))


def chosen_rows(draw):
    """Rows by number, some counted from the end and some taken twice; the first six are there for every class."""
    more = draw(st.lists(st.integers(-N, N - 1), max_size=6))
    return draw(st.permutations([0, 1, 2, -5, -6, -7, *more]))


def nested(draw, task):
    outer = chosen_rows(draw)
    inner = draw(st.permutations([k if k % 2 else k - len(outer) for k in range(len(outer))]))
    rows = [outer[k] % N for k in inner]
    return Given(Subset(Subset(data_set(task), outer), inner), rows, names_of(rows))


def subset(draw, task):
    indices = chosen_rows(draw)
    rows = [k % N for k in indices]
    return Given(Subset(data_set(task), indices), rows, names_of(rows))


def sampled(draw, task):
    indices = chosen_rows(draw)
    rows = sorted(k % N for k in indices)
    return Given(DataLoader(data_set(task), batch_size=2, sampler=SubsetRandomSampler(indices)), rows, names_of(rows))


def stacked(items):
    return torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])


def sorting(items):
    items.sort(key=lambda item: -float(item[0][0]))
    return stacked(items)


def reversing(items):
    return stacked(items[::-1])


def collated(collate):
    return lambda draw, task: whole(DataLoader(data_set(task), batch_size=4, shuffle=draw(st.booleans()), collate_fn=collate))


def dictionaries(draw, task):
    key = draw(st.sampled_from(["labels", "label", "targets", "target", "y"]))
    items = [{"x": torch.tensor(x), key: y} for x, y in zip(X, TARGETS[task].tolist(), strict=True)]
    return whole(DataLoader(items, batch_size=3, shuffle=True))


def frames(draw, task):
    """A data frame whose index may count, be shuffled or hold names, beside targets with the same index or none."""
    order = draw(st.permutations(range(N)))
    index = draw(st.sampled_from([list(range(N)), order, [f"p{k}" for k in order], [k // 2 for k in range(N)]]))
    frame, y = pd.DataFrame(X, index=index), pd.Series(TARGETS[task], index=index)
    frame = frame.reset_index(drop=True) if index == list(range(N)) else frame
    given = whole((frame, draw(st.sampled_from([y, y.to_numpy(), y.to_frame()]))))
    return Given(given.data, given.rows, names_of(index))


def frames_apart(draw, task):
    """Targets in another order than the inputs, under the same names."""
    names = [f"p{k}" for k in range(N)]
    y = pd.Series(TARGETS[task], index=names).iloc[draw(st.permutations(range(N)))]
    return Given((pd.DataFrame(X, index=names), y), list(range(N)), names)


# Kind of data → how an example of it is drawn. More kinds are added here.
KINDS = {
    "arrays": lambda draw, task: whole((X, TARGETS[task])),
    "tensors": lambda draw, task: whole([torch.tensor(X), torch.tensor(TARGETS[task])]),
    "named arrays": lambda draw, task: whole(({"x": X}, TARGETS[task])),
    "Dataset": lambda draw, task: whole(data_set(task)),
    "list": lambda draw, task: whole(list(zip(torch.tensor(X), TARGETS[task].tolist(), strict=True))),
    "DataLoader": lambda draw, task: whole(DataLoader(data_set(task), batch_size=5)),
    "shuffled": lambda draw, task: whole(DataLoader(data_set(task), batch_size=5, shuffle=True)),
    "sampler": sampled,
    "Subset": subset,
    "nested Subset": nested,
    "collate_fn": collated(stacked),
    "sorting collate_fn": collated(sorting),
    "reversing collate_fn": collated(reversing),
    "dict batches": dictionaries,
    "pandas": frames,
    "pandas apart": frames_apart,
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(data=st.data())
@settings(max_examples=4, deadline=None, derandomize=True)
def test_every_id_has_the_model_s_own_loss(kind, data):
    task = data.draw(st.sampled_from(sorted(OUTPUTS)))
    form = data.draw(st.sampled_from(sorted(FORMS | WITH_FEATURES)))
    model, given_data = Wrapped(task, form), KINDS[kind](data.draw, task)
    ids = data.draw(
        st.sampled_from([None, [f"person {k}" for k in range(len(given_data.rows))], list(range(100, 100 + len(given_data.rows)))])
    )
    batch_size = data.draw(st.sampled_from([1, 2, 3, 5, 256]))
    audit = ns.audit(
        model,
        given_data.data,
        (X[:4] + 1, TARGETS[task][:4]),
        task=task,
        weight_decay=0.01,
        ids=ids,
        batch_size=batch_size,
        progress=False,
    )
    expected_ids = given_data.ids if ids is None else ids
    assert audit.records["id"].tolist() == expected_ids
    expected = {name: own_loss(model, task, row) for name, row in zip(expected_ids, given_data.rows, strict=True)}
    found = dict(zip(audit.records["id"], audit.records["loss"], strict=True))
    # float32 outputs of about 1 from two layers of a few products each, summed in another order in another batch: 1e-5 relative.
    for name, loss in expected.items():
        assert found[name] == pytest.approx(loss, rel=1e-5, abs=1e-6), (kind, form, batch_size, name)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(data_set("classification"))


@pytest.mark.parametrize("data", [Stream(), DataLoader(Stream(), batch_size=4)], ids=["stream", "loader"])
@pytest.mark.parametrize("batch_size", [1, 256])
def test_data_without_an_order_are_refused(data, batch_size):
    with pytest.raises(ns.InputError, match=r"audit: train must have a fixed order of records; got .*IterableDataset. Pass \(X, y\)"):
        ns.audit(Wrapped("classification", "raw"), data, (X, LABELS), batch_size=batch_size, progress=False)
