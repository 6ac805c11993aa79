"""What an audit of a language model beside its base costs: processor seconds per token and parameter, and bytes per token.

`python -m benchmarks.language_cost` reads models of growing width, whose weights are random: time does not depend on them. One thread;
processor time, which other work on the machine leaves nearly as it is. Two minutes. `own_gain` is that of a fine-tune whose every
weight was moved, once with whole gradients and once with gradients that memory has folded, and of adapters of LoRA.
"""

import json
import time
from pathlib import Path

import numpy as np
import peft
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.environment import environment
from noshadow.scores.sequences import sequence_scores
from noshadow.views import Settings, gradient_kernel, model_between, sequence_features, sequence_losses
from noshadow.views.sequence_gradients import BYTES_PER_PARAMETER

RESULTS = Path(__file__).parent / "results" / "language_cost.json"
WIDTHS, LAYERS, VOCABULARY, LENGTH, SEQUENCES = (128, 256, 512), 4, 4096, 128, 24
BATCH = 8
SHARE = 0.25  # of the way from base to model; time does not depend on it
RANK = 8  # of LoRA
AMPLE = 1e10  # bytes: gradients are kept whole


def model_of(width, seed=0):
    """A model of this width with random weights."""
    torch.manual_seed(seed)
    shape = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": width, "n_layer": LAYERS, "n_head": width // 64}
    return GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=None, eos_token_id=None)).eval()


def seconds_of(run):
    """Processor seconds, the least of three runs."""
    found = []
    for _ in range(3):
        started = time.process_time()
        run()
        found.append(time.process_time() - started)
    return min(found)


def own_gain_seconds(model, width, read):
    """Processor seconds of the gradients of all sequences, by how the model was tuned: name → seconds, and LoRA's parameters."""
    parts, settings = [read.sequences], Settings(progress=False)
    lora = peft.get_peft_model(
        model_of(width), peft.LoraConfig(r=RANK, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True)
    )
    moved, adapted = model_between(model, model_of(width, seed=1), SHARE), model_between(lora, None, SHARE)
    how = {"context": read.context, "stride": read.stride, "settings": settings}
    found = {
        "own_gain_lora": seconds_of(lambda: gradient_kernel(adapted, parts, max_memory=AMPLE, **how)),
        "own_gain_full": seconds_of(lambda: gradient_kernel(moved, parts, max_memory=AMPLE, **how)),
        "own_gain_folded": seconds_of(lambda: gradient_kernel(moved, parts, max_memory=BYTES_PER_PARAMETER * moved.size, **how)),
    }
    return found, adapted.size


def measured(width):
    """One row of the table."""
    model, tokens = model_of(width), np.random.default_rng(0).integers(0, VOCABULARY, (SEQUENCES, LENGTH))
    # Positions are looked up; every other weight, the tied head among them, is multiplied once per token.
    parameters = sum(p.numel() for name, p in model.named_parameters() if "wpe" not in name)
    how = {"batch_size": BATCH, "progress": False}
    with torch.no_grad():
        bare = seconds_of(lambda: [model(input_ids=torch.from_numpy(part)) for part in np.array_split(tokens, SEQUENCES // BATCH)])
    losses = seconds_of(lambda: sequence_losses(model, tokens, **how))
    told = seconds_of(lambda: sequence_losses(model, tokens, statistics=True, **how))
    read, head = sequence_features(model, tokens, statistics=True, **how)
    scores = seconds_of(lambda: sequence_scores(head, class_basis="tokens", progress=False))
    gains, adapted = own_gain_seconds(model, width, read)
    count = int(read.tokens.sum())
    return {
        "width": width,
        "parameters": int(parameters),
        "tokens": count,
        "seconds": {"forward": bare, "losses": losses, "statistics": told, "head_scores": scores} | gains,
        "lora_parameters": int(adapted),
        "bytes_per_token": {"statistics": 17, "features": int(head.features.nbytes / len(head.features))},
    }


def main():
    torch.set_num_threads(1)
    rows = [measured(width) for width in WIDTHS]
    setting = {"layers": LAYERS, "vocabulary": VOCABULARY, "length": LENGTH, "sequences": SEQUENCES, "lora_rank": RANK}
    found = {
        "setting": setting,
        "rows": rows,
        "environment": environment() | {"transformers": transformers.__version__, "peft": peft.__version__},
    }
    RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    for row in rows:
        print(row["width"], row["parameters"], {name: round(value, 2) for name, value in row["seconds"].items()}, row["bytes_per_token"])


if __name__ == "__main__":
    main()
