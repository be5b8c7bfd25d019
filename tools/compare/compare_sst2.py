#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes MiniLM-L6 on SST-2 with several seeds and prints dev and test accuracy.

    tools/compare/compare_sst2.py [--snug build/snug] [--model ../models/minilm] [--data ../shared/data] [--seeds 1,2,3] [-- FLAGS]

FLAGS go to `snug train` as they are (for example -- --bf16 --train_sampling_strategy group_by_length). With --bar the exit
status is 1 if the mean dev accuracy is below it: transformers reached 0.873 in fp32.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile


def train(snug, model, data, output, seed, flags):
    command = [snug, "train", "--model_name_or_path", model, "--train_file", data / "sst2-train.tsv",
               "--validation_file", data / "sst2-dev.tsv", "--output_dir", output, "--num_train_epochs", "3",
               "--per_device_train_batch_size", "32", "--eval_strategy", "epoch", "--save_strategy", "no",
               "--seed", str(seed), *flags]
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)


def evaluate(snug, model, file):
    command = [snug, "eval", "--model_name_or_path", model, "--validation_file", file, "--json"]
    done = subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["eval_accuracy"]


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    data = pathlib.Path(os.environ.get("SNUG_DATA", root.parent / "shared" / "data"))
    models = pathlib.Path(os.environ.get("SNUG_MODELS", root.parent / "models"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snug", type=pathlib.Path, default=root / "build" / "snug")
    parser.add_argument("--model", type=pathlib.Path, default=models / "minilm")
    parser.add_argument("--data", type=pathlib.Path, default=data)
    parser.add_argument("--seeds", default="1,2,3", type=lambda text: [int(seed) for seed in text.split(",")])
    parser.add_argument("--bar", type=float, help="least mean dev accuracy")
    parser.add_argument("flags", nargs="*", help="after --: flags for snug train")
    args = parser.parse_args()
    results = []
    print("seed  dev     test    samples/s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for seed in args.seeds:
            output = pathlib.Path(folder) / f"seed-{seed}"
            train(args.snug, args.model, args.data, output, seed, args.flags)
            dev, test = (evaluate(args.snug, output, args.data / f"sst2-{part}.tsv") for part in ("dev", "test"))
            speed = json.loads((output / "train_results.json").read_text())["train_samples_per_second"]
            results.append((dev, test))
            print(f"{seed:4}  {dev:.4f}  {test:.4f}  {speed:9.1f}", flush=True)
    dev, test = (statistics.mean(column) for column in zip(*results))
    print(f"mean  {dev:.4f}  {test:.4f}")
    if args.bar is not None and dev < args.bar:
        sys.exit(f"the mean dev accuracy {dev:.4f} is below {args.bar}")


if __name__ == "__main__":
    main()
