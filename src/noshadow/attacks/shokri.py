"""Shokri's attack: classifiers that tell members by the outputs of a model.

They learn from the outputs of reference models what a model says about its members.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier

from noshadow.arguments import PROGRESS
from noshadow.attacks.inputs import flags, require_models_on_side, side_counts
from noshadow.attacks.shokri_rows import LEAST_PAIRS, JudgedRecords, Rows, checked_records, drawn_rows
from noshadow.checks import Array, as_array, named_in_errors, refuse, require_number, require_whole, users_code, whole_seed
from noshadow.metrics import auc, share_intervals
from noshadow.progress import tracked


class OutputsByModel(Protocol):
    """The outputs (n, m) of model t when indexed with t.

    This is a list, an array (r, n, m), or a store that loads them.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, model: int, /) -> object: ...


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """How well Shokri's attack tells, record by record, the models trained on it from the others.

    Attributes:
        success: (n,) in [0, 1], ½ [share of IN models called members + share of OUT models called
            non-members].
        interval: (n, 2), binomial.
        model_auc: (r,) area under the ROC curve over the records of each attacked model.
    """

    success: Array
    interval: Array
    model_auc: Array


@named_in_errors
def shokri_scores(
    target_outputs: object,
    targets: object,
    reference_outputs: Iterable[object] | OutputsByModel,
    membership: object,
    *,
    task: str,
    classifier: Any = None,
    max_rows: int = 50_000,
    seed: int = 0,
) -> Array:
    """Probability that each record was trained on.

    It comes from attack classifiers learnt from reference models.

    Classification: one attack classifier per class, on rows (reference model t, record i of the
    class) with the vector of class probabilities as features and membership_ti as label;
    regression: one, on prediction, target and residual (target − prediction). Rows come in pairs of
    the same record, once from a model trained on it and once from one that was not: unpaired, the
    classifier would learn how often each record was trained on (a record can be told by its
    outputs), which says nothing about the attacked model, and the wrong thing where every record is
    in half of them.

    Args:
        target_outputs: (n, m) logits or predictions of the attacked model; (n,) is one column.
        targets: (n,) labels, (n, m) rows of probabilities (the most probable class counts), 0/1 for
            a binary task, or regression targets (n,) or (n, m).
        reference_outputs: r arrays like `target_outputs`, from the reference models; any iterable,
            read once, so that they may be loaded one by one.
        membership: (r, n) boolean, True = that model was trained on that record. The attacked model
            is not among them.
        task: "classification", "binary" (one logit) or "regression".
        classifier: a scikit-learn classifier with predict_proba, cloned for every class and used
            with its own random_state. None = 30 rounds of histogram gradient boosting with 8 leaves
            a tree. On networks overfit to the digits (24 models, losses alone AUC 0.517) it reached
            an AUC of 0.583 in 7 s; a one-layer perceptron on standardised probabilities 0.585 in 85
            s, logistic regression 0.534 in 1 s. Trees do not mind that most probabilities crowd at
            0 and 1; they need some 40 rows per class to split at all.
        max_rows: most rows per class, half of them members, drawn at random.
        seed: of the rows, and of the default classifier.

    Returns:
        (n,) probabilities in [0, 1], larger = more member-like. Those of different classes come
        from different classifiers.

    Raises:
        InputError: outputs, targets and membership that do not fit together or the task, are not
            finite or not boolean; a class with fewer than 2 pairs of rows (named: no other class
            stands in for it); a classifier without predict_proba or that fails.

    Approximates: the membership probability for a prior of ½, as well as the classifier fits.
    Cost: O(rnm) for reading, O(rn log r) for drawing; memory 8 · classes · min(max_rows, rows) · m
        bytes beside the outputs of one model: lower max_rows when there are many classes.
    Reference: Shokri et al. 2017.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> member, labels = rng.random((8, 300)) < 0.5, rng.integers(0, 2, 300)
        >>> outputs = rng.normal(size=(8, 300)) + (2 * labels - 1) * (1 + 2 * member)
        >>> found = shokri_scores(outputs[0], labels, outputs[1:], member[1:], task="binary")
        >>> print(f"{auc(found[member[0]], found[~member[0]]):.1f}")
        0.9
    """
    records, outputs = checked_records(target_outputs, targets, task, "target_outputs")
    member = _membership(membership, records)
    how = _Settings(_template(classifier, seed), require_whole(max_rows, "max_rows", low=2 * LEAST_PAIRS))
    rows = drawn_rows(member, np.arange(len(member)), records, how.max_rows, np.random.default_rng(seed))
    return _probabilities(_fitted_attacks(rows, _numbered(reference_outputs, len(member)), records, how), outputs, records, how)


@named_in_errors
def shokri_success(
    reference_outputs: OutputsByModel,
    targets: object,
    membership: object,
    *,
    task: str,
    folds: int = 4,
    classifier: Any = None,
    max_rows: int = 50_000,
    level: float = 0.95,
    seed: int = 0,
    progress: bool = PROGRESS,
) -> CrossFitted:
    """Success of Shokri's attack on every record.

    Each group of models is attacked by classifiers that learnt from the other groups.

    The r models are dealt into `folds` groups at random, and the models of a group attacked as in
    `shokri_scores` with the others as references. success_i = ½ [mean over IN models t of D_ti +
    mean over OUT models t of (1 − D_ti)], D_ti = probability > ½.

    Args:
        reference_outputs: r arrays (n, m), anything with a length that hands out the t-th one when
            indexed; each is asked for `folds` times (the first once more) and not kept.
        targets: as in `shokri_scores`.
        membership: (r, n) boolean; every record IN and OUT for at least one model, every model with
            members and non-members.
        task: "classification", "binary" or "regression".
        folds: groups, from 2 to r.
        classifier, max_rows: as in `shokri_scores`.
        level: coverage of `interval`, in (0, 1).
        seed: of the groups, the rows and the default classifier.
        progress: draw a bar over the groups.

    Returns:
        CrossFitted.

    Raises:
        InputError: as in `shokri_scores`; or a record or model on one side only, or fewer models
            than folds.

    Approximates: `interval` is Clopper–Pearson's with 4 k_in k_out/(k_in + k_out) trials, k_in and
        k_out the models trained on the record or not; models attacked by the same classifiers are
        not fully independent trials.
    Cost: O(folds · r n m) and folds · classes fits; memory as in `shokri_scores`.
    Reference: Shokri et al. 2017.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> member = rng.permuted(np.arange(8)[:, None] < np.full(300, 4), axis=0)
        >>> labels = rng.integers(0, 2, 300)
        >>> outputs = rng.normal(size=(8, 300)) + (2 * labels - 1) * (1 + 2 * member)
        >>> print(f"{shokri_success(outputs, labels, member, task='binary').model_auc.mean():.1f}")
        0.9
    """
    _require_indexed(reference_outputs)
    records, _ = checked_records(reference_outputs[0], targets, task, "reference_outputs[0]")
    member = _membership(membership, records)
    if len(reference_outputs) != len(member):
        refuse("reference_outputs", f"hold one array per row of membership ({len(member)})", str(len(reference_outputs)))
    how = _Settings(_template(classifier, seed), require_whole(max_rows, "max_rows", low=2 * LEAST_PAIRS))
    require_number(level, "level", low=0, high=1, low_open=True, high_open=True)
    if require_whole(folds, "folds", low=2) > len(member):
        refuse("folds", f"be at most the number of models ({len(member)})", str(folds))
    counts = _required_sides(member)
    rng, right, model_auc = np.random.default_rng(seed), np.zeros((2, len(records.group))), np.empty(len(member))
    groups = np.array_split(rng.permutation(len(member)), folds)
    for group in tracked(groups, "Attacking each group of models (Shokri)", show=progress):
        others = np.setdiff1d(np.arange(len(member)), group)
        rows = drawn_rows(member[others], others, records, how.max_rows, rng)
        attacks = _fitted_attacks(rows, ((int(t), reference_outputs[int(t)]) for t in others), records, how)
        for t in group:
            outputs = records.checked(reference_outputs[int(t)], f"reference_outputs[{t}]")
            found, inside = _probabilities(attacks, outputs, records, how), member[t]
            model_auc[t] = auc(found[inside], found[~inside])
            right += np.stack(((found > 0.5) & inside, (found <= 0.5) & ~inside))
    success = 0.5 * (right[0] / counts[0] + right[1] / counts[1])
    return CrossFitted(success, share_intervals(success, 4.0 * counts[0] * counts[1] / (counts[0] + counts[1]), level=level), model_auc)


def fitted_attack(features: Array, is_member: Array, classifier: Any) -> Any:
    """A copy of the classifier, fitted to rows of features (k, w) and their membership (k,)."""
    return clone(classifier).fit(features, is_member.astype(np.int64))


def membership_probabilities(attack: Any, features: Array) -> Array:
    """(k,) probability of membership of every row, float64."""
    # The column is looked up: classifiers order their classes themselves.
    probabilities: Array = np.asarray(attack.predict_proba(features), dtype=np.float64)[:, list(attack.classes_).index(1)]
    return probabilities


@dataclass(frozen=True)
class _Settings:
    classifier: Any
    max_rows: int


def _membership(value: object, records: JudgedRecords) -> Array:
    array = as_array(value, "membership")
    models = len(array) if array.ndim == 2 else 0
    return flags(array, "membership", (max(models, 1), len(records.group)), "the outputs")


def _template(classifier: Any, seed: int) -> Any:
    whole_seed(seed)
    if classifier is None:
        return HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=8, early_stopping=False, random_state=seed % 2**32)
    if not hasattr(classifier, "fit") or not hasattr(classifier, "predict_proba"):
        refuse("classifier", "be a scikit-learn classifier with fit and predict_proba", type(classifier).__name__)
    return classifier


def _require_indexed(reference_outputs: object) -> None:
    if not hasattr(reference_outputs, "__len__") or not hasattr(reference_outputs, "__getitem__") or len(reference_outputs) == 0:
        rule = "be a sequence with one array per model, which can be asked for more than once"
        refuse("reference_outputs", rule, type(reference_outputs).__name__, "A generator can be put into a list.")


def _required_sides(member: Array) -> tuple[Array, Array]:
    """Count how many models are IN and OUT for each record.

    No record and no model may be on one side only, which is checked.
    """
    counts = side_counts(member)
    for side, count in zip(("IN", "OUT"), counts, strict=True):
        require_models_on_side(count, 1, side, "Train more models.")
    members = member.sum(axis=1)
    lopsided = (members == 0) | (members == member.shape[1])
    if lopsided.any():
        first = int(lopsided.argmax())
        got = f"model {first} with {int(members[first])} members of {member.shape[1]} records"
        refuse("membership", "give every model members and non-members", got, "Leave such models out.")
    return counts


def _numbered(reference_outputs: Iterable[object] | OutputsByModel, models: int) -> Iterator[tuple[int, object]]:
    each: Iterable[object] = (
        reference_outputs if isinstance(reference_outputs, Iterable) else map(reference_outputs.__getitem__, range(models))
    )
    given = -1
    for given, outputs in enumerate(each):
        if given == models:
            refuse("reference_outputs", f"hold one array per row of membership ({models})", "more")
        yield given, outputs
    if given + 1 != models:
        refuse("reference_outputs", f"hold one array per row of membership ({models})", str(given + 1))


def _fitted_attacks(rows: Rows, outputs: Iterable[tuple[int, object]], records: JudgedRecords, how: _Settings) -> dict[int, Any]:
    """Fit one classifier per group, in one pass over the models' outputs."""
    features = np.empty((len(rows.model), records.width))
    by_model = np.argsort(rows.model, kind="stable")
    ascending = rows.model[by_model]
    for t, given in outputs:
        array = records.checked(given, f"reference_outputs[{t}]")
        chosen = by_model[slice(*np.searchsorted(ascending, (t, t + 1)))]
        features[chosen] = records.features(array, rows.record[chosen])
    with users_code("classifier must learn membership from rows of outputs"):
        return {g: fitted_attack(features[part], rows.is_member[part], how.classifier) for g, part in rows.slices.items()}


def _probabilities(attacks: dict[int, Any], outputs: Array, records: JudgedRecords, how: _Settings) -> Array:
    found = np.empty(len(outputs))
    for group, attack in attacks.items():
        inside = np.flatnonzero(records.group == group)
        with users_code("classifier must predict probabilities for rows of outputs"):
            found[inside] = membership_probabilities(attack, records.features(outputs, inside))
    return found
