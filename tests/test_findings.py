"""Findings: every rule is found, passes, does not apply and is skipped where it should; codes and docs name each other."""

import ast
import json
import math
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import hypergeom
from sklearn.linear_model import LogisticRegression, Ridge

import noshadow as ns
from noshadow import limits as shared
from noshadow._findings import RULES, flagged_records, most_severe
from noshadow._findings.record_checks import chance_of_as_many
from noshadow.checks import InputError
from noshadow.figures import EvidenceEntry
from noshadow.report.page import page
from noshadow.results import Audit, Finding
from noshadow.tail import model_risk

ROOT = Path(__file__).parents[1]
CODES = [rule.code for rule in RULES]
SCORES = {
    "damping_used": 0.1,
    "damping_source": "given",
    "damping_kind": "given",
    "condition": 1e3,
    "jitter": 0.0,
    "stationarity": 0.1,
    "head_residual": 1e-9,
    "method": "exact",
    "errors": {},
}
INPUTS = {
    "ids_in_both": {"count": 0, "first": []},
    "run_again": {name: {"records": 64, "changed": 0, "size": 0.0, "sources": []} for name in ("test", "train")},
    "repeated_rows": {"train": 0, "test": 0},
}
SCALE = {"given": "logits", "settled_by": "values", "raised": 0, "entries": 400}
TWINS = {"records": 0, "looked": 200, "of": 200, "dimension": 6.0, "ratio": 0.1, "first_ids": []}
NO_TWINS = {"features": TWINS, "inputs": None, "reasons": {"inputs": "the same as the features"}}
NO_COPIES = {"records": 0, "groups": 0, "largest": 1, "first_ids": []}
SPLITS = {"shared_with_test": 0, "copies": NO_COPIES, "reason": None, "near": NO_TWINS}


def made(n=200, *, members=None, nonmembers=None, shift=None, **changes):
    """An audit in which nothing is found, unless something is changed."""
    rng = np.random.default_rng(5)
    members = rng.exponential(0.3, n) if members is None else np.asarray(members, dtype=float)
    nonmembers = rng.exponential(0.3, n) if nonmembers is None else np.asarray(nonmembers, dtype=float)
    shift = rng.uniform(1, 2, n) if shift is None else np.asarray(shift, dtype=float)
    table = {"id": [f"r{i}" for i in range(n)], "target": np.arange(n) % 4, "group": ["ab"[i % 2] for i in range(n)], "loss": members}
    records = pd.DataFrame(table).assign(leverage=rng.uniform(0, 0.5, n), newton=shift, loo=shift, shift=shift)
    order = np.argsort(-shift, kind="stable")
    records["rank"] = np.empty(n, dtype=np.int64)
    records.loc[order, "rank"] = np.arange(1, n + 1)
    correct = np.arange(n) % 10 > 0
    fields = {
        "records": records,
        "model_risk": model_risk(
            members, nonmembers, fpr=0.05, resamples=100, member_correct=correct, nonmember_correct=np.arange(len(nonmembers)) % 10 > 0
        ),
        "member_losses": members,
        "nonmember_losses": nonmembers,
        "task": "classification",
        "ranked_by": "shift",
        "provenance": {"scores": SCORES, "splits": SPLITS, "inputs": INPUTS},
    }
    return Audit(**(fields | changes))


def of(audit, code):
    (finding,) = (finding for finding in ns.findings(audit) if finding.code == code)
    return finding


def with_scores(**changes):
    return made(provenance={"scores": SCORES | changes, "splits": SPLITS, "inputs": INPUTS})


def with_splits(**changes):
    return made(provenance={"scores": SCORES, "splits": SPLITS | changes, "inputs": INPUTS})


def with_twins(found, looked, name="features"):
    """An audit that has looked at so many records for near twins."""
    twins = TWINS | {"records": found, "looked": looked, "of": 5000, "first_ids": ["r3", "r9"] if found else []}
    return with_splits(near=NO_TWINS | {name: twins})


def with_inputs(**changes):
    return made(provenance={"scores": SCORES, "splits": SPLITS, "inputs": INPUTS | changes})


HEAD_OUTPUTS = {
    "layer": "head",
    "ending": "",
    "output": "",
    "used": "model",
    "records": 400,
    "differing": 3,
    "largest": 0.25,
    "first": {"split": "train", "row": 8},
    "train_rows": [8, 190],
}


TRACED = {
    "last_recording": "equal",
    "correlation": 1.0,
    "last_test_recording": "equal",
    "recordings": 61,
    "best_recording": 6,
    "train_loss": {"median": 0.02, "last": 0.001, "best": 0.8},
    "test_loss": {"median": 1.5, "last": 2.0, "best": 1.2},
}
LEAVES = {"records": 3, "of": 200, "trees": 20, "first": [7, 1]}
TREES = {"trees": 20, "leaves": 300, "leaves_of_a_tree": 15.0, "deepest": 9, "depth": 6.0, "by_size": [3, 2, 1, 4, 90, *[0] * 15]}


def with_leaves(small, **inputs):
    """An audit of trees, `small` of whose records have a leaf size just below 5; the others have 5."""
    audit = with_inputs(leaves=TREES, **inputs)
    return replace(audit, records=audit.records.assign(leaf_size=[5.0] * (200 - small) + [4.99] * small))


def by_loss():
    """An audit of a model that gives predictions and nothing else."""
    audit = made()
    bare = audit.records.drop(columns=[name for name in audit.records if name in ("shift", "leverage", "newton", "loo")])
    return replace(
        audit, records=bare, ranked_by="loss", not_applicable={"shift": "not applicable: Voting has no head"}, provenance={"inputs": INPUTS}
    )


def with_risk(audit, **changes):
    return replace(audit, model_risk=replace(audit.model_risk, **changes))


def test_a_quiet_audit_passes_everything_that_applies():
    drawn = ns.findings(made())
    assert [finding.code for finding in drawn] == CODES == sorted(CODES) and len(set(CODES)) == len(CODES)
    assert {finding.status for finding in drawn} == {"passed", "not applicable"}
    assert [finding.code for finding in drawn if finding.status == "not applicable"] == [
        "NS003",
        "NS016",
        "NS017",
        "NS024",
        "NS025",
        "NS026",
        "NS030",
        "NS031",
        "NS032",
        "NS033",
        "NS042",
        "NS043",
        "NS044",
    ]
    assert not most_severe(drawn) and not flagged_records(made())
    for finding in drawn:
        assert finding.sentence and finding.rule and "{" not in finding.rule and finding.next_step == ""


FAR = {"member": {"z": 9.0}, "nonmember": None, "outlying": True, "sentence": "The target was probably trained differently."}
NEAR = {"member": {"z": 0.5}, "nonmember": {"z": -0.7}, "outlying": False, "sentence": "Alike."}


def with_truth(found_parity):
    truth = ns.GroundTruth(
        models=4, records=10, fraction=0.5, variants={}, attacks=(), agreement=(), ceiling=(), targets=1, parity=found_parity
    )
    return made(ground_truth=truth)


def with_base(**changes):
    """A quiet language model beside its base, unless something of the base is changed."""
    stamp = {"auc": 0.52, "auc_interval": [0.45, 0.59], "test_loss": 3.0, "vocabulary": 100} | changes
    return made(task="language-model", evidence=(EvidenceEntry("base model", ("base_gain",), {}, (), stamp, ""),))


def with_models(told, source="few references"):
    """A quiet audit that trained two models, and what these know of their own records."""
    stamp = {"models": 2} | ({} if told is MISSING else {"own_records": told})
    return made(evidence=(EvidenceEntry(source, (), {}, (), stamp, ""),))


MISSING = object()
HEEDLESS = {"auc": 0.5, "audited_auc": 0.7, "unmoved": True}


def changed(split, count, size, *sources):
    return INPUTS["run_again"] | {split: {"records": 64, "changed": count, "size": size, "sources": list(sources)}}


RNG = np.random.default_rng(0)
FOUND = {
    "NS001": (lambda: made(members=RNG.exponential(0.01, 200), nonmembers=[1.0] * 150 + [0.0] * 50), 0.75),
    "NS002": (lambda: made(members=[0.1] * 200, nonmembers=[0.2] * 180 + [0.0] * 20), 0.9),
    "NS003": (lambda: with_risk(made(), predicted_tpr=0.2, predicted_tpr_interval=(0.1, 0.3), in_calibration_domain=False), 0.2),
    "NS004": (lambda: with_risk(made(), accuracy_gap=0.11, accuracy_gap_interval=(0.0, 0.2)), 0.11),
    "NS005": (lambda: with_risk(made(), auc=0.4, auc_interval=(0.3, 0.49)), 0.49),
    "NS006": (lambda: with_risk(made(), fpr=0.02), 4),
    "NS007": (lambda: with_splits(shared_with_test=1), 1),
    "NS009": (lambda: with_splits(shared_with_test=101), 0.505),
    "NS008": (lambda: with_inputs(ids_in_both={"count": 2, "first": ["a", "b"]}), 2),
    "NS010": (lambda: made(shift=[1.0] * 198 + [30.0, 40.0]), 70 / 268),
    "NS011": (lambda: made(shift=np.where(np.arange(200) % 4 == 2, 2.0, 1.0) + np.linspace(0, 0.1, 200)), 4.0),
    "NS018": (lambda: with_twins(5, 1000), 0.005),
    "NS013": (lambda: with_splits(copies={"records": 4, "groups": 2, "largest": 2, "first_ids": ["r1", "r2"]}), 0.02),
    "NS014": (lambda: made(shift=[1.0] * 197 + [np.inf] * 3), 3),
    "NS016": (lambda: with_inputs(alone_in_leaves=LEAVES), 3 / 200),
    "NS017": (lambda: with_leaves(11), 11 / 200),
    "NS020": (lambda: with_scores(stationarity=1.0), 1.0),
    "NS021": (lambda: with_scores(damping_kind="automatic"), 0.1),
    "NS022": (lambda: with_scores(jitter=1e-10), 1e3),
    "NS023": (lambda: with_scores(head_residual=0.01), 0.01),
    "NS024": (lambda: with_scores(method="projected", errors={"shift": 0.2}), 0.2),
    "NS025": (
        lambda: with_scores(method="projected", dimensions=1020, parameters=5000, effective_dof=862.0, errors={"shift": 1.0}),
        862 / 1020,
    ),
    "NS026": (lambda: with_inputs(loss_traces=TRACED), 0.025),
    "NS027": (lambda: by_loss(), 1),
    "NS030": (lambda: with_truth(FAR), 9.0),
    "NS031": (lambda: with_base(auc=0.7, auc_interval=[0.6, 0.8]), 0.7),
    "NS032": (lambda: with_base(test_loss=float(np.log(100)) + 0.75), 0.75),
    "NS033": (lambda: with_models(HEEDLESS), 0.5),
    "NS040": (lambda: with_inputs(run_again=changed("test", 1, 0.25, "data")), 0.25),
    "NS041": (lambda: with_inputs(repeated_rows={"train": 3, "test": 2}), 5),
    "NS043": (lambda: with_inputs(head_outputs=HEAD_OUTPUTS), 3),
    "NS042": (lambda: with_inputs(output_scale=SCALE | {"given": "probabilities", "raised": 7}), 7),
    "NS044": (lambda: with_inputs(other_records="the leaves of a forest hold other records"), 1),
}


@pytest.mark.parametrize("code", FOUND)
def test_what_should_be_found_is_found_with_its_figure(code):
    make, figure = FOUND[code]
    finding = of(make(), code)
    # Figures are read or are ratios of two numbers: rounding only.
    assert finding.status == "found" and finding.figure == pytest.approx(figure, rel=1e-12)
    assert finding.next_step and finding.sentence.endswith(".")


def test_every_code_has_a_found_case():
    assert set(FOUND) | {"NS012", "NS015"} == set(CODES)  # these two have tests of their own


@pytest.mark.parametrize(
    ("audit", "code"),
    [
        (lambda: with_scores(stationarity=0.999), "NS020"),
        (lambda: with_scores(condition=1e12), "NS022"),
        (lambda: with_scores(precision_error=1e-4), "NS022"),
        (lambda: with_scores(head_residual=0.001), "NS023"),
        (lambda: with_scores(method="ekfac", errors={"shift": 0.1}), "NS024"),
        (lambda: with_scores(method="projected", dimensions=1000, parameters=5000, effective_dof=250.0, errors={"shift": 0.1}), "NS025"),
        (lambda: with_inputs(loss_traces=TRACED | {"train_loss": {"median": 0.05, "last": 0.001, "best": 1.0}}), "NS026"),
        (lambda: with_truth(NEAR), "NS030"),
        (lambda: with_base(), "NS031"),
        (lambda: with_base(auc=0.549, auc_interval=[0.51, 0.6]), "NS031"),  # too close to matter
        (lambda: with_base(auc=0.4, auc_interval=[0.3, 0.51]), "NS031"),  # too uncertain
        (lambda: with_base(test_loss=float(np.log(100)) + 0.49), "NS032"),
        (lambda: with_models(HEEDLESS | {"auc": 0.6, "unmoved": False}, "folds"), "NS033"),
        (lambda: with_inputs(head_outputs=HEAD_OUTPUTS | {"differing": 0, "largest": 0.0, "train_rows": []}), "NS043"),
        (lambda: with_inputs(alone_in_leaves=LEAVES | {"records": 2}), "NS016"),
        (lambda: with_leaves(10), "NS017"),
        (lambda: with_twins(2, 2000), "NS018"),
        (lambda: with_twins(1, 100), "NS018"),
        (lambda: with_inputs(closed_form="the record leaves"), "NS044"),
        (lambda: with_inputs(output_scale=SCALE), "NS042"),
        (lambda: with_inputs(output_scale=SCALE | {"given": "log-probabilities"}), "NS042"),
        (lambda: with_risk(made(), auc=0.6), "NS002"),
        (lambda: with_risk(made(), accuracy_gap=0.1, accuracy_gap_interval=(0.0, 0.2)), "NS004"),
        (lambda: with_risk(made(), auc=0.4, auc_interval=(0.3, 0.5)), "NS005"),
        (lambda: with_risk(made(), fpr=0.025), "NS006"),
        (lambda: with_risk(made(), predicted_tpr=0.5, in_calibration_domain=True), "NS003"),
        (lambda: with_risk(made(), tnr=0.5, fpr=0.05), "NS001"),
    ],
)
def test_a_figure_at_its_limit_passes(audit, code):
    assert of(audit(), code).status == "passed"


def test_the_prediction_goes_before_the_tail():
    predicted = {"tnr": 0.0, "predicted_tpr": 0.6, "predicted_tpr_interval": (0.5, 0.7)}
    finding = of(with_risk(made(), **predicted, in_calibration_domain=True), "NS001")
    assert (
        (finding.status, finding.figure) == ("found", 0.6)
        and "12 times a guess" in finding.sentence
        and "500 to 700 in 1,000" in finding.sentence
    )
    # Outside of the domain a prediction is a hint: the headline is what was measured.
    outside = of(with_risk(made(), **predicted, in_calibration_domain=False), "NS001")
    assert (outside.status, outside.figure) == ("passed", 0.0) and "loss attack" in outside.sentence
    assert of(with_risk(made(), fpr=0.1), "NS001").status == "not applicable"


def test_a_rate_whose_interval_includes_a_guess_is_not_found():
    """0.02 at FPR 0.001 is twenty times a guess; an interval from 0.0005 on says that it may be none."""
    audit = with_risk(made(), fpr=0.001, predicted_tpr=0.02, predicted_tpr_interval=(0.0005, 0.1), in_calibration_domain=True)
    finding = of(audit, "NS001")
    assert (finding.status, finding.figure) == ("passed", 0.02) and finding.sentence.endswith(
        "20 times a guess, which is 1 in 1,000. The interval includes a guess."
    )
    clear = of(with_risk(audit, predicted_tpr_interval=(0.0011, 0.1)), "NS001")
    assert clear.status == "found" and "includes" not in clear.sentence
    assert of(with_risk(audit, predicted_tpr_interval=(0.001, 0.1)), "NS001").status == "passed"  # at its limit
    # The same for what is measured, and for the average member.
    measured = with_risk(made(), tnr=0.6, tnr_interval=(0.05, 0.9))
    assert of(measured, "NS001").status == "passed" and of(with_risk(measured, tnr_interval=(0.06, 0.9)), "NS001").status == "found"
    average = with_risk(made(), auc=0.65, auc_interval=(0.5, 0.8))
    assert of(average, "NS002").status == "passed" and "includes a coin toss" in of(average, "NS002").sentence
    assert of(with_risk(average, auc_interval=(0.51, 0.8)), "NS002").status == "found"


@pytest.mark.parametrize(
    ("members", "strangers", "status"), [(2000, 3, "found"), (2000, 49, "found"), (49, 2000, "found"), (50, 50, "passed")]
)
def test_a_handful_of_records_in_either_split_is_too_few(members, strangers, status):
    rng = np.random.default_rng(0)
    risk = model_risk(rng.exponential(1, members), rng.exponential(2, strangers), fpr=0.5, resamples=100)
    finding = of(replace(made(), model_risk=risk), "NS006")
    assert finding.status == status
    if status == "found":
        which = "test" if strangers < 50 else "training"
        assert finding.figure == min(members, strangers) and f"With {min(members, strangers)} {which} records" in finding.sentence


def test_three_test_records_settle_nothing():
    """Three strangers above all members: TNR and AUC of 1 with intervals of no width, and yet only three people were looked at."""
    rng = np.random.default_rng(0)
    audit = ns.audit_signals(
        ns.Signals(None, rng.normal(4, 1, 600) * np.where(np.arange(600) % 2, 1, -1), np.arange(600) % 2),
        ns.Signals(None, [-1.0, 1.0, 0.1], [1, 0, 0]),
        task="binary",
    )
    assert audit.model_risk.fpr == pytest.approx(1 / 3) and of(audit, "NS006").status == "found"


def test_regressions_are_judged_by_their_losses():
    audit = made(members=[0.1] * 200, nonmembers=[0.3] * 200, task="regression")
    audit = with_risk(audit, accuracy_gap=None, accuracy_gap_interval=None)
    # (0.3 − 0.1)/0.3, from sums of 200 equal numbers.
    assert of(audit, "NS004").figure == pytest.approx(2 / 3, rel=1e-12) and of(audit, "NS004").status == "found"
    assert of(audit, "NS011").status == "not applicable"


def test_a_group_that_bears_the_risk_is_named():
    shift = np.where(np.arange(200) % 20 == 7, 2.0, 1.0) + np.linspace(0, 0.1, 200)
    groups = ["ward <7>" if i % 20 == 7 else "others" for i in range(200)]
    audit = made(shift=shift)
    audit = replace(audit, records=audit.records.assign(group=groups))
    finding = of(audit, "NS012")
    assert finding.status == "found" and "'ward <7>' 10 of 10 (20 times its share)" in finding.sentence and finding.count == 10
    assert set(finding.records) == {f"r{i}" for i in range(7, 200, 20)}
    assert set(flagged_records(audit)["NS012"]) == set(range(7, 200, 20))
    without = replace(audit, records=audit.records.drop(columns="group"))
    assert of(without, "NS012").status == "not applicable" and "groups=" in of(without, "NS012").sentence
    alone = replace(audit, records=audit.records.assign(group="one"))
    assert "one group only" in of(alone, "NS012").sentence


@pytest.mark.parametrize(("inside", "status"), [(4, "found"), (3, "passed")])
def test_the_chance_of_a_random_choice_is_the_hypergeometric_one(inside, status):
    """200 records, the top 10, a class of 11 with `inside` of them there: counted over all choices by binomials."""
    n, top, size = 200, 10, 11
    chance = sum(math.comb(size, k) * math.comb(n - size, top - k) for k in range(inside, top + 1)) / math.comb(n, top)
    assert (2 * chance < 0.01) == (status == "found")  # two classes are looked at
    shift = np.linspace(2, 1, n)
    labels = np.zeros(n, dtype=int)
    labels[:inside] = 1
    labels[-(size - inside) :] = 1
    audit = made(shift=shift)
    finding = of(replace(audit, records=audit.records.assign(target=labels)), "NS011")
    assert finding.status == status
    # Lift: (inside/10)/(11/200).
    assert finding.figure == pytest.approx(inside / top * n / size, rel=1e-12)


def test_binomials_count_choices():
    chosen = list(combinations(range(7), 3))
    assert sum(len({0, 1, 2} & set(c)) >= 2 for c in chosen) == sum(math.comb(3, k) * math.comb(4, 3 - k) for k in (2, 3))


def test_label_suspects_have_high_loss_and_leverage():
    audit = made(shift=[1.0] * 190 + list(np.linspace(2, 3, 10)))
    records = audit.records.copy()
    assert (
        of(audit, "NS015").figure == ((records["loss"] > math.log(2)) & (records["leverage"] >= 0.45) & (records["rank"] <= 10)).sum() == 0
    )
    records.loc[[195, 196], "loss"] = [2.0, 3.0]
    records.loc[[196, 197], "leverage"] = 0.9
    finding = of(replace(audit, records=records), "NS015")
    assert (finding.status, finding.figure, finding.records) == ("found", 1, ("r196",))
    regression = of(replace(audit, records=records, task="regression"), "NS015")
    assert regression.status == ("found" if 9 * records["loss"].mean() < 3.0 else "passed")
    lost = replace(audit, records=records.drop(columns="leverage"))
    assert of(lost, "NS015").status == "skipped"


def test_a_trace_past_interpolation_is_told_with_its_best_recording():
    finding = of(with_inputs(loss_traces=TRACED), "NS026")
    assert finding.sentence == (
        "The lowest loss on unseen records is at recording 7 of 61; for half of all recordings the members' mean loss is at most 0.025 "
        "of what it was there, which dilutes lt_iqr."
    )
    assert "early_loss" in finding.next_step and "checkpoint=" in finding.next_step
    seen = {"median": 0.02, "last": 0.001}
    bare = of(with_inputs(loss_traces={"recordings": 61, "best_recording": None, "train_loss": seen}), "NS026")
    assert bare.status == "skipped" and "test=" in bare.next_step
    old = of(with_inputs(loss_traces={"last_recording": "equal", "correlation": 1.0}), "NS026")  # a folder of the version before
    assert old.status == "skipped" and "Run the audit again" in old.next_step
    nothing = of(with_inputs(loss_traces=TRACED | {"train_loss": seen | {"best": 0.0}}), "NS026")
    assert nothing.status == "not applicable" and of(made(), "NS026").sentence == "Not applicable, because no loss traces were given."


def test_a_training_that_goes_on_for_long_is_found_in_its_audit():
    """Members' losses halve with every recording, those of others turn at the fourth: the middle of 16 is far below it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    train, test = (ns.Signals(x[rows], x[rows].sum(1), x[rows].sum(1) + rng.normal(size=40)) for rows in (slice(0, 40), slice(40, 80)))
    final = ns.audit_signals(train, test, progress=False)

    def drawn(recordings):
        traces = ns.LossTraces()
        for number in range(recordings):
            left = 2.0 ** (recordings - 1 - number)
            traces.append(left * final.member_losses, (1 + abs(number - 3)) * final.nonmember_losses)
        return of(ns.audit_signals(train, test, loss_traces=traces, progress=False), "NS026")

    # The median of 2⁻⁰ … 2⁻ᵏ over the value at the fourth recording: exact powers of two and their mean.
    assert (drawn(16).status, drawn(16).figure) == ("found", pytest.approx((2**-7 + 2**-8) / 2 / 2**-3, rel=1e-12))
    assert (drawn(14).status, drawn(14).figure) == ("passed", pytest.approx((2**-6 + 2**-7) / 2 / 2**-3, rel=1e-12))


def test_outputs_that_are_not_the_head_s_are_told_with_their_records():
    finding = of(with_inputs(head_outputs=HEAD_OUTPUTS), "NS043")
    assert finding.sentence == "The outputs of 3 of 400 records differ from 'head' by up to 0.25. Losses are of the model's own."
    assert finding.records == ("r8", "r190") and finding.severity == "high"
    asked = of(with_inputs(head_outputs=HEAD_OUTPUTS | {"used": "layer", "largest": None, "ending": "softmax"}), "NS043")
    assert asked.sentence.endswith("differ from softmax of 'head'. The audit is of that layer, as asked for: layer='head'.")
    assert of(made(), "NS043").status == "not applicable"


def test_a_projection_whose_error_is_large_is_found_with_room_to_spare():
    """A tenth of the dimensions is used, yet the measured error says that sizes mean nothing."""
    room = {"method": "projected", "dimensions": 1000, "parameters": 5000, "effective_dof": 100.0}
    finding = of(with_scores(**room, errors={"shift": 0.51}), "NS025")
    assert (finding.status, finding.figure) == ("found", 0.1) and "relative error of shift about 0.51" in finding.sentence
    assert of(with_scores(**room, errors={"shift": 0.5}), "NS025").status == "passed"


def test_a_test_split_that_is_the_training_split_measures_nothing():
    whole, half = (of(with_splits(shared_with_test=count), "NS007").sentence for count in (200, 100))
    assert "the model risk means nothing" in whole and "means nothing" not in half
    sequences = of(replace(with_splits(shared_with_test=3), task="language-model"), "NS007").sentence
    assert sequences == "3 of 200 test sequences are also training sequences, token by token."


def test_infinite_scores_dominate():
    audit = made(shift=[1.0] * 197 + [np.inf] * 3)
    assert of(audit, "NS010").figure == 1.0 and of(audit, "NS010").status == "found"
    assert of(audit, "NS014").records == ("r197", "r198", "r199")


def test_few_records_make_no_shares():
    small = made(20)
    assert {of(small, code).status for code in ("NS010", "NS011", "NS012")} == {"not applicable"}


def test_an_unbounded_left_over_gradient_is_found_without_a_figure():
    finding = of(with_scores(stationarity=None), "NS020")
    assert (finding.status, finding.figure) == ("found", None)


def test_what_the_audit_does_not_hold_is_skipped_with_the_reason():
    bare = replace(
        made(),
        model_risk=None,
        nonmember_losses=np.empty(0),
        ranked_by=None,
        not_applicable={"model_risk": "not applicable: the test split is empty", "rank": "not applicable: no features were given"},
        provenance={},
    )
    status = {finding.code: finding.status for finding in ns.findings(bare)}
    assert set(status) == set(CODES) and set(status.values()) == {"skipped", "not applicable"}
    assert all(
        status[code] == "skipped" for code in ("NS001", "NS002", "NS004", "NS006", "NS008", "NS010", "NS011", "NS013", "NS014", "NS015")
    )
    assert of(bare, "NS001").sentence == "Skipped, because the test split is empty." and of(bare, "NS001").next_step
    assert of(bare, "NS010").sentence == "Skipped, because no features were given."
    old = made(provenance={"scores": SCORES})  # a folder of the version before
    assert {of(old, code).status for code in ("NS007", "NS008", "NS013", "NS040", "NS041")} == {"skipped"}
    assert of(with_truth(None), "NS030").status == "skipped"
    assert of(with_models(MISSING), "NS033").status == "skipped"  # a folder of the version before
    assert of(with_models(None), "NS033").status == "not applicable"  # the audited model knows its records no better than others
    assert of(with_models(HEEDLESS, "short references"), "NS033").status == "not applicable"
    assert of(made(provenance={"arguments": {"call": "audit_signals"}}), "NS042").status == "skipped"
    assert of(made(task="regression"), "NS042").status == "not applicable"
    assert of(with_scores(method="projected", errors={}), "NS024").status == "skipped"
    assert of(with_scores(method="projected", errors={}), "NS025").status == "skipped"
    assert of(made(provenance={"scores": {}, "splits": SPLITS}), "NS022").status == "skipped"


def test_facts_that_a_way_of_reading_does_not_have_are_not_applicable():
    bare = with_inputs(ids_in_both=None, run_again=None, repeated_rows=None)
    assert {of(bare, code).status for code in ("NS008", "NS040", "NS041")} == {"not applicable"}
    assert of(bare, "NS040").sentence == "Not applicable, because no model was run: its outputs were given."


def test_records_that_are_drawn_are_named_by_split_and_source_and_go_first():
    both = changed("train", 61, 0.434, "data", "model") | {"test": changed("test", 3, 0.2, "batch")["test"]}
    finding = of(with_inputs(run_again=both), "NS040")
    assert finding.figure == 0.434
    assert "61 of 64 training records, by 0.43 of the outputs' spread and for 3 of 64 test records, by 0.2 of" in finding.sentence
    assert all(
        words in finding.sentence for words in ("random augmentation, mixup", "at each run (dropout", "batch statistics in eval mode")
    )
    risky = with_risk(
        with_inputs(run_again=both), auc=0.9, auc_interval=(0.8, 1.0), predicted_tpr=0.9, in_calibration_domain=True, fpr=0.01
    )
    assert [found.code for found in most_severe(ns.findings(risky))][:3] == ["NS040", "NS001", "NS002"]


def test_shared_ids_are_shown():
    finding = of(FOUND["NS008"][0](), "NS008")
    assert finding.records == ("a", "b") and finding.count is None
    assert "3 training and 2 test records" in of(FOUND["NS041"][0](), "NS041").sentence


def test_hostile_and_endless_names_do_not_swamp_a_sentence():
    audit = made(shift=np.where(np.arange(200) % 20 == 7, 2.0, 1.0) + np.linspace(0, 0.1, 200))
    groups = ["x" * 10_000 if i % 20 == 7 else "others" for i in range(200)]
    assert len(of(replace(audit, records=audit.records.assign(group=groups)), "NS012").sentence) < 300


def test_only_an_audit_has_findings():
    with pytest.raises(InputError, match=r"findings: audit must be an Audit; got str\. Read a folder"):
        ns.findings("audit")


def test_a_finding_refuses_what_json_cannot_hold_and_unknown_words():
    finding = of(made(), "NS001")
    with pytest.raises(InputError, match="figure must be a finite Python number or None; got inf"):
        replace(finding, figure=math.inf)
    with pytest.raises(InputError, match=r"figure must be a finite Python number or None; got np\.float64"):
        replace(finding, figure=np.float64(1))
    with pytest.raises(InputError, match="status must be one of"):
        replace(finding, status="perhaps")
    with pytest.raises(InputError, match="severity must be one of"):
        replace(finding, severity="dire")
    assert Finding.from_dict(json.loads(json.dumps(finding.to_dict(), allow_nan=False))) == finding
    with pytest.raises(InputError, match=r"hold exactly the fields of Finding; got \['code'\]\. Written by another version"):
        Finding.from_dict({k: v for k, v in finding.to_dict().items() if k != "code"})


# In an audit, its folder and its page


def fitted(copies=0, shared=0):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(240, 4)), rng.integers(0, 2, 240)
    inside, outside = np.arange(120), np.arange(120, 240)
    inside, outside = np.concatenate([inside, inside[:copies]]), np.concatenate([outside, inside[:shared]])
    model = LogisticRegression().fit(x[inside], y[inside])
    return ns.audit(model, (x[inside], y[inside]), (x[outside], y[outside]), progress=False)


def test_an_audit_counts_copies_and_shared_records():
    audit = fitted(copies=3, shared=5)
    assert audit.findings == ns.findings(audit)
    assert of(audit, "NS013").status == "found" and of(audit, "NS013").figure == pytest.approx(6 / 123)
    assert set(of(audit, "NS013").records) in ({"0", "120"}, {"1", "121"}, {"2", "122"})
    assert (of(audit, "NS007").status, of(audit, "NS007").figure) == ("found", 5)
    clean = fitted()
    assert of(clean, "NS013").status == of(clean, "NS007").status == "passed"
    assert clean.provenance["splits"] | {"near": NO_TWINS} == SPLITS and of(clean, "NS018").status == "passed"


def test_without_features_copies_are_skipped():
    rng = np.random.default_rng(0)
    train, test = (ns.Signals(None, rng.normal(size=(30, 2)), rng.integers(0, 2, 30)) for _ in range(2))
    audit = ns.audit_signals(train, test)
    assert {of(audit, code).status for code in ("NS007", "NS013")} == {"skipped"}
    assert "no features were given" in of(audit, "NS013").sentence
    assert of(ns.audit_signals(train, train), "NS007").status == "found"


def test_findings_are_stored_and_old_folders_get_new_ones(tmp_path):
    audit = fitted()
    folder = audit.save(tmp_path / "a")
    stored = json.loads((folder / "audit.json").read_text())
    assert [entry["code"] for entry in stored["findings"]] == CODES
    assert ns.load(folder).findings == audit.findings
    old = ns.load(replace(audit, findings=None).save(tmp_path / "old"))
    assert "findings" not in json.loads((tmp_path / "old" / "audit.json").read_text())
    assert old.findings is None and ns.findings(old) == audit.findings
    assert page(old)["findings"]["drawn_anew"] and not page(audit)["findings"]["drawn_anew"]
    assert page(old)["findings"]["found"] == page(audit)["findings"]["found"]


def test_the_page_shows_every_rule_and_escapes(tmp_path):
    audit = made(shift=[1.0] * 197 + [np.inf] * 3)
    ids = ["<script>alert(1)</script>" if i == 199 else f"r{i}" for i in range(200)]
    html = ns.write_report(replace(audit, records=audit.records.assign(id=ids)), tmp_path / "r.html").read_text(encoding="utf-8")
    assert all(code in html for code in CODES)
    # The page has one script of its own; the id is text.
    assert "<script>alert" not in html and "alert(1)</script>" not in html
    assert html.index("NS014") < html.index("NS001")  # what was found comes first
    assert "2 found" not in html and 'class="finding high"' in html


# The table of rules


def test_limits_agree_with_those_that_functions_warn_by():
    limits = {rule.code: rule.limits for rule in RULES}
    assert limits["NS005"]["auc"] == shared.SWAPPED_AUC == 0.5
    assert limits["NS006"]["members"] == shared.FEW_MEMBERS == 5
    assert limits["NS020"]["stationarity"] == shared.FAR_FROM_MINIMUM == 1.0
    assert limits["NS022"]["condition"] == shared.DOUBTFUL_CONDITION == 1e12
    assert limits["NS022"]["rounding"] == shared.ROUNDING_TOLERANCE == 1e-4
    assert limits["NS023"]["residual"] == shared.NONLINEAR_HEAD == 1e-3
    assert (limits["NS025"]["share"], limits["NS025"]["error"]) == (shared.CROWDED, shared.FAR_OFF) == (0.25, 0.5)
    assert limits["NS030"]["deviations"] == shared.LARGEST_Z == 4.0
    assert limits["NS015"]["nats"] == math.log(2)
    assert limits["NS040"]["share"] == shared.IMMATERIAL == 1e-3


def assigned(path):
    """Names that a file gives a value at its top."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets if isinstance(target, ast.Name)}


def test_a_shared_limit_has_one_home():
    package = ROOT / "src" / "noshadow"
    names = assigned(package / "limits.py")
    assert len(names) == 14
    others = {path: assigned(path) & names for path in package.rglob("*.py") if path != package / "limits.py"}
    assert not {path.name for path, held in others.items() if held}


def test_nothing_reads_a_status_out_of_prose():
    """Kinds travel in types: one file makes the words before a colon, and no other reads them."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src" / "noshadow").rglob("*.py")}
    made = r"""["'](not applicable|not available|not calibrated here): """
    assert {path.name for path, text in texts.items() if re.search(made, text)} == {"outcomes.py"}  # its docstring
    taken = r"""(startswith|removeprefix|endswith)\(f?["'](automatic|not applicable|not available|\(training)"""
    # One place reads folders that were written before kinds.
    assert [path.name for path, text in texts.items() for _ in re.findall(taken, text)] == ["trust_checks.py"]


def test_codes_and_docs_name_each_other():
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    anchors = re.findall(r"^### (NS\d{3}) ([\w-]+) \{#(ns\d{3})\}$", text, flags=re.MULTILINE)
    assert [(code, name, f"findings.md#{anchor}") for code, name, anchor in anchors] == [(r.code, r.name, r.anchor) for r in RULES]
    # Lines of the page end where they fill up; the words are the rule's.
    sections = [" ".join(section.split()) for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]]
    for rule, section in zip(RULES, sections, strict=True):
        assert f"**Found when** {rule.words}." in section, rule.code
        assert f"Severity: {rule.severity}." in section, rule.code
    assert "findings.md" in (ROOT / "mkdocs.yml").read_text()


def test_a_regression_with_many_parameters_runs_through_all_rules():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(60, 5)), rng.normal(size=(60, 2))
    audit = ns.audit(Ridge(alpha=1.0).fit(x[:30], y[:30]), (x[:30], y[:30]), (x[30:], y[30:]), progress=False)
    assert [finding.code for finding in audit.findings] == CODES


def test_chance_of_as_many_is_the_hypergeometric_tail():
    # scipy.stats is the oracle (it takes too long to load for `noshadow report`); both go through log-binomials of size 1e5: 1e-8.
    rng = np.random.default_rng(0)
    for n in (20, 500, 100_000):
        counts = rng.integers(1, n, 40)
        drawn = max(1, n // 100)
        found = np.minimum(rng.integers(0, drawn + 1, 40), counts)
        np.testing.assert_allclose(
            chance_of_as_many(found, counts, drawn, n), hypergeom.sf(found - 1, n, counts, drawn), rtol=1e-8, atol=1e-290
        )


def test_a_rank_by_loss_says_why_and_no_rule_about_exposed_records_rests_on_it():
    audit = by_loss()
    assert "because Voting has no head." in of(audit, "NS027").sentence
    for code in ("NS010", "NS011", "NS012", "NS014", "NS015"):
        assert of(audit, code).status == "skipped" and "Voting has no head" in of(audit, code).sentence
    for code in ("NS020", "NS021", "NS022", "NS023", "NS024", "NS025"):
        assert of(audit, code).status == "not applicable"
    assert of(with_inputs(alone_in_leaves=LEAVES), "NS016").records == ("r7", "r1")


@pytest.mark.parametrize(
    ("family", "setting"),
    [
        ("XGBoost with parallel trees", "lower max_depth, or raise min_child_weight"),
        ("RandomForestClassifier", "raise min_samples_leaf"),
        ("XGBoost", "lower max_depth"),
        ("LightGBM", "min_child_samples"),
        ("CatBoost", "make the trees shallower"),
    ],
)
def test_small_leaves_name_the_setting_of_their_library(family, setting):
    small = of(with_leaves(11, family=family), "NS017")
    assert small.sentence == (
        "11 of 200 records share their leaf with fewer than 5 training records, themselves counted. Of the 300 leaves of 20 trees "
        "(depth 6 in most, 9 at most), 10 hold fewer than 5."
    )
    assert small.count == 11 and small.records[0] == "r189"
    for finding in (small, of(with_inputs(alone_in_leaves=LEAVES, family=family), "NS016")):
        assert setting in finding.next_step and finding.next_step.endswith("fit again and compare the two audits.")


def test_scores_without_a_solver_are_not_asked_for_its_diagnostics():
    audit = made(provenance={"splits": SPLITS, "inputs": INPUTS | {"closed_form": "the record leaves"}})
    assert {of(audit, code).status for code in ("NS020", "NS021", "NS022", "NS023", "NS024", "NS025")} == {"not applicable"}
