"""Rounds of boosted models: the model's own leaves and outputs are the oracle of what is read from it."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, make_classification, make_regression
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import noshadow as ns
from extras import extra
from noshadow._audit import exposing, with_references
from noshadow._audit.exposing import weighed_exposure
from noshadow._audit.tracing import OF_ROUNDS, trace_covariates
from noshadow._exposure.rules import FREE_ORDER
from noshadow.checks import InputError, NotApplicable
from noshadow.reference import train_references
from noshadow.scores.trees.boosting import boosting_scores
from noshadow.scores.trees.left_out import left_out
from noshadow.views import OtherRecords, model_family, stage_outputs
from noshadow.views.lightgbm_goss import Goss
from noshadow.views.readers import reader_of
from noshadow.views.view import Settings

N = 300
X, Y = make_classification(2 * N, 8, n_informative=5, flip_y=0.1, random_state=0)
X3, Y3 = make_classification(2 * N, 8, n_informative=5, n_classes=3, random_state=1)
XR, YR = make_regression(2 * N, 6, noise=20, random_state=0)
COUNTS = np.random.default_rng(0).poisson(np.exp(YR / 150)).astype(float)
WEIGHTS = np.random.default_rng(1).uniform(0.2, 2.0, N)
WEIGHTS[:5] = 0.0
DATA = {"two": (X, Y), "three": (X3, Y3), "value": (XR, YR), "count": (XR, COUNTS)}


def mixed():
    """A table with a categorical and a missing column."""
    rng = np.random.default_rng(2)
    table = pd.DataFrame(X, columns=[f"c{k}" for k in range(8)])
    table["c0"] = pd.Categorical(rng.integers(0, 6, len(table)))
    table.loc[rng.random(len(table)) < 0.2, "c3"] = np.nan
    return table


def xgboost(kind="XGBClassifier", **options):
    return getattr(extra("xgboost"), kind)(n_jobs=1, n_estimators=25, **options)


def lightgbm(kind="LGBMClassifier", **options):
    return getattr(extra("lightgbm"), kind)(n_jobs=1, n_estimators=25, verbose=-1, **options)


def catboost(kind="CatBoostClassifier", **options):
    return getattr(extra("catboost"), kind)(thread_count=1, iterations=25, depth=4, verbose=0, allow_writing_files=False, **options)


# name → model, data, whether it is fitted with weights, and the largest deviation of a rebuilt leaf from the model's own in units of its
# largest leaf: some roundings of float64, or of float32 where the library keeps its sums or margins in it.
SINGLE, DOUBLE = 2e-6, 1e-12
GB, HB = GradientBoostingClassifier, HistGradientBoostingClassifier
MODELS = {
    "gb": (lambda: GB(n_estimators=25), "two", False, DOUBLE),
    "gb three, weights": (lambda: GB(n_estimators=15), "three", True, DOUBLE),
    "gb exponential": (lambda: GB(n_estimators=25, loss="exponential"), "two", False, DOUBLE),
    "gb deep": (lambda: GB(n_estimators=60, max_depth=None, learning_rate=0.5), "two", False, DOUBLE),
    "gb subsample": (lambda: GB(n_estimators=25, subsample=0.5, random_state=3), "two", False, DOUBLE),
    "gb three, subsample, stopped": (
        lambda: GB(n_estimators=40, subsample=0.5, random_state=3, n_iter_no_change=3),
        "three",
        True,
        DOUBLE,
    ),
    "gb squared": (lambda: GradientBoostingRegressor(n_estimators=25, ccp_alpha=0.1), "value", True, DOUBLE),
    "hist": (lambda: HB(max_iter=25), "two", True, DOUBLE),
    "hist three": (lambda: HB(max_iter=15, class_weight="balanced", l2_regularization=2.0), "three", True, DOUBLE),
    "hist stopped": (lambda: HB(max_iter=40, early_stopping=True), "two", False, DOUBLE),
    "hist squared": (lambda: HistGradientBoostingRegressor(max_iter=25), "value", True, DOUBLE),
    "hist poisson": (lambda: HistGradientBoostingRegressor(max_iter=25, loss="poisson"), "count", False, DOUBLE),
    "xgb": (lambda: xgboost(), "two", True, SINGLE),
    "xgb penalties": (lambda: xgboost(reg_alpha=0.5, reg_lambda=2.0, max_delta_step=0.4), "two", False, SINGLE),
    "xgb single records": (lambda: xgboost(min_child_weight=0, reg_lambda=0, max_depth=8), "two", False, SINGLE),
    "xgb three": (lambda: xgboost(), "three", False, SINGLE),
    "xgb subsample": (lambda: xgboost(subsample=0.5), "two", True, SINGLE),
    "xgb subsample, seeded": (lambda: xgboost("XGBRegressor", subsample=0.8, random_state=7, colsample_bytree=0.5), "value", False, SINGLE),
    "xgb three, subsample": (lambda: xgboost(subsample=0.5, random_state=3), "three", True, SINGLE),
    "xgb forest, subsample": (lambda: xgboost(subsample=0.7, num_parallel_tree=2), "three", False, SINGLE),
    "xgb forest alone": (lambda: xgboost("XGBRFClassifier", random_state=5), "two", False, SINGLE),
    "xgb forest": (lambda: xgboost(num_parallel_tree=2, colsample_bynode=0.5), "three", False, SINGLE),
    "xgb class weight": (lambda: xgboost(scale_pos_weight=3.0), "two", False, SINGLE),
    "xgb squared": (lambda: xgboost("XGBRegressor"), "value", True, SINGLE),
    "xgb poisson": (lambda: xgboost("XGBRegressor", objective="count:poisson"), "count", False, SINGLE),
    "lgb": (lambda: lightgbm(), "two", True, SINGLE),
    "lgb penalties": (lambda: lightgbm(reg_alpha=0.5, reg_lambda=2.0, max_delta_step=0.4), "two", False, SINGLE),
    "lgb single records": (lambda: lightgbm(min_child_samples=1, min_child_weight=0, num_leaves=60), "two", False, SINGLE),
    "lgb three": (lambda: lightgbm(), "three", False, SINGLE),
    "lgb class weight": (lambda: lightgbm(class_weight={0: 1.0, 1: 3.0}), "two", True, SINGLE),
    "lgb unbalanced": (lambda: lightgbm(is_unbalance=True), "two", False, SINGLE),
    "lgb from zero": (lambda: lightgbm(boost_from_average=False), "two", False, SINGLE),
    "lgb bagging": (lambda: lightgbm(subsample=0.5, subsample_freq=1), "two", True, SINGLE),
    "lgb bagging, seeded": (lambda: lightgbm(subsample=0.7, subsample_freq=3, random_state=5), "three", False, SINGLE),
    "lgb bagging by class": (
        lambda: lightgbm(pos_bagging_fraction=0.4, neg_bagging_fraction=0.9, subsample_freq=2),
        "two",
        False,
        SINGLE,
    ),
    "lgb goss": (lambda: lightgbm(data_sample_strategy="goss", learning_rate=0.3), "two", True, SINGLE),
    "lgb goss three": (lambda: lightgbm(data_sample_strategy="goss", random_state=4, top_rate=0.4, other_rate=0.3), "three", False, SINGLE),
    "lgb squared": (lambda: lightgbm("LGBMRegressor"), "value", True, SINGLE),
    "lgb poisson": (lambda: lightgbm("LGBMRegressor", objective="poisson"), "count", False, SINGLE),
    "cat": (lambda: catboost(), "two", True, DOUBLE),
    "cat ordered": (lambda: catboost(boosting_type="Ordered"), "two", False, DOUBLE),
    "cat five steps": (lambda: catboost(leaf_estimation_iterations=5), "two", False, DOUBLE),
    "cat gradient": (lambda: catboost(leaf_estimation_method="Gradient"), "two", False, DOUBLE),
    "cat leafwise": (lambda: catboost(grow_policy="Lossguide"), "two", False, DOUBLE),
    "cat class weight": (lambda: catboost(class_weights=[1, 3]), "two", False, DOUBLE),
    "cat three": (lambda: catboost(), "three", True, DOUBLE),
    "cat three, two steps": (lambda: catboost(leaf_estimation_iterations=2, leaf_estimation_backtracking="No"), "three", False, DOUBLE),
    "cat three, gradient": (lambda: catboost(leaf_estimation_method="Gradient"), "three", False, DOUBLE),
    "cat three, leafwise": (lambda: catboost(grow_policy="Lossguide"), "three", False, DOUBLE),
    "cat three, class weight": (lambda: catboost(class_weights=[1, 3, 2]), "three", False, DOUBLE),
    "cat squared": (lambda: catboost("CatBoostRegressor"), "value", True, DOUBLE),
}
FITTED = {}


def fitted(name):
    if name not in FITTED:
        made, data, weighted, _ = MODELS[name]
        x, y = DATA[data]
        FITTED[name] = made().fit(x[:N], y[:N], sample_weight=WEIGHTS if weighted else None)
    return FITTED[name]


def records(name, part=slice(0, N)):
    x, y = DATA[MODELS[name][1]]
    return x[part], y[part]


def training_of(model, data, weights=None):
    return reader_of(model).boosted(model, data, weights=weights, settings=Settings())


def rounds_of(name):
    return training_of(fitted(name), records(name), WEIGHTS if MODELS[name][2] else None)


def raw_outputs(model, x):
    """What the library itself calls its raw output."""
    if hasattr(model, "get_booster"):
        return model.predict(x, output_margin=True)
    if hasattr(model, "booster_"):
        return model.predict(x, raw_score=True)
    if hasattr(model, "calc_leaf_indexes"):
        return model.predict(x, prediction_type="RawFormulaVal")
    return model.decision_function(x) if hasattr(model, "decision_function") else np.log(model.predict(x))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_rebuilt_leaves_are_the_models_own_and_add_up_to_its_outputs(name):
    training = rounds_of(name)
    found = left_out(training)
    assert found.deviation <= MODELS[name][3] * found.largest_step and found.excess < 1
    assert found.margin_deviation <= MODELS[name][3] * max(1.0, np.abs(training.margins).max())
    if MODELS[name][1] in ("two", "three"):
        said = np.asarray(raw_outputs(fitted(name), records(name)[0]), dtype=float).reshape(training.margins.shape)
        assert training.margins == pytest.approx(said, abs=1e-6)


def by_hand(training, record):
    """Raw outputs of one record from leaves refitted without it: loops over its leaves, margins by the rounds before."""
    raw = np.array(np.broadcast_to(training.start, training.margins.shape), dtype=np.float64)
    own, rule = raw[record].copy(), training.rule
    for one in training.rounds():
        inside = np.ones(len(raw), dtype=bool) if one.inside is None else one.inside
        weights = np.ones(len(raw)) if training.weights is None else training.weights
        p = 1 / (1 + np.exp(-raw[:, 0])) if raw.shape[1] == 1 else np.exp(raw) / np.exp(raw).sum(1, keepdims=True)
        if one.drawn is not None:
            own_class = training.targets[:, None] == (np.ones(1) if raw.shape[1] == 1 else np.arange(raw.shape[1]))
            share = p.reshape(len(raw), -1)
            weights = weights * one.drawn(
                weights[:, None] * (share - own_class), weights[:, None] * training.curvature * share * (1 - share)
            )
            inside = weights > 0
        after = raw.copy()
        for tree in one.trees:
            k = tree.output
            own_class = training.targets == (1 if raw.shape[1] == 1 else k)
            share = p if raw.shape[1] == 1 else p[:, k]
            g, h = weights * (share - own_class), weights * training.curvature * share * (1 - share)
            taken = inside if tree.inside is None else tree.inside
            rows = taken & (tree.leaves == tree.leaves[record]) & (weights > 0)
            if taken[record] and weights[record] > 0:
                rows &= np.arange(len(raw)) != record
                assert rows.any()  # cases of their own in test_boosting_leaf_values.py
                own[k] -= tree.rate * g[rows].sum() / (h[rows].sum() + rule.l2)
            else:
                own[k] += tree.values[tree.leaves[record]]
            after[:, k] += tree.values[tree.leaves]
        raw = after
    return own


@pytest.mark.parametrize(
    "name",
    [
        "gb",
        "gb three, weights",
        "gb subsample",
        "hist",
        "xgb",
        "xgb three",
        "lgb",
        "lgb three",
        "lgb bagging",
        "lgb goss",
        "lgb goss three",
        "xgb subsample",
        "xgb three, subsample",
    ],
)
def test_outputs_left_out_are_those_of_leaves_refitted_without_the_record(name):
    """Written again by hand in float64; gradients that the library keeps in float32 differ by some 1e-7."""
    training = rounds_of(name)
    found = left_out(training)
    tolerance = 1e-10 if name.startswith("gb") else 1e-5
    for record in np.flatnonzero(found.leaves.alone == 0)[:6]:
        assert (training.margins - found.fall)[record] == pytest.approx(by_hand(training, record), abs=tolerance)


def test_rows_that_a_round_left_out_are_out_for_it():
    training = rounds_of("gb subsample")
    inside = np.array([one.inside for one in training.rounds()])
    assert (inside.sum(1) == N // 2).all() and not (inside == inside[0]).all()
    # The model counted its rows itself: the roots of its trees hold as many.
    assert all(tree[0].tree_.weighted_n_node_samples[0] == N // 2 for tree in fitted("gb subsample").estimators_)
    assert (left_out(training).rounds_inside == inside.sum(0)).all()


def test_a_tree_of_scikit_learn_that_found_no_split_takes_no_step():
    """It has the value 0 whatever its gradients are: no sign of other records, and nothing to leave."""
    x, y = (part[::2] for part in load_iris(return_X_y=True))
    model = HB(random_state=0).fit(x, y)
    stumps = [k for round_ in model._predictors for k, one in enumerate(round_) if len(one.nodes) == 1]
    assert len(stumps) > 10
    training = training_of(model, (x, y))
    found = left_out(training)
    assert found.excess < 1 and found.deviation <= DOUBLE * found.largest_step
    for record in (0, 30, 60):
        assert (training.margins - found.fall)[record] == pytest.approx(by_hand(training, record), abs=1e-5)


@pytest.mark.parametrize("freq", [1, 3])
def test_bags_of_lightgbm_hold_as_many_records_of_each_leaf_as_the_model_says(freq):
    """More rows than one block of its generators; LightGBM writes the records of a leaf into its model."""
    x, y = make_classification(2500, 8, n_informative=5, random_state=3)
    model = lightgbm(subsample=0.6, subsample_freq=freq, random_state=freq).fit(x, y)
    lines = [line for line in model.booster_.model_to_string().splitlines() if line.startswith("leaf_count=")]
    rounds = list(training_of(model, (x, y)).rounds())
    assert len(rounds) == len(lines) == 25
    for line, one in zip(lines, rounds, strict=True):
        (tree,), counts = one.trees, [int(word) for word in line.partition("=")[2].split()]
        assert np.bincount(tree.leaves[one.inside], minlength=len(counts)).tolist() == counts
    bags = np.array([one.inside for one in rounds])
    assert (bags[0] == bags[freq - 1]).all() and not (bags[0] == bags[freq]).all()


@pytest.mark.parametrize("threads", [1, 3, 0])
def test_rows_of_goss_are_drawn_again_whatever_shared_them_among_threads(threads):
    """More rows than one block; where the model keeps no number of threads, its own counts of leaves tell it."""
    x, y = make_classification(3500, 8, n_informative=5, flip_y=0.1, random_state=3)
    library = extra("lightgbm")
    options = {"objective": "binary", "data_sample_strategy": "goss", "verbose": -1, "learning_rate": 0.2, "num_threads": threads}
    booster = library.train(options, library.Dataset(x, y), 12)
    counts = [line for line in booster.model_to_string().splitlines() if line.startswith("leaf_count=")]
    training = training_of(booster, (x, y))
    found = left_out(training)
    assert found.excess < 1
    # Rounds 0 … 4 took all records, the others as many as the model counted.
    taken = [sum(map(int, line.partition("=")[2].split())) for line in counts]
    assert found.rounds_inside.sum() == sum(taken) and taken[4] == 3500 > 2 * taken[5]


def past_its_best():
    """A boosted model whose loss on test records is lowest after some of its rounds, and its records."""
    x, y = make_classification(600, 8, n_informative=4, flip_y=0.2, random_state=4)
    train, test = (x[::2], y[::2]), (x[1::2], y[1::2])
    return GB(n_estimators=80, max_depth=4, random_state=0).fit(*train), train, test


def test_the_stage_with_the_lowest_loss_on_test_records_is_a_checkpoint_of_its_own():
    model, train, test = past_its_best()
    audit = ns.audit(model, train, test, progress=False)
    (kept,) = (entry for entry in audit.evidence if entry.source == "checkpoints")
    losses = [-np.log(p[np.arange(300), test[1]]).mean() for p in model.staged_predict_proba(test[0])]
    (traces,) = (entry for entry in audit.evidence if entry.source == "traces")
    recorded = np.array(traces.stamp["rounds"])
    assert kept.stamp["rounds"] == recorded[np.argmin(np.array(losses)[recorded - 1])] < 80
    assert kept.stamp["test_loss"] == pytest.approx(losses[kept.stamp["rounds"] - 1]) and kept.stamp["trainings"] == 0
    # The oracle is the same training, stopped there: scikit-learn's rounds do not know how many follow.
    stopped = GB(n_estimators=kept.stamp["rounds"], max_depth=4, random_state=0).fit(*train)
    earlier = ns.audit(stopped, train, test, progress=False).records
    for column, own in (("checkpoint_loss", "loss"), ("checkpoint_shift", "shift")):
        assert audit.records[column].to_numpy() == pytest.approx(earlier[own].to_numpy(), rel=1e-9, abs=1e-12)
    # By itself it does not outvote the shift of all rounds.
    assert audit.ranked_by == "yielding_shift" and not any(entry.source == "exposure" for entry in audit.evidence)


def test_a_checkpoint_of_the_rounds_is_weighed_beside_references_and_gives_way_to_one_that_is_handed_in():
    model, train, test = past_its_best()
    x, y = (np.concatenate(parts) for parts in zip(train, test, strict=True))
    trained = {"reference_models": 2, "train_fn": lambda rows, seed: GB(n_estimators=20, random_state=seed).fit(x[rows], y[rows])}
    audit = ns.audit(model, train, test, progress=False, **trained)
    (weighed,) = (entry for entry in audit.evidence if entry.source == "exposure")
    assert {"checkpoints", "few references", "loss traces"} <= set(weighed.stamp["trainings"]) and audit.ranked_by == "exposure_score"
    stopped = GB(n_estimators=5, max_depth=4, random_state=0).fit(*train)
    given = ns.audit(model, train, test, checkpoint=stopped, progress=False)
    (handed,) = (entry for entry in given.evidence if entry.source == "checkpoints")
    assert "used" in handed.stamp and not np.array_equal(given.records["checkpoint_loss"], audit.records["checkpoint_loss"])


def test_no_stage_is_a_checkpoint_where_the_last_round_is_the_best():
    audit = ns.audit(GB(n_estimators=5, random_state=0).fit(X[:N], Y[:N]), (X[:N], Y[:N]), (X[N:], Y[N:]), progress=False)
    assert not any(entry.source == "checkpoints" for entry in audit.evidence) and "checkpoint_loss" not in audit.records


def test_rows_of_goss_that_would_take_hours_are_refused_with_the_number():
    with pytest.raises(NotApplicable, match="200,000,000 steps one after the other, more than 100,000,000"):
        Goss({"learning_rate": "0.1"}, 1_000_000, 210)


@pytest.mark.parametrize("name", ["gb three, subsample, stopped", "hist stopped"])
def test_records_held_out_to_stop_the_training_have_no_part_in_it(name):
    training = rounds_of(name)
    found, scores = left_out(training), boosting_scores(training)
    held = found.rounds_inside == 0
    held &= WEIGHTS > 0 if MODELS[name][2] else True
    assert 0.08 * N <= held.sum() <= 0.12 * N
    for column in scores.columns.values():
        assert not column[held].any() and column[~held].any()
    assert scores.notes == (
        f"{int(0.1 * N)} training records were held out to stop the training early: no leaf was fitted to them, and their scores are 0",
    )


# Scores


@pytest.mark.parametrize("name", ["gb", "gb three, weights", "gb exponential", "xgb", "cat", "lgb three"])
def test_columns_of_classifiers_follow_from_the_probabilities(name):
    """shift and loo by log-odds and logarithms of predict_proba; influence by a step of a thousandth of the first-order fall."""
    training = rounds_of(name)
    found, scores, labels = left_out(training), boosting_scores(training).columns, training.targets.astype(int)

    def p_own(raw):
        raw = raw * training.logit_scale
        full = np.concatenate([np.zeros_like(raw), raw], 1) if raw.shape[1] == 1 else raw
        p = np.exp(full) / np.exp(full).sum(1, keepdims=True)
        return p[np.arange(N), labels]

    now, without = p_own(training.margins), p_own(training.margins - found.fall)
    assert now == pytest.approx(fitted(name).predict_proba(records(name)[0])[np.arange(N), labels], abs=2e-6)
    assert scores["shift"] == pytest.approx(np.log(now / (1 - now)) - np.log(without / (1 - without)), abs=1e-8)
    assert scores["loo"] == pytest.approx(np.log(now) - np.log(without), abs=1e-9)
    step = 1e-4
    nearby = [-np.log(p_own(training.margins - sign * step * found.first_order)) for sign in (1, -1)]
    assert scores["influence"] == pytest.approx((nearby[0] - nearby[1]) / (2 * step), abs=1e-7)
    assert (scores["leverage"] >= 0).all() and (scores["leverage"] <= 1).all()


@pytest.mark.parametrize("name", ["gb squared", "hist poisson", "lgb poisson", "cat squared"])
def test_columns_of_regressions_follow_from_the_predictions(name):
    training = rounds_of(name)
    found, scores, targets = left_out(training), boosting_scores(training).columns, training.targets
    link = np.exp if "poisson" in name else (lambda raw: raw)
    now, without = link(training.margins[:, 0]), link((training.margins - found.fall)[:, 0])
    assert now == pytest.approx(np.ravel(fitted(name).predict(records(name)[0])), rel=1e-6)
    assert scores["shift"] == pytest.approx(np.abs(targets - without) - np.abs(targets - now), abs=1e-10)
    assert scores["loo"] == pytest.approx((targets - without) ** 2 - (targets - now) ** 2, abs=1e-9)
    step = 1e-5
    nearby = [(targets - link((training.margins - sign * step * found.first_order)[:, 0])) ** 2 for sign in (1, -1)]
    assert scores["influence"] == pytest.approx((nearby[0] - nearby[1]) / (2 * step), rel=1e-5, abs=1e-4)


# The model contradicts what it was not fitted on


@pytest.mark.parametrize("name", ["gb", "hist three", "xgb", "lgb", "cat"])
@pytest.mark.parametrize("change", ["other records", "other labels", "weights left out"])
def test_a_model_that_was_fitted_on_something_else_gets_the_reason(name, change):
    weights = WEIGHTS if MODELS[name][2] else None
    x, y = records(name)
    if change == "other records":
        x, y = records(name, slice(50, N + 50))
    elif change == "other labels":
        y = np.where(np.arange(N) == 7, (y + 1) % 2, y)
    else:
        weights = None if weights is not None else WEIGHTS
    with pytest.raises(
        NotApplicable, match=r"leaf values rebuilt from these records differ from the .* model's own by up to .*sample_weight="
    ):
        boosting_scores(training_of(fitted(name), (x, y), weights))


def test_a_model_that_was_changed_after_its_training_gets_the_reason():
    model = GB(n_estimators=10).fit(X[:N], Y[:N])
    model.estimators_[4, 0].tree_.value[-1, 0, 0] += 0.01
    with pytest.raises(NotApplicable, match="was changed after its training"):
        boosting_scores(training_of(model, (X[:N], Y[:N])))


REFUSED = {
    "gb absolute": (lambda: GradientBoostingRegressor(loss="absolute_error", n_estimators=5), "value", "medians or quantiles"),
    "gb unseeded bags": (
        lambda: GB(n_estimators=5, subsample=0.5),
        "two",
        "which records were in the subsample of a round.*random_state=None",
    ),
    "gb unseeded stop": (lambda: GB(n_estimators=5, n_iter_no_change=2), "two", "which records were held out"),
    "hist quantile": (lambda: HistGradientBoostingRegressor(loss="quantile", quantile=0.5, max_iter=5), "value", "medians or quantiles"),
    "adaboost": (lambda: AdaBoostClassifier(n_estimators=5), "two", "adds up no leaf values"),
    "xgb dart": (lambda: xgboost(booster="dart"), "two", "booster='dart' of XGBoost drops trees"),
    "xgb linear": (lambda: xgboost(booster="gblinear"), "two", "booster='gblinear' of XGBoost has no trees"),
    "xgb absolute": (lambda: xgboost("XGBRegressor", objective="reg:absoluteerror"), "value", "reg:absoluteerror are not rebuilt"),
    "lgb dart": (lambda: lightgbm(boosting_type="dart"), "two", "boosting='dart' of LightGBM drops trees"),
    "lgb forest": (lambda: lightgbm(boosting_type="rf", subsample=0.5, subsample_freq=1), "two", "boosting='rf' of LightGBM"),
    "lgb linear": (lambda: lightgbm(linear_tree=True), "two", "hold linear models"),
    "lgb absolute": (lambda: lightgbm("LGBMRegressor", objective="l1"), "value", "regression_l1 are not rebuilt"),
    "cat classes, no penalty": (lambda: catboost(l2_leaf_reg=0), "three", "l2_leaf_reg=.* are not determined"),
    "cat absolute": (lambda: catboost("CatBoostRegressor", loss_function="MAE"), "value", "loss MAE are not rebuilt"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_rebuilt_says_why(name):
    made, data, why = REFUSED[name]
    x, y = DATA[data]
    with pytest.raises(NotApplicable, match=why):
        training_of(made().fit(x[:N], y[:N]), (x[:N], y[:N]))


def test_leaves_of_very_many_classes_are_refused_before_the_work(monkeypatch):
    model = fitted("cat three")
    monkeypatch.setattr("noshadow.views.catboost._MOST_NUMBERS", N * 25 * 9 - 1)
    with pytest.raises(NotApplicable, match="would take 7,500 systems of 3 equations"):
        training_of(model, records("cat three"))


def test_backtracking_of_catboost_is_named_and_no_other_records_are_suspected():
    """Its later steps are halved by a loss of its own rounding, from some ten thousand records on."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30_000, 20))
    y = ((x[:, :5].sum(1) + rng.normal(size=len(x)) > 0) ^ (rng.random(len(x)) < 0.1)).astype(int)
    deep = {"iterations": 20, "thread_count": 1, "verbose": 0, "allow_writing_files": False}
    halved = extra("catboost").CatBoostClassifier(**deep).fit(x, y)
    with pytest.raises(NotApplicable, match="leaf_estimation_backtracking, which 'No' would switch off") as error:
        boosting_scores(training_of(halved, (x, y)))
    assert not isinstance(error.value, OtherRecords)
    plain = extra("catboost").CatBoostClassifier(leaf_estimation_backtracking="No", **deep).fit(x, y)
    assert left_out(training_of(plain, (x, y))).excess < 1


def test_settings_that_bend_leaf_values_are_found_out_by_the_leaves():
    for model in (lightgbm(path_smooth=3.0), catboost(model_shrink_rate=0.1), HB(max_iter=25, monotonic_cst=[-1] * 8)):
        with pytest.raises(NotApplicable, match="settings that are not read here"):
            boosting_scores(training_of(model.fit(X[:N], Y[:N]), (X[:N], Y[:N])))


# Tables, files and boosters of their own


@pytest.mark.parametrize("kind", ["hist", "xgb", "lgb"])
def test_categories_and_missing_values_go_where_the_model_sends_them(kind):
    table = mixed()[:N]
    model = {
        "hist": lambda: HB(max_iter=25, categorical_features="from_dtype"),
        "xgb": lambda: xgboost(enable_categorical=True),
        "lgb": lambda: lightgbm(),
    }[kind]().fit(table, Y[:N])
    found = left_out(training_of(model, (table, Y[:N])))
    assert found.excess < 1 and found.margin_deviation < 1e-5


def test_categories_of_catboost_count_only_where_they_are_split_as_they_are():
    table = mixed()[:N].assign(c0=lambda held: held["c0"].astype(str))
    plain = catboost(cat_features=["c0"], one_hot_max_size=10).fit(table, Y[:N])
    assert left_out(training_of(plain, (table, Y[:N]))).excess < 1
    # Statistics of targets place a record differently while the model is trained.
    ordered = catboost(cat_features=["c0"]).fit(table, Y[:N])
    with pytest.raises(NotApplicable, match="leaf values rebuilt from these records differ"):
        boosting_scores(training_of(ordered, (table, Y[:N])))


@pytest.mark.parametrize("kind", ["xgb", "lgb", "cat"])
def test_a_model_that_was_stopped_early_counts_the_rounds_it_predicts_with(kind):
    x, y, held = X[:N], Y[:N], (X[N:], Y[N:])
    if kind == "xgb":
        model = extra("xgboost").XGBClassifier(n_jobs=1, n_estimators=200, early_stopping_rounds=3)
        model.fit(x, y, eval_set=[held], verbose=False)
        rounds = model.best_iteration + 1
    elif kind == "lgb":
        model = extra("lightgbm").LGBMClassifier(n_jobs=1, n_estimators=200, verbose=-1)
        stop = extra("lightgbm").early_stopping(3, verbose=False)
        model.fit(x, y, eval_X=held[0], eval_y=held[1], callbacks=[stop])
        rounds = model.best_iteration_
    else:
        model = catboost(early_stopping_rounds=3).fit(x, y, eval_set=held)
        rounds = model.tree_count_
    training = training_of(model, (x, y))
    assert training.count == rounds < 200 and left_out(training).excess < 1


@pytest.mark.parametrize("kind", ["xgb", "lgb", "cat"])
def test_native_models_and_models_from_a_file_are_read_as_their_estimators(kind, tmp_path):
    data = (X[:N], Y[:N])
    if kind == "xgb":
        model = xgboost().fit(*data)
        model.save_model(tmp_path / "model.json")
        others = [model.get_booster(), extra("xgboost").Booster(model_file=tmp_path / "model.json")]
    elif kind == "lgb":
        model = lightgbm(learning_rate=0.2, reg_lambda=2.0).fit(*data)
        model.booster_.save_model(tmp_path / "model.txt")
        others = [model.booster_, extra("lightgbm").Booster(model_file=tmp_path / "model.txt")]
    else:
        model = catboost().fit(*data)
        model.save_model(tmp_path / "model.cbm")
        others = [extra("catboost").CatBoostClassifier().load_model(tmp_path / "model.cbm")]
    shift = boosting_scores(training_of(model, data)).columns["shift"]
    for other in others:
        assert model_family(other) == model_family(model)
        assert boosting_scores(training_of(other, data)).columns["shift"] == pytest.approx(shift, abs=1e-9)


def test_settings_that_a_file_of_xgboost_has_lost_are_found_out(tmp_path):
    xgboost(learning_rate=0.1, reg_lambda=3.0).fit(X[:N], Y[:N]).save_model(tmp_path / "model.json")
    loaded = extra("xgboost").XGBClassifier()
    loaded.load_model(tmp_path / "model.json")
    with pytest.raises(NotApplicable, match="settings that are not read here"):
        boosting_scores(training_of(loaded, (X[:N], Y[:N])))


# Stages


@pytest.mark.parametrize("name", ["xgb", "xgb three", "xgb poisson", "lgb", "lgb three", "lgb poisson", "cat", "cat squared"])
def test_stages_are_what_the_library_says_after_as_many_rounds(name):
    model, data = fitted(name), records(name, slice(N, None))
    stages = list(stage_outputs(model, data))
    classes = hasattr(model, "predict_proba")
    ask = model.predict_proba if classes else model.predict
    for count in (1, 7, 25):
        if hasattr(model, "get_booster"):
            said = ask(data[0], iteration_range=(0, count))
        elif hasattr(model, "booster_"):
            said = ask(data[0], num_iteration=count)
        else:
            said = ask(data[0], ntree_end=count)
        found = np.exp(stages[count - 1]) if classes else np.ravel(stages[count - 1])
        assert found == pytest.approx(np.asarray(said, dtype=float), rel=1e-4, abs=1e-5)


# Audits


def audited(model, data="two", **options):
    x, y = DATA[data]
    return ns.audit(model, (x[:N], y[:N]), (x[N:], y[N:]), progress=False, **options)


@pytest.mark.parametrize("name", ["gb", "gb squared", "hist", "xgb", "xgb three", "lgb squared", "cat"])
def test_an_audit_of_a_boosted_model_is_ranked_by_its_yielding_shift_or_in_a_regression_by_its_shift(name):
    weights = WEIGHTS if MODELS[name][2] else None
    audit = audited(fitted(name), MODELS[name][1], sample_weight=weights)
    scores = boosting_scores(rounds_of(name)).columns
    ranks = "shift" if "squared" in name else "yielding_shift"
    assert audit.ranked_by == ranks and ("yielding_shift" in audit.records) == (ranks == "yielding_shift")
    for column in ("leverage", "influence", "loo", "shift"):
        assert audit.records[column].to_numpy() == pytest.approx(scores[column], abs=1e-12)
    assert (audit.records["rank"].sort_values().to_numpy() == np.arange(1, N + 1)).all()
    assert audit.records[ranks][audit.records["rank"] == 1].item() == audit.records[ranks].max()
    assert not any("linear head" in why and "theory" not in why for why in audit.not_applicable.values())
    assert audit.not_applicable["newton"] == "not applicable: the method 'leaf values' does not give it"
    stamp = next(entry.stamp for entry in audit.evidence if entry.source == "scores")
    assert stamp["method"] == "leaf values" and stamp["rounds"] == rounds_of(name).count and stamp["largest_deviation"] < 1e-4


def test_stages_are_the_loss_traces_of_a_boosted_model():
    audit, model = audited(fitted("gb")), fitted("gb")
    rounds = next(entry.stamp for entry in audit.evidence if entry.source == "traces")["rounds"]
    assert rounds[0] == 1 and rounds[-1] == 25 and rounds == sorted(set(rounds))
    losses = [
        np.array([-np.log(p[np.arange(N), y]) for p in model.staged_predict_proba(x)])[np.array(rounds) - 1]
        for x, y in ((X[:N], Y[:N]), (X[N:], Y[N:]))
    ]
    best = losses[1].mean(1).argmin()
    assert audit.records["early_loss"].to_numpy() == pytest.approx(losses[0][: best + 1].mean(0), rel=1e-9)
    low, high = np.quantile(losses[0], (0.25, 0.75), axis=0)
    assert audit.records["lt_iqr"].to_numpy() == pytest.approx(high - low, rel=1e-9)
    without = ns.audit(model, (X[:N], Y[:N]), (X[:0], Y[:0]), progress=False)
    assert "lt_iqr" in without.records and "the test split is empty" in without.not_applicable["early_loss"]


def test_traces_that_were_given_count_instead_of_stages():
    losses = audited(fitted("gb")).member_losses
    audit = audited(fitted("gb"), loss_traces=np.stack([3 * losses, losses], axis=1))
    assert audit.records["lt_iqr"].to_numpy() == pytest.approx(losses, rel=1e-9)


def test_where_bags_are_unknown_the_stages_rank():
    audit = audited(xgboost(subsample=0.5, tree_method="exact").fit(X[:N], Y[:N]))
    assert audit.ranked_by == "exposure_score" and "shift" not in audit.records
    assert audit.not_applicable["shift"].endswith("settings that are not read here (subsample)")
    assert next(found.status for found in audit.findings if found.code == "NS044") == "not applicable"
    rule = next(entry.stamp["rule"] for entry in audit.evidence if entry.source == "exposure")
    assert rule == "early_loss" and "lt_iqr" in audit.records
    np.testing.assert_array_equal(audit.records["exposure_score"], audit.records["early_loss"])


@pytest.mark.parametrize(
    "model", [GB(n_estimators=25, subsample=0.5), GradientBoostingRegressor(n_estimators=25, loss="huber")], ids=["subsample", "huber"]
)
def test_without_its_leaves_a_boosted_model_is_ordered_by_early_loss(model):
    task = "two" if isinstance(model, GB) else "value"
    x, y = DATA[task]
    audit = ns.audit(model.fit(x[:N], y[:N]), (x[:N], y[:N]), (x[N:], y[N:]), progress=False)
    assert "shift" not in audit.records and audit.ranked_by == "exposure_score"
    np.testing.assert_array_equal(audit.records["exposure_score"], audit.records["early_loss"])


def test_the_range_of_rounds_is_a_covariate_that_orders_nothing_by_itself():
    columns = {"lt_iqr": np.arange(3.0), "early_loss": np.ones(3)}
    rounds, epochs = trace_covariates(columns, {"rounds": [1]}), trace_covariates(columns, {})
    assert set(rounds) == {OF_ROUNDS, "early_loss"} and OF_ROUNDS not in FREE_ORDER
    assert set(epochs) == {"lt_iqr", "early_loss"} <= set(FREE_ORDER)
    np.testing.assert_array_equal(rounds[OF_ROUNDS], columns["lt_iqr"])


def test_beside_references_the_range_of_rounds_still_orders_nothing(monkeypatch, tmp_path):
    """Weighed in the audit, and weighed anew when a set of references is scored."""
    seen = []

    def noted(statistics, known, free, **how):
        seen.append({*free, *(name for entry in known for name in entry.source.covariates)})
        return weighed_exposure(statistics, known, free, **how)

    monkeypatch.setattr(exposing, "weighed_exposure", noted)
    monkeypatch.setattr(sys.modules["noshadow._audit.with_references"], "weighed_exposure", noted)
    model, train, test = GB(n_estimators=10, random_state=0).fit(X[:N], Y[:N]), (X[:N], Y[:N]), (X[N:], Y[N:])
    both = np.concatenate([X[:N], X[N:]]), np.concatenate([Y[:N], Y[N:]])

    def train_fn(rows, seed):
        return GB(n_estimators=10, random_state=seed).fit(both[0][rows], both[1][rows])

    references = train_references(tmp_path / "set", train_fn, train, test, model=model, models=4, workers=1, progress=False)
    audit = ns.audit(model, train, test, reference_models=references, progress=False)
    with_references(audit, references)
    assert len(seen) == 2 and all(OF_ROUNDS in names and "lt_iqr" not in names for names in seen)


def test_pipelines_and_score_options():
    pipeline = make_pipeline(StandardScaler(), GB(n_estimators=10)).fit(X[:N], Y[:N])
    assert audited(pipeline).ranked_by == "yielding_shift"
    with pytest.raises(InputError, match=r"score_options must be left out .* \(scores of boosted trees have no options\)"):
        audited(pipeline, score_options={"method": "exact"})


@pytest.mark.parametrize("kind", ["xgb", "lgb"])
def test_the_digest_of_the_weights_is_that_of_the_model(kind):
    made = {"xgb": xgboost, "lgb": lightgbm}[kind]
    digests = [audited(made(**how).fit(X[:N], Y[:N])).provenance["hashes"]["weights"] for how in ({}, {}, {"max_depth": 2})]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(("kind", "what"), [("xgb", "XGBClassifier"), ("lgb", "LGBMClassifier"), ("cat", "CatBoostClassifier")])
def test_a_model_before_its_fit_is_refused(kind, what):
    model = {"xgb": xgboost, "lgb": lightgbm, "cat": catboost}[kind]()
    with pytest.raises(InputError, match=f"audit: model must be fitted; got {what} before fit"):
        audited(model)


def test_classes_against_the_rest_are_audited_by_their_stages():
    x, y = DATA["three"]
    model = catboost(loss_function="MultiClassOneVsAll").fit(x[:N], y[:N])
    audit = ns.audit(model, (x[:N], y[:N]), (x[N:], y[N:]), progress=False)
    chances = model.predict_proba(x[:N])
    own = (chances / chances.sum(1, keepdims=True))[np.arange(N), y[:N]]
    np.testing.assert_allclose(audit.records["loss"], -np.log(own), rtol=1e-9)
    assert "early_loss" in audit.records and "MultiClassOneVsAll are not rebuilt" in audit.not_applicable["shift"]
    two = catboost(loss_function="Focal:focal_alpha=0.5;focal_gamma=2").fit(X[:N], Y[:N])
    assert "rank" in ns.audit(two, (X[:N], Y[:N]), (X[N:], Y[N:]), progress=False).records


@pytest.mark.parametrize("kind", [xgboost, lightgbm])
def test_one_class_is_refused(kind):
    one = np.zeros(N, dtype=int)
    with pytest.raises(InputError, match=r"model must know at least two classes; got .* fitted on one"):
        ns.audit(kind().fit(X[:N], one), (X[:N], one), (X[N:], one), progress=False)


def test_a_ranker_is_refused():
    data = extra("xgboost").DMatrix(X[:N], Y[:N], group=[N])
    ranker = extra("xgboost").train({"objective": "rank:pairwise", "nthread": 1}, data, 3)
    with pytest.raises(InputError, match="model must be a classifier or a regressor; got Booster with the objective rank:pairwise"):
        audited(ranker)


def test_libraries_that_nobody_imported_stay_out():
    code = (
        "import sys, numpy as np, noshadow as ns; from sklearn.ensemble import GradientBoostingClassifier as G; "
        "x = np.random.default_rng(0).normal(size=(60, 2)); y = (x[:, 0] > 0) * 1; "
        "a = ns.audit(G(n_estimators=3).fit(x, y), (x, y), (x, y), progress=False); "
        "print(a.ranked_by, [m for m in ('xgboost', 'lightgbm', 'catboost') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "yielding_shift []"
