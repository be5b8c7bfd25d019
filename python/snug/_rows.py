# SPDX-License-Identifier: Apache-2.0
"""Rows in memory as a file that the library reads."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Optional, Union

Row = Union[Mapping[str, Any], Sequence[Any]]
#: A file's path, "dummy:ROWSxTOKENS", or rows: dicts by column, or (text, label) or (text, second text, label).
Data = Union[str, "os.PathLike[str]", Iterable[Row]]

_COLUMNS = {1: ("text",), 2: ("text", "label"), 3: ("sentence1", "sentence2", "label")}


def _plain(value: Any) -> Any:
    """NumPy's scalars and arrays, for json."""
    for name in ("tolist", "item"):
        if hasattr(value, name):
            return getattr(value, name)()
    raise TypeError(f"a row holds a {type(value).__name__}, which is neither text nor number")


def _row(row: Row, number: int) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    if isinstance(row, (str, bytes)) or len(row) not in _COLUMNS:
        raise TypeError(f"row {number} is not a dict by column, (text, label) or (text, second text, label): {row!r:.80}")
    return dict(zip(_COLUMNS[len(row)], row))


@contextmanager
def data_file(data: Optional[Data], name: str) -> Iterator[Optional[str]]:
    """The path of data. Rows are written to a temporary file of JSON Lines, which lives as long as the job."""
    if data is None or isinstance(data, (str, os.PathLike)):
        yield None if data is None else os.fspath(data)
        return
    # A pandas DataFrame is iterated over by column.
    rows: Iterable[Row] = data.to_dict("records") if hasattr(data, "to_dict") and hasattr(data, "columns") else data
    with tempfile.TemporaryDirectory(prefix="snug-") as folder:
        path = os.path.join(folder, f"{name}.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for number, row in enumerate(rows):
                file.write(json.dumps(_row(row, number), ensure_ascii=False, default=_plain) + "\n")
        yield path
