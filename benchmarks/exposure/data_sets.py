"""Records of the calibration setups that other benchmarks do not have: regressions, digits, windows of text, sentences."""

import lzma

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.papers import pools as papers_pools
from benchmarks.papers import settings as papers_settings
from benchmarks.tail_calibration.pools import pool

POOL_SEED = 1
WINDOW = 6
LETTERS = 30_000


def classes(name, records, label_noise=0.0):
    """(data, work) → inputs and classes of a data set of the tail's calibration, drawn anew; some labels wrong."""

    def drawn(data, work):
        return pool(name, data, work, records=records, label_noise=label_noise, seed=POOL_SEED)

    return drawn


def california_prices(records):
    """Prices as numbers: the data of two judging settings, other records, another network."""

    def drawn(data, work):
        x, y = papers_pools.california(data, work)
        return _subset(x, y / y.std(), records)

    return drawn


def california_ages(records):
    """The median age of the houses from everything else, the price included."""

    def drawn(data, work):
        x, y = papers_pools.california(data, work)
        rest = np.column_stack([np.delete(x, 1, axis=1), (y - y.mean()) / y.std()])
        return _subset(rest, x[:, 1], records)

    return drawn


def digits(label_noise=0.0):
    """scikit-learn's 1,797 digits; some labels wrong."""

    def drawn(_data, _work):
        x, y = load_digits(return_X_y=True)
        rng = np.random.default_rng(POOL_SEED)
        rows, labels = rng.permutation(len(x))[:1796], y.astype(np.int64)
        wrong = rng.random(len(y)) < label_noise
        labels[wrong] = rng.integers(0, 10, wrong.sum())
        return (x[rows] / 8 - 1).astype(np.float32), labels[rows]

    return drawn


def shakespeare(records):
    """The next letter after six: windows that do not overlap, letters one-hot, small letters for capitals."""

    def drawn(data, _work):
        with lzma.open(data / "text/tinyshakespeare.txt.xz", "rt", encoding="utf8") as file:
            text = file.read(LETTERS * (WINDOW + 1)).lower()
        alphabet = sorted(set(text))
        letters = np.searchsorted(alphabet, list(text))
        windows = letters[: len(letters) // (WINDOW + 1) * (WINDOW + 1)].reshape(-1, WINDOW + 1)
        x = np.eye(len(alphabet), dtype=np.float32)[windows[:, :-1]].reshape(len(windows), -1)
        return _subset(x, windows[:, -1].astype(np.int64), records)

    return drawn


def shakespeare_vowels(records, window=10):
    """Whether the next letter after ten is a vowel, letters as numbers: windows that do not overlap, further on in the text."""

    def drawn(data, _work):
        with lzma.open(data / "text/tinyshakespeare.txt.xz", "rt", encoding="utf8") as file:
            text = file.read().lower()[LETTERS * (WINDOW + 1) :]
        alphabet = sorted(set(text))
        letters = np.searchsorted(alphabet, list(text))
        windows = letters[: len(letters) // (window + 1) * (window + 1)].reshape(-1, window + 1)
        vowels = np.isin(windows[:, -1], np.searchsorted(alphabet, list("aeiou")))
        return _subset(windows[:, :-1] + 1, vowels.astype(np.int64), records)

    return drawn


def sentences_left(records, first=0):
    """Sentences of SST-2 as word numbers: those that the judged encoder does not have, from the `first` of a fixed order on.

    Many are parts of one another, and some parts are labelled otherwise than the whole: networks are sure of their mistakes.
    """

    def drawn(data, work):
        x, y = papers_pools.sst2_tokens(data, work)
        judged = papers_settings.SETTINGS["sst2_bert"].records
        rows = np.random.default_rng(papers_settings.POOL_SEED).permutation(len(x))[judged + first :][:records]
        return np.ascontiguousarray(x[rows]), y[rows].astype(np.int64)

    return drawn


def _subset(x, y, records):
    rows = np.random.default_rng(POOL_SEED).permutation(len(x))[:records]
    targets = y[rows] if y.dtype.kind == "i" else y[rows].astype(np.float64)
    return np.ascontiguousarray(x[rows], dtype=np.float32), targets
