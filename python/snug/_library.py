# SPDX-License-Identifier: Apache-2.0
"""libsnug through ctypes: the functions and structs of snug.h that the package uses."""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_void_p,
)
from pathlib import Path
from typing import Any, Optional

FILE = "libsnug.so.0"
VERSION = (0, 1, 0)  #: of snug.h whose structs and functions are declared here

OK, E_DOES_NOT_FIT, E_INTERRUPTED = 0, 6, 8

EVENT_BEGIN, EVENT_STEP, EVENT_LOG, EVENT_EVALUATE, EVENT_SAVE, EVENT_PROGRESS, EVENT_DOWNLOAD = range(7)


class ArgumentInfo(Structure):
    _fields_ = [(name, c_char_p) for name in ("name", "aliases", "group", "value_name", "default_value", "help")]


class Metric(Structure):
    _fields_ = [("name", c_char_p), ("value", c_double)]


class Metrics(Structure):
    _fields_ = [("count", c_size_t), ("items", POINTER(Metric))]

    def to_dict(self) -> dict[str, float]:
        return {self.items[i].name.decode(): self.items[i].value for i in range(self.count)}


class Event(Structure):
    _fields_ = [
        ("kind", c_int),
        ("step", c_int64),
        ("max_steps", c_int64),
        ("epoch", c_double),
        ("loss", c_double),
        ("grad_norm", c_double),
        ("learning_rate", c_double),
        ("samples_per_second", c_double),
        ("bytes_per_second", c_double),
        ("seconds", c_double),
        ("seconds_left", c_double),
        ("metrics", POINTER(Metrics)),
        ("path", c_char_p),
        ("run", c_char_p),
    ]


(
    VALUE_MISSING,
    VALUE_TEXT,
    VALUE_NUMBER,
    VALUE_INTEGER,
    VALUE_REAL,
    VALUE_BOOLEAN,
    VALUE_LIST,
    VALUE_OTHER,
) = range(8)


class Value(Structure):
    pass


Value._fields_ = [
    ("kind", c_int),
    ("text", c_char_p),
    ("length", c_size_t),
    ("integer", c_int64),
    ("real", c_double),
    ("items", POINTER(Value)),
]

ON_LOG = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
ON_EVENT = CFUNCTYPE(None, c_void_p, POINTER(Event))
SHOULD_STOP = CFUNCTYPE(c_bool, c_void_p)


class Callbacks(Structure):
    _fields_ = [("user", c_void_p), ("on_event", ON_EVENT), ("should_stop", SHOULD_STOP)]


class MemoryLine(Structure):
    _fields_ = [("planned", c_int64), ("measured", c_int64)]


class RankUse(Structure):
    _fields_ = [("host", c_char_p), ("device", c_char_p), ("total", MemoryLine)]


class TrainResult(Structure):
    _fields_ = [
        ("steps", c_int64),
        ("samples", c_int64),
        ("tokens", c_int64),
        ("epochs", c_double),
        ("train_loss", c_double),
        ("seconds", c_double),
        ("samples_per_second", c_double),
        ("steps_per_second", c_double),
        ("seconds_to_first_step", c_double),
        ("flops", c_double),
        ("padding_avoided", c_double),
        ("truncated_texts", c_int64),
        ("infinite_losses", c_int64),
        ("infinite_gradients", c_int64),
        ("skipped_steps", c_int64),
        ("loss_scale", c_double),
        ("memory_count", c_size_t),
        ("memory", POINTER(MemoryLine)),
        ("total", MemoryLine),
        ("peak_resident", c_int64),
        ("device", c_char_p),
        ("device_method", c_char_p),
        ("device_others", c_char_p),
        ("metrics", POINTER(Metrics)),
        ("best_checkpoint", c_char_p),
        ("rank_count", c_size_t),
        ("ranks", POINTER(RankUse)),
        ("log_history", c_char_p),
        ("output_dir", c_char_p),
        ("best_metric", c_char_p),
        ("best_value", c_double),
        ("best_epoch", c_double),
        ("best_step", c_int64),
        ("best_is_model", c_bool),
        ("task", c_char_p),
    ]


class ModelInfo(Structure):
    _fields_ = [
        ("task", c_char_p),
        ("problem", c_char_p),
        ("class_count", c_size_t),
        ("classes", POINTER(c_char_p)),
    ]


class Prediction(Structure):
    _fields_ = [
        ("index", c_int64),
        ("label", c_char_p),
        ("score", c_double),
        ("logits_count", c_size_t),
        ("logits", POINTER(c_float)),
        ("candidate_count", c_size_t),
        ("ranked", c_bool),
        ("candidates", POINTER(c_char_p)),
        ("candidate_scores", POINTER(c_double)),
        ("column_count", c_size_t),
        ("column_names", POINTER(c_char_p)),
        ("columns", POINTER(c_char_p)),
        ("word_count", c_size_t),
        ("words", POINTER(c_char_p)),
        ("tags", POINTER(c_char_p)),
        ("scores", POINTER(c_double)),
        ("truncated", c_bool),
    ]


ON_ROW = CFUNCTYPE(c_int, c_void_p, POINTER(Prediction))


class Piece(Structure):
    _fields_ = [("index", c_int64), ("sequence", c_int64), ("text", c_void_p), ("length", c_size_t)]


class GivenAnswer(Structure):
    _fields_ = [
        ("index", c_int64),
        ("sequence", c_int64),
        ("prompt", c_char_p),
        ("text", c_void_p),
        ("text_length", c_size_t),
        ("count", c_size_t),
        ("ids", c_void_p),
        ("log_probabilities", c_void_p),
        ("score", c_double),
        ("stop", c_char_p),
        ("beams", c_int64),
    ]


ON_PIECE = CFUNCTYPE(c_int, c_void_p, POINTER(Piece))
ON_ANSWER = CFUNCTYPE(c_int, c_void_p, POINTER(GivenAnswer))


class PullResult(Structure):
    _fields_ = [
        ("folder", c_char_p),
        ("commit", c_char_p),
        ("files", c_int64),
        ("bytes", c_int64),
        ("fetched", c_int64),
    ]


# name: result, arguments
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "snug_version": (c_char_p, []),
    "snug_free": (None, [c_void_p]),
    "snug_memory_class_name": (c_char_p, [c_int]),
    "snug_context_create": (c_int, [POINTER(c_void_p)]),
    "snug_context_destroy": (None, [c_void_p]),
    "snug_context_set_log": (None, [c_void_p, ON_LOG, c_void_p, c_int]),
    "snug_error_message": (c_char_p, [c_void_p]),
    "snug_args_create": (c_int, [c_void_p, POINTER(c_void_p)]),
    "snug_args_destroy": (None, [c_void_p]),
    "snug_args_set": (c_int, [c_void_p, c_char_p, c_char_p]),
    "snug_args_get": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t]),
    "snug_args_info": (POINTER(ArgumentInfo), [c_size_t]),
    "snug_rows_create": (c_int, [c_void_p, POINTER(c_void_p)]),
    "snug_rows_destroy": (None, [c_void_p]),
    "snug_rows_add": (c_int, [c_void_p, POINTER(c_char_p), POINTER(Value), c_size_t]),
    "snug_rows_classes": (c_int, [c_void_p, c_char_p, POINTER(c_char_p), c_size_t]),
    "snug_args_set_rows": (c_int, [c_void_p, c_char_p, c_void_p]),
    "snug_plan_create": (c_int, [c_void_p, POINTER(c_void_p)]),
    "snug_plan_destroy": (None, [c_void_p]),
    "snug_plan_text": (c_int, [c_void_p, POINTER(c_void_p)]),
    "snug_plan_json": (c_int, [c_void_p, POINTER(c_void_p)]),
    "snug_plan_total": (c_int64, [c_void_p]),
    "snug_train": (c_int, [c_void_p, POINTER(Callbacks), POINTER(POINTER(TrainResult))]),
    "snug_train_result_text": (c_int, [POINTER(TrainResult), POINTER(c_void_p)]),
    "snug_train_result_destroy": (None, [POINTER(TrainResult)]),
    "snug_evaluate": (c_int, [c_void_p, POINTER(Callbacks), POINTER(POINTER(Metrics))]),
    "snug_metrics_destroy": (None, [POINTER(Metrics)]),
    "snug_model_open": (c_int, [c_void_p, POINTER(c_void_p)]),
    "snug_model_describe": (POINTER(ModelInfo), [c_void_p]),
    "snug_model_close": (c_int, [c_void_p]),
    "snug_model_destroy": (None, [c_void_p]),
    "snug_model_predict": (
        c_int,
        [c_void_p, c_void_p, POINTER(c_char_p), POINTER(c_char_p), c_size_t, ON_ROW, c_void_p],
    ),
    "snug_model_predict_rows": (c_int, [c_void_p, c_void_p, c_void_p, ON_ROW, c_void_p]),
    "snug_generator_open": (c_int, [c_void_p, POINTER(c_void_p)]),
    "snug_generator_destroy": (None, [c_void_p]),
    "snug_generator_answer": (
        c_int,
        [c_void_p, c_char_p, c_bool, POINTER(Callbacks), ON_PIECE, ON_ANSWER, c_void_p],
    ),
    "snug_pull": (c_int, [c_void_p, POINTER(Callbacks), POINTER(POINTER(PullResult))]),
    "snug_pull_result_destroy": (None, [POINTER(PullResult)]),
}


def text_of(value: Optional[bytes]) -> str:
    return value.decode(errors="replace") if value else ""


def _is_main_interpreter() -> bool:
    """Whether this is the first interpreter of the process, as far as Python's C API says."""
    try:
        current, main = ctypes.pythonapi.PyInterpreterState_Get, ctypes.pythonapi.PyInterpreterState_Main
    except AttributeError:
        return True
    current.restype = main.restype = c_void_p
    return bool(current() == main())


def _check_version(name: str, found: bytes) -> None:
    """A later library of the same name has all that this package uses; an earlier one, or another one, may not."""
    wanted = ".".join(map(str, VERSION))
    numbers = re.match(rb"(\d+)\.(\d+)\.(\d+)", found)
    if numbers is None or int(numbers[1]) != VERSION[0] or tuple(map(int, numbers.groups())) < VERSION:
        raise ImportError(
            f"{name} is version {text_of(found)} of snug's library, but this package needs {wanted}, or a later {VERSION[0]}.x: "
            "install both from the same release, or unset SNUG_LIBRARY"
        )


def _wait_briefly() -> None:
    """As the program does: threads that wait spin briefly and then sleep, unless the user decided or GCC's OpenMP is loaded."""
    if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} and "libgomp" not in Path("/proc/self/maps").read_text():
        os.environ["GOMP_SPINCOUNT"] = "1000"


def _load() -> ctypes.CDLL:
    """The library of the wheel, or the file that SNUG_LIBRARY names, or an installed one."""
    if not _is_main_interpreter():
        raise ImportError(
            "snug cannot be used in a sub-interpreter, where neither ctypes' callbacks nor NumPy work: import it in the main "
            "interpreter, or in a process of its own (mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
        )
    own = Path(__file__).parent / FILE
    name = os.environ.get("SNUG_LIBRARY") or (str(own) if own.exists() else FILE)
    try:
        _wait_briefly()
        library = ctypes.CDLL(name)
        library.snug_version.restype = c_char_p
        _check_version(name, library.snug_version())
        for function, (result, arguments) in _FUNCTIONS.items():
            declared = getattr(library, function)
            declared.restype, declared.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise ImportError(f"{name} cannot be used as snug's library: {error}") from error
    return library


lib = _load()


def _paths() -> frozenset[str]:
    """The arguments, with their older names, that name files and folders, whose names may be any bytes."""
    found: set[str] = set()
    index = 0
    while info := lib.snug_args_info(index):
        if {b"DIR", b"FILE"} & set(info.contents.value_name.split(b"|")):
            found.update((info.contents.name + b" " + info.contents.aliases).decode().split())
        index += 1
    return frozenset(found)


PATHS = _paths()

_HALVES = re.compile("[\ud800-\udfff]")


def c_string(text: str, what: str, *, is_path: bool = False, replace: bool = False) -> bytes:
    """text for the library, in UTF-8, or the bytes of a path; what names it in messages. replace: surrogates without their
    other half become U+FFFD, as in a file of data."""
    if "\0" in text:
        raise ValueError(f"{what} holds the character U+0000, at which the library would end it")
    try:
        return os.fsencode(text) if is_path else text.encode()
    except UnicodeEncodeError as error:
        if replace:
            return _HALVES.sub("\ufffd", text).encode()
        raise ValueError(f"{what} holds the lone surrogate U+{ord(text[error.start]):04X}, which UTF-8 does not have") from error


def path_of(value: Optional[bytes]) -> str:
    """A path, whose bytes need not be UTF-8: as os.listdir() gives it."""
    return os.fsdecode(value) if value else ""


def take_text(pointer: c_void_p) -> str:
    """A text that the library allocated, which is freed."""
    try:
        return text_of(ctypes.string_at(pointer.value)) if pointer.value else ""
    finally:
        lib.snug_free(pointer)
