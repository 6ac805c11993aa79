"""Any framework: save features, outputs and targets of both splits to a file, audit the file.

The framework here is NumPy: softmax regression on scikit-learn's wines by plain gradient descent.
    From the shell, on the same file: noshadow audit signals.npz --out my-audit --weight-decay 0.001
"""

import numpy as np
from sklearn.datasets import load_wine

import noshadow as ns

WEIGHT_DECAY = 1e-3


def trained_weights(features, labels):
    """Weights (d + 1, classes), the last row the bias, at the minimum of the training objective.

    The objective is mean loss + (weight decay / 2)·‖weights‖².
    """
    design, one_hot = np.column_stack([features, np.ones(len(features))]), np.eye(labels.max() + 1)[labels]
    weights = np.zeros((design.shape[1], one_hot.shape[1]))
    for _ in range(20_000):
        odds = np.exp(design @ weights)
        gradient = design.T @ (odds / odds.sum(1, keepdims=True) - one_hot) / len(design)
        weights -= 0.5 * (gradient + WEIGHT_DECAY * weights)
    return weights


def main():
    x, labels = load_wine(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    weights = trained_weights(x[::2], labels[::2])

    # What your framework hands over: the inputs of the last layer (without a column for the bias),
    # its outputs, the targets.
    signals = [
        ns.Signals(x[rows], x[rows] @ weights[:-1] + weights[-1], labels[rows], ids=[f"{name}-{i}" for i in range(len(x[rows]))])
        for name, rows in (("train", slice(0, None, 2)), ("test", slice(1, None, 2)))
    ]
    ns.save_splits("signals.npz", *signals)

    train, test, _ = ns.load_splits("signals.npz")
    audit = ns.audit_signals(train, test, weight_decay=WEIGHT_DECAY)
    print(audit.records.nsmallest(3, "rank")[["rank", "id", "loss", "leverage", "shift"]].to_string(index=False))
    print(f"loss AUC {audit.model_risk.auc:.3f}")
    folder = audit.save("arrays-audit", overwrite=True)
    print(ns.write_report(audit, folder / "report.html"))


if __name__ == "__main__":
    main()
