"""What a model would say of a record without it, against n real refits of every family that has a formula.

Formulas and refits do the same sums in another order: 1e-8 is far above rounding (1e-12 here) and far below any effect of a record.
Solvers that iterate are run to 1e-12, so that 1e-7 holds for them.
"""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import BayesianRidge, ElasticNet, ElasticNetCV, HuberRegressor, Lasso, LassoCV, Ridge
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, RadiusNeighborsClassifier, RadiusNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from noshadow.checks import InputError, NotApplicable
from noshadow.views import left_out_outputs
from noshadow.views.reader import OtherRecords

RNG = np.random.default_rng(0)
IRIS, SPECIES = load_iris(return_X_y=True)
ROWS = RNG.permutation(150)[:60]
X, Y = IRIS[ROWS] + 0.05 * RNG.normal(size=(60, 4)), SPECIES[ROWS]
R, T = (part[:60] for part in load_diabetes(return_X_y=True))
COUNTS = RNG.poisson(2.0 * np.exp(0.4 * RNG.normal(size=(60, 6)) + 0.5 * np.eye(3)[Y] @ RNG.normal(size=(3, 6))))
W = RNG.uniform(0.5, 3.0, 60)


def refits(model, X, y, weight=None, changed=None):
    """Predictions (or class probabilities over all classes) for record i of the model fitted without it."""
    classes, rows = np.unique(y), []
    for i in range(len(y)):
        kept = np.arange(len(y)) != i
        again = clone(model) if changed is None else changed(clone(model))
        again = again.fit(X[kept], y[kept]) if weight is None else again.fit(X[kept], y[kept], sample_weight=weight[kept])
        if not hasattr(model, "predict_proba"):
            rows.append(again.predict(X[[i]])[0])
            continue
        found = np.zeros(len(classes))
        found[np.searchsorted(classes, again.classes_)] = again.predict_proba(X[[i]])[0]
        rows.append(found)
    return np.array(rows)


def shares(outputs):
    """Class probabilities; the reader raises zeros to 1e-15."""
    return np.where(np.exp(outputs) <= 1.001e-15, 0.0, np.exp(outputs))


CLASSIFIERS = [
    (KNeighborsClassifier(3), X),
    (KNeighborsClassifier(5, weights="distance"), X),
    (KNeighborsClassifier(4, algorithm="brute", metric="manhattan"), X),
    (KNeighborsClassifier(4, weights=lambda d: np.exp(-d)), X),
    (RadiusNeighborsClassifier(1.2, outlier_label=0), X),
    (RadiusNeighborsClassifier(1.2, weights="distance", outlier_label=0), X),
    (GaussianNB(), X),
    (GaussianNB(var_smoothing=0.1), X),
    (GaussianNB(priors=[0.2, 0.3, 0.5]), X),
    (MultinomialNB(), COUNTS),
    (MultinomialNB(alpha=0.3, fit_prior=False), COUNTS),
    (MultinomialNB(class_prior=[0.2, 0.3, 0.5]), COUNTS),
    (BernoulliNB(binarize=2.0), COUNTS),
    (BernoulliNB(alpha=0.2, binarize=1.0, fit_prior=False), COUNTS),
    (ComplementNB(alpha=0.5), COUNTS),
    (LinearDiscriminantAnalysis(), X),
    (LinearDiscriminantAnalysis(priors=[0.2, 0.3, 0.5]), X),
    (LinearDiscriminantAnalysis(solver="lsqr"), X),
    (LinearDiscriminantAnalysis(solver="eigen"), X),
    (QuadraticDiscriminantAnalysis(), X),
    (QuadraticDiscriminantAnalysis(reg_param=0.2), X),
    (QuadraticDiscriminantAnalysis(priors=[0.2, 0.3, 0.5]), X),
]
REGRESSORS = [
    (KNeighborsRegressor(3), R, T),
    (KNeighborsRegressor(5, weights="distance"), R, np.column_stack([T, -(T**2)])),
    (RadiusNeighborsRegressor(0.2), R, T),
    (KernelRidge(alpha=0.5, kernel="rbf", gamma=30.0), R, T),
    (KernelRidge(alpha=[0.5, 0.1], kernel="polynomial", degree=2, gamma=3.0, coef0=1.0), R, np.column_stack([T, T**2])),
    (GaussianProcessRegressor(RBF(0.2), alpha=0.3, optimizer=None), R, T),
    (GaussianProcessRegressor(RBF(0.2), alpha=W / 5, optimizer=None), R, T),
    (GaussianProcessRegressor(RBF(0.2) + WhiteKernel(0.2), normalize_y=True, optimizer=None), R, T),
]


def named(case):
    return repr(case[0] if isinstance(case, tuple) else case)[:70]


@pytest.mark.parametrize("case", CLASSIFIERS, ids=named)
def test_a_classifier_without_each_record_is_its_refit(case):
    model, table = case
    found = left_out_outputs(clone(model).fit(table, Y), (table, Y))
    np.testing.assert_allclose(shares(found.outputs), refits(model, table, Y), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("case", REGRESSORS, ids=named)
@pytest.mark.filterwarnings("ignore:One or more samples have no neighbors")
def test_a_regression_without_each_record_is_its_refit(case):
    model, table, target = case
    if isinstance(getattr(model, "alpha", None), np.ndarray):
        # The noise of each record leaves with it.
        expected = []
        for i in range(len(target)):
            kept = np.arange(len(target)) != i
            again = clone(model).set_params(alpha=model.alpha[kept]).fit(table[kept], target[kept])
            expected.append(again.predict(table[[i]])[0])
    else:
        expected = refits(model, table, target)
    found = left_out_outputs(clone(model).fit(table, target), (table, target))
    np.testing.assert_allclose(found.outputs.reshape(target.shape), np.array(expected), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", [(GaussianNB(), X), (MultinomialNB(), COUNTS), (BernoulliNB(binarize=2.0), COUNTS)], ids=named)
def test_weights_of_records_count_in_naive_bayes(case):
    model, table = case
    fitted = clone(model).fit(table, Y, sample_weight=W)
    found = left_out_outputs(fitted, (table, Y), sample_weight=W)
    np.testing.assert_allclose(shares(found.outputs), refits(model, table, Y, weight=W), rtol=1e-8, atol=1e-10)
    with pytest.raises(OtherRecords, match="sample_weight="):
        left_out_outputs(fitted, (table, Y))


def test_weights_of_records_count_in_kernel_ridge():
    model = KernelRidge(alpha=0.5, kernel="rbf", gamma=30.0)
    found = left_out_outputs(clone(model).fit(R, T, sample_weight=W), (R, T), sample_weight=W)
    np.testing.assert_allclose(found.outputs.ravel(), refits(model, R, T, weight=W), rtol=1e-8)


def test_sparse_counts_are_read_as_dense_ones_are():
    fitted = MultinomialNB().fit(COUNTS, Y)
    np.testing.assert_allclose(left_out_outputs(fitted, (csr_matrix(COUNTS), Y)).outputs, left_out_outputs(fitted, (COUNTS, Y)).outputs)


@pytest.mark.parametrize("model", [Lasso(alpha=0.5), ElasticNet(alpha=0.01, l1_ratio=0.7), Lasso(alpha=0.5, fit_intercept=False)], ids=repr)
@pytest.mark.parametrize("weight", [None, W], ids=["plain", "weighted"])
def test_lasso_and_elastic_net_on_their_active_set(model, weight):
    model.set_params(tol=1e-14, max_iter=100_000)
    fitted = clone(model).fit(R, T) if weight is None else clone(model).fit(R, T, sample_weight=weight)
    found = left_out_outputs(fitted, (R, T), sample_weight=weight).outputs.ravel()
    checked = 0
    for i in range(60):
        kept = np.arange(60) != i
        total = 60 / 59 if weight is None else weight.sum() / weight[kept].sum()
        again = clone(model).set_params(alpha=model.alpha * total)
        again = again.fit(R[kept], T[kept]) if weight is None else again.fit(R[kept], T[kept], sample_weight=weight[kept])
        if np.array_equal(np.sign(again.coef_), np.sign(fitted.coef_)):
            assert found[i] == pytest.approx(again.predict(R[[i]])[0], rel=1e-6)
            checked += 1
    assert checked >= 20


@pytest.mark.parametrize(
    "model",
    [
        Lasso(alpha=0.1),
        Lasso(alpha=0.1, selection="random", random_state=0),
        ElasticNet(alpha=0.01, tol=0.01, selection="random", random_state=0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("weight", [None, W], ids=["plain", "weighted"])
def test_a_solver_that_stopped_early_is_no_sign_of_other_records(model, weight):
    """A model beside its minimum by more than a formula may be: its duality gap says whose records these are."""
    table, said = 20 * R, clone(model).fit(20 * R, T, sample_weight=weight)
    found = left_out_outputs(said, (table, T), sample_weight=weight)
    assert "stopped within its tolerance" in found.notes[0]
    # The same active set, solved to the end: records leave both by the same way.
    solved = clone(model).set_params(tol=1e-14, max_iter=1_000_000).fit(table, T, sample_weight=weight)
    assert np.array_equal(np.sign(solved.coef_), np.sign(said.coef_))
    left = left_out_outputs(solved, (table, T), sample_weight=weight).outputs.ravel() - solved.predict(table)
    np.testing.assert_allclose(found.outputs.ravel() - said.predict(table), left, rtol=1e-6, atol=1e-9)
    for targets, given in ((T[::-1], weight), (T, W if weight is None else None), (T + 10 * (np.arange(60) == 3), weight)):
        with pytest.raises(OtherRecords):
            left_out_outputs(said, (table, targets), sample_weight=given)


@pytest.mark.filterwarnings("ignore:.*did not converge", "ignore:lbfgs failed to converge")
@pytest.mark.parametrize("model", [Lasso(alpha=0.001, max_iter=2), HuberRegressor(max_iter=20)], ids=repr)
def test_a_solver_that_gave_up_says_so_and_accuses_nobody(model):
    with pytest.raises(NotApplicable, match=f"was stopped after max_iter={model.max_iter} iterations") as caught:
        left_out_outputs(model.fit(R, T), (R, T))
    assert not isinstance(caught.value, OtherRecords)


def test_huber_regression_that_was_solved_by_its_own_measure_is_taken():
    # Columns of very small spread: L-BFGS ends beside the minimum.
    said = HuberRegressor(max_iter=1000).fit(R, T)
    found = left_out_outputs(said, (R, T))
    assert "stopped within its tolerance" in found.notes[0]
    with pytest.raises(OtherRecords):
        left_out_outputs(said, (R, T[::-1]))


def test_cross_validated_and_bayesian_penalties_are_kept():
    for model in (LassoCV(cv=3, tol=1e-12, max_iter=100_000), ElasticNetCV(cv=3, tol=1e-12, max_iter=100_000)):
        fitted = model.fit(R, T)
        plain = ElasticNet(alpha=fitted.alpha_, l1_ratio=getattr(fitted, "l1_ratio_", 1.0), tol=1e-14, max_iter=100_000).fit(R, T)
        np.testing.assert_allclose(left_out_outputs(fitted, (R, T)).outputs, left_out_outputs(plain, (R, T)).outputs, rtol=1e-5)
    bayes = BayesianRidge(tol=1e-12, max_iter=10_000).fit(R, T)
    expected = refits(Ridge(alpha=bayes.lambda_ / bayes.alpha_), R, T)
    np.testing.assert_allclose(left_out_outputs(bayes, (R, T)).outputs.ravel(), expected, rtol=1e-8)


def test_huber_regression_with_its_inliers_kept():
    target = T + np.where(RNG.uniform(size=60) < 0.15, 400.0, 0.0)
    model = HuberRegressor(alpha=0.01, tol=1e-12, max_iter=20_000).fit(20 * R, target)
    found = left_out_outputs(model, (20 * R, target)).outputs.ravel()
    design, residual = np.column_stack([20 * R, np.ones(60)]), target - model.predict(20 * R)
    penalty = np.diag([model.alpha * model.scale_] * 10 + [0.0])
    for i in range(60):
        kept = np.arange(60) != i
        inside, outside = kept & ~model.outliers_, kept & model.outliers_
        pull = model.epsilon * model.scale_ * design[outside].T @ np.sign(residual[outside])
        solved = np.linalg.solve(design[inside].T @ design[inside] + penalty, design[inside].T @ target[inside] + pull)
        assert found[i] == pytest.approx(design[i] @ solved, rel=1e-8)
    # Real refits also move the scale: by little.
    moved, real = found - model.predict(20 * R), refits(model, 20 * R, target) - model.predict(20 * R)
    assert np.corrcoef(moved, real)[0, 1] > 0.97


@pytest.mark.parametrize(
    "options", [{}, {"class_weight": {0: 1.0, 1: 3.0, 2: 0.5}}, {"intercept_scaling": 4.0}, {"fit_intercept": False}], ids=repr
)
@pytest.mark.parametrize("labels", [Y, (Y > 0).astype(int)], ids=["three", "two"])
@pytest.mark.parametrize("weight", [None, W], ids=["plain", "weighted"])
def test_linear_svc_with_the_records_within_its_margin_kept(options, labels, weight):
    """Where no other record crosses the margin, the refit is the formula; a few may cross it, and are left out of the comparison."""
    options = {name: {k: value[k] for k in np.unique(labels)} if name == "class_weight" else value for name, value in options.items()}
    made = LinearSVC(C=0.05, dual=False, tol=1e-9, max_iter=100_000, **options)
    fitted = clone(made).fit(X, labels, sample_weight=weight)
    found = left_out_outputs(fitted, (X, labels), sample_weight=weight)
    values = fitted.decision_function(X).reshape(60, -1)
    signs = np.where(labels[:, None] == (np.array([1]) if values.shape[1] == 1 else np.unique(labels)), 1, -1)
    compared = 0
    for i in range(60):
        kept = np.arange(60) != i
        again = clone(made).fit(X[kept], labels[kept], sample_weight=None if weight is None else weight[kept])
        said = again.decision_function(X).reshape(60, -1)
        if np.array_equal((signs * values < 1)[kept], (signs * said < 1)[kept]):
            logits = np.append(0.0, said[i]) if said.shape[1] == 1 else said[i]
            np.testing.assert_allclose(found.outputs[i], logits - np.logaddexp.reduce(logits), atol=1e-6)
            compared += 1
    assert compared >= 10


def test_linear_svc_of_other_records_or_another_loss():
    # At its default tolerance liblinear is beside the minimum, and its own records are still known.
    said = LinearSVC().fit(X, Y)
    assert np.isfinite(left_out_outputs(said, (X, Y)).outputs).all()
    for table, labels in ((X[::-1], Y), (X, np.roll(Y, 7)), (X + 0.3, Y)):
        with pytest.raises(OtherRecords):
            left_out_outputs(said, (table, labels))
    balanced = LinearSVC(class_weight="balanced")
    assert np.isfinite(left_out_outputs(balanced.fit(X, Y), (X, Y)).outputs).all()
    with pytest.raises(NotApplicable, match="balance the classes"):
        left_out_outputs(balanced.fit(X, Y, sample_weight=W), (X, Y), sample_weight=W)
    for model, why in ((LinearSVC(loss="hinge"), "loss='hinge'"), (LinearSVC(max_iter=1, dual=False), "stopped after max_iter=1")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, Y)
        with pytest.raises(NotApplicable, match=why):
            left_out_outputs(model, (X, Y))


def frozen_refits(model, X, y, weight=None):
    """Leaf means of the fitted tree over all other records of the leaf, or of the nearest node above that holds another one."""
    tree, expected = model.tree_, []
    paths = model.decision_path(X).toarray().astype(bool)
    weight = np.ones(len(y)) if weight is None else weight
    values = np.eye(len(model.classes_))[np.searchsorted(model.classes_, y)] if hasattr(model, "classes_") else y.reshape(len(y), -1)
    for i in range(len(y)):
        for node in sorted(np.flatnonzero(paths[i]), key=lambda node: paths[:, node].sum()):
            others = paths[:, node] & (np.arange(len(y)) != i) & (weight > 0)
            if others.any():
                expected.append(weight[others] @ values[others] / weight[others].sum())
                break
        else:
            expected.append(np.full(values.shape[1], np.nan))
    assert tree.node_count == paths.shape[1]
    return np.array(expected)


@pytest.mark.parametrize("options", [{}, {"max_depth": 3}, {"min_samples_leaf": 4}, {"max_leaf_nodes": 6}, {"ccp_alpha": 0.01}], ids=repr)
def test_a_tree_without_each_record_has_the_leaf_means_of_the_others(options):
    tree = DecisionTreeClassifier(random_state=0, **options).fit(X, Y)
    found = left_out_outputs(tree, (X, Y))
    np.testing.assert_allclose(shares(found.outputs), frozen_refits(tree, X, Y), atol=1e-12)
    grown_tree = DecisionTreeRegressor(random_state=0, **options).fit(R, T)
    np.testing.assert_allclose(left_out_outputs(grown_tree, (R, T)).outputs, frozen_refits(grown_tree, R, T), rtol=1e-10)
    leaves = tree.apply(X)
    np.testing.assert_array_equal(found.leaves.alone, np.bincount(leaves)[leaves] == 1)
    np.testing.assert_allclose(found.leaves.sizes, np.bincount(leaves)[leaves], rtol=1e-12)


def test_weights_count_in_a_tree():
    for options, given in (({"class_weight": "balanced"}, None), ({"class_weight": {0: 1.0, 1: 5.0, 2: 0.5}}, W), ({}, W)):
        tree = DecisionTreeClassifier(random_state=0, max_depth=3, **options).fit(X, Y, sample_weight=given)
        kind = options.get("class_weight")
        by_class = np.ones(60) if kind is None else np.array([60 / (3 * (c == Y).sum()) if kind == "balanced" else kind[c] for c in Y])
        found = left_out_outputs(tree, (X, Y), sample_weight=given)
        np.testing.assert_allclose(shares(found.outputs), frozen_refits(tree, X, Y, by_class * (1 if given is None else given)), atol=1e-12)


def test_forests_are_the_mean_over_their_trees():
    forest = ExtraTreesClassifier(7, max_depth=4, random_state=0).fit(X, Y)
    mean = np.mean([frozen_refits(tree, X, Y) for tree in forest.estimators_], axis=0)
    np.testing.assert_allclose(shares(left_out_outputs(forest, (X, Y)).outputs), mean, atol=1e-12)
    forest = ExtraTreesRegressor(7, random_state=0).fit(R, T)
    mean = np.mean([frozen_refits(tree, R, T) for tree in forest.estimators_], axis=0)
    np.testing.assert_allclose(left_out_outputs(forest, (R, T)).outputs, mean, rtol=1e-10)


@pytest.mark.parametrize(
    "options", [{}, {"max_samples": 0.5}, {"class_weight": "balanced"}, {"class_weight": "balanced_subsample"}], ids=repr
)
def test_bags_are_the_weights_of_a_forest_with_bootstrap(options):
    forest = RandomForestClassifier(7, random_state=0, max_depth=4, **options).fit(X, Y)
    found = left_out_outputs(forest, (X, Y))
    expected = []
    for tree, bag in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        counts = np.bincount(bag, minlength=60).astype(float)
        if options.get("class_weight") == "balanced_subsample":
            drawn = np.bincount(Y[bag], minlength=3)
            counts *= (len(bag) / (3 * drawn))[Y]
        with_bag = frozen_refits(tree, X, Y, counts)
        outside = counts == 0
        with_bag[outside] = tree.predict_proba(X[outside].astype(np.float32))
        expected.append(with_bag)
    np.testing.assert_allclose(shares(found.outputs), np.mean(expected, axis=0), atol=1e-10)
    weighted = RandomForestRegressor(5, random_state=0).fit(R, T, sample_weight=W)
    assert np.isfinite(left_out_outputs(weighted, (R, T)).outputs).all()


@pytest.mark.parametrize(
    "options",
    [{}, {"max_samples": 0.4, "max_features": 0.5, "bootstrap_features": True}, {"bootstrap": False, "max_samples": 40}],
    ids=repr,
)
@pytest.mark.parametrize("weight", [None, W], ids=["plain", "weighted"])
@pytest.mark.filterwarnings("ignore:When fitting Bagging.* with sample_weight it is recommended")
def test_bagged_trees_lose_the_record_from_the_leaves_of_their_bags(options, weight):
    for kind, tree, table, target in (
        (BaggingClassifier, DecisionTreeClassifier(max_depth=4), X, Y),
        (BaggingRegressor, DecisionTreeRegressor(min_samples_leaf=2), R, T),
    ):
        model = kind(tree, n_estimators=7, random_state=0, **options).fit(table, target, sample_weight=weight)
        expected = []
        for part, columns, bag in zip(model.estimators_, model.estimators_features_, model.estimators_samples_, strict=True):
            counts = np.bincount(bag, minlength=60).astype(float)
            seen = table[:, columns].astype(np.float32)
            answers = frozen_refits(part, seen, target, counts)
            outside = counts == 0
            answers[outside] = (part.predict_proba if kind is BaggingClassifier else part.predict)(seen[outside]).reshape(outside.sum(), -1)
            expected.append(answers)
        found = left_out_outputs(model, (table, target), sample_weight=weight)
        outputs = shares(found.outputs) if kind is BaggingClassifier else found.outputs
        np.testing.assert_allclose(outputs, np.mean(expected, axis=0), rtol=1e-10, atol=1e-12)
        assert found.parts == len(found.leaves.leaves) == 7


def test_copies_of_a_record_stay_when_it_leaves():
    table, labels = np.concatenate([X, X[:10]]), np.concatenate([Y, Y[:10]])
    for model in (KNeighborsClassifier(1), KNeighborsClassifier(3, weights="distance")):
        found = shares(left_out_outputs(clone(model).fit(table, labels), (table, labels)).outputs)
        np.testing.assert_allclose(found, refits(model, table, labels), atol=1e-12)


def test_ties_are_said():
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), -1).reshape(-1, 2)
    found = left_out_outputs(KNeighborsClassifier(3).fit(grid, np.arange(36) % 2), (grid, np.arange(36) % 2))
    assert "exactly as far as their last one" in found.notes[0]


def test_where_no_other_record_determines_an_answer_there_is_none():
    far = np.concatenate([X, X[:1] + 100.0])
    labels = np.append(Y, Y[0])
    found = left_out_outputs(RadiusNeighborsClassifier(1.5).fit(far, labels), (far, labels))
    assert np.isnan(found.outputs[60]).all()
    single = np.append(Y, 3)
    for model in (GaussianNB(), LinearDiscriminantAnalysis()):
        outputs = left_out_outputs(model.fit(far, single), (far, single)).outputs
        assert np.isnan(outputs[60]).all() and np.isfinite(outputs[:60]).all()


def test_a_pipeline_is_left_out_of_at_its_end():
    table = StandardScaler().fit_transform(X)
    within = make_pipeline(StandardScaler(), KNeighborsClassifier(3)).fit(X, Y)
    alone = KNeighborsClassifier(3).fit(table, Y)
    np.testing.assert_allclose(left_out_outputs(within, (X, Y)).outputs, left_out_outputs(alone, (table, Y)).outputs)


@pytest.mark.parametrize(
    "model",
    [KNeighborsClassifier(3), GaussianNB(), LinearDiscriminantAnalysis(), DecisionTreeClassifier(), RandomForestClassifier(5)],
    ids=named,
)
def test_a_model_of_other_records_contradicts_these(model):
    fitted = model.fit(X, Y)
    turned = np.roll(np.arange(60), 7)
    for table, labels in ((X[turned], Y), (X, Y[turned]), (X + 0.3, Y)):
        with pytest.raises(OtherRecords):
            left_out_outputs(fitted, (table, labels))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (KNeighborsClassifier(60), "without a record there are 59"),
        (LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3), "shrinkage"),
        (LinearDiscriminantAnalysis(solver="eigen", priors=[0.2, 0.3, 0.5]), "priors that were given"),
        (ComplementNB(norm=True), "norm=True"),
        (BaggingClassifier(KNeighborsClassifier()), "are KNeighborsClassifier, which a record leaves by training them again only"),
        (BaggingClassifier(DecisionTreeClassifier(class_weight="balanced")), "class_weight='balanced', each in its own bag"),
    ],
    ids=named,
)
def test_models_without_a_formula_say_why(model, reason):
    with pytest.raises(NotApplicable, match=reason):
        left_out_outputs(model.fit(X, Y), (X, Y))


def test_medians_in_leaves_and_weights_of_another_length_are_refused():
    with pytest.raises(NotApplicable, match="are medians"):
        left_out_outputs(DecisionTreeRegressor(criterion="absolute_error").fit(R, T), (R, T))
    with pytest.raises(InputError, match="sample_weight"):
        left_out_outputs(GaussianNB().fit(X, Y), (X, Y), sample_weight=W[:5])
