"""A tiny pre-trained language model, fine-tunes of it, and plain loops that score their sequences; nothing is downloaded."""

import copy
import math
import zlib

import numpy as np
import torch

from extras import extra
from tiny_language_models import CONTEXT, VOCABULARY

LENGTH = 12
WINDOWS = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)


def chains(count, *, seed, length=LENGTH):
    """Texts of one language: each token leads to one of four others."""
    rng = np.random.default_rng(seed)
    followers = np.random.default_rng(99).integers(0, VOCABULARY, (VOCABULARY, 4))
    texts = rng.integers(0, VOCABULARY, (count, length))
    for place in range(1, length):
        texts[:, place] = followers[texts[:, place - 1], rng.integers(0, 4, count)]
    return texts.tolist()


def trained(model, texts, *, epochs, rate, batch=16, answers=None):
    """The model after some epochs on texts of one length, in eval mode so that nothing is random."""
    ids = torch.tensor(texts)
    labels = ids if answers is None else torch.tensor(answers)
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], rate)
    model.eval()
    for epoch in range(epochs):
        order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(batch):
            loss = model(input_ids=ids[rows], labels=labels[rows]).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model


def pretrained():
    """A GPT-2 that knows the language of `chains`, wide enough to learn texts of it by heart."""
    transformers = extra("transformers")
    shape = {"vocab_size": VOCABULARY, "n_positions": CONTEXT, "n_embd": 32, "n_layer": 1, "n_head": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, bos_token_id=None, eos_token_id=None))
    return trained(model, chains(400, seed=1), epochs=6, rate=1e-2)


def fine_tuned(base, texts, *, epochs=10, rate=5e-3):
    return trained(copy.deepcopy(base), texts, epochs=epochs, rate=rate)


def with_lora(base, **settings):
    peft = extra("peft")
    how = {"r": 4, "lora_alpha": 16, "target_modules": ["c_attn", "c_fc"], "task_type": "CAUSAL_LM", "fan_in_fan_out": True}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(**(how | settings)))


def t5(seed=0, **settings):
    transformers = extra("transformers")
    shape = {"vocab_size": VOCABULARY, "d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    ends = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(**(shape | ends | settings)))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    return model.train()


def token_facts(logits, token):
    """log p, whether it comes first, and (log p − μ)/σ of one token, by loops over the vocabulary in plain floats."""
    values = [float(value) for value in logits]
    largest = max(values)
    total = largest + math.log(sum(math.exp(value - largest) for value in values))
    logs = [value - total for value in values]
    mean = sum(math.exp(log) * log for log in logs)
    spread = math.sqrt(sum(math.exp(log) * (log - mean) ** 2 for log in logs))
    return logs[token], all(values[token] >= value for value in values), (logs[token] - mean) / spread


def facts_by_hand(model, tokens):
    """The facts of tokens 1 … n − 1 of one sequence, one forward pass a prefix."""
    was, found = model.training, []
    model.eval()
    with torch.no_grad():
        for place in range(1, len(tokens)):
            start = max(0, place - CONTEXT)
            found.append(token_facts(model(torch.tensor([tokens[start:place]])).logits[0, -1], tokens[place]))
    model.train(was)
    return found


def answers_by_hand(model, source, answer):
    """The facts of an answer's tokens, one forward pass a prefix."""
    was, found = model.training, []
    model.eval()
    with torch.no_grad():
        for place in range(len(answer)):
            read = torch.tensor([[0, *answer[:place]]])
            logits = model(input_ids=torch.tensor([source]), decoder_input_ids=read).logits[0, -1]
            found.append(token_facts(logits, answer[place]))
    model.train(was)
    return found


def scores_by_hand(own, base, text=None):
    """Every column of one sequence from its facts, by loops."""
    moves = [mine[0] - theirs[0] for mine, theirs in zip(own, base, strict=True)]
    loss, base_loss = (-sum(fact[0] for fact in facts) / len(facts) for facts in (own, base))
    errors = [move for move, fact in zip(moves, own, strict=True) if not fact[1]]
    up, down = sum(move for move in errors if move > 0), -sum(move for move in errors if move < 0)
    votes = []
    for length in WINDOWS:
        size = min(length, len(own))
        windows = range(len(own) - size + 1)
        won = [sum(-f[0] for f in base[k : k + size]) > sum(-f[0] for f in own[k : k + size]) for k in windows]
        votes.append(sum(won) / len(won))
    count = max(len(own) // 5, 1)
    found = {
        "loss": loss,
        "base_loss": base_loss,
        "base_gain": base_loss - loss,
        "error_zone": up / (up + down) if len(errors) >= 2 else 0.5,
        "window_votes": sum(votes) / len(votes),
        "min_k": sum(sorted(fact[0] for fact in own)[:count]) / count,
        "min_k_plus": sum(sorted(fact[2] for fact in own)[:count]) / count,
    }
    return found if text is None else found | {"zlib_ratio": -loss / len(zlib.compress(text.encode()))}


class Letters:
    """A tokenizer whose tokens are letters, as a stand-in for one from files."""

    def decode(self, tokens, skip_special_tokens=False):
        return "".join(chr(ord("a") + token) for token in tokens)

    def get_vocab(self):
        return {chr(ord("a") + token): token for token in range(VOCABULARY)}
