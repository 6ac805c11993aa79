"""Out-of-bag answers of models made of bags, against scikit-learn's own and against forests without the record."""

from copy import copy

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import BaggingClassifier, BaggingRegressor, ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier

from noshadow.checks import NotApplicable
from noshadow.views import out_of_bag_outputs
from noshadow.views.reader import OtherRecords

X, Y = make_classification(120, 6, n_informative=4, n_classes=3, flip_y=0.1, random_state=0)
R, T = make_regression(120, 6, noise=3.0, random_state=0)
W = np.random.default_rng(0).uniform(0.2, 3.0, 120)


def probabilities(found):
    return np.where(np.exp(found.outputs) <= 1.001e-15, 0.0, np.exp(found.outputs))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_samples": 0.4},
        {"max_features": 0.5, "bootstrap_features": True},
        {"estimator": LogisticRegression()},
        {"estimator": RidgeClassifier()},
        {"estimator": SVC(), "max_samples": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("weight", [None, W], ids=["plain", "weighted"])
def test_bagging_is_read_as_scikit_learn_reads_it(options, weight):
    model = BaggingClassifier(n_estimators=60, oob_score=True, random_state=0, **options).fit(X, Y, sample_weight=weight)
    found = out_of_bag_outputs(model, (X, Y))
    assert (found.parts > 0).all()
    # Same parts, summed in another order.
    np.testing.assert_allclose(probabilities(found), model.oob_decision_function_, rtol=1e-10, atol=1e-12)


def test_bagged_regressions_are_read_as_scikit_learn_reads_them():
    for estimator in (None, SVR()):
        model = BaggingRegressor(estimator, n_estimators=60, oob_score=True, random_state=0, max_features=0.7).fit(R, T)
        np.testing.assert_allclose(out_of_bag_outputs(model, (R, T)).outputs.ravel(), model.oob_prediction_, rtol=1e-10)


def test_a_part_that_never_met_a_class_gives_it_nothing():
    rare = np.where(np.arange(120) < 2, 3, Y)
    model = BaggingClassifier(KNeighborsClassifier(3), n_estimators=40, max_samples=0.3, random_state=0).fit(X, rare)
    assert any(len(part.classes_) < 4 for part in model.estimators_)
    found = probabilities(out_of_bag_outputs(model, (X, rare)))
    for row in range(4):
        votes = []
        for part, bag in zip(model.estimators_, model.estimators_samples_, strict=True):
            if row not in bag:
                vote = np.zeros(4)
                vote[part.classes_.astype(int)] = part.predict_proba(X[[row]])[0]
                votes.append(vote)
        np.testing.assert_allclose(found[row], np.mean(votes, axis=0), atol=1e-12)


def test_drawing_without_replacement_leaves_records_out_too():
    model = BaggingClassifier(n_estimators=30, bootstrap=False, max_samples=0.6, random_state=0).fit(X, Y)
    found = out_of_bag_outputs(model, (X, Y))
    np.testing.assert_array_equal(found.parts, [sum(row not in bag for bag in model.estimators_samples_) for row in range(120)])
    with pytest.raises(NotApplicable, match="every part of this BaggingClassifier has seen every record"):
        out_of_bag_outputs(BaggingClassifier(bootstrap=False).fit(X, Y), (X, Y))


def test_weights_decide_who_is_in_a_bag():
    model = RandomForestClassifier(80, oob_score=True, random_state=0).fit(X, Y, sample_weight=W)
    found = out_of_bag_outputs(model, (X, Y))
    np.testing.assert_allclose(probabilities(found), model.oob_decision_function_, rtol=1e-10, atol=1e-12)
    if hasattr(model, "_sample_weight"):  # since scikit-learn 1.9
        assert np.corrcoef(found.parts, W)[0, 1] < -0.8


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(5),
        ExtraTreesClassifier(5, bootstrap=True),
        BaggingClassifier(),
        make_pipeline(StandardScaler(), BaggingClassifier()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_bags_of_other_records_are_found_out(model):
    fitted, turned = model.fit(X, Y), np.roll(np.arange(120), 7)
    out_of_bag_outputs(fitted, (X, Y))
    for table in (X[turned], X[turned] + 0.1):
        with pytest.raises(OtherRecords, match="other numbers of records than its bags"):
            out_of_bag_outputs(fitted, (table, Y[turned]))
    with pytest.raises(NotApplicable, match="fitted on other records than these 100"):
        out_of_bag_outputs(fitted, (X[:100], Y[:100]))


@pytest.mark.parametrize("options", [{}, {"max_samples": 0.4}, {"class_weight": "balanced_subsample"}], ids=repr)
@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
def test_an_out_of_bag_vote_is_that_of_a_forest_of_exactly_those_trees(kind, options):
    model = kind(30, bootstrap=True, random_state=0, **options).fit(X, Y)
    found = out_of_bag_outputs(model, (X, Y))
    for record in range(0, 120, 10):
        alone = copy(model)
        alone.estimators_ = [
            tree for tree, bag in zip(model.estimators_, model.estimators_samples_, strict=True) if record not in set(bag.tolist())
        ]
        assert len(alone.estimators_) == found.parts[record] > 0
        np.testing.assert_allclose(probabilities(found)[record], alone.predict_proba(X[[record]])[0], atol=1e-12)


def test_over_forests_the_out_of_bag_mean_is_that_of_forests_without_the_record():
    """E[out-of-bag probability] = E[probability of a tree grown on a bag of the other records].

    A bag without record i is a bag of n draws from the n − 1 others. Both means are over 400 trees' worth of bags per record; each has a
    standard error of at most 0.5/√(400/e), so that 12 records × 3 classes stay within 4.5 of their joint standard errors.
    """
    rows = np.arange(60)
    forests = [RandomForestClassifier(40, max_depth=4, random_state=seed).fit(X[rows], Y[rows]) for seed in range(10)]
    weighed = [(found.parts[:, None], probabilities(found)) for found in (out_of_bag_outputs(f, (X[rows], Y[rows])) for f in forests)]
    inside = sum(parts * values for parts, values in weighed) / sum(parts for parts, _ in weighed)
    for record in range(12):
        others = rows[rows != record]
        # n draws from n − 1 records: one more than scikit-learn's default for them.
        votes = []
        for seed in range(150):
            bag = np.random.default_rng([record, seed]).choice(others, len(rows))
            tree = DecisionTreeClassifier(max_features="sqrt", max_depth=4, random_state=seed).fit(X[bag], Y[bag])
            vote = np.zeros(3)
            vote[tree.classes_] = tree.predict_proba(X[[record]])[0]
            votes.append(vote)
        votes = np.array(votes)
        error = votes.std(0) * np.sqrt(1 / 150 + np.e / 400)
        assert (np.abs(inside[record] - votes.mean(0)) <= 4.5 * error + 1e-3).all()
