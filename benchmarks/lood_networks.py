"""Does leave-one-out distinguishability predict trained networks? Networks trained with and without each of a few dozen records."""

import functools
import itertools
import math
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from lood_data import BOX, car_plane, correlation, one_by_one, rounded
from scipy.stats import rankdata
from torch import nn

from noshadow._lood import lood_scores, nngp_kernel
from noshadow.reference import Recipe

MODULES = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}
NOISE_SHARES = (0.01, 0.1, 1.0)
GRADIENT_MODELS = 3
CHECKPOINTS = (0.1, 0.25, 0.5, 0.75, 1.0)
REACH = 50  # of 255: how far [LOOD] Figure 4 perturbs every pixel


@dataclass(frozen=True)
class Plan:
    """What is trained: n records of side × side pixels, `chosen` of them left out in turn, `seeds` models without each."""

    n: int = 300
    side: int = 8
    chosen: int = 50
    seeds: int = 20
    seeds_with: int = 100
    width: int = 128
    depth: int = 2
    activation: str = "relu"
    epochs: int = 40
    lr: float = 0.01
    batch_size: int = 50
    points: int = 41


def network(inputs, width, depth, activation):
    """Fully connected network whose first weights have the law that `nngp_kernel` takes: variance 2 over fan-in, no biases at first."""
    widths = [inputs, *[width] * depth]
    layers = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), MODULES[activation]())]
    module = nn.Sequential(*layers, nn.Linear(width, 1))
    for layer in module:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.in_features))
            nn.init.zeros_(layer.bias)
    return module


def recipe_of(plan, x, y):
    build = functools.partial(network, x.shape[1], plan.width, plan.depth, plan.activation)
    return Recipe(
        build, x.astype(np.float32), y, task="regression", epochs=plan.epochs, batch_size=plan.batch_size, optimizer="sgd", lr=plan.lr
    )


def trained_networks(data, *, quick, work=None, **changes):
    """Correlations of the Gaussian process's figures and of two baselines with what leave-one-out training shows, and the attack along
    perturbations of each record.
    """
    plan = replace(Plan(), **changes)
    if quick:
        plan = replace(plan, n=40, chosen=4, seeds=3, seeds_with=5, width=16, epochs=3, points=5)
    x, y = car_plane(data, plan.n, side=plan.side)
    x = x.reshape(plan.n, -1)
    recipe = recipe_of(plan, x, y)
    chosen = np.sort(np.random.default_rng(0).permutation(plan.n)[: plan.chosen])
    sizes, queries = perturbed(x[chosen], plan.points)
    clock = time.process_time()
    with_record, full = predictions(recipe, np.arange(plan.n), range(plan.seeds_with), queries)
    seconds = {"networks": time.process_time() - clock, "trained": plan.seeds_with + plan.chosen * plan.seeds}

    def left_out(place):
        return predictions(recipe, np.delete(np.arange(plan.n), chosen[place]), range(plan.seeds), queries[place])[0].tolist()

    found, spent = one_by_one(left_out, range(plan.chosen), kept_in(work, plan))
    without = np.stack(list(map(np.array, found)), axis=1)
    seconds["networks"] += spent
    seconds |= {"process": process_seconds(plan, x, y)}
    middle = plan.points // 2
    truth = observed(with_record[:, :, middle], without[:, :, middle], y[chosen])
    estimates = process_estimates(plan, x, y, chosen) | gradient_estimates(recipe, full[:GRADIENT_MODELS], chosen)
    return {
        "plan": vars(plan),
        "training_loss": float(np.mean([training_loss(model, recipe) for model in full[:GRADIENT_MODELS]])),
        "truth": {name: rounded(values) for name, values in truth.items()},
        "estimates": {name: rounded(values) for name, values in estimates.items()},
        "correlations": correlations(truth, estimates),
        "reliability": reliability(with_record[:, :, middle], without[:, :, middle], y[chosen]),
        "perturbed": attack_along(with_record, without, y[chosen], sizes),
        "seconds": seconds,
    }


def kept_in(work, plan):
    """The file that keeps the outputs of networks trained without each record under this plan."""
    return None if work is None else work / f"networks-{'-'.join(map(str, vars(plan).values()))}.jsonl"


def perturbed(records, points):
    """Sizes (points,) in steps of 255 and queries (records, points, d): each record along a random direction, itself in the middle."""
    sizes = np.linspace(-REACH, REACH, points)
    directions = np.random.default_rng(5).uniform(-1, 1, records.shape)
    return sizes, records[:, None] + (BOX[1] - BOX[0]) / 255 * sizes[:, None] * directions[:, None]


def attack_along(with_record, without, y, sizes):
    """AUC of the loss as an attack at every query (records × points), and where each record's is largest; ties share their mean place."""
    curves = np.stack([observed(with_record[:, :, k], without[:, :, k], y)["auc"] for k in range(len(sizes))], axis=1)
    peaks = np.array([sizes[row >= row.max() - 1e-12].mean() for row in curves])
    middle = curves[:, len(sizes) // 2]
    return {
        "sizes": rounded(sizes),
        "mean_curve": rounded(curves.mean(0)),
        "curves": [rounded(row) for row in curves[:5]],
        "peaks": rounded(peaks),
        "peak_mean": float(peaks.mean()),
        "peak_deviation": float(peaks.std()),
        "largest_over_record": float((curves.max(1) - middle).mean()),
        "at_ends": float((middle - (curves[:, 0] + curves[:, -1]) / 2).mean()),
    }


def process_seconds(plan, x, y, repeats=5):
    """Processor seconds of kernel and scores of all n records: the median of a few calls."""
    spent = []
    for _ in range(repeats):
        clock = time.process_time()
        matrix = nngp_kernel(x, depth=plan.depth, activation=plan.activation).numpy()
        lood_scores(matrix, y, noise=NOISE_SHARES[1] * float(matrix.diagonal().mean()))
        spent.append(time.process_time() - clock)
    return float(np.median(spent))


def predictions(recipe, rows, seeds, at):
    """Outputs (models, …) of networks trained on `rows` at queries (…, d), and the networks."""
    seeds = list(seeds)
    models = recipe.train_many([rows] * len(seeds), seeds)
    inputs = torch.from_numpy(at.reshape(-1, at.shape[-1]).astype(np.float32))
    with torch.no_grad():
        return np.stack([model(inputs)[:, 0].double().numpy().reshape(at.shape[:-1]) for model in models]), models


def training_loss(model, recipe):
    with torch.no_grad():
        return float(((model(recipe.x) - recipe.y.reshape(-1, 1)) ** 2).mean())


def observed(with_record, without, y):
    """AUC of the loss as an attack, size of the change of the mean prediction, a record each."""
    return {
        "auc": np.array([auc(-((a - t) ** 2), -((b - t) ** 2)) for a, b, t in zip(with_record.T, without.T, y, strict=True)]),
        "prediction_change": np.abs(with_record[: len(without)].mean(0) - without.mean(0)),
    }


def auc(members, others):
    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    return (ranks.sum() - len(members) * (len(members) + 1) / 2) / (len(members) * len(others))


def reliability(with_record, without, y):
    """Correlation over records of the truth measured with one half of the seeds and with the other: what no estimate can much exceed."""
    halves = [observed(with_record[part::2], without[part::2], y) for part in (0, 1)]
    return {name: correlation(halves[0][name], halves[1][name], ranks=True) for name in halves[0]}


def process_estimates(plan, x, y, chosen):
    matrix = nngp_kernel(x, depth=plan.depth, activation=plan.activation).numpy()
    estimates = {}
    for share in NOISE_SHARES:
        scores = lood_scores(matrix, y, noise=share * float(matrix.diagonal().mean()))
        estimates |= {
            f"kl_{share:g}": scores.kl[chosen],
            f"distance_{share:g}": np.sqrt(2 * scores.mean_distance[chosen]),
            f"gp_auc_{share:g}": scores.auc[chosen],
        }
    return estimates


def gradient_estimates(recipe, models, chosen):
    """Influence (Gauss–Newton, damped) and TracIn at each record itself, means over a few models trained with everything."""
    influence = np.mean([self_influence(model, recipe, chosen) for model in models], axis=0)
    tracin = np.zeros(len(chosen))
    for share in CHECKPOINTS:
        # Constant learning rate and seeded batches: fewer epochs are an earlier moment of the same run.
        early = replace(recipe, epochs=max(1, round(share * recipe.epochs)))
        for model in early.train_many([np.arange(len(recipe.x))] * len(models), list(range(len(models)))):
            slopes, residuals = slopes_and_residuals(model, recipe)
            tracin += recipe.lr * 4 * residuals[chosen] ** 2 * (slopes[chosen] ** 2).sum(1) / len(models)
    return {"influence": influence, "tracin": tracin}


def slopes_and_residuals(model, recipe):
    """Gradients of the output (n, parameters) and output minus target (n,), float64."""
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def output(values, row):
        return torch.func.functional_call(model, values, (row[None],))[0, 0]

    parts = torch.func.vmap(torch.func.grad(output), (None, 0))(parameters, recipe.x)
    slopes = torch.cat([part.flatten(1) for part in parts.values()], 1).double().numpy()
    with torch.no_grad():
        return slopes, (model(recipe.x)[:, 0] - recipe.y.reshape(-1)).double().numpy()


def self_influence(model, recipe, chosen):
    """First-order change of each record's own prediction without it: |residual|·[K(K + λI)⁻¹]_ii, λ a tenth of K's mean diagonal."""
    slopes, residuals = slopes_and_residuals(model, recipe)
    kernel = slopes @ slopes.T
    damped = kernel + 0.1 * kernel.diagonal().mean() * np.eye(len(kernel))
    return np.abs(residuals[chosen]) * np.linalg.solve(damped, kernel).diagonal()[chosen]


def correlations(truth, estimates):
    """Spearman and Pearson of every estimate with both truths; intervals over records."""
    return {
        target: {
            name: {"spearman": correlation(values, truth[target], ranks=True), "pearson": correlation(values, truth[target], ranks=False)}
            for name, values in estimates.items()
        }
        for target in truth
    }
