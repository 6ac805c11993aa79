"""Every classifier and regressor of scikit-learn, fitted as a user would: an audit with a rank, or a sentence that says why not."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import all_estimators

import noshadow as ns
from noshadow.checks import InputError

IRIS, SPECIES = load_iris(return_X_y=True)
R, T = load_diabetes(return_X_y=True)
KINDS = [(kind, name, made) for kind in ("classifier", "regressor") for name, made in all_estimators(type_filter=kind)]
# Those that an audit refuses, and by which words.
REFUSED = {
    "ClassifierChain": "predict one label per record",
    "MultiOutputClassifier": "predict one label per record",
    "OutputCodeClassifier": "give class probabilities",
    "IsotonicRegression": "be finite",
    "RadiusNeighborsClassifier": "No neighbors found",
    "RadiusNeighborsRegressor": "be finite",
    "LabelPropagation": "be finite",
    "LabelSpreading": "be finite",
}
# Those whose records are ordered by their loss alone; for every other one something says what it would be without a record.
BY_LOSS = {
    "CalibratedClassifierCV",
    "DummyClassifier",
    "LabelPropagation",
    "LabelSpreading",
    "NearestCentroid",
    "NuSVC",
    "OneVsOneClassifier",
    "PassiveAggressiveClassifier",
    "Perceptron",
    "SGDClassifier",
    "SVC",
    "SelfTrainingClassifier",
    "StackingClassifier",
    "VotingClassifier",
    "CCA",
    "DummyRegressor",
    "Lars",
    "LarsCV",
    "LinearSVR",
    "MultiOutputRegressor",
    "MultiTaskElasticNet",
    "MultiTaskElasticNetCV",
    "MultiTaskLasso",
    "MultiTaskLassoCV",
    "NuSVR",
    "PLSCanonical",
    "PLSRegression",
    "PassiveAggressiveRegressor",
    "QuantileRegressor",
    "RANSACRegressor",
    "RegressorChain",
    "SVR",
    "StackingRegressor",
    "TheilSenRegressor",
    "TransformedTargetRegressor",
    "TweedieRegressor",
    "VotingRegressor",
}
WRAPPERS = {
    "ClassifierChain",
    "FixedThresholdClassifier",
    "MultiOutputClassifier",
    "MultiOutputRegressor",
    "OneVsOneClassifier",
    "OneVsRestClassifier",
    "OutputCodeClassifier",
    "RegressorChain",
    "SelfTrainingClassifier",
    "TunedThresholdClassifierCV",
}
QUICK = {"n_estimators": 10}


def made(kind, name, estimator):
    inner = LogisticRegression() if kind == "classifier" else Ridge()
    tree = DecisionTreeClassifier(max_depth=3) if kind == "classifier" else DecisionTreeRegressor(max_depth=3)
    if name.startswith(("Stacking", "Voting")):
        return estimator(estimators=[("linear", inner), ("tree", tree)])
    model = estimator(inner) if name in WRAPPERS else estimator()
    return model.set_params(**{option: value for option, value in QUICK.items() if option in model.get_params()})


def records(kind, name):
    """Columns with a spread of one, and targets as the estimator takes them."""
    x, y = (IRIS, SPECIES) if kind == "classifier" else (R[::4], T[::4])
    if name in ("FixedThresholdClassifier", "TunedThresholdClassifierCV"):
        x, y = x[:100], y[:100]
    x = (x - x.mean(0)) / x.std(0)
    if name in ("MultinomialNB", "ComplementNB"):
        x = x - x.min(0)
    if name == "CategoricalNB":
        x = np.clip(x + 1, 0, 2).astype(int)
    if name == "IsotonicRegression":
        x = x[:, :1]
    if name in ("GammaRegressor", "PoissonRegressor", "TweedieRegressor"):
        y = y / 100
    several = name in ("CCA", "ClassifierChain", "MultiOutputClassifier", "MultiOutputRegressor", "PLSCanonical", "RegressorChain")
    return x, np.column_stack([y, y[::-1]]) if several or name.startswith("MultiTask") else y


@pytest.mark.parametrize(("kind", "name", "estimator"), KINDS, ids=[name for _, name, _ in KINDS])
def test_every_estimator_gets_a_rank_or_a_sentence(kind, name, estimator):
    x, y = records(kind, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = made(kind, name, estimator).fit(x[::2], y[::2])
        try:
            audit = ns.audit(model, (x[::2], y[::2]), (x[1::2], y[1::2]), progress=False)
        except InputError as refused:
            assert name in REFUSED and REFUSED[name] in str(refused)
            return
    found = {finding.code for finding in audit.findings if finding.status == "found"}
    assert sorted(audit.records["rank"]) == list(range(1, len(audit.records) + 1)) and audit.model_risk is not None
    # No model is accused of other records, and the loss alone is never passed off as more than that.
    assert "NS044" not in found and (audit.ranked_by == "loss") == ("NS027" in found)
    assert (audit.ranked_by == "loss") == (name in BY_LOSS)
