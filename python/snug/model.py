# SPDX-License-Identifier: Apache-2.0
"""A loaded model: texts in memory, predictions as NumPy arrays."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Generic, Literal, NamedTuple, Optional, TypeVar, Union, cast, overload

import numpy as np
import numpy.typing as npt

from ._context import Context, PathLike
from ._library import E_INTERRUPTED, OK, ON_ROW, c_string, lib, text_of
from ._rows import Texts, a, filled, is_table, list_of
from ._signals import CALLS, Deferred
from .errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._arguments import LoadArguments

_CHECK_EVERY = 64  # rows between two looks for signals


class Label(NamedTuple):
    label: str
    score: float


@dataclass(frozen=True, eq=False)
class Predictions:
    """Classification and regression: one row for each text. Iterating gives (label, score)."""

    labels: list[str]  #: class names; several labels: names joined by "|"; regression: the value
    scores: npt.NDArray[np.float64]  #: probability of the class; several labels: the lowest one; regression: the value
    classes: list[str]  #: of the columns; regression: []
    probabilities: npt.NDArray[np.float64]  #: [texts, classes]; regression: [texts, 0]
    logits: npt.NDArray[np.float32]  #: [texts, classes]; regression: [texts, 1]
    truncated: npt.NDArray[np.bool_]  #: the text was cut to max_seq_length tokens

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Label]:
        return map(Label, self.labels, self.scores.tolist())


@dataclass(frozen=True, eq=False)
class TaggedWords:
    """Token classification: the words of a text, which blanks separate."""

    words: list[str]
    tags: list[Optional[str]]  #: None: the word was cut, or has no token
    scores: npt.NDArray[np.float64]  #: probabilities of the tags
    truncated: bool


@dataclass(frozen=True, eq=False)
class FilledMask:
    """Masked LM: a mask token of a text."""

    index: int  #: of the text
    tokens: list[str]  #: the top_k most probable ones
    scores: npt.NDArray[np.float64]  #: their probabilities


#: The vectors of texts: [texts, size].
Vectors = npt.NDArray[np.float32]

#: What a model predicts, by its task.
Result = TypeVar("Result", Predictions, list[TaggedWords], list[FilledMask], Vectors)


def _strings(pointer: Any, count: int) -> list[Optional[str]]:
    return [None if pointer[i] is None else pointer[i].decode(errors="replace") for i in range(count)]


class _Rows:
    """Collects what the library gives for each row, which is valid only during its callback."""

    def __init__(self, signals: Deferred, classes: list[str]) -> None:
        self._signals = signals
        self._classes = classes
        self.raised: Optional[BaseException] = None
        self.labels: list[str] = []
        self.scores: list[float] = []
        self.truncated: list[bool] = []
        self.probabilities: list[bytes] = []
        self.logits: list[bytes] = []
        self.tagged: list[TaggedWords] = []
        self.filled: list[FilledMask] = []

    def on_row(self, _user: Any, pointer: Any) -> int:
        try:
            row = pointer.contents
            self._add(row)
            if CALLS.ending or row.index % _CHECK_EVERY == _CHECK_EVERY - 1:
                self._signals.deliver()
        except BaseException as error:  # noqa: BLE001: raised after the call, in Python's own frames
            self.raised = error
            return E_INTERRUPTED
        return OK

    def _add(self, row: Any) -> None:
        count = row.candidate_count
        probabilities = ctypes.string_at(row.candidate_scores, 8 * count) if count else b""
        if row.words:
            scores = np.frombuffer(ctypes.string_at(row.scores, 8 * row.word_count))
            words = [word or "" for word in _strings(row.words, row.word_count)]
            self.tagged.append(TaggedWords(words, _strings(row.tags, row.word_count), scores, row.truncated))
        elif row.ranked:
            tokens = [token or "" for token in _strings(row.candidates, count)]
            self.filled.append(FilledMask(row.index, tokens, np.frombuffer(probabilities)))
        else:
            self.labels.append(text_of(row.label))
            self.scores.append(row.score)
            self.truncated.append(row.truncated)
            self.probabilities.append(probabilities)
            self.logits.append(ctypes.string_at(row.logits, 4 * row.logits_count))

    def vectors(self) -> Vectors:
        return np.frombuffer(b"".join(self.logits), np.float32).reshape(len(self.labels), -1 if self.labels else 0)

    def predictions(self) -> Predictions:
        rows, classes = len(self.labels), len(self._classes)
        return Predictions(
            labels=self.labels,
            scores=np.array(self.scores, np.float64),
            classes=list(self._classes),
            probabilities=np.frombuffer(b"".join(self.probabilities), np.float64).reshape(rows, classes),
            logits=np.frombuffer(b"".join(self.logits), np.float32).reshape(rows, classes or 1),
            truncated=np.array(self.truncated, np.bool_),
        )


def _encode(texts: Iterable[Any], what: str) -> Any:
    encoded = []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            pair = "; the second texts of pairs are given by pairs=" if isinstance(text, (tuple, list)) else ""
            missing = " (nan)" if isinstance(text, float) and text != text else ""
            raise TypeError(f"{what} {number} is {a(text)}{missing}, not a str{pair}")
        encoded.append(c_string(text, f"{what} {number}", replace=True))
    return (ctypes.c_char_p * len(encoded))(*encoded)


class Model(Generic[Result]):
    """A model and its tokenizer, opened once for many predictions; made by load(). Several threads may use it: their calls run
    one after the other. close(), or leaving a with block, frees it when the call that runs has ended."""

    task: str  #: "classification", "token_classification", "mlm" or "embedding"
    classes: list[str]  #: names of the classes, in the model's order; regression and masked LM: []

    def __init__(self, folder: PathLike, arguments: Mapping[str, object]) -> None:
        self._handle = ctypes.c_void_p()  # until nothing refers to the object, so that other threads may use it
        self._closed = False
        self._local = threading.local()
        try:
            self._open({"model_name_or_path": folder, "return_all_scores": True, **arguments})
        except UsageError:
            # Only models with classes have return_all_scores; an error for another reason is raised again here.
            self._open({"model_name_or_path": folder, **arguments})

    def _open(self, arguments: Mapping[str, object]) -> None:
        self._context = Context()  # lives as long as the model
        self._context.set(arguments)
        with Deferred():
            status = lib.snug_model_open(self._context.args, ctypes.byref(self._handle))
        self._context.check(status)
        info = lib.snug_model_describe(self._handle).contents
        self.task = text_of(info.task)
        self.classes = [name or "" for name in _strings(info.classes, info.class_count)]

    def predict(self, texts: Union[str, Texts], pairs: Union[None, str, Iterable[str]] = None) -> Result:
        """Predicts texts: a list of them (or a Series, or an array; a single one counts as a list of one), with the second text of
        each in pairs; or rows with columns, as train() takes them: a DataFrame, a Dataset, a dict of columns, a list of dicts. Of
        these the columns are used that the model was trained on, or that load() was given (text_column_name, …).

        Classification and regression: Predictions, with NumPy arrays. Token classification: a TaggedWords for each text. Masked
        LM: a FilledMask for each mask token, the top_k of load() in each. Sentence embeddings: embed(). An interrupt ends a long
        call."""
        if self._closed:
            raise ValueError("the model is closed")
        context = getattr(self._local, "context", None)
        if context is None:
            context = self._local.context = Context()
        data = texts if isinstance(texts, str) or is_table(texts) else list(list_of(texts, "texts"))
        if is_table(data) or (isinstance(data, list) and data and isinstance(data[0], Mapping)):
            if pairs is not None:
                raise TypeError(f"texts is {a(texts)} with columns, which has the second texts of pairs, too: leave out pairs")
            with filled(context, data, "texts") as rows:
                return self._collect(
                    context, lambda on_row: lib.snug_model_predict_rows(self._handle, context.handle, rows, on_row, None)
                )
        first = _encode([data] if isinstance(data, str) else data, "text")
        second = None if pairs is None else _encode([pairs] if isinstance(pairs, str) else list_of(pairs, "pairs"), "second text")
        if second is not None and len(second) != len(first):
            raise ValueError(f"{len(first)} texts have {len(second)} second texts")
        return self._collect(
            context, lambda on_row: lib.snug_model_predict(self._handle, context.handle, first, second, len(first), on_row, None)
        )

    def _collect(self, context: Context, call: Callable[[Any], int]) -> Result:
        with Deferred() as signals:
            rows = _Rows(signals, self.classes)
            status = call(ON_ROW(rows.on_row))
        if rows.raised is not None:
            raise rows.raised
        context.check(status)
        if self.task == "embedding":
            return cast(Result, rows.vectors())
        found = {"token_classification": rows.tagged, "mlm": rows.filled}.get(self.task)
        return cast(Result, rows.predictions() if found is None else found)

    def embed(self, texts: Union[str, Texts]) -> Vectors:
        """The vectors of texts, [texts, size], of a sentence embedding: a folder of sentence-transformers, or any model that was
        loaded with task="embedding". load() takes prompt_name, prompt, normalize_embeddings and truncate_dim."""
        if self.task != "embedding":
            raise ValueError(f"the model's task is {self.task}: load it with task=\"embedding\"")
        return cast(Vectors, self.predict(texts))

    def close(self) -> None:
        """Frees the model's memory. Waits for a prediction that another thread runs; later ones, and those that wait, raise
        ValueError."""
        self._closed = True
        self._context.check(lib.snug_model_close(self._handle))

    def __enter__(self) -> Model[Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if lib is not None and getattr(self, "_handle", None) and not CALLS.hang:
            lib.snug_model_destroy(self._handle)


@overload
def load(
    folder: PathLike, *, task: Literal["token_classification", "ner"], **arguments: Unpack[LoadArguments]
) -> Model[list[TaggedWords]]: ...
@overload
def load(folder: PathLike, *, task: Literal["mlm"], **arguments: Unpack[LoadArguments]) -> Model[list[FilledMask]]: ...
@overload
def load(
    folder: PathLike, *, task: Literal["embedding", "sentence_embedding"], **arguments: Unpack[LoadArguments]
) -> Model[Vectors]: ...
@overload
def load(
    folder: PathLike,
    *,
    task: Optional[Literal["classification", "text_classification"]] = None,
    **arguments: Unpack[LoadArguments],
) -> Model[Predictions]: ...
def load(folder: PathLike, *, task: Optional[str] = None, **arguments: Unpack[LoadArguments]) -> Model[Any]:
    """Opens a model folder, or a model's name in the local Hugging Face cache, for predictions. It predicts as the model was
    trained (columns, max_seq_length), unless arguments say otherwise: per_device_eval_batch_size, max_seq_length, device,
    bf16_full_eval, fp16_full_eval, top_k, threshold, threads. The task is the model's; type checkers take it for a
    classification or regression unless task="token_classification", task="mlm" or task="embedding" is given."""
    return Model(folder, {"task": task, **arguments})
