"""Examples: what they print and write is what their words say. tests/test_docs.py runs each of them as a script."""

import importlib.util
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import noshadow as ns
from extras import extra

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name):
    """The example as a module, its main() not yet run."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def has_report(folder):
    return "<html" in (Path(folder) / "report.html").read_text()


def test_the_image_classifier_prints_its_audit(capsys):
    example("image_classifier").main()
    said, audit = capsys.readouterr().out, ns.load("image-classifier-audit")
    risk = audit.model_risk
    assert f"TNR {risk.tnr:.3f} at FNR 0.01, AUC {risk.auc:.3f}" in said and f"TPR {risk.predicted_tpr:.3f}" in said
    assert 0 <= risk.auc_interval[0] <= risk.auc <= risk.auc_interval[1] <= 1 and risk.member_accuracy > risk.nonmember_accuracy > 0.9
    first = audit.records.nsmallest(1, "rank")["id"].item()
    assert len(audit.records) == 898 and re.search(rf"^ +1 +{first} ", said, flags=re.MULTILINE)
    assert has_report("image-classifier-audit")
    assert "data:image" in Path("image-classifier-audit/report.html").read_text()


def test_tabular_regression_prints_lower_bounds_that_agree_with_the_predicted_rates(capsys):
    module = example("tabular_regression")
    module.main()
    said, audit = capsys.readouterr().out, ns.load("tabular-regression-audit")
    assert "lower bounds, not a guarantee" in said and has_report("tabular-regression-audit")
    deltas = module.privacy_losses(audit)
    assert np.isfinite(deltas).all() and (deltas >= 0).all() and (deltas <= 1).all() and (np.diff(deltas, axis=1) <= 0).all()
    # What (ε, δ) means: TPR ≤ e^ε·FPR + δ. 2e-3 for the grid of thresholds, whose δ is a little below the best one.
    allowed = np.exp(module.EPSILONS) * audit.model_risk.fpr + deltas
    assert (audit.records["predicted_tpr"].to_numpy() <= allowed.min(1) + 2e-3).all()
    rows = [[float(word) for word in line.split()[2:]] for line in said.splitlines() if re.match(r" +\d+ +patient-\d+ ", line)]
    assert len(rows) == 5 and all(math.isfinite(value) for row in rows for value in row)
    assert all(row[2] >= row[3] >= module.DELTA and row[4] > 1 for row in rows)  # at δ = 0.01 the ε exceeds 1 where δ(1) > 0.01


def test_the_pipeline_leaks_less_when_regularised_and_patients_keep_their_rows(capsys):
    example("sklearn_pipeline").main()
    said = capsys.readouterr().out
    weak, strong = (ns.load(f"pipeline-audit-{strength}") for strength in ("1000", "0.1"))
    assert strong.model_risk.tnr < weak.model_risk.tnr and "Model risk fell by more than noise" in said
    assert has_report("pipeline-audit-1000") and has_report("pipeline-audit-0.1")
    rows = weak.records["id"].astype(int)
    assert rows.is_unique and rows.max() > len(rows)  # row numbers of the whole table, not of the half
    assert f"riskiest patients {weak.records.nsmallest(3, 'rank')['id'].tolist()}" in said


def test_arrays_give_the_same_audit_in_python_and_from_the_shell(run, capsys):
    example("arrays_from_anywhere").main()
    assert "train-" in capsys.readouterr().out and has_report("arrays-audit")
    code, _, err = run("audit", "signals.npz", "--out", "from-shell", "--weight-decay", "0.001")
    assert (code, err) == (0, "")
    audit, again = ns.load("arrays-audit"), ns.load("from-shell")
    assert audit.records.equals(again.records) and audit.model_risk == again.model_risk
    # The weights are at the minimum that the scores assume, and the finding says so.
    assert {finding.code: finding.status for finding in audit.findings}["NS020"] == "passed"


def test_private_training_lowers_the_risk_and_states_its_epsilon(capsys):
    extra("opacus")
    example("dp_training").main()
    said = capsys.readouterr().out
    plain, private = ns.load("dp-audit-plain"), ns.load("dp-audit-private")
    assert re.search(r"^plain +ε inf ", said, flags=re.MULTILINE)
    assert 1 < float(re.search(r"^private +ε (\S+) at δ 0.0001", said, flags=re.MULTILINE)[1]) < 10
    assert private.model_risk.tnr < plain.model_risk.tnr / 2 and private.model_risk.auc < plain.model_risk.auc
    assert "Model risk fell by more than noise" in said and Path("dp-change.html").exists()
    assert has_report("dp-audit-plain") and has_report("dp-audit-private")


def test_private_training_without_opacus_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(SystemExit, match=r"needs Opacus .*extra 'opacus'"):
        example("dp_training")


def test_a_network_wrapped_by_opacus_is_audited_as_itself():
    wrap = extra("opacus").GradSampleModule
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    x, y = torch.randn(60, 4), torch.randint(0, 3, (60,))
    own, wrapped = (
        ns.audit(network, (x[:30], y[:30]), (x[30:], y[30:]), weight_decay=0.01, progress=False) for network in (model, wrap(model))
    )
    assert own.records.equals(wrapped.records) and own.model_risk == wrapped.model_risk


def test_the_gate_stops_what_leaks_and_says_by_which_limit(capsys):
    module = example("ci_gate")
    with pytest.raises(SystemExit) as stopped:
        module.main({"overfit": module.CANDIDATES["overfit"]})
    assert stopped.value.code == "no candidate passes the gate"  # text: the interpreter prints it and exits with 1
    said = capsys.readouterr().out
    assert re.search(r"^FAIL  tnr = ", said, flags=re.MULTILINE) and re.search(r"^pass  auc = ", said, flags=re.MULTILINE)
    assert "1 of 2 limits exceeded: tnr" in said and "released" not in said
    module.main({"regularised": module.CANDIDATES["regularised"]})
    said = capsys.readouterr().out
    assert "FAIL" not in said and said.endswith("regularised may be released\n")
    assert has_report("gate-overfit") and has_report("gate-regularised")


def test_an_error_of_the_gate_is_no_verdict(monkeypatch):
    module = example("ci_gate")
    monkeypatch.setattr(module, "COMMAND", [sys.executable, "-S", "-c", "import sys; print('no audit', file=sys.stderr); sys.exit(2)"])
    with pytest.raises(RuntimeError, match="no audit"):
        module.passes("nowhere")


def test_larger_leaves_lower_the_risk_of_a_forest(capsys):
    example("forest_leaves").main()
    said = capsys.readouterr().out
    audits = {name: ns.load(name) for name in ("forest-leaves-1", "forest-leaves-10", "boosting-leaves-5", "boosting-leaves-50")}
    for name, audit in audits.items():
        assert f"test accuracy {audit.model_risk.nonmember_accuracy:.3f}, loss AUC {audit.model_risk.auc:.3f}" in said and has_report(name)
    for before, after in (("forest-leaves-1", "forest-leaves-10"), ("boosting-leaves-5", "boosting-leaves-50")):
        change = ns.compare(audits[before], audits[after])
        assert change.verdict in said and "fell by more than noise" in change.verdict
        assert audits[before].records["leaf_size"].median() < audits[after].records["leaf_size"].median()
    assert "findings lost: NS001, NS002, NS016, NS017" in said
