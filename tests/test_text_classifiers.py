"""Classifiers of texts: heads that run at every token, padding, recurrent layers, all layers."""

import copy
import sys

import numpy as np
import pytest
import torch
from torch import nn

import noshadow as ns
from extras import extra
from noshadow.checks import InputError

WORDS, LENGTH, RECORDS, OTHERS = 40, 8, 24, 16


class Texts(torch.utils.data.Dataset):
    """Random token ids of 3 to 8 tokens, padded on the right with 0; the first token decides."""

    def __init__(self, records, seed):
        draw = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(records):
            ids = torch.randint(2, WORDS, (LENGTH,), generator=draw)
            used = int(torch.randint(3, LENGTH + 1, (1,), generator=draw))
            ids[used - 1], ids[used:] = 1, 0
            mask = (torch.arange(LENGTH) < used).long()
            self.items.append({"input_ids": ids, "attention_mask": mask, "labels": int(ids[0] < 20)})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        return self.items[row]

    def stacked(self, key):
        return torch.stack([torch.as_tensor(item[key]) for item in self.items])


TRAIN, TEST = Texts(RECORDS, 0), Texts(OTHERS, 1)
IDS, LABELS = TRAIN.stacked("input_ids"), TRAIN.stacked("labels")
SMALL = {"vocab_size": WORDS, "num_labels": 2, "pad_token_id": 0}
ENCODER = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 10, "max_position_embeddings": 16}


def classifier(name):
    transformers = extra("transformers")
    torch.manual_seed(0)
    if name == "bert":
        return transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL, **ENCODER))
    if name == "distilbert":
        config = transformers.DistilBertConfig(**SMALL, dim=12, n_layers=1, n_heads=2, hidden_dim=10, max_position_embeddings=16)
        return transformers.DistilBertForSequenceClassification(config)
    if name == "roberta":
        return transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**SMALL, **ENCODER))
    if name == "gpt2":
        config = transformers.GPT2Config(**SMALL, n_positions=16, n_embd=12, n_layer=1, n_head=2, bos_token_id=None, eos_token_id=None)
        return transformers.GPT2ForSequenceClassification(config)
    if name == "llama":
        config = transformers.LlamaConfig(**SMALL, **ENCODER, num_key_value_heads=2)
        return transformers.LlamaForSequenceClassification(config)
    sizes = {"d_model": 12, "d_kv": 6, "d_ff": 10, "num_layers": 1, "num_heads": 2}
    config = transformers.T5Config(**SMALL, **sizes, eos_token_id=1, decoder_start_token_id=0)
    return transformers.T5ForSequenceClassification(config)


class TokenHead(nn.Module):
    """Logits of every token, then pooled; `pool` maps (logits (b, T, m), ids) to (b, m)."""

    def __init__(self, pool, bias=True):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 6), nn.Linear(6, 2, bias=bias)
        self.pool = pool

    def forward(self, ids):
        return self.pool(self.head(self.words(ids).cumsum(1).tanh()), ids)


def mean_of_words(logits, ids):
    words = (ids != 0).to(logits.dtype)[:, :, None]
    return (logits * words).sum(1) / words.sum(1)


class Recurrent(nn.Module):
    def __init__(self, kind, packed=False, **options):
        super().__init__()
        self.words = nn.Embedding(WORDS, 5, padding_idx=0)
        self.layer = kind(5, 4, batch_first=True, **options)
        self.head = nn.Linear(8 if self.layer.bidirectional else 4, 2)
        self.packed = packed

    def forward(self, ids):
        words = self.words(ids)
        if self.packed:
            lengths = (ids != 0).sum(1).cpu()
            words = nn.utils.rnn.pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        _, states = self.layer(words)
        last = states[0] if isinstance(states, tuple) else states
        return self.head(torch.cat(list(last[-2:]), 1) if self.layer.bidirectional else last[-1])


def same_scores(found, expected):
    for column in ("shift", "loo", "influence", "newton"):
        np.testing.assert_allclose(getattr(found, column), getattr(expected, column), rtol=1e-7, atol=1e-12, err_msg=column)


@pytest.mark.parametrize("name", ["bert", "distilbert", "roberta", "gpt2", "llama", "t5"])
def test_classifiers_of_transformers_are_audited_as_they_are(name):
    model = classifier(name)
    audit = ns.audit(model, TRAIN, TEST, weight_decay=0.01, progress=False)
    with torch.no_grad():
        # One by one: nothing that a batch does to a record can be hidden.
        own = torch.cat([model.eval()(**{k: torch.as_tensor(v)[None] for k, v in item.items()}).logits for item in TRAIN.items])
    losses = nn.functional.cross_entropy(own.double(), LABELS, reduction="none")
    # float32 in batches and alone
    np.testing.assert_allclose(audit.records["loss"], losses, rtol=1e-4)
    assert audit.records["shift"].notna().all()
    assert audit.model_risk.auc is not None


def test_a_decoders_head_is_scored_on_the_token_that_it_picks():
    model = classifier("gpt2").eval()
    seen = ns.collect_signals(model, TRAIN)
    last = TRAIN.stacked("attention_mask").sum(1) - 1
    with torch.no_grad():
        hidden = model.transformer(input_ids=IDS, attention_mask=TRAIN.stacked("attention_mask")).last_hidden_state
    expected = hidden[torch.arange(RECORDS), last]
    np.testing.assert_array_equal(seen.features, expected)
    np.testing.assert_allclose(seen.outputs, expected @ model.score.weight.detach().T, rtol=1e-5, atol=1e-6)
    audit = ns.audit(model, TRAIN, TEST, weight_decay=0.01, progress=False)
    assert "pooled over positions" in audit.provenance["head"]
    alone = ns.record_scores(expected.numpy(), seen.outputs, LABELS.numpy(), fit_intercept=False, damping=0.01 * RECORDS)
    np.testing.assert_allclose(audit.records["shift"], alone.shift, rtol=1e-6)
    named = ns.collect_signals(model, TRAIN, layer="score")
    np.testing.assert_array_equal(named.features, seen.features)


def test_a_weighted_mean_over_tokens_is_the_head_of_the_mean():
    torch.manual_seed(0)
    model = TokenHead(mean_of_words)
    seen = ns.collect_signals(model, (IDS, LABELS))
    words = (IDS != 0).float()
    with torch.no_grad():
        expected = (model.words(IDS).cumsum(1).tanh() * words[:, :, None]).sum(1) / words.sum(1, keepdim=True)
    np.testing.assert_allclose(seen.features, expected, rtol=1e-5, atol=1e-7)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    "pool",
    [
        lambda logits, ids: logits.amax(1),
        lambda logits, ids: logits.sum(1),
        lambda logits, ids: logits.logsumexp(1),
        lambda logits, ids: logits.mean(1).tanh(),
    ],
    ids=["largest", "sum with a bias", "smooth", "bent"],
)
def test_other_poolings_are_refused(pool):
    torch.manual_seed(0)
    with pytest.raises(InputError, match=r"must end in an nn.Linear"):
        ns.collect_signals(TokenHead(pool), (IDS, LABELS))


def test_a_sum_without_a_bias_is_not_taken_for_a_mean():
    torch.manual_seed(0)
    with pytest.raises(InputError, match=r"must end in an nn.Linear"):
        ns.collect_signals(TokenHead(lambda logits, ids: logits.sum(1), bias=False), (IDS, LABELS))


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2"])
def test_all_layers_with_padding_are_those_of_single_records(name):
    model = classifier(name)
    found = ns.network_scores(model, TRAIN, damping=0.1)
    # Plain autograd, record by record: no torch.func, no masks of ours.
    same_scores(found, ns.network_scores(model, TRAIN, damping=0.1, unvectorised="loop"))


def test_padding_does_not_move_the_scores_of_all_layers():
    class Longer(Texts):
        def __getitem__(self, row):
            item = self.items[row]
            return {k: nn.functional.pad(v, (0, 3)) if isinstance(v, torch.Tensor) else v for k, v in item.items()}

    model = classifier("bert")
    same_scores(ns.network_scores(model, Longer(RECORDS, 0), damping=0.1), ns.network_scores(model, TRAIN, damping=0.1))


def test_t5_goes_record_by_record():
    model = classifier("t5")
    with pytest.raises(InputError, match="unvectorised='loop'"):
        ns.network_scores(model, TRAIN, damping=0.1)
    scores = ns.network_scores(model, TRAIN, damping=0.1, unvectorised="loop")
    assert np.isfinite(scores.shift).all()


def test_masks_of_transformers_are_built_as_before_afterwards():
    model = classifier("bert")
    table = sys.modules["transformers.masking_utils"].ALL_MASK_ATTENTION_FUNCTIONS
    before = {name: table[name] for name in ("sdpa", "eager")}
    ns.network_scores(model, TRAIN, damping=0.1, layers=1)
    assert {name: table[name] for name in before} == before


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    ("kind", "options"),
    [(nn.LSTM, {}), (nn.LSTM, {"bidirectional": True, "num_layers": 2}), (nn.LSTM, {"proj_size": 4}), (nn.GRU, {}), (nn.RNN, {})],
    ids=["lstm", "two-way lstm", "projected lstm", "gru", "rnn"],
)
def test_all_layers_of_recurrent_networks(kind, options):
    if options.get("proj_size"):
        options, kind = {}, lambda *sizes, **more: nn.LSTM(sizes[0], 7, proj_size=sizes[1], **more)
    torch.manual_seed(0)
    model = Recurrent(kind, **options)
    found = ns.network_scores(model, (IDS, LABELS), damping=0.1)
    same_scores(found, ns.network_scores(model, (IDS, LABELS), damping=0.1, unvectorised="loop"))


def test_packed_sequences_go_record_by_record():
    torch.manual_seed(0)
    model = Recurrent(nn.LSTM, packed=True)
    with pytest.raises(InputError, match="unvectorised='loop'"):
        ns.network_scores(model, (IDS, LABELS), damping=0.1)
    scores = ns.network_scores(model, (IDS, LABELS), damping=0.1, unvectorised="loop")
    audit = ns.audit(model, (IDS, LABELS), (TEST.stacked("input_ids"), TEST.stacked("labels")), progress=False)
    np.testing.assert_allclose(audit.records["loss"], scores.loss, rtol=1e-4)


@pytest.mark.parametrize("padding", [None, 0])
@pytest.mark.parametrize("mode", ["mean", "sum", "max"])
def test_bags_of_embeddings(mode, padding):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.EmbeddingBag(WORDS, 5, mode=mode, padding_idx=padding), nn.Linear(5, 2)

        def forward(self, ids):
            return self.head(self.words(ids))

    torch.manual_seed(0)
    model = Bag()
    found = ns.network_scores(model, (IDS, LABELS), damping=0.1)
    same_scores(found, ns.network_scores(model, (IDS, LABELS), damping=0.1, unvectorised="loop"))
    assert ns.audit(model, (IDS, LABELS), (IDS[:4], LABELS[:4]), progress=False).records["shift"].notna().all()


# A base, and adapters


def fitted(model, data, epochs):
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 5e-3)
    torch.manual_seed(1)
    model.train()
    for _ in range(epochs):
        for batch in torch.utils.data.DataLoader(data, 16, shuffle=True):
            loss = model(**batch).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model.eval()


@pytest.fixture(scope="module")
def fine_tuned():
    """A base with a head of its own, trained on other texts, and a fine-tune of it."""
    base = fitted(classifier("bert"), Texts(200, 5), 5)
    return base, fitted(copy.deepcopy(base), TRAIN, 10)


def audited(model, **options):
    return ns.audit(model, TRAIN, TEST, weight_decay=0.01, progress=False, **options)


def test_a_base_with_a_head_of_its_own_gives_margins(fine_tuned, tmp_path):
    base, model = fine_tuned
    found = audited(model, base=base)
    with torch.no_grad():
        logits = base(input_ids=IDS, attention_mask=TRAIN.stacked("attention_mask")).logits.double()
    expected = nn.functional.cross_entropy(logits, LABELS, reduction="none")
    np.testing.assert_allclose(found.records["base_loss"], expected, rtol=1e-4)
    assert found.ranked_by == "exposure_score"
    base.save_pretrained(tmp_path / "base")
    np.testing.assert_allclose(audited(model, base=tmp_path / "base").records["base_loss"], found.records["base_loss"])


def test_a_base_without_a_head_is_refused_in_one_sentence(fine_tuned):
    base, model = fine_tuned
    transformers = extra("transformers")
    for headless in (base.bert, transformers.BertForMaskedLM(base.config)):
        with pytest.raises(InputError, match=r"base must have a head of its own .*; got Bert\w+, which has none. Give base= an earlier"):
            audited(model, base=headless)
    with pytest.raises(InputError, match="with its head"):
        audited(model, base=base.bert.state_dict())


def test_a_head_that_was_never_trained_is_told(fine_tuned):
    _, model = fine_tuned
    fresh = classifier("bert")
    with torch.no_grad():
        fresh.classifier.weight.mul_(0.1)
        fresh.classifier.bias.copy_(torch.tensor([1.0, 0.0]))  # always one class
    try:
        notes = audited(model, base=fresh).notes
    except InputError as error:  # margins that contradict the model's
        notes = (str(error),)
    assert any("head was not trained" in note or "was its head trained?" in note for note in notes)


def test_adapters_off_are_the_base_unless_a_head_was_trained(fine_tuned):
    peft = extra("peft")
    base, _ = fine_tuned
    layers = {"r": 4, "target_modules": ["query", "value"], "lora_alpha": 16}
    alone = fitted(peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(**layers)), TRAIN, 8)
    before = {name: value.clone() for name, value in alone.state_dict().items()}
    found = audited(alone)
    np.testing.assert_allclose(found.records["base_loss"], audited(alone, base=base).records["base_loss"], rtol=1e-5)
    assert any("adapters switched off" in note for note in found.notes)
    assert all(torch.equal(value, before[name]) for name, value in alone.state_dict().items())
    beside = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(**layers, task_type="SEQ_CLS"))
    found = audited(fitted(beside, TRAIN, 3))
    assert "base_loss" not in found.records
    assert any("classifier' was trained beside its adapters" in note and "Give base=" in note for note in found.notes)
    assert audited(beside, layers="all").records["shift"].notna().all()


@pytest.mark.parametrize("task_type", ["SEQ_CLS", None])
def test_a_folder_is_the_base_of_adapters(fine_tuned, tmp_path, task_type):
    """A note asked for base=, and its folder was then refused: weights below adapters have other names."""
    peft = extra("peft")
    base, _ = fine_tuned
    layers = peft.LoraConfig(r=4, target_modules=["query", "value"], lora_alpha=16, task_type=task_type)
    tuned = fitted(peft.get_peft_model(copy.deepcopy(base), layers), TRAIN, 8)
    base.save_pretrained(tmp_path / "base")
    found = audited(tuned, base=tmp_path / "base")
    np.testing.assert_allclose(found.records["base_loss"], audited(tuned, base=base).records["base_loss"], rtol=1e-6)
    extra("transformers").BertModel(base.config).save_pretrained(tmp_path / "headless")
    with pytest.raises(InputError, match=r"be a folder of a BertForSequenceClassification; got '.*headless' of BertModel\. Give base="):
        audited(tuned, base=tmp_path / "headless")


@pytest.mark.parametrize("words", [20, 90])
def test_a_base_with_another_vocabulary_is_named(fine_tuned, words):
    """A smaller one was an index out of range, and a larger one another model's numbers for other tokens."""
    _, model = fine_tuned
    config = copy.deepcopy(model.config)
    config.vocab_size = words
    other = type(model)(config)
    with pytest.raises(InputError, match=rf"base must have the audited model's vocabulary of 40 tokens; got {words} tokens \(Bert"):
        audited(model, base=other)
