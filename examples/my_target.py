"""A function that returns a Target, for `noshadow audit examples.my_target:digits --out DIR`."""

from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import noshadow as ns


def digits():
    """A small scikit-learn network on half of the digits."""
    x, y = load_digits(return_X_y=True)
    model = MLPClassifier((32,), alpha=1.0, solver="lbfgs", max_iter=5000, random_state=0)
    model.fit(x[::2], y[::2])
    return ns.Target(model, (x[::2], y[::2]), (x[1::2], y[1::2]))


def main():
    target = digits()
    audit = ns.audit(target.model, target.train, target.test)
    print(audit.records.nsmallest(3, "rank")[["rank", "id", "target", "loss", "shift"]].to_string(index=False))


if __name__ == "__main__":
    main()
