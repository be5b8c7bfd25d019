#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens a page of `snug report` in Chromium, at the widths of a phone, a tablet and a desk, light and dark: nothing may be
wider than the page, and the background must follow the colour scheme. With --screenshots the pictures are kept, to be
looked at.

Usage: tools/check_report.py PAGE [--screenshots FOLDER]    (needs chromium)"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# A frame, because Chromium's own window is at least 500 pixels wide.
FRAME = """<!DOCTYPE html><body style="margin:0"><iframe id="f" src="%s" style="width:%dpx;height:%dpx;border:0"></iframe>
<pre id="out"></pre><script>
document.getElementById("f").onload = (event) => {
  const page = event.target.contentDocument, root = page.documentElement;
  document.getElementById("out").textContent = JSON.stringify({
    width: root.scrollWidth, height: root.scrollHeight, charts: page.querySelectorAll(".plot svg").length,
    background: event.target.contentWindow.getComputedStyle(page.body).backgroundColor});
};</script></body>"""


def run(browser, dark, *arguments):
    # 0 is dark and 1 is light in Chromium's settings.
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files",
             f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    return subprocess.run([browser, *flags, *arguments], capture_output=True, text=True, timeout=120).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--screenshots", type=pathlib.Path)
    args = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        sys.exit("chromium is missing: install it (Debian: chromium)")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for width in (390, 768, 1200):
            for dark in (False, True):
                frame = pathlib.Path(folder, "frame.html")
                frame.write_text(FRAME % (args.page.resolve().as_uri(), width, 900))
                dom = run(browser, dark, "--virtual-time-budget=5000", "--dump-dom", frame.as_uri())
                found = re.search(r'<pre id="out">(\{.*?\})</pre>', dom)
                if not found:
                    sys.exit(f"{args.page}: the page could not be measured")
                page = json.loads(found[1])
                light = sum(map(int, re.findall(r"\d+", page["background"])[:3])) > 3 * 128
                fine = page["width"] <= width and page["charts"] > 0 and light != dark
                good = good and fine
                print(f"{width} px, {'dark' if dark else 'light'}: {page['width']} x {page['height']}, {page['charts']} "
                      f"charts, background {page['background']}{'' if fine else ': WRONG'}")
                if args.screenshots:
                    args.screenshots.mkdir(parents=True, exist_ok=True)
                    frame.write_text(FRAME % (args.page.resolve().as_uri(), width, page["height"]))
                    picture = args.screenshots / f"{width}-{'dark' if dark else 'light'}.png"
                    run(browser, dark, f"--window-size={max(width, 500)},{page['height']}", f"--screenshot={picture}",
                        frame.as_uri())
    sys.exit(not good)


main()
