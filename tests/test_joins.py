"""Tables that are joined: whose records they are is checked by targets and losses, in references, traces, lood and compare."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn

import noshadow as ns
from noshadow.checks import InputError
from noshadow.joins import (
    FEWEST_RANKED,
    FLOOR_NATS,
    FLOOR_SQUARES,
    LEAST_CORRELATION,
    MOST_RELABELLED,
    Held,
    held_by,
    join,
    loss_agreement,
    loss_floor,
)
from noshadow.reference import train_references
from noshadow.reference.attack_list import AttackOptions
from noshadow.reference.ground_truth import with_ground_truth

RNG = np.random.default_rng(17)
N = 60
X = RNG.normal(size=(2 * N, 4))
LABELS = (X @ RNG.normal(size=(4, 3)) + RNG.gumbel(size=(2 * N, 3))).argmax(1)
REAL = X @ RNG.normal(size=4) + RNG.normal(size=2 * N)
ORDER = np.random.default_rng(3).permutation(N)


# The function


def brute_force(first, second):
    """Rows of the same name, one by one."""
    places = {str(name): row for row, name in enumerate(second)}
    return [(row, places[str(name)]) for row, name in enumerate(first) if str(name) in places]


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_paired_by_the_text_of_their_ids(seed):
    rng = np.random.default_rng(seed)
    first, second = rng.permutation(50)[:30], rng.permutation(50)[:30].astype(str)
    found = join(Held(first), Held(second))
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == brute_force(first, second)
    assert found.names.tolist() == [str(first[row]) for row, _ in brute_force(first, second)]
    with pytest.raises(InputError, match=r"^ids must be unique; got 'a' more than once"):
        join(Held(np.array(["b", "a", "a"])), Held(first))


def differing(first, second):
    ids = np.arange(len(first))
    found = join(Held(ids, np.asarray(first)), Held(ids, np.asarray(second))).relabelled
    return None if found is None else found.tolist()


def test_targets_differ_where_they_are_other_numbers():
    rng = np.random.default_rng(11)
    labels = rng.integers(0, 5, 40)
    other = labels.copy()
    other[[3, 17]] = (other[[3, 17]] + 1) % 5
    assert differing(labels, labels) == [] and differing(labels, other) == [3, 17]
    numbers = rng.normal(size=(40, 2))
    moved = numbers.copy()
    moved[[5, 6], [0, 1]] += 10
    assert differing(numbers, moved) == [5, 6]
    many = np.arange(900_000, 900_040)  # one label among a million is another one
    assert differing(many, np.r_[many[:10], many[10] + 1, many[11:]]) == [10]


def test_rounding_and_recoding_are_no_differences():
    rng = np.random.default_rng(11)
    labels, numbers = rng.integers(0, 4, 40), rng.normal(size=40) * 1e3 + 5
    assert differing(numbers, numbers.astype(np.float32)) == []  # 6e-8 relative
    assert differing(labels, labels + 1) == [] and differing(labels % 2, 2 * (labels % 2) - 1) == []
    assert differing(labels, np.array([3, 5, 7, 11])[labels]) == []
    assert differing(numbers, (numbers - numbers.mean()) / numbers.std()) == []
    assert differing(np.eye(4)[labels], labels) == [] and differing(labels, np.eye(4)[labels] - 0.25) == []
    assert differing(np.eye(4)[labels], (labels + 1) % 4) is None


def test_the_same_labels_in_another_order_are_no_recoding():
    rng = np.random.default_rng(11)
    labels = np.sort(rng.integers(0, 4, 40))
    assert len(differing(labels, labels[::-1])) == (labels != labels[::-1]).sum() > 0
    assert len(differing(labels, 3 - labels)) == 40  # a decreasing recoding is that of sorted data read backwards
    assert len(differing(np.zeros(40), np.ones(40))) == 40
    numbers = rng.normal(size=40)
    assert len(differing(numbers, rng.permutation(numbers))) > 30


def test_tables_without_targets_have_none_to_differ():
    ids = np.arange(5)
    assert join(Held(ids), Held(ids)).relabelled.tolist() == []
    assert join(Held(ids, ids), Held(ids)).relabelled is None
    table = pd.DataFrame({"id": ids, "target_0": 1.0, "target_1": 2.0, "target_of": 3.0, "loss": 0.5})
    held = held_by(table, losses=True)
    assert held.targets.tolist() == [[1.0, 2.0]] * 5 and held.losses.tolist() == [0.5] * 5 and held_by(table).losses is None


def test_losses_are_equal_reordered_related_or_unrelated():
    rng = np.random.default_rng(11)
    losses = rng.exponential(size=200)
    assert loss_agreement(losses.astype(np.float32), losses, floor=0).kind == "equal"
    assert loss_agreement(losses * 1.005, losses, floor=0).kind == "equal"
    swapped = losses.copy()
    swapped[[0, 1]] = losses[[1, 0]]
    found = loss_agreement(swapped, losses, floor=0)
    assert (found.kind, found.differing.tolist()) == ("reordered", [0, 1]) and found.correlation > 0.9
    assert loss_agreement(rng.permutation(losses), losses, floor=0).kind == "reordered"
    assert loss_agreement(rng.exponential(size=200), losses, floor=0).kind == "unrelated"
    noisy = loss_agreement(losses * rng.lognormal(0, 1, 200), losses, floor=0)
    assert noisy.kind == "related" and 0.3 < noisy.correlation < 0.99
    assert loss_agreement(3 * losses, losses, floor=0).kind == "related"
    assert loss_agreement(np.ones(200), losses, floor=0).correlation is None


def test_rounding_near_the_tolerance_is_never_called_another_order():
    """Sorted losses are never further apart than losses in order, so noise between the two tolerances must not look like an order."""
    for size in (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2):
        for seed in range(20):
            rng = np.random.default_rng(seed)
            losses = rng.lognormal(-3, 2, 400)
            found = loss_agreement(losses * (1 + size * rng.standard_normal(400)), losses, floor=FLOOR_NATS)
            assert found.kind in ("equal", "related"), (size, seed)


def test_losses_that_only_rounding_orders_prove_nothing():
    rng = np.random.default_rng(11)
    # A memorised network: float32 cross-entropies are rounding noise of about 1e-6 where the true ones are below 1e-8.
    true, noise = 10 ** rng.uniform(-12, -8, 100), rng.choice([0.0, 1.2e-7, 1e-6], 100)
    assert loss_agreement(noise, true, floor=0).kind == "unrelated"
    assert loss_agreement(noise, true, floor=FLOOR_NATS).kind == "equal"
    targets = rng.normal(size=(50, 2)) * 100
    assert loss_floor(targets, "regression") == pytest.approx(FLOOR_SQUARES * (targets**2).sum(1).mean(), rel=1e-12)
    assert loss_floor(targets, "binary") == loss_floor(None, "language-model") == FLOOR_NATS


def test_few_records_have_no_correlation_to_speak_of():
    for n, kind in ((FEWEST_RANKED - 1, "related"), (FEWEST_RANKED, "unrelated")):
        losses = np.linspace(1, 2, n)
        assert loss_agreement(losses[::-1] + 1, losses, floor=0).kind == kind


def test_the_limits_are_those_that_were_chosen():
    rng = np.random.default_rng(11)
    assert (MOST_RELABELLED, LEAST_CORRELATION, FEWEST_RANKED, FLOOR_NATS, FLOOR_SQUARES) == (0.01, 0.1, 30, 1e-5, 1e-12)
    losses = np.sort(rng.exponential(size=300))
    ranks = np.arange(300)
    kinds = set()
    for wanted in np.linspace(-0.1, 0.4, 20):  # mixtures of order and noise on both sides of the limit
        mixed = wanted * (ranks - 149.5) / ranks.std() + np.sqrt(1 - wanted**2) * np.random.default_rng(0).standard_normal(300)
        found = loss_agreement(np.exp(mixed), losses, floor=0)
        assert (found.correlation < LEAST_CORRELATION) == (found.kind == "unrelated")
        kinds.add(found.kind)
    assert kinds == {"related", "unrelated"}


# Reference models


def fit(x, y, kind, indices, seed):
    model = LogisticRegression(C=10.0, max_iter=2000) if kind == "labels" else Ridge(alpha=1e-2)
    return model.fit(x[indices], y[indices])


@pytest.fixture(scope="module", params=["labels", "numbers"])
def experiment(request, tmp_path_factory):
    y = {"labels": np.array(["ash", "birch", "cedar"])[LABELS], "numbers": REAL}[request.param]
    train, test = (X[:N], y[:N]), (X[N:], y[N:])
    model = fit(X, y, request.param, np.arange(N), 0)
    references = train_references(
        tmp_path_factory.mktemp("set") / "set",
        partial(fit, X, y, request.param),
        train,
        test,
        model=model,
        models=4,
        workers=1,
        progress=False,
    )
    return model, train, test, references


SCORED = {"options": AttackOptions(shokri=False), "progress": False}


def test_an_audit_of_the_same_records_is_scored(experiment):
    model, train, test, references = experiment
    scored = with_ground_truth(ns.audit(model, train, test, progress=False), references, **SCORED)
    assert not any("losses" in note for note in scored.ground_truth.notes)


def test_references_refuse_targets_that_contradict(experiment):
    model, (x, y), test, references = experiment
    audit = ns.audit(model, (x[ORDER], y[ORDER]), test, progress=False)  # row numbers for ids: the same names, other records
    wrong = int((y[ORDER] != y).sum())
    first = int(np.argmax(y[ORDER] != y))
    rule = "with_ground_truth: audit must have the targets of the reference set's target"
    match = f"{rule}; got another target for {wrong} of 60 records, the first '{first}'"
    with pytest.raises(InputError, match=match):
        with_ground_truth(audit, references, **SCORED)
    named = ns.audit(model, (x[ORDER], y[ORDER]), test, ids=ORDER, progress=False)
    np.testing.assert_array_equal(
        with_ground_truth(named, references, **SCORED).records["lira_d"],
        with_ground_truth(ns.audit(model, (x, y), test, progress=False), references, **SCORED).records["lira_d"].to_numpy()[ORDER],
    )


def test_references_refuse_losses_of_other_records(experiment):
    model, train, test, references = experiment
    audit = ns.audit(model, train, test, progress=False)
    same_targets = audit.records.assign(loss=audit.records["loss"].to_numpy()[ORDER])
    with pytest.raises(
        InputError, match=r"audit must have the losses of the reference set's target record by record; got its losses in another order"
    ):
        with_ground_truth(replace(audit, records=same_targets), references, **SCORED)
    noise = np.random.default_rng(5).exponential(size=N)
    with pytest.raises(
        InputError, match=r"got losses without relation to them: rank correlation -?0\.\d\d, and they differ for \d+ of 60 records"
    ):
        with_ground_truth(replace(audit, records=audit.records.assign(loss=noise)), references, **SCORED)
    nearly = audit.records["loss"] * np.random.default_rng(5).lognormal(0, 0.3, N)
    scored = with_ground_truth(replace(audit, records=audit.records.assign(loss=nearly)), references, **SCORED)
    assert any("the losses of audit are not those of the reference set's target for" in note for note in scored.ground_truth.notes)


def test_soft_and_one_hot_targets_are_the_labels_of_the_audit(tmp_path):
    soft = 0.9 * np.eye(3)[LABELS] + 0.1 / 3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
    x = X.astype(np.float32)
    train, test = (x[:N], soft[:N]), (x[N:], soft[N:])
    train_fn = partial(_random_outputs, 2 * N)
    options = {"model": model, "models": 4, "workers": 1, "task": "classification", "progress": False}
    references = train_references(tmp_path / "set", train_fn, train, test, **options)
    audit = ns.audit(model, train, test, task="classification", progress=False)
    assert with_ground_truth(audit, references, **SCORED).ground_truth.records == 2 * N


def _random_outputs(n, indices, seed):
    return np.random.default_rng(seed).normal(size=(n, 3))


# Leave-one-out distinguishability


def leak(**options):
    return ns.lood_audit(X[:N], LABELS[:N], depth=1, noise=0.2, progress=False, **options)


@pytest.fixture(scope="module")
def trained():
    model = LogisticRegression(max_iter=500).fit(X[:N], LABELS[:N])
    return model, ns.audit(model, (X[:N], LABELS[:N]), (X[N:], LABELS[N:]), progress=False)


def test_lood_refuses_an_audit_in_another_order(trained):
    model, audit = trained
    shuffled = ns.audit(model, (X[:N][ORDER], LABELS[:N][ORDER]), (X[N:], LABELS[N:]), progress=False)
    wrong = int((LABELS[:N][ORDER] != LABELS[:N]).sum())
    match = rf"audit must have the targets of the data under the same ids; got another target for {wrong} of 60 records"
    with pytest.raises(InputError, match=f"^lood_audit: {match}"):
        leak(audit=shuffled)
    with pytest.raises(InputError, match=f"^with_lood: {match}"):
        ns.with_lood(shuffled, leak())
    assert leak(audit=audit).joined["differing_targets"] == 0


def test_lood_takes_a_corrected_label_and_says_so(trained):
    _, audit = trained
    many = pd.concat([audit.records] * 2, ignore_index=True).assign(id=np.arange(2 * N))
    doubled = replace(audit, records=many)
    x, y = np.concatenate([X[:N]] * 2), np.concatenate([LABELS[:N]] * 2)
    y[7] = (y[7] + 1) % 3
    found = ns.lood_audit(x, y, depth=1, noise=0.2, audit=doubled, progress=False)
    assert found.joined["differing_targets"] == 1
    assert any("1 of the 120 matched records have another target in the audit" in note for note in found.notes)
    y[8] = (y[8] + 1) % 3  # 2 of 120 are more than one in a hundred
    with pytest.raises(InputError, match="another target for 2 of 120 records, the first '7'"):
        ns.lood_audit(x, y, depth=1, noise=0.2, audit=doubled, progress=False)


def test_lood_says_when_targets_cannot_be_compared(trained):
    _, audit = trained
    other = replace(audit, records=audit.records.drop(columns="target").assign(target_0=1.0, target_1=0.0))
    found = leak(audit=other)
    assert found.joined["differing_targets"] is None
    assert any("could not be compared" in note for note in found.notes)


# Two audits


def test_compare_names_the_first_of_the_other_records(trained):
    model, audit = trained
    shuffled = ns.audit(model, (X[:N][ORDER], LABELS[:N][ORDER]), (X[N:], LABELS[N:]), progress=False)
    first = int(np.argmax(LABELS[:N][ORDER] != LABELS[:N]))
    found = ns.compare(audit, shuffled)
    assert not found.same_records and f"(the first: '{first}')" in found.not_applicable["rank correlation"]


def test_compare_takes_targets_that_were_rounded():
    model = Ridge().fit(X[:N], REAL[:N])
    one, other = (
        ns.audit(model, (X[:N], y[:N]), (X[N:], y[N:]), progress=False) for y in (REAL, REAL.astype(np.float32).astype(np.float64))
    )
    assert ns.compare(one, other).same_records


# Loss traces


def network(*end):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3), *end)


@pytest.fixture(scope="module")
def training():
    """A network after 30 epochs, its data, and its losses before training and after each epoch."""
    x, y = torch.tensor(X[:N], dtype=torch.float32), torch.tensor(LABELS[:N])
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    traces = ns.LossTraces((x, y))
    traces.record(model)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for _ in range(30):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model.train()(x), y).backward()
            optimiser.step()
            traces.record(model)
    return model, (x, y), traces.array


def audited(training, traces, **options):
    model, data, _ = training
    return ns.audit(model, data, None, loss_traces=traces, progress=False, **options)


def test_traces_in_order_are_taken_without_a_word(training):
    found = audited(training, training[2])
    assert not any("loss_traces" in note for note in found.notes)
    course = training[2].mean(0)
    assert found.provenance["inputs"]["loss_traces"] == {
        "last_recording": "equal",
        "correlation": 1.0,
        "recordings": 31,
        "best_recording": None,
        "train_loss": {"median": float(np.median(course)), "last": float(course[-1])},
    }
    assert not any("loss_traces" in note for note in audited(training, training[2].astype(np.float32)).notes)


def test_traces_in_another_order_are_refused(training):
    model, (x, y), traces = training
    differ = np.abs(traces[ORDER, -1] - traces[:, -1]) > 0.01 * np.maximum(traces[ORDER, -1], traces[:, -1])
    match = (
        r"audit: the last recording of loss_traces must have the losses of the audited model record by record; got its losses in another "
        rf"order: they differ for {differ.sum()} of 60 records, the first '{differ.argmax()}'. Record the losses of train in its order"
    )
    with pytest.raises(InputError, match=match):
        audited(training, traces[ORDER])
    swapped = traces.copy()
    swapped[[4, 5]] = traces[[5, 4]]
    with pytest.raises(InputError, match="they differ for 2 of 60 records, the first '4'"):
        audited(training, swapped)
    with pytest.raises(InputError, match="audit_signals: the last recording of loss_traces"):
        signals = ns.collect_signals(model, (x, y))
        ns.audit_signals(signals, signals, loss_traces=traces[ORDER])


def test_ids_that_name_the_wrong_rows_are_refused_too(training):
    traces = ns.LossTraces(ids=np.arange(N))
    for column in training[2][ORDER].T:
        traces.append(column)
    with pytest.raises(InputError, match="its losses in another order"):
        audited(training, traces)
    named = ns.LossTraces(ids=ORDER)
    for column in training[2][ORDER].T:
        named.append(column)
    assert audited(training, named).records["lt_iqr"].equals(audited(training, training[2]).records["lt_iqr"])


def test_traces_of_another_model_are_refused(training):
    strangers = np.random.default_rng(0).exponential(size=(N, 5))
    with pytest.raises(
        InputError, match=r"got losses without relation to them: rank correlation -?0\.\d\d, and they differ for \d\d of 60 records"
    ):
        audited(training, strangers)


def test_traces_that_stop_early_or_saw_dropout_get_a_note_with_the_correlation(training):
    model, (x, y), traces = training
    early = audited(training, traces[:, :-5])
    (note,) = [note for note in early.notes if "loss_traces" in note]
    fact = early.provenance["inputs"]["loss_traces"]
    assert f"(rank correlation {fact['correlation']:.3f}): was it made in training mode" in note and fact["last_recording"] == "related"
    expected = pd.Series(traces[:, -6]).corr(pd.Series(traces[:, -1]), method="spearman")
    assert fact["correlation"] == pytest.approx(expected, abs=1e-12)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(2)
        dropped = nn.functional.cross_entropy(model.train()(x), y, reduction="none").numpy()
    noisy = audited(training, np.column_stack([traces[:, :-1], dropped]))
    assert any("rank correlation" in note for note in noisy.notes)
    assert audited(training, np.ones((N, 3))).provenance["inputs"]["loss_traces"]["correlation"] is None


def test_regressions_are_compared_too():
    model = Ridge().fit(X[:N], REAL[:N])
    losses = (REAL[:N] - model.predict(X[:N])) ** 2
    traces = np.column_stack([REAL[:N] ** 2, losses])
    data = (X[:N], REAL[:N]), (X[N:], REAL[N:])
    assert "lt_iqr" in ns.audit(model, *data, loss_traces=traces, progress=False).records
    with pytest.raises(InputError, match="its losses in another order"):
        ns.audit(model, *data, loss_traces=traces[ORDER], progress=False)
