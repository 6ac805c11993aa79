"""One reader per model family, one list of them, and the door for families of others."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import Lasso, LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR, LinearSVC
from sklearn.tree import DecisionTreeRegressor
from torch import nn

import noshadow as ns
from noshadow import NotApplicable, views
from noshadow.checks import InputError
from noshadow.reference.pool import record_pool
from noshadow.reference.recorded import Reading, pool_outputs
from noshadow.views import EstimatorFamily, Reader, estimator_reader, reader_of, register_reader
from noshadow.views.readers import READERS

X, Y = make_classification(240, 6, n_informative=4, n_classes=3, flip_y=0.1, random_state=0)
R, T = make_regression(240, 6, noise=3.0, random_state=0)
A, B = slice(0, 120), slice(120, None)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (nn.Linear(2, 2), "nn.Module"),
        (LogisticRegression(), "logistic regression"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "logistic regression"),
        (GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2).fit(X, Y), "logistic regression"),
        (Ridge(), "ridge regression"),
        (RidgeClassifier(), "ridge classifier"),
        (SGDClassifier(), "classifier without probabilities"),
        (SGDClassifier(loss="log_loss"), "linear model by stochastic gradients"),
        (LinearSVC(), "linear support vector machine"),
        (MLPRegressor(), "multi-layer perceptron"),
        (RandomForestClassifier(), "forest"),
        (HistGradientBoostingClassifier(), "boosting"),
        (GaussianNB(), "Gaussian naive Bayes"),
        (MultinomialNB(), "naive Bayes of counts"),
        (DecisionTreeRegressor(), "tree"),
        (BaggingClassifier(), "bagging"),
        (KNeighborsClassifier(), "nearest neighbours"),
        (Lasso(), "lasso and elastic net"),
        (SVR(), "any estimator"),
        (make_pipeline(StandardScaler(), "passthrough"), "any estimator"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_every_model_has_the_reader_of_its_family(model, name):
    assert reader_of(model).name == name


@pytest.mark.parametrize("value", [None, 3, "model", np.zeros(3), nn.Linear, LogisticRegression, object()])
def test_readers_say_no_to_anything_else_and_do_not_fail(value):
    assert not any(reader.reads(value) for reader in READERS) and reader_of(value) is None


def test_names_are_unique_and_what_is_absent_has_a_reason():
    assert len({reader.name for reader in READERS}) == len(READERS)
    for reader in READERS:
        for name in ("view", "signals", "outputs", "history", "out_of_bag"):
            given = getattr(reader, name)
            assert callable(given) or (isinstance(given, NotApplicable) and str(given))


# Stages of a training


@pytest.mark.parametrize("make", [GradientBoostingClassifier, AdaBoostClassifier], ids=lambda make: make.__name__)
def test_the_stages_of_a_boosted_model_are_the_models_of_fewer_rounds(make):
    model = make(n_estimators=6, random_state=0).fit(X[A], Y[A])
    stages = views.stage_outputs(model, (X[B], Y[B]))
    assert isinstance(stages, Iterator)
    stages = list(stages)
    assert len(stages) == 6
    # A prefix of the rounds is the model that was trained with so many: the same trees, so the same numbers.
    for rounds in (1, 3, 6):
        fewer = make(n_estimators=rounds, random_state=0).fit(X[A], Y[A])
        np.testing.assert_allclose(stages[rounds - 1], views.collect_outputs(fewer, (X[B], Y[B]))[0].outputs, rtol=1e-12)


def test_stages_of_a_regression_within_a_pipeline_end_in_the_models_own_outputs():
    model = make_pipeline(StandardScaler(), GradientBoostingRegressor(n_estimators=4, random_state=0)).fit(R[A], T[A])
    stages = list(views.stage_outputs(model, (R[B], T[B])))
    np.testing.assert_array_equal(stages[-1], model.predict(R[B]))
    assert not np.array_equal(stages[0], stages[-1])


def test_families_without_stages_or_bags_say_so():
    for model in (LogisticRegression().fit(X, Y), nn.Linear(6, 3)):
        with pytest.raises(NotApplicable, match="keeps no stages of its training"):
            views.stage_outputs(model, (X, Y))
        with pytest.raises(NotApplicable, match="no part of the model is known to be trained without a record"):
            views.out_of_bag_outputs(model, (X, Y))
    with pytest.raises(
        InputError,
        match=r"stage_outputs: model must be an nn.Module, a fitted scikit-learn estimator or a function predict\(X\); got an object",
    ):
        views.stage_outputs("model", (X, Y))


# Out of the bag


@pytest.mark.parametrize("options", [{}, {"max_samples": 0.4}], ids=str)
def test_out_of_bag_outputs_are_those_that_scikit_learn_computes(options):
    model = RandomForestClassifier(60, oob_score=True, random_state=0, **options).fit(X[A], Y[A])
    found = views.out_of_bag_outputs(model, (X[A], Y[A]))
    seen = found.parts > 0
    assert seen.all()
    # Same trees, summed in another order.
    np.testing.assert_allclose(np.exp(found.outputs), np.maximum(model.oob_decision_function_, 1e-15), rtol=1e-12)
    forest = RandomForestRegressor(60, oob_score=True, random_state=0, **options).fit(R[A], T[A])
    np.testing.assert_allclose(views.out_of_bag_outputs(forest, (R[A], T[A])).outputs, forest.oob_prediction_, rtol=1e-12)


def test_an_out_of_bag_vote_is_that_of_a_forest_of_exactly_those_trees():
    model = RandomForestClassifier(10, random_state=0).fit(X[A], Y[A])
    found = views.out_of_bag_outputs(model, (X[A], Y[A]))
    for row in range(5):
        without = [tree for tree, bag in zip(model.estimators_, model.estimators_samples_, strict=True) if row not in bag]
        assert found.parts[row] == len(without)
        votes = np.mean([tree.predict_proba(X[row : row + 1])[0] for tree in without], axis=0)
        np.testing.assert_allclose(np.exp(found.outputs[row]), np.maximum(votes, 1e-15), rtol=1e-12)


def test_records_in_every_bag_and_forests_of_other_data_are_told():
    model = RandomForestClassifier(2, random_state=0).fit(X[A], Y[A])
    found = views.out_of_bag_outputs(model, (X[A], Y[A]))
    nowhere = found.parts == 0
    assert nowhere.any() and np.isnan(found.outputs[nowhere]).all() and np.isfinite(found.outputs[~nowhere]).all()
    for rows in (slice(0, 60), slice(0, 200)):
        with pytest.raises(NotApplicable, match="was fitted on other records than these"):
            views.out_of_bag_outputs(model, (X[rows], Y[rows]))
    with pytest.raises(NotApplicable, match="without bootstrap, so every tree has seen every record"):
        views.out_of_bag_outputs(ExtraTreesClassifier(3).fit(X[A], Y[A]), (X[A], Y[A]))


# A family of others


class Centroids:
    """A toy classifier of nobody's framework: softmax of minus the squared distance to each class's mean."""

    def __init__(self, x, y):
        self.labels = np.unique(y)
        self.means = np.stack([x[y == label].mean(0) for label in self.labels])

    def chances(self, x):
        logits = -((x[:, None, :] - self.means) ** 2).sum(2)
        return np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


CENTROIDS = estimator_reader(
    EstimatorFamily(
        name="centroids",
        described="a model of centroids",
        reads=lambda model: isinstance(model, Centroids),
        calibrated_as=lambda _: "centroids",
        task=lambda model: "classification",
        classes=lambda model: model.labels,
        outputs=lambda model, x, task: model.chances(x),
    )
)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr("noshadow.views.readers._registered", [])
    register_reader(CENTROIDS)


def toy():
    return Centroids(X[A], Y[A])


def test_a_registered_family_is_audited_traced_and_recorded_like_any_other(registered):
    model = toy()
    audit = ns.audit(model, (X[A], Y[A]), (X[B], Y[B]), progress=False)
    own = -np.log(model.chances(X)[np.arange(len(X)), Y])
    # log p and its softmax again: a loss near zero is a difference of numbers near one.
    close = {"rtol": 1e-9, "atol": 1e-14}
    np.testing.assert_allclose(audit.records["loss"], own[A], **close)
    np.testing.assert_allclose(audit.nonmember_losses, own[B], **close)
    assert audit.provenance["inputs"]["family"] == "centroids" and audit.model_risk.predicted_tpr is None
    assert audit.not_applicable["shift"].startswith(
        "not applicable: Centroids has no linear head, which scores of a last layer are made of"
    )
    traces = ns.LossTraces((X[A], Y[A]))
    traces.record(model)
    np.testing.assert_allclose(traces.array[:, 0], own[A], **close)
    # At the end of a pipeline, and as a reference model.
    signals = ns.collect_signals(make_pipeline(StandardScaler(with_mean=False, with_std=False).fit(X), model), (X[B], Y[B]))
    # Probabilities are raised to 1e-15 before their logarithm is taken, as those of any estimator.
    logs = np.log(np.maximum(model.chances(X), 1e-15))
    np.testing.assert_allclose(signals.outputs, logs[B], **close)
    pool = record_pool((X[A], Y[A]), None, pool="train", ids=None)
    outputs, task, _ = pool_outputs(model, pool, Reading())
    np.testing.assert_allclose(outputs, logs[A], **close)
    assert task == "classification"


def test_messages_name_the_registered_family(registered):
    with pytest.raises(InputError, match=r"audit: weight_decay must be None for a model of centroids; got 0.1"):
        ns.audit(toy(), (X, Y), None, weight_decay=0.1)
    with pytest.raises(InputError, match=r"audit: layers must be 'last' for a model that is no nn.Module"):
        ns.audit(toy(), (X, Y), None, layers="all")
    with pytest.raises(
        InputError,
        match=r"model must be an nn.Module, a fitted scikit-learn estimator or a function predict\(X\), or a model .* 'centroids'",
    ):
        ns.audit("model", (X, Y), None)


def test_without_registration_nobody_reads_it():
    with pytest.raises(
        InputError, match=r"be an nn.Module, a fitted scikit-learn estimator or a function predict\(X\); got an object of type Centroids"
    ):
        ns.audit(toy(), (X, Y), None)


def test_the_latest_reader_is_asked_first_and_names_are_taken_once(registered):
    special = replace(CENTROIDS, name="special centroids", family=lambda _: "special")
    register_reader(special)
    assert reader_of(toy()) is special and views.model_family(toy()) == "special"
    # A family of one's own may also stand before one of the house.
    register_reader(replace(CENTROIDS, name="my forests", reads=lambda model: isinstance(model, RandomForestClassifier)))
    assert reader_of(RandomForestClassifier()).name == "my forests"
    for name in ("centroids", "forest"):
        with pytest.raises(InputError, match=rf"register_reader: reader must have a name of its own; got '{name}' a second time"):
            register_reader(replace(CENTROIDS, name=name))
    with pytest.raises(InputError, match=r"register_reader: reader must be a Reader; got Centroids"):
        register_reader(toy())


def test_a_reader_of_its_own_form_needs_no_table(registered):
    """A Reader made by hand: nothing but the functions it names is asked for."""
    held = ns.Signals(None, np.log(np.full((4, 2), 0.5)), np.array([0, 1, 0, 1]))

    def read(model, data, *, settings):
        return held

    own = Reader(
        name="fixed",
        form="table",
        reads=lambda model: model == "fixed",
        family=lambda _: "fixed",
        view=NotApplicable("It knows one split."),
        signals=read,
        outputs=NotApplicable("It knows one split."),
        weights_sha256=lambda model, outputs: "0" * 64,
    )
    register_reader(own)
    assert ns.collect_signals("fixed", None) is held and views.weights_sha256("fixed", held.outputs) == "0" * 64
    with pytest.raises(InputError, match=r"give one row of outputs per record; got the fixed str. It knows one split."):
        ns.audit("fixed", None, None)


def test_batches_are_walked_in_one_place():
    """A loop of its own would miss what the walk checks; a look at the first records is none."""
    package = Path(views.__file__).parents[1]
    lines = {(path.name, line) for path in package.rglob("*.py") for line in path.read_text().splitlines() if "records.batches(" in line}
    walks = {name for name, line in lines if "next(iter(" not in line}
    # Beside the walk: what hands batches on, kept, seeded or transformed.
    assert walks == {"walk.py", "read_once.py", "network.py", "torch.py"}
