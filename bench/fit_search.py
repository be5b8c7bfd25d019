#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the choice of --fit with all mixes of all methods, by running them. Needs only snug and python3.

    bench/fit_search.py [--snug build/snug] [--gpu RATES] [--results FILE] -- --model_name_or_path DIR
        --train_file FILE --per_device_train_batch_size 32 …

Plans every mix of micro-batches, levels of recomputation by layer, update in backward, offload, 8-bit states and bf16
weights. For three budgets (one that no exact mix fits, two between the smallest exact mix and what was asked) it takes
those that fit and, as --fit does, round no more than necessary; runs them, and finally alternates the best of them with
--fit's choice. --run limits the runs for a budget: the fastest by the estimate, and as many random ones of the rest; it prints
how many of how many. Plans and measurements are kept in --results: run it again to continue. With --gpu they are of this machine's GPU,
whose rates are in that file (snug bench rates --device cuda --json). Needs a quiet machine. The bar: never above 1.1.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

MARGIN = 2 << 20  # SNUG_FIT_MARGIN
OFFLOADS = ["", "optimizer", "optimizer,gradients", "optimizer,gradients,weights", "optimizer,gradients,weights,activations"]
APPROXIMATE = ("adamw_8bit", "bfloat16")


class Snug:
    """The program with its arguments, and its results so far."""

    def __init__(self, options):
        self.program, self.arguments, self.file = options.snug, options.arguments, options.results
        self.steps = options.steps
        self.device = {"plan": ["--gpu", options.gpu], "train": ["--device", "cuda"]} if options.gpu else {}
        self.known = json.loads(self.file.read_text()) if self.file and self.file.exists() else {}
        mine = [*self.arguments, str(self.steps)]
        if self.known.setdefault("arguments", mine) != mine:
            sys.exit(f"{self.file}: results of other arguments: {self.known['arguments']}")

    def keep(self):
        if self.file:
            self.file.with_suffix(".new").write_text(json.dumps(dict(self.known)))  # a copy: plans come in beside
            self.file.with_suffix(".new").rename(self.file)

    def call(self, command, flags):
        words = [self.program, command, *self.arguments, *self.device.get(command, []), *flags, "--json"]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def plan(self, flags):
        """Estimated seconds, and bytes; None for methods that exclude each other."""
        key = "plan " + " ".join(flags)
        if key not in self.known:
            done = self.call("plan", flags)
            if done.returncode not in (0, 2):
                sys.exit(f"snug plan {' '.join(flags)}: {done.stderr}")
            told = json.loads(done.stdout) if done.returncode == 0 else None
            self.known[key] = told and [told["methods"][0]["step"]["seconds"], told["bytes"]["total"]]
        return self.known[key]

    def measure(self, flags):
        """Seconds of a step in a run of its own: the mean of all but the first quarter, in which a GPU loads kernels."""
        quarter = max(self.steps // 4, 1)
        with tempfile.TemporaryDirectory(prefix="fit_search.") as folder:
            words = [*flags, "--max_steps", str(4 * quarter), "--logging_steps", str(quarter), "--save_strategy", "no",
                     "--output_dir", folder, "--overwrite_output_dir", "--disable_tqdm"]  # fmt: skip
            done = self.call("train", words)
            if done.returncode:
                sys.exit(f"snug train {' '.join(words)}: {done.stderr}")
            state = json.loads(pathlib.Path(folder, "trainer_state.json").read_text())
        result = json.loads(done.stdout.splitlines()[-1])
        samples = result["train_samples_per_second"] / result["train_steps_per_second"]
        rates = [entry["samples_per_second"] for entry in state["log_history"] if "samples_per_second" in entry]
        return statistics.mean(samples / rate for rate in rates[1:])

    def seconds(self, flags):
        key = "run " + " ".join(flags)
        if key not in self.known:
            self.known[key] = self.measure(flags)
            self.keep()
        return self.known[key]


def levels(layers, steps):
    """The first layers at a strong level, the next at a weaker one, the rest as they are."""
    some = sorted({layers * i // steps for i in range(steps + 1)} | {layers - 1})
    for strong, weak in (("layer", "attention"), ("layer", "ffn"), ("attention", "ffn")):
        for a, b in itertools.product(some, some):
            if a + b <= layers:
                parts = [(strong, a), (weak, b), ("elementwise", layers - a - b)]
                yield ",".join(name if count == layers else f"{name}*{count}" for name, count in parts if count)


def mixes(asked, steps):
    batch, accumulation = asked["batch"]["sequences"], asked["batch"]["gradient_accumulation_steps"]
    splits = [p for p in range(1, batch + 1) if batch % p == 0]
    lists = sorted(set(levels(len(asked["layers"]["encoder"]), steps)))
    for p, level, backward, offload, states, weights in itertools.product(
            splits, lists, (False, True), OFFLOADS, (False, True), (False, True)):  # fmt: skip
        flags = [] if p == 1 else ["--per_device_train_batch_size", str(batch // p), "--gradient_accumulation_steps", str(accumulation * p)]
        flags += [] if level == "elementwise" else ["--recompute", level]
        flags += ["--update_in_backward"] if backward else []
        flags += ["--offload", offload] if offload else []
        flags += ["--optim", "adamw_8bit"] if states else []
        flags += ["--dtype", "bfloat16"] if weights else []
        yield flags


def approximations(flags):
    return sum(word in APPROXIMATE for word in flags)


def in_turn(snug, mine, best, rounds):
    """The minimum of some alternating rounds: disturbances only add time, and the best of many runs was lucky."""
    if mine == best:
        return [snug.seconds(mine)] * 2
    return [min(times) for times in zip(*[[snug.measure(mine), snug.measure(best)] for _ in range(rounds)])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--gpu", metavar="RATES", help="a file of this machine's GPU")
    parser.add_argument("--results", type=pathlib.Path, help="a file to go on from")
    parser.add_argument("--steps", type=int, default=8, help="optimizer steps of a run")
    parser.add_argument("--rounds", type=int, default=5, help="of the last comparison")
    parser.add_argument("--levels", type=int, default=3, help="parts that the layers are cut into for --recompute")
    parser.add_argument("--run", type=int, default=0, help="mixes run for a budget: this many, and this many more; 0: all")
    parser.add_argument("arguments", nargs="+")
    options = parser.parse_args()
    snug = Snug(options)

    done = snug.call("plan", [])
    if done.returncode:
        sys.exit(done.stderr)
    asked = json.loads(done.stdout)
    listed = list(mixes(asked, options.levels))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        plans = []
        for plan in pool.map(snug.plan, listed):
            plans.append(plan)
            if len(plans) % 100 == 0 or len(plans) == len(listed):
                snug.keep()
    planned = sorted((seconds, total, flags) for (seconds, total), flags in ((p, f) for p, f in zip(plans, listed) if p))
    least = min(total for _, total, _ in planned)
    exact, most = min(total for _, total, flags in planned if not approximations(flags)), asked["bytes"]["total"]
    print(f"{len(planned)} of {len(listed)} mixes are valid combinations: {least / 2**20:.1f} MiB, exact ones {exact / 2**20:.1f}, "
          f"to {most / 2**20:.1f}", flush=True)

    worst = 0
    for budget in ((least + exact) // 2 + MARGIN, exact + (most - exact) // 4, exact + (most - exact) * 2 // 3):
        fitting = [flags for _, total, flags in planned if total + MARGIN <= budget]
        fewest = min(map(approximations, fitting))
        fitting = [flags for flags in fitting if approximations(flags) == fewest]
        tried = fitting
        if options.run and len(fitting) > 2 * options.run:
            rest = fitting[options.run :]
            tried = fitting[: options.run] + random.Random(budget).sample(rest, options.run)
        chosen = json.loads(snug.call("plan", ["--fit", "--memory_budget", str(budget)]).stdout)["fit"]["chosen"]["arguments"].split()
        snug.seconds(chosen)
        best = min(tried, key=snug.seconds)
        mine, other = in_turn(snug, chosen, best, options.rounds)
        worst = max(worst, mine / other)
        print(f"{budget / 2**20:8.1f} MiB: {mine:.4f} s, chosen: {' '.join(chosen)}\n{'':13} {other:.4f} s, best of {len(tried)} run "
              f"of {len(fitting)}: {' '.join(best)}\n{'':13} ratio {mine / other:.3f}", flush=True)
    print(f"worst: {worst:.3f}")
    sys.exit(worst > 1.1)


if __name__ == "__main__":
    main()
