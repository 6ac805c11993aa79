"""How much privacy do attacks on the loss already cost each patient?

A tabular regression with a per-record (ε, δ).

scikit-learn's diabetes data and ridge regression, where the Gaussian linear theory is closest to
home; for a network the same code reads its last layer.
"""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import noshadow as ns

EPSILONS = np.linspace(0, 4, 401)
DELTA = 0.01


def privacy_losses(audit):
    """The δ that threshold attacks on a record's loss show at each ε, (records, epsilons).

    It is a lower bound, never a guarantee.
    """
    records, dof = audit.records, audit.provenance["scores"]["effective_dof"]
    # the loss is the squared residual
    noise_variance = records["loss"].sum() / (len(records) - dof)
    return ns.theory.privacy_curve(
        EPSILONS, records["leverage"], np.sqrt(records["loss"]), noise_variance=noise_variance, n=len(records), dof=dof
    )


def main():
    x, y = load_diabetes(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.5, random_state=0)
    model = make_pipeline(StandardScaler(), Ridge(alpha=1.0)).fit(x_train, y_train)
    audit = ns.audit(model, (x_train, y_train), (x_test, y_test), fpr=0.01, ids=[f"patient-{i}" for i in range(len(y_train))])

    deltas = privacy_losses(audit)
    assert (deltas[:, -1] <= DELTA).all(), "the ε of a record lies beyond the grid: extend EPSILONS"
    table = audit.records[["rank", "id", "leverage", "predicted_tpr"]].copy()
    table["δ at ε = 0"], table["δ at ε = 1"] = deltas[:, 0], deltas[:, np.searchsorted(EPSILONS, 1.0)]
    # δ falls as ε grows, so the first ε whose δ is small enough is the smallest.
    table[f"ε at δ = {DELTA}"] = EPSILONS[(deltas <= DELTA).argmax(1)]

    print(table.nsmallest(5, "rank").round(3).to_string(index=False))
    print("median over all patients:", table.iloc[:, 2:].median().round(3).to_dict())
    print("These (ε, δ) are lower bounds, not a guarantee: a better attack, or data that break the assumptions, may cost more privacy.")

    folder = audit.save("tabular-regression-audit", overwrite=True)
    print(ns.write_report(audit, folder / "report.html"))


if __name__ == "__main__":
    main()
