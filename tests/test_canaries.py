"""Canaries: forms, insertion, and exposure against brute force and simulation."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import noshadow as ns
from extras import extra
from language_base_models import t5
from noshadow.canaries import scoring
from noshadow.canaries.ranks import SkewNormal, chance_bits, exact_standing, extrapolated_standings, fitted, sampled_standing
from noshadow.checks import InputError
from tiny_language_models import token_losses_by_hand

DIGITS = range(10, 20)
FORM = [1, 2, 3, DIGITS, DIGITS]


def words(text):
    """A tokenizer of characters, within the tiny model's vocabulary."""
    return [ord(letter) % 60 for letter in text]


@pytest.fixture
def model():
    transformers = extra("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "n_positions": 24, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)).eval()


def loss_by_hand(model, tokens):
    """−log p of a whole sequence, without a batch."""
    return float(token_losses_by_hand(model, tokens).sum())


def test_texts_are_filled_slot_by_slot():
    form = "code of {name}: {digits:3}{{{letters}}}"
    found = ns.canaries.make(form, 5, tokenizer=words, choices={"name": ["Ana", "Bo"]}, context=["name"], seed=3)
    assert found.space == 1000 * 26 and len(found) == 5
    for text, tokens in zip(found.texts, found.sequences, strict=True):
        name, rest = text.removeprefix("code of ").split(": ")
        assert name in ("Ana", "Bo")
        assert rest[:3].isdigit() and rest[3] == "{" and rest[4].isalpha() and rest[5] == "}"
        assert tokens.tolist() == words(text)
    assert len(set(found.texts)) == 5
    again = ns.canaries.make(form, 5, tokenizer=words, choices={"name": ["Ana", "Bo"]}, context=["name"], seed=3)
    assert again.texts == found.texts
    assert ns.canaries.make(form, 5, tokenizer=words, choices={"name": ["Ana", "Bo"]}, seed=3).space == 52_000


def test_draws_are_uniform():
    found = ns.canaries.make([1, 2, range(4), range(6)], 24, seed=1)
    assert sorted(map(tuple, (sequence[2:] for sequence in map(np.ndarray.tolist, found.sequences)))) == list(
        itertools.product(range(4), range(6))
    )


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("{digits:3}", {"tokenizer": words}, "begin with fixed text"),
        ("no slot", {"tokenizer": words}, "hold a secret slot"),
        ("the {colour}", {"tokenizer": words}, "have slots among"),
        ("the {digits:0}", {"tokenizer": words}, "a length from 1"),
        ("the {digits", {"tokenizer": words}, "be a text with slots"),
        ("the {digits:3}", {}, "tokenizer must be the model's"),
        ("the {name}", {"tokenizer": words, "choices": {"name": ["a", "a"]}}, "two different texts"),
        ("the {digits}", {"tokenizer": words, "choices": {"name": ["a", "b"]}}, "choices must name slots"),
        ("the {digits}", {"tokenizer": words, "context": ["name"]}, "context must name slots"),
        ([1, 2, 3], {}, "hold a secret slot"),
        ([DIGITS, 1], {}, "begin with a fixed token"),
        ([1, [3]], {}, "two different token ids"),
        ([1, DIGITS], {"count": 11}, "count must be at most 10"),
        (7, {}, "be a text with slots"),
    ],
)
def test_forms_that_cannot_be_filled(form, options, message):
    with pytest.raises(InputError, match=f"make: .*{message}"):
        ns.canaries.make(form, **options)


def test_insertion_keeps_records_in_order():
    canaries = ns.canaries.make(FORM, 3)
    records = [[i, i + 1, i + 2] for i in range(20)]
    found = ns.canaries.insert(records, canaries, copies=[0, 1, 4], seed=2)
    assert [row for row, canary in zip(found.data, found.canary, strict=True) if canary < 0] == records
    for number, copies in enumerate([0, 1, 4]):
        rows = np.flatnonzero(found.canary == number)
        assert len(rows) == copies and all(found.data[row] == canaries.sequences[number].tolist() for row in rows)
    assert not (np.diff(np.flatnonzero(found.canary >= 0)) == 1).all()


def test_insertion_takes_the_form_of_the_records():
    canaries = ns.canaries.make("the code is {digits:4}", 2, tokenizer=words)
    texts = ns.canaries.insert(["one", "two"], canaries)
    assert sorted(texts.data) == sorted(["one", "two", *canaries.texts])
    dicts = ns.canaries.insert([{"input_ids": [1, 2], "attention_mask": [1, 1], "labels": [1, 2]}], canaries)
    added = dicts.data[int(np.flatnonzero(dicts.canary == 0)[0])]
    assert added == {
        "input_ids": canaries.sequences[0].tolist(),
        "attention_mask": [1] * len(canaries.sequences[0]),
        "labels": canaries.sequences[0].tolist(),
    }
    array = ns.canaries.insert(torch.ones(3, 4, dtype=torch.long), canaries)
    assert len(array.data) == 5
    with pytest.raises(InputError, match="be texts among texts"):
        ns.canaries.insert(["one"], ns.canaries.make(FORM, 1))
    with pytest.raises(InputError, match="one for each of 2"):
        ns.canaries.insert(["one"], canaries, copies=[1])


def test_canaries_among_tensors_and_arrays_are_tensors_and_arrays():
    """A list in between fails where the records are stacked."""
    canaries = ns.canaries.make(FORM, 2)
    kept = canaries.sequences[0].tolist()
    for given in (torch.ones(3, 4, dtype=torch.int32), np.ones((3, 4), dtype=np.uint16)):
        found = ns.canaries.insert(given, canaries)
        first = found.data[int(np.flatnonzero(found.canary == 0)[0])]
        assert {type(row) for row in found.data} == {type(given)} and first.dtype == given.dtype and first.tolist() == kept
    dicts = ns.canaries.insert([{"input_ids": torch.ones(4, dtype=torch.long), "labels": [1] * 4}], canaries)
    row = dicts.data[int(np.flatnonzero(dicts.canary == 0)[0])]
    assert isinstance(row["input_ids"], torch.Tensor) and row["input_ids"].tolist() == row["labels"] == kept


def test_a_model_that_answers_texts_is_named():
    canaries = ns.canaries.make(FORM, 1)
    with pytest.raises(InputError, match="model must be a causal language model of transformers; got the sequence-to-sequence T5For"):
        ns.canaries.score(t5(), canaries)


def test_exact_ranks_against_brute_force(model):
    canaries = ns.canaries.make(FORM, 3, seed=5)
    found = ns.canaries.score(model, canaries, progress=False)
    assert (found.method, found.space) == ("exact", 100)
    own = [tuple(sequence.tolist()) for sequence in canaries.sequences]
    everything = {(1, 2, 3, a, b): loss_by_hand(model, [1, 2, 3, a, b]) for a in DIGITS for b in DIGITS}
    for row, secret in enumerate(own):
        # All others but the canaries, and the secret itself.
        better = sum(loss < everything[secret] for filling, loss in everything.items() if filling not in own)
        assert found.table["rank"][row] == better + 1
        assert found.table["exposure_bits"][row] == pytest.approx(math.log2(98) - math.log2(better + 1))
        # float32 logits of order one
        assert found.table["loss"][row] == pytest.approx(everything[secret], abs=1e-5)
    assert (found.table["exposure_bits_low"] == found.table["exposure_bits_high"]).all()


def test_blocks_change_nothing(model, monkeypatch):
    canaries = ns.canaries.make(FORM, 3, seed=5)
    whole = ns.canaries.score(model, canaries, progress=False)
    monkeypatch.setattr(scoring, "AT_ONCE", 7)
    assert ns.canaries.score(model, canaries, progress=False).table["rank"].equals(whole.table["rank"])


def test_context_is_held(model):
    form = "{{of {name} is {digits}"
    canaries = ns.canaries.make(form, 4, tokenizer=words, choices={"name": ["ab", "cd", "ef"]}, context=["name"], seed=1)
    found = ns.canaries.score(model, canaries, progress=False)
    for row, text in enumerate(canaries.texts):
        start, own = text[:-1], loss_by_hand(model, words(text))
        texts = {f"{start}{n}" for n in range(10)} - set(canaries.texts)
        better = sum(loss_by_hand(model, words(other)) < own for other in texts)
        assert found.table["rank"][row] == better + 1


def test_a_model_that_learned_a_secret_gives_it_away(model):
    canaries = ns.canaries.make(FORM, 2, seed=0)
    others = torch.randint(20, 60, (30, 5), generator=torch.Generator().manual_seed(0)).tolist()
    inserted = ns.canaries.insert(others, canaries, copies=[8, 0])
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(15):
        batch = torch.tensor(inserted.data)
        loss = model(input_ids=batch, labels=batch).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    found = ns.canaries.score(model.eval(), canaries, progress=False)
    assert found.table["exposure_bits"][0] == pytest.approx(math.log2(99))
    assert found.table["exposure_bits"][1] < 5
    near = ns.canaries.score(model, canaries, method="sampled", draws=500, progress=False)
    assert (near.table["exposure_bits_low"] <= found.table["exposure_bits"] + 1e-9).all()
    assert (near.table["exposure_bits_high"] >= found.table["exposure_bits"] - 1e-9).all()
    assert any("better than all 500 draws" in note for note in near.notes)


def test_secrets_nobody_saw_have_the_exposure_of_chance():
    # A secret of a model that has not seen it has a uniform rank.
    rng = np.random.default_rng(0)
    for space in (10, 1000):
        bits = [exact_standing(int(k), space).bits for k in rng.integers(0, space, 20_000)]
        error = np.std(bits) / math.sqrt(len(bits))
        assert np.mean(bits) == pytest.approx(chance_bits(space), abs=4 * error)
    assert chance_bits(10**6) == pytest.approx(1 / math.log(2), abs=1e-4)
    assert chance_bits(10**18) == pytest.approx(1 / math.log(2))


def test_an_untrained_model_has_the_exposure_of_chance(model):
    found = ns.canaries.score(model, ns.canaries.make([1, 2, range(20, 60), range(20, 60)], 150, seed=2), progress=False)
    bits = found.table["exposure_bits"]
    # Exponential with mean 1.44 bits: the mean of 150 has a standard error of 0.12.
    assert bits.mean() == pytest.approx(found.chance_bits, abs=4 * 0.12)
    assert 1e-3 < found.p_value < 1 - 1e-3


def test_the_p_value_is_no_smaller_than_it_says():
    rng = np.random.default_rng(1)
    values = []
    for _ in range(2000):
        bits = sum(exact_standing(int(k), 200).bits for k in rng.integers(0, 200, 5))
        values.append(stats.gamma.sf(math.log(2) * bits, 5))
    for level in (0.01, 0.05, 0.2):
        assert np.mean(np.array(values) <= level) <= level + 3 * math.sqrt(level / 2000)


@pytest.mark.parametrize("rank", [1, 3, 40, 900])
def test_sampled_intervals_cover(rank):
    rng, space, draws, covered = np.random.default_rng(rank), 1000, 300, 0
    truth = math.log2(space) - math.log2(rank)
    runs = 2000
    for k in rng.binomial(draws, (rank - 1) / (space - 1), runs):
        found = sampled_standing(int(k), draws, space, 0.95)
        low, high = found.bits_interval
        assert low - 1e-9 <= found.bits <= high + 1e-9
        covered += low - 1e-9 <= truth <= high + 1e-9
    # Clopper–Pearson covers at least as often as it says; four standard errors of the simulation.
    assert covered / runs >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs)


def test_tails_of_the_skew_normal():
    law = SkewNormal(1.0, 2.0, -3.0)
    frozen = stats.skewnorm(-3.0, 1.0, 2.0)
    for value in (-6.0, -2.0, 0.0, 1.0, 4.0):
        assert law.log_below(value) == pytest.approx(float(np.log(frozen.cdf(value))), abs=1e-4)
    # Far out, against the normal tail that α → −∞ doubles.
    normal = SkewNormal(0.0, 1.0, 0.0)
    for value in (-10.0, -30.0):
        assert normal.log_below(value) == pytest.approx(float(stats.norm.logcdf(value)), abs=1e-3)


def test_extrapolated_exposures_on_skew_normal_values():
    law = stats.skewnorm(2.0, 10.0, 3.0)
    values, runs, covered = np.array([4.5, 8.0]), 20, np.zeros(2)
    truth = -np.log2(law.cdf(values))
    for run in range(runs):
        others = law.rvs(400, random_state=run)
        found, fit = extrapolated_standings(values, others, 10**9, 0.95, 50, run)
        covered += [one.bits_interval[0] <= t <= one.bits_interval[1] for one, t in zip(found, truth, strict=True)]
        assert fit > 1e-4
    # Bootstrap intervals of a fit: near their level, not exactly at it.
    assert (covered / runs >= 0.8).all()
    law_found = fitted(law.rvs(20_000, random_state=0))
    assert law_found.location == pytest.approx(10.0, abs=0.3) and law_found.scale == pytest.approx(3.0, abs=0.3)


def test_extrapolated_scores_and_their_doubt(model):
    canaries = ns.canaries.make([1, 2, *([range(20, 60)] * 3)], 3, seed=2)
    found = ns.canaries.score(model, canaries, method="extrapolated", draws=400, resamples=20, progress=False)
    exact = ns.canaries.score(model, canaries, method="sampled", draws=3000, progress=False)
    assert found.p_value is None and found.fit_p_value is not None
    assert np.abs(found.table["exposure_bits"] - exact.table["exposure_bits"]).max() < 1.0


def test_arguments_of_score(model):
    canaries = ns.canaries.make(FORM, 1)
    with pytest.raises(InputError, match="score: method must be"):
        ns.canaries.score(model, canaries, method="quick")
    with pytest.raises(InputError, match="score: draws must be"):
        ns.canaries.score(model, canaries, draws=3)
    with pytest.raises(InputError, match="score: level must be"):
        ns.canaries.score(model, canaries, level=1.0)
    with pytest.raises(InputError, match="score: method must be 'sampled'"):
        ns.canaries.score(model, ns.canaries.make([1, 2, *([DIGITS] * 12)], 1), method="exact")
    with pytest.raises(InputError, match=r"score: .*language model"):
        ns.canaries.score(torch.nn.Linear(2, 2), canaries)


def test_records_chosen_by_rank():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    audit = ns.audit_signals(ns.Signals(x, x[:, :2], y), ns.Signals(x[:20] + 1, x[:20, :2], y[:20]), damping=1.0)
    rows = ns.canaries.choose(audit, 7)
    assert audit.records["rank"].to_numpy()[rows].tolist() == sorted(audit.records["rank"])[:7]
    some = ns.canaries.choose(audit, 7, by="random", seed=1)
    assert len(set(some.tolist())) == 7 and set(some.tolist()) != set(rows.tolist())
    # A rank by another column is no exposure, and nobody took it for one in silence.
    with pytest.raises(
        InputError,
        match=rf"rank its records by exposure; got one that ranks by {audit.ranked_by}\. .*trained on other records, or take by=",
    ):
        ns.canaries.choose(audit, 7, by="exposure")
    by_exposure = replace(audit, ranked_by="exposure_score")
    assert ns.canaries.choose(by_exposure, 7, by="exposure").tolist() == rows.tolist()
    with pytest.raises(InputError, match="count must be at most 60"):
        ns.canaries.choose(audit, 61)
    changed = ns.canaries.mislabel(y, rows, classes=5)
    assert (changed[rows] != y[rows]).all() and (np.delete(changed, rows) == np.delete(y, rows)).all()


def test_wrong_labels_are_uniform():
    labels = np.zeros(9000, dtype=int)
    counts = np.bincount(ns.canaries.mislabel(labels, np.arange(9000), classes=4), minlength=4)
    assert counts[0] == 0 and stats.chisquare(counts[1:]).pvalue > 1e-3
    for wrong in ([0.5, 1.0], [-1, 0]):
        with pytest.raises(InputError, match="labels must be"):
            ns.canaries.mislabel(wrong, [0])
    with pytest.raises(InputError, match="rows must be"):
        ns.canaries.mislabel([0, 1], [0, 0])
    with pytest.raises(InputError, match="classes must be"):
        ns.canaries.mislabel([0, 3], [0], classes=3)


@pytest.mark.parametrize("method", ["auto", "exact", "sampled", "extrapolated"])
def test_canaries_need_other_secrets_beside_them(model, method):
    """Draws of fillings that are no canary would never end where there is none."""
    everything = ns.canaries.make([1, 2, range(4)], 4)
    with pytest.raises(InputError, match=r"score: canaries must leave possible secrets to compare them with; got all 4 as canaries\."):
        ns.canaries.score(model, everything, method=method, progress=False)
    most = ns.canaries.score(model, ns.canaries.make([1, 2, range(4)], 3), method=method, draws=50, progress=False)
    assert most.compared == (50 if method in ("sampled", "extrapolated") else 1)
