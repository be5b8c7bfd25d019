#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters that snug trained, loaded by PEFT: the logits of a dense forward pass are those of the model that snug merges.

    python tools/compare/check_adapters.py [BUILD]        (needs torch, transformers and peft)

Classifiers of BERT, RoBERTa and Llama, and a language model, each kind of adapter; of classifiers PEFT's SEQ_CLS loads the trained
classifier, too. Base models are drawn at random and have a few layers.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, logging

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "families"
# model type, class, flags
CASES = [
    ("../model", "cls2", ["--lora_target_modules", "query,value"]),
    ("../model", "cls2", ["--lora_target_modules", "query,dense", "--use_dora", "--bias", "lora_only"]),
    ("roberta", "single", []),
    ("roberta", "single", ["--lora_target_modules", "all-linear", "--lora_bias", "--bias", "all"]),
    ("llama", "clm", ["--lora_target_modules", "all-linear"]),
    ("llama", "clm", ["--lora_target_modules", "embed_tokens,lm_head,q_proj", "--use_rslora"]),
    ("gpt2", "clm", ["--lora_target_modules", "c_attn,c_fc", "--use_dora"]),
    ("gemma", "clm", ["--lora_target_modules", "embed_tokens,q_proj"]),
    # of tied models: two weights
    ("gemma", "clm", ["--lora_target_modules", "q_proj", "--lora_modules_to_save", "embed_tokens"]),
    ("smollm3", "clm", ["--lora_target_modules", "q_proj", "--lora_modules_to_save", "lm_head"]),
    ("gemma2", "clm", ["--lora_target_modules", "q_proj", "--lora_modules_to_save", "embed_tokens,lm_head"]),
    ("gpt2", "clm", ["--lora_modules_to_save", "wte,lm_head"]),
]


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")


def load(folder, task, config):
    if task == "clm":
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32, num_labels=config["classes"],
                                                             ignore_mismatched_sizes=True).eval()


def main():
    snug = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build") / "snug"
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    worst = 0
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for number, (model, folder, flags) in enumerate(CASES):
            base, out, merged = GOLDEN / model / folder, scratch / f"out{number}", scratch / f"merged{number}"
            task = "clm" if folder == "clm" else "classification"
            run(snug, "train", "--model_name_or_path", base, "--task", task, "--train_file", "dummy:32x12", "--use_peft", "--max_steps", 4,
                "--learning_rate", 0.02, "--save_strategy", "no", "--output_dir", out, *(["--ignore_mismatched_sizes"] if task != "clm" else []), *flags)
            run(snug, "merge", out, "--output_dir", merged, "--dtype", "float32")
            weights = json.loads((merged / "config.json").read_text())
            config = {"classes": len(weights.get("id2label", {})) or 2}
            peft = PeftModel.from_pretrained(load(base, task, config), out).eval()
            ids = torch.randint(5, weights["vocab_size"], (2, 12))
            with torch.no_grad():
                ours, theirs = (m(input_ids=ids).logits for m in (load(merged, task, config), peft))
            difference = (ours - theirs).abs().max().item()
            worst = max(worst, difference)
            print(f"{model:8} {task:15} {' '.join(flags):60} {difference:.1e}")
    if worst > 1e-4:
        sys.exit(f"logits differ by {worst:.1e}, more than 1e-4")


if __name__ == "__main__":
    main()
