"""The setups of the calibration: data, network and training, from strongly regularised to fully overfit."""

import functools
import itertools
from dataclasses import asdict, dataclass

import torch
from torch import nn

from benchmarks.tail_calibration.pools import POOLS, pool
from noshadow.reference import Recipe


@dataclass(frozen=True)
class Setup:
    """One row of the calibration. `hidden`: widths of dense hidden layers; `channels`: of 3 × 3 convolutions before them.

    `mirrored`: training mirrors images at random, and the attack asks for each record's mirror image as well.
    """

    name: str
    data: str
    epochs: int
    hidden: tuple[int, ...] = ()
    channels: tuple[int, ...] = ()
    records: int = 4000
    lr: float = 1e-3
    optimizer: str = "adam"
    weight_decay: float = 1e-4
    batch_size: int = 64
    label_noise: float = 0.0
    augment: bool = False
    audited: int = 16
    mirrored: bool = False

    def described(self):
        """Its fields, ready for JSON."""
        return asdict(self)


class ShiftAndMirror(nn.Module):
    """Training-time augmentation: the batch's images mirrored at random, and moved by up to `pixels`."""

    def __init__(self, pixels=2):
        super().__init__()
        self.pixels = pixels

    def forward(self, x):
        """(b, c, h, w) → the same, unchanged outside of training."""
        if not self.training:
            return x
        flip = torch.rand(len(x), 1, 1, 1) < 0.5
        down, right = torch.randint(-self.pixels, self.pixels + 1, (2,)).tolist()
        return torch.roll(torch.where(flip, x.flip(-1), x), (down, right), (-2, -1))


def network(shape, channels, hidden, outputs, augment, mirror=False):
    """Convolutions with ReLU and 2 × 2 pooling, then dense ReLU layers, then the linear head."""
    layers, widths = ([ShiftAndMirror(2 if augment else 0)] if augment or mirror else []), list(channels)
    for before, after in itertools.pairwise([shape[0], *widths]):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    flat = shape[0] * (shape[1] * shape[2] if len(shape) == 3 else 1)
    if widths:
        side = functools.reduce(lambda size, _: size // 2, widths, shape[1])
        flat = widths[-1] * side * side
    layers.append(nn.Flatten())
    for before, after in itertools.pairwise([flat, *hidden]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1] if hidden else flat, outputs))


def recipe(setup, data, work, pools=POOLS):
    """The setup's pool and how every model of it is trained."""
    x, y = pool(setup.data, data, work, records=setup.records, label_noise=setup.label_noise, pools=pools)
    build = functools.partial(network, x.shape[1:], setup.channels, setup.hidden, int(y.max()) + 1, setup.augment, setup.mirrored)
    return Recipe(
        build,
        x,
        y,
        epochs=setup.epochs,
        batch_size=setup.batch_size,
        optimizer=setup.optimizer,
        lr=setup.lr,
        momentum=0.9 if setup.optimizer == "sgd" else 0.0,
        weight_decay=setup.weight_decay,
    )


# Ordered so that every prefix covers several data sets and regimes: a run that is stopped early is still a calibration.
DENSE = (
    Setup("cifar10_mlp128x2", "cifar10", 30, (128, 128)),
    Setup("fashion_mlp128x2", "fashion_mnist", 30, (128, 128)),
    Setup("sst2_mlp64", "sst2", 30, (64,)),
    Setup("pneumonia_mlp64", "pneumonia_mnist", 20, (64,)),
    Setup("california_mlp64x2", "california", 100, (64, 64)),
    Setup("cifar100_mlp64", "cifar100_coarse", 20, (64,)),
    Setup("cifar10_mlp64_early", "cifar10", 8, (64,)),
    Setup("fashion_linear", "fashion_mnist", 20, audited=8),
    Setup("sst2_linear", "sst2", 20),
    Setup("pneumonia_mlp128x2_noise", "pneumonia_mnist", 60, (128, 128), label_noise=0.1),
    Setup("california_mlp128x3", "california", 200, (128, 128, 128), audited=64),
    Setup("cifar100_mlp128x2", "cifar100_coarse", 40, (128, 128)),
    Setup("fashion_mlp64x2_noise", "fashion_mnist", 30, (64, 64), label_noise=0.1),
    Setup("sst2_mlp64x2", "sst2", 40, (64, 64), weight_decay=1e-5),
    Setup("pneumonia_linear", "pneumonia_mnist", 30, weight_decay=1e-3),
    Setup("california_linear", "california", 60, lr=1e-2),
    Setup("cifar10_linear", "cifar10", 20, weight_decay=1e-2, audited=8),
    Setup("cifar100_mlp32", "cifar100_coarse", 30, (32,), weight_decay=1e-3),
    Setup("fashion_mlp64_early", "fashion_mnist", 5, (64,)),
    Setup("sst2_mlp64_noise", "sst2", 40, (64,), label_noise=0.1),
    Setup("pneumonia_mlp64x2", "pneumonia_mnist", 40, (64, 64)),
    Setup("california_mlp64_noise", "california", 100, (64,), label_noise=0.1),
    Setup("cifar10_mlp64_sgd_6000", "cifar10", 20, (64,), records=6000, optimizer="sgd", lr=0.02, weight_decay=5e-4),
    Setup("cifar100_mlp64_decay", "cifar100_coarse", 20, (64,), weight_decay=1e-2),
    Setup("fashion_mlp64_6000", "fashion_mnist", 20, (64,), records=6000),
    Setup("sst2_mlp64_6000", "sst2", 15, (64,), records=6000),
    Setup("california_mlp64x2_8000", "california", 60, (64, 64), records=8000),
    Setup("cifar10_mlp64x2_noise", "cifar10", 25, (64, 64), label_noise=0.1),
    Setup("sst2_mlp64_decay", "sst2", 30, (64,), weight_decay=3e-3),
    Setup("fashion_mlp64x2_sgd", "fashion_mnist", 40, (64, 64), optimizer="sgd", lr=0.02, weight_decay=5e-4),
    Setup("california_mlp64x2_decay", "california", 60, (64, 64), weight_decay=1e-2),
    Setup("cifar100_fine_mlp64", "cifar100_fine", 20, (64,), audited=8),
    Setup("cifar10_mlp64x3_decay", "cifar10", 20, (64, 64, 64), weight_decay=1e-3),
    Setup("cifar10_mlp128_noise50", "cifar10", 30, (128,), label_noise=0.5),
    Setup("fashion_mlp128_noise40", "fashion_mnist", 40, (128,), label_noise=0.4),
    Setup("sst2_mlp64x2_noise40", "sst2", 40, (64, 64), label_noise=0.4),
)
CONVOLUTIONAL = (
    Setup("cifar10_cnn", "cifar10", 25, channels=(8, 16)),
    Setup("pneumonia_cnn", "pneumonia_mnist", 15, channels=(4, 8)),
    Setup("fashion_cnn_noise", "fashion_mnist", 15, channels=(4, 8), label_noise=0.1, audited=8),
    Setup("cifar100_cnn", "cifar100_coarse", 20, channels=(8, 16), audited=8),
    Setup("cifar10_cnn_augmented", "cifar10", 20, channels=(8, 16), augment=True),
    Setup("fashion_cnn_dense", "fashion_mnist", 12, channels=(4, 8), hidden=(64,)),
    Setup("cifar10_cnn_dense", "cifar10", 15, channels=(8, 16), hidden=(64,), lr=2e-3, weight_decay=5e-4),
)
SETUPS = {setup.name: setup for setup in (*DENSE, *CONVOLUTIONAL)}
