# SPDX-License-Identifier: Apache-2.0
"""Text from a decoder: answers to prompts and chats."""

from __future__ import annotations

import ctypes
import json
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

import numpy as np
import numpy.typing as npt

from ._context import Context, PathLike
from ._library import E_INTERRUPTED, OK, ON_ANSWER, ON_EVENT, ON_PIECE, SHOULD_STOP, Callbacks, c_string, lib, text_of
from ._signals import CALLS, Deferred

#: A text, or a chat: messages with "role" and "content".
Prompt = Union[str, Sequence[Mapping[str, object]]]


@dataclass(frozen=True, eq=False)
class Answer:
    text: str  #: without special tokens
    ids: npt.NDArray[np.int32]  #: new tokens, with the one that ended the answer
    log_probabilities: npt.NDArray[np.float32]  #: of the tokens, by the model itself
    score: float  #: of beam search; else nan
    stop: str  #: why it ended: "eos", "length" or "stop_string"
    prompt: str  #: of a chat, as the chat template makes it
    beams: int  #: of its search: with fit, maybe fewer than num_beams; 1: it was not searched


class _Call:
    """Collects the answers of a call, and gives text to on_text."""

    def __init__(self, signals: Deferred, on_text: Optional[Callable[[str], None]]) -> None:
        self._signals = signals
        self._on_text = on_text
        self.answers: list[Answer] = []
        self.raised: Optional[BaseException] = None

    def _guard(self, function: Callable[[], None]) -> int:
        try:
            function()
        except BaseException as error:  # noqa: BLE001: raised after the call, in Python's own frames
            self.raised = error
            return E_INTERRUPTED
        return OK

    def on_piece(self, _user: Any, pointer: Any) -> int:
        piece = pointer.contents
        text = ctypes.string_at(piece.text, piece.length).decode(errors="replace")
        return self._guard(lambda: self._on_text(text) if self._on_text else None)

    def on_answer(self, _user: Any, pointer: Any) -> int:
        answer = pointer.contents
        count = answer.count
        self.answers.append(
            Answer(
                text=ctypes.string_at(answer.text, answer.text_length).decode(),
                ids=np.frombuffer(ctypes.string_at(answer.ids, 4 * count), np.int32),
                log_probabilities=np.frombuffer(ctypes.string_at(answer.log_probabilities, 4 * count), np.float32),
                score=answer.score,
                stop=text_of(answer.stop),
                prompt=text_of(answer.prompt),
                beams=answer.beams,
            )
        )
        return OK

    def should_stop(self, _user: Any) -> bool:
        return self._guard(self._signals.deliver) != OK


class Generator:
    """A decoder and its tokenizer, opened once for many prompts; made by load_generator(). It keeps what it has read, so that the
    next turn of a chat costs its new tokens. One thread at a time may use it. close(), or leaving a with block, frees it."""

    def __init__(self, folder: PathLike, arguments: Mapping[str, object]) -> None:
        self._handle = ctypes.c_void_p()
        self._turn = threading.Lock()
        self._context = Context()  # lives as long as the generator
        self._context.set({"model_name_or_path": folder, **arguments})
        with Deferred():
            status = lib.snug_generator_open(self._context.args, ctypes.byref(self._handle))
        self._context.check(status)

    def generate(self, prompt: Prompt, on_text: Optional[Callable[[str], None]] = None) -> Answer:
        """The answer to a text or to a chat's messages; on_text gets its text as it comes. An interrupt ends it."""
        return self.generate_all(prompt, on_text)[0]

    def generate_all(self, prompt: Prompt, on_text: Optional[Callable[[str], None]] = None) -> list[Answer]:
        """All num_return_sequences answers, the best first with num_beams."""
        chat = not isinstance(prompt, str)
        text = c_string(prompt if isinstance(prompt, str) else json.dumps(list(prompt)), "the prompt", replace=True)
        with self._turn:
            if not self._handle:
                raise ValueError("the generator is closed")
            with Deferred() as signals:
                call = _Call(signals, on_text)
                callbacks = Callbacks(None, ON_EVENT(), SHOULD_STOP(call.should_stop))
                pieces, answers = ON_PIECE(call.on_piece), ON_ANSWER(call.on_answer)
                status = lib.snug_generator_answer(self._handle, text, chat, ctypes.byref(callbacks), pieces, answers, None)
            if call.raised is not None:
                raise call.raised
            self._context.check(status)
        return call.answers

    def stream(self, prompt: Prompt) -> Iterator[str]:
        """The text of the answer, as it comes. Closing the iterator ends the answer."""
        texts: queue.SimpleQueue[Union[str, BaseException, None]] = queue.SimpleQueue()
        closed = threading.Event()

        def take(text: str) -> None:
            if closed.is_set():
                raise GeneratorExit
            texts.put(text)

        def run() -> None:
            try:
                self.generate(prompt, take)
                texts.put(None)
            except BaseException as error:  # noqa: BLE001: raised by the iterator
                texts.put(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            while (text := texts.get()) is not None:
                if isinstance(text, BaseException):
                    raise text
                yield text
        finally:
            closed.set()
            thread.join()

    def close(self) -> None:
        """Frees the generator's memory."""
        with self._turn:
            lib.snug_generator_destroy(self._handle)
            self._handle = ctypes.c_void_p()

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if lib is not None and getattr(self, "_handle", None) and not CALLS.hang:
            lib.snug_generator_destroy(self._handle)


def load_generator(folder: PathLike, **arguments: Any) -> Generator:
    """Opens a decoder's folder, or its name in the local Hugging Face cache. Arguments are those of snug generate:
    max_new_tokens, max_seq_length (of prompt and answer), do_sample, temperature, top_k, top_p, num_beams, seed, stop_strings,
    threads, …; else generation_config.json of the folder counts, else transformers' default."""
    return Generator(folder, arguments)
