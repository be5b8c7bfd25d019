#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Full fine-tuning of decoders (random weights, random tokens) on one GPU beside transformers with Liger's kernels, if the
package liger_kernel is there: bf16 with fp32 masters, AdamW, clipping; tokens a second and the device's memory, one after
the other in one run on one machine.

    bench/gpu_decoders.py [CASE …] [--dist build-gpu/dist] [--steps 40] [--seconds 570]

Ours is snug train from --dist (tools/cuda-check build), as a user runs it: its rate has everything in it from the first
step to the last. The peer is transformers' model of the same config.json under PyTorch's autocast to bf16, with fused
AdamW: its rate is that of the median step of the last half.
"""
import argparse
import pathlib
import re
import sys
import time

import gpu_peer

MODELS = pathlib.Path(__file__).resolve().parent / "models"
CASES = {  # rows and tokens of each, in a batch
    "llama-3.2-1b": (4, 2048),
    "qwen3-0.6b": (8, 1024),
    "qwen2.5-0.5b": (16, 1024),
}


def peer(name, steps):
    """Runs in a process of its own: prints tokens a second, and the device's memory in MiB."""
    import statistics

    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    rows, tokens = CASES[name]
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(MODELS / f"{name}.json")
    try:
        from liger_kernel.transformers import monkey_patch

        getattr(monkey_patch, f"apply_liger_kernel_to_{config.model_type}")()
        kind = "with Liger"
    except ImportError:
        kind = "without Liger"
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
    model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=True)
    batches = []
    for _ in range(8):
        ids = torch.randint(3, config.vocab_size, (rows, tokens)).cuda()
        batches.append({"input_ids": ids, "labels": ids})
    times, memory = gpu_peer.time_steps(model, list(model.parameters()), optimizer, batches, steps)
    print(f"{rows * tokens / statistics.median(times[steps // 2:]):.0f} tokens/s, {memory:.0f} MiB, {kind}")


def ours(args, name, seconds):
    rows, tokens = CASES[name]
    found, why = gpu_peer.train(args.dist, "cuda", [
        "--task", "clm", "--config_name", MODELS / f"{name}.json", "--train_file", f"dummy:{rows * args.steps}x{tokens}", "--max_seq_length", tokens,
        "--per_device_train_batch_size", rows, "--bf16", "--max_steps", args.steps], seconds)
    return ((found["tokens"], found["mib"]), "") if found else (None, why)


def theirs(args, name, seconds):
    text, why = gpu_peer.run([pathlib.Path(sys.executable), __file__, "--peer", name, "--steps", args.steps], seconds)
    match = text and re.search(r"(\d+) tokens/s, (\d+) MiB, (.*)", text)
    return ((float(match[1]), float(match[2]), match[3]), "") if match else (None, why)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--dist", type=pathlib.Path, default=pathlib.Path("build-gpu/dist"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(args.peer, args.steps)
    end = time.monotonic() + args.seconds
    print(f"{'case':<16} {'snug tokens/s':>14} {'MiB':>7} {'peer tokens/s':>14} {'MiB':>7} {'ratio':>6}", flush=True)
    for name in args.cases:
        mine, why = ours(args, name, end - time.monotonic())
        other, their_why = theirs(args, name, end - time.monotonic())
        if mine and other:
            print(f"{name:<16} {mine[0]:14.0f} {mine[1]:7.0f} {other[0]:14.0f} {other[1]:7.0f} {mine[0] / other[0]:6.2f}  {other[2]}",
                  flush=True)
        else:
            print(f"{name:<16} ours: {mine or why}; peer: {other or their_why}", flush=True)


if __name__ == "__main__":
    main()
