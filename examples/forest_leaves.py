"""What do larger leaves cost, and whom do they hide?

Audits a forest and boosting on digits, grown freely and with larger leaves, and compares them.
"""

from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import train_test_split

import noshadow as ns

MODELS = {
    "forest": lambda size: RandomForestClassifier(100, min_samples_leaf=size, random_state=0),
    "boosting": lambda size: HistGradientBoostingClassifier(max_iter=30, min_samples_leaf=size, random_state=0),
}
# Records that a leaf must hold, at first and then.
SIZES = {"forest": (1, 10), "boosting": (5, 50)}


def audited(name, size, train, test):
    """Fit one model, audit it, print what its leaves are like, and write its folder and report."""
    model = MODELS[name](size).fit(*train)
    audit = ns.audit(model, train, test, fpr=0.01, progress=False)
    risk, typical = audit.model_risk, audit.records["leaf_size"].median()
    found = [finding.code for finding in audit.findings if finding.status == "found"]
    print(f"{name}, min_samples_leaf={size}: test accuracy {risk.nonmember_accuracy:.3f}, loss AUC {risk.auc:.3f}")
    print(f"  half of the records share their leaf with fewer than {typical:.1f} records; found: {', '.join(found)}")
    folder = audit.save(f"{name}-leaves-{size}", overwrite=True)
    ns.write_report(audit, folder / "report.html")
    return audit


def main():
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.5, stratify=y, random_state=0)
    train, test = (x_train, y_train), (x_test, y_test)
    for name, (before, after) in SIZES.items():
        change = ns.compare(audited(name, before, train, test), audited(name, after, train, test))
        print(f"  {change.verdict}")
        print(f"  findings lost: {', '.join(finding.code for finding in change.lost) or 'none'}")


if __name__ == "__main__":
    main()
