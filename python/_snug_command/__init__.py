# SPDX-License-Identifier: Apache-2.0
"""The command `snug` of the package: runs its program without importing NumPy, which takes longer than the program's start."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec


def main() -> None:
    spec = find_spec("snug")
    if spec is None or spec.origin is None:
        sys.exit("the package snug is not installed")
    program = os.path.join(os.path.dirname(spec.origin), "snug")
    os.execv(program, ["snug", *sys.argv[1:]])
