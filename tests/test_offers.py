"""The price list of certainty: what sources changed and what more would buy, on the terminal, in the report and after a round trip."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import noshadow as ns
from fixed_audits import WEIGHED, drawn_references, weighed_signals
from noshadow._answer import evidence_changes, offers
from noshadow._exposure.held_out import Tail
from noshadow.cli.printing import print_audit


def entry_of(audit):
    return next(entry for entry in audit.evidence if entry.source == "exposure")


@pytest.fixture(scope="module")
def plain():
    x, y = load_digits(return_X_y=True)
    return ns.audit(LogisticRegression(max_iter=2000).fit(x[:600] / 16, y[:600]), (x[:600] / 16, y[:600]), (x[600:900] / 16, y[600:900]))


@pytest.fixture(scope="module")
def weighed():
    return weighed_signals([drawn_references])


def test_an_audit_of_final_weights_is_offered_two_references(plain):
    (offer,) = offers(plain)
    assert (offer.argument, offer.trainings, offer.seconds, offer.narrower) == ("reference_models", 2.0, None, None)
    assert offer.sentence == "two reference models (two trainings): an exposure and an attack rate with intervals per record"
    assert evidence_changes(plain) == ()


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


def test_a_folder_read_again_offers_the_same(weighed, tmp_path):
    again = ns.load(weighed.save(tmp_path / "audit"))
    assert offers(again) == offers(weighed) and evidence_changes(again) == evidence_changes(weighed)
