"""Before and after DP-SGD with Opacus.

The same small network is trained plainly and with differential privacy, and both are audited.

A fifth of the labels is drawn anew before the split, in training and test records alike, so that
the plain network has something to learn by heart. Needs the extra `opacus`.
"""

import warnings

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import noshadow as ns

try:
    from opacus import PrivacyEngine
except ImportError as error:
    raise SystemExit(f"dp_training.py needs Opacus ({error}): install noshadow with the extra 'opacus'.") from error

EPOCHS, DELTA = 40, 1e-4


def noisy_digits():
    """(train, test): half of the digits each, a fifth of all labels drawn anew."""
    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    y = np.where(rng.random(len(y)) < 0.2, rng.integers(0, 10, len(y)), y)
    order = rng.permutation(len(x))
    x, y = torch.tensor(x[order] / 16, dtype=torch.float32), torch.tensor(y[order])
    half = len(x) // 2
    return TensorDataset(x[:half], y[:half]), TensorDataset(x[half:], y[half:])


def trained(train, *, private):
    """The network, and its ε at δ = DELTA (infinite without privacy)."""
    # Fixed seeds make the example repeat itself. Whoever knows the seed can subtract the noise:
    # leave it out when the guarantee counts.
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    network, loader = model, DataLoader(train, batch_size=64, shuffle=True)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    engine = PrivacyEngine(accountant="rdp", secure_mode=False)
    if private:
        network, optimiser, loader = engine.make_private(
            module=model,
            optimizer=optimiser,
            data_loader=loader,
            noise_multiplier=2.0,
            max_grad_norm=1.0,
            poisson_sampling=True,
            noise_generator=torch.Generator().manual_seed(1),
        )
    for _ in range(EPOCHS):
        for x, y in loader:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(x), y).backward()
            optimiser.step()
    if not private:
        return model, float("inf")
    # Unwrapped: without Opacus' hooks the network is an ordinary one again. The audit of the last
    # layer takes the wrapped one as well.
    return network.to_standard_module(), engine.get_epsilon(DELTA)


def main():
    train, test = noisy_digits()
    audits = []
    for name, private in (("plain", False), ("private", True)):
        with warnings.catch_warnings():
            # An experiment needs no cryptographic random numbers; and Opacus' hooks see to layers
            # whose inputs need no gradient.
            warnings.filterwarnings("ignore", message="Secure RNG turned off")
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            model, epsilon = trained(train, private=private)
        audit = ns.audit(model, train, test, fpr=0.01)
        risk = audit.model_risk
        print(f"{name:8} ε {epsilon:.2f} at δ {DELTA:g}", end=", ")
        print(f"test accuracy {risk.nonmember_accuracy:.3f}, TNR {risk.tnr:.3f}, AUC {risk.auc:.3f}")
        folder = audit.save(f"dp-audit-{name}", overwrite=True)
        ns.write_report(audit, folder / "report.html")
        audits.append(audit)
    comparison = ns.compare(*audits)
    print(comparison.verdict)
    print(ns.write_comparison(comparison, "dp-change.html"))
    print("ε bounds every attack from above, as far as the accountant's assumptions hold; the audit measures one attack from below.")


if __name__ == "__main__":
    main()
