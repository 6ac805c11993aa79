"""Sentences of docs/lood.md that stored figures decide: each against figures made by hand."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def quotes(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("lood_quotes")


def agreement(auc, change):
    names = ("kl_0.1", "gp_auc_0.1", "distance_0.1", "influence", "tracin")
    return {
        "correlations": {
            truth: {name: {"spearman": {"value": value}} for name, value in zip(names, values, strict=True)}
            for truth, values in (("auc", auc), ("prediction_change", change))
        }
    }


def test_who_agrees_best_and_least_is_counted(quotes):
    networks = {
        "a": agreement((0.9, 0.8, 0.7, 0.1, 0.5), (0.5, 0.6, 0.9, 0.2, 0.4)),
        "b": agreement((0.9, 0.8, 0.7, 0.6, 0.5), (0.5, 0.6, 0.9, 0.2, 0.4)),
        "c": agreement((0.2, 0.3, 0.4, 0.1, 0.9), (0.5, 0.6, 0.3, 0.2, 0.9)),
    }
    assert quotes.agreement_words(networks) == (
        "The change of the process's mean agrees best with the networks' prediction change in 2 of 3 kinds of networks (TracIn in 1). "
        "The process's KL agrees best with the attack in 2 (TracIn in 1). "
        "The process's KL agrees better than TracIn in 4 of 6 comparisons. "
        "The damped influence function agrees least in 5 of 6 (TracIn in 1)."
    )


def perturbed(mean_curve, peak, records):
    found = {"sizes": [-5, 0, 5], "mean_curve": mean_curve, "peak_mean": peak, "peak_deviation": 6.0, "peaks": [0] * records}
    return {"perturbed": found | {"largest_over_record": 0.01, "at_ends": 0.2}}


def test_where_the_attack_is_strongest_is_told_beside_its_standard_error(quotes):
    at, beside = list(quotes.TITLES)[:2]
    words = quotes.peak_words({at: perturbed([0.5, 0.9, 0.6], 2.9, 16), beside: perturbed([0.5, 0.6, 0.7], 3.1, 16)})
    assert f"at the record for 1 of 2 kinds of networks ({quotes.TITLES[beside]}: +5)" in words
    assert words.endswith(f"from the record for 1 of the 2 ({quotes.TITLES[beside]}: +3.1, standard error 1.5).")


def test_how_often_a_record_is_rebuilt_names_depth_and_number(quotes):
    gap = {"one_start_reaches_90_percent": 0.36, "restarts": 4, "cells": [{}] * 7}
    gap |= {"reached_90_percent": {"value": 0.8}, "rebuilt": {"value": 0.88}}
    one = {"reached_90_percent": {"value": 0.44}, "rebuilt": {"value": 0.57}, "cosine": [0.0] * 9, "depth": 10}
    words = quotes.rebuilt_words(gap, one)
    assert "KL in 36 % of the cases; the best of 4 reaches it for 80 % of 7 records and rebuilds 88 %" in words
    assert words.endswith("At depth 10 a single ascent reaches it for 44 % of 9 and rebuilds 57 %.")
