"""Picture of a report for the README: `python docs/report_screenshot.py report.html picture.png` (needs Chromium)."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync")


def main():
    page, picture = (Path(argument).resolve() for argument in sys.argv[1:3])
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("report_screenshot: a browser must be installed; got none of " + ", ".join(BROWSERS) + ".")
    with tempfile.TemporaryDirectory() as profile:
        options = (*FLAGS, f"--user-data-dir={profile}", "--no-first-run", "--hide-scrollbars", "--window-size=1100,1250")
        subprocess.run([browser, *options, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)
    print(picture)


if __name__ == "__main__":
    main()
