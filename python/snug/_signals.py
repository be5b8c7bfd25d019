# SPDX-License-Identifier: Apache-2.0
"""Signals while the library runs.

Python's handlers set a flag in C, and the Python code runs later, at the first instruction of any callback of the library, where
ctypes drops its exception. So handlers are replaced by one that takes a note, and run where their exception can be kept: in
deliver(), and after the call.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Callable, NoReturn, Optional

# Those whose handlers may raise: requests to stop, and timers.
_HANDLED = tuple(
    int(number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU)
)

INTERRUPTED = 130  #: the exit code of the program `snug` after a signal


def _exit(_number: int, _frame: Optional[FrameType]) -> NoReturn:
    raise SystemExit(INTERRUPTED)


class Deferred:
    """Defers signals: `with Deferred() as signals`. terminates: SIGTERM, where the program has no handler for it and would be
    ended at once, raises SystemExit instead; for calls that can be stopped."""

    __slots__ = ("_arrived", "_handlers", "_terminates")

    def __init__(self, terminates: bool = False) -> None:
        self._terminates = terminates

    def __enter__(self) -> Deferred:
        self._handlers: dict[int, tuple[Any, Callable[[int, Optional[FrameType]], Any]]] = {}
        self._arrived: list[tuple[int, Optional[FrameType]]] = []
        if threading.get_ident() == threading.main_thread().ident:  # Python runs handlers in this thread alone
            for number in _HANDLED:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._replace(number, handler, handler)
                elif self._terminates and number == signal.SIGTERM and handler == signal.SIG_DFL:
                    self._replace(number, handler, _exit)
        return self

    def _replace(self, number: int, before: Any, handler: Callable[[int, Optional[FrameType]], Any]) -> None:
        self._handlers[number] = before, handler
        signal.signal(number, self._note)

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        self._arrived.append((number, frame))

    def deliver(self) -> None:
        """Runs the handlers of signals that have arrived; raises what they raise, such as KeyboardInterrupt."""
        while self._arrived:
            number, frame = self._arrived.pop(0)
            self._handlers[number][1](number, frame)

    def __exit__(self, *_: object) -> None:
        for number, (before, _handler) in self._handlers.items():
            if signal.getsignal(number) == self._note:  # else a callback has set another
                signal.signal(number, before)
        self.deliver()
