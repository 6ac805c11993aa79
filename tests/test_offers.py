"""The price list of certainty: what sources changed and what more would buy, on the terminal, in the report and after a round trip."""

import io
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import noshadow as ns
from fixed_audits import WEIGHED, drawn_references, weighed_signals
from noshadow._answer import best_known, evidence_changes, next_action, offers, why_no_sizes
from noshadow._exposure import inputs
from noshadow._exposure.held_out import Tail
from noshadow._findings import RULES
from noshadow._known import needed_references
from noshadow.cli.printing import print_audit, summary
from noshadow.reference import plan
from noshadow.sizing import ENOUGH_FOR_TWO, LEAST_RECORDS, SIZED_RECORDS
from test_findings import made

SIZES = "an exposure and an attack rate with intervals per record"


def entry_of(audit):
    return next(entry for entry in audit.evidence if entry.source == "exposure")


@pytest.fixture(scope="module")
def plain():
    x, y = load_digits(return_X_y=True)
    return ns.audit(LogisticRegression(max_iter=2000).fit(x[:600] / 16, y[:600]), (x[:600] / 16, y[:600]), (x[600:900] / 16, y[600:900]))


@pytest.fixture(scope="module")
def weighed():
    return weighed_signals([drawn_references])


def sized(records, tests):
    """An audit of final weights with so many training and test records."""
    audit = made(records, nonmembers=np.random.default_rng(1).exponential(0.3, tests))
    return audit.with_evidence(ns.Evidence("scores"))


def test_an_audit_of_many_final_weights_is_offered_two_references():
    audit = sized(1400, 1400)
    (offer,) = offers(audit)
    assert (offer.argument, offer.trainings, offer.seconds, offer.narrower) == ("reference_models", 2.0, None, None)
    assert offer.sentence == f"two reference models (two trainings): {SIZES}"
    assert evidence_changes(audit) == () and why_no_sizes(audit) is None


def test_six_hundred_records_are_offered_an_order_from_two_references_and_sizes_from_four(plain):
    order, sizes = offers(plain)
    assert order.sentence == "two reference models (two trainings): a better order"
    assert (sizes.trainings, sizes.sentence) == (4.0, f"four reference models (four trainings): {SIZES}")
    assert evidence_changes(plain) == ()


@pytest.mark.parametrize(
    ("records", "tests", "promised", "why"),
    [
        (1399, 1400, 4, ""),
        (1400, 120, 4, ""),  # two halves leave too few test records that neither had
        (300, 300, 4, ""),
        (299, 300, 16, ""),
        (200, 200, 16, ""),
        (150, 300, None, "sizes of fewer than 200 records are not identified, whatever the number of reference models"),
        (5000, 40, None, "they take 100 test records, which show the scale, and there are 40"),
    ],
)
def test_sizes_are_promised_from_as_many_references_as_they_take(records, tests, promised, why):
    audit = sized(records, tests)
    order, *sizes = offers(audit)
    assert order.trainings == 2.0 and order.sentence.startswith("two reference models (two trainings): a better order")
    assert [offer.trainings for offer in sizes] == ([] if promised is None else [promised])
    assert all(SIZES in offer.sentence for offer in sizes) and SIZES not in order.sentence and order.sentence.endswith(why)
    assert f"--reference-models {promised or ''}".strip() in next_action(audit).command or "reference train" in next_action(audit).command
    assert ("each record then has a rate" in next_action(audit).sentence) == (promised is not None)


def planned(found, models):
    """Drawn references on halves as `plan` draws them."""
    known = drawn_references(found, models=models)
    n = len(found.train)
    inside = plan(n + len(found.unseen), models=models).membership
    margins = known.source.margins - 1.5 * known.source.membership + 1.5 * inside[:, :n]
    unseen = np.where(inside[:, n:], np.nan, known.source.test_margins)
    return replace(known, source=replace(known.source, margins=margins, membership=inside[:, :n], test_margins=unseen))


@pytest.mark.parametrize(("records", "models"), [(1400, 2), (600, 2), (600, 4), (300, 4), (250, 4), (250, 16), (150, 16)])
def test_what_is_promised_is_what_the_exposure_gives(records, models):
    """The offer and the weighing ask one function: sizes come with so many references, or they do not."""
    audit = weighed_signals([partial(planned, models=models)], records=records)
    needed = needed_references(sized(records, records)).models
    assert ("attack_rate" in audit.records) == (needed is not None and models >= needed)


def few(found, models):
    """Drawn references as an audit would have trained them."""
    known = drawn_references(found, models=models)
    source = replace(known.source, name="few references", trainings=float(models))
    return replace(known, source=source, evidence=ns.Evidence("few references", stamp={"models": models, "trainings": float(models)}))


def test_two_references_without_sizes_say_why_and_are_followed_by_four(tmp_path):
    audit = weighed_signals([partial(few, models=2)])
    assert "attack_rate" not in audit.records
    (offer,) = offers(audit)
    assert offer.sentence == f"two more reference models (two trainings): {SIZES}; reference_models=4 trains all 4 anew"
    (line,) = (line for line in audit.summary().splitlines() if line.startswith("No rates of records: "))
    assert "300 are needed. Four reference models or more, with every record in half of them, would identify sizes." in line
    screen = io.StringIO()
    print_audit(audit, tmp_path / "report.html", 1.0, Console(file=screen, soft_wrap=True, highlight=False))
    assert line in screen.getvalue() and line in ns.write_report(audit, tmp_path / "report.html").read_text()
    assert "--reference-models 4" in next_action(audit).command


def test_as_few_records_as_nobody_weighs_are_offered_no_references():
    audit = sized(300, 300)
    assert offers(replace(audit, records=audit.records.head(LEAST_RECORDS))) and not offers(
        replace(audit, records=audit.records.head(LEAST_RECORDS - 1))
    )
    assert LEAST_RECORDS == inputs.LEAST_RECORDS


def test_after_one_reference_the_offer_is_one_more():
    (offer,) = offers(weighed_signals([partial(few, models=1)], records=1500))
    assert (offer.trainings, offer.sentence) == (
        1.0,
        f"one more reference model (one training): {SIZES}; reference_models=2 trains all 2 anew",
    )


def test_models_that_stopped_early_are_not_counted_behind_a_rate():
    def short(found):
        known = drawn_references(found, models=2)
        source = replace(known.source, name="short references", early=True, trainings=0.5)
        return replace(known, source=source, evidence=ns.Evidence("short references", stamp={"models": 2, "trainings": 0.5, "stop": 0.25}))

    audit = weighed_signals([partial(few, models=5), short])
    known = best_known(audit)
    assert (known.source, known.trainings) == ("exposure", 5)
    assert "from 5 models trained for this audit (beside 2 models that helped to order the records and not to find rates)" in known.reason
    assert "beside" not in best_known(weighed_signals([partial(few, models=5)])).reason
    ordered = weighed_signals([short], records=1500)
    assert "attack_rate" not in ordered.records and "--reference-models 4" in next_action(ordered).command


def test_pages_and_help_name_the_numbers_of_records_that_sizes_take():
    root = Path(__file__).parents[1]
    said = f"{SIZED_RECORDS} training records"
    assert said in (root / "README.md").read_text() and said in (root / "docs" / "audit.md").read_text()
    told = {rule.code: rule for rule in RULES}["NS027"].next_step
    assert f"{SIZED_RECORDS} training records" in told and f"{ENOUGH_FOR_TWO:,}" in told


def test_who_has_a_checkpoint_is_not_offered_one():
    audit = WEIGHED["with_earlier_states"]()
    assert {"checkpoints", "base model"} <= {entry.source for entry in audit.evidence}
    assert "checkpoint" not in {offer.argument for offer in offers(audit)}
    bare = replace(
        audit, evidence=tuple(entry for entry in audit.evidence if entry.source not in ("checkpoints", "base model", "exposure"))
    )
    assert offers(bare)[0].argument == "checkpoint"


def test_offers_are_the_widths_that_the_exposure_promises(weighed):
    stamp = entry_of(weighed).stamp
    low, high = weighed.records["exposure_low"], weighed.records["exposure_high"]
    assert stamp["width"] == pytest.approx(float((high - low).mean()), rel=1e-12)
    assert [offer.trainings for offer in offers(weighed)] == [2.0, 4.0, 8.0]
    for offer in offers(weighed):
        assert offer.narrower == pytest.approx(1 - stamp["width_with"][str(int(offer.trainings))] / stamp["width"])
        assert f"intervals about {round(100 * offer.narrower)} % narrower" in offer.sentence
    shares = [offer.narrower for offer in offers(weighed)]
    assert 0 < shares[0] < shares[1] < shares[2] < 1


def test_the_price_in_time_is_that_of_the_trainings_that_ran(weighed):
    stamp = {"models": 3, "trainings": 1.5, "seconds": 20.0}
    trained = replace(weighed, evidence=(*weighed.evidence, ns.Evidence("few references", stamp=stamp).entry()))
    # Three models of 20 s were one and a half trainings: a whole one takes 40 s.
    assert [offer.seconds for offer in offers(trained)] == [80.0, 160.0, 320.0]
    assert "(two trainings, about 80 seconds here)" in offers(trained)[0].sentence
    assert "(four trainings, about 3 minutes here)" in offers(trained)[1].sentence


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "about 1 second here"), (50.0, "about 2 minutes here"), (30.0, "about 60 seconds here"), (5400.0, "about 3.0 hours here")],
)
def test_times_are_told_in_the_unit_a_reader_would_take(weighed, seconds, told):
    stamp = {"models": 1, "trainings": 1.0, "seconds": seconds}
    trained = replace(weighed, evidence=(*weighed.evidence, ns.Evidence("folds", stamp=stamp).entry()))
    # The first offer is two trainings.
    assert told in offers(trained)[0].sentence


@pytest.mark.parametrize(("name", "models", "offered"), [("few references", 6, 0), ("reference models", 6, 0), ("few references", 1, 1)])
def test_references_that_gave_no_sizes_are_not_offered_again(monkeypatch, name, models, offered):
    def references(found):
        known = drawn_references(found, models=models)
        return replace(known, source=replace(known.source, name=name), evidence=ns.Evidence(name, stamp={"models": models}))

    monkeypatch.setattr(Tail, "refused", property(lambda self: True))
    audit = weighed_signals([references])
    assert entry_of(audit).stamp["order_only"] and "attack_rate" not in audit.records
    assert [offer.argument for offer in offers(audit)] == ["reference_models"] * offered


def test_what_a_source_changed_is_counted_on_the_ranks(weighed):
    (step,) = entry_of(weighed).stamp["changed"]
    shift, score = weighed.records["shift"].to_numpy(), weighed.records["exposure_score"].to_numpy()
    count = max(1, round(0.01 * len(shift)))
    top = [set(np.argsort(-column, kind="stable")[:count]) for column in (shift, score)]
    assert step["moved"] == len(top[0] - top[1]) / count
    (line,) = evidence_changes(weighed)
    assert line.startswith("drawn references (6 trainings): ") and "the order alone was known before" in line


def test_terminal_and_report_say_both(weighed, plain, tmp_path):
    for number, audit in enumerate((weighed, plain)):
        screen = io.StringIO()
        print_audit(audit, tmp_path / "report.html", 1.0, Console(file=screen, soft_wrap=True, highlight=False))
        page = re.sub(r"\s+", " ", ns.write_report(audit, tmp_path / f"{number}.html").read_text())
        for line in (*evidence_changes(audit), *(offer.sentence for offer in offers(audit))):
            assert line in screen.getvalue() and line[1:] in page
    assert "The final weights alone." in page


def test_an_audit_and_its_json_hold_the_price_list_and_the_evidence(weighed, plain, tmp_path):
    for audit in (weighed, plain):
        assert audit.offers == offers(audit) and audit.offers
        told = json.loads(json.dumps(summary(audit, tmp_path / "report.html"), allow_nan=False))
        assert told["offers"] == [offer.to_dict() for offer in audit.offers]
        assert told["offers"][0].keys() == {"argument", "trainings", "seconds", "narrower", "sentence"}
        assert [entry["source"] for entry in told["evidence"]] == [entry.source for entry in audit.evidence]
        assert told["evidence_changes"] == list(evidence_changes(audit))


def test_a_folder_read_again_offers_the_same(weighed, tmp_path):
    again = ns.load(weighed.save(tmp_path / "audit"))
    assert offers(again) == offers(weighed) and evidence_changes(again) == evidence_changes(weighed)
