"""Probabilities and log-probabilities given for outputs are recognised in every route, or asked about; never softmaxed again."""

import functools
import json

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, logit, softmax
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

import noshadow as ns
from noshadow import Signals, Target, audit_signals, last_layer_leverage, record_scores, save_splits, sharded_record_scores
from noshadow.checks import InputError
from noshadow.output_scale import LEAST_PROBABILITY, OutputScale, Part, settled_scale
from noshadow.reference import train_references
from noshadow.views import estimators

RNG = np.random.default_rng(17)


@functools.cache
def classifier():
    """Features, logits and labels of an overfit softmax regression, 900 members and 897 others."""
    x, y = load_digits(return_X_y=True)
    x = x / 16 + np.random.default_rng(0).normal(0, 1.0, x.shape)
    model = LogisticRegression(C=10.0, max_iter=5000).fit(x[:900], y[:900])
    return x, model.decision_function(x), y


@functools.cache
def two_classes():
    """The same with one logit."""
    x, _, y = classifier()
    model = LogisticRegression(C=1.0, max_iter=5000).fit(x[:900], y[:900] > 4)
    return x, model.decision_function(x), (y > 4).astype(np.int64)


def signals(outputs, source=classifier, features=True):
    x, _, y = source()
    return [Signals(x[part] if features else None, outputs[part], y[part]) for part in (slice(0, 900), slice(900, None))]


def audited(outputs, source=classifier, features=True, **options):
    how = {"damping": 0.01, "progress": False} | ({} if features else {"family": "linear"})
    return audit_signals(*signals(outputs, source, features), **(how | options))


def of(audit, code):
    return next(finding for finding in audit.findings if finding.code == code)


def given(audit):
    return audit.provenance["inputs"]["output_scale"]["given"]


def assert_same_audit(found, expected, rtol):
    assert found.model_risk.predicted_tpr == pytest.approx(expected.model_risk.predicted_tpr, rel=rtol)
    assert found.model_risk.tnr == expected.model_risk.tnr and found.model_risk.auc == pytest.approx(expected.model_risk.auc, abs=1e-9)
    numbers = expected.records.select_dtypes("float")
    assert len(numbers.columns) > 8
    for name in numbers:
        np.testing.assert_allclose(found.records[name], numbers[name], rtol=rtol, atol=rtol * numbers[name].abs().max(), err_msg=name)


# Rows of probabilities and of their logarithms


def test_rows_of_probabilities_give_the_audit_of_the_logits_and_a_finding():
    _, logits, _ = classifier()
    expected, found = audited(logits), audited(softmax(logits, axis=1))
    # exp and log lose 1e-16 of a logit's size each; leave-one-out scores of nearly interpolated records magnify that.
    assert_same_audit(found, expected, rtol=1e-8)
    assert given(found) == "probabilities" and given(expected) == "logits"
    assert of(found, "NS042").status == "found" and of(expected, "NS042").status == "passed"
    assert "The outputs are probabilities" in of(found, "NS042").sentence
    # The head is linear in its features up to a shift of each record's logits, which no score sees.
    assert of(found, "NS023").status == "passed" and found.provenance["scores"]["head_residual"] < 1e-6
    # Softmaxed once more, the same model reads as a sixth as exposed.
    again = audited(softmax(logits, axis=1), output_scale="logits", family="linear")
    assert expected.model_risk.predicted_tpr > 6 * again.model_risk.predicted_tpr


def test_probabilities_in_float32_lose_a_few_digits_only():
    _, logits, _ = classifier()
    found = audited(softmax(logits, axis=1).astype(np.float32))
    assert given(found) == "probabilities"
    np.testing.assert_allclose(found.member_losses, audited(logits).member_losses, rtol=1e-5, atol=1e-9)


def test_log_probabilities_are_logits():
    _, logits, _ = classifier()
    found = audited(log_softmax(logits, axis=1))
    assert_same_audit(found, audited(logits), rtol=1e-9)
    assert given(found) == "log-probabilities" and of(found, "NS042").status == "passed"


def test_zeros_are_raised_and_counted():
    _, logits, y = classifier()
    p = softmax(logits, axis=1)
    p[p < 1e-4] = 0
    p /= p.sum(1, keepdims=True)
    found = audited(p)
    fact = found.provenance["inputs"]["output_scale"]
    assert fact["raised"] == (p == 0).sum() == of(found, "NS042").figure and fact["entries"] == p.size
    assert f"{fact['raised']} of {p.size} entries were rounded to 0 or 1" in of(found, "NS042").sentence
    own = np.maximum(p, 1e-15)
    np.testing.assert_allclose(
        found.member_losses, -np.log(own / own.sum(1, keepdims=True))[np.arange(900), y[:900]], rtol=1e-9, atol=1e-12
    )
    assert LEAST_PROBABILITY == estimators.LEAST_PROBABILITY


def test_rows_that_are_no_probabilities_are_asked_about_unless_the_features_show_logits():
    _, logits, _ = classifier()
    sigmoids = expit(logits)
    ask = r"audit_signals: outputs must be logits, or probabilities that sum to one in every row; got rows that do not sum to one with all "
    for features in (True, False):
        with pytest.raises(InputError, match=ask + r"values in \[.*\]\. Pass output_scale='logits' or output_scale='probabilities'\."):
            audited(sigmoids, features=features)
    small = (logits - logits.min()) / np.ptp(logits)  # logits of a faint model, all within [0, 1]
    assert given(audited(small)) == "logits" and audited(small).provenance["inputs"]["output_scale"]["settled_by"] == "features"
    with pytest.raises(InputError, match="outputs must be logits, or prob"):
        audited(small, features=False)
    assert given(audited(small, features=False, output_scale="logits")) == "logits"


def test_both_splits_must_be_of_one_scale():
    _, logits, _ = classifier()
    train, test = signals(softmax(logits, axis=1))[0], signals(logits)[1]
    with pytest.raises(InputError, match="outputs must be of one scale in train and test; got probabilities in one and"):
        audit_signals(train, test)
    _, column, _ = two_classes()
    halves = signals(expit(column), two_classes)[0], signals(column, two_classes)[1]
    for train_half, test_half in (halves, (signals(column, two_classes)[0], signals(expit(column), two_classes)[1])):
        with pytest.raises(InputError, match="outputs must be of one scale in train and test; got probabilities in one and"):
            audit_signals(train_half, test_half)
    nobody = Signals(test.features[:0], test.outputs[:0], test.targets[:0])
    assert given(audit_signals(train, nobody, damping=0.01, progress=False)) == "probabilities"


def test_what_is_wrong_with_the_form_is_said_before_the_scale():
    p = RNG.random((30, 1))
    one, two = Signals(None, p, np.arange(30) % 2), Signals(None, np.hstack([p, 1 - p]), np.arange(30) % 2)
    with pytest.raises(InputError, match="outputs must have one column in a binary task"):
        audit_signals(two, two, task="binary")
    with pytest.raises(InputError, match="outputs must have at least 2 columns in classification"):
        audit_signals(one, one, task="classification")
    for targets in (np.ones((30, 2)), np.full(30, 7)):
        with pytest.raises(InputError, match=r"^audit_signals: "):
            audit_signals(*(Signals(None, p, targets) for _ in range(2)), task="binary")
    nobody = Signals(None, p[:0], np.arange(0))
    with pytest.raises(InputError, match="train must hold at least 2 records; got 0"):
        audit_signals(nobody, nobody, task="binary")


@pytest.mark.parametrize("seed", range(20))
def test_logits_are_never_taken_for_anything_else(seed):
    """Heads of every strength, with and without a rare class: 0 of 20 × 6 are asked about or changed."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(20, 300)), int(rng.integers(2, 12))
    x = rng.normal(size=(n, 5))
    for strength, shift in ((0.3, 0.0), (3.0, 0.0), (1.0, -4.0)):
        logits = strength * x @ rng.normal(size=(5, m)) + shift
        labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
        assert settled_scale([Part(logits, labels)], "classification", "auto").given == "logits"
        z = logits[:, :1]
        y = (rng.random(n) < expit(z[:, 0])).astype(int)
        assert settled_scale([Part(z, y)], "binary", "auto").given == "logits"


# One column


def test_one_column_of_probabilities_is_recognised_by_the_features_that_made_it():
    _, logits, _ = two_classes()
    expected = audited(logits, two_classes)
    found = audited(expit(logits), two_classes)
    # 1 − p keeps about 1e-16/(1 − p) of its digits; margins here stay below 14.
    assert_same_audit(found, expected, rtol=1e-8)
    assert found.provenance["inputs"]["output_scale"]["settled_by"] == "features" and of(found, "NS042").status == "found"
    single = audited(expit(logits).astype(np.float32), two_classes)
    np.testing.assert_allclose(single.member_losses, expected.member_losses, rtol=1e-3, atol=1e-6)


def test_one_column_of_faint_logits_is_recognised_by_features_and_by_labels():
    _, logits, _ = two_classes()
    faint = 0.5 + 0.02 * logits  # all within [0, 1]
    assert faint.min() > 0 and faint.max() < 1
    assert audited(faint, two_classes).provenance["inputs"]["output_scale"] | {"entries": 0} == {
        "given": "logits",
        "settled_by": "features",
        "raised": 0,
        "entries": 0,
    }
    rng = np.random.default_rng(0)
    labels = (rng.random(3000) < expit(np.full(3000, 0.45))).astype(int)  # six in ten are positive, as these logits say
    weak = (0.45 + 0.05 * rng.normal(size=3000)).clip(0, 1)[:, None]
    assert settled_scale([Part(weak, labels)], "binary", "auto") == OutputScale("logits", "labels")


def test_one_column_within_zero_and_one_is_asked_about_where_nothing_settles_it():
    _, logits, _ = two_classes()
    p = expit(logits)
    match = (
        r"audit_signals: outputs must be logits, or have their scale named; got one column with all values in \[.*\]\. Pass output_scale="
    )
    with pytest.raises(InputError, match=match):
        audited(p, two_classes, features=False)
    noise = np.random.default_rng(0).normal(size=(1797, 3))
    train, test = (Signals(noise[part], p[part], two_classes()[2][part]) for part in (slice(0, 900), slice(900, None)))
    with pytest.raises(InputError, match=match):  # neither reading is linear in these
        audit_signals(train, test)
    expected = audited(logits, two_classes, features=False).model_risk
    named = audited(p, two_classes, features=False, output_scale="probabilities").model_risk
    assert named.predicted_tpr == pytest.approx(expected.predicted_tpr, rel=1e-8) and named.tnr == expected.tnr
    assert given(audited(p, two_classes, features=False, output_scale="logits")) == "logits"


def test_log_probabilities_in_one_column_are_refused_and_rare_events_are_not():
    _, logits, _ = two_classes()
    logs = -np.logaddexp(0, -logits)
    match = r"audit_signals: outputs must be logits in a binary task; got what reads as log-probabilities .* Give log p − log\(1 − p\), or"
    for features in (True, False):
        with pytest.raises(InputError, match=match):
            audited(logs, two_classes, features=features)
    assert given(audited(logs, two_classes, features=False, output_scale="logits")) == "logits"
    rng = np.random.default_rng(1)
    rare = -6 + 1.5 * rng.normal(size=(4000, 1)).clip(-3, 3)
    positive = (rng.random(4000) < expit(rare[:, 0])).astype(int)
    assert rare.max() < 0 and positive.any()
    assert settled_scale([Part(rare, positive)], "binary", "auto").given == "logits"


@pytest.mark.parametrize(
    ("outputs", "task", "match"),
    [
        (RNG.normal(size=(30, 3)), "classification", r"outputs must lie in \[0, 1\] with output_scale='probabilities'; got values in \[-"),
        (
            RNG.random((30, 3)),
            "classification",
            r"outputs must sum to one in every row with output_scale='probabilities'; got .* in row \d+",
        ),
        (RNG.normal(size=(30, 1)), "binary", r"outputs must lie in \[0, 1\]"),
        (RNG.random((30, 1)), "regression", r"output_scale must be 'auto' in a regression; got 'probabilities'"),
    ],
)
def test_what_is_said_to_be_probabilities_must_be(outputs, task, match):
    with pytest.raises(InputError, match=match):
        settled_scale([Part(outputs, np.zeros(30))], task, "probabilities")


def test_rounded_probabilities_may_be_named():
    """Two digits are not recognised, since their rows do not sum to one; the caller may say what they are."""
    _, logits, _ = classifier()
    rounded = softmax(logits, axis=1).round(2)
    rounded = rounded[np.abs(rounded.sum(1) - 1) <= 0.05]
    assert settled_scale([Part(rounded, np.zeros(len(rounded)))], "classification", "probabilities").given == "probabilities"
    with pytest.raises(InputError, match="Pass output_scale"):
        settled_scale([Part(rounded, np.zeros(len(rounded)))], "classification", "auto")


# The command line: a gate must not flip


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_gate_says_the_same_of_logits_and_of_probabilities(tmp_path, run, suffix):
    _, logits, _ = classifier()
    outcomes = {}
    for name, outputs in (("logits", logits), ("probabilities", softmax(logits, axis=1)), ("logs", log_softmax(logits, axis=1))):
        save_splits(tmp_path / f"{name}{suffix}", *signals(outputs))
        code, _, err = run("audit", tmp_path / f"{name}{suffix}", "--out", tmp_path / name, "--damping", 0.01, "--quiet")
        assert (code, err) == (0, "")
        code, out, _ = run("gate", tmp_path / name, "--max-predicted-tpr", 0.03, "--json")
        outcomes[name] = code, json.loads(out)["limits"][0]["value"]
    assert outcomes["logits"][0] == 1 and outcomes["logits"][1] > 0.03
    for name in ("probabilities", "logs"):
        assert outcomes[name][0] == 1 and outcomes[name][1] == pytest.approx(outcomes["logits"][1], rel=1e-8)
    assert ns.load(tmp_path / "probabilities").provenance["arguments"]["output_scale"] == "auto"


def test_the_command_line_names_the_scale_and_the_family(tmp_path, run):
    _, logits, _ = two_classes()
    save_splits(tmp_path / "one.npz", *signals(expit(logits), two_classes, features=False))
    command = ("audit", tmp_path / "one.npz", "--out", tmp_path / "one", "--quiet", "--force")
    code, _, err = run(*command)
    assert code == 2 and "Pass output_scale='logits' or output_scale='probabilities'" in err
    code, _, err = run(*command, "--output-scale", "probabilities")
    assert (code, err) == (0, "") and ns.load(tmp_path / "one").model_risk.predicted_tpr is None
    code, _, err = run(*command, "--output-scale", "probabilities", "--family", "linear")
    expected = audited(logits, two_classes, features=False).model_risk.predicted_tpr
    assert (code, err) == (0, "") and ns.load(tmp_path / "one").model_risk.predicted_tpr == pytest.approx(expected, rel=1e-8)


# Scores straight from arrays


@pytest.mark.parametrize("scores", [record_scores, functools.partial(sharded_record_scores, shards=2, workers=1)], ids=["whole", "shards"])
@pytest.mark.parametrize("source", [classifier, two_classes], ids=["softmax", "one logit"])
def test_record_scores_read_probabilities(scores, source):
    x, logits, y = source()
    p = softmax(logits, axis=1) if logits.ndim == 2 else expit(logits)
    columns = ("loss", "leverage", "shift", "loo")
    arrays = [(x[:300], outputs[:300], y[:300]) for outputs in (logits, p)]
    expected = scores(*arrays[0], damping=0.1, columns=columns)
    found = scores(*arrays[1], damping=0.1, columns=columns, output_scale="probabilities")
    for name in columns:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-7, atol=1e-10, err_msg=name)
    if scores is record_scores:
        recognised = scores(*arrays[1], damping=0.1, columns=columns)
        np.testing.assert_array_equal(recognised.shift, found.shift)
        assert any("given as probabilities" in note for note in recognised.notes)
        matrices = [last_layer_leverage(*given, damping=0.1, records=[3]) for given in arrays]
        np.testing.assert_allclose(matrices[1].matrix, matrices[0].matrix, rtol=1e-6, atol=1e-12)
        assert "given as probabilities" in matrices[1].notes[0]
    else:
        with pytest.raises(InputError, match="sharded_record_scores: outputs must be logits, or have their scale named; got what could be"):
            scores(*arrays[1], damping=0.1, columns=columns)
        with pytest.raises(InputError, match=r"outputs must lie in \[0, 1\] with output_scale='probabilities'"):
            scores(*arrays[0], damping=0.1, columns=columns, output_scale="probabilities")


# Reference models that are returned as arrays


X_REF, Y_REF = RNG.normal(size=(60, 4)), np.arange(60) % 3


def returned(scale, one_column, rows, seed):
    """A training function that returns a logistic regression's outputs on all records, on some scale."""
    y = Y_REF % 2 if one_column else Y_REF
    logits = LogisticRegression(C=10.0).fit(X_REF[rows], y[rows]).decision_function(X_REF)
    probabilities = expit(logits) if one_column else softmax(logits, axis=1)
    return {"logits": logits, "probabilities": probabilities, "logs": np.log(probabilities)}[scale]


def references(folder, scale, one_column=False, **options):
    y = Y_REF % 2 if one_column else Y_REF
    train_fn = functools.partial(returned, scale, one_column)
    how = {"models": 4, "workers": 1, "progress": False} | options
    return train_references(folder, train_fn, (X_REF[:40], y[:40]), (X_REF[40:], y[40:]), **how)


def test_reference_models_returned_as_probabilities_are_recorded_as_logits(tmp_path):
    expected = references(tmp_path / "logits", "logits")
    assert not any("probabilities" in note for note in expected.notes)
    for scale in ("probabilities", "logs"):
        found = references(tmp_path / scale, scale, model=returned(scale, False, np.arange(40), 0))
        np.testing.assert_allclose(found.statistic, expected.statistic, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-7, atol=1e-12)
        assert any("given as probabilities" in note for note in found.notes) == (scale == "probabilities")


def test_reference_models_returned_as_one_column_are_asked_about(tmp_path):
    with pytest.raises(
        InputError, match=r"4 of 4 that failed \(model 0: train_references: outputs must be logits, or have their scale named"
    ):
        references(tmp_path / "asked", "probabilities", one_column=True)
    expected = references(tmp_path / "logits", "logits", one_column=True)
    found = references(tmp_path / "named", "probabilities", one_column=True, output_scale="probabilities")
    np.testing.assert_allclose(found.statistic, expected.statistic, rtol=1e-7, atol=1e-9)
    with pytest.raises(InputError, match=r"hold the same experiment; got other values \(signals\.output_scale: probabilities → logits\)"):
        references(tmp_path / "named", "probabilities", one_column=True, output_scale="logits")
    with pytest.raises(InputError, match=r"train_references: output_scale must be one of 'auto', 'logits', 'probabilities'; got 'odds'"):
        references(tmp_path / "odds", "logits", output_scale="odds")


def test_the_command_line_trains_references_on_the_targets_scale(tmp_path, run):
    (tmp_path / "scaled_target.py").write_text(
        "import numpy as np\nimport noshadow as ns\nfrom sklearn.linear_model import LogisticRegression\n"
        "x = np.random.default_rng(0).normal(size=(60, 3))\ny = (x[:, 0] > 0).astype(int)\n"
        "def fit(rows, seed):\n    return LogisticRegression().fit(x[rows], y[rows])\n"
        "def train_fn(rows, seed):\n    return fit(rows, seed).predict_proba(x)[:, 1]\n"
        "def target(scale='probabilities'):\n"
        "    splits = (x[:40], y[:40]), (x[40:], y[40:])\n"
        "    return ns.Target(fit(np.arange(40), 0), *splits, task='binary', train_fn=train_fn, output_scale=scale)\n"
        "def unnamed():\n    return target('auto')\n"
    )
    command = ("--models", 4, "--workers", 1, "--audited", 0, "--quiet")
    code, _, err = run("reference", "train", "scaled_target:target", "--out", tmp_path / "named", *command)
    assert (code, err) == (0, "")
    code, _, err = run("reference", "train", "scaled_target:unnamed", "--out", tmp_path / "unnamed", *command)
    assert code == 2 and "Pass output_scale='logits' or output_scale='probabilities'" in err


# Models, whose own outputs are read


def test_the_scale_of_a_model_is_its_own():
    x, y = torch.tensor(X_REF, dtype=torch.float32), torch.tensor(Y_REF)
    model = nn.Linear(4, 3)
    splits = (x[:40], y[:40]), (x[40:], y[40:])
    plain = ns.audit(model, *splits, progress=False)
    assert "output_scale" not in plain.provenance["inputs"] and of(plain, "NS042").status == "not applicable"
    said = ns.audit(model, *splits, output_scale="logits", progress=False)
    np.testing.assert_array_equal(said.records["shift"], plain.records["shift"])
    with pytest.raises(InputError, match=r"audit: outputs must lie in \[0, 1\] with output_scale='probabilities'; got values in"):
        ns.audit(model, *splits, output_scale="probabilities")
    with pytest.raises(InputError, match="audit: output_scale must be one of"):
        ns.audit(model, *splits, output_scale="odds")
    forest = RandomForestClassifier(5).fit(X_REF[:40], Y_REF[:40])
    with pytest.raises(InputError, match="audit: output_scale must be 'auto' for a scikit-learn estimator; got 'probabilities'"):
        ns.audit(forest, (X_REF[:40], Y_REF[:40]), (X_REF[40:], Y_REF[40:]), output_scale="probabilities")


def test_a_target_states_its_scale():
    x, y = torch.tensor(X_REF, dtype=torch.float32), torch.tensor(Y_REF)
    target = Target(nn.Linear(4, 3), (x[:40], y[:40]), (x[40:], y[40:]), output_scale="logits")
    assert ns.audit(target, progress=False).provenance["arguments"]["output_scale"] == "logits"
    with pytest.raises(InputError, match="output_scale must agree with the Target's 'logits'; got 'probabilities'"):
        ns.audit(target, output_scale="probabilities")


def test_the_logit_of_one_column_is_the_textbook_one():
    p = np.linspace(0.01, 0.99, 50)
    found = audit_signals(*(Signals(None, p, np.arange(50) % 2) for _ in range(2)), output_scale="probabilities", progress=False)
    signed = np.where(np.arange(50) % 2, 1, -1) * logit(p)
    np.testing.assert_allclose(found.member_losses, np.logaddexp(0, -signed), rtol=1e-12)
