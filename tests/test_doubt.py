"""Audits of what is not the model's own data end in doubt, and those of honest data do not."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, LogisticRegressionCV, Ridge
from sklearn.preprocessing import scale

import noshadow as ns
from noshadow._answer import FEWEST_RECORDS, next_action, verdict
from noshadow._findings import finding_of, undermining_findings
from noshadow.tail import model_risk
from test_answer import predicted
from test_findings import made, of, with_inputs, with_scores, with_splits

RNG = np.random.default_rng(5)
X = RNG.normal(size=(600, 4))
CLASSES = (np.c_[X[:, 0], X[:, 1], X[:, 2] - X[:, 0]] + RNG.gumbel(size=(600, 3))).argmax(1)
VALUES = X.sum(1) + RNG.normal(size=600)
IN, OUT = slice(0, 300), slice(300, 600)
SHUFFLED = RNG.permutation(300)


def audited(model, train, test, **options):
    return ns.audit(model, train, test, progress=False, **options)


def found(audit):
    return {finding.code for finding in audit.findings if finding.status == "found"}


@pytest.fixture(scope="module")
def fitted():
    return LogisticRegression(C=10).fit(X[IN], CLASSES[IN])


def test_a_test_split_that_is_the_training_split_is_no_answer(fitted):
    members = (X[IN], CLASSES[IN])
    audit = audited(fitted, members, members)
    answer = verdict(audit)
    assert (answer.level, answer.title) == ("unknown", "Not known: the figures are in doubt")
    assert "300 of 300 test records are training records" in answer.sentence
    assert "test records that the model has not seen" in next_action(audit).sentence


def test_a_handful_of_duplicates_between_splits_is_said_and_undermines_nothing(fitted):
    test = (np.concatenate([X[:5], X[OUT]]), np.concatenate([CLASSES[:5], CLASSES[OUT]]))
    audit = audited(fitted, (X[IN], CLASSES[IN]), test)
    assert "NS007" in found(audit) and "NS009" not in found(audit) and verdict(audit).level == "none"


@pytest.mark.parametrize(
    ("shared", "copies", "status"),
    # Of 200 and 200 records: more than a half beyond those that look alike in any case.
    [(100, 0, "passed"), (101, 0, "found"), (200, 100, "passed"), (200, 99, "found")],
)
def test_members_among_the_strangers_are_too_many_beyond_a_half(shared, copies, status):
    alike = {"records": copies, "groups": 1, "largest": max(copies, 1), "first_ids": []}
    assert of(with_splits(shared_with_test=shared, copies=alike), "NS009").status == status


def test_splits_that_differ_in_nothing_but_coarse_values_are_no_overlap():
    coarse = (X[:, :2] > 0).astype(float)
    model = LogisticRegression().fit(coarse[IN], CLASSES[IN])
    audit = audited(model, (coarse[IN], CLASSES[IN]), (coarse[OUT], CLASSES[OUT]))
    assert of(audit, "NS007").figure == 300 and of(audit, "NS009").status == "passed" and verdict(audit).level == "none"


def test_larger_losses_of_members_are_no_answer(fitted):
    audit = audited(fitted, (X[IN], CLASSES[IN][SHUFFLED]), (X[OUT], CLASSES[OUT]))
    answer = verdict(audit)
    assert audit.model_risk.auc_interval[1] < 0.5 and {"NS005", "NS044"} <= found(audit)
    assert answer.level == "unknown" and "Members have larger losses" in answer.sentence
    assert "not exchanged" in next_action(audit).sentence


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (LogisticRegression(C=10), CLASSES),
        (LogisticRegression(solver="newton-cholesky"), CLASSES > 0),
        (LogisticRegression(class_weight="balanced", solver="newton-cg"), CLASSES),
        pytest.param(LogisticRegressionCV(cv=3), CLASSES, marks=pytest.mark.filterwarnings("ignore::FutureWarning")),
        (Ridge(alpha=3.0), VALUES),
        (LinearRegression(), VALUES),
    ],
    ids=["lbfgs", "newton-cholesky", "balanced", "cross-validated", "ridge", "least squares"],
)
def test_a_solved_fit_contradicts_records_that_are_not_its_own(model, y):
    """The losses alone need not differ where the splits are exchanged: the left-over gradient does."""
    model.fit(X[IN], y[IN])
    own, other = (X[IN], y[IN]), (X[OUT], y[OUT])
    honest, exchanged = audited(model, own, other), audited(model, other, own)
    assert of(honest, "NS044").status == "passed" and of(honest, "NS020").status == "passed"
    assert of(exchanged, "NS044").status == "found" and verdict(exchanged).level == "unknown"
    assert "the records, targets or weights" in of(exchanged, "NS044").sentence
    advice = of(exchanged, "NS020").next_step
    assert "weight decay" not in advice and "records, targets and weights" in advice


@pytest.mark.parametrize("penalty", [1.0, 1e3, np.inf])
def test_fits_whose_gradients_are_all_small_are_left_alone(penalty):
    """A separated fit has next to no gradient of any record: what its solver leaves is many times one."""
    x = scale(np.concatenate([X[:, :2], RNG.normal(size=(600, 200))], axis=1))
    y = (X[:, 0] > 0).astype(int)
    model = LogisticRegression(C=penalty, max_iter=1000).fit(x[IN], y[IN])
    audit = audited(model, (x[IN], y[IN]), (x[OUT], y[OUT]))
    assert of(audit, "NS044").status == "passed"
    exchanged = audited(model, (x[OUT], y[OUT]), (x[IN], y[IN]))
    assert of(exchanged, "NS044").status == "found"


def test_weights_of_the_fit_are_no_doubt_where_they_are_given():
    weights = RNG.uniform(0.1, 5, 300)
    model = LogisticRegression().fit(X[IN], CLASSES[IN], sample_weight=weights)
    splits = (X[IN], CLASSES[IN]), (X[OUT], CLASSES[OUT])
    assert of(audited(model, *splits, sample_weight=weights), "NS044").status == "passed"


def test_a_solver_that_gave_up_says_nothing_of_its_records():
    with pytest.warns(match="failed to converge"):
        model = LogisticRegression(max_iter=2).fit(X[IN], CLASSES[IN])
    audit = audited(model, (X[IN], CLASSES[IN][SHUFFLED]), (X[OUT], CLASSES[OUT]))
    assert of(audit, "NS044").status == "not applicable"
    advice = of(audit, "NS020").next_step
    assert "max_iter" in advice and "weight decay" not in advice


def test_the_advice_on_a_left_over_gradient_follows_where_the_penalty_comes_from():
    assert "weight decay" in of(with_scores(stationarity=20.0), "NS020").next_step
    assert "max_iter" in of(with_scores(stationarity=20.0, damping_kind="estimator"), "NS020").next_step
    assert of(with_inputs(solver_leaves=1e-4), "NS044").status == "passed"


# Too few records, too coarse a level


def with_splits_of(members, nonmembers, *, fpr="auto", apart=0.0):
    """An audit of so many records of losses that say nothing, or that tell the splits apart."""
    rng = np.random.default_rng(1)
    inside, outside = rng.exponential(0.3, members), rng.exponential(0.3, nonmembers) + apart
    risk = model_risk(inside, outside, fpr=fpr, resamples=100)
    return made(members, members=inside, nonmembers=outside, model_risk=risk)


def test_as_few_records_as_may_hide_a_tenth_are_no_answer():
    assert 0.9**FEWEST_RECORDS < 0.05 <= 0.9 ** (FEWEST_RECORDS - 1)
    assert verdict(with_splits_of(200, FEWEST_RECORDS)).title == "No sign of leakage"
    for members, nonmembers, split in ((200, FEWEST_RECORDS - 1, "test"), (FEWEST_RECORDS - 1, 200, "training")):
        audit = with_splits_of(members, nonmembers)
        answer = verdict(audit)
        assert (answer.level, answer.title) == ("unknown", "Not known: too few records")
        assert f"among {FEWEST_RECORDS - 1} {split} records" in answer.sentence and "5 %" in answer.sentence
        assert f"at least {FEWEST_RECORDS} records of each split" in next_action(audit).sentence


def test_three_records_that_show_nothing_are_no_sign_and_leakage_that_shows_is_one(fitted):
    audit = audited(fitted, (X[IN], CLASSES[IN]), (X[300:303], CLASSES[300:303]))
    assert verdict(audit).title == "Not known: too few records" and "with a chance of 73 %" in verdict(audit).sentence
    assert verdict(with_splits_of(20, 20, apart=5.0)).level in ("some", "strong")


@pytest.mark.parametrize(("fpr", "title"), [(0.099, "No sign of leakage"), (0.1, "Not known: the level is too coarse")])
def test_a_level_at_which_nothing_is_strong_is_no_answer(fpr, title):
    audit = with_splits_of(400, 400, fpr=fpr)
    assert verdict(audit).title == title and (verdict(audit).remedy == "") == (fpr < 0.1)


# The gate


def test_the_gate_passes_no_figure_in_doubt(run, tmp_path, fitted):
    members = (X[IN], CLASSES[IN])
    audited(fitted, members, members).save(tmp_path / "same")
    boosted = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(*members)
    audited(boosted, (X[OUT], CLASSES[OUT]), members).save(tmp_path / "exchanged")
    audited(fitted, members, (X[300:303], CLASSES[300:303])).save(tmp_path / "few")
    for folder, why, how in (
        ("same", "300 of 300 test records are training records", "the model has not seen"),
        ("exchanged", "figures are in doubt", "."),
        ("few", "too few records", "at least 29 records"),
    ):
        code, out, err = run("gate", tmp_path / folder, "--max-tpr", 1, "--max-tnr", 1, "--max-auc", 1)
        assert (code, out) == (2, "") and why in err and how in err
    assert run("gate", tmp_path / "same", "--max-tpr", 1, "--json")[0] == 2


def test_the_gate_still_reads_an_uncertain_answer(run, tmp_path):
    """An interval that is too wide for a verdict is a figure all the same: the limit is on the figure."""
    audit = predicted(0.02, (0.0, 0.3))
    assert verdict(audit).level == "unknown"
    audit.save(tmp_path / "a")
    assert run("gate", tmp_path / "a", "--max-tpr", 0.05)[0] == 0


@pytest.mark.parametrize(("high", "doubtful"), [(0.449, True), (0.451, False), (0.499, False)])
def test_losses_that_are_larger_by_what_may_be_chance_cast_no_doubt(high, doubtful):
    audit = made(300)
    risk = replace(audit.model_risk, auc=high - 0.05, auc_interval=(high - 0.1, high))
    audit = replace(audit, model_risk=risk)
    assert finding_of(audit, "NS005").status == "found"
    assert (verdict(audit).title == "Not known: the figures are in doubt") == doubtful
    assert ("NS005" in {finding.code for finding in undermining_findings(audit) if finding.status == "found"}) == doubtful
