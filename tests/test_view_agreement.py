"""What follows a head: every record's output is the model's own, wherever the head was recognised."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import noshadow as ns
from noshadow import InputError
from noshadow.losses import record_losses, task_targets
from noshadow.reference import train_references
from noshadow.scores.network.generalized_leverage import generalized_leverage
from noshadow.views import collect_outputs, collect_signals, view
from noshadow.views.endings import row_differences
from noshadow.views.torch import PROBE_RECORDS

D, M, TRAIN, TEST = 4, 3, 40, 20
DECAY = 1e-2


class Followed(nn.Module):
    """A network with something behind its head."""

    def __init__(self, end, outputs=M, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.net, self.end = nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, outputs)).to(dtype), end
        with torch.no_grad():
            self.net[2].weight *= 4

    def forward(self, x):
        return self.end(self.net(x))


def records(outputs=M, *, by=lambda z: z.amin(1), dtype=torch.float32):
    """Inputs of which the first have the largest `by` of their logits, targets, and the value between records 12 and 13."""
    x = torch.randn(TRAIN + TEST, D, generator=torch.Generator().manual_seed(5)).to(dtype)
    with torch.no_grad():
        values = by(Followed(lambda z: z, outputs, dtype)(x))
    order = values.argsort(descending=True)
    bound = float(values[order[12:14]].mean())
    y = torch.randint(0, M if outputs > 1 else 2, (TRAIN + TEST,), generator=torch.Generator().manual_seed(6))
    return x[order], y, bound


def losses(model, x, y, kind):
    """The model's own loss on each record, from what it returns, in float64."""
    with torch.no_grad():
        out = model(x).double()
    if kind == "logits":
        return functional.cross_entropy(out, y, reduction="none").numpy()
    if kind == "log-probabilities":
        return functional.cross_entropy(out, y, reduction="none").numpy()
    if kind == "probabilities":
        return -out[torch.arange(len(y)), y].log().numpy()
    if kind == "one probability":
        return functional.binary_cross_entropy(out.reshape(-1), y.double(), reduction="none").numpy()
    return ((out.reshape(-1) - y.double()) ** 2).numpy()


def temperature(z, bound):
    return torch.where(z.amin(1, keepdim=True) < bound, z / 2, z)


def abstention(z, bound):
    return torch.where(z.amin(1, keepdim=True) < bound, torch.zeros_like(z), z)


FOLLOWED = {
    "clamp": (lambda z, b: z.clamp(min=b), M, "logits"),
    "relu": (lambda z, _: functional.relu(z), M, "logits"),
    "in place": (lambda z, b: z.clamp_(min=b), M, "logits"),
    "temperature": (temperature, M, "logits"),
    "abstention": (abstention, M, "logits"),
    "log_softmax of a clamp": (lambda z, b: z.clamp(min=b).log_softmax(1), M, "log-probabilities"),
    "softmax of a clamp": (lambda z, b: z.clamp(min=b).softmax(1), M, "probabilities"),
    "sigmoid of a clamp": (lambda z, b: z.clamp(min=b).sigmoid(), 1, "one probability"),
    "regression": (lambda z, b: z.clamp(min=b).squeeze(1), 1, "predictions"),
}


def followed(name):
    end, outputs, kind = FOLLOWED[name]
    x, y, bound = records(outputs)
    model = Followed(lambda z: end(z, bound), outputs)
    if name == "relu":
        with torch.no_grad():
            model.net[2].bias -= bound
    if kind == "predictions":
        y = y.float() + 0.25 * x[:, 0]
    return model, x, y, kind


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_audited_losses_are_the_model_s_own_and_its_head_is_not_scored(name):
    model, x, y, kind = followed(name)
    audit = ns.audit(model, (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:]), weight_decay=DECAY, progress=False, batch_size=7)
    # float32 outputs, and probabilities whose logarithm has lost a digit or two.
    np.testing.assert_allclose(audit.member_losses, losses(model, x[:TRAIN], y[:TRAIN], kind), rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(audit.nonmember_losses, losses(model, x[TRAIN:], y[TRAIN:], kind), rtol=2e-5, atol=1e-6)
    assert audit.model_risk is not None and audit.ranked_by == "loss" and "shift" not in audit.records
    reason = audit.not_applicable["shift"]
    assert "differ from" in reason and "for 47 of 60 records by up to" in reason and "the first in row 13 of train" in reason
    (finding,) = (f for f in audit.findings if f.code == "NS043")
    assert (finding.status, finding.figure, finding.records[:2]) == ("found", 47, ("13", "14"))


@pytest.mark.parametrize("name", ["clamp", "abstention", "softmax of a clamp", "regression"])
def test_outputs_and_traces_are_the_model_s_own(name, tmp_path):
    model, x, y, kind = followed(name)
    expected = losses(model, x, y, kind)
    signals, settled = collect_outputs(model, (x, y), batch_size=9)
    task = {"auto": "regression" if kind == "predictions" else "classification"}.get(settled, settled)
    found = record_losses(signals.outputs, task_targets(signals.outputs, signals.targets, task), task)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    traces = ns.LossTraces((x, y), batch_size=9)
    traces.record(model)
    traces.record(model)
    np.testing.assert_allclose(traces.array, np.stack([expected, expected], 1), rtol=2e-5, atol=1e-6)
    if name == "abstention":
        stored = train_references(
            tmp_path / "r", lambda indices, seed: model, (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:]), models=4, workers=1, progress=False
        )
        np.testing.assert_allclose(stored.loss[2], expected, rtol=2e-5, atol=1e-6)


def test_signals_of_a_head_that_is_changed_are_refused_unless_it_is_named():
    model, x, y, _ = followed("clamp")
    with pytest.raises(
        InputError, match=r"collect_signals: model must return .*for 47 of 60 records .*row 13 of data\. Pass layer='net\.2'"
    ):
        collect_signals(model, (x, y))
    signals = collect_signals(model, (x, y), layer="net.2")
    np.testing.assert_array_equal(signals.outputs, model.net(x).detach().numpy())


def test_a_named_layer_is_audited_as_asked_and_said_to_be_changed():
    model, x, y, _ = followed("clamp")
    plain = ns.audit(model.net, (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:]), weight_decay=DECAY, progress=False)
    named = ns.audit(model, (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:]), weight_decay=DECAY, progress=False, layer="net.2")
    assert named.records["shift"].tolist() == plain.records["shift"].tolist()
    (finding,) = (f for f in named.findings if f.code == "NS043")
    assert finding.status == "found" and "as asked for: layer='net.2'" in finding.sentence
    assert next(f for f in plain.findings if f.code == "NS043").status == "passed"


@pytest.mark.parametrize("name", ["clamp", "regression"])
def test_many_layers_are_scored_through_what_follows_the_head(name):
    """With the records the other way round the head is not recognised at all, and the model's own output is differentiated."""
    end, outputs, _ = FOLLOWED[name]
    x, y, bound = records(outputs, dtype=torch.float64)
    model = Followed(lambda z: end(z, bound), outputs, torch.float64)
    y = y.double() + 0.25 * x[:, 0] if name == "regression" else y
    scores = ns.network_scores(model, (x, y), weight_decay=DECAY, batch_size=16)
    backwards = ns.network_scores(model, (x.flip(0), y.flip(0)), weight_decay=DECAY, batch_size=16)
    # The same float64 problem with its rows in another order.
    np.testing.assert_allclose(scores.shift, backwards.shift[::-1], rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(scores.loss, losses(model, x, y, "predictions" if name == "regression" else "logits"), rtol=1e-10)
    assert any("The model's own output is scored: the model's outputs differ from Linear 'net.2'" in note for note in scores.notes)
    audit = ns.audit(model, (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:]), weight_decay=DECAY, layers="all", progress=False)
    assert audit.ranked_by == "shift" and next(f for f in audit.findings if f.code == "NS043").status == "found"


def test_points_beyond_the_training_records_are_compared_too():
    x, y, bound = records(dtype=torch.float64)
    model = Followed(lambda z: z.clamp(min=bound), M, torch.float64)
    arguments = {"damping": 0.1, "layers": "last"}
    assert generalized_leverage(model, (x[:13], y[:13]), (x[:2], y[:2]), **arguments).converged.all()
    with pytest.raises(InputError, match="points must get the output of the model's head"):
        generalized_leverage(model, (x[:13], y[:13]), (x[20:], y[20:]), **arguments)


def test_a_difference_on_test_records_alone_is_told():
    model, x, y, _ = followed("clamp")
    seen = view(model, (x[:13], y[:13]), (x[13:], y[13:]))
    assert "the first in row 0 of test" in seen.not_applicable
    assert seen.inputs["head_outputs"]["train_rows"] == [] and seen.inputs["head_outputs"]["differing"] == 47


def test_a_head_that_does_not_run_for_a_batch_leaves_outputs():
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(D, M)

        def forward(self, x):
            return torch.zeros(len(x), M) if (x > 90).any() else self.head(x)

    x, y, _ = records()
    x = torch.cat([x[:30], x[30:] + 100])
    seen = view(Skips(), (x, y), None, batch_size=10)
    assert seen.train.features is None and "for 30 of 60 records, the first in row 30 of train" in seen.not_applicable
    np.testing.assert_array_equal(seen.train.outputs[30:], 0)
    assert ns.audit(Skips(), (x, y), (x, y), batch_size=10, progress=False).model_risk is not None


def test_probabilities_without_logits_are_refused():
    x, y, bound = records()
    model = Followed(lambda z: torch.where(z.amin(1, keepdim=True) < bound, 0.0, z.softmax(1)))
    with pytest.raises(
        InputError, match=r"audit: model must give probabilities above 0 that sum to one; got a row \[0.0, 0.0, 0.0\] behind its"
    ):
        ns.audit(model, (x, y), None, progress=False)


def test_a_floor_under_probabilities_counts_and_underflow_does_not():
    z = torch.tensor([[0.0, 1.0, 2.0], [0.0, 30.0, 0.0], [0.0, 200.0, 0.0]])
    p = z.softmax(1)
    assert row_differences("softmax", z, p).tolist() == [0, 0, 0]
    # Absolute differences of 1e-7: a loss of 16 instead of 30 nats.
    assert row_differences("softmax", z, p.clamp(1e-7)).gt(0).tolist() == [False, True, True]
    # exp(−200) is 0 in float32, and its logarithm −∞.
    assert row_differences("log_softmax", z, p.log()).tolist() == [0, 0, 0]
    assert row_differences("", z, z * (1 + 1e-7)).tolist() == [0, 0, 0]
    assert row_differences("", z * 1e-9, torch.zeros_like(z)).gt(0).all()
    nothing = torch.full((2, 3), torch.nan)
    assert row_differences("", nothing, nothing.clone()).tolist() == [0, 0]


def test_a_last_batch_of_one_record_may_lose_its_row():
    x, y, _ = records(1)
    model = Followed(lambda z: z.squeeze(), outputs=1)
    seen = view(model, (x[:31], y[:31]), None, batch_size=10)
    assert seen.not_applicable is None and seen.train.outputs.shape == (31, 1)


def test_the_probe_is_smaller_than_what_is_quiet_here():
    assert PROBE_RECORDS < 13
