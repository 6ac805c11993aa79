"""Audit your own PyTorch model: regression on scikit-learn's diabetes data, from training to the audit folder."""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_diabetes
from torch.utils.data import DataLoader, TensorDataset

import noshadow as ns

WEIGHT_DECAY = 1e-3


def trained_network(loader):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=WEIGHT_DECAY)
    for _ in range(60):
        for x, y in loader:
            optimiser.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimiser.step()
    return model


def main():
    features, targets = load_diabetes(return_X_y=True)
    x = torch.tensor(features * 20, dtype=torch.float32)
    y = torch.tensor((targets - targets.mean()) / targets.std(), dtype=torch.float32)[:, None]
    train, test = TensorDataset(x[:300], y[:300]), TensorDataset(x[300:], y[300:])
    loader = DataLoader(train, batch_size=64, shuffle=True)

    model = trained_network(loader)
    audit = ns.audit(model, loader, test, weight_decay=WEIGHT_DECAY, ids=[f"patient-{i}" for i in range(300)])

    print(audit.records.nsmallest(5, "rank")[["rank", "id", "loss", "leverage", "loo", "predicted_tpr"]].to_string(index=False))
    print(f"loss AUC {audit.model_risk.auc:.3f}, 95 % interval {audit.model_risk.auc_interval}")
    with tempfile.TemporaryDirectory() as folder:
        saved = audit.save(Path(folder) / "audit")
        ns.write_report(audit, saved / "report.html")
        print(sorted(path.name for path in saved.iterdir()))


if __name__ == "__main__":
    main()
