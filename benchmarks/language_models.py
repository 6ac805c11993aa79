"""Small GPT-2 models trained from scratch on text: the loss AUC and the record scores of one model beside LiRA with reference models.

`python benchmarks/language_models.py --data DIR --work DIR [--only NAME ...]` goes on where it stopped: the reference models
are in the work folder, and benchmarks/results/language_models.json gains one entry a configuration as it comes.
DIR holds text/tinyshakespeare.txt.xz, text/wikitext2_valid.txt.xz and text/wikitext2_test.txt.xz.
"""

import argparse
import json
import lzma
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from environment import environment
from transformers import GPT2Config, GPT2LMHeadModel

from noshadow.attacks import attack_success, lira_scores
from noshadow.metrics import loss_auc, spearman, tnr_at_fnr, top_recall, tpr_at_fpr
from noshadow.reference import train_references
from noshadow.scores.sequences import sequence_scores
from noshadow.views import sequence_features, sequence_losses

RESULTS = Path(__file__).parent / "results" / "language_models.json"
REFERENCES = 24
FPRS = (1e-2, 1e-3)
FNRS = (1e-2, 0.05)
SCORED_TARGETS = 4  # models trained a second time, as the folder keeps their losses only
AGREEMENT = {"top": 0.05, "keep": 0.25}


@dataclass(frozen=True)
class Configuration:
    """One model, its text and its training. A vocabulary of 256 is bytes; any other, that many of the most frequent words."""

    name: str
    text: str
    vocabulary: int
    length: int
    layers: int
    width: int
    epochs: int
    learning_rate: float
    records: int = 1024
    context: int = 64
    heads: int = 2
    batch_size: int = 16
    weight_decay: float = 0.01


# The epochs of the last three were set, before any of them was trained, after LiRA had found most members of words_1x32 at 20: so that
# the configurations spread over the range of AUC.
CONFIGURATIONS = (
    Configuration("bytes_1x32", "tinyshakespeare", 256, 64, layers=1, width=32, epochs=12, learning_rate=1e-2),
    Configuration("words_1x32", "wikitext2", 1000, 32, layers=1, width=32, epochs=20, learning_rate=8e-3),
    Configuration("words_2x32", "wikitext2", 1000, 32, layers=2, width=32, epochs=6, learning_rate=8e-3),
    Configuration("words_1x64", "wikitext2", 1000, 32, layers=1, width=64, epochs=10, learning_rate=4e-3),
    Configuration("words_2x64", "wikitext2", 1000, 32, layers=2, width=64, epochs=14, learning_rate=4e-3),
)


def sequences(configuration, data):
    """(records, length) token ids: the text cut into pieces of one length, a random choice of them in the order of the text."""
    names = ("wikitext2_valid", "wikitext2_test") if configuration.text == "wikitext2" else (configuration.text,)
    texts = [lzma.decompress((data / "text" / f"{name}.txt.xz").read_bytes()) for name in names]
    if configuration.vocabulary == 256:
        tokens = np.frombuffer(b"".join(texts), np.uint8).astype(np.int64)
    else:
        words = [word for text in texts for word in text.decode().split()]
        # Token 0 stands for every word that is not among the most frequent.
        known = {word: 1 + place for place, (word, _) in enumerate(Counter(words).most_common(configuration.vocabulary - 1))}
        tokens = np.array([known.get(word, 0) for word in words])
    pieces = tokens[: len(tokens) // configuration.length * configuration.length].reshape(-1, configuration.length)
    chosen = np.random.default_rng(0).permutation(len(pieces))[: configuration.records]
    return pieces[np.sort(chosen)]


@dataclass(frozen=True, eq=False)
class Training:
    """Trains one model on some of the sequences and returns the loss of each of them all, in nats a token."""

    configuration: Configuration
    tokens: np.ndarray

    def model(self):
        """A fresh model without dropout."""
        c = self.configuration
        shape = {"vocab_size": c.vocabulary, "n_positions": c.context, "n_embd": c.width, "n_layer": c.layers, "n_head": c.heads}
        silent = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
        return GPT2LMHeadModel(GPT2Config(**shape, **silent))

    def trained_model(self, indices, seed):
        """AdamW with one warm-up and cool-down; every epoch in a new order."""
        torch.manual_seed(seed)
        c, model, x = self.configuration, self.model(), torch.from_numpy(self.tokens[indices])
        optimiser = torch.optim.AdamW(model.parameters(), c.learning_rate, weight_decay=c.weight_decay)
        steps = c.epochs * -(-len(x) // c.batch_size)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, c.learning_rate, total_steps=steps, pct_start=0.1)
        model.train()
        for _ in range(c.epochs):
            for rows in torch.randperm(len(x)).split(c.batch_size):
                batch = x[rows]
                logits = model(input_ids=batch, use_cache=False).logits[:, :-1]
                loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
        return model

    def __call__(self, indices, seed):
        """What the folder keeps of one model."""
        return sequence_losses(self.trained_model(indices, seed), self.tokens, progress=False).loss


def trained(training, work):
    """(r, n) losses of the reference models, trained now where they are missing, and the plan behind them.

    The attack's statistic is −loss. A regression's is y − f, so losses given as predictions of 0 are stored as just that.
    """
    c = training.configuration
    references = train_references(
        work / c.name,
        training,
        (training.tokens, np.zeros(len(training.tokens))),
        task="regression",
        models=REFERENCES,
        pool="train",
        workers=1,
        threads=torch.get_num_threads(),
        keep_outputs=False,
        settings=asdict(c),
        progress=False,
    )
    return -np.asarray(references.statistic), references.plan


def skewness(values):
    return float(((values - values.mean()) ** 3).mean() / values.std() ** 3)


def truth_without(target, losses, membership):
    """LiRA's d′ of every record from the other models alone: what the target itself says is what it is compared with."""
    others = np.arange(len(losses)) != target
    return attack_success(-losses[others], membership[others]).d_prime


def record_scores(training, losses, plan):
    """How well the scores of one model say which of its members are exposed: rank correlation with d′, and recall of its top."""
    decay = training.configuration.weight_decay
    variants = {"": {"weight_decay": decay}, "_auto": {}, "_tokens": {"weight_decay": decay, "class_basis": "tokens"}}
    found, same, seconds = {}, [], []
    for target in range(SCORED_TARGETS):
        inside = plan.membership[target]
        model = training.trained_model(np.flatnonzero(inside), int(plan.seeds[target]))
        truth = truth_without(target, losses, plan.membership)[inside]
        started = time.process_time()
        read, head = sequence_features(model, training.tokens[inside], progress=False)
        by_name = {"loss": read.loss}
        for suffix, how in variants.items():
            scores = sequence_scores(head, **how)
            kept = ("influence",) if suffix else ("influence", "leverage", "gradient_norm")
            by_name |= {f"{name}{suffix}": getattr(scores, name) for name in kept}
            if not suffix:
                seconds.append(round(time.process_time() - started, 2))
        same.append(spearman(by_name["influence"], by_name["influence_tokens"]))
        for name, values in by_name.items():
            found.setdefault(f"{name}_spearman", []).append(float(spearman(truth, values)))
            found.setdefault(f"{name}_recall", []).append(float(top_recall(truth, values, **AGREEMENT)))
        found.setdefault("largest_loss_change", []).append(float(np.abs(read.loss - losses[target][inside]).max()))
    return found | {"tokens_like_eigenvectors_spearman": [float(value) for value in same], "cpu_seconds": seconds}


def measured(losses, membership, halves):
    """Every model as a target: what its own losses say, LiRA with the others as references, and what losses say about records."""
    targets, scores = [], []
    for target, member in enumerate(membership):
        inside, outside = losses[target][member], losses[target][~member]
        others = np.arange(len(losses)) != target
        score = lira_scores(-losses[target], -losses[others], membership[others])
        d_prime = truth_without(target, losses, membership)
        scores.append(score)
        row = {f"tnr_{fnr:g}": tnr_at_fnr(inside, outside, fnr) for fnr in FNRS}
        row |= {"auc": loss_auc(inside, outside), "member_loss": inside.mean(), "nonmember_loss": outside.mean()}
        row |= {"skewness": skewness(outside), "lira_auc": loss_auc(-score[member], -score[~member])}
        row |= {"lira_tpr_0.01": tpr_at_fpr(score[member], score[~member], 1e-2)}
        row |= {"loss_tpr_0.01": tpr_at_fpr(-inside, -outside, 1e-2)}
        row |= {"loss_spearman": spearman(d_prime[member], inside), "loss_recall": top_recall(d_prime[member], inside, **AGREEMENT)}
        targets.append({name: float(value) for name, value in row.items()})
    apart = [attack_success(-losses[half], membership[half]).d_prime for half in halves]
    scores = np.stack(scores)
    pooled = {f"lira_tpr_{fpr:g}": tpr_at_fpr(scores[membership], scores[~membership], fpr) for fpr in FPRS}
    pooled |= {f"loss_tpr_{fpr:g}": tpr_at_fpr(-losses[membership], -losses[~membership], fpr) for fpr in FPRS}
    pooled |= {"nonmember_scores": int((~membership).sum()), "noise_ceiling_spearman": spearman(*apart)}
    return {"targets": {name: [row[name] for row in targets] for name in targets[0]}, "pooled": pooled}


def entry(configuration, data, work, before):
    """The stored JSON of one configuration; `before` is what was stored, whose training time is kept when nothing was trained."""
    started, busy = time.perf_counter(), time.process_time()
    training = Training(configuration, sequences(configuration, data))
    losses, plan = trained(training, work)
    seconds = {"wall": round(time.perf_counter() - started, 1), "cpu": round(time.process_time() - busy, 1)}
    parameters = sum(parameter.numel() for parameter in training.model().parameters())
    return {
        "configuration": asdict(configuration),
        "parameters": parameters,
        "references": REFERENCES,
        "seconds": max(seconds, before.get("seconds", seconds), key=lambda run: run["cpu"]),
        "environment": environment() | {"transformers": transformers.__version__},
        "record_scores": record_scores(training, losses, plan),
    } | measured(losses, plan.membership, plan.halves)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds text/")
    parser.add_argument("--work", type=Path, required=True, help="where reference models go; run again to go on")
    parser.add_argument("--only", nargs="+", choices=[c.name for c in CONFIGURATIONS], help="some configurations")
    parser.add_argument("--again", action="store_true", help="measure once more what is already stored")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    for configuration in CONFIGURATIONS:
        stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        done = configuration.name in stored and not arguments.again
        if done or (arguments.only and configuration.name not in arguments.only):
            continue
        stored[configuration.name] = entry(configuration, arguments.data, arguments.work, stored.get(configuration.name, {}))
        RESULTS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
        lists = stored[configuration.name]["targets"] | {f"scored_{k}": v for k, v in stored[configuration.name]["record_scores"].items()}
        means = {name: float(np.mean(values)) for name, values in lists.items()}
        print(
            configuration.name,
            {name: round(value, 4) for name, value in (means | stored[configuration.name]["pooled"]).items()},
            flush=True,
        )


if __name__ == "__main__":
    main()
