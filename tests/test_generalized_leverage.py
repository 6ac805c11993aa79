"""GLS and influence by conjugate gradients against closed forms, dense curvatures by autograd, and refits."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import one_hot
from torch.utils.data import DataLoader, Dataset, TensorDataset

from noshadow.checks import InputError, NumericalError
from noshadow.scores.last_layer.entry import record_scores
from noshadow.scores.last_layer.leverage import last_layer_leverage
from noshadow.scores.network.generalized_leverage import generalized_leverage, network_influence
from oracles import with_bias

N, WIDTH = 12, 3
POINTS = [0, 5]
# Solved nearly to rounding: what is left between two exact ways is the condition of the curvature times 1e-11.
TIGHT = {"tolerance": 1e-11, "max_iterations": 2000}
CASES = ("one output", "two outputs", "one logit", "softmax", "soft labels")


def network(outputs, *, hidden=4, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(WIDTH, hidden), nn.Tanh(), nn.Linear(hidden, 3), nn.Tanh(), nn.Linear(3, outputs))


def case(name, *, n=N):
    """(model, x, y, task) of a small untrained network: away from any minimum, where the two curvatures differ."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(n, WIDTH, generator=draw)
    labels = torch.arange(n) % 3
    soft = torch.softmax(torch.randn(n, 3, generator=draw, dtype=torch.float64), 1)
    return {
        "one output": (network(1), x, torch.randn(n, generator=draw), "regression"),
        "two outputs": (network(2), x, torch.randn(n, 2, generator=draw), "regression"),
        "one logit": (network(1), x, labels % 2, "binary"),
        "softmax": (network(3), x, labels, "classification"),
        "soft labels": (network(3), x, soft, "classification"),
    }[name]


def summed_loss(outputs, y, task):
    """Σ ℓ of cross-entropy and half of Σ ℓ of the squared loss: the scale on which λ is added."""
    if task == "regression":
        return ((outputs - y.double().reshape(outputs.shape)) ** 2).sum() / 2
    if task == "binary":
        return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], y.double(), reduction="sum")
    targets = y if y.ndim == 2 else one_hot(y, outputs.shape[1]).double()
    return -(targets * torch.log_softmax(outputs, 1)).sum()


def dense(model, x, y, task, *, names=None):
    """Outputs (n, m), Jacobian (n, m, p), Gauss–Newton and Hessian (p, p) of the named parameters, by autograd alone."""
    model = copy.deepcopy(model).double().eval()
    parameters = {k: v.detach() for k, v in model.named_parameters() if names is None or k in names}

    @sdpa_kernel(SDPBackend.MATH)  # fused attention has no second derivative
    def outputs(flat):
        parts = flat.split([v.numel() for v in parameters.values()])
        given = {k: part.view(v.shape) for (k, v), part in zip(parameters.items(), parts, strict=True)}
        return functional_call(model, given, (x.double() if x.is_floating_point() else x,))

    flat = torch.cat([v.flatten() for v in parameters.values()])
    f, J = outputs(flat).detach(), jacobian(outputs, flat)
    gauss_newton = torch.zeros(len(flat), len(flat), dtype=torch.float64)
    for j in range(len(f)):
        W = hessian(lambda out, j=j: summed_loss(out[None], y[j : j + 1], task), f[j])
        gauss_newton += J[j].T @ W @ J[j]
    return f, J, {"gauss_newton": gauss_newton, "hessian": hessian(lambda flat: summed_loss(outputs(flat), y, task), flat)}


def eye(size):
    return torch.eye(size, dtype=torch.float64)


def probability_slopes(f, task):
    """∂probability/∂output of each record (n, m, m); identity for a regression."""
    if task == "regression":
        return eye(f.shape[1]).expand(len(f), -1, -1)
    if task == "binary":
        return jacobian(lambda z: torch.sigmoid(z).sum(0), f).permute(1, 0, 2)
    return torch.stack([jacobian(lambda z: torch.softmax(z, 0), row) for row in f])


def dense_matrices(f, J, curvature, damping, task, space):
    H = J @ torch.linalg.solve(curvature + damping * eye(len(curvature)), J.transpose(1, 2))
    if space == "probability":
        return (probability_slopes(f, task) @ H).numpy()
    if task == "classification":
        centring = eye(f.shape[1]) - 1 / f.shape[1]
        return (centring @ H @ centring).numpy()
    return H.numpy()


def dense_influence(f, J, curvature, damping, y, task):
    slopes = torch.stack([jacobian(lambda out, j=j: summed_loss(out[None], y[j : j + 1], task), f[j]) for j in range(len(f))])
    gradients = torch.einsum("nm,nmp->np", slopes, J)
    inner = (gradients * torch.linalg.solve(curvature + damping * eye(len(curvature)), gradients.T).T).sum(1)
    # ∇ℓ of the squared loss is twice the slope of its half and the curvature twice 𝓗: 4/2.
    return (inner * (2 if task == "regression" else 1)).numpy()


def safe_damping(curvature):
    return 0.3 - min(0.0, float(torch.linalg.eigvalsh(curvature).min()))


def last_names(layers):
    every = ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"]
    return every[-2 * {"last": 1, "all": 3}.get(layers, layers) :]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("curvature", ["gauss_newton", "hessian"])
def test_last_layer_is_the_closed_form(name, curvature):
    model, x, y, task = case(name)
    double = copy.deepcopy(model).double()
    features, outputs = double[:4](x.double()).detach().numpy(), double(x.double()).detach().numpy()
    points = (x[POINTS], y[POINTS])
    settings = {"task": task, "damping": 0.2, "curvature": curvature, **TIGHT}
    scores = record_scores(features, outputs, y.numpy(), task=task, damping=0.2)
    for space in ("probability", "logit"):
        exact = last_layer_leverage(features, outputs, y.numpy(), task=task, damping=0.2, space=space, records=POINTS)
        found = generalized_leverage(model, (x, y), points, space=space, **settings)
        assert found.converged.all()
        for column in ("matrix", "trace", "frobenius", "spectral"):
            np.testing.assert_allclose(getattr(found, column), getattr(exact, column), rtol=1e-6, atol=1e-9)
        if space == "probability":
            shared = outputs.shape[1] if task == "regression" else 1  # h stands once in the column and once for each output here
            np.testing.assert_allclose(found.trace / shared, scores.leverage[POINTS], rtol=1e-6)
    influence = network_influence(model, (x, y), points, layers="last", **settings)
    np.testing.assert_allclose(influence.influence, scores.influence[POINTS], rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("curvature", ["gauss_newton", "hessian"])
@pytest.mark.parametrize("layers", [2, "all"])
def test_many_layers_are_the_dense_solve(name, curvature, layers):
    model, x, y, task = case(name)
    names = last_names(layers)
    f, J, both = dense(model, x, y, task, names=names)
    damping = safe_damping(both[curvature])
    settings = {"task": task, "damping": damping, "layers": layers, "curvature": curvature, **TIGHT}
    points = (x[POINTS], y[POINTS])
    for space in ("probability", "logit") if task == "classification" else ("probability",):
        found = generalized_leverage(model, (x, y), points, space=space, **settings)
        expected = dense_matrices(f, J, both[curvature], damping, task, space)[POINTS]
        # relative to the largest entry: class shifts that cancel are exact zeros in one way only
        np.testing.assert_allclose(found.matrix, expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max())
        np.testing.assert_allclose(found.trace, np.trace(expected, axis1=1, axis2=2), rtol=1e-7)
        np.testing.assert_allclose(found.frobenius, np.linalg.norm(expected, axis=(1, 2)), rtol=1e-7)
        np.testing.assert_allclose(found.spectral, np.linalg.norm(expected, 2, axis=(1, 2)), rtol=1e-7)
        assert found.converged.all() and not found.negative_curvature.any() and not found.notes
        assert found.layers == tuple(dict.fromkeys(n.split(".")[0] for n in names))
    influence = network_influence(model, (x, y), points, **settings)
    np.testing.assert_allclose(influence.influence, dense_influence(f, J, both[curvature], damping, y, task)[POINTS], rtol=1e-7)


def test_curvatures_differ_away_from_a_minimum():
    model, x, y, task = case("softmax")
    traces = [
        generalized_leverage(model, (x, y), (x, y), task=task, damping=20.0, layers="all", curvature=c).trace
        for c in ("gauss_newton", "hessian")
    ]
    assert np.abs(traces[0] - traces[1]).max() > 1e-3


@pytest.mark.parametrize("name", ["two outputs", "softmax"])
def test_damping_as_published_stands_beside_the_mean_loss(name):
    model, x, y, task = case(name)
    f, J, both = dense(model, x, y, task)
    published = 0.05
    mean_hessian = both["gauss_newton"] * (2 if task == "regression" else 1) / N
    Z = torch.linalg.solve(mean_hessian + published * eye(J.shape[2]), J.transpose(1, 2))
    expected = (probability_slopes(f, task) @ J @ Z).numpy() * (2 if task == "regression" else 1) / N
    found = generalized_leverage(model, (x, y), (x, y), damping=published, damping_scale="mean", layers="all", **TIGHT)
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-6, atol=1e-9)
    assert found.damping_used == pytest.approx(published * N / (2 if task == "regression" else 1))
    assert "mean loss over 12 records" in found.damping_source


@pytest.mark.parametrize("name", ["one output", "soft labels"])
def test_exact_hessian_is_the_answer_of_a_refit_to_the_label(name):
    """Definition 4.1: train to a minimum, move one label, train again; the answer is the derivative."""
    model, x, y, task = case(name)
    model, x, y = copy.deepcopy(model).double(), x.double(), y.double()
    penalty = 0.5
    theta = refitted(model, x, y, task, penalty)
    load(model, theta)
    i, step = 5, 1e-4
    # labels stay on the simplex
    moves = eye(1) if task == "regression" else torch.tensor([[1, -1, 0], [0, 1, -1]], dtype=torch.float64)
    settings = {"task": task, "damping": penalty, "layers": "all", "curvature": "hessian", **TIGHT}
    found = generalized_leverage(model, (x, y), (x[i : i + 1], y[i : i + 1]), **settings)
    for move in moves:
        ends = []
        for sign in (1, -1):
            moved = y.clone()
            moved[i] += sign * step * move.reshape(y[i].shape)
            f = values(model, refitted(model, x, moved, task, penalty, start=theta), x)[i]
            ends.append(torch.softmax(f, 0) if task == "classification" else f)
        # central difference: truncation ~ step²
        np.testing.assert_allclose(found.matrix[0] @ move.numpy(), ((ends[0] - ends[1]) / (2 * step)).numpy(), rtol=1e-5, atol=1e-7)


def values(model, theta, x):
    parameters = dict(model.named_parameters())
    parts = theta.split([v.numel() for v in parameters.values()])
    return functional_call(model, {k: p.view(v.shape) for (k, v), p in zip(parameters.items(), parts, strict=True)}, (x,))


def load(model, theta):
    with torch.no_grad():
        for v, part in zip(model.parameters(), theta.split([v.numel() for v in model.parameters()]), strict=True):
            v.copy_(part.view(v.shape))


def refitted(model, x, y, task, penalty, start=None):
    """Minimum of Σℓ (half of it for the squared loss) + (penalty/2)‖θ‖², by damped Newton steps to rounding."""
    theta = torch.cat([v.detach().flatten() for v in model.parameters()]) if start is None else start

    def objective(t):
        return summed_loss(values(model, t, x), y, task) + penalty / 2 * (t**2).sum()

    for _ in range(60):
        gradient = jacobian(objective, theta)
        if gradient.abs().max() < 1e-12:
            break
        curvature, vectors = torch.linalg.eigh(hessian(objective, theta))
        move = vectors @ ((vectors.T @ gradient) / curvature.abs().clamp(min=1e-3))
        rate = 1.0
        while rate > 1e-4 and objective(theta - rate * move) > objective(theta) + 1e-13:
            rate /= 2
        theta = theta - rate * move
    assert jacobian(objective, theta).abs().max() < 1e-9
    assert torch.linalg.eigvalsh(hessian(objective, theta)).min() > 1e-3
    return theta


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.block = nn.TransformerEncoderLayer(4, 2, dim_feedforward=5, batch_first=True, dropout=0.3)
        self.scale = nn.Parameter(torch.tensor(1.5))  # no dimensions
        self.out = nn.Linear(4, 3)

    def forward(self, tokens):
        return self.out(self.scale * self.block(self.embed(tokens)).mean(1))


def convolutional():
    body = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.SiLU(), nn.MaxPool2d(2), nn.GroupNorm(3, 3))
    net = nn.Sequential(body, nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 3))
    net(torch.randn(20, 1, 4, 4, generator=torch.Generator().manual_seed(1)))  # running statistics
    return net


@pytest.mark.parametrize("kind", ["convolution", "attention"])
@pytest.mark.parametrize("curvature", ["gauss_newton", "hessian"])
def test_other_modules(kind, curvature):
    draw = torch.Generator().manual_seed(2)
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = convolutional() if kind == "convolution" else Attention()
    x = torch.randn(9, 1, 4, 4, generator=draw) if kind == "convolution" else torch.randint(0, 7, (9, 5), generator=draw)
    y = torch.arange(9) % 3
    f, J, both = dense(model, x, y, "classification")
    damping = safe_damping(both[curvature])
    found = generalized_leverage(model, (x, y), (x[:2], y[:2]), damping=damping, layers="all", curvature=curvature, **TIGHT)
    expected = dense_matrices(f, J, both[curvature], damping, "classification", "probability")[:2]
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-6, atol=1e-8)


def test_second_derivatives_that_torch_gets_wrong_are_refused():
    """Those of weight_norm are not symmetric; its first ones are right, though they go over one vector at a time."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, 4)), nn.Tanh(), nn.Linear(4, 3))
    _, x, y, task = case("softmax")
    settings = {"damping": 20.0, "layers": "all", "unvectorised": "loop", **TIGHT}
    with pytest.raises(InputError, match=r"model must have a symmetric Hessian; got uᵀHv = .*curvature='gauss_newton'"):
        generalized_leverage(model, (x, y), (x[:2], y[:2]), curvature="hessian", **settings)
    found = generalized_leverage(model, (x, y), (x[:2], y[:2]), **settings)
    f, J, both = dense(model, x, y, task)
    expected = dense_matrices(f, J, both["gauss_newton"], 20.0, task, "probability")[:2]
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-6, atol=1e-9)


def test_indefinite_hessian_is_flagged_per_record():
    model, x, y, task = case("one output")
    y = 5 * y
    _, _, both = dense(model, x, y, task)
    lowest = float(torch.linalg.eigvalsh(both["hessian"]).min())
    damping = 1e-3
    assert lowest < -10 * damping
    found = generalized_leverage(model, (x, y), (x, y), task=task, damping=damping, layers="all", curvature="hessian", tolerance=1e-8)
    assert found.negative_curvature.any()
    assert not (found.converged & found.negative_curvature).any()
    assert (found.residual[found.negative_curvature] > 1e-8).all()
    note = next(note for note in found.notes if "curvature ≤ 0" in note)
    assert f"{found.negative_curvature.sum()} of {N} records" in note and "gauss_newton" in note
    # What it says is needed is true, and no more than what the dense spectrum asks for.
    needed = float(note.split("must be above ")[1].split(" ")[0])
    assert damping < needed <= -lowest * (1 + 1e-2)
    plain = generalized_leverage(model, (x, y), (x, y), task=task, damping=damping, layers="all", max_iterations=2000)
    assert not plain.negative_curvature.any() and plain.converged.all()


def test_negative_curvature_before_the_first_step_gives_nan():
    class Saddle(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return torch.sin(self.weight * x)

    x = torch.tensor([[1.0], [1.2], [0.9]])
    y = torch.sin(x[:, 0]) - 10
    model = Saddle()
    _, _, both = dense(model, x, y, "regression")
    assert float(both["hessian"]) < -1
    found = network_influence(model, (x, y), (x, y), task="regression", damping=0.5, curvature="hessian")
    assert found.negative_curvature.all() and np.isnan(found.influence).all() and not found.converged.any()
    assert (found.iterations == 0).all() and (found.residual == 1).all()
    assert any("3 of 3 records" in note and "3 of them before the first step (NaN)" in note for note in found.notes)
    gls = generalized_leverage(model, (x, y), (x, y), task="regression", damping=0.5, curvature="hessian")
    assert np.isnan(gls.trace).all() and np.isnan(gls.spectral).all()


def test_one_step_is_reported_as_not_converged_with_its_true_residual():
    model, x, y, task = case("one output")
    _, J, both = dense(model, x, y, task)
    A = both["gauss_newton"] + 0.01 * eye(J.shape[2])
    found = generalized_leverage(
        model, (x, y), (x, y), task=task, damping=0.01, layers="all", max_iterations=1, tolerance=1e-6, preconditioner_rank=0
    )
    for i in range(N):
        b = J[i, 0]
        z = b * (b @ b) / (b @ A @ b)  # the first step of conjugate gradients
        assert found.matrix[i, 0, 0] == pytest.approx(float(b @ z), rel=1e-9)
        assert found.residual[i] == pytest.approx(float((A @ z - b).norm() / b.norm()), rel=1e-6)
    assert not found.converged.any() and (found.iterations == 1).all() and found.passes == 2
    assert any(f"{N} of {N} records did not reach tolerance 1e-06 in 1 iterations" in note for note in found.notes)


@pytest.mark.parametrize("curvature", ["gauss_newton", "hessian"])
def test_batches_memory_and_order_do_not_change_numbers(curvature):
    model, x, y, task = case("softmax")
    settings = {"task": task, "damping": 20.0, "layers": "all", "curvature": curvature, "tolerance": 1e-10}
    points = (x[:1], y[:1])
    base = generalized_leverage(model, (x, y), points, **settings)
    # 1e4 bytes hold one vector at a time, and the activations of one
    for change, passes in (({"batch_size": 3}, 1), ({"max_memory": 1e4}, 2), ({"unvectorised": "loop"}, 1)):
        found = generalized_leverage(model, (x, y), points, **settings, **change)
        np.testing.assert_allclose(found.matrix, base.matrix, rtol=1e-8, atol=1e-12)
        assert found.passes >= passes * base.passes
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    mixed = generalized_leverage(model, (x[order], y[order]), points, **settings)
    np.testing.assert_allclose(mixed.matrix, base.matrix, rtol=1e-8, atol=1e-12)


def test_no_damping_is_ordinary_leverage():
    model, x, y, task = case("two outputs")
    design = with_bias(copy.deepcopy(model).double()[:4](x.double()).detach().numpy())
    hat = np.diag(design @ np.linalg.pinv(design))
    found = generalized_leverage(model, (x, y), (x, y), task=task, damping=0.0, **TIGHT)
    np.testing.assert_allclose(found.matrix, hat[:, None, None] * np.eye(2), rtol=1e-6, atol=1e-9)
    assert found.converged.all() and found.damping_used == 0


def test_strong_damping_leaves_the_squared_jacobian():
    model, x, y, task = case("two outputs")
    _, J, _ = dense(model, x, y, task)
    found = generalized_leverage(model, (x, y), (x, y), task=task, damping=1e9, layers="all")
    np.testing.assert_allclose(found.matrix * 1e9, (J @ J.transpose(1, 2)).numpy(), rtol=1e-6)


def test_single_precision_is_close_and_judged_in_double():
    model, x, y, task = case("softmax")
    settings = {"task": task, "damping": 20.0, "layers": "all"}
    for curvature in ("gauss_newton", "hessian"):
        exact = generalized_leverage(model, (x, y), (x, y), **settings, curvature=curvature, **TIGHT)
        rough = generalized_leverage(model, (x, y), (x, y), **settings, curvature=curvature, precision="float32", tolerance=1e-4)
        assert rough.converged.all()
        np.testing.assert_allclose(rough.trace, exact.trace, rtol=1e-3)
        rougher = generalized_leverage(model, (x, y), (x, y), **settings, curvature=curvature, precision="float32", tolerance=1e-12)
        assert not rougher.converged.any() and (rougher.residual > 1e-10).all()
        assert any("precision='float64'" in note for note in rougher.notes)


@pytest.mark.parametrize("curvature", ["gauss_newton", "hessian"])
def test_preconditioner_saves_steps_and_changes_no_number(curvature):
    model, x, y, task = case("softmax")
    x = torch.cat([30 * x[:, :1], x[:, 1:]], 1)  # ill-conditioned
    f, J, both = dense(model, x, y, task)
    damping = safe_damping(both[curvature])
    settings = {"task": task, "damping": damping, "layers": "all", "curvature": curvature, **TIGHT}
    expected = dense_matrices(f, J, both[curvature], damping, task, "probability")
    steps = {}
    for rank in (0, 8, 1000):
        found = generalized_leverage(model, (x, y), (x, y), **settings, preconditioner_rank=rank)
        np.testing.assert_allclose(found.matrix, expected, rtol=1e-6, atol=1e-8)
        steps[rank] = found.iterations.max()
    if curvature == "gauss_newton":
        assert steps[8] < 0.8 * steps[0] and steps[1000] <= 3  # a sketch of full size is the inverse


class Noisy(Dataset):
    """Records with fresh noise at every look."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 0.3 * torch.rand(self.x.shape[1]), self.y[i]


def test_every_pass_sees_the_same_random_transforms():
    model, x, y, task = case("softmax")
    found = generalized_leverage(model, Noisy(x, y), (x[:3], y[:3]), task=task, damping=0.5, layers="all", seed=7, **TIGHT)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        seen = torch.stack([Noisy(x, y)[i][0] for i in range(N)])
    fixed = generalized_leverage(model, (seen, y), (x[:3], y[:3]), task=task, damping=0.5, layers="all", **TIGHT)
    assert found.converged.all()
    np.testing.assert_allclose(found.matrix, fixed.matrix, rtol=1e-9, atol=1e-12)


def test_forms_of_data_agree_and_nothing_is_disturbed():
    model, x, y, _ = case("softmax")
    model.train()
    before, state = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    base = generalized_leverage(model, (x, y), (x[4:6], y[4:6]), damping=0.5, layers=2)
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    other = generalized_leverage(model, loader, TensorDataset(x[4:6], y[4:6]), damping=0.5, layers=2)
    np.testing.assert_array_equal(other.matrix, base.matrix)
    one = network_influence(model, (x.numpy(), y.numpy()), (x[4:5].numpy(), y[4:5].numpy()), damping=0.5)
    assert one.influence.shape == (1,) and one.records.tolist() == [0]
    assert model.training and all(p.grad is None and p.requires_grad for p in model.parameters())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())


def test_frozen_parameters_are_left_out_and_said():
    model, x, y, task = case("one output")
    model[2].weight.requires_grad_(False)
    found = generalized_leverage(model, (x, y), (x, y), task=task, damping=0.4, layers="all", **TIGHT)
    names = [n for n in last_names("all") if n != "2.weight"]
    f, J, both = dense(model, x, y, task, names=names)
    np.testing.assert_allclose(found.matrix, dense_matrices(f, J, both["gauss_newton"], 0.4, task, "probability"), rtol=1e-7)
    assert any("1 frozen" in note for note in found.notes)


def test_auto_damping_is_the_training_s_own():
    model, x, y, _ = case("softmax")
    auto = network_influence(model, (x, y), (x, y), damping="auto", weight_decay=0.1)
    assert auto.damping_used == pytest.approx(0.1 * N) and "weight_decay" in auto.damping_source
    np.testing.assert_array_equal(auto.influence, network_influence(model, (x, y), (x, y), damping=auto.damping_used).influence)


class OldStyle(torch.autograd.Function):
    """A derivative written by hand in a way that torch.func cannot run."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, slope):
        return 2 * slope


class Looking(torch.autograd.Function):
    """A derivative that looks at its numbers: fine for one vector at a time, not for many."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, slope):
        return 2 * slope if bool((slope != 0).any()) else 0 * slope


class Gate(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


def gated(function):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(WIDTH, 2), Gate(function), nn.Tanh(), nn.Linear(2, 3))


def test_module_that_torch_func_cannot_run_is_named():
    _, x, y, _ = case("softmax")
    with pytest.raises(InputError, match=r"model must run under torch.func.* in Gate '1' "):
        generalized_leverage(gated(OldStyle), (x, y), (x, y), damping=0.5, layers="all")


@pytest.mark.parametrize("curvature", ["gauss_newton", "hessian"])
def test_module_that_takes_one_vector_at_a_time_is_refused_or_looped(curvature):
    _, x, y, task = case("softmax")
    settings = {"damping": 20.0, "layers": "all", "curvature": curvature, "tolerance": 1e-8}
    with pytest.raises(InputError, match=r"unvectorised='loop'"):
        generalized_leverage(gated(Looking), (x, y), (x[:1], y[:1]), **settings)
    found = generalized_leverage(gated(Looking), (x, y), (x[:1], y[:1]), **settings, unvectorised="loop")
    f, J, both = dense(gated(Looking), x, y, task)
    expected = dense_matrices(f, J, both[curvature], 20.0, task, "probability")[:1]
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("curvature", ["gauss_newton", "hessian"])
def test_choices_by_the_data_and_work_in_place_are_no_obstacle(curvature):
    """Only derivatives go over many vectors at once; the model itself runs as it always does."""
    _, x, y, task = case("softmax")
    model = Choosy()
    f, J, both = dense(model, x, y, task)
    found = generalized_leverage(model, (x, y), (x[:2], y[:2]), damping=20.0, layers="all", curvature=curvature, **TIGHT)
    expected = dense_matrices(f, J, both[curvature], 20.0, task, "probability")[:2]
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-6, atol=1e-9)


class Choosy(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.out = nn.Parameter(torch.ones(WIDTH)), nn.Linear(WIDTH, 3)
        with torch.no_grad():
            self.out.weight.copy_(torch.arange(9.0).view(3, 3) / 9)
            self.out.bias.zero_()

    def forward(self, x):
        held = torch.zeros(x.shape, dtype=x.dtype)
        held += torch.tanh(x * self.scale)
        held[held < 0] *= 0.5
        return self.out(held) if float(self.scale.detach().sum()) > 0 else self.out(-held)


class Rooted(nn.Module):
    """Finite outputs with an infinite slope at x = 0."""

    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(1, 1, bias=False), nn.Linear(1, 1)

    def forward(self, x):
        return self.out(torch.sqrt(self.inner(x).abs()))


def test_derivatives_that_are_not_finite_are_an_error():
    x = torch.tensor([[1.0], [2.0], [0.0]])
    good, bad = (x[:2], x[:2, 0]), (x, x[:, 0])
    with pytest.raises(NumericalError, match="derivatives of the outputs of points are not finite"):
        generalized_leverage(Rooted(), good, bad, task="regression", damping=0.1, layers="all")
    for rank in (0, 2):
        with pytest.raises(NumericalError, match="derivatives of the model are not finite at records of train"):
            generalized_leverage(Rooted(), bad, good, task="regression", damping=0.1, layers="all", preconditioner_rank=rank)


def bad(**changes):
    model, x, y, _ = case("softmax")
    return {"model": model, "train": (x, y), "points": (x[:2], y[:2]), "damping": 0.5, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"damping": -1.0}, r"damping must be a number ≥ 0; got -1\."),
        ({"damping": float("nan")}, "damping must be a number ≥ 0; got nan"),
        ({"damping": "auto"}, "damping must be a number, or 'auto' beside the training's weight_decay"),
        ({"damping": "auto", "weight_decay": -1.0}, "weight_decay must be a number ≥ 0; got -1"),
        ({"weight_decay": 0.1}, "weight_decay must be left out when damping is a number; got 0.1"),
        ({"damping_scale": "median"}, "damping_scale must be one of 'sum', 'mean'; got 'median'"),
        ({"layers": 9}, "layers must be from 1 to 3"),
        ({"layers": "first"}, "layers must be 'last', 'all' or a whole number"),
        ({"curvature": "fisher"}, "curvature must be one of 'gauss_newton', 'hessian'; got 'fisher'"),
        ({"precision": "float16"}, "precision must be one of 'float64', 'float32'; got 'float16'"),
        ({"tolerance": 0.0}, "tolerance must be a number > 0 and < 1; got 0"),
        ({"max_iterations": 0}, "max_iterations must be a whole number ≥ 1; got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number ≥ 1; got 0"),
        ({"preconditioner_rank": -1}, "preconditioner_rank must be a whole number ≥ 0; got -1"),
        ({"max_memory": 0}, "max_memory must be a number > 0; got 0"),
        ({"points": (torch.zeros(2, 4), [0, 1])}, r"points must hold inputs that the model takes.*got RuntimeError"),
        ({"points": (torch.zeros(0, 3), [])}, "points must hold at least one record; got none"),
        ({"points": (torch.full((2, 3), torch.nan), [0, 1])}, "outputs of points must be finite; got 6 NaN"),
        ({"points": torch.zeros(2, 3)}, "points must be"),
        ({"train": (torch.full((4, 3), torch.nan), [0, 1, 2, 0])}, "model must give finite outputs"),
        ({"seed": -1}, "seed must be a whole number ≥ 0"),
        ({"unvectorised": "maybe"}, "unvectorised must be one of"),
    ],
)
def test_bad_arguments_get_one_sentence(changes, message):
    for function in (generalized_leverage, network_influence):
        with pytest.raises(InputError, match=f"^{function.__name__}: {message}"):
            function(**bad(**changes))


class Crowd(nn.Linear):
    """Centres its inputs over the batch."""

    def __init__(self):
        super().__init__(WIDTH, 3)

    def forward(self, x):
        return super().forward(x - x.mean(0))


def test_bad_arguments_of_one_function():
    with pytest.raises(InputError, match=r"space must be one of 'probability', 'logit'; got 'odds'"):
        generalized_leverage(**bad(space="odds"))
    with pytest.raises(InputError, match=r"damping must be > 0 for softmax outputs; got 0"):
        generalized_leverage(**bad(damping=0.0))
    _, x, _, _ = case("softmax")
    with pytest.raises(InputError, match=r"network_influence: targets must be < 3, the number of outputs; got label 7"):
        network_influence(**bad(points=(x[:2], [0, 7])))
    # GLS does not look at the labels of points
    generalized_leverage(**bad(points=(x[:2], [0, 7])))
    with pytest.raises(InputError, match="must give a record the same output in any batch"):
        generalized_leverage(**bad(model=Crowd()))
