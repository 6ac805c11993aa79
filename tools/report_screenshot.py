"""Pictures of the five audits' first screens: `python tools/report_screenshot.py AUDITS FOLDER [PREFIX]`.

AUDITS is what `tools/report_audits.py` wrote; needs Playwright and Chromium. Writes one picture of
1,200 × 800 per audit, `report-themes.png` (the demo's records in both themes side by side) and
`report.png` (the demo's first screen). With a PREFIX only the five pictures are written.
"""

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
READY = "html.explored, #explorer .caution"
SCREEN = {"width": 1200, "height": 800}
RECORDS = {"width": 1100, "height": 1250}
COLOURS = 128  # a picture in a repository should be small


def main():
    audits, folder = (Path(argument).resolve() for argument in sys.argv[1:3])
    prefix = sys.argv[3] if len(sys.argv) > 3 else ""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("report_screenshot: a browser must be installed; got none of " + ", ".join(BROWSERS) + ".")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=browser, args=FLAGS)
        for page in sorted(audits.glob("*/report.html")):
            name = f"{prefix or 'report'}-{page.parent.name}.png"
            _shot(opened, page, folder / name, SCREEN)
            print(folder / name)
        if not prefix:
            _demo(opened, audits / "digits" / "report.html", folder)
        opened.close()


def _demo(browser, page, folder):
    _shot(browser, page, folder / "report.png", SCREEN)
    both = Image.new("RGB", (2 * RECORDS["width"], RECORDS["height"]))
    for place, scheme in enumerate(("light", "dark")):
        half = folder / f"{scheme}.png"
        _shot(browser, page, half, RECORDS, scheme=scheme, at="explore")
        both.paste(Image.open(half), (place * RECORDS["width"], 0))
        half.unlink()
    both.resize((RECORDS["width"], RECORDS["height"] // 2)).quantize(128).save(folder / "report-themes.png", optimize=True)
    print(folder / "report.png", folder / "report-themes.png")


def _shot(browser, page, path, size, *, scheme="light", at=None):
    context = browser.new_context(viewport=size, color_scheme=scheme)
    shown = context.new_page()
    shown.goto(page.as_uri())
    shown.wait_for_selector(READY, state="attached")
    if at is not None:
        shown.evaluate(f"document.getElementById('{at}').scrollIntoView()")
    shown.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)
    context.close()


if __name__ == "__main__":
    main()
