"""What is known about the members of one audited model, read from the work folder of `run`."""

from dataclasses import dataclass

import numpy as np

from benchmarks.exposure.training import FOLDS, fold_numbers, half, kept_epochs, losses_of
from noshadow._exposure import Source
from noshadow.scores.traces import loss_trace_iqr

COLUMNS = ("shift", "leverage", "newton", "margin_leverage", "entropy")


@dataclass(frozen=True, eq=False)
class Pool:
    """Margins of one setup's models over all n records.

    Attributes:
        references, short: (16, n) at the end, and (16, epochs, n) after the kept epochs. truth: (r, n) of models that no method sees.
        membership, truth_membership: (16, n), (r, n).
        task: of the recipe. epochs: of a whole training. kept: (epochs,) numbers of the kept ones.
    """

    name: str
    task: str
    epochs: int
    kept: np.ndarray
    references: np.ndarray
    short: np.ndarray
    membership: np.ndarray
    truth: np.ndarray
    truth_membership: np.ndarray

    @property
    def direction(self):
        """Of `ns.exposure`."""
        return "either" if self.task == "regression" else "larger"


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known about the m members of one audited model.

    Attributes:
        members: (m,) their numbers. margins: (m,), test_margins: (t,) of the audited model.
        final, checkpoint, trace: free covariates by where they come from.
        references: the 16 reference models, in this target's own order. short: the same models when they passed the best epoch.
        folds: by number of folds. best: the epoch with the lowest loss on records not trained on. price: of a short reference.
    """

    members: np.ndarray
    margins: np.ndarray
    test_margins: np.ndarray
    final: dict
    checkpoint: dict
    trace: dict
    references: Source
    short: Source
    folds: dict
    best: int
    price: float


def complete(setup, folder):
    """Whether every model of a setup has been trained; folds are the last."""
    folds = [folder / f"folds_{target:02d}_{k}.npz" for target in range(setup.folded) for k in FOLDS]
    return (folder / "target_00.npz").exists() and all(path.exists() for path in folds)


def pool_of(setup, folder, task, epochs):
    """The setup's margins."""
    first, last = setup.targets, setup.targets + setup.references
    parts = [dict(np.load(path)) for path in sorted(folder.glob("models_*.npz"))]
    n = parts[0]["margins"].shape[2]
    short = np.concatenate([part["margins"] for part in parts if part["first"] < last]).astype(np.float64)
    truth = np.concatenate([part["margins"][:, -1] for part in parts if part["first"] >= last]).astype(np.float64)
    members, hidden = (
        np.array([half(number, n) for number in numbers]) for numbers in (range(first, last), range(last, last + len(truth)))
    )
    return Pool(setup.name, task, epochs, kept_epochs(epochs), short[:, -1], short, members, truth, hidden)


def evidence_of(setup, pool, folder, target):
    """All that is known about one target's members."""
    held = dict(np.load(folder / f"target_{target:02d}.npz"))
    member = half(target, pool.truth.shape[1])
    traces, best = held["margins"].astype(np.float64), int(held["best"])
    losses = losses_of(traces, pool.task)[:, member].T
    own = traces[-1]
    sign = np.where(own[member] < 0, -1.0, 1.0) if pool.direction == "either" else 1.0
    order = np.roll(np.arange(len(pool.references)), -2 * target)
    price = best / pool.epochs
    place = int(np.flatnonzero(pool.kept == best)[0])
    early = {f"checkpoint_{name}": held[f"early_{name}"] for name in COLUMNS if f"early_{name}" in held}
    folds = {}
    for k in FOLDS:
        path = folder / f"folds_{target:02d}_{k}.npz"
        if path.exists():
            found = np.load(path)
            folds[k] = source_of(f"{k} folds", found["margins"].astype(np.float64), found["membership"], member, trainings=k - 1)
            assert (fold_numbers(target, member, k)[member] >= 0).all()
    return Evidence(
        np.flatnonzero(member),
        own[member],
        own[~member],
        {name: held[f"final_{name}"] for name in COLUMNS if f"final_{name}" in held},
        early | {"checkpoint_margin": traces[best, member] * sign, "checkpoint_loss": losses[:, best]},
        {"lt_iqr": loss_trace_iqr(losses), "early_loss": losses[:, : best + 1].mean(1), "trace_mean": losses.mean(1)},
        source_of("references", pool.references[order], pool.membership[order], member, trainings=len(order)),
        # From the other end: beside full references they are models of their own.
        source_of("short references", pool.short[order[::-1], place], pool.membership[order[::-1]], member, early=True, trainings=price),
        folds,
        best,
        price,
    )


def source_of(name, margins, membership, member, *, early=False, trainings=0.0):
    """A source over a target's members, with the margins of other records that its models did not train on."""
    test = np.where(membership, np.nan, margins)[:, ~member]
    held = {"margins": margins[:, member], "membership": membership[:, member], "test_margins": test}
    return Source(name, **held, early=early, trainings=trainings)


def first_models(source, count, trainings):
    """The same source with fewer models."""
    assert source.margins is not None
    held = {name: getattr(source, name)[:count] for name in ("margins", "membership", "test_margins")}
    return Source(f"{count} {source.name}", **held, early=source.early, trainings=trainings)
