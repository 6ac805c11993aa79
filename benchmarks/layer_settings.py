"""Real settings with LiRA truth for `which_layers.py`: data, training, reference models and targets, all resumable.

`python benchmarks/layer_settings.py --data DIR --work DIR [--only NAME]` trains what is missing. Reference models are stored by
`noshadow.reference` (what each says about every record); the weights of the targets, trained alike on other random halves, beside them.
"""

import argparse
import functools
import gzip
import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from noshadow.reference import Recipe, load_references, status, train_references

TARGETS = 8
CHECKPOINTS = 3
TARGET_SEED = 77_000


@dataclass(frozen=True)
class Setting:
    """A data set, how its models are trained, and how many there are."""

    name: str
    recipe: Recipe
    references: int
    note: str


def perceptron(inputs, width, outputs, hidden):
    """Plain ReLU network with `hidden` layers of one width."""
    widths = [inputs, *[width] * hidden]
    layers = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(width, outputs))


def tapering(inputs, widths, outputs):
    """Plain ReLU network with hidden layers of the given widths."""
    layers = [part for a, b in itertools.pairwise((inputs, *widths)) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def convolutional(channels, widths, outputs, cells):
    """3 × 3 convolutions with ReLU and 2 × 2 pooling, then one linear layer."""
    steps = zip([channels, *widths], widths, strict=False)
    layers = [part for a, b in steps for part in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(widths[-1] * cells, outputs))


def california(data):
    lon, lat, age, rooms, bed, pop, households, income, value = np.loadtxt(data / "california_housing/cal_housing.data.gz", delimiter=",").T
    x = np.c_[income, age, rooms / households, bed / households, pop, pop / households, lat, lon]
    y = value / 1e5
    rows = np.random.default_rng(0).permutation(len(x))[:16_512]
    x, y = (x[rows] - x[rows].mean(0)) / x[rows].std(0), y[rows]
    build = functools.partial(perceptron, 8, 128, 1, 3)
    recipe = Recipe(build, x.astype(np.float32), y, epochs=200, batch_size=256, optimizer="adam", lr=1e-3, weight_decay=5e-4)
    return Setting("california_mlp", recipe, 64, "California Housing, MLP [128]³ and training of [RET] Tables 2–3")


def pneumonia(data):
    with np.load(data / "pneumoniamnist/pneumoniamnist.npz") as arrays:
        x, y = arrays["train_images"], arrays["train_labels"].ravel().astype(np.int64)
    x = (x[:, None] / 255.0 - 0.57).astype(np.float32) / 0.17
    build = functools.partial(convolutional, 1, (8, 16), 2, 49)
    recipe = Recipe(build, x, y, epochs=30, batch_size=64, optimizer="adam", lr=1e-3, weight_decay=1e-4)
    return Setting("pneumonia_cnn", recipe, 64, "PneumoniaMNIST, two convolutions, Adam")


def _cifar10(data):
    names = [f"data_batch_{i}" for i in range(1, 6)]
    with np.load(data / "cifar10/labels.npz") as labels:
        y = np.concatenate([labels[name] for name in names]).astype(np.int64)
    mosaics = [np.asarray(Image.open(data / f"cifar10/{name}.webp").convert("RGB")) for name in names]
    x = np.concatenate([m.reshape(100, 32, 100, 32, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, 32, 32) for m in mosaics])
    return (x / 255.0 - 0.473).astype(np.float32) / 0.25, y


def cifar_mlp(data):
    x, y = _cifar10(data)
    rows = np.random.default_rng(0).permutation(len(x))[:10_000]
    small = x[rows].reshape(-1, 3, 16, 2, 16, 2).mean((3, 5))
    build = functools.partial(perceptron, 768, 256, 10, 2)
    recipe = Recipe(build, small, y[rows], epochs=30, batch_size=128, optimizer="sgd", momentum=0.9, lr=0.02, weight_decay=5e-4)
    return Setting("cifar10_mlp", recipe, 64, "CIFAR-10 at 16 × 16, 10,000 records, 3-layer MLP")


def fashion_mlp(data):
    def read(kind, offset):
        with gzip.open(data / f"fashion_mnist/train-{kind}-ubyte.gz") as file:
            return np.frombuffer(file.read(), np.uint8, offset=offset)

    x, y = read("images-idx3", 16).reshape(-1, 784), read("labels-idx1", 8).astype(np.int64)
    rows = np.random.default_rng(0).permutation(len(x))[:12_000]
    build = functools.partial(perceptron, 784, 256, 10, 2)
    images = (x[rows] / 255.0 - 0.286).astype(np.float32) / 0.353
    recipe = Recipe(build, images, y[rows], epochs=30, batch_size=128, optimizer="sgd", momentum=0.9, lr=0.02, weight_decay=5e-4)
    return Setting("fashion_mlp", recipe, 64, "Fashion-MNIST, 12,000 records, 3-layer MLP")


def cifar_cnn(data):
    x, y = _cifar10(data)
    rows = np.random.default_rng(1).permutation(len(x))[:6_000]
    build = functools.partial(convolutional, 3, (16, 32, 64), 10, 16)
    recipe = Recipe(build, x[rows], y[rows], epochs=20, batch_size=64, optimizer="adam", lr=1e-3, weight_decay=1e-4)
    return Setting("cifar10_cnn", recipe, 32, "CIFAR-10, 6,000 records, three convolutions")


def energy(data):
    table = np.loadtxt(data / "energy_efficiency/ENB2012_data.csv", delimiter=",", skiprows=1)
    rows = np.random.default_rng(0).permutation(len(table))[:614]
    x, y = table[rows, :8], table[rows, 8]
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    build = functools.partial(tapering, 8, (64, 32), 1)
    recipe = Recipe(build, x.astype(np.float32), y, epochs=300, batch_size=32, optimizer="adam", lr=1e-3, weight_decay=1e-3)
    return Setting("energy_mlp", recipe, 64, "UCI Energy (heating load), MLP [64, 32] and training of [RET] Tables 2–3 without dropout")


SETTINGS = {
    "california_mlp": california,
    "energy_mlp": energy,
    "pneumonia_cnn": pneumonia,
    "cifar10_mlp": cifar_mlp,
    "fashion_mlp": fashion_mlp,
    "cifar10_cnn": cifar_cnn,
}


def references_of(setting, work, *, progress=True):
    """The setting's reference models; trains those that are missing."""
    x, y = setting.recipe.x, setting.recipe.y.numpy()
    folder = work / setting.name / "references"
    if folder.exists() and not status(folder).missing:
        return load_references(folder)
    records = (x.numpy(), y[:, 0] if setting.recipe.task == "regression" else y)
    return train_references(
        folder,
        setting.recipe,
        records,
        models=setting.references,
        pool="train",
        workers=1,
        threads=torch.get_num_threads(),
        progress=progress,
    )


def target_rows(setting, number):
    """The random half of the records that target `number` is trained on, sorted."""
    n = len(setting.recipe.x)
    return np.sort(np.random.default_rng(TARGET_SEED + number).permutation(n)[: n // 2])


def target_model(setting, work, number, *, back=0):
    """Target `number` as it was `back` epochs before its end; trained when it is not stored yet."""
    path = work / setting.name / "targets" / f"{number:02d}-{back}.safetensors"
    module = setting.recipe.build()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Constant learning rate and seeded batches: stopping earlier is the same as training for fewer epochs.
        shorter = replace(setting.recipe, epochs=setting.recipe.epochs - back) if back else setting.recipe
        trained = shorter(target_rows(setting, number), TARGET_SEED + number)
        save_file(trained.state_dict(), path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    module.load_state_dict(load_file(path))
    return module.eval()


def target_traces(setting, work, number):
    """Losses (records of the target, epochs + 1) while target `number` was trained; trained again when not stored."""
    path = work / setting.name / "targets" / f"{number:02d}-traces.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = target_rows(setting, number)
        _, traces = setting.recipe.train_one(rows, TARGET_SEED + number, traces=rows)
        np.save(path, traces.astype(np.float32))
    return np.load(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="where models go; run again to go on")
    parser.add_argument("--only", choices=SETTINGS, help="one setting")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in [arguments.only] if arguments.only else SETTINGS:
        setting = SETTINGS[name](arguments.data)
        for number in range(TARGETS):
            target_model(setting, arguments.work, number)
        print(name, "targets", flush=True)
        references_of(setting, arguments.work)
        print(name, "references", flush=True)


if __name__ == "__main__":
    main()
