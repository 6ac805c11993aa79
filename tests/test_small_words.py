"""Words that pages and terminals say: numbers of things, where the rest stands, how a line is drawn."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import noshadow as ns
from noshadow._glance.lines import TOP_FINDINGS
from noshadow.report.tail_chart import _told
from noshadow.tail.prediction import FOUR_REFERENCES, _unlike
from test_findings import SCORES, SPLITS, made

BAD_SCORES = {"stationarity": 5.0, "condition": 1e15, "head_residual": 0.1, "damping_kind": "automatic"}
TEMPLATES = Path(ns.__file__).parent / "report" / "templates"


@pytest.mark.parametrize(
    ("found", "above", "words"),
    [
        (0, None, "LiRA finds no records more often than not."),
        (1, 0.0, "LiRA finds one record more often than not; without it in training it lies below τ."),
        (1, 1.0, "LiRA finds one record more often than not; without it in training it lies above τ."),
        (7, 0.0, "LiRA finds 7 records more often than not; without them in training none of them lies above τ."),
        (8, 0.25, "LiRA finds 8 records more often than not; without them in training a share of 0.25 of them lies above τ."),
        (9, 1.0, "LiRA finds 9 records more often than not; without them in training all of them lie above τ."),
    ],
)
def test_the_tail_counts_its_records_in_words(found, above, words):
    assert _told(found, above) == words


def test_an_extrapolation_is_drawn_as_its_caption_says():
    style, page = (TEMPLATES / "explorer.css").read_text(), (TEMPLATES / "curve.html.j2").read_text()
    assert "Dotted: an extrapolation" in page and re.search(r"tnr-beyond {[^}]*dotted", style)


def test_a_rate_outside_of_a_calibration_is_no_thing_of_the_models():
    within = SimpleNamespace(domain={FOUR_REFERENCES: (0.1, 0.2), "tnr": (0.1, 0.2)})
    rate, tnr = _unlike(within, {FOUR_REFERENCES: 0.9, "tnr": 0.9})
    assert rate == "the rate that LiRA with four reference models has at FPR 0.01, 0.9, is outside that of the setups (0.1 to 0.2)"
    assert tnr == "its loss-tail TNR of 0.9 is outside that of the setups (0.1 to 0.2)"


def test_a_summary_names_no_report_that_does_not_exist():
    audit = made(shift=[1.0] * 197 + [np.inf] * 3, provenance={"scores": SCORES | BAD_SCORES, "splits": SPLITS | {"shared_with_test": 3}})
    more = sum(finding.status == "found" for finding in ns.findings(audit)) - TOP_FINDINGS
    assert more > 0 and f"… and {more} more\n" in audit.summary() and "in the report" not in audit.summary()
