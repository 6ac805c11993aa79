"""Audit a PyTorch image classifier, from training to the report.

It is a small convolutional network on scikit-learn's 8×8 digits.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

import noshadow as ns

WEIGHT_DECAY = 1e-4


def splits():
    """Images (n, 1, 8, 8) with values in [0, 1]: half to train on, half that stay unseen."""
    digits = load_digits()
    images, labels = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32), torch.tensor(digits.target)
    x, x_test, y, y_test = train_test_split(images, labels, test_size=0.5, stratify=labels, random_state=0)
    return TensorDataset(x, y), TensorDataset(x_test, y_test)


def trained_network(loader):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(128, 10),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=WEIGHT_DECAY)
    for _ in range(25):
        for images, labels in loader:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimiser.step()
    return model


def main():
    train, test = splits()
    loader = DataLoader(train, batch_size=64, shuffle=True)
    model = trained_network(loader)

    # The loader may shuffle: records are audited in the order of its data set, and so are the ids.
    audit = ns.audit(model, loader, test, weight_decay=WEIGHT_DECAY, fpr=0.01, ids=[f"image-{i}" for i in range(len(train))])

    risk = audit.model_risk
    print(f"accuracy {risk.member_accuracy:.3f} on its own images, {risk.nonmember_accuracy:.3f} on others")
    low, high = risk.auc_interval
    print(f"loss attack: TNR {risk.tnr:.3f} at FNR {risk.fpr:g}, AUC {risk.auc:.3f} ({low:.3f} to {high:.3f})")
    low, high = risk.predicted_tpr_interval
    print(
        f"predicted for an attacker with {risk.reference_models} reference models: TPR {risk.predicted_tpr:.3f} ({low:.3f} to {high:.3f})"
    )
    print(risk.reason)
    print(audit.records.nsmallest(5, "rank")[["rank", "id", "target", "loss", "shift"]].to_string(index=False))
    for finding in audit.findings:
        if finding.status == "found":
            print(f"{finding.code} {finding.name}: {finding.sentence}")

    folder = audit.save("image-classifier-audit", overwrite=True)
    # The pictures of the riskiest records go into the page because they are handed over here; the
    # folder never holds any.
    print(ns.write_report(audit, folder / "report.html", show_records=train.tensors[0][:, 0].numpy()))


if __name__ == "__main__":
    main()
