#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters on decoders (random weights, random tokens) on one GPU beside Unsloth and PEFT with Liger's kernels: LoRA of rank 16 on all
linears, in bf16 or over 4-bit weights, AdamW, clipping, no dropout; tokens a second and the device's memory, one after the other
in one run on one machine.

    bench/gpu_adapters.py [CASE …] [--dist build-gpu/dist] [--peers .peers] [--steps 40] [--seconds 570]

Ours is snug train from --dist (tools/cuda-check build), as a user runs it: its rate has everything in it from the first
step to the last. The peers are those of decoder_peers.py in --peers, which says how their packages get there: their rates are of the
median step after five, or of rows of different lengths of the second time over the same batches.
"""
import argparse
import json
import pathlib
import sys
import time

import gpu_peer

CASES = {  # model, rows, tokens of each, our words, the peer's case
    "1b-lora": ("llama1b", 4, "2048", "", "llama1b_lora_unsloth_nockpt_b4x2048"),
    "1b-lora-lengths": ("llama1b", 8, "64-2048", "", "llama1b_lora_ragged_pack_liger_b8"),
    "8b-lora": ("llama8b", 2, "2048", "", "llama8b_lora_unsloth_nockpt_b2x2048"),
    "8b-lora-recomputed": ("llama8b", 2, "2048", "--recompute layer", "llama8b_lora_unsloth_b2x2048"),
    "8b-qlora": ("llama8b", 2, "2048", "--load_in_4bit", "llama8b_qlora_unsloth_b2x2048"),
    # With the inputs of layers in host memory, where Unsloth's checkpointing keeps them.
    "8b-qlora-recomputed": ("llama8b", 2, "2048", "--load_in_4bit --recompute layer --offload activations",
                            "llama8b_qlora_unsloth_b2x2048"),
    "8b-qlora-least": ("llama8b", 2, "2048", "--load_in_4bit --recompute layer --optim adamw_8bit --offload embeddings,activations,weights",
                       "llama8b_qlora_unsloth_b2x2048"),
    "4b-lora-recomputed": ("qwen3-4b", 4, "2048", "--recompute layer --offload activations", "qwen3-4b_lora_unsloth_b4x2048"),
}


def ours(args, folder, name, seconds):
    _, rows, tokens, words, _ = CASES[name]
    return gpu_peer.train(args.dist, "cuda", [
        "--task", "clm", "--model_name_or_path", folder, "--train_file", f"dummy:{rows * args.steps}x{tokens}", "--max_seq_length", 2048,
        "--per_device_train_batch_size", rows, "--bf16", "--use_peft", "--lora_r", 16, "--lora_alpha", 32, "--lora_target_modules", "all-linear",
        "--lora_dropout", 0, *words.split(), "--max_steps", args.steps], seconds)


def theirs(args, case, seconds):
    text, why = gpu_peer.run([pathlib.Path(sys.executable), args.peers / "decoder_peers.py", case, "--budget", int(seconds)], seconds)
    for line in (text or "").splitlines():
        found = json.loads(line) if line.startswith("{") else {}
        if "tokens_per_s" in found:
            return (found["tokens_per_s"], found["device_MB"]), ""
    return None, why or text[-300:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--dist", type=pathlib.Path, default=pathlib.Path("build-gpu/dist"))
    parser.add_argument("--peers", type=pathlib.Path, default=pathlib.Path(".peers"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=570)
    args = parser.parse_args()
    sys.path.insert(0, str(args.peers))
    import decoder_peers

    end = time.monotonic() + args.seconds
    others = {}
    print(f"{'case':<20} {'snug tokens/s':>14} {'MiB':>7} {'planned':>8} {'peer tokens/s':>14} {'MiB':>7} {'ratio':>6}", flush=True)
    for name in args.cases:
        model, *_, case = CASES[name]
        mine, why = ours(args, decoder_peers.model_folder(model), name, end - time.monotonic())
        if case not in others:
            others[case] = theirs(args, case, end - time.monotonic())
        other, their_why = others[case]
        if mine and other:
            print(f"{name:<20} {mine['tokens']:14.0f} {mine['mib']:7.0f} {mine['planned']:8.0f} {other[0]:14.0f} {other[1]:7.0f} "
                  f"{mine['tokens'] / other[0]:6.2f}  {case}", flush=True)
        else:
            print(f"{name:<20} ours: {mine and mine['tokens'] or why}; {case}: {other or their_why}", flush=True)


if __name__ == "__main__":
    main()
