#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Contrastive training of a model of BERT-base's size (random weights) on one GPU beside sentence-transformers: bf16, multiple negatives
ranking over a whole batch in mini-batches, AdamW, clipping, no dropout; pairs a second and the device's memory, one after the other in
one run on one machine.

    bench/gpu_contrastive.py [--dist build-gpu/dist] [--pairs 16384] [--steps 3] [--device cuda] [--seconds 300]

Ours is snug train --task embedding from --dist (tools/cuda-check build), as a user runs it: its rate has everything in it from the first
step to the last. The peer is CachedMultipleNegativesRankingLoss under autocast, its rate that of the median step after the first, without
tokenizing. Both sides use the best of their mini-batches. Anchors have 8 to 32 tokens, positives 32 to 128.
"""
import argparse
import json
import pathlib
import random
import statistics
import tempfile
import time

import gpu_embed
import gpu_peer

MINI = {"ours": (1024, 4096), "theirs": (256, 1024)}  # pairs
RATE = 2e-5


def write_pairs(path, count):
    rng = random.Random(1)

    def text(least, most):
        return " ".join(f"w{rng.randrange(gpu_embed.WORDS)}" for _ in range(rng.randint(least - 2, most - 2)))

    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            print(json.dumps({"anchor": text(8, 32), "positive": text(32, 128)}), file=file)


def ours(args, folder, mini, seconds):
    return gpu_peer.train(args.dist, args.device, [
        "--task", "embedding", "--model_name_or_path", folder / "model", "--train_file", folder / "pairs.jsonl", "--max_seq_length", 128,
        "--per_device_train_batch_size", args.pairs, "--mini_batch_size", mini, "--num_train_epochs", 1, "--learning_rate", RATE, "--logging_steps", 1,
        "--train_sampling_strategy", "sequential", *(["--bf16"] if args.device == "cuda" else [])], seconds)


def peer(args):
    """Runs in a process of its own: prints pairs a second, the device's memory in MiB, and the losses."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    rows = [json.loads(line) for line in (args.folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines()]
    model = SentenceTransformer(str(args.folder / "model"), device=args.device)
    model.train()
    loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=args.mini)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0, fused=True)
    times, values, cuda = [], [], args.device == "cuda"
    for first in range(0, len(rows), args.pairs):
        part = rows[first:first + args.pairs]
        batches = [{key: value.to(args.device) for key, value in model.tokenize([row[name] for row in part]).items() if hasattr(value, "to")}
                   for name in ("anchor", "positive")]
        begin = time.perf_counter()
        with torch.autocast(args.device, torch.bfloat16, enabled=cuda):
            value = loss(batches, None)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        values.append(value.item())
        times.append(time.perf_counter() - begin)
    free, total = torch.cuda.mem_get_info() if cuda else (0, 0)
    print("result " + json.dumps([args.pairs / statistics.median(times[1:]), (total - free) / 2**20, values]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=pathlib.Path, default=pathlib.Path("build-gpu/dist"))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--pairs", type=int, default=16384)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--mini", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--peer", dest="folder", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        return peer(args)
    end = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = pathlib.Path(name)
        gpu_embed.write_folder(folder, args.layers, dropout=0)
        write_pairs(folder / "pairs.jsonl", args.pairs * args.steps)
        best = {"ours": 0, "theirs": 0}
        for mini in MINI["ours"]:
            found, why = ours(args, folder, mini, end - time.monotonic())
            if not found:
                print(f"snug, mini-batches of {mini}: {why}")
                continue
            best["ours"] = max(best["ours"], found["rate"])
            print(f"snug, mini-batches of {mini}: {found['rate']:.0f} pairs/s, {found['mib']:.0f} MiB, planned were {found['planned']:.1f}; "
                  f"losses {found['losses'][0]:.4f} … {found['losses'][-1]:.4f}", flush=True)
        for mini in MINI["theirs"]:
            words = ["--peer", folder, "--mini", mini, "--pairs", args.pairs, "--device", args.device]
            found, why = gpu_peer.ask(__file__, words, end - time.monotonic())
            if not found:
                print(f"sentence-transformers, mini-batches of {mini}: {why}")
                continue
            rate, memory, values = found
            best["theirs"] = max(best["theirs"], rate)
            print(f"sentence-transformers, mini-batches of {mini}: {rate:.0f} pairs/s, {memory:.0f} MiB; losses {values[0]:.4f} … {values[-1]:.4f}", flush=True)
        if all(best.values()):
            print(f"ratio {best['ours'] / best['theirs']:.2f}")


if __name__ == "__main__":
    main()
