"""Language models whose weights are in few bits: the audit goes on, and says what it could not take and why."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

import noshadow as ns
from extras import extra
from language_base_models import VOCABULARY, chains, trained, with_lora
from language_fixtures import TRAIN, base_fixture, model_fixture  # noqa: F401 - fixtures by their names
from noshadow.scores.own_gain import own_gain
from noshadow.views import storage_words, weights_sha256

TEST = chains(60, seed=3)
UNKNOWN = (torch.ops.aten.equal.default, torch.ops.aten.view.default, torch.ops.aten.view.dtype)


class Rounded(torch.Tensor):
    """Weights in eight bits as libraries keep them: a tensor of their own that knows some operations and not others."""

    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @classmethod
    def of(cls, weight):
        scale = weight.detach().abs().max() / 127
        return cls((weight.detach() / scale).round().to(torch.int8), scale)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in UNKNOWN:
            raise NotImplementedError(f"Rounded dispatch: attempting to run unimplemented operator {func}\nand more")
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            return cls(args[0].codes, args[0].scale)
        plain = tree_map(lambda one: one.codes.float() * one.scale if isinstance(one, cls) else one, (args, kwargs or {}))
        return func(*plain[0], **plain[1])


def in_eight_bits(model):
    """A copy whose linear layers have weights of `Rounded`."""
    made = copy.deepcopy(model)
    for layer in made.modules():
        if type(layer).__name__ in ("Conv1D", "Linear"):
            layer.weight = nn.Parameter(Rounded.of(layer.weight), requires_grad=False)
    return made


@pytest.fixture(scope="module")
def llamas():
    """A base and its fine-tune; Llama's layers are `nn.Linear`, which torch quantises by itself."""
    transformers = extra("transformers")
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16}
    torch.manual_seed(0)
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=VOCABULARY, **shape, bos_token_id=None, eos_token_id=None))
    trained(base, chains(100, seed=1), epochs=2, rate=1e-2)
    return base, trained(copy.deepcopy(base), TRAIN, epochs=5, rate=1e-2)


def audited(model, **given):
    return ns.audit(model, TRAIN, TEST, progress=False, **given)


def test_weights_in_a_form_of_a_library_cost_what_lies_between_and_nothing_else(model, base):
    found = audited(in_eight_bits(model), base=base)
    assert found.not_applicable["own_gain"].endswith(
        "weights are stored in few bits (Rounded), and there is nothing between base and model"
    )
    assert "output head (Linear) are stored in few bits" in found.not_applicable["influence"]
    assert {"base_gain", "window_votes"} <= set(found.records.columns)
    assert any("stored in few bits (Rounded): losses are those of the rounded model" in note for note in found.notes)


def test_a_digest_holds_the_codes_of_weights_in_few_bits(model):
    one, other = in_eight_bits(model), in_eight_bits(model)
    assert weights_sha256(one, np.zeros(1)) == weights_sha256(other, np.zeros(1))
    other.transformer.h[0].attn.c_attn.weight.codes[0, 0] += 1
    assert weights_sha256(one, np.zeros(1)) != weights_sha256(other, np.zeros(1))


def test_adapters_on_weights_in_few_bits_are_audited(base):
    lora = with_lora(in_eight_bits(base), target_modules=["c_attn"])
    trained(lora, TRAIN, epochs=2, rate=1e-2)
    assert {"base_gain", "own_gain"} <= set(audited(lora).records.columns)


@pytest.mark.filterwarnings("ignore:.*torch.ao.quantization is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_layers_that_torch_quantises_while_they_run(llamas):
    base, model = llamas
    rounded = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear}, dtype=torch.qint8)
    found = audited(rounded, base=base)
    assert found.not_applicable["own_gain"].startswith("not applicable: weights are stored in 8 bits (and activations")
    assert "base_gain" in found.records and storage_words(rounded).startswith("8 bits") and storage_words(model) == ""
    # Packed weights are no tensors of a state, and are the model all the same.
    other = torch.ao.quantization.quantize_dynamic(copy.deepcopy(base), {nn.Linear}, dtype=torch.qint8)
    with torch.no_grad():
        other.model.embed_tokens.weight.copy_(rounded.model.embed_tokens.weight)
        for one, own in zip(other.parameters(), rounded.parameters(), strict=True):
            one.copy_(own)
    assert weights_sha256(rounded, np.zeros(1)) != weights_sha256(other, np.zeros(1))


def test_both_in_four_bits_is_no_matter_of_other_weights(model, base):
    """Codes of two models have shapes of their own: the reason is the bits."""
    four = [copy.deepcopy(one) for one in (model, base)]
    for one, size in zip(four, (5, 7), strict=True):
        one.transformer.h[0].register_parameter("packed", nn.Parameter(torch.zeros(size, dtype=torch.uint8), requires_grad=False))
        one.config.quantization_config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    reason = audited(four[0], base=four[1]).not_applicable["own_gain"]
    assert reason.endswith("weights are stored in 4 bits (bitsandbytes), and there is nothing between base and model")


def test_gradients_that_do_not_come_through_few_bits_are_said_to(base, monkeypatch):
    lora = with_lora(base)
    trained(lora, TRAIN, epochs=2, rate=1e-2)
    lora.get_base_model().config.quantization_config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    monkeypatch.setattr("noshadow._audit.own_gains.gradient_kernel", lambda *_, **__: np.zeros((len(TRAIN) + len(TEST),) * 2))
    reason = audited(lora).not_applicable["own_gain"]
    told = "the sequences' gradients are zero or not finite, which are taken through weights in 4 bits (bitsandbytes)"
    assert reason == f"not applicable: {told}"
    with pytest.raises(ns.NumericalError, match="zero or not finite"):
        own_gain(np.zeros(3), np.zeros((3, 3)))
