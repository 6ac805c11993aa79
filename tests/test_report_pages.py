"""The pages of five audits, of a comparison and of LOOD in a real browser: on a screen, a phone, in the dark, on paper."""

import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import noshadow as ns
from browser import axe_core, chromium, opened_page, wcag_violations
from extras import extra

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "images" / "report"
SCREEN, PHONE = {"width": 1200, "height": 800}, {"width": 360, "height": 740}
# A4 within the page's own margins, 14 and 12 mm, at 96 pixels per inch.
PAPER = {"width": round((210 - 24) / 25.4 * 96), "height": round((297 - 28) / 25.4 * 96)}
AUDITS = ("digits", "forest", "regression", "language-model", "clean")
PAGES = (*AUDITS, "comparison", "lood")
UNFOLDED = "document.querySelectorAll('details').forEach((one) => (one.open = true))"
CUT = """(width) => [...document.querySelectorAll("body *")].filter((one) => one.getClientRects().length)
  .filter((one) => !one.closest("svg, option, [hidden]") && one.getBoundingClientRect().right > width + 1)
  .filter((one) => { const home = one.closest(".scroll");
    return !home || home.tabIndex !== 0 || getComputedStyle(home).overflowX !== "auto"; })
  .map((one) => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def tools():
    """The scripts that make the audits and their pictures; they need what the audits are made with."""
    extra("transformers")
    sys.path.insert(0, str(ROOT / "tools"))
    yield importlib.import_module("report_audits"), importlib.import_module("report_shown")
    sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def written(browser, tools, tmp_path_factory):
    """Every page's path by name; the browser is asked for first, since the audits take a while."""
    root = tmp_path_factory.mktemp("audits")
    tools[0].write_all(root)
    pages = {name: root / name / "report.html" for name in AUDITS}
    forest, clean = ns.load(root / "forest"), ns.load(root / "clean")
    pages["comparison"] = ns.write_comparison(ns.compare(clean, forest), root / "comparison.html")
    rng = np.random.default_rng(0)
    found = ns.lood_audit(rng.normal(size=(60, 4)), rng.integers(0, 3, 60), progress=False)
    pages["lood"] = ns.write_lood_report(found, root / "lood.html")
    return pages


@pytest.fixture(scope="module")
def opened(browser, written):
    """Every page opened once, with its policy set aside for axe-core."""
    made = {name: opened_page(browser, written[name], ready=name in AUDITS, viewport=SCREEN, bypass_csp=True) for name in PAGES}
    yield made
    for page in made.values():
        page.context.close()


def at(page, size, *, media="screen", scheme="light"):
    page.emulate_media(media=media, color_scheme=scheme)
    page.set_viewport_size(size)
    return page


@pytest.mark.parametrize("name", AUDITS)
def test_the_first_screen_is_whole_and_says_all_it_should(opened, name):
    page = at(opened[name], SCREEN)
    page.evaluate("scrollTo(0, 0)")
    parts = ["#verdict", ".people-grid >> nth=0", ".people-grid >> nth=1", ".exposure-chart", ".riskiest", ".command", ".sensitive"]
    for part in parts:
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= SCREEN["height"], part
        assert box["x"] >= 0 and box["x"] + box["width"] <= SCREEN["width"], part
    assert page.trouble == []
    # One unit: whatever is a rate is told of a thousand people, and never as a share with leading zeros.
    text = page.locator("header").inner_text() + page.locator(".glance").inner_text()
    assert "in 1,000" in text and not re.search(r"\b0\.\d", page.locator("header").inner_text())
    # The most exposed have a rate wherever records have rates, with an interval but for those that LiRA measured: a forest's
    # shares of votes have no spread that an interval could be made of.
    rates = page.locator(".riskiest .own").all_text_contents()
    assert all((" to " in rate) == (name != "forest") for rate in rates) and len(rates) == (0 if name == "language-model" else 3)
    assert page.locator(".command").inner_text().startswith("noshadow ")


def test_verdicts_differ_as_the_models_do(opened):
    levels = {name: opened[name].locator("#verdict").get_attribute("class").split()[-1] for name in AUDITS}
    assert levels["forest"] in ("some", "strong")
    # 256 models of the ridge's kind let LiRA find 20 in 1,000 at a guess of 8; four cannot tell that from a guess.
    assert levels["regression"] == "none"
    # Predicted; LiRA with 64 models of the demo's kind finds more than ten times a guess, too.
    assert levels["digits"] == "strong"
    assert len(set(levels.values())) > 1


@pytest.mark.parametrize("name", AUDITS)
def test_figures_below_are_in_one_unit_and_have_sensible_digits(opened, name):
    text = at(opened[name], SCREEN).evaluate(
        "() => { const copy = document.querySelector('main').cloneNode(true);"
        " copy.querySelectorAll('svg, .explorer-table, details').forEach((one) => one.remove()); return copy.textContent; }"
    )
    # Rates as shares ("0.000970 to 0.0404") are gone; what is left with leading zeros is no rate.
    assert not re.search(r"0\.00\d+ to 0\.\d+ as a share|FPR 0\.|level 0\.\d", text)
    assert not re.search(r"\d\.\d{4,}(?!\d*\s*×)", re.sub(r"\b0\.0+", "0.", text)), "three digits are enough"
    assert "findings.md" in text and opened[name].locator("table.matrix").count() <= 1
    if opened[name].locator("table.matrix").count():
        cells = set(opened[name].locator("table.matrix td").all_text_contents())
        assert not cells <= {"1.00", "0.99"}


@pytest.mark.parametrize("name", AUDITS)
def test_links_lead_somewhere_on_the_page(opened, name):
    lost = """[...document.querySelectorAll("a")].filter((one) => !one.hash || !document.getElementById(one.hash.slice(1))).length"""
    assert opened[name].evaluate(lost) == 0
    codes = opened[name].locator(".finding a").all_text_contents()
    assert codes and all(re.fullmatch(r"NS\d{3}", code) for code in codes)


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_all_without_scrolling_sideways(opened, name):
    page = at(opened[name], PHONE)
    page.evaluate(UNFOLDED)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate(CUT, PHONE["width"]) == []


@pytest.mark.parametrize("name", PAGES)
def test_paper_cuts_nothing_and_breaks_where_it_makes_sense(opened, name):
    page = at(opened[name], PAPER, media="print", scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") == PAPER["width"]
    beyond = "(width) => [...document.querySelectorAll('body *')].filter((one) => one.getClientRects().length && !one.closest('svg')"
    assert (
        page.evaluate(
            beyond + " && one.getBoundingClientRect().right > width + 1).map((one) => one.outerHTML.slice(0, 99))", PAPER["width"]
        )
        == []
    )
    # Whatever must stay whole fits on a page, and is told to stay whole; headings stay with what follows.
    whole = page.evaluate(
        """() => [...document.querySelectorAll("figure, tr, .card, .finding, .verdict, .glance, .caution")]
           .filter((one) => one.getClientRects().length)
           .map((one) => [one.tagName + "." + one.className, one.getBoundingClientRect().height, getComputedStyle(one).breakInside])"""
    )
    assert whole and all(rule == "avoid" and height < PAPER["height"] for _, height, rule in whole), whole
    assert page.evaluate(
        "[...document.querySelectorAll('h2, h3, h4, caption')].every((one) => getComputedStyle(one).breakAfter === 'avoid')"
    )
    # Folds are open on paper, controls are gone.
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = false))")
    assert page.evaluate(
        "[...document.querySelectorAll('details table, details dl')].every((one) => one.getBoundingClientRect().height > 0)"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('button, select, input')].every((one) => !one.getClientRects().length || one.matches('.pick, .id'))"
    )
    assert page.evaluate("getComputedStyle(document.querySelector('thead') ?? document.body).display") in ("table-header-group", "block")


def test_the_first_sheet_of_paper_is_the_first_screen(opened):
    page = at(opened["forest"], PAPER, media="print")
    box = page.locator(".glance").bounding_box()
    assert (
        box["y"] + box["height"] < PAPER["height"] and page.locator("#sure").evaluate("one => getComputedStyle(one).breakBefore") == "page"
    )
    assert 6 < len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))) < 25


@pytest.mark.parametrize("name", ["forest", "comparison", "lood"])
def test_the_keyboard_reaches_everything_and_shows_where_it_is(opened, name):
    page = at(opened[name], SCREEN)
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = false))")
    # Tab goes on from where another test left the focus, unless the page itself has it first.
    page.evaluate("scrollTo(0, 0); document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
    wanted = page.evaluate(
        """() => { const all = [...document.querySelectorAll("a[href], button, input, select, canvas, summary, [tabindex='0']")];
           const seen = all.filter((one) => !one.disabled && one.checkVisibility({contentVisibilityAuto: true}));
           seen.forEach((one, k) => (one.dataset.place = k)); return seen.length; }"""
    )
    places, hidden = [], []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        place, style = page.evaluate(
            """() => { const style = getComputedStyle(document.activeElement);
               return [document.activeElement.dataset.place, style.outlineStyle + style.outlineWidth]; }"""
        )
        places.append(None if place is None else int(place))
        hidden += [] if style == "solid2px" else [(place, style)]
    assert places == list(range(wanted)), "the order of the page, and nothing left out"
    assert hidden == []


def test_the_explorer_answers_to_the_keyboard(opened):
    page = at(opened["forest"], SCREEN)
    page.locator("#search").focus()
    page.keyboard.type("patient-75")
    assert page.locator(".explorer-table tbody th").all_text_contents() == ["patient-75"]
    page.keyboard.press("Tab")  # class
    page.keyboard.press("Tab")  # finding
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "clear filters and selection"
    page.keyboard.press("Enter")
    assert page.locator("#explorer-caption").text_content() == "All 284 records"


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    return axe_core(tmp_path_factory.mktemp("axe"))


@pytest.mark.parametrize("name", PAGES)
def test_every_page_passes_wcag_aa_in_light_and_dark(opened, axe, name):
    assert wcag_violations(at(opened[name], SCREEN), axe) == []


@pytest.mark.parametrize("name", AUDITS)
def test_the_pictures_in_the_docs_are_current(browser, written, tools, name):
    page = opened_page(browser, written[name], viewport=SCREEN)
    shown = tools[1]
    told = shown.differences(shown.stored(PICTURES, "after")[name], shown.shown(page))
    page.context.close()
    assert told == [], "run `make screenshot`: the page is no longer as docs/images/report shows it"


def test_a_picture_that_is_not_the_one_of_its_json_is_noticed(tools, tmp_path):
    shown = tools[1]
    assert shown.checked(PICTURES) is None
    for path in [*PICTURES.glob("*"), PICTURES.parent / "report.png"]:
        target = tmp_path / ("report.png" if path.parent != PICTURES else f"report/{path.name}")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    assert shown.checked(tmp_path / "report") is None
    (tmp_path / "report" / "after-clean.png").write_bytes(b"another")
    assert "others are after-clean.png. Run make screenshot." in shown.checked(tmp_path / "report")
    now = shown.stored(PICTURES, "after")["forest"]
    grown = [re.sub(r"\b173 in", "240 in", line) for line in now["lines"]]
    assert shown.differences(now, now) == [] and "173 became 240" in shown.differences(now, now | {"lines": grown})[0]
    assert shown.differences(now, now | {"style": ""}) and shown.differences(now, now | {"lines": now["lines"][1:]})


@pytest.mark.parametrize("name", AUDITS)
def test_the_page_has_at_most_half_of_the_words_that_it_had(opened, tools, name):
    before = json.loads((PICTURES / "before.json").read_text())[name]["words"]
    page = at(opened[name], SCREEN)
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = false))")
    assert tools[1].shown(page)["words"] <= before / 2
