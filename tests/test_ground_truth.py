"""Ground truth on an audit: the attacks' figures are what the attack functions give, columns land on the right records."""

import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm, spearmanr
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

import noshadow as ns
from noshadow._audit import reference_columns
from noshadow.checks import InputError
from noshadow.columns import column, named
from noshadow.losses import record_margins
from noshadow.reference import load_references, rmia_probabilities, train_references
from noshadow.reference.attack_list import ATTACKS, EVERY_MODEL, AttackOptions, Scene
from noshadow.reference.ground_truth import SOURCE, audited_rows, ground_truth, with_ground_truth
from noshadow.reference.rmia_probabilities import probabilities_of, reference_probabilities
from noshadow.reference.truth import record_truth
from noshadow.results import GroundTruth
from noshadow.storage import safetensors_files
from noshadow.storage.safetensors_files import write_safetensors

MODELS, RECORDS = 12, 240


def digit_data():
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(3).permutation(len(x))[:RECORDS]
    return x[order] / 16, y[order]


def classifier(x, y, indices, seed):
    return LogisticRegression(C=10.0, max_iter=2000).fit(x[indices], y[indices])


def regressor(x, y, indices, seed):
    return Ridge(alpha=1e-3).fit(x[indices], y[indices])


def experiment(folder, kind, **options):
    if kind == "classification":
        x, y = digit_data()
        fit = partial(classifier, x, y)
    else:
        x, y = load_diabetes(return_X_y=True)
        x, y = x[:RECORDS], y[:RECORDS] / 100
        fit = partial(regressor, x, y)
    half = RECORDS // 2
    train, test = (x[:half], y[:half]), (x[half:], y[half:])
    model = fit(np.arange(half), 0)
    target = ns.Target(model, train, test)

    def extra(fitted, indices, seed):
        return reference_columns(target, fitted, indices)

    references = train_references(
        folder, fit, train, test, model=model, models=MODELS, workers=1, extra=extra, extra_models=3, progress=False, **options
    )
    return ns.audit(model, train, test, progress=False), references


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return experiment(tmp_path_factory.mktemp("digits") / "set", "classification")


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory):
    return experiment(tmp_path_factory.mktemp("diabetes") / "set", "regression", keep_outputs=False)


@pytest.fixture(scope="module")
def scored(digits):
    return with_ground_truth(*digits, progress=False)


def test_columns_are_the_attacks_on_the_audits_own_records(digits, scored):
    audit, references = digits
    rows, notes = audited_rows(audit, references)
    assert notes == ()
    truth = ns.attacks.attack_success(references.statistic, references.membership, attack="lira")
    np.testing.assert_array_equal(scored.records["lira_success"], truth.success[rows])
    np.testing.assert_array_equal(scored.records["lira_d"], truth.d_prime[rows])
    chances = expit(np.array(references.statistic))
    rmia = ns.attacks.attack_success(chances, references.membership, attack="rmia")
    np.testing.assert_array_equal(scored.records["rmia_success"], rmia.success[rows])
    assert list(scored.records["id"]) == list(audit.records["id"])
    inside, outside = references.membership, ~references.membership
    gap = (references.correct * inside).sum(0) / inside.sum(0) - (references.correct * outside).sum(0) / outside.sum(0)
    np.testing.assert_allclose(scored.records["memorization"], gap[rows], atol=1e-12)  # two orders of one sum
    np.testing.assert_array_equal(scored.records["lira_tpr"], truth.tpr[rows])
    without = np.nanmean(np.where(outside, references.loss, np.nan), axis=0)
    np.testing.assert_allclose(scored.records["out_loss"], without[rows], rtol=1e-12)


def test_records_in_another_order_find_their_own_rows(digits, scored):
    audit, references = digits
    shuffled = replace(audit, records=audit.records.sample(frac=1, random_state=1))
    again = with_ground_truth(shuffled, references, options=AttackOptions(shokri=False), progress=False).records.set_index("id")
    expected = scored.records.set_index("id")["lira_d"]
    np.testing.assert_array_equal(again["lira_d"], expected.loc[again.index])


def test_attack_on_the_target_is_the_roc_of_its_scores(digits, scored):
    _, references = digits
    found = {row.attack: row for row in scored.ground_truth.attacks if row.attacked == "target"}
    assert set(found) == {"LiRA", "RMIA", "Shokri", "LOSS"}
    scores = ns.attacks.lira_scores(references.target.statistic, references.statistic, references.membership, variance="global")
    assert found["LiRA"].auc == pytest.approx(roc_auc_score(references.member, scores), abs=1e-12)
    assert found["LOSS"].auc == pytest.approx(roc_auc_score(references.member, -references.target.loss), abs=1e-12)
    for row in scored.ground_truth.attacks:
        assert row.auc_interval[0] <= row.auc <= row.auc_interval[1]
        assert all(rate.low <= rate.tpr <= rate.high for rate in row.rates)
    assert found["LiRA"].auc > 0.6  # an unpenalised classifier on 120 records overfits: no attack sees nothing


def test_agreement_rows_are_rank_correlations_on_those_records(scored):
    rows = scored.ground_truth.agreement
    (mine,) = [r for r in rows if (r["attack"], r["score"], r["metric"], r["targets"]) == ("lira_d", "shift", "spearman", 1)]
    assert mine["value"] == pytest.approx(spearmanr(scored.records["lira_d"], scored.records["shift"]).statistic, abs=1e-12)
    over_models = {r["targets"] for r in rows}
    assert over_models == {1, 3}
    assert {r["score"] for r in scored.ground_truth.ceiling} == {"noise ceiling"}


def test_audited_reference_models_carry_the_columns_of_their_own_audit(digits):
    _, references = digits
    x, y = digit_data()
    inside = references.plan.members(1)
    again = ns.audit(classifier(x, y, inside, 0), (x[inside], y[inside]), None, progress=False)
    np.testing.assert_allclose(references.extra(1)["shift"], again.records["shift"], rtol=1e-6)  # the same call in another place
    assert references.extra(5) == {}


def test_a_module_is_audited_on_its_own_rows_with_its_own_penalty():
    torch = pytest.importorskip("torch")
    x, y = digit_data()
    x = x.astype(np.float32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    target = ns.Target(model, (x[:100], y[:100]), (x[100:], y[100:]), weight_decay=1e-3)
    rows = np.array([5, 50, 99, 100, 150, 230, *range(160, 200)])
    direct = ns.audit(model, (x[rows], y[rows]), None, weight_decay=1e-3, progress=False).records
    found = reference_columns(target, model, rows)
    np.testing.assert_allclose(found["leverage"], direct["leverage"], rtol=1e-5)  # float32 features from batches of another size
    np.testing.assert_allclose(found["loss"], direct["loss"], rtol=1e-4, atol=1e-6)
    assert reference_columns(target, np.zeros((RECORDS, 10)), rows) == {}


@pytest.mark.parametrize(
    ("model", "columns"),
    [
        (RandomForestClassifier(20, random_state=0), {"left_out_loss", "out_of_bag_loss", "shift", "loo", "loss"}),
        (GradientBoostingClassifier(n_estimators=8, random_state=0), {"shift", "loo", "influence", "leverage", "loss"}),
        (KNeighborsClassifier(), {"shift", "loo", "loss"}),
    ],
    ids=["forest", "boosting", "neighbours"],
)
def test_reference_models_made_of_trees_have_the_columns_of_their_audits(model, columns):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    y = (x[:, 0] + rng.normal(size=120) > 0).astype(int)
    rows = np.flatnonzero(rng.random(120) < 0.5)
    fitted = model.fit(x[rows], y[rows])
    found = reference_columns(ns.Target(fitted, (x[:60], y[:60]), (x[60:], y[60:])), fitted, rows)
    assert columns <= set(found)
    audited = ns.audit(fitted, (x[rows], y[rows]), (x[:1], y[:1]), progress=False).records
    for name in columns:
        np.testing.assert_array_equal(found[name], audited[name])


def test_regression_uses_signed_residuals_and_gaussian_densities(diabetes):
    audit, references = diabetes
    scored = with_ground_truth(audit, references, progress=False)
    truth = scored.ground_truth
    assert truth.variants["LiRA"]["statistic"] == "signed residual"
    assert "keep_outputs" in truth.not_applicable["shokri_success"]
    assert "memorization" in truth.not_applicable
    assert (scored.records["lira_d"] >= 0).all()  # no direction: sizes only
    residual = references.statistic[2]
    outside = ~references.membership[2]
    expected = norm.pdf(residual, scale=np.sqrt((residual[outside] ** 2).mean()))
    chances, raised = reference_probabilities(references)
    np.testing.assert_allclose(chances[2], expected, rtol=1e-12)  # the same closed form
    assert raised == 0


def by_hand(low, member, models):
    """Mean of each side and one standard deviation for all records, over some models, one record after the other."""
    means, squares, count = np.empty((2, RECORDS)), np.zeros(2), np.zeros(2)
    for i in range(RECORDS):
        for side, held in enumerate((member[models, i], ~member[models, i])):
            values = low[models, i][held]
            means[side, i] = values.mean()
            squares[side] += ((values - values.mean()) ** 2).sum()
            count[side] += len(values)
    return means, np.sqrt(squares / count)


def test_a_regression_is_attacked_by_its_loss_where_that_is_asked_for(diabetes):
    audit, references = diabetes
    scored = with_ground_truth(audit, references, options=AttackOptions(statistic="loss"), progress=False)
    low, member = -(np.asarray(references.statistic) ** 2), np.asarray(references.membership)  # the loss is the squared residual
    means, spread = by_hand(low, member, np.arange(MODELS))
    d_prime = (means[0] - means[1]) / np.sqrt((spread**2).mean())
    right = np.empty((MODELS, RECORDS), bool)
    for model in range(MODELS):
        others, width = by_hand(low, member, np.arange(MODELS) != model)
        right[model] = (norm.logpdf(low[model], others[0], width[0]) > norm.logpdf(low[model], others[1], width[1])) == member[model]
    success = ((right & member).sum(0) / member.sum(0) + (right & ~member).sum(0) / (~member).sum(0)) / 2
    rows = audited_rows(audit, references)[0]
    np.testing.assert_allclose(scored.records["lira_d"], d_prime[rows], rtol=1e-9, atol=1e-12)  # the same sums in another order
    np.testing.assert_allclose(scored.records["lira_success"], success[rows], rtol=1e-12)
    assert scored.ground_truth.variants["LiRA"]["statistic"] == "−loss"
    widths = [norm.logpdf(-references.target.loss, mean, width) for mean, width in zip(means, spread, strict=True)]
    attack = next(row for row in scored.ground_truth.attacks if (row.attack, row.attacked) == ("LiRA", "target"))
    assert attack.auc == pytest.approx(roc_auc_score(references.member, widths[0] - widths[1]), abs=1e-12)


def test_the_loss_is_a_choice_of_regressions_alone(digits):
    for statistic, rule in (("loss", "be 'auto' but in a regression"), ("residual", "be one of 'auto', 'loss'")):
        with pytest.raises(InputError, match=f"statistic must {rule}"):
            ground_truth(digits[1], options=AttackOptions(statistic=statistic), progress=False)


def test_far_records_do_not_divide_by_zero():
    chances, raised = probabilities_of(np.array([0.1, -0.1, 1e3]), np.array([False, False, True]), "regression")
    assert raised == 1
    assert (chances > 0).all()
    chances, raised = probabilities_of(np.array([0.0, 0.0, 2.0]), np.array([False, False, True]), "regression")
    assert chances.tolist() == [1.0, 1.0, 1e-300]


def test_folder_keeps_the_ground_truth_and_the_report_shows_it(scored, tmp_path):
    scored.save(tmp_path / "audit")
    again = ns.load(tmp_path / "audit")
    assert again.ground_truth.to_dict() == json.loads(json.dumps(scored.ground_truth.to_dict()))
    assert isinstance(again.ground_truth, GroundTruth)
    page = ns.write_report(again, tmp_path / "report.html").read_text()
    lira = next(row for row in scored.ground_truth.attacks if row.attack == "LiRA" and row.attacked == "target")
    assert f'<data value="{lira.auc!r}">' in page
    assert "noise ceiling" in page
    assert "3 audited reference models" in page
    assert "lira_success" in page


def test_without_an_audit_the_table_covers_the_pool(digits):
    _, references = digits
    found, table = ground_truth(references, options=AttackOptions(shokri=False), fpr=[0.05], progress=False)
    assert len(table) == RECORDS
    assert {row["targets"] for row in found.agreement} == {3}
    assert [rate.fpr for rate in found.attacks[0].rates] == [0.05]
    assert any("12 reference models are few" in note for note in found.notes)
    assert found.not_applicable["shokri_success"] == "not available: it was not asked for"


def test_an_audit_of_another_model_or_other_records_is_refused(digits):
    audit, references = digits
    other = replace(audit, provenance=audit.provenance | {"hashes": audit.provenance["hashes"] | {"weights": "0" * 64}})
    with pytest.raises(InputError, match="audit must be of the model these references were trained for; got weights 000000000000"):
        with_ground_truth(other, references)
    strange = replace(audit, records=audit.records.assign(id=[f"p{i}" for i in range(len(audit.records))]))
    with pytest.raises(InputError, match=r"120 training records.*got 120 records, 120 of them unknown there \(the first: 'p0'\)"):
        with_ground_truth(strange, references)
    with pytest.raises(InputError, match=r"fpr must lie between 0\.00833, the least that 120 non-members resolve, and 1; got 0\.001"):
        ground_truth(references, fpr=[0.001])


def test_scoring_twice_replaces_what_was_there(digits, scored):
    _, references = digits
    again = with_ground_truth(scored, references, options=AttackOptions(shokri=False), progress=False)
    assert list(again.records.columns).count("lira_d") == 1
    assert "shokri_success" not in again.records


def test_a_target_trained_differently_is_reported(digits, tmp_path):
    x, y = digit_data()
    half = RECORDS // 2
    odd = LogisticRegression(C=1e-4).fit(x[:half], y[:half])
    references = train_references(
        tmp_path / "odd",
        partial(classifier, x, y),
        (x[:half], y[:half]),
        (x[half:], y[half:]),
        model=odd,
        models=MODELS,
        workers=1,
        progress=False,
    )
    audit = ns.audit(odd, (x[:half], y[:half]), (x[half:], y[half:]), progress=False)
    scored = with_ground_truth(audit, references, options=AttackOptions(shokri=False), progress=False)
    assert scored.ground_truth.parity["outlying"]
    page = ns.write_report(scored, tmp_path / "report.html").read_text()
    assert "The audited model is unlike its reference models" in page
    assert load_references(tmp_path / "odd").parity()["outlying"]


def test_an_audited_models_own_signals_are_no_part_of_the_truth_it_is_compared_with(tmp_path):
    """Outputs of pure chance: a model's losses say nothing about records, and agreement over audited models must not either."""
    rng = np.random.default_rng(7)
    x, y = np.zeros((1000, 1)), rng.integers(0, 3, 1000)

    def chance(indices, seed):
        return np.random.default_rng(seed).normal(size=(1000, 3))

    def losses(outputs, indices, seed):
        margins = record_margins(outputs, y, "classification")
        return {"loss": np.logaddexp(0, -margins)[indices]}

    folder = tmp_path / "chance"
    options = {"models": 24, "workers": 1, "extra": losses, "extra_models": 6, "progress": False}
    references = train_references(folder, chance, (x[:500], y[:500]), (x[500:], y[500:]), **options)
    found, _ = ground_truth(references, options=AttackOptions(shokri=False), progress=False)
    (row,) = [r for r in found.agreement if (r["attack"], r["score"], r["metric"]) == ("lira_d", "loss", "spearman")]
    # Six targets of 500 records: a standard error of 0.018. With the model's own signal in the truth it would be about −0.2.
    assert abs(row["value"]) < 0.08
    assert "without a target model" in found.not_applicable["attacks on the target"]


def test_margins_beyond_the_range_of_probabilities_are_raised_and_said(digits, tmp_path):
    x, y = digit_data()

    def stubborn(indices, seed):
        logits = np.random.default_rng(seed).normal(size=(RECORDS, 10))
        logits[0, y[0]] -= 1e3
        return logits

    half = RECORDS // 2
    references = train_references(tmp_path / "s", stubborn, (x[:half], y[:half]), (x[half:], y[half:]), models=8, workers=1, progress=False)
    found, _ = ground_truth(references, options=AttackOptions(shokri=False), progress=False)
    assert any("8 probabilities (or densities) that were next to zero were raised" in note for note in found.notes)


def test_offline_attacks_on_a_regression_are_refused(diabetes):
    _, references = diabetes
    with pytest.raises(InputError, match="variant must be 'online' in a regression"):
        ground_truth(references, options=AttackOptions(variant="offline"), progress=False)


def test_every_header_is_read_once_and_every_probability_computed_once(digits, monkeypatch):
    audit, folder = digits[0], digits[1].folder
    headers, models = [], []

    def counted(found, plain):
        return lambda *given: (found.append(given), plain(*given))[1]

    monkeypatch.setattr(safetensors_files, "parsed_json", counted(headers, safetensors_files.parsed_json))
    monkeypatch.setattr(rmia_probabilities, "probabilities_of", counted(models, rmia_probabilities.probabilities_of))
    with_ground_truth(audit, load_references(folder), progress=False)
    assert len(headers) == MODELS + 1  # and the target's
    assert len(models) == MODELS


def test_a_model_that_was_replaced_after_loading_is_read_anew(digits, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(digits[1].folder, folder)
    references = load_references(folder)
    path = references.model(0).layout.path
    there = references.model(0).layout
    assert references.model(0).layout is there
    write_safetensors(path, {"statistic": np.arange(3.0)}, {"plan": "another"})
    assert references.model(0).statistic.tolist() == [0.0, 1.0, 2.0]
    path.write_bytes(b"torn")
    with pytest.raises(InputError, match="folder must be as it was loaded"):
        references.model(0)


def test_an_attack_writes_the_columns_that_its_entry_names(digits):
    scene = Scene(digits[1], AttackOptions())
    for attack in ATTACKS:
        found = attack.over_models(scene, EVERY_MODEL)
        assert tuple(found.columns) == attack.columns
        assert all(column(name) is not None and column(name).source == SOURCE for name in attack.columns)
    written = {name for attack in ATTACKS for name in attack.columns}
    assert {*written, "memorization"} == set(named(source=SOURCE))


def test_a_choice_that_one_attack_settled_is_not_handed_to_another(digits):
    truth = record_truth(digits[1], AttackOptions(shokri=False), levels=(), progress=False)
    assert truth.scene.settled["LiRA"] == {"variance": "global"} and truth.scene.settled["RMIA"] == {}
    assert truth.not_applicable["shokri_success"] == "not available: it was not asked for"
