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


@pytest.fixture
def chart(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "tools"))
    return importlib.import_module("papers_peers_picture")


@pytest.fixture
def root(chart):
    rows = [{"method": name, "processor": seconds, "recall_1_5": recall} for name, (seconds, recall) in ROWS.items()]
    return ET.fromstring(chart.peers_picture({"title": "A < B", "references": 64, "rows": rows, "ceiling": {"recall_1_5": 0.7}}))


def texts(root):
    return [element.text for element in root.iter(f"{SVG}text")]


def test_each_method_has_its_label_and_the_levels_are_named(root):
    assert set(LABELS) | {"noise between halves of the truth", "random order", "A < B"} <= set(texts(root))


def test_marks_stand_where_the_figures_say(root):
    circles = [circle for circle in root.iter(f"{SVG}circle") if float(circle.get("cy")) < 450]
    # Seconds: an axis from 0.01 to 100 between pixels 60 and 880. Recall: from 0 to 1.08 · 0.7, pixels 420 to 34; pixels have one decimal.
    x, y = 60 + (0.9542425094 - 1 + 2) / 4 * 820, 420 - 0.6 / 0.756 * 386
    assert [(float(c.get("cx")), float(c.get("cy"))) for c in circles] == [pytest.approx((x, y), abs=0.06)] * 2


def test_labels_do_not_cover_each_other(chart, root):
    boxes = []
    for element in root.iter(f"{SVG}text"):
        if element.text in LABELS:
            x, y, length = float(element.get("x")), float(element.get("y")), chart.LETTER * len(element.text)
            boxes.append((x - length if element.get("class") == "e" else x, y, length))
    assert len(boxes) == len(LABELS)
    for (x, y, length), (x2, y2, length2) in combinations(boxes, 2):
        # Baselines a line apart, or one ends before the other begins.
        assert abs(y - y2) >= chart.LINE or x + length <= x2 or x2 + length2 <= x
