#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that transformers loads what snug trains and saves, and computes the same, for every family and task. Needs torch and
transformers.

    python tools/compare/check_families.py [--snug build/snug] [MODEL_TYPE ...]        (all of tests/golden/families by default)

Starts from the tiny models of tests/golden/families, gives each a vocabulary of 60 words, trains two steps with snug, predicts
(with a causal LM evaluates), and lets tools/compare/check_saved.py compare. Prints its lines; exits 1 if one of them is wrong.
phi3/longrope is: one text at a time, transformers takes the short factors for short texts; a run of snug has one choice.
"""
import argparse
import contextlib
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import check_saved

TOOLS = pathlib.Path(__file__).resolve().parent
ROOT = TOOLS.parents[1]
GOLDEN = ROOT / "tests" / "golden" / "families"
OWN_CLASS = ["bert", "camembert", "distilbert", "electra", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta"]
WORDS = [f"w{i}" for i in range(55)]
DATA = {"single_label_classification": ["a", "b", "c"], "regression": [0.5, 1.5, -1.0],
        "multi_label_classification": [["a"], ["b", "c"], ["a", "d"]]}


def write_tokenizer(folder, model_type, padding):
    """A WordPiece vocabulary whose padding token has the model's id."""
    words = ["[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    words.insert(padding, "[PAD]")
    (folder / "vocab.txt").write_text("\n".join(words + WORDS) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}))
    if model_type not in OWN_CLASS:  # its model type has another tokenizer class: transformers needs tokenizer.json
        from transformers import BertTokenizerFast
        BertTokenizerFast.from_pretrained(folder).save_pretrained(folder)


def write_rows(path, case):
    labels = DATA.get(case["problem_type"])
    with open(path, "w", encoding="utf-8") as file:
        for i in range(12):
            words = [WORDS[(7 * i + 3 * k) % len(WORDS)] for k in range(1 + 4 * i)]
            row = {"text" if case["task"] == "clm" else "sentence": " ".join(words)}
            if case["task"] == "classification":
                row["label"] = labels[i % len(labels)]
            elif case["task"] == "token_classification":
                row = {"tokens": words, "ner_tags": [f"L{k % 5}" for k in range(len(words))]}
            file.write(json.dumps(row) + "\n")


def check(snug, model_type, case, work):
    start, rows, texts, out = work / "start", work / "rows.jsonl", work / "texts.txt", work / "out"
    shutil.copytree(GOLDEN / model_type / case["folder"], start)
    padding = json.loads((start / "config.json").read_text())["pad_token_id"]
    write_tokenizer(start, model_type, 4 if padding is None or padding > 4 else padding)
    write_rows(rows, case)
    texts.write_text("".join(" ".join(WORDS[i:i + 3 * i]) + "\n" for i in range(case["task"] == "clm", 8)))
    common = ["--model_name_or_path", start, "--task", case["task"], "--train_file", rows, "--output_dir", out,
              "--max_steps", "2", "--per_device_train_batch_size", "6"]
    if case["task"] == "classification":
        common += ["--ignore_mismatched_sizes", "True"]
        if case["problem_type"] == "regression":
            common += ["--do_regression", "True"]
    done = subprocess.run([snug, "train", *map(str, common)], capture_output=True, text=True)
    if done.returncode:
        print(f"{model_type}/{case['folder']}: snug train: {done.stderr.strip().splitlines()[0]}")
        return False
    command = (["--tokenizer_json"] if model_type not in OWN_CLASS + ["modernbert"] else []) + [str(out), str(texts)]
    if case["task"] == "classification":
        with open(work / "predictions.jsonl", "w") as file:
            subprocess.run([snug, "predict", "--json", "--model_name_or_path", out, "--test_file", texts], stdout=file,
                           check=True, stderr=subprocess.DEVNULL)
        command.append(str(work / "predictions.jsonl"))
    if case["task"] == "clm":
        with open(work / "results.json", "w") as file:
            subprocess.run([snug, "eval", "--json", "--model_name_or_path", out, "--validation_file", texts,
                            "--line_by_line", "True"], stdout=file,
                           check=True, stderr=subprocess.DEVNULL)
        command.append(str(work / "results.json"))
    printed, failure = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            check_saved.main(command)
        except SystemExit as end:  # 0, 1 after its line, or a message
            failure = end.code
    line = failure if isinstance(failure, str) else printed.getvalue().strip()
    print(f"{model_type}/{case['folder']}:", line.replace(f"{out}: ", ""), flush=True)
    return not failure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="MODEL_TYPE", default=sorted(p.name for p in GOLDEN.iterdir()))
    parser.add_argument("--snug", type=pathlib.Path, default=ROOT / "build" / "snug")
    args = parser.parse_args()
    good = True
    for model_type in args.families:
        for case in json.loads((GOLDEN / model_type / "cases.json").read_text())["cases"]:
            with tempfile.TemporaryDirectory() as work:
                good &= check(args.snug.resolve(), model_type, case, pathlib.Path(work))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
