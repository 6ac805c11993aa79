"""Small models and the tables they are audited on, written to files as their users would."""

import numpy as np
import pandas as pd

N = 120
NUMBERS = ["age", "weight", "pressure", "iron"]
MIXED = [*NUMBERS, "sex", "clinic"]
CATEGORIES = {"sex": "category", "clinic": "category"}


def _made():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(2 * N, 4)), columns=NUMBERS)
    table["sex"], table["clinic"] = rng.choice(["f", "m"], 2 * N), rng.choice(["007", "012", "120"], 2 * N)
    hidden = table.age + 0.5 * table.weight * (table.sex == "f") + rng.normal(size=2 * N)
    table["state"] = np.where(hidden > 0, "ill", "well")
    table["ill"] = (hidden > 0).astype(int)
    table["stage"] = np.digitize(hidden, [-0.7, 0.7])
    table["days"] = hidden + rng.normal(size=2 * N)
    table["patient"] = [f"{number:03d}" for number in range(2 * N)]
    table["ward"] = rng.choice(["a", "b"], 2 * N)
    return table


TABLE = _made()
TRAIN, TEST = TABLE[:N], TABLE[N:].reset_index(drop=True)


def categorical(table):
    return table[MIXED].astype(CATEGORIES)


def write_tables(folder, columns, target, suffix="csv", more=("patient",)):
    """Paths of both splits with the columns in another order than the model's."""
    kept = [*more, target, *reversed(columns)]
    paths = [folder / f"{name}.{suffix}" for name in ("train", "test")]
    for table, path in zip((TRAIN, TEST), paths, strict=True):
        if suffix == "csv":
            table[kept].to_csv(path, index=False)
        else:
            table[kept].to_parquet(path)
    return paths
