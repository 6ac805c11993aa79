"""How closely each score ranks a model's records as the attacks do: tables and curves over several targets."""

import functools

import numpy as np

from noshadow.attacks import attack_success
from noshadow.attacks.shokri import shokri_success
from noshadow.metrics import agreement_table, noise_ceiling, top_recall
from noshadow.reference.rmia_probabilities import reference_probabilities

RECALLS = ((0.01, 0.05), (0.001, 0.001), (0.01, 0.01), (0.05, 0.05))
OWN_VARIANCE = 64
# Models on either side of a record below which no spread is told.
KNOWN = 3
CURVE = tuple(float(f"{k:.2g}") for k in np.geomspace(1e-3, 1.0, 16))
CURVED = ("loss", "gradient_norm", "newton", "influence", "shift", "network_influence", "network_shift")


def lira_truth(references, models, *, statistic="margin", variance=None, rows=slice(None)):
    """LiRA over some of the models, and some of the records, by one statistic: an `AttackSuccess`.

    "margin" is what the package attacks with: the logit margin, and in a regression the signed residual, looked at from both sides.
    "loss" is [RET]'s: minus the loss, which a member's is above. One variance for all records below 64 models, each its own from there on.
    """
    member = np.asarray(references.membership)[models][:, rows]
    variance = variance or ("record" if references.plan.models >= OWN_VARIANCE else "global")
    if statistic == "loss":
        return attack_success(-np.asarray(references.loss)[models][:, rows], member, attack="lira", variance=variance)
    direction = "either" if references.task == "regression" else "larger"
    signals = np.asarray(references.statistic)[models][:, rows]
    return attack_success(signals, member, attack="lira", direction=direction, variance=variance)


def measured_truth(references, models, rows=slice(None)):
    """Success of LiRA and RMIA a record, and LiRA's d′, measured with some of the models (an array of their numbers), of some records.

    A regression has LiRA by the loss as well, as lira_loss_….
    """
    lira = lira_truth(references, models, rows=rows)
    probabilities, member = _probabilities(references)[models][:, rows], np.asarray(references.membership)[models][:, rows]
    rmia = attack_success(probabilities, member, attack="rmia")
    found = {"lira_success": lira.success, "lira_d": lira.d_prime, "rmia_success": rmia.success}
    if references.task == "regression":
        loss = lira_truth(references, models, statistic="loss", rows=rows)
        found |= {"lira_loss_success": loss.success, "lira_loss_d": loss.d_prime}
    return found


@functools.lru_cache(maxsize=1)
def _probabilities(references):
    return reference_probabilities(references)[0]


def shokri_truth(references, models):
    """Success of Shokri's attack a record over some of the models."""
    outputs = np.stack([references.outputs(int(model)) for model in models])
    member = np.asarray(references.membership)[models]
    found = shokri_success(outputs, references.targets, member, task=references.task, folds=4, seed=0)
    return {"shokri_success": found.success}


def target_sides(references, targets):
    """(truths, scores) of each scored model, on its own training records; its truth is measured with all the other models.

    Shokri's attack is learnt from the models that are not scored, once for all targets; it needs the models' outputs.
    """
    numbers = np.arange(references.plan.models)
    shokri = shokri_truth(references, numbers[targets:]) if references.has_outputs else {}
    truths, scores = [], []
    for target in range(targets):
        rows = references.plan.members(target)
        truth = measured_truth(references, numbers[numbers != target]) | shokri
        truths.append({name: values[rows] for name, values in truth.items()})
        scores.append({name: np.asarray(values) for name, values in references.extra(target).items()})
    return truths, scores


def agreement(truths, scores):
    """Rows of Spearman and recalls of every score against every attack, with intervals over the targets."""
    table = agreement_table(truths, scores, recalls=RECALLS)
    return [_rounded(row) for row in table.to_dict("records") if row["metric"] in ("spearman", "recall")]


def ceiling(references, targets):
    """The same between two truths from disjoint halves of the models, attack by attack: means over the targets' own records.

    The plan is balanced within each half of the models. Those of a half alone are not balanced once more: records that fewer than
    KNOWN of a half had, or had not, are left out.
    """
    halves = np.array_split(np.arange(references.plan.models), 2)
    sides = [np.asarray(references.membership)[half].sum(0) for half in halves]
    known = np.minimum.reduce([np.minimum(side, len(half) - side) for side, half in zip(sides, halves, strict=True)]) >= KNOWN
    first, second = (measured_truth(references, half, known) for half in halves)
    rows = []
    for name in first:
        tables = []
        for target in range(targets):
            own = np.asarray(references.membership)[target][known]
            table = noise_ceiling(first[name][own], second[name][own], recalls=RECALLS, attack=name, resamples=100)
            tables.append(table.to_dict("records"))
        for same in zip(*tables, strict=True):
            values = [row["value"] for row in same if row["value"] is not None]
            mean = float(np.mean(values)) if values else None
            rows.append(_rounded(same[0] | {"value": mean, "low": None, "high": None, "targets": targets, "note": ""}))
    return rows


def curves(truths, scores):
    """Recall of the top k in the top k for k from 0.001 to 1: mean and spread over targets, attack by attack."""
    found = {}
    for attack in truths[0]:
        found[attack] = {}
        for name in [name for name in CURVED if name in scores[0]]:
            pairs = [(truth[attack], score[name]) for truth, score in zip(truths, scores, strict=True)]
            values = np.array([[top_recall(*pair, top=k, keep=k) for k in CURVE] for pair in pairs])
            found[attack][name] = {"mean": _list(values.mean(0)), "std": _list(values.std(0)), "one": _list(values[0])}
    return {"k": list(CURVE), "attacks": found}


def attack_rates(references, targets, levels=(1e-3, 1e-2, 0.1)):
    """AUC and TPR of each attack over the scored models, each attacked with all the others."""
    member = np.asarray(references.membership)
    smallest = 1.0 / min(int((~row).sum()) for row in member)
    levels = [level for level in levels if level >= smallest]
    direction = "either" if references.task == "regression" else "larger"
    lira = attack_success(references.statistic, member, attack="lira", direction=direction, fprs=levels)
    found = {
        "lira": lira,
        "rmia": attack_success(_probabilities(references), member, attack="rmia", fprs=levels),
        "loss": attack_success(references.loss, member, attack="loss", fprs=levels),
    }
    return {
        name: {"auc": _list(part.model_auc[:targets])}
        | {f"tpr_{level:g}": _list(part.model_tpr[:targets, k]) for k, level in enumerate(levels)}
        for name, part in found.items()
    }


def _list(values):
    return [round(float(value), 5) for value in values]


def _rounded(row):
    return {key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()}
