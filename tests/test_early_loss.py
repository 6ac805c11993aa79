"""early_loss: the mean of a record's losses up to the best recording, and how an audit holds traced records against its own."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import noshadow as ns
from noshadow.scores.traces import early_loss

N, T, D = 50, 40, 5


def splits():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N + T, D)).astype(np.float32)
    y = np.where(rng.random(N + T) < 0.3, rng.integers(0, 3, N + T), x[:, :3].argmax(1))
    return (torch.tensor(x[:N]), torch.tensor(y[:N])), (torch.tensor(x[N:]), torch.tensor(y[N:]))


TRAIN, TEST = splits()


@pytest.fixture(scope="module")
def training():
    """A network past its best epoch, its recorder, and what torch itself says of both splits after every epoch."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(D, 32), nn.ReLU(), nn.Linear(32, 3))
        optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
        traces, by_hand = ns.LossTraces(TRAIN, test=TEST), []
        for epoch in range(16):
            if epoch:
                optimiser.zero_grad()
                F.cross_entropy(model(TRAIN[0]), TRAIN[1]).backward()
                optimiser.step()
            traces.record(model)
            with torch.no_grad():
                by_hand.append([F.cross_entropy(model(x).double(), y, reduction="none").numpy() for x, y in (TRAIN, TEST)])
    return model, traces, by_hand


def audited(model, traces, train=TRAIN, test=TEST, **options):
    return ns.audit(model, train, test, loss_traces=traces, progress=False, **options)


def evidence(audit):
    (found,) = (entry for entry in audit.evidence if entry.source == "traces")
    return found


def test_it_is_the_mean_of_the_losses_by_hand_up_to_the_lowest_mean_of_unseen_ones(training, tmp_path):
    model, traces, by_hand = training
    means = [unseen.mean() for _, unseen in by_hand]
    best = int(np.argmin(means))
    assert 0 < best < len(means) - 1
    expected = sum(seen for seen, _ in by_hand[: best + 1]) / (best + 1)
    traces.save(tmp_path / "traces.npz")
    for given in (traces, (traces.array, traces.test_array), tmp_path / "traces.npz"):
        found = audited(model, given)
        # float32 logits of one batch against batches of 256: a few units in the last place.
        np.testing.assert_allclose(found.records["early_loss"], expected, rtol=1e-5)
        assert "lt_iqr" in found.records and found.provenance["inputs"]["loss_traces"] == evidence(found).stamp
        assert not any("loss_traces" in note for note in found.notes)
    stamp = evidence(found).stamp
    assert (stamp["recordings"], stamp["best_recording"], stamp["last_recording"], stamp["last_test_recording"]) == (
        16,
        best,
        "equal",
        "equal",
    )
    for name, side in (("train_loss", 0), ("test_loss", 1)):
        course = np.array([losses[side].mean() for losses in by_hand])
        expected = {"best": course[best], "last": course[-1], "median": np.median(course)}
        assert stamp[name] == pytest.approx(expected, rel=1e-5)


def test_records_are_matched_by_id(training):
    model, traces, _ = training
    order = np.random.default_rng(0).permutation(N)
    named = ns.LossTraces(ids=order)
    for seen, unseen in zip(traces.array.T, traces.test_array.T, strict=True):
        named.append(seen[order], unseen)
    pairs = audited(model, named).records["early_loss"], audited(model, traces).records["early_loss"]
    np.testing.assert_array_equal(*pairs)


def test_without_unseen_losses_it_is_absent_with_what_to_do(training):
    model, traces, _ = training
    found = audited(model, traces.array)
    assert "early_loss" not in found.records and "lt_iqr" in found.records
    reason = found.not_applicable["early_loss"]
    assert reason.startswith("not available: ") and "LossTraces(…, test=…)" in reason
    assert evidence(found).absent == {"early_loss": reason}
    stamp = evidence(found).stamp
    assert stamp["best_recording"] is None and "test_loss" not in stamp and set(stamp["train_loss"]) == {"median", "last"}
    # Without traces nobody asked.
    assert "early_loss" not in audited(model, None).not_applicable


def test_a_folder_keeps_it(training, tmp_path):
    model, traces, _ = training
    found = audited(model, traces)
    found.save(tmp_path / "audit")
    loaded = ns.load(tmp_path / "audit")
    np.testing.assert_array_equal(loaded.records["early_loss"], found.records["early_loss"])
    assert evidence(loaded).stamp == evidence(found).stamp


def retraced(traces, unseen):
    """The same training with other unseen losses."""
    again = ns.LossTraces()
    for seen, losses in zip(traces.array.T, unseen.T, strict=True):
        again.append(seen, losses)
    return again


def test_unseen_records_of_another_number_or_order_are_taken_without_a_word(training):
    model, traces, _ = training
    for unseen, kind in (
        (traces.test_array[:-1], "other records"),
        (traces.test_array[::-1], "reordered"),
    ):
        found = audited(model, retraced(traces, unseen))
        assert evidence(found).stamp["last_test_recording"] == kind and not any("loss_traces" in note for note in found.notes)
    # No test records in the audit: nothing to hold them against.
    assert evidence(audited(model, traces, test=None)).stamp["last_test_recording"] == "other records"


def test_unseen_losses_that_are_not_the_models_get_a_note(training):
    model, traces, _ = training
    strangers = np.random.default_rng(1).exponential(size=traces.test_array.shape)
    early = np.column_stack([traces.test_array[:, :-1], traces.test_array[:, 9]])  # test was traced before the last steps
    for unseen, kind in ((strangers, {"unrelated", "related"}), (early, {"related"})):
        found = audited(model, retraced(traces, unseen))
        (note,) = [note for note in found.notes if "loss_traces" in note]
        assert evidence(found).stamp["last_test_recording"] in kind
        assert "the last recording of the unseen records of loss_traces is not the audited model's loss on test for" in note
        assert "rank correlation" in note and "other records of the same number are fine" in note


def test_training_records_in_the_place_of_unseen_ones_are_refused(training):
    model, traces, _ = training
    for order in (slice(None), np.random.default_rng(0).permutation(N)):
        with pytest.raises(
            ns.InputError,
            match=r"^audit: loss_traces must trace unseen records .*; got the training records twice\. .*test=…\) the records",
        ):
            audited(model, retraced(traces, traces.array[order]))
    constant = ns.LossTraces()  # an untrained model says the same of all records: no proof
    for _ in range(2):
        constant.append(np.full(N, 1.5), np.full(N, 1.5))
    assert "early_loss" in audited(model, constant).records


@pytest.mark.parametrize(
    ("best", "message"),
    [
        (3, "early_loss: best_epoch must be below the 3 recordings of loss_traces; got 3"),
        (-1, "early_loss: best_epoch must be a whole number ≥ 0; got -1"),
        (1.0, "best_epoch must be a whole number ≥ 0; got 1.0"),
    ],
)
def test_recordings_that_are_not_there_are_refused(best, message):
    with pytest.raises(ns.InputError, match=message):
        early_loss(np.ones((2, 3)), best)


def test_it_is_the_plain_mean():
    losses = np.random.default_rng(0).exponential(size=(7, 9)).astype(np.float32)
    for best in (0, 4, 8):
        # Sums of at most nine numbers in float64.
        np.testing.assert_allclose(early_loss(losses, best), [sum(map(float, row[: best + 1])) / (best + 1) for row in losses], rtol=1e-14)
