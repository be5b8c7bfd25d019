#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what a terminal showed as an SVG picture, for tools/pictures/run-picture: tools/pictures/terminal_svg.py < text > docs/run.svg

Lines that begin with "$ " are drawn as commands. Long lines are cut at --columns.
"""
import argparse
import html
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--columns", type=int, default=112)
args = parser.parse_args()
lines = [line.rstrip("\n")[:args.columns] for line in sys.stdin]
width, height = args.columns * 7.3 + 32, len(lines) * 17 + 54
print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" font-size="12" '
      'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace">')
print(f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#1b1f24"/>')
for i, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")):
    print(f'<circle cx="{20 + 18 * i}" cy="18" r="5.5" fill="{colour}"/>')
for i, line in enumerate(lines):
    colour = "#7ee787" if line.startswith("$ ") else "#d0d7de"
    print(f'<text x="16" y="{50 + 17 * i}" fill="{colour}" xml:space="preserve">{html.escape(line)}</text>')
print("</svg>")
