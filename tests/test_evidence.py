"""Evidence: what a source writes is replaced whole, records are ranked anew, findings are drawn anew, and disk keeps it."""

from dataclasses import replace

import numpy as np
import pytest

import noshadow as ns
from fixed_audits import signals_classes_in_groups_with_traces, signals_without_features, with_attacks
from noshadow._audit.evidence import score_evidence
from noshadow.checks import InputError
from noshadow.columns import named
from noshadow.results import Audit, Evidence


@pytest.fixture(scope="module")
def audit():
    return signals_classes_in_groups_with_traces()


def shifted(audit, sign=1.0, **more):
    """Scores of another opinion on who is riskiest."""
    n = len(audit.records)
    return Evidence("scores", {"shift": sign * np.arange(n, dtype=np.float64)}, **more)


def test_a_source_replaces_what_it_wrote_and_nothing_else(audit):
    first = audit.with_evidence(shifted(audit, absent={"newton": "not applicable: said first"}, notes=("said first",)))
    assert "leverage" not in first.records and "newton" not in first.records  # written by the source before
    assert first.not_applicable["newton"] == "not applicable: said first" and first.notes[-1] == "said first"
    second = first.with_evidence(shifted(audit, -1.0, notes=("said next",)))
    assert "newton" not in second.not_applicable and "said first" not in second.notes and second.notes[-1] == "said next"
    np.testing.assert_array_equal(second.records["lt_iqr"], audit.records["lt_iqr"])
    assert [entry.source for entry in second.evidence] == ["losses", "rates", "traces", "scores"]
    assert next(entry for entry in second.evidence if entry.source == "scores").columns == ("shift",)


def test_records_are_ranked_anew_by_the_best_column_there_is(audit):
    rising = audit.with_evidence(shifted(audit))
    assert rising.ranked_by == "shift" and rising.records["rank"].tolist() == list(range(40, 0, -1))
    falling = rising.with_evidence(shifted(audit, -1.0))
    assert falling.records["rank"].tolist() == list(range(1, 41))
    other = rising.with_evidence(Evidence("scores", {"influence": np.arange(40.0)}))
    assert other.ranked_by == "influence" and "shift" not in other.records
    unscored = rising.with_evidence(Evidence("scores", {"leverage": np.arange(40.0)}))
    assert unscored.ranked_by == "loss" and unscored.records.sort_values("rank")["loss"].is_monotonic_decreasing


def test_a_model_without_scores_is_ranked_once_there_is_something_to_rank_by():
    bare = signals_without_features()
    assert bare.ranked_by == "loss" and "shift" in bare.not_applicable
    ranked = bare.with_evidence(shifted(bare))
    assert ranked.ranked_by == "shift" and "rank" not in ranked.not_applicable and "shift" not in ranked.not_applicable


def test_findings_are_drawn_anew(audit):
    n = len(audit.records)
    infinite = np.where(np.arange(n) == 3, np.inf, 0.0)
    before, after = audit, audit.with_evidence(Evidence("scores", {"shift": infinite}))
    status = [next(f.status for f in each.findings if f.code == "NS014") for each in (before, after)]
    assert status == ["passed", "found"]
    assert after.findings == ns.findings(after)


def test_columns_keep_the_order_of_the_registry(audit):
    names = list(audit.records.columns)
    mixed = replace(audit, records=audit.records[names[::-1]])
    assert list(mixed.with_evidence().records.columns) == names


def test_evidence_is_kept_on_disk(tmp_path):
    measured = with_attacks()
    again = ns.load(measured.save(tmp_path / "audit"))
    assert again.evidence == measured.evidence and {entry.source for entry in again.evidence} >= {"losses", "scores", "reference models"}
    entry = next(entry for entry in again.evidence if entry.source == "reference models")
    assert entry.columns == tuple(name for name in again.records if name in entry.columns) and entry.stamp["models"] == 16
    assert len(entry.digest) == 64
    # What was read is as good a start as what was made.
    assert again.with_evidence(shifted(again)).findings == measured.with_evidence(shifted(measured)).findings


def test_the_digest_tells_columns_apart(audit):
    digests = {shifted(audit, sign).entry().digest for sign in (1.0, -1.0, 1.0)}
    renamed = Evidence("scores", {"influence": np.arange(40.0)}).entry().digest
    assert len(digests) == 2 and renamed not in digests


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: Evidence("", {}), "source must be a name"),
        (lambda: Evidence("mine", {"guess": np.zeros(40)}), "be registered, and"),
        (lambda: Evidence("mine", {"id": np.arange(40)}), "no identity or rank"),
        (lambda: Evidence("mine", {"rank": np.arange(40)}), "no identity or rank"),
        (lambda: Evidence("scores", {"shift": np.zeros((40, 1))}), "one number per record"),
        (lambda: Evidence("scores", {"shift": np.array(["a"] * 40)}), "one number per record"),
        (lambda: Evidence("scores", {"shift": np.zeros(40), "loo": np.zeros(39)}), "have one length"),
    ],
)
def test_what_is_no_evidence_is_refused(made, says):
    with pytest.raises(InputError, match=says):
        made()


def test_evidence_for_other_records_or_of_others_columns_is_refused(audit):
    with pytest.raises(InputError, match="one value for each of 40 records; got 3"):
        audit.with_evidence(Evidence("scores", {"shift": np.zeros(3)}))
    with pytest.raises(InputError, match="columns of its own; got lt_iqr of another source"):
        audit.with_evidence(Evidence("somebody", {"lt_iqr": np.zeros(40)}))
    with pytest.raises(InputError, match="be Evidence; got dict"):
        audit.with_evidence({"shift": np.zeros(40)})


def test_an_audit_of_an_older_version_without_entries_takes_evidence(audit):
    old = replace(audit, evidence=())
    assert isinstance(old, Audit)
    found = old.with_evidence(shifted(audit))
    assert "leverage" not in found.records and found.records["lt_iqr"].equals(audit.records["lt_iqr"])


def test_a_column_that_a_method_does_not_give_is_said_to_be_absent():
    scores = ns.record_scores(np.eye(4)[:, :2], np.zeros((4, 3)), [0, 1, 2, 0], damping=1.0, columns=["shift"])
    said = score_evidence(scores)
    assert set(said.columns) == {"shift"}
    assert said.absent["influence"] == "not applicable: the method 'exact' does not give it"
    assert set(named(source="scores", score=True)) == {*said.columns, *said.absent}
