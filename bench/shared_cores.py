#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on cores that other programs use: samples per second alone and beside busy loops.

    bench/shared_cores.py --model DIR [--snug build/snug] [--busy N] [--steps 60] [--rounds 5] [--batch 8] [--other SNUG]

In every round each way of waiting trains alone and beside --busy endless loops (by default as many as cores), one after the
other. Printed are the medians, and each median as a part of the first way alone: snug as it is, and with the waiting that
OpenMP's library would choose. --other is a second program, such as an older build, for both.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile


def train(snug, args, folder, variables):
    """Samples per second."""
    environment = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    subprocess.run([snug, "train", "--model_name_or_path", args.model, "--train_file", "dummy:512x8-40", "--output_dir", folder,
                    "--overwrite_output_dir", "--per_device_train_batch_size", str(args.batch), "--max_steps", str(args.steps),
                    "--save_strategy", "no", "--log_level", "error", "--disable_tqdm", "True"],
                   check=True, env=environment | variables, stdout=subprocess.DEVNULL)
    return json.loads((pathlib.Path(folder) / "train_results.json").read_text())["train_samples_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--model", required=True)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--other")
    parser.add_argument("--busy", type=int, default=cores)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    ways = [("snug", args.snug, {}), ("long spinning", args.snug, {"GOMP_SPINCOUNT": "300000"})]
    if args.other:
        ways += [("other", args.other, {}), ("other, long spinning", args.other, {"GOMP_SPINCOUNT": "300000"})]
    rates = {(name, busy): [] for name, _, _ in ways for busy in (0, args.busy)}
    with tempfile.TemporaryDirectory() as folder:
        for done in range(args.rounds):
            for busy in (0, args.busy):
                loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
                try:
                    for name, snug, variables in ways if done % 2 == 0 else ways[::-1]:
                        rates[name, busy].append(train(snug, args, folder, variables))
                finally:
                    for loop in loops:
                        loop.kill()
                        loop.wait()
    alone = statistics.median(rates["snug", 0])
    print(f"| batch {args.batch}, {cores} cores | alone, samples/s | of snug | beside {args.busy} busy loops | of snug alone |")
    print("|---|---|---|---|---|")
    for name, _, _ in ways:
        quiet, beside = (statistics.median(rates[name, busy]) for busy in (0, args.busy))
        print(f"| {name} | {quiet:.1f} | {quiet / alone:.3f} | {beside:.1f} | {beside / alone:.2f} |")


if __name__ == "__main__":
    main()
