"""Margins come from logits wherever there are logits: a network whose losses are rounding errors is predicted like any other."""

import functools

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch import nn

import noshadow as ns
from noshadow import model_risk, risk_predictors
from noshadow.checks import InputError
from noshadow.tail.prediction import shipped_calibration


@functools.cache
def fitted_network(outputs):
    """A two-class network trained until a fifth of its members' losses are below float64's rounding of 1, and its two splits."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = torch.randn(1200, 20)
        y = (x[:, 0] + x[:, 1] + 0.7 * torch.randn(1200) > 0).long()
        model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, outputs))
        optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(600):
            optimiser.zero_grad()
            found = model(x[:600])
            if outputs == 2:
                nn.functional.cross_entropy(found, y[:600]).backward()
            else:
                nn.functional.binary_cross_entropy_with_logits(found[:, 0], y[:600].float()).backward()
            optimiser.step()
    return model, x, y


def margins_by_hand(model, x, y):
    """f_y − log Σ_{c≠y} e^{f_c}, (2y − 1)z for one logit, in NumPy."""
    logits, labels = model(x).detach().double().numpy(), y.numpy()
    if logits.shape[1] == 1:
        return (2 * labels - 1) * logits[:, 0]
    others = np.where(np.eye(logits.shape[1], dtype=bool)[labels], -np.inf, logits)
    return logits[np.arange(len(labels)), labels] - logsumexp(others, axis=1)


def rate_by_hand(inside, outside, fpr):
    """The shipped curve at its own rates, along log fpr: slope · (Q₁₀(φ_in) − Q₁₀(φ_out)) / ½(Q₈₄ − Q₁₆)(φ_in)."""
    low, high = np.quantile(inside, (0.16, 0.84))
    shift = (np.quantile(inside, 0.1) - np.quantile(outside, 0.1)) / ((high - low) / 2)
    slopes = {cell.fpr: cell.coefficients[0] for cell in shipped_calibration().cells if cell.references == 64}
    return np.interp(np.log(fpr), np.log(sorted(slopes)), [slopes[rate] * shift for rate in sorted(slopes)])


@pytest.mark.parametrize("outputs", [2, 1])
def test_a_network_fitted_until_nothing_of_the_loss_is_left_is_predicted_from_its_logits(outputs):
    model, x, y = fitted_network(outputs)
    audit = ns.audit(model, (x[:600], y[:600]), (x[600:], y[600:]), progress=False)
    assert (audit.member_losses < 2e-16).mean() > 0.1  # as many kept the losses from being read
    inside, outside = margins_by_hand(model, x[:600], y[:600]), margins_by_hand(model, x[600:], y[600:])
    assert inside.max() > 45
    risk = audit.model_risk
    # Both are quantiles of the same float64 margins; batches of another size move float32 logits by 1e-6 of their size.
    assert risk.predicted_tpr == pytest.approx(rate_by_hand(inside, outside, risk.fpr), rel=1e-4)
    assert risk.in_calibration_domain and "this model is like them" in risk.reason
    assert "predicted_tpr" in audit.records


def test_the_prediction_does_not_depend_on_the_temperature_of_saturated_logits():
    """The predictor is a ratio of differences of margins: logits times 20 have the same, though their losses are all 0."""
    rng = np.random.default_rng(1)
    x, head, y = rng.normal(size=(1600, 10)), rng.normal(size=10), rng.integers(0, 2, 1600)
    logits = 3 * x @ head + np.where(np.arange(1600) < 800, 4, 1) * (2 * y - 1)
    logits[800:] += rng.normal(size=800)
    features = np.column_stack([x, logits])  # a feature of its own makes the head linear
    found = []
    for times in (1.0, 20.0):
        train, test = (ns.Signals(features[part], times * logits[part], y[part]) for part in (slice(0, 800), slice(800, None)))
        found.append(ns.audit_signals(train, test, task="binary", damping=1.0, progress=False).model_risk)
    assert found[1].predicted_tpr is not None and found[1].predicted_tpr == pytest.approx(found[0].predicted_tpr, rel=1e-10)
    # τ and both tails lie on the same records.
    assert found[1].tnr == found[0].tnr and found[1].extrapolated.tnr == pytest.approx(found[0].extrapolated.tnr, rel=1e-6)


def margins_and_losses(seed=0):
    rng = np.random.default_rng(seed)
    margins = rng.normal(6, 2, 1500), rng.normal(3, 3, 1400)
    return margins, tuple(np.logaddexp(0, -phi) for phi in margins)


def test_margins_beside_losses_that_are_not_saturated_change_nothing():
    margins, losses = margins_and_losses()
    bare = model_risk(*losses, resamples=100)
    given = model_risk(*losses, member_margins=margins[0], nonmember_margins=margins[1], resamples=100)
    assert bare.predicted_tpr is not None and bare.extrapolated is not None
    read_from_margins = ("predicted_tpr", "predicted_tpr_interval", "extrapolated")
    one, other = ({name: value for name, value in risk.to_dict().items() if name not in read_from_margins} for risk in (bare, given))
    assert one == other
    assert given.predicted_tpr == pytest.approx(bare.predicted_tpr, rel=1e-12)
    assert given.predicted_tpr_interval == pytest.approx(bare.predicted_tpr_interval, rel=1e-12)
    for column in ("levels", "tnr", "low", "high"):
        # Tails are fitted to −φ; a margin taken back from its loss is off by 1e-15 of it, and the fit raises powers of ratios.
        assert getattr(given.extrapolated, column) == pytest.approx(getattr(bare.extrapolated, column), rel=1e-9)
    shown = risk_predictors(*losses, member_margins=margins[0], nonmember_margins=margins[1])
    assert shown == pytest.approx(risk_predictors(*losses), rel=1e-12)


def test_clipped_margins_are_not_trusted_though_they_are_given():
    margins, _ = margins_and_losses()
    clipped = [np.minimum(phi, 7.0) for phi in margins]
    losses = [np.logaddexp(0, -phi) for phi in clipped]
    risk = model_risk(*losses, member_margins=clipped[0], nonmember_margins=clipped[1], resamples=100)
    assert risk.predicted_tpr is None and "30 % of the members' margins are tied" in risk.reason and "clipped or rounded" in risk.reason


def test_without_margins_saturated_losses_are_not_trusted_and_the_way_out_is_named():
    phi = np.linspace(30, 60, 1000)
    risk = model_risk(np.exp(-phi), np.exp(-phi / 10), resamples=100)
    assert risk.predicted_tpr is None and "member_margins" in risk.reason


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"nonmember_margins": None}, "nonmember_margins must be given together with its counterpart; got None. Pass both, or neither"),
        ({"member_margins": np.zeros(3)}, "member_losses and member_margins must have one row per record; got lengths"),
        ({"member_margins": np.full(1500, np.nan)}, "member_margins must be finite"),
        (
            {"member_margins": np.zeros(1500)},
            r"member_margins must be the margins φ of the losses, .* in their order; got 1500 that are not",
        ),
    ],
)
def test_margins_of_other_records_are_refused(change, match):
    margins, losses = margins_and_losses()
    given = {"member_margins": margins[0], "nonmember_margins": margins[1]} | change
    for function in (model_risk, risk_predictors):
        with pytest.raises(InputError, match=match) as caught:
            function(*losses, **given)
        assert str(caught.value).startswith(f"{function.__name__}: ")
    with pytest.raises(InputError, match="in their order"):
        model_risk(*losses, member_margins=margins[0][::-1], nonmember_margins=margins[1])
