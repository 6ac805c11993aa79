"""Errors made to happen, function by function: each names its function at the start, and what it advises exists there."""

import functools
import inspect

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LinearRegression
from torch import nn

import noshadow as ns
from advised import arguments, owner_of, public, wrong_advice
from noshadow import attacks, canaries, metrics, reference, theory

RNG = np.random.default_rng(8)
X = RNG.normal(size=(40, 3)).astype(np.float32)
Y = RNG.integers(0, 3, 40)
TRAIN, TEST = (X[:20], Y[:20]), (X[20:], Y[20:])
FLAT = (X[:20], (Y[:20] > 0).astype(np.float32))
INSIDE = np.arange(48).reshape(6, 8) % 2 == 0
INSIDE[1::2] = ~INSIDE[1::2]
PLACES = np.linspace(0.1, 0.9, 48).reshape(6, 8)
LOSSES = np.linspace(0.1, 2.0, 30)
POINTS = np.linspace(-1, 1, 12).reshape(6, 2)
RBF = functools.partial(ns.rbf_kernel, length_scale=1.0)


class Then(nn.Module):
    """A network, and what it does to the output of its head."""

    def __init__(self, last, inner=None):
        super().__init__()
        torch.manual_seed(0)
        self.inner = inner or nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
        self.last = last

    def forward(self, x):
        return self.last(self.inner(x))


def network(outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))


def signals(part=slice(None), **changed):
    return ns.Signals(**({"features": X[part], "outputs": X[part], "targets": Y[part]} | changed))


@functools.cache
def saved():
    return ns.audit_signals(signals(slice(0, 20)), signals(slice(20, 40)), progress=False)


def one_logit(x):
    return x[:, :1]


def chooses(x):
    return x if float(x.detach().abs().max()) < 1e6 else -x


def references(folder="references", train_fn=None, **options):
    made = train_fn or (lambda rows, seed: X)
    return reference.train_references(folder, made, TRAIN, TEST, **({"models": 4, "workers": 1, "progress": False} | options))


def recipe(**changed):
    chosen = {"build": lambda: nn.Linear(3, 3), "x": X, "y": Y, "epochs": 1, "batch_size": 8, "lr": 0.1, "optimizer": "sgd"}
    return reference.Recipe(**(chosen | changed))


def lood(function=ns.lood, **changed):
    return function(POINTS, POINTS[:, 0], **({"differing": 0, "kernel": RBF, "noise": 0.1} | changed))


def exposed(**changed):
    return ns.exposure(**({"margins": np.linspace(-1, 1, 40)} | changed))


def traces(*columns):
    found = ns.LossTraces()
    for column in columns:
        found.append(column)
    return found


def calibrated():
    return ns.fit_calibration([{"setup": "a"}])


AUDIT = functools.partial(ns.audit, progress=False)
ARRAYS = functools.partial(ns.audit_signals, progress=False)
# (function named at the start, call): every call raises.
ERRORS = [
    ("Evidence", lambda: ns.Evidence("mine", {"guess": np.zeros(3)})),
    ("Evidence", lambda: ns.Evidence("", {})),
    ("audit", lambda: AUDIT("a model", TRAIN, TEST)),
    ("audit", lambda: AUDIT(network(), X, TEST)),
    ("audit", lambda: AUDIT(network(), TRAIN, TEST, layer="no.such")),
    ("audit", lambda: AUDIT(Then(torch.tanh), TRAIN, TEST)),
    ("audit", lambda: AUDIT(Then(lambda z: torch.cat([z, z], 1)), TRAIN, TEST)),
    ("audit", lambda: AUDIT(Then(lambda z: (z.sin(), z.cos())), TRAIN, TEST)),
    ("audit", lambda: AUDIT(network(), TRAIN, TEST, weight_decay=-1)),
    ("audit", lambda: AUDIT(network(), TRAIN, TEST, fpr=2)),
    ("audit", lambda: AUDIT(network(), TRAIN, TEST, score_options={"layers": 2})),
    ("audit", lambda: AUDIT(network(), TRAIN, TEST, damping=0.1, layers="all", score_options={"method": "dual", "max_memory": 10})),
    ("audit", lambda: AUDIT(network(), TRAIN, TEST, score_options={"method": "exact", "max_memory": 10})),
    ("audit", lambda: AUDIT(Then(chooses), TRAIN, TEST, damping=0.1, layers="all")),
    ("audit", lambda: AUDIT(network(1), FLAT, FLAT)),
    ("audit", lambda: AUDIT(network(1), TRAIN, TEST, task="classification")),
    ("audit", lambda: AUDIT(network(), (X[:20], X[:20]), TEST, task="classification")),
    ("audit", lambda: AUDIT(RandomForestClassifier(2).fit(*TRAIN), TRAIN, TEST, layers="all")),
    ("audit", lambda: AUDIT(RandomForestClassifier(2).fit(*TRAIN), TRAIN, TEST, score_options={"method": "exact"})),
    ("audit", lambda: AUDIT(network(), TRAIN, TEST, loss_traces=np.zeros((5, 2)))),
    ("audit", lambda: AUDIT(network(), TRAIN, TEST, groups=["a"])),
    ("audit_signals", lambda: ARRAYS(X, signals())),
    ("audit_signals", lambda: ARRAYS(signals(), signals(), output_scale="percent")),
    ("audit_signals", lambda: ARRAYS(signals(outputs=X[:, :1]), signals(outputs=X[:, :1]), task="classification")),
    ("audit_signals", lambda: ARRAYS(signals(), signals(), family=3)),
    ("audit_signals", lambda: ARRAYS(signals(), signals(), score_options={"method": "exact", "max_memory": 10})),
    ("audit_signals", lambda: ARRAYS(signals(), signals(), output_scale="probabilities")),
    ("Signals", lambda: signals(outputs=X[:, :0])),
    ("Signals", lambda: signals(ids=["a"] * 40)),
    ("Signals.with_ids", lambda: signals().with_ids([1])),
    ("Signals", lambda: signals(features=np.ma.masked_array(X, X > 0))),
    ("save_splits", lambda: ns.save_splits("signals.txt", signals(), signals())),
    ("load_splits", lambda: ns.load_splits("nowhere.npz")),
    ("collect_signals", lambda: ns.collect_signals("a model", TRAIN)),
    ("collect_signals", lambda: ns.collect_signals(Then(torch.relu), TRAIN)),
    ("collect_signals", lambda: ns.collect_signals(network(), TRAIN, layer="none")),
    ("sequence_losses", lambda: ns.sequence_losses(network(), [[1, 2]])),
    ("LossTraces", lambda: ns.LossTraces(TRAIN, task="sorting")),
    ("LossTraces.record", lambda: ns.LossTraces().record(network())),
    ("LossTraces.record", lambda: ns.LossTraces(FLAT).record(network(1))),
    ("LossTraces.append", lambda: traces([[1.0]])),
    ("LossTraces.save", lambda: ns.LossTraces().save("traces.npz")),
    ("record_scores", lambda: ns.record_scores(X, X, Y, method="fast")),
    ("record_scores", lambda: ns.record_scores(X, X, Y, method="exact", max_memory=10)),
    ("record_scores", lambda: ns.record_scores(X, X, Y, damping=0.0, method="ekfac")),
    ("record_scores", lambda: ns.record_scores(X, X[:, :1], Y, task="classification")),
    ("record_scores", lambda: ns.record_scores(X, X[:, :2], X[:, :1])),
    ("sharded_record_scores", lambda: ns.sharded_record_scores(X, X, Y, address="tcp://nowhere")),
    ("sharded_record_scores", lambda: ns.sharded_record_scores(X, X, Y, max_memory=10, workers=1)),
    ("last_layer_leverage", lambda: ns.last_layer_leverage(X, X, Y, records=[50])),
    ("last_layer_leverage", lambda: ns.last_layer_leverage(X, X, Y, max_memory=10)),
    ("network_scores", lambda: ns.network_scores("a model", TRAIN)),
    ("network_scores", lambda: ns.network_scores(Then(chooses), TRAIN, layers="all", damping=0.1)),
    ("network_scores", lambda: ns.network_scores(network(), TRAIN, layers="all", damping=0.1, method="dual", max_memory=10)),
    ("network_scores", lambda: ns.network_scores(network(), TRAIN, layers=9)),
    ("damping_sweep", lambda: ns.damping_sweep(network(), TRAIN, factors=())),
    ("generalized_leverage", lambda: ns.generalized_leverage(network(), TRAIN, X[:2], damping=0)),
    ("generalized_leverage", lambda: ns.generalized_leverage(Then(chooses), TRAIN, X[:2], damping=0.1)),
    ("network_influence", lambda: ns.network_influence(network(), TRAIN, X[:2], damping="auto")),
    ("network_influence", lambda: ns.network_influence(network(), TRAIN, (X[:0], Y[:0]), damping=0.1)),
    ("model_risk", lambda: ns.model_risk(LOSSES, LOSSES, fpr=1e-9)),
    ("model_risk", lambda: ns.model_risk(LOSSES, LOSSES, member_margins=LOSSES)),
    ("model_risk", lambda: ns.model_risk(LOSSES, LOSSES, calibration="mine")),
    ("group_risk", lambda: ns.group_risk(LOSSES, LOSSES, ["a"] * 30, ["a"] * 30)),
    ("risk_predictors", lambda: ns.risk_predictors(-LOSSES, LOSSES)),
    ("fit_calibration", calibrated),
    ("extrapolated_tnr", lambda: ns.extrapolated_tnr(-LOSSES, LOSSES, 1e-3, scale="margin")),
    ("extrapolated_tnr", lambda: ns.extrapolated_tnr(LOSSES, LOSSES, 1e-3, resamples=1)),
    ("extrapolated_tpr", lambda: ns.extrapolated_tpr(LOSSES[:3], LOSSES[:3], 1e-3)),
    ("extrapolated_tpr", lambda: ns.extrapolated_tpr(LOSSES, LOSSES, 1e-3, level=2)),
    ("exposure", lambda: exposed(margins=np.arange(3.0))),
    ("exposure", lambda: exposed(references=np.zeros((2, 40)))),
    ("compare", lambda: ns.compare("before", "after")),
    ("compare", lambda: ns.compare(saved(), saved(), fpr=1e-9)),
    ("findings", lambda: ns.findings("audit")),
    ("Audit.save", lambda: [saved().save("audit") for _ in range(2)]),
    ("load", lambda: ns.load("nowhere")),
    ("load_model", lambda: ns.load_model("nowhere.onnx")),
    ("load_model", lambda: ns.load_model(__file__)),
    ("load_lood", lambda: ns.load_lood("nowhere")),
    ("lood", lambda: lood(differing=9)),
    ("lood", lambda: lood(factor="made")),
    ("lood", lambda: lood(max_memory=1)),
    ("lood_scores", lambda: ns.lood_scores(-np.eye(4), np.ones(4), noise=0.1)),
    ("lood_scores", lambda: ns.lood_scores(np.eye(4), np.ones(4), noise=0.1, max_memory=1)),
    ("lood_bounds", lambda: ns.lood_bounds(POINTS, POINTS[:, 0], groups=[], kernel=RBF, noise=0.1)),
    ("lood_bounds", lambda: ns.lood_bounds(POINTS, POINTS[:, 0], groups=[0], kernel=RBF, noise=0.1, max_memory=1)),
    ("lood_audit", lambda: ns.lood_audit(POINTS, POINTS[:, 0], kernel="rbf")),
    ("lood_audit", lambda: ns.lood_audit(POINTS, POINTS[:, 0], max_memory=1, progress=False)),
    ("lood_audit", lambda: ns.lood_audit(POINTS, POINTS[:, 0], kernel="conv")),
    ("optimal_query", lambda: lood(ns.optimal_query, factor="made")),
    ("optimal_query", lambda: lood(ns.optimal_query, bounds=3)),
    ("nngp_kernel", lambda: ns.nngp_kernel(POINTS, depth=2, architecture="conv")),
    ("nngp_kernel", lambda: ns.nngp_kernel(POINTS, depth=2, max_memory=1)),
    ("nngp_kernel", lambda: ns.nngp_kernel(POINTS, depth=400, activation="relu", weight_variance=1e9)),
    ("critical_weights", lambda: ns.critical_weights("sine")),
    ("critical_weights", lambda: ns.critical_weights("relu", variance=0.0)),
    ("rbf_kernel", lambda: ns.rbf_kernel(POINTS[:, 0], length_scale=1.0)),
    ("laplace_kernel", lambda: ns.laplace_kernel(POINTS, POINTS[:, :1], length_scale=1.0)),
    ("with_lood", lambda: ns.with_lood(saved(), "found")),
    ("write_report", lambda: ns.write_report("audit", "report.html")),
    ("write_report", lambda: ns.write_report(saved(), "report.html", show_ids=["a"])),
    ("write_annex", lambda: ns.write_annex("audit", "annex.html")),
    ("write_annex", lambda: ns.write_annex(saved(), "annex.txt")),
    ("write_annex", lambda: ns.write_annex(saved(), "annex.html", folder="nowhere")),
    ("write_records", lambda: ns.write_records("audit", "records.csv")),
    ("write_records", lambda: ns.write_records(saved(), "records.txt")),
    ("write_records", lambda: ns.write_records(saved(), "records.csv", top=0)),
    ("write_comparison", lambda: ns.write_comparison("comparison", "page.html")),
    ("write_lood_report", lambda: ns.write_lood_report("found", "page.html")),
    ("attack_success", lambda: attacks.attack_success(PLACES, INSIDE, fprs=0.1)),
    ("attack_success", lambda: attacks.attack_success(np.ones((6, 8)), INSIDE)),
    ("attack_success", lambda: attacks.attack_success(PLACES[:2], INSIDE[:2], variance="per-record")),
    ("lira_scores", lambda: attacks.lira_scores(PLACES[0], PLACES, np.zeros_like(INSIDE))),
    ("rmia_scores", lambda: attacks.rmia_scores(PLACES[0], PLACES, np.zeros_like(INSIDE), PLACES[0], PLACES)),
    ("rmia_scores", lambda: attacks.rmia_scores(PLACES[0], 9 * PLACES, INSIDE, PLACES[0], PLACES, variant="offline")),
    ("loss_scores", lambda: attacks.loss_scores([np.nan])),
    ("memorization", lambda: attacks.memorization(PLACES > 0.5, INSIDE.astype(float))),
    ("shokri_scores", lambda: attacks.shokri_scores(X, Y, [X], INSIDE, task="classification")),
    ("shokri_success", lambda: attacks.shokri_success([X] * 6, Y, INSIDE[:, :1], task="classification")),
    ("auc", lambda: metrics.auc([], [1.0])),
    ("auc_interval", lambda: metrics.auc_interval([1.0, 2.0], [1.0, 2.0], level=2)),
    ("agreement_table", lambda: metrics.agreement_table([], [])),
    ("clopper_pearson", lambda: metrics.clopper_pearson(3, 2)),
    ("loss_auc", lambda: metrics.loss_auc([], [1.0])),
    ("loss_threshold", lambda: metrics.loss_threshold(LOSSES, 2.0)),
    ("noise_ceiling", lambda: metrics.noise_ceiling([], [])),
    ("share_intervals", lambda: metrics.share_intervals([2.0], [3])),
    ("spearman", lambda: metrics.spearman([1.0], [1.0])),
    ("tnr_at_fnr", lambda: metrics.tnr_at_fnr(LOSSES, LOSSES, 1e-9)),
    ("top_precision", lambda: metrics.top_precision(LOSSES, LOSSES, top=2)),
    ("top_recall", lambda: metrics.top_recall(LOSSES, LOSSES, top=2)),
    ("accusation_precision", lambda: metrics.accusation_precision(0.5, 0.01, 2.0)),
    ("tpr_at_fpr", lambda: metrics.tpr_at_fpr(LOSSES, LOSSES, 1e-9)),
    ("tpr_interval", lambda: metrics.tpr_interval(LOSSES, LOSSES, 1e-9)),
    ("plan", lambda: reference.plan(10, models=4, fraction=0.01)),
    ("fold_plan", lambda: reference.fold_plan(3, 2, folds=4)),
    ("train_references", lambda: references(pool="half")),
    ("train_references", lambda: references(task="sorting")),
    ("train_references", lambda: references(queries="mirrored")),
    ("train_references", lambda: references(address="tcp://nowhere")),
    ("train_references", lambda: references(engine="vectorised")),
    ("train_references", lambda: references(train_fn="train")),
    ("load_references", lambda: reference.load_references("nowhere")),
    ("status", lambda: reference.status("nowhere")),
    ("mirrored", lambda: reference.mirrored(X)),
    ("shifted", lambda: reference.shifted(X, 1, 1)),
    ("SeededDropout", lambda: reference.SeededDropout(2.0)),
    ("Recipe", lambda: recipe(lr=-1)),
    ("Recipe", lambda: recipe(optimizer="adam", momentum=0.9)),
    ("Recipe", lambda: recipe(build=nn.Linear(3, 3))),
    ("Recipe.train_many", lambda: recipe().train_many([[0, 1]], [1, 2])),
    ("make", lambda: canaries.make("no slot", tokenizer=list)),
    ("insert", lambda: canaries.insert(["a"], canaries.make([1, [2, 3]]))),
    ("score", lambda: canaries.score(None, "a secret")),
    ("choose", lambda: canaries.choose("folder", 1)),
    ("mislabel", lambda: canaries.mislabel([0, 1], [5])),
    ("token_gains", lambda: ns.token_gains(None, [[1, 2]])),
    ("asymptotic_gap", lambda: theory.asymptotic_gap(0.1, 1.0, noise_variance=1.0, n=5, p=4)),
    ("expected_gap", lambda: theory.expected_gap(0.1, 1.0, noise_variance=1.0, n=5, p=4)),
    ("fixed_design_statistic", lambda: theory.fixed_design_statistic([[1.0]], [2.0], noise_variance=1.0)),
    ("fixed_design_tradeoff", lambda: theory.fixed_design_tradeoff(2.0, 0.1)),
    ("joint_law", lambda: theory.joint_law(0.1, [1.0, 2.0], noise_variance=1.0, n=9, p=4)),
    ("optimal_tradeoff", lambda: theory.optimal_tradeoff(0.1, 0.1, 1.0, noise_variance=1.0, n=5, p=4)),
    ("JointLaw.sample", lambda: theory.joint_law(0.1, 1.0, noise_variance=1.0, n=9, p=4).sample(0)),
    ("JointLaw.leverage_cdf", lambda: theory.joint_law(0.1, 1.0, noise_variance=1.0, n=9, p=4).leverage_cdf(2.0)),
    ("margin_tpr", lambda: theory.margin_tpr(2.0, 1.0, 1.0, 1.0)),
    ("predicted_tpr", lambda: theory.predicted_tpr(0.1, 0.1, 1.0, noise_variance=1.0, n=10, dof=9)),
    ("privacy_curve", lambda: theory.privacy_curve(1.0, 0.1, 1.0, noise_variance=1.0, n=10, dof=9)),
    ("tradeoff", lambda: theory.tradeoff(0.1, 0.1, 1.0, noise_variance=1.0, n=5, p=4)),
    ("Calibration.load", lambda: ns.Calibration.load("nowhere.json")),
    ("Calibration.from_dict", lambda: ns.Calibration.from_dict([])),
    ("Finding.from_dict", lambda: ns.Finding.from_dict({})),
    ("GroundTruth.from_dict", lambda: ns.GroundTruth.from_dict({})),
    ("GroupRisk.from_dict", lambda: ns.GroupRisk.from_dict([])),
    ("ModelRisk.from_dict", lambda: ns.ModelRisk.from_dict([])),
]
# Exceptions, results and arithmetic: a user does not build them, and those that check their fields are provoked by `from_dict` above.
CANNOT_RAISE = {
    *("InputError", "NotApplicable", "NumericalError", "AttackOptions", "AttackSuccess", "Audit", "Comparison", "CrossFitted", "Exposure"),
    *("Finding", "GeneralizedLeverage", "GroundTruth", "GroupRisk", "LoodAudit", "LoodBounds", "LoodResult", "LoodScores", "Memorization"),
    *(
        "ModelRisk",
        "NetworkInfluence",
        "error_budget",
        "Plan",
        "QueryResult",
        "RecordScores",
        "References",
        "SequenceLosses",
        "TokenGains",
        "Canaries",
        "CanaryScores",
        "Inserted",
        "Status",
        "TailRate",
    ),
}
# What they refuse is said by what reads them: a Target by the command that gets it, references by the folder that they are loaded from.
READ_BY_OTHERS = {"Target", "ground_truth", "with_ground_truth"}


@pytest.mark.parametrize("number", range(len(ERRORS)), ids=lambda number: f"{ERRORS[number][0]}-{number}")
def test_a_provoked_error_advises_what_its_function_has(number, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    owner, call = ERRORS[number]
    with pytest.raises((ns.InputError, ns.NotApplicable, ns.NumericalError)) as caught:
        call()
    message = str(caught.value)
    assert owner_of(message) == owner and "\n" not in message, message
    assert wrong_advice(owner, message.partition(": ")[2]) == [], message


def test_the_table_covers_the_public_list():
    provoked = {name for owner, _ in ERRORS for name in (owner, owner.partition(".")[0])}
    whole = {name for name in public() if "." not in name}
    assert whole - provoked == (CANNOT_RAISE | READ_BY_OTHERS) - provoked and whole >= CANNOT_RAISE | READ_BY_OTHERS
    assert not (CANNOT_RAISE | READ_BY_OTHERS) & {owner for owner, _ in ERRORS} and len(ERRORS) >= 60


def test_a_layer_is_asked_for_only_where_a_linear_has_the_outputs_shape():
    """`layer=` helps where the head's own output is what the loss takes; a head of another shape is no answer to "which layer"."""
    with pytest.raises(ns.InputError, match=r"Name the head with layer=…$"):
        AUDIT(Then(torch.tanh), TRAIN, TEST)
    with pytest.raises(ns.InputError, match=r"For model risk alone pass Signals\(None, outputs, targets\) to audit_signals\.$") as caught:
        AUDIT(Then(lambda z: z.view(-1, 3, 2).amax(2), nn.Linear(3, 6)), TRAIN, TEST)
    assert "Linear 'inner' (3 → 6)" in str(caught.value) and "layer=" not in str(caught.value)
    train, test = (ns.Signals(None, X[part], Y[part]) for part in (slice(0, 20), slice(20, 40)))
    assert ARRAYS(train, test).model_risk is not None


def test_a_regression_names_the_rates_of_records_only_where_they_have_them():
    numbers = X @ [1.0, 2.0, 3.0] + RNG.normal(size=40)
    train, test = (X[:20], numbers[:20]), (X[20:], numbers[20:])
    boosted = AUDIT(GradientBoostingRegressor(n_estimators=2).fit(*train), train, test)
    linear = AUDIT(LinearRegression().fit(*train), train, test)
    weighted = AUDIT(LinearRegression().fit(*train, sample_weight=np.arange(1, 21)), train, test, sample_weight=np.arange(1.0, 21.0))
    for audit in (boosted, linear, weighted):
        has = "predicted_tpr" in audit.records
        assert has is (audit is linear) is ("predicted_tpr" not in audit.not_applicable)
        assert has is ("predicted_tpr" in audit.model_risk.reason)
        assert audit.not_applicable["predicted_tpr of the model"] == f"not available: {audit.model_risk.reason}"


def test_signatures_are_read_as_python_reads_them():
    assert "layer" in arguments("audit") and "unvectorised" not in arguments("audit")
    assert arguments("LossTraces.record") == {"model"} | set(inspect.signature(ns.LossTraces).parameters)
