# SPDX-License-Identifier: Apache-2.0
"""A context of the library with its arguments, and calls in it."""

from __future__ import annotations

import ctypes
import json
import logging
import os
from collections.abc import Mapping
from typing import Any, Callable, Optional, Union

from ._library import (
    OK,
    ON_EVENT,
    ON_LOG,
    PATHS,
    SHOULD_STOP,
    Callbacks,
    E_INTERRUPTED,
    Event,
    c_string,
    lib,
)
from ._progress import Progress
from ._signals import CALLS, Deferred
from .errors import error_of

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

logger = logging.getLogger("snug")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


def to_text(name: str, value: Any) -> str:
    """An argument's value as on the command line: a list is joined by commas, a dict is JSON, or key=value for optim_args."""
    if isinstance(value, (list, tuple)):
        return ",".join(to_text(name, item) for item in value)
    if isinstance(value, Mapping):
        if name == "optim_args":
            return ",".join(f"{key}={to_text(name, item)}" for key, item in value.items())
        return json.dumps(value)
    return os.fsdecode(value) if isinstance(value, (bytes, os.PathLike)) else str(value)


class Context:
    """Owns a snug_context and a snug_args."""

    def __init__(self, progress: Optional[Progress] = None) -> None:
        self._progress = progress
        self.handle, self.args = ctypes.c_void_p(), ctypes.c_void_p()
        if lib.snug_context_create(ctypes.byref(self.handle)) != OK:
            raise MemoryError("snug_context_create")
        self._on_log = ON_LOG(self._log)  # kept as long as the library may call it
        lib.snug_context_set_log(self.handle, self._on_log, None, 1)
        self.check(lib.snug_args_create(self.handle, ctypes.byref(self.args)))

    def __del__(self) -> None:
        if lib is not None and self.handle and not CALLS.hang:
            lib.snug_args_destroy(self.args)
            lib.snug_context_destroy(self.handle)

    def _log(self, _user: Any, level: int, message: bytes) -> None:
        text, number = message.decode(errors="replace"), _LEVELS[level] if level < len(_LEVELS) else logging.ERROR
        wanted = logger.isEnabledFor(number)
        if self._progress is None or (wanted and logger.hasHandlers()):
            logger.log(number, "%s", text)
        elif wanted or logger.level == logging.NOTSET:  # Colab has a handler, of warnings
            self._progress.write(text)

    def set(self, arguments: Mapping[str, object]) -> None:
        """Sets arguments by Hugging Face's names; None leaves the default."""
        for name, value in arguments.items():
            if value is not None:
                text = c_string(to_text(name, value), name, is_path=name in PATHS)
                self.check(lib.snug_args_set(self.args, c_string(name, "an argument's name"), text))

    def get(self, name: str) -> str:
        text = ctypes.create_string_buffer(4096)
        self.check(lib.snug_args_get(self.args, name.encode(), text, len(text)))
        return os.fsdecode(text.value) if name in PATHS else text.value.decode()

    def check(self, status: int) -> None:
        if status != OK:
            raise error_of(status, lib.snug_error_message(self.handle).decode(errors="replace"))

    def run(self, call: Callable[[Any], int], on_event: Optional[Callable[[Event], None]] = None) -> None:
        """Calls the library with callbacks. A signal's exception, such as KeyboardInterrupt, or one of on_event, stops the job
        at the end of its step, after a checkpoint; then it is raised. So does SIGTERM, as SystemExit."""
        raised: list[BaseException] = []
        with Deferred(terminates=True) as signals:

            def guarded(function: Callable[[], None]) -> None:
                try:
                    function()
                except BaseException as error:  # noqa: BLE001: raised below, in Python's own frames
                    raised.append(error)

            def event(_user: Any, pointer: Any) -> None:
                if self._progress:
                    guarded(lambda: self._progress.on_event(pointer.contents))  # type: ignore[union-attr]
                if on_event:
                    guarded(lambda: on_event(pointer.contents))

            def stop(_user: Any) -> bool:
                guarded(signals.deliver)
                return bool(raised)

            callbacks = Callbacks(None, ON_EVENT(event), SHOULD_STOP(stop))
            try:
                status = call(ctypes.byref(callbacks))
            finally:
                if self._progress:
                    self._progress.close()
        if raised and status in (OK, E_INTERRUPTED):
            raise raised[0]
        self.check(status)
