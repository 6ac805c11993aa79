"""How close do the cheap scores come to the attacks? From nothing to the agreement table.

The same in three commands:
    noshadow audit examples.reference_models:digits --out my-audit
    noshadow reference train examples.reference_models:digits --out my-references --models 32
    noshadow reference score my-references --audit my-audit
"""

import tempfile

import numpy as np
import torch
from sklearn.datasets import load_digits

import noshadow as ns

WEIGHT_DECAY = 1e-4


def network():
    """The architecture, untrained."""
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def digits():
    """A small network trained on half of the digits, and the recipe that trains others like it."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order]
    recipe = ns.reference.Recipe(network, x, y, epochs=60, batch_size=64, optimizer="adam", lr=0.005, weight_decay=WEIGHT_DECAY)
    half = len(x) // 2
    model = recipe(np.arange(half), seed=0)
    return ns.Target(model, (x[:half], y[:half]), (x[half:], y[half:]), weight_decay=WEIGHT_DECAY, train_fn=recipe)


def main():
    target = digits()
    audit = ns.audit(target.model, target.train, target.test, weight_decay=WEIGHT_DECAY)
    with tempfile.TemporaryDirectory() as folder:
        references = ns.reference.train_references(folder, target.train_fn, target.train, target.test, model=target.model, models=32)
        audit = ns.reference.with_ground_truth(audit, references)
    for attack in audit.ground_truth.attacks:
        if attack.attacked == "target":
            print(f"{attack.attack:7} AUC {attack.auc:.3f}  ({attack.auc_interval[0]:.3f}–{attack.auc_interval[1]:.3f})")
    print("\nSpearman with LiRA's d′")
    rows = [*audit.ground_truth.agreement, *audit.ground_truth.ceiling]
    for row in sorted((r for r in rows if r["attack"] == "lira_d" and r["metric"] == "spearman"), key=lambda r: r["value"]):
        print(f"{row['score']:16} {row['value']:.3f}  ({row['low']:.3f}–{row['high']:.3f})")


if __name__ == "__main__":
    main()
