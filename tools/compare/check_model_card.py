#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Model cards of classes with any names, read by YAML and huggingface_hub's parsers, and predictions read by Python's csv.

    tools/compare/check_model_card.py [N [SEED]]

Trains N (20) models with build/snug (BUILD names another folder) on random labels, with seeds SEED, SEED + 1, … (1). Needs
huggingface_hub, which brings PyYAML. Exits 1 on a finding.
"""
import csv
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import yaml
from huggingface_hub import ModelCard

SNUG = pathlib.Path(__file__).parents[2] / os.environ.get("BUILD", "build") / "snug"
ODD = list("\n\r\t\"'\\`*_[]{}<>|#~&@!$:%?-+.,=()^;/ \x1b\x7f\x85\xa0\u2028\u202e\ufeff\ufffe\uffff") + [
    "eval_accuracy = 1", "---", "\n---\n", "é", "日本", "\U0001f600", "null", "yes", "topic: x", "@a", "<!--", "-->", "```", "[a](b)"]
HEAD = re.compile(r"---\n(.*?)\n---\n", re.S)


def label(draw):
    return "".join(draw.choice(ODD + list("abc12")) for _ in range(draw.randint(1, 8)))


def labels(draw):
    names = set()
    while len(names) < 6:
        name = label(draw)
        if name.strip():
            names.add(name)
    return sorted(names)


def run(folder, words):
    return subprocess.run([SNUG, *words, "--threads", "1", "--device", "cpu"], cwd=folder, capture_output=True,
                          env={**os.environ, "SNUG_CACHE": folder + "/cache"})


def findings(seed, folder):
    draw = random.Random(seed)
    names = labels(draw)
    with open(folder + "/data.jsonl", "w") as file:
        for row in range(24):
            file.write(json.dumps({"sentence": f"w{row % 5} w{row % 3}", "label": names[row % 6]}) + "\n")
    words = ("train --config_name model --tokenizer_name model --train_file data.jsonl --validation_file data.jsonl "
             "--label_separator none --class_metrics --max_steps 2 --eval_strategy steps --eval_steps 1 --save_strategy no "
             "--output_dir out").split()
    done = run(folder, words)
    if done.returncode:  # such a label is refused, by name
        yield f"refused: {done.stderr.decode().splitlines()[-1]}" if b"label" not in done.stderr else None
        return
    text = open(folder + "/out/README.md", newline="").read()
    head = yaml.safe_load(HEAD.match(text)[1])
    expected = {f"{name}_f1" for name in names}
    if not expected <= set(head["metrics"]):
        yield f"the card's metrics are {head['metrics']!r}"
    if set(head) != {"library_name", "tags", "metrics", "model-index"}:
        yield f"the card has {sorted(head)}"
    card = ModelCard.load(folder + "/out/README.md")
    if card.data.library_name != "transformers" or "<b" in card.text:
        yield "huggingface_hub reads another card"
    bad = [c for c in text if not c.isprintable() and c not in "\n\ufeff\ufffe\uffff"]
    if [c for c in bad if c not in "\xa0"]:
        yield f"the card has {bad!r}"
    done = run(folder, "predict --model_name_or_path out --test_file data.jsonl --label_separator none --return_all_scores "
                       "--output_dir results".split())
    rows = list(csv.reader(io.StringIO(done.stdout.decode(), newline="")))
    if len(rows) != 25 or any(len(row) != 9 for row in rows) or {row[1] for row in rows[1:]} - set(names):
        yield f"predictions: {rows[:3]!r}"
    if set(rows[0][3:]) != {f"score_{name}" for name in names}:
        yield f"their head: {rows[0]!r}"
    lines = open(folder + "/results/predict_results.txt", newline="").read().split("\n")
    if len(lines) != 26 or any(line.count("\t") != 1 for line in lines[:-1]):
        yield f"predict_results.txt: {lines[:3]!r}"
    done = run(folder, "eval --model_name_or_path out --validation_file data.jsonl --label_separator none --class_metrics "
                       "--output_dir=".split())
    lines = done.stdout.decode().split("\n")
    metrics = re.compile(r'([^ "=\\]+|"(?:[^"\\]|\\.)*") = [-0-9.e+nai]+')
    head = lines.index("confusion matrix: a line for each class, a column for each predicted class")
    for line in lines[:head]:
        if not metrics.fullmatch(line):
            yield f"eval: {line!r}"
    if sum(line.startswith("eval_accuracy = ") for line in lines) != 1 or len(lines) != head + 8:
        yield f"eval: {lines!r}"


def main():
    count, seed = (int(word) for word in (sys.argv[1:] + ["20", "1"][len(sys.argv) - 1:])[:2])
    found = 0
    for number in range(seed, seed + count):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/model")
            with open(folder + "/model/vocab.txt", "w") as file:
                file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(5)]) + "\n")
            with open(folder + "/model/config.json", "w") as file:
                json.dump({"model_type": "bert", "vocab_size": 10, "hidden_size": 16, "num_hidden_layers": 1,
                           "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 16}, file)
            for finding in filter(None, findings(number, folder)):
                found += 1
                print(f"seed {number}: {finding}", flush=True)
    print(f"{count} sets of labels (seeds {seed} to {seed + count - 1}): {found} findings")
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
