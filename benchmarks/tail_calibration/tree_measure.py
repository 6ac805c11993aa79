"""What the models of a tree setup show, what attacks find, and how every score ranks: from the work folder of `tree_run`.

`python -m benchmarks.tail_calibration.tree_measure --work DIR` writes benchmarks/results/tree_calibration/NAME.json for every setup that
is complete and has no file yet.

Statistic of attacks: log((k + ½)/(B − k + ½)) of a forest of B trees with summed probability k, log p − log(1 − p) of boosting.
"""

import argparse
import json
from dataclasses import asdict
from datetime import date
from pathlib import Path

import numpy as np

import noshadow as ns
from benchmarks.environment import environment
from benchmarks.exposure.truth import separation
from benchmarks.tail_calibration.tree_rivals import label_quality, shapley_of_neighbours, structural, worst_case
from benchmarks.tail_calibration.tree_setups import SETUPS
from noshadow._audit.tracing import OF_ROUNDS
from noshadow._exposure import Source, weighed
from noshadow._exposure.rules import CHOSEN
from noshadow.attacks import attack_success, lira_scores, rmia_scores
from noshadow.metrics import loss_auc, spearman, top_recall, tpr_at_fpr

RESULTS = Path(__file__).parents[1] / "results" / "tree_calibration"
FPRS = (1e-3, 1e-2)
FEWER, FEWER_TARGETS = (4, 16), 16
REFERENCES = 2  # models after the targets that `exposure` may read
LEAST = 1e-7  # probabilities of boosting in float32 end here
FLOOR = {"forest": 0.05, "boosting": 1e-3}  # least spread of LiRA: about one vote of a hundred
COVARIATES = ("shift", "leverage", "entropy", "left_out_loss", "out_of_bag_loss", "early_loss", "lt_iqr")
NOT_SCORES = (
    "id",
    "target",
    "rank",
    "exposure_low",
    "exposure_high",
    "attack_rate_low",
    "attack_rate_high",
    "position",
    "class_rank",
    "group_rank",
)


def shares(setup, probability):
    """Probabilities inside (0, 1): votes of a forest with half a vote on either side."""
    if setup.family == "forest":
        trees = setup.how["n_estimators"]
        return (probability * trees + 0.5) / (trees + 1)
    return np.clip(probability, LEAST, 1 - LEAST)


def statistic(setup, probability):
    """Margins of the shares."""
    inside = shares(setup, probability)
    return np.log(inside) - np.log1p(-inside)


def short(value):
    """Six digits."""
    return float(f"{value:.6g}")


def chosen_models(membership, target, models, rng):
    """(models, n) rows of reference models, half of them IN and half OUT for every record, and their membership."""
    others = rng.permutation(np.flatnonzero(np.arange(len(membership)) != target))
    inside = membership[others]
    rows = [np.argsort(~side, axis=0, kind="stable")[: models // 2] for side in (inside, ~inside)]
    side = np.zeros((models, membership.shape[1]), dtype=bool)
    side[: models // 2] = True
    return others[np.concatenate(rows)], side


def attacked(setup, own, reference, side, member, variance):
    """LiRA and RMIA scores of all records under one model; `own` and `reference` are shares."""
    margin, margins = (np.log(values) - np.log1p(-values) for values in (own, reference))
    outside = ~member
    return {
        "lira": lira_scores(margin, margins, side, variance=variance, floor=FLOOR[setup.family]),
        "rmia": rmia_scores(own, reference, side, own[outside], reference[:, outside], population_membership=side[:, outside]),
    }


def rates(name, scores, member):
    """TPR at the calibrated false-positive rates."""
    return {f"{name}_tpr_{fpr:g}": tpr_at_fpr(scores[member], scores[~member], fpr) for fpr in FPRS}


def losses_of(probability):
    """Cross-entropies as audits have them: a zero is raised to 1e-15."""
    return -np.log(np.where(probability > 0, probability, 1e-15))


def attacks_and_predictors(setup, held):
    """name → one number a target."""
    probability, membership, correct = (held[name] for name in ("probability", "membership", "correct"))
    inside, rng, found = shares(setup, probability), np.random.default_rng(0), []
    for target, member in enumerate(membership):
        loss = losses_of(probability[target])
        row = ns.risk_predictors(loss[member], loss[~member])
        row |= {"auc": loss_auc(loss[member], loss[~member])}
        row |= {"member_accuracy": correct[target][member].mean(), "nonmember_accuracy": correct[target][~member].mean()}
        others = np.arange(len(membership)) != target
        for variance in ("record", "global"):
            scores = attacked(setup, inside[target], inside[others], membership[others], member, variance)
            row |= rates(f"lira_{variance}", scores["lira"], member)
        row |= rates("rmia", scores["rmia"], member)
        for models in FEWER if target < FEWER_TARGETS else ():
            rows, side = chosen_models(membership, target, models, rng)
            scores = attacked(setup, inside[target], np.take_along_axis(inside, rows, axis=0), side, member, "global")
            row |= rates(f"lira_k{models}", scores["lira"], member) | rates(f"rmia_k{models}", scores["rmia"], member)
        found.append(row)
    names = sorted({name for row in found for name in row})
    return {name: [short(row[name]) for row in found if name in row] for name in names}


def scores_of(setup, target, margins, membership, held):
    """Every score of one audited model's records, name → (m,), with the trainings that it spends in its name."""
    member = membership[target]
    columns = columns_in(held)
    found = {name: values for name, values in columns.items() if name not in NOT_SCORES and np.isfinite(values).any()}
    own = margins[target][member]
    if setup.family == "boosting" and "shift" in found:
        found["margin left out"] = found["shift"] - own
        # Tried in the place of `shift`: its geometric mean with a guess at the loss without the record.
        found["shift, early loss"] = geometric_mean(found["shift"], columns["early_loss"])
        found["shift, other labels"] = geometric_mean(found["shift"], held["other_labels"])
    labels, outputs = held["y"], held["outputs"].astype(np.float64)
    found["SHAPr"] = shapley_of_neighbours(outputs[member], labels[member], outputs[~member], labels[~member])
    found["SACRO worst case"] = worst_case(outputs, member)[member]
    found["SACRO structural"] = structural(outputs[member])
    found["SACRO quantile"] = held["quantile_margin"]
    found["cleanlab, 5 folds"] = label_quality(labels[member], held["folds"])
    found |= exposures_of(setup, target, margins, membership, columns)
    rows = slice(setup.targets, setup.targets + REFERENCES)
    # What one would do with the same two models: the fall of the mean margin.
    known = np.where(membership[rows], np.nan, margins[rows])[:, member]
    counts = np.isfinite(known).sum(0)
    outside = np.where(counts > 0, np.nansum(known, 0) / np.maximum(counts, 1), np.nanmean(known))
    found["difference, 2 references"] = own - outside
    return found


def columns_in(held):
    """Columns of the audit that a work file holds, name → (m,)."""
    return {name[7:]: held[name] for name in held.files if name.startswith("column_")}


def exposures_of(setup, target, margins, membership, columns):
    """Scores of `exposure`, with what the audit has for free and with two references beside it."""
    member = membership[target]
    own, test = margins[target][member], margins[target][~member]
    held = {name: columns[name] for name in COVARIATES if name in columns and np.isfinite(columns[name]).all()}
    free = {OF_ROUNDS if name == "lt_iqr" else name: values for name, values in held.items()}
    sources = free_sources(columns, own, test)
    alone = weighed(own, test, sources, free=free).score
    rows = slice(setup.targets, setup.targets + REFERENCES)
    test_rows = np.where(membership[rows], np.nan, margins[rows])[:, ~member]
    source = Source("references", margins=margins[rows][:, member], membership=membership[rows][:, member], test_margins=test_rows)
    return {"exposure, nothing trained": alone, "exposure, 2 references": weighed(own, test, [*sources, source], free=free).score}


def geometric_mean(one, other):
    """√(ab) of two scores, 0 where either is not positive."""
    return np.sqrt(np.maximum(one, 0.0) * np.maximum(other, 0.0))


def free_sources(columns, own, test):
    """Out-of-bag votes as one model without each record, where there are bags."""
    if "out_of_bag_loss" not in columns:
        return []
    margins = -np.log(np.expm1(columns["out_of_bag_loss"]))
    return [Source("out of bag", margins=margins[None], membership=np.zeros((1, len(own)), bool), test_margins=test[None])]


def ranked(setup, held, work, scores_of=scores_of):
    """score → recall of the top 1 % by d′ in its top 5 %, Spearman with d′ and with success; means over targets."""
    membership, margins = held["membership"], statistic(setup, held["probability"])
    truth_rows = slice(setup.targets + REFERENCES, None)
    d_prime = separation_of(setup, margins[truth_rows], membership[truth_rows])
    rest = margins[truth_rows], membership[truth_rows]
    halves = [separation_of(setup, rest[0][k::2], rest[1][k::2]) for k in range(2)]
    success = attack_success(*rest, variance="global").success
    rows, ranked_by = {}, set()
    for target in range(setup.targets):
        with np.load(work / f"{setup.name}_target_{target}.npz") as kept:
            scores, member = scores_of(setup, target, margins, membership, kept), membership[target]
            ranked_by.add(str(kept["ranked_by"]))
        known = np.isfinite(d_prime[member])
        for half in halves:
            known &= np.isfinite(half[member])
        real, one, other = (values[member][known] for values in (d_prime, *halves))
        for name, values in scores.items():
            value = np.where(np.isnan(values), -np.inf, values)[known]
            entry = top_recall(real, value), correlation(real, value), correlation(success[member][known], value)
            rows.setdefault(name, []).append(entry)
        ceiling = (top_recall(one, other) + top_recall(other, one)) / 2
        rows.setdefault("second LiRA", []).append((ceiling, spearman(one, other), spearman(success[member][known], other)))
    means = {name: np.mean(each, axis=0) for name, each in rows.items() if len(each) == setup.targets}
    return {
        "ranked_by": sorted(ranked_by),
        # Rows of exposure are of this weighing and this version of it.
        "weighing": asdict(CHOSEN) | {"noshadow": ns.__version__, "ranked": date.today().isoformat()},
        "scores": {name: {"recall": short(a), "spearman": short(b), "success": short(c)} for name, (a, b, c) in means.items()},
    }


def correlation(truth, score):
    """Spearman's; 0 for a score that is the same for all records, as flags may be."""
    return 0.0 if np.ptp(score) == 0 else spearman(truth, score)


def separation_of(setup, margins, membership):
    """d′ of every record; the floor of the attack's spread keeps records that all models answer alike."""
    noise = np.random.default_rng(0).normal(size=margins.shape) * FLOOR[setup.family]
    return separation(margins + noise, membership)[0]


def measured(setup, work, kept=None):
    """The stored JSON of one setup; with what was kept of it, its ranking alone anew."""
    with np.load(work / f"{setup.name}.npz") as held:
        held = {name: held[name] for name in held.files}
    if kept is not None:
        anew = ranked(setup, held, work)
        return kept | {"ranking": anew | {"weighing": anew["weighing"] | {"environment": environment()}}}
    entry = {"setup": setup.described(), "models": len(held["membership"]), "seconds": round(float(held["seconds"]), 1)}
    entry |= {"targets": attacks_and_predictors(setup, held), "ranking": ranked(setup, held, work), "environment": environment()}
    return entry


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder that tree_run wrote")
    parser.add_argument("--again", action="store_true", help="also setups that have a file")
    parser.add_argument("--ranking", action="store_true", help="which score ranks, anew in the files that are there; attacks stay")
    parser.add_argument("--only", nargs="+", choices=SETUPS, help="some setups")
    asked = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for setup in SETUPS.values():
        path = RESULTS / f"{setup.name}.json"
        if not (asked.work / f"{setup.name}.npz").exists() or (path.exists() and not (asked.again or asked.ranking)):
            continue
        if asked.only and setup.name not in asked.only:
            continue
        kept = json.loads(path.read_text()) if asked.ranking and path.exists() else None
        entry = measured(setup, asked.work, kept)
        path.write_text(json.dumps(entry, separators=(",", ":")).replace('],"', '],\n"').replace('},"', '},\n"') + "\n")
        mean = {name: np.mean(values) for name, values in entry["targets"].items()}
        shown = ("member_accuracy", "nonmember_accuracy", "auc", "lira_record_tpr_0.001", "lira_global_tpr_0.001", "rmia_tpr_0.001")
        print(setup.name, *(f"{name} {mean[name]:.3f}" for name in shown), flush=True)
        print(
            "  ",
            {name: (round(row["recall"], 2), round(row["spearman"], 2)) for name, row in entry["ranking"]["scores"].items()},
            flush=True,
        )


if __name__ == "__main__":
    main()
