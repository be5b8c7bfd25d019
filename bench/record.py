#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs benchmarks and records them in docs/benchmarks.md, with the commit, the machine and the date.

    bench/record.py --list
    bench/record.py SECTION … [--commit HASH] [--output FILE]

Each section of that file is one command below and what it printed. A section that runs is replaced; the others stay as
they are. The commit is git's, which must have no uncommitted changes below src/, or --commit where there is no repository,
as on a machine that got a copy of the files; --output writes the whole page to another file.
Needs build/snug (make), for the gpu- sections build-gpu/dist (tools/cuda-check build), and for those with peers a Python
that has torch and transformers: ../venv/bin/python, or $SNUG_PYTHON. For the gpu-ranks- sections $SNUG_PYTHON names the one
that torchrun uses.
"""
import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = os.environ.get("SNUG_PYTHON", str(ROOT.parent / "venv" / "bin" / "python"))
PAGE = "docs/benchmarks.md"

# Peers that a title may name, whose versions are recorded beside PyTorch's.
PACKAGES = {"sentence-transformers": "sentence-transformers", "PEFT": "peft", "TRL": "trl", "Unsloth": "unsloth", "Liger": "liger_kernel",
            "llama.cpp": "llama-cpp-python"}

# name: title, explanation, commands
SECTIONS = {
    "cpu-trainer": (
        "CPU: MiniLM beside transformers' Trainer",
        "MiniLM-L6 (22.7 M parameters) on SST-2, batch 32. Rates are of training alone.",
        "bench/cpu_sst2.py --max_steps 50 --python $PYTHON"),
    "cpu-base": (
        "CPU: layers of RoBERTa-base's size beside transformers' Trainer",
        "RoBERTa with two layers of hidden size 768 and random weights on SST-2, batch 32.",
        "bench/cpu_sst2.py --roberta_layers 2 --max_steps 15 --python $PYTHON"),
    "cpu-methods": (
        "CPU: methods that save memory",
        "MiniLM-L6 on SST-2, batch 32, one method each. The peak is the resident memory of the process.",
        "bench/methods.py speed"),
    "cpu-memory": (
        "CPU: BERT-large in as little memory as possible",
        "Batch 4, 512 tokens, one step. Each row adds to the row before it.",
        "bench/methods.py memory"),
    "cpu-embedding": (
        "CPU: sentence embeddings beside sentence-transformers",
        "MiniLM-L6 (22.7 M parameters), batches of 256 pairs of AG News, fp32, AdamW with clipping; mini-batches beside the loss that keeps gradients of "
        "vectors in a cache, as snug does.",
        "bench/cpu_embedding.py --python $PYTHON"),
    "cpu-generate": (
        "CPU: generation beside llama.cpp",
        "SmolLM2-135M, greedy, one prompt, 128 new tokens, one core.",
        "bench/cpu_generate.py --python $PYTHON"),
    "cpu-optimizers": (
        "CPU: optimizers",
        "One update of a weight matrix; the shapes are those of MiniLM, BERT-base and BERT-large.",
        "build/test_ops perf --op adam; build/test_ops perf --op adam_8bit"),
    "cpu-tokenizing": (
        "CPU: tokenizing beside `tokenizers`",
        "The same rows; snug's time is that of the whole command, with the token cache written and one training step.",
        "bench/tokenizing.py --megabytes 16 --rounds 1 --python $PYTHON"),
    "cpu-large-data": (
        "CPU: a data set of 1 GB",
        "A BERT of two layers of 64 channels, batch 32. Own pages: without the pages of files and libraries.",
        "tools/long/large-data --gb 1 --folder build"),
    "cpu-latency": (
        "CPU: a loaded classifier",
        "MiniLM-L6 (87 MiB of fp32 weights, in the page cache), a sentence of 21 tokens, one core.",
        "bench/latency.py"),
    "cpu-checkpoints": (
        "CPU: a checkpoint of two ranks",
        "BERT-base with AdamW in fp32, in memory: what the ranks and their checksums need, without a disk.",
        "bench/checkpoint.py --stages 0,1,3 --folder /dev/shm"),
    "cpu-accuracy": (
        "CPU: accuracy on SST-2",
        "MiniLM-L6, three epochs.",
        "tools/compare/compare_sst2.py --seeds 1,2,3,4"),
    "gpu-families": (
        "GPU: RoBERTa-base and ModernBERT-base beside transformers",
        "Sequence classification, bf16 (autocast for the peer), random weights, AdamW, clipping. Lengths are uniform from 20 to "
        "512; the peer pads them to the longest of its batch.",
        "bench/gpu_families.py; bench/gpu_families.py roberta modernbert --compiled"),
    "gpu-families-deberta": (
        "GPU: DeBERTa-v3-base beside transformers",
        "Sequence classification, bf16 (autocast for the peer), random weights, AdamW, clipping: 32 texts of 512 tokens, 64 of 64.",
        "bench/gpu_families.py deberta deberta-64"),
    "gpu-families-lora": (
        "GPU: LoRA on encoders beside PEFT",
        "Sequence classification, bf16 (autocast for the peer), random weights, rank 16 on queries and values, AdamW, clipping.",
        "bench/gpu_families.py bert-large roberta roberta-lengths --lora"),
    "gpu-decoders": (
        "GPU: Llama-3.2-1B, Qwen3-0.6B and Qwen2.5-0.5B beside Liger",
        "Full fine-tuning, bf16 with fp32 masters (autocast for the peer), random weights, AdamW, clipping, no recomputation. Rows "
        "of 2048 tokens (4), 1024 (8) and 1024 (16).",
        "bench/gpu_decoders.py"),
    "gpu-bert": (
        "GPU: BERT-large",
        "512 tokens, AdamW with clipping, dropout 0.1, unless the row says otherwise.",
        "tools/cuda-check table"),
    "gpu-offload": (
        "GPU: BERT-large with offloaded tensors",
        "Beside the resident runs: 512 tokens, AdamW with clipping, dropout 0.1, unless the row says otherwise.",
        "tools/cuda-check offload"),
    "gpu-fit": (
        "GPU: the choice of --fit",
        "BERT-large, 512 tokens, bf16, batch 32, within three budgets of device memory, beside other mixes of methods: the fastest by the "
        "estimate and random ones, all measured. A ratio below 1: the choice is faster than all of them, which have no `--offload_ratio`.",
        "tools/cuda-check fit"),
    "gpu-large": (
        "GPU: encoders of 3.2 and 8.2 billion parameters",
        "Random weights, 64 texts of 512 tokens a step, AdamW with clipping: the first within 8 GiB of device memory, the second within all "
        "that the GPU has. The offloaded tensors take 68 and 66 GB of host memory. The first step, which is slow, counts.",
        "build-gpu/dist/snug train --device cuda --config_name bench/models/bert-3b.json --train_file dummy:1280x512 "
        "--per_device_train_batch_size 64 --fit --memory_budget 8GiB --bf16 --max_steps 20 --save_strategy no "
        "--output_dir build-gpu/large --overwrite_output_dir 2>&1; "
        "build-gpu/dist/snug train --device cuda --config_name bench/models/bert-8b.json --train_file dummy:320x512 "
        "--per_device_train_batch_size 64 --fit --bf16 --max_steps 5 --save_strategy no "
        "--output_dir build-gpu/large --overwrite_output_dir 2>&1"),
    "gpu-large-decoders": (
        "GPU: Qwen2.5-7B, Llama-3.1-8B with 32,768 tokens, and Llama-3.2-1B in 4 GiB",
        "Full fine-tuning, random weights, in bf16: with bf16 weights and 8-bit AdamW, whose states are in host memory, 524,288 tokens a step; with fp32 masters and "
        "states in 90 GB of host memory, one row; with bf16 weights and Adafactor without clipping, one row of 2,048 tokens. The first step, "
        "which is slow, counts.",
        "; ".join(f"build-gpu/dist/snug train --task clm --bf16 --config_name bench/models/{words} "
                  "--save_strategy no --output_dir build-gpu/large --overwrite_output_dir 2>&1" for words in (
            "qwen2.5-7b.json --train_file dummy:256x4096 --max_seq_length 4096 --per_device_train_batch_size 2 "
            "--gradient_accumulation_steps 64 --max_steps 2 --recompute none --dtype bfloat16 --optim adamw_8bit --offload optimizer",
            "llama-3.1-8b.json --train_file dummy:8x32768 --max_seq_length 32768 --per_device_train_batch_size 1 --max_steps 3 --recompute layer "
            "--offload optimizer,master_weights",
            "llama-3.2-1b.json --train_file dummy:64x2048 --max_seq_length 2048 --per_device_train_batch_size 1 --max_steps 40 --dtype bfloat16 --optim adafactor "
            "--max_grad_norm 0 --fit --memory_budget 4GiB"))),
    "gpu-adapters": (
        "GPU: LoRA and QLoRA beside Unsloth, and PEFT with Liger",
        "Random weights, bf16, rank 16 on all linears, AdamW, clipping, no dropout: 4 rows of 2,048 tokens of Llama-3.2-1B, 8 rows of 64 to 2,048, "
        "2 rows of 2,048 of Llama-3.1-8B. MiB: the device's memory in use.",
        "bench/gpu_adapters.py 1b-lora 1b-lora-lengths 8b-lora 8b-qlora 8b-lora-recomputed --seconds 540"),
    "gpu-adapters-memory": (
        "GPU: LoRA and QLoRA in little memory beside Unsloth",
        "As above, with layers recomputed from inputs in host memory, where Unsloth's checkpointing has them, too: 2 rows of 2,048 tokens of "
        "Llama-3.1-8B, 4 of Qwen3-4B. The least memory: also the codes and the word table in host memory, and 8-bit AdamW.",
        "bench/gpu_adapters.py 8b-qlora-recomputed 8b-qlora-least 4b-lora-recomputed --seconds 380"),
    "gpu-qlora-large": (
        "GPU: QLoRA of Llama-3.1-70B",
        "Random 4-bit codes in a folder as bitsandbytes', LoRA of rank 16 on all linears, bf16, layers recomputed, 8-bit AdamW: one row of 2,048 "
        "tokens with inputs and the table of words in host memory, eight rows with the codes on the device, and eight with codes and inputs in host memory.",
        "bench/gpu_qlora_large.py"),
    "gpu-generate": (
        "GPU: generation from Llama-3.2-1B beside transformers",
        "Random weights in bf16, prompts of 128 tokens and 256 new ones, greedily or with 4 beams, and the first token of a prompt of 2,048; "
        "beside `generate()` with its dynamic cache, and with the static one, compiled. What did not end in the time of the run is named. "
        "The floor of the first token: 2,048 tokens are 4.26 TFLOP (3.99 of weights, 0.27 of causal attention), 4.3 ms at 989 "
        "TFLOPS and 6.1 at the 700 that cuBLASLt sustains in training, and the output table is read once, 0.16 ms.",
        "bench/gpu_generate.py --rounds 2 --seconds 390"),
    "gpu-embed": (
        "GPU: sentence embeddings beside sentence-transformers",
        "BERT-base's size, random weights, mean pooling, fp16, texts of 20 to 512 tokens in random order.",
        "bench/gpu_embed.py"),
    "gpu-contrastive": (
        "GPU: contrastive training beside sentence-transformers",
        "BERT-base's size, random weights, multiple negatives ranking over 16,384 pairs in mini-batches, bf16, no dropout. The peer is "
        "CachedMultipleNegativesRankingLoss, without its tokenizing.",
        "bench/gpu_contrastive.py"),
    "gpu-dpo": (
        "GPU: preference tuning beside TRL",
        "Llama-3.2-1B, random weights, LoRA of rank 16 on all linears, bf16, 8 pairs of 1,024 tokens, AdamW, clipping.",
        "bench/gpu_dpo.py"),
    "gpu-peers": (
        "GPU: BERT-large beside PyTorch",
        "The peers are transformers and a packed model by hand, not compiled.",
        "bench/gpu_bert.py bf16-b32 bf16-b4 ragged-b32 infer-b128 infer-ragged-b128 --python $PYTHON"),
    "gpu-anatomy": (
        'GPU: "Model training anatomy"',
        "The experiment of that page of transformers' documentation, in fp32.",
        "build-gpu/dist/snug bench anatomy"),
    "gpu-latency": (
        "GPU: a loaded classifier",
        "MiniLM-L6, a sentence of 21 tokens. Opening takes most of the first answer: CUDA starts, and loads kernels.",
        "tools/cuda-check latency ../models/minilm"),
    "gpu-accuracy": (
        "GPU: accuracy on SST-2",
        "MiniLM-L6, three epochs.",
        "tools/compare/compare_sst2.py --snug build-gpu/dist/snug --seeds 1,2,3,4,5 -- --device cuda --bf16"),
}
RANKS = ("bf16, AdamW with clipping, the last three quarters of a run's steps, in samples/s. One GPU, slowest: the mean of the GPUs "
         "and the slowest of them, each alone, all at the same time. Planned: the share of one GPU's rate by the seconds that the runs "
         "expected before step 1; computed: that of [scaling.md](scaling.md#what-is-sent), from the step of one GPU. NVML differs by: "
         "its figure from the plan's, of the rank where this is most.")
# Each number of GPUs has its own sections. Two commands, since one would take ten minutes on two GPUs.
for count in (2, 4, 8):
    SECTIONS |= {
        f"gpu-ranks-{count}": (
            f"GPU: BERT-large on {count} GPUs", RANKS,
            f"SNUG_TEST_GPUS={count} tools/cuda-check speeds bert offload peers"),
        f"gpu-ranks-modernbert-{count}": (
            f"GPU: ModernBERT-base on {count} GPUs", RANKS,
            f"SNUG_TEST_GPUS={count} tools/cuda-check speeds modernbert")}


def output_of(command):
    """What a command prints; a missing one is an empty text."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120).stdout.strip()
    except OSError:
        return ""


def machine(name):
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    cpu = re.search(r"model name\s*: (.*)", text)
    flags = re.search(r"flags\s*: (.*)", text)
    kinds = [kind for kind in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flags and kind in flags[1].split()]
    parts = [f"{cpu[1].strip() if cpu else 'unknown CPU'} ({' '.join(kinds)}), {len(os.sched_getaffinity(0))} cores"]
    if name.startswith("gpu"):
        gpus = output_of(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).splitlines()
        gpu = gpus[0].replace(", ", ", driver ") if gpus else "unknown GPU"
        parts.insert(0, f"{len(gpus)} x {gpu}" if len(gpus) > 1 else gpu)
    if any(word in SECTIONS[name][2] for word in ("PYTHON", "adapters", "contrastive", "dpo", "embed", "families", "peers")):
        parts.append(output_of([PYTHON, "-c", "import torch, transformers as t; print(f'PyTorch {torch.__version__}, transformers "
                                "{t.__version__}')"]) or "no PyTorch")
        for peer, package in PACKAGES.items():
            if peer in SECTIONS[name][0]:
                found = output_of([PYTHON, "-c", f"import importlib.metadata as m; print(m.version({package!r}))"])
                parts[-1] += f", {package} {found or 'missing'}"
    return "; ".join(parts)


def commit(given):
    if given:
        return given
    if output_of(["git", "status", "--porcelain", "--", "src", "bench"]):
        sys.exit("src/ or bench/ has uncommitted changes: commit them first, so that the figures have a commit")
    found = output_of(["git", "rev-parse", "--short", "HEAD"])
    if not found:
        sys.exit("no repository here: --commit HASH says which commit this is")
    return found


def measure(name, build):
    title, note, commands = SECTIONS[name]
    parts = []
    for command in commands.split("; "):
        print(f"{name}: {command}", file=sys.stderr, flush=True)
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=dict(os.environ, PYTHON=PYTHON), stdout=subprocess.PIPE,
                              text=True)
        if done.returncode:
            sys.exit(f"{command}: exit status {done.returncode}\n{done.stdout}")
        text = done.stdout.strip()
        parts.append(text if "|---|" in text else f"```\n{text}\n```")
    listed = ", ".join(f"`{command.replace(' --python $PYTHON', '')}`" for command in commands.split("; "))
    stamp = f"- {listed}\n- {machine(name)}\n- Commit {build}, {datetime.date.today()}"
    return f"<!-- {name} -->\n## {title}\n{stamp}\n\n{note}\n\n" + "\n\n".join(parts) + "\n\n"


def insert(page, name, section):
    """Replaces the section, or adds it where SECTIONS has it."""
    found = re.search(rf"<!-- {name} -->\n.*?(?=<!-- [\w-]+ -->\n|\Z)", page, re.S)
    if found:
        return page[:found.start()] + section + page[found.end():]
    order = list(SECTIONS)
    for later in order[order.index(name) + 1:]:
        if f"<!-- {later} -->" in page:
            return page.replace(f"<!-- {later} -->", f"{section}<!-- {later} -->")
    return page.rstrip("\n") + "\n\n" + section


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--commit")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / PAGE)
    args = parser.parse_args()
    if unknown := [name for name in args.sections if name not in SECTIONS]:
        parser.error(f"{unknown[0]}: no such section; there are {', '.join(SECTIONS)}")
    if args.list or not args.sections:
        for name, (title, _, commands) in SECTIONS.items():
            print(f"{name:22} {title}: {commands}")
        return
    build = commit(args.commit)
    for name in args.sections:
        section = measure(name, build)
        source = args.output if args.output.exists() else ROOT / PAGE
        args.output.write_text(insert(source.read_text(encoding="utf-8"), name, section).rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
