"""Linear models and processes beyond the softmax head: what they would say without a record, against n real refits.

Closed forms do a refit's sums in another order: 1e-8 is far above rounding and far below any effect of a record. One Newton step and
Laplace's approximation are no closed forms; how near they come is stated with each.
"""

import numpy as np
import pytest
from scipy.special import logit
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import VotingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import (
    ARDRegression,
    GammaRegressor,
    Lars,
    LassoLars,
    LassoLarsIC,
    LinearRegression,
    LogisticRegression,
    OrthogonalMatchingPursuit,
    Perceptron,
    PoissonRegressor,
    RidgeClassifier,
    RidgeClassifierCV,
    SGDClassifier,
    TweedieRegressor,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.svm import SVC, NuSVC
from sklearn.tree import DecisionTreeClassifier

import noshadow as ns
from noshadow.checks import InputError, NotApplicable
from noshadow.views import left_out_outputs
from noshadow.views.reader import OtherRecords

RNG = np.random.default_rng(0)
IRIS, SPECIES = load_iris(return_X_y=True)
ROWS = RNG.permutation(150)[:60]
X, Y = IRIS[ROWS] - IRIS.mean(0) + 0.05 * RNG.normal(size=(60, 4)), SPECIES[ROWS]
X_TEST, Y_TEST = np.delete(IRIS, ROWS, 0) - IRIS.mean(0), np.delete(SPECIES, ROWS)
R, T = (part[:60] for part in load_diabetes(return_X_y=True))
COUNT = RNG.poisson(T / 40) + 1.0
W = RNG.uniform(0.5, 3.0, 60)


def others(i):
    return np.arange(60) != i


def logits(values):
    """Logarithms of the sigmoid or softmax of decision values of one record."""
    values = np.append(0.0, values) if np.ndim(values) == 0 or len(values) == 1 else values
    return values - np.logaddexp.reduce(values)


@pytest.mark.parametrize("labels", [Y, (Y > 0).astype(int)], ids=["three", "two"])
@pytest.mark.parametrize("options", [{}, {"class_weight": {0: 1.0, 1: 3.0, 2: 0.5}}, {"fit_intercept": False, "alpha": 5.0}], ids=repr)
@pytest.mark.parametrize("weight", [None, W], ids=["plain", "weighted"])
def test_a_ridge_classifier_without_each_record_is_its_refit(labels, options, weight):
    if "class_weight" in options:
        options = {"class_weight": {c: options["class_weight"][c] for c in np.unique(labels)}}
    made = RidgeClassifier(**options)
    found = left_out_outputs(clone(made).fit(X, labels, sample_weight=weight), (X, labels), sample_weight=weight).outputs
    for i in range(0, 60, 10):
        kept = others(i)
        again = clone(made).fit(X[kept], labels[kept], sample_weight=None if weight is None else weight[kept])
        np.testing.assert_allclose(found[i], logits(again.decision_function(X[[i]])[0]), atol=1e-8)


def test_a_ridge_classifier_with_a_chosen_penalty_or_a_solver_that_iterates():
    chosen = RidgeClassifierCV(alphas=[0.1, 3.0, 40.0]).fit(X, Y)
    plain = RidgeClassifier(alpha=chosen.alpha_).fit(X, Y)
    np.testing.assert_allclose(*(left_out_outputs(one, (X, Y)).outputs for one in (chosen, plain)), atol=1e-8)
    steps = RidgeClassifier(solver="sag", tol=1e-3, random_state=0).fit(X, Y)
    moved = left_out_outputs(steps, (X, Y)).outputs - np.log(softmax(steps.decision_function(X)))
    exact = RidgeClassifier().fit(X, Y)
    np.testing.assert_allclose(moved, left_out_outputs(exact, (X, Y)).outputs - np.log(softmax(exact.decision_function(X))), atol=0.02)
    for one in (chosen, plain):
        with pytest.raises(OtherRecords):
            left_out_outputs(one, (X, np.roll(Y, 7)))
    with pytest.raises(NotApplicable, match="at or above zero"):
        left_out_outputs(RidgeClassifier(positive=True).fit(X, Y), (X, Y))


def softmax(values):
    powers = np.exp(values - values.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def test_categories_leave_the_counts_of_naive_bayes():
    table = RNG.integers(0, 4, (60, 5))
    for model in (CategoricalNB(min_categories=4), CategoricalNB(min_categories=4, alpha=0.3, fit_prior=False)):
        for weight in (None, W):
            fitted = clone(model).fit(table, Y, sample_weight=weight)
            found = np.exp(left_out_outputs(fitted, (table, Y), sample_weight=weight).outputs)
            for i in range(0, 60, 10):
                kept = others(i)
                again = clone(model).fit(table[kept], Y[kept], sample_weight=None if weight is None else weight[kept])
                np.testing.assert_allclose(found[i], again.predict_proba(table[[i]])[0], rtol=1e-8)


def test_columns_that_a_pursuit_chose_are_least_squares():
    model = OrthogonalMatchingPursuit(n_nonzero_coefs=4).fit(R, T)
    chosen = np.flatnonzero(model.coef_)
    found = left_out_outputs(model, (R, T)).outputs.ravel()
    for i in range(60):
        kept = others(i)
        assert found[i] == pytest.approx(LinearRegression().fit(R[kept][:, chosen], T[kept]).predict(R[[i]][:, chosen])[0], rel=1e-8)


@pytest.mark.parametrize("model", [LassoLars(alpha=0.5), LassoLarsIC()], ids=repr)
def test_a_lasso_by_angles_on_its_active_set(model):
    fitted = clone(model).fit(R, T)
    alpha = getattr(fitted, "alpha_", None) or fitted.alpha
    found, checked = left_out_outputs(fitted, (R, T)).outputs.ravel(), 0
    for i in range(60):
        kept = others(i)
        again = LassoLars(alpha=alpha * 60 / 59).fit(R[kept], T[kept])
        if np.array_equal(np.sign(again.coef_), np.sign(fitted.coef_)):
            assert found[i] == pytest.approx(again.predict(R[[i]])[0], rel=1e-6)
            checked += 1
    assert checked >= 15


def test_least_angles_at_the_end_of_their_path_are_least_squares_and_before_it_nothing():
    found = left_out_outputs(Lars().fit(R, T), (R, T)).outputs.ravel()
    for i in range(0, 60, 6):
        kept = others(i)
        assert found[i] == pytest.approx(LinearRegression().fit(R[kept], T[kept]).predict(R[[i]])[0], rel=1e-8)
    with pytest.raises(NotApplicable, match="left before its end"):
        left_out_outputs(Lars(n_nonzero_coefs=3).fit(R, T), (R, T))


def test_relevance_determination_is_a_ridge_with_penalties_of_its_own():
    model = ARDRegression().fit(20 * R, T)
    found, kept = left_out_outputs(model, (20 * R, T)).outputs.ravel(), model.lambda_ < model.threshold_lambda
    design, penalty = 20 * R[:, kept], np.diag(model.lambda_[kept] / model.alpha_)
    for i in range(60):
        rows = others(i)
        moved, mean = design[rows] - design[rows].mean(0), T[rows].mean()
        solved = np.linalg.solve(moved.T @ moved + penalty, moved.T @ (T[rows] - mean))
        assert found[i] == pytest.approx(mean + (design[i] - design[rows].mean(0)) @ solved, rel=1e-8)


REST = [
    LogisticRegression(C=2.0, solver="lbfgs", tol=1e-10, max_iter=10_000),
    LogisticRegression(C=2.0, solver="liblinear", tol=1e-10, max_iter=10_000, intercept_scaling=3.0),
]


@pytest.mark.parametrize("one", REST, ids=["lbfgs", "liblinear"])
def test_regressions_against_the_rest_leave_by_one_newton_step(one):
    """One step of Newton's method: a tenth of the fall of the log-odds, where records are within some leverage of each other."""
    model = OneVsRestClassifier(one).fit(X, Y)
    found = left_out_outputs(model, (X, Y)).outputs
    rows, real = np.arange(0, 60, 3), []
    for i in rows:
        again = OneVsRestClassifier(one).fit(X[others(i)], Y[others(i)])
        real.append(logit(again.predict_proba(X[[i]])[0, Y[i]]))
    own = logit(model.predict_proba(X)[rows, Y[rows]])
    falls, stepped = own - np.array(real), own - logit(np.exp(found[rows, Y[rows]]))
    assert np.corrcoef(falls, stepped)[0, 1] > 0.99 and np.abs(falls - stepped).max() < 0.15 * falls.max()
    with pytest.raises(OtherRecords):
        left_out_outputs(model, (X, np.roll(Y, 7)))


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
def test_regressions_that_gave_up_accuse_nobody():
    model = OneVsRestClassifier(LogisticRegression(C=1e6, max_iter=2)).fit(X, Y)
    with pytest.raises(NotApplicable, match="was stopped after max_iter=2 iterations") as caught:
        left_out_outputs(model, (X, Y))
    assert not isinstance(caught.value, OtherRecords)


def test_stochastic_gradients_of_several_classes_leave_as_the_regressions_they_go_to():
    """They end beside the minimum that the regressions are at: three in a hundred of a probability."""
    made = SGDClassifier(loss="log_loss", alpha=0.02, max_iter=1_000, tol=1e-5, learning_rate="adaptive", eta0=0.1, random_state=0)
    found = left_out_outputs(made.fit(X, Y), (X, Y))
    at_minimum = OneVsRestClassifier(LogisticRegression(C=1 / (60 * 0.02), tol=1e-10, max_iter=10_000)).fit(X, Y)
    np.testing.assert_allclose(np.exp(found.outputs), np.exp(left_out_outputs(at_minimum, (X, Y)).outputs), atol=0.03)
    assert "of its first gradient is left" in found.notes[0]
    audit = ns.audit(SGDClassifier(loss="log_loss", random_state=0).fit(X, Y), (X, Y), (X_TEST, Y_TEST), progress=False)
    assert audit.ranked_by == "shift"
    with pytest.raises(NotApplicable, match="penalty='l1'"):
        left_out_outputs(SGDClassifier(loss="log_loss", penalty="l1").fit(X, Y), (X, Y))


@pytest.mark.parametrize(
    "model", [PoissonRegressor(alpha=0.01), GammaRegressor(alpha=0.01), TweedieRegressor(power=1.5, alpha=0.01)], ids=repr
)
@pytest.mark.parametrize("weight", [None, W], ids=["plain", "weighted"])
def test_regressions_with_a_log_link_leave_by_one_newton_step(model, weight):
    """One step: three in a hundred of the largest fall, on these records."""
    table, made = 20 * R, clone(model).set_params(tol=1e-10, max_iter=10_000)
    fitted = clone(made).fit(table, COUNT, sample_weight=weight)
    found, real = left_out_outputs(fitted, (table, COUNT), sample_weight=weight).outputs.ravel()[::3], []
    for i in range(0, 60, 3):
        kept = others(i)
        # The penalty is on the mean loss, and stays as it is on the sum.
        total = 60 / 59 if weight is None else weight.sum() / weight[kept].sum()
        again = clone(made).set_params(alpha=made.alpha * total)
        real.append(again.fit(table[kept], COUNT[kept], sample_weight=None if weight is None else weight[kept]).predict(table[[i]])[0])
    own = np.log(fitted.predict(table))[::3]
    falls, stepped = np.log(real) - own, np.log(found) - own
    assert np.corrcoef(falls, stepped)[0, 1] > 0.995 and np.abs(falls - stepped).max() < 0.1 * np.abs(falls).max()
    with pytest.raises(OtherRecords):
        left_out_outputs(fitted, (table, COUNT[::-1]), sample_weight=weight)
    with pytest.raises(NotApplicable, match="power=0"):
        left_out_outputs(TweedieRegressor(power=0).fit(table, COUNT), (table, COUNT))


@pytest.mark.parametrize("labels", [Y, (Y > 0).astype(int)], ids=["three", "two"])
@pytest.mark.parametrize("kernel", [1.5 * RBF(1.0), RBF(1.0) + WhiteKernel(0.1)], ids=str)
def test_processes_leave_by_their_term_of_the_approximation(labels, kernel):
    """The mode of a refit moves for all records; leaving the term alone is within a tenth of the largest fall of a log-odds."""
    made = GaussianProcessClassifier(kernel, optimizer=None)
    fitted, rows = clone(made).fit(X, labels), np.arange(0, 60, 3)
    found = np.exp(left_out_outputs(fitted, (X, labels)).outputs)
    real = np.array([clone(made).fit(X[others(i)], labels[others(i)]).predict_proba(X[[i]])[0, labels[i]] for i in rows])
    own = logit(fitted.predict_proba(X)[rows, labels[rows]])
    falls, left = own - logit(real), own - logit(found[rows, labels[rows]])
    assert np.corrcoef(falls, left)[0, 1] > 0.98 and np.abs(falls - left).max() < 0.15 * falls.max()
    with pytest.raises(OtherRecords):
        left_out_outputs(fitted, (X, np.roll(labels, 7)))
    with pytest.raises(NotApplicable, match="one class against one"):
        left_out_outputs(GaussianProcessClassifier(multi_class="one_vs_one").fit(X, Y), (X, Y))


@pytest.mark.parametrize(
    "model",
    [
        SVC(),
        SVC(decision_function_shape="ovo"),
        NuSVC(nu=0.2),
        Perceptron(random_state=0),
        SGDClassifier(random_state=0),
        OneVsOneClassifier(SVC()),
    ],
    ids=repr,
)
def test_decision_values_stand_for_log_odds_with_a_note(model):
    fitted = model.fit(X, Y)
    audit = ns.audit(fitted, (X, Y), (X_TEST, Y_TEST), progress=False)
    asked = fitted.set_params(decision_function_shape="ovr") if hasattr(fitted, "decision_function_shape") else fitted
    values = asked.decision_function(X)
    # Probabilities below 1e-15 are raised to it, as those of every estimator are.
    expected = np.minimum(np.logaddexp.reduce(values, axis=1) - values[np.arange(60), Y], -np.log(1e-15))
    np.testing.assert_allclose(audit.records["loss"], expected, rtol=1e-6, atol=1e-9)
    assert audit.ranked_by == "loss" and "NS027" in {finding.code for finding in audit.findings if finding.status == "found"}
    assert any("gives no probabilities: its decision values stand for log-odds" in note for note in audit.notes)
    two = clone(model).fit(X, Y > 0)
    assert "rank" in ns.audit(two, (X, Y > 0), (X_TEST, Y_TEST > 0), progress=False).records


def test_votes_stand_for_probabilities_with_a_note():
    parts = [("bayes", GaussianNB()), ("tree", DecisionTreeClassifier(max_depth=1)), ("linear", RidgeClassifier())]
    model = VotingClassifier(parts, weights=[1, 1, 2]).fit(X, Y)
    audit = ns.audit(model, (X, Y), (X_TEST, Y_TEST), progress=False)
    votes = np.stack([part.predict(X) == Y for part in model.estimators_], axis=1) @ np.array([0.75, 0.75, 1.5])
    np.testing.assert_allclose(audit.records["loss"], -np.log((votes + 0.5) / 4.5), rtol=1e-9)
    assert any("shares of its parts' votes stand for them" in note for note in audit.notes)


def test_classifiers_without_probabilities_are_refused_as_others_are():
    with pytest.raises(InputError, match="model must be fitted; got Perceptron before fit"):
        ns.audit(Perceptron(), (X, Y), (X_TEST, Y_TEST), progress=False)
    several = np.stack([Y > 0, Y > 1], axis=1).astype(int)
    with pytest.raises(InputError, match="predict one label per record; got OneVsRestClassifier with several"):
        ns.audit(
            OneVsRestClassifier(SVC()).fit(X, several),
            (X, several),
            (X_TEST, np.stack([Y_TEST > 0, Y_TEST > 1], axis=1).astype(int)),
            progress=False,
        )
