"""Models of a setup and what they say about every record, kept in the work folder; a run goes on where it stopped.

Every model trains on its own random half of the records. Margins of all records are kept: of audited models after every epoch, of
references after a few epochs spaced evenly in their logarithm, of truth models and folds at the end.
"""

import numpy as np

from benchmarks.exposure.setups import recipe
from benchmarks.papers.columns import last_layer
from benchmarks.papers.run import Clock
from noshadow.losses import record_margins
from noshadow.reference import Recipe
from noshadow.reference.schedules import schedule_factors

SEED = 7_000
EPOCHS_KEPT = 14
MODELS_AT_ONCE = 8
FOLDS = (2, 5)
# A checkpoint trained again must say what the training said when it passed there: single precision over a whole training.
SAME_MARGINS = 1e-2


def half(number, n):
    """(n,) booleans: the records of model `number`, a random half that depends on no other model."""
    member = np.zeros(n, dtype=bool)
    member[np.random.default_rng([SEED, number]).permutation(n)[: n // 2]] = True
    return member


def fold_numbers(target, member, k):
    """(n,) number of each member's fold, −1 for other records."""
    numbers = np.full(len(member), -1)
    rows = np.random.default_rng([SEED, target, k]).permutation(np.flatnonzero(member))
    numbers[rows] = np.arange(len(rows)) % k
    return numbers


def kept_epochs(epochs):
    """Numbers of epochs after which margins of references are kept, the last among them."""
    return np.unique(np.round(np.geomspace(1, epochs, EPOCHS_KEPT)).astype(int))


def statistics(outputs, targets, task):
    """Margins of classifiers, signed residuals y − f of regressions: (n,) of (n, m) outputs."""
    if task == "regression":
        return targets.reshape(len(targets), -1)[:, 0] - outputs[:, 0].astype(np.float64)
    return record_margins(outputs, targets, task)


def losses_of(margins, task):
    """Losses that belong to margins or to signed residuals."""
    return margins**2 if task == "regression" else np.logaddexp(0.0, -margins)


class Trained:
    """One setup's records, recipe and work folder."""

    def __init__(self, setup, data, work):
        self.setup, self.folder = setup, work / setup.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.clock = Clock(self.folder / "seconds.json")
        self.x, self.y = setup.records(data, work)
        self.recipe = recipe(setup, self.x, self.y)
        self.stacked = setup.engine != "one-by-one" and self.recipe.vectorisable() is None

    def kept(self, name, make):
        """Arrays of a file of the work folder; made and stored when it is not there."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            arrays = make()
            with path.with_suffix(".part").open("wb") as file:
                np.savez(file, **arrays)
            path.with_suffix(".part").rename(path)
        with np.load(path) as held:
            return dict(held)

    def trained(self, members, seeds, epochs, how=None):
        """Modules of these halves, and their margins (models, epochs, n) float32 after the given epochs."""
        used = how or self.recipe
        margins = np.empty((len(members), len(epochs), len(self.x)), dtype=np.float32)
        places = {int(epoch): place for place, epoch in enumerate(epochs)}
        targets = used.y.numpy()

        def observe(epoch, snapshot, offset=0):
            if epoch in places:
                for start in range(0, len(used.x), 4096):
                    part = slice(start, start + 4096)
                    for model, outputs in zip(snapshot.models, snapshot.outputs(used.x[part]).numpy(), strict=True):
                        margins[offset + model, places[epoch], part] = statistics(outputs, targets[part], used.task)

        rows = [np.flatnonzero(member) for member in members]
        if self.stacked:
            return used.train_many(rows, seeds, on_epoch=observe), margins
        modules = []
        for number, (own, seed) in enumerate(zip(rows, seeds, strict=True)):
            modules.append(used.train_one(own, seed, on_epoch=lambda epoch, snapshot, at=number: observe(epoch, snapshot, at)))
        return modules, margins

    def stopped(self, epochs, rows):
        """The same training cut off after some epochs: same seeds, same order, same learning rates."""
        own = dict(self.setup.training)
        if own.get("schedule", "constant") != "constant":
            steps = -(-rows // own["batch_size"])
            factors = schedule_factors(own["schedule"], epochs=own["epochs"], steps=steps, warmup=own.pop("warmup", 0.0))
            own["schedule"] = lambda step, _total: factors[step]
        return Recipe(self.recipe.build, self.x, self.y, **own | {"epochs": epochs})

    def make_all(self):
        """Train whatever is missing."""
        setup, n = self.setup, len(self.x)
        with self.clock.timed("targets", resumes=True):
            for target in range(setup.targets):
                self.target(target)
        with self.clock.timed("references", resumes=True):
            for first in range(0, setup.references, self.at_once):
                self.models(setup.targets + first, min(self.at_once, setup.references - first), kept_epochs(self.recipe.epochs))
        with self.clock.timed("truth", resumes=True):
            for first in range(0, setup.truth, self.at_once):
                start = setup.targets + setup.references + first
                self.models(start, min(self.at_once, setup.truth - first), [self.recipe.epochs])
        with self.clock.timed("folds", resumes=True):
            for target in range(setup.folded):
                for k in FOLDS:
                    self.folds(target, half(target, n), k)

    @property
    def at_once(self):
        """Models between two files."""
        return MODELS_AT_ONCE if self.stacked else 1

    def models(self, first, count, epochs):
        """Margins (count, epochs, n) of models `first` … after some epochs."""
        n, numbers = len(self.x), range(first, first + count)

        def make():
            members = [half(number, n) for number in numbers]
            _, margins = self.trained(members, [SEED + number for number in numbers], epochs)
            return {"margins": margins, "epochs": np.asarray(epochs), "first": np.array(first)}

        return self.kept(f"models_{first:03d}", make)

    def target(self, number):
        """An audited model: its margins after every epoch, its best epoch, and free columns of its members there and at the end."""

        def make():
            member = half(number, len(self.x))
            epochs = np.arange(self.recipe.epochs + 1)
            (module,), margins = self.trained([member], [SEED + number], epochs)
            unseen = losses_of(margins[0][:, ~member].astype(np.float64), self.recipe.task).mean(1)
            chosen = kept_epochs(self.recipe.epochs)
            best = int(chosen[unseen[chosen].argmin()])
            (early,), again = self.trained([member], [SEED + number], [best], self.stopped(best, int(member.sum())))
            apart = np.abs(again[0, 0] - margins[0, best]).max() / max(margins[0, best].std(), 1e-12)
            if apart > SAME_MARGINS:
                raise RuntimeError(f"{self.setup.name}: the checkpoint trained again says something else by {apart:.2g} of the spread")
            found = {"margins": margins[0], "best": np.array(best), "apart": np.array(apart)}
            for when, model in (("final", module), ("early", early)):
                found |= {f"{when}_{name}": values for name, values in self.columns(model, member).items()}
            return found

        return self.kept(f"target_{number:02d}", make)

    def columns(self, model, member):
        """Free columns of the members of a model."""
        rows = np.flatnonzero(member)
        return last_layer(self.recipe, model, (self.recipe.x[rows], self.recipe.y[rows].numpy().squeeze()))

    def folds(self, target, member, k):
        """Margins (k, n) of models trained on the target's members without one fold each, and those members (k, n)."""
        numbers = fold_numbers(target, member, k)

        def make():
            members = [member & (numbers != fold) for fold in range(k)]
            _, margins = self.trained(members, [SEED + 1000 * k + 10 * target + fold for fold in range(k)], [self.recipe.epochs])
            return {"margins": margins[:, 0], "membership": np.array(members)}

        return self.kept(f"folds_{target:02d}_{k}", make)
