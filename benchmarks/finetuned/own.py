"""`own_gain` of kept fine-tunes, by the package's own functions, over a grid of its choices.

`python -m benchmarks.finetuned.own --work DIR --pool shakespeare --shares 0.25 0.5` reads the weights that `benchmarks.finetuned` kept and
writes own-POOL-KIND-NN-EPOCH.npz beside them: inside (n,), and scores under "share/most/damping" (n,). What is there is not done again.
One configuration and share takes 8 s of one core.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.finetuned.texts import POOLS, pool, tokenizer_of
from benchmarks.finetuned.training import KINDS, SHAPE, SILENT, started_from
from noshadow._audit.own_gains import SHARE
from noshadow.scores.own_gain import DAMPING, MOST_PER_TOKEN, own_gain, token_gain
from noshadow.views import Settings, gradient_kernel, model_between, sequence_losses

# The choice was made on Shakespeare before reviews were looked at: the largest mean TPR at FPR 0.01 over its five configurations, of one
# fine-tune each, among those that keep it above 0.8 after ten epochs of either kind.
MOST, DAMPINGS = (0.5, 1.0, 2.0, np.inf), (0.1, 0.3, 1.0, 3.0)
MEMORY = 4e9


def base_of(work):
    """The base that the fine-tunes started from."""
    model = GPT2LMHeadModel(GPT2Config(**SHAPE, **SILENT))
    model.load_state_dict(torch.load(work / "base.pt", weights_only=True))
    return model.eval()


def tuned(work, base, name, kind):
    """A kept snapshot, with its adapters where it has them."""
    model = started_from(base, kind)
    told = model.load_state_dict(torch.load(work / f"{name}.pt", weights_only=True), strict=kind == "full")
    assert not told.unexpected_keys
    return model.eval()


def scores(model, base, kind, tokens, shares, most, dampings):
    """Scores of all sequences, each (n,), under the name share/most/damping."""
    below, own = (sequence_losses(one, tokens, statistics=True, progress=False) for one in (base, model))
    found = {}
    for share in shares:
        between = model_between(model, base if kind == "full" else None, share)
        how = {"context": own.context, "stride": own.stride, "settings": Settings(progress=False), "max_memory": MEMORY}
        kernel = gradient_kernel(between, [own.sequences], **how)
        for limit in most:
            gains = token_gain(own.statistics, below.statistics, limit)
            found |= {f"{share:g}/{limit:g}/{damping:g}": own_gain(gains, kernel, damping) for damping in dampings}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pool", choices=POOLS, required=True)
    parser.add_argument("--only", nargs="+", help="configurations as full-3")
    parser.add_argument("--models", type=int, nargs="+", help="numbers of models")
    parser.add_argument("--shares", type=float, nargs="+", help="leave out for the choice that ships, alone")
    given = parser.parse_args()
    base, tokens = base_of(given.work), pool(given.pool, given.data, tokenizer_of(given.data, given.work))
    wanted = given.only or [f"{kind}-{epoch}" for kind, how in KINDS.items() for epoch in how["epochs"]]
    for path in sorted(given.work.glob(f"{given.pool}-*-[0-9][0-9].npz")):
        kind, number = path.stem.split("-")[1:]
        for epoch in KINDS[kind]["epochs"]:
            out = path.with_name(f"own-{path.stem}-{epoch}.npz")
            if f"{kind}-{epoch}" not in wanted or out.exists() or (given.models and int(number) not in given.models):
                continue
            grid = (given.shares, MOST, DAMPINGS) if given.shares else ((SHARE,), (MOST_PER_TOKEN,), (DAMPING,))
            found = scores(tuned(given.work, base, f"{path.stem}-{epoch}", kind), base, kind, tokens, *grid)
            part = out.with_suffix(".part.npz")
            np.savez(part, inside=np.load(path)["inside"], **found)
            part.replace(out)
            print(out.name, flush=True)


if __name__ == "__main__":
    main()
