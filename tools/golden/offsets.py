#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/offsets.json: where tokens are in their texts, as return_offsets_mapping=True of transformers.

"texts" are given to each of "folders" (of tests/golden), which have a list of offsets per text: the bytes where each token begins
and ends. Spaces at a token's ends are left out, as the post-processor of RoBERTa does; null stands for a token of nothing else in
SentencePiece's BPE, which may have been put before the text.

Usage: offsets.py [FOLDER]    (tests/golden; needs transformers)
"""
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
from transformers import AutoTokenizer

FOLDERS = ["question_answering/wordpiece", "question_answering/bytes", "tokenizer/added", "tokenizer/cased_stripped",
           "tokenizer_parts/modernbert", "tokenizer_parts/camembert_json", "tokenizer_parts/bpe_bytes"]
TEXTS = ["", "the king, who", "  a  b \n c\t d", "a   b", "   ", "trail  ", "\r\n\r\nfoo", "Zürich is old", "東京 abc", "😀 x 😀", "한국어 말",
         "<mask> a <s> b", "x</s>y", "[SEP] x [MASK]y", "\u00a0a\u00a0b", "ﬁne ½ x", "a\u200bb", "don't stop'll", "123 4567,89", "A B C ÀÉ",
         "x\u0300y", "ßIİ", "a\u3000b", "unknown☃☃ x", "a☃b 🜁",
         "  the king,", "Zürich", "qqqqqqß!x", "qqqqß", "東京", "[SEP] x", "😀"]


def trimmed(text, begin, end):
    """A span of characters without the spaces at its ends, in bytes."""
    while begin < end and text[begin] == " ":
        begin += 1
    while begin < end and text[end - 1] == " ":
        end -= 1
    return [len(text[:at].encode()) for at in (begin, end)]


def offsets(tokenizer, name, text):
    row = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    tokens = tokenizer.convert_ids_to_tokens(row["input_ids"])
    return [None if name.endswith("bpe_bytes") and not token.strip("▁") else trimmed(text, *span)
            for token, span in zip(tokens, row["offset_mapping"])]


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden")
    found = {}
    for name in FOLDERS:
        tokenizer = AutoTokenizer.from_pretrained(folder / name)
        found[name] = [offsets(tokenizer, name, text) for text in TEXTS]
    text = json.dumps({"texts": TEXTS, "folders": found}, ensure_ascii=False, separators=(",", ":"))
    (folder / "offsets.json").write_text(text.replace('"folders":', '\n"folders":').replace(']]],', ']]],\n') + "\n")


if __name__ == "__main__":
    main()
