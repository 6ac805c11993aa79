import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from extras import extra
from noshadow.attacks.shokri import fitted_attack, membership_probabilities, shokri_scores, shokri_success
from noshadow.checks import InputError
from noshadow.metrics import share_intervals


def balanced_membership(rng, models, records):
    """Every record in exactly half of the models."""
    return rng.permuted(np.arange(models)[:, None] < np.full(records, models // 2), axis=0)


def logistic():
    return make_pipeline(StandardScaler(), LogisticRegression(tol=1e-8, max_iter=1000))


def leaking_logits(rng, member, labels, classes):
    """Members get a larger logit at their label."""
    hot = np.eye(classes)[labels]
    return rng.normal(size=(*member.shape, classes)) + hot * (1 + 2 * member[:, :, None])


class Log(list):
    """Survives scikit-learn's clone, which copies parameters."""

    def __deepcopy__(self, memo):
        return self


class Recorder(ClassifierMixin, BaseEstimator):
    """Notes what it is shown; its answer is the logistic function of one feature, whatever it was taught."""

    def __init__(self, fits=None, asked=None, column=0, classes=(0, 1)):
        self.fits, self.asked, self.column, self.classes = fits, asked, column, classes

    def fit(self, X, y):
        self.classes_ = np.array(self.classes)
        if self.fits is not None:
            self.fits.append((X.copy(), y.copy()))
        return self

    def predict_proba(self, X):
        if self.asked is not None:
            self.asked.append(X.copy())
        chance = 1 / (1 + np.exp(-X[:, self.column]))
        return np.column_stack([chance if label == 1 else 1 - chance for label in self.classes])


def test_scores_equal_a_loop_over_models_records_and_classes():
    rng = np.random.default_rng(0)
    member, labels = balanced_membership(rng, 4, 90), rng.integers(0, 3, 90)
    reference, target = leaking_logits(rng, member, labels, 3), rng.normal(size=(90, 3)) + np.eye(3)[labels]
    found = shokri_scores(target, labels, reference, member, task="classification", classifier=logistic())
    for label in range(3):
        rows = [(softmax(reference[t, i]), member[t, i]) for t in range(4) for i in range(90) if labels[i] == label]
        attack = logistic().fit([features for features, _ in rows], [inside for _, inside in rows])
        inside = np.flatnonzero(labels == label)
        expected = attack.predict_proba([softmax(target[i]) for i in inside])[:, 1]
        # All rows are used, in another order: two runs of the same solver to its tolerance.
        assert found[inside] == pytest.approx(expected, abs=1e-5)


def test_attack_classifiers_equal_those_of_art():
    art = extra("art.attacks.inference.membership_inference")
    estimators = extra("art.estimators.classification")
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 240)
    features = (rng.normal(size=(240, 4)) + np.eye(3, 4)[labels]).astype(np.float32)
    template = estimators.SklearnClassifier(RandomForestClassifier(n_estimators=8, random_state=0), clip_values=(-10, 10))
    template.fit(features, np.eye(3)[labels])
    shadows = art.ShadowModels(template, num_shadow_models=3, random_state=2)
    (_, member_labels, member_outputs), (_, other_labels, other_outputs) = shadows.generate_shadow_dataset(features, np.eye(3)[labels])
    for label in range(3):
        inside, outside = member_outputs[member_labels[:, label] == 1], other_outputs[other_labels[:, label] == 1]
        theirs = art.MembershipInferenceBlackBox(template, attack_model_type="lr")
        hot = [np.eye(3)[np.full(len(part), label)] for part in (inside, outside)]
        theirs.fit(y=hot[0], test_y=hot[1], pred=inside, test_pred=outside)
        expected = theirs.infer(None, np.concatenate(hot), pred=np.concatenate((inside, outside)), probabilities=True)[:, 0]
        is_member = np.repeat((True, False), (len(inside), len(outside)))
        ours = fitted_attack(np.concatenate((inside, outside)), is_member, make_pipeline(StandardScaler(), LogisticRegression()))
        found = membership_probabilities(ours, np.concatenate((inside, outside)))
        # Its one-hot label columns are constant within a class and standardise to zero, so the optimum is ours; it rounds
        # the outputs to float32 (1e-7) and both stop at the solver's default tolerance of 1e-4.
        assert found == pytest.approx(expected, abs=1e-3)
        assert roc_auc_score(is_member, found) == pytest.approx(roc_auc_score(is_member, expected), abs=1e-3)
        assert roc_auc_score(is_member, found) > 0.6


def test_one_logit_is_two_columns():
    rng = np.random.default_rng(2)
    member, labels = balanced_membership(rng, 6, 200), rng.integers(0, 2, 200)
    logit = rng.normal(size=(7, 200)) + (2 * labels - 1) * (1 + np.r_[member, member[:1]])
    columns = np.stack((np.zeros_like(logit), logit), axis=2)
    expected = shokri_scores(columns[6], labels, columns[:6], member, task="classification", seed=3)
    assert np.array_equal(shokri_scores(logit[6], labels, logit[:6], member, task="binary", seed=3), expected)
    assert np.array_equal(shokri_scores(logit[6, :, None], labels * 1.0, logit[:6, :, None], member, task="binary", seed=3), expected)
    soft = np.where(labels == 1, 0.8, 0.3)
    assert np.array_equal(shokri_scores(logit[6], soft, logit[:6], member, task="binary", seed=3), expected)


def test_an_overfit_model_is_told_from_its_outputs():
    rng = np.random.default_rng(3)
    features, labels = rng.normal(size=(240, 5)), rng.integers(0, 3, 240)
    member = balanced_membership(rng, 8, 240)
    member = np.r_[member, rng.random((1, 240)) < 0.5]
    forests = [RandomForestClassifier(10, random_state=t).fit(features[inside], labels[inside]) for t, inside in enumerate(member)]
    outputs = [np.log(forest.predict_proba(features) + 1e-3) for forest in forests]
    scores = shokri_scores(outputs[8], labels, outputs[:8], member[:8], task="classification")
    assert scores.shape == (240,) and scores.dtype == np.float64
    assert roc_auc_score(member[8], scores) > 0.85
    found = shokri_success(outputs[:8], labels, member[:8], task="classification")
    assert (found.model_auc > 0.85).all()
    assert found.success.mean() > 0.75


def test_regression_learns_from_prediction_target_and_residual():
    rng = np.random.default_rng(4)
    member, targets = balanced_membership(rng, 8, 300), rng.normal(size=(300, 2))
    noise = rng.normal(size=(8, 300, 2))
    outputs = targets + np.where(member[:, :, None], 0.2, 1.0) * noise
    found = shokri_success(outputs, targets, member, task="regression")
    # |residual| of two coordinates tells N(0, 0.2²) from N(0, 1): the best rule is right for 93 % of the records.
    assert (found.model_auc > 0.9).all()
    fits, asked = Log(), Log()
    one = outputs[:, :, 0]
    shokri_scores(one[0], targets[:, 0], one[1:], member[1:], task="regression", classifier=Recorder(fits, asked))
    assert len(fits) == 1
    expected = np.column_stack((one[0], targets[:, 0], targets[:, 0] - one[0]))
    assert np.array_equal(asked[0], expected)


@pytest.mark.parametrize("identity", [0.0, 3.0])
def test_outputs_that_say_nothing_of_membership_give_a_coin(identity):
    rng = np.random.default_rng(5)
    member, labels = balanced_membership(rng, 12, 400), rng.integers(0, 2, 400)
    # With identity > 0 a record is known by its outputs; half of the models hold it, so that the models learnt from
    # hold it less often exactly when the attacked one does.
    outputs = rng.normal(size=(12, 400, 8)) * 0.1 + identity * rng.normal(size=(400, 8))
    found = shokri_success(outputs, labels, member, task="classification", seed=6)
    # 4,800 decisions: standard error 0.007. Rows that are not paired by record come to 0.38 and an AUC of 0.34.
    assert found.success.mean() == pytest.approx(0.5, abs=0.03)
    assert found.model_auc.mean() == pytest.approx(0.5, abs=0.03)


def coded_outputs(models, records):
    """Predictions that name model and record: 1000 t + i."""
    return 1000.0 * np.arange(models)[:, None] + np.arange(records)


def test_rows_are_paired_by_record_and_at_most_max_rows():
    rng = np.random.default_rng(7)
    member = rng.random((9, 60)) < 0.5
    outputs, targets = coded_outputs(9, 60), np.zeros(60)
    available = np.minimum(member.sum(0), (~member).sum(0))
    for most in (50_000, 101):
        fits = Log()
        shokri_scores(outputs[0], targets, outputs, member, task="regression", classifier=Recorder(fits), max_rows=most)
        ((features, is_member),) = fits
        model, record = (features[:, 0] // 1000).astype(int), (features[:, 0] % 1000).astype(int)
        assert np.array_equal(member[model, record], is_member)
        assert len(np.unique(features[:, 0])) == len(features) == min(2 * available.sum(), most // 2 * 2)
        inside, outside = (np.bincount(record[is_member == side], minlength=60) for side in (1, 0))
        assert np.array_equal(inside, outside)
        assert (inside <= available).all()
        if most == 50_000:
            assert np.array_equal(inside, available)


def test_rows_are_drawn_evenly_over_models():
    rng = np.random.default_rng(8)
    member, fits = balanced_membership(rng, 6, 300), Log()
    for seed in range(20):
        attack = Recorder(fits)
        shokri_scores(
            coded_outputs(1, 300)[0],
            np.zeros(300),
            coded_outputs(6, 300),
            member,
            task="regression",
            classifier=attack,
            max_rows=120,
            seed=seed,
        )
    drawn = np.concatenate([features[:, 0] // 1000 for features, _ in fits]).astype(int)
    # 2,400 rows over 6 models: 400 ± 18 each.
    assert np.abs(np.bincount(drawn, minlength=6) - 400).max() < 80


def test_each_class_has_its_own_classifier():
    rng = np.random.default_rng(9)
    member, labels, fits = balanced_membership(rng, 4, 30), np.repeat((0, 2), 15), Log()
    logits = rng.normal(size=(4, 30, 3))
    shokri_scores(logits[0], labels, logits, member, task="classification", classifier=Recorder(fits))
    assert [len(y) for _, y in fits] == [60, 60]
    for (features, _), inside in zip(fits, (labels == 0, labels == 2), strict=True):
        expected = softmax(logits[:, inside].reshape(-1, 3), axis=1)
        assert np.array_equal(np.sort(features[:, 0]), np.sort(expected[:, 0]))
    soft = np.eye(3)[labels] * 0.6 + 0.4 / 3
    again = Log()
    shokri_scores(logits[0], soft, logits, member, task="classification", classifier=Recorder(again))
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(fits, again, strict=True))


def test_models_are_attacked_by_what_the_other_groups_teach():
    rng = np.random.default_rng(10)
    member, fits, asked = balanced_membership(rng, 10, 40), Log(), Log()
    shokri_success(coded_outputs(10, 40), np.zeros(40), member, task="regression", folds=3, classifier=Recorder(fits, asked))
    attacked = [set(features[:, 0] // 1000) for features in asked]
    assert len(attacked) == 10 and all(len(models) == 1 for models in attacked)
    assert set.union(*attacked) == set(range(10))
    taught, place = [set(features[:, 0] // 1000) for features, _ in fits], 0
    for models in taught:
        group = set.union(*attacked[place : place + 10 - len(models)])
        assert group == set(range(10)) - models
        place += len(group)
    assert place == 10 and len(taught) == 3


def test_success_interval_and_auc_follow_their_definition():
    rng = np.random.default_rng(11)
    member = rng.random((7, 50)) < 0.4
    member[0], member[1] = True, False
    member[0, 3], member[1, 5] = False, True
    outputs = rng.normal(size=(7, 50))
    found = shokri_success(outputs, np.zeros(50), member, task="regression", folds=7, level=0.9, classifier=Recorder())
    # The recorder's probability passes ½ where the prediction is positive.
    for i in range(50):
        called_in = [outputs[t, i] > 0 for t in range(7) if member[t, i]]
        called_out = [outputs[t, i] <= 0 for t in range(7) if not member[t, i]]
        assert found.success[i] == pytest.approx((np.mean(called_in) + np.mean(called_out)) / 2, abs=1e-12)
        trials = 4 * len(called_in) * len(called_out) / 7
        assert found.interval[i] == pytest.approx(share_intervals([found.success[i]], [trials], level=0.9)[0], abs=1e-12)
    expected = [roc_auc_score(member[t], outputs[t]) for t in range(7)]
    assert found.model_auc == pytest.approx(expected, abs=1e-12)


def test_the_members_column_is_looked_up():
    rng = np.random.default_rng(12)
    member, outputs = balanced_membership(rng, 4, 20), rng.normal(size=(4, 20))
    one, turned = (
        shokri_scores(outputs[0], np.zeros(20), outputs, member, task="regression", classifier=Recorder(classes=classes))
        for classes in ((0, 1), (1, 0))
    )
    assert np.array_equal(one, turned)
    assert one == pytest.approx(1 / (1 + np.exp(-outputs[0])), abs=1e-12)


class Store:
    """Hands out a model's outputs when asked, and counts."""

    def __init__(self, outputs):
        self.outputs, self.asked = outputs, np.zeros(len(outputs), dtype=int)

    def __len__(self):
        return len(self.outputs)

    def __getitem__(self, model):
        self.asked[model] += 1
        return self.outputs[model].copy()


def test_outputs_may_come_one_by_one():
    rng = np.random.default_rng(13)
    member, labels = balanced_membership(rng, 6, 120), rng.integers(0, 2, 120)
    logits = leaking_logits(rng, member, labels, 2)
    expected = shokri_scores(logits[0], labels, logits, member, task="classification")
    one_by_one = (outputs for outputs in logits)
    assert np.array_equal(shokri_scores(logits[0], labels, one_by_one, member, task="classification"), expected)
    store = Store(logits)
    assert np.array_equal(shokri_scores(logits[0], labels, store, member, task="classification"), expected)
    assert store.asked.tolist() == [1] * 6
    store = Store(logits)
    found = shokri_success(store, labels, member, task="classification", folds=3)
    assert store.asked.tolist() == [4, 3, 3, 3, 3, 3]
    assert np.array_equal(found.success, shokri_success(list(logits), labels, member, task="classification", folds=3).success)


def test_the_seed_decides_and_inputs_are_left_alone():
    rng = np.random.default_rng(14)
    member, labels = balanced_membership(rng, 6, 120), rng.integers(0, 2, 120)
    logits = leaking_logits(rng, member, labels, 2)
    before = logits.copy(), labels.copy(), member.copy()
    runs = [shokri_success(logits, labels, member, task="classification", max_rows=60, seed=seed) for seed in (0, 0, 1)]
    assert np.array_equal(runs[0].success, runs[1].success)
    assert np.array_equal(runs[0].model_auc, runs[1].model_auc)
    assert not np.array_equal(runs[0].model_auc, runs[2].model_auc)
    assert all(np.array_equal(a, b) for a, b in zip((logits, labels, member), before, strict=True))


LABELS = np.arange(40) % 2
LOGITS = np.random.default_rng(15).normal(size=(4, 40, 2))
MEMBER = balanced_membership(np.random.default_rng(16), 4, 40)


def scores(**changed):
    given = {"target_outputs": LOGITS[0], "targets": LABELS, "reference_outputs": LOGITS, "membership": MEMBER, "task": "classification"}
    return shokri_scores(**(given | changed))


def success(**changed):
    return shokri_success(**({"reference_outputs": LOGITS, "targets": LABELS, "membership": MEMBER, "task": "classification"} | changed))


def broken(array, place, value):
    copy = array.copy()
    copy[place] = value
    return copy


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scores(task="auto"), r"shokri_scores: task must be one of 'regression', 'classification', 'binary'; got 'auto'"),
        (
            lambda: scores(targets=broken(LABELS, 3, 2)),
            r"shokri_scores: targets must be < 2, the number of outputs; got label 2 at index 3",
        ),
        (lambda: scores(targets=LABELS * 1.5), r"shokri_scores: targets must be integers in classification"),
        (
            lambda: scores(targets=LABELS[:-1]),
            r"shokri_scores: target_outputs and targets must have one row per record; got lengths .*40.*39",
        ),
        (lambda: scores(target_outputs=broken(LOGITS[0], (5, 1), np.nan)), r"shokri_scores: target_outputs must be finite; got 1 NaN"),
        (
            lambda: scores(reference_outputs=broken(LOGITS, (2, 5, 1), np.inf)),
            r"shokri_scores: reference_outputs\[2\] must be finite; got 1 NaN or infinite values, the first at index \(5, 1\)",
        ),
        (lambda: scores(target_outputs=LOGITS), r"shokri_scores: target_outputs must be a 1-dimensional or 2-dimensional array"),
        (
            lambda: scores(reference_outputs=[LOGITS[0], LOGITS[1, :, :1], *LOGITS[2:]]),
            r"shokri_scores: reference_outputs\[1\] must have the shape of the other models' outputs \(40, 2\); got shape \(40, 1\)",
        ),
        (
            lambda: scores(reference_outputs=LOGITS[:3]),
            r"shokri_scores: reference_outputs must hold one array per row of membership \(4\); got 3",
        ),
        (
            lambda: scores(reference_outputs=iter([*LOGITS, LOGITS[0]])),
            r"shokri_scores: reference_outputs must hold one .* \(4\); got more",
        ),
        (lambda: scores(membership=MEMBER.astype(int)), r"shokri_scores: membership must be boolean; got dtype int64"),
        (
            lambda: scores(membership=MEMBER[:, :-1]),
            r"shokri_scores: membership must have one entry per model and record .* got shape \(4, 39\)",
        ),
        (lambda: scores(membership=MEMBER[0]), r"shokri_scores: membership must have one entry per model and record .* got shape \(40,\)"),
        (
            lambda: scores(membership=MEMBER & (LABELS == 0)),
            r"shokri_scores: membership must hold class 1 at least 2 times in pairs: .*; got 0\. Train more models, or merge",
        ),
        (
            lambda: scores(
                target_outputs=LOGITS[0, :, 0], reference_outputs=LOGITS[:, :, 0], membership=MEMBER[:1].repeat(4, 0), task="regression"
            ),
            r"shokri_scores: membership must hold the records at least 2 times in pairs",
        ),
        (lambda: scores(task="binary"), r"shokri_scores: outputs must have one column in a binary task"),
        (lambda: scores(target_outputs=LOGITS[0, :, 0]), r"shokri_scores: outputs must have at least 2 columns in classification"),
        (lambda: scores(max_rows=3), r"shokri_scores: max_rows must be a whole number ≥ 4; got 3"),
        (lambda: scores(seed=-1), r"shokri_scores: seed must be a whole number"),
        (
            lambda: scores(classifier=LinearSVC()),
            r"shokri_scores: classifier must be a scikit-learn classifier with fit and predict_proba; got LinearSVC",
        ),
        (
            lambda: scores(classifier=LogisticRegression(C=-1.0)),
            r"shokri_scores: classifier must learn membership from rows of outputs; got InvalidParameterError",
        ),
        (
            lambda: scores(classifier=Recorder(column=9)),
            r"shokri_scores: classifier must predict probabilities for rows of outputs; got IndexError",
        ),
        (
            lambda: success(reference_outputs=iter(LOGITS)),
            r"shokri_success: reference_outputs must be a sequence .* A generator can be put",
        ),
        (
            lambda: success(reference_outputs=LOGITS[:3]),
            r"shokri_success: reference_outputs must hold one array per row of membership \(4\); got 3",
        ),
        (lambda: success(folds=5), r"shokri_success: folds must be at most the number of models \(4\); got 5"),
        (lambda: success(folds=1), r"shokri_success: folds must be a whole number ≥ 2; got 1"),
        (lambda: success(level=1.0), r"shokri_success: level must be a number > 0 and < 1; got 1"),
        (
            lambda: success(membership=MEMBER & (np.arange(40) != 7)),
            r"shokri_success: membership must hold every record IN for at least 1 model; got 1 records with fewer .* index 7 with 0",
        ),
        (
            lambda: success(membership=np.stack([MEMBER[0], ~MEMBER[0], np.ones(40, bool), np.zeros(40, bool)])),
            r"shokri_success: membership must give every model members and non-members; got model 2 with 40 members of 40 records",
        ),
    ],
)
def test_wrong_input_gets_one_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()
