"""Five audits that the report is looked at with: `python tools/report_audits.py FOLDER`.

Each becomes a folder with its report: digits (the demo), a forest with measured truth, a
regression with four reference models, a language model, and a clean model. Measured truth is added
as a user adds it, by `noshadow reference score --audit`. Those that exist are only written as pages
again.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import GPT2Config, GPT2LMHeadModel

import noshadow as ns
from noshadow.cli import app
from noshadow.demo import demo_audit
from noshadow.reference import train_references


def forest(folder):
    """A forest that fits its patients exactly, attacked with 32 reference models."""
    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    train, test = (x[:284], y[:284]), (x[284:], y[284:])
    model = _forest(x, y, np.arange(284), 0)
    ids = [f"patient-{row}" for row in range(len(y))]
    audited = ns.audit(model, train, test, ids=ids[:284], progress=False)
    settings = {"model": model, "ids": ids, "models": 32, "workers": 1, "progress": False}
    train_references(_references(folder), partial(_forest, x, y), train, test, **settings)
    return audited


def _forest(x, y, indices, seed):
    return RandomForestClassifier(60, random_state=seed).fit(x[indices], y[indices])


def regression(folder):
    """A ridge regression on patients, with four reference models."""
    x, y = load_diabetes(return_X_y=True)
    ids = [f"patient-{row}" for row in range(320)]

    def train_fn(indices, seed):
        return make_pipeline(StandardScaler(), Ridge(alpha=1.0)).fit(x[indices], y[indices])

    splits = (x[:320], y[:320]), (x[320:], y[320:])
    return ns.audit(train_fn(np.arange(320), 0), *splits, ids=ids, reference_models=4, train_fn=train_fn, progress=False)


def language_model(folder):
    """A small GPT-2 that has read its 60 sequences six times."""
    rng = np.random.default_rng(0)
    train, test = ([rng.integers(0, 23, length).tolist() for length in rng.integers(5, 16, n)] for n in (60, 50))
    torch.manual_seed(0)
    ends = {"bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=23, n_positions=16, n_embd=8, n_layer=2, n_head=2, **ends)).eval()
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(12):
        for tokens in map(torch.tensor, train):
            optimiser.zero_grad()
            model(tokens[None], labels=tokens[None]).loss.backward()
            optimiser.step()
    return ns.audit(model, train, test, progress=False)


def clean(folder):
    """A penalised logistic regression on many records of few features, attacked with 32 models."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 5))
    y = (x @ rng.normal(size=5) + rng.logistic(size=4000) > 0).astype(int)

    def train_fn(indices, seed):
        return LogisticRegression(C=0.1).fit(x[indices], y[indices])

    train, test = (x[:2000], y[:2000]), (x[2000:], y[2000:])
    model = train_fn(np.arange(2000), 0)
    settings = {"model": model, "models": 32, "workers": 1, "progress": False}
    train_references(_references(folder), train_fn, train, test, **settings)
    return ns.audit(model, train, test, progress=False)


AUDITS = {
    "digits": lambda folder: demo_audit(progress=False),
    "forest": forest,
    "regression": regression,
    "language-model": language_model,
    "clean": clean,
}


def _references(folder):
    return folder.with_name(f"{folder.name}-references")


def _measured(folder):
    """The folder with what its reference models measure, where it has some."""
    if _references(folder).exists():
        command = ["reference", "score", str(_references(folder)), "--audit", str(folder), "--quiet"]
        app(command, prog_name="noshadow", standalone_mode=False)


def write_all(root):
    """Make the audits that are not there yet, and write every page; gives the pages."""
    pages = []
    for name, made in AUDITS.items():
        folder = root / name
        if not folder.exists():
            made(folder).save(folder)
            _measured(folder)
        pages.append(ns.write_report(ns.load(folder), folder / "report.html"))
    return pages


def main():
    root = Path(sys.argv[1]).resolve()
    root.mkdir(parents=True, exist_ok=True)
    print(*write_all(root), sep="\n")


if __name__ == "__main__":
    main()
