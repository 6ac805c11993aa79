"""Audits of fine-tuned language models beside their base: columns against plain loops, LoRA, T5, attacks, and bad input."""

import copy
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import noshadow as ns
from extras import extra
from language_base_models import (
    Letters,
    answers_by_hand,
    chains,
    facts_by_hand,
    fine_tuned,
    scores_by_hand,
    t5,
    trained,
    with_lora,
)
from language_fixtures import TRAIN, base_fixture, entry, model_fixture  # noqa: F401 - fixtures by their names
from noshadow._answer import verdict
from noshadow._audit.sequence_evidence import base_columns
from noshadow._known import best_known
from noshadow.cli import app
from noshadow.metrics import auc, tpr_at_fpr
from noshadow.scores.token_scores import error_zone, min_k, window_votes, zlib_ratio
from noshadow.views import SequenceLosses, TokenStatistics, sequence_losses
from tiny_language_models import gpt2, ragged

TEST = chains(200, seed=3)
LONG = ragged((40, 2, 3), seed=5)  # beyond the context of 16, and as short as can be
BASE_COLUMNS = ("base_loss", "base_gain", "error_zone", "window_votes")
# Both sides sum the same float32 logits in float64; a batch pads rows, and attention then sums in another order.
CLOSE = {"rtol": 0, "atol": 2e-5}


@pytest.fixture(scope="module")
def lora(base):
    return trained(with_lora(base), TRAIN, epochs=60, rate=2e-2)


@pytest.fixture(scope="module")
def audited(model, base):
    return ns.audit(model, TRAIN, TEST, base=base, tokenizer=Letters(), progress=False)


def finding(audit, code):
    return next(one for one in audit.findings if one.code == code)


def by_hand(model, base, sequences):
    text = Letters().decode
    return [scores_by_hand(facts_by_hand(model, s), facts_by_hand(base, s), text(s)) for s in sequences]


def test_every_column_is_what_plain_loops_give(model, base, audited):
    for row, expected in enumerate(by_hand(model, base, TRAIN[:6])):
        for name, value in expected.items():
            assert audited.records[name][row] == pytest.approx(value, abs=2e-5, rel=0), name


def told(*sequences, first=()):
    """Token statistics of given log-probabilities; `first` are the places that the model puts first."""
    values = np.array([value for sequence in sequences for value in sequence], dtype=float)
    return TokenStatistics(values, np.isin(np.arange(len(values)), first), values, np.cumsum([0, *map(len, sequences)]))


def test_scores_at_their_edges():
    own, base = told([-1.0, -1.0, -1.0], [-1.0, -4.0], [-1.0, -2.0], first=(2, 5)), told([-2.0, -3.0, -9.0], [-1.0, -2.0], [-5.0, -5.0])
    # Only rises at the two errors; only a fall; one error is left, which is too few to say anything.
    np.testing.assert_array_equal(error_zone(own, base), [1.0, 0.0, 0.5])
    np.testing.assert_array_equal(error_zone(own, own), [0.5, 0.5, 0.5])
    # Windows of 2: both of the first sequence are won; longer ones are the whole. Equal sums are no vote.
    np.testing.assert_array_equal(window_votes(own, base), [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(window_votes(own, own), [0.0, 0.0, 0.0])
    single = told([-1.0], [-3.0])
    np.testing.assert_array_equal(window_votes(single, told([-2.0], [-2.0])), [1.0, 0.0])
    np.testing.assert_array_equal(min_k(told([-5.0, -1.0, -2.0, -3.0, -4.0, -6.0, -7.0, 0.0, 0.0, 0.0], [-2.0, -1.0])), [-6.5, -2.0])
    assert zlib_ratio(np.array([2.0, 2.0]), ["aaaaaaaaaaaaaaaaaaaaaaaa", "a1b2c3d4e5f6g7h8i9j0k1l2"]).argmin() == 0


def test_a_token_the_model_is_sure_of_has_no_standing_and_ruled_out_tokens_count_for_nothing(base):
    sure = copy.deepcopy(base)
    forward = sure.forward

    def certain(*args, **settings):
        found = forward(*args, **settings)
        found["logits"] = torch.where(torch.arange(23) == 5, 0.0, -torch.inf).expand_as(found["logits"])
        return found

    sure.forward = certain
    read = sequence_losses(sure, [[5, 5, 5, 5]], statistics=True, progress=False).statistics
    assert (read.standing == 0).all() and (read.log_probability == 0).all() and read.is_first.all()


def test_the_base_is_compared_token_for_token(model, base):
    own, below = (sequence_losses(one, TRAIN, statistics=True, progress=False) for one in (model, base))
    found = base_columns(own, below)
    moved = own.statistics.log_probability - below.statistics.log_probability
    np.testing.assert_allclose(found["base_gain"], moved.reshape(60, -1).mean(1), rtol=0, atol=1e-12)


def test_long_and_short_sequences_and_padding(base):
    """Sequences beyond the context in windows, padded rows, labels that do not count: the base is asked about the same tokens."""
    other = gpt2(seed=7)
    rows = [*LONG, *TRAIN[:8]]
    width = max(map(len, rows))
    ids = np.array([[0] * (width - len(row)) + row for row in rows])
    mask = np.array([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    plain = ns.audit(other, rows, TEST, base=base, progress=False, batch_size=3)
    padded = ns.audit(other, {"input_ids": ids, "attention_mask": mask}, TEST, base=base, progress=False)
    for name in (*BASE_COLUMNS, "min_k", "min_k_plus"):
        np.testing.assert_allclose(padded.records[name], plain.records[name], err_msg=name, **CLOSE)
    for row, expected in enumerate(by_hand(other, base, LONG[1:]), start=1):
        for name in (*BASE_COLUMNS, "min_k", "min_k_plus"):
            assert plain.records[name][row] == pytest.approx(expected[name], abs=2e-5), (row, name)
    # In windows of 16 that advance by 8, token t of the long one is predicted from the start of the first window that holds it.
    starts = [0 if place < 16 else min(8 * -(-(place - 15) // 8), 24) for place in range(1, 40)]
    for one, name in ((other, "loss"), (base, "base_loss")):
        one.eval()
        with torch.no_grad():
            lost = [
                -torch.log_softmax(one(torch.tensor([LONG[0][start:place]])).logits[0, -1].double(), 0)[LONG[0][place]].item()
                for place, start in enumerate(starts, start=1)
            ]
        assert plain.records[name][0] == pytest.approx(np.mean(lost), abs=2e-5)


def test_labels_that_do_not_count_are_left_out_of_every_column(model, base):
    labels = [[-100] * 6 + row[6:] for row in TRAIN]
    found = ns.audit(model, {"input_ids": TRAIN, "labels": labels}, TEST, base=base, progress=False)
    for row in range(3):
        own, below = (facts_by_hand(one, TRAIN[row])[5:] for one in (model, base))
        for name, value in scores_by_hand(own, below).items():
            assert found.records[name][row] == pytest.approx(value, abs=2e-5), name


def test_batches_and_blocks_change_nothing(model, base, audited, monkeypatch):
    monkeypatch.setattr("noshadow.views.token_statistics.NUMBERS_AT_ONCE", 1)
    again = ns.audit(model, TRAIN, TEST, base=base, tokenizer=Letters(), batch_size=7, progress=False)
    for name in (*BASE_COLUMNS, "min_k", "min_k_plus", "zlib_ratio"):
        np.testing.assert_allclose(again.records[name], audited.records[name], err_msg=name, **CLOSE)


def test_the_gain_over_the_base_ranks_nothing(audited):
    """Among members it orders sequences against d′ (benchmarks/results/finetuned.json)."""
    assert audited.ranked_by == "influence" and "exposure_score" not in audited.records
    assert audited.records["rank"][audited.records["influence"].idxmax()] == 1
    for name in ("exposure", "attack_rate"):
        assert name not in audited.records and "neither order nor size" in audited.not_applicable[name]
    assert "reference_models=2" in audited.not_applicable["exposure"]


def test_every_column_is_an_attack_with_intervals(model, base, audited):
    found = {row.attack: row for row in audited.sequence_attacks}
    assert set(found) == {"loss", "base_gain", "own_gain", "error_zone", "window_votes", "min_k", "min_k_plus", "zlib_ratio"}
    gains = [sequence_losses(base, s, progress=False).loss - sequence_losses(model, s, progress=False).loss for s in (TRAIN, TEST)]
    row = found["base_gain"]
    assert row.auc == pytest.approx(auc(*gains), abs=1e-12) and row.auc_interval[0] < row.auc < row.auc_interval[1]
    assert [rate.fpr for rate in row.rates] == [audited.model_risk.fpr, 0.01]  # 200 test sequences do not resolve 0.001
    for rate in row.rates:
        assert rate.tpr == pytest.approx(tpr_at_fpr(*gains, rate.fpr)) and rate.low <= rate.tpr <= rate.high
    assert found["loss"].auc == pytest.approx(audited.model_risk.auc, abs=1e-12)
    assert row.auc > 0.9 and row.auc > found["loss"].auc  # the base takes away what makes a text easy
    many = ns.audit(model, TRAIN, TEST * 5, base=base, fpr=0.1, progress=False)
    assert [rate.fpr for rate in many.sequence_attacks[0].rates] == [0.1, 0.01, 0.001]


def test_the_declared_attack_is_the_answer_and_no_other(audited):
    known = best_known(audited)
    row = next(row for row in audited.sequence_attacks if row.attack == "own_gain")
    assert (known.source, known.rate, known.attacked, known.trainings) == ("compared", row.rates[0].tpr, "target", 0)
    assert "declared before it was measured" in known.reason
    best = max(row.rates[0].tpr for row in audited.sequence_attacks)
    assert best >= known.rate  # whatever another column finds, it does not become the answer


def test_nothing_to_attack_without_test_sequences(model, base):
    alone = ns.audit(model, TRAIN, None, base=base, progress=False)
    assert alone.sequence_attacks == () and "no test sequences" in alone.not_applicable["sequence_attacks"]
    assert alone.ranked_by == "influence" and finding(alone, "NS031").status == "skipped"


def test_adapters_are_switched_off_and_on_again(base, lora):
    lora = copy.deepcopy(lora).requires_grad_(False)  # as adapters are loaded for use; peft would make them trainable again
    before = {name: value.clone() for name, value in lora.state_dict().items()}
    flags = [parameter.requires_grad for parameter in lora.parameters()]
    found = ns.audit(lora, TRAIN, TEST, progress=False)
    np.testing.assert_allclose(found.records["base_loss"], sequence_losses(base, TRAIN, progress=False).loss, **CLOSE)
    own = [facts_by_hand(lora, TRAIN[row]) for row in range(3)]
    for row in range(3):
        for name, value in scores_by_hand(own[row], facts_by_hand(base, TRAIN[row])).items():
            assert found.records[name][row] == pytest.approx(value, abs=2e-5), name
    assert [parameter.requires_grad for parameter in lora.parameters()] == flags
    assert all(torch.equal(value, before[name]) for name, value in lora.state_dict().items())
    np.testing.assert_array_equal(sequence_losses(lora, TRAIN, progress=False).loss, found.records["loss"])
    stamp = entry(found, "base model").stamp
    assert (stamp["kind"], stamp["weights"]) == ("adapters off", None) and any("no second copy" in note for note in found.notes)


def test_adapters_of_transformers_itself(base, lora):
    extra("peft")
    inside = lora.get_base_model()  # adapters in its layers, as model.add_adapter leaves them
    direct, wrapped = (ns.audit(one, TRAIN, TEST, progress=False) for one in (inside, lora))
    np.testing.assert_array_equal(direct.records["base_gain"], wrapped.records["base_gain"])


def test_a_given_base_goes_before_the_adapters(base, lora):
    found = ns.audit(lora, TRAIN, TEST, base=base, progress=False)
    assert entry(found, "base model").stamp["kind"] == "given"
    with pytest.raises(ns.InputError, match=r"got the audited model itself\. Leave it out: the model with its adapters off"):
        ns.audit(lora, TRAIN, TEST, base=lora.get_base_model(), progress=False)  # peft adapts the module that it is given


def test_of_several_adapters_the_active_ones_are_audited(base, lora):
    peft = extra("peft")
    several = copy.deepcopy(lora)
    several.add_adapter("other", peft.LoraConfig(r=2, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True))
    found = ns.audit(several, TRAIN, TEST, progress=False)
    assert any("of its 2 adapters (default, other) default was audited" in note for note in found.notes)
    np.testing.assert_allclose(found.records["base_loss"], sequence_losses(base, TRAIN, progress=False).loss, **CLOSE)


def test_merged_adapters_are_said_and_the_base_is_asked_for(lora, base):
    merged = copy.deepcopy(lora)
    merged.merge_adapter()
    found = ns.audit(merged, TRAIN, TEST, progress=False)
    assert found.ranked_by == "influence" and "base_gain" not in found.records
    assert "adapters are merged into its weights" in found.not_applicable["base_gain"] and "base=" in found.not_applicable["base_gain"]
    assert "base_gain" in ns.audit(merged, TRAIN, TEST, base=base, progress=False).records
    unloaded = copy.deepcopy(lora).merge_and_unload()
    assert "merged and unloaded leave no trace" in ns.audit(unloaded, TRAIN, TEST, progress=False).not_applicable["base_gain"]


def test_adapters_whose_base_is_lost_or_that_change_nothing(base, lora):
    biased = with_lora(base, bias="all")
    assert "trained together with biases" in ns.audit(biased, TRAIN, TEST, progress=False).not_applicable["base_gain"]
    untrained = with_lora(base)
    assert "changes nothing" in ns.audit(untrained, TRAIN, TEST, progress=False).not_applicable["base_gain"]
    began = with_lora(base, init_lora_weights="pissa")  # takes the largest part of each weight into the adapters
    found = ns.audit(began, TRAIN, TEST, progress=False)
    assert "began ('pissa') with a part of the weights below" in found.not_applicable["base_gain"]
    off = copy.deepcopy(lora)
    off.base_model.disable_adapter_layers()
    assert "switched off" in ns.audit(off, TRAIN, TEST, progress=False).not_applicable["base_gain"]


def test_learnt_prompts_are_refused(base):
    peft = extra("peft")
    how = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    with pytest.raises(ns.InputError, match=r"audit: model must carry what it learnt in its layers; got learnt prompts \(PROMPT_TUNING\)"):
        ns.audit(peft.get_peft_model(copy.deepcopy(base), how), TRAIN, TEST, progress=False)


def pairs(count, seed):
    return [
        (source, answer)
        for source, answer in zip(ragged([7] * count, seed=seed, low=2), ragged([6] * count, seed=seed + 1, low=2), strict=True)
    ]


def test_sequence_to_sequence_models_by_their_answers():
    base, train, test = t5(), pairs(40, 1), pairs(50, 11)
    model = trained(copy.deepcopy(base), [s for s, _ in train], epochs=30, rate=2e-2, answers=[a for _, a in train])
    found = ns.audit(model, train, test, base=base, progress=False)
    assert found.task == "language-model" and (found.records["tokens"] == 6).all() and found.ranked_by == "influence"
    for row in range(3):
        expected = scores_by_hand(*(answers_by_hand(one, *train[row]) for one in (model, base)))
        for name, value in expected.items():
            assert found.records[name][row] == pytest.approx(value, abs=2e-5), name
    assert {row.attack: row.auc for row in found.sequence_attacks}["base_gain"] > 0.8
    assert "influence" in found.records
    # As a collator pads them: texts by 0, answers by −100.
    width = {"input_ids": 9, "labels": 8}
    padded = {
        "input_ids": [[*s, *[0] * (width["input_ids"] - len(s))] for s, _ in train],
        "attention_mask": [[1] * len(s) + [0] * (width["input_ids"] - len(s)) for s, _ in train],
        "labels": [[*a, *[-100] * (width["labels"] - len(a))] for _, a in train],
    }
    again = ns.audit(model, padded, test, base=base, progress=False)
    np.testing.assert_allclose(again.records["base_gain"], found.records["base_gain"], **CLOSE)
    assert again.provenance["hashes"] == found.provenance["hashes"]


def test_the_loss_of_an_answer_is_what_the_model_itself_says():
    model, train = t5(), pairs(5, 1)
    model.eval()
    with torch.no_grad():
        expected = [model(input_ids=torch.tensor([s]), labels=torch.tensor([a])).loss.item() for s, a in train]
    np.testing.assert_allclose(ns.sequence_losses(model, train, progress=False).loss, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([[1, 2, 3]], "hold a text and its answer per record"),
        ([([2, 3], [])], "record 0 labels must hold at least one token that counts; got none"),
        ([([], [2])], "record 0 input_ids must hold at least one token"),
        ([([2, 3], [99])], "must hold token ids in 0 … 22; got 99"),
        ({"input_ids": [[2, 3]], "labels": [[-100, -100]]}, "record 0 labels must hold at least one token that counts"),
        ([], "must hold at least one record"),
    ],
)
def test_pairs_that_cannot_be_read_are_refused(data, message):
    with pytest.raises(ns.InputError, match=message):
        ns.sequence_losses(t5(), data, progress=False)


def test_a_base_of_another_architecture_and_the_same_vocabulary_is_read(model):
    transformers = extra("transformers")
    shape = {"vocab_size": 23, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, **ends, max_position_embeddings=8))
    found = ns.audit(model, TRAIN, TEST, base=llama, progress=False)
    assert entry(found, "base model").stamp["model"] == "LlamaForCausalLM"
    # The padding token of the base does not take tokens away that the model has read; its context is shorter, and that is said.
    np.testing.assert_array_equal(found.records["tokens"], [len(row) - 1 for row in TRAIN])
    assert any("reads 8 tokens at a time and the model 16" in note for note in found.notes)


def test_a_base_with_a_longer_context_reads_the_windows_of_the_model(model):
    found = ns.audit(model, [*TRAIN, *LONG], TEST, base=gpt2(context=64), progress=False)
    assert entry(found, "base model").stamp["context"] == 16 and not any("unevenly" in note for note in found.notes)


def test_half_precision_beside_its_base(model, base):
    one, other = copy.deepcopy(model).bfloat16(), copy.deepcopy(base).bfloat16()
    rounded, exact = (ns.audit(m, TRAIN, TEST, base=b, progress=False) for m, b in ((one, other), (model, base)))
    assert ns.metrics.spearman(rounded.records["base_gain"], exact.records["base_gain"]) > 0.95  # three digits


def test_weights_in_few_bits_are_read_and_said(model, base):
    """No quantising library is needed to see what a configuration says; the rounded model is what is audited."""
    rounded = copy.deepcopy(model)
    rounded.config.quantization_config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    found = ns.audit(rounded, TRAIN, TEST, base=base, progress=False)
    assert any("stored in 8 bits (bitsandbytes): losses are those of the rounded model" in note for note in found.notes)
    assert any("a part of each gain over the base is rounding" in note for note in found.notes)
    alike = copy.deepcopy(base)
    alike.config.quantization_config = rounded.config.quantization_config
    assert not any("rounding" in note for note in ns.audit(rounded, TRAIN, TEST, base=alike, progress=False).notes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: m, "audit: base must be another model; got the audited model itself"),
        (lambda m: copy.deepcopy(m), "base must be another model; got one that says the same of every token"),
        (lambda m: copy.deepcopy(m).state_dict(), "base must be another model; got one that says the same of every token"),
        (
            lambda m: gpt2(vocabulary=60),
            r"base must have the audited model's vocabulary of 23 tokens; got 60 tokens \(GPT2LMHeadModel\)",
        ),
        (lambda m: gpt2(vocabulary=20), "base must be readable as the audited model is; got this: .* must hold token ids in 0 … 19"),
        (lambda m: t5(), "base must be a causal model as the audited one is; got a sequence-to-sequence one"),
        (lambda m: torch.nn.Linear(2, 2), "base must be a language model of transformers, its weights or its folder; got .* Linear"),
        (lambda m: "nowhere", "base must be a folder that exists"),
    ],
)
def test_bases_that_cannot_be_one_are_refused(model, make, message):
    with pytest.raises(ns.InputError, match=message):
        ns.audit(model, TRAIN, TEST, base=make(model), progress=False)


def test_weights_beside_adapters_are_refused(lora, base):
    with pytest.raises(ns.InputError, match="base must be a model beside one with adapters; got weights alone"):
        ns.audit(lora, TRAIN, TEST, base=base.state_dict(), progress=False)


def test_one_token_is_refused_and_a_tokenizer_belongs_to_language_models(model, base):
    with pytest.raises(ns.InputError, match=r"the first sequence 60 \(one token\)"):
        ns.audit(model, [*TRAIN, [3]], TEST, base=base, progress=False)
    with pytest.raises(ns.InputError, match="tokenizer must be a tokenizer with decode"):
        ns.audit(model, TRAIN, TEST, tokenizer="gpt2", progress=False)
    x = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ns.InputError, match="tokenizer must come with a language model"):
        ns.audit(torch.nn.Linear(2, 1), (x, x[:, 0]), (x, x[:, 0]), tokenizer=Letters(), progress=False)


def test_a_base_that_has_seen_one_of_the_splits_is_found(model, base, audited):
    assert finding(audited, "NS031").status == "passed" and finding(audited, "NS032").status == "passed"
    for seen, word in ((TEST, "test texts"), (TRAIN, "training texts")):
        with_seen = ns.audit(model, TRAIN, TEST, base=fine_tuned(base, seen, epochs=20), progress=False)
        told = finding(with_seen, "NS031")
        assert best_known(with_seen).rate is None and "NS031" in best_known(with_seen).reason
        assert told.status == "found" and f"it has seen the {word}" in told.sentence, word
    renamed = copy.deepcopy(base)  # the same model under a tokenizer that numbers tokens in another way
    with torch.no_grad():
        renamed.transformer.wte.weight.copy_(base.transformer.wte.weight.flip(0))
    beside_renamed = ns.audit(model, TRAIN, TEST, base=renamed, progress=False)
    lost = finding(beside_renamed, "NS032")
    assert best_known(beside_renamed).source == "losses" and verdict(beside_renamed).level != "none"
    assert lost.status == "found" and "most likely it was trained with another tokenizer" in lost.sentence
    assert finding(ns.audit(model, TRAIN, TEST, progress=False), "NS031").status == "not applicable"


def test_folder_and_page_hold_the_columns_and_the_attacks(audited, tmp_path):
    folder = audited.save(tmp_path / "a")
    again = ns.load(folder)
    assert again.sequence_attacks == audited.sequence_attacks and again.records.equals(audited.records)
    page = ns.write_report(again, folder / "report.html").read_text()
    for words in (
        'id="sequence-attacks"',
        "gain over the base",
        "Min-K %++",
        "declared before anything was measured",
        "compares the model with its base",
    ):
        assert words in page, words


def test_two_audits_are_compared_by_what_was_compared(audited, base):
    less = ns.audit(fine_tuned(base, TRAIN, epochs=1), TRAIN, TEST, base=base, progress=False)
    change = next(change for change in ns.compare(audited, less).changes if change.name == "compared_tpr")
    assert change.before == best_known(audited).rate > change.after == best_known(less).rate


def saved(model, folder):
    model.save_pretrained(folder)
    return folder


def test_a_folder_is_a_base(model, base, audited, tmp_path):
    found = ns.audit(model, TRAIN, TEST, base=saved(base, tmp_path / "base"), progress=False)
    np.testing.assert_allclose(found.records["base_gain"], audited.records["base_gain"], **CLOSE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ns.InputError, match=r"base must be a folder with config.json and weights in .safetensors"):
        ns.audit(model, TRAIN, TEST, base=tmp_path / "empty", progress=False)
    (tmp_path / "base" / "config.json").write_text("{}")
    with pytest.raises(ns.InputError, match="base must be a folder of a language model; got"):
        ns.audit(model, TRAIN, TEST, base=tmp_path / "base", progress=False)


SHARDS = {"max_shard_size": "10KB"}


def test_a_base_in_several_files_is_read_whole(model, base, audited, tmp_path):
    base.save_pretrained(tmp_path, **SHARDS)
    assert len(list(tmp_path.glob("model-0*.safetensors"))) > 2 and not (tmp_path / "model.safetensors").exists()
    found = ns.audit(model, TRAIN, TEST, base=tmp_path, progress=False)
    np.testing.assert_allclose(found.records["base_gain"], audited.records["base_gain"], **CLOSE)


def without_a_file(folder, index):
    (folder / sorted(set(index["weight_map"].values()))[1]).unlink()


def without_bytes(folder, index):
    path = folder / sorted(set(index["weight_map"].values()))[1]
    path.write_bytes(path.read_bytes()[:-8])


def another_file(folder, index):
    files = sorted(set(index["weight_map"].values()))
    name = next(name for name, file in index["weight_map"].items() if file == files[0])
    index["weight_map"][name] = files[1]


def elsewhere(folder, index):
    name, file = next(iter(index["weight_map"].items()))
    (folder.parent / "away.safetensors").write_bytes((folder / file).read_bytes())
    index["weight_map"][name] = "../away.safetensors"


def unnamed_file(folder, index):
    lost = sorted(set(index["weight_map"].values()))[1]
    index["weight_map"] = {name: file for name, file in index["weight_map"].items() if file != lost}


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (without_a_file, "which is not there"),
        (without_bytes, "model-00002"),
        (another_file, "and it does not"),
        (elsewhere, "no .safetensors file beside it"),
        (unnamed_file, "of the model's weights are in none of its files"),
        (lambda folder, index: index.clear(), "without a weight_map"),
    ],
)
def test_files_that_are_not_what_their_index_says_are_refused(broken, words, model, base, tmp_path):
    folder = tmp_path / "base"
    base.save_pretrained(folder, **SHARDS)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    broken(folder, index)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ns.InputError, match="base must be a folder of a language model; got") as caught:
        ns.audit(model, TRAIN, TEST, base=folder, progress=False)
    assert words in str(caught.value)


def test_one_file_without_some_of_the_weights_is_refused(model, base, tmp_path):
    saved(base, tmp_path)
    safetensors = extra("safetensors.torch")
    held = safetensors.load_file(tmp_path / "model.safetensors")
    held.pop("transformer.ln_f.weight")
    safetensors.save_file(held, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ns.InputError, match=r"1 of the model's weights are in none of its files: transformer.ln_f.weight"):
        ns.audit(model, TRAIN, TEST, base=tmp_path, progress=False)


def test_a_folder_of_objects_or_of_adapters_is_no_base(model, lora, tmp_path):
    saved(model, tmp_path / "objects")
    (tmp_path / "objects" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "objects" / "pytorch_model.bin")
    with pytest.raises(ns.InputError, match="be a folder with config"):
        ns.audit(model, TRAIN, TEST, base=tmp_path / "objects", progress=False)
    lora.save_pretrained(tmp_path / "adapters")
    with pytest.raises(ns.InputError, match=r"which holds adapters alone\. Give the folder of the model below them"):
        ns.audit(model, TRAIN, TEST, base=tmp_path / "adapters", progress=False)


def test_a_base_with_another_tokenizer_is_named(model, base, tmp_path):
    tokenizers, transformers = extra("tokenizers"), extra("transformers")
    letters = Letters().get_vocab()
    swapped = letters | {"a": letters["b"], "b": letters["a"]}
    for name, vocabulary in (("same", letters), ("other", swapped)):
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="a"))
        transformers.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(saved(base, tmp_path / name))
    ns.audit(model, TRAIN, TEST, base=tmp_path / "same", tokenizer=Letters(), progress=False)
    with pytest.raises(ns.InputError, match=r"base must have the audited model's tokenizer; got 2 numbers .*0 is 'a' and 'b'"):
        ns.audit(model, TRAIN, TEST, base=tmp_path / "other", tokenizer=Letters(), progress=False)
    reserved = Letters()
    reserved.added_tokens_decoder = {0: "a", 1: "b"}  # a chat format has given names to two reserved tokens
    assert "base_gain" in ns.audit(model, TRAIN, TEST, base=tmp_path / "other", tokenizer=reserved, progress=False).records


TARGET = """
from pathlib import Path

import transformers

import noshadow as ns
from language_base_models import Letters, chains


def loaded(name):
    return transformers.AutoModelForCausalLM.from_pretrained(Path(__file__).parent / name)


def target():
    return ns.Target(loaded("tuned"), chains(60, seed=2), chains(200, seed=3), tokenizer=Letters())


def base():
    return loaded("base")
"""


def test_the_command_line_takes_a_folder(model, base, tmp_path, monkeypatch):
    (tmp_path / "lm_target.py").write_text(TARGET)
    saved(base, tmp_path / "base")
    saved(model, tmp_path / "tuned")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    tables = []
    for number, given in enumerate(("base", "lm_target:base")):
        told = CliRunner().invoke(app, ["audit", "lm_target:target", "--base", given, "--out", f"out{number}", "--quiet", "--json"])
        assert told.exit_code == 0, told.output
        assert json.loads(told.stdout)["best_known"]["source"] == "compared" and len(json.loads(told.stdout)["sequence_attacks"]) == 8
        tables.append(ns.load(tmp_path / f"out{number}").records)
    assert tables[0].equals(tables[1]) and "zlib_ratio" in tables[0]
    told = CliRunner().invoke(app, ["audit", "lm_target:target", "--base", "base", "--out", "loud"])
    assert "Gain over the base from each sequence itself: AUC" in told.stdout


def test_statistics_are_kept_only_when_asked_for(model):
    plain = sequence_losses(model, TRAIN, progress=False)
    assert isinstance(plain, SequenceLosses) and plain.statistics is None and plain.sequences is None


def test_importing_noshadow_loads_no_peft():
    code = (
        "import sys, noshadow, noshadow.views; noshadow.views.adapters_of(1); print('peft' in sys.modules, 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == ["False", "False"]
