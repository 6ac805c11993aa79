"""What leaving a record out does to its loss and margin, against mpmath over the whole range of margins and steps."""

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import noshadow as ns
from noshadow.losses import record_losses, record_margins
from noshadow.scores.last_layer.loss_changes import logit_loss_changes, margin_falls, softmax_loss_changes

# Steps of 1e-300 beside margins of 800, whose losses are 1e-348: what is left of a difference must still have 80 digits.
DIGITS = 80 + 650
# float64 spends eps·800 on a logit of 800 itself; below this numbers are subnormal and have fewer digits.
TOLERANCE, SMALLEST = 1e-12, 1e-300
MARGINS = (-800.0, -300.0, -40.0, -20.5, -1.0, -1e-9, 0.0, 1e-9, 0.7, 20.5, 36.8, 50.0, 300.0, 709.9, 745.2, 800.0)
SIZES = (1e-300, 1e-100, 1e-20, 1e-9, 1e-3, 0.4, 0.6, 1.0, 5.0, 36.7, 100.0, 745.0, 800.0, 1600.0, 1e5, 1e20, 1e300, np.inf)


def softplus(value):
    return mpmath.inf if value == mpmath.inf else mpmath.log1p(mpmath.exp(value))


def close(found, truth, tolerance=TOLERANCE):
    if mpmath.isinf(truth):
        return found == float(truth)
    if abs(truth) < SMALLEST:
        return abs(found) < 2 * SMALLEST
    return abs(mpmath.mpf(found) - truth) <= tolerance * abs(truth)


def steps():
    return [sign * size for size in SIZES for sign in (-1.0, 1.0)]


@pytest.mark.parametrize("label", [0, 1])
def test_one_logit_over_the_whole_range(label):
    logits, moves = (part.ravel() for part in np.meshgrid(MARGINS, steps()))
    found = logit_loss_changes(*(torch.tensor(part) for part in (logits, np.full(len(logits), float(label)), moves)))
    sign = 1 - 2 * label
    with mpmath.workdps(DIGITS):
        for z, step, value in zip(logits, moves, found.tolist(), strict=True):
            truth = softplus(sign * (mpmath.mpf(z) + mpmath.mpf(step))) - softplus(sign * mpmath.mpf(z))
            assert close(value, truth), (z, step, value, float(truth))


def softmax_truth(logits, label, moves):
    """(loss change, fall of the margin), by the definitions."""
    before, move = [mpmath.mpf(v) for v in logits], [mpmath.mpf(v) for v in moves]
    after = [f + s for f, s in zip(before, move, strict=True)]

    def margin(values):
        return values[label] - mpmath.log(sum(mpmath.exp(v) for c, v in enumerate(values) if c != label))

    fall = margin(before) - margin(after)
    return softplus(-margin(after)) - softplus(-margin(before)), fall


@pytest.mark.parametrize("spread", [2.0, 300.0])
def test_softmax_over_the_whole_range(spread):
    # The other classes' moves against the label's have one sign here; both signs are in the next test.
    cases = [(margin, step) for margin in MARGINS[::2] for step in steps()[::3] if np.isfinite(step)]
    logits = np.array([[-spread - m, m * 0.5 - m, m * 0.5, -m] for m, _ in cases])
    labels = np.full(len(cases), 2)
    moves = np.array([[s, 0.3 * s, 0.0, s] for _, s in cases])
    arrays = (torch.tensor(logits), torch.tensor(labels), torch.tensor(moves))
    losses, falls = softmax_loss_changes(*arrays).tolist(), margin_falls(*arrays).tolist()
    with mpmath.workdps(DIGITS):
        for row, loss, fall in zip(range(len(cases)), losses, falls, strict=True):
            truth = softmax_truth(logits[row], 2, moves[row])
            assert close(loss, truth[0]), (cases[row], loss, float(truth[0]))
            assert close(fall, truth[1]), (cases[row], fall, float(truth[1]))


finite = st.floats(-800, 800, allow_subnormal=False)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(finite, finite), min_size=2, max_size=5), st.integers(0, 4), st.floats(-12, 0))
def test_any_logits_and_any_moves(pairs, label, exponent):
    label = label % len(pairs)
    logits = np.array([[f for f, _ in pairs]])
    moves = np.array([[s * 10.0**exponent for _, s in pairs]])
    arrays = (torch.tensor(logits), torch.tensor([label]), torch.tensor(moves))
    with mpmath.workdps(DIGITS):
        loss, fall = softmax_truth(logits[0], label, moves[0])
        # Moves of both signs may cancel: the error is then relative to the larger side.
        against = [mpmath.mpf(s) - mpmath.mpf(moves[0, label]) for s in moves[0]]
        weights = [mpmath.exp(mpmath.mpf(f) - mpmath.mpf(logits[0].max())) for f in logits[0]]
        others = [0 if c == label else w for c, w in enumerate(weights)]
        for found, truth, share in (
            (softmax_loss_changes(*arrays), loss, [w / sum(weights) for w in weights]),
            (margin_falls(*arrays), fall, [w / sum(others) for w in others]),
        ):
            terms = [abs(s * mpmath.expm1(u)) for s, u in zip(share, against, strict=True)]
            size = sum(terms) / mpmath.exp(truth)
            assert abs(mpmath.mpf(float(found)) - truth) <= TOLERANCE * max(abs(truth), size) + SMALLEST


def test_soft_targets_are_the_mean_of_their_labels():
    rng = np.random.default_rng(0)
    logits, moves = 30 * rng.normal(size=(40, 4)), 10.0 ** rng.uniform(-9, 2, (40, 1)) * rng.normal(size=(40, 4))
    soft = rng.dirichlet(np.ones(4), 40)
    found = softmax_loss_changes(*(torch.tensor(part) for part in (logits, soft, moves))).numpy()
    with mpmath.workdps(DIGITS):
        for i in range(40):
            parts = [mpmath.mpf(soft[i, c]) * softmax_truth(logits[i], c, moves[i])[0] for c in range(4)]
            # The labels' changes have both signs: relative to the larger side, as above.
            assert abs(found[i] - sum(parts)) <= TOLERANCE * max(map(abs, parts))


def test_losses_and_margins_keep_their_digits():
    """Losses beyond 20 nats had lost the last six digits, margins those of a shift shared by all logits."""
    margins = np.array(MARGINS)
    binary = record_losses(margins[:, None], np.ones(len(margins)), "binary")
    shared = np.column_stack([margins, np.zeros(len(margins))]) + 2.0**40
    exact = shared[:, 0] - shared[:, 1]
    labels = np.zeros(len(margins), dtype=np.int64)
    np.testing.assert_array_equal(record_margins(shared, labels, "classification"), exact)
    softmax = record_losses(shared, labels, "classification")
    with mpmath.workdps(DIGITS):
        for row, margin in enumerate(margins):
            assert close(binary[row], softplus(-mpmath.mpf(margin)), 1e-15)
            assert close(softmax[row], softplus(-mpmath.mpf(exact[row])), 1e-15)


def memorised_network():
    """A network wide enough to hold 60 random labels, trained until every probability rounds to one."""
    torch.manual_seed(0)
    x = torch.randn(60, 8, dtype=torch.float64)
    y = torch.randint(0, 3, (60,))
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3)).double()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        for parameter in model[2].parameters():
            parameter *= 6.0
    return model, x, y


@pytest.mark.parametrize("outputs", ["margin", "all"])
def test_a_memorised_network(outputs):
    model, x, y = memorised_network()
    scores = ns.network_scores(model, (x, y), outputs=outputs)
    with torch.no_grad():
        margins = record_margins(model(x).numpy(), y.numpy(), "classification")
    assert (1 / (1 + np.exp(-margins)) == 1.0).mean() > 0.5
    finite = np.isfinite(scores.shift)
    assert finite.sum() > 40
    assert (scores.shift[finite] > 100).any()
    with mpmath.workdps(DIGITS):
        for i in np.flatnonzero(finite):
            margin, shift = mpmath.mpf(margins[i]), mpmath.mpf(scores.shift[i])
            truth = softplus(shift - margin) - softplus(-margin)
            # The reported shift is rounded: its last digit moves the loss by eps·shift of itself.
            assert close(scores.loo[i], truth, 1e-11), (i, scores.loo[i], float(truth))


def test_heads_with_saturated_records_and_large_steps():
    """One logit and two softmax logits: the same records, the same finite change of loss, that of the reported shift."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(12, 30))
    labels = np.arange(12) % 2
    logits = np.where(labels == 1, 45.0, -45.0) + rng.normal(size=12)
    one = ns.record_scores(features, logits, labels, task="binary", damping=1e-20)
    two = ns.record_scores(features, np.column_stack([-logits / 2, logits / 2]), labels, damping=2e-20)
    with mpmath.workdps(DIGITS):
        for scores in (one, two):
            for i in range(12):
                margin = mpmath.mpf(abs(logits[i]))
                truth = softplus(mpmath.mpf(scores.shift[i]) - margin) - softplus(-margin)
                assert close(scores.loo[i], truth, 1e-11)
    assert one.shift.max() > 100
