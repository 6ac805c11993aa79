"""Pictures of the five audits' first screens: `python tools/report_screenshot.py AUDITS FOLDER [PREFIX]`.

AUDITS is what `tools/report_audits.py` wrote; needs Playwright and Chromium. Writes one picture of
1,200 × 800 per audit, PREFIX-NAME.png ("after" unless named), and PREFIX.json with what they show.
The prefix "after" also writes, one folder up, `report.png` (the demo's first screen) and
`report-themes.png` (its records in both themes). `tools/report_shown.py` tells whether they are
current.
"""

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from report_shown import AFTER, digest, shown, store

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
READY = "html.explored, #explorer .caution"
SCREEN = {"width": 1200, "height": 800}
RECORDS = {"width": 1100, "height": 1250}
COLOURS = 256  # a picture in a repository should be small


def main():
    audits, folder = (Path(argument).resolve() for argument in sys.argv[1:3])
    prefix = sys.argv[3] if len(sys.argv) > 3 else AFTER
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("report_screenshot: a browser must be installed; got none of " + ", ".join(BROWSERS) + ".")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=browser, args=FLAGS)
        found = {}
        for page in sorted(audits.glob("*/report.html")):
            picture = folder / f"{prefix}-{page.parent.name}.png"
            found[page.parent.name] = _shot(opened, page, picture, SCREEN) | {"picture": digest(picture)}
            print(picture)
        store(folder, prefix, found)
        if prefix == AFTER:
            shutil.copyfile(folder / f"{prefix}-digits.png", folder.parent / "report.png")
            _themes(opened, audits / "digits" / "report.html", folder.parent)
        opened.close()


def _themes(browser, page, folder):
    both = Image.new("RGB", (2 * RECORDS["width"], RECORDS["height"]))
    for place, scheme in enumerate(("light", "dark")):
        half = folder / f"{scheme}.png"
        _shot(browser, page, half, RECORDS, scheme=scheme, at="explore")
        both.paste(Image.open(half), (place * RECORDS["width"], 0))
        half.unlink()
    both.resize((RECORDS["width"], RECORDS["height"] // 2)).quantize(
        COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    ).save(folder / "report-themes.png", optimize=True)
    print(folder / "report.png", folder / "report-themes.png")


def _shot(browser, page, path, size, *, scheme="light", at=None):
    """A picture of the page, and what it shows."""
    context = browser.new_context(viewport=size, color_scheme=scheme)
    opened = context.new_page()
    opened.goto(page.as_uri())
    opened.wait_for_selector(READY, state="attached")
    if at is not None:
        opened.evaluate(f"document.getElementById('{at}').scrollIntoView()")
    opened.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    found = shown(opened)
    context.close()
    return found


if __name__ == "__main__":
    main()
