"""Losses of sequences under causal language models, against prefixes run one by one."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

import noshadow as ns
from extras import extra
from noshadow import views
from noshadow.checks import NotApplicable
from noshadow.views import is_causal_lm, sequence_features, sequence_losses
from tiny_language_models import CONTEXT, VOCABULARY, gpt2, ragged, token_losses_by_hand

# float32 logits of order 1, summed in another order when a batch is padded.
CLOSE = {"rtol": 0, "atol": 2e-6}
LENGTHS = (2, 5, 16, 9, 3, 16, 12)


def by_hand(model, sequences):
    return np.array([token_losses_by_hand(model, tokens).mean() for tokens in sequences])


def padded(sequences, *, left, pad=0):
    """input_ids and attention_mask of one width."""
    width = max(map(len, sequences)) + 2
    ids, mask = np.full((len(sequences), width), pad), np.zeros((len(sequences), width), dtype=np.int64)
    for row, tokens in enumerate(sequences):
        place = slice(width - len(tokens), width) if left else slice(0, len(tokens))
        ids[row, place], mask[row, place] = tokens, 1
    return {"input_ids": ids, "attention_mask": mask}


def losses(model, data, **settings):
    return sequence_losses(model, data, progress=False, **settings)


def test_losses_are_those_of_prefixes_run_one_by_one():
    model, sequences = gpt2(), ragged(LENGTHS)
    found = losses(model, sequences, batch_size=3)
    np.testing.assert_allclose(found.loss, by_hand(model, sequences), **CLOSE)
    assert found.tokens.tolist() == [length - 1 for length in LENGTHS] and found.windows.tolist() == [1] * len(LENGTHS)
    assert found.loss.dtype == np.float64 and np.ptp(found.loss) > 0.5  # losses that do differ, or nothing is shown


def test_losses_are_those_transformers_itself_computes():
    model, tokens = gpt2(), ragged([12])[0]
    labels = [-100 if place % 3 == 0 else token for place, token in enumerate(tokens)]
    found = losses(model, {"input_ids": [tokens], "labels": [labels]})
    model.eval()
    with torch.no_grad():
        loss = float(model(torch.tensor([tokens]), labels=torch.tensor([labels])).loss)
    assert found.loss[0] == pytest.approx(loss, abs=2e-6) and found.tokens.tolist() == [8]


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_padding_on_either_side_changes_nothing(left):
    model, sequences = gpt2(), ragged(LENGTHS)
    plain, found = losses(model, sequences), losses(model, padded(sequences, left=left))
    np.testing.assert_array_equal(found.loss, plain.loss)
    assert found.data_sha256 == plain.data_sha256 and found.tokens.tolist() == plain.tokens.tolist()


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_pad_tokens_at_the_ends_need_no_mask_when_they_are_nothing_else(left):
    model = gpt2(pad_token_id=0)
    sequences = ragged(LENGTHS, low=1)
    found = losses(model, padded(sequences, left=left)["input_ids"])
    np.testing.assert_array_equal(found.loss, losses(model, sequences).loss)


def test_a_pad_token_that_also_ends_texts_needs_a_mask():
    model = gpt2(pad_token_id=0, eos_token_id=0)
    with pytest.raises(
        ns.InputError, match="data sequence 1 must come with an attention_mask when it may be padded; got 2 times the token 0"
    ):
        losses(model, [[3, 4, 0], [5, 6, 0, 0]])
    assert losses(model, [[3, 4, 0]]).tokens.tolist() == [2]
    masked = losses(model, {"input_ids": [[5, 6, 0, 0]], "attention_mask": [[1, 1, 1, 0]]})
    assert masked.tokens.tolist() == [2]


def test_labels_of_minus_100_do_not_count():
    model, tokens = gpt2(), ragged([10])[0]
    labels = [-100] * 6 + tokens[6:]
    found = losses(model, [{"input_ids": tokens, "labels": labels}])
    assert found.loss[0] == pytest.approx(token_losses_by_hand(model, tokens)[5:].mean(), abs=2e-6) and found.tokens.tolist() == [4]


def windowed_by_hand(model, tokens, context, stride):
    """Every token once: predicted in the first window that holds it, from what that window has before it."""
    starts, n = [0], len(tokens)
    while starts[-1] + context < n:
        starts.append(min(starts[-1] + stride, n - context))
    found = {}
    for start in starts:
        for place, loss in enumerate(token_losses_by_hand(model, tokens[start : start + context]), start + 1):
            found.setdefault(place, loss)
    assert sorted(found) == list(range(1, n))
    return np.mean(list(found.values())), len(starts)


@pytest.mark.parametrize(("length", "stride"), [(17, None), (40, None), (40, 15), (41, 3), (33, 1), (16, None)])
def test_long_sequences_are_scored_in_windows_each_token_once(length, stride):
    model, (tokens,) = gpt2(), ragged([length])
    found = losses(model, [tokens], stride=stride, batch_size=2)
    expected, windows = windowed_by_hand(model, tokens, CONTEXT, stride or CONTEXT // 2)
    assert found.loss[0] == pytest.approx(expected, abs=2e-6)
    assert found.tokens.tolist() == [length - 1] and found.windows.tolist() == [windows]
    assert (found.context, found.stride) == (CONTEXT, stride or CONTEXT // 2)


def test_within_the_first_window_a_window_changes_nothing():
    model, (tokens,) = gpt2(context=64), ragged([40])
    first = [*tokens[:16], *[-100] * 24]
    whole, parts = (
        losses(model, [{"input_ids": tokens, "labels": first}]),
        losses(model, [{"input_ids": tokens, "labels": first}], context=16),
    )
    assert whole.tokens.tolist() == parts.tokens.tolist() == [15]
    np.testing.assert_allclose(parts.loss, whole.loss, **CLOSE)


def test_a_smaller_context_sees_less():
    model, (tokens,) = gpt2(context=64), ragged([40])
    assert abs(losses(model, [tokens], context=4).loss[0] - losses(model, [tokens]).loss[0]) > 1e-3


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        return self.items[row]


def test_every_form_of_the_data_gives_the_same_losses():
    model, sequences = gpt2(), ragged([6] * 5)
    array = np.array(sequences)
    plain = losses(model, sequences)
    forms = [
        array,
        torch.from_numpy(array),
        {"input_ids": sequences},
        {"input_ids": torch.from_numpy(array), "attention_mask": torch.ones(5, 6)[:, :6].long(), "labels": array},
        [torch.tensor(tokens) for tokens in sequences],
        [np.array(tokens, dtype=np.int32) for tokens in sequences],
        Items([{"input_ids": tokens, "label": "x"} for tokens in sequences]),
        Items(sequences),
        TensorDataset(torch.from_numpy(array)),
        extra("transformers").BatchEncoding({"input_ids": sequences}),
    ]
    for form in forms:
        found = losses(model, form)
        np.testing.assert_array_equal(found.loss, plain.loss)
        assert found.ids.tolist() == [0, 1, 2, 3, 4] and found.data_sha256 == plain.data_sha256
    part = losses(model, Subset(Items(sequences), [4, 1]))
    assert part.ids.tolist() == [4, 1]
    np.testing.assert_allclose(part.loss, plain.loss[[4, 1]], **CLOSE)


def test_batch_sizes_order_and_memory_limit_change_nothing(monkeypatch):
    model, sequences = gpt2(), ragged((*LENGTHS, 30, 40))
    found = losses(model, sequences)
    np.testing.assert_allclose(losses(model, sequences, batch_size=1).loss, found.loss, **CLOSE)
    np.testing.assert_allclose(losses(model, sequences[::-1]).loss, found.loss[::-1], **CLOSE)
    monkeypatch.setattr("noshadow.views.token_windows.LOGITS_AT_ONCE", 1)
    monkeypatch.setattr("noshadow.views.token_statistics.NUMBERS_AT_ONCE", 1)
    np.testing.assert_allclose(losses(model, sequences).loss, found.loss, **CLOSE)


def test_the_model_and_the_data_are_left_as_they_were():
    model, sequences = gpt2(), ragged(LENGTHS)
    before, given = {name: value.clone() for name, value in model.state_dict().items()}, [list(tokens) for tokens in sequences]
    state = torch.random.get_rng_state()
    array = np.array(ragged([6] * 3))
    kept = array.copy()
    losses(model, sequences)
    losses(model, array)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.training and all(parameter.grad is None for parameter in model.parameters())
    assert sequences == given and (array == kept).all() and torch.equal(state, torch.random.get_rng_state())


def test_half_precision_models_are_summed_in_float64():
    model, sequences = gpt2(), ragged([8] * 4)
    found, half = losses(model, sequences), losses(model.to(torch.bfloat16), sequences)
    # bfloat16 keeps about three digits of the weights and activations
    np.testing.assert_allclose(half.loss, found.loss, rtol=0.1)
    assert half.loss.dtype == np.float64


def test_other_causal_models_without_a_limit_read_a_sequence_whole():
    transformers = extra("transformers")
    shape = {"vocab_size": VOCABULARY, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 1, "expand": 1, "time_step_rank": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.MambaForCausalLM(transformers.MambaConfig(**shape, pad_token_id=None, bos_token_id=None, eos_token_id=None))
    sequences = ragged((40, 7))
    found = losses(model, sequences)
    np.testing.assert_allclose(found.loss, by_hand(model, sequences), rtol=0, atol=1e-5)
    assert found.context is None and found.windows.tolist() == [1, 1]


def test_only_causal_language_models_are_taken():
    transformers = extra("transformers")
    small = {"vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    classifier = transformers.BertForSequenceClassification(transformers.BertConfig(**small))
    masked = transformers.BertForMaskedLM(transformers.BertConfig(**small))
    for model in (classifier, masked, torch.nn.Linear(2, 2), "gpt2", transformers.GPT2Model(gpt2().config)):
        assert not is_causal_lm(model)
        with pytest.raises(ns.InputError, match=f"model must be a language model of transformers; got .* {type(model).__name__}"):
            losses(model, [[1, 2]])


def test_a_model_that_sees_later_tokens_is_refused():
    transformers = extra("transformers")
    small = {"vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    for is_decoder in (False, True):
        config = transformers.BertConfig(**small, is_decoder=is_decoder, pad_token_id=None)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = transformers.BertLMHeadModel(config)
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.5)
        if is_decoder:
            np.testing.assert_allclose(losses(model, ragged([9])).loss, by_hand(model, ragged([9])), **CLOSE)
        else:
            with pytest.raises(ns.InputError, match="model must predict each token from those before it; got a BertLMHeadModel"):
                losses(model, ragged([9]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "data must hold at least one sequence; got none"),
        ([[1, 2], []], r"got 1 with nothing to predict, the first sequence 1 \(an empty one\). Drop these"),
        ([[1, 2], [3], [4]], r"got 2 with nothing to predict, the first sequence 1 \(one token\)"),
        ({"input_ids": [[1, 2, 3]], "labels": [[1, -100, -100]]}, r"sequence 0 \(3 tokens whose labels are all -100\)"),
        ({"input_ids": [[1, 2]], "attention_mask": [[0, 0]]}, r"first sequence 0 \(an empty one\)"),
        ([[1, 2], [3, VOCABULARY]], f"data sequence 1 must hold token ids in 0 … 22; got {VOCABULARY} at token 1. Was it tokenised"),
        ([[1, -1]], "token ids in 0 … 22; got -1 at token 1"),
        ([[1.0, 2.0]], "data sequence 0 input_ids must be one row of whole numbers; got shape .2,., dtype float64"),
        ([[[1], [2]]], "must be one row of whole numbers; got shape"),
        ([[[1], [2, 3]]], "must be one row of whole numbers; got rows of unequal length"),
        ([3, 4], "data sequence 0 input_ids must be one row of whole numbers; got int"),
        ("some text", "data must be token-id sequences, a dict with input_ids, or a map-style Dataset of such; got str. Tokenise"),
        (["some text"], "data sequence 0 input_ids must be token ids; got text. Tokenise it first"),
        (7, "data must be token-id sequences.*; got int"),
        ({"text": ["a"]}, "data must hold input_ids; got keys text. Tokenise"),
        ([{"text": "a"}], "data must hold input_ids; got keys text in sequence 0"),
        ([{"input_ids": None}], "data must be token-id sequences"),
        ({"input_ids": [[1, 2]], "labels": [[1, 2], [3, 4]]}, r"data\['labels'\] must hold one sequence a record; got 2 beside 1"),
        ({"input_ids": [[1, 2]], "labels": 3}, r"data\['labels'\] must hold one sequence a record; got int"),
        ({"input_ids": [[1, 2]], "attention_mask": [[1, 1, 1]]}, r"attention_mask must have one entry a token \(2\); got 3"),
        ({"input_ids": [[1, 2]], "attention_mask": [[1, 2]]}, "attention_mask must hold 0 and 1; got 1 … 2"),
        (
            {"input_ids": [[1, 2, 3]], "attention_mask": [[1, 0, 1]]},
            "attention_mask must be 0 at the ends only; got 0 at token 1 in between",
        ),
        ({"input_ids": [[1, 2, 3]], "labels": [[2, 3, -100]]}, "labels must repeat input_ids, or be -100 .*; got 2 for 1 at token 0"),
        (DataLoader([[1, 2]]), "got a DataLoader. Pass its data set"),
    ],
)
def test_wrong_data_gets_one_sentence(data, message):
    with pytest.raises(ns.InputError, match=message):
        losses(gpt2(), data)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": 17}, "context must be at most the model's 16 tokens; got 17"),
        ({"context": 1}, "context must be a whole number ≥ 2; got 1"),
        ({"stride": 16}, "stride must be less than the context; got 16 with a context of 16"),
        ({"stride": 0}, "stride must be a whole number ≥ 1; got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number ≥ 1; got 0"),
        ({"device": "nowhere"}, "device must be one that torch can use here; got 'nowhere'"),
    ],
)
def test_wrong_settings_get_one_sentence(settings, message):
    with pytest.raises(ns.InputError, match=message):
        losses(gpt2(), [[1, 2, 3]], **settings)


def test_losses_that_are_not_finite_are_counted_and_placed():
    model = gpt2()
    with torch.no_grad():
        model.transformer.wte.weight[5] = torch.nan
        model.lm_head.weight = torch.nn.Parameter(torch.ones(VOCABULARY, 8))  # untied: only sequences with the token suffer
    with pytest.raises(
        ns.InputError, match="give finite losses; got 2 NaN or infinite among those of 4 sequences of data, the first at sequence 1"
    ):
        losses(model, [[1, 2], [5, 2], [3, 4], [5, 1, 2]])


def test_a_model_that_fails_or_gives_other_shapes_gets_one_sentence(monkeypatch):
    model = gpt2()

    def broken(input_ids, attention_mask):
        raise RuntimeError("out of memory\nand a long story")

    monkeypatch.setattr(model, "forward", broken)
    with pytest.raises(ns.InputError, match=r"model must run on token ids and their attention mask; got RuntimeError \(out of memory\)"):
        losses(model, [[1, 2]])
    monkeypatch.setattr(model, "forward", lambda input_ids, attention_mask: SimpleNamespace(logits=torch.zeros(1, 1, VOCABULARY)))
    with pytest.raises(ns.InputError, match=r"model must give one row of logits a token; got shape \(1, 1, 23\) for \(1, 2\) tokens"):
        losses(model, [[1, 2]])


def features(model, data, **settings):
    return sequence_features(model, data, progress=False, **settings)


def token_losses(head):
    """−log p of every scored token from the features and the head alone."""
    logits = head.features.astype(np.float64) @ head.weight.T + (0.0 if head.bias is None else head.bias)
    largest = logits.max(1, keepdims=True)
    return np.log(np.exp(logits - largest).sum(1)) + largest[:, 0] - logits[np.arange(len(logits)), head.labels]


def test_features_are_what_the_head_saw_where_each_token_was_predicted():
    model, sequences = gpt2(), ragged(LENGTHS)
    found, head = features(model, sequences, batch_size=3)
    np.testing.assert_array_equal(found.loss, losses(model, sequences, batch_size=3).loss)
    assert head.starts.tolist() == [0, *np.cumsum(found.tokens)] and head.features.dtype == np.float32 and head.tied
    assert head.labels.tolist() == [token for tokens in sequences for token in tokens[1:]] and head.residual < 1e-6
    model.eval()
    with torch.no_grad():
        hidden = [model.transformer(torch.tensor([tokens])).last_hidden_state[0, :-1].numpy() for tokens in sequences]
    np.testing.assert_allclose(head.features, np.concatenate(hidden), rtol=0, atol=1e-5)
    assert not model.lm_head._forward_hooks


@pytest.mark.parametrize("length", [16, 17, 40, 41])
def test_features_of_windows_are_in_the_order_of_the_tokens(length):
    model, sequences = gpt2(), ragged([5, length, 7])
    found, head = features(model, sequences, batch_size=2)
    expected = []
    for tokens in sequences:
        starts, seen = [0], {}
        while starts[-1] + CONTEXT < len(tokens):
            starts.append(min(starts[-1] + CONTEXT // 2, len(tokens) - CONTEXT))
        for start in starts:
            for place, loss in enumerate(token_losses_by_hand(model, tokens[start : start + CONTEXT]), start + 1):
                seen.setdefault(place, loss)
        expected += [seen[place] for place in range(1, len(tokens))]
    np.testing.assert_allclose(token_losses(head), expected, rtol=0, atol=1e-5)
    assert head.labels.tolist() == [token for tokens in sequences for token in tokens[1:]]
    np.testing.assert_allclose(found.loss, [part.mean() for part in np.split(np.array(expected), head.starts[1:-1])], rtol=0, atol=1e-5)


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_padding_and_ignored_labels_leave_no_features(left):
    model, sequences = gpt2(), ragged(LENGTHS)
    plain, head = features(model, sequences)[1], features(model, padded(sequences, left=left))[1]
    np.testing.assert_array_equal(head.features, plain.features)
    np.testing.assert_array_equal(head.labels, plain.labels)
    labels = [[token if place % 2 else -100 for place, token in enumerate(tokens)] for tokens in sequences]
    some = features(model, {"input_ids": sequences, "labels": labels})[1]
    kept = np.concatenate([np.arange(1, length) % 2 == 1 for length in LENGTHS])
    np.testing.assert_array_equal(some.features, plain.features[kept])
    assert some.starts.tolist() == [0, *np.cumsum([length // 2 for length in LENGTHS])]


def test_heads_with_a_bias_and_in_half_precision_are_read():
    model, sequences = gpt2(), ragged(LENGTHS)
    model.lm_head.bias = torch.nn.Parameter(torch.linspace(-2, 2, VOCABULARY))
    found, head = features(model, sequences)
    np.testing.assert_array_equal(head.bias, torch.linspace(-2, 2, VOCABULARY).numpy())
    np.testing.assert_allclose(np.add.reduceat(token_losses(head), head.starts[:-1]) / found.tokens, found.loss, rtol=0, atol=1e-5)
    half = features(gpt2().to(torch.bfloat16), sequences)[1]
    assert half.features.dtype == np.float32 and half.residual < 0.03


def test_a_head_that_cannot_be_read_says_why_and_leaves_the_losses(monkeypatch):
    sequences, plain = ragged(LENGTHS), losses(gpt2(), ragged(LENGTHS)).loss

    def reason(model, *, same=True, **settings):
        found, why = features(model, sequences, **settings)
        assert isinstance(why, NotApplicable) and (not same or np.array_equal(found.loss, plain))
        return str(why)

    assert reason(gpt2(), max_memory=100) == (
        "the head's inputs at 56 tokens × 8 features take 1.79e-06 GB, more than the 1e-07 GB allowed"
    )
    for head, words in ((None, "names no output head"), (torch.nn.Identity(), "output head is a Identity, not a plain Linear")):
        model = gpt2()
        monkeypatch.setattr(model, "get_output_embeddings", lambda head=head: head)
        assert words in reason(model)
    idle = gpt2()
    monkeypatch.setattr(idle, "get_output_embeddings", lambda: torch.nn.Linear(8, VOCABULARY))
    assert reason(idle) == "its output head does not run once for every token"
    capped = gpt2()
    capped.lm_head.register_forward_hook(lambda module, inputs, output: 5 * torch.tanh(output / 5))
    assert "its logits are not those of its output head (they differ by a share of " in reason(capped, same=False)


def test_other_views_point_to_the_right_door():
    for call in (ns.collect_signals, views.collect_outputs, lambda model, data: views.view(model, data, None)):
        with pytest.raises(ns.InputError, match="must give one row of outputs per record; got the language model GPT2LMHeadModel"):
            call(gpt2(), [[1, 2]])


def test_without_transformers_nothing_is_a_language_model_and_nothing_imports_it():
    code = "import sys, torch, noshadow.views; print(noshadow.views.is_causal_lm(torch.nn.Linear(1, 1)), 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == ["False", "False"]
