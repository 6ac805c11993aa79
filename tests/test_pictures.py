"""What the charts of docs/ share, tools/pictures.py: the same bytes every time, texts that stay texts, figures where they belong."""

import importlib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("pictures")


def drawn(pictures):
    figure, (left, right) = pictures.panels(["A < B", "Decades"], ["first", "second"])
    left.plot([0, 1], [0, 0.123456789])
    right.plot([0, 1e-4, 1], [5, 5, 7], **pictures.POINTS)
    pictures.finish(left, "x, seconds", "y", x_ends=(0, 2), y_ends=(0, 1))
    pictures.finish(right, "rate", "y", log="x", y_ends=(0, 10))
    return pictures.svg(figure, 'Two "panels" & more')


def test_the_same_figure_is_the_same_text_whatever_the_machine_prefers(pictures):
    first = drawn(pictures)
    pictures.matplotlib.rcParams.update({"font.size": 30, "svg.fonttype": "path", "lines.linewidth": 9})
    assert drawn(pictures) == first
    assert "date" not in first.lower() and "creator" not in first.lower()


def test_a_picture_has_a_title_a_white_page_and_texts(pictures):
    root = ET.fromstring(drawn(pictures))
    assert root.get("role") == "img" and root.get("aria-label") == root.find(f"{SVG}title").text == 'Two "panels" & more'
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == ("600", "272", "0 0 600 272")
    page = next(root.iter(f"{SVG}path"))
    assert page.get("d") == "M 0 272 L 600 272 L 600 0 L 0 0 z" and "#ffffff" in page.get("style")
    assert {"A < B", "Decades", "first", "second", "x, seconds", "rate", "1e-4", "0.01", "1"} <= {t.text for t in root.iter(f"{SVG}text")}


def test_figures_stand_where_the_axes_say(pictures):
    root = ET.fromstring(drawn(pictures))
    # Panels of 300 pixels, margins of 52, 12, 34 and 44: a unit is 118 pixels across on the left, a decade 59 on the right.
    (line,) = (path for path in root.iter(f"{SVG}path") if path.get("d").startswith("M 52 206 L 170"))
    assert line.get("d") == f"M 52 206 L 170 {206 - 0.123456789 * 172:.1f}"
    # Zero has no place on a logarithmic axis.
    assert [(use.get("x"), use.get("y")) for use in root.iter(f"{SVG}use")] == [("352", "120"), ("588", "85.6")]


def test_every_chart_of_the_docs_was_drawn_this_way_and_has_a_title():
    charts = sorted((ROOT / "docs" / "images").rglob("*.svg"))
    assert len(charts) == 29
    for path in charts:
        root = ET.parse(path).getroot()
        assert root.get("aria-label") == root.find(f"{SVG}title").text and list(root.iter(f"{SVG}text")), path.name
