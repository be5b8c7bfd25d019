#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python package in a virtual environment of its own, with the library of BUILD.
# Usage: tests/package/test_python.sh BUILD, from the repository's root
set -eu
build=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check . -C cmake.source-dir=python -C "cmake.define.SNUG_BUILD=$build"
"$python" - << 'END'
import importlib.metadata, pathlib, snug
files = {str(file) for file in importlib.metadata.files("snug")}
assert {"snug/py.typed", "snug/libsnug.so.0"} <= files, files
assert importlib.metadata.version("snug") == snug.__version__
assert pathlib.Path(snug.__file__).parent.name == "snug" and "site-packages" in snug.__file__
END
if command -v mypy > "$folder/mypy"; then # installing it would take longer than the rest
    MYPYPATH=python mypy --strict --cache-dir "$folder/mypy-cache" python/snug tests/package/python_types.py
fi
OMP_WAIT_POLICY=passive SNUG_CACHE=$folder/cache "$python" tests/package/test_python.py
