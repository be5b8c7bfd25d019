#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed and peak memory beside transformers' Trainer: a model on SST-2, batch 32, alternating on one machine.

    bench/cpu_sst2.py --python VENV/bin/python [--peers ../shared/peers] [--model ../models/minilm] [--data ../shared/data]
                      [--max_steps 120] [--rounds 1] [--settings fp32,fp32-group,bf16,bf16-group] [--roberta_layers N]

For every setting it runs `snug train` and the peer's trainer_sst2.py (with --python, which has torch and transformers)
one after the other, --rounds times, alternating the order, and prints one Markdown table of medians and ratios. Rates are
of training alone. A first snug run fills the token cache, as the peer's data set cache is filled by its first run.
By default bf16 runs only on a CPU with bf16 matmuls. --max_steps 0 trains the whole 3 epochs and adds accuracies.
--roberta_layers: RoBERTa-base's configuration with this number of layers, random weights and --model's tokenizer, instead of
--model.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

SETTINGS = {"fp32": (False, False), "fp32-group": (False, True), "bf16": (True, False), "bf16-group": (True, True)}


def bf16_is_fast():
    """Elsewhere neither side has bf16 matmuls in hardware."""
    return any(kind in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split() for kind in ("amx_bf16", "avx512_bf16"))


def run(command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def run_snug(args, bf16, group, output):
    run([args.snug, "train", "--model_name_or_path", args.model, "--train_file", args.data / "sst2-train.tsv",
         "--validation_file", args.data / "sst2-dev.tsv", "--output_dir", output, "--overwrite_output_dir",
         "--num_train_epochs", "3", "--max_steps", args.max_steps or -1, "--per_device_train_batch_size", "32",
         "--per_device_eval_batch_size", "128", "--eval_strategy", "epoch", "--save_strategy", "no", "--seed", "1",
         *(["--bf16"] if bf16 else []), *(["--train_sampling_strategy", "group_by_length"] if group else [])])
    results = json.loads((output / "train_results.json").read_text())
    found = {"rate": results["train_samples_per_second"], "mib": results["peak_rss_bytes"] / 2**20,
             "start": results["start_seconds"]}
    if not args.max_steps:
        test = json.loads(run([args.snug, "eval", "--model_name_or_path", output, "--json", "--validation_file",
                               args.data / "sst2-test.tsv"]))
        found["test"] = test["eval_accuracy"]
    return found


def run_peer(args, bf16, group, output):
    printed = run([args.python, args.peers / "trainer_sst2.py", "--model", args.model, "--data", args.data, "--tmp", output,
                   "--threads", len(os.sched_getaffinity(0)),
                   "--max_steps", args.max_steps or -1, *(["--bf16"] if bf16 else []), *(["--group"] if group else [])])
    results = json.loads(printed.strip().splitlines()[-1])
    found = {"rate": results["samples_per_s"], "mib": results["peak_rss_mib"], "start": results["start_s"]}
    if not args.max_steps:
        found["test"] = results["test_accuracy"]
    return found


MAKE_ROBERTA = """
import json, pathlib, shutil, sys
from transformers import RobertaConfig, RobertaForSequenceClassification
config, tokenizer, layers, out = map(pathlib.Path, sys.argv[1:])
config = RobertaConfig.from_json_file(config)
config.num_hidden_layers = int(str(layers))
RobertaForSequenceClassification(config).save_pretrained(out)
for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
    shutil.copy(tokenizer / name, out / name)
"""


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    shared = root.parent / "shared"
    data = pathlib.Path(os.environ.get("SNUG_DATA", shared / "data"))
    models = pathlib.Path(os.environ.get("SNUG_MODELS", root.parent / "models"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=pathlib.Path, default=root.parent / "venv" / "bin" / "python")
    parser.add_argument("--peers", type=pathlib.Path, default=shared / "peers")
    parser.add_argument("--snug", type=pathlib.Path, default=root / "build" / "snug")
    parser.add_argument("--model", type=pathlib.Path, default=models / "minilm")
    parser.add_argument("--data", type=pathlib.Path, default=data)
    parser.add_argument("--max_steps", type=int, default=120)
    parser.add_argument("--roberta_layers", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--settings", default=",".join(name for name in SETTINGS if bf16_is_fast() or not SETTINGS[name][0]),
                        type=lambda text: text.split(","))
    args = parser.parse_args()
    for name in args.settings:
        if name not in SETTINGS:
            parser.error(f"no setting {name}; there are {', '.join(SETTINGS)}")

    # "at its best": the peer's fastest way to do the same work is grouping by length.
    length = f"{args.max_steps} steps" if args.max_steps else "3 epochs"
    print(f"SST-2, batch 32, {length}, median of {args.rounds}\n")
    print("| setting | snug samples/s | Trainer samples/s | ratio | snug peak MiB | Trainer peak MiB | ratio |"
          " snug start s | Trainer start s |" + ("" if args.max_steps else " test accuracy: snug, Trainer |"))
    print("|---|---|---|---|---|---|---|---|---|" + ("" if args.max_steps else "---|"), flush=True)
    best = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if args.roberta_layers:
            run([args.python, "-c", MAKE_ROBERTA, root / "bench" / "models" / "roberta-base.json", args.model,
                 args.roberta_layers, folder / "roberta"])
            args.model = folder / "roberta"
        for name in args.settings:
            bf16, group = SETTINGS[name]
            runners = [(run_snug, folder / "snug"), (run_peer, folder / "peer")]
            found = {run_snug: [], run_peer: []}
            if not best:
                run_snug(argparse.Namespace(**{**vars(args), "max_steps": 1}), bf16, group, folder / "snug")
            for turn in range(args.rounds):
                for runner, output in runners if turn % 2 == 0 else reversed(runners):
                    found[runner].append(runner(args, bf16, group, output))
            snug, peer = ({key: statistics.median(r[key] for r in found[runner]) for key in found[runner][0]}
                          for runner in (run_snug, run_peer))
            best[name] = (snug["rate"], peer["rate"])
            print(f"| {name} | {snug['rate']:.1f} | {peer['rate']:.1f} | {snug['rate'] / peer['rate']:.2f} | "
                  f"{snug['mib']:.0f} | {peer['mib']:.0f} | {snug['mib'] / peer['mib']:.3f} | "
                  f"{snug['start']:.2f} | {peer['start']:.1f} |"
                  + ("" if args.max_steps else f" {snug['test']:.4f}, {peer['test']:.4f} |"), flush=True)
    print()
    for kind in ("fp32", "bf16"):
        same = [best[name] for name in (kind, f"{kind}-group") if name in best]
        if len(same) == 2:
            plain, grouped = same
            fastest = max(plain[0], grouped[0])
            print(f"{kind}: same flags {plain[0] / plain[1]:.2f} times the Trainer; at their best, each with the faster of its "
                  f"two settings, {fastest / max(plain[1], grouped[1]):.2f} times.")


if __name__ == "__main__":
    main()
