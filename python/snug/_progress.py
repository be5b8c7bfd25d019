# SPDX-License-Identifier: Apache-2.0
"""The progress of a job in a terminal or a notebook, by tqdm."""

from __future__ import annotations

import html
import importlib
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


_OF_TIME = ("_runtime", "_per_second", "eval_samples")  #: figures of an evaluation that are no metrics


def in_notebook() -> bool:
    return "ipykernel" in sys.modules and "IPython" in sys.modules


class Table:
    """Losses and metrics of a training in a notebook, a row for each step that was logged or evaluated."""

    _MOST = 50  # rows: the notebook gets the whole table each time

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, float]] = {}
        self._display: Optional[Any] = None

    def add(self, step: int, values: dict[str, float]) -> None:
        ipython: Any = importlib.import_module("IPython.display")
        self._rows.setdefault(step, {}).update(values)
        page = ipython.HTML(self._html())
        if self._display is None:
            self._display = ipython.display(page, display_id=True)
        else:
            self._display.update(page)

    def _html(self) -> str:
        rows = list(self._rows.items())[-self._MOST :]
        names = list(dict.fromkeys(name for _, row in rows for name in row))
        head = "".join(f"<th>{html.escape(name)}</th>" for name in ("step", *names))
        cells = (
            f"<td>{step}</td>" + "".join(f"<td>{row[name]:.4g}</td>" if name in row else "<td></td>" for name in names)
            for step, row in rows
        )
        earlier = len(self._rows) - len(rows)
        note = f"<p>{earlier} earlier rows are not shown</p>" if earlier else ""
        return note + f"<table><tr>{head}</tr>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


class Progress:
    """Bars over steps, and over the batches of an evaluation; losses and metrics as lines, in notebooks as a table."""

    def __init__(self) -> None:
        self._steps: Optional[Any] = None
        self._inner: Optional[Any] = None
        self._table = Table() if in_notebook() else None

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
            self._show(event.step, {"loss": event.loss, "grad_norm": event.grad_norm, "learning_rate": event.learning_rate})
        elif event.kind == EVENT_EVALUATE:
            self._end_inner()
            metrics = event.metrics.contents.to_dict() if event.metrics else {}
            self._show(event.step, {name: value for name, value in metrics.items() if not name.endswith(_OF_TIME)})
        elif event.kind == EVENT_SAVE:
            self.write(f"step {event.step}: saved {text_of(event.path)}")

    def _show(self, step: int, values: dict[str, float]) -> None:
        if self._table is None:
            self.write(f"step {step}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()))
        else:
            self._table.add(step, values)

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
