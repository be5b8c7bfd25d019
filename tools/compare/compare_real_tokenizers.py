#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `snug tokenize --decode` with transformers' AutoTokenizer on the real tokenizers of decoders.

Usage: compare_real_tokenizers.py [--snug build/snug] [--models $SNUG_MODELS] [--random 100000] [CASE ...]

Texts of each case: the reference strings of llama.cpp's vocabularies, each code point alone, and random strings. Ids and the
text of decode() must be equal, and the ids of the reference strings those of the .out files, where the case names one. Needs
transformers, sentencepiece and protobuf, and in MODELS/tokenizers what CASES names. Exits with 1 if anything differs.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
from transformers import AutoTokenizer, logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
from random_texts import random_text

SPLIT = "\n__ggml_vocab_test__\n"
WRAPPED = {"tokenizer_class": "PreTrainedTokenizerFast"}
LLAMA = {"tokenizer_class": "LlamaTokenizer"}
MISTRAL = "mistral/mistral_instruct_tokenizer_"
# Name: files of the folder (a path is linked, a dictionary written), the vocabulary whose reference ids it has, and what is
# changed in tokenizer.json.
CASES = {
    "llama3.2": ({"tokenizer.json": "llama3.2/tokenizer.json", "tokenizer_config.json": "llama3.2/tokenizer_config.json"}, None, {}),
    "llama3.2 ignore_merges": ({"tokenizer.json": "llama3.2/tokenizer.json", "tokenizer_config.json": WRAPPED}, "llama-bpe",
                               {"ignore_merges": True}),
    "deepseek": ({"tokenizer.json": "deepseek/tokenizer.json", "tokenizer_config.json": "deepseek/tokenizer_config.json"}, None, {}),
    "gpt2": ({"tokenizer.json": "gpt2/tokenizer.json", "tokenizer_config.json": WRAPPED}, "gpt-2", {}),
    "gpt2 merges.txt": ({"vocab.json": "gpt2/vocab.json", "merges.txt": "gpt2/merges.txt",
                         "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}}, "gpt-2", {}),
    "qwen2.5": ({"tokenizer.json": "qwen2.5/tokenizer.json", "tokenizer_config.json": WRAPPED}, "qwen2", {}),
    "qwen2.5 class": ({"tokenizer.json": "qwen2.5/tokenizer.json", "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer"}},
                      "qwen2", {}),
    "qwen3.5-test": ({"tokenizer.json": "qwen3.5-test/tokenizer.json", "tokenizer_config.json": WRAPPED}, None, {}),
    "gemma": ({"tokenizer.json": "gemma/tokenizer.json", "tokenizer_config.json": WRAPPED}, "gemma-4", {}),
    "gemma class": ({"tokenizer.json": "gemma/tokenizer.json", "tokenizer_config.json": {"tokenizer_class": "GemmaTokenizer"}},
                    "gemma-4", {}),
    "llama2": ({"tokenizer.json": "llama2/tokenizer.json", "tokenizer_config.json": WRAPPED}, "llama-spm", {}),
    "llama2 class": ({"tokenizer.json": "llama2/tokenizer.json", "tokenizer_config.json": LLAMA}, None, {}),
    "llama2 legacy": ({"tokenizer.json": "llama2/tokenizer.json", "tokenizer_config.json": {**LLAMA, "legacy": True}}, None, {}),
    "mistral-tekken": ({"tokenizer.json": "mistral-tekken/tokenizer.json", "tokenizer_config.json": WRAPPED}, None, {}),
    "o200k": ({"tokenizer.json": "o200k/tokenizer.json", "tokenizer_config.json": WRAPPED}, None, {}),
    "mistral v1 model": ({"tokenizer.model": "mistral/tokenizer.model.v1", "tokenizer_config.json": LLAMA}, None, {}),
    "mistral v2 model": ({"tokenizer.model": MISTRAL + "240216.model.v2", "tokenizer_config.json": {**LLAMA, "legacy": True}},
                         None, {}),
    "mistral v3 model": ({"tokenizer.model": MISTRAL + "240323.model.v3",
                          "tokenizer_config.json": {**LLAMA, "add_bos_token": True, "add_eos_token": True}}, None, {}),
    "mistral v7 model": ({"tokenizer.model": MISTRAL + "241114.model.v7", "tokenizer_config.json": {**LLAMA, "add_bos_token": False}},
                         None, {}),
    "mistral v1 model, wrapped": ({"tokenizer.model": "mistral/tokenizer.model.v1", "tokenizer_config.json": WRAPPED}, None, {}),
    "mistral v1 model, of Mistral": ({"tokenizer.model": "mistral/tokenizer.model.v1", "config.json": {"model_type": "mistral"},
                                      "tokenizer_config.json": {**LLAMA, "legacy": False, "add_bos_token": True}}, None, {}),
    "llama2, of Phi-3": ({"tokenizer.json": "llama2/tokenizer.json", "config.json": {"model_type": "phi3"},
                          "tokenizer_config.json": LLAMA}, None, {}),
    "mistral v7 model, Gemma": ({"tokenizer.model": MISTRAL + "241114.model.v7",
                                 "tokenizer_config.json": {"tokenizer_class": "GemmaTokenizer"}}, None, {}),
}


def make_folder(models, files, changed, folder):
    for name, source in files.items():
        path = Path(folder, name)
        if isinstance(source, dict):
            path.write_text(json.dumps(source))
        elif changed and name == "tokenizer.json":
            content = json.loads((models / source).read_text(encoding="utf-8"))
            content["model"].update(changed)
            path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        else:
            path.symlink_to((models / source).resolve())


def snug_rows(snug, folder, texts, skip):
    """The ids and the decoded text of each text."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "texts.jsonl")
        path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts), encoding="utf-8")
        command = [snug, "tokenize", "--tokenizer_name", folder, "--test_file", str(path), "--max_seq_length", "1000000",
                   "--text_column_name", "text", "--task", "mlm", "--decode", *(["--skip_special_tokens"] if skip else [])]
        done = subprocess.run(command, capture_output=True)
    if done.returncode:
        sys.exit(f"{folder}: {done.stderr.decode()}")
    for line in done.stdout.decode().split("\n"):
        if line:
            row = json.loads(line)
            yield row["input_ids"], row["text"]


def differences(snug, folder, tokenizer, texts, skip):
    """(text, expected ids, ids, expected decoding, decoding) where anything differs."""
    backend = tokenizer.backend_tokenizer
    rows = snug_rows(snug, folder, texts, skip)
    for start in range(0, len(texts), 20000):
        part = texts[start:start + 20000]
        expected = [encoding.ids for encoding in backend.encode_batch_fast(part)]
        for text, ids in zip(part, expected):
            found, decoded = next(rows)
            right = tokenizer.decode(ids, skip_special_tokens=skip)
            if found != ids or decoded != right:
                yield text, ids, found, right, decoded


def check_reference(models, name, tokenizer, snug, folder):
    """The ids of llama.cpp's reference, which have no special tokens. Composed characters, which llama.cpp leaves alone, are skipped."""
    texts = (models / f"ggml/ggml-vocab-{name}.gguf.inp").read_bytes().decode().split(SPLIT)
    lines = (models / f"ggml/ggml-vocab-{name}.gguf.out").read_text().split("\n")
    ids = [[int(word) for word in line.split()] for line in lines[:len(texts)]]
    special = tokenizer.num_special_tokens_to_add()
    rows = list(snug_rows(snug, folder, [text or "x" for text in texts], False))
    return sum(bool(text) and row[0][special:] != right for text, right, row in zip(texts, ids, rows)), len(texts)


def compare(arguments, models, case, texts):
    files, reference, changed = CASES[case]
    missing = [source for source in files.values() if isinstance(source, str) and not (models / source).exists()]
    if missing:
        print(f"{case}: skipped, {models / missing[0]} is missing")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        make_folder(models, files, changed, folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        count = 0
        for skip in (False, True):
            for text, ids, found, right, decoded in differences(arguments.snug, folder, tokenizer, texts[skip::2], skip):
                count += 1
                if count <= 5:
                    print(f"  {text!a}\n    expected {ids[:40]} {right!a}\n    found    {found[:40]} {decoded!a}")
        line = f"{case} ({type(tokenizer).__name__}): {count} of {len(texts)} texts differ"
        if reference:
            wrong, number = check_reference(models, reference, tokenizer, arguments.snug, folder)
            line += f"; {wrong} of {number} differ from llama.cpp's ids"
            count += wrong
    print(line, flush=True)
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--models", type=Path, default=Path(os.environ.get("SNUG_MODELS", "models")))
    parser.add_argument("--random", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no_code_points", action="store_true")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    models = arguments.models / "tokenizers"
    texts = []
    for path in sorted(models.glob("ggml/*.inp")):
        texts += path.read_bytes().decode().split(SPLIT)
    texts = sorted(set(texts))
    if not arguments.no_code_points:
        texts += (chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000)
    first = arguments.seed * arguments.random
    texts += (random_text(number).replace("\0", "") for number in range(first, first + arguments.random))
    texts = [text for text in texts if text]
    unknown = [case for case in arguments.cases if case not in CASES]
    if unknown:
        sys.exit(f"no case {unknown[0]!r}, only {', '.join(CASES)}")
    sys.exit(sum(compare(arguments, models, case, texts) for case in arguments.cases or CASES) > 0)


if __name__ == "__main__":
    main()
