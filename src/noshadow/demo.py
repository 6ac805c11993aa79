"""The embedded default: a small real data set, a model trained on half of it, an audit."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from noshadow._audit import audit
from noshadow.arguments import PROGRESS
from noshadow.checks import Array, named_command, whole_seed
from noshadow.progress import tracked
from noshadow.results import Audit

WEIGHT_DECAY = 1e-4
EPOCHS = 200


@named_command("demo")
def demo_audit(*, seed: int = 0, progress: bool = PROGRESS) -> Audit:
    """Audit a small network trained on half of scikit-learn's handwritten digits.

    The half holds 898 of 1,797 images.

    A two-layer network (64 → 64 → 10), full-batch Adam, weight decay 1e-4, 200 epochs: it fits its
    training half almost perfectly, as many models in use do. The other half stands for the people
    it has not seen.

    Raises:
        InputError: the seed is not a whole number ≥ 0.

    Cost: a few seconds on two cores.
    """
    whole_seed(seed)
    train, test = digit_halves(seed)
    model = train_network(*train, seed=seed, progress=progress)
    ids = [f"digit-{row}" for row in half_rows(seed)[0]]
    return audit(model, train, test, weight_decay=WEIGHT_DECAY, ids=ids, progress=progress, seed=seed)


def half_rows(seed: int) -> tuple[Array, Array]:
    """Row numbers of the two halves of the digits, each in ascending order."""
    order = np.random.default_rng(seed).permutation(len(load_digits().target))
    half = len(order) // 2
    return np.sort(order[:half]), np.sort(order[half:])


def digit_halves(seed: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """(X, y) of the half that is trained on and of the other one; pixels scaled to [0, 1]."""
    digits = load_digits()
    pixels, labels = (digits.data / 16).astype(np.float32), digits.target
    inside, outside = half_rows(seed)
    return (pixels[inside], labels[inside]), (pixels[outside], labels[outside])


def train_network(features: Array, labels: Array, *, seed: int, progress: bool = PROGRESS) -> torch.nn.Sequential:
    """Train the demo's network.

    The same seed gives the same weights, and the caller's generator is left alone.
    """
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=WEIGHT_DECAY)
    for _ in tracked(range(EPOCHS), "training the demo model", show=progress):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model
