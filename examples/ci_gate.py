"""A gate for CI: `noshadow gate` judges each candidate of a release.

The job fails when no candidate passes.

In a pipeline that has one model the same takes two lines of shell, the second of which stops the
    job with exit code 1: noshadow audit my_package.targets:candidate --out audit
    noshadow gate audit --max-tnr 0.05 --max-auc 0.6
"""

import subprocess
import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import noshadow as ns

# `noshadow`, by the interpreter that runs this
COMMAND = [sys.executable, "-c", "from noshadow.cli import main; main()"]
LIMITS = ["--max-tnr", "0.05", "--max-auc", "0.6"]
CANDIDATES = {"overfit": 100.0, "regularised": 0.01}  # the C of a logistic regression


def audited(name, strength):
    """The folder of the audit of one candidate.

    It is trained on half of the digits, a fifth of whose labels are drawn anew.
    """
    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    x, y = x / 16, np.where(rng.random(len(y)) < 0.2, rng.integers(0, 10, len(y)), y)
    model = LogisticRegression(C=strength, max_iter=5000).fit(x[::2], y[::2])
    audit = ns.audit(model, (x[::2], y[::2]), (x[1::2], y[1::2]), fpr=0.01)
    folder = audit.save(f"gate-{name}", overwrite=True)
    ns.write_report(audit, folder / "report.html")
    return folder


def passes(folder):
    """Whether the gate lets the audit through; it prints each figure beside its limit."""
    finished = subprocess.run([*COMMAND, "gate", str(folder), *LIMITS], capture_output=True, text=True, check=False)
    print(finished.stdout, end="")
    if finished.returncode > 1:  # 2 and 3 say that nothing was judged, which is neither yes nor no
        raise RuntimeError(finished.stderr)
    return finished.returncode == 0


def main(candidates):
    for name, strength in candidates.items():
        print(f"{name} (C={strength:g})")
        if passes(audited(name, strength)):
            print(f"{name} may be released")
            return
    sys.exit("no candidate passes the gate")  # exit code 1


if __name__ == "__main__":
    main(CANDIDATES)
