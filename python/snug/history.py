# SPDX-License-Identifier: Apache-2.0
"""What a training logged."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]


class LogHistory(list[dict[str, float]]):
    """The entries of a training's log, with the keys of Trainer's state.log_history: each has step and epoch, and then what was
    logged there (loss, grad_norm, learning_rate, samples_per_second), an evaluation's metrics (eval_loss, eval_accuracy, …), or
    the training's totals (train_runtime, train_loss, …). A resumed training has the entries from before, too."""

    @classmethod
    def from_json(cls, text: Union[str, bytes]) -> LogHistory:
        """log_history of a trainer_state.json, where null is a value that was not finite."""
        entries = json.loads(text)
        return cls({name: math.nan if value is None else value for name, value in entry.items()} for entry in entries)

    def to_frame(self) -> pandas.DataFrame:
        """A row for each entry, a column for each quantity; NaN where an entry does not have it. Needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame() needs pandas, which is not installed: pip install pandas") from error
        return pandas.DataFrame(list(self), columns=list(dict.fromkeys(name for entry in self for name in ("step", "epoch", *entry))))
