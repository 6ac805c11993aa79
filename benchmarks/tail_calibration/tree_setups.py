"""The setups of the calibrations for trees: forests and boosting, from shallow to fully grown, and the tables they are trained on."""

import functools
import gzip
from dataclasses import asdict, dataclass, field

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from xgboost import XGBClassifier

from benchmarks.tail_calibration.pools import california, cifar10, cifar100_coarse, fashion, pneumonia

FORESTS = {"forest": RandomForestClassifier, "extra trees": ExtraTreesClassifier}
BOOSTING = {"gradient": GradientBoostingClassifier, "histogram": HistGradientBoostingClassifier, "xgboost": XGBClassifier}
BOOSTING |= {"lightgbm": LGBMClassifier}
VEHICLES = (0, 1, 8, 9)
TOPS = (0, 2, 4, 6)  # T-shirt, pullover, coat, shirt


@dataclass(frozen=True)
class TreeSetup:
    """One row: `data` is a name of TABLES, `kind` one of FORESTS or BOOSTING, `how` its arguments."""

    name: str
    data: str
    kind: str
    how: dict = field(default_factory=dict)
    records: int = 2400
    models: int = 64
    targets: int = 3
    calibrates: bool = True

    @property
    def family(self):
        """As calibrations name it."""
        return "forest" if self.kind in FORESTS else "boosting"

    @property
    def data_set(self):
        """The data set behind the table, whatever its classes are."""
        return self.data.split("_")[0]

    def described(self):
        """Its fields, ready for JSON."""
        return asdict(self) | {"family": self.family, "data_set": self.data_set, "model": type(self.model(0)).__name__}

    def model(self, seed):
        """One untrained model, on one core."""
        own = dict(self.how)
        if self.kind in FORESTS:
            return FORESTS[self.kind](random_state=seed, n_jobs=1, **own)
        if self.kind == "histogram":
            return HistGradientBoostingClassifier(random_state=seed, early_stopping=False, **own)
        if self.kind == "xgboost":
            return XGBClassifier(random_state=seed, n_jobs=1, tree_method="hist", **own)
        if self.kind == "lightgbm":
            return LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1, **own)
        return GradientBoostingClassifier(random_state=seed, **own)


def _smaller(images, side):
    """(n, side · side · channels): means over blocks of pixels; sides that do not divide lose their border."""
    n, channels, height, _ = images.shape
    block = height // side
    cut = images[:, :, : side * block, : side * block]
    return cut.reshape(n, channels, side, block, side, block).mean((3, 5)).reshape(n, -1)


def _fashion(data):
    x, y = fashion(data, None)
    return _smaller(x[:20_000], 7), y[:20_000].astype(np.int64)


def _fashion_tops(data):
    x, y = _fashion(data)
    return x, np.isin(y, TOPS).astype(np.int64)


def _fashion_pixels(data):
    """Sixty pixels drawn once, odd classes against even ones."""
    x, y = fashion(data, None)
    pixels = np.random.default_rng(0).permutation(784)[:60]
    return x[:20_000].reshape(20_000, -1)[:, pixels], y[:20_000].astype(np.int64) % 2


def _pneumonia(data):
    x, y = pneumonia(data, None)
    return _smaller(x, 7), y.astype(np.int64)


def _cifar10(data):
    x, y = cifar10(data, None)
    return _smaller(x, 4), y.astype(np.int64)


def _cifar10_vehicles(data):
    x, y = _cifar10(data)
    return x, np.isin(y, VEHICLES).astype(np.int64)


def _cifar100(data):
    x, y = cifar100_coarse(data, None)
    return _smaller(x, 4), y.astype(np.int64)


def _cifar100_half(data):
    x, y = _cifar100(data)
    return x, (y >= 10).astype(np.int64)


def _california(data):
    x, y = california(data, None)
    return x, y.astype(np.int64)


def _california_two(data):
    x, y = _california(data)
    return x[y != 2], (y[y != 2] > 2).astype(np.int64)


def _california_median(data):
    x, _ = california(data, None)
    value = np.loadtxt(data / "california_housing/cal_housing.data.gz", delimiter=",")[:, -1]
    return x, (value > np.median(value)).astype(np.int64)


def _sst2(data):
    """Fifty singular directions of words weighted by their rarity (tf-idf), of the first 20,000 sentences of a fixed shuffle."""
    with gzip.open(data / "sst2/train.tsv.gz", "rt", encoding="utf8") as file:
        lines = [line.rstrip("\n").rsplit("\t", 1) for line in file][1:]
    chosen = [lines[i] for i in np.random.default_rng(0).permutation(len(lines))[:20_000]]
    words = TfidfVectorizer(min_df=3).fit_transform([text for text, _ in chosen])
    return TruncatedSVD(50, random_state=0).fit_transform(words), np.array([int(label) for _, label in chosen])


TABLES = {
    "fashion": _fashion,
    "fashion_tops": _fashion_tops,
    "fashion_pixels": _fashion_pixels,
    "pneumonia": _pneumonia,
    "cifar10": _cifar10,
    "cifar10_vehicles": _cifar10_vehicles,
    "cifar100": _cifar100,
    "cifar100_half": _cifar100_half,
    "california": _california,
    "california_two": _california_two,
    "california_median": _california_median,
    "sst2": _sst2,
}


@functools.lru_cache(maxsize=4)
def _whole(name, data):
    return TABLES[name](data)


def table(setup, data):
    """x (records, features) float32, labels: a fixed random subset."""
    x, y = _whole(setup.data, data)
    rows = np.random.default_rng(0).permutation(len(y))[: setup.records]
    return np.ascontiguousarray(x[rows], dtype=np.float32), y[rows]


def _setups():
    """Ordered so that every prefix covers both families and several data sets."""
    one = TreeSetup
    full, leaf = {"n_estimators": 100}, {"n_estimators": 100, "min_samples_leaf": 5}
    yield one("california_forest", "california", "forest", full)
    yield one("fashion_xgboost", "fashion_tops", "xgboost", {"n_estimators": 100, "max_depth": 6})
    yield one("fashion_forest", "fashion", "forest", full)
    yield one("california_gradient", "california_two", "gradient", {"n_estimators": 100, "max_depth": 3})
    yield one("pneumonia_forest", "pneumonia", "forest", full)
    yield one("pneumonia_xgboost", "pneumonia", "xgboost", {"n_estimators": 100, "max_depth": 4, "learning_rate": 0.1})
    yield one("cifar10_forest_leaf5", "cifar10", "forest", leaf)
    yield one("cifar10_lightgbm", "cifar10_vehicles", "lightgbm", {"n_estimators": 100})
    yield one("sst2_forest", "sst2", "forest", full)
    yield one("sst2_xgboost", "sst2", "xgboost", {"n_estimators": 60, "max_depth": 5, "learning_rate": 0.1})
    yield one("cifar100_forest", "cifar100", "forest", full)
    yield one("cifar100_lightgbm_leaf50", "cifar100_half", "lightgbm", {"n_estimators": 100, "min_child_samples": 50})
    yield one("california_forest_leaf5", "california", "forest", leaf)
    yield one("california_xgboost", "california", "xgboost", {"n_estimators": 60, "max_depth": 4, "learning_rate": 0.2})
    yield one("fashion_forest_depth6", "fashion", "forest", {"n_estimators": 100, "max_depth": 6})
    yield one("fashion_lightgbm", "fashion_tops", "lightgbm", {"n_estimators": 200, "learning_rate": 0.05, "num_leaves": 15})
    yield one("pneumonia_forest_bags", "pneumonia", "forest", {"n_estimators": 100, "max_samples": 0.3})
    yield one("pneumonia_histogram", "pneumonia", "histogram", {"max_iter": 60})
    yield one("cifar10_extra", "cifar10", "extra trees", {"n_estimators": 100, "bootstrap": True})
    yield one("cifar10_xgboost_shallow", "cifar10_vehicles", "xgboost", {"n_estimators": 100, "max_depth": 2, "learning_rate": 0.1})
    yield one("sst2_forest_leaf10", "sst2", "forest", {"n_estimators": 100, "min_samples_leaf": 10})
    yield one("sst2_lightgbm", "sst2", "lightgbm", {"n_estimators": 150, "num_leaves": 31})
    yield one("cifar100_forest_depth8", "cifar100", "forest", {"n_estimators": 60, "max_depth": 8})
    yield one("cifar100_xgboost", "cifar100_half", "xgboost", {"n_estimators": 100, "max_depth": 6})
    yield one("california_forest_bags", "california", "forest", {"n_estimators": 200, "max_samples": 0.3})
    yield one("california_histogram", "california_two", "histogram", {"max_iter": 100, "max_leaf_nodes": 15, "learning_rate": 0.05})
    yield one("fashion_extra", "fashion", "extra trees", {"n_estimators": 100, "bootstrap": True})
    yield one("fashion_xgboost_shallow", "fashion_tops", "xgboost", {"n_estimators": 50, "max_depth": 2, "learning_rate": 0.1})
    yield one("sst2_xgboost_half", "sst2", "xgboost", {"n_estimators": 100, "max_depth": 4, "subsample": 0.5})
    yield one("cifar10_forest", "cifar10", "forest", full)
    yield one("pneumonia_forest_leaf10", "pneumonia", "forest", {"n_estimators": 50, "min_samples_leaf": 10})
    yield one("cifar10_gradient_half", "cifar10_vehicles", "gradient", {"n_estimators": 60, "max_depth": 4, "subsample": 0.5})
    yield one("cifar100_extra_leaf3", "cifar100", "extra trees", {"n_estimators": 100, "bootstrap": True, "min_samples_leaf": 3})
    yield one("pneumonia_lightgbm_slow", "pneumonia", "lightgbm", {"n_estimators": 50, "learning_rate": 0.03})
    # Scikit-learn's boosting of two classes as a prototype once measured it: six targets, truth of forty others.
    again = {"models": 48, "targets": 6, "calibrates": False}
    yield one("prototype_california", "california_median", "gradient", {"n_estimators": 100, "max_depth": 6}, 6000, **again)
    yield one("prototype_fashion", "fashion_pixels", "gradient", {"n_estimators": 100, "max_depth": 4}, 4000, **again)


SETUPS = {setup.name: setup for setup in _setups()}
