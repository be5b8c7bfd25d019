# SPDX-License-Identifier: Apache-2.0
"""Rows in memory for the library."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Optional, Union

from ._library import lib

if TYPE_CHECKING:
    from ._context import Context

Row = Union[Mapping[str, Any], Sequence[Any]]
#: A file's path, "dummy:ROWSxTOKENS", or rows: dicts by column, or (text, label) or (text, second text, label).
Data = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]", Iterable[Row]]

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
def given(context: Context, **files: Optional[Data]) -> Iterator[None]:
    """Sets arguments for files, such as train_file: a path, or rows, which live as long as the job. The library counts rows
    from 1 in its messages, as the lines of a file."""
    handles: list[ctypes.c_void_p] = []
    try:
        for name, data in files.items():
            if data is None or isinstance(data, (str, bytes, os.PathLike)):
                context.set({name: data})
                continue
            handle = ctypes.c_void_p()
            context.check(lib.snug_rows_create(context.handle, ctypes.byref(handle)))
            handles.append(handle)
            # A pandas DataFrame is iterated over by column.
            rows: Iterable[Row] = data.to_dict("records") if hasattr(data, "to_dict") and hasattr(data, "columns") else data
            for number, row in enumerate(rows):
                text = json.dumps(_row(row, number), default=_plain)
                context.check(lib.snug_rows_json(handle, text.encode()))
            context.check(lib.snug_args_set_rows(context.args, name.encode(), handle))
        yield
    finally:
        for handle in handles:
            lib.snug_rows_destroy(handle)
