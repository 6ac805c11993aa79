"""An audit with a whole set of reference models: its own level measured, records ranked by exposure to all, no circular agreement."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import noshadow as ns
from noshadow._answer import best_known, worst_record
from noshadow._audit import with_references
from noshadow._known import circular_columns
from noshadow.metrics import spearman
from noshadow.reference import AttackOptions, load_references, train_references, with_ground_truth
from noshadow.report.score_agreement import score_agreement
from noshadow.results import load

RECORDS, MODELS = 300, 12
OPTIONS = {"options": AttackOptions(shokri=False), "progress": False}
RNG = np.random.default_rng(3)
X = RNG.normal(size=(2 * RECORDS, 12))
Y = (X[:, :3] + 1.5 * RNG.normal(size=(2 * RECORDS, 3))).argmax(1)
TRAIN, TEST = (X[:RECORDS], Y[:RECORDS]), (X[RECORDS:], Y[RECORDS:])


def linear(indices, seed):
    return LogisticRegression(C=1e3, max_iter=3000).fit(X[indices], Y[indices])


def forest(indices, seed):
    """A forest of which only the outputs are seen."""
    return partial(_probabilities, RandomForestClassifier(20, min_samples_leaf=2, random_state=seed).fit(X[indices], Y[indices]))


def _probabilities(fitted, x):
    return 0.98 * fitted.predict_proba(x) + 0.02 / 3


@pytest.fixture(scope="module", params=[linear, forest], ids=["linear", "forest"])
def case(request, tmp_path_factory):
    """Audit, references, the audit with its ground truth alone, and with everything."""
    fit = request.param
    model = fit(np.arange(RECORDS), 0)
    audit = ns.audit(model, TRAIN, TEST, progress=False)
    folder = tmp_path_factory.mktemp("sets") / "set"
    references = train_references(folder, fit, TRAIN, TEST, model=model, models=MODELS, workers=1, progress=False)
    return fit, audit, references, with_ground_truth(audit, references, **OPTIONS), with_references(audit, references, **OPTIONS)


def test_the_audits_own_level_is_measured_and_is_what_is_best_known(case):
    _, audit, _, plain, found = case
    own = audit.model_risk.fpr
    assert own == pytest.approx(1 / RECORDS)
    for scored in (plain, found):
        levels = {rate.fpr for row in scored.ground_truth.attacks for rate in row.rates}
        assert own in levels and {0.01, 0.1} <= levels
        known = best_known(scored)
        rates = [
            rate.tpr
            for row in scored.ground_truth.attacks
            for rate in row.rates
            if row.attacked == "target" and rate.fpr == own and row.attack in ("LiRA", "RMIA")
        ]
        assert (known.source, known.fpr, known.rate, known.trainings) == ("measured", own, max(rates), MODELS)


def test_levels_asked_for_come_with_the_audits_own_once(case):
    _, audit, references, *_ = case
    found = with_ground_truth(audit, references, fpr=[0.05, audit.model_risk.fpr * (1 + 1e-9)], **OPTIONS)
    assert len({rate.fpr for row in found.ground_truth.attacks for rate in row.rates}) == 2


def test_records_are_ranked_by_exposure_to_all_references(case):
    fit, audit, references, plain, found = case
    assert audit.ranked_by == ("shift" if fit is linear else "loss") == plain.ranked_by and found.ranked_by == "exposure_score"
    expected = ns.audit(fit(np.arange(RECORDS), 0), TRAIN, TEST, reference_models=references.folder, progress=False)
    # The same models, given when the audit was made: the same records' exposure. Probabilities of a
    # forest become logits by a logarithm, once from both splits and once from the pool.
    for name in ("exposure", "attack_rate", "attack_rate_low"):
        np.testing.assert_allclose(found.records[name], expected.records[name], rtol=1e-6, atol=1e-9)
    assert (found.records["rank"] == expected.records["rank"]).all()
    assert worst_record(found).source == "exposure"
    codes = {finding.code: finding.status for finding in found.findings}
    assert codes["NS027"] == "passed"


def test_exposure_is_not_compared_with_the_models_that_it_rests_on(case):
    _, _, references, plain, found = case
    assert circular_columns(plain) == () and {"exposure", "exposure_score"} <= set(circular_columns(found))
    again = with_references(found, references, **OPTIONS)
    truth_again = with_ground_truth(found, references, **OPTIONS)
    for scored in (found, again, truth_again):
        assert {row["score"] for row in scored.ground_truth.agreement} & {"exposure", "exposure_score"} == set()
        assert {row["score"] for row in scored.ground_truth.agreement} >= {"loss"}
        assert "agree with itself" in scored.ground_truth.not_applicable["agreement of exposure"]
    assert again.records.equals(found.records)
    names = ["loss", "exposure", "lira_success"]
    texts = [[cell["text"] for cell in row] for _, row in score_agreement(found, names)["rows"]]
    assert texts[1][2] == texts[2][1] == "none" and "none" not in (texts[0][1], texts[0][2])


def test_an_exposure_of_other_models_is_compared(case, tmp_path):
    fit, _, references, *_ = case
    model = fit(np.arange(RECORDS), 0)
    others = train_references(tmp_path / "others", fit, TRAIN, TEST, model=model, models=4, seed=9, workers=1, progress=False)
    audit = ns.audit(model, TRAIN, TEST, reference_models=others.folder, progress=False)
    rows = with_ground_truth(audit, references, **OPTIONS).ground_truth.agreement
    assert {"exposure", "exposure_score"} <= {row["score"] for row in rows}
    same = with_ground_truth(audit, others, **OPTIONS).ground_truth.agreement
    assert not {"exposure", "exposure_score"} & {row["score"] for row in same}


def test_the_folder_holds_all_of_it(case, tmp_path):
    *_, found = case
    read = load(found.save(tmp_path / "a"))
    assert best_known(read) == best_known(found) and circular_columns(read) == circular_columns(found)
    assert read.ranked_by == "exposure_score"
    entry = next(entry for entry in read.evidence if entry.source == "reference models")
    assert entry.stamp["models"] == MODELS and entry.stamp["seconds"] > 0


def test_exposure_follows_the_attack_that_it_is_not_compared_with(case):
    """What is not shown as agreement is there all the same: a sign that the weighing reads the right records."""
    *_, found = case
    assert spearman(found.records["exposure"].to_numpy(), found.records["lira_d"].to_numpy()) > 0.5


def test_a_set_without_the_target_leaves_the_ranking_as_it_was(case, tmp_path):
    _, audit, *_ = case
    blind = train_references(tmp_path / "blind", linear, TRAIN, TEST, models=MODELS, workers=1, progress=False)
    found = with_references(replace(audit, provenance={**audit.provenance, "hashes": {}}), load_references(blind.folder), **OPTIONS)
    assert found.ranked_by == audit.ranked_by and "scale is not known" in found.ground_truth.not_applicable["exposure by all references"]
    assert best_known(found).attacked == "reference models"


def test_references_read_probabilities_of_a_function_as_audits_do(case):
    fit, audit, references, *_ = case
    rows = np.flatnonzero(references.member)
    np.testing.assert_allclose(np.asarray(references.target.loss)[rows], audit.member_losses, rtol=1e-6, atol=1e-9)
    assert fit is linear or any("probabilities" in note for note in references.notes)
