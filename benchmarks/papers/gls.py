"""[GLS] Table 2 and its figures: the leverage score by depth beside what reference models measure."""

import time

import numpy as np
from sklearn.manifold import TSNE

import noshadow as ns
from benchmarks.papers.columns import whole_network
from noshadow.attacks import attack_success, lira_scores
from noshadow.metrics import spearman, tpr_at_fpr

OURS = ("margin_leverage", "shift")
STEPS = (1, 4)
FROG = 6
SHARE = 0.02
RATES = tuple(float(f"{rate:.3g}") for rate in np.geomspace(0.01, 1.0, 25))


def shadow_metrics(references, target):
    """What the other reference models say of the target's training records: LiRA's score, σ ratio, TPR at 0.05, mean gap."""
    signals, member = np.asarray(references.statistic), np.asarray(references.membership)
    others = np.arange(len(signals)) != target
    return _metrics(signals[target], signals[others], member[others], references.plan.members(target))


def audited_metrics(references):
    """The same of all records of the pool, for the audited model, which is none of the reference models."""
    signals, member = np.asarray(references.statistic), np.asarray(references.membership)
    return _metrics(np.asarray(references.target.statistic), signals, member, np.arange(signals.shape[1]))


def _metrics(own, signals, member, rows):
    """Metrics of some records of a model with these signals of its own, from other models' signals and membership.

    LiRA's score is the log-likelihood ratio of the model's own signal, with one variance for all records and with each record's own.
    """
    known, inside = signals[:, rows], member[:, rows]
    found = attack_success(signals, member, attack="lira", variance="record", fpr=0.05)
    mean_in, mean_out = (np.where(side, known, 0).sum(0) / side.sum(0) for side in (inside, ~inside))
    return {
        "lira_score": lira_scores(own, signals, member, variance="global")[rows],
        "lira_score_record": lira_scores(own, signals, member, variance="record")[rows],
        "sigma_ratio": _spread(known, ~inside) / _spread(known, inside),
        "tpr_0.05": found.tpr[rows],
        "mean_gap": np.abs(mean_in - mean_out),
        "d_prime": found.d_prime[rows],
    }


def _spread(signals, side):
    return np.nanstd(np.where(side, signals, np.nan), axis=0)


def depth_table(references, targets, depths):
    """Spearman of the leverage score over the last 1, 2, 4 and all layers, and of our scores, with each shadow metric, a value a target."""
    names = {"last": "leverage"} | {str(depth): f"leverage_{depth}" for depth in depths} | {name: name for name in OURS}
    found = {}
    for target in range(targets):
        scores = references.extra(target)
        for metric, truth in shadow_metrics(references, target).items():
            for label, name in names.items():
                value = spearman(truth, np.asarray(scores[name]))
                found.setdefault(metric, {}).setdefault(label, []).append(round(value, 4))
    return found


def depth_seconds(trained, module, depths, count):
    """Processor and wall seconds to score every training record (the first `count`) of one model at each depth, in one run."""
    rows = np.arange(count)
    data = (trained.x[rows], trained.y[rows].numpy())
    ways = {"last": lambda: last_layer_leverage(trained, module, data)}
    ways |= {str(depth): lambda depth=depth: whole_network(trained, module, data, depth, "projected", outputs="all") for depth in depths}
    found = {}
    for depth, way in ways.items():
        wall, processor = time.perf_counter(), time.process_time()
        way()
        found[depth] = {"wall": round(time.perf_counter() - wall, 2), "processor": round(time.process_time() - processor, 2)}
    return found


def published_seconds(trained, module, depths, count):
    """Processor seconds of one product with the Hessian in [GLS]'s Algorithm 1, for one record and all training records, by depth.

    The difference between runs of four steps and of one, which start and end alike, over three; without the preconditioner, which is ours.
    """
    rows = np.arange(count)
    data = (trained.x[rows], trained.y[rows].numpy())
    point = tuple(part[:1] for part in data)
    found = {}
    for depth in ("last", *depths):
        spent = {}
        for steps in STEPS:
            processor = time.process_time()
            ns.generalized_leverage(
                module,
                data,
                point,
                damping="auto",
                weight_decay=trained.weight_decay,
                layers=depth,
                tolerance=1e-12,
                max_iterations=steps,
                preconditioner_rank=0,
                precision="float32",
            )
            spent[steps] = time.process_time() - processor
        found[str(depth)] = round((spent[STEPS[1]] - spent[STEPS[0]]) / (STEPS[1] - STEPS[0]), 4)
    return found


def last_layer_leverage(trained, module, data):
    """The exact closed form of the last layer."""
    signals = ns.collect_signals(module, data)
    damping = len(data[1]) * trained.weight_decay
    return ns.record_scores(signals.features, signals.outputs, signals.targets, damping=damping, columns=("leverage",))


def frogs(trained, module, leverage):
    """t-SNE of the last layer's features of one class, with each record's leverage."""
    rows = np.flatnonzero(trained.y[: len(leverage)].numpy() == FROG)
    signals = ns.collect_signals(module, (trained.x[rows], trained.y[rows].numpy()))
    places = TSNE(random_state=0, init="pca", perplexity=30).fit_transform(np.asarray(signals.features, np.float64))
    return {"x": _short(places[:, 0]), "y": _short(places[:, 1]), "leverage": _short(leverage[rows])}


def high_and_low(references, leverage):
    """FNR over FPR of LiRA on the records with the highest and the lowest leverage, over all models: mean and 95 % band."""
    signals, member = np.asarray(references.statistic), np.asarray(references.membership)
    order, count = np.argsort(leverage, kind="stable"), max(int(SHARE * len(leverage)), 1)
    groups, found = {"highest": order[-count:], "lowest": order[:count]}, {}
    for name, rows in groups.items():
        curves = []
        for model in range(len(signals)):
            others = np.arange(len(signals)) != model
            scores = lira_scores(signals[model], signals[others], member[others], variance="global")[rows]
            inside = member[model][rows]
            curves.append(
                [1.0 - tpr_at_fpr(scores[inside], scores[~inside], rate) if rate * (~inside).sum() >= 1 else np.nan for rate in RATES]
            )
        held = np.array(curves)
        kept = ~np.isnan(held).any(0)
        found[name] = {
            "fpr": [rate for rate, keep in zip(RATES, kept, strict=True) if keep],
            "mean": _short(held[:, kept].mean(0)),
            "low": _short(np.quantile(held[:, kept], 0.025, axis=0)),
            "high": _short(np.quantile(held[:, kept], 0.975, axis=0)),
        }
    return found | {"records": count}


def _short(values):
    return [round(float(value), 4) for value in values]
