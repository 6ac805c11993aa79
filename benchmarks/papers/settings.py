"""The settings of [RET] Tables 1–5 and [GLS] Table 2: data, network, training as published, and what had to differ."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.papers import networks, pools
from noshadow.reference import Recipe

POOL_SEED = 0
QUICK = {"records": 240, "targets": 3, "limit": 240}
# Models of which a record is on the rarer side, in a quick run.
QUICK_RARER = 6
QUICK_SOLVED = 4
QUICK_EPOCHS = 2


@dataclass(frozen=True)
class Setting:
    """One row of the papers' tables.

    Attributes:
        name, title: of the row; how it departs from the paper stands in differs.json.
        pool: (data, work, limit) → inputs, targets. records: how many of them; None: all.
        build: (inputs' shape, outputs) → a function that makes the network.
        training: epochs, batch_size, lr, optimizer, … of `Recipe`.
        references: models; each record's truth on a scored model is measured with all the others. targets: how many are scored.
        network: how the whole network is scored: "dual", "projected", or None: not.
        engine: of `train_references`; "one-by-one" keeps each model as it is trained.
        limit: records of the pool that are embedded at all; None: every one.
        depths: numbers of last layers over which the leverage score is taken too ([GLS] Table 2).
        fraction: share of the records that each model is trained on.
        hours: expected processor hours of one core, of settings that run only when they are asked for by name; None: it always runs.
        kept: what its reference models say is kept in the repository in small files (`benchmarks.papers.kept`), so that a run can go on
            elsewhere; the models' outputs are not kept then, and Shokri's attack is left out.
        solved: records of the audited model whose score is also solved for by conjugate gradients, as published in [GLS].
    """

    name: str
    title: str
    pool: Callable
    build: Callable
    training: dict = field(repr=False)
    records: int | None = None
    references: int = 200
    targets: int = 16
    network: str | None = None
    depths: tuple = ()
    engine: str = "auto"
    limit: int | None = None
    fraction: float = 0.5
    solved: int = 0
    hours: float | None = None
    kept: bool = False


def quick(setting):
    """The same path on a few records with a few models: shows that it runs, not what it finds."""
    models = round(QUICK_RARER / min(setting.fraction, 1 - setting.fraction))
    solved, training = min(setting.solved, QUICK_SOLVED), setting.training | {"epochs": QUICK_EPOCHS}
    return replace(setting, training=training, solved=solved, references=models, kept=False, **QUICK)


def members(setting, n):
    """How many of the first records the audited model is trained on."""
    return int(setting.fraction * n)


def records(setting, data, work):
    """(inputs, targets, rows): a fixed random order of the pool, cut to size; rows are their numbers in the pool.

    The first of them (`members`) are the records of the model that is audited.
    """
    x, y = setting.pool(data, work, setting.limit)
    rows = np.random.default_rng(POOL_SEED).permutation(len(x))[: setting.records]
    targets = y[rows].astype(np.int64 if y.dtype.kind in "iu" else np.float64)
    return np.ascontiguousarray(x[rows], dtype=np.float32), targets, rows


def recipe(setting, x, y):
    """How the audited model, the targets and the references are trained."""
    outputs = int(y.max()) + 1 if y.dtype.kind == "i" else 1
    return Recipe(setting.build(x.shape[1:], outputs), x, y, **setting.training)


def _linear(shape, outputs):
    return functools.partial(networks.linear, shape[0], outputs)


def _perceptron(widths, dropout=0.0):
    return lambda shape, outputs: functools.partial(networks.perceptron, shape[0], widths, outputs, dropout)


def _convolutional(shape, outputs):
    return functools.partial(networks.convolutional, shape[0], (16, 32, 64), 128, outputs)


def _convolutional_half(shape, outputs):
    return functools.partial(networks.convolutional, shape[0], (16, 32, 64), 128, outputs, half=True)


def _residual(width, blocks, dropout=0.0):
    return lambda shape, outputs: functools.partial(networks.residual, width, blocks, outputs, dropout)


def _pretrained(shape, outputs):
    return functools.partial(networks.PretrainedEncoder, outputs)


def _encoder(shape, outputs):
    return functools.partial(networks.SentenceEncoder, 16_384, shape[0], outputs)


ADAM, ADAMW, SGD = {"optimizer": "adam"}, {"optimizer": "adamw"}, {"optimizer": "sgd", "momentum": 0.9}
ALL = (
    Setting(
        "energy_mlp",
        "UCI Energy, MLP",
        pools.energy,
        _perceptron((64, 32), 0.3),
        ADAM | {"epochs": 300, "batch_size": 32, "lr": 1e-3, "weight_decay": 1e-3},
        records=614,
        network="dual",
    ),
    Setting(
        "california_ridge",
        "California Housing, linear regression",
        pools.california,
        _linear,
        ADAM | {"epochs": 200, "batch_size": 256, "lr": 1e-2, "weight_decay": 1e-3},
        records=16_512,
    ),
    Setting(
        "pneumonia_probe",
        "PneumoniaMNIST, linear head on EfficientNet-lite0",
        pools.pneumonia_features,
        _linear,
        SGD | {"epochs": 100, "batch_size": 512, "lr": 1e-2, "weight_decay": 1e-6},
    ),
    Setting(
        "fashion_probe",
        "Fashion-MNIST, eight classes, linear head on EfficientNet-lite0",
        pools.fashion_features,
        _linear,
        SGD | {"epochs": 100, "batch_size": 512, "lr": 1e-2, "weight_decay": 1e-6},
    ),
    Setting(
        "sst2_probe",
        "SST-2, linear head on MiniLM",
        pools.sst2_embeddings,
        _linear,
        ADAMW | {"epochs": 10, "batch_size": 32, "lr": 1e-3, "weight_decay": 1e-2},
    ),
    Setting(
        "california_mlp",
        "California Housing, MLP",
        pools.california,
        _perceptron((128, 128, 128)),
        ADAM | {"epochs": 200, "batch_size": 256, "lr": 1e-3, "weight_decay": 5e-4},
        records=16_512,
        network="dual",
    ),
    Setting(
        "cifar10_cnn",
        "CIFAR-10, CNN",
        pools.cifar10,
        _convolutional,
        ADAMW | {"epochs": 25, "batch_size": 256, "lr": 1e-3, "weight_decay": 5e-4},
        records=10_000,
        references=48,
        network="dual",
        engine="one-by-one",
    ),
    Setting(
        "cifar10_residual",
        "CIFAR-10, residual network",
        pools.halved(pools.cifar10),
        _residual(8, 1),
        ADAMW | {"epochs": 40, "batch_size": 64, "lr": 1e-2, "weight_decay": 5e-4, "schedule": "cosine"},
        records=6_000,
        references=48,
        targets=8,
        depths=(2, 4, "all"),
        engine="one-by-one",
    ),
    Setting(
        "fashion_depths",
        "Fashion-MNIST, MLP of five layers",
        pools.fashion_small,
        _perceptron((128, 64, 64, 64)),
        ADAMW | {"epochs": 60, "batch_size": 64, "lr": 2e-3, "weight_decay": 5e-4, "schedule": "cosine"},
        records=8_000,
        references=64,
        targets=8,
        depths=(2, 4, "all"),
        fraction=0.8,
        solved=128,
    ),
    Setting(
        "sst2_bert",
        "SST-2, two-layer encoder from scratch",
        pools.sst2_tokens,
        _encoder,
        ADAMW | {"epochs": 3, "batch_size": 32, "lr": 1e-4, "weight_decay": 1e-2},
        records=20_000,
        references=32,
        targets=8,
        network="projected",
        engine="one-by-one",
    ),
    Setting(
        "cifar100_resnet",
        "CIFAR-100 subset, ResNet-20",
        pools.halved(pools.cifar100),
        _residual(16, 3, 0.3),
        ADAMW | {"epochs": 40, "batch_size": 64, "lr": 5e-3, "weight_decay": 5e-4, "schedule": "cosine", "warmup": 0.1},
        records=7_000,
        references=24,
        targets=8,
        engine="one-by-one",
    ),
    Setting(
        "cifar10_full",
        "CIFAR-10, all 50,000 records, CNN",
        pools.cifar10,
        _convolutional_half,
        ADAMW | {"epochs": 25, "batch_size": 256, "lr": 1e-3, "weight_decay": 5e-4},
        references=48,
        targets=8,
        engine="one-by-one",
        hours=2.5,
        kept=True,
    ),
    Setting(
        "cifar100_full",
        "CIFAR-100, 15,000 images, ResNet-20",
        pools.cifar100,
        _residual(16, 3, 0.3),
        SGD | {"epochs": 50, "batch_size": 256, "lr": 1e-3, "weight_decay": 5e-4},
        references=48,
        targets=8,
        engine="one-by-one",
        hours=11.5,
    ),
    Setting(
        "sst2_minilm",
        "SST-2, two layers of MiniLM fine-tuned",
        pools.sst2_word_pieces,
        _pretrained,
        ADAMW | {"epochs": 3, "batch_size": 32, "lr": 1e-4, "weight_decay": 1e-2},
        records=20_000,
        references=24,
        targets=8,
        engine="one-by-one",
        hours=2.5,
    ),
)
SETTINGS = {setting.name: setting for setting in ALL}
# What runs without being asked for by name.
ALWAYS = tuple(name for name, setting in SETTINGS.items() if setting.hours is None)
