#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RoBERTa-base and ModernBERT-base (random weights) on one GPU beside transformers: sequence classification in bf16, speed
and device memory, one after the other in one run on one machine.

    bench/gpu_families.py [CASE …] [--dist build-gpu/dist] [--compiled] [--seconds 570]

Ours is bench_cuda_step from --dist (tools/cuda-check build). The peer is transformers' model of the same config.json with
PyTorch's autocast to bf16, fused AdamW, clipping and its own attention (sdpa); texts of different lengths are padded to
the longest of the batch. --compiled: torch.compile as well.
"""
import argparse
import pathlib
import re
import sys
import time

import gpu_peer

MODELS = pathlib.Path(__file__).resolve().parent / "models"
CASES = {  # model, batch, longest, shortest
    "roberta": ("roberta-base", 32, 512, 512),
    "roberta-lengths": ("roberta-base", 32, 512, 20),
    "modernbert": ("modernbert-base", 32, 512, 512),
    "modernbert-lengths": ("modernbert-base", 32, 512, 20),
    "modernbert-8192": ("modernbert-base", 2, 8192, 8192),
}


def peer(name, compiled):
    """Runs in a process of its own: prints samples a second, and the device's memory in MiB."""
    import statistics

    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    model_name, batch, longest, shortest = CASES[name]
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    config = AutoConfig.from_pretrained(MODELS / f"{model_name}.json", num_labels=2)
    model = AutoModelForSequenceClassification.from_config(config).cuda().train()
    forward = torch.compile(model, dynamic=shortest < longest) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    batches = []
    for _ in range(8):
        lengths = torch.randint(shortest, longest + 1, (batch,))
        width = int(lengths.max())
        ids = torch.randint(1000, 30000, (batch, width))
        mask = (torch.arange(width)[None] < lengths[:, None]).long()
        ids = torch.where(mask == 1, ids, torch.tensor(config.pad_token_id))
        inputs = {"input_ids": ids.cuda(), "labels": torch.randint(0, 2, (batch,)).cuda()}
        if shortest < longest:
            inputs["attention_mask"] = mask.cuda()
        batches.append(inputs)
    times, memory = gpu_peer.time_steps(forward, list(model.parameters()), optimizer, batches, 36)
    print(f"{batch / statistics.mean(times[-20:]):.1f} /s, device {memory:.0f} MiB")


def run(command, seconds):
    """Samples a second and MiB, or None and why."""
    text, why = gpu_peer.run(command, seconds)
    match = text and re.search(r"([\d.]+) */s.*device +([\d.]+) MiB", text)
    return ((float(match[1]), float(match[2])), "") if match else (None, why or text.strip()[-300:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--dist", type=pathlib.Path, default=pathlib.Path("build-gpu/dist"))
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(args.peer, args.compiled)
    end = time.monotonic() + args.seconds
    print(f"{'case':<20} {'snug /s':>9} {'MiB':>7} {'peer /s':>9} {'MiB':>7} {'ratio':>6}", flush=True)
    for name in args.cases:
        model, batch, longest, shortest = CASES[name]
        ours, why = run([args.dist / "bench_cuda_step", "--config", MODELS / f"{model}.json", "--type", "bf16", "--batch",
                         batch, "--length", longest] + (["--shortest", shortest] if shortest < longest else []),
                        end - time.monotonic())
        command = [pathlib.Path(sys.executable), __file__, "--peer", name] + (["--compiled"] if args.compiled else [])
        theirs, their_why = run(command, end - time.monotonic())
        if ours and theirs:
            print(f"{name:<20} {ours[0]:9.1f} {ours[1]:7.0f} {theirs[0]:9.1f} {theirs[1]:7.0f} {ours[0] / theirs[0]:6.2f}", flush=True)
        else:
            print(f"{name:<20} ours: {ours or why}; peer: {theirs or their_why}", flush=True)


if __name__ == "__main__":
    main()
