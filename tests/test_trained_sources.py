"""Sources that are trained for an audit: their margins are their models' own, and nothing is taken on trust."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from torch import nn

import noshadow as ns
from noshadow import InputError
from noshadow._audit.known_references import Audited, Words, audited_of, known_references
from noshadow._audit.options import GivenColumns, Options
from noshadow._audit.settled import settled
from noshadow._audit.trained_sources import Subject, trained_sources
from noshadow._audit.trainings import checked_trainings
from noshadow.errors import speaking_for
from noshadow.joins import held_by
from noshadow.losses import record_losses, record_margins
from noshadow.reference import Recipe, fold_plan, load_references, plan, train_references
from noshadow.views import view

N, T, FEATURES, CLASSES = 340, 220, 6, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N + T, FEATURES))
SIGNAL = X @ RNG.normal(size=(FEATURES, CLASSES)) + 0.8 * RNG.normal(size=(N + T, CLASSES))
Y, VALUES = SIGNAL.argmax(1), SIGNAL[:, 0]
TRAIN, TEST = (X[:N], Y[:N]), (X[N:], Y[N:])
HERE = {"workers": 1}


def fit(indices, seed, stop=1.0):
    """Logistic regression: the same model for the same rows, whatever the seed. Stopped early it has learnt less."""
    return LogisticRegression(C=10.0 * stop, tol=1e-8, max_iter=2000).fit(X[indices], Y[indices])


def fit_values(indices, seed):
    return Ridge(0.1).fit(X[indices], VALUES[indices])


def network():
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))


RECIPE = Recipe(network, X, Y, epochs=10, batch_size=64, lr=0.1, momentum=0.9, schedule="cosine")
MODEL = fit(np.arange(N), 0)


def known(model=MODEL, train=TRAIN, test=TEST, *, task="auto", seed=0, **asked):
    """What each source says, in the order folds, few references, short references."""
    options = Options(task, "auto", None, "auto", seed, False, "audit")
    with speaking_for("audit"):
        return _known(model, train, test, options, asked)


def _known(model, train, test, options, asked):
    task, seed = options.task, options.seed
    found = settled(view(model, train, test, task=task, progress=False, seed=seed), options, GivenColumns())
    arguments = dict.fromkeys(("folds", "reference_models", "short_references", "stop", "train_fn", "work", "training_options", "traced"))
    given = arguments | ({"training_options": HERE} if asked.get("train_fn") is not None else {}) | asked
    reading = {"batch_size": 256, "device": None, "output": "auto", "output_scale": "auto"}
    subject = Subject(model, train, test, reading)
    return [source(audited_of(found)) for source in trained_sources(checked_trainings(**given), subject, options)]


def audited(**options):
    return ns.audit(MODEL, TRAIN, TEST, train_fn=fit, training_options=HERE, progress=False, **options)


def entry(audit, source):
    return next(entry for entry in audit.evidence if entry.source == source)


def margins_of(model):
    return record_margins(model.decision_function(X), Y, "classification")


@pytest.mark.parametrize("models", [1, 2, 3, 5])
def test_few_references_say_what_their_models_say(models, tmp_path):
    (found,) = known(reference_models=models, train_fn=fit, work=tmp_path, seed=3)
    drawn = plan(N + T, models=models, seed=3)
    source = found.source
    assert source.name == found.evidence.source == "few references" and not source.early
    np.testing.assert_array_equal(source.membership, drawn.membership[:, :N])
    for row in range(models):
        margins = margins_of(fit(drawn.members(row), 0))
        # The same deterministic solver on the same rows: rounding only.
        np.testing.assert_allclose(source.margins[row], margins[:N], rtol=1e-9, atol=1e-9)
        unseen = ~drawn.membership[row, N:]
        np.testing.assert_array_equal(np.isnan(source.test_margins[row]), ~unseen)
        np.testing.assert_allclose(source.test_margins[row][unseen], margins[N:][unseen], rtol=1e-9, atol=1e-9)
    stamp = found.evidence.stamp
    assert stamp["models"] == models and stamp["seed"] == 3 and len(stamp["plan"]) == 64 and stamp["seconds"] > 0
    # In trainings of the audited model, by the number of records: each has (N + T)/2 where it has N.
    assert source.trainings == stamp["trainings"] == pytest.approx(models * (N + T) / 2 / N, rel=1e-12)
    stored = load_references(tmp_path / f"references-{models}")
    assert stamp["seconds"] == pytest.approx(stored.seconds.mean()) and stored.weights_sha256


def test_folds_leave_each_record_out_once_and_see_no_test_record(tmp_path):
    (found,) = known(folds=4, train_fn=fit, work=tmp_path, seed=2)
    drawn, source = fold_plan(N, T, folds=4, seed=2), found.source
    np.testing.assert_array_equal(source.membership, drawn.membership[:, :N])
    assert (~source.membership).sum(0).tolist() == [1] * N and np.isfinite(source.test_margins).all()
    expected = np.empty(N)
    for fold in range(4):
        model = fit(drawn.members(fold), 0)
        np.testing.assert_allclose(source.test_margins[fold], margins_of(model)[N:], rtol=1e-9, atol=1e-9)
        out = ~drawn.membership[fold, :N]
        expected[out] = record_losses(model.decision_function(X[:N]), Y[:N], "classification")[out]
    # Losses of the same deterministic fits: rounding only.
    np.testing.assert_allclose(found.evidence.columns["fold_loss"], expected, rtol=1e-8, atol=1e-10)
    assert source.name == "folds" and source.trainings == pytest.approx(3) and not found.evidence.notes


def test_short_references_of_a_recipe_are_stopped_in_its_schedule(tmp_path):
    model = RECIPE(np.arange(N), 1)
    options = {"short_references": 2, "train_fn": RECIPE, "work": tmp_path, "seed": 5}
    train, test = ((part[0].astype(np.float64), part[1]) for part in (TRAIN, TEST))
    by_share, by_epoch, by_trace = (
        known(model.double(), train, test, **options, **stop)[0] for stop in ({"stop": 0.3}, {"stop": 3}, {"traced": (3, 10)})
    )
    drawn = plan(N + T, models=2, seed=6)
    stopped = replace(RECIPE, stop=3)
    for row in range(2):
        outputs = stopped(drawn.members(row), int(drawn.seeds[row]))(RECIPE.x).detach().numpy()
        margins = record_margins(outputs, Y, "classification")
        # Trained in a stack there and alone here: float64 rounding over 3 epochs.
        np.testing.assert_allclose(by_share.source.margins[row], margins[:N], rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(by_share.source.membership, drawn.membership[:, :N])
    for other in (by_epoch, by_trace):
        np.testing.assert_array_equal(other.source.margins, by_share.source.margins)
    assert by_share.source.early and by_share.evidence.stamp["stop"] == 0.3
    assert by_share.source.trainings == pytest.approx(2 * 0.3 * (N + T) / 2 / N, rel=1e-12)


def test_a_function_is_told_where_to_stop(tmp_path):
    calls = []

    def spy(indices, seed, stop=1.0):
        calls.append(stop)
        return fit(indices, seed, stop)

    (short,) = known(short_references=2, train_fn=spy, stop=0.1, work=tmp_path)
    assert calls == [0.1, 0.1]
    drawn = plan(N + T, models=2, seed=1)
    np.testing.assert_allclose(short.source.margins[1], margins_of(fit(drawn.members(1), 0, 0.1))[:N], rtol=1e-6, atol=1e-8)
    known(short_references=2, train_fn=spy, stop=0.1, work=tmp_path)
    assert len(calls) == 2
    # Another place to stop is another set, beside the first.
    known(short_references=2, train_fn=spy, stop=0.2, work=tmp_path)
    assert calls[2:] == [0.2, 0.2]


def test_an_audit_stops_short_references_at_the_best_epoch_of_its_traces(tmp_path):
    """Recorded before training and after each of ten epochs: the fourth recording is that after epoch three."""
    model = RECIPE(np.arange(N), 1).double()
    losses = record_losses(model(RECIPE.x[:N]).detach().numpy(), Y[:N], "classification")
    traces = losses[:, None] + np.arange(10, -1, -1)
    unseen = np.array([[5.0, 4.0, 3.0, 1.0, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0]])
    options = {"short_references": 1, "train_fn": RECIPE, "training_options": HERE, "progress": False, "work": tmp_path}
    audit = ns.audit(model, TRAIN, TEST, loss_traces=(traces, unseen), **options)
    assert entry(audit, "short references").stamp["stop"] == 0.3
    assert load_references(tmp_path / "short-references-1-0.3").describe["train"]["settings"]["stop"] == 3
    assert "level without the record (short references)" in entry(audit, "exposure").stamp["rule"]
    # Given, it comes before the traces; a best recording before the first epoch is that epoch.
    asked = ns.audit(model, TRAIN, TEST, loss_traces=(traces, unseen), stop=0.5, **options)
    assert entry(asked, "short references").stamp["stop"] == 0.5
    early = ns.audit(model, TRAIN, TEST, loss_traces=(traces, np.arange(11.0)[None]), **options)
    assert entry(early, "short references").stamp["stop"] == 0.1


def test_whole_short_references_are_said_to_be_so(tmp_path):
    (found,) = known(short_references=1, train_fn=fit, traced=(7, 7), work=tmp_path)
    assert any("as many reference_models cost the same" in note for note in found.evidence.notes) and found.source.early


def test_short_and_whole_references_do_not_share_their_draw(tmp_path):
    few, short = known(reference_models=2, short_references=2, stop=0.5, train_fn=fit, work=tmp_path)
    assert (few.source.membership != short.source.membership).mean() > 0.4


def test_a_regression_has_signed_residuals(tmp_path):
    train, test = (X[:N], VALUES[:N]), (X[N:], VALUES[N:])
    (found,) = known(fit_values(np.arange(N), 0), train, test, reference_models=2, train_fn=fit_values, work=tmp_path)
    drawn = plan(N + T, models=2, seed=0)
    residuals = VALUES - fit_values(drawn.members(0), 0).predict(X)
    np.testing.assert_allclose(found.source.margins[0], residuals[:N], rtol=1e-9, atol=1e-9)
    audit = ns.audit(
        fit_values(np.arange(N), 0), train, test, folds=2, train_fn=fit_values, training_options=HERE, work=tmp_path, progress=False
    )
    assert audit.ranked_by == "exposure_score" and audit.records["fold_loss"].dtype == np.float64


def test_nothing_is_trained_for_records_of_several_residuals(tmp_path):
    def never(indices, seed, stop=1.0):
        raise AssertionError("trained")

    train, test = (X[:N], SIGNAL[:N]), (X[N:], SIGNAL[N:])
    model = LinearRegression().fit(*train)
    for found in known(model, train, test, reference_models=2, short_references=2, stop=0.5, train_fn=never, work=tmp_path):
        assert found.source.margins is None and found.source.trainings == 0 and not list(tmp_path.iterdir())
        assert "several residuals" in next(iter(found.evidence.absent.values()))

    def several(indices, seed):
        return LinearRegression().fit(X[indices], SIGNAL[indices])

    audit = ns.audit(model, train, test, folds=3, train_fn=several, training_options=HERE, progress=False)
    assert "fold_loss" in audit.records and "exposure" in audit.not_applicable


def test_records_on_one_side_only_are_counted(tmp_path):
    (found,) = known(reference_models=2, train_fn=fit, work=tmp_path)
    counts = found.source.membership.sum(0)
    (note,) = found.evidence.notes
    assert f"{(counts == 2).sum()} of {N} records were in all of the reference models, and {(counts == 0).sum()} in none" in note


def test_an_audit_is_ranked_by_what_it_trained(tmp_path):
    audit = audited(reference_models=4, folds=2, short_references=2, stop=0.2, work=tmp_path, seed=1)
    assert audit.ranked_by == "exposure_score" and {"exposure", "attack_rate", "fold_loss"} <= set(audit.records)
    for source, models in (("folds", 2), ("few references", 4), ("short references", 2)):
        stamp = entry(audit, source).stamp
        assert stamp["models"] == models and stamp["seconds"] > 0 and f"{source.replace(' ', '_')}_seconds" in audit.timings
    lines = entry(audit, "exposure").stamp["lines"]
    assert lines["folds"]["records"] == T and lines["few references"]["slope"] > 0
    again = ns.load(audit.save(tmp_path / "audit"))
    assert again.evidence == audit.evidence and again.findings == audit.findings
    alone = audited(folds=2, work=tmp_path, seed=1)
    assert "order" in alone.not_applicable["exposure"] and "exposure_score" in alone.records


def test_the_same_audit_comes_from_a_folder_of_any_number_of_models(tmp_path):
    train_references(tmp_path / "set", fit, TRAIN, TEST, model=MODEL, models=6, workers=1, progress=False, seed=9)
    audit = ns.audit(MODEL, TRAIN, TEST, reference_models=tmp_path / "set", progress=False)
    stamp = entry(audit, "few references").stamp
    assert stamp["models"] == 6 and stamp["seed"] == 9 and {"exposure", "attack_rate"} <= set(audit.records)
    trained = audited(reference_models=6, work=tmp_path / "work", seed=9)
    np.testing.assert_array_equal(trained.records["exposure"], audit.records["exposure"])


def test_a_set_is_joined_by_id_and_not_by_row(tmp_path):
    names = np.array([f"person-{row}" for row in range(N)])
    train_references(tmp_path / "set", fit, TRAIN, TEST, model=MODEL, ids=names, models=4, workers=1, progress=False)
    order = np.random.default_rng(4).permutation(N)
    moved = X[:N][order], Y[:N][order]
    plain, turned = (
        ns.audit(MODEL, data, TEST, ids=ids, reference_models=str(tmp_path / "set"), progress=False)
        for data, ids in ((TRAIN, names), (moved, names[order]))
    )
    ours = turned.records.set_index("id").loc[plain.records["id"]]
    # The same numbers summed in another order of records.
    np.testing.assert_allclose(ours["exposure"], plain.records["exposure"], rtol=1e-4, atol=1e-6)


def test_a_set_of_the_training_records_alone_gives_the_order(tmp_path):
    train_references(tmp_path / "set", fit, TRAIN, model=MODEL, pool="train", models=4, workers=1, progress=False)
    audit = ns.audit(MODEL, TRAIN, TEST, reference_models=tmp_path / "set", progress=False)
    assert "exposure_score" in audit.records and "exposure" not in audit.records
    assert any("say nothing about this audit's test records" in note for note in audit.notes)


def test_without_test_records_models_are_trained_on_the_training_records(tmp_path):
    empty = (X[:0], Y[:0])
    (few,) = known(MODEL, TRAIN, empty, reference_models=2, train_fn=fit, work=tmp_path)
    np.testing.assert_array_equal(few.source.membership, plan(N, models=2, seed=0).membership)
    assert few.source.test_margins is None


def test_what_a_saved_audit_says_is_enough_to_join_a_set(tmp_path):
    """`reference score` has no running audit: its table, losses and digest take the place."""
    references = train_references(tmp_path / "set", fit, TRAIN, TEST, model=MODEL, models=4, workers=1, progress=False)
    audit = ns.load(ns.audit(MODEL, TRAIN, TEST, progress=False).save(tmp_path / "audit"))
    held = Audited(held_by(audit.records, losses=True), audit.nonmember_losses, audit.provenance["hashes"]["weights"], audit.task)
    found = known_references(references, held, Words("reference models", "audit", "reference models"))
    np.testing.assert_array_equal(found.source.margins, references.statistic[:, :N])
    np.testing.assert_array_equal(np.isnan(found.source.test_margins), references.membership[:, N:])


def test_sets_of_another_model_or_other_records_are_refused(tmp_path):
    train_references(tmp_path / "set", fit, TRAIN, TEST, model=MODEL, models=4, workers=1, progress=False)
    other = fit(np.arange(N)[::2], 0)
    with pytest.raises(
        InputError, match="audit: reference_models must hold models trained for the audited model; got a set for a model of"
    ):
        ns.audit(other, TRAIN, TEST, reference_models=tmp_path / "set", progress=False)
    train_references(tmp_path / "bare", fit, TRAIN, TEST, models=4, workers=1, progress=False)
    with pytest.raises(
        InputError, match=r"audit: reference_models must hold models for the audited records, by id; theirs are 340; got 170"
    ):
        ns.audit(MODEL, (X[:N:2], Y[:N:2]), TEST, reference_models=tmp_path / "bare", progress=False)
    turned = X[:N][::-1], Y[:N][::-1]
    with pytest.raises(InputError, match="the target of reference_models must have the targets of the audited model; got another target"):
        ns.audit(MODEL, turned, TEST, reference_models=tmp_path / "bare", progress=False)
    with pytest.raises(InputError, match="the test records of reference_models must have the losses of the audited model record by record"):
        ns.audit(MODEL, TRAIN, (X[N:][::-1], Y[N:][::-1]), reference_models=tmp_path / "set", progress=False)
    with pytest.raises(InputError, match=r"folder must hold the same experiment; got other values .*hashes.weights"):
        audited(reference_models=4, work=tmp_path / "work")
        ns.audit(other, TRAIN, TEST, reference_models=4, train_fn=fit, training_options=HERE, work=tmp_path / "work", progress=False)
    with pytest.raises(
        InputError, match=r"^audit: reference_models must be a number of models, or the folder of such a set; got '.*nowhere'"
    ):
        ns.audit(MODEL, TRAIN, TEST, reference_models=tmp_path / "nowhere", progress=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"^audit: reference_models must hold reference models \(plan.json\); got '.*empty'"):
        ns.audit(MODEL, TRAIN, TEST, reference_models=tmp_path / "empty", progress=False)
    with pytest.raises(InputError, match=rf"^audit: folds must be at most the {N} training records, each in one fold; got 4000"):
        ns.audit(MODEL, TRAIN, TEST, folds=4000, train_fn=fit, training_options=HERE, progress=False)


def test_models_that_do_not_learn_from_their_rows_are_refused(tmp_path):
    stubborn = fit(np.arange(0, N, 2), 0)
    for train_fn, got in (
        (lambda indices, seed: MODEL, "got the audited model again as model 0"),
        (lambda indices, seed: stubborn, "got model 0 again as model 1"),
    ):
        for asked in ({"reference_models": 2}, {"folds": 2}):
            with pytest.raises(
                InputError, match=f"audit: train_fn must train another model on other rows; {got}: the same answers on all 560"
            ):
                known(train_fn=train_fn, **asked)


def test_models_that_are_safe_where_the_audited_one_is_not_are_told(tmp_path):
    """All rows with another seed each: the models differ, and none knows its own records better."""
    rng = np.random.default_rng(1)
    wide, labels = rng.normal(size=(400, 150)), rng.integers(0, 2, 400)
    train, test = (wide[:200], labels[:200]), (wide[200:], labels[200:])

    def honest(indices, seed):
        return LogisticRegression(C=0.1, tol=1e-8, max_iter=2000).fit(wide[indices], labels[indices])

    def heedless(indices, seed):
        jitter = np.random.default_rng(seed).normal(size=(200, 150))
        return LogisticRegression(C=0.1, tol=1e-8, max_iter=2000).fit(wide[:200] + 0.1 * jitter, labels[:200])

    model = honest(np.arange(200), 0)
    for train_fn, expected in ((honest, 0), (heedless, 1)):
        for asked in ({"folds": 2}, {"reference_models": 4}):
            (found,) = known(model, train, test, train_fn=train_fn, work=tmp_path / train_fn.__name__, **asked)
            told = found.evidence.stamp["own_records"]
            assert told["unmoved"] is bool(expected) and told["audited_auc"] > 0.7 and (told["auc"] > 0.6) is not bool(expected)


def test_a_folder_of_its_own_is_gone_afterwards_and_kept_after_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (found,) = known(reference_models=2, train_fn=fit)
    assert not list(tmp_path.iterdir()) and any("pass work= to keep them" in note for note in found.evidence.notes)
    assert np.isfinite(found.source.margins).all()

    lucky = {int(plan(N + T, models=2, seed=0).seeds[0])}

    def failing(indices, seed):
        if seed not in lucky:
            raise ValueError("no such luck")
        return fit(indices, seed)

    with pytest.raises(InputError, match=r"1 of 2 that failed .*no such luck.* Pass work='.*' to go on there") as caught:
        known(reference_models=2, train_fn=failing)
    (kept,) = tmp_path.iterdir()
    assert f"work='{kept}'" in str(caught.value) and (kept / "references-2" / "failures" / "00001.txt").is_file()
    lucky |= set(plan(N + T, models=2, seed=0).seeds.tolist())
    (again,) = known(reference_models=2, train_fn=failing, work=kept)
    np.testing.assert_array_equal(again.source.margins, found.source.margins)

    def interrupted(indices, seed):
        raise KeyboardInterrupt

    before = set(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        known(reference_models=2, train_fn=interrupted)
    assert set(tmp_path.iterdir()) == before


def test_what_is_trained_already_is_not_trained_again(tmp_path):
    calls = []

    def counted(indices, seed):
        calls.append(seed)
        return fit(indices, seed)

    first = known(folds=3, reference_models=2, train_fn=counted, work=tmp_path)
    assert len(calls) == 5
    (tmp_path / "folds-3" / "models" / "00001.safetensors").unlink()
    second = known(folds=3, reference_models=2, train_fn=counted, work=tmp_path)
    assert len(calls) == 6
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.source.margins, other.source.margins)


def short_only(indices, seed, stop):
    return fit(indices, seed, stop)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"folds": 3}, "audit: train_fn must be given with folds; got none. Pass train_fn=f where"),
        ({"folds": 3, "reference_models": 2}, "train_fn must be given with folds and reference_models; got none"),
        ({"folds": 3, "train_fn": 3}, "train_fn must be given with folds; got int"),
        ({"folds": 1, "train_fn": fit}, "audit: folds must be a whole number ≥ 2; got 1"),
        ({"reference_models": 0, "train_fn": fit}, "audit: reference_models must be a whole number ≥ 1; got 0"),
        ({"reference_models": 2.5, "train_fn": fit}, "audit: reference_models must be a whole number ≥ 1; got 2.5"),
        ({"short_references": 0, "train_fn": fit}, "audit: short_references must be a whole number ≥ 1; got 0"),
        ({"short_references": 2, "train_fn": fit}, "audit: stop must be given unless loss_traces hold losses of unseen records"),
        ({"short_references": 2, "train_fn": fit, "stop": 3}, "audit: stop must be a share of the training, above 0 and below 1"),
        ({"short_references": 2, "train_fn": fit, "stop": 1.0}, "audit: stop must be a number > 0 and < 1; got 1"),
        ({"short_references": 2, "train_fn": RECIPE, "stop": 11}, "audit: stop must be one of the 10 epochs of the training"),
        ({"short_references": 2, "train_fn": fit_values, "stop": 0.5}, "audit: train_fn must take a third argument 'stop' for short_ref"),
        ({"short_references": 2, "train_fn": fit_values, "stop": 0.5}, r"after which it ends; got a function of \(.*\)\. Or pass a Recipe"),
        ({"stop": 0.5, "folds": 2, "train_fn": fit}, "audit: stop must come with short_references; got 0.5"),
        ({"folds": 2, "train_fn": fit, "work": 3}, "audit: work must be the path of a folder; got 3"),
        ({"folds": 2, "train_fn": fit, "work": __file__}, "audit: work must be a folder; got the file"),
        ({"training_options": {"workers": 1}}, "audit: training_options must come with folds, reference_models or short_references"),
        ({"folds": 2, "train_fn": fit, "training_options": {"models": 3}}, r"name options of train_references \(workers, threads"),
        ({"folds": 2, "train_fn": fit, "training_options": 3}, "audit: training_options must be a dictionary of options; got int"),
        ({"folds": 2, "train_fn": fit, "layer": "1"}, "audit: layer must be 'auto' with folds"),
    ],
)
def test_wrong_arguments_get_one_sentence_before_any_work(options, match):
    with pytest.raises(InputError, match=match) as caught:
        ns.audit(MODEL, TRAIN, TEST, progress=False, **options)
    assert "\n" not in str(caught.value)
