"""docs/papers.md claims what a reader finds: every figure and table has a row, whose links, pictures and results are there."""

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROWS = json.loads((ROOT / "benchmarks" / "papers" / "inventory.json").read_text())["rows"]
# Figures and tables that each paper numbers.
NUMBERED = {"RET": (7, 6), "GLS": (5, 2), "TAIL": (8, 2), "LOOD": (19, 1)}
STATUSES = ("re-made", "in part", "not made")
PICTURE = re.compile(r"^!\[.*\]\((images/[^)]+)\)$", flags=re.MULTILINE)
# "[GLS] Table 2, Table 1 and Figure 1", "[TAIL] Tables 1 and 2".
NAMED = re.compile(r"\[(RET|GLS|TAIL|LOOD)\]((?:[ ,–]|and|Figures?|Tables?|\d+[abc]?)+)")


def name(row):
    return f"[{row['paper']}] {row['item']}"


def headings(page):
    """Anchors that a page's headings get: their words in lower case, joined by hyphens, or what {#…} says."""
    found = set()
    fenced = False
    for line in page.read_text().splitlines():
        fenced ^= line.startswith("```")
        if line.startswith("#") and not fenced:
            title, _, own = line.lstrip("#").strip().partition(" {#")
            words = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", title)).strip().lower()
            found.add(own.rstrip("}") if own else re.sub(r"[-\s]+", "-", words))
    return found


def test_every_figure_and_table_of_the_papers_has_one_row():
    expected = [
        (paper, f"{kind} {number}")
        for paper, counts in NUMBERED.items()
        for kind, count in zip(("Figure", "Table"), counts, strict=True)
        for number in range(1, count + 1)
    ]
    assert Counter((row["paper"], row["item"]) for row in ROWS) == Counter(expected)


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_a_row_says_what_is_there_and_what_is_not(row):
    assert set(row) == {"paper", "item", "shows", "status", "differs", "where", "pictures", "results"}
    assert row["status"] in STATUSES and row["shows"] and row["differs"].endswith(".")
    assert bool(row["where"]) == (row["status"] != "not made")
    if row["status"] == "not made":
        assert not row["pictures"] and not row["results"]
    if row["status"] == "re-made":
        assert row["pictures"] or row["results"]
        if row["item"].startswith("Figure"):
            assert row["pictures"]


@pytest.mark.parametrize("row", [row for row in ROWS if row["where"]], ids=name)
def test_a_row_leads_to_what_it_claims(row):
    pages = {place.partition("#")[0] for place in row["where"]}
    for place in row["where"]:
        page, _, anchor = place.partition("#")
        assert (DOCS / page).exists(), page
        assert not anchor or anchor in headings(DOCS / page), place
    shown = {picture for page in pages for picture in PICTURE.findall((DOCS / page).read_text())}
    for picture in row["pictures"]:
        assert (DOCS / "images" / picture).stat().st_size > 500
        assert f"images/{picture}" in shown, f"{picture} is on none of {sorted(pages)}"
    for result in row["results"]:
        path, _, key = result.partition("#")
        stored = json.loads((ROOT / "benchmarks" / "results" / path).read_text())
        assert not key or key in stored, result


def test_the_page_has_every_row():
    text = (DOCS / "papers.md").read_text()
    table = text.partition("<!-- generated:inventory -->")[2].partition("<!-- /generated -->")[0]
    for row in ROWS:
        assert f"| {name(row)} | {row['shows']} |" in table
    assert table.count("\n| [") == len(ROWS)


def claimed(text):
    """Figures and tables that a text names, ranges written out."""
    for paper, names in NAMED.findall(text):
        for kind, numbers in re.findall(r"(Figure|Table)s?((?:[ ,–]|and|to|\d+[abc]?)+)", names):
            for low, high in re.findall(r"(\d+)[abc]?(?:\s?(?:–|to)\s?(\d+))?", numbers):
                for number in range(int(low), int(high or low) + 1):
                    yield paper, f"{kind} {number}"


@pytest.mark.parametrize("page", ["papers.md", "lood.md", "calibration.md", "language_models.md"])
def test_a_heading_or_picture_that_names_a_figure_is_in_its_row(page):
    """What a page says that it re-makes, in a heading, at the start of a paragraph or under a picture, has a row that leads there."""
    lines = [line for line in (DOCS / page).read_text().splitlines() if line.startswith(("#", "![", "**"))]
    leads = {(row["paper"], row["item"]) for row in ROWS if any(place.partition("#")[0] == page for place in row["where"])}
    missing = sorted(set(claimed("\n".join(lines))) - leads)
    assert not missing, f"docs/{page} names {missing}, whose rows lead elsewhere"


def test_named_figures_are_read_as_meant():
    text = "## Depth ([GLS] Table 2, Table 1 and Figure 1) and [LOOD] Figures 14–16 and Figure 4c"
    assert set(claimed(text)) == {
        ("GLS", "Table 2"),
        ("GLS", "Table 1"),
        ("GLS", "Figure 1"),
        *(("LOOD", f"Figure {k}") for k in (4, 14, 15, 16)),
    }


def test_the_table_is_rendered_from_the_file():
    spec = importlib.util.spec_from_file_location("papers_inventory", ROOT / "tools" / "papers_inventory.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (DOCS / "papers.md").read_text()
    assert "\n".join(module.inventory_lines()).strip() in page
