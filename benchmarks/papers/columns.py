"""Scores of one model's own training records: what [RET] and [GLS] compare, computed by the package's public functions."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import noshadow as ns
from noshadow.reference import Recipe

LAST = ("loss", "gradient_norm", "entropy", "leverage", "influence", "newton", "loo", "shift", "margin_leverage")
WHOLE = ("leverage", "margin_leverage", "influence", "newton", "loo", "shift")
DIMENSION = 1024
MEMORY = 4e9


@dataclass(frozen=True)
class ScoreColumns:
    """The `extra` of `train_references`: columns of a model, named network_… over all layers and leverage_k over the last k."""

    recipe: Recipe
    network: str | None
    depths: tuple

    def __call__(self, model, indices, seed):
        """The columns of one model; its seed does not matter."""
        records = (self.recipe.x[indices], self.recipe.y[indices].numpy().squeeze())
        found = last_layer(self.recipe, model, records)
        if self.network is not None:
            scores = whole_network(self.recipe, model, records, "all", self.network)
            found |= {f"network_{name}": values for name, values in scores.columns().items() if name in WHOLE}
        for depth in self.depths:
            scores = whole_network(self.recipe, model, records, depth, "projected", outputs="all")
            found[f"leverage_{depth}"] = scores.leverage
        return found


@dataclass(frozen=True)
class TimedColumns:
    """The same columns; what each target took goes to a file, a line each, as its time is not that of training."""

    columns: ScoreColumns
    path: Path

    def __call__(self, model, indices, seed):
        """The columns of one model."""
        wall, processor = time.perf_counter(), time.process_time()
        found = self.columns(model, indices, seed)
        spent = {"seed": int(seed), "wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
        with self.path.open("a") as file:
            file.write(json.dumps(spent) + "\n")
        return found


def last_layer(recipe, model, records):
    """Exact columns of the last layer at the training's own damping."""
    signals, n = ns.collect_signals(model, records), len(records[1])
    damping = n * recipe.weight_decay * (recipe.outputs / 2 if recipe.task == "regression" else 1.0)
    scores = ns.record_scores(signals.features, signals.outputs, signals.targets, task=recipe.task, damping=damping)
    return {name: getattr(scores, name) for name in LAST if getattr(scores, name) is not None}


def whole_network(recipe, model, records, layers, method, outputs="auto"):
    """Scores over many layers at the training's own damping."""
    return ns.network_scores(
        model,
        records,
        task=recipe.task,
        layers=layers,
        method=method,
        outputs=outputs,
        weight_decay=recipe.weight_decay,
        dimension=DIMENSION,
        max_memory=MEMORY,
    )
