"""audit(): every kind of model, every column where it belongs, and one sentence for what cannot be audited."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import ncx2
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset

import noshadow as ns
from noshadow import InputError, NumericalError, Signals, Target, audit, audit_signals, collect_signals, record_scores, theory

RNG = np.random.default_rng(21)
N = 60
X = RNG.normal(size=(N, 4))
LOGITS = X @ RNG.normal(size=(4, 3))
LABELS = (LOGITS + RNG.gumbel(size=(N, 3))).argmax(1)
REAL = X @ RNG.normal(size=(4, 2)) + 0.5 * RNG.normal(size=(N, 2))
A, B = slice(0, 40), slice(40, 60)
CLASSES, NUMBERS = (LABELS, REAL)
COLUMNS = ["leverage", "influence", "newton", "loo", "shift"]


def splits(features=X, outputs=LOGITS, targets=LABELS, test=B):
    rows = [None if features is None else features[part] for part in (A, test)]
    return tuple(Signals(x, outputs[part], targets[part]) for x, part in zip(rows, (A, test), strict=True))


def fitted_regression(outputs=2):
    model = LinearRegression().fit(X[A], REAL[A, :outputs])
    return splits(outputs=model.predict(X).reshape(N, -1), targets=REAL[:, :outputs])


def network(outputs=3, *, seed=0, end=()):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, outputs), *end)


def refused(match, function, *args, kind=InputError, **kwargs):
    with pytest.raises(kind, match=match) as caught:
        function(*args, **kwargs)
    assert "\n" not in str(caught.value)


def numeric(frame):
    return frame.select_dtypes("number")


# Kinds of models


@pytest.mark.parametrize("task", ["classification", "regression", "binary"])
def test_a_torch_module_gets_every_column(task):
    model = network({"classification": 3, "regression": 2, "binary": 1}[task])
    y = {"classification": LABELS, "regression": REAL.astype(np.float32), "binary": (LABELS > 0).astype(np.int64)}[task]
    x = torch.tensor(X, dtype=torch.float32)
    result = audit(model, (x[A], y[A]), (x[B], y[B]), progress=False)
    assert result.task == task and len(result.records) == 40
    expected = {"id", "loss", "gradient_norm", "rank", *COLUMNS}
    expected |= {"target_0", "target_1", "predicted_tpr"} if task == "regression" else {"target", "entropy", "margin_leverage"}
    assert set(result.records) == expected
    assert not result.records.isna().any(axis=None)
    assert "model_risk" not in result.not_applicable and result.model_risk.n_nonmembers == 20
    assert (result.model_risk.accuracy_gap is None) == (task == "regression")
    outputs = model.eval()(x).detach().double()
    truth = {
        "classification": lambda: nn.functional.cross_entropy(outputs, torch.tensor(LABELS), reduction="none"),
        "regression": lambda: ((outputs - torch.tensor(y)) ** 2).sum(1),
        "binary": lambda: nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], torch.tensor(y).double(), reduction="none"),
    }[task]()
    # float32 forward passes in batches of another size agree to rounding
    np.testing.assert_allclose(result.records["loss"], truth[A], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.nonmember_losses, truth[B], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(result.member_losses, result.records["loss"])


def test_the_model_and_the_data_are_left_alone():
    model = network().train()
    model[0].eval()
    model[3].weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    flags = [(module.training, [p.requires_grad for p in module.parameters()]) for module in model.modules()]
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(LABELS)
    held, state = (x.clone(), y.clone()), torch.random.get_rng_state()
    one = audit(model, (x[A], y[A]), (x[B], y[B]), progress=False)
    assert [(module.training, [p.requires_grad for p in module.parameters()]) for module in model.modules()] == flags
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(x, held[0]) and torch.equal(y, held[1]) and torch.equal(torch.random.get_rng_state(), state)
    two = audit(model, (x[A], y[A]), (x[B], y[B]), progress=False)  # dropout is off: the same numbers
    pd.testing.assert_frame_equal(one.records, two.records, check_exact=True)


def test_arrays_given_as_signals_are_left_alone():
    traces = np.column_stack([RNG.random((40, 4)), audit_signals(*splits()).records["loss"]])
    held = [X.copy(), LOGITS.copy(), LABELS.copy(), traces]
    before = [a.copy() for a in held]
    train, test = (Signals(held[0][part], held[1][part], held[2][part]) for part in (A, B))
    audit_signals(train, test, loss_traces=held[3])
    for array, copied in zip(held, before, strict=True):
        np.testing.assert_array_equal(array, copied)


def test_a_scikit_learn_pipeline_is_read_at_its_last_step():
    names = np.array(["ash", "elm", "oak"])
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.5, max_iter=2000)).fit(X[A], names[LABELS[A]])
    result = audit(pipeline, (X[A], names[LABELS[A]]), (X[B], names[LABELS[B]]), progress=False)
    scaled = StandardScaler().fit(X[A]).transform(X[A])
    logits = pipeline.decision_function(X[A])
    expected = record_scores(scaled, logits, LABELS[A], damping=2.0, penalize_intercept=False)
    for name, values in expected.columns().items():
        np.testing.assert_allclose(result.records[name], values, rtol=1e-9)  # the same formula on the same numbers
    assert result.provenance["scores"]["damping_used"] == 2.0
    assert "1/C with C=0.5" in result.provenance["scores"]["damping_source"]
    assert result.provenance["class_names"] == ["ash", "elm", "oak"]
    assert result.records["target"].tolist() == LABELS[A].tolist()


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_forest_has_model_risk_and_says_why_it_has_no_head_scores(kind):
    forest, y = (RandomForestClassifier, LABELS) if kind == "classification" else (RandomForestRegressor, REAL[:, 0])
    model = forest(n_estimators=5, random_state=0).fit(X[A], y[A])
    result = audit(model, (X[A], y[A]), (X[B], y[B]), progress=False)
    of_a_head = [name for name in COLUMNS if name not in ("loo", "shift")]
    assert result.ranked_by == ("shift" if kind == "regression" else "loo") and not set(result.records) & {
        "predicted_tpr",
        "gradient_norm",
        *of_a_head,
    }
    assert result.model_risk.auc > 0.6  # forests memorise
    for name in ("margin_leverage", *of_a_head):
        assert result.not_applicable[name].startswith(f"not applicable: {forest.__name__} has no linear head")
    if kind == "regression":
        assert "no linear head" in result.not_applicable["predicted_tpr"]
        assert "no class probabilities" in result.not_applicable["entropy"]


def test_signals_without_features_have_model_risk_only():
    result = audit_signals(*splits(features=None), family="linear")  # which features would have shown
    with_features = audit_signals(*splits())
    assert result.model_risk == with_features.model_risk and "no features were given" in result.not_applicable["shift"]
    assert list(result.records) == ["id", "target", "loss", "entropy", "rank"] and result.ranked_by == "loss"


@pytest.mark.parametrize("outputs", [1, 3])
def test_signals_of_a_model_audit_like_the_model(outputs):
    model = network(outputs)
    y = LABELS if outputs == 3 else REAL[:, 0]
    train, test = ((X[part].astype(np.float32), y[part]) for part in (A, B))
    whole = audit(model, train, test, weight_decay=1e-2, ids=range(100, 140), progress=False)
    parts = audit_signals(collect_signals(model, train), collect_signals(model, test), weight_decay=1e-2, ids=range(100, 140))
    pd.testing.assert_frame_equal(whole.records, parts.records, check_exact=True)
    # Arrays have no other layers to be told about.
    assert whole.model_risk == parts.model_risk and tuple(n for n in whole.notes if "layers='all'" not in n) == parts.notes
    assert whole.not_applicable == parts.not_applicable
    assert whole.provenance["hashes"]["train"] == parts.provenance["hashes"]["train"]
    assert whole.provenance["hashes"]["weights"] and parts.provenance["hashes"]["weights"] is None


def test_a_shuffling_loader_is_read_in_the_order_of_its_data():
    model, data = network(), torch.utils.data.TensorDataset(torch.tensor(X[A], dtype=torch.float32), torch.tensor(LABELS[A]))
    loader = torch.utils.data.DataLoader(data, batch_size=7, shuffle=True)
    shuffled, plain = (audit(model, given, None, batch_size=16, progress=False) for given in (loader, data))
    pd.testing.assert_frame_equal(shuffled.records, plain.records, check_exact=True)


# Columns


@pytest.mark.parametrize(("signals", "column"), [(splits(), "shift"), (fitted_regression(), "shift"), (fitted_regression(1), "shift")])
def test_ranks_are_a_permutation_with_one_for_the_riskiest(signals, column):
    result = audit_signals(*signals)
    records = result.records
    assert result.ranked_by == column and sorted(records["rank"]) == list(range(1, 41))
    ordered = records.sort_values("rank")[column].to_numpy()
    assert (np.diff(ordered) <= 0).all() and ordered[0] == records[column].max()


def test_equal_scores_keep_their_row_order():
    x = np.tile(np.eye(2), (10, 1))
    outputs = x @ np.array([[1.0, -1.0], [-1.0, 1.0]])
    result = audit_signals(Signals(x, outputs, np.tile([0, 1], 10)), Signals(x, outputs, np.tile([0, 1], 10)), damping=1.0)
    first, second = (result.records["rank"].to_numpy()[start::2] for start in (0, 1))
    assert (np.diff(first) > 0).all() and (np.diff(second) > 0).all()


def test_ids_and_groups_label_the_rows():
    ids, groups = [f"patient-{i}" for i in range(40)], ["ward A", "ward B"] * 20
    records = audit_signals(*splits(), ids=ids, groups=iter(groups)).records
    assert records["id"].tolist() == ids and records["group"].tolist() == groups
    assert audit_signals(*splits()).records["id"].tolist() == list(range(40))


def test_groups_may_be_a_tensor():
    assert audit_signals(*splits(), groups=torch.arange(40) % 2).records["group"].tolist() == ["0", "1"] * 20


def test_loss_traces_add_their_interquartile_range():
    traces = np.column_stack([RNG.exponential(size=(40, 6)), audit_signals(*splits()).records["loss"]])
    frame = pd.DataFrame(traces)
    expected = frame.quantile(0.75, axis=1) - frame.quantile(0.25, axis=1)
    for features in (X, None):
        records = audit_signals(*splits(features), loss_traces=traces).records
        np.testing.assert_allclose(records["lt_iqr"], expected, rtol=1e-12)  # the same interpolation, other rounding


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("fpr", ["auto", 0.1])
def test_predicted_tpr_is_the_theory_at_hand_made_plug_ins(outputs, fpr):
    train, test = fitted_regression(outputs)
    result = audit_signals(train, test, damping=0.0, fpr=fpr)
    design = np.column_stack([X[A], np.ones(40)])
    h = np.einsum("ij,jk,ik->i", design, np.linalg.inv(design.T @ design), design)
    e = np.linalg.norm(train.targets.reshape(40, -1) - train.outputs, axis=1)
    k, level = 40 - 5, 1 / 20 if fpr == "auto" else fpr
    variance = (e**2).sum() / (k * outputs)
    values = result.records["predicted_tpr"].to_numpy()
    by_theory = theory.predicted_tpr(level, h, e, noise_variance=variance, n=40, dof=5, outputs=outputs, statistic="residual")
    np.testing.assert_allclose(values, by_theory, rtol=1e-8)  # leverage by another algorithm
    # The squared distance of the residual from εc/(1 + c) in SciPy's words, c = 1 − h: noncentral χ² on both sides.
    c, noncentral = 1 - h, (e / (1 - h)) ** 2 / (variance * h / (1 - h))
    outside, inside = ncx2(outputs, noncentral / (1 + c) ** 2), ncx2(outputs, c**2 * noncentral / (1 + c) ** 2)
    np.testing.assert_allclose(values, inside.cdf(outside.ppf(level) / c**2), rtol=1e-6)  # accuracy of SciPy's ppf


def test_predicted_tpr_says_when_the_theory_has_too_few_records():
    train = Signals(X[:6], REAL[:6, :1], REAL[:6, 0] + 0.1)
    result = audit_signals(train, fitted_regression(1)[1], damping=0.0)
    assert "predicted_tpr" not in result.records
    assert "needs n − dof > 2; this head has 1" in result.not_applicable["predicted_tpr"]


def test_several_outputs_have_a_target_column_each():
    train, test = fitted_regression(2)
    records = audit_signals(train, test).records
    np.testing.assert_array_equal(records[["target_0", "target_1"]], REAL[A])
    np.testing.assert_allclose(records["loss"], ((REAL[A] - train.outputs) ** 2).sum(1), rtol=1e-12)


def test_soft_targets_are_audited_and_shown_as_their_likeliest_class():
    soft = RNG.dirichlet([1, 1, 1], size=N)
    result = audit_signals(*splits(targets=soft), task="classification")
    assert result.records["target"].tolist() == soft[A].argmax(1).tolist() and not numeric(result.records).isna().any(axis=None)


@pytest.mark.parametrize(
    ("outputs", "task", "expected"), [(3, "auto", 40 * 0.02), (1, "binary", 40 * 0.02), (1, "auto", 40 * 0.02 / 2), (2, "auto", 40 * 0.02)]
)
def test_weight_decay_becomes_damping_on_the_sum(outputs, task, expected):
    # n·wd for cross-entropy; n·wd·q/2 for MSELoss averaged over q outputs: 40·0.02·2/2 for two
    y = {"binary": (LABELS > 0).astype(float), "auto": LABELS if outputs == 3 else REAL[:, :outputs]}[task]
    train, test = ((torch.tensor(X[part], dtype=torch.float32), y[part]) for part in (A, B))
    model = network(outputs)
    results = [audit(model, train, test, task=task, weight_decay=0.02, progress=False)]
    results.append(audit_signals(collect_signals(model, train), collect_signals(model, test), task=task, weight_decay=0.02))
    for result in results:
        assert result.provenance["scores"]["damping_used"] == pytest.approx(expected, rel=1e-12)
        assert "weight_decay=0.02" in result.provenance["scores"]["damping_source"]
    given = audit(model, train, test, task=task, weight_decay=0.02, damping=3.0, progress=False)
    assert given.provenance["scores"]["damping_used"] == 3.0 and given.provenance["scores"]["damping_source"] == "given"


def test_sample_weights_reach_the_scores():
    weight = RNG.uniform(0.5, 2, 40)
    result = audit_signals(*splits(), sample_weight=weight, damping=1.0)
    expected = record_scores(X[A], LOGITS[A], LABELS[A], sample_weight=weight, damping=1.0)
    for name in COLUMNS:
        np.testing.assert_allclose(result.records[name], getattr(expected, name), rtol=1e-12)
    np.testing.assert_allclose(result.records["loss"], audit_signals(*splits()).records["loss"])  # an attacker sees the loss itself


def test_intercept_settings_reach_the_scores():
    for options in ({"fit_intercept": False}, {"penalize_intercept": False}):
        result = audit_signals(*splits(), damping=1.0, **options)
        expected = record_scores(X[A], LOGITS[A], LABELS[A], damping=1.0, **options)
        np.testing.assert_allclose(result.records["shift"], expected.shift, rtol=1e-12)
        name, value = next(iter(options.items()))
        assert result.provenance["scores"][name] is value


def test_what_was_done_is_stamped():
    result = audit_signals(*splits(), seed=5, fpr=0.2)
    arguments = {"task": "auto", "damping": "auto", "weight_decay": None, "fpr": 0.2, "seed": 5, "layers": "last", "call": "audit_signals"}
    arguments["output_scale"] = "auto"
    arguments["score_options"] = {}
    assert result.provenance["arguments"] == arguments
    assert result.model_risk.fpr == 0.2 and result.model_risk.seed == 5
    assert {"noshadow", "torch", "numpy", "python"} <= set(result.provenance["versions"])
    assert result.provenance["scores"]["damping_source"].startswith("automatic")
    assert "not available" in result.not_applicable["predicted_tpr of the model"]


# Data that is hard but not wrong


@pytest.mark.parametrize("empty", [None, (X[:0], LABELS[:0])])
def test_without_a_test_split_the_record_scores_proceed(empty):
    model = LogisticRegression(max_iter=1000).fit(X[A], LABELS[A])
    result = audit(model, (X[A], LABELS[A]), empty, progress=False)
    assert result.model_risk is None and len(result.nonmember_losses) == 0
    assert result.not_applicable["model_risk"].startswith("not applicable: the test split is empty")
    pd.testing.assert_frame_equal(result.records, audit(model, (X[A], LABELS[A]), (X[B], LABELS[B]), progress=False).records)


def test_one_test_record_is_too_few_and_said_so():
    result = audit_signals(*splits(test=slice(40, 41)))
    assert result.model_risk is None and "one test record is too few" in result.not_applicable["model_risk"]
    assert len(result.nonmember_losses) == 1


def test_a_regression_without_a_test_split_still_predicts_its_tpr():
    train, test = fitted_regression(1)
    nobody = Signals(X[:0], test.outputs[:0], test.targets[:0])
    result = audit_signals(train, nobody)
    at_level = audit_signals(train, test, fpr=1 / 20)
    assert (result.records["predicted_tpr"] <= at_level.records["predicted_tpr"]).all()  # level 1/40 instead of 1/20


WIDE = np.column_stack([X, RNG.normal(size=(N, 60))])


@pytest.mark.parametrize(
    ("features", "rank", "width"),
    [
        (np.column_stack([X, np.ones(N)]), 5, 6),
        (np.column_stack([X, np.zeros(N)]), 5, 6),
        (np.column_stack([X, 3 * X[:, 0] - X[:, 1]]), 5, 6),
        (WIDE, 40, 65),
    ],
)
@pytest.mark.parametrize("damping", ["auto", 0.0, 1.0])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_constant_collinear_and_too_many_features_work_and_are_noted(features, rank, width, damping, task):
    outputs = LOGITS if task == "classification" else LOGITS[:, :1]
    result = audit_signals(*splits(features, outputs, LABELS if task == "classification" else REAL[:, 0]), damping=damping)
    assert any(f"numerical rank {rank} of {width}" in note for note in result.notes)
    assert not numeric(result.records).isna().any(axis=None)
    scores = result.provenance["scores"]
    assert scores["rank"] == rank and scores["damping_used"] == pytest.approx(scores["damping_used"])
    assert scores["damping_used"] > 0 if damping == "auto" else scores["damping_used"] == damping
    if rank < 40:
        plain = audit_signals(*splits(X, outputs, LABELS if task == "classification" else REAL[:, 0]), damping=0.0)
        if damping == 0.0:  # without a penalty a redundant column changes nothing
            np.testing.assert_allclose(result.records["loo"], plain.records["loo"], rtol=1e-6)  # cond² of the unwhitened columns


@pytest.mark.parametrize("task", ["regression", "binary", "classification"])
def test_an_interpolated_record_is_infinite_and_found(task):
    x = np.column_stack([X, np.zeros(N)])
    x[7, 4] = 1.0  # only record 7 sees this feature
    outputs = {"regression": LOGITS[:, :1], "binary": LOGITS[:, :1], "classification": LOGITS}[task]
    y = {"regression": REAL[:, 0], "binary": (LABELS > 0).astype(int), "classification": LABELS}[task]
    result = audit_signals(*splits(x, outputs, y), damping=0.0, task=task)
    records = result.records
    assert not numeric(records).isna().any(axis=None)
    for name in ("newton", "loo", "shift"):
        assert np.isposinf(records[name]).tolist() == [row == 7 for row in range(40)]
    assert records["rank"][7] == 1
    assert told(result, "NS014").startswith("1 of 40 records have an infinite score")
    if task == "regression":
        assert records["leverage"][7] == pytest.approx(1, abs=1e-10) and records["predicted_tpr"][7] == 1


def test_a_perfect_fit_has_no_exposed_record():
    outputs = X @ np.ones((4, 1))
    records = audit_signals(*splits(X, outputs, outputs[:, 0])).records
    assert (records[["loss", "loo", "shift"]] == 0).all(axis=None) and not numeric(records).isna().any(axis=None)


# Does it see what it is for?


def test_an_overfit_model_is_told_from_one_that_is_not():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(160, 60)), rng.integers(0, 10, 160)  # nothing to learn: what it knows, it memorised
    train, test = (x[:80], y[:80]), (x[80:], y[80:])
    overfit = audit(LogisticRegression(C=1e3, max_iter=5000).fit(*train), train, test, progress=False).model_risk
    honest = audit(LogisticRegression(C=1e-4).fit(*train), train, test, progress=False).model_risk
    assert overfit.auc > 0.85 and overfit.auc_interval[0] > 0.75
    assert honest.auc < 0.75 and overfit.accuracy_gap > honest.accuracy_gap
    assert overfit.tnr > honest.tnr


def test_records_with_made_up_labels_are_the_riskiest():
    rng = np.random.default_rng(1)
    labels = np.arange(300) % 3
    x = (4 * np.eye(3)[labels] + rng.normal(size=(300, 3))).astype(np.float32)
    made_up = rng.choice(200, size=6, replace=False)
    wrong = labels.copy()
    wrong[made_up] = (labels[made_up] + 1) % 3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 3))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-4)
    data = torch.from_numpy(x[:200]), torch.from_numpy(wrong[:200])
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(data[0]), data[1]).backward()
        optimiser.step()
    result = audit(model, data, (x[200:], labels[200:]), weight_decay=1e-4, progress=False)
    assert (result.records["rank"][made_up] <= 15).sum() >= 5


# Wrong input


def bad(array, place, value):
    changed = np.array(array, dtype=float)
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"targets": LABELS + 1}, "targets must be < 3, the number of outputs; got label 3 at index"),
        ({"targets": LABELS - 1}, "targets must be ≥ 0; got label -1 at index"),
        ({"targets": LABELS.astype(float), "task": "classification"}, "targets must be integers in classification; got dtype float64"),
        ({"targets": LABELS.astype(float)}, "Labels of a classification must be integers"),
        ({"targets": np.ones(N, int)}, "targets must hold at least two classes; got only class 1"),
        ({"targets": RNG.integers(0, 2, (N, 3)), "task": "classification"}, "Multi-label heads are not supported"),
        ({"targets": RNG.integers(0, 2, (N, 3))}, "targets must be one label per record; got 3 columns of 0 and 1. Multi-label"),
        ({"outputs": LOGITS[:, :1], "targets": (LABELS > 0).astype(float)}, "task must be named when one output meets targets 0.0 and 1.0"),
        ({"targets": RNG.dirichlet([1, 1, 1], N)}, "task must be named when target rows sum to one"),
        ({"task": "ranking"}, "task must be one of 'auto', 'regression', 'classification', 'binary'; got 'ranking'"),
        ({"task": "binary"}, "outputs must have one column in a binary task"),
        ({"task": "classification", "outputs": LOGITS[:, :1]}, "outputs must have at least 2 columns in classification"),
        ({"task": "binary", "features": None}, "outputs must have one column in a binary task"),
        ({"damping": -1.0}, "damping must be a number ≥ 0; got -1"),
        ({"damping": -1.0, "features": None}, "damping must be a number ≥ 0; got -1"),
        ({"damping": "strong"}, "damping must be a number ≥ 0; got 'strong'"),
        ({"damping": np.ones(2)}, "damping must be a number ≥ 0; got array"),
        ({"damping": np.inf}, "damping must be a number ≥ 0; got inf"),
        ({"weight_decay": -0.1}, "weight_decay must be a number ≥ 0; got -0.1"),
        ({"sample_weight": -np.ones(40)}, "sample_weight must be ≥ 0 and not all zero; got minimum -1"),
        ({"sample_weight": np.zeros(40)}, "sample_weight must be ≥ 0 and not all zero"),
        ({"sample_weight": np.ones(39)}, "lengths train 40, sample_weight 39"),
        (
            {"sample_weight": bad(np.ones(40), 3, np.nan)},
            "sample_weight must be finite; got 1 NaN or infinite values, the first at index 3",
        ),
        ({"fpr": 0.001}, "fpr must be at least 0.05, the smallest level that 20 records of the smaller split resolve; got 0.001"),
        ({"fpr": 0.0}, "fpr must be a number > 0 and < 1; got 0"),
        ({"fpr": 1.5}, "fpr must be a number > 0 and < 1; got 1.5"),
        ({"fpr": "low"}, "fpr must be a number > 0 and < 1; got 'low'"),
        ({"seed": -1}, "seed must be a whole number ≥ 0 and < 2⁶³; got -1"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"ids": range(39)}, "records and ids must have one row per record; got lengths records 40, ids 39"),
        ({"ids": [1] * 40}, "ids must be unique"),
        ({"sample_weight": -np.ones(40), "features": None}, "sample_weight must be ≥ 0"),
        ({"groups": "a" * 40}, "groups must be one name per record; got 'aaa"),
        ({"groups": 5}, "groups must be one name per record; got 5"),
        ({"groups": ["a"] * 39}, "train and groups must have one row per record; got lengths train 40, groups 39"),
        ({"loss_traces": np.ones((39, 3))}, "train and loss_traces must have one row per record"),
        ({"loss_traces": np.ones((40, 1))}, "loss_traces must have at least 2 columns"),
        ({"loss_traces": bad(np.ones((40, 2)), (4, 1), np.inf)}, r"loss_traces must be finite; got 1 .* index \(4, 1\)"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(given, match):
    arrays = {name: given[name] for name in ("features", "outputs", "targets") if name in given}
    refused(match, audit_signals, *splits(**arrays), **{name: value for name, value in given.items() if name not in arrays})


def test_splits_that_do_not_fit_together_are_refused():
    train, test = splits()
    refused("train must be Signals; got ndarray. Build it with", audit_signals, X, test)
    refused("test must be Signals; got tuple", audit_signals, train, (X, LABELS))
    refused("test must have the 3 outputs of train; got 2", audit_signals, train, Signals(X, LOGITS[:, :2], LABELS))
    refused("targets must be < 3", audit_signals, train, Signals(X, LOGITS, LABELS + 1))


@pytest.mark.parametrize("features", [X, None])
@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_records_are_refused(features, n):
    few = Signals(None if features is None else features[:n], LOGITS[:n], LABELS[:n])
    refused(f"train must hold at least 2 records; got {n}", audit_signals, few, splits()[1])


@pytest.mark.parametrize(
    ("model", "train", "options", "match"),
    [
        (
            object(),
            (X, LABELS),
            {},
            "model must be an nn.Module, a fitted scikit-learn estimator or a function predict\\(X\\); got an object of type object",
        ),
        (LogisticRegression(), (X, LABELS), {}, "model must be fitted; got LogisticRegression before fit"),
        (network(), (X, LABELS[:50]), {}, "X and y must have one row per record; got lengths X 60, y 50"),
        (network(), X, {}, "train must be .X, y., a map-style Dataset or a DataLoader; got"),
        (network(), (X[:0], LABELS[:0]), {}, "train must hold at least one record; got none"),
        (
            network(),
            (bad(X, (3, 2), np.nan), LABELS),
            {},
            "model must give finite outputs; got NaN or infinite values on the first records",
        ),
        (
            network(),
            (bad(X, (30, 2), np.nan), LABELS),
            {},
            r"outputs must be finite; got 3 NaN or infinite values, the first at index \(30, 0\)",
        ),
        (network(), (X, LABELS), {"layers": "first"}, "layers must be one of 'last', 'all'; got 'first'"),
        (network(), (X, LABELS), {"layers": 7}, "layers must be from 1 to 2"),
        (network(), (X, LABELS), {"batch_size": 0}, "batch_size must be a whole number ≥ 1; got 0"),
        (network(), (X, LABELS), {"device": "abacus"}, "device must be one that torch can use here; got 'abacus'"),
        (network(), (X, LABELS), {"layer": "nowhere"}, "layer must"),
        (network(), (X, LABELS + 1), {}, "targets must be < 3"),
        (network(1), (X, (LABELS > 0).astype(float)), {}, "task must be named when one output meets targets 0.0 and 1.0"),
        (network(), (X, LABELS), {"damping": -2}, "damping must be a number ≥ 0; got -2"),
        (network(), (X, LABELS), {"sample_weight": -np.ones(N)}, "sample_weight must be ≥ 0"),
        (network(), (X, LABELS), {"seed": -1}, "seed must be a whole number"),
        (network(), (X, LABELS), {"fpr": 1e-4}, "fpr must be at least 0.01666"),
        (Ridge().fit(X, REAL), (X, REAL), {"weight_decay": 0.1}, "weight_decay must be None for a scikit-learn estimator"),
        (Ridge().fit(X, REAL), (X, REAL), {"task": "classification"}, "task must be 'auto' or 'regression' for this Ridge"),
    ],
)
def test_wrong_models_and_data_are_refused_in_the_name_of_audit(model, train, options, match):
    refused(match, audit, model, train, train, progress=False, **options)


def test_nothing_is_computed_for_an_option_that_is_wrong():
    class Untouchable(nn.Module):
        def forward(self, x):
            raise AssertionError("ran")

    for options in ({"damping": -1}, {"fpr": 2}, {"seed": -1}, {"task": "x"}, {"weight_decay": -1}, {"layers": 0}):
        refused("audit: .* must", audit, Untouchable(), (X, LABELS), (X, LABELS), **options)


def test_unknown_columns_are_refused():
    refused("columns must be among loss, .*; got 'lira', 'x'", record_scores, X, LOGITS, LABELS, columns=["loss", "lira", "x"])


def test_a_curvature_that_vanishes_is_a_numerical_error():
    refused(
        "the curvature has 10 non-positive or infinite diagonal entries",
        audit_signals,
        *splits(outputs=1e5 * LOGITS),
        damping=0.0,
        kind=NumericalError,
    )
    assert audit_signals(*splits(outputs=1e5 * LOGITS), damping=1.0).records["shift"].notna().all()


# What a user's function hands over


def test_a_target_is_audited_with_what_it_states():
    model, train, test = network(), (X[A].astype(np.float32), LABELS[A]), (X[B].astype(np.float32), LABELS[B])
    traces = np.column_stack([RNG.random((40, 2)), audit(model, train, test, progress=False).records["loss"]])
    target = Target(model, train, test, weight_decay=0.1, ids=np.arange(40) + 7, groups=np.array(["a", "b"] * 20), loss_traces=traces)
    result = ns.audit(target, seed=3, progress=False, task="auto", weight_decay=None, layers="last")
    stated = audit(
        model, train, test, weight_decay=0.1, ids=range(7, 47), groups=["a", "b"] * 20, loss_traces=traces, seed=3, progress=False
    )
    pd.testing.assert_frame_equal(result.records, stated.records, check_exact=True)
    assert result.model_risk == stated.model_risk


def test_options_complete_a_target_and_may_not_contradict_it():
    model, data = network(1), (X.astype(np.float32), (LABELS > 0).astype(float))
    assert ns.audit(Target(model, data, data), task="binary", progress=False).task == "binary"
    assert ns.audit(Target(model, data, data, task="binary"), task="binary", progress=False).task == "binary"
    refused(
        "task must agree with the Target's 'binary'; got 'regression'",
        ns.audit,
        Target(model, data, data, task="binary"),
        task="regression",
    )
    refused(
        "weight_decay must agree with the Target's 0.1; got 0.2",
        ns.audit,
        Target(model, data, data, weight_decay=0.1),
        weight_decay=0.2,
    )


def small_problem(n=60, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 3))
    return features, rng.integers(0, 2, n)


def told(audit, code):
    """The sentence and next step of a finding, nothing where it was not found."""
    (finding,) = (finding for finding in audit.findings if finding.code == code)
    return f"{finding.sentence} {finding.next_step}" if finding.status == "found" else ""


def test_splits_that_share_records_or_are_swapped_are_found():
    features, labels = small_problem(400)
    model = LogisticRegression(C=100.0).fit(features[:40], labels[:40])
    inside, outside = (features[:40], labels[:40]), (features[200:], labels[200:])
    apart = ns.audit(model, inside, outside, progress=False)
    assert not told(apart, "NS007") and not told(apart, "NS005")
    same = told(ns.audit(model, inside, inside, progress=False), "NS007")
    assert "40 of 40 test records have the features and target" in same and "the model risk means nothing" in same
    mixed = (np.concatenate([features[:10], features[200:]]), np.concatenate([labels[:10], labels[200:]]))
    assert "10 of 210 test records have the features and target" in told(ns.audit(model, inside, mixed, progress=False), "NS007")
    forest = RandomForestClassifier(random_state=0).fit(features[:200], labels[:200])
    swapped = ns.audit(forest, (features[200:], labels[200:]), (features[:200], labels[:200]), progress=False)
    assert "Check that train and test are not exchanged" in told(swapped, "NS005")


def test_an_interval_that_rests_on_one_member_is_found():
    features, labels = small_problem(200)
    model = LogisticRegression().fit(features[:100], labels[:100])
    splits = (features[:100], labels[:100]), (features[100:], labels[100:])
    assert "1 of 100 members may lie above the threshold τ" in told(ns.audit(model, *splits, progress=False), "NS006")
    assert not told(ns.audit(model, *splits, fpr=0.1, progress=False), "NS006")


def test_an_unknown_damping_is_found():
    features, labels = small_problem()
    train = ns.Signals(features, np.column_stack([features[:, 0], -features[:, 0]]), labels)
    test = ns.Signals(features + 1, np.column_stack([features[:, 0], -features[:, 1]]), labels)
    assert "Pass weight_decay=" in told(ns.audit_signals(train, test, progress=False), "NS021")
    assert not told(ns.audit_signals(train, test, weight_decay=1e-3, progress=False), "NS021")


def test_class_names_become_labels_and_binary_targets_are_whole_numbers():
    features, labels = small_problem()
    names = np.array(["healthy", "ill"])[labels]
    model = LogisticRegression().fit(features, names)
    records = ns.audit(model, (features, names), (features + 1, names), progress=False).records
    assert records["label"].tolist() == names.tolist()
    assert records["target"].tolist() == labels.tolist()
    assert records["target"].dtype == np.int64


def test_ids_follow_the_data_set_behind_subsets_and_the_index_of_a_frame():
    features, labels = small_problem()
    data = TensorDataset(torch.tensor(features, dtype=torch.float32), torch.tensor(labels))
    model = torch.nn.Linear(3, 2)
    rows = [50, 7, 33, 8, 9]
    ids = {
        "sampler": DataLoader(data, sampler=SubsetRandomSampler(rows)),
        "subset": Subset(data, rows),
        "nested": Subset(Subset(data, [50, 7, 33, 8, 9, 11]), [0, 2, 4]),
    }
    found = {name: ns.collect_signals(model, split).ids.tolist() for name, split in ids.items()}
    assert found == {"sampler": sorted(rows), "subset": rows, "nested": [50, 33, 9]}
    frame = pd.DataFrame(features, index=[f"patient-{i}" for i in range(60)], columns=["a", "b", "c"])
    signals = ns.collect_signals(LogisticRegression().fit(frame, labels), (frame, labels))
    assert signals.ids.tolist() == frame.index.tolist()
    plain = frame.reset_index(drop=True)
    assert ns.collect_signals(LogisticRegression().fit(plain, labels), (plain, labels)).ids.tolist() == list(range(60))


def test_repeats_by_nature_are_not_called_shared_records():
    rng = np.random.default_rng(3)
    constant = [ns.Signals(np.ones((20, 2)), np.full(20, 0.1), rng.normal(size=20)) for _ in range(2)]
    assert not told(ns.audit_signals(*constant, damping=1.0, progress=False), "NS007")
    features, labels = small_problem(200)
    forest = RandomForestClassifier(n_estimators=5, random_state=0).fit(features[:100], labels[:100])
    splits = (features[:100], labels[:100]), (features[100:], labels[100:])
    assert not told(ns.audit(forest, *splits, progress=False), "NS007")
    assert "100 of 100 test records" in told(ns.audit(forest, splits[0], splits[0], progress=False), "NS007")


@pytest.mark.parametrize(("layers", "names"), [("all", ["0", "3"]), (1, ["3"])])
def test_more_layers_take_the_place_of_the_last_one_and_are_recorded(tmp_path, layers, names):
    model = network()
    result = audit(model, (X, LABELS), (X[:9], LABELS[:9]), layers=layers, weight_decay=1e-2, progress=False)
    scores = ns.network_scores(model, (X, LABELS), layers=layers, weight_decay=1e-2)
    for name in ("margin_leverage", "influence", "newton", "loo", "shift", "gradient_norm"):
        np.testing.assert_array_equal(result.records[name], getattr(scores, name))
    assert "leverage" not in result.records
    assert "score_options={'outputs': 'all'}" in result.not_applicable["leverage"]
    assert result.provenance["arguments"]["layers"] == layers
    assert result.provenance["scores"]["layers"] == names
    assert result.provenance["scores"]["method"] == "dual"
    assert result.records.loc[result.records["rank"] == 1, "shift"].item() == scores.shift.max()
    page = ns.write_report(ns.load(result.save(tmp_path / "audit")), tmp_path / "report.html").read_text()
    assert f"{len(names)} layer" in page
    assert ", ".join(names) in page


def test_all_layers_of_a_regression_have_leverage_and_a_predicted_tpr():
    result = audit(network(1), (X, X[:, 0]), (X[:9], X[:9, 0]), layers="all", weight_decay=1e-2, progress=False)
    assert result.records["leverage"].between(0, 1).all()
    assert result.records["predicted_tpr"].between(0, 1).all()


def test_deep_regressions_are_told_about_their_other_layers():
    hint = "all layers together rank the exposed records better"
    records, unseen = (X, X[:, 0]), (X[:9], X[:9, 0])
    assert any(hint in note for note in audit(network(1), records, unseen, progress=False).notes)
    for model, options in ((network(1), {"layers": "all"}), (nn.Linear(4, 1), {})):
        assert not any(hint in note for note in audit(model, records, unseen, progress=False, **options).notes)
    assert not any(hint in note for note in audit(network(), (X, LABELS), (X[:9], LABELS[:9]), progress=False).notes)


def test_estimators_have_their_last_layer_only():
    model = LogisticRegression().fit(X, LABELS)
    refused("layers must be 'last' for a model that is no nn.Module; got 'all'", audit, model, (X, LABELS), None, layers="all")
