#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/deberta_tokenizer: the files that transformers saves of a tiny DebertaV2Tokenizer, whose words are those
of the data of tests/cli, and rows.jsonl, texts with the ids that it gives them.

    python tools/golden/deberta_tokenizer.py        (needs transformers)
"""
import json
import pathlib
import shutil

from transformers import DebertaV2Tokenizer

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
PIECES = {"▁good": -3.0, "▁bad": -3.0, "▁w1": -3.5, "▁w": -4.0, "▁": -5.0} | {c: -6.0 for c in "0123456789gobadw"}
TEXTS = ["w1 good", "  w17 bad\tw200 ", "goods, W1 é", "", "[MASK] w1[SEP]bad"]

folder = pathlib.Path(__file__).parents[2] / "tests/golden/deberta_tokenizer"
shutil.rmtree(folder, ignore_errors=True)
vocabulary = [(piece, 0.0) for piece in SPECIAL] + list(PIECES.items()) + [("[MASK]", 0.0)]
DebertaV2Tokenizer(vocab=vocabulary).save_pretrained(folder)
read = DebertaV2Tokenizer.from_pretrained(folder)
rows = [json.dumps({"sentence": text, "input_ids": read(text)["input_ids"]}, ensure_ascii=False) + "\n" for text in TEXTS]
(folder / "rows.jsonl").write_text("".join(rows), encoding="utf-8")
