#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""BERT-large on one GPU beside PyTorch: speed and device memory, alternating in one run on one machine.

    bench/gpu_bert.py --list
    bench/gpu_bert.py [CASE …] [--python PYTHON] [--peers .peers] [--dist build-gpu/dist] [--rounds 1]
                      [--compiled] [--seconds 570] [--json FILE]

Each case runs ours and the peers' scripts one after the other, --rounds times, alternating the order, and prints a line
for each peer with the medians and the ratio. Ours is bench_cuda_step from --dist (tools/cuda-check build), or `snug
train` where the peer is the Trainer. Peers that compile take minutes each, and run only with --compiled, without the others: use
one call for the fast peers, and further calls for one or two compiled cases each. Runs that would start after --seconds are
skipped, and listed as skipped.
The peers' scripts (torch_bert.py, torch_packed.py, trainer_vanilla.py, memory_methods.py) need torch and transformers.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

TRAIN = ["--config_name", "bert-large-uncased", "--train_file", "dummy:512x512", "--per_device_train_batch_size", "4",
         "--num_train_epochs", "1", "--save_strategy", "no", "--device", "cuda"]

# name: ours, and the peers as (who, script, arguments, whether it compiles)
CASES = {
    "bf16-b32": ("--type bf16 --batch 32", [
        ("transformers", "torch_bert.py bf16_b32", False), ("transformers, compiled", "torch_bert.py bf16_compile_b32", True),
        ("by hand", "torch_packed.py --batch 32 --no-compile", False), ("by hand, compiled", "torch_packed.py --batch 32", True)]),
    "bf16-b64": ("--type bf16 --batch 64", [
        ("transformers", "torch_bert.py bf16_b64", False),
        ("transformers, compiled", "torch_bert.py bf16_compile_mask_b64", True),
        ("by hand, compiled", "torch_packed.py --batch 64", True)]),
    "bf16-b4": ("--type bf16 --batch 4", [
        ("transformers", "torch_bert.py bf16_b4", False), ("transformers, compiled", "torch_bert.py bf16_compile_b4", True),
        ("by hand, CUDA graphs", "torch_packed.py --batch 4 --graph", True)]),
    "fp32-b4": ("--type fp32 --batch 4", [("transformers", "torch_bert.py vanilla_b4", False)]),
    "tf32-b4": ("--type tf32 --batch 4", [("transformers", "torch_bert.py tf32_b4", False)]),
    "fp16-b4": ("--type fp16 --batch 4", [("transformers", "torch_bert.py fp16_b4", False)]),
    "ragged-b32": ("--type bf16 --batch 32 --ragged", [
        ("transformers", "torch_bert.py bf16_b32_pad", False),
        ("transformers, compiled", "torch_bert.py bf16_compile_b32_pad", True),
        ("by hand", "torch_packed.py --batch 32 --ragged --no-compile", False),
        ("by hand, compiled", "torch_packed.py --batch 32 --ragged", True)]),
    "ragged-b64": ("--type bf16 --batch 64 --ragged", [
        ("by hand", "torch_packed.py --batch 64 --ragged --no-compile", False),
        ("by hand, compiled", "torch_packed.py --batch 64 --ragged", True)]),
    "mlm-b32": ("--type bf16 --batch 32 --mlm", [
        ("transformers", "torch_bert.py mlm_bf16_b32", False),
        ("transformers, compiled", "torch_bert.py mlm_bf16_compile_b32", True)]),
    "infer-b128": ("--type fp16 --batch 128 --infer", [
        ("transformers", "torch_bert.py infer_fp16_b128", False),
        ("by hand", "torch_packed.py --infer --batch 128 --no-compile", False),
        ("by hand, compiled", "torch_packed.py --infer --batch 128", True)]),
    "infer-ragged-b128": ("--type fp16 --batch 128 --infer --ragged", [
        ("by hand", "torch_packed.py --infer --batch 128 --ragged --no-compile", False),
        ("by hand, compiled", "torch_packed.py --infer --batch 128 --ragged", True)]),
    "infer-b1": ("--type fp16 --batch 1 --infer --steps 100", [
        ("transformers", "torch_bert.py infer_fp16_b1", False),
        ("transformers, compiled", "torch_bert.py infer_fp16_compile_b1", True),
        ("by hand, CUDA graphs", "torch_packed.py --infer --batch 1 --graph", True)]),
    "accumulate-b8x4": ("--type bf16 --batch 8 --accumulate 4", [("transformers", "torch_bert.py bf16_accum_b8x4", False)]),
    "checkpoint-b32": ("--type bf16 --batch 32 --checkpoint", [
        ("transformers", "torch_bert.py bf16_ckpt_b32", False),
        ("transformers, compiled", "torch_bert.py bf16_compile_ckpt_b32", True)]),
    "adam8bit-b4": ("--type bf16 --batch 4 --optim adamw_8bit", [("bitsandbytes", "memory_methods.py bf16_bnb8_b4", False)]),
    "least-b4": ("--type bf16 --batch 4 --bf16-weights --checkpoint --update-in-backward --optim adafactor", [
        ("gradient hooks, no clipping", "memory_methods.py pure_ada_ckpt_hook_b4", False)]),
    "offload-b32": ("--type bf16 --batch 32 --offload optimizer", [
        ("torchao, bf16 weights, no clipping", "memory_methods.py pure_offload_ao_b32", False),
        ("DeepSpeed ZeRO-2", "memory_methods.py ds_zero2_offload_b32", False)]),
    "trainer-fp32-b4": ([], [("Trainer", "trainer_vanilla.py", False)]),
    "trainer-bf16-b4": (["--bf16"], [("Trainer", "trainer_vanilla.py bf16=True", False)]),
}


class Failed(Exception):
    pass


def run(command, seconds, env=None):
    try:
        done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=max(1, seconds), env=env)
    except subprocess.TimeoutExpired:
        raise Failed("out of time") from None
    except OSError as error:
        raise Failed(str(error)) from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise Failed(said)
    return done.stdout


def found_in(pattern, text):
    match = re.search(pattern, text)
    if not match:
        raise Failed((text.strip().splitlines() or ["nothing was printed"])[-1][-200:])
    return float(match.group(1))


def run_ours(args, ours, seconds):
    env = dict(os.environ, LD_LIBRARY_PATH=f"{args.dist}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}")
    env.setdefault("OMP_WAIT_POLICY", "passive")
    if isinstance(ours, str):
        text = run([args.dist / "bench_cuda_step", *ours.split()], seconds, env)
        return {"rate": found_in(r"([\d.]+) */s ", text), "mib": found_in(r"device +([\d.]+) MiB", text)}
    with tempfile.TemporaryDirectory() as folder:
        run([args.dist / "snug", "train", *TRAIN, *ours, "--output_dir", folder], seconds, env)
        results = json.loads(pathlib.Path(folder, "train_results.json").read_text())
        return {"rate": results["train_samples_per_second"], "mib": results["memory"]["total"]["measured"] / 2**20,
                "start": results["start_seconds"]}


def run_peer(args, script, seconds):
    words = script.split()
    text = run([args.python, args.peers / words[0], *words[1:]], seconds)
    if words[0] == "trainer_vanilla.py":
        return {"rate": found_in(r"Samples/second: ([\d.]+)", text), "mib": found_in(r"GPU memory occupied: (\d+)", text),
                "start": found_in(r"start-up ([\d.]+)s", text)}
    lines = [line for line in text.splitlines() if line.startswith("{")]
    result = json.loads(lines[-1]) if lines else {"failed": text[-200:]}
    if "samples_per_s" not in result:
        raise Failed(str(result.get("failed", result)))
    return {"rate": result["samples_per_s"], "mib": result.get("device_MB", 0)}


def median(runs, key):
    values = [one[key] for one in runs if key in one]
    return statistics.median(values) if values else None


def show(value, form):
    return "–" if value is None else format(value, form)


def versions(args):
    code = ("import torch, transformers; print(torch.cuda.get_device_name(), '· CUDA', torch.version.cuda, '· PyTorch',"
            "torch.__version__, '· transformers', transformers.__version__)")
    try:
        peer = run([args.python, "-c", code], 120).strip()
    except Failed as why:
        peer = f"no peers ({why})"
    try:
        driver = run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], 30).split()[0]
    except (Failed, IndexError):
        driver = "unknown"
    env = dict(os.environ, LD_LIBRARY_PATH=f"{args.dist}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}")
    ours = run([args.dist / "snug", "--version"], 30, env).strip()
    return f"{ours} · {peer} · driver {driver}"


def measure(args, name, deadline):
    """One line for each peer: ours and the peer's runs alternate."""
    ours, peers = CASES[name]
    lines = []
    for who, script, compiles in peers:
        if compiles != args.compiled:
            continue
        runs, trouble = {"ours": [], "peer": []}, {}
        for round_number in range(args.rounds):
            for side in ("ours", "peer") if round_number % 2 == 0 else ("peer", "ours"):
                left = deadline - time.monotonic()
                try:
                    if left < 5:
                        raise Failed("out of time")
                    runs[side].append(run_ours(args, ours, left) if side == "ours" else run_peer(args, script, left))
                except Failed as why:
                    trouble[side] = str(why)
        line = {"case": name, "peer": who, **{f"{side}_{key}": median(runs[side], key) for side in runs
                                              for key in ("rate", "mib", "start")}, "trouble": trouble}
        lines.append(line)
        print_line(line)
    return lines


def print_line(line):
    rates, memory = (line["ours_rate"], line["peer_rate"]), (line["ours_mib"], line["peer_mib"])
    ratio = rates[0] / rates[1] if all(rates) else None
    share = memory[0] / memory[1] if all(memory) else None
    print(f"| {line['case']} | {line['peer']} | {show(rates[0], '.1f')} | {show(rates[1], '.1f')} | {show(ratio, '.2f')} | "
          f"{show(memory[0], '.0f')} | {show(memory[1], '.0f')} | {show(share, '.2f')} |", flush=True)
    for side, why in line["trouble"].items():
        print(f"{line['case']}: {side if side == 'ours' else line['peer']}: {why}", file=sys.stderr, flush=True)
    if line["ours_start"] is not None:
        print(f"{line['case']}: start to first step {line['ours_start']:.2f} s, {line['peer']} {show(line['peer_start'], '.1f')} s",
              file=sys.stderr, flush=True)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--python", default="/opt/torch/.venv/bin/python")
    parser.add_argument("--peers", type=pathlib.Path, default=root / ".peers")
    parser.add_argument("--dist", type=pathlib.Path, default=root / "build-gpu" / "dist")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--compiled", action="store_true", help="the peers that compile, instead of those that do not")
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        parser.error(f"{unknown[0]}: no such case; there are {', '.join(CASES)}")
    if args.list:
        for name, (ours, peers) in CASES.items():
            print(f"{name:18} {ours if isinstance(ours, str) else 'snug train ' + ' '.join(ours)}")
            for who, script, compiles in peers:
                print(f"{'':18}   {who}: {script}{' (--compiled)' if compiles else ''}")
        return
    deadline = time.monotonic() + args.seconds
    lines = []
    try:
        print(versions(args), end="\n\n", flush=True)
    except Failed as why:
        sys.exit(f"{args.dist}/snug: {why}; tools/cuda-check build makes it")
    print("| case | peer | ours, /s | peer, /s | ratio | ours, MiB | peer, MiB | ratio |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in args.cases or CASES:
        lines += measure(args, name, deadline)
    if args.json:
        args.json.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
