# SPDX-License-Identifier: Apache-2.0
"""Signals while the library runs, and the end of the process.

Python's handlers set a flag in C, and the Python code runs later, at the first instruction of any callback of the library, where
ctypes drops its exception. So handlers are replaced by one that takes a note, and run where their exception can be kept: in
deliver(), and after the call.

At the end of the process other threads may still be in calls: daemon threads, whose Python code no longer runs then, while the
destructors of C libraries free what they compute with. So calls are stopped before.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from types import FrameType
from typing import Any, Callable, NoReturn, Optional

# Those whose handlers may raise: requests to stop, and timers.
_HANDLED = tuple(
    int(number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU)
)

_EXIT_SECONDS = 30.0  # for a step and its checkpoint

INTERRUPTED = 130  #: the exit code of the program `snug` after a signal


def _exit(_number: int, _frame: Optional[FrameType]) -> NoReturn:
    raise SystemExit(INTERRUPTED)


class _Calls:
    """The calls of the library in progress, in all threads."""

    def __init__(self) -> None:
        self.ending = False
        self.running = 0
        self.changed = threading.Condition()

    def change(self, by: int) -> None:
        with self.changed:
            self.running += by
            self.changed.notify_all()

    def end(self) -> None:
        """Before Python's end: the calls stop, as for a signal, and are waited for."""
        with self.changed:
            self.ending = True
            self.changed.wait_for(lambda: self.running <= 0, _EXIT_SECONDS)

    def forked(self) -> None:
        """In a child of fork(), which has none of the other threads."""
        self.running = 0
        self.changed = threading.Condition()

    @property
    def hang(self) -> bool:
        """Some have not stopped: what they use must not be freed."""
        return self.ending and self.running > 0


CALLS = _Calls()
atexit.register(CALLS.end)
os.register_at_fork(after_in_child=CALLS.forked)


class Deferred:
    """A call of the library; defers signals: `with Deferred() as signals`. terminates: SIGTERM, where the program has no handler for it and would be
    ended at once, raises SystemExit instead; for calls that can be stopped."""

    __slots__ = ("_arrived", "_handlers", "_terminates")

    def __init__(self, terminates: bool = False) -> None:
        self._terminates = terminates

    def __enter__(self) -> Deferred:
        if CALLS.ending:
            raise SystemExit(INTERRUPTED)
        CALLS.change(1)
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
        """Runs the handlers of signals that have arrived; raises what they raise, such as KeyboardInterrupt. In a thread that
        is left at the end of the process: raises SystemExit, which ends the thread."""
        if CALLS.ending:
            raise SystemExit(INTERRUPTED)
        self._run_handlers()

    def _run_handlers(self) -> None:
        while self._arrived:
            number, frame = self._arrived.pop(0)
            self._handlers[number][1](number, frame)

    def __exit__(self, *_: object) -> None:
        CALLS.change(-1)
        for number, (before, _handler) in self._handlers.items():
            if signal.getsignal(number) == self._note:  # else a callback has set another
                signal.signal(number, before)
        self._run_handlers()
