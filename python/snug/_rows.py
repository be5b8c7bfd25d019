# SPDX-License-Identifier: Apache-2.0
"""Rows in memory for the library: tables, dicts, tuples and texts of Python become its values."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from ._library import (
    VALUE_BOOLEAN,
    VALUE_INTEGER,
    VALUE_LIST,
    VALUE_MISSING,
    VALUE_NUMBER,
    VALUE_OTHER,
    VALUE_REAL,
    VALUE_TEXT,
    Value,
    c_string,
    lib,
)

if TYPE_CHECKING:
    from ._context import Context

Row = Union[str, Mapping[str, Any], Sequence[Any]]
#: A file's path, "dummy:ROWSxTOKENS", or rows: a table (a DataFrame of pandas or polars, a Dataset of datasets, a pyarrow Table, a
#: dict of columns), or single rows: dicts by column, texts, (text, label), (text, second text, label).
Data = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]", Mapping[str, Any], Iterable[Row]]

#: What a model predicts: texts, or rows with columns.
Texts = Union[Mapping[str, Any], Iterable[str], Iterable[Mapping[str, Any]]]

_COLUMNS = {1: ("text",), 2: ("text", "label"), 3: ("sentence1", "sentence2", "label")}
_BATCH = 1000  # rows of a Dataset that are read together


def a(value: object) -> str:
    """What a value is, for messages."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _has(data: object, *names: str) -> bool:
    """Whether the type has these attributes. Those of an object may be expensive, as the columns of a LazyFrame."""
    return all(hasattr(type(data), name) for name in names)


# ---- values ---------------------------------------------------------------------------------------------------------------

# What pandas and NumPy have where there is no value, by the name of its type: they need not be installed.
_MISSING = {"NAType": "<NA>", "NaTType": "NaT", "MaskedConstant": "masked", "NoneType": "None"}
_BITS = 63


def _put_text(out: Value, value: str) -> None:
    # A half of a surrogate pair is malformed UTF-8, which the library replaces and counts as in a file.
    encoded = value.encode(errors="surrogatepass")
    out.kind, out.text, out.length = VALUE_TEXT, encoded, len(encoded)


def _put_integer(out: Value, value: int) -> None:
    if -(1 << _BITS) <= value < 1 << _BITS:
        out.kind, out.integer = VALUE_INTEGER, value
    else:
        out.kind, out.text = VALUE_NUMBER, format(value, "d").encode()


def _put_real(out: Value, value: float) -> None:
    out.kind, out.real = VALUE_REAL, value


def _put_boolean(out: Value, value: bool) -> None:
    out.kind, out.integer = VALUE_BOOLEAN, value


def _put_missing(out: Value, value: object) -> None:
    out.kind, out.text = VALUE_MISSING, _MISSING[type(value).__name__].encode()


def _put_list(out: Value, value: Sequence[Any]) -> None:
    items = (Value * len(value))()
    for item, part in zip(items, value):
        put(item, part)
    # Setting the pointer keeps the array, and so the texts in it, as long as the value.
    out.kind, out.length, out.items = VALUE_LIST, len(value), items


_PUT: dict[type, Callable[[Value, Any], None]] = {
    str: _put_text,
    int: _put_integer,
    float: _put_real,
    bool: _put_boolean,
    list: _put_list,
    tuple: _put_list,
}


def put(out: Value, value: Any) -> None:
    """Anything as a value of the library; what it cannot use is one that says what it is."""
    known = _PUT.get(type(value))
    if known is None:
        known = next((known for kind, known in _PUT.items() if kind is not bool and isinstance(value, kind)), None)
    if known is not None:
        known(out, value)
    elif type(value).__name__ in _MISSING:
        _put_missing(out, value)
    elif hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:  # a scalar of NumPy
        plain = value.item()
        _put_other(out, value) if type(plain) is type(value) else put(out, plain)
    elif getattr(value, "ndim", None) == 1 and hasattr(value, "tolist"):
        _put_list(out, value.tolist())
    elif hasattr(value, "to_list"):  # a Series of polars
        _put_list(out, value.to_list())
    else:
        _put_other(out, value)


def _put_other(out: Value, value: object) -> None:
    out.kind, out.text = VALUE_OTHER, a(value).encode(errors="replace")


@dataclass(frozen=True)
class _Unread:
    """The value of a column that is not looked at: it cannot be used."""

    what: str


def _put_unread(out: Value, value: _Unread) -> None:
    out.kind, out.text = VALUE_OTHER, value.what.encode(errors="replace")


_PUT[_Unread] = _put_unread


# ---- chats ----------------------------------------------------------------------------------------------------------------

# Columns whose lists and dicts are handed over as JSON texts, as a CSV file has them.
_CHATS = frozenset(("prompt", "completion", "messages", "conversations", "history", "tools", "documents", "chat_template_kwargs"))


def _plain(value: Any) -> Any:
    """What json does not know: arrays and scalars of NumPy, and other mappings than dict."""
    return dict(value) if isinstance(value, Mapping) else value.tolist()


def _of_chat(value: Any) -> Any:
    """A list of messages, or a dict, as its JSON text; others, and what has no JSON, as they are."""
    if getattr(value, "ndim", None) == 1 and hasattr(value, "tolist"):
        value = value.tolist()
    listed = isinstance(value, (list, tuple)) and (not value or isinstance(value[0], (Mapping, list, tuple)))
    if not listed and not isinstance(value, Mapping):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except (AttributeError, TypeError, ValueError):
        return value


# ---- tables ---------------------------------------------------------------------------------------------------------------


@dataclass
class _Rows:
    """Rows with their columns, and the names of the classes that numbers of a column are."""

    rows: Iterator[tuple[Sequence[Any], Iterable[Any]]]  #: the names of columns, and their values
    classes: dict[str, Sequence[str]] = field(default_factory=dict)


def _of_columns(names: Sequence[Any], columns: Sequence[Sequence[Any]]) -> _Rows:
    return _Rows((names, row) for row in zip(*columns))


def _class_names(feature: Any) -> Optional[Sequence[str]]:
    """The names of a ClassLabel, or of a list of them."""
    if type(feature).__name__ == "ClassLabel":
        return feature.names  # type: ignore[no-any-return]
    inner = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", None)
    return None if inner is None else _class_names(inner)


def _is_read(feature: Any) -> bool:
    """Whether a column of a Dataset may hold texts or labels: others, such as pictures, are not decoded."""
    inner = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", feature)
    return type(inner).__name__ in ("Value", "ClassLabel")


def _of_dataset(data: Any) -> _Rows:
    features = data.features or {}
    classes = {name: names for name in features if (names := _class_names(features[name])) is not None}
    unread = {name: _Unread(a(features[name])) for name in features if name not in _CHATS and not _is_read(features[name])}
    if unread:
        data = data.select_columns([name for name in features if name not in unread])
    data = data.with_format(None)

    def rows() -> Iterator[tuple[Sequence[Any], Iterable[Any]]]:
        for batch in data.iter(batch_size=_BATCH):
            names = (*batch, *unread)
            for row in zip(*batch.values()):
                yield names, (*row, *unread.values())

    return _Rows(rows(), classes)


def _of_mapping(data: Mapping[Any, Any], what: str) -> _Rows:
    columns: list[Sequence[Any]] = []
    for name, column in data.items():
        if _has(column, "column_names"):
            raise TypeError(f"{what} is {a(data)} of data sets: give one of them, as in {what}=data[{name!r}]")
        values = _values(column)
        if values is None:
            raise TypeError(f"{what} is {a(data)} whose value for {name!r} is {a(column)}, not a list: a dict has columns")
        if columns and len(values) != len(columns[0]):
            raise TypeError(f"{what} is {a(data)} whose columns have different lengths: {len(columns[0])}, and {name!r} {len(values)}")
        columns.append(values)
    return _of_columns(list(data), columns)


def _values(column: Any) -> Optional[Sequence[Any]]:
    """A column's values as a list; None if it is none."""
    if isinstance(column, (list, tuple)):
        return column
    if isinstance(column, (str, bytes, Mapping, Set)) or getattr(column, "ndim", 1) == 0 or _has(column, "columns"):
        return None
    for name in ("to_pylist", "to_list", "tolist"):  # pyarrow, pandas and polars, NumPy
        if hasattr(column, name):
            return getattr(column, name)()  # type: ignore[no-any-return]
    return list(column) if isinstance(column, Iterable) else None


def is_table(data: Any) -> bool:
    """Whether data has columns: iterating over it may give their names."""
    return isinstance(data, Mapping) or any(_has(data, name) for name in ("columns", "column_names"))


def _table(data: Any, what: str) -> _Rows:
    """The rows of what has columns. They are converted when a row is read."""
    if _has(data, "column_names", "features", "iter"):
        return _of_dataset(data)
    if isinstance(data, Mapping):
        return _of_mapping(data, what)
    if _has(data, "columns", "iloc"):  # pandas; two columns may have one name
        count = len(data.columns)
        return _of_columns(list(data.columns), [data.iloc[:, i].tolist() for i in range(count)])
    if _has(data, "columns", "get_columns"):  # polars
        return _of_columns(data.columns, [column.to_list() for column in data.get_columns()])
    if _has(data, "columns", "column_names"):  # pyarrow
        return _of_columns(data.column_names, [column.to_pylist() for column in data.columns])
    lazy = f": give {what}.collect()" if _has(data, "collect") else ", not a table that is known here: give a dict of columns"
    raise TypeError(f"{what} is {a(data)}{lazy}")


def _row(row: Any, number: int, what: str) -> tuple[Sequence[Any], Iterable[Any]]:
    if isinstance(row, str):
        return _COLUMNS[1], (row,)
    if isinstance(row, Mapping):
        return tuple(row), row.values()
    if isinstance(row, (bytes, Set)) or not hasattr(row, "__len__") or len(row) not in _COLUMNS:
        raise TypeError(
            f"{what}: row {number} is {a(row)}, not a dict by column, a text, (text, label) or (text, second text, label): {row!r:.80}"
        )
    return _COLUMNS[len(row)], row


def list_of(data: Any, what: str) -> Iterable[Any]:
    """The elements of anything that has them in an order."""
    if isinstance(data, (bytes, bytearray, Set)) or not isinstance(data, Iterable) or getattr(data, "ndim", 1) == 0:
        raise TypeError(f"{what} is {a(data)}, which is neither a list of texts nor a table with columns")
    return data


def _rows(data: Any, what: str) -> _Rows:
    if is_table(data):
        return _table(data, what)
    return _Rows(_row(row, number, what) for number, row in enumerate(list_of(data, what)))


# ---- the library's rows ---------------------------------------------------------------------------------------------------


def _name(name: Any) -> bytes:
    return c_string(str(name), f"the name {str(name)!r}")


def _add(context: Context, handle: ctypes.c_void_p, rows: _Rows) -> None:
    for name, names in rows.classes.items():
        texts = (ctypes.c_char_p * len(names))(*map(_name, names))
        context.check(lib.snug_rows_classes(handle, _name(name), texts, len(names)))
    last: Optional[Sequence[Any]] = None
    columns: Any = None
    values: Any = None
    chats: list[bool] = []
    for names, row in rows.rows:
        if names is not last and names != last:
            columns = (ctypes.c_char_p * len(names))(*map(_name, names))
            values = (Value * len(names))()
            chats = [name in _CHATS for name in names]
        last = names
        for value, cell, chat in zip(values, row, chats):
            put(value, _of_chat(cell) if chat else cell)
        context.check(lib.snug_rows_add(handle, columns, values, len(names)))


@contextmanager
def filled(context: Context, data: Any, what: str) -> Iterator[ctypes.c_void_p]:
    """The library's rows of a table or of single rows."""
    rows = _rows(data, what)
    handle = ctypes.c_void_p()
    context.check(lib.snug_rows_create(context.handle, ctypes.byref(handle)))
    try:
        _add(context, handle, rows)
        yield handle
    finally:
        lib.snug_rows_destroy(handle)


@contextmanager
def given(context: Context, **files: Optional[Data]) -> Iterator[None]:
    """Sets arguments for files, such as train_file: a path, or rows, which live as long as the job. The library counts rows
    from 1 in its messages, as the lines of a file."""
    with ExitStack() as stack:
        for name, data in files.items():
            if data is None or isinstance(data, (str, bytes, os.PathLike)):
                context.set({name: data})
                continue
            handle = stack.enter_context(filled(context, data, name.removesuffix("_file")))
            context.check(lib.snug_args_set_rows(context.args, name.encode(), handle))
        yield
