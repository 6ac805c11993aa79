"""Views of scikit-learn estimators: what is read must be what the estimator predicts with and was trained by."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.special import expit, softmax
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    ElasticNet,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OutputCodeClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC
from sklearn.utils.class_weight import compute_sample_weight

import noshadow as ns
from noshadow import InputError
from noshadow.views import collect_signals, view

RNG = np.random.default_rng(5)
N = 80
X = RNG.normal(size=(N, 4))
BINARY = np.where(X[:, 0] + RNG.normal(size=N) > 0.4, "yes", "no")
THREE = np.array([10, 20, 30])[np.argmax(X[:, :3] + RNG.normal(size=(N, 3)), axis=1)]
REAL = X @ [1.0, -2.0, 0.5, 0.0] + RNG.normal(size=N)
TWO = np.stack([REAL, np.tanh(X[:, 1]) + 0.3 * RNG.normal(size=N)], axis=1)


def unconverged(estimator, y, X=X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def mlp(kind, **options):
    return kind(
        hidden_layer_sizes=(5,),
        **({"activation": "tanh", "solver": "lbfgs", "alpha": 0.5, "max_iter": 3000, "tol": 1e-12, "random_state": 0} | options),
    )


def stationarity(seen, weights):
    """Largest entry of Σ gradient + λΘ over the head's weights and of Σ gradient over its bias, relative to Σ |gradient|."""
    z, y = seen.train.outputs, seen.train.targets
    if seen.task == "regression":
        residual = z - y.reshape(len(y), -1)
    elif seen.task == "binary":
        residual = expit(z) - y[:, None]
    else:
        residual = softmax(z, axis=1) - np.eye(z.shape[1])[y]
    if seen.sample_weight is not None:
        residual = residual * seen.sample_weight[:, None]
    scale = (np.abs(seen.train.features).T @ np.abs(residual)).max()
    on_weights = seen.train.features.T @ residual + seen.damping * weights
    return np.abs(on_weights).max() / scale, np.abs(residual.sum(0)).max() / scale


CASES = {
    "logistic binary": (LogisticRegression(C=0.3, tol=1e-10), BINARY, 1 / 0.3),
    "logistic multinomial": (LogisticRegression(C=0.3, tol=1e-10), THREE, 1 / 0.3),
    "logistic balanced": (LogisticRegression(C=2.0, tol=1e-10, class_weight="balanced"), THREE, 0.5),
    "logistic weighted": (LogisticRegression(C=2.0, tol=1e-10, class_weight={"no": 3.0, "yes": 0.5}), BINARY, 0.5),
    "logistic without penalty": (LogisticRegression(C=np.inf, tol=1e-10), BINARY, 0.0),
    "least squares": (LinearRegression(), REAL, 0.0),
    "ridge": (Ridge(alpha=7.0), REAL, 7.0),
    "ridge two outputs": (Ridge(alpha=7.0), TWO, 7.0),
    "mlp binary": (mlp(MLPClassifier), BINARY, 0.5),
    "mlp softmax": (mlp(MLPClassifier), THREE, 0.5),
    "mlp one output": (mlp(MLPRegressor), REAL, 0.5),
    # Full-batch descent: scikit-learn's lbfgs does not reach a minimum with several outputs (its note is tested below).
    "mlp two outputs": (
        mlp(MLPRegressor, solver="sgd", batch_size=N, learning_rate_init=0.1, n_iter_no_change=3000, max_iter=2000),
        TWO,
        0.5,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_damping_makes_the_summed_gradient_vanish(case):
    estimator, y, damping = CASES[case]
    fitted = unconverged(estimator, y)
    seen = view(fitted, (X, y), (X[:3], y[:3]))
    weights = fitted.coefs_[-1] if hasattr(fitted, "coefs_") else fitted.coef_.reshape(-1, 4).T
    assert seen.damping == pytest.approx(damping)
    assert seen.penalize_intercept is False
    assert seen.fit_intercept is True
    # Optimisers stop at tol or on float64 noise, here below 6e-5; half of λ leaves at least 7e-3.
    assert max(stationarity(seen, weights)) < 2e-4
    if damping:
        assert stationarity(replace(seen, penalty=replace(seen.penalty, value=damping / 2)), weights)[0] > 5e-3


@pytest.mark.parametrize(
    ("kind", "options", "twin", "y"),
    [
        (SGDClassifier, {"loss": "log_loss"}, LogisticRegression(C=1 / (N * 0.02), tol=1e-10), BINARY),
        (SGDRegressor, {}, Ridge(alpha=N * 0.02), REAL),
    ],
    ids=["classifier", "regressor"],
)
def test_stochastic_gradients_end_near_the_minimum_of_their_penalty(kind, options, twin, y):
    """λ = nα is the penalty of the minimum that averaged steps go to: the same model by another solver is the oracle.

    Steps of 0.01 end about 1 % beside it; half of λ would be 5 % away.
    """
    steps = {"average": 1000, "eta0": 0.01, "learning_rate": "constant", "max_iter": 3000, "tol": None, "random_state": 0}
    fitted, solved = kind(alpha=0.02, **steps, **options).fit(X, y), twin.fit(X, y)
    assert np.abs(fitted.coef_ - solved.coef_).max() < 0.015 * np.abs(solved.coef_).max()
    seen, oracle = (view(model, (X, y), (X[:3], y[:3])) for model in (fitted, solved))
    assert seen.damping == pytest.approx(oracle.damping) and seen.penalize_intercept is False
    assert seen.head is not None and seen.not_applicable is None


def test_stochastic_gradients_that_are_no_one_head_say_why():
    for model, y, why in (
        (SGDClassifier(loss="log_loss"), THREE, "one class against the rest"),
        (SGDClassifier(loss="modified_huber"), BINARY, "trained with loss='modified_huber'"),
        (SGDRegressor(loss="huber"), REAL, "trained with loss='huber'"),
    ):
        assert why in view(model.fit(X, y), (X, y), None).not_applicable
    for penalty, damping in ((None, 0.0), ("l1", None), ("elasticnet", None)):
        assert view(SGDRegressor(penalty=penalty).fit(X, REAL), (X, REAL), None).damping == damping
    stopped = view(SGDRegressor(early_stopping=True, alpha=0.5).fit(X, REAL), (X, REAL), None)
    assert "early_stopping held" in stopped.notes[0] and stopped.damping < 0.5 * N


def test_stochastic_solvers_divide_alpha_by_the_batch():
    options = {"solver": "sgd", "batch_size": 20, "shuffle": False, "learning_rate_init": 0.02, "max_iter": 1000, "n_iter_no_change": 1000}
    y = X[:60, 0] + 0.3 * np.random.default_rng(0).normal(size=60)
    fitted = unconverged(mlp(MLPRegressor, **options), y, X[:60])
    seen = view(fitted, (X[:60], y), None)
    assert seen.damping == pytest.approx(0.5 * 60 / 20)
    pull = seen.train.features.T @ (seen.train.outputs - y[:, None])
    # Cyclic descent settles within the step size of the minimum; alpha itself would leave two thirds of the pull.
    assert np.abs(pull + seen.damping * fitted.coefs_[-1]).max() < 0.25 * np.abs(pull).max()
    assert np.abs(pull + 0.5 * fitted.coefs_[-1]).max() > 0.5 * np.abs(pull).max()


@pytest.mark.parametrize(("solver", "batch", "damping"), [("adam", "auto", 0.5), ("adam", 10, 4.0), ("sgd", 500, 0.5)])
def test_batch_sizes_follow_scikit_learn(solver, batch, damping):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = mlp(MLPClassifier, solver=solver, batch_size=batch, max_iter=1).fit(X, BINARY)
    assert view(fitted, (X, BINARY), None).damping == pytest.approx(damping)


def test_early_stopping_is_told():
    fitted = unconverged(mlp(MLPClassifier, solver="adam", early_stopping=True, validation_fraction=0.25, max_iter=3), BINARY)
    seen = view(fitted, (X, BINARY), None)
    assert seen.notes == ("early_stopping held 20 of the 80 given records out of the training; which ones is not stored.",)
    assert seen.damping == pytest.approx(0.5 * 80 / 60)


def test_lbfgs_with_several_outputs_is_told_and_true():
    fitted = unconverged(mlp(MLPRegressor, alpha=5.0), TWO)
    seen = view(fitted, (X, TWO), None)
    assert "may stop away from a minimum" in seen.notes[0]
    assert max(stationarity(seen, fitted.coefs_[-1])) > 1e-2


@pytest.mark.parametrize("kind", [LogisticRegression(), mlp(MLPClassifier, activation="relu"), mlp(MLPClassifier, activation="logistic")])
@pytest.mark.parametrize("labels", [BINARY, THREE])
def test_outputs_give_the_classifier_s_probabilities(kind, labels):
    fitted = unconverged(kind, labels)
    seen = view(fitted, (X, labels), None)
    z = seen.train.outputs
    ours = np.hstack([1 - expit(z), expit(z)]) if seen.task == "binary" else softmax(z, axis=1)
    np.testing.assert_allclose(ours, fitted.predict_proba(X), atol=1e-12)
    assert seen.class_names == tuple(map(str, fitted.classes_))
    np.testing.assert_array_equal(fitted.classes_[seen.train.targets], labels)
    # The members' own labels must be the likely ones: a column from the wrong side would turn this around.
    assert ours[np.arange(N), seen.train.targets].mean() > 1 / len(fitted.classes_) + 0.1
    head = fitted.coefs_[-1] if hasattr(fitted, "coefs_") else fitted.coef_.T
    bias = fitted.intercepts_[-1] if hasattr(fitted, "coefs_") else fitted.intercept_
    np.testing.assert_allclose(seen.train.features @ head + bias, z, atol=1e-12)


@pytest.mark.parametrize("kind", [LinearRegression(fit_intercept=False), Ridge(), RidgeCV(), mlp(MLPRegressor, activation="identity")])
@pytest.mark.parametrize("y", [REAL, TWO])
def test_outputs_are_the_regressor_s_predictions(kind, y):
    fitted = unconverged(kind, y)
    signals = collect_signals(fitted, (X, y))
    np.testing.assert_allclose(signals.outputs, fitted.predict(X).reshape(N, -1), atol=1e-12)
    np.testing.assert_array_equal(signals.targets, y)


def test_column_targets_and_lists_and_tensors_are_accepted():
    fitted = Ridge().fit(X, REAL)
    plain = collect_signals(fitted, (X, REAL))
    for data in ((X.tolist(), REAL[:, None]), [torch.tensor(X), torch.tensor(REAL)]):
        assert collect_signals(fitted, data).sha256() == plain.sha256()


def test_liblinear_penalises_the_intercept():
    seen = view(LogisticRegression(solver="liblinear", C=0.5).fit(X, BINARY), (X, BINARY), None)
    assert (seen.damping, seen.penalize_intercept, seen.notes) == (2.0, True, ())


@pytest.mark.parametrize(("scaling", "penalized"), [(10.0, False), (1.1, True), (0.1, True)])
def test_liblinear_intercept_scaling_is_told(scaling, penalized):
    fitted = LogisticRegression(solver="liblinear", C=0.5, intercept_scaling=scaling, tol=1e-8, max_iter=5000).fit(X, BINARY)
    seen = view(fitted, (X, BINARY), None)
    assert seen.penalize_intercept is penalized
    assert f"by λ/{scaling:g}²" in seen.notes[0]
    # The claim itself: the bias feels λ/s².
    pull = (expit(seen.train.outputs[:, 0]) - seen.train.targets).sum()
    assert pull == pytest.approx(-seen.damping * fitted.intercept_[0] / scaling**2, abs=1e-3)


def test_no_intercept():
    seen = view(LogisticRegression(fit_intercept=False).fit(X, BINARY), (X, BINARY), None)
    assert seen.fit_intercept is False
    assert seen.head == "LogisticRegression (4 → 1, without intercept)"


def test_l1_penalties_give_no_damping_but_a_reason():
    for ratio in (1.0, 0.3):
        fitted = unconverged(LogisticRegression(solver="saga", l1_ratio=ratio), BINARY)
        seen = view(fitted, (X, BINARY), None)
        assert seen.damping is None
        assert f"share {ratio:g}" in seen.damping_source


@pytest.mark.parametrize(
    ("penalty", "ratio", "damping"), [("l2", None, 2.0), (None, None, 0.0), ("l1", None, None), ("elasticnet", 0.0, 2.0)]
)
def test_penalty_names_of_older_versions(penalty, ratio, damping):
    fitted = LogisticRegression(C=0.5).fit(X, BINARY)
    fitted.penalty, fitted.l1_ratio = penalty, ratio
    assert view(fitted, (X, BINARY), None).damping == damping


def test_cross_validated_strengths():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        searched = LogisticRegressionCV(Cs=[0.25], cv=2).fit(X, THREE)
        averaged = LogisticRegressionCV(Cs=[0.01, 1.0], cv=2, refit=False).fit(X, THREE)
    assert view(searched, (X, THREE), None).damping == 4.0
    assert view(averaged, (X, THREE), None).damping is None
    assert view(RidgeCV([3.0]).fit(X, REAL), (X, REAL), None).damping == 3.0


def test_class_weights_become_weights_of_the_training_records():
    fitted = LogisticRegression(class_weight="balanced").fit(X, BINARY)
    seen = view(fitted, (X, BINARY), (X[:9], BINARY[:9]))
    np.testing.assert_allclose(seen.sample_weight, compute_sample_weight("balanced", BINARY))
    assert view(LogisticRegression().fit(X, BINARY), (X, BINARY), None).sample_weight is None


def test_ridge_with_an_alpha_per_target():
    same = view(Ridge(alpha=[2.0, 2.0]).fit(X, TWO), (X, TWO), None)
    assert (same.damping, same.not_applicable) == (2.0, None)
    apart = view(Ridge(alpha=[2.0, 3.0]).fit(X, TWO), (X, TWO), None)
    assert apart.damping is None
    assert "a different alpha for each target" in apart.not_applicable


def test_positive_coefficients_are_told():
    assert "constrained to be ≥ 0" in view(LinearRegression(positive=True).fit(X, REAL), (X, REAL), None).notes[0]


def test_pipelines_and_searches_are_taken_apart():
    pipeline = make_pipeline(
        StandardScaler(), "passthrough", make_pipeline(PolynomialFeatures(2, include_bias=False), LogisticRegression(C=0.1))
    )
    search = GridSearchCV(pipeline, {"pipeline__logisticregression__C": [0.1]}, cv=2).fit(X, BINARY)
    seen = view(search, (X, BINARY), (X[:5], BINARY[:5]))
    assert seen.train.features.shape == (N, 14)
    assert (seen.damping, seen.head) == (10.0, "LogisticRegression (14 → 1, with intercept)")
    np.testing.assert_allclose(seen.test.outputs[:, 0], search.decision_function(X[:5]), atol=1e-12)


def test_named_columns_and_sparse_inputs():
    frame = pd.DataFrame(X, columns=list("abcd"))
    for estimator in (LogisticRegression(), mlp(MLPClassifier)):
        fitted = unconverged(estimator, BINARY, frame)
        assert collect_signals(fitted, (frame, pd.Series(BINARY))).features.shape[0] == N
        with pytest.raises(ValueError, match="feature names"):
            collect_signals(fitted, (frame[list("dcba")], BINARY))
    thin = csr_matrix(np.where(np.abs(X) > 1, X, 0.0))
    fitted = LogisticRegression().fit(thin, BINARY)
    np.testing.assert_array_equal(collect_signals(fitted, (thin, BINARY)).features, thin.toarray())


def test_huge_sparse_inputs_are_refused():
    wide = csr_matrix((200, 1_000_000))
    fitted = LogisticRegression().fit(X, BINARY)
    fitted.n_features_in_ = 1_000_000
    with pytest.raises(InputError, match=r"^train X must fit into 1 GB as a dense array; got sparse shape \(200, 1000000\)"):
        view(fitted, (wide, np.repeat(BINARY[:2], 100)), None)


@pytest.mark.parametrize("labels", [BINARY, THREE])
def test_a_forest_has_log_probabilities_and_no_features(labels):
    forest = RandomForestClassifier(5, random_state=0).fit(X, labels)
    seen = view(forest, (X, labels), (X[:4] + 1, labels[:4]))
    p = forest.predict_proba(X)
    assert (seen.task, seen.train.features, seen.head, seen.damping) == ("classification", None, None, None)
    assert seen.not_applicable.startswith("RandomForestClassifier has no linear head")
    np.testing.assert_allclose(np.exp(seen.train.outputs[p > 0]), p[p > 0], rtol=1e-12)
    zeros = int((p == 0).sum() + (forest.predict_proba(X[:4] + 1) == 0).sum())
    assert zeros > 0
    assert seen.notes[0].startswith(f"{zeros} class probabilities below 1e-15 were raised to it")
    # How a hash was made is a fact for the folder, not a note for the reader.
    assert seen.inputs["weights_digest_of"] == "its outputs on the training records" and not any("digest" in note for note in seen.notes)
    assert "weights_digest_of" not in view(LogisticRegression().fit(X, labels), (X, labels), None).inputs
    audit = ns.audit(forest, (X, labels), (X[:4] + 1, labels[:4]), fpr=0.25, progress=False)
    assert audit.provenance["inputs"]["weights_digest_of"] == "its outputs on the training records" and "sha256" not in audit.summary()
    assert p[np.arange(N), seen.train.targets].mean() > 0.7


def test_other_regressors_have_predictions_and_no_features():
    no_head, other_loss = "no linear head, which scores of a last layer are made of", "record scores need one"
    for estimator, reason in (
        (RandomForestRegressor(3, random_state=0), no_head),
        (ElasticNet(), no_head),
        (mlp(MLPRegressor, loss="poisson"), other_loss),
    ):
        fitted = unconverged(estimator, np.abs(REAL))
        seen = view(fitted, (X, np.abs(REAL)), None)
        assert seen.train.features is None
        assert reason in seen.not_applicable
        np.testing.assert_allclose(seen.train.outputs[:, 0], fitted.predict(X))


def test_one_against_the_rest_of_older_versions_is_not_a_softmax():
    fitted = LogisticRegression().fit(X, THREE)
    fitted.multi_class = "ovr"
    assert "one class against the rest" in view(fitted, (X, THREE), None).not_applicable
    fitted = LogisticRegression().fit(X, BINARY)
    fitted.multi_class = "multinomial"
    seen = view(fitted, (X, BINARY), None)
    assert "ties two softmax logits" in seen.not_applicable
    assert seen.train.outputs.shape == (N, 2)


def test_the_digest_follows_the_weights():
    fitted = Ridge().fit(X, REAL)
    first = view(fitted, (X, REAL), None).weights_sha256
    assert first == view(fitted, (X[:5], REAL[:5]), None).weights_sha256
    fitted.coef_ = fitted.coef_ + 1e-12
    assert first != view(fitted, (X, REAL), None).weights_sha256
    assert len(first) == 64


@pytest.mark.parametrize("empty", [None, (X[:0], THREE[:0]), (np.empty((0, 4)), np.empty(0))])
def test_no_test_records(empty):
    seen = view(LogisticRegression().fit(X, THREE), (X, THREE), empty)
    assert (len(seen.test), seen.test.features.shape, seen.test.outputs.shape) == (0, (0, 4), (0, 3))
    forest = view(RandomForestClassifier(2).fit(X, THREE), (X, THREE), empty)
    assert (forest.test.features, forest.test.outputs.shape) == (None, (0, 3))


LR = LogisticRegression().fit(X, BINARY)
MULTILABEL = np.stack([BINARY == "yes", THREE == 10], axis=1).astype(int)


@pytest.mark.parametrize(
    ("model", "data", "options", "message"),
    [
        (LogisticRegression(), (X, BINARY), {}, "^model must be fitted; got LogisticRegression before fit. Call its fit first."),
        (make_pipeline(StandardScaler(), Ridge()), (X, REAL), {}, "model must be fitted; got Ridge before fit"),
        (LR, (X, THREE), {}, r"^train y must hold labels the model knows \('no', 'yes'\); got \d+ at index 0"),
        (LR, (X[:, :3], BINARY), {}, r"train X must have the 4 columns LogisticRegression was fitted on; got shape \(80, 3\)"),
        (LR, (X[:9], BINARY), {}, "X and y must have one row per record; got lengths X 9, y 80"),
        (LR, X, {}, r"train must be \(X, y\) for a scikit-learn estimator; got ndarray"),
        (LR, (X[:0], BINARY[:0]), {}, "train must hold at least one record; got none"),
        (LR, (X, BINARY.reshape(40, 2, 1)), {}, "train y must be 1- or 2-dimensional"),
        (LR, (X[:40], BINARY.reshape(40, 2)), {}, "train y must hold one label per record"),
        (LR, (X, BINARY), {"weight_decay": 0.1}, "weight_decay must be None for a scikit-learn estimator; got 0.1"),
        (LR, (X, BINARY), {"layer": "fc"}, "layer must be 'auto' for a scikit-learn estimator; got 'fc'"),
        (LR, (X, BINARY), {"device": "cpu"}, "device must be None for a scikit-learn estimator; got 'cpu'"),
        (LR, (X, BINARY), {"task": "regression"}, "task must be 'auto' or 'binary' for this LogisticRegression; got 'regression'"),
        (LR, (X, BINARY), {"task": "ranking"}, "task must be one of 'auto'"),
        (
            OutputCodeClassifier(SVC()).fit(X, BINARY),
            (X, BINARY),
            {},
            "must give class probabilities; got OutputCodeClassifier without predict_proba. Wrap it in CalibratedClassifierCV",
        ),
        (KMeans(2).fit(X), (X, BINARY), {}, "must be or end in a classifier or a regressor; got KMeans"),
        (make_pipeline(StandardScaler(), "passthrough"), (X, BINARY), {}, "end in a classifier or a regressor; got 'passthrough'"),
        (RandomForestClassifier(2).fit(X, MULTILABEL), (X, MULTILABEL), {}, "must predict one label per record; got RandomForest"),
        (
            RandomForestClassifier(2).fit(X, np.zeros(N)),
            (X, np.zeros(N)),
            {},
            "know at least two classes; got RandomForestClassifier fitted on one",
        ),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(model, data, options, message):
    with pytest.raises(InputError, match=message):
        view(model, data, None, **options)


def test_multilabel_perceptrons_are_refused():
    fitted = unconverged(mlp(MLPClassifier, max_iter=5), MULTILABEL)
    with pytest.raises(InputError, match="must predict one label per record; got MLPClassifier with several"):
        view(fitted, (X, MULTILABEL), None)


def test_regression_targets_must_be_finite_numbers():
    with pytest.raises(InputError, match="train y must be finite; got 1 NaN"):
        view(Ridge().fit(X, REAL), (X, np.where(np.arange(N) == 3, np.nan, REAL)), None)
    with pytest.raises(InputError, match="train y must be numeric"):
        view(Ridge().fit(X, REAL), (X, BINARY), None)


def test_what_scikit_learn_refuses_is_one_sentence():
    pipe = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, THREE)
    broken = X.copy()
    broken[3, 1] = np.nan
    for data in ((broken, THREE), (X[:, :3], THREE), (X.astype(str).astype(object), THREE)):
        bad = data if data[0].dtype != object else (np.full(X.shape, "many"), THREE)
        with pytest.raises(InputError, match=r"^model must accept train X; got ValueError") as caught:
            view(pipe, bad, (X, THREE))
        assert "\n" not in str(caught.value)
