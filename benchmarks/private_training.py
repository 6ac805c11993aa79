"""Private training guided by a score: a smaller gradient bound for the records that an audit ranks highest, on one small real set.

`python -m benchmarks.private_training --data DIR --work DIR` trains the arms below by DP-SGD (Opacus) on halves of 1,000 Fashion-MNIST
images, attacks each arm with its own reference models, and writes benchmarks/results/private_training.json; finished arms are kept.
A record whose gradients are clipped at C/4 where the noise is σC has the noise multiplier 4σ: its own ε is that much smaller.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.optimizers import DPOptimizer

from benchmarks.canaries import drawn_records
from benchmarks.environment import environment
from benchmarks.papers import networks
from benchmarks.papers.columns import last_layer
from noshadow.attacks import attack_success, lira_scores
from noshadow.metrics import auc, tpr_at_fpr
from noshadow.reference import Recipe, plan

RESULT = Path(__file__).parent / "results" / "private_training.json"
RECORDS, MODELS, EPOCHS, BATCH, LR = 1_000, 32, 20, 50, 0.5
BOUND, NOISE, GUARDED, SMALLER = 1.0, 0.4, 0.1, 0.25
LEVEL = 0.05


class BoundedByRecord(DPOptimizer):
    """DP-SGD whose gradients are clipped at a bound of each record's own; the noise stays that of `max_grad_norm`."""

    def clip_and_accumulate(self):
        """Opacus' clipping with the bounds of the batch at hand, in `bounds`."""
        common, self.max_grad_norm = self.max_grad_norm, self.bounds
        try:
            super().clip_and_accumulate()
        finally:
            self.max_grad_norm = common


def build():
    return networks.perceptron(196, (64,), 10)


def trained_privately(x, y, rows, seed, bounds, noise):
    """One model by DP-SGD on Poisson draws of its rows; `bounds` (n,) hold a gradient bound of every record of the pool."""
    torch.manual_seed(seed)
    module = GradSampleModule(build())
    generator = torch.Generator().manual_seed(seed)
    optimiser = BoundedByRecord(
        torch.optim.SGD(module.parameters(), lr=LR),
        noise_multiplier=noise,
        max_grad_norm=BOUND,
        expected_batch_size=BATCH,
        generator=generator,
    )
    rng, share = np.random.default_rng(seed), BATCH / len(rows)
    for _ in range(round(EPOCHS / share)):
        drawn = rows[rng.random(len(rows)) < share]
        if len(drawn):
            optimiser.bounds = bounds[drawn]
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(x[drawn]), y[drawn]).backward()
            optimiser.step()
    return module._module.eval()


def scored_records(x, y):
    """`shift` of every record, each half of the pool by a plain model trained on it, as ranks within the half: larger is riskier."""
    recipe = Recipe(build, x, y, epochs=EPOCHS, batch_size=BATCH, lr=LR / 5, optimizer="sgd")
    halves, ranks = np.array_split(np.arange(len(x)), 2), np.zeros(len(x))
    for rows in halves:
        shift = last_layer(recipe, recipe(rows, 2_024), (x[rows], y[rows]))["shift"]
        ranks[rows] = np.argsort(np.argsort(shift, kind="stable"), kind="stable") / len(rows)
    return ranks


def arms(ranks):
    """Name → (bounds of all records, noise multiplier beside BOUND)."""
    n, rng = len(ranks), np.random.default_rng(2)
    guided, drawn = ranks >= 1 - GUARDED, np.zeros(n, bool)
    drawn[rng.permutation(n)[: int(guided.sum())]] = True

    def bounds(guarded):
        return torch.from_numpy(np.where(guarded, SMALLER * BOUND, BOUND)).float()

    nobody, everybody = np.zeros(n, bool), np.ones(n, bool)
    return {
        "clipped, no noise": (bounds(nobody), 0.0),
        "uniform": (bounds(nobody), NOISE),
        "guided": (bounds(guided), NOISE),
        "random tenth": (bounds(drawn), NOISE),
        "everybody guarded": (bounds(everybody), NOISE),
    }


def attacked(signals, member, group):
    """LiRA on the records of a group, each model attacked with all the others."""
    inside, outside = [], []
    for model in range(len(signals)):
        others = np.arange(len(signals)) != model
        scores = lira_scores(signals[model], signals[others], member[others], variance="global")[group]
        inside.append(scores[member[model][group]])
        outside.append(scores[~member[model][group]])
    known, unknown = np.concatenate(inside), np.concatenate(outside)
    d_prime = attack_success(signals, member, attack="lira", variance="global").d_prime[group]
    found = {"auc": auc(known, unknown), f"tpr_{LEVEL:g}": tpr_at_fpr(known, unknown, LEVEL), "d_prime": float(np.mean(d_prime))}
    return {key: round(value, 4) for key, value in found.items()}


def arm_outputs(path, x, y, member, seeds, bounds, noise):
    """(models, n, classes) outputs of one arm; models that are done are kept."""
    held = list(np.load(path)) if path.exists() else []
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    for model in range(len(held), len(member)):
        module = trained_privately(inputs, targets, np.flatnonzero(member[model]), int(seeds[model]), bounds, noise)
        with torch.inference_mode():
            held.append(module(inputs).numpy())
        if model % 8 == 7 or model == len(member) - 1:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path.with_suffix(".part.npy"), np.stack(held))
            path.with_suffix(".part.npy").rename(path)
    return np.stack(held)


def margins(outputs, y):
    """LiRA's statistic: log p_y − log Σ_{c≠y} p_c."""
    own = np.take_along_axis(outputs, np.broadcast_to(y[None, :, None], (*outputs.shape[:2], 1)), 2)[..., 0]
    rest = np.where(np.eye(outputs.shape[2], dtype=bool)[y][None], -np.inf, outputs)
    return own - np.logaddexp.reduce(rest, axis=2)


def epsilon(noise, members):
    """ε of Opacus' Rényi accountant at δ = 1/members after all steps; None without noise."""
    if noise == 0:
        return None
    accountant, share = RDPAccountant(), BATCH / members
    accountant.history = [(noise, share, round(EPOCHS / share))]
    return round(float(accountant.get_epsilon(delta=1 / members)), 2)


def measured(data, work):
    """What each arm costs in accuracy and leaves to the attack, on the guarded tenth and on all others."""
    x, y = (part[:RECORDS] for part in drawn_records(data))
    drawn, ranks = plan(len(x), models=MODELS, seed=0), scored_records(x, y)
    member, groups = np.asarray(drawn.membership), {"highest": ranks >= 1 - GUARDED, "others": ranks < 1 - GUARDED}
    found = {}
    for name, (bounds, noise) in arms(ranks).items():
        outputs = arm_outputs(work / "private" / f"{name.replace(' ', '_')}.npy", x, y, member, drawn.seeds, bounds, noise)
        correct, signals = outputs.argmax(2) == y, margins(outputs.astype(np.float64), y)
        own = {bound: epsilon(noise * BOUND / bound, len(x) // 2) for bound in (BOUND, SMALLER * BOUND)}
        found[name] = {
            "fit": {"members": round(float(correct[member].mean()), 4), "others": round(float(correct[~member].mean()), 4)},
            "fit_highest": round(float(correct[:, groups["highest"]][~member[:, groups["highest"]]].mean()), 4),
            "attack": {
                group: {key: round(value, 4) for key, value in attacked(signals, member, rows).items()} for group, rows in groups.items()
            },
            "epsilon": {"bound": own[BOUND], "smaller bound": own[SMALLER * BOUND]},
        }
        print(name, found[name], flush=True)
    settings = {
        "records": RECORDS,
        "models": MODELS,
        "noise": NOISE,
        "guarded": GUARDED,
        "smaller": SMALLER,
        "epochs": EPOCHS,
        "level": LEVEL,
    }
    return settings | {"arms": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="where outputs go; run again to go on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.process_time()
    entry = measured(arguments.data, arguments.work)
    entry |= {"processor_seconds": round(time.process_time() - started, 1), "environment": environment()}
    RESULT.write_text(json.dumps(entry, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
