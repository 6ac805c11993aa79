"""The gain that other sequences do not explain: against plain loops over copied models, and a world in which steps are known."""

import copy
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import noshadow as ns
from extras import extra
from language_base_models import chains, fine_tuned, t5, trained, with_lora
from language_fixtures import base_fixture  # noqa: F401 - a fixture by its name
from noshadow import NumericalError
from noshadow._audit import own_gains as glue
from noshadow._known import best_known
from noshadow.checks import NotApplicable
from noshadow.scores.own_gain import DAMPING, MOST_PER_TOKEN, own_gain, token_gain
from noshadow.views import Settings, TokenStatistics, gradient_kernel, model_between, sequence_gradients, sequence_losses
from tiny_language_models import CONTEXT, gpt2, ragged

TRAIN, TEST = chains(12, seed=2), chains(30, seed=3)
QUIET = Settings(progress=False)


@pytest.fixture(scope="module")
def model(base):
    return fine_tuned(base, TRAIN, epochs=4)


@pytest.fixture(scope="module")
def lora(base):
    return trained(with_lora(base), TRAIN, epochs=10, rate=2e-2)


def read(model, data):
    return sequence_losses(model, data, statistics=True, progress=False)


def kernel_of(model, base, data, share=0.25, max_memory=1e9, **settings):
    own = read(model, data)
    between = model_between(model, base, share)
    how = {"context": own.context, "stride": own.stride, "settings": QUIET, "max_memory": max_memory}
    return gradient_kernel(between, [own.sequences], **(how | settings))


def kernel_by_hand(gradients):
    """Σ_p g_ip g_jp / √(mean² + variance/16) in float64, from the definition."""
    found = np.array(gradients, dtype=float)
    moment = found.mean(0) ** 2 + found.var(0) / 16
    kept = moment > 0
    return (found[:, kept] / np.sqrt(moment[kept])) @ found[:, kept].T


def gradients_by_hand(made, rows, named):
    """Gradient of transformers' own loss, sequence by sequence, of the named parameters."""
    found = []
    for row in rows:
        made.zero_grad()
        ids = torch.tensor([row])
        made(input_ids=ids, labels=ids).loss.backward()
        found.append(np.concatenate([made.get_parameter(name).grad.numpy().ravel() for name in named]))
    return found


def test_the_kernel_is_that_of_gradients_between_base_and_model(model, base):
    made = copy.deepcopy(base)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter += 0.25 * (model.get_parameter(name) - parameter)
    expected = kernel_by_hand(gradients_by_hand(made, TRAIN, [name for name, _ in made.named_parameters()]))
    np.testing.assert_allclose(kernel_of(model, base, TRAIN), expected, rtol=2e-4, atol=2e-5 * np.trace(expected))


def test_adapters_are_scaled_between_base_and_model(lora):
    made = copy.deepcopy(lora)
    named = [name for name, _ in made.named_parameters() if "lora_" in name]
    with torch.no_grad():
        for name in named:
            if "lora_B" in name:
                made.get_parameter(name).mul_(0.25)
    for name in named:
        made.get_parameter(name).requires_grad_(True)
    expected = kernel_by_hand(gradients_by_hand(made, TRAIN, named))
    np.testing.assert_allclose(kernel_of(lora, None, TRAIN), expected, rtol=2e-4, atol=2e-5 * np.trace(expected))


def test_layers_that_were_not_trained_have_no_part(base):
    made = copy.deepcopy(base)
    with torch.no_grad():
        made.transformer.h[0].mlp.c_fc.weight += 0.01
    assert list(model_between(made, base, 0.25).weights) == ["transformer.h.0.mlp.c_fc.weight"]
    expected = copy.deepcopy(base)
    with torch.no_grad():
        expected.transformer.h[0].mlp.c_fc.weight += 0.0025
    found = kernel_by_hand(gradients_by_hand(expected, TRAIN, ["transformer.h.0.mlp.c_fc.weight"]))
    np.testing.assert_allclose(kernel_of(made, base, TRAIN), found, rtol=2e-4, atol=2e-5 * np.trace(found))


def test_long_sequences_and_labels_that_do_not_count_are_read_as_losses_are():
    """∇ of what `sequence_losses` reports, by finite differences along random directions."""
    made, start = gpt2(seed=7).eval(), gpt2(seed=7)  # no dropout
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    rows = ragged((3 * CONTEXT, 2, 5, CONTEXT), seed=5)
    labels = [[-100] * (len(row) // 2) + row[len(row) // 2 :] for row in rows]
    data = {"input_ids": rows, "labels": labels}
    between = model_between(made, start, 1.0)
    own = read(made, data)
    parts = sequence_gradients._numbered([own.sequences], own.context, own.stride)
    found = np.array([sequence_gradients._gradient(between, *row[1:], torch.device("cpu")).numpy() for row in parts], dtype=float)
    rng = np.random.default_rng(0)
    for _ in range(3):
        step, losses = rng.normal(size=found.shape[1]) / found.shape[1] ** 0.5, []
        for sign in (1, -1):
            moved, at = copy.deepcopy(made).double(), 0
            with torch.no_grad():
                for parameter in moved.parameters():
                    parameter += sign * 1e-4 * torch.from_numpy(step[at : at + parameter.numel()]).view_as(parameter)
                    at += parameter.numel()
            losses.append(sequence_losses(moved, data, progress=False).loss)
        np.testing.assert_allclose(found @ step, (losses[0] - losses[1]) / 2e-4, rtol=2e-3, atol=1e-5)


def test_answers_to_texts_have_gradients_too():
    made, start = t5(seed=1), t5(seed=0)
    pairs = [(text[:5], text[5:9]) for text in TRAIN]
    expected, between = [], copy.deepcopy(start).eval()
    with torch.no_grad():
        for name, parameter in between.named_parameters():
            parameter += 0.25 * (made.get_parameter(name) - parameter)
    for text, answer in pairs:
        between.zero_grad()
        between(input_ids=torch.tensor([text]), labels=torch.tensor([answer])).loss.backward()
        expected.append(np.concatenate([parameter.grad.numpy().ravel() for parameter in between.parameters()]))
    expected = kernel_by_hand(expected)
    np.testing.assert_allclose(kernel_of(made, start, pairs), expected, rtol=5e-4, atol=5e-5 * np.trace(expected))


def test_folded_gradients_keep_inner_products_in_the_mean(model, base, monkeypatch):
    whole = kernel_of(model, base, TRAIN)
    width = 4_000
    monkeypatch.setattr(sequence_gradients, "BYTES_PER_PARAMETER", 0)  # a small model, folded all the same
    folded = [kernel_of(model, base, TRAIN, max_memory=2 * 4 * len(TRAIN) * width, seed=seed) for seed in range(8)]
    norms = np.sqrt(np.outer(np.diag(whole), np.diag(whole)))
    errors = np.array([(one - whole) / norms for one in folded])
    assert 0.2 / width**0.5 < errors.std() < 2 / width**0.5  # folded, and no worse than a sketch is
    assert np.abs(errors.mean(0)).max() < 5 * 2 / (8 * width) ** 0.5


def test_steps_of_a_linear_world_are_found():
    """Gains that steps on some sequences bring to all: those steps come back, and the others' teaching does not."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(40, 300)) + 2 * rng.normal(size=300)  # a direction that all share
    kernel = gradients @ gradients.T
    steps = np.where(np.arange(40) < 20, rng.uniform(0.5, 1.5, 40), 0.0)
    gains = kernel @ steps
    scale = np.trace(kernel) / 40
    np.testing.assert_allclose(own_gain(gains, kernel, 1e-9), steps * scale, atol=1e-4 * scale)
    damped = own_gain(gains, kernel)
    inner = gains - kernel @ damped / scale  # what is left is the damping's share of the steps
    np.testing.assert_allclose(inner, DAMPING * damped, rtol=1e-8, atol=1e-8)
    assert ns.metrics.auc(damped[:20], damped[20:]) > 0.99 > 0.95 > ns.metrics.auc(gains[:20], gains[20:])
    order = rng.permutation(40)
    np.testing.assert_allclose(own_gain(gains[order], kernel[np.ix_(order, order)]), damped[order], rtol=1e-9)
    np.testing.assert_allclose(own_gain(gains, 7 * kernel), damped, rtol=1e-9)  # the kernel's unit does not count
    large = own_gain(gains, kernel, 1e9)
    np.testing.assert_allclose(large / large[0], gains / gains[0], rtol=1e-6)


def test_token_gains_are_bounded():
    own = TokenStatistics(np.array([-1.0, -1.0, -9.0, -1.0]), np.zeros(4, bool), np.zeros(4), np.array([0, 3, 4]))
    below = TokenStatistics(np.array([-2.0, -8.0, -1.0, -1.5]), np.zeros(4, bool), np.zeros(4), np.array([0, 3, 4]))
    np.testing.assert_allclose(token_gain(own, below), [(1 + 2 - 2) / 3, 0.5])
    np.testing.assert_allclose(token_gain(own, below, np.inf), [(1 + 7 - 8) / 3, 0.5])


@pytest.mark.parametrize("kernel", [np.zeros((3, 3)), np.full((3, 3), np.nan), np.array([[1.0, np.inf], [np.inf, 1.0]])])
def test_a_kernel_without_numbers_is_said(kernel):
    with pytest.raises(NumericalError, match="gradients are zero or not finite"):
        own_gain(np.ones(len(kernel)), kernel)


def test_the_column_is_in_the_audit_and_is_its_answer(model, base):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    flags = [(p.requires_grad, p.grad is None) for p in model.parameters()]
    model.train()
    audit = ns.audit(model, TRAIN, TEST, base=base, progress=False)
    assert model.training and flags == [(p.requires_grad, p.grad is None) for p in model.parameters()]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    model.eval()
    everything = [*TRAIN, *TEST]
    gains = token_gain(read(model, everything).statistics, read(base, everything).statistics, MOST_PER_TOKEN)
    expected = own_gain(gains, kernel_of(model, base, everything, share=glue.SHARE))
    np.testing.assert_allclose(audit.records["own_gain"], expected[:12], rtol=1e-4, atol=1e-5)
    row = next(row for row in audit.sequence_attacks if row.attack == "own_gain")
    assert row.auc == pytest.approx(ns.metrics.auc(expected[:12], expected[12:]))
    known = best_known(audit)
    assert known.source == "compared" and known.rate == row.rates[0].tpr and "beyond what other sequences explain" in known.reason
    alone = ns.audit(model, TRAIN, None, base=base, progress=False)
    assert "own_gain" in alone.records and alone.sequence_attacks == ()


def without_names(base):
    transformers = extra("transformers")
    settings = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": CONTEXT}
    ends = {"bos_token_id": None, "eos_token_id": None}
    return transformers.GPTNeoXForCausalLM(
        transformers.GPTNeoXConfig(vocab_size=base.config.vocab_size, intermediate_size=16, **settings, **ends)
    )


def test_what_has_nothing_between_it_and_its_base_says_so(model, base, monkeypatch):
    audit = ns.audit(model, TRAIN, TEST, base=without_names(base), progress=False)
    assert "own_gain" not in audit.records and "other weights" in audit.not_applicable["own_gain"]
    assert best_known(audit).source == "compared" and "windows of tokens in which it beats the base model," in best_known(audit).reason
    none = ns.audit(model, TRAIN, TEST, progress=False)
    assert "no base model was given" in none.not_applicable["own_gain"]
    scaled = trained(with_lora(base, use_dora=True), TRAIN, epochs=2, rate=1e-2)
    with pytest.raises(NotApplicable, match="only what LoRA changed in linear layers"):
        model_between(scaled, None, 0.25)
    with pytest.raises(NotApplicable, match="no parameter of the model differs"):
        model_between(model, copy.deepcopy(model), 0.25)
    few = ns.audit(model, TRAIN, TEST, base=base, progress=False, score_options={"max_memory": 3e5})
    assert "more than max_memory allows" in few.not_applicable["own_gain"]
    forward_only = copy.deepcopy(model)
    forward_only.lm_head.register_forward_hook(lambda module, given, found: found.detach())
    stopped = ns.audit(forward_only, TRAIN, TEST, base=base, progress=False)
    assert "gradients cannot be taken" in stopped.not_applicable["own_gain"]
    monkeypatch.setattr(sequence_gradients, "MOST_SEQUENCES", 5)
    many = ns.audit(model, TRAIN, TEST, base=base, progress=False)
    assert "42 sequences are more than the 5" in many.not_applicable["own_gain"]


@pytest.mark.parametrize("beyond", [{"target_modules": ["c_attn", "wte"]}, {"trainable_token_indices": [1, 2]}])
def test_what_adapters_hold_beyond_linear_layers_is_not_left_at_full_strength(base, beyond):
    with pytest.raises(NotApplicable, match=r"only what LoRA changed in linear layers can be scaled .*here is transformer.wte"):
        model_between(with_lora(base, **beyond), None, 0.25)


def test_scaled_adapters_lead_to_the_base_that_was_given_or_the_column_says_so(lora, base, model):
    given = ns.audit(lora, TRAIN, TEST, base=base, progress=False)
    np.testing.assert_allclose(given.records["own_gain"], ns.audit(lora, TRAIN, TEST, progress=False).records["own_gain"], rtol=1e-4)
    several = copy.deepcopy(lora)
    several.add_adapter("other", extra("peft").LoraConfig(r=2, target_modules=["c_proj"], modules_to_save=["ln_f"], fan_in_fan_out=True))
    assert model_between(several, base, 0.25).weights.keys() == model_between(lora, None, 0.25).weights.keys()
    with pytest.raises(NotApplicable, match="other weights than the model below the adapters"):
        model_between(lora, model, 0.25)
    with pytest.raises(NotApplicable, match="other weights than the model below the adapters"):
        model_between(lora, without_names(base), 0.25)
    merged = copy.deepcopy(lora)
    merged.merge_adapter()
    for changed, words in ((merged, "merged into its weights"), (with_lora(base, bias="all"), "together with biases")):
        with pytest.raises(NotApplicable, match=words):
            model_between(changed, base, 0.25)


class OnlyForwards(torch.nn.Module):
    """A layer whose pass fails where it would be walked back, as one does that runs out of memory."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, values):
        if torch.is_grad_enabled():
            raise RuntimeError("out of memory. Tried to allocate 20 GiB")
        return self.layer(values)


def test_a_pass_that_fails_for_its_gradient_costs_the_column_and_nothing_else(model, base):
    one, other = copy.deepcopy(model), copy.deepcopy(base)
    for made in (one, other):
        made.transformer.h[0].mlp = OnlyForwards(made.transformer.h[0].mlp)
    one.train()
    found = ns.audit(one, TRAIN, TEST, base=other, progress=False)
    assert "gradients cannot be taken (out of memory. Tried to allocate 20 GiB)" in found.not_applicable["own_gain"]
    assert "base_gain" in found.records and all(module.training for module in one.modules())
    assert all(parameter.grad is None for parameter in one.parameters())


def test_weights_are_made_when_they_are_needed_and_where_the_model_then_is(model, base, monkeypatch):
    own = read(model, TRAIN)
    how = {"context": own.context, "stride": own.stride, "settings": QUIET}
    refused = model_between(model, base, 0.25)
    with pytest.raises(NotApplicable, match="more than max_memory allows"):
        gradient_kernel(refused, [own.sequences], max_memory=1e3, **how)
    assert "weights" not in vars(refused)  # a second model was never held in memory

    moved, devices = copy.deepcopy(model), []

    @contextmanager
    def away(inside, settings):
        inside.to("meta")
        yield torch.device("meta")

    def gradient(between, *rest):
        devices.append({tensor.device.type for tensor in between.weights.values()})
        return torch.ones(between.size)

    monkeypatch.setattr(sequence_gradients, "undisturbed", away)
    monkeypatch.setattr(sequence_gradients, "_gradient", gradient)
    gradient_kernel(model_between(moved, base, 0.25), [own.sequences], max_memory=1e9, **how)
    assert devices == [{"meta"}] * len(TRAIN)


def test_logits_may_be_on_another_device_than_the_first_layer(model, base, monkeypatch):
    own, between = read(model, TRAIN), model_between(model.eval(), base, 0.25)
    row = sequence_gradients._numbered([own.sequences], own.context, own.stride)[0][1:]
    expected = sequence_gradients._gradient(between, *row, torch.device("cpu"))
    read_windows = sequence_gradients.windows_read
    monkeypatch.setattr(sequence_gradients, "windows_read", lambda *given: read_windows(*given[:3], torch.device("cpu")))
    torch.testing.assert_close(sequence_gradients._gradient(between, *row, torch.device("meta")), expected)


def test_too_few_numbers_for_each_gradient_are_said(model, base, monkeypatch):
    monkeypatch.setattr(sequence_gradients, "BYTES_PER_PARAMETER", 0)
    with pytest.raises(NotApplicable, match="max_memory leaves 0 numbers for each of 12 gradients"):
        kernel_of(model, base, TRAIN, max_memory=50)
