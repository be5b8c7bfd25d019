#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokenizing a file on all cores beside `tokenizers`' batch encoding: WordPiece, byte-level BPE, Unigram.

    bench/tokenizing.py --python VENV/bin/python [--data ../shared/data] [--megabytes 64] [--rounds 3] [--models DIR]

Trains a vocabulary of each kind on the texts of --data, or with --models takes the tokenizers of decoders in DIR/tokenizers, writes them, repeated in random order, into a JSON Lines file, and
times alternately `snug train` of one step with an empty token cache (the whole command: it reads, tokenizes, writes the cache,
trains and saves a tiny model) and encode_batch() of the same rows (only the encoding). Prints a Markdown table of medians.
Exits with 1 if the first rows' tokens differ. --python has the package tokenizers.
"""
import argparse
import csv
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
REAL = ("gpt2", "llama3.2", "qwen2.5", "deepseek", "o200k", "mistral-tekken", "llama2", "gemma")
KINDS = ("WordPiece", "byte-level BPE", "Unigram")
SPECIAL = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}


def texts_of(folder):
    for path in sorted(folder.glob("*train*")):
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix == ".jsonl":
                rows = map(json.loads, file)
            else:
                rows = csv.DictReader(file, dialect="excel-tab" if path.suffix == ".tsv" else "excel")
            yield from (" ".join(str(row[key]) for key in row if key != "label") for row in rows)


def make_tokenizer(kind, texts, folder):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    special = list(SPECIAL.values())
    if kind == "WordPiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=30000, special_tokens=special, show_progress=False)
    elif kind == "Unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=30000, special_tokens=special, unk_token="<unk>", show_progress=False)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=30000, special_tokens=special, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    ends = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=ends)
    write_model(tokenizer, folder, SPECIAL)
    return tokenizer


def write_model(tokenizer, folder, special):
    """A tiny model for its ids; both sides cut rows at 128 tokens."""
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}))
    (folder / "config.json").write_text(json.dumps({
        "model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8,
        "max_position_embeddings": 128, "pad_token_id": 0}))
    tokenizer.enable_truncation(128)


def take_tokenizer(name, models, folder):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(models / "tokenizers" / name / "tokenizer.json"))
    write_model(tokenizer, folder, {})
    return tokenizer


def snug(args, *words, **kwargs):
    done = subprocess.run([str(args.snug), *map(str, words)], capture_output=True, text=True, **kwargs)
    if done.returncode:
        sys.exit(f"snug {words[0]}: {done.stderr[-2000:]}")
    return done.stdout


def time_snug(args, model, data):
    with tempfile.TemporaryDirectory() as cache:
        begin = time.perf_counter()
        snug(args, "train", "--config_name", model, "--tokenizer_name", model, "--train_file", data, "--output_dir", cache + "/out",
             "--max_seq_length", 128, "--max_steps", 1, "--save_strategy", "no", env=dict(os.environ, SNUG_CACHE=cache))
        return time.perf_counter() - begin


def time_peer(tokenizer, texts):
    begin = time.perf_counter()
    for at in range(0, len(texts), 10000):
        tokenizer.encode_batch(texts[at:at + 10000])
    return time.perf_counter() - begin


def compare(args, tokenizer, model, data, texts):
    rows = snug(args, "tokenize", "--model_name_or_path", model, "--test_file", data, "--max_predict_samples", 1000)
    for text, row in zip(texts, rows.splitlines()):
        if json.loads(row)["input_ids"] != tokenizer.encode(text).ids:
            sys.exit(f"other tokens than tokenizers': {text}")


def measure(args):
    random.seed(1)
    base = list(texts_of(args.data))
    times = max(1, round(args.megabytes * 2**20 / sum(len(text.encode()) for text in base)))
    texts = base * times
    random.shuffle(texts)
    size = sum(len(text.encode()) for text in texts) / 2**20
    print(f"{len(texts)} rows, {size:.0f} MiB of text, {len(os.sched_getaffinity(0))} cores, median of {args.rounds}\n")
    print("| model | snug train, whole command | tokenizers, encoding alone | ratio |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        data = folder / "data.jsonl"
        with data.open("w", encoding="utf-8") as file:
            for text in texts:
                file.write(json.dumps({"text": text, "label": 0}, ensure_ascii=False) + "\n")
            file.write(json.dumps({"text": "one", "label": 1}) + "\n")
        for kind in REAL if args.models else KINDS:
            model = folder / kind.split()[0]
            tokenizer = take_tokenizer(kind, args.models, model) if args.models else make_tokenizer(kind, base, model)
            compare(args, tokenizer, model, data, texts)
            found = [(time_snug(args, model, data), time_peer(tokenizer, texts)) for _ in range(args.rounds)]
            ours, peer = (statistics.median(times) for times in zip(*found))
            print(f"| {kind} | {ours:.2f} s | {peer:.2f} s | {peer / ours:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=pathlib.Path, default=ROOT.parent / "venv" / "bin" / "python")
    parser.add_argument("--snug", type=pathlib.Path, default=ROOT / "build" / "snug")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("SNUG_DATA", ROOT.parent / "shared" / "data")))
    parser.add_argument("--megabytes", type=float, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", type=pathlib.Path)
    args = parser.parse_args()
    if pathlib.Path(sys.prefix) != args.python.parent.parent:
        os.execv(args.python, [str(args.python), *sys.argv])
    measure(args)


if __name__ == "__main__":
    main()
