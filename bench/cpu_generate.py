#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of greedy generation on one core beside llama.cpp, at the same type of the weights, alternating.

    bench/cpu_generate.py [--python VENV/bin/python] [--model SMOLLM2] [--new 128] [--rounds 3] [--threads 1]

The Python has llama-cpp-python. llama.cpp reads what snug export wrote; its rate is that of its own counters, of the prompt and of
what follows, without sampling. Ours is the time between one answer and the next, which has all of it. It prints one Markdown table of
medians.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PROMPT = "The three largest rivers of Europe are"
CASES = (("fp32", "f32", ["--dtype", "float32"]), ("bf16", "bf16", []), ("bf16, products in bf16", "bf16", ["--bf16_full_eval"]))


def peer(args):
    """In a process of its own: prints a rate for each round."""
    import llama_cpp
    model = llama_cpp.Llama(args.peer, n_threads=args.threads, n_threads_batch=args.threads, n_ctx=args.new + 64, verbose=False)
    rates = []
    for _ in range(args.rounds):
        model.reset()
        llama_cpp.llama_perf_context_reset(model.ctx)
        for number, _ in enumerate(model.generate(model.tokenize(PROMPT.encode()), temp=0), 1):
            if number == args.new:
                break
        counted = llama_cpp.llama_perf_context(model.ctx)
        rates.append(args.new / (counted.t_p_eval_ms + counted.t_eval_ms) * 1000)
    print(json.dumps(rates))


def run_peer(args, file):
    done = subprocess.run([args.python, __file__, "--peer", file, "--new", str(args.new), "--rounds", str(args.rounds), "--threads",
                           str(args.threads)], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_snug(args, options):
    words = [args.snug, "generate", args.model, "--json", "--threads", args.threads, "--device", "cpu", "--max_new_tokens",
             args.new, "--min_new_tokens", args.new, "--per_device_eval_batch_size", 1, *options]
    process = subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    process.stdin.write(f"{PROMPT}\n" * (args.rounds + 1))
    process.stdin.close()
    times = [time.monotonic() for _ in process.stdout]
    if process.wait() or len(times) != args.rounds + 1:
        sys.exit(f"{' '.join(map(str, words))}: exit status {process.returncode}, {len(times)} answers")
    return [args.new / (after - before) for before, after in zip(times, times[1:])]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    models = pathlib.Path(os.environ.get("SNUG_MODELS", root.parent / "models"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer")
    parser.add_argument("--python", default=root.parent / "venv" / "bin" / "python")
    parser.add_argument("--snug", default=root / "build" / "snug")
    parser.add_argument("--model", default=models / "smollm2")
    for name, default in (("new", 128), ("rounds", 3), ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    args = parser.parse_args()
    if args.peer:
        return peer(args)
    print("| weights | snug, tokens/s | llama.cpp | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, kind, options in CASES:
            file = pathlib.Path(folder) / f"{kind}.gguf"
            if not file.exists():
                subprocess.run([args.snug, "export", args.model, "--outtype", kind, "--output_file", file],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            theirs, ours = run_peer(args, file), run_snug(args, options)
            ours, theirs = statistics.median(ours), statistics.median(theirs + run_peer(args, file))
            print(f"| {name} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} |")


main()
