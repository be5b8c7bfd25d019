#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a loaded classifier takes to answer, as a table: bench_latency in each type.

    bench/latency.py [--build build] [--device cpu] [--model ../models/minilm] [--runs 5]

The classifier has the config and the tokenizer of --model and random weights, on which times do not depend. On a CPU it runs
on one core. First answers are the fastest ones of --runs starts, the others medians of one of them.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPES = {"fp32": [], "fp16 (`--fp16_full_eval`)": ["--fp16_full_eval"], "bf16 (`--bf16_full_eval`)": ["--bf16_full_eval"]}
ROWS = {
    "first answer, from the start of the process": r"([\d.]+) ms after the process started",
    "of which opening the model": r"opened in ([\d.]+)",
    "each further answer": r"batch  1: +([\d.]+) ms a call",
    "a sentence in batches of 32": r"batch 32: .* ([\d.]+) ms a sentence",
}


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def measure(args, folder, words):
    """A column: the figures of the fastest start."""
    command = [args.build / "bench_latency", "--model_name_or_path", folder, "--device", args.device, *words]
    if args.device == "cpu":
        command = ["taskset", "-c", "0", *command, "--threads", 1]
    columns = []
    for _ in range(args.runs):
        text = run(command)
        columns.append([float(re.search(pattern, text)[1]) for pattern in ROWS.values()])
    return min(columns)


def main():
    models = pathlib.Path(os.environ.get("SNUG_MODELS", ROOT.parent / "models"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--model", type=pathlib.Path, default=models / "minilm")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-latency-"))
    try:
        run([args.build / "snug", "train", "--device", args.device, "--config_name", args.model, "--tokenizer_name", args.model,
             "--train_file", ROOT / "examples/demo/train.csv", "--max_steps", 1, "--save_strategy", "no",
             "--output_dir", folder / "classifier"])
        types = {name: words for name, words in TYPES.items() if args.device == "cuda" or "--fp16_full_eval" not in words}
        columns = [measure(args, folder / "classifier", words) for words in types.values()]
    finally:
        shutil.rmtree(folder)
    print(f"| ms | {' | '.join(types)} |\n|{'---|' * (len(types) + 1)}")
    for name, figures in zip(ROWS, zip(*columns)):
        print(f"| {name} | {' | '.join(f'{figure:.3g}' for figure in figures)} |")


main()
