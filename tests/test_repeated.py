"""Outputs that are no function of the record are found, named and shown first; rounding is not taken for them."""

import io
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn
from torch.utils.data import DataLoader, Dataset

import noshadow as ns
from noshadow._findings import most_severe
from noshadow.cli.printing import print_audit
from noshadow.views import repeated
from noshadow.views.repeated import sampled_groups

N, D, M = 150, 5, 3
RNG = np.random.default_rng(8)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = RNG.integers(0, M, size=N)
TEST = (X[:40] + 2, Y[:40])


def net(*between, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(D, 16), nn.Tanh(), *between, nn.Linear(16, M))


class Augmented(Dataset):
    """Noise from torch, NumPy, Python or a generator of its own, on a share of the records, or labels drawn anew."""

    def __init__(self, source="torch", size=0.5, share=1.0):
        self.source, self.size, self.share = source, size, share
        self.own = np.random.default_rng(0)
        self.reads = 0

    def __len__(self):
        return N

    def __getitem__(self, i):
        self.reads += 1
        noise = {
            "torch": lambda: float(torch.randn(())),
            "numpy": np.random.randn,
            "python": lambda: random.gauss(0, 1),
            "own": self.own.normal,
            "label": lambda: 0.0,
            "index": lambda: float(np.random.default_rng(i).normal()),
            "none": lambda: 0.0,
        }[self.source]()
        label = random.randrange(M) if self.source == "label" else int(Y[i])
        return torch.tensor(X[i]) + (self.size * noise if i % 20 < 20 * self.share else 0.0), label


class Noisy(nn.Module):
    """Draws at every run, in eval mode too."""

    def __init__(self, change):
        super().__init__()
        self.net, self.change = net(), change

    def forward(self, x):
        return self.net(self.change(x))


def dropped(x):
    return nn.functional.dropout(x, 0.2, training=True)


def audited(model, train, test=TEST, **options):
    return ns.audit(model, train, test, progress=False, **options)


def found(audit):
    (finding,) = (finding for finding in audit.findings if finding.code == "NS040")
    return finding


@pytest.mark.parametrize("source", ["torch", "numpy", "python", "own", "label"])
def test_data_that_differ_from_one_reading_to_the_next_are_found(source):
    finding = found(audited(net(), Augmented(source)))
    assert finding.status == "found" and finding.severity == "high" and "augmentation" in finding.sentence
    assert "eval()" not in finding.sentence and "batch a record is in" not in finding.sentence
    assert finding.figure > 0.05 or source == "label"


@pytest.mark.parametrize("workers", [0, 1])
def test_readings_through_workers_differ_too(workers):
    finding = found(audited(net(), DataLoader(Augmented(), batch_size=8, num_workers=workers)))
    assert finding.status == "found" and "augmentation" in finding.sentence


def test_an_augmentation_of_few_records_is_met():
    audit = audited(net(), Augmented(share=0.2))
    assert 3 <= audit.provenance["inputs"]["run_again"]["train"]["changed"] <= 25


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Noisy(dropped), "other outputs at each run"),
        (Noisy(lambda x: x + 0.3 * torch.randn_like(x)), "other outputs at each run"),
        (net(nn.BatchNorm1d(16, track_running_stats=False)), "depend on the batch"),
        (Noisy(lambda x: x - x.mean(0)), "depend on the batch"),
    ],
    ids=["dropout", "noise", "statistics", "centred"],
)
def test_models_that_are_no_function_of_the_record_are_found(model, words):
    finding = found(audited(model, (X, Y)))
    assert finding.status == "found" and words in finding.sentence and "augmentation" not in finding.sentence
    assert "64 training records" in finding.sentence and "40 test records" in finding.sentence


def test_padding_that_is_not_masked_is_found():
    lengths = RNG.integers(1, 9, size=N)
    rows = [(torch.tensor(RNG.normal(size=(n, D)).astype(np.float32)), int(y)) for n, y in zip(lengths, Y, strict=True)]

    def padded(items):
        return nn.utils.rnn.pad_sequence([x for x, _ in items], batch_first=True), torch.tensor([y for _, y in items])

    loader = DataLoader(rows, collate_fn=padded)
    mean, total = (Noisy(lambda x, how=how: getattr(x, how)(1)) for how in ("mean", "sum"))
    assert "padding that is not masked" in found(audited(mean, loader, loader, batch_size=10)).sentence
    assert found(audited(total, loader, loader, batch_size=10)).status == "passed"


def test_one_random_split_is_enough():
    finding = found(audited(net(), (X, Y), Augmented()))
    assert finding.status == "found" and "64 test records" in finding.sentence and "training records" not in finding.sentence


class Jittered(Dataset):
    """One standard normal number a record, with fresh noise of deviation 0.3 on it."""

    values = np.random.default_rng(0).normal(size=4000)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        return torch.tensor([float(self.values[i]) + 0.3 * float(torch.randn(()))]), 0.0


def test_the_size_is_the_change_over_the_spread():
    model = nn.Linear(1, 1)
    nn.init.ones_(model.weight)
    audit = ns.audit(model, Jittered(), (np.ones((5, 1), np.float32), np.zeros(5)), task="regression", progress=False)
    # Outputs change by √2·0.3 between two readings, over a spread of √(1 + 0.3²); the root mean square of 64 changes has a relative
    # deviation of 1/√128 = 0.09.
    assert found(audit).figure == pytest.approx(0.3 * np.sqrt(2) / np.sqrt(1.09), rel=0.3)


class Deep(nn.Module):
    def __init__(self, layers=20):
        super().__init__()
        torch.manual_seed(1)
        blocks = [part for _ in range(layers) for part in (nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU())]
        self.body, self.head = nn.Sequential(nn.Linear(D, 64), *blocks), nn.Linear(64, M)

    def forward(self, x):
        return self.head(self.body(x))


class Offset(nn.Module):
    """Outputs near 30,000 that vary by one: float32 keeps two thousandths there, float16 sixteens."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(D, M)
        nn.init.constant_(self.net.bias, 3e4)

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "build", [net, Deep, Offset, lambda: net(nn.BatchNorm1d(16), nn.Dropout(0.5))], ids=["net", "deep", "offset", "norm"]
)
@pytest.mark.parametrize("batch_size", [3, 256])
def test_rounding_is_not_taken_for_randomness(dtype, build, batch_size):
    again = audited(build().to(dtype), (X, Y), batch_size=batch_size).provenance["inputs"]["run_again"]
    assert {split: (part["records"], part["changed"]) for split, part in again.items()} == {"train": (64, 0), "test": (40, 0)}


def test_inner_products_in_few_digits_are_allowed_their_rounding():
    class Autocast(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Deep()

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                return self.net(x)

    assert found(audited(Autocast(), (X, Y))).status == "passed"


@pytest.mark.parametrize("source", ["none", "index"])
def test_data_that_repeat_pass_and_little_is_read_again(source):
    data = Augmented(source)
    finding = found(audited(net(), data))
    assert (
        finding.status == "passed" and finding.sentence == "64 training and 40 test records were read and run twice, with the same outputs."
    )
    # The probe of 8, all records, and the sample twice.
    assert data.reads == 8 + N + 2 * 64


def test_random_states_and_modes_are_as_before():
    model = Noisy(dropped)
    model.train()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    audited(model, Augmented("numpy"))
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    np.testing.assert_array_equal(np.random.get_state()[1], states[2])  # noqa: NPY002
    assert model.training and not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda x: x - x.mean(0), "depend on the batch"),
        (lambda x: x + np.random.default_rng().normal(size=np.shape(x)), "other outputs at each run"),
    ],
    ids=["batch", "random"],
)
def test_pipelines_are_run_again_too(step, words):
    model = make_pipeline(FunctionTransformer(step), LogisticRegression()).fit(X, Y)
    finding = found(audited(model, (X, Y)))
    assert finding.status == "found" and words in finding.sentence
    plain = make_pipeline(FunctionTransformer(np.tanh), LogisticRegression()).fit(X, Y)
    assert found(audited(plain, (X.tolist(), Y))).status == "passed"


def test_arrays_leave_nothing_to_run():
    signals = ns.Signals(X, X[:, :3], Y)
    assert found(ns.audit_signals(signals, signals, progress=False)).status == "not applicable"


def test_the_first_screens_say_so(tmp_path):
    audit = audited(Noisy(dropped), (X, Y))
    assert most_severe(audit.findings)[0].code == "NS040"
    html = ns.write_report(audit, tmp_path / "report.html").read_text(encoding="utf-8")
    first_screen = html[: html.index("Who is most exposed")]
    assert (
        'These figures are in doubt (<a href="#ns040">NS040</a>)' in first_screen and "Not known: the figures are in doubt" in first_screen
    )
    assert "Read and run twice, the outputs change for" in first_screen and 'id="ns040"' in html
    printed = io.StringIO()
    print_audit(audit, Path("report.html"), 1.0, Console(file=printed, width=400))
    assert "NS040 high  random-records: Read and run twice, the outputs change for" in printed.getvalue()
    quiet = ns.write_report(audited(net(), (X, Y)), tmp_path / "quiet.html").read_text(encoding="utf-8")
    assert "in doubt" not in quiet


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 64, 65, 1000])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 256])
def test_samples_are_other_batches_of_at_least_two(count, batch_size):
    groups = sampled_groups(count, batch_size)
    places = [place for group in groups for place in group]
    assert len(set(places)) == len(places) == min(count, repeated.SAMPLED) and max(places) == count - 1 and min(places) == 0
    assert all(len(group) <= batch_size for group in groups)
    if count >= 4 and batch_size > 1:
        assert len(groups) > 1 and sum(len(group) == 1 for group in groups) <= count % batch_size
