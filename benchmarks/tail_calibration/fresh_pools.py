"""Pools for the judging setups: data sets, or forms of them, that the calibration has not seen."""

import gzip
import lzma
import re
from collections import Counter

import numpy as np
from sklearn.datasets import load_digits
from statsmodels.datasets import fair, randhie

from benchmarks.tail_calibration.pools import tiles

WINDOW = 8  # letters before the one that is predicted
PASSAGE = 40  # letters of a passage whose source is predicted
SPEAKERS = 10
WORDS = 600
CLASSES = 5


def whole_text(data, name):
    with lzma.open(data / f"text/{name}.txt.xz", "rt", encoding="utf8") as file:
        return file.read()


def _next_letters(text):
    """One-hot letters of windows that do not overlap, and the letter after each; rare letters share one symbol."""
    letters = text.lower()
    common = [letter for letter, _ in Counter(letters).most_common(39)]
    place = {letter: number for number, letter in enumerate(common)}
    numbers = np.array([place.get(letter, len(common)) for letter in letters])
    windows = numbers[: len(numbers) // (WINDOW + 1) * (WINDOW + 1)].reshape(-1, WINDOW + 1)
    return np.eye(len(common) + 1, dtype=np.float32)[windows[:, :-1]].reshape(len(windows), -1), windows[:, -1]


def shakespeare_next(data, _):
    return _next_letters(whole_text(data, "tinyshakespeare"))


def wikitext_next(data, _):
    return _next_letters(whole_text(data, "wikitext2_test").replace("<unk>", ""))


def bag(texts):
    """(n, WORDS): square roots of the counts of the commonest words, near unit variance over all entries."""
    split = [re.findall(r"[a-z']+", text.lower()) for text in texts]
    common = [word for word, _ in Counter(word for words in split for word in words).most_common(WORDS)]
    place = {word: number for number, word in enumerate(common)}
    found = np.zeros((len(split), WORDS), dtype=np.float32)
    for row, words in zip(found, split, strict=True):
        for word in words:
            if word in place:
                row[place[word]] += 1
    counts = np.sqrt(found)
    return (counts - counts.mean()) / counts.std()


def shakespeare_speaker(data, _):
    """Who speaks, of the ten who speak most lines, from the words of one line of at least four."""
    speaker, lines = None, []
    for line in whole_text(data, "tinyshakespeare").splitlines():
        if re.fullmatch(r"[A-Z][A-Za-z ]+:", line):
            speaker = line[:-1]
        elif speaker and len(line.split()) >= 4:
            lines.append((speaker, line))
    names = [name for name, _ in Counter(name for name, _ in lines).most_common(SPEAKERS)]
    kept = [(names.index(name), line) for name, line in lines if name in names]
    return bag([line for _, line in kept]), np.array([name for name, _ in kept])


def source_letters(data, _):
    """Shakespeare (1) or Wikipedia (0), from the counts of letter pairs in passages of forty letters."""
    found, labels = [], []
    for label, name in enumerate(("wikitext2_valid", "tinyshakespeare")):
        letters = re.sub(r"[^a-z ]", "", re.sub(r"\s+", " ", whole_text(data, name).replace("<unk>", "").lower()))
        numbers = np.array([" abcdefghijklmnopqrstuvwxyz".index(letter) for letter in letters])
        passages = numbers[: len(numbers) // PASSAGE * PASSAGE].reshape(-1, PASSAGE)
        pairs = passages[:, :-1] * 27 + passages[:, 1:]
        counts = np.stack([np.bincount(row, minlength=27 * 27) for row in pairs]).astype(np.float32)
        found.append(np.sqrt(counts))
        labels.append(np.full(len(passages), label))
    x = np.concatenate(found)
    return (x - x.mean()) / x.std(), np.concatenate(labels)


def sst2_words(data, _):
    """The words of SST-2's sentences, which the calibration has seen as embeddings only."""
    with gzip.open(data / "sst2/train.tsv.gz", "rt", encoding="utf8") as file:
        lines = [line.rstrip("\n").rsplit("\t", 1) for line in file][1:]
    chosen = [lines[i] for i in np.random.default_rng(0).permutation(len(lines))[:20_000]]
    return bag([text for text, _ in chosen]), np.array([int(label) for _, label in chosen])


def digits(_data, _):
    """Handwritten digits of 8 × 8 pixels from scikit-learn (UCI Optical Recognition)."""
    x, y = load_digits(return_X_y=True)
    return (x - x.mean()) / x.std(), y


def standardised(table):
    x = table.to_numpy(dtype=np.float64)
    return (x - x.mean(0)) / x.std(0)


def visits_health(_data, _):
    """RAND Health Insurance Experiment (statsmodels): visits to a doctor in five classes, from insurance and health."""
    table = randhie.load_pandas().data
    visits = table["mdvis"].to_numpy()
    return standardised(table.drop(columns="mdvis")), np.searchsorted([1, 2, 4, 7], visits, side="right")


def marriage_survey(_data, _):
    """A survey of 6,366 marriages (Fair 1978, statsmodels): how it is rated, from age, years, children, work and the like."""
    table = fair.load_pandas().data
    return standardised(table.drop(columns="rate_marriage")), table["rate_marriage"].to_numpy().astype(int) - 1


def energy_load(data, _):
    """UCI Energy Efficiency: 768 buildings, heating load in five classes of equal size."""
    rows = np.genfromtxt(data / "energy_efficiency/ENB2012_data.csv", delimiter=",", skip_header=1)
    x, load = rows[:, :8], rows[:, 8]
    edges = np.quantile(load, np.arange(1, CLASSES) / CLASSES)
    return (x - x.mean(0)) / x.std(0), np.searchsorted(edges, load, side="right")


def cifar10_whole(data, _):
    """CIFAR-10 at its 32 × 32 pixels, from two batches that the calibration has not drawn from."""
    names = [f"data_batch_{i}" for i in (3, 4)]
    with np.load(data / "cifar10/labels.npz") as labels:
        y = np.concatenate([labels[name] for name in names])
    images = np.concatenate([tiles(data / f"cifar10/{name}.webp", 100) for name in names])
    return ((images / np.float32(255) - np.float32(0.47)) / np.float32(0.24)).astype(np.float32), y


FRESH = {
    made.__name__: made
    for made in (
        shakespeare_next,
        wikitext_next,
        shakespeare_speaker,
        source_letters,
        sst2_words,
        digits,
        visits_health,
        marriage_survey,
        energy_load,
        cifar10_whole,
    )
}
