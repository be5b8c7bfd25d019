#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pairs a second and peak memory of contrastive training beside sentence-transformers, alternating on one machine.

    bench/cpu_embedding.py [--python VENV/bin/python] [--model MINILM] [--data FOLDER] [--batch 256] [--mini 16]
                           [--steps 5] [--rounds 1] [--threads 2]

The pairs are the first sentence of a text of AG News, and the rest of it. Both sides train multiple negatives ranking at
the same batch: the whole batch at once (MultipleNegativesRankingLoss), and in mini-batches (snug --mini_batch_size,
CachedMultipleNegativesRankingLoss). Rates are of the steps after the first two. It prints one Markdown table of medians
and ratios.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

WARM = 2


def peer(args):
    """In a process of its own: prints its figures."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    rows = [json.loads(line) for line in open(args.pairs)][:args.batch * args.steps]
    model = SentenceTransformer(args.model, device="cpu")
    model.max_seq_length = args.length
    model.train()
    cached = losses.CachedMultipleNegativesRankingLoss
    loss = cached(model, mini_batch_size=args.mini) if args.mini else losses.MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0, fused=True)
    begin = time.time()
    for step in range(args.steps):
        if step == WARM:
            begin = time.time()
        part = rows[step * args.batch:(step + 1) * args.batch]
        features = [model.tokenize([row[name] for row in part]) for name in ("anchor", "positive")]
        value = loss(features, None)
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(json.dumps({"rate": args.batch * (args.steps - WARM) / (time.time() - begin),
                      "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def write_pairs(texts, out, count):
    with open(texts, encoding="utf-8") as rows, open(out, "w", encoding="utf-8") as pairs:
        for row in rows:
            first, _, rest = json.loads(row)["text"].partition(". ")
            if rest and count:
                pairs.write(json.dumps({"anchor": first, "positive": rest}) + "\n")
                count -= 1


def run(command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "TOKENIZERS_PARALLELISM": "false"})
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def run_snug(args, mini):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        run([args.snug, "train", "--task", "embedding", "--model_name_or_path", args.model, "--train_file", args.pairs,
             "--output_dir", out, "--max_steps", args.steps, "--per_device_train_batch_size", args.batch, "--threads",
             args.threads, "--max_seq_length", args.length, "--save_strategy", "no", *(["--mini_batch_size", mini] if mini else [])])
        results = json.loads((out / "train_results.json").read_text())
        return {"rate": results["train_samples_per_second"], "mib": results["peak_rss_bytes"] / 2**20}


def run_peer(args, mini):
    return json.loads(run([args.python, __file__, "--peer", "--model", args.model, "--pairs", args.pairs, "--batch", args.batch,
                           "--mini", mini, "--steps", args.steps, "--threads", args.threads, "--length", args.length])
                      .strip().splitlines()[-1])


def compare(args):
    print("| mini-batch | snug, pairs/s | sentence-transformers | ratio | snug, MiB | sentence-transformers | ratio |")
    print("|---|---|---|---|---|---|---|")
    for mini in (0, args.mini):
        found = {"ours": [], "theirs": []}
        for number in range(args.rounds):
            sides = [("ours", run_snug), ("theirs", run_peer)]
            for side, function in sides if number % 2 == 0 else sides[::-1]:
                found[side].append(function(args, mini))
        middle = {side: {key: statistics.median(one[key] for one in ones) for key in ("rate", "mib")}
                  for side, ones in found.items()}
        ours, theirs = middle["ours"], middle["theirs"]
        print(f"| {mini or 'the batch'} | {ours['rate']:.1f} | {theirs['rate']:.1f} | {ours['rate'] / theirs['rate']:.2f} | "
              f"{ours['mib']:.0f} | {theirs['mib']:.0f} | {theirs['mib'] / ours['mib']:.2f} |")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    shared = root.parent / "shared"
    models = pathlib.Path(os.environ.get("SNUG_MODELS", root.parent / "models"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--python", default=root.parent / "venv" / "bin" / "python")
    parser.add_argument("--snug", default=root / "build" / "snug")
    parser.add_argument("--model", default=models / "minilm")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("SNUG_DATA", shared / "data")))
    parser.add_argument("--pairs")
    for name, default in (("batch", 256), ("mini", 16), ("steps", 5), ("rounds", 1), ("threads", 2), ("length", 128)):
        parser.add_argument("--" + name, type=int, default=default)
    args = parser.parse_args()
    if args.peer:
        return peer(args)
    with tempfile.TemporaryDirectory() as folder:
        args.pairs = pathlib.Path(folder) / "pairs.jsonl"
        write_pairs(args.data / "agnews-train.jsonl", args.pairs, args.batch * args.steps)
        compare(args)


main()
