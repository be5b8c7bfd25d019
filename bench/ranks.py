#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings on several GPUs of one machine in bf16, beside one GPU and beside PyTorch: speed, and the memory of each rank.

    bench/ranks.py PART … [--gpus 2] [--dist build-gpu/dist] [--peers .peers] [--seconds 570]
    bench/ranks.py computed

tools/cuda-check calls it with the GPUs that the machine has. Parts:
    bert, modernbert  BERT-large, ModernBERT-base (random weights): 512 tokens with 32 and with 4 rows a GPU, 20 to 512 tokens
                      with 32, on all GPUs in each ZeRO stage, and as one GPU: on each GPU alone, all at the same time, so that
                      the table has their mean and the slowest one, for which ranks wait
    offload           BERT-large in stage 3 with its states on the host
    peers             BERT-large beside PyTorch's DDP, ZeroRedundancyOptimizer and FSDP2: torch_ddp.py, which needs torch and
                      transformers
    computed          the shares that docs/scaling.md computes; runs nothing
Parts of one call share their runs. Runs that would start after --seconds are not made, and fail as others do: the exit
status is then 1, and the tables have the rest. A table is printed as its runs end.
"""
import argparse
import collections
import concurrent.futures
import functools
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

# config: --config_name; embeddings: their parameters; longer: how many times the steps of CASES, since its steps are shorter
Model = collections.namedtuple("Model", "name config embeddings layers longer")
MODELS = {
    "bert": Model("BERT-large", "bert-large-uncased", 31.8e6, 24, 1),
    "modernbert": Model("ModernBERT-base", "bench/models/modernbert-base.json", 38.7e6, 22, 2),
}
CASES = [("512", 32, 80), ("512", 4, 200), ("20-512", 32, 120)]  # tokens of a row, rows a GPU, steps
STAGES = range(4)
# The peer of a stage, as torch_ddp.py names it.
PEERS = [("DDP", "ddp", 0), ("ZeroRedundancyOptimizer", "zero1", 1), ("FSDP2", "fsdp", 3)]


# ---- the shares that docs/scaling.md computes -----------------------------------------------------------------------

NVLINK, NETWORK, ONE_ADAPTER = 203e9, 45e9, 5.6e9  # bytes/s of a rank
LARGE = 335e6  # parameters of BERT-large
# Seconds on one H100 of BERT-large's step, backward and forward, by rows.
BERT_SECONDS = {32: (71.3e-3, 44.8e-3, 22.5e-3), 4: (14.5e-3, 7.5e-3, 3.3e-3)}
UPDATE = 3.7e-3 / LARGE  # seconds for a parameter, of what is neither backward nor forward: the row above with 4


def share(stage, ranks, link, seconds, model="bert", parameters=LARGE, accumulated=1):
    """Of ranks times one GPU, by the formula of docs/scaling.md: beside is its x, gathered its z, sums its s, waited its y.
    seconds: of a micro-batch on one GPU."""
    e, layers = MODELS[model].embeddings, MODELS[model].layers
    step, backward, forward = seconds
    call = 10e-6 + (ranks - 1) * 1e-6
    per_byte = (ranks - 1) / ranks / link
    received = 2**24 if link == NVLINK else 2**25  # of a group
    groups = max(1, round(4 * parameters * (ranks - 1) / ranks / received))
    sums = 4 * parameters * per_byte + groups * call
    layer = 2 * (parameters - e) / layers * per_byte
    gathered = layers * layer + (layers + 1) * call
    waited = 4 * e * per_byte + call
    if stage == 0:
        sums, gathered, waited = 2 * sums, 0, 0
    beside = sums
    if stage == 3:
        beside += gathered
        waited += layer + call
    whole = accumulated * step
    return whole / (whole + max(0, beside - backward) + max(0, gathered - forward) + sums / groups + waited)


def of_step(step, parameters):
    """A step's seconds, and those of backward and forward, of which backward takes twice as long."""
    forward = max(0, step - UPDATE * parameters) / 3
    return step, 2 * forward, forward


def print_computed():
    print("| ranks and link | 32 sequences a GPU | 4 sequences a GPU |\n|---|---|---|")
    for ranks, link, name in ((2, NVLINK, "NVLink"), (4, NVLINK, "NVLink"), (8, NVLINK, "NVLink"), (64, NETWORK, "45 GB/s"),
                              (512, NETWORK, "45 GB/s"), (64, ONE_ADAPTER, "5.6 GB/s"), (512, ONE_ADAPTER, "5.6 GB/s")):
        cells = [" / ".join(f"{100 * share(stage, ranks, link, BERT_SECONDS[rows]):.0f}" for stage in STAGES) for rows in (32, 4)]
        print(f"| {ranks}, {name} | {' | '.join(cells)} |")
    print("\n| k, stage 0, 32 sequences | 1 | 4 | 16 |\n|---|---|---|---|")
    for ranks, link, name in ((64, NETWORK, "45 GB/s"), (512, NETWORK, "45 GB/s"), (64, ONE_ADAPTER, "5.6 GB/s")):
        shares = [f"{100 * share(0, ranks, link, BERT_SECONDS[32], accumulated=k):.0f}" for k in (1, 4, 16)]
        print(f"| {ranks} ranks, {name} | {' | '.join(shares)} |")


# ---- runs ----------------------------------------------------------------------------------------------------------


class Failed(Exception):
    pass


def wait_for(process, seconds):
    """What a process prints, and what it writes to standard error; its children end with it."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # snug's launcher and torchrun pass it on to the ranks
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
        raise Failed(f"ended after {seconds:.0f} s") from None


class Bench:
    def __init__(self, args):
        self.gpus, self.dist, self.peers = args.gpus, args.dist, args.peers
        self.end = time.monotonic() + args.seconds
        self.failed = False
        self.results = {}  # by the function and arguments of a run: its figures, or why it failed

    def run(self, command, most, gpu=None):
        """What a command prints. gpu: the only one that it has."""
        environment = dict(os.environ) if gpu is None else {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)}
        left = self.end - time.monotonic()
        if left < 5:
            raise Failed("out of time")
        try:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, env=environment)
        except OSError as error:
            raise Failed(str(error)) from None
        printed, errors = wait_for(process, min(left, most))
        if process.returncode:
            lines = (errors.strip() or printed.strip() or "no message").splitlines()
            # torchrun adds lines of its own after the error's.
            said = next((line for line in lines if line.startswith("snug: ") or "Error" in line), lines[-1])
            raise Failed(f"exit status {process.returncode}: {said.strip()[:300]}")
        return printed

    def once(self, function, *arguments):
        key = (function.__name__, *arguments)
        if key not in self.results:
            try:
                self.results[key] = function(*arguments)
            except Failed as why:
                self.results[key] = why
        if isinstance(self.results[key], Failed):
            raise self.results[key]
        return self.results[key]

    def train(self, model, tokens, rows, steps, words=""):
        return self.once(self.run_training, model, tokens, rows, steps, words)

    def train_alone(self, model, tokens, rows, steps):
        return self.once(self.run_alone, model, tokens, rows, steps)

    def peer(self, how, rows):
        return self.once(self.run_peer, how, rows)

    def run_training(self, model, tokens, rows, steps, words, gpu=None):
        """On all GPUs, or on one of them. The data are the same."""
        folder = self.dist / f"rate-{gpu}"
        shutil.rmtree(folder, ignore_errors=True)
        command = [self.dist / "snug", "train", "--device", "cuda", "--disable_tqdm", "--log_level", "error", "--json",
                   "--config_name", MODELS[model].config, "--train_file", f"dummy:{8192 * self.gpus}x{tokens}", "--bf16",
                   "--per_device_train_batch_size", rows, "--max_steps", steps, "--logging_steps", steps // 4,
                   "--save_strategy", "no", "--output_dir", folder, *words.split()]
        try:
            result = json.loads(self.run(command + ([] if gpu is not None else ["--gpus", self.gpus]), 300, gpu))
            state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
            return figures(result, state["log_history"])
        except (OSError, ValueError, KeyError, ZeroDivisionError) as error:
            raise Failed(f"its results lack something: {error!r}") from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def run_alone(self, model, tokens, rows, steps):
        """Each GPU by itself, all at the same time: the first one's figures, with the mean of the rates and the lowest one."""
        with concurrent.futures.ThreadPoolExecutor(self.gpus) as pool:
            runs = list(pool.map(lambda gpu: self.run_training(model, tokens, rows, steps, "", gpu), range(self.gpus)))
        rates = [run["rate"] for run in runs]
        return {**runs[0], "rate": sum(rates) / len(rates), "slowest": min(rates)}

    def run_peer(self, how, rows):
        script = self.peers / "torch_ddp.py"
        if not script.exists():
            raise Failed(f"{script} is missing")
        text = self.run(["torchrun", "--nproc-per-node", self.gpus, script, how, rows], 150)
        lines = [line for line in text.splitlines() if line.startswith("{")]
        try:
            result = json.loads(lines[-1])
            return {"rate": result["samples_per_s"], "mib": result["device_MB_rank0"]}
        except (IndexError, ValueError, KeyError):
            raise Failed(f"no result: {text.strip()[-200:]}") from None

    def row(self, names, figures_of):
        """Prints a row of a table: its names, then the figures, or why there are none."""
        try:
            cells = figures_of()
        except Failed as why:
            self.failed = True
            cells = [f"failed: {why}".replace("|", "/")]  # which would end the cell
        print(f"| {' | '.join(names)} | {' | '.join(cells)} |", flush=True)

    # ---- parts --------------------------------------------------------------------------------------------------

    def speeds(self, key):
        model = MODELS[key]
        print_head(model.name, ["tokens", "rows a GPU", "stage", "one GPU, /s", "slowest, /s", f"{self.gpus} GPUs, /s",
                                f"of {self.gpus} x one GPU", f"of {self.gpus} x slowest", "planned", "computed",
                                "MiB of a rank", "NVML differs by", "weights, gradients, states, MiB"])

        def cells(tokens, rows, steps, stage):
            # The ranks agree on algorithms for matmuls and keep them, so that each GPU alone finds the same ones.
            many = self.train(key, tokens, rows, steps, f"--zero_stage {stage}")
            one = self.train_alone(key, tokens, rows, steps)
            computed = share(stage, self.gpus, NVLINK, of_step(rows / one["rate"], one["parameters"]), key, one["parameters"])
            return [f"{one['rate']:.1f}", f"{one['slowest']:.1f}", f"{many['rate']:.1f}",
                    known(many["rate"] / self.gpus / one["rate"], ".1%"),
                    known(many["rate"] / self.gpus / one["slowest"], ".1%"),
                    known(many["planned"] / self.gpus / one["planned"], ".1%"), known(computed, ".1%"), *memory_cells(many),
                    f"{many['states']:.0f}"]

        for tokens, rows, steps in CASES:
            for stage in STAGES:
                self.row([tokens, str(rows), str(stage)], functools.partial(cells, tokens, rows, steps * model.longer, stage))

    def offload(self):
        tokens, rows, steps = CASES[0]
        print_head(f"BERT-large, stage 3, {tokens} tokens, {rows} rows a GPU, states on the host",
                   ["accumulated", "resident, /s", "on the host, /s", "ratio", "planned", "MiB of a rank", "NVML differs by"])

        def cells(words, steps):
            words = f"--zero_stage 3{words}"
            resident = self.train("bert", tokens, rows, steps, words)
            host = self.train("bert", tokens, rows, steps, f"{words} --offload optimizer")
            return [f"{resident['rate']:.1f}", f"{host['rate']:.1f}", f"{host['rate'] / resident['rate']:.2f}",
                    known(host["planned"] / resident["planned"], ".2f"), *memory_cells(host)]

        self.row(["1"], functools.partial(cells, "", steps))
        self.row(["4"], functools.partial(cells, " --gradient_accumulation_steps 4", 32))

    def beside_peers(self):
        print_head(f"BERT-large, 512 tokens, beside PyTorch on {self.gpus} GPUs",
                   ["rows a GPU", "peer", "snug", "peer, /s", "snug, /s", "ratio", "peer, MiB of rank 0", "snug, MiB of a rank"])

        def cells(case, how, stage):
            theirs = self.peer(how, case[1])
            ours = self.train("bert", *case, f"--zero_stage {stage}")
            return [f"{theirs['rate']:.1f}", f"{ours['rate']:.1f}", f"{ours['rate'] / theirs['rate']:.2f}",
                    f"{theirs['mib']}", memory_cells(ours)[0]]

        for case in CASES[:2]:
            for name, how, stage in PEERS:
                self.row([str(case[1]), name, f"stage {stage}"], functools.partial(cells, case, how, stage))


def figures(result, log):
    """rate: rows/s of the last three quarters of the steps, since the first ones load kernels and capture phases; planned: the
    rows/s that the run expected before its first step."""
    memory, run = result["memory"], result["run"]
    rates = [entry["samples_per_second"] for entry in log if "samples_per_second" in entry][1:]
    ranks = result.get("ranks", [{"memory": memory["total"]}])
    return {"rate": len(rates) / sum(1 / rate for rate in rates),
            "planned": run["batch"]["rows_per_step"] / (run["seconds_per_step"] or math.nan),
            "ranks": [(rank["memory"]["planned"], rank["memory"]["measured"] or math.nan) for rank in ranks],
            "states": sum(memory[name]["planned"] for name in ("weights", "gradients", "optimizer")) / 2**20,
            "parameters": run["model"]["parameters"]}


def memory_cells(run):
    """What the plan has of the largest rank, and NVML's difference from it, of the rank where this is most."""
    differences = [measured / planned - 1 for planned, measured in run["ranks"]]
    return [f"{max(planned for planned, _ in run['ranks']) / 2**20:.0f}", known(max(differences, key=abs), "+.1%")]


def known(number, form):
    return "unknown" if math.isnan(number) else format(number, form).replace("%", " %")


def print_head(title, columns):
    print(f"\n**{title}**\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def main():
    parts = {"bert": lambda bench: bench.speeds("bert"), "modernbert": lambda bench: bench.speeds("modernbert"),
             "offload": Bench.offload, "peers": Bench.beside_peers, "computed": lambda bench: print_computed()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=parts, metavar="PART")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--dist", type=pathlib.Path, default=pathlib.Path("build-gpu/dist"))
    parser.add_argument("--peers", type=pathlib.Path, default=pathlib.Path(".peers"))
    parser.add_argument("--seconds", type=float, default=570)
    args = parser.parse_args()
    bench = Bench(args)
    for part in args.parts:
        parts[part](bench)
    sys.exit(bench.failed)


if __name__ == "__main__":
    main()
