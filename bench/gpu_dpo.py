#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Preference tuning of Llama-3.2-1B (random weights) with LoRA of rank 16 on all linears on one GPU beside TRL's DPOTrainer: bf16, 8 pairs
of 1024 tokens, half of them the prompt, AdamW, clipping, no dropout; pairs a second and the device's memory, one after the other in one
run on one machine.

    bench/gpu_dpo.py [--dist build-gpu/dist] [--pairs 8] [--steps 20] [--seconds 570] [--device cuda] [--model llama-3.2-1b]

Ours is snug train --task dpo from --dist (tools/cuda-check build), as a user runs it: its rate has everything in it from the first step to the
last; the reference's log-probabilities are computed before, and their seconds are printed. The peer's rate is that of the median step of the
last half, with and without gradient checkpointing, and with the reference in each step, as by default, and precomputed.
"""
import argparse
import json
import pathlib
import random
import re
import sys
import tempfile
import time

import gpu_peer

ROOT = pathlib.Path(__file__).resolve().parent
TOKENIZER = ROOT.parent / "tests/golden/dpo"
VARIANTS = {"precomputed, not checkpointed": (False, True), "default": (True, False), "not checkpointed": (False, False), "precomputed": (True, True)}
RANK, ALPHA, RATE = 16, 32, 1e-5


def write_model(folder, name, device):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(ROOT / "models" / f"{name}.json")
    with torch.device(device):
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(TOKENIZER).save_pretrained(folder)


def write_rows(path, count, length):
    """Each character is a token; the end is one, too."""
    rng = random.Random(1)

    def text(characters):
        return "".join(rng.choices("QXZJKVYU", k=characters))

    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            json.dump({"prompt": text(length // 2), "chosen": text(length // 2 - 1), "rejected": text(length // 2 - 1)}, file)
            file.write("\n")


def ours(args, folder, seconds):
    return gpu_peer.train(args.dist, args.device, [
        "--task", "dpo", "--model_name_or_path", folder / "model", "--train_file", folder / "rows.jsonl", "--max_seq_length", args.length,
        "--per_device_train_batch_size", args.pairs, *(["--bf16"] if args.device == "cuda" else []), "--use_peft", "--lora_r", RANK, "--lora_alpha",
        ALPHA, "--lora_target_modules", "all-linear", "--lora_dropout", 0, "--learning_rate", RATE, "--num_train_epochs", 1, "--logging_steps", 1,
        "--train_sampling_strategy", "sequential"], seconds)


def peer(args):
    """Runs in a process of its own: prints pairs a second, the device's memory in MiB, and the losses."""
    import statistics

    import torch
    from datasets import load_dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import DPOConfig, DPOTrainer

    class Clock(TrainerCallback):
        times, losses = [], []

        def on_step_begin(self, *_, **__):
            self.begin = time.perf_counter()

        def on_step_end(self, *_, **__):
            if args.device == "cuda":
                torch.cuda.synchronize()
            self.times.append(time.perf_counter() - self.begin)

        def on_log(self, arguments, state, control, logs=None, **_):
            if "rewards/chosen" in (logs or {}):
                self.losses.append(logs["loss"])

    checkpointed, precomputed = VARIANTS[args.variant]
    clock, cuda = Clock(), args.device == "cuda"
    with tempfile.TemporaryDirectory() as output:
        model = AutoModelForCausalLM.from_pretrained(args.folder / "model", dtype=torch.bfloat16 if cuda else torch.float32)
        config = DPOConfig(output_dir=output, per_device_train_batch_size=args.pairs, num_train_epochs=1, learning_rate=RATE, bf16=cuda, use_cpu=not cuda,
                           gradient_checkpointing=checkpointed, precompute_ref_log_probs=precomputed, max_length=args.length, logging_steps=1,
                           report_to="none", save_strategy="no", disable_tqdm=True, train_sampling_strategy="sequential")
        trainer = DPOTrainer(model=model, args=config, train_dataset=load_dataset("json", data_files=str(args.folder / "rows.jsonl"), split="train"),
                             processing_class=AutoTokenizer.from_pretrained(args.folder / "model"), callbacks=[clock],
                             peft_config=LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0, target_modules="all-linear", task_type="CAUSAL_LM"))
        trainer.train()
    free, total = torch.cuda.mem_get_info() if cuda else (0, 0)
    half = statistics.median(clock.times[len(clock.times) // 2:])
    print("result " + json.dumps([args.pairs / half, (total - free) / 2**20, clock.losses]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=pathlib.Path, default=pathlib.Path("build-gpu/dist"))
    parser.add_argument("--model", default="llama-3.2-1b")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--peer", dest="folder", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        return peer(args)
    end = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = pathlib.Path(name)
        write_model(folder / "model", args.model, args.device)
        write_rows(folder / "rows.jsonl", args.pairs * args.steps, args.length)
        mine, why = ours(args, folder, end - time.monotonic())
        if not mine:
            sys.exit(f"snug train: {why}")
        before = float(re.search(r"rows took ([\d.]+) s", mine["text"])[1])
        print(f"snug: {mine['rate']:.2f} pairs/s, {mine['mib']:.0f} MiB, reference {before:.1f} s before; losses {mine['losses'][0]:.4f} … "
              f"{mine['losses'][-1]:.4f}", flush=True)
        best = 0
        for variant in VARIANTS:
            words = ["--peer", folder, "--variant", variant, "--pairs", args.pairs, "--length", args.length, "--device", args.device]
            found, why = gpu_peer.ask(__file__, words, end - time.monotonic())
            if not found:
                print(f"TRL, {variant}: {why}")
                continue
            rate, memory, losses = found
            best = max(best, rate)
            print(f"TRL, {variant}: {rate:.2f} pairs/s, {memory:.0f} MiB; losses {losses[0]:.4f} … {losses[-1]:.4f}; ratio {mine['rate'] / rate:.2f}", flush=True)
        if best:
            print(f"ratio to the best {mine['rate'] / best:.2f}")


if __name__ == "__main__":
    main()
