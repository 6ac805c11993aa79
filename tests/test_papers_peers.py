"""The chart of tools/papers_peers_picture.py: every method is found on it, where its figures say, and can be read."""

import importlib
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import pytest

SVG = "{http://www.w3.org/2000/svg}"
ROWS = {
    "noshadow audit: shift": (0.9, 0.6),
    "noshadow audit: Newton": (0.9, 0.6),
    "loss": (0.01, 0.4),
    "cleanlab: label quality, in sample": (0.0101, 0.4),
    "ART: SHAPr": (28.0, 0.05),
    "RMIA, 1 reference": (1.4, 0.1),
    "LiRA's d′, 16 references": (22.4, 0.62),
    "SACRO-ML: LiRA, 2 shadow models, offline, its default": (1.0, 0.08),
}
LABELS = ["shift", "Newton", "loss", "cleanlab, in sample", "SHAPr (ART)", "RMIA, 1", "d′, 16", "SACRO-ML, 2, offline"]
# Width of a letter and height of a line, in pixels.
LETTER, LINE = 5.9, 12


@pytest.fixture
def chart(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "tools"))
    return importlib.import_module("papers_peers_picture")


def entry(**more):
    rows = [{"method": name, "processor": seconds, "recall_1_5": recall} for name, (seconds, recall) in (ROWS | more).items()]
    return {"title": "A < B", "references": 64, "rows": rows, "ceiling": {"recall_1_5": 0.7}}


@pytest.fixture
def root(chart):
    return ET.fromstring(chart.peers_picture(entry()))


def texts(root):
    return [element.text for element in root.iter(f"{SVG}text")]


def marks(root, family):
    (group,) = (group for group in root.iter(f"{SVG}g") if group.get("id") == f"family-{family}")
    return [(float(mark.get("x")), float(mark.get("y"))) for mark in group.iter(f"{SVG}use")]


def test_each_method_has_its_label_and_the_levels_and_axes_are_named(root):
    levels = {"noise between halves of the truth", "random order"}
    axes = {"processor seconds beyond the trained model", "recall of LiRA's top 1 % in the top 5 %", "0.01", "100", "20 %"}
    assert set(LABELS) | levels | axes | {"A < B", "noshadow audit"} <= set(texts(root))


def test_marks_stand_where_the_figures_say(root):
    # Seconds: an axis from 0.01 to 100 between pixels 60 and 880. Recall: from 0 to 1.08 · 0.7, pixels 420 to 34; pixels have one decimal.
    x, y = 60 + (0.9542425094 - 1 + 2) / 4 * 820, 420 - 0.6 / 0.756 * 386
    assert marks(root, 0) == [pytest.approx((x, y), abs=0.06)] * 2
    assert [len(marks(root, family)) for family in range(4)] == [2, 3, 2, 1]


def test_labels_do_not_cover_each_other(root):
    boxes = []
    for element in root.iter(f"{SVG}text"):
        if element.text in LABELS:
            x, y, length = float(element.get("x")), float(element.get("y")), LETTER * len(element.text)
            boxes.append((x - length if "text-anchor: end" in element.get("style") else x, y, length))
    assert len(boxes) == len(LABELS)
    for (x, y, length), (x2, y2, length2) in combinations(boxes, 2):
        # Baselines a line apart, or one ends before the other begins.
        assert abs(y - y2) >= LINE or x + length <= x2 or x2 + length2 <= x


def test_a_method_of_no_family_is_not_left_out_in_silence(chart):
    with pytest.raises(StopIteration):
        chart.peers_picture(entry(unheard=(1.0, 0.5)))
