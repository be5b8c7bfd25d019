# SPDX-License-Identifier: Apache-2.0
"""snug fine-tunes transformer encoders in the memory you have.

    import snug

    print(snug.plan("distilbert/distilbert-base-uncased", "train.csv", per_device_train_batch_size=32))
    result = snug.train("distilbert/distilbert-base-uncased", "train.csv", validation="dev.csv", output_dir="out",
                        num_train_epochs=3, eval_strategy="epoch")
    with snug.load("out") as model:
        predictions = model.predict(["a good film", "a bad film"])
        print(predictions.labels, predictions.probabilities)

Arguments have the names, meaning and defaults of Hugging Face's TrainingArguments and example scripts; arguments() lists
them. Errors are exceptions of the classes below Error, with the library's sentence as their text.
"""

from ._arguments import EvaluateArguments, LoadArguments, PlanArguments, PullArguments, TrainArguments
from ._library import lib as _lib
from .errors import (
    DoesNotFitError,
    Error,
    InputError,
    InternalError,
    InterruptedTraining,
    IoError,
    NumericError,
    OutOfMemoryError,
    UnsupportedError,
    UsageError,
)
from .generator import Answer, Generator, load_generator
from .history import LogHistory
from .jobs import Argument, Event, MemoryUse, Plan, TrainResult, arguments, evaluate, plan, pull, train
from .model import FilledMask, Label, Model, Predictions, TaggedWords, load

__version__: str = _lib.snug_version().decode()

__all__ = [
    "Answer",
    "Argument",
    "DoesNotFitError",
    "Error",
    "EvaluateArguments",
    "Event",
    "FilledMask",
    "Generator",
    "InputError",
    "InternalError",
    "InterruptedTraining",
    "IoError",
    "Label",
    "LoadArguments",
    "LogHistory",
    "MemoryUse",
    "Model",
    "NumericError",
    "OutOfMemoryError",
    "Plan",
    "PlanArguments",
    "Predictions",
    "PullArguments",
    "TaggedWords",
    "TrainArguments",
    "TrainResult",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "arguments",
    "evaluate",
    "load",
    "load_generator",
    "plan",
    "pull",
    "train",
]
