# SPDX-License-Identifier: Apache-2.0
"""Signals while the library runs.

oneDNN sometimes points the stack pointer into a heap buffer, so that a signal handler that ran in a thread of the library
would overwrite the heap (snug.h). Python's handlers are such handlers: they set a flag in C and run Python code later. So all
signals are blocked in the calling thread for the time of a call; threads that the library creates inherit that.

The Python code of a handler would run at the first instruction of any callback, where ctypes drops its exception. So
handlers are replaced by one that takes a note, and run where their exception can be kept: in deliver(), and after the call.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from types import FrameType
from typing import Any, Callable, Optional

_libc = ctypes.CDLL(None)
_check_signals = ctypes.pythonapi.PyErr_CheckSignals
_check_signals.restype = ctypes.c_int
_Mask = ctypes.c_char * 128  # sigset_t
_SIG_SETMASK = int(signal.SIG_SETMASK)
_all = _Mask()
_libc.sigfillset(_all)
# A thread that causes one of these gets it at once.
for _number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP):
    _libc.sigdelset(_all, int(_number))

# Those whose handlers may raise: requests to stop, and timers.
_HANDLED = tuple(
    int(number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU)
)


class Deferred:
    """Defers signals: `with Deferred() as signals`."""

    __slots__ = ("_before", "_handlers", "_arrived")

    def __enter__(self) -> Deferred:
        self._before = _Mask()
        self._handlers: dict[int, Callable[[int, Optional[FrameType]], Any]] = {}
        self._arrived: list[tuple[int, Optional[FrameType]]] = []
        _libc.pthread_sigmask(_SIG_SETMASK, _all, self._before)
        if threading.get_ident() == threading.main_thread().ident:  # Python runs handlers in this thread alone
            for number in _HANDLED:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        self._arrived.append((number, frame))

    def _run_handlers(self) -> None:
        while self._arrived:
            number, frame = self._arrived.pop(0)
            self._handlers[number](number, frame)

    def deliver(self) -> None:
        """Runs the handlers of signals that have arrived; raises what they raise, such as KeyboardInterrupt."""
        _libc.pthread_sigmask(_SIG_SETMASK, self._before, None)
        try:
            _check_signals()
        finally:
            _libc.pthread_sigmask(_SIG_SETMASK, _all, None)
        self._run_handlers()

    def __exit__(self, *_: object) -> None:
        _libc.pthread_sigmask(_SIG_SETMASK, self._before, None)
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == self._note:  # else a callback has set another
                signal.signal(number, handler)
        self._run_handlers()
