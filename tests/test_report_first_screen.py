"""The report's first screen in a real browser: whole without scrolling, narrow, dark, on paper, by keyboard, with enough contrast."""

import re
from dataclasses import replace

import numpy as np
import pytest

import noshadow as ns
from browser import axe_core, chromium, cpu_seconds, opened_page, wcag_violations
from test_report_browser import audit_of

SCREEN = {"width": 1200, "height": 800}
PARTS = ("sure", "people", "why", "do", "tested", "origin")


def rated(audit, **known):
    """The audit with a rate for each record, and the risk changed as asked."""
    rates = audit.records["leverage"].to_numpy()
    columns = {"predicted_tpr": rates, "predicted_tpr_low": rates / 2, "predicted_tpr_high": np.sqrt(rates)}
    risk = replace(audit.model_risk, in_calibration_domain=True, **known)
    return replace(audit, model_risk=risk, records=audit.records.assign(**columns))


def strong(audit):
    return rated(audit, predicted_tpr=0.4, predicted_tpr_interval=(0.3, 0.5), reference_models=64)


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of a strong leak, of losses alone, and of an audit that cannot answer."""
    folder, audit = tmp_path_factory.mktemp("reports"), audit_of(300)
    blind = replace(audit, model_risk=None, nonmember_losses=np.empty(0), not_applicable={"model_risk": "not applicable: no test split"})
    audits = {"strong": strong(audit), "losses": audit, "blind": blind}
    return {name: ns.write_report(made, folder / f"{name}.html") for name, made in audits.items()}


@pytest.mark.parametrize("name", ["strong", "losses", "blind"])
def test_the_first_screen_needs_no_scrolling(browser, pages, name):
    page = opened_page(browser, pages[name], viewport=SCREEN)
    for part in ("#verdict", ".glance", ".riskiest", ".command", ".sensitive"):
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= SCREEN["height"], part
        assert box["x"] >= 0 and box["x"] + box["width"] <= SCREEN["width"], part
    assert page.locator(".people-grid").count() == (0 if name == "blind" else 2) and page.trouble == []
    page.context.close()


def test_the_verdict_is_told_by_more_than_its_colour(browser, pages):
    page = opened_page(browser, pages["strong"], viewport=SCREEN)
    assert page.locator("h1").text_content() == "Strong leakage" and page.locator(".mark").text_content() == "‼"
    assert page.locator("#verdict").evaluate("e => getComputedStyle(e).backgroundColor") != "rgba(0, 0, 0, 0)"
    page.context.close()


@pytest.mark.parametrize("name", ["strong", "blind"])
def test_no_table_is_clipped_on_a_phone(browser, pages, name):
    page = opened_page(browser, pages[name], viewport={"width": 360, "height": 740})
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    # A table wider than the screen stands in a region that scrolls and that the keyboard reaches.
    clipped = """[...document.querySelectorAll("table")].filter((e) => e.getClientRects().length && e.getBoundingClientRect().right > 361)
                 .filter((e) => { const home = e.closest(".scroll"); return !home || home.tabIndex !== 0
                 || getComputedStyle(home).overflowX !== "auto"; }).length"""
    assert page.evaluate(clipped) == 0
    page.context.close()


def test_paper_starts_each_question_on_a_page_of_its_own(browser, pages):
    page = opened_page(browser, pages["strong"], viewport=SCREEN)
    page.emulate_media(media="print")
    for part in PARTS:
        assert page.locator(f"#{part}").evaluate("e => getComputedStyle(e).breakBefore") == "page", part
    for part in ("#verdict", ".glance figure", "tr"):
        assert page.locator(part).first.evaluate("e => getComputedStyle(e).breakInside") == "avoid", part
    printed = page.pdf(format="A4")
    assert len(PARTS) < len(re.findall(rb"/Type\s*/Page\b", printed)) < 30
    page.context.close()


def test_the_keyboard_reaches_the_most_exposed_record_first(browser, pages):
    page = opened_page(browser, pages["strong"], viewport=SCREEN)
    seen = []
    for _ in range(4):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert seen[0] == "theme" and seen[1:] == page.locator(".riskiest bdi").all_text_contents()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.locator(".explorer-table [aria-pressed=true]").text_content() == seen[3]
    page.context.close()


def test_a_code_leads_to_its_rule(browser, pages):
    page = opened_page(browser, pages["strong"], viewport=SCREEN)
    link = page.locator(".finding a").first
    link.click()
    assert page.evaluate("location.hash") == link.get_attribute("href")
    assert page.locator(link.get_attribute("href")).is_visible()
    page.context.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    return axe_core(tmp_path_factory.mktemp("axe"))


@pytest.mark.parametrize("name", ["strong", "losses", "blind"])
def test_the_page_passes_wcag_aa(browser, pages, axe, name):
    # The page's own policy lets no other script run, so the policy is set aside for the looking.
    page = opened_page(browser, pages[name], viewport=SCREEN, bypass_csp=True)
    assert wcag_violations(page, axe) == []
    page.context.close()


def test_a_million_records_open_quickly(browser, tmp_path):
    path = ns.write_report(strong(audit_of(1_000_000)), tmp_path / "report.html")
    assert path.stat().st_size < 8_500_000
    before = cpu_seconds(browser)
    page = opened_page(browser, path, viewport=SCREEN)
    assert cpu_seconds(browser) - before < 3
    assert "1,000,000 records in training" in page.locator(".kicker").text_content() and page.locator(".people-grid").count() == 2
    # The explorer holds the riskiest 100,000 and answers at once.
    idle = cpu_seconds(browser)
    page.locator(".explorer-table thead button").get_by_text("leverage", exact=True).click()
    page.locator("#search").fill("person-99999")
    assert page.locator("#explorer-caption").text_content().endswith("of 100,000 records")
    assert cpu_seconds(browser) - idle < 3 and page.trouble == []
    page.context.close()
