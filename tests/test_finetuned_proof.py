"""The proof on fine-tunes sees no truth model, and finds what was put into models that are made up."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from extras import extra
from noshadow._known import DECLARED

MODELS, SEQUENCES = 24, 240


@pytest.fixture(scope="module")
def judge():
    for package in ("transformers", "tokenizers", "peft"):
        extra(package)
    return importlib.import_module("benchmarks.finetuned.judge")


@pytest.fixture(scope="module")
def made():
    """Fine-tunes of a known separation of each sequence, whose base has every level but for a little noise."""
    rng = np.random.default_rng(0)
    inside = np.zeros((MODELS, SEQUENCES), bool)
    for pair in range(MODELS // 2):
        inside[2 * pair, rng.permutation(SEQUENCES)[: SEQUENCES // 2]] = True
        inside[2 * pair + 1] = ~inside[2 * pair]
    level, moved = rng.normal(4, 0.5, SEQUENCES), np.exp(rng.normal(-1, 0.5, SEQUENCES))
    base = level + rng.normal(0.5, 0.05, SEQUENCES)
    models = []
    for row in inside:
        loss = level - moved * row + rng.normal(0, 0.1, SEQUENCES)
        gains = dict.fromkeys(("base_gain", "error_zone", "window_votes"), base - loss)
        models.append({"loss": loss, "base_loss": base} | gains | dict.fromkeys(("min_k", "min_k_plus", "zlib_ratio"), -loss))
    return models, inside, moved


def test_the_declared_order_is_that_of_the_texts_that_chose():
    """The answer of an audit is the first column that it has; reviews, which judge, have no say."""
    stored = Path(__file__).parents[1] / "benchmarks" / "results"
    found, own = (json.loads((stored / name).read_text(encoding="utf-8")) for name in ("finetuned.json", "own_gain.json"))
    chose = {name: case for name, case in found["cases"].items() if case["pool"] == found["how"]["chosen_on"]}
    others = [name for name in DECLARED if name != "own_gain"]
    rates = {name: np.mean([case["attacks"][name]["tpr_0.01"] for case in chose.values()]) for name in others}
    assert others == sorted(rates, key=rates.get, reverse=True)
    best = [own["cases"][name]["attacks"] for name in chose]
    assert len(best) == 5 and next(iter(DECLARED)) == "own_gain"
    means = {name: np.mean([row[name]["tpr_0.01"] for row in best]) for name in DECLARED}
    assert max(means, key=means.get) == "own_gain"


def test_the_page_says_which_rules_leave_the_base_out(judge, monkeypatch):
    """It called the rule that judged one of the base and two references."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "tools")
    tables, rules = (importlib.import_module(name) for name in ("finetuned_tables", "benchmarks.finetuned.rules"))
    columns = dict.fromkeys(("base_gain", "base_loss", "error_zone", "window_votes"), np.zeros(4))
    bare = tuple(name for name, rule in rules.RULES.items() if not rule(columns, np.array([True, True, False, False])))
    assert bare == tables.WITHOUT_BASE


def test_references_are_of_the_targets_block_and_never_its_complement(judge):
    for target in range(36):
        for count in judge.REFERENCES:
            rows = judge.references_of(target, count)
            assert len(set(rows)) == count and {row // judge.BLOCK for row in rows} == {target // judge.BLOCK}
            assert target // 2 not in {row // 2 for row in rows}
            pairs = {row // 2 for row in rows}
            assert len(pairs) == (count if count <= 2 else count // 2)


def test_the_truth_is_that_of_other_blocks(judge, made):
    models, inside, moved = made
    losses = np.array([columns["loss"] for columns in models])
    spoilt = losses.copy()
    spoilt[: judge.BLOCK] = 9.0
    whole, first, second = judge.truths(3, spoilt, inside)
    assert np.isfinite(whole).all() and len(first) == len(second) == SEQUENCES
    np.testing.assert_array_equal(whole, judge.truths(3, losses, inside)[0])
    # d′ of twelve models has a standard error of about d′/√24 and more.
    assert np.corrcoef(whole, moved / 0.1)[0, 1] > 0.8


def test_a_good_base_finds_what_was_put_in(judge, made):
    models, inside, _ = made
    found = judge.judged(models, inside)
    assert found["models"] == MODELS and set(found["attacks"]) >= {"loss", "base_gain", "lira_4"}
    assert found["attacks"]["base_gain"]["tpr_0.01"] > found["attacks"]["loss"]["tpr_0.01"] + 0.2
    assert found["records"]["exposure_gain_2"]["spearman"]["mean"] > found["records"]["exposure_2"]["spearman"]["mean"]
    assert 0.5 < found["second_lira"]["mean"] <= 1


def test_gains_with_and_without_a_sequence_are_told_apart(judge, made):
    models, inside, moved = made
    found = judge.gains(models, inside)
    # Twelve models a side of noise 0.1: a standard error of 0.04 per sequence and side.
    assert found["separation"] == pytest.approx(moved.mean(), abs=0.01) and found["separation_spread"] == pytest.approx(
        moved.std(), abs=0.02
    )
    assert found["spread_without"] == pytest.approx(np.hypot(0.05, 0.1 / np.sqrt(12)), abs=0.01)
    assert abs(found["spearman"]) < 0.3  # here the gain with it is the membership's own
