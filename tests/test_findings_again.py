"""One warning system: audits read back draw the same findings, and no finding is also a note."""

import copy
import json
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neural_network import MLPRegressor
from torch import nn
from torch.utils.data import Subset, TensorDataset

import noshadow as ns
from noshadow._audit import entry, evidence, risks
from noshadow._audit import language as sequences
from noshadow._findings import RULES
from noshadow._lood import with_lood
from noshadow.figures.finding import STATUSES
from noshadow.outcomes import ABSENCES, Absent, Note, not_applicable, uncoded
from noshadow.reference.ground_truth import with_ground_truth
from test_ground_truth import experiment
from tiny_language_models import gpt2, ragged

RNG = np.random.default_rng(3)
X, NOISE = RNG.normal(size=(400, 4)), RNG.normal(size=400)
LABELS = (X[:, 0] + 0.5 * NOISE > 0).astype(np.int64)
REAL = X[:, 0] ** 2 + 0.1 * NOISE
IN, OUT = slice(0, 200), slice(200, 400)
UNSEEN = X[:20, 0].max() + 0.01  # beyond the records that a model is first tried on


def splits(x=X, y=LABELS, inside=IN, outside=OUT):
    return (x[inside], y[inside]), (x[outside], y[outside])


def tensors(y=LABELS, dtype=torch.int64):
    return splits(torch.from_numpy(X).float(), torch.from_numpy(np.asarray(y)).to(dtype))


def network(outputs=2, *, seed=0, width=8):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, outputs))


class Noisy(nn.Module):
    """Dropout that eval() does not switch off."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x):
        return self.net(nn.functional.dropout(x, 0.5, training=True))


class Abstaining(nn.Module):
    """Outputs that are those of the last Linear, but for some records."""

    def __init__(self, level=UNSEEN):
        super().__init__()
        self.level = level
        self.body, self.head = network()[0], network(seed=1)[2]

    def forward(self, x):
        return self.head(self.body(x).tanh()) + 0.3 * (x[:, :1] > self.level)


def audited(model, data, **how):
    return ns.audit(model, *data, progress=False, **how)


def logistic(**how):
    data = splits(inside=np.r_[0:200, 0:3], outside=np.r_[200:400, 5:9])
    names = [f"patient {i}" for i in range(203)]
    groups = {"groups": ["ab"[i % 2] for i in range(203)], "test_groups": ["ab"[i % 2] for i in range(204)]}
    return audited(LogisticRegression(C=1e3).fit(*data[0]), data, ids=names, **groups, **how)


def traced():
    model, (train, test) = network(), tensors()
    with torch.no_grad():
        last = nn.functional.cross_entropy(model.eval()(train[0]), train[1], reduction="none").numpy()
    return audited(model, (train, test), loss_traces=np.column_stack([last + 1, last + 0.3, last]))


def traced_for_long():
    model, (train, test) = network(), tensors()
    with torch.no_grad():
        seen, unseen = (nn.functional.cross_entropy(model.eval()(x), y, reduction="none").numpy() for x, y in (train, test))
    traces = ns.LossTraces()
    for left in range(15, -1, -1):
        traces.append(2.0**left * seen, (1 + abs(left - 12)) * unseen)
    return audited(model, (train, test), loss_traces=traces)


def repeated_rows():
    data = TensorDataset(torch.from_numpy(X).float(), torch.from_numpy(LABELS))
    return audited(network(), (Subset(data, [*range(200), 5, 5]), Subset(data, [*range(190, 400)])))


def projected():
    options = {"method": "projected", "dimension": 16}
    return audited(network(width=32), tensors(), layers="all", weight_decay=1e-4, score_options=options)


def probabilities():
    p = np.column_stack([1 - (q := 1 / (1 + np.exp(-3 * X[:, 0]))), q]).round(3)
    train, test = (ns.Signals(X[rows], p[rows], LABELS[rows], ids=np.arange(200) + 7) for rows in (IN, OUT))
    return ns.audit_signals(train, test, progress=False)


def arrays(rows=(IN, OUT), features=True, targets=REAL, **how):
    sides = [ns.Signals(X[r] if features else None, X[r, 0], targets[r]) for r in rows]
    return ns.audit_signals(*sides, task="regression", progress=False, **how)


def interpolated():
    x, y = X[:6].copy(), REAL[:6]
    fitted = LinearRegression().fit(x[:, :3], y)
    alone = np.column_stack([x[:, :3], np.arange(6) == 5])
    fitted = LinearRegression().fit(alone, y)
    return audited(fitted, ((alone, y), (np.column_stack([X[200:240, :3], np.zeros(40)]), REAL[200:240])))


def language(test=40, **how):
    train, other = (ragged(np.random.default_rng(k).integers(5, 16, 40), seed=k) for k in (1, 2))
    return ns.audit(gpt2(), train, [*other, *train[:2]][:test] if test else None, progress=False, **how)


def reference_models(folder, kind):
    return with_ground_truth(*experiment(folder / "set", kind), progress=False)


def rows_not_heeded():
    """Reference models that are all trained on the members, with a jitter each."""
    wide = np.random.default_rng(5).normal(size=(400, 150))
    data = splits(wide, np.random.default_rng(6).integers(0, 2, 400))

    def train_fn(indices, seed):
        jitter = np.random.default_rng(seed).normal(size=(200, 150))
        return LogisticRegression(C=0.1).fit(wide[IN] + 0.1 * jitter, data[0][1])

    how = {"reference_models": 4, "train_fn": train_fn, "training_options": {"workers": 1}}
    return audited(LogisticRegression(C=0.1).fit(*data[0]), data, **how)


def beside_lood():
    x, y = load_digits(return_X_y=True)
    x, y = x[:90] / 16, y[:90]
    ids = [f"scan {i}" for i in range(90)]
    model = LogisticRegression(max_iter=500).fit(x[:60], y[:60])
    audit = ns.audit(model, (x[:60], y[:60]), (x[60:], y[60:]), ids=ids[:60], progress=False)
    return with_lood(audit, ns.lood_audit(x[10:], y[10:], ids=ids[10:], depth=1))


AUDITS = {
    "logistic with copies, groups and ids": lambda _: logistic(),
    "logistic at a level": lambda _: logistic(fpr=0.05),
    "ridge of two outputs": lambda _: audited(Ridge().fit(X[IN], X[IN, :2] ** 2), splits(y=X[:, :2] ** 2)),
    "forest": lambda _: audited(RandomForestClassifier(20, random_state=0).fit(X[IN], LABELS[IN]), splits()),
    "swapped": lambda _: audited(RandomForestClassifier(20, random_state=0).fit(X[OUT], LABELS[OUT]), splits()),
    "the same records twice": lambda _: audited(LogisticRegression().fit(X[IN], LABELS[IN]), splits(outside=IN)),
    "perceptron": lambda _: audited(
        MLPRegressor(hidden_layer_sizes=(5,), solver="lbfgs", max_iter=5000, random_state=0).fit(X[IN], REAL[IN]), splits(y=REAL)
    ),
    "interpolated": lambda _: interpolated(),
    "softmax": lambda _: audited(network(), tensors(), weight_decay=1e-3),
    "softmax of unknown decay": lambda _: audited(network(), tensors()),
    "one logit": lambda _: audited(network(1), tensors(dtype=torch.float32), task="binary", damping=0.5),
    "regression network": lambda _: audited(network(1), tensors(REAL, torch.float32)),
    "all layers": lambda _: audited(network(), tensors(), layers="all", weight_decay=1e-3),
    "all layers without decay": lambda _: audited(network(1), tensors(REAL, torch.float32), layers="all", weight_decay=0.0),
    "all layers, unknown decay": lambda _: audited(network(1), tensors(REAL, torch.float32), layers="all"),
    "all layers, projected": lambda _: projected(),
    "traces": lambda _: traced(),
    "traces past interpolation": lambda _: traced_for_long(),
    "sample weights": lambda _: audited(network(1), tensors(REAL, torch.float32), sample_weight=1 + LABELS[IN]),
    "EK-FAC": lambda _: audited(network(), tensors(), damping=1.0, score_options={"method": "ekfac", "refine": 5}),
    "repeated rows and shared ids": lambda _: repeated_rows(),
    "random outputs": lambda _: audited(Noisy(), tensors()),
    "outputs not of the head": lambda _: audited(Abstaining(), tensors()),
    "outputs not of the layer asked for": lambda _: audited(Abstaining(), tensors(), layer="head"),
    "outputs of the layer asked for": lambda _: audited(Abstaining(-np.inf), tensors(), layer="head"),
    "outputs not of the head, all layers": lambda _: audited(Abstaining(), tensors(), layers="all", weight_decay=1e-2),
    "probabilities": lambda _: probabilities(),
    "arrays": lambda _: arrays(),
    "arrays of no linear head": lambda _: arrays(damping=0.0, targets=REAL),
    "arrays without features": lambda _: arrays(features=False),
    "no test records": lambda _: arrays(rows=(IN, slice(0, 0))),
    "one test record": lambda _: arrays(rows=(IN, slice(0, 1)), features=False),
    "language model": lambda _: language(),
    "language model without decay": lambda _: language(42, weight_decay=0.0),
    "language model without a test": lambda _: language(0, weight_decay=0.01),
    "ground truth of a classifier": lambda folder: reference_models(folder, "classification"),
    "ground truth of a regression": lambda folder: reference_models(folder, "regression"),
    "rows not heeded": lambda _: rows_not_heeded(),
    "leave-one-out distinguishability": lambda _: beside_lood(),
}


class Audits(dict):
    """Each audit, made once when first asked for, and the codes of its functions' own notes."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.codes = folder, {}

    def __missing__(self, name):
        with pytest.MonkeyPatch.context() as patch:
            results = spied(patch, (entry, "view"), (evidence, "record_scores"), (entry, "network_scores"), (risks, "model_risk"))
            results = spied(patch, (sequences, "sequence_scores"), (sequences, "model_risk"), results=results)
            self[name] = AUDITS[name](self.folder("audit"))
        # View, scores and risk of the target; those of its reference models came before.
        self.codes[name] = {note.code for result in results[-3:] for note in result.notes if isinstance(note, Note)}
        return self[name]


def spied(patch, *places, results=None):
    """Every result of the named functions, in the order of calls."""
    results = [] if results is None else results

    def spy(real, *args, **kwargs):
        results.append(real(*args, **kwargs))
        return results[-1]

    for module, name in places:
        patch.setattr(module, name, partial(spy, getattr(module, name)))
    return results


@pytest.fixture(scope="module")
def audits(tmp_path_factory):
    return Audits(tmp_path_factory.mktemp)


def found(audit):
    return {finding.code for finding in audit.findings if finding.status == "found"}


def of(drawn, code):
    (finding,) = (finding for finding in drawn if finding.code == code)
    return finding


@pytest.mark.parametrize("name", AUDITS)
def test_an_audit_read_again_draws_the_same_findings(name, audits, tmp_path):
    audit = audits[name]
    back = ns.load(audit.save(tmp_path / "audit"))
    assert ns.findings(back) == audit.findings == ns.findings(audit) == back.findings
    assert back.notes == audit.notes and back.not_applicable == audit.not_applicable
    # Written, read and written again: nothing that findings are drawn from changes on the way.
    assert ns.findings(ns.load(back.save(tmp_path / "again"))) == audit.findings


def test_the_audits_reach_every_status_and_most_rules(audits):
    drawn = [finding for name in AUDITS for finding in audits[name].findings]
    assert {finding.status for finding in drawn} == set(STATUSES)
    met = {finding.code for finding in drawn if finding.status == "found"}
    # The others are made by hand in test_findings.
    assert {rule.code for rule in RULES} - met <= {"NS011", "NS012", "NS022", "NS030", "NS031", "NS032"}


# A warning is a note or a finding, never both and never neither


@pytest.mark.parametrize("name", AUDITS)
def test_no_note_of_an_audit_is_one_that_a_finding_says(name, audits):
    audit = audits[name]
    assert audit.notes == uncoded(audit.notes)
    assert audit.model_risk is None or audit.model_risk.notes == uncoded(audit.model_risk.notes)
    said = ("not at a minimum", "pass weight_decay", "features and target of", "rests on one member", "nearly singular", "crowd", "jitter")
    told = ("interpolated records", "given as probabilities", "not a linear function", "as asked for", "also training sequences")
    assert not [note for note in audit.notes if any(words in note for words in (*said, *told))]


@pytest.mark.parametrize("name", AUDITS)
def test_what_a_function_by_itself_would_say_with_a_code_is_found(name, audits):
    """Each note with a code that scores and risk give by themselves is a finding of the audit."""
    audit, codes = audits[name], audits.codes[name]
    assert codes <= found(audit)
    expected = {"interpolated": "NS014", "softmax": "NS020", "swapped": "NS005", "all layers, projected": "NS025"}
    expected |= {"outputs of the layer asked for": "NS043", "probabilities": "NS023", "outputs not of the head, all layers": "NS043"}
    assert name not in expected or expected[name] in codes


def test_functions_by_themselves_still_warn():
    scores = ns.record_scores(X, np.tanh(X[:, 0]), REAL, task="regression", damping=1e-3)
    assert {note.code for note in scores.notes} == {"NS020", "NS023"}
    alone = np.column_stack([X[:6, :3], np.arange(6) == 5])
    exact = ns.record_scores(alone, REAL[:6], REAL[:6], task="regression", damping=0.0)
    assert any(note.code == "NS014" and "1 interpolated records" in note for note in exact.notes if isinstance(note, Note))
    given = ns.record_scores(X, np.column_stack([1 - (p := 0.2 + 0.6 * LABELS), p]), LABELS, damping=1.0)
    assert any(note.code == "NS042" for note in given.notes if isinstance(note, Note))
    risk = ns.model_risk(1 + REAL[IN] ** 2, 0.01 * REAL[OUT] ** 2, resamples=100)
    assert [note.code for note in risk.notes] == ["NS005"]


def test_a_mean_that_few_large_losses_move_is_a_note_without_a_code():
    """Members have the larger mean by a few large losses, and the smaller loss elsewhere."""
    rng = np.random.default_rng(0)
    inside = np.where(np.arange(400) % 10 == 0, 50.0, rng.exponential(0.1, 400))
    risk = ns.model_risk(inside, rng.exponential(0.5, 400), resamples=200)
    assert risk.loss_gap_interval[1] < 0 and risk.auc_interval[0] > 0.5
    (note,) = risk.notes
    assert "are the two splits swapped?" in note and uncoded(risk.notes) == risk.notes


def test_notes_keep_their_code_in_copies_and_on_other_machines():
    note = Note("too few", "NS006")
    for same in (copy.deepcopy(note), pickle.loads(pickle.dumps(note))):
        assert same == note == "too few" and same.code == "NS006" and isinstance(same, Note)
    assert uncoded(["plain", note]) == ("plain",) and json.dumps([note]) == '["too few"]'


# Where the damping comes from


def kind_of(audit):
    return audit.provenance["scores"]["damping_kind"]


@pytest.mark.parametrize(
    ("name", "kind", "status"),
    [
        ("logistic at a level", "estimator", "passed"),
        ("interpolated", "estimator", "passed"),
        ("softmax", "weight_decay", "passed"),
        ("softmax of unknown decay", "automatic", "found"),
        ("one logit", "given", "passed"),
        ("all layers", "weight_decay", "passed"),
        ("all layers without decay", "substitute", "passed"),
        ("all layers, unknown decay", "automatic", "found"),
        ("arrays", "automatic", "found"),
        ("language model", "automatic", "found"),
        ("language model without decay", "substitute", "passed"),
        ("language model without a test", "weight_decay", "passed"),
    ],
)
def test_the_kind_of_the_damping_decides_its_finding(name, kind, status, audits):
    audit = audits[name]
    assert kind_of(audit) == kind and of(audit.findings, "NS021").status == status


def test_a_sentence_of_the_callers_own_does_not_decide_a_finding():
    train, test = (ns.Signals(X[rows], X[rows, 0], REAL[rows]) for rows in (IN, OUT))
    scores = ns.record_scores(X, X[:, 0], REAL, damping=0.1, damping_source="automatic gearbox of our training code")
    assert (scores.damping.kind, scores.damping_used, scores.damping_source[:17]) == ("given", 0.1, "automatic gearbox")
    stamp = {"damping_source": scores.damping_source, "damping_kind": scores.damping.kind}
    audit = ns.audit_signals(train, test, task="regression", damping=0.1, progress=False)
    assert of(ns.findings(stamped(audit, **stamp)), "NS021").status == "passed"


def stamped(audit, **changes):
    return replace(audit, provenance=audit.provenance | {"scores": audit.provenance["scores"] | changes})


@pytest.mark.parametrize(
    ("source", "status"),
    [("automatic: 1e-06 × the mean curvature (training's own λ unknown)", "found"), ("1/C with C=1 of LogisticRegression.", "passed")],
)
def test_a_folder_from_before_kinds_draws_by_its_sentence(source, status, audits, tmp_path):
    audit = stamped(audits["softmax"], damping_source=source)
    del audit.provenance["scores"]["damping_kind"]
    back = ns.load(audit.save(tmp_path / "old"))
    assert "damping_kind" not in back.provenance["scores"] and of(ns.findings(back), "NS021").status == status


# What does not exist


@pytest.mark.parametrize("reason", ["no classes", "not applicable: twice", "", "a: b: c", "über λ.\nSecond line"])
@pytest.mark.parametrize("kind", ABSENCES)
def test_what_is_absent_is_text_that_reads_back(kind, reason):
    absent = Absent(kind, reason)
    back = Absent.of(json.loads(json.dumps(absent)))
    assert absent == f"{kind}: {reason}" and (back, back.kind, back.reason) == (absent, kind, reason)
    for same in (copy.deepcopy(absent), pickle.loads(pickle.dumps(absent))):
        assert (same, same.kind, same.reason) == (absent, kind, reason)


def test_a_text_of_no_kind_is_a_reason():
    assert Absent.of("there: none") == not_applicable("there: none") and Absent.of(kept := not_applicable("x")) is kept


@pytest.mark.parametrize("name", AUDITS)
def test_every_reason_of_an_audit_has_a_kind(name, audits):
    assert all(isinstance(reason, Absent) and reason.kind in ABSENCES for reason in audits[name].not_applicable.values())


# One more thing joined to an audit


def test_what_leave_one_out_adds_draws_the_findings_anew(audits):
    audit = audits["leave-one-out distinguishability"]
    x, y = load_digits(return_X_y=True)
    beside = ns.lood_audit(x[:60] / 16, y[:60], ids=[f"scan {i}" for i in range(60)], depth=1)
    for stale in (None, ()):
        assert with_lood(replace(audit, findings=stale), beside).findings == audit.findings


def test_rows_of_sequences_that_were_taken_twice_are_counted_beside_traces(audits):
    audit = audits["language model"]
    assert audit.provenance["inputs"] == {"repeated_rows": {"test": 0, "train": 0}} and of(audit.findings, "NS041").status == "passed"
