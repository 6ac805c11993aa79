"""What one setup shows: losses, scores and attacks of every reference model taken as a target."""

from dataclasses import dataclass

import numpy as np

import noshadow as ns
from noshadow.attacks import lira_scores, rmia_scores
from noshadow.metrics import loss_auc, tnr_at_fnr, tpr_at_fpr
from noshadow.reference import Recipe
from noshadow.scores.traces import loss_trace_iqr
from noshadow.tail.predictors import margin_shifts

LEVELS = (1e-3, 1e-2, 0.05, 0.1)
FPRS = (1e-3, 1e-2)
QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
FEWER = (4, 8, 16, 32)
FEWER_TARGETS = 16
COLUMNS = ("leverage", "margin_leverage", "influence", "newton", "loo", "shift")
FIXED_DECAY = 5e-4
LARGE_HEAD = 3000


@dataclass(frozen=True)
class LastLayerColumns:
    """Scores of a model's own training records, as the `extra` of `train_references`."""

    recipe: Recipe

    def __call__(self, model, indices, seed):
        """The columns of one model; its seed does not matter."""
        return last_layer_columns(self.recipe, model, indices)


def last_layer_columns(recipe, model, indices):
    """Scores of a model's own training records: at the training's damping, and margin leverage at one fixed decay as well."""
    n, records = len(indices), (recipe.x[indices], recipe.y[indices].numpy())
    signals = ns.collect_signals(model, records)
    if signals.outputs.shape[1] * (signals.features.shape[1] + 1) > LARGE_HEAD:
        # The softmax columns of such a head take longer than its training; the margin has a dual form in n.
        found = [
            ns.network_scores(model, records, layers="last", damping=n * decay, method="dual")
            for decay in (recipe.weight_decay, FIXED_DECAY)
        ]
        return {"margin_leverage": found[0].margin_leverage, "margin_leverage_fixed": found[1].margin_leverage}
    arrays = signals.features, signals.outputs, signals.targets
    scores = ns.record_scores(*arrays, damping=n * recipe.weight_decay, columns=COLUMNS)
    fixed = ns.record_scores(*arrays, damping=n * FIXED_DECAY, columns=("margin_leverage",))
    return {name: getattr(scores, name) for name in COLUMNS} | {"margin_leverage_fixed": fixed.margin_leverage}


def _quantiles(name, values):
    found = {f"{name}_q{level:g}": float(np.quantile(values, level)) for level in QUANTILES}
    return found | {f"{name}_mean": float(values.mean())}


def loss_summary(loss, correct, member):
    """Everything that two loss samples say about one model."""
    inside, outside = loss[member], loss[~member]
    found = {f"tnr_{level:g}": tnr_at_fnr(inside, outside, resolved(level, len(inside))) for level in LEVELS}
    risk = ns.model_risk(inside, outside, resamples=100)
    return found | {
        "auc": risk.auc,
        "ks": risk.ks,
        "wasserstein": risk.wasserstein,
        "loss_gap": risk.loss_gap,
        "member_loss": float(inside.mean()),
        "member_accuracy": float(correct[member].mean()),
        "nonmember_accuracy": float(correct[~member].mean()),
        "accuracy_gap": float(correct[member].mean() - correct[~member].mean()),
        "skewness": float(((outside - outside.mean()) ** 3).mean() / max(outside.std(), 1e-300) ** 3),
    }


def margin_columns(references):
    """Shifts of the margins' low tails of every model, from its losses."""
    losses, membership = np.asarray(references.loss), np.asarray(references.membership)
    rows = [margin_shifts(np.sort(own[inside]), np.sort(own[~inside])) for own, inside in zip(losses, membership, strict=True)]
    return {name: [_short(row[name]) for row in rows] for name in rows[0]}


def attacked(signals, membership, target, variance):
    """LiRA scores of all records under one model, the others as references."""
    others = np.arange(len(signals)) != target
    return lira_scores(signals[target], signals[others], membership[others], variance=variance)


def gathered(signals, membership, target, models, rng):
    """Signals of `models` references for every record, half of them IN and half OUT, as a balanced plan of so many has; the sides."""
    others = rng.permutation(np.flatnonzero(np.arange(len(signals)) != target))
    inside = membership[others]
    rows = [np.argsort(~side, axis=0, kind="stable")[: models // 2] for side in (inside, ~inside)]
    chosen = others[np.concatenate(rows)]
    side = np.zeros(chosen.shape, dtype=bool)
    side[: models // 2] = True
    return np.take_along_axis(signals, chosen if signals.ndim == 2 else chosen[..., None], axis=0), side


def with_fewer(signals, membership, target, models, rng, variances=("global",)):
    """LiRA with `models` references: the scores by each rule of `variances`, from the same references."""
    held, side = gathered(signals, membership, target, models, rng)
    return [lira_scores(signals[target], held, side, variance=variance) for variance in variances]


def two_reference_rmia(loss, membership, target, rng):
    """RMIA with one IN and one OUT reference a record; the population are the target's non-members."""
    others = rng.permutation(np.flatnonzero(np.arange(len(loss)) != target))
    inside = membership[others]
    chosen = others[np.stack([side.argmax(axis=0) for side in (inside, ~inside)])]
    probability = np.exp(-loss)
    gathered = np.take_along_axis(probability, chosen, axis=0)
    side = np.zeros(gathered.shape, dtype=bool)
    side[0] = True
    outside = ~membership[target]
    return rmia_scores(
        probability[target], gathered, side, probability[target][outside], gathered[:, outside], population_membership=side[:, outside]
    )


def measured(references):
    """Per-target lists of every quantity, and the attack pooled over targets at the rates one target cannot resolve.

    `lira_kK` has one spread for all records, `lira_kK_record` a spread of each record's own; `lira_global` and `lira_record` are
    the same two rules with all the other models as references.
    """
    signals, loss = np.asarray(references.statistic), np.asarray(references.loss)
    correct, membership = np.asarray(references.correct), np.asarray(references.membership)
    rng = np.random.default_rng(0)
    targets, pooled = [], {"record": ([], []), "global": ([], [])}
    for target, member in enumerate(membership):
        found = loss_summary(loss[target], correct[target], member)
        for name, values in references.model(target).extra.items():
            found |= _quantiles(name, np.asarray(values))
        for variance, sides in pooled.items():
            scores = attacked(signals, membership, target, variance)
            found |= _success(f"lira_{variance}", scores, member)
            sides[0].append(scores[member])
            sides[1].append(scores[~member])
        if target < FEWER_TARGETS:
            for models in FEWER:
                names = (f"lira_k{models}", f"lira_k{models}_record")
                for name, scores in zip(names, with_fewer(signals, membership, target, models, rng, ("global", "record")), strict=True):
                    found |= _success(name, scores, member)
            found |= _success("rmia_k2", two_reference_rmia(loss, membership, target, rng), member)
        targets.append(found)
    names = sorted({name for found in targets for name in found})
    return {
        "targets": {name: [_short(found[name]) for found in targets if name in found] for name in names} | margin_columns(references),
        "pooled": {name: _pooled(*map(np.concatenate, sides)) for name, sides in pooled.items()},
    }


def resolved(level, records):
    """The rate itself, or the smallest that so few records resolve, as audits take it."""
    return max(level, 1 / records)


def _success(name, scores, member):
    inside, outside = scores[member], scores[~member]
    return {f"{name}_tpr_{fpr:g}": tpr_at_fpr(inside, outside, resolved(fpr, len(outside))) for fpr in FPRS} | {
        f"{name}_auc": loss_auc(-inside, -outside)
    }


def _pooled(inside, outside):
    return {f"tpr_{fpr:g}": _short(tpr_at_fpr(inside, outside, fpr)) for fpr in (1e-4, *FPRS) if len(outside) * fpr >= 10}


def _short(value):
    return float(f"{value:.6g}")


def traced(recipe, *, models=2, seed=4242):
    """LT-IQR AUC and whole-network scores of a few further models of the setup, trained alike."""
    n, rng = len(recipe.x), np.random.default_rng(seed)
    rows = [np.sort(rng.permutation(n)[: n // 2]) for _ in range(models)]
    seeds = range(seed, seed + models)
    if recipe.vectorisable() is None:
        modules, losses = recipe.train_many(rows, list(seeds), traces_on=True)
    else:
        modules, losses = zip(*(recipe.train_one(own, number, traces=True) for own, number in zip(rows, seeds, strict=True)), strict=True)
    found = [_traced_row(recipe, *one) for one in zip(modules, losses, rows, strict=True)]
    return {name: [_short(row[name]) for row in found] for name in found[0]}


def _traced_row(recipe, model, traces, rows):
    member = np.zeros(len(recipe.x), dtype=bool)
    member[rows] = True
    spread, final = loss_trace_iqr(traces), (traces[member, -1], traces[~member, -1])
    records = (recipe.x[rows], recipe.y.numpy()[rows])
    network = ns.network_scores(model, records, layers="all", weight_decay=recipe.weight_decay, method="dual")
    found = {"lt_iqr_auc": loss_auc(-spread[member], -spread[~member]), "tnr_0.001": tnr_at_fnr(*final, 1e-3)}
    for name in ("margin_leverage", "loo", "shift"):
        found |= _quantiles(f"network_{name}", getattr(network, name))
    return found
