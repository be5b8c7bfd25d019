#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encoders (random weights) on one GPU beside transformers: sequence classification in bf16, speed and device memory, one after the
other in one run on one machine.

    bench/gpu_families.py [CASE …] [--dist build-gpu/dist] [--compiled] [--lora] [--seconds 570]

Ours is bench_cuda_step from --dist (tools/cuda-check build). The peer is transformers' model of the same config.json with
PyTorch's autocast to bf16, fused AdamW, clipping and its own attention (sdpa); texts of different lengths are padded to
the longest of the batch. --compiled: torch.compile as well. --lora: both with adapters of rank 16 on queries and values, ours as
snug train, whose rate has everything in it from the first step to the last; the peer's are PEFT's.
"""
import argparse
import pathlib
import re
import sys
import tempfile
import time

import gpu_peer

STEPS = 36
MODELS = pathlib.Path(__file__).resolve().parent / "models"
CASES = {  # model, batch, longest, shortest
    "bert-large": ("bert-large", 32, 512, 512),
    "roberta": ("roberta-base", 32, 512, 512),
    "roberta-lengths": ("roberta-base", 32, 512, 20),
    "deberta": ("deberta-v3-base", 32, 512, 512),
    "deberta-64": ("deberta-v3-base", 64, 64, 64),
    "modernbert": ("modernbert-base", 32, 512, 512),
    "modernbert-lengths": ("modernbert-base", 32, 512, 20),
    "modernbert-8192": ("modernbert-base", 2, 8192, 8192),
}


def peer(name, compiled, lora):
    """Runs in a process of its own: prints samples a second, and the device's memory in MiB."""
    import statistics

    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    model_name, batch, longest, shortest = CASES[name]
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    config = AutoConfig.from_pretrained(MODELS / f"{model_name}.json", num_labels=2)
    model = AutoModelForSequenceClassification.from_config(config).cuda().train()
    if lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0, target_modules=["query", "value"], task_type="SEQ_CLS"))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    forward = torch.compile(model, dynamic=shortest < longest) if compiled else model
    optimizer = torch.optim.AdamW(trained, lr=2e-5, fused=True)
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
    times, memory = gpu_peer.time_steps(forward, trained, optimizer, batches, STEPS)
    print(f"{batch / statistics.mean(times[-20:]):.1f} /s, device {memory:.0f} MiB")


def run(command, seconds):
    """Samples a second and MiB, or None and why."""
    text, why = gpu_peer.run(command, seconds)
    match = text and re.search(r"([\d.]+) */s.*device +([\d.]+) MiB", text)
    return ((float(match[1]), float(match[2])), "") if match else (None, why or text.strip()[-300:])


def ours(args, name, seconds):
    model, batch, longest, shortest = CASES[name]
    config = MODELS / f"{model}.json"
    if not args.lora:
        lengths = ["--shortest", shortest] if shortest < longest else []
        return run([args.dist / "bench_cuda_step", "--config", config, "--type", "bf16", "--batch", batch, "--length", longest, *lengths], seconds)
    from transformers import AutoConfig, AutoModelForSequenceClassification

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(config, num_labels=2)).save_pretrained(folder)
        return adapters(args, name, folder, seconds)


def adapters(args, name, folder, seconds):
    """Of the model's folder: adapters are trained beside saved weights."""
    _, batch, longest, shortest = CASES[name]
    rows = f"dummy:{batch * 10 * STEPS}x" + (f"{shortest}-{longest}" if shortest < longest else f"{longest}")
    found, why = gpu_peer.train(args.dist, "cuda", [
        "--model_name_or_path", folder, "--train_file", rows, "--max_seq_length", longest, "--per_device_train_batch_size", batch,
        "--num_train_epochs", 1, "--bf16", "--use_peft", "--lora_r", 16, "--lora_alpha", 32, "--lora_dropout", 0, "--lora_target_modules",
        "query,value"], seconds)
    return ((found["rate"], found["mib"]), "") if found else (None, why)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--dist", type=pathlib.Path, default=pathlib.Path("build-gpu/dist"))
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(args.peer, args.compiled, args.lora)
    end = time.monotonic() + args.seconds
    print(f"{'case':<20} {'snug /s':>9} {'MiB':>7} {'peer /s':>9} {'MiB':>7} {'ratio':>6}", flush=True)
    for name in args.cases:
        mine, why = ours(args, name, end - time.monotonic())
        command = [pathlib.Path(sys.executable), __file__, "--peer", name]
        command += [word for word, chosen in (("--compiled", args.compiled), ("--lora", args.lora)) if chosen]
        theirs, their_why = run(command, end - time.monotonic())
        if mine and theirs:
            print(f"{name:<20} {mine[0]:9.1f} {mine[1]:7.0f} {theirs[0]:9.1f} {theirs[1]:7.0f} {mine[0] / theirs[0]:6.2f}", flush=True)
        else:
            print(f"{name:<20} ours: {mine or why}; peer: {theirs or their_why}", flush=True)


if __name__ == "__main__":
    main()
