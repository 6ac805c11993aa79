"""A real browser for tests: Playwright driving the Chromium of the machine, or a skip that says what is missing."""

import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from extras import extra

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Loaded machines are slow, not broken; a page that never gets there still fails.
PATIENCE = 60_000
AXE = "axe-core@4.10.3"
WCAG_AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


@contextmanager
def chromium():
    """The browser; without it the test is skipped, or fails when NOSHADOW_REQUIRE_EXTRAS is set."""
    playwright = extra("playwright.sync_api")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        reason = "none of " + ", ".join(NAMES) + " is installed"
        if os.environ.get("NOSHADOW_REQUIRE_EXTRAS"):
            pytest.fail(f"{reason}, and NOSHADOW_REQUIRE_EXTRAS asks for a browser")
        pytest.skip(reason)
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"], timeout=PATIENCE)
        yield opened
        opened.close()


def opened_page(browser, path, *, ready=True, **options):
    """The page of a file, with whatever it complained about or asked the network for in `page.trouble`."""
    context = browser.new_context(**({"viewport": {"width": 1100, "height": 900}} | options))
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.trouble = []
    page.on("console", lambda message: page.trouble.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.on("dialog", lambda dialog: (page.trouble.append("dialog"), dialog.dismiss()))
    page.on("request", lambda request: page.trouble.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    if ready:
        # A selector, not a function: the page's policy lets no string be evaluated, which a second poll of a function would need.
        page.wait_for_selector("html.explored, #explorer .caution", state="attached")
    return page


def cpu_seconds(browser):
    """Processor time of all page and drawing processes so far: what the work costs, however many others share the cores."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return sum(process["cpuTime"] for process in processes if process["type"] in ("renderer", "GPU"))


def axe_core(folder):
    """The source of axe-core, installed for this run; without npm a skip, or a failure where extras are required."""
    npm, done = shutil.which("npm"), None
    if npm is not None:
        command = [npm, "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), AXE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done is None or done.returncode:
        reason = "npm is not installed" if done is None else f"npm could not install {AXE}: {done.stderr[-300:]}"
        if os.environ.get("NOSHADOW_REQUIRE_EXTRAS"):
            pytest.fail(f"{reason}, and NOSHADOW_REQUIRE_EXTRAS asks for it")
        pytest.skip(reason)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def wcag_violations(page, source):
    """What axe-core finds against WCAG 2.1 AA on a page opened with `bypass_csp=True`, in light and in dark; folds are open.

    Of the explorer's rows, which are all alike, three are looked at. In the dark it is colours that may fail, and they alone are asked for.
    """
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    page.evaluate("document.querySelectorAll('.explorer-table tbody tr:nth-child(n + 4)').forEach((one) => one.remove())")
    page.add_script_tag(content=source)
    told = []
    for scheme, asked in (("light", WCAG_AA), ("dark", ["color-contrast"])):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("(asked) => axe.run({runOnly: asked, resultTypes: ['violations']})", asked)
        assert any(rule["id"] == "color-contrast" for rule in found["passes"]), "contrast was not looked at"
        told += [(scheme, rule["id"], node["target"], node["failureSummary"]) for rule in found["violations"] for node in rule["nodes"]]
    return told
