"""Audits of language models: risk from the losses of sequences, scores of its output head, folder and report whole."""

import copy
import json
from functools import partial

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import noshadow as ns
from noshadow._audit import language
from noshadow._audit.language import TASK
from noshadow.cli import app
from noshadow.scores.sequences import sequence_scores
from noshadow.views import sequence_features
from tiny_language_models import CONTEXT, gpt2, ragged

TRAIN, TEST = (
    ragged(np.random.default_rng(0).integers(5, CONTEXT, 60), seed=1),
    ragged(np.random.default_rng(1).integers(5, CONTEXT, 50), seed=2),
)


SCORED = ["gradient_norm", "leverage", "influence"]
TOKENS = ["min_k", "min_k_plus", "copies"]


@pytest.fixture(scope="module")
def model():
    """A model that has seen its training sequences."""
    found = gpt2()
    optimiser = torch.optim.AdamW(found.parameters(), 1e-2)
    found.eval()
    for _ in range(6):
        for tokens in TRAIN:
            loss = found(torch.tensor([tokens]), labels=torch.tensor([tokens])).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return found


@pytest.fixture(scope="module")
def audited(model):
    return ns.audit(model, TRAIN, TEST, progress=False)


def test_model_risk_is_that_of_the_sequence_losses(model, audited):
    inside, outside = (ns.sequence_losses(model, split, progress=False) for split in (TRAIN, TEST))
    expected = ns.model_risk(inside.loss, outside.loss)
    risk = audited.model_risk
    assert (risk.auc, risk.tnr, risk.tnr_interval, risk.ks) == (expected.auc, expected.tnr, expected.tnr_interval, expected.ks)
    assert risk.auc > 0.7  # it did learn
    np.testing.assert_array_equal(audited.member_losses, inside.loss)
    np.testing.assert_array_equal(audited.nonmember_losses, outside.loss)
    assert audited.records["tokens"].tolist() == [len(tokens) - 1 for tokens in TRAIN]


def test_nothing_is_predicted_and_the_reason_names_the_auc(audited):
    risk = audited.model_risk
    assert risk.predicted_tpr is None and risk.predicted_tpr_interval is None
    assert "loss AUC is the figure to read" in risk.reason and "[TAIL §5.3]" in risk.reason and risk.reason.count(". ") == 0
    assert "language models" in audited.not_applicable["predicted_tpr of the model"]


def test_sequences_are_scored_and_ranked_by_influence(model, audited):
    head = sequence_features(model, TRAIN, progress=False)[1]
    expected = sequence_scores(head)
    assert audited.task == TASK and audited.ranked_by == "influence"
    assert audited.records.columns.tolist() == ["id", "tokens", "loss", *SCORED, *TOKENS, "rank"]
    for name in SCORED:
        np.testing.assert_array_equal(audited.records[name], getattr(expected, name))
    assert audited.records["influence"][audited.records["rank"] == 1].item() == expected.influence.max()
    assert sorted(audited.records["rank"]) == list(range(1, 61))


def test_how_the_scores_were_found_is_reported(model, audited):
    stamp = audited.provenance["scores"]
    assert stamp["method"] == "ekfac" and stamp["damping_source"].startswith("automatic: 0.1 ×") and stamp["parameters"] == 23 * 8
    assert stamp["effective_dof"] == pytest.approx(audited.records["leverage"].sum(), rel=1e-9) and stamp["head_residual"] < 1e-6
    assert stamp["damping_kind"] == "automatic" and any("input embedding" in note for note in audited.notes)
    given, decay = (ns.audit(model, TRAIN, TEST, progress=False, **how) for how in ({"damping": 0.6}, {"weight_decay": 0.01}))
    assert (given.provenance["scores"]["damping_used"], given.provenance["scores"]["damping_source"]) == (0.6, "given")
    assert "n=60, weight_decay=0.01" in decay.provenance["scores"]["damping_source"]
    np.testing.assert_allclose(given.records["influence"], decay.records["influence"], rtol=1e-12)
    assert [audit.provenance["scores"]["damping_kind"] for audit in (given, decay)] == ["given", "weight_decay"]
    unknown = [finding.status for audit in (audited, given, decay) for finding in audit.findings if finding.code == "NS021"]
    assert unknown == ["found", "passed", "passed"]


def test_what_sequences_do_not_have_is_not_applicable(audited):
    for name in ("newton", "loo", "shift", "margin_leverage"):
        assert audited.not_applicable[name].startswith("not applicable: a sequence has a margin at every token")
    assert not {*SCORED, "rank"} & set(audited.not_applicable)
    assert "no calibration" in audited.not_applicable["predicted_tpr"] and "one entropy per token" in audited.not_applicable["entropy"]


def test_findings_speak_of_sequences(audited):
    drawn = {finding.code: finding for finding in audited.findings}
    assert drawn["NS011"].sentence == "Not applicable, because a language model has no classes."
    assert drawn["NS015"].sentence == "Not applicable, because a sequence has no label of its own."
    assert drawn["NS014"].status == "not applicable" and drawn["NS024"].status == "skipped"
    assert drawn["NS021"].status == "found" and "one was chosen from the curvature: λ = " in drawn["NS021"].sentence
    assert drawn["NS020"].figure == pytest.approx(audited.provenance["scores"]["stationarity"])


def unread(reason):
    return {name: f"not applicable: {reason}" for name in SCORED}


def test_a_head_too_large_leaves_the_losses(model, audited, monkeypatch, tmp_path):
    monkeypatch.setattr(language, "sequence_scores", partial(sequence_scores, max_memory=1e3))
    result = ns.audit(model, TRAIN, TEST, progress=False)
    assert result.ranked_by == "loss" and result.records.columns.tolist() == ["id", "tokens", "loss", *TOKENS, "rank"]
    reason = "EK-FAC of a head of 23 tokens × 8 features needs 1.18e-05 GB, more than the 1e-06 GB allowed"
    assert unread(reason).items() <= result.not_applicable.items() and "margin at every token" in result.not_applicable["shift"]
    assert result.model_risk == audited.model_risk and "scores" not in result.provenance
    page = ns.write_report(result, tmp_path / "report.html").read_text()
    assert "EK-FAC of a head of 23 tokens" in page
    monkeypatch.setattr(language, "sequence_features", partial(sequence_features, max_memory=1e3))
    tokens = sum(map(len, TRAIN)) - 60
    words = f"the head's inputs at {tokens} tokens × 8 features take {tokens * 32 / 1e9:.3g} GB, more than the 1e-06 GB allowed"
    assert unread(words).items() <= ns.audit(model, TRAIN, TEST, progress=False).not_applicable.items()


def test_a_head_that_cannot_be_read_leaves_the_losses(model, audited, monkeypatch):
    monkeypatch.setattr(type(model), "get_output_embeddings", lambda _: None)
    result = ns.audit(model, TRAIN, TEST, progress=False)
    assert unread("the model names no output head (get_output_embeddings gives none)").items() <= result.not_applicable.items()
    np.testing.assert_array_equal(result.member_losses, audited.member_losses)


def test_half_precision_rounds_and_is_still_its_own_head(model):
    rounded = ns.audit(copy.deepcopy(model).bfloat16(), TRAIN, TEST, progress=False)
    status = {finding.code: finding.status for finding in rounded.findings}
    assert rounded.ranked_by == "influence" and status["NS023"] == "passed"
    exact = ns.audit(model, TRAIN, TEST, progress=False)
    # Two or three digits are all a bfloat16 weight has.
    assert ns.metrics.spearman(exact.records["influence"], rounded.records["influence"]) > 0.95


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_capped_logits_are_not_those_of_the_head(model, precision, monkeypatch):
    capped = copy.deepcopy(model).to(precision)
    with torch.no_grad():
        capped.lm_head.weight.mul_(30.0)
    forward = capped.forward

    def with_cap(*args, **settings):
        found = forward(*args, **settings)
        found["logits"] = 30.0 * torch.tanh(found["logits"] / 30.0)
        return found

    monkeypatch.setattr(capped, "forward", with_cap)
    audited = ns.audit(capped, TRAIN, TEST, progress=False)
    assert audited.ranked_by == "loss" and "not those of its output head" in audited.not_applicable["influence"]


def test_a_head_that_is_sure_of_everything_leaves_the_losses(model):
    sure = copy.deepcopy(model)
    with torch.no_grad():
        sure.lm_head.weight.mul_(1e6)
    audited = ns.audit(sure, TRAIN, TEST, progress=False)
    assert audited.ranked_by == "loss" and "no curvature" in audited.not_applicable["influence"]
    assert ns.audit(sure, TRAIN, TEST, damping=1.0, progress=False).ranked_by == "influence"


def test_tokens_that_the_head_cannot_predict_are_refused(model):
    short = copy.deepcopy(model)
    short.lm_head = torch.nn.Linear(short.lm_head.in_features, 3, bias=False)
    with pytest.raises(ns.InputError, match="must hold token ids in 0 … 2"):
        ns.audit(short, TRAIN, TEST, progress=False)


def test_ids_groups_and_traces_belong_to_sequences(model):
    ids, groups = [f"text-{k}" for k in range(60)], ["a", "b"] * 30
    traces = np.column_stack([np.random.default_rng(0).random((60, 3)), ns.sequence_losses(model, TRAIN, progress=False).loss])
    result = ns.audit(model, TRAIN, TEST, ids=ids, groups=groups, loss_traces=traces, fpr=0.1, progress=False)
    assert result.records.columns.tolist() == ["id", "group", "tokens", "loss", *SCORED, "lt_iqr", *TOKENS, "rank"]
    assert result.records["id"].tolist() == ids and result.records["group"].tolist() == groups and result.model_risk.fpr == 0.1
    np.testing.assert_allclose(result.records["lt_iqr"], np.subtract(*np.quantile(traces, (0.75, 0.25), axis=1)), rtol=1e-12)


def test_traces_of_unseen_sequences_give_early_losses(model):
    seen, unseen = (ns.sequence_losses(model, split, progress=False).loss for split in (TRAIN, TEST))
    traces = ns.LossTraces()
    for factor, shift in ((3.0, 2.0), (2.0, 0.5), (1.0, 1.0)):
        traces.append(factor * seen, shift * unseen)
    result = ns.audit(model, TRAIN, TEST, loss_traces=traces, progress=False)
    # (3 + 2)/2 times the loss: the second recording is the lowest on unseen sequences. One rounding per step.
    np.testing.assert_allclose(result.records["early_loss"], 2.5 * seen, rtol=1e-12)
    fact = result.provenance["inputs"]["loss_traces"]
    assert (fact["best_recording"], fact["last_recording"], fact["last_test_recording"]) == (1, "equal", "equal")


def test_groups_of_both_splits_have_a_risk_each(model):
    result = ns.audit(model, TRAIN, TEST, groups=["a", "b"] * 30, test_groups=["b", "a"] * 25, fpr=0.1, progress=False)
    assert sorted(row.group for row in result.group_risk) == ["a", "b"]
    (b,) = (row for row in result.group_risk if row.group == "b")
    assert b.auc == pytest.approx(ns.metrics.loss_auc(result.member_losses[1::2], result.nonmember_losses[::2]), rel=1e-12)
    assert "test_groups=" in ns.audit(model, TRAIN, TEST, groups=["a", "b"] * 30, progress=False).not_applicable["group_risk"]


def test_folder_and_report_are_whole(audited, tmp_path):
    folder = audited.save(tmp_path / "a")
    page = ns.write_report(audited, folder / "report.html").read_text()
    again = ns.load(folder)
    assert again.model_risk == audited.model_risk and again.task == TASK and again.records.equals(audited.records)
    stored = json.loads((folder / "audit.json").read_text())
    assert stored["provenance"]["sequences"] == {"context": CONTEXT, "stride": 8, "train_tokens": sum(map(len, TRAIN)) - 60} | {
        "test_tokens": sum(map(len, TEST)) - 50
    }
    assert stored["provenance"]["versions"]["transformers"] and len(stored["provenance"]["hashes"]["weights"]) == 64
    assert (
        'id="why-auc"' in page
        and "<code>influence</code>" in page
        and "GPT2LMHeadModel" in page
        and "Of a language model read the AUC" in page
    )
    assert "Where it rules out many" not in page  # what is said of other models
    assert "do not run on sequences yet" in page and "noshadow reference train" not in page


def test_reports_of_other_models_do_not_speak_of_language_models(tmp_path):
    signals = [ns.Signals(None, np.random.default_rng(k).normal(size=(20, 2)), np.arange(20) % 2) for k in range(2)]
    page = ns.write_report(ns.audit_signals(*signals), tmp_path / "report.html").read_text()
    assert "why-auc" not in page and "Where it rules out many, the strongest attacks find many" in page


def test_same_seed_same_audit(model, audited):
    again = ns.audit(model, TRAIN, TEST, progress=False)
    assert {**again.manifest(), "timings": None} == {**audited.manifest(), "timings": None}


def test_padding_changes_no_hash(model, audited):
    width = CONTEXT + 3
    ids = np.array([[0] * (width - len(tokens)) + tokens for tokens in TRAIN])
    mask = np.array([[0] * (width - len(tokens)) + [1] * len(tokens) for tokens in TRAIN])
    result = ns.audit(model, {"input_ids": ids, "attention_mask": mask}, TEST, progress=False)
    assert result.provenance["hashes"] == audited.provenance["hashes"]
    np.testing.assert_array_equal(result.member_losses, audited.member_losses)
    np.testing.assert_array_equal(result.records["influence"], audited.records["influence"])


def test_an_empty_test_split_leaves_the_losses(model):
    for nobody in (None, [], {"input_ids": []}):
        result = ns.audit(model, TRAIN, nobody, progress=False)
        assert result.model_risk is None and result.not_applicable["model_risk"].startswith("not applicable: the test split is empty")
        assert len(result.records) == 60 and len(result.nonmember_losses) == 0
    one = ns.audit(model, TRAIN, TEST[:1], progress=False)
    assert one.model_risk is None and "one test record is too few" in one.not_applicable["model_risk"]


def test_shared_swapped_and_long_sequences_are_told(model):
    def sentence(audit, code):
        return next(finding.sentence for finding in audit.findings if finding.code == code and finding.status == "found")

    shared = ns.audit(model, TRAIN, [*TEST, *TRAIN[:3]], progress=False)
    assert "3 of 53 test sequences are also training sequences" in sentence(shared, "NS007")
    assert shared.provenance["splits"]["shared_with_test"] == 3
    swapped = ns.audit(model, TEST, TRAIN, progress=False)
    assert "Members have larger losses than non-members" in sentence(swapped, "NS005")
    long = ns.audit(model, [*TRAIN, *ragged([40])], TEST, progress=False)
    assert any("1 of 111 sequences are longer than the context of 16 tokens" in note for note in long.notes)


def test_copies_are_counted(model):
    result = ns.audit(model, [*TRAIN, TRAIN[4]], TEST, progress=False)
    assert result.provenance["splits"]["copies"]["records"] == 2 and result.provenance["splits"]["copies"]["first_ids"] == ["4", "60"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"task": "classification"},
            "audit: task must be left out for a language model, whose records are sequences scored by its output head; got 'classif",
        ),
        ({"layers": "all"}, "layers must be left out for a language model"),
        ({"layer": "lm_head"}, "layer must be left out for a language model"),
        ({"damping": 0.0}, "audit: damping must be a number > 0 for a language model; got 0. Its rarest tokens"),
        ({"sample_weight": np.ones(60)}, "sample_weight must be left out .* got ndarray"),
        ({"ids": range(3)}, "audit: records and ids must have one row per record; got lengths records 60, ids 3"),
        ({"groups": ["a"]}, "train and groups must have one row per record"),
        ({"test_groups": ["a"]}, "test and test_groups must have one row per record"),
        ({"fpr": 1e-4}, "fpr must be at least 0.02"),
    ],
)
def test_arguments_without_a_meaning_get_one_sentence(model, settings, message):
    with pytest.raises(ns.InputError, match=message):
        ns.audit(model, TRAIN, TEST, progress=False, **settings)


def test_errors_name_the_split(model):
    with pytest.raises(ns.InputError, match="audit: train must hold at least 2 records; got 1"):
        ns.audit(model, TRAIN[:1], TEST, progress=False)
    with pytest.raises(ns.InputError, match="audit: test sequence 1 must hold token ids in 0 … 22; got 99"):
        ns.audit(model, TRAIN, [[1, 2], [1, 99]], progress=False)
    with pytest.raises(ns.InputError, match=r"audit: test must hold sequences of at least 2 tokens.*; got 1 with nothing to predict"):
        ns.audit(model, TRAIN, [[1, 2], [1]], progress=False)


TARGET = """
import noshadow as ns
from tiny_language_models import gpt2, ragged

def target():
    return ns.Target(gpt2(), ragged([8] * 30), ragged([9] * 25, seed=1), weight_decay=0.01)
"""


def test_the_command_takes_a_target_with_a_language_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "language_target_module.py").write_text(TARGET)
    done = CliRunner().invoke(app, ["audit", "language_target_module:target", "--out", "out", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["task"] == TASK and found["ranked_by"] == "influence" and len(found["most_exposed"]) == 5
    assert found["scores"]["damping_used"] == pytest.approx(0.3)
    assert found["model_risk"]["predicted_tpr"] is None and 0 < found["model_risk"]["auc"] < 1
    assert (tmp_path / "out" / "report.html").is_file()
    shown = CliRunner().invoke(app, ["audit", "language_target_module:target", "--out", "again"])
    assert "Loss AUC" in shown.output and "Most exposed records, by influence" in shown.output
    gate = CliRunner().invoke(app, ["gate", "out", "--max-auc", "0.99"])
    assert gate.exit_code == 0, gate.output
