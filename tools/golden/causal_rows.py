#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/causal_rows.json: data files, and the rows of causal LM that come from them: their tokens, and which of these
have a loss, by the rules of TRL's SFTTrainer (texts; prompts with completions) and of run_clm.py (blocks), with transformers'
tokenizers. Beside these rules: a token with which a row begins or ends is not there twice, where the text has it already.

Usage: causal_rows.py [FILE]    (needs transformers, tokenizers)
"""
import json
import sys
import tempfile
from pathlib import Path

from decoding import MODELS, byte_level, sentencepiece
from tokenizers import decoders, normalizers, processors
from transformers import AutoTokenizer

TEXTS = ["The quick brown fox", "", "two\nlines, it's 123", "<s>begins as a row", "ends as one</s>", "</s> between <s>", "a" * 40,
         "größer 漢字 \U0001F469", " spaces  ", "<s></s>"]
PAIRS = [("The quick", " brown fox"), ("Question: ", "answer"), ("ends with a space ", "doesn't it's"), ("", "only a completion"),
         ("only a prompt", ""), ("<s>begins", " and ends</s>"), ("<mask>x", "y"), ("camel", "CaseIDs"), ("long " * 30, "lost"), ("12", "34"),
         ("line\n", "\nline"), ("größ", "er"), ("a prompt</s>", "b")]
LINES = "The quick brown fox\n\n  indented\r\nlast line of it\n" * 4 + "no end"


def kinds():
    """(name, tokenizer): without special tokens, with one at the beginning, and with both."""
    plain = byte_level(MODELS["gpt4"])
    yield "plain", plain
    pieces = sentencepiece(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None,
                           decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]))
    pieces.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    yield "begin", pieces
    both = byte_level(MODELS["llama3"], ignore_merges=True)
    both.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> <s> $B </s>", [("<s>", 1), ("</s>", 2)])
    yield "both", both
    several = byte_level(MODELS["gpt4"])
    several.post_processor = processors.TemplateProcessing("<s> <mask> $A </s> <mask>", "<s> <mask> $A </s> <mask> $B", [
        ("<s>", 1), ("</s>", 2), ("<mask>", 3)])
    yield "several", several


def load(tokenizer, folder, eos):
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "unk_token": "<unk>", **({"eos_token": "</s>"} if eos else {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return AutoTokenizer.from_pretrained(folder), {"tokenizer.json": json.loads((folder / "tokenizer.json").read_text()),
                                                   "tokenizer_config.json": config}


def encode(fast, text, ends=True):
    """The text's own tokens within what the post-processor adds, once; without what follows them unless `ends`."""
    own, around = fast(text, add_special_tokens=False)["input_ids"], fast("fox")["input_ids"]
    fox = fast("fox", add_special_tokens=False)["input_ids"]
    at = next(i for i in range(len(around)) if around[i:i + len(fox)] == fox)
    before, after = around[:at], around[at + len(fox):] if ends else []
    assert fast(text)["input_ids"] == around[:at] + own + around[at + len(fox):]
    if before and own and own[0] == before[-1]:
        before = before[:-1]
    if after and own and own[-1] == after[0]:
        after = after[1:]
    return before + own + after


def ended(fast, text):
    return text if fast.eos_token is None or text.endswith(fast.eos_token) else text + fast.eos_token


def row(line, ids, mask, most):
    """None where no token has a loss: the first one is predicted by none."""
    cut = len(ids) > most
    ids, mask = ids[:most], mask[:most]
    return [line, ids, None if all(mask) else mask, cut] if any(mask[1:]) else None


def text_row(fast, line, text, most):
    ids = encode(fast, ended(fast, text))
    return row(line, ids, [1] * len(ids), most)


def pair_row(fast, line, prompt, completion, most, completion_only):
    ids, alone = encode(fast, prompt + ended(fast, completion)), encode(fast, prompt, ends=False)
    same = next((i for i, (a, b) in enumerate(zip(ids, alone)) if a != b), min(len(ids), len(alone)))
    return row(line, ids, [int(i >= same or not completion_only) for i in range(len(ids))], most)


def block_rows(fast, lines, size):
    tokens = [(number, id) for number, line in enumerate(lines, 1) for id in encode(fast, line)]
    return [[tokens[at][0], [id for _, id in tokens[at:at + size]], None, False] for at in range(0, len(tokens) - size + 1, size)]


def cases():
    texts = "".join(json.dumps({"text": text, "label": 1}) + "\n" for text in TEXTS)
    pairs = "".join(json.dumps({"prompt": prompt, "completion": completion, "id": "x"}) + "\n" for prompt, completion in PAIRS)
    lines = LINES.replace("\r\n", "\n").splitlines(keepends=True)
    for name, tokenizer in kinds():
        for eos in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                fast, files = load(tokenizer, Path(folder), eos)
            found = []

            def add(file, content, rows, **options):
                found.append({"file": file, "content": content, "rows": [one for one in rows if one], "left_out": rows.count(None), **options})

            for most in (64, 8) if eos else (64,):
                add("texts.jsonl", texts, [text_row(fast, i, text, most) for i, text in enumerate(TEXTS, 1)], max_length=most)
                for only in (True, False):
                    add("pairs.jsonl", pairs, [pair_row(fast, i, *pair, most, only) for i, pair in enumerate(PAIRS, 1)], max_length=most,
                        completion_only=only)
            add("lines.txt", LINES, block_rows(fast, lines, 16), max_length=16)
            add("lines.txt", LINES, [text_row(fast, i, line.rstrip("\n"), 64) for i, line in enumerate(lines, 1)], max_length=64,
                line_by_line=True)
            add("texts.jsonl", texts, block_rows(fast, TEXTS, 10), max_length=10, blocks=True)
            yield {"name": f"{name}{'' if eos else ', no end'}", "files": files, "data": found}


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2] / "tests/golden/causal_rows.json"
    with open(path, "w") as file:
        json.dump({"cases": list(cases())}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
