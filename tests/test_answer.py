"""What is best known about an attack's rate, the verdict, the most exposed record, and what to do next."""

import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import noshadow as ns
from fixed_audits import with_drawn_references
from noshadow._answer import LEVELS, best_known, next_action, per_thousand, per_thousand_between, verdict, worst_record
from noshadow._known import SOURCES
from noshadow.checks import InputError
from noshadow.cli.printing import print_audit, summary
from noshadow.figures import GroundTruth, MeasuredAttack, MeasuredRate
from noshadow.limits import STRONG_TIMES
from noshadow.report.first_screen import first_screen
from noshadow.report.sequence_attacks import sequence_attacks_section
from test_findings import made, with_base

FPR = 0.01


def attack(name, tpr, *, attacked="target", fpr=FPR, spread=0.02, models=1):
    rate = MeasuredRate(fpr, tpr, max(tpr - spread, 0.0), min(tpr + spread, 1.0))
    return MeasuredAttack(name, attacked, 0.7, (0.6, 0.8), (rate,), models)


def truth(*attacks, models=64, parity=None):
    return GroundTruth(
        models=models, records=400, fraction=0.5, variants={}, attacks=attacks, agreement=(), ceiling=(), targets=0, parity=parity
    )


def predicted(rate, ends):
    """An audit of 200 + 200 records whose risk has this prediction."""
    audit = made()
    told = {"predicted_tpr": rate, "predicted_tpr_interval": ends, "in_calibration_domain": True, "prediction_level": 0.9}
    return replace(audit, model_risk=replace(audit.model_risk, fpr=FPR, **told))


def exposed(rates, lows, highs, *, fpr=FPR, models=4):
    """An audit with attack rates as few reference models would give them."""
    audit = made(len(rates))
    audit = replace(audit, model_risk=replace(audit.model_risk, fpr=fpr))
    columns = {"exposure_score": rates, "attack_rate": rates, "attack_rate_low": lows, "attack_rate_high": highs}
    stamp = {"fpr": fpr, "level": 0.9, "trainings": {"few references": 2.0, "loss traces": 0.0}}
    few = ns.Evidence("few references", stamp={"models": models, "trainings": 2.0})
    return audit.with_evidence(few, ns.Evidence("exposure", {k: np.asarray(v, dtype=float) for k, v in columns.items()}, stamp=stamp))


def test_the_best_source_wins_and_each_goes_when_it_is_taken_away():
    rates = np.linspace(0.0, 0.4, 200)
    audit = exposed(rates, rates / 2, rates * 1.5)
    risk = replace(audit.model_risk, predicted_tpr=0.12, predicted_tpr_interval=(0.05, 0.3), in_calibration_domain=True)
    audit = replace(audit, model_risk=risk, ground_truth=truth(attack("LiRA", 0.61), attack("RMIA", 0.4)))
    seen = []
    seen.append(best_known(audit))
    audit = replace(audit, ground_truth=None)
    seen.append(best_known(audit))
    audit = replace(audit, records=audit.records.drop(columns=["attack_rate"]), sequence_attacks=(attack("base_gain", 0.2),))
    seen.append(best_known(audit))
    audit = replace(audit, sequence_attacks=(attack("min_k", 0.9),))  # not the declared one: it does not count
    seen.append(best_known(audit))
    audit = replace(audit, model_risk=replace(risk, in_calibration_domain=False))
    seen.append(best_known(audit))
    audit = replace(audit, model_risk=None, not_applicable={"model_risk": "not applicable: there are no test records"})
    seen.append(best_known(audit))
    assert tuple(known.source for known in seen) == SOURCES
    measured, exposure, compared, prediction, losses, unknown = seen
    assert (compared.rate, compared.interval, compared.attacked, compared.trainings) == (0.2, pytest.approx((0.18, 0.22)), "target", 0)
    assert (measured.rate, measured.interval, measured.attack, measured.trainings) == (0.61, (0.59, 0.63), "LiRA", 64)
    assert exposure.rate == pytest.approx(0.2) and exposure.interval == pytest.approx((0.1, 0.3)) and exposure.trainings == 4
    assert (prediction.rate, prediction.interval, prediction.trainings) == (0.12, (0.05, 0.3), 0)
    assert (losses.rate, losses.interval) == (risk.tnr, risk.tnr_interval) and "unlike the setups" in losses.reason
    assert unknown.rate is None and unknown.interval is None and "there are no test records" in unknown.reason
    assert all(known.fpr == FPR for known in seen)


def beside_a_base(base, **losses):
    """A language model's audit: what is known of its base, its losses, and how its gain over the base attacks."""
    audit = replace(made(**losses), task="language-model", evidence=with_base(**base).evidence)
    return replace(audit, sequence_attacks=(attack("own_gain", 0.012, spread=0.01, fpr=audit.model_risk.fpr),))


AVERAGE = {"members": np.linspace(0.0, 1.0, 200), "nonmembers": np.linspace(0.3, 1.3, 200)}  # NS002, and no tail


def test_a_base_that_knows_nothing_of_the_texts_is_no_comparison():
    """NS032: a wrong base made its comparison the answer, and its small rate an all-clear."""
    audit = beside_a_base({"test_loss": float(np.log(100)) + 2.0}, **AVERAGE)
    known, found = best_known(audit), verdict(audit)
    assert known.source == "losses" and "NS032" in known.reason
    assert found.level == "some" and "worse than a guess at these texts (NS032)" in found.sentence
    assert best_known(beside_a_base({}, **AVERAGE)).source == "compared"


def test_nothing_is_known_where_the_base_tells_the_splits_apart():
    """NS031: neither the gain nor the losses say who was trained on; models that were trained for the audit do."""
    audit = beside_a_base({"auc": 0.7, "auc_interval": [0.6, 0.8]}, **AVERAGE)
    known, found = best_known(audit), verdict(audit)
    assert (known.source, known.rate) == ("unknown", None) and "AUC of 0.700" in known.reason and "NS031" in known.reason
    assert found.level == "unknown" and found.sentence == known.reason
    assert "test texts that the base has not seen" in next_action(audit).sentence
    assert best_known(replace(audit, ground_truth=truth(attack("LiRA", 0.3)))).source == "measured"
    # Neither terminal nor page calls the comparison the answer.
    assert "Gain over the base" not in audit.summary() and "Gain over the base" in beside_a_base({}, **AVERAGE).summary()
    shown, plain = (sequence_attacks_section(one) for one in (audit, beside_a_base({}, **AVERAGE)))
    assert not shown["declared"] and "NS031" in shown["unfit"] and not any(row["declared"] for row in shown["rows"])
    assert plain["declared"] and plain["unfit"] is None


def test_losses_that_give_the_average_member_away_count_beside_a_comparison():
    """A comparison is one attack: that it finds nothing takes nothing away from NS002."""
    found = verdict(beside_a_base({}, **AVERAGE))
    assert found.known.source == "compared" and found.level == "some" and "a coin for 500" in found.sentence


def test_window_votes_answer_where_there_is_no_gain_of_its_own():
    rows = tuple(attack(name, rate) for name, rate in (("base_gain", 0.1), ("error_zone", 0.6), ("window_votes", 0.4)))
    audit = replace(made(), sequence_attacks=rows)
    known = best_known(audit)
    assert (known.source, known.rate) == ("compared", 0.4) and "the share of windows of tokens in which it beats" in known.reason
    with_own = replace(audit, sequence_attacks=(*rows, attack("own_gain", 0.3)))
    assert best_known(with_own).rate == 0.3
    assert "Windows of tokens won against the base: AUC" in audit.summary()


def test_the_stronger_attack_is_named_and_references_stand_in_only_for_a_target_that_was_not_attacked():
    found = best_known(replace(made(), ground_truth=truth(attack("LiRA", 0.3), attack("RMIA", 0.45), attack("LOSS", 0.9))), FPR)
    assert (found.attack, found.rate, found.attacked) == ("RMIA", 0.45, "target")
    assert "LiRA, which found 300 in 1,000" in found.reason
    both = truth(attack("LiRA", 0.3), attack("LiRA", 0.8, attacked="reference models", models=64))
    assert best_known(replace(made(), ground_truth=both), FPR).rate == 0.3
    alone = truth(attack("LiRA", 0.8, attacked="reference models", models=64))
    found = best_known(replace(made(), ground_truth=alone), FPR)
    assert (found.rate, found.attacked) == (0.8, "reference models") and "itself was not attacked" in found.reason
    assert "in the mean over reference models" in verdict(replace(made(), ground_truth=alone)).sentence


def test_a_level_that_was_not_measured_takes_the_nearest_and_says_so():
    rows = truth(attack("LiRA", 0.2, fpr=0.001), attack("LiRA", 0.7, fpr=0.1))
    found = best_known(replace(made(), ground_truth=rows), 0.002)
    assert (found.fpr, found.rate) == (0.001, 0.2) and "nearest to 0.002" in found.reason
    # A rate that differs by rounding is the same level.
    found = best_known(replace(made(), ground_truth=rows), 0.001 * (1 + 1e-9))
    assert "nearest" not in found.reason


def test_a_target_unlike_its_references_is_said():
    row = {"target": 0.1, "mean": 0.5, "sd": 0.01, "low": 0.4, "high": 0.6, "z": -40.0, "outlying": True}
    parity = {"member": row, "nonmember": None, "outlying": True, "sentence": "unlike"}
    found = best_known(replace(made(), ground_truth=truth(attack("LiRA", 0.3), parity=parity)), FPR)
    assert "NS030" in found.reason


def test_exposure_and_prediction_hold_at_their_own_level_only_and_losses_at_any_that_members_resolve():
    rates = np.full(200, 0.2)
    audit = exposed(rates, rates, rates)
    assert best_known(audit).source == "exposure" and best_known(audit, 0.05).source == "losses"
    losses = best_known(audit, 0.05)
    tau = np.sort(audit.member_losses)[::-1][math.floor(0.05 * 200 + 1e-9)]
    assert losses.rate == pytest.approx(np.mean(audit.nonmember_losses > tau)) and losses.interval is None
    assert best_known(predicted(0.3, (0.2, 0.4)), 0.05).source == "losses"
    nothing = best_known(audit, 1e-4)
    assert nothing.source == "unknown" and "do not resolve" in nothing.reason
    with pytest.raises(InputError, match="fpr must"):
        best_known(audit, 0.0)


def test_a_prediction_names_the_attack_whose_rate_it_is():
    audit = predicted(0.3, (0.2, 0.4))
    assert best_known(audit).reason.startswith("Predicted for LiRA")
    both = replace(audit, model_risk=replace(audit.model_risk, predicted_attack="the stronger of LiRA and RMIA"))
    assert best_known(both).reason.startswith("Predicted for the stronger of LiRA and RMIA")
    few = replace(audit, model_risk=replace(audit.model_risk, predicted_from="four reference models", reference_models=64))
    said = "Predicted for LiRA with 64 reference models from four reference models by a calibration on models like this one"
    assert best_known(few).reason.startswith(said)


def test_a_prediction_for_a_model_unlike_the_setups_is_a_hint_wherever_it_is_told():
    audit = predicted(0.3, (0.2, 0.4))
    lines = audit.summary().splitlines()
    assert any(line.startswith("Predicted attack TPR at FPR 0.01") for line in lines)
    unlike = replace(audit, model_risk=replace(audit.model_risk, in_calibration_domain=False))
    lines = unlike.summary().splitlines()
    assert "the rate that is predicted for one is a hint, because the model is unlike the setups" in lines[2]
    (hint,) = (line for line in lines if "redicted attack TPR" in line)
    assert hint.startswith("Hint, no answer: predicted attack TPR at FPR 0.01") and "300 in 1,000" in hint
    assert "none is predicted" not in unlike.summary() and "none is predicted" in best_known(made()).reason
    assert "for another level" in best_known(audit, 0.05).reason


@pytest.mark.parametrize(
    ("rate", "ends", "level"),
    [
        (0.2, (0.15, 0.3), "strong"),  # ten times a guess of 0.01, which the interval leaves out
        (0.09, (0.05, 0.13), "some"),  # nine times
        (0.2, (0.005, 0.4), "unknown"),  # many times a guess, which the interval holds
        (0.02, (0.0, 0.3), "unknown"),  # near a guess, and not known to be
        (0.012, (0.005, 0.03), "none"),
        (0.002, (0.0, 0.1), "none"),  # the end of the reach still counts
    ],
)
def test_the_verdict_follows_what_the_interval_leaves_out(rate, ends, level):
    found = verdict(predicted(rate, ends))
    assert found.level == level and found.known.source == "predicted"
    assert found.title == next(row.title for row in LEVELS if row.name == level and ("uncertain" in row.title) == (level == "unknown"))
    assert per_thousand(rate) in found.sentence and per_thousand(FPR) in found.sentence and per_thousand_between(ends) in found.sentence


def test_the_tail_of_a_language_models_losses_is_no_all_clear():
    """A merged model without its base read "no sign of leakage", and beside it "strong leakage"."""
    audit = made()
    risk = replace(audit.model_risk, tnr=0.02, tnr_interval=(0.0, 0.05), fpr=FPR, auc=0.55, auc_interval=(0.48, 0.62), predicted_tpr=None)
    assert verdict(replace(audit, model_risk=risk)).level == "none"
    of_texts = replace(audit, model_risk=risk, task="language-model")
    found = verdict(of_texts)
    assert (found.level, found.title) == ("unknown", "Not known: losses alone say little of a language model")
    assert next_action(of_texts).command == "noshadow audit package.module:function --base FOLDER --out new-audit"
    # What the losses do show counts all the same.
    shown = replace(of_texts, model_risk=replace(risk, auc=0.7, auc_interval=(0.65, 0.75)))
    assert verdict(shown).level == "some"
    assert verdict(replace(of_texts, model_risk=replace(risk, tnr=0.3, tnr_interval=(0.2, 0.4)))).level == "strong"


def test_losses_that_give_the_average_member_away_are_a_sign_where_nothing_better_is_known():
    """NS002 calls an AUC of 0.8 high; a verdict "not known" or "no sign" above it would contradict the page's own finding."""
    audit = made()
    risk = replace(audit.model_risk, tnr=FPR, tnr_interval=(0.0, 0.5), fpr=FPR, auc=0.825, auc_interval=(0.75, 0.9), predicted_tpr=None)
    found = verdict(replace(audit, model_risk=risk))
    assert (found.known.source, found.level) == ("losses", "some") and "825 in 1,000 pairs; a coin for 500" in found.sentence
    near = replace(risk, auc=0.55, auc_interval=(0.45, 0.65))
    assert verdict(replace(audit, model_risk=near)).level == "unknown"
    # A measurement goes before the losses.
    measured = replace(audit, model_risk=risk, ground_truth=truth(attack("LiRA", FPR)))
    assert verdict(measured).level == "none"


def test_what_was_trained_already_is_not_advised_again():
    """Four models that gave an order and no sizes: train more, not the same four."""
    rates = np.full(200, 0.2)
    audit = exposed(rates, rates / 2, rates)
    ordered = replace(audit, records=audit.records.drop(columns=["attack_rate", "attack_rate_low", "attack_rate_high"]))
    assert best_known(ordered).source == "losses" and "64 reference models" in next_action(ordered).sentence
    assert "--reference-models 4" in next_action(made(300)).command
    # Two hundred records have rates of their own with sixteen models, and not with four.
    assert "--reference-models 16" in next_action(made(200)).command


def test_strong_is_the_line_of_the_finding_on_model_risk():
    finding = {f.code: f for f in ns.findings(made())}["NS001"]
    assert finding.limits["times"] == STRONG_TIMES


def test_one_record_that_stands_out_is_a_sign_although_the_average_is_near_a_guess():
    rates = np.full(200, FPR)
    rates[17] = 0.9
    lows, highs = rates / 3, np.minimum(rates * 1.1, 1.0)
    audit = exposed(rates, lows, highs, models=16)
    found, worst = verdict(audit), worst_record(audit)
    assert found.known.interval[0] <= FPR and found.level == "some" and "900 in 1,000" in found.sentence
    assert (worst.id, worst.rate, worst.source) == ("r17", 0.9, "exposure") and worst.interval == pytest.approx((0.3, 0.99))
    # Fewer models say so of some record of clean data, too.
    few = verdict(exposed(rates, lows, highs, models=15))
    assert few.level == "unknown" and "uncertain" in few.title and "estimated at 900 in 1,000 attacks" in few.sentence
    lows[17] = 0.05
    assert {verdict(exposed(rates, lows, highs, models=models)).level for models in (4, 16)} == {"none"}


def test_figures_in_doubt_are_no_answer():
    audit = predicted(0.2, (0.15, 0.3))
    changed = {"records": 64, "changed": 60, "size": 0.4, "sources": ["data"]}
    audit = replace(audit, provenance=audit.provenance | {"inputs": audit.provenance["inputs"] | {"run_again": {"train": changed}}})
    found = verdict(audit)
    assert found.level == "unknown" and "doubt" in found.title and "60 of 64" in found.sentence
    assert "random augmentation" in next_action(audit).sentence


def test_the_worst_record_is_the_best_known_one_and_the_first_by_rank_among_equals():
    audit = made()
    assert worst_record(audit) is None
    predictions = audit.records.assign(predicted_tpr=0.3, predicted_tpr_low=0.1, predicted_tpr_high=0.6)
    first = str(predictions.set_index("rank").loc[1, "id"])
    audit = replace(audit, records=predictions, model_risk=replace(audit.model_risk, predicted_tpr=0.3, in_calibration_domain=True))
    worst = worst_record(audit)
    assert (worst.id, worst.rate, worst.interval, worst.source) == (first, 0.3, (0.1, 0.6), "predicted")
    assert worst_record(replace(audit, model_risk=replace(audit.model_risk, in_calibration_domain=False))) is None
    lira = np.linspace(0, 1, 200)
    lira[3] = np.nan
    worst = worst_record(replace(audit, records=audit.records.assign(lira_tpr=lira)))
    assert (worst.id, worst.rate, worst.interval, worst.source) == ("r199", 1.0, None, "measured")


@pytest.mark.parametrize(("fpr", "said"), [(0.01, "where a guess recognises 1 in 1,000"), (0.001, "")])
def test_rates_of_records_at_another_level_name_a_guess_there(fpr, said, tmp_path):
    audit = made()
    audit = replace(audit, records=audit.records.assign(lira_tpr=np.linspace(0, 1, 200)), model_risk=replace(audit.model_risk, fpr=fpr))
    page = ns.write_report(audit, tmp_path / "report.html").read_text()
    assert (said in page) if said else ("where a guess recognises" not in page)


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (0.0614, "61 in 1,000"),
        (1 / 898, "1.1 in 1,000"),
        (0.001, "1 in 1,000"),
        (0.00999, "10 in 1,000"),
        (0.0095, "9.5 in 1,000"),
        (2e-4, "fewer than 1 in 1,000"),
        (0.00099, "fewer than 1 in 1,000"),
        (0, "0 in 1,000"),
        (1, "1,000 in 1,000"),
        (0.9996, "more than 999 in 1,000"),
        (0.9994, "999 in 1,000"),
    ],
)
def test_people_in_a_thousand(rate, words):
    assert per_thousand(rate) == words


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, "0.5"])
def test_people_in_a_thousand_are_of_a_fraction(wrong):
    with pytest.raises(InputError, match="rate must"):
        per_thousand(wrong)


def test_the_next_action_measures_until_it_is_measured_then_acts():
    strong = replace(made(), ground_truth=truth(attack("LiRA", 0.6, fpr=0.005)))
    assert "noshadow compare" in next_action(strong).command
    clean = replace(made(), ground_truth=truth(attack("LiRA", 0.006, fpr=0.005)))
    assert verdict(clean).level == "none" and "noshadow gate" in next_action(clean).command
    assert "--reference-models" in next_action(predicted(0.012, (0.005, 0.03))).command
    rates = np.full(200, 0.011)
    assert "reference score" in next_action(exposed(rates, rates / 2, rates * 2)).command
    assert "has not seen" in next_action(replace(made(), model_risk=None)).sentence


def test_a_real_audit_with_drawn_references_is_answered_by_its_exposure():
    audit = with_drawn_references()
    known = best_known(audit)
    assert known.source == "exposure" and known.interval_level == 0.9
    assert known.rate == pytest.approx(audit.records["attack_rate"].mean())
    assert known.interval[0] < known.rate < known.interval[1]


def test_findings_follow_the_measurement_and_no_longer_the_prediction():
    audit = predicted(0.012, (0.005, 0.03))
    before = {finding.code: finding for finding in ns.findings(audit)}
    after = {f.code: f for f in ns.findings(replace(audit, ground_truth=truth(attack("LiRA", 0.61), attack("RMIA", 0.5))))}
    assert (before["NS001"].status, before["NS001"].figure) == ("passed", 0.012) and "predicted" in before["NS001"].sentence
    assert (after["NS001"].status, after["NS001"].figure) == ("found", 0.61)
    assert after["NS001"].sentence == (
        "LiRA with 64 reference models was measured to recognise 610 in 1,000 members (95 % interval 590 to 630 in 1,000): "
        "61 times a guess, which is 10 in 1,000."
    )
    assert before["NS003"].status == "passed" and after["NS003"].status == "not applicable"
    rates = np.full(200, 0.3)
    weighed = {finding.code: finding for finding in ns.findings(exposed(rates, rates / 2, rates * 2))}["NS001"]
    assert (weighed.status, weighed.figure) == ("found", pytest.approx(0.3)) and "90 % interval 150 to 600 in 1,000" in weighed.sentence


def shown(audit, *, terminal, width=80):
    file = io.StringIO()
    print_audit(
        audit, Path("a/report.html"), 1.0, Console(file=file, force_terminal=terminal, width=width, highlight=False, soft_wrap=True)
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())


def test_a_pipe_gets_the_verdict_in_its_first_five_lines():
    rates = np.full(200, 0.3)
    rates[5] = 0.9
    audit = replace(exposed(rates, rates / 2, np.minimum(rates * 2, 1.0)), ground_truth=truth(attack("LiRA", 0.61), attack("RMIA", 0.5)))
    lines = shown(audit, terminal=False).splitlines()
    assert lines[0] == "Strong leakage"
    assert (
        lines[1].startswith("The strongest attack tried, LiRA with 64 reference models, recognises 610 in 1,000")
        and "a guess recognises 10 in 1,000" in lines[1]
    )
    assert lines[2].startswith("Known by: Measured on this model by LiRA") and "r5" in lines[3] and "900 in 1,000" in lines[3]
    assert lines[4].startswith("Next: ") and "noshadow compare" in lines[4]
    assert any("attack_rate 900 in 1,000 (450 to 1,000 in 1,000)" in line for line in lines)
    assert not any("Predicted attack" in line for line in lines)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_panel_and_table_fit_the_terminal(width):
    rates = np.full(200, 0.3)
    audit = exposed(rates, rates / 2, rates * 2)
    audit = replace(audit, records=audit.records.assign(id=[f"a-rather-long-identifier-of-a-record-{i}" for i in range(200)]))
    text = shown(audit, terminal=True, width=width)
    framed = [line for line in text.splitlines() if line.startswith(("│", "╭", "╰", "┃", "┏", "└", "├", "┡"))]
    assert framed and all(len(line) <= width for line in framed)
    assert "Strong leakage" in text


def test_json_carries_the_answer():
    audit = replace(predicted(0.12, (0.05, 0.2)), ground_truth=truth(attack("LiRA", 0.61)))
    said = json.loads(json.dumps(summary(audit, Path("a/report.html")), allow_nan=False))
    assert said["verdict"]["level"] == "strong" and said["worst_record"] is None and "command" in said["next_action"]
    assert (said["best_known"]["source"], said["best_known"]["rate"], said["best_known"]["attack"]) == ("measured", 0.61, "LiRA")


def test_a_comparison_holds_measured_rates_against_each_other_and_never_against_a_prediction():
    plain = predicted(0.2, (0.1, 0.3))
    first = replace(plain, ground_truth=truth(attack("LiRA", 0.61), attack("RMIA", 0.5)))
    second = replace(plain, ground_truth=truth(attack("LiRA", 0.3), attack("RMIA", 0.4)))
    found = ns.compare(first, second)
    change = found.changes[0]
    assert (change.name, change.before, change.after, change.more_than_noise) == ("measured_tpr", 0.61, 0.4, True)
    assert change.interval == pytest.approx((-0.21 - 0.02 * math.sqrt(2), -0.21 + 0.02 * math.sqrt(2)))
    assert "predicted_tpr" not in {change.name for change in found.changes} and "measured attack TPR" in found.verdict
    mixed = ns.compare(plain, second)
    assert {change.name for change in mixed.changes} == {"tnr", "auc"}
    assert "predicted in the first audit and measured in the second" in mixed.not_applicable["attack's rate"]
    assert ns.compare(plain, plain).changes[0].name == "predicted_tpr"
    rates = np.full(200, 0.3)
    weighed = exposed(rates, rates / 2, rates * 2)
    assert ns.compare(weighed, weighed).changes[0].name == "attack_rate"


def test_who_is_named_is_whom_the_rank_puts_first_and_the_largest_estimate_stands_beside():
    """Predicted rates follow the order of the records loosely: the order is known better than the sizes."""
    audit = made()
    first, second = (str(audit.records.set_index("rank").loc[place, "id"]) for place in (1, 2))
    rates = np.where(audit.records["id"] == first, 0.2, np.where(audit.records["id"] == second, 0.6, 0.1))
    records = audit.records.assign(predicted_tpr=rates, predicted_tpr_low=rates / 2, predicted_tpr_high=rates * 1.5)
    audit = replace(audit, records=records, model_risk=replace(audit.model_risk, predicted_tpr=0.3, in_calibration_domain=True))
    worst = worst_record(audit)
    assert (worst.first_id, worst.first_rate, worst.first_interval) == (first, 0.2, pytest.approx((0.1, 0.3)))
    assert (worst.id, worst.rate, worst.own_rate) == (second, 0.6, 0.6)
    line = shown(audit, terminal=False).splitlines()[3]
    assert line == (
        f"Most exposed record: {first}, recognised by 200 in 1,000 attacks, interval 100 to 300 in 1,000 (predicted; the first by rank; "
        f"the largest of 200 estimates is 600 in 1,000 of {second}, not corrected for that)"
    )
    page = first_screen(audit)
    assert [person["id"] for person in page["people"]] == list(audit.records.sort_values("rank")["id"][:3])
    assert not page["largest"]["is_first"] and page["exposure"]["worst"]["label"] == "largest estimate: 600 in 1,000"
    # What was measured goes before any order; among estimates without an order the largest goes first.
    measured = replace(audit, records=audit.records.assign(lira_tpr=rates[::-1]))
    assert worst_record(measured).first_id == worst_record(measured).id == first_screen(measured)["people"][0]["id"]
