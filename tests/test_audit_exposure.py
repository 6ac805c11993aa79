"""Evidence beyond the final weights: the exposure columns of an audit are those of `Exposure`, and the rank follows them."""

import copy
import io
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_predict
from torch import nn

import noshadow as ns
from fixed_audits import drawn_references, weighed_signals
from noshadow._audit.exposing import Known, statistic_of
from noshadow._exposure import Source, line_to, weighed
from noshadow._exposure.held_out import Tail
from noshadow.checks import InputError
from noshadow.cli.printing import print_audit
from noshadow.columns import meaning
from noshadow.figures import Evidence
from noshadow.losses import record_losses
from noshadow.report.formats import interval
from noshadow.results.audit_record import ranks

NAMES = ("exposure", "exposure_low", "exposure_high", "attack_rate", "attack_rate_low", "attack_rate_high")
FREE = ("shift", "leverage", "newton", "margin_leverage", "entropy")


def entry_of(audit, source="exposure"):
    return next(entry for entry in audit.evidence if entry.source == source)


@pytest.fixture(scope="module")
def weighing():
    """An audit with drawn references, and what `weighed` says of the same arrays."""
    held = {}

    def kept(found):
        held["found"] = found
        held["known"] = drawn_references(found)
        return held["known"]

    audit = weighed_signals([kept], fpr=0.02)
    found = held["found"]
    own, unseen = (
        statistic_of(split.outputs, targets, found.task)
        for split, targets in ((found.train, found.targets), (found.seen.test, found.unseen))
    )
    free = {name: audit.records[name].to_numpy() for name in FREE}
    return audit, weighed(own, unseen, [held["known"].source], free=free), line_to(held["known"].source, unseen)


def test_the_columns_are_those_of_the_exposure(weighing):
    audit, expected, _ = weighing
    assert not expected.order_only and audit.ranked_by == "exposure_score"
    rates = expected.tpr_interval(0.02)
    wanted = (expected.d_prime, *expected.interval.T, expected.tpr(0.02), *rates.T)
    for name, values in zip(NAMES, wanted, strict=True):
        np.testing.assert_array_equal(audit.records[name], values, err_msg=name)
    np.testing.assert_array_equal(audit.records["exposure_score"], expected.score)
    np.testing.assert_array_equal(audit.records["rank"], ranks(expected.score))
    assert not set(NAMES) & set(audit.not_applicable)


def test_the_stamp_says_how_the_sources_were_weighed(weighing):
    audit, expected, line = weighing
    stamp = entry_of(audit).stamp
    assert stamp["rule"] == expected.rule and stamp["fpr"] == 0.02 and stamp["level"] == 0.9 and not stamp["order_only"]
    assert stamp["trainings"] == {"drawn references": 6.0} and stamp["weights"] == dict(expected.weights)
    assert stamp["lines"] == {"drawn references": {"records": 600, "offset": line.offset, "slope": line.slope}}


def test_rates_are_refused_where_left_out_references_contradict_the_spread(weighing, monkeypatch):
    audit, expected, _ = weighing
    assert entry_of(audit).stamp["tail"] == asdict(expected.state.tail) and expected.state.tail.margins > 1000
    monkeypatch.setattr(Tail, "refused", property(lambda self: True))
    refused = weighed_signals([drawn_references], fpr=0.02)
    assert entry_of(refused).stamp["order_only"] and "attack_rate" not in refused.records
    assert "times as far as their spread says" in refused.not_applicable["attack_rate"]
    # The order stays.
    np.testing.assert_array_equal(refused.records["rank"], audit.records["rank"])


def test_the_rate_is_that_of_the_audits_own_level():
    audit = weighed_signals([drawn_references])
    assert entry_of(audit).stamp["fpr"] == audit.model_risk.fpr == 1 / 600


def test_a_source_without_a_scale_takes_no_sizes_away():
    """Out-of-fold margins beside references count as a covariate; alone they give the order."""

    def folds(found):
        margins = statistic_of(found.train.outputs, found.targets, found.task) - 1.0
        margins = (margins + 0.5 * np.random.default_rng(8).normal(size=len(margins)))[None, :]
        return Known(Source("folds", margins=margins, membership=np.zeros(margins.shape, bool)), Evidence("folds"))

    alone, both = weighed_signals([folds]), weighed_signals([drawn_references, folds])
    assert alone.ranked_by == "exposure_score" and "folds say nothing about test records" in alone.not_applicable["exposure"]
    assert "attack_rate" in alone.not_applicable and not set(NAMES) & set(alone.records)
    assert set(NAMES) <= set(both.records) and entry_of(both).stamp["covariates_only"] == ["folds"]
    assert entry_of(both).stamp["weights"]["folds"] > 0


def test_refused_rates_are_not_put_down_to_a_source_that_is_a_covariate(monkeypatch):
    """Folds beside references have no scale; it is not for them that the rates are refused, and the order stays the references'."""

    def folds(found):
        margins = statistic_of(found.train.outputs, found.targets, found.task)[None, :] - 1.0
        return Known(
            Source(
                "folds",
                margins=margins + 0.5 * np.random.default_rng(8).normal(size=margins.shape),
                membership=np.zeros_like(margins, bool),
            ),
            Evidence("folds"),
        )

    told = weighed_signals([drawn_references, folds])
    monkeypatch.setattr(Tail, "refused", property(lambda self: True))
    refused = weighed_signals([drawn_references, folds])
    for column in ("exposure", "attack_rate"):
        assert "times as far as their spread says" in refused.not_applicable[column] and "folds" not in refused.not_applicable[column]
    assert entry_of(refused).stamp["covariates_only"] == ["folds"]
    np.testing.assert_array_equal(refused.records["exposure_score"], told.records["exposure_score"])


def test_without_further_evidence_nothing_changes():
    audit = weighed_signals([])
    assert audit.ranked_by == "shift" and not {"exposure_score", *NAMES} & set(audit.records)
    assert "exposure" not in {entry.source for entry in audit.evidence} and "exposure" not in audit.not_applicable


def test_an_audit_with_exposure_comes_back_from_its_folder(weighing, tmp_path):
    audit = weighing[0]
    again = ns.load(audit.save(tmp_path / "audit"))
    assert again.ranked_by == "exposure_score" and again.evidence == audit.evidence and again.findings == audit.findings
    assert again.records.equals(audit.records) and ns.findings(again) == audit.findings
    page = ns.write_report(again, tmp_path / "report.html").read_text()
    first = again.records.nsmallest(1, "rank").iloc[0]
    for name in ("exposure", "attack_rate"):
        assert f"({interval((first[f'{name}_low'], first[f'{name}_high']))})" in page, name
    assert "Brackets hold both ends of an interval." in page and meaning("attack_rate", "classification", at_level="")[:40] in page


def test_the_terminal_shows_sizes_and_rates(weighing):
    out = io.StringIO()
    print_audit(weighing[0], Path("report.html"), 1.0, Console(file=out, width=300))
    # A size, and a rate in people with both ends of its interval.
    people = r"(fewer than |more than )?[\d.,]+"
    assert re.search(rf"exposure \S+, attack_rate {people} in 1,000 \({people} to {people} in 1,000\)", out.getvalue())


# Out-of-fold outputs


def cut(load, *, scale=True):
    x, y = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x / x.std(0).clip(0.1) if scale else x)[order], y[order]
    half = len(x) // 2
    return (x[:half], y[:half]), (x[half:], y[half:])


def fitted():
    return LogisticRegression(C=10, max_iter=5000)


@pytest.fixture(scope="module")
def digits():
    train, test = cut(load_digits)
    return fitted().fit(*train), train, test, cross_val_predict(fitted(), *train, method="predict_proba")


@pytest.fixture(scope="module")
def tumours():
    train, test = cut(load_breast_cancer)
    return fitted().fit(*train), train, test, cross_val_predict(fitted(), *train, method="predict_proba")


def audited(model, train, test, out_of_fold, **more):
    return ns.audit(model, train, test, out_of_fold=out_of_fold, progress=False, **more)


def test_constant_out_of_fold_outputs_are_refused_by_their_name(digits):
    model, train, test, folds = digits
    with pytest.raises(InputError, match=r"^audit: out_of_fold must differ between records; got the same output for every record"):
        ns.audit(model, train, test, out_of_fold=np.full_like(folds, 0.1), progress=False)
    alike = np.full_like(folds, 0.1 / 9)
    alike[np.arange(len(folds)), train[1]] = 0.9
    with pytest.raises(InputError, match=r"^audit: out_of_fold must differ between records; got the margin 2\.19722 for every record"):
        ns.audit(model, train, test, out_of_fold=alike, progress=False)


def test_the_losses_are_those_of_the_given_outputs(digits):
    model, train, test, folds = digits
    audit = audited(model, train, test, folds)
    # Of p near 1 only the digits of 1 − p are left, some 1e-16 each.
    np.testing.assert_allclose(audit.records["out_of_fold_loss"], -np.log(folds[np.arange(len(folds)), train[1]]), rtol=1e-6, atol=1e-12)
    logits = cross_val_predict(fitted(), *train, method="decision_function")
    by_logits = audited(model, train, test, logits)
    np.testing.assert_array_equal(by_logits.records["out_of_fold_loss"], record_losses(logits, train[1], "classification"))
    assert by_logits.ranked_by == "exposure_score" and "say nothing about test records" in by_logits.not_applicable["exposure"]
    assert entry_of(by_logits, "out-of-fold outputs").stamp == {"trainings": 0.0, "matched_by": "position"}


def test_two_classes_in_one_column_or_two(tumours):
    model, train, test, folds = tumours
    logits = cross_val_predict(fitted(), *train, method="decision_function")
    expected = np.logaddexp(0, np.where(train[1] == 1, -1, 1) * logits)
    for given, digits_kept in ((logits, 1e-12), (folds, 1e-6), (folds[:, 1], 1e-6)):
        losses = audited(model, train, test, given).records["out_of_fold_loss"].to_numpy()
        # 1 − p has lost the digits of logits beyond about 20.
        np.testing.assert_allclose(losses, expected, rtol=digits_kept, atol=1e-9)


def test_predictions_of_a_regression():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 8))
    y = x @ rng.normal(size=8) + rng.normal(size=300)
    train, test = (x[:150], y[:150]), (x[150:], y[150:])
    folds = cross_val_predict(Ridge(), *train)
    audit = audited(Ridge().fit(*train), train, test, folds)
    np.testing.assert_allclose(audit.records["out_of_fold_loss"], (train[1] - folds) ** 2, rtol=1e-12)
    assert entry_of(audit).stamp["direction"] == "either" and audit.ranked_by == "exposure_score"
    with pytest.raises(InputError, match=r"out_of_fold must agree with the audited model|speak of the audited model's records"):
        audited(Ridge().fit(*train), train, test, folds[::-1])


def test_own_predictions_are_known_in_single_precision():
    """A large offset leaves float32 few digits of the spread."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(100, 3))
    y = x @ rng.normal(size=3) + 2000
    train, test = (x[:60], y[:60]), (x[60:], y[60:])
    model = Ridge().fit(*train)
    with pytest.raises(InputError, match="got the audited model's own"):
        audited(model, train, test, model.predict(train[0]).astype(np.float32))


def test_several_outputs_have_losses_and_no_exposure():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(200, 4))
    y = x @ rng.normal(size=(4, 2)) + 0.3 * rng.normal(size=(200, 2))
    train, test = (x[:100], y[:100]), (x[100:], y[100:])
    folds = cross_val_predict(Ridge(), *train)
    audit = audited(Ridge().fit(*train), train, test, folds)
    np.testing.assert_allclose(audit.records["out_of_fold_loss"], ((train[1] - folds) ** 2).sum(1), rtol=1e-12)
    assert audit.ranked_by == "shift" and "several residuals" in audit.not_applicable["exposure_score"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (lambda folds, model, train: model.predict_proba(train[0]), "another model's outputs; got the audited model's own"),
        (lambda folds, model, train: model.predict_proba(train[0])[::-1], "the audited model's own in another order"),
        (lambda folds, model, train: folds[::-1], "speak of the audited model's records in their order"),
        (lambda folds, model, train: folds[:, ::-1], "the classes in the order of the model's; got columns that get"),
        (lambda folds, model, train: folds[:-1], "one row for each of 898 training records; got 897"),
        (lambda folds, model, train: model.predict(train[0]), "10 columns, one per class; got 1. Ask cross_val_predict"),
        (lambda folds, model, train: np.array(["a"] * len(folds)), "hold numbers, the outputs of models"),
        (lambda folds, model, train: folds / 3, "probabilities that sum to one in every row"),
        (
            lambda folds, model, train: np.where(folds == folds.max(), np.nan, folds),
            "be known for every training record; got 1 NaN or infinite values",
        ),
        (lambda folds, model, train: "folds.pkl", "end in .npy, .npz, .csv, .parquet"),
        (lambda folds, model, train: "missing.npy", "be a file that exists"),
    ],
)
def test_what_is_not_out_of_fold_is_refused(digits, changed, says):
    model, train, test, folds = digits
    with pytest.raises(InputError, match=f"audit: out_of_fold must .*{says}"):
        audited(model, train, test, changed(folds, model, train))


def test_labels_and_what_may_be_either_are_refused_for_two_classes(tumours):
    model, train, test, folds = tumours
    with pytest.raises(InputError, match=r"got predicted labels, all 0 or 1\. Ask cross_val_predict"):
        audited(model, train, test, model.predict(train[0]))
    with pytest.raises(InputError, match=r"which may be either\. Give the probabilities of both classes"):
        audited(model, train, test, np.random.default_rng(0).uniform(0.63, 0.69, len(folds)))


def test_files_are_matched_by_id(digits, tmp_path):
    model, train, test, folds = digits
    names = [f"p{i:04}" for i in range(len(folds))]
    expected = audited(model, train, test, folds, ids=names).records["out_of_fold_loss"]
    mixed = np.random.default_rng(1).permutation(len(folds))
    table = pd.DataFrame(folds[mixed]).assign(id=np.array(names)[mixed])
    table.columns = table.columns.astype(str)
    np.savez(tmp_path / "folds.npz", outputs=folds[mixed], ids=np.array(names)[mixed])
    np.save(tmp_path / "folds.npy", folds)
    table.to_csv(tmp_path / "folds.csv", index=False)
    table.to_parquet(tmp_path / "folds.parquet", index=False)
    for suffix in ("npz", "npy", "csv", "parquet"):
        audit = audited(model, train, test, tmp_path / f"folds.{suffix}", ids=names)
        np.testing.assert_allclose(audit.records["out_of_fold_loss"], expected, rtol=1e-12, err_msg=suffix)
    assert entry_of(audit, "out-of-fold outputs").stamp["matched_by"] == "id"
    with pytest.raises(InputError, match="have the ids of the training records; got no row of record '0'"):
        audited(model, train, test, tmp_path / "folds.csv")
    (tmp_path / "words.csv").write_text("id,a\n1,x\n2,y\n")
    with pytest.raises(InputError, match="its column 'a' holds no numbers"):
        audited(model, train, test, tmp_path / "words.csv")


def test_a_table_in_another_order_than_the_records_is_refused(digits):
    model, train, test, folds = digits
    names = [f"p{i}" for i in range(len(folds))]
    x = pd.DataFrame(train[0], index=names)
    held = pd.DataFrame(folds, index=names)
    expected = audited(model, (x.to_numpy(), train[1]), test, folds).records["out_of_fold_loss"]
    fresh = fitted().fit(x, train[1])
    got = audited(fresh, (x, train[1]), (pd.DataFrame(test[0]), test[1]), held).records["out_of_fold_loss"]
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    with pytest.raises(InputError, match="out_of_fold must have the index of the records' X"):
        audited(fresh, (x, train[1]), (pd.DataFrame(test[0]), test[1]), held.iloc[::-1])


def test_too_few_records_are_not_weighed():
    train, test = cut(load_breast_cancer)
    train = (train[0][:15], train[1][:15])
    folds = cross_val_predict(fitted(), *train, cv=3, method="predict_proba")
    audit = audited(fitted().fit(*train), train, test, folds)
    assert audit.ranked_by == "shift" and "15 records are fewer than the 20" in audit.not_applicable["exposure_score"]


# Findings


def test_shares_of_an_order_are_no_finding(weighing, digits):
    """NS010 sums exposures where there are sizes, and nothing where there is an order only."""
    audit, expected, _ = weighing
    drawn = {finding.code: finding for finding in audit.findings}
    sizes = np.maximum(expected.d_prime, 0)
    top = np.argsort(-expected.score, kind="stable")[:6]
    assert drawn["NS010"].figure == pytest.approx(sizes[top].sum() / sizes.sum(), rel=1e-12)
    assert "of the summed exposure." in drawn["NS010"].sentence
    model, train, test, folds = digits
    order = {finding.code: finding for finding in audited(model, train, test, folds).findings}
    assert order["NS010"].status == "not applicable" and "order of the records only" in order["NS010"].sentence


def test_the_error_of_approximate_scores_is_that_of_the_shift():
    train, test = cut(load_digits)
    model, folds = fitted().fit(*train), cross_val_predict(fitted(), *train, method="predict_proba")
    audit = audited(model, train, test, folds, score_options={"method": "ekfac", "refine": 10})
    found = next(finding for finding in audit.findings if finding.code == "NS024")
    plain = ns.audit(model, train, test, progress=False, score_options={"method": "ekfac", "refine": 10})
    assert found == next(finding for finding in plain.findings if finding.code == "NS024")


def test_a_base_that_knows_nothing_of_the_records_is_left_out():
    """An untrained head ranks records upside down: where it has learnt them, the fine-tuned model moved away from its chance."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 20)).astype(np.float32)
    y = (x[:, :3] + rng.gumbel(size=(1200, 3))).argmax(1)
    base = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
    model = copy.deepcopy(base)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(torch.tensor(x[:600])), torch.tensor(y[:600])).backward()
        optimiser.step()
    splits = (x[:600], y[:600]), (x[600:], y[600:])
    plain, beside = (ns.audit(model.eval(), *splits, progress=False, **given) for given in ({}, {"base": base.eval()}))
    (held,) = (entry for entry in beside.evidence if entry.source == "base model")
    assert any("the base is left out" in note for note in held.notes) and "base_loss" in beside.records
    order = [audit.records.sort_values("rank")["id"].tolist() for audit in (plain, beside)]
    assert plain.ranked_by == "shift" and order[0] == order[1]
