# SPDX-License-Identifier: Apache-2.0
"""The progress of a job in a terminal or a notebook, by tqdm."""

from __future__ import annotations

import sys
from typing import Any, Optional

from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]

from ._library import (
    EVENT_BEGIN,
    EVENT_DOWNLOAD,
    EVENT_EVALUATE,
    EVENT_LOG,
    EVENT_PROGRESS,
    EVENT_SAVE,
    EVENT_STEP,
    Event,
    text_of,
)


def in_notebook() -> bool:
    return "ipykernel" in sys.modules and "IPython" in sys.modules


class Progress:
    """Bars over steps, and over the batches of an evaluation; losses and metrics as lines."""

    def __init__(self) -> None:
        self._steps: Optional[Any] = None
        self._inner: Optional[Any] = None

    def write(self, text: str) -> None:
        tqdm.write(text, file=sys.stdout if in_notebook() else sys.stderr)

    def on_event(self, event: Event) -> None:
        if event.kind == EVENT_BEGIN:
            self._steps = tqdm(total=event.max_steps, initial=event.step, unit="step", desc="train")
        elif event.kind == EVENT_STEP and self._steps is not None:
            self._move(self._steps, event.step)
        elif event.kind in (EVENT_PROGRESS, EVENT_DOWNLOAD):
            if self._inner is None:
                bytes_ = event.kind == EVENT_DOWNLOAD
                self._inner = tqdm(
                    total=event.max_steps, unit="B" if bytes_ else "batch", unit_scale=bytes_, leave=False
                )
            self._move(self._inner, event.step)
        elif event.kind == EVENT_LOG:
            self.write(
                f"step {event.step}: loss {event.loss:.4f}, grad_norm {event.grad_norm:.3g}, "
                f"learning_rate {event.learning_rate:.3g}"
            )
        elif event.kind == EVENT_EVALUATE:
            self._end_inner()
            metrics = event.metrics.contents.to_dict() if event.metrics else {}
            self.write(f"step {event.step}: " + ", ".join(f"{name} {value:.4g}" for name, value in metrics.items()))
        elif event.kind == EVENT_SAVE:
            self.write(f"step {event.step}: saved {text_of(event.path)}")

    @staticmethod
    def _move(bar: Any, position: int) -> None:
        bar.update(position - bar.n)

    def _end_inner(self) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None

    def close(self) -> None:
        self._end_inner()
        if self._steps is not None:
            self._steps.close()
            self._steps = None


def make_progress(wanted: Optional[bool]) -> Optional[Progress]:
    """None: in terminals and notebooks."""
    if wanted is None:
        wanted = in_notebook() or sys.stderr.isatty()
    return Progress() if wanted else None
