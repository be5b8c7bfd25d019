#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time that each memory method costs and the memory that it saves: `snug train` with each, one Markdown table.

    bench/methods.py speed [--model DIR] [--data DIR] [--steps 60]    MiniLM-L6 on SST-2, one method each
    bench/methods.py memory [--steps 1]     BERT-large, batch 4, 512 tokens: each row adds to the one before it
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SPEED = {
    "no method": "",
    "`--recompute none`": "--recompute none",
    "`--recompute ffn`": "--recompute ffn",
    "`--gradient_checkpointing`": "--gradient_checkpointing",
    "`--optim adamw_8bit`": "--optim adamw_8bit",
    "`--dtype bfloat16`": "--dtype bfloat16",
    "`--update_in_backward`": "--update_in_backward",
    "`--offload optimizer`": "--offload optimizer",
}
FLAGS = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
PRECISIONS = ["", "--bf16"] if {"amx_bf16", "avx512_bf16"} & set(FLAGS) else [""]  # elsewhere bf16 matmuls are slow
LEAST = "--gradient_checkpointing --dtype bfloat16 --update_in_backward --optim "
MEMORY = {
    "fp32, AdamW": "",
    "+ `--gradient_checkpointing`": "--gradient_checkpointing",
    "+ `--optim adamw_8bit`": "--gradient_checkpointing --optim adamw_8bit",
    "+ `--dtype bfloat16`": "--gradient_checkpointing --optim adamw_8bit --dtype bfloat16",
    "+ `--update_in_backward`": LEAST + "adamw_8bit",
    "the same with `--optim adafactor`": LEAST + "adafactor",
    "and `--offload optimizer,gradients,weights,activations`":
        LEAST + "adafactor --offload optimizer,gradients,weights,activations",
}


def train(args, base, words):
    with tempfile.TemporaryDirectory() as folder:
        command = [args.snug, "train", *base, *words.split(), "--max_steps", args.steps, "--save_strategy", "no",
                   "--output_dir", folder]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{words}: {done.stderr[-2000:]}")
        results = json.loads(pathlib.Path(folder, "train_results.json").read_text())
    return (results["train_samples_per_second"], results["memory"]["total"]["planned"] / 2**20,
            results["peak_rss_bytes"] / 2**20)


def speed(args):
    base = ["--model_name_or_path", args.model, "--train_file", args.data / "sst2-train.tsv", "--per_device_train_batch_size", 32]
    print("| |" + "".join(f" {precision or 'fp32'}, samples/s | planned | peak |" for precision in PRECISIONS))
    print("|---" * (1 + 3 * len(PRECISIONS)) + "|", flush=True)
    for name, words in SPEED.items():
        cells = []
        for precision in PRECISIONS:
            rate, planned, peak = train(args, base, f"{words} {precision}")
            cells += [f"{rate:.1f}", f"{planned:.0f} MiB", f"{peak:.0f} MiB"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def memory(args):
    base = ["--config_name", "bert-large-uncased", "--per_device_train_batch_size", 4, "--max_seq_length", 512,
            "--train_file", "dummy:12x512"]
    print("| | planned | peak of the process |\n|---|---|---|")
    for name, words in MEMORY.items():
        _, planned, peak = train(args, base, words)
        print(f"| {name} | {planned:.0f} MiB | {peak:.0f} MiB |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("speed", "memory"))
    parser.add_argument("--snug", type=pathlib.Path, default=ROOT / "build" / "snug")
    parser.add_argument("--model", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("SNUG_MODELS", ROOT.parent / "models")) / "minilm")
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("SNUG_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    args.data = pathlib.Path(args.data)
    if args.table == "speed":
        args.steps = args.steps or 60
        speed(args)
    else:
        args.steps = args.steps or 1
        memory(args)


if __name__ == "__main__":
    main()
