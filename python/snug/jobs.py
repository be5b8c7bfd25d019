# SPDX-License-Identifier: Apache-2.0
"""Jobs in one call: train, plan, evaluate, pull; and the table of their arguments."""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Optional

from . import _library
from ._context import Context, PathLike
from ._library import E_DOES_NOT_FIT, lib, path_of, take_text, text_of
from ._progress import make_progress
from ._rows import Data, given
from ._signals import Deferred
from .errors import DoesNotFitError, error_of
from .history import LogHistory

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from typing_extensions import Unpack

    from ._arguments import EvaluateArguments, PlanArguments, PullArguments, TrainArguments

_KINDS = ("begin", "step", "log", "evaluate", "save", "progress", "download", "end", "run")


@dataclass(frozen=True)
class Argument:
    """An argument of train(), plan(), evaluate() and load()."""

    name: str
    aliases: tuple[str, ...]  #: older names
    group: str
    value: str  #: "FLOAT", "DIR", "A|B|C", "BOOL"
    default: str  #: "" if unset
    help: str


def arguments() -> list[Argument]:
    """All arguments: names, meaning and defaults are those of Hugging Face's TrainingArguments and example scripts."""
    found: list[Argument] = []
    while info := lib.snug_args_info(len(found)):
        name, aliases, group, value, default, help_ = (
            getattr(info.contents, member[0]).decode() for member in _library.ArgumentInfo._fields_
        )
        found.append(Argument(name, tuple(aliases.split()), group, value, default, help_))
    return found


@dataclass(frozen=True)
class Event:
    """What happens in a job: kind is "begin", "step", "log", "evaluate", "save", "progress", "end" or "run". Where a value has
    no meaning it is 0, None or empty."""

    kind: str
    step: int
    max_steps: int
    epoch: float
    loss: float  #: "log": mean over the steps since the last log
    grad_norm: float
    learning_rate: float
    samples_per_second: float
    seconds: float
    seconds_left: float
    metrics: dict[str, float]  #: "evaluate"
    path: Optional[str]  #: "save": the checkpoint
    run: Optional[dict[str, Any]]  #: "run": what was understood and planned


def _event(raw: _library.Event) -> Event:
    return Event(
        kind=_KINDS[raw.kind] if raw.kind < len(_KINDS) else "other",
        **{name: getattr(raw, name) for name in ("step", "max_steps", "epoch", "loss", "grad_norm", "learning_rate")},
        **{name: getattr(raw, name) for name in ("samples_per_second", "seconds", "seconds_left")},
        metrics=raw.metrics.contents.to_dict() if raw.metrics else {},
        path=path_of(raw.path) or None,
        run=json.loads(raw.run) if raw.run else None,
    )


def _listener(on_event: Optional[Callable[[Event], None]]) -> Optional[Callable[[_library.Event], None]]:
    if on_event is None:
        return None
    return lambda raw: on_event(_event(raw))


@dataclass(frozen=True)
class MemoryUse:
    planned: int  #: bytes
    measured: Optional[int]  #: bytes; None if unknown


@dataclass(frozen=True)
class TrainResult:
    """The result of a training. str() is the summary that the command line prints."""

    output_dir: str
    steps: int
    samples: int
    tokens: int
    epochs: float
    train_loss: float
    seconds: float
    samples_per_second: float
    truncated_texts: int
    skipped_steps: int  #: fp16
    metrics: dict[str, float]  #: of the last evaluation
    best_checkpoint: Optional[str]
    best_metric: Optional[str]  #: metric_for_best_model, else the task's main one; None without an evaluation
    best_value: Optional[float]  #: that of the best evaluation
    best_step: Optional[int]
    memory: dict[str, MemoryUse]  #: by class
    total_memory: MemoryUse
    device: Optional[str]  #: the GPU; None on the CPU
    log_history: LogHistory = field(repr=False)  #: what was logged, by step, as Trainer's state.log_history
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # IPython and notebooks
        printer.text(self.text)

    def to_frame(self) -> pandas.DataFrame:
        """log_history as a DataFrame."""
        return self.log_history.to_frame()


def _memory(line: _library.MemoryLine) -> MemoryUse:
    return MemoryUse(line.planned, line.measured if line.measured >= 0 else None)


def _train_result(context: Context, raw: Any) -> TrainResult:
    text = ctypes.c_void_p()
    context.check(lib.snug_train_result_text(raw, ctypes.byref(text)))
    result = raw.contents
    names = ("steps", "samples", "tokens", "epochs", "train_loss", "seconds", "samples_per_second", "truncated_texts")
    return TrainResult(
        output_dir=path_of(result.output_dir),
        **{name: getattr(result, name) for name in names},
        skipped_steps=result.skipped_steps,
        metrics=result.metrics.contents.to_dict() if result.metrics else {},
        best_checkpoint=path_of(result.best_checkpoint) or None,
        best_metric=text_of(result.best_metric) or None,
        best_value=result.best_value if result.best_metric else None,
        best_step=result.best_step if result.best_metric else None,
        memory={lib.snug_memory_class_name(i).decode(): _memory(result.memory[i]) for i in range(result.memory_count)},
        total_memory=_memory(result.total),
        device=text_of(result.device) or None,
        log_history=LogHistory.from_json(result.log_history),
        text=take_text(text),
    )


def train(
    model: Optional[PathLike] = None,
    train: Optional[Data] = None,
    *,
    validation: Optional[Data] = None,
    progress: Optional[bool] = None,
    on_event: Optional[Callable[[Event], None]] = None,
    **arguments: Unpack[TrainArguments],
) -> TrainResult:
    """Fine-tunes a model and writes a Hugging Face folder.

    model: a model folder, or a model's name in the local Hugging Face cache (see pull()).
    train, validation: a file (CSV, TSV, JSON, CoNLL, text), or rows: a DataFrame of pandas or polars, a Dataset of datasets, a dict
        of columns, dicts by column, texts, (text, label), (text, second text, label).
    progress: shows bars and messages, in notebooks also a table of losses and metrics; by default in terminals and notebooks.
        Messages go to the logger "snug" instead where logging is configured to show them.
    on_event: is called with each Event. An exception from it stops the training after a checkpoint, and is raised.
    arguments: by the names of Hugging Face's TrainingArguments and example scripts, such as num_train_epochs=3, bf16=True,
        learning_rate=5e-5, eval_strategy="epoch", output_dir="out", the folder for the model (by default trainer_output).
        TrainArguments has them with their types; arguments() lists them.

    An interrupt (Ctrl-C, a notebook's stop) ends the current step, saves a checkpoint and raises KeyboardInterrupt;
    resume_from_checkpoint=True continues. SIGTERM, unless the program handles it, does the same with SystemExit(130), as the
    program snug exits. Where a signal handler of the program raises nothing, the training goes on.
    """
    context = Context(make_progress(progress))
    raw = ctypes.POINTER(_library.TrainResult)()
    with given(context, train_file=train, validation_file=validation):
        context.set({"model_name_or_path": model, **arguments})
        try:
            context.run(lambda callbacks: lib.snug_train(context.args, callbacks, ctypes.byref(raw)), _listener(on_event))
            return _train_result(context, raw)
        finally:
            lib.snug_train_result_destroy(raw)


@dataclass(frozen=True)
class Plan:
    """Memory, FLOPs and seconds of a training. str() is the table that the command line prints."""

    total: int  #: bytes
    figures: dict[str, Any] = field(repr=False)  #: the object of `snug plan --json`
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # IPython and notebooks
        printer.text(self.text)


def _plan(context: Context, handle: ctypes.c_void_p) -> Plan:
    text, figures = ctypes.c_void_p(), ctypes.c_void_p()
    context.check(lib.snug_plan_text(handle, ctypes.byref(text)))
    plan_text = take_text(text)
    context.check(lib.snug_plan_json(handle, ctypes.byref(figures)))
    return Plan(lib.snug_plan_total(handle), json.loads(take_text(figures)), plan_text)


def plan(
    model: Optional[PathLike] = None,
    train: Optional[Data] = None,
    *,
    validation: Optional[Data] = None,
    **arguments: Unpack[PlanArguments],
) -> Plan:
    """Plans a training without running it, with the arguments of train(): bytes by class, FLOPs, seconds, and what each method
    that saves memory would save. DoesNotFitError has the plan as its attribute plan."""
    context = Context()
    handle = ctypes.c_void_p()
    with given(context, train_file=train, validation_file=validation):
        context.set({"model_name_or_path": model, **arguments})
        try:
            with Deferred():
                status = lib.snug_plan_create(context.args, ctypes.byref(handle))
            if status == E_DOES_NOT_FIT:
                error = error_of(status, text_of(lib.snug_error_message(context.handle)))
                if handle and isinstance(error, DoesNotFitError):
                    error.plan = _plan(context, handle)
                raise error
            context.check(status)
            return _plan(context, handle)
        finally:
            lib.snug_plan_destroy(handle)


def evaluate(
    model: PathLike, validation: Data, *, progress: Optional[bool] = None, **arguments: Unpack[EvaluateArguments]
) -> dict[str, float]:
    """The metrics of a model on labelled data, as in train(): {"eval_loss": …, "eval_accuracy": …, …}."""
    context = Context(make_progress(progress))
    raw = ctypes.POINTER(_library.Metrics)()
    with given(context, validation_file=validation):
        context.set({"model_name_or_path": model, **arguments})
        try:
            context.run(lambda callbacks: lib.snug_evaluate(context.args, callbacks, ctypes.byref(raw)))
            return raw.contents.to_dict()
        finally:
            lib.snug_metrics_destroy(raw)


def pull(model: str, *, progress: Optional[bool] = None, **arguments: Unpack[PullArguments]) -> str:
    """Brings a model, such as "ORG/NAME", from a Hugging Face hub into the local cache, and returns its folder. arguments:
    model_revision, cache_dir."""
    context = Context(make_progress(progress))
    raw = ctypes.POINTER(_library.PullResult)()
    context.set({"model_name_or_path": model, **arguments})
    try:
        context.run(lambda callbacks: lib.snug_pull(context.args, callbacks, ctypes.byref(raw)))
        return path_of(raw.contents.folder)
    finally:
        lib.snug_pull_result_destroy(raw)


