#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed and peak memory beside transformers' Trainer: a decoder on chats of very different lengths, fp32, alternating on one
machine's CPU.

    bench/cpu_decoder.py --python VENV/bin/python [--model ../models/smollm2] [--data ../shared/data] [--max_steps 8] [--rounds 3]

The chats are questions about texts of --data, from short messages to whole reviews, rendered once by the model's chat template and
truncated to --max_length tokens; both sides train on the same rows of text. For each round it runs `snug train` and the Trainer
(with --python, which has torch and transformers) one after the other, alternating the order, and prints medians and ratios. Rates
are of training alone, in tokens that are not padding.
"""
import argparse
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

PEER = """
import json, resource, sys, time
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments
model, data, length, batch, steps, threads, out = sys.argv[1:]
torch.set_num_threads(int(threads))
tokenizer = AutoTokenizer.from_pretrained(model)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
rows = [tokenizer(json.loads(line)["text"], truncation=True, max_length=int(length)) for line in open(data)]
arguments = TrainingArguments(out, max_steps=int(steps), per_device_train_batch_size=int(batch), save_strategy="no", report_to="none",
                              logging_steps=10**6, use_cpu=True, seed=1, disable_tqdm=True, dataloader_pin_memory=False)
trainer = Trainer(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), arguments, train_dataset=rows,
                  data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False))
seen = [0, 0]
collate = trainer.data_collator
def count(features):
    seen[0] += sum(len(f["input_ids"]) for f in features)
    seen[1] += len(features) * max(len(f["input_ids"]) for f in features)
    return collate(features)
trainer.data_collator = count
seconds = trainer.train().metrics["train_runtime"]
print(json.dumps({"rate": seen[0] / seconds, "padding": 1 - seen[0] / seen[1],
                  "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""

RENDER = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
for line in sys.stdin:
    print(json.dumps({"text": tokenizer.apply_chat_template(json.loads(line), tokenize=False)}))
"""


def chats(data):
    """[question, answer] about each text, from all sources in turn."""
    sst2 = [(row["sentence"], "positive" if row["label"] == "1" else "negative")
            for row in csv.DictReader((data / "sst2-train.tsv").open(encoding="utf-8"), delimiter="\t", quoting=csv.QUOTE_NONE)]
    tables = [list(csv.reader((data / name).open(encoding="utf-8")))[1:] for name in ("sms-spam-train.csv", "reviews-train.csv")]
    texts = [[(max(row, key=len), min(row, key=len)) for row in table] for table in tables]
    news = [json.loads(line) for line in (data / "agnews-train.jsonl").open(encoding="utf-8")]
    sources = [sst2, texts[0], texts[1], [(row["text"], str(row["label"])) for row in news]]
    for i in range(200):
        for source, what in zip(sources, ("Is this sentence positive or negative?", "Is this message spam?",
                                          "Did the reviewer like the film?", "What is this news about?")):
            text, answer = source[i]
            yield [{"role": "user", "content": f"{what}\n\n{text}"}, {"role": "assistant", "content": answer}]


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))[:300]}\nexit status {done.returncode}\n{done.stderr[-2000:]}")
    return done


def run_snug(args, data, output):
    done = run([args.snug, "train", "--model_name_or_path", args.model, "--train_file", data, "--task", "clm", "--use_cpu",
                "--max_seq_length", args.max_length, "--output_dir", output, "--overwrite_output_dir", "--max_steps", args.max_steps,
                "--per_device_train_batch_size", args.batch, "--save_strategy", "no", "--seed", "1"])
    results = json.loads((output / "train_results.json").read_text())
    tokens = int(re.search(r"(\d+) tokens; loss", done.stderr)[1])
    return {"rate": tokens / results["train_runtime"], "mib": results["peak_rss_bytes"] / 2**20}


def run_peer(args, data, output):
    printed = run([args.python, "-c", PEER, args.model, data, args.max_length, args.batch, args.max_steps,
                   len(os.sched_getaffinity(0)), output]).stdout
    return json.loads(printed.strip().splitlines()[-1])


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    shared = root.parent / "shared"
    models = pathlib.Path(os.environ.get("SNUG_MODELS", root.parent / "models"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=pathlib.Path, default=root.parent / "venv" / "bin" / "python")
    parser.add_argument("--snug", type=pathlib.Path, default=root / "build" / "snug")
    parser.add_argument("--model", type=pathlib.Path, default=models / "smollm2")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("SNUG_DATA", shared / "data")))
    parser.add_argument("--max_steps", type=int, default=8)
    parser.add_argument("--max_length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        data = folder / "chats.jsonl"
        data.write_text(run([args.python, "-c", RENDER, args.model], input="".join(json.dumps(c) + "\n" for c in chats(args.data))).stdout)
        runners = [(run_snug, folder / "snug"), (run_peer, folder / "peer")]
        found = {run_snug: [], run_peer: []}
        for turn in range(args.rounds):
            for runner, output in runners if turn % 2 == 0 else reversed(runners):
                found[runner].append(runner(args, data, output))
        snug, peer = ({key: statistics.median(r[key] for r in found[runner]) for key in found[runner][0]}
                      for runner in (run_snug, run_peer))
    print(f"{args.model.name}, fp32, chats of up to {args.max_length} tokens, batch {args.batch}, {args.max_steps} steps, median of "
          f"{args.rounds}; {peer['padding']:.0%} of the Trainer's tokens are padding\n")
    print("| snug tokens/s | Trainer tokens/s | ratio | snug peak MiB | Trainer peak MiB | ratio |\n|---|---|---|---|---|---|")
    print(f"| {snug['rate']:.0f} | {peer['rate']:.0f} | {snug['rate'] / peer['rate']:.2f} | {snug['mib']:.0f} | {peer['mib']:.0f} | "
          f"{snug['mib'] / peer['mib']:.3f} |")


if __name__ == "__main__":
    main()
