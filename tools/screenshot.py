"""Make docs/images/page.png: the page of `swerve demo` in a real browser, on the day after Irma took the lead.

python tools/screenshot.py   (needs chromium and the development requirements)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

TARGET = Path(__file__).parent.parent / "docs" / "images" / "page.png"
COMMAND = [sys.executable, "-m", "swerve", "demo", "--port", "0", "--speed", "300", "--seed", "0"]
DAY = "4 Sep 2017"
SIZE = {"width": 1400, "height": 1560}
PATIENCE_MS = 300_000  # until that day, and compilation before it
DRAWING = 2  # seconds for the charts to be drawn


def main() -> None:
    demo = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    address = next(line for line in demo.stdout if line.startswith("the page: ")).split()[-1]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.goto(f"{address}/#query=hurricane")
        page.get_by_text(DAY).first.wait_for(timeout=PATIENCE_MS)
        time.sleep(DRAWING)
        page.screenshot(path=TARGET)
        browser.close()
    demo.terminate()
    demo.wait()
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
