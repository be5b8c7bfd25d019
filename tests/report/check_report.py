#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens a page of `snug report` in Chromium, at the widths of a phone, a tablet and a desk, light and dark: nothing may be
wider than the page, and the background must follow the colour scheme. With --screenshots the pictures are kept, to be
looked at.

Usage: tests/report/check_report.py PAGE [--screenshots FOLDER]    (needs chromium)"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Frames, because Chromium's own window is at least 500 pixels wide.
PAGE = """<!DOCTYPE html><body style="margin:0">%s<pre id="out"></pre><script>
window.onload = () => {
  const found = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument, root = page.documentElement;
    return {
      width: root.scrollWidth, height: root.scrollHeight, charts: page.querySelectorAll(".plot svg").length,
      background: frame.contentWindow.getComputedStyle(page.body).backgroundColor};
  });
  document.getElementById("out").textContent = JSON.stringify(found);
};</script></body>"""
FRAME = '<iframe src="%s" style="width:%dpx;height:%dpx;border:0;display:block"></iframe>'
WIDTHS = (390, 768, 1200)


def run(browser, dark, *arguments):
    # 0 is dark and 1 is light in Chromium's settings.
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files",
             f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    return subprocess.run([browser, *flags, *arguments], capture_output=True, text=True, timeout=120).stdout


def measure(browser, dark, address, folder):
    """The page's sizes and colours at each width."""
    frames = pathlib.Path(folder, "frames.html")
    frames.write_text(PAGE % "".join(FRAME % (address, width, 900) for width in WIDTHS))
    dom = run(browser, dark, "--virtual-time-budget=5000", "--dump-dom", frames.as_uri())
    found = re.search(r'<pre id="out">(\[.*?\])</pre>', dom)
    return json.loads(found[1]) if found else sys.exit(f"{address}: the page could not be measured")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--screenshots", type=pathlib.Path)
    args = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        sys.exit("chromium is missing: install it (Debian: chromium)")
    address, good = args.page.resolve().as_uri(), True
    with tempfile.TemporaryDirectory() as folder:
        for dark in (False, True):
            for width, page in zip(WIDTHS, measure(browser, dark, address, folder)):
                light = sum(map(int, re.findall(r"\d+", page["background"])[:3])) > 3 * 128
                fine = page["width"] <= width and page["charts"] > 0 and light != dark
                good = good and fine
                print(f"{width} px, {'dark' if dark else 'light'}: {page['width']} x {page['height']}, {page['charts']} "
                      f"charts, background {page['background']}{'' if fine else ': WRONG'}")
                if args.screenshots:
                    args.screenshots.mkdir(parents=True, exist_ok=True)
                    frame = pathlib.Path(folder, "frame.html")
                    frame.write_text(PAGE % (FRAME % (address, width, page["height"])))
                    picture = args.screenshots / f"{width}-{'dark' if dark else 'light'}.png"
                    run(browser, dark, f"--window-size={max(width, 500)},{page['height']}", f"--screenshot={picture}",
                        frame.as_uri())
    sys.exit(not good)


main()
