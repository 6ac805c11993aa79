"""One base, then fine-tunes of it on random halves of a pool; every file is written once, so a run goes on where it stopped.

Models come in pairs with complementary halves, so that any number of pairs has every sequence on both sides equally often.
One training of ten epochs at a constant rate is looked at after several epochs: the configurations of one training are its snapshots.
"""

import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.finetuned.texts import LENGTH, POOLS, RECORDS, VOCABULARY, base_texts, pool, tokenizer_of
from noshadow._audit.sequence_evidence import base_columns, texts_of, token_columns
from noshadow.scores.sequences import sequence_scores
from noshadow.views import sequence_features, sequence_losses

SHAPE = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 64, "n_layer": 2, "n_head": 2}
SILENT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
BASE = {"epochs": 4, "batch_size": 32, "learning_rate": 2e-3, "weight_decay": 0.01}
# How fast each kind learns was set after three looks at the loss AUC of one model each (from near 0.5 to near 0.8), before any other was
# trained: at Shakespeare, and in the first look at reviews too. The files of these models are written by the run itself.
KINDS = {
    "full": {"epochs": (1, 3, 10), "learning_rate": 5e-4},
    "lora": {"epochs": (3, 10), "learning_rate": 2e-3, "rank": 8, "alpha": 16, "layers": ["c_attn", "c_fc", "c_proj"]},
}
FINE = {"batch_size": 16, "weight_decay": 0.01}
MODELS = 36
SCORED = (0, 12, 24)  # models whose output heads are scored too after the last epoch: it takes as long as their training


def membership():
    """(MODELS, records) booleans: models 2j and 2j + 1 have complementary random halves."""
    rng = np.random.default_rng(7)
    found = np.zeros((MODELS, RECORDS), bool)
    for pair in range(MODELS // 2):
        found[2 * pair, rng.permutation(RECORDS)[: RECORDS // 2]] = True
        found[2 * pair + 1] = ~found[2 * pair]
    return found


def steps(model, tokens, batch_size, optimiser, schedule=None):
    """One epoch in a new order."""
    model.train()
    for rows in torch.randperm(len(tokens)).split(batch_size):
        batch = tokens[rows]
        logits = model(input_ids=batch, use_cache=False).logits[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if schedule is not None:
            schedule.step()


def base_model(data, work, tokenizer):
    """The base: trained now where its file is missing."""
    path, model = work / "base.pt", GPT2LMHeadModel(GPT2Config(**SHAPE, **SILENT))
    if not path.exists():
        started = time.process_time()
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(**SHAPE, **SILENT))
        ids = np.concatenate([tokenizer.encode(text) for text in base_texts(data)])
        tokens = torch.from_numpy(ids[: len(ids) // LENGTH * LENGTH].reshape(-1, LENGTH))
        optimiser = torch.optim.AdamW(model.parameters(), BASE["learning_rate"], weight_decay=BASE["weight_decay"])
        total = BASE["epochs"] * -(-len(tokens) // BASE["batch_size"])
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, BASE["learning_rate"], total_steps=total, pct_start=0.1)
        for _ in range(BASE["epochs"]):
            steps(model, tokens, BASE["batch_size"], optimiser, schedule)
            print("base", round(time.process_time() - started), "s", flush=True)
        torch.save(model.state_dict(), work / "base.part")
        facts = {"cpu_seconds": time.process_time() - started, "tokens": int(tokens.numel())}
        (work / "base.json").write_text(json.dumps(facts))
        (work / "base.part").replace(path)
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval()


def started_from(base, kind):
    """A copy of the base, with adapters where the kind has them."""
    model = GPT2LMHeadModel(base.config)
    model.load_state_dict(base.state_dict())
    if kind == "full":
        return model
    how = KINDS[kind]
    config = LoraConfig(r=how["rank"], lora_alpha=how["alpha"], target_modules=how["layers"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    return get_peft_model(model, config)


def fine_tuned(base, kind, tokens, seed):
    """Yields (epoch, model) after each of the kind's epochs."""
    torch.manual_seed(1000 + seed)
    model, how = started_from(base, kind), KINDS[kind]
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(learnt, how["learning_rate"], weight_decay=FINE["weight_decay"])
    for epoch in range(1, max(how["epochs"]) + 1):
        steps(model, tokens, FINE["batch_size"], optimiser)
        if epoch in how["epochs"]:
            yield epoch, model.eval()


def read(model, tokens, below, tokenizer):
    """Everything that tokens and the base say of all sequences: name → (n,)."""
    own = sequence_losses(model, tokens, statistics=True, progress=False)
    return {"loss": own.loss} | token_columns(own, texts_of(own, tokenizer)) | base_columns(own, below)


def scored(model, tokens):
    """Scores of the output head over the training sequences: name → (m,)."""
    _, head = sequence_features(model, tokens, progress=False)
    found = sequence_scores(head)
    return {name: getattr(found, name) for name in ("influence", "leverage", "gradient_norm")}


def learnt(model, kind):
    """The tensors that fine-tuning changed: all of them, or the adapters'."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items() if kind == "full" or "lora_" in name}


def one(path, base, kind, tokens, below, tokenizer, number, inside):
    """Train one model and write what its snapshots say."""
    started, kept, training = time.process_time(), {"inside": inside}, 0.0
    for epoch, model in fine_tuned(base, kind, torch.from_numpy(tokens[inside]), number):
        training = time.process_time() - started - kept.get("reading", 0.0)
        since = time.process_time()
        torch.save(learnt(model, kind), path.with_name(f"{path.stem}-{epoch}.pt"))
        kept |= {f"{epoch}/{name}": values for name, values in read(model, tokens, below, tokenizer).items()}
        if number in SCORED and epoch == max(KINDS[kind]["epochs"]):
            kept |= {f"{epoch}/head/{name}": values for name, values in scored(model, tokens[inside]).items()}
        kept["reading"] = kept.get("reading", 0.0) + time.process_time() - since
    part = path.with_suffix(".part.npz")
    np.savez(part, **(kept | {"training": training}))
    part.replace(path)
    print(path.name, round(training, 1), "s training", round(kept["reading"], 1), "s reading", flush=True)


def train_all(data, work, only=None):
    """Train everything that is missing: pairs of all kinds and pools in turn, so that any stop leaves even counts."""
    work.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_of(data, work)
    base, halves = base_model(data, work, tokenizer), membership()
    pools = {name: pool(name, data, tokenizer) for name in POOLS}
    below = {name: sequence_losses(base, tokens, statistics=True, progress=False) for name, tokens in pools.items()}
    for number in range(MODELS) if only is None else only:
        for name, tokens in pools.items():
            for kind in KINDS:
                path = work / f"{name}-{kind}-{number:02d}.npz"
                if not path.exists():
                    one(path, base, kind, tokens, below[name], tokenizer, number, halves[number])
