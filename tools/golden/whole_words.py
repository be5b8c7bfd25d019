#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/whole_words.json: where words begin in texts, for transformers' whole-word masking.

"folders" are those of tests/golden/tokenizer_parts whose offsets leave out the space before a word; of each a list of [ids, begins]
for each text: begins[i] is 1 if token i is the first one of a word (DataCollatorForLanguageModeling, whole_word_mask=True). Texts are
ASCII, whose offsets are one per token: of other characters, transformers takes each further byte for a word. Of WordPiece, words are
those of DataCollatorForWholeWordMask of transformers 4 (run_mlm_wwm.py): all tokens without ##.

Usage: whole_words.py [FOLDER]    (tests/golden; needs transformers)
"""
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import numpy
from transformers import AutoTokenizer
from transformers.data.data_collator import DataCollatorForLanguageModeling

TEXTS = ["The film was unbelievable, and running late.", "don't stop, it's 3.14% (or more) again", "a  b   c", " leading and trailing", "",
         "Basel e-mail@example.org: 12:30!"]


def begins_by_offsets(tokenizer, text):
    row = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    offsets, special = numpy.array([row["offset_mapping"]]), numpy.array([row["special_tokens_mask"]])
    _, not_first = DataCollatorForLanguageModeling._calc_word_ids_and_prob_mask(offsets, special)
    return [row["input_ids"], [int(not flag) for flag in not_first[0]]]


def begins_by_prefix(tokenizer, text):
    row = tokenizer(text, return_special_tokens_mask=True)
    tokens = tokenizer.convert_ids_to_tokens(row["input_ids"])
    return [row["input_ids"], [int(not special and not token.startswith("##"))
                               for token, special in zip(tokens, row["special_tokens_mask"])]]


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden")
    golden = {}
    for name in ("roberta", "roberta_prefix", "xlm_roberta", "xlm_roberta_json", "camembert", "mpnet"):
        tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer_parts" / name)
        begins = begins_by_prefix if name == "mpnet" else begins_by_offsets
        golden[name] = [begins(tokenizer, text) for text in TEXTS]
    (folder / "whole_words.json").write_text(json.dumps({"folders": golden}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
