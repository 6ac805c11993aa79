"""Options that an audit hands on to its scores: by name, checked, recorded; what an error advises can be followed."""

import ast
import inspect
import json
import re
from dataclasses import fields

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from torch import nn

import noshadow as ns
from noshadow import InputError, Signals, Target, audit, audit_signals, reference
from noshadow._audit import reference_columns
from noshadow._audit.evidence import MOST_MARGIN_WORK
from noshadow._audit.score_options import HEAD, NETWORK, ROUTES, SEQUENCES, option_names
from noshadow.errors import ATTACK_CHOICES, HAND_ON, RUN_ATTACKS, SCORE_OPTIONS, advice, its_place, speaking_for

RNG = np.random.default_rng(4)
X = RNG.normal(size=(40, 3)).astype(np.float32)
Y = RNG.integers(0, 3, 40)
DATA = (X[:20], Y[:20]), (X[20:], Y[20:])


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))


class Chooses(nn.Module):
    """A model that decides by the data, which torch.func cannot run over many records at once."""

    def __init__(self):
        super().__init__()
        self.layers = network()

    def forward(self, x):
        return self.layers(x) if float(x.detach().abs().max()) < 1e6 else self.layers(-x)


def refused(match, function, *arguments, **options):
    with pytest.raises(InputError, match=match) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_table_of_the_advice_is_that_of_the_signatures():
    assert {name for route in ROUTES for name in option_names(route)} == SCORE_OPTIONS
    assert option_names(HEAD) == ("columns", "method", "refine", "precision", "block_size", "max_memory")
    assert set(option_names(NETWORK)) == {"method", "outputs", "dimension", "unvectorised", "max_memory"}
    assert option_names(SEQUENCES) == ("class_basis", "max_memory")
    for name in HAND_ON:
        held = inspect.signature(getattr(ns, name)).parameters
        assert "score_options" in held and not SCORE_OPTIONS & set(held)
    assert {one.name for one in fields(reference.AttackOptions)} - {"shokri", "seed"} == ATTACK_CHOICES
    for name in RUN_ATTACKS:
        held = inspect.signature(getattr(reference, name)).parameters
        assert "options" in held and not ATTACK_CHOICES & set(held)


def test_advice_speaks_to_the_function_that_was_called():
    for name in ("network_scores", "record_scores", ""):
        with speaking_for(name):
            assert advice("unvectorised", "loop") == "unvectorised='loop'"
            assert its_place("max_memory") == ""
    with speaking_for("audit"):
        assert its_place("max_memory") == " (score_options={'max_memory': …}, --score-option max_memory=…)"
        assert advice("unvectorised", "loop") == "score_options={'unvectorised': 'loop'} (--score-option unvectorised=loop)"
        assert advice("damping", "auto") == "damping='auto'"
    with speaking_for("ground_truth"):
        assert advice("floor", ...) == "options=AttackOptions(floor=…)" and advice("fpr", 0.1) == "fpr=0.1"
    with speaking_for("lira_scores"):
        assert advice("variance", "global") == "variance='global'"


def advised(message):
    """The `score_options` that a message recommends."""
    return ast.literal_eval(re.search(r"score_options=(\{[^…}]*\})", message)[1])


def test_options_reach_the_last_layer_and_are_recorded(tmp_path):
    plain, asked = audit(network(), *DATA, progress=False), {"method": "ekfac", "refine": np.int64(2)}
    result = audit(network(), *DATA, progress=False, damping=0.1, score_options=asked)
    assert result.provenance["scores"]["method"] == "ekfac" and int(result.records["exact"].sum()) == 2
    assert result.provenance["arguments"]["score_options"] == {"method": "ekfac", "refine": 2}
    assert plain.provenance["arguments"]["score_options"] == {} and "exact" not in plain.records
    assert ns.load(result.save(tmp_path / "a")).provenance["arguments"]["score_options"] == {"method": "ekfac", "refine": 2}


def test_what_an_audit_advises_can_be_followed():
    message = refused("audit: model must run under torch.func", audit, Chooses(), *DATA, layers="all", progress=False)
    assert advised(message) == {"unvectorised": "loop"}
    followed = audit(Chooses(), *DATA, layers="all", progress=False, score_options=advised(message))
    expected = audit(network(), *DATA, layers="all", progress=False)
    # One record at a time or all together: the same sums in another order, in float32.
    np.testing.assert_allclose(followed.records["shift"], expected.records["shift"], rtol=1e-3, atol=1e-6)
    small = {"method": "dual", "max_memory": 100.0}
    message = refused("audit: records × outputs must be few enough", audit, network(), *DATA, layers="all", score_options=small)
    assert advised(message) == {"method": "projected"}
    audit(network(), *DATA, layers="all", progress=False, score_options=small | advised(message))
    small = {"method": "exact", "max_memory": 100.0}
    message = refused(r"audit: \(classes − 1\) × features must be small enough", audit, network(), *DATA, score_options=small)
    assert advised(message) == {"method": "ekfac"} and "--score-option max_memory=…" in message
    audit(network(), *DATA, damping=0.1, progress=False, score_options=advised(message))


def test_reasons_speak_of_options_that_there_are():
    result = audit(network(), *DATA, layers="all", progress=False)
    assert "leverage" not in result.records
    again = audit(network(), *DATA, layers="all", progress=False, score_options=advised(result.not_applicable["leverage"]))
    assert "leverage" in again.records
    margin = advised(again.not_applicable["margin_leverage"])
    assert "margin_leverage" in audit(network(), *DATA, layers="all", progress=False, score_options=margin).records


def test_arrays_take_options_too():
    halves = [Signals(x, np.eye(3)[y] + x, y) for x, y in DATA]
    result = audit_signals(*halves, damping=0.5, score_options={"precision": "mixed"})
    assert result.provenance["scores"]["precision"] == "mixed"
    message = refused("audit_signals: ", audit_signals, *halves, damping=0.5, score_options={"method": "exact", "max_memory": 10})
    assert advised(message) == {"method": "ekfac"}


@pytest.mark.parametrize(
    ("given", "options", "match"),
    [
        ({"speed": 3}, {}, r"audit: score_options must name options of record_scores \(columns, method, refine, .*\); got 'speed'\."),
        ({"dimension": 64}, {}, "name options of record_scores .*; got 'dimension'"),
        ({"refine": 3}, {"layers": "all"}, r"name options of network_scores \(method, outputs, dimension, .*\); got 'refine'"),
        ({"damping": 1.0}, {}, "got 'damping'. damping is an argument of its own here."),
        ([("method", "exact")], {}, "score_options must be a dictionary of options; got list"),
        ({"method": ["exact"]}, {}, r"score_options\['method'\] must be a number or text; got list"),
        ({"method": "fast"}, {}, "audit: method must be one of 'auto', 'exact', 'ekfac'; got 'fast'"),
        ({"max_memory": "much"}, {}, "audit: max_memory must be a number ≥ 0; got 'much'"),
        ({3: 1}, {}, "name options of record_scores .*; got 3"),
    ],
)
def test_options_that_there_are_not_are_refused(given, options, match):
    refused(match, audit, network(), *DATA, progress=False, score_options=given, **options)


def test_options_for_scores_that_do_not_exist_are_refused():
    forest = RandomForestClassifier(5, random_state=0).fit(*DATA[0])
    rule = "audit: score_options must be left out where there are no record scores; got max_memory"
    refused(rule, audit, forest, *DATA, progress=False, score_options={"max_memory": 1e9})
    bare = [Signals(None, np.eye(3)[y] + x, y) for x, y in DATA]
    refused("audit_signals: score_options must be left out", audit_signals, *bare, score_options={"max_memory": 1e9})


def test_a_target_carries_options_and_the_command_adds_to_them():
    target = Target(network(), *DATA, score_options={"precision": "float64"})
    result = ns.audit(target, progress=False, score_options={"max_memory": 1e9})
    assert result.provenance["arguments"]["score_options"] == {"precision": "float64", "max_memory": 1e9}
    rule = "audit: score option precision must agree with the Target's 'float64'; got 'mixed'. Leave one of the two out."
    refused(rule, ns.audit, target, progress=False, score_options={"precision": "mixed"})


def test_reference_models_are_audited_with_the_options_of_the_last_layer():
    target = Target(network(), *DATA, weight_decay=0.1, score_options={"method": "ekfac", "refine": 0, "unvectorised": "loop"})
    rows = np.arange(30)
    found = reference_columns(target, network(), rows)["shift"]
    exact = reference_columns(Target(network(), *DATA, weight_decay=0.1), network(), rows)["shift"]
    assert len(found) == 30 and not np.allclose(found, exact, rtol=1e-9)


MODULE = """
import numpy as np, torch
import noshadow as ns
def build():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 3)).astype(np.float32), rng.integers(0, 3, 50)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    return ns.Target(model, (x[:30], y[:30]), (x[30:], y[30:]))
"""


def test_the_command_takes_options(run, tmp_path):
    (tmp_path / "handed_on.py").write_text(MODULE)
    given = ("--score-option", "method=projected", "--score-option", "dimension=8", "--score-option", "max_memory=2e9")
    code, out, err = run("audit", "handed_on:build", "--out", "a", "--layers", "all", *given, "--json", "--quiet")
    assert (code, err) == (0, "") and json.loads(out)["scores"]["method"] == "projected"
    stored = ns.load(tmp_path / "a").provenance["arguments"]["score_options"]
    assert stored == {"method": "projected", "dimension": 8, "max_memory": 2e9}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (("method",), "--score-option must be NAME=VALUE, each name once; got 'method'"),
        (("=3",), "got '=3'"),
        (("refine=",), "got 'refine='"),
        (("refine=1", "refine=2"), "got 'refine=2'"),
        (("dimension=8",), r"score_options must name options of record_scores \("),
    ],
)
def test_the_command_refuses_options_in_one_sentence(run, tmp_path, given, match):
    (tmp_path / "handed_on.py").write_text(MODULE)
    options = [part for text in given for part in ("--score-option", text)]
    code, _, err = run("audit", "handed_on:build", "--out", "a", *options, "--quiet")
    assert code == 2 and re.search(match, err) and err.count("\n") == 1


def test_margin_leverage_of_a_large_head_is_on_request(monkeypatch):
    rng = np.random.default_rng(0)
    half = ns.Signals(rng.normal(size=(60, 4)), rng.normal(size=(60, 3)), rng.integers(0, 3, 60))
    whole = ns.audit_signals(half, half, damping=0.5, progress=False)
    # 60 records × 3 classes × 4² = 2,880: at the limit it is computed, beyond it is not.
    monkeypatch.setattr("noshadow._audit.evidence.MOST_MARGIN_WORK", 2880)
    assert "margin_leverage" in ns.audit_signals(half, half, damping=0.5, progress=False).records
    monkeypatch.setattr("noshadow._audit.evidence.MOST_MARGIN_WORK", 2879)
    left_out = ns.audit_signals(half, half, damping=0.5, progress=False)
    assert "margin_leverage" not in left_out.records and left_out.ranked_by == "shift"
    said = left_out.not_applicable["margin_leverage"]
    assert said.startswith(
        "not applicable: left out for a head of 60 records × 3 classes × 4 features; pass score_options={'columns': 'all'}"
    )
    asked = ns.audit_signals(half, half, damping=0.5, score_options={"columns": "all"}, progress=False)
    assert asked.records.drop(columns="margin_leverage").equals(left_out.records)
    np.testing.assert_array_equal(asked.records["margin_leverage"], whole.records["margin_leverage"])
    with pytest.raises(ns.InputError, match=r"score_options\['columns'\] must be one of 'auto', 'all'; got 'some'"):
        ns.audit_signals(half, half, score_options={"columns": "some"}, progress=False)


def test_the_limit_of_margin_leverage_is_where_it_takes_seconds():
    # 300,000 × 10 × 100² is beyond it, a tenth of that is not.
    assert 300_000 * 10 * 100**2 > MOST_MARGIN_WORK > 30_000 * 10 * 100**2
