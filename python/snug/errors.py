# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each status of the library. Their text is the library's sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .jobs import Plan


class Error(Exception):
    """A job failed. The text names the error, the file, line, tensor or argument, and what to do."""


class UsageError(Error, ValueError):
    """An argument is unknown, has an invalid value, or cannot be combined with another."""


class InputError(Error, ValueError):
    """A file's content cannot be used."""


class IoError(Error, OSError):
    """The operating system refused to open, read or write."""


class OutOfMemoryError(Error, MemoryError):
    """An allocation failed."""


class DoesNotFitError(Error, MemoryError):
    """The plan exceeds the budget or the available memory; nothing was allocated."""

    plan: Optional[Plan] = None  #: of snug.plan(): what would be needed


class NumericError(Error, ArithmeticError):
    """Losses or gradients were NaN or infinite for many steps."""


class InterruptedTraining(Error):
    """The job was asked to stop, and a training that had begun has saved a checkpoint."""


class UnsupportedError(Error, NotImplementedError):
    """Known, but not supported by this build or machine."""


class InternalError(Error, RuntimeError):
    """A bug in snug."""


# By snug_status.
_CLASSES = {
    2: UsageError,
    3: InputError,
    4: IoError,
    5: OutOfMemoryError,
    6: DoesNotFitError,
    7: NumericError,
    8: InterruptedTraining,
    9: UnsupportedError,
    10: InternalError,
}


def error_of(status: int, message: str) -> Error:
    """The exception for a status; InternalError for one that this version does not know."""
    return _CLASSES.get(status, InternalError)(message or f"status {status}")
