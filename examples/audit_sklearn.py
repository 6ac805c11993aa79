"""Audit a scikit-learn pipeline: which patients does a cancer classifier give away?"""

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import noshadow as ns


def main():
    x, y = load_breast_cancer(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.5, random_state=0)
    for strength in (100.0, 0.01):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=5000)).fit(x_train, y_train)
        audit = ns.audit(model, (x_train, y_train), (x_test, y_test))
        riskiest = audit.records.nsmallest(3, "rank")["id"].tolist()
        freedom = audit.provenance["scores"]["effective_dof"]
        print(
            f"C={strength:g}: loss AUC {audit.model_risk.auc:.3f}, {freedom:.1f} effective degrees of freedom, riskiest records {riskiest}"
        )


if __name__ == "__main__":
    main()
