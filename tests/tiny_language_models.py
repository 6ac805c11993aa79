"""Small randomly initialised language models and an independent loss, for tests; nothing is downloaded."""

import numpy as np
import torch

from extras import extra

VOCABULARY, CONTEXT = 23, 16


def gpt2(*, seed=0, context=CONTEXT, vocabulary=VOCABULARY, **settings):
    """A GPT-2 with dropout switched on, so that a test notices when it is not in eval mode."""
    transformers = extra("transformers")
    ends = {"bos_token_id": None, "eos_token_id": None} | settings
    shape = {"vocab_size": vocabulary, "n_positions": context, "n_embd": 8, "n_layer": 2, "n_head": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **ends))
        # Initial weights predict every token alike; larger ones make losses differ.
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    return model.train()


def ragged(lengths, *, seed=0, vocabulary=VOCABULARY, low=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(low, vocabulary, length).tolist() for length in lengths]


def token_losses_by_hand(model, tokens):
    """−log p of tokens 1 … n − 1, one forward pass a prefix and a log-softmax by hand in float64."""
    was_training = model.training
    model.eval()
    losses = []
    with torch.no_grad():
        for place in range(1, len(tokens)):
            logits = model(torch.tensor([tokens[:place]])).logits[0, -1].numpy().astype(np.float64)
            largest = logits.max()
            losses.append(np.log(np.exp(logits - largest).sum()) + largest - logits[tokens[place]])
    model.train(was_training)
    return np.array(losses)
