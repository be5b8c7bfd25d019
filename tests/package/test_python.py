# SPDX-License-Identifier: Apache-2.0
"""The Python package, as it is installed. tests/package/test_python.sh runs this, from the repository's root."""

import datetime
import decimal
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections import UserDict

import numpy as np

import snug

DEMO = "examples/demo"
SCRATCH = {"config_name": DEMO, "tokenizer_name": DEMO, "save_strategy": "no", "num_train_epochs": 1, "max_seq_length": 32}
ROWS = [("a good film", "positive"), ("a bad film", "negative"), ("a very good story", "positive"), ("it is bad", "negative")]


# Stand-ins for what pandas, polars, pyarrow and datasets have, which the package does not need.


class NAType:
    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


class NaTType:
    pass


class Series:
    def __init__(self, values):
        self._values = list(values)

    def __iter__(self):
        return iter(self._values)

    def to_list(self):
        return self._values

    tolist = to_list


class Frame:
    """As that of pandas: iterating over it gives the names of its columns."""

    def __init__(self, columns):
        self._columns = columns

    def __iter__(self):
        return iter(self._columns)

    @property
    def columns(self):
        return list(self._columns)

    @property
    def iloc(self):
        class Places:
            def __getitem__(_, key):
                return Series(list(self._columns.values())[key[1]])

        return Places()


class OtherFrame:
    """As that of polars."""

    def __init__(self, columns):
        self._columns = columns

    @property
    def columns(self):
        return list(self._columns)

    def get_columns(self):
        return [Series(column) for column in self._columns.values()]


class ArrowColumn:
    def __init__(self, values):
        self._values = values

    def __iter__(self):
        return iter(self._values)

    def to_pylist(self):
        return self._values


class ArrowTable:
    def __init__(self, columns):
        self._columns = columns

    @property
    def column_names(self):
        return list(self._columns)

    @property
    def columns(self):
        return [ArrowColumn(column) for column in self._columns.values()]


class Feature:
    """As a feature of datasets, of a class of that name."""

    def __new__(cls, name, **members):
        return type(name, (), members)()


class Dataset:
    """As that of datasets; a column of None cannot be read."""

    def __init__(self, columns, features):
        self._columns, self._features = columns, features

    @property
    def features(self):
        return self._features

    @property
    def column_names(self):
        return list(self._columns)

    def select_columns(self, names):
        return Dataset({name: self._columns[name] for name in names}, {name: self._features[name] for name in names})

    def with_format(self, _format):
        return self

    def iter(self, batch_size):
        for start in range(0, len(next(iter(self._columns.values()))), batch_size):
            yield {name: column[start : start + batch_size] for name, column in self._columns.items()}


class LazyFrame:
    """Looking at its columns takes long."""

    @property
    def columns(self):
        raise AssertionError

    def collect(self):
        raise AssertionError


class Unknown:
    columns = ()


class Package(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)

    def train(self, **arguments):
        arguments = {"train": ROWS * 8, "output_dir": self.folder / "out", **SCRATCH, **arguments}
        return snug.train(**arguments)

    def test_arguments(self):
        found = {argument.name: argument for argument in snug.arguments()}
        self.assertEqual(found["learning_rate"].default, "5e-5")
        self.assertIn("cosine", found["lr_scheduler_type"].value)
        self.assertEqual(found["max_eval_samples"].aliases, ("max_val_samples",))
        self.assertTrue(snug.train.__doc__ and snug.load.__doc__)

    def test_types_of_arguments(self):
        """What the command line takes as text may be given as Python values."""
        plan = snug.plan(
            train=ROWS,
            lr_scheduler_type="cosine_with_restarts",
            lr_scheduler_kwargs={"num_cycles": 2},
            optim="sgd",
            optim_args={"momentum": 0.9, "nesterov": True},
            freeze=["embeddings", "layer.0"],
            bf16=False,
            label_column_name=None,
            **SCRATCH,
        )
        self.assertLess(plan.figures["trainable_parameters"], plan.figures["parameters"])

    def test_plan(self):
        plan = snug.plan(train=f"{DEMO}/train.csv", **SCRATCH)
        self.assertIn("weights", str(plan))
        self.assertGreater(plan.total, plan.figures["bytes"]["weights"])
        with self.assertRaisesRegex(snug.DoesNotFitError, "more than --memory_budget") as caught:
            snug.plan(train=f"{DEMO}/train.csv", memory_budget="1MiB", **SCRATCH)
        self.assertGreater(caught.exception.plan.total, 1 << 20)

    def test_train_and_predict(self):
        events = []
        result = self.train(validation=ROWS, eval_strategy="epoch", num_train_epochs=40, learning_rate=2e-3, on_event=events.append)
        self.assertEqual(result.steps, 160)
        self.assertEqual(result.output_dir, str(self.folder / "out"))
        self.assertEqual(result.metrics["eval_accuracy"], 1)
        self.assertEqual((result.best_metric, result.best_value), ("eval_accuracy", 1))
        self.assertEqual(result.best_step % 4, 0)
        self.assertEqual(result.memory["weights"].planned, result.memory["weights"].measured)
        self.assertIn("samples/s", str(result))
        kinds = [event.kind for event in events]
        self.assertEqual(kinds.count("step"), 160)
        self.assertEqual(kinds.count("evaluate"), 40)
        self.assertIn("model", events[kinds.index("run")].run)
        self.assertEqual(snug.evaluate(result.output_dir, ROWS)["eval_accuracy"], 1)

        with snug.load(result.output_dir) as model:
            texts = [row[0] for row in ROWS]
            found = model.predict(texts)
            self.assertEqual(found.labels, [row[1] for row in ROWS])
            self.assertEqual(found.classes, ["negative", "positive"])
            self.assertEqual(found.probabilities.shape, (4, 2))
            self.assertEqual(found.probabilities.dtype, np.float64)
            np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-6)
            np.testing.assert_allclose(found.probabilities.max(axis=1), found.scores)
            exponential = np.exp(found.logits.astype(np.float64))
            np.testing.assert_allclose(exponential / exponential.sum(axis=1, keepdims=True), found.probabilities, atol=1e-6)
            self.assertEqual([label.label for label in found], found.labels)
            self.assertEqual(found.truncated.tolist(), [False] * 4)
            self.assertEqual(model.predict("it is bad").labels, ["negative"])
            self.assertTrue(model.predict("it is bad " * 100).truncated[0])
            pairs = "text 0 is a tuple, not a str; the second texts of pairs are given by pairs="
            for bad, what in ((["a", 3], "text 1 is an int"), ([("a", "b")], pairs), (["a\0b"], r"text 0 holds the character U\+0000")):
                with self.assertRaisesRegex((TypeError, ValueError), what):
                    model.predict(bad)
            with self.assertRaisesRegex(ValueError, "2 texts have 1 second texts"):
                model.predict(["a", "b"], ["c"])
            self.check_threads(model, texts, found)
        with self.assertRaisesRegex(ValueError, "the model is closed"):
            model.predict("a")

    def check_threads(self, model, texts, found):
        wrong = []

        def predict():
            for _ in range(20):
                if not np.array_equal(model.predict(texts).logits, found.logits):
                    wrong.append(1)

        threads = [threading.Thread(target=predict) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def run_script(self, script, timeout=120):
        """In a process of its own, which may crash or hang."""
        process = [sys.executable, "-X", "faulthandler", "-c", script]
        return subprocess.run(process, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout)

    def test_close_during_predictions(self):
        """A model is closed, by any way and in any thread, while others predict: each call gives its result or a ValueError."""
        out = self.train().output_dir
        expected = snug.load(out).predict("a good film").logits
        for number, close in enumerate(
            (lambda model: model.close(), lambda model: model.__exit__(None, None, None), lambda model: [model.close(), model.close()])
        ):
            model, ends, wrong = snug.load(out), [], []

            def predict():
                for count in range(10**6):
                    try:
                        if not np.array_equal(model.predict(["a good film"] * (1 + number)).logits[-1:], expected):
                            wrong.append(count)
                    except ValueError as error:
                        ends.append(str(error))
                        return

            threads = [threading.Thread(target=predict) for _ in range(4)]
            closers = [threading.Thread(target=close, args=(model,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            time.sleep(0.05)
            for thread in closers:
                thread.start()
            for thread in threads + closers:
                thread.join(60)
            self.assertEqual((wrong, len(ends)), ([], 4))
            self.assertTrue(all("the model is closed" in end for end in ends), ends)
            model.close()

    def test_close_in_a_signal_handler(self):
        """Python's handlers run between the rows of a prediction: it goes on, and the model is closed at its end."""
        out = self.train().output_dir
        model = snug.load(out)
        before = signal.signal(signal.SIGUSR1, lambda *_: model.close())
        try:
            threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            end = time.monotonic() + 60
            with self.assertRaisesRegex(ValueError, "the model is closed"):
                while time.monotonic() < end:
                    self.assertEqual(len(model.predict(["a good film"] * 1000).labels), 1000)
        finally:
            signal.signal(signal.SIGUSR1, before)

    def test_fork(self):
        """A child that is forked while another thread predicts opens its own models. What it has of its parent works, if no call
        was in progress, or is an error that says what to do."""
        out = self.train().output_dir
        script = f"""
import multiprocessing, os, signal, sys, threading, time
import snug
model = snug.load({str(out)!r})
expected = model.predict("a good film").labels
def predict():
    while True:
        model.predict(["a good film", "it is bad"] * 50)
threading.Thread(target=predict, daemon=True).start()
def child(number):
    signal.alarm(60)
    try:
        assert model.predict("a good film").labels == expected
        said = "works"
    except snug.UsageError as error:
        assert "spawn" in str(error), error
        said = "refused"
    model.close() if said == "works" else None
    with snug.load({str(out)!r}) as own:
        assert own.predict("a good film").labels == expected
    return said
said = []
for number in range(12):
    time.sleep(0.003 * number)
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(w, child(number).encode())
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    said.append(os.read(r, 100).decode())
    os.close(r), os.close(w)
with multiprocessing.get_context("fork").Pool(2) as pool:
    said += pool.map(child, range(4))
print(*said)
"""
        done = self.run_script(script)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(done.stdout.split()), 16)
        self.assertIn("refused", done.stdout)

    def test_fork_in_a_callback(self):
        """A child that returns from the callback in which it was forked does not train beside its parent."""
        script = f"""
import os, sys
import snug
parent, child = os.getpid(), None
def on_event(event):
    global child
    if event.kind == "step" and event.step == 2:
        child = os.fork()
try:
    snug.train(train={ROWS!r}, output_dir={str(self.folder / "out")!r}, on_event=on_event, **{ {**SCRATCH, "num_train_epochs": 5}!r})
except snug.UsageError as error:
    assert os.getpid() != parent and "spawn" in str(error), error
    sys.exit(7)
assert os.getpid() == parent and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
        done = self.run_script(script)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with snug.load(self.folder / "out") as model:
            self.assertEqual(len(model.predict("a good film").labels), 1)

    def test_exit_during_calls(self):
        """At the end of the process a training of a daemon thread ends its step and saves a checkpoint, as for a signal, and
        predictions end; one that a callback holds up is left."""
        out = self.train().output_dir
        endless = {**SCRATCH, "num_train_epochs": 10**6}
        train = f"snug.train(train={ROWS * 8!r}, output_dir={str(self.folder / 'daemon')!r}, on_event=on_event, **{endless!r})"
        for number, (call, more) in enumerate(
            (
                (train, ""),
                ("[started.set() for _ in range(10**6) if model.predict(['a good film'] * 5000)]", f"model = snug.load({str(out)!r})"),
                (train.replace("on_event=on_event", "on_event=stall"), "snug._signals._EXIT_SECONDS = 0.2"),
                ("[started.set() for _ in range(10**6) if snug.plan(train=DEMO + '/train.csv', config_name=DEMO, tokenizer_name=DEMO)]", ""),
            )
        ):
            script = f"""
import sys, threading, time
import snug
DEMO, started = {DEMO!r}, threading.Event()
def on_event(event):
    if event.step == 3:
        started.set()
def stall(event):
    on_event(event)
    if event.step == 3:
        time.sleep(100)
{more}
threading.Thread(target=lambda: {call}, daemon=True).start()
started.wait()
"""
            for _ in range(3):
                begin = time.monotonic()
                done = self.run_script(script)
                self.assertEqual((done.returncode, done.stderr), (0, ""), script)
                self.assertLess(time.monotonic() - begin, 25)
                self.assertTrue(number > 0 or list((self.folder / "daemon").glob("checkpoint-*")))
                shutil.rmtree(self.folder / "daemon", ignore_errors=True)

    def test_foreign_libraries(self):
        """A library of an earlier version, another library, and a sub-interpreter: an ImportError with what is wrong."""
        library = pathlib.Path(os.environ.get("SNUG_LIBRARY") or pathlib.Path(snug.__file__).with_name("libsnug.so.0"))
        own = snug.__version__.encode() + b"\0"
        for version, says in ((b"0.0.9", "is version 0.0.9"), (b"1.1.0", "is version 1.1.0"), (b"0.9.0", ""), (b"x.y.z", "is version x.y.z")):
            other = self.folder / f"lib{version.decode()}.so"
            other.write_bytes(library.read_bytes().replace(own, version + b"\0"))
            done = subprocess.run(
                [sys.executable, "-c", "import snug; print(snug.__version__)"],
                env={**os.environ, "SNUG_LIBRARY": str(other)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            if says:
                self.assertIn(f"ImportError: {other} {says}", done.stderr)
                self.assertIn("0.1.0", done.stderr)
            else:
                self.assertEqual(done.stdout, "0.9.0\n")
        for name in ("libm.so.6", str(self.folder / "none.so"), __file__):
            done = subprocess.run(
                [sys.executable, "-c", "import snug"], env={**os.environ, "SNUG_LIBRARY": name}, stderr=subprocess.PIPE, text=True
            )
            self.assertIn(f"ImportError: {name} cannot be used as snug's library", done.stderr)
        with open("include/snug.h") as header:
            self.assertIn('#define SNUG_VERSION "' + ".".join(map(str, snug._library.VERSION)) + '"', header.read())
        try:
            import _xxsubinterpreters as interpreters  # noqa: PLC0415: until Python 3.12
        except ImportError:
            return
        done = self.run_script("import _xxsubinterpreters as i; i.run_string(i.create(), 'import snug')")
        self.assertRegex(done.stderr, "snug cannot be used in a sub-interpreter|does not support loading in subinterpreters")

    def test_generator(self):
        """Answers to texts and chats, whole and as they come."""
        chats = f"{DEMO}/chat"
        snug.train(None, f"{chats}/plain.jsonl", config_name=chats, tokenizer_name=chats, output_dir=str(self.folder / "chatty"),
                   max_steps=20, save_strategy="no", max_seq_length=64, threads=1, per_device_train_batch_size=16)
        messages = [{"role": "user", "content": "What colour is gold?"}]
        with snug.load_generator(str(self.folder / "chatty"), max_new_tokens=12, min_new_tokens=6, threads=1) as generator:
            pieces = []
            answer = generator.generate(messages, pieces.append)
            self.assertEqual("".join(pieces), answer.text)
            self.assertEqual(len(answer.ids), len(answer.log_probabilities))
            self.assertTrue((answer.log_probabilities <= 0).all() and 6 <= len(answer.ids) <= 12)
            self.assertIn(answer.stop, ("eos", "length"))
            self.assertTrue(answer.prompt.endswith("<|assistant|>"))
            self.assertEqual("".join(generator.stream(messages)), answer.text)
            stream = generator.stream("What")
            next(stream)
            stream.close()
            with self.assertRaises(ZeroDivisionError):
                generator.generate("What", lambda text: 1 // 0)
            with self.assertRaises(snug.InputError):
                generator.generate("")
        with self.assertRaisesRegex(ValueError, "the generator is closed"):
            generator.generate("What")
        with snug.load_generator(str(self.folder / "chatty"), max_new_tokens=4, num_beams=3, num_return_sequences=2, threads=1) as beams:
            answers = beams.generate_all("What")
            self.assertEqual(len(answers), 2)
            self.assertGreaterEqual(answers[0].score, answers[1].score)

    def test_log_history(self):
        """That of trainer_state.json: steps, evaluations, totals, also those of before a resumption."""
        arguments = {"validation": ROWS, "num_train_epochs": 2, "save_strategy": "epoch", "eval_strategy": "epoch", "logging_steps": 3}
        result = self.train(**arguments)
        history = result.log_history
        state = json.loads((self.folder / "out/trainer_state.json").read_text())
        self.assertEqual(history, state["log_history"])
        self.assertIsInstance(history, snug.LogHistory)
        self.assertEqual([sorted(entry)[0] for entry in history if "loss" in entry], ["epoch"] * 2)
        self.assertEqual([(entry["step"], entry["epoch"]) for entry in history if "eval_loss" in entry], [(4, 1), (8, 2)])
        self.assertLessEqual({"loss", "grad_norm", "learning_rate"}, set(history[0]))
        self.assertEqual(history[-1]["train_loss"], result.train_loss)
        self.assertLessEqual({"train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos"}, set(history[-1]))
        resumed = self.train(**arguments, resume_from_checkpoint=str(self.folder / "out/checkpoint-4")).log_history
        self.assertEqual([entry["loss"] for entry in resumed if "loss" in entry], [entry["loss"] for entry in history if "loss" in entry])
        unseen = snug.LogHistory.from_json('[{"step": 1, "epoch": 0.5, "loss": null}]')
        self.assertTrue(math.isnan(unseen[0]["loss"]))
        self.assertEqual(snug.LogHistory.from_json("[]"), [])

    def test_history_frame(self):
        """With a stand-in for pandas, and without pandas."""
        script = """
import sys, types
import snug
history = snug.LogHistory.from_json('[{"epoch": 1, "step": 2, "loss": 3}, {"epoch": 1, "step": 2, "eval_loss": 4}]')
sys.modules["pandas"] = None
try:
    history.to_frame()
except ImportError as error:
    print(error)
sys.modules["pandas"] = types.SimpleNamespace(DataFrame=lambda rows, columns: print(len(rows), columns))
history.to_frame()
snug.LogHistory().to_frame()
"""
        done = self.run_script(script)
        self.assertEqual(
            done.stdout.splitlines(),
            [
                "to_frame() needs pandas, which is not installed: pip install pandas",
                "2 ['step', 'epoch', 'loss', 'eval_loss']",
                "0 []",
            ],
            done.stderr,
        )

    def test_types_of_results_without_texts(self):
        """predict() of nothing has the type, the columns and the classes of the model, whatever has no rows."""
        texts = [row[0] for row in ROWS]
        hot = [{"text": text, "label": [1.0, 0.0, float(number % 2)]} for number, text in enumerate(texts)]
        numbers = [{"text": text, "label": 0.5 + number} for number, text in enumerate(texts)]
        nothing = ([], (), iter([]), np.array([], dtype=object), {"text": []}, Frame({"text": []}), OtherFrame({"text": []}))
        for number, (rows, classes) in enumerate(
            ((ROWS, ["negative", "positive"]), (hot, ["LABEL_0", "LABEL_1", "LABEL_2"]), (numbers, []))
        ):
            with snug.load(self.train(train=rows, output_dir=self.folder / str(number)).output_dir) as model:
                self.assertEqual((model.task, model.classes), ("classification", classes))
                some = model.predict(texts)
                for empty in nothing:
                    found = model.predict(empty)
                    self.assertEqual((found.labels, found.classes, len(found), list(found)), ([], classes, 0, []))
                    for name in ("scores", "probabilities", "logits", "truncated"):
                        array, other = getattr(found, name), getattr(some, name)
                        self.assertEqual((array.dtype, array.shape), (other.dtype, (0, *other.shape[1:])), name)
                self.assertEqual(model.predict([], []).logits.shape, found.logits.shape)
        tagged = [{"tokens": ["Anna", "likes", "Rome"], "ner_tags": ["PER", "O", "LOC"]}] * 4
        with snug.load(self.train(train=tagged, task="token_classification").output_dir) as model:
            self.assertEqual((model.task, model.classes), ("token_classification", ["LOC", "O", "PER"]))
            self.assertEqual([model.predict(empty) for empty in ([], {"tokens": []})], [[], []])
            self.assertEqual([words.words for words in model.predict([""])], [[]])
        out = self.train(train=f"{DEMO}/pretrain.txt", task="mlm", line_by_line=True, max_steps=1, output_dir=self.folder / "mlm").output_dir
        with snug.load(out, top_k=3) as model:
            self.assertEqual((model.task, model.classes), ("mlm", []))
            self.assertEqual(model.predict([]), [])
            with self.assertRaisesRegex(ValueError, 'load it with task="embedding"'):
                model.embed(["a film"])
        with snug.load(out, task="embedding", normalize_embeddings=True, truncate_dim=8) as model:
            self.assertEqual((model.task, model.classes, model.embed([]).shape), ("embedding", [], (0, 0)))
            vectors = model.embed(["a good film", "a bad film"])
            self.assertEqual((vectors.shape, vectors.dtype), ((2, 8), np.float32))
            np.testing.assert_allclose((vectors**2).sum(axis=1), [1, 1], rtol=1e-5)

    def test_chats(self):
        """Chats in tables, of dicts, arrays and other mappings, are those of a file."""
        config = {"model_type": "llama", "vocab_size": 4000, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        (self.folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 16, "max_position_embeddings": 64}))
        template = "{% for m in messages %}{{ m.role }} {{ m.content }} {{ tools|length }}{% endfor %}"
        (self.folder / "chat.jinja").write_text(template)
        chats = [
            {"messages": [{"role": "user", "content": f"a good {word}"}, {"role": "assistant", "content": "it is"}], "tools": [], "id": 1}
            for word in ("film", "story")
        ]
        (self.folder / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
        columns = {name: [chat[name] for chat in chats] for name in chats[0]}
        arrays = [np.array(chat["messages"], dtype=object) for chat in chats]
        mappings = [[UserDict(message) for message in chat["messages"]] for chat in chats]
        tables = (
            self.folder / "chats.jsonl",
            chats,
            columns,
            Frame({**columns, "messages": arrays}),
            OtherFrame({**columns, "messages": mappings}),
            [{**chat, "messages": tuple(chat["messages"]), "documents": {"x": datetime.date}} for chat in chats],
        )
        settings = {"task": "clm", "config_name": self.folder, "chat_template_path": self.folder / "chat.jinja", "assistant_only_loss": True}
        losses = []
        for number, table in enumerate(tables[:-1]):
            result = self.train(train=table, output_dir=self.folder / str(number), **settings)
            losses.append(result.log_history[-1]["train_loss"])
        self.assertEqual(losses, losses[:1] * len(losses))
        with self.assertRaisesRegex(snug.InputError, 'column "documents" of a chat must be a list'):
            self.train(train=tables[-1], **settings)

    def test_regression(self):
        rows = [{"text": text, "label": np.float32(0.5 + number)} for number, (text, _) in enumerate(ROWS)]
        with snug.load(self.train(train=rows).output_dir) as model:
            found = model.predict([row["text"] for row in rows])
        np.testing.assert_allclose(found.logits[:, 0], found.scores, rtol=1e-6)
        self.assertEqual(found.probabilities.shape[0], 4)

    def test_label_values(self):
        """Labels as Python and transformers have them: booleans, and zeros and ones as floats."""
        texts = [row[0] for row in ROWS]
        flags = [{"text": text, "label": number % 2 == 0} for number, text in enumerate(texts)]
        with snug.load(self.train(train=flags).output_dir) as model:
            self.assertEqual(model.predict(texts[:1]).classes, ["False", "True"])
        hot = [{"text": text, "label": [1.0, 0.0, float(number % 2)]} for number, text in enumerate(texts)]
        with snug.load(self.train(train=hot, output_dir=self.folder / "hot").output_dir) as model:
            self.assertEqual(model.predict(texts[:1]).classes, ["LABEL_0", "LABEL_1", "LABEL_2"])
        hot[1]["label"] = [1.0, 0.5, 0.0]
        with self.assertRaisesRegex(snug.InputError, "2: the label is not a list of zeros and ones"):
            self.train(train=hot)

    def test_tokens(self):
        rows = [{"tokens": ["Anna", "likes", "Rome"], "ner_tags": ["PER", "O", "LOC"]}] * 4
        with snug.load(self.train(train=rows, task="token_classification").output_dir) as model:
            (found,) = model.predict(["Anna likes Rome"])
        with snug.load(self.folder / "out", task="token_classification") as model:
            self.assertEqual(model.predict("Anna likes Rome")[0].tags, found.tags)
        self.assertEqual(found.words, ["Anna", "likes", "Rome"])
        self.assertTrue(set(found.tags) <= {"PER", "O", "LOC"})
        self.assertEqual(found.scores.shape, (3,))

    def test_masked_words(self):
        out = self.train(train=f"{DEMO}/pretrain.txt", task="mlm", line_by_line=True, max_steps=1).output_dir
        with snug.load(out, top_k=3) as model:
            first, second = model.predict(["a [MASK] film", "the [MASK]"])
        self.assertEqual((first.index, second.index), (0, 1))
        self.assertEqual((len(first.tokens), first.scores.shape), (3, (3,)))

    def test_errors(self):
        for call, kind, says in (
            (lambda: self.train(lerning_rate=1), snug.UsageError, "the nearest is --learning_rate"),
            (lambda: self.train(learning_rate="much"), snug.UsageError, "must be a number"),
            (lambda: self.train(train=self.folder / "none.csv"), snug.IoError, "No such file"),
            (lambda: self.train(train=[("a", "b")]), snug.InputError, ""),
            (lambda: snug.load(self.folder), snug.Error, "config.json"),
            (lambda: self.train(memory_budget="1MiB"), snug.DoesNotFitError, "memory_budget"),
        ):
            with self.assertRaisesRegex(kind, says) as caught:
                call()
            self.assertIsInstance(caught.exception, snug.Error)
        with self.assertRaisesRegex(snug.InputError, 'train rows in memory:1: the text must be a string: the column "text" holds a set'):
            self.train(train=[{"text": {1}, "label": 1}])

    def test_strings_that_c_would_cut(self):
        """A NUL is refused by the name of what holds it, wherever a string goes to the library, and so is half a character."""
        out = self.train(max_steps=1).output_dir
        for call, what in (
            (lambda text: self.train(output_dir=text), "output_dir"),
            (lambda text: self.train(output_dir=text.encode("utf-8", "surrogatepass")), "output_dir"),
            (lambda text: self.train(output_dir=pathlib.Path(text)), "output_dir"),
            (lambda text: self.train(train=text), "train_file"),
            (lambda text: self.train(label_column_name=text), "label_column_name"),
            (lambda text: self.train(freeze=["embeddings", text]), "freeze"),
            (lambda text: self.train(optim="sgd", optim_args={"momentum": text}), "optim_args"),
            (lambda text: self.train(**{text: 1}), "an argument's name"),
            (lambda text: snug.plan(text), "model_name_or_path"),
            (lambda text: snug.pull(text), "model_name_or_path"),
            (lambda text: snug.evaluate(out, text), "validation_file"),
            (lambda text: snug.load(text), "model_name_or_path"),
            (lambda text: snug.load(out, task=text), "task"),
        ):
            with self.assertRaisesRegex(ValueError, rf"^{what} holds the character U\+0000"):
                call("a\0b")
        self.assertFalse((self.folder / "a").exists() or pathlib.Path("a").exists())
        with self.assertRaisesRegex(ValueError, r"^label_column_name holds the lone surrogate U\+D83D"):
            self.train(label_column_name="a\ud83d")
        with snug.load(out) as model:
            for texts, pairs, what in ((["a", "b\0"], None, "text 1"), (["a"], ["\0"], "second text 0")):
                with self.assertRaisesRegex(ValueError, rf"^{what} holds the character U\+0000"):
                    model.predict(texts, pairs)
            halves = model.predict(["good \ud83d film", "good \ufffd film"]).logits
            np.testing.assert_array_equal(halves[0], halves[1])

    def test_paths(self):
        """A path is any bytes: as bytes, as a str that os.fsdecode() gives, and as an os.PathLike of either."""
        folder = os.fsencode(self.folder) + b"/caf\xe9 \xf0\x9f\x98\x80"
        os.mkdir(folder)

        class Path:
            def __init__(self, path):
                self.path = path

            def __fspath__(self):
                return self.path

        kinds = (bytes, os.fsdecode, Path, lambda path: Path(os.fsdecode(path)), lambda path: pathlib.Path(os.fsdecode(path)))
        for number, kind in enumerate(kinds):
            data, out = folder + b"/\xff%d.csv" % number, folder + b"/\xfe%d" % number
            with open(data, "w") as file:
                file.writelines(["text,label\n"] + [f"{text},{label}\n" for text, label in ROWS])
            events = []
            result = self.train(
                train=kind(data),
                validation=kind(data),
                output_dir=kind(out),
                eval_strategy="epoch",
                save_strategy="epoch",
                load_best_model_at_end=True,
                on_event=events.append,
            )
            self.assertEqual(result.output_dir, os.fsdecode(out))
            self.assertEqual(result.best_checkpoint, os.fsdecode(out + b"/checkpoint-1"))
            self.assertIn(result.best_checkpoint, [event.path for event in events])
            self.assertEqual(snug.evaluate(kind(out), kind(data))["eval_loss"], result.metrics["eval_loss"])
            with snug.load(kind(out)) as model:
                self.assertEqual(len(model.predict("a good film").labels), 1)
            with self.assertRaisesRegex(snug.IoError, r"none\\xff\.csv"):
                self.train(train=kind(folder + b"/none\xff.csv"))

    def test_exception_of_a_callback(self):
        def on_event(event):
            if event.kind == "step" and event.step == 2:
                raise LookupError("mine")

        with self.assertRaisesRegex(LookupError, "mine"):
            self.train(on_event=on_event, save_strategy="steps", num_train_epochs=50)
        self.assertTrue((self.folder / "out" / "checkpoint-2").is_dir())

    def test_interrupt(self):
        """Ctrl-C: the step ends, a checkpoint is saved, KeyboardInterrupt is raised, and the run can be resumed. A handler that
        raises nothing does not end the training."""
        script = f"""
import signal, sys
import snug
seen = []
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
def on_event(event):
    if event.kind == "step" and event.step == 3:
        print("started", flush=True)
try:
    snug.train(train={ROWS * 8!r}, output_dir={str(self.folder / "out")!r}, on_event=on_event, **{ {**SCRATCH, "num_train_epochs": 10**6}!r})
except KeyboardInterrupt:
    sys.exit(40 + len(seen))
"""
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"started\n")
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 41)
        process.stdout.close()
        (checkpoint,) = (self.folder / "out").glob("checkpoint-*")
        step = int(checkpoint.name.split("-")[1])
        result = self.train(resume_from_checkpoint=True, max_steps=step + 1, num_train_epochs=10**6)
        self.assertEqual(result.steps, 1)

    def test_terminate(self):
        """SIGTERM, for which Python has no handler: as Ctrl-C, but with SystemExit, so that finally blocks run. A handler of the
        program's replaces that, and afterwards SIGTERM ends the process at once again."""
        script = f"""
import signal, sys
import snug
def on_event(event):
    if event.kind == "step" and event.step == 3:
        signal.raise_signal(signal.SIGTERM)
def train(out, **more):
    snug.train(train={ROWS * 8!r}, output_dir=out, on_event=on_event, **{ {**SCRATCH, "num_train_epochs": 10**6}!r}, **more)
try:
    train({str(self.folder / "first")!r})
except SystemExit as error:
    print(error.code, flush=True)
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
train({str(self.folder / "second")!r}, max_steps=5)
print(len(seen), flush=True)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
try:
    train({str(self.folder / "third")!r})
finally:
    print("end", flush=True)
"""
        done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout.split()), (130, ["130", "1", "end"]))
        for name in ("first", "third"):
            self.assertTrue((self.folder / name / "checkpoint-3").is_dir())
        self.assertFalse((self.folder / "second" / "checkpoint-3").exists())

    def test_rows(self):
        """Rows of each kind, checked as those of a file: the library names them from 1."""
        rows = [{"text": text, "label": [label]} for text, label in ROWS] + [{"text": "so so", "label": ["negative", "positive"]}]
        out = self.train(train=rows, validation=(row for row in rows), eval_strategy="epoch").output_dir
        self.assertIn("eval_f1", snug.evaluate(out, rows))
        pairs = [("a film", text, label) for text, label in ROWS]
        self.train(train=pairs, validation=pairs, output_dir=self.folder / "pairs")
        for bad, says in (
            ([("good", 1), ("bad", "N/A")], "train rows in memory:2"),
            ([{"text": "good", "label": 1}, {"label": 0}], "train rows in memory:2: the row has no text"),
            ([], "train rows in memory is empty"),
        ):
            with self.assertRaisesRegex(snug.InputError, says):
                self.train(train=bad)

    def classes_of(self, rows, **arguments):
        """The model's classes after a step on these rows."""
        out = self.train(train=rows, max_steps=1, overwrite_output_dir=True, **arguments).output_dir
        labels = json.loads((self.folder / "out" / "config.json").read_text())["id2label"]
        self.assertEqual(out, str(self.folder / "out"))
        return [labels[str(number)] for number in range(len(labels))]

    def test_tables(self):
        """Everything with columns gives the same rows, whatever is in those that are not used."""
        texts, labels = [row[0] for row in ROWS] * 4, [row[1] for row in ROWS] * 4
        odd = [decimal.Decimal(1), b"bytes", {1}, {"a": 1}, math.nan, math.inf, -math.inf, None, NAType(), NaTType(), 10**40]
        odd += [np.float32("nan"), np.datetime64("NaT"), np.array(1), np.array([[1]]), datetime.date(2031, 1, 1), object()]
        odd = (odd * 2)[: len(texts)]
        out = self.train(train=list(zip(texts, labels)), max_steps=1).output_dir
        expected = (pathlib.Path(out) / "model.safetensors").read_bytes()
        columns = {"odd": odd, "text": texts, "label": labels}
        tables = [
            columns,
            UserDict(columns),
            {name: tuple(column) for name, column in columns.items()},
            {"text": np.array(texts), "label": Series(labels), "odd": odd},
            {"text": (text for text in texts), "label": labels},
            Frame(columns),
            OtherFrame(columns),
            ArrowTable(columns),
            Dataset(columns, {name: Feature("Value") for name in columns}),
            Dataset({**columns, "picture": None}, {**{name: Feature("Value") for name in columns}, "picture": Feature("Image")}),
            Dataset(columns, None),
            [dict(zip(columns, row)) for row in zip(*columns.values())],
            (UserDict(zip(columns, row)) for row in zip(*columns.values())),
            np.array([texts, labels]).T,
        ]
        for number, table in enumerate(tables):
            with self.subTest(number):
                self.train(train=table, max_steps=1, overwrite_output_dir=True)
                self.assertEqual((pathlib.Path(out) / "model.safetensors").read_bytes(), expected)
        # Texts alone, and numbers as names of columns.
        for lines in (texts, np.array(texts), Series(texts), {"text": texts}):
            self.train(train=lines, task="mlm", line_by_line=True, max_steps=1, overwrite_output_dir=True)
        self.train(train=Frame({0: texts, 1: labels}), text_column_name="0", label_column_name="1", overwrite_output_dir=True)

    def test_missing_values(self):
        """A missing value of a column that is used is named with its row and column; numbers of any size are numbers."""
        texts = [row[0] for row in ROWS]
        for missing, name in ((None, "None"), (math.nan, "NaN"), (NAType(), "<NA>"), (NaTType(), "NaT"), (np.float64("nan"), "NaN")):
            for column, rest in (("text", "the row has no text"), ("label", "the row has no label")):
                rows = {"text": list(texts), "label": [1, 0, 1, 0]}
                rows[column][2] = missing
                with self.assertRaisesRegex(snug.InputError, f'^train rows in memory:3: {rest}.*"{column}" is {name}'):
                    self.train(train=rows)
        with self.assertRaisesRegex(snug.InputError, '"text" holds a Decimal'):
            self.train(train={"text": [decimal.Decimal(1)], "label": [1]})
        self.assertEqual(self.classes_of({"text": texts, "label": [10**20, 1, 2, 10**21]}, do_regression=True), ["LABEL_0"])
        self.assertEqual(self.classes_of({"text": [1, 2.5, 10**30, np.int8(4)], "label": texts}), sorted(texts))
        halves = {"text": ["a \ud83d", "b"], "label": [1, 0]}
        self.train(train=halves, max_steps=1, overwrite_output_dir=True)
        with self.assertRaisesRegex(snug.InputError, r"train rows in memory:1: .ud83d is half of a surrogate pair"):
            self.train(train=halves, strict=True)
        for name in ("a\0", "a\ud83d"):
            with self.assertRaisesRegex(ValueError, "^the name .*holds the"):
                self.train(train={name: texts, "label": [1, 0, 1, 0]})

    def test_class_labels(self):
        """The names of a ClassLabel are the model's classes, in its order, also those without a row."""
        names = ["zebra", "ant", "unseen"]
        label, texts = Feature("ClassLabel", names=names), [row[0] for row in ROWS]
        features = {"text": Feature("Value"), "label": label}
        self.assertEqual(self.classes_of(Dataset({"text": texts, "label": [1, 0, 1, 0]}, features)), names)
        tagged = {"tokens": [["a", "b"], ["c"]], "ner_tags": [[0, 1], [0]]}
        for tags in ([label], Feature("Sequence", feature=label), Feature("List", feature=label)):
            features = {"tokens": [Feature("Value")], "ner_tags": tags}
            self.assertEqual(self.classes_of(Dataset(tagged, features), task="ner"), names)
        with self.assertRaisesRegex(snug.InputError, "train rows in memory:2: .*a number beyond its classes"):
            self.train(train=Dataset({"text": texts, "label": [1, 3, 1, 0]}, {"text": Feature("Value"), "label": label}))

    def test_predict_tables(self):
        """A table is predicted by the columns that the model was trained on, and the bits are those of its texts."""
        rows = {"number": list(range(4)), "review": [row[0] for row in ROWS], "label": [row[1] for row in ROWS]}
        out = self.train(train=rows, text_column_name="review", max_steps=1).output_dir
        texts = rows["review"]
        with snug.load(out) as model:
            expected = model.predict(texts).logits
            for table in (rows, Frame(rows), OtherFrame(rows), Dataset(rows, None), [{"review": text} for text in texts]):
                np.testing.assert_array_equal(model.predict(table).logits, expected)
            for plain in (np.array(texts), Series(texts), tuple(texts), iter(texts), ArrowColumn(texts)):
                np.testing.assert_array_equal(model.predict(plain).logits, expected)
            self.assertEqual(len(model.predict([])), 0)
            self.assertEqual(len(model.predict({"review": []})), 0)
            with self.assertRaisesRegex(snug.InputError, 'rows in memory:2: the row has no text: its column "review" is None'):
                model.predict({"review": ["a", None]})
            for bad, what in (
                (b"text", "texts is a bytes, which is neither a list of texts nor a table"),
                ({"a", "b"}, "texts is a set"),
                (7, "texts is an int"),
                (None, "texts is None"),
                (np.array("a"), "texts is a ndarray"),
                ([1.5], "text 0 is a float"),
                ([math.nan], r"text 0 is a float \(nan\)"),
                ([["a", "b"]], "text 0 is a list"),
                ({"review": "a"}, "whose value for 'review' is a str, not a list"),
                ({"review": {"a": 1}}, "whose value for 'review' is a dict"),
                ({"review": Frame(rows)}, "whose value for 'review' is a Frame"),
                ({"train": Dataset(rows, None)}, "texts is a dict of data sets: give one of them, as in texts=data\\['train'\\]"),
                ({"review": ["a"], "b": []}, "whose columns have different lengths: 1, and 'b' 0"),
                (LazyFrame(), r"texts is a LazyFrame: give texts.collect\(\)"),
                (Unknown(), "texts is an Unknown, not a table that is known here"),
            ):
                with self.assertRaisesRegex(TypeError, what):
                    model.predict(bad)
            with self.assertRaisesRegex(TypeError, "leave out pairs"):
                model.predict(rows, ["a"])
        with self.assertRaisesRegex(TypeError, "train: row 0 is an int, not a dict by column, a text"):
            self.train(train=[1, 2])
        with self.assertRaisesRegex(TypeError, "train is a set"):
            self.train(train={"a"})
        tagged = {"tokens": [["a", "b"], ["c"]], "ner_tags": [["X", "O"], ["O"]]}
        with snug.load(self.train(train=tagged, task="ner", overwrite_output_dir=True).output_dir) as model:
            found = model.predict(tagged)
            self.assertEqual([row.words for row in found], tagged["tokens"])
            np.testing.assert_array_equal(found[0].scores, model.predict(["a b"])[0].scores)
        pairs = {"sentence2": ["c", "d"], "sentence1": ["a", "b"], "label": [0, 1]}
        with snug.load(self.train(train=pairs, overwrite_output_dir=True).output_dir) as model:
            np.testing.assert_array_equal(model.predict(pairs).logits, model.predict(["a", "b"], ["c", "d"]).logits)

    def test_overhead(self):
        """Python adds at most 0.1 ms to a prediction of one text: what is spent outside the library, or in its callback."""
        library, collector, seconds = snug.model.lib, snug.model._Rows, {"call": 0.0, "row": 0.0}

        def timed(name, function):
            def measure(*arguments):
                start = time.perf_counter()
                result = function(*arguments)
                seconds[name] = time.perf_counter() - start
                return result

            return measure

        call, on_row, added = library.snug_model_predict, collector.on_row, []
        with snug.load(self.train().output_dir, threads=1) as model:
            library.snug_model_predict, collector.on_row = timed("call", call), timed("row", on_row)
            try:
                for _ in range(1000):
                    start = time.perf_counter()
                    model.predict(["a good film"])
                    added.append(time.perf_counter() - start - seconds["call"] + seconds["row"])
            finally:
                library.snug_model_predict, collector.on_row = call, on_row
        # The fastest call is the one that no other process delayed.
        print(f"Python adds {min(added) * 1e6:.0f} us to a prediction of one text ({np.median(added) * 1e6:.0f} in the median)")
        self.assertLess(min(added), 1e-4)

    def test_progress(self):
        script = f"import snug; snug.train(train={ROWS!r}, output_dir={str(self.folder / 'out')!r}, progress=True, logging_steps=1, **{SCRATCH!r})"
        done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, check=True, text=True)
        self.assertIn("1/1", done.stderr)
        self.assertIn("step 1: loss 0.", done.stderr)
        self.assertIn("Optimizer", done.stderr)
        script = script.replace("import snug;", "import logging, snug; logging.basicConfig(level='INFO', format='%(name)s %(message)s');")
        done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, check=True, text=True)
        self.assertIn("snug Optimizer", done.stderr)
        # Where logging shows warnings alone, as in Colab, messages are shown with the progress, unless those of snug were refused.
        for level, refused, seen in (("WARNING", "", True), ("WARNING", "logging.getLogger('snug').setLevel('ERROR');", False)):
            said = subprocess.run(
                [sys.executable, "-c", script.replace("level='INFO'", f"level='{level}'").replace("snug;", f"snug;{refused}", 1)],
                stderr=subprocess.PIPE, check=True, text=True,
            )
            self.assertEqual("Optimizer" in said.stderr, seen, said.stderr)
            self.assertNotIn("snug Optimizer", said.stderr)

    def test_progress_in_a_notebook(self):
        """With stand-ins for a notebook's modules: messages in stdout, losses and metrics in a table that is updated."""
        script = f"""
import sys, types
shown = []
class Display:
    def update(self, page):
        shown.append(page)
def display(page, display_id):
    shown.append(page)
    return Display()
sys.modules["ipykernel"] = types.ModuleType("ipykernel")
sys.modules["IPython"] = types.ModuleType("IPython")
sys.modules["IPython.display"] = types.SimpleNamespace(HTML=str, display=display)
import snug
rows = {ROWS!r} * 40
snug.train(train=rows, validation=rows[:4], output_dir={str(self.folder / "out")!r}, logging_steps=1, max_steps=60, eval_strategy="steps",
           eval_steps=30, save_strategy="no", config_name={DEMO!r}, tokenizer_name={DEMO!r}, max_seq_length=32, class_metrics=True)
print("TABLES", len(shown))
print(shown[0])
print(shown[-1])
class Printer:
    text = print
snug.plan(train=rows, **{SCRATCH!r})._repr_pretty_(Printer(), False)
"""
        done = self.run_script(script)
        lines = done.stdout.split("TABLES ", 1)
        self.assertEqual(len(lines), 2, done.stderr)
        self.assertIn("Optimizer", lines[0])
        count, first, last = lines[1].splitlines()[:3]
        self.assertEqual(int(count), 62)  # 60 logs, 2 evaluations
        self.assertRegex(first, "^<table><tr><th>step</th><th>loss</th><th>grad_norm</th><th>learning_rate</th></tr><tr><td>1</td><td>0.69")
        self.assertIn("<p>10 earlier rows are not shown</p>", last)
        self.assertIn("<th>eval_accuracy</th>", last)
        self.assertNotIn("runtime", last)
        self.assertEqual(last.count("<tr>"), 51)
        self.assertIn("weights", lines[1].split("</table>")[-1])


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    unittest.main()
