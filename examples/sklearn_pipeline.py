"""Which patients does a cancer classifier give away?

Audits a scikit-learn pipeline, weakly and strongly regularised.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import noshadow as ns


def main():
    # A data frame lends its index to the records, so patients keep their row numbers in the whole
    # table.
    x, y = load_breast_cancer(return_X_y=True, as_frame=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.5, stratify=y, random_state=0)
    audits = []
    for strength in (1000.0, 0.1):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=10_000)).fit(x_train, y_train)
        audit = ns.audit(model, (x_train, y_train), (x_test, y_test), fpr=0.01)
        risk, riskiest = audit.model_risk, audit.records.nsmallest(3, "rank")["id"].tolist()
        print(f"C={strength:g}: test accuracy {risk.nonmember_accuracy:.3f}, loss AUC {risk.auc:.3f}, riskiest patients {riskiest}")
        folder = audit.save(f"pipeline-audit-{strength:g}", overwrite=True)
        print(ns.write_report(audit, folder / "report.html"))
        audits.append(audit)
    print(ns.compare(*audits).verdict)


if __name__ == "__main__":
    main()
