"""Orders without any other model: single free columns, and weightings of them learnt with whole data sets left out."""

import numpy as np
from scipy.stats import rankdata

from noshadow._exposure.basis import normal_scores
from noshadow.metrics import top_recall

RIDGE = 1e-2
# Columns by what a user has kept: final weights; a checkpoint too; a loss trace too.
KEPT = {
    "final weights": ("margin", "shift", "leverage", "newton", "margin_leverage", "entropy"),
    "checkpoint": (
        "checkpoint_shift",
        "checkpoint_leverage",
        "checkpoint_newton",
        "checkpoint_margin_leverage",
        "checkpoint_entropy",
        "checkpoint_loss",
    ),
    "trace": ("lt_iqr", "early_loss", "trace_mean"),
}
SETS = {
    "final weights": ("final weights",),
    "with a checkpoint": ("final weights", "checkpoint"),
    "with a trace": ("final weights", "trace"),
    "with both": ("final weights", "checkpoint", "trace"),
}
EQUAL = (
    ("shift", "checkpoint_shift"),
    ("shift", "checkpoint_shift", "checkpoint_loss"),
    ("shift", "early_loss"),
    ("shift", "early_loss", "lt_iqr"),
    ("checkpoint_shift", "early_loss", "lt_iqr"),
    ("shift", "checkpoint_shift", "early_loss", "lt_iqr"),
)
SINGLE = ("margin", "shift", "newton", "checkpoint_shift", "checkpoint_loss", "checkpoint_newton", "early_loss", "lt_iqr", "trace_mean")


def free_table(evidence, pool, truth):
    """Normal scores of all free columns of one target, larger = more loss or more shift, and the true d′."""
    size = np.abs(evidence.margins) if pool.direction == "either" else -evidence.margins
    columns = {"margin": size} | evidence.final | evidence.checkpoint | evidence.trace
    return {name: normal_scores(np.asarray(values, dtype=float))[0].astype(float) for name, values in columns.items()}, truth


def features(columns, names):
    """(m, 2 per name) scores and what lies beyond one standard deviation; 0 where a column does not exist."""
    zero = np.zeros(len(next(iter(columns.values()))))
    z = np.column_stack([columns.get(name, zero) for name in names])
    return np.hstack([z, np.maximum(z - 1, 0.0)])


def savage_scores(values):
    """−log(1 − rank/(n + 1)): a scale on which the top of a ranking weighs most."""
    return -np.log(1 - rankdata(values) / (len(values) + 1))


def fitted(tables, names):
    """Ridge coefficients of the truth's Savage scores, every setup counting once."""
    gram, right = 0.0, 0.0
    for table in tables:
        for columns, truth in table["tables"]:
            x = features(columns, names)
            x, y = x - x.mean(0), savage_scores(truth)
            share = 1 / (len(table["tables"]) * len(y))
            gram, right = gram + share * x.T @ x, right + share * x.T @ (y - y.mean())
    return np.linalg.solve(gram + RIDGE * np.eye(len(gram)) * len(tables), right)


def learnt_orders(tables):
    """Recall by setup of every single column and of every learnt weighting, classifiers and regressions apart."""
    found = {}
    for task in ("classification", "regression"):
        chosen = [table for table in tables if table["task"] == task]
        rows = {
            f"column {name}": {table["name"]: _recall(table, _single(name)) for table in chosen if name in table["tables"][0][0]}
            for name in SINGLE
        }
        rows |= {f"equal, {' + '.join(names)}": {table["name"]: _recall(table, _equal(names)) for table in chosen} for names in EQUAL}
        if len({table["source"] for table in chosen}) > 2:
            rows |= {f"learnt, {kept}": _left_out(chosen, [name for part in parts for name in KEPT[part]]) for kept, parts in SETS.items()}
        found[task] = {name: {"mean": round(float(np.mean(list(row.values()))), 4), "setups": row} for name, row in rows.items() if row}
    return found


def lead_of_learnt(orders):
    """How far a learnt weighting leads the equal one of the same evidence over setups: mean difference and its standard error."""
    rows, found = orders["classification"], {}
    pairs = {
        "final weights": "column shift",
        "with a checkpoint": "equal, shift + checkpoint_shift",
        "with a trace": "equal, shift + early_loss + lt_iqr",
        "with both": "equal, shift + checkpoint_shift + early_loss + lt_iqr",
    }
    for kept, other in pairs.items():
        learnt, equal = (rows[name]["setups"] for name in (f"learnt, {kept}", other))
        lead = np.array([learnt[name] - equal[name] for name in equal])
        found[kept] = {"lead": round(float(lead.mean()), 4), "error": round(float(lead.std(ddof=1) / np.sqrt(len(lead))), 4)}
    return found


def _equal(names):
    return lambda columns: sum(columns[name] for name in names)


def _single(name):
    return lambda columns: columns[name]


def _left_out(tables, names):
    """Recall on each setup of the weighting learnt from all other data sets."""
    found = {}
    for source in sorted({table["source"] for table in tables}):
        coefficients = fitted([table for table in tables if table["source"] != source], names)
        for table in (table for table in tables if table["source"] == source):
            found[table["name"]] = _recall(table, lambda columns, at=coefficients: features(columns, names) @ at)
    return found


def _recall(table, score):
    values = [top_recall(truth, score(columns), top=0.01, keep=0.05) for columns, truth in table["tables"]]
    return round(float(np.mean(values)), 4)
