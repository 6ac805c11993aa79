"""Language models with reference models, folds, checkpoints and out-of-fold losses: each against plain loops over the models themselves."""

import copy

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import noshadow as ns
from extras import extra
from language_base_models import chains, fine_tuned, t5, trained, with_lora
from language_fixtures import TRAIN, base_fixture, entry, model_fixture  # noqa: F401 - fixtures by their names
from noshadow import InputError
from noshadow._audit import with_references
from noshadow._exposure import Source, weighed
from noshadow.attacks import attack_success
from noshadow.cli import app
from noshadow.metrics import auc
from noshadow.reference import AttackOptions, ground_truth, load_references, train_references
from noshadow.views import sequence_losses

TEST = chains(60, seed=3)
POOL = [*TRAIN, *TEST]
HERE = {"workers": 1}
CALLS = []  # seeds of the models that were trained
# Losses of one model in other batches: attention sums padded rows in another order.
CLOSE = {"rtol": 0, "atol": 2e-5}


@pytest.fixture(scope="module")
def train_fn(base):
    def again(indices, seed):
        CALLS.append(seed)
        return fine_tuned(base, [POOL[row] for row in indices], epochs=6)

    return again


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def audited(model, base, train_fn, work):
    how = {"reference_models": 4, "train_fn": train_fn, "work": work, "training_options": HERE}
    return ns.audit(model, TRAIN, TEST, base=base, progress=False, **how)


@pytest.fixture(scope="module")
def references(audited, work):
    return load_references(work / "references-4")


def losses(model, texts):
    return sequence_losses(model, texts, progress=False).loss


def test_what_reference_models_say_is_minus_the_loss_of_each_sequence(audited, references, train_fn):
    assert references.task == "language-model" and references.correct is None and not references.has_outputs
    np.testing.assert_array_equal(references.targets, [len(text) - 1 for text in POOL])
    for number in (0, 3):
        again = train_fn(references.plan.members(number), int(references.plan.seeds[number]))
        np.testing.assert_allclose(references.loss[number], losses(again, POOL), **CLOSE)
    np.testing.assert_array_equal(references.statistic, -references.loss)
    np.testing.assert_allclose(references.target.loss[:60], audited.records["loss"], **CLOSE)


def test_the_exposure_is_the_mixed_models_answer_to_these_losses(audited, references):
    outside = np.where(references.membership[:, 60:], np.nan, references.statistic[:, 60:])
    few = Source("few references", margins=references.statistic[:, :60], membership=references.membership[:, :60], test_margins=outside)
    covariates = {"base_gain": audited.records["base_gain"].to_numpy()}
    expected = weighed(-audited.member_losses, -audited.nonmember_losses, [Source("base model", covariates=covariates), few])
    np.testing.assert_allclose(audited.records["exposure_score"], expected.score, rtol=1e-9)
    assert audited.ranked_by == "exposure_score"
    assert entry(audited, "exposure").stamp["trainings"] == {"base model": 0.0, "few references": pytest.approx(4.0)}
    assert "order of the records only" in audited.not_applicable["exposure"]


def test_exposure_and_rate_have_sizes_with_enough_sequences(base):
    train, test = chains(300, seed=12, length=8), chains(300, seed=13, length=8)
    pool = [*train, *test]
    rng = np.random.default_rng(0)
    hard = rng.normal(3, 0.5, 600)

    def losses_of(indices, seed):
        """What a model with a known exposure would say: members' losses fall by 0.4."""
        noise = np.random.default_rng(seed).normal(0, 0.1, 600)
        return np.maximum(hard + noise - 0.4 * np.isin(np.arange(600), indices), 0.01)

    model = fine_tuned(base, train, epochs=2)
    own = losses(model, pool)
    hard[:] = own + 0.4 * (np.arange(600) < 300)
    how = {"reference_models": 4, "train_fn": losses_of, "training_options": HERE}
    found = ns.audit(model, train, test, base=base, progress=False, **how).records
    # d′ = 0.4 / 0.1; four models' spread, pooled over 300 records, is known within a tenth.
    assert found["exposure"].median() == pytest.approx(4.0, rel=0.2)
    assert (found["attack_rate_low"] <= found["attack_rate"]).all() and found["attack_rate"].median() > 0.5


def test_folds_say_what_the_model_without_the_fold_says(model, base, train_fn, tmp_path):
    found = ns.audit(model, TRAIN, TEST, base=base, folds=3, train_fn=train_fn, work=tmp_path, training_options=HERE, progress=False)
    references = load_references(tmp_path / "folds-3")
    assert not references.membership[:, 60:].any()
    expected = np.empty(60)
    for number in range(3):
        without = ~references.membership[number, :60]
        again = train_fn(references.plan.members(number), 0)
        expected[without] = losses(again, TRAIN)[without]
    np.testing.assert_allclose(found.records["fold_loss"], expected, **CLOSE)
    assert found.ranked_by == "exposure_score"


def test_the_audit_goes_on_where_it_stopped(audited, model, base, train_fn, work):
    trained_so_far = len(CALLS)
    how = {"reference_models": 4, "train_fn": train_fn, "work": work, "training_options": HERE}
    again = ns.audit(model, TRAIN, TEST, base=base, progress=False, **how)
    assert len(CALLS) == trained_so_far
    np.testing.assert_array_equal(again.records["exposure_score"], audited.records["exposure_score"])


def test_reference_models_measure_the_target_and_are_weighed_into_a_saved_audit(model, base, references, tmp_path):
    plain = ns.audit(model, TRAIN, TEST, base=base, progress=False)
    found = with_references(plain, references, progress=False)
    truth = attack_success(references.statistic, references.membership, attack="lira", variance="global")
    np.testing.assert_allclose(found.records["lira_d"], truth.d_prime[:60], rtol=1e-9)
    assert {attack.attack for attack in found.ground_truth.attacks} == {"LiRA", "RMIA", "LOSS"}
    for name in ("shokri_success", "memorization"):
        assert "not applicable" in found.ground_truth.not_applicable[name]
    assert found.ranked_by == "exposure_score" and "few references" not in entry(found, "exposure").stamp["trainings"]
    plain.save(tmp_path / "audit")
    ran = CliRunner().invoke(app, ["reference", "score", str(references.folder), "--audit", str(tmp_path / "audit")])
    assert ran.exit_code == 0, ran.output
    assert "lira_d" in ns.load(tmp_path / "audit").records


def rmia_by_hand(own, own_member, others, members, gamma):
    """Pairwise RMIA with p = the geometric mean of the tokens' probabilities, record by record."""
    p, q = np.exp(-own), np.exp(-others)
    ratios = np.array([p[i] / (0.5 * (q[members[:, i], i].mean() + q[~members[:, i], i].mean())) for i in range(len(p))])
    return np.array([np.mean([ratio / other > gamma for other in ratios[~own_member]]) for ratio in ratios])


@pytest.mark.parametrize(("asked", "gamma"), [({}, 1.0), ({"gamma": 1.05}, 1.05)])
def test_rmia_of_sequences_compares_mean_likelihoods(audited, references, asked, gamma):
    found, table = ground_truth(references, options=AttackOptions(**asked), progress=False)
    loss, members = np.array(references.loss), np.array(references.membership)
    row = next(one for one in found.attacks if one.attack == "RMIA" and one.attacked == "target")
    own = rmia_by_hand(references.target.loss, references.member, loss, members, gamma)
    assert row.auc == pytest.approx(auc(own[:60], own[60:]), abs=1e-12)
    assert 0 < own.mean() < 1 and len(np.unique(own)) > 10  # not all on one side of the bar
    scores = []
    for number in range(4):  # each model attacked with the others
        rest = np.arange(4) != number
        scores.append(rmia_by_hand(loss[number], members[number], loss[rest], members[rest], gamma))
    mean = np.mean([auc(score[member], score[~member]) for score, member in zip(scores, members, strict=True)])
    row = next(one for one in found.attacks if one.attack == "RMIA" and one.attacked == "reference models")
    assert row.auc == pytest.approx(mean, abs=1e-12) and "rmia_success" in table
    assert found.variants["RMIA"]["gamma"] == gamma
    assert "exp(−loss)" in found.variants["RMIA"]["probability"]


def test_adapters_and_answers_have_reference_models_too(base, tmp_path):
    lora = trained(with_lora(base), TRAIN, epochs=3, rate=1e-2)

    def adapters(indices, seed):
        return trained(with_lora(copy.deepcopy(base)), [POOL[row] for row in indices], epochs=3, rate=1e-2)

    found = ns.audit(lora, TRAIN, TEST, reference_models=2, train_fn=adapters, training_options=HERE, progress=False)
    assert found.ranked_by == "exposure_score" and "base_gain" in found.records
    answerer = t5()
    pairs = [(text[:5], text[5:9]) for text in TRAIN[:24]], [(text[:5], text[5:9]) for text in TEST[:24]]
    # Two T5 of other seeds stand for other trainings.
    made = train_references(
        tmp_path / "t5", lambda indices, seed: t5(seed=1 + seed % 1000), *pairs, model=answerer, models=1, workers=1, progress=False
    )
    np.testing.assert_allclose(made.target.loss, np.concatenate([losses(answerer, part) for part in pairs]), **CLOSE)


def test_checkpoints_and_out_of_fold_losses_are_columns_and_weighed(model, base, train_fn):
    early = fine_tuned(base, TRAIN, epochs=2)
    others = train_fn(np.arange(30, 120), 0)
    given = losses(others, TRAIN)
    found = ns.audit(
        model, TRAIN, TEST, base=base, checkpoint=[early, fine_tuned(base, TRAIN, epochs=1)], out_of_fold=given, progress=False
    )
    best = min((early, fine_tuned(base, TRAIN, epochs=1)), key=lambda one: losses(one, TEST).mean())
    np.testing.assert_allclose(found.records["checkpoint_loss"], losses(best, TRAIN), **CLOSE)
    np.testing.assert_allclose(found.records["out_of_fold_loss"], given, rtol=1e-12)
    assert found.ranked_by == "exposure_score" and "order of the records only" in found.not_applicable["exposure"]
    alone = ns.audit(model, TRAIN, TEST, base=base, checkpoint=early, progress=False)
    assert alone.ranked_by == "influence" and "neither order nor size" in alone.not_applicable["exposure"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"out_of_fold": np.ones((60, 2))}, "one loss per training sequence"),
        ({"out_of_fold": -np.arange(60.0)}, "negative"),
        ({"out_of_fold": "own"}, "the audited model's own"),
        ({"out_of_fold": "reordered"}, "in another order"),
        ({"checkpoint": "own"}, "one that says the same of every sequence"),
        ({"checkpoint": []}, "an empty list"),
        ({"short_references": 2, "stop": 0.5}, "reference_models= trains whole ones"),
        ({"reference_models": 2, "train_fn": lambda indices, seed: "a model"}, "language model of transformers, or the losses"),
        ({"reference_models": 2, "train_fn": lambda indices, seed: np.zeros(7)}, "(7,)"),
        ({"reference_models": 2, "train_fn": lambda indices, seed: np.full(120, np.nan)}, "not finite"),
    ],
)
def test_what_cannot_be_weighed_is_refused_in_one_sentence(given, words, model, base):
    own = losses(model, TRAIN)
    known = {"own": own, "reordered": own[::-1].copy()}
    options = dict(given)
    if isinstance(options.get("out_of_fold"), str):
        options["out_of_fold"] = known[options["out_of_fold"]]
    if options.get("checkpoint") == "own":
        options["checkpoint"] = copy.deepcopy(model)
    if "short_references" in options:
        options["train_fn"] = lambda indices, seed, stop: model
    if "train_fn" in options:
        options["training_options"] = HERE
    with pytest.raises(InputError) as caught:
        ns.audit(model, TRAIN, TEST, base=base, progress=False, **options)
    assert words in str(caught.value) and str(caught.value).startswith("audit: ")


def test_options_of_other_tasks_are_refused(model, tmp_path):
    for options, words in (({"task": "classification"}, "language-model"), ({"queries": (len,)}, "queries must be left out")):
        with pytest.raises(InputError, match=words):
            train_references(tmp_path / "no", lambda indices, seed: model, TRAIN, TEST, model=model, models=2, progress=False, **options)
    assert not (tmp_path / "no").exists()


def test_reference_train_on_the_command_line_audits_some_models(monkeypatch, tmp_path, base):
    extra("transformers")
    torch.save(base.state_dict(), tmp_path / "base.pt")
    (tmp_path / "lm_job.py").write_text(
        "import sys, torch, noshadow\n"
        f"sys.path.insert(0, {str(tmp_path.parents[0])!r})\n"
        "from language_base_models import *\n"
        "from transformers import GPT2Config, GPT2LMHeadModel\n"
        "TRAIN, TEST = chains(30, seed=2), chains(30, seed=3)\n"
        "POOL = TRAIN + TEST\n"
        "def base():\n"
        "    ends = {'bos_token_id': None, 'eos_token_id': None}\n"
        "    c = GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=32, n_layer=1, n_head=2, **ends)\n"
        "    model = GPT2LMHeadModel(c)\n"
        f"    model.load_state_dict(torch.load({str(tmp_path / 'base.pt')!r}))\n"
        "    return model\n"
        "def again(indices, seed):\n"
        "    return fine_tuned(base(), [POOL[row] for row in indices], epochs=3)\n"
        "def target():\n"
        "    return noshadow.Target(fine_tuned(base(), TRAIN, epochs=3), TRAIN, TEST, train_fn=again, base=base())\n"
    )
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["reference", "train", "lm_job:target", "--out", "set", "--models", "8", "--workers", "1", "--quiet"])
    assert ran.exit_code == 0, ran.output
    made = load_references("set")
    assert set(made.extra(0)) >= {"loss", "influence", "min_k"} and len(made.extra(0)["loss"]) == 30
    np.testing.assert_allclose(made.extra(1)["loss"], made.loss[1][made.membership[1]], **CLOSE)
    ran = CliRunner().invoke(app, ["audit", "lm_job:target", "--out", "audit", "--reference-models", "set", "--quiet"])
    assert ran.exit_code == 0, ran.output
    assert ns.load("audit").ranked_by == "exposure_score"
