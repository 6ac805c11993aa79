"""An audit that was given reference models predicts LiRA's rate with 64 of them from what it finds with four."""

import json
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge

import noshadow as ns
from noshadow._annex import annex_content
from noshadow.outcomes import Absent
from noshadow.reference import four_models, train_references
from noshadow.reference.four_models import rate_with_four
from noshadow.tail import model_risk
from noshadow.tail.prediction import shipped_calibration

N, FEATURES = 600, 60
RNG = np.random.default_rng(3)
X = RNG.normal(size=(2 * N, FEATURES))
Y = (X[:, :4].sum(1) + RNG.normal(size=2 * N) > 0).astype(int) + (RNG.random(2 * N) < 0.05)
TRAIN, TEST = (X[:N], Y[:N]), (X[N:], Y[N:])
HERE = {"workers": 1}
NAME = "predicted_tpr from reference models"


def fit(indices, seed):
    return LogisticRegression(C=100.0, tol=1e-8, max_iter=2000).fit(X[indices], Y[indices])


MODEL = fit(np.arange(N), 0)


def audited(models, *, model=MODEL, train_fn=fit, test=TEST, **options):
    how = {"reference_models": models} | ({} if train_fn is None else {"train_fn": train_fn, "training_options": HERE})
    return ns.audit(model, TRAIN, test, progress=False, **how, **options)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    work = tmp_path_factory.mktemp("four")
    return audited(4, work=work), work


def stamp(audit):
    return next(entry for entry in audit.evidence if entry.source == "few references").stamp


def drawn(models, n, t, *, queries=None, seed=0):
    """A set of models that says more of its own records, with two on each side of every record for each four."""
    rng = np.random.default_rng(seed)
    membership = np.argsort(rng.random((models, n + t)), axis=0) < models // 2
    shape = (models, n + t) if queries is None else (models, n + t, queries)
    statistic = rng.normal(size=shape) + 2.0 * (membership if queries is None else membership[..., None])
    own = rng.normal(size=shape[1:])
    own[:n] += 2.0
    return SimpleNamespace(membership=membership, statistic=statistic, target=SimpleNamespace(statistic=own))


def slow_rate(own, models, inside, n):
    """LiRA's rate by loops: Gaussians about each record's means with one spread a side, an error in a hundred allowed."""
    columns = range(len(own))
    sides = {
        side: [[row[i] for row, held in zip(models, inside, strict=True) if held[i] == side] for i in columns] for side in (True, False)
    }
    spreads = {
        side: np.sqrt(np.mean([(value - np.mean(rows)) ** 2 for rows in values for value in rows])) for side, values in sides.items()
    }

    def density(i, side):
        return -np.log(spreads[side]) - (own[i] - np.mean(sides[side][i])) ** 2 / (2 * spreads[side] ** 2)

    scores = [density(i, True) - density(i, False) for i in columns]
    allowed = int(0.01 * (len(own) - n))
    threshold = sorted(scores[n:], reverse=True)[allowed]
    return np.mean([score > threshold for score in scores[:n]])


def test_the_rate_is_that_of_lira_by_loops():
    found = drawn(4, 150, 230)
    told = rate_with_four(found, np.arange(150), np.arange(150, 380))
    assert (told["fpr"], told["models"], told["fours"]) == (0.01, 4, 1)
    assert 0.05 < told["tpr"] == pytest.approx(slow_rate(found.target.statistic, found.statistic, found.membership, 150), abs=1e-12)


@pytest.mark.parametrize(("models", "fours"), [(4, 1), (6, 1), (8, 2), (13, 3), (16, 4)])
def test_larger_sets_attack_in_disjoint_fours(monkeypatch, models, fours):
    monkeypatch.setattr(four_models, "BLOCK", 70)
    found = drawn(models, 120, 210)
    told = rate_with_four(found, np.arange(120), np.arange(120, 330))
    rates = []
    for four in range(fours):
        models_of = [
            [i for side in (True, False) for i in np.flatnonzero(column == side)[2 * four : 2 * four + 2]] for column in found.membership.T
        ]
        rows, places = np.array(models_of).T, np.arange(330)
        rates.append(slow_rate(found.target.statistic, found.statistic[rows, places], found.membership[rows, places], 120))
    assert told["fours"] == fours and told["tpr"] == pytest.approx(np.mean(rates), abs=1e-12)


def test_rows_are_taken_in_the_order_of_the_audit_and_the_first_query_is_the_record():
    found = drawn(4, 120, 210, queries=2)
    order = np.random.default_rng(1).permutation(120)
    told = rate_with_four(found, order, np.arange(120, 330))
    plain = SimpleNamespace(
        membership=found.membership, statistic=found.statistic[:, :, 0], target=SimpleNamespace(statistic=found.target.statistic[:, 0])
    )
    assert told == rate_with_four(plain, np.arange(120), np.arange(120, 330))
    swapped = rate_with_four(plain, np.arange(120, 330), np.arange(120))
    assert swapped["tpr"] < told["tpr"]


@pytest.mark.parametrize("models", [1, 2, 3])
def test_fewer_models_are_said_to_be_too_few(models):
    found = drawn(models, 120, 210)
    told = rate_with_four(found, np.arange(120), np.arange(120, 330))
    assert isinstance(told, Absent) and "needs 2 trained on each record" in told.reason and f"of these {models} " in told.reason


def test_a_set_that_is_not_on_halves_is_told_to_be():
    found = drawn(8, 120, 210)
    found.membership[:] = np.arange(8)[:, None] < 1
    told = rate_with_four(found, np.arange(120), np.arange(120, 330))
    assert told.reason.endswith("of these 8 some record has fewer. Four or more on halves, drawn together, have them")


def test_memory_is_that_of_a_few_models(monkeypatch):
    """Beside a set that is mapped from its files: three bytes a model, not the margins of all of them again."""
    monkeypatch.setattr(four_models, "BLOCK", 1000)
    found = drawn(64, 20_000, 20_000)
    tracemalloc.start()
    try:
        rate_with_four(found, np.arange(20_000), np.arange(20_000, 40_000))
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # 64 margins of 8 bytes are 512 a record; their order beside them would be as much again, twice.
    assert used < 64 * 40_000 * 8


def test_a_set_that_cannot_attack_says_why():
    found = drawn(4, 120, 210)
    rows, unseen = np.arange(120), np.arange(120, 330)
    assert "without the audited model" in rate_with_four(SimpleNamespace(**vars(found) | {"target": None}), rows, unseen).reason
    assert "nothing about this audit's test records" in rate_with_four(found, rows, unseen[:0]).reason
    assert "99 test records do not resolve" in rate_with_four(found, rows, unseen[:99]).reason
    assert rate_with_four(found, rows, unseen[:100])["fpr"] == 0.01
    still = SimpleNamespace(**vars(found) | {"statistic": np.zeros_like(found.statistic)})
    assert "standard deviation of 0" in rate_with_four(still, rows, unseen).reason


def test_an_audit_predicts_from_four_and_says_so(four, tmp_path):
    audit, _ = four
    risk, lira = audit.model_risk, stamp(audit)["lira"]
    assert (risk.predicted_from, risk.calibration, risk.in_calibration_domain) == ("four reference models", "references-3", True)
    asked = {"fpr": risk.fpr, "resamples": 100, "family": "linear"}
    expected = model_risk(audit.member_losses, audit.nonmember_losses, reference_tpr=lira["tpr"], **asked)
    assert risk.predicted_tpr == expected.predicted_tpr and risk.predicted_tpr_interval == expected.predicted_tpr_interval
    assert NAME not in audit.not_applicable
    # Without models it is another number, and nothing else of the risk changes.
    plain = ns.audit(MODEL, TRAIN, TEST, progress=False).model_risk
    assert plain.predicted_from == "losses and last layer" and plain.predicted_tpr != risk.predicted_tpr
    assert (plain.tnr_interval, plain.auc_interval, plain.ks_interval) == (risk.tnr_interval, risk.auc_interval, risk.ks_interval)
    # The records' chances are dealt out of the better prediction.
    assert audit.records["predicted_tpr"].mean() == pytest.approx(risk.predicted_tpr, rel=1e-3)


def test_page_json_terminal_and_annex_name_the_prediction(four, tmp_path):
    audit, _ = four
    audit.save(tmp_path / "audit")
    stored = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert stored["model_risk"]["predicted_from"] == "four reference models"
    assert stamp(ns.load(tmp_path / "audit"))["lira"] == stamp(audit)["lira"]
    assert "(LiRA, from four reference models): " in audit.summary()
    told = annex_content(audit)
    assert told["parameters"]["calibration"]["reads"] == "four reference models"
    assert any(entry["facts"].get("lira") == stamp(audit)["lira"] for entry in told["parameters"]["evidence"])
    assert "predicted from four reference models by a calibration" in str(told["attacks"])
    page = ns.write_report(audit, tmp_path / "report.html").read_text()
    assert "Predicted rate of LiRA from four reference models: " in page
    assert "the rate that LiRA with four reference models has at FPR 0.01" in page


def test_a_folder_of_such_a_set_serves_as_well(four, tmp_path):
    audit, work = four
    again = audited(work / "references-4", train_fn=None)
    assert again.model_risk.predicted_tpr == audit.model_risk.predicted_tpr and stamp(again)["lira"] == stamp(audit)["lira"]
    train_references(tmp_path / "bare", fit, TRAIN, TEST, models=4, progress=False, **HERE)
    bare = audited(tmp_path / "bare", train_fn=None)
    assert bare.model_risk.predicted_from == "losses and last layer" and "without the audited model" in bare.not_applicable[NAME]


def test_where_the_calibration_does_not_hold_the_audit_says_why():
    few = audited(3)
    assert few.model_risk.predicted_from == "losses and last layer" and "of these 3 some record has fewer" in few.not_applicable[NAME]
    other = audited(4, fpr=0.05)
    assert other.model_risk.predicted_tpr is None and other.model_risk.predicted_from is None
    assert "covers false-positive rates of 0.001 to 0.01" in other.not_applicable["predicted_tpr of the model"]


def test_forests_keep_their_own_calibration():
    def grow(indices, seed):
        return RandomForestClassifier(20, random_state=seed).fit(X[indices], Y[indices])

    audit = audited(4, model=grow(np.arange(N), 0), train_fn=grow)
    plain = ns.audit(grow(np.arange(N), 0), TRAIN, TEST, progress=False).model_risk
    assert audit.model_risk.predicted_from == "losses" and audit.model_risk.predicted_tpr == plain.predicted_tpr
    assert "this model is another (RandomForestClassifier)" in audit.not_applicable[NAME]
    assert "lira" in stamp(audit)


def test_regressions_and_soft_targets_are_not_predicted():
    def line(indices, seed):
        return Ridge(0.1).fit(X[indices], X[indices, 0] + Y[indices])

    values = X[:, 0] + Y
    how = {"reference_models": 4, "train_fn": line, "training_options": HERE, "progress": False}
    audit = ns.audit(line(np.arange(N), 0), (X[:N], values[:N]), (X[N:], values[N:]), **how)
    assert audit.model_risk.predicted_tpr is None and "was made from classifiers" in audit.not_applicable[NAME]


def test_the_straight_line_is_the_shipped_one(four):
    """The rate of an audit is the stored slope times LiRA's rate with four."""
    audit, _ = four
    risk = audit.model_risk
    cells = {cell.fpr: cell for cell in shipped_calibration("references").cells if cell.references == 64}
    share = np.log(risk.fpr / 1e-3) / np.log(10)
    expected = sum(weight * cells[fpr].coefficients[0] for fpr, weight in ((1e-3, 1 - share), (1e-2, share))) * stamp(audit)["lira"]["tpr"]
    assert risk.predicted_tpr == pytest.approx(expected, rel=1e-9)
