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
        return self.with_notes(model, indices)[0]

    def with_notes(self, model, indices):
        """(columns, notes): the columns of one model, and what the package said of them, each note under the layers it is of."""
        records = (self.recipe.x[indices], self.recipe.y[indices].numpy().squeeze())
        scores = last_layer_scores(self.recipe, model, records)
        found, notes = _present(scores), {"last layer": list(map(str, scores.notes))}
        if self.network is not None:
            scores = whole_network(self.recipe, model, records, "all", self.network)
            found |= {f"network_{name}": values for name, values in scores.columns().items() if name in WHOLE}
            notes["whole network"] = list(map(str, scores.notes))
        for depth in self.depths:
            scores = whole_network(self.recipe, model, records, depth, "projected", outputs="all")
            found[f"leverage_{depth}"] = scores.leverage
            notes[f"{depth} layers"] = list(map(str, scores.notes))
        return found, {layers: told for layers, told in notes.items() if told}


@dataclass(frozen=True)
class TimedColumns:
    """The same columns; what each target took, and the notes on its scores, go to a file, a line each: its time is not that of training."""

    columns: ScoreColumns
    path: Path

    def __call__(self, model, indices, seed):
        """The columns of one model."""
        wall, processor = time.perf_counter(), time.process_time()
        found, notes = self.columns.with_notes(model, indices)
        spent = {"seed": int(seed), "wall": time.perf_counter() - wall, "processor": time.process_time() - processor, "notes": notes}
        with self.path.open("a") as file:
            file.write(json.dumps(spent) + "\n")
        return found


def last_layer(recipe, model, records):
    """Exact columns of the last layer at the training's own damping."""
    return _present(last_layer_scores(recipe, model, records))


def _present(scores):
    return {name: getattr(scores, name) for name in LAST if getattr(scores, name) is not None}


def last_layer_scores(recipe, model, records):
    """Exact scores of the last layer at the training's own damping."""
    signals, n = ns.collect_signals(model, records), len(records[1])
    damping = n * recipe.weight_decay * (recipe.outputs / 2 if recipe.task == "regression" else 1.0)
    # A network that has hardly been trained may give logits that look like probabilities.
    scale = "auto" if recipe.task == "regression" else "logits"
    return ns.record_scores(signals.features, signals.outputs, signals.targets, task=recipe.task, damping=damping, output_scale=scale)


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
