"""Audits of models that say what they would be without each record, and of models that say nothing but predictions."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import noshadow as ns
from noshadow.checks import InputError
from noshadow.views import left_out_outputs, out_of_bag_outputs

X, Y = load_breast_cancer(return_X_y=True)
X = X[:300, :8]
TRAIN, TEST = (X[::2], Y[:300:2]), (X[1::2], Y[1:300:2])
R, T = load_diabetes(return_X_y=True)
PRICES = (R[:200], T[:200]), (R[200:], T[200:])
VOTERS = [("tree", DecisionTreeClassifier(max_depth=2)), ("bayes", GaussianNB())]


def audited(model, train=TRAIN, test=TEST, **options):
    return ns.audit(clone(model).fit(*train), train, test, progress=False, **options)


def finding(audit, code):
    return next(found for found in audit.findings if found.code == code)


@pytest.mark.parametrize(
    ("model", "ranked_by"),
    [
        (RandomForestClassifier(20, random_state=0), "loo"),
        (make_pipeline(StandardScaler(), ExtraTreesClassifier(20, random_state=0)), "loo"),
        (BaggingClassifier(random_state=0), "loo"),
        (BaggingClassifier(LogisticRegression(max_iter=1000), random_state=0), "out_of_bag_loss"),
        (DecisionTreeClassifier(random_state=0), "shift"),
        (KNeighborsClassifier(3), "shift"),
        (GaussianNB(), "shift"),
        (TunedThresholdClassifierCV(RandomForestClassifier(20, random_state=0), cv=2), "loo"),
        (make_pipeline(StandardScaler(), FixedThresholdClassifier(LogisticRegression())), "shift"),
        (LinearDiscriminantAnalysis(), "shift"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "shift"),
        (VotingClassifier(VOTERS, voting="soft"), "loss"),
        (StackingClassifier(VOTERS, LogisticRegression(), cv=2), "loss"),
        (CalibratedClassifierCV(LinearSVC(), cv=2), "loss"),
        (make_pipeline(StandardScaler(), CalibratedClassifierCV(SVC(), cv=2, ensemble=False)), "loss"),
        (GaussianProcessClassifier(), "shift"),
        (make_pipeline(StandardScaler(), LinearSVC(random_state=0)), "shift"),
        (make_pipeline(StandardScaler(), LinearSVC(loss="hinge", random_state=0)), "loss"),
        (make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", random_state=0)), "shift"),
        (make_pipeline(StandardScaler(), SGDClassifier(loss="modified_huber", random_state=0)), "loss"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_every_audit_of_a_classifier_has_a_rank(model, ranked_by, tmp_path):
    audit = audited(model)
    assert audit.ranked_by == ranked_by
    table = audit.records.sort_values("rank")
    assert table["rank"].tolist() == list(range(1, 151)) and table[ranked_by].is_monotonic_decreasing
    assert (finding(audit, "NS027").status == "found") == (ranked_by == "loss") and "rank" not in audit.not_applicable
    again = ns.load(audit.save(tmp_path / "audit"))
    assert again.ranked_by == ranked_by and ns.findings(again) == audit.findings


@pytest.mark.parametrize(
    ("model", "ranked_by"),
    [
        (RandomForestRegressor(20, random_state=0), "shift"),
        (BaggingRegressor(SVR(), random_state=0), "out_of_bag_loss"),
        (BaggingRegressor(random_state=0), "shift"),
        (KernelRidge(alpha=0.1, kernel="rbf"), "shift"),
        (Ridge(), "shift"),
        (SVR(), "loss"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_every_audit_of_a_regression_has_a_rank(model, ranked_by):
    audit = audited(model, *PRICES)
    assert audit.ranked_by == ranked_by and sorted(audit.records["rank"]) == list(range(1, 201))


def test_losses_of_forests_are_votes_brought_to_all_trees():
    model = RandomForestClassifier(60, random_state=0).fit(*TRAIN)
    audit = ns.audit(model, TRAIN, TEST, progress=False)
    for column, outputs in (
        ("out_of_bag_loss", out_of_bag_outputs(model, TRAIN).outputs),
        ("left_out_loss", left_out_outputs(model, TRAIN).outputs),
    ):
        shares = np.exp(outputs)[np.arange(150), TRAIN[1]]
        expected = -np.log((60 * shares + 0.5) / 61)
        np.testing.assert_allclose(audit.records[column], expected, rtol=1e-10)
    prices = RandomForestRegressor(40, random_state=0).fit(*PRICES[0])
    found = ns.audit(prices, *PRICES, progress=False).records
    out = out_of_bag_outputs(prices, PRICES[0]).outputs
    np.testing.assert_allclose(found["out_of_bag_loss"], (PRICES[0][1] - out) ** 2, rtol=1e-10)


def test_loo_and_shift_are_the_rise_of_the_loss_and_the_fall_of_the_margin():
    model = GaussianNB().fit(*TRAIN)
    audit = ns.audit(model, TRAIN, TEST, progress=False)
    own, left = np.maximum(model.predict_proba(TRAIN[0]), 1e-15), np.exp(left_out_outputs(model, TRAIN).outputs)
    row, label = np.arange(150), TRAIN[1]
    margins = [np.log(p[row, label]) - np.log(p[row, 1 - label]) for p in (own, left)]
    # Probabilities near one carry 1e-16 of rounding, which a margin of 34 nats shows.
    np.testing.assert_allclose(audit.records["shift"], margins[0] - margins[1], atol=1e-6)
    kernel = KernelRidge(alpha=0.1, kernel="rbf").fit(*PRICES[0])
    found, without = ns.audit(kernel, *PRICES, progress=False).records, left_out_outputs(kernel, PRICES[0]).outputs.ravel()
    before, after = (np.abs(PRICES[0][1] - values) for values in (kernel.predict(PRICES[0][0]), without))
    np.testing.assert_allclose(found["shift"], after - before, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found["loo"], after**2 - before**2, rtol=1e-8, atol=1e-6)


def test_a_record_that_nothing_else_answers_for_is_infinitely_exposed():
    far = np.concatenate([TRAIN[0], TRAIN[0][:1] + 1e6])
    labels = np.append(TRAIN[1], 0)
    audit = ns.audit(RadiusNeighborsClassifier(2000.0).fit(far, labels), (far, labels), None, progress=False)
    assert audit.records["shift"].tolist()[150] == np.inf and audit.records["rank"].tolist()[150] == 1
    assert finding(audit, "NS014").status == "found"


def test_records_in_every_bag_and_few_trees_are_told():
    audit = audited(RandomForestClassifier(4, random_state=0))
    (stamp,) = (entry.stamp for entry in audit.evidence if entry.source == "out of bag")
    assert stamp["in_every_bag"] > 0 and stamp["parts"] == 4
    notes = " ".join(audit.notes)
    assert f"{stamp['in_every_bag']} of 150 records are in every bag" in notes and "out-of-bag losses are coarse" in notes
    assert audit.records["out_of_bag_loss"].notna().all()
    many = " ".join(audited(RandomForestClassifier(100, random_state=0)).notes)
    assert "in every bag" not in many and "coarse" not in many


@pytest.mark.parametrize(
    "model", [RandomForestClassifier(10, random_state=0), BaggingClassifier(random_state=0), KNeighborsClassifier(3)], ids=repr
)
def test_a_model_of_other_records_is_found_out(model):
    audit = ns.audit(clone(model).fit(*TEST), TRAIN, TEST, progress=False)
    assert finding(audit, "NS044").status == "found" and audit.ranked_by == "loss"
    assert not {"loo", "shift", "out_of_bag_loss", "left_out_loss"} & set(audit.records)
    assert finding(audited(model), "NS044").status in ("passed", "not applicable")


def test_a_forest_of_more_records_than_were_given_is_found_out():
    for model in (RandomForestClassifier(10, random_state=0), BaggingClassifier(random_state=0)):
        fewer = tuple(part[:100] for part in TRAIN)
        audit = ns.audit(clone(model).fit(*TRAIN), fewer, TEST, progress=False)
        assert finding(audit, "NS044").status == "found" and "fitted on other records than these 100" in finding(audit, "NS044").sentence


@pytest.mark.parametrize("model", [ExtraTreesClassifier(5, random_state=0), DecisionTreeClassifier(random_state=0)], ids=repr)
def test_a_fully_grown_model_of_more_records_than_were_given_is_found_out(model):
    """It is right about every one of them, as about all the others: the numbers of records in its leaves give it away."""
    fewer = tuple(part[:100] for part in TRAIN)
    found = finding(ns.audit(clone(model).fit(*TRAIN), fewer, TEST, progress=False), "NS044")
    assert found.status == "found" and "other numbers of records than these 100 put into them" in found.sentence
    nobody = np.where(np.arange(150) < 100, 1.0, 0.0)
    weighted = ns.audit(clone(model).fit(*TRAIN, sample_weight=nobody), TRAIN, TEST, sample_weight=nobody, progress=False)
    assert finding(weighted, "NS044").status == "passed"


@pytest.mark.parametrize("model", [RandomForestRegressor(20, random_state=0), BaggingRegressor(SVR(), random_state=0)], ids=repr)
def test_bagged_regressions_are_audited_without_test_records(model):
    audit = audited(model, PRICES[0], None)
    assert sorted(audit.records["rank"]) == list(range(1, 201)) and audit.records["out_of_bag_loss"].notna().all()


def test_forests_that_lost_or_gained_trees_are_read_as_they_are():
    """Bags of the trees that are left are still those of their seeds; trees of other records contradict."""
    forest = RandomForestClassifier(20, random_state=0).fit(*TRAIN)
    forest.estimators_ = forest.estimators_[:12]
    pruned = ns.audit(forest, TRAIN, TEST, progress=False)
    assert pruned.ranked_by == "loo" and pruned.provenance["inputs"]["leaves"]["trees"] == 12
    grown = RandomForestClassifier(10, random_state=0, warm_start=True).fit(*TEST)
    grown.set_params(n_estimators=20).fit(*TRAIN)
    assert finding(ns.audit(grown, TRAIN, TEST, progress=False), "NS044").status == "found"


def test_missing_values_go_where_the_trees_send_them():
    holes = TRAIN[0].copy()
    holes[::7, 0] = np.nan
    audit = ns.audit(RandomForestClassifier(20, random_state=0).fit(holes, TRAIN[1]), (holes, TRAIN[1]), TEST, progress=False)
    assert audit.ranked_by == "loo" and finding(audit, "NS044").status == "passed"


def test_one_class_is_refused():
    one = np.zeros(150, dtype=int)
    with pytest.raises(InputError, match="model must know at least two classes; got RandomForestClassifier fitted on one"):
        ns.audit(RandomForestClassifier(5).fit(TRAIN[0], one), (TRAIN[0], one), TEST, progress=False)


def test_weights_of_the_fit_reach_the_formula():
    weight = np.linspace(0.5, 2.0, 150)
    model = GaussianNB().fit(*TRAIN, sample_weight=weight)
    with_weights = ns.audit(model, TRAIN, TEST, sample_weight=weight, progress=False)
    assert with_weights.ranked_by == "shift"
    assert finding(ns.audit(model, TRAIN, TEST, progress=False), "NS044").status == "found"


def test_records_alone_in_their_leaves_are_counted():
    tree = DecisionTreeClassifier(random_state=0).fit(*TRAIN)
    leaves = tree.apply(TRAIN[0])
    alone = int((np.bincount(leaves)[leaves] == 1).sum())
    found = finding(ns.audit(tree, TRAIN, TEST, progress=False), "NS016")
    assert (found.status, found.figure) == ("found", pytest.approx(alone / 150))
    assert finding(audited(DecisionTreeClassifier(min_samples_leaf=5)), "NS016").status == "passed"
    assert finding(audited(RandomForestClassifier(10, min_samples_leaf=5)), "NS016").status == "passed"


def test_bags_are_weighed_with_other_sources():
    model = RandomForestClassifier(50, random_state=0).fit(*TRAIN)
    folds = out_of_bag_outputs(RandomForestClassifier(50, random_state=1).fit(*TRAIN), TRAIN).outputs
    audit = ns.audit(model, TRAIN, TEST, out_of_fold=np.exp(folds) / np.exp(folds).sum(1, keepdims=True), progress=False)
    # What won on the calibration forests ranks; what was weighed stands beside it, and the reader is told.
    assert audit.ranked_by == "loo" and {"exposure_score", "out_of_bag_loss", "left_out_loss"} <= set(audit.records)
    order = np.argsort(-audit.records["loo"].to_numpy(), kind="stable")
    np.testing.assert_array_equal(audit.records["rank"].to_numpy()[order], np.arange(1, len(order) + 1))
    assert "Evidence: the records stay ranked by loo, which found more of the exposed on the calibration forests" in audit.summary()
    stamp = next(entry.stamp for entry in audit.evidence if entry.source == "exposure")
    assert list(stamp["trainings"]) == ["out-of-fold outputs", "out of bag", "left out"] and "out of bag" in stamp["lines"]


# Plain functions


def test_a_plain_function_is_audited_as_its_model_is():
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(*TRAIN)
    whole = ns.audit(model, TRAIN, TEST, progress=False)
    for function, scale in (
        (model.predict_proba, "auto"),
        (lambda x: model.predict_proba(x)[:, 1], "probabilities"),
        (model.decision_function, "logits"),
    ):
        audit = ns.audit(function, TRAIN, TEST, output_scale=scale, task="auto" if scale == "auto" else "binary", progress=False)
        np.testing.assert_allclose(audit.member_losses, whole.member_losses, rtol=1e-9, atol=1e-12)
        assert audit.model_risk.auc == pytest.approx(whole.model_risk.auc, abs=1e-12)
        assert audit.ranked_by == "loss" and audit.model_risk.predicted_tpr is None and "function" in audit.model_risk.reason
        assert finding(audit, "NS027").status == "found" and finding(audit, "NS040").status == "passed"


def test_a_plain_regression():
    model = Ridge().fit(*PRICES[0])
    audit = ns.audit(model.predict, *PRICES, progress=False)
    np.testing.assert_allclose(audit.member_losses, (PRICES[0][1] - model.predict(PRICES[0][0])) ** 2)
    assert audit.task == "regression" and audit.ranked_by == "loss"


def test_a_function_that_answers_at_random_is_found_out():
    rng = np.random.default_rng(0)
    audit = ns.audit(lambda x: rng.normal(size=(len(x), 2)), TRAIN, TEST, progress=False)
    assert finding(audit, "NS040").status == "found"


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda x: np.zeros(3), {}, r"audit: model\(train X\) must have one row for each of 150 records; got shape \(3,\)"),
        (lambda x: "no", {}, r"audit: model\(train X\) must be"),
        (lambda x: 1 / 0, {}, "model must accept train X"),
        (lambda x: np.zeros((len(x), 2)), {"weight_decay": 0.1}, "weight_decay must be None for a plain function"),
        (lambda x: np.zeros((len(x), 2)), {"layer": "head"}, "layer must be 'auto' for a plain function"),
        (LogisticRegression, {}, "the class LogisticRegression"),
    ],
    ids=["rows", "text", "failing", "decay", "layer", "class"],
)
def test_what_a_plain_function_may_not_do(function, options, message):
    with pytest.raises(InputError, match=message):
        ns.audit(function, TRAIN, TEST, progress=False, **options)
