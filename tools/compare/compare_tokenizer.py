#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `snug tokenize` with transformers' AutoTokenizer: on every text of the data folder and on random strings.

Usage: compare_tokenizer.py [--snug build/snug] [--model DIR ...] [--data DIR] [--random 100000] [--seed 0] [--max_length 128]

Each model's tokenizer, of any kind; one with an uncased vocab.txt a second time as a cased one, whose vocabulary is the
model's and its words with capitals. Exits with 1 and shows the first differences if there is any. Needs transformers.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import AutoTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
from random_texts import random_text


def data_texts(folder):
    """Every field of every file."""
    csv.field_size_limit(1 << 30)
    for path in sorted(folder.glob("*.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                yield from row
    for path in sorted(folder.glob("*.tsv")):
        for line in path.read_text(encoding="utf-8").split("\n"):
            yield from line.split("\t")
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield from (value for value in json.loads(line).values() if isinstance(value, str))


def make_cased(model, folder):
    """A cased tokenizer in folder: the vocabulary's words also with capitals, and accented letters."""
    tokens = Path(model, "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    known = set(tokens)
    for token in tokens[:]:
        pieces = [token.upper(), token.title()] if token.isalpha() else ["##" + token[2:].upper()] if token.startswith("##") else []
        for piece in [*pieces, *("ÀÉÎõü" if token == "a" else [])]:
            if piece not in known:
                known.add(piece)
                tokens.append(piece)
    Path(folder, "vocab.txt").write_text("".join(token + "\n" for token in tokens), encoding="utf-8")
    Path(folder, "tokenizer_config.json").write_text('{"do_lower_case": false, "tokenizer_class": "BertTokenizer"}')


def snug_rows(arguments, model, texts):
    """What the program prints for each text, read from a JSON Lines file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "texts.jsonl")
        path.write_text("".join(json.dumps({"sentence": text}, ensure_ascii=False) + "\n" for text in texts),
                        encoding="utf-8")
        command = [arguments.snug, "tokenize", "--model_name_or_path", model, "--test_file", str(path),
                   "--max_seq_length", str(arguments.max_length)]
        output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
    return [json.loads(line) for line in output.split("\n") if line]


def compare(arguments, model, texts):
    """The number of texts with different tokens."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows, different = snug_rows(arguments, model, texts), 0
    if len(rows) != len(texts):
        sys.exit(f"{len(rows)} rows came back for {len(texts)} texts")
    unknown = sum(tokenizer.unk_token_id in row["input_ids"] for row in rows)
    for start in range(0, len(texts), 10000):
        expected = tokenizer(texts[start : start + 10000], truncation=True, max_length=arguments.max_length, padding=False)
        for i, ids in enumerate(expected["input_ids"], start):
            row, tokens = rows[i], tokenizer.convert_ids_to_tokens(ids)
            same = row["index"] == i and row["input_ids"] == ids and row["tokens"] == tokens
            if same and not any(row["token_type_ids"]):
                continue
            different += 1
            if different <= 5:
                print(f"{texts[i]!a}\n  expected {tokens}\n  found    {row['tokens']}")
    print(f"{model}, {len(tokenizer)} tokens: {different} of {len(texts)} differ ({unknown} hold an unknown word)")
    return different


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--model", nargs="+", default=["/work/models/minilm"])
    parser.add_argument("--data", default=os.environ.get("SNUG_DATA", "../shared/data"))
    parser.add_argument("--random", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max_length", type=int, default=128)
    arguments = parser.parse_args()

    texts = list(data_texts(Path(arguments.data)))
    print(f"{len(texts)} texts in {arguments.data}, {arguments.random} random strings")
    first = arguments.seed * arguments.random
    texts += (random_text(number).replace("\0", "") for number in range(first, first + arguments.random))
    different = 0
    for model in arguments.model:
        different += compare(arguments, model, texts)
        if not Path(model, "vocab.txt").exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            make_cased(model, folder)
            different += compare(arguments, folder, texts)
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
