"""What is trained: calibration setups that choose the rules, and the papers' settings that judge them.

No calibration setup equals a judging setting. Some share a data set with one, which each entry says: other records of it, another
network, another training.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.exposure import data_sets, text_networks
from benchmarks.papers import settings as papers
from benchmarks.papers.networks import SentenceEncoder
from benchmarks.tail_calibration.setups import network
from noshadow.reference import Recipe

ADAM, SGD = {"optimizer": "adam", "batch_size": 64, "lr": 1e-3}, {"optimizer": "sgd", "momentum": 0.9, "batch_size": 64}


@dataclass(frozen=True)
class Setup:
    """Data, network and training of one setup, and how many models of it.

    Attributes:
        name, title: of the setup. source: the data set.
        records: (data, work) → inputs, targets. build: (inputs' shape, outputs) → a function that makes the network.
        training: epochs, batch_size, lr, … of `Recipe`.
        seconds: processor seconds that its models were expected to take before they were trained.
        targets, references, truth: models that are audited, that methods may use, and that no method sees. folded: targets with folds.
        judging: whether it judges; all others choose.
        engine: "one-by-one" trains each model by itself, which is faster where convolutions or attention would be stacked.
    """

    name: str
    title: str
    source: str
    records: Callable = field(repr=False)
    build: Callable = field(repr=False)
    training: dict = field(repr=False)
    seconds: int = 100
    targets: int = 8
    references: int = 16
    truth: int = 56
    folded: int = 4
    judging: bool = False
    engine: str = "auto"

    @property
    def models(self):
        """Models on random halves."""
        return self.targets + self.references + self.truth


def recipe(setup, x, y):
    """How every model of the setup is trained."""
    outputs = int(y.max()) + 1 if y.dtype.kind == "i" else 1
    return Recipe(setup.build(x.shape[1:], outputs), x, y, **setup.training)


def _network(hidden=(), channels=()):
    return lambda shape, outputs: functools.partial(network, shape, channels, hidden, outputs, False)


def _adam(epochs, **more):
    return ADAM | {"epochs": epochs, "weight_decay": 1e-4} | more


CALIBRATION = (
    Setup("fashion_mlp", "Fashion-MNIST, MLP", "fashion_mnist", data_sets.classes("fashion_mnist", 6000), _network((96,)), _adam(30)),
    Setup(
        "fashion_noise",
        "Fashion-MNIST, MLP, 15 % wrong labels",
        "fashion_mnist",
        data_sets.classes("fashion_mnist", 5000, 0.15),
        _network((96,)),
        _adam(40),
    ),
    Setup(
        "cifar10_heart", "CIFAR-10, MLP by heart", "cifar10", data_sets.classes("cifar10", 5000), _network((128,)), _adam(40), seconds=150
    ),
    Setup(
        "cifar10_decay",
        "CIFAR-10, MLP, strong decay",
        "cifar10",
        data_sets.classes("cifar10", 5000),
        _network((96,)),
        _adam(30, weight_decay=5e-3),
    ),
    Setup(
        "california_classes",
        "California by price class, MLP",
        "california",
        data_sets.classes("california", 6000),
        _network((64, 64)),
        _adam(80),
        seconds=80,
    ),
    Setup(
        "california_prices",
        "California prices, MLP regression",
        "california",
        data_sets.california_prices(6000),
        _network((64, 32)),
        _adam(60),
        seconds=100,
    ),
    Setup(
        "california_ages",
        "California ages of houses, wide MLP regression with decay",
        "california",
        data_sets.california_ages(6000),
        _network((128, 64)),
        _adam(80, weight_decay=1e-3),
        seconds=80,
    ),
    Setup("digits_mlp", "digits, MLP", "digits", data_sets.digits(), _network((64,)), _adam(60), seconds=60),
    Setup("digits_noise", "digits, wide MLP, 10 % wrong labels", "digits", data_sets.digits(0.1), _network((256,)), _adam(80), seconds=100),
    Setup("shakespeare", "Shakespeare, next letter, MLP", "text", data_sets.shakespeare(6000), _network((96,)), _adam(20), seconds=80),
    Setup(
        "pneumonia_pixels",
        "PneumoniaMNIST pixels, MLP",
        "pneumonia_mnist",
        data_sets.classes("pneumonia_mnist", 4000),
        _network((64, 64)),
        SGD | {"epochs": 40, "lr": 1e-2, "weight_decay": 1e-4},
    ),
    Setup(
        "fashion_short",
        "Fashion-MNIST, MLP stopped early",
        "fashion_mnist",
        data_sets.classes("fashion_mnist", 6000),
        _network((64,)),
        _adam(6),
        seconds=40,
    ),
    Setup(
        "cifar100_coarse",
        "CIFAR-100 by 20 classes, MLP",
        "cifar100",
        data_sets.classes("cifar100_coarse", 5000),
        _network((96,)),
        _adam(30, weight_decay=1e-3),
    ),
    Setup(
        "fashion_linear",
        "Fashion-MNIST, linear",
        "fashion_mnist",
        data_sets.classes("fashion_mnist", 5000),
        _network(),
        _adam(60, weight_decay=1e-3),
        seconds=60,
    ),
    Setup(
        "cifar10_small_cnn",
        "CIFAR-10, two small convolutions",
        "cifar10",
        data_sets.classes("cifar10", 3000),
        _network((32,), (8, 16)),
        _adam(24, lr=2e-3),
        seconds=340,
        truth=40,
        engine="one-by-one",
    ),
    # Added after the encoder had failed: networks over words and letters that are sure of their mistakes. The sentences are none of
    # the judged encoder's, but all sentences of SST-2 are among those of the linear head on MiniLM; the networks are others.
    Setup(
        "sst2_bag",
        "SST-2, mean of word vectors, MLP",
        "sst2",
        data_sets.sentences_left(6000),
        lambda _shape, outputs: functools.partial(text_networks.WordBag, 16_384, outputs, 48, 48),
        _adam(12, lr=3e-3),
        seconds=200,
        truth=40,
        engine="one-by-one",
    ),
    Setup(
        "sst2_attention",
        "SST-2, one small attention layer",
        "sst2",
        data_sets.sentences_left(6000, first=6000),
        lambda shape, outputs: functools.partial(SentenceEncoder, 16_384, shape[0], outputs, width=32, layers=1),
        _adam(8),
        seconds=400,
        truth=40,
        engine="one-by-one",
    ),
    Setup(
        "shakespeare_vowels",
        "Shakespeare, vowel or not, letter vectors, MLP",
        "text",
        data_sets.shakespeare_vowels(6000),
        lambda shape, outputs: functools.partial(text_networks.LetterWindow, 64, shape[0], outputs, 8, 64),
        _adam(40),
        seconds=200,
        truth=40,
    ),
)


def _paper(name, seconds, **models):
    setting = papers.SETTINGS[name]

    def drawn(data, work):
        x, y, _ = papers.records(setting, data, work)
        return x, y

    return Setup(
        setting.name,
        setting.title,
        name.split("_")[0],
        drawn,
        setting.build,
        setting.training,
        seconds,
        judging=True,
        engine=setting.engine,
        **models,
    )


# In the order of their price. Where models are dear there are fewer of them.
JUDGING = (
    _paper("energy_mlp", 60),
    _paper("california_ridge", 60),
    _paper("pneumonia_probe", 200),
    _paper("california_mlp", 1100),
    _paper("cifar10_residual", 1000, targets=4, references=8, truth=24, folded=1),
    _paper("sst2_probe", 900),
    # Fewer models than planned at first (16 references, 32 for the truth): what a few hours of training allow.
    _paper("cifar10_cnn", 1500, targets=4, references=8, truth=24, folded=1),
    _paper("sst2_bert", 2200, targets=3, references=8, truth=20, folded=1),
    _paper("cifar100_resnet", 2600, targets=3, references=8, truth=20, folded=1),
)
SETUPS = {setup.name: setup for setup in (*CALIBRATION, *JUDGING)}
