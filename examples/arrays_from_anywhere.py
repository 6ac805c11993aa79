"""Any framework: save features, outputs and targets of both splits to a file, audit the file."""

import tempfile
from pathlib import Path

import numpy as np

import noshadow as ns


def main():
    # stand-ins for what your framework computed: the last layer's inputs and its logits
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 16))
    logits = features @ rng.normal(size=(16, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    train = ns.Signals(features[:200], logits[:200], labels[:200], ids=[f"row-{i}" for i in range(200)])
    test = ns.Signals(features[200:], logits[200:], labels[200:])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "signals.npz"
        ns.save_splits(path, train, test)  # `noshadow audit signals.npz --out DIR` reads this file
        audit = ns.audit_signals(*ns.load_splits(path)[:2], weight_decay=1e-3)
    print(audit.records.nsmallest(3, "rank")[["rank", "id", "shift", "margin_leverage"]].to_string(index=False))


if __name__ == "__main__":
    main()
