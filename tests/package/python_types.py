# SPDX-License-Identifier: Apache-2.0
"""What type checkers know of the package: checked by mypy --strict, which also reports an ignored error that is none. Not run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import snug

config: snug.TrainArguments = {"output_dir": "out", "num_train_epochs": 3, "optim": "adamw_8bit"}


def train() -> None:
    result = snug.train("model", "train.csv", validation=[("a", 1)], per_device_train_batch_size=32, learning_rate=5e-5)
    snug.train("model", "train.csv", **config)
    snug.train("model", [{"text": "a", "label": 1}], bf16=True, eval_strategy="epoch", lr_scheduler_kwargs={"num_cycles": 2})
    snug.train("model", "a.csv", resume_from_checkpoint=True, memory_budget="2GiB", class_weights={"a": 2.5}, threads=None)
    snug.train("model", "a.csv", evaluation_strategy="no", warmup_ratio=0.1, gpus="all", label_column_name=["a", "b"])
    losses: list[float] = [entry["loss"] for entry in result.log_history if "loss" in entry]
    print(losses, result.to_frame(), result.log_history.to_frame())
    snug.train("model", "a.csv", learning_rat=5e-5)  # type: ignore[call-arg]
    snug.train("model", "a.csv", learning_rate="fast")  # type: ignore[arg-type]
    snug.train("model", "a.csv", num_train_epochs=[3])  # type: ignore[arg-type]
    snug.train("model", "a.csv", optim="adamw_hf")  # type: ignore[arg-type]
    snug.train("model", "a.csv", bf16="yes")  # type: ignore[arg-type]
    snug.train("model", "a.csv", test_file="a.csv")  # type: ignore[call-arg]
    wrong: snug.TrainArguments = {"epochs": 3}  # type: ignore[typeddict-unknown-key]
    print(wrong)


def others() -> None:
    plan: snug.Plan = snug.plan("model", "a.csv", gpu="RTX 4090", num_processes=2, class_metrics=True)
    plan = snug.plan("model", "a.csv", **config)
    accuracy: float = snug.evaluate("model", "a.csv", class_metrics=True)["eval_accuracy"]
    folder: str = snug.pull("org/name", model_revision="main")
    print(plan, accuracy, folder)
    snug.evaluate("model", "a.csv", num_train_epochs=3)  # type: ignore[call-arg]
    snug.load("model", train_file="a.csv")  # type: ignore[call-overload]
    snug.load("model", task="regression")  # type: ignore[call-overload]


def predict() -> None:
    classifier = snug.load("model", max_seq_length=128)
    probabilities: npt.NDArray[np.float64] = classifier.predict([]).probabilities
    tags: list[list[str | None]] = [words.tags for words in snug.load("model", task="ner").predict([])]
    tokens: list[list[str]] = [mask.tokens for mask in snug.load("model", task="mlm", top_k=5).predict([])]
    vectors: npt.NDArray[np.float32] = snug.load("model", task="embedding", truncate_dim=64).embed(["a text"])
    print(probabilities, tags, tokens, vectors, classifier.classes)
