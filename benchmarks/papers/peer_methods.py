"""The methods that benchmarks/papers/peers.py compares: each gives name → (scores, seconds), one score a draw of its references."""

import logging
import shutil
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
from art.estimators.classification import SklearnClassifier
from art.metrics import SHAPr
from cleanlab.rank import get_label_quality_scores
from scipy.special import expit
from sklearn.model_selection import cross_val_predict
from sklearn.neural_network import MLPClassifier

import noshadow as ns
from noshadow.attacks import attack_success, lira_scores, rmia_scores
from noshadow.losses import record_margins

OURS = {"shift": "noshadow audit: shift", "margin_leverage": "noshadow audit: margin leverage", "newton": "noshadow audit: Newton"}
REPEATS = 3
FOLDS = 5
SACRO_MODES = {
    "offline, its default": {"mode": "offline"},
    "online, fixed variance": {"mode": "online-carlini", "fix_variance": True},
}


@dataclass(frozen=True, eq=False)
class Case:
    """One target: the model, the records it was trained on and the others, as rows of the pool."""

    model: MLPClassifier
    x: np.ndarray
    y: np.ndarray
    members: np.ndarray
    others: np.ndarray

    @property
    def seen(self):
        """(x, y) of the records the target was trained on."""
        return self.x[self.members], self.y[self.members]

    @property
    def unseen(self):
        """(x, y) of the others."""
        return self.x[self.others], self.y[self.others]

    @property
    def margins(self):
        """LiRA's statistic of every record of the pool under the target."""
        return record_margins(ns.collect_signals(self.model, (self.x, self.y)).outputs, self.y, "classification")


@dataclass(frozen=True, eq=False)
class Few:
    """Margins (r, n) and membership (r, n) of reference models kept apart from the truth, and the mean cost of one."""

    margins: np.ndarray
    membership: np.ndarray
    seconds: dict

    def draws(self, count):
        """Disjoint sets of `count` models, each balanced."""
        return np.arange(len(self.margins) // count * count).reshape(-1, count)


def timed(call, repeats=1):
    """(what it returned, least processor and wall seconds of some calls)."""
    found, seconds = None, []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        found = call()
        seconds.append((time.process_time() - processor, time.perf_counter() - wall))
    return found, dict(zip(("processor", "wall"), map(min, zip(*seconds, strict=True)), strict=True))


def audit_methods(case):
    """Ours, and the two columns that need one forward pass alone."""
    found, seconds = timed(lambda: ns.audit(case.model, case.seen, case.unseen, progress=False), REPEATS)
    _, forward = timed(lambda: ns.collect_signals(case.model, case.seen), REPEATS)
    columns = {name: found.records[name].to_numpy(np.float64) for name in ("loss", "gradient_norm", *OURS)}
    ours = {OURS[name]: ([columns[name]], seconds) for name in OURS}
    return ours | {"loss": ([columns["loss"]], forward), "gradient norm": ([columns["gradient_norm"]], forward)}


def shapr_method(case):
    score, seconds = timed(lambda: SHAPr(SklearnClassifier(case.model), *case.seen, *case.unseen))
    return {"ART: SHAPr": ([score], seconds)}


def cleanlab_methods(case):
    """Label quality from the model's own probabilities, and from those of models that have not seen the record."""
    (x, y), unfitted = case.seen, MLPClassifier(**case.model.get_params())

    def held_out():
        return get_label_quality_scores(y, cross_val_predict(unfitted, x, y, cv=FOLDS, method="predict_proba"))

    own, cheap = timed(lambda: get_label_quality_scores(y, case.model.predict_proba(x)), REPEATS)
    other, dear = timed(held_out)
    return {"cleanlab: label quality, in sample": ([-own], cheap), f"cleanlab: label quality, {FOLDS}-fold": ([-other], dear)}


def reference_methods(case, few, outside):
    """RMIA and LiRA with a few references: a score for each disjoint draw of them."""
    target, rows, others = case.margins, case.members, case.others
    chance, found = expit(target), {}

    def rmia(margins, member, variant):
        p = expit(margins)
        sides = p[:, rows], member[:, rows], chance[others], p[:, others]
        return rmia_scores(chance[rows], *sides, variant=variant, population_membership=member[:, others])

    def cost(reference, count):
        return {clock: count * seconds for clock, seconds in reference.seconds.items()}

    alone = [rmia(outside.margins[k : k + 1], outside.membership[k : k + 1], "offline") for k in range(len(outside.margins))]
    found["RMIA, 1 reference"] = (alone, cost(outside, 1))
    for count in (2, 4):
        found[f"RMIA, {count} references"] = (
            [rmia(few.margins[d], few.membership[d], "online") for d in few.draws(count)],
            cost(few, count),
        )
    for count in (4, 8, 16):
        scores = [lira_scores(target[rows], few.margins[d][:, rows], few.membership[d][:, rows]) for d in few.draws(count)]
        found[f"LiRA, {count} references"] = (scores, cost(few, count))
        scores = [attack_success(few.margins[d][:, rows], few.membership[d][:, rows]).d_prime for d in few.draws(count)]
        found[f"LiRA's d′, {count} references"] = (scores, cost(few, count))
    return found


def sacro_scores(case, folder, count, options):
    """Member scores of the target's training records by sacroml's LiRA with `count` shadow models, all of them trained anew."""
    from sacroml.attacks.likelihood_attack import LIRAAttack  # noqa: PLC0415  (an optional peer)
    from sacroml.attacks.target import Target  # noqa: PLC0415

    logging.getLogger("sacroml").setLevel(logging.WARNING)
    shutil.rmtree(folder, ignore_errors=True)
    (x, y), (x_test, y_test) = case.seen, case.unseen
    target = Target(model=case.model, dataset_name="pool", X_train=x, y_train=y, X_test=x_test, y_test=y_test)
    attack = LIRAAttack(output_dir=str(folder), write_report=False, n_shadow_models=count, report_individual=True, **options)
    output = attack.attack(target)
    individual = output["attack_experiment_logger"]["attack_instance_logger"]["instance_0"]["individual"]
    return np.asarray(individual["member_prob"], dtype=np.float64)[: len(y)]


def sacro_counts(case, folder, budget):
    """Numbers of shadow models that cost as much as one audit and as ten, from the cost of two and of six; at least one."""

    def cost(count):
        return timed(lambda: sacro_scores(case, folder, count, {}))[1]["processor"]

    # The first call imports the package.
    cost(1)
    two, six = cost(2), cost(6)
    each = (six - two) / 4
    return [max(1, round((times * budget - (two - 2 * each)) / each)) for times in (1, 10)]


def sacro_methods(case, folder, counts):
    found = {}
    for count in counts:
        for name, options in SACRO_MODES.items():
            score, seconds = timed(partial(sacro_scores, case, folder, count, options))
            found[f"SACRO-ML: LiRA, {count} shadow model{'s' * (count > 1)}, {name}"] = ([score], seconds)
    return found
