"""Scores over many layers against dense oracles: explicit Jacobians, dense solves, refits of linear models, the last layer's own."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import noshadow as ns
from noshadow.scores.network.gradients import record_differentiation
from noshadow.views.network import network_view

COLUMNS = ("influence", "newton", "loo", "shift")


def data(n=40, d=5, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((n, d)))
    return x, torch.from_numpy(rng.integers(0, classes, n)), torch.from_numpy(rng.standard_normal((n, 2)))


def perceptron(d=5, outputs=3, width=6, seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(d, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs)).double()


def dense_jacobian(model, x, names=None):
    """(n, m, p) by reverse-mode autograd, one output at a time, over the named parameters."""
    chosen = [p for name, p in model.named_parameters() if names is None or name in names]
    model.eval()
    rows = []
    for i in range(len(x)):
        output = model(x[i : i + 1])[0]
        grads = [torch.autograd.grad(value, chosen, retain_graph=True, allow_unused=True) for value in output]
        rows.append(
            torch.stack(
                [
                    torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(row, chosen, strict=True)])
                    for row in grads
                ]
            )
        )
    return torch.stack(rows)


def primal_oracle(jacobian, outputs, targets, damping, task, weight=None):
    """Every column from the dense p × p curvature, with H_ii and W_i written out."""
    n, m, p = jacobian.shape
    s = torch.ones(n, dtype=torch.float64) if weight is None else weight
    if task == "regression":
        curvatures = torch.eye(m, dtype=torch.float64).expand(n, m, m) * s[:, None, None]
    else:
        prob = torch.softmax(outputs, 1)
        curvatures = (torch.diag_embed(prob) - prob[:, :, None] * prob[:, None, :]) * s[:, None, None]
    total = damping * torch.eye(p, dtype=torch.float64) + torch.einsum("nap,nab,nbq->pq", jacobian, curvatures, jacobian)
    h = jacobian @ torch.linalg.solve(total, jacobian.mT)
    eye = torch.eye(m, dtype=torch.float64)
    found = {name: [] for name in ("leverage", *COLUMNS)}
    for i in range(n):
        lift = torch.linalg.inv(eye - curvatures[i] @ h[i])
        if task == "regression":
            e = targets[i] - outputs[i]
            step = -s[i] * h[i] @ lift @ e
            found["leverage"].append(torch.trace(curvatures[i] @ h[i]) / m)
            found["influence"].append(2 * s[i] ** 2 * e @ h[i] @ e)
            found["newton"].append(-2 * s[i] * e @ step)
            found["loo"].append(s[i] * ((e - step) @ (e - step) - e @ e))
            found["shift"].append(step.norm())
        else:
            g = s[i] * (torch.softmax(outputs[i], 0) - nn.functional.one_hot(targets[i], m))
            step = h[i] @ lift @ g
            ce = nn.functional.cross_entropy
            found["leverage"].append(torch.trace(curvatures[i] @ h[i]))
            found["influence"].append(g @ h[i] @ g)
            found["newton"].append(g @ step)
            found["loo"].append(s[i] * (ce((outputs[i] + step)[None], targets[i : i + 1]) - ce(outputs[i : i + 1], targets[i : i + 1])))
            found["shift"].append(_phi(outputs[i], targets[i]) - _phi(outputs[i] + step, targets[i]))
    return {name: torch.stack(values).detach().numpy() for name, values in found.items()}


def _phi(logits, label):
    others = torch.cat([logits[:label], logits[label + 1 :]])
    return logits[label] - torch.logsumexp(others, 0)


def margin_oracle(jacobian, outputs, targets, damping, weight=None):
    """The one-output problem of φ, dense and primal."""
    n = len(targets)
    logits = outputs.clone().requires_grad_()
    phi = torch.stack([_phi(logits[i], targets[i]) for i in range(n)])
    slopes = torch.autograd.grad(phi.sum(), logits)[0]
    rows = torch.einsum("nm,nmp->np", slopes, jacobian)
    phi = phi.detach()
    s = torch.ones(n, dtype=torch.float64) if weight is None else weight
    p = torch.sigmoid(phi)
    w = s * p * (1 - p)
    total = damping * torch.eye(rows.shape[1], dtype=torch.float64) + rows.T @ (w[:, None] * rows)
    q = (rows * torch.linalg.solve(total, rows.T).T).sum(1)
    h = w * q
    shift = s * (1 - p) * q / (1 - h)
    soft = nn.functional.softplus
    found = {
        "margin_leverage": h,
        "influence": s**2 * (1 - p) ** 2 * q,
        "newton": s**2 * (1 - p) ** 2 * q / (1 - h),
        "loo": s * (soft(-(phi - shift)) - soft(-phi)),
        "shift": shift,
        "gradient_norm": s * (1 - p) * rows.norm(dim=1),
    }
    return {name: value.detach().numpy() for name, value in found.items()}


def assert_columns(scores, expected, rtol=1e-8):
    # float64 throughout; the dense oracle loses the condition of its p × p solve, about 1e4 here.
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(scores, name), values, rtol=rtol, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("weighted", [False, True])
def test_margin_problem_equals_the_dense_primal(weighted):
    x, y, _ = data()
    model = perceptron()
    weight = torch.from_numpy(np.random.default_rng(3).uniform(0.2, 2, len(x))) if weighted else None
    scores = ns.network_scores(model, (x, y), damping=0.3, sample_weight=weight, batch_size=7)
    expected = margin_oracle(dense_jacobian(model, x), model(x).detach(), y, 0.3, weight)
    assert_columns(scores, expected)
    assert scores.method == "dual"
    assert scores.parameters == sum(p.numel() for p in model.parameters())
    assert scores.effective_dof == pytest.approx(expected["margin_leverage"].sum())
    assert "outputs='all'" in scores.not_applicable["leverage"]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_all_outputs_equal_the_dense_primal(task, weighted):
    x, y, z = data()
    model, targets = (perceptron(), y) if task == "classification" else (perceptron(outputs=2), z)
    weight = torch.from_numpy(np.random.default_rng(3).uniform(0.2, 2, len(x))) if weighted else None
    scores = ns.network_scores(model, (x, targets), task=task, damping=0.3, outputs="all", sample_weight=weight, batch_size=9)
    assert_columns(scores, primal_oracle(dense_jacobian(model, x), model(x).detach(), targets, 0.3, task, weight))


@pytest.mark.parametrize("layers", ["last", 1, 2, 3, "all"])
def test_layers_count_from_the_output(layers):
    x, y, _ = data()
    model = perceptron()
    k = {"last": 1, "all": 3}.get(layers, layers)
    names = [f"{i}.{kind}" for i in (0, 2, 4)[3 - k :] for kind in ("weight", "bias")]
    scores = ns.network_scores(model, (x, y), damping=0.3, layers=layers)
    assert scores.layers == tuple(str(i) for i in (0, 2, 4)[3 - k :])
    assert_columns(scores, margin_oracle(dense_jacobian(model, x, names), model(x).detach(), y, 0.3))


def test_the_last_layer_is_the_exact_last_layer():
    x, y, z = data()
    for targets, task, outputs in ((y, "classification", 3), (z, "regression", 2), (y % 2, "binary", 1)):
        model = perceptron(outputs=outputs)
        signals = ns.collect_signals(model, (x, targets))
        exact = ns.record_scores(signals.features, signals.outputs, signals.targets, task=task, damping=0.4)
        every = ns.network_scores(model, (x, targets), task=task, damping=0.4, layers="last", outputs="auto" if task == "binary" else "all")
        for name in ("loss", "gradient_norm", "entropy", "leverage", *COLUMNS):
            if getattr(exact, name) is not None:
                np.testing.assert_allclose(getattr(every, name), getattr(exact, name), rtol=1e-7, atol=1e-12, err_msg=f"{task} {name}")
        # From arrays the weights of a softmax are known up to a shift of all classes, whose penalty the left-over gradient then lacks.
        assert every.stationarity == pytest.approx(exact.stationarity, rel=1e-2 if task == "classification" else 1e-6)
        if task == "classification":
            margin = ns.network_scores(model, (x, targets), damping=0.4, layers="last")
            np.testing.assert_allclose(margin.margin_leverage, exact.margin_leverage, rtol=1e-8)


def test_a_linear_regression_gets_its_exact_refit_gaps():
    rng = np.random.default_rng(0)
    x, y, damping = rng.standard_normal((30, 4)), rng.standard_normal(30), 0.7
    design = np.c_[x, np.ones(30)]
    theta = np.linalg.solve(design.T @ design + damping * np.eye(5), design.T @ y)
    model = nn.Linear(4, 1).double()
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(theta[:4])[None])
        model.bias.fill_(theta[4])
    scores = ns.network_scores(model, (x, y), damping=damping)
    assert scores.stationarity < 1e-9
    for i in range(30):
        rest = np.delete(np.arange(30), i)
        refit = np.linalg.solve(design[rest].T @ design[rest] + damping * np.eye(5), design[rest].T @ y[rest])
        gap = (y[i] - design[i] @ refit) ** 2 - (y[i] - design[i] @ theta) ** 2
        assert scores.loo[i] == pytest.approx(gap, rel=1e-9)


def test_margin_and_all_outputs_agree_for_two_classes_only():
    x, y, _ = data(classes=2)
    model = perceptron(outputs=2)
    margin = ns.network_scores(model, (x, y), damping=0.3)
    every = ns.network_scores(model, (x, y), damping=0.3, outputs="all")
    for name in COLUMNS:
        np.testing.assert_allclose(getattr(margin, name), getattr(every, name), rtol=1e-8, err_msg=name)
    np.testing.assert_allclose(margin.margin_leverage, every.leverage, rtol=1e-8)
    x, y, _ = data(classes=3)
    model = perceptron(outputs=3)
    apart = ns.network_scores(model, (x, y), damping=0.3).shift - ns.network_scores(model, (x, y), damping=0.3, outputs="all").shift
    assert np.abs(apart).max() > 1e-4


class Tied(nn.Module):
    """A weight used as a module and again as a plain matrix: its gradient is not an outer product."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.first(x)) @ self.first.weight)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.place = nn.Parameter(torch.randn(4, 8))
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens) + self.place).mean(1))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.block = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.group = nn.GroupNorm(2, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        return self.head(nn.functional.relu(self.group(self.block(x)) + x, inplace=True).mean((2, 3)))


def sequence():
    return nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 3))


MODULES = {
    "tied": (Tied, lambda rng: rng.standard_normal((12, 5))),
    "attention": (Attention, lambda rng: rng.integers(0, 11, (12, 4))),
    "residual": (Residual, lambda rng: rng.standard_normal((12, 1, 6, 6))),
    "conv1d": (sequence, lambda rng: rng.standard_normal((12, 2, 6))),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("unvectorised", ["refuse", "loop"])
def test_modules_of_all_kinds_against_autograd(name, unvectorised):
    build, draw = MODULES[name]
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    model = build().double()
    x, y = torch.from_numpy(draw(rng)), torch.from_numpy(rng.integers(0, 3, 12))
    if name == "residual":  # statistics that are not those of any batch
        model.norm.running_mean.normal_()
        model.norm.running_var.uniform_(0.5, 2)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    scores = ns.network_scores(model.train(), (x, y), damping=0.3, unvectorised=unvectorised, batch_size=5)
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert_columns(scores, margin_oracle(dense_jacobian(model, x), model.eval()(x).detach(), y, 0.3))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("tied", {"head"}), ("attention", {"embed", "encoder.linear1", "encoder.linear2", "head"}), ("residual", {"head"}), ("conv1d", {"4"})],
)
def test_only_plain_layers_are_taken_in_factors(name, expected):
    build, draw = MODULES[name]
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(draw(rng)), torch.from_numpy(rng.integers(0, 3, 12))
    with network_view(build(), (x, y), layers="all") as (network, records):
        probe = next(iter(records.batches(12)))
        with record_differentiation(network, probe) as (_, plain):
            assert {layer.name for layer in plain} == expected


def test_small_memory_walks_the_records_several_times_and_changes_nothing(monkeypatch):
    monkeypatch.setattr("noshadow.scores.network.tangent_kernel.LEAST_NUMBERS", 1)
    x, y = torch.from_numpy(np.random.default_rng(0).standard_normal((12, 1, 6, 6))), torch.arange(12) % 3
    torch.manual_seed(0)
    model = Residual().double()
    one = ns.network_scores(model, (x, y), damping=0.3)
    assert_columns(one, margin_oracle(dense_jacobian(model, x), model.eval()(x).detach(), y, 0.3))


@pytest.mark.parametrize("exponent", [4, 8, 12, 16])
def test_self_influence_keeps_its_digits_as_the_weight_vanishes(exponent):
    # One record gets w = 10^−exponent through a large bias towards its own label; q must match the w → 0 limit computed densely.
    rng = np.random.default_rng(0)
    x = np.r_[rng.standard_normal((14, 3)), [[40.0, 0.0, 0.0]]]
    y = np.r_[rng.integers(0, 2, 14), 1]
    size = np.log(10.0) * exponent / 40.0
    model = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[size, 0.3, -0.2]]))
    scores = ns.network_scores(model, (x, y), task="binary", damping=0.5)
    z = torch.from_numpy(x) @ model.weight.detach()[0]
    w = torch.sigmoid(z) * torch.sigmoid(-z)
    assert float(w[-1]) == pytest.approx(10.0**-exponent, rel=2e-2 if exponent < 5 else 1e-4)
    rows = torch.from_numpy(x)
    total = 0.5 * torch.eye(3, dtype=torch.float64) + rows.T @ (w[:, None] * rows)
    q = rows[-1] @ torch.linalg.solve(total, rows[-1])
    error = torch.sigmoid(-z[-1])
    assert scores.influence[-1] == pytest.approx(float(error**2 * q), rel=1e-8)
    assert scores.margin_leverage[-1] == pytest.approx(float(w[-1] * q), rel=1e-8)


def test_damping_comes_from_the_weight_decay_and_is_said():
    x, y, z = data()
    scores = ns.network_scores(perceptron(), (x, y), weight_decay=1e-2)
    assert scores.damping_used == pytest.approx(0.4)
    assert ns.network_scores(perceptron(outputs=2), (x, z), weight_decay=1e-2).damping_used == pytest.approx(0.4)  # n·wd·q/2 with q = 2
    automatic = ns.network_scores(perceptron(), (x, y))
    assert automatic.damping_source.startswith("automatic")
    assert "weight_decay=0" in ns.network_scores(perceptron(), (x, y), weight_decay=0.0).damping_source


def test_sweep_shows_degrees_of_freedom_falling_with_damping():
    x, y, _ = data()
    model = perceptron()
    table = ns.damping_sweep(model, (x, y), weight_decay=1e-2, factors=(0.1, 1.0, 10.0))
    assert table.damping.tolist() == pytest.approx([0.04, 0.4, 4.0])
    assert table.effective_dof.is_monotonic_decreasing
    assert table.spearman[1] == 1.0
    assert table.effective_dof[1] == pytest.approx(ns.network_scores(model, (x, y), weight_decay=1e-2).effective_dof)


def test_frozen_parameters_are_left_out_and_said():
    x, y, _ = data()
    model = perceptron()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    scores = ns.network_scores(model, (x, y), damping=0.3)
    assert any("2 frozen parameter tensors" in note for note in scores.notes)
    names = [f"{i}.{kind}" for i in (2, 4) for kind in ("weight", "bias")]
    expected = dense_jacobian(model.requires_grad_(True), x, names)
    assert_columns(scores, margin_oracle(expected, model(x).detach(), y, 0.3))


def test_shared_parameters_are_counted_once_and_said():
    x, y, _ = data()
    model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    model[2].weight = model[0].weight
    scores = ns.network_scores(model, (x, y), damping=0.3)
    assert any("0.weight = 2.weight" in note for note in scores.notes)
    assert scores.parameters == 25 + 5 + 5 + 18
    assert_columns(scores, margin_oracle(dense_jacobian(model, x), model(x).detach(), y, 0.3))


class Choosy(nn.Module):
    def forward(self, x):
        return x if bool(x.sum() > 0) else -x


class Mixing(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


def test_modules_that_torch_func_cannot_run_are_named():
    x, y, _ = data()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), Choosy(), nn.Linear(4, 3)).double()
    with pytest.raises(ns.InputError, match="Choosy '1'"):
        ns.network_scores(model, (x[:6], y[:6]), damping=0.3)
    alone = torch.cat([model(row[None]) for row in x]).detach()
    assert not torch.allclose(alone, model(x))
    scores = ns.network_scores(model, (x, y), damping=0.3, unvectorised="loop")
    assert_columns(scores, margin_oracle(dense_jacobian(model, x), alone, y, 0.3))


def test_records_may_not_depend_on_each_other():
    x, y, _ = data()
    with pytest.raises(ns.InputError, match="same output in any batch"):
        ns.network_scores(nn.Sequential(nn.Linear(5, 4), Mixing(), nn.Linear(4, 3)), (x, y), damping=0.3)


def test_a_kernel_that_does_not_fit_is_refused_with_its_size():
    x, y, _ = data()
    with pytest.raises(ns.InputError, match=r"40 rows, which need 0\.0 GB\. Pass method='projected'"):
        ns.network_scores(perceptron(), (x, y), damping=0.3, method="dual", max_memory=1000)
    scores = ns.network_scores(perceptron(), (x, y), damping=0.3, max_memory=1000)
    assert scores.method == "projected"
    assert any("gradients were projected" in note for note in scores.notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"damping": 0.0}, "damping must be a number > 0"),
        ({"layers": 4}, "layers must be from 1 to 3"),
        ({"layers": "first"}, "layers must be 'last', 'all' or a whole number"),
        ({"layers": True}, "layers must be 'last', 'all' or a whole number"),
        ({"method": "exact"}, "method must be one of"),
        ({"outputs": "some"}, "outputs must be one of"),
        ({"weight_decay": -1.0}, "weight_decay must be a number ≥ 0"),
        ({"dimension": 1}, "dimension must be a whole number ≥ 2"),
        ({"unvectorised": "yes"}, "unvectorised must be one of"),
        ({"sample_weight": [1.0]}, "sample_weight must have one row per record"),
        ({"batch_size": 0}, "batch_size must be a whole number ≥ 1"),
    ],
)
def test_wrong_arguments_are_one_sentence(options, message):
    x, y, _ = data()
    with pytest.raises(ns.InputError, match=message):
        ns.network_scores(perceptron(), (x, y), **options)


def test_wrong_models_and_data_are_one_sentence():
    x, y, z = data()
    with pytest.raises(ns.InputError, match=r"model must be a plain nn\.Module"):
        ns.network_scores("model", (x, y))
    with pytest.raises(ns.InputError, match="be 'all' for a regression"):
        ns.network_scores(perceptron(outputs=2), (x, z), outputs="margin")
    with pytest.raises(ns.InputError, match="have trainable parameters"):
        ns.network_scores(perceptron().requires_grad_(False), (x, y))
    with pytest.raises(ns.InputError, match="outputs must be finite"):
        ns.network_scores(perceptron(), (torch.where(x > 2, torch.nan, x), y))


class Noisy(torch.utils.data.Dataset):
    """Records that come out differently each time they are read."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + torch.randn(5, dtype=torch.float64), self.y[i]


def test_random_transforms_are_the_same_on_every_walk():
    x, y, _ = data()
    model, seen = perceptron(), []
    once = Noisy(x, y)
    scores = ns.network_scores(model, once, damping=0.3, seed=7, batch_size=8)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        seen = torch.stack([once[i][0] for i in range(len(x))])
    assert_columns(scores, margin_oracle(dense_jacobian(model, seen), model(seen).detach(), y, 0.3))


class Padded(nn.Module):
    """Tokens through a Linear as rows of their own; padding contributes nothing."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        mask = x.abs().sum(2, keepdim=True) > 0
        inner = torch.tanh(self.embed(x.reshape(-1, 3))).reshape(len(x), -1, 4) * mask
        return self.head(inner.sum(1) / mask.sum(1))


def test_rows_that_are_not_records_are_no_plain_layer():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((20, 4, 3)))
    x[:6, 1:] = 0  # the first records have one token, as in data sorted by length
    y = torch.from_numpy(rng.standard_normal((20, 1)))
    torch.manual_seed(0)
    model = Padded().double()
    scores = ns.network_scores(model, (x, y), damping=0.3)
    expected = primal_oracle(dense_jacobian(model, x), model(x).detach(), y, 0.3, "regression")
    assert_columns(scores, expected)


def test_gradients_that_vanish_on_the_first_records_prove_nothing():
    x, _, _ = data()
    x[:5] = 0
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 5, bias=False), nn.Tanh(), nn.Linear(5, 5, bias=False), nn.Tanh(), nn.Linear(5, 1)).double()
    model[2].weight = model[0].weight
    y = x.sum(1, keepdim=True)
    expected = primal_oracle(dense_jacobian(model, x), model(x).detach(), y, 0.3, "regression")
    assert_columns(ns.network_scores(model, (x, y), damping=0.3), expected)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.aux = nn.Linear(5, 4), nn.Linear(4, 3), nn.Linear(4, 7)

    def forward(self, x):
        inner = torch.tanh(self.body(x))
        return self.head(inner), self.aux(inner)


def test_layers_the_output_does_not_depend_on_are_no_layers():
    x, y, _ = data()
    torch.manual_seed(0)
    model = TwoHeads().double()
    scores = ns.network_scores(model, (x, y), damping=0.3, layers="last", output=0)
    assert scores.layers == ("head",)
    with pytest.raises(ns.InputError, match=r"exactly one tensor that fits the targets; got '0' \(8, 3\), '1' \(8, 7\)\. Pass output="):
        ns.network_scores(model, (x, y), damping=0.3, layers="last")
    assert any("2 trainable parameter tensors do not reach the output" in note for note in scores.notes)
    assert (scores.shift > 0).all()


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_parametrised_layers_are_one_layer(norm):
    x, _, z = data()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), norm(nn.Linear(4, 2))).double().eval()
    scores = ns.network_scores(model, (x, z), damping=0.3, layers="last")
    assert scores.layers == ("2",)
    names = [name for name, _ in model.named_parameters() if name.startswith("2.")]
    assert_columns(scores, primal_oracle(dense_jacobian(model, x, names), model(x).detach(), z, 0.3, "regression"))


class Cached(nn.Module):
    """Keeps things from its forward pass, as many do."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, x):
        self.last = self.linear(x)
        return self.last


def test_what_a_forward_pass_leaves_behind_is_not_in_the_users_module():
    x, y, _ = data()
    model = Cached().double()
    ns.network_scores(model, (x, y), damping=0.3)
    assert not hasattr(model, "last")
    copy.deepcopy(model)


class Deepening(nn.Module):
    """Runs its layer twice for some records."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(5, 5), nn.Linear(5, 1)

    def forward(self, x):
        x = torch.tanh(self.inner(x))
        return self.head(torch.tanh(self.inner(x)) if bool(x.sum() > 0) else x)


def test_record_by_record_a_layer_may_run_as_often_as_it_likes():
    x, _, z = data()
    torch.manual_seed(0)
    model = Deepening().double()
    y = z[:, :1]
    alone = torch.cat([model(row[None]) for row in x]).detach()
    scores = ns.network_scores(model, (x, y), damping=0.3, unvectorised="loop")
    assert_columns(scores, primal_oracle(dense_jacobian(model, x), alone, y, 0.3, "regression"))


def test_endings_that_do_not_fit_the_task_are_refused():
    x, y, z = data()
    with pytest.raises(ns.InputError, match="give the raw output of its last Linear in a regression"):
        ns.network_scores(nn.Sequential(nn.Linear(5, 2), nn.Sigmoid()).double(), (x, z))
    scaled = nn.Sequential(nn.Linear(5, 3), nn.Softmax(1), nn.Softmax(1)).double()
    with pytest.raises(ns.InputError, match="give logits, not probabilities"):
        ns.network_scores(scaled, (x, y))


def test_a_damping_below_rounding_is_a_numerical_error():
    x, _, z = data(60, 2)
    with pytest.raises(ns.NumericalError, match="cannot be factored in float64"):
        ns.network_scores(nn.Linear(2, 2).double(), (x, z), damping=1e-30)


def test_scripted_modules_and_bare_factors_are_refused_in_a_sentence():
    x, y, _ = data()
    with pytest.warns(DeprecationWarning):
        scripted = torch.jit.script(perceptron())
    with pytest.raises(ns.InputError, match=r"be a plain nn\.Module"):
        ns.network_scores(scripted, (x, y))
    with pytest.raises(ns.InputError, match="factors must be a list of at least one number"):
        ns.damping_sweep(perceptron(), (x, y), factors=3.0)
    assert ns.network_scores(perceptron(), (x, y), damping=0.3, layers=np.int64(1)).layers == ("4",)
