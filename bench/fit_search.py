#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How good is the choice of --fit? Tries all mixes, by running them.

    bench/fit_search.py [--snug build/snug] [--steps 12] [--budgets 3] -- --model_name_or_path DIR --train_file FILE
        --per_device_train_batch_size 32 …

Lists the mixes of micro-batches, levels of recomputation by layer (in steps), update in backward and, with --rounding, 8-bit
states and bf16 weights; plans each; for every budget runs those that fit, a few steps each, and prints the seconds of
--fit's choice beside the best. On a quiet machine only. The bar: never above 1.1.
"""
import argparse
import itertools
import json
import shutil
import subprocess
import sys
import tempfile

MARGIN = 2 << 20  # SNUG_FIT_MARGIN


def call(snug, words):
    return subprocess.run([snug, *words], capture_output=True, text=True, check=False)


def plan(snug, arguments, flags):
    done = call(snug, ["plan", *arguments, *flags, "--json"])
    return json.loads(done.stdout) if done.returncode == 0 else None


def seconds_of_step(snug, arguments, flags, steps, rounds):
    """The best of some rounds: what disturbs only ever adds."""
    best = None
    for _ in range(rounds):
        folder = tempfile.mkdtemp(prefix="fit_search.")
        words = ["train", *arguments, *flags, "--max_steps", str(steps), "--save_strategy", "no", "--json"]
        done = call(snug, [*words, "--output_dir", folder, "--disable_tqdm"])
        shutil.rmtree(folder)
        if done.returncode:
            sys.exit(f"snug {' '.join(words)}: {done.stderr}")
        taken = 1 / json.loads(done.stdout.splitlines()[-1])["train_steps_per_second"]
        best = taken if best is None else min(best, taken)
    return best


def levels(layers):
    """The first layers at a strong level, the next at a weaker one, the rest as they are."""
    some = sorted({0, layers // 3, 2 * layers // 3, layers - 1, layers})
    for strong, weak in (("layer", "attention"), ("layer", "ffn"), ("attention", "ffn")):
        for a, b in itertools.product(some, some):
            if a + b > layers:
                continue
            parts = [f"{name}*{count}" for name, count in ((strong, a), (weak, b), ("elementwise", layers - a - b)) if count]
            yield ",".join(parts)


def mixes(asked, rounding):
    batch, accumulation = asked["batch"]["sequences"], asked["batch"]["gradient_accumulation_steps"]
    layers = len(asked["layers"]["encoder"])
    splits = [p for p in range(1, batch + 1) if batch % p == 0]
    for p, level, backward in itertools.product(splits, sorted(set(levels(layers))), (False, True)):
        for optim, dtype in itertools.product((False, True), (False, True)) if rounding else ((False, False),):
            flags = ["--per_device_train_batch_size", str(batch // p), "--gradient_accumulation_steps",
                     str(accumulation * p), "--recompute", level if "," in level else level.split("*")[0]]
            flags += ["--update_in_backward"] if backward else []
            flags += ["--optim", "adamw_8bit"] if optim else []
            flags += ["--dtype", "bfloat16"] if dtype else []
            yield flags


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--budgets", type=int, default=3)
    parser.add_argument("--rounding", action="store_true", help="also 8-bit states and bf16 weights")
    parser.add_argument("--run", type=int, default=40, help="run the so many mixes with the least estimated seconds")
    parser.add_argument("arguments", nargs="+")
    options = parser.parse_args()
    snug, arguments = options.snug, options.arguments

    asked = plan(snug, arguments, [])
    if not asked:
        sys.exit(call(snug, ["plan", *arguments]).stderr)
    planned = []
    for flags in mixes(asked, options.rounding):
        one = plan(snug, arguments, flags)
        if one:
            planned.append((one["methods"][0]["step"]["seconds"], one["bytes"]["total"], flags))
    planned.sort(key=lambda item: item[0])
    least, most = min(item[1] for item in planned), asked["bytes"]["total"]
    print(f"{len(planned)} mixes, {least / 2**20:.1f} to {most / 2**20:.1f} MiB", flush=True)

    measured, worst = {}, 0
    def run(flags):
        key = " ".join(flags)
        if key not in measured:
            measured[key] = seconds_of_step(snug, arguments, flags, options.steps, options.rounds)
        return measured[key]

    for number in range(options.budgets):
        budget = least + 2 * MARGIN + (most - least) * (2 * number + 1) // (2 * options.budgets)
        chosen = plan(snug, arguments, ["--fit", "--memory_budget", str(budget)])["fit"]["chosen"]["arguments"]
        mine = run(chosen.split())
        fitting = [flags for _, total, flags in planned if total + MARGIN <= budget][: options.run]
        best = min(((run(flags), flags) for flags in fitting), key=lambda item: item[0])
        worst = max(worst, mine / best[0])
        print(f"{budget / 2**20:8.1f} MiB: {mine:.4f} s with {chosen}\n{'':13} {best[0]:.4f} s with {' '.join(best[1])}: "
              f"{mine / best[0]:.3f} ({len(fitting)} run)", flush=True)
    print(f"worst: {worst:.3f}")
    sys.exit(worst > 1.1)


if __name__ == "__main__":
    main()
