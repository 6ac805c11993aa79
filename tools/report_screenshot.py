"""Pictures of a report (needs Playwright and Chromium): `python tools/report_screenshot.py report.html FOLDER`.

Writes `report.png`, the first screen, and `report-themes.png`, the records in the light and the dark theme side by side.
"""

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
READY = "performance.getEntriesByName('ready').length"
SIZE = {"width": 1100, "height": 1250}


def main():
    page, folder = (Path(argument).resolve() for argument in sys.argv[1:3])
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("report_screenshot: a browser must be installed; got none of " + ", ".join(BROWSERS) + ".")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        halves = [_pictures(opened, page, folder, scheme) for scheme in ("light", "dark")]
        opened.close()
    both = Image.new("RGB", (2 * SIZE["width"], SIZE["height"]))
    for place, half in enumerate(halves):
        both.paste(Image.open(half), (place * SIZE["width"], 0))
        half.unlink()
    # Few colours: a picture in a repository should be small.
    both.resize((SIZE["width"], SIZE["height"] // 2)).quantize(128).save(folder / "report-themes.png", optimize=True)
    print(folder / "report.png", folder / "report-themes.png")


def _pictures(browser, page, folder, scheme):
    context = browser.new_context(viewport=SIZE, color_scheme=scheme)
    shown = context.new_page()
    shown.goto(page.as_uri())
    shown.wait_for_function(READY)
    if scheme == "light":
        shown.screenshot(path=folder / "report.png")
        Image.open(folder / "report.png").convert("RGB").quantize(128).save(folder / "report.png", optimize=True)
    shown.locator("#explore").scroll_into_view_if_needed()
    shown.evaluate("document.getElementById('explore').scrollIntoView()")
    half = folder / f"{scheme}.png"
    shown.screenshot(path=half)
    context.close()
    return half


if __name__ == "__main__":
    main()
