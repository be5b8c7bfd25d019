#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds of a checkpoint on several CPU ranks, and the bytes that each rank writes.

    bench/checkpoint.py [--snug FILE] [--ranks 2] [--stages 0,1,2,3] [--config bert-base-uncased] [--folder DIR]

Each stage trains a few steps on random tokens, and saves after each. A checkpoint is measured from the moment at which
its temporary folder exists until it has its name; the shortest time is printed. The bytes are those of write calls
(/proc/PID/io)."""
import argparse
import glob
import os
import shutil
import subprocess
import tempfile
import time

STEPS = 5


def written(process):
    try:
        with open(f"/proc/{process}/io") as file:
            return int(next(line for line in file if line.startswith("wchar:")).split()[1])
    except (OSError, StopIteration):
        return 0


def ranks_of(program):
    """The processes that run the program, by rank."""
    found = {}
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            if os.readlink(folder + "/exe") != program:
                continue
            with open(folder + "/environ", "rb") as file:
                variables = dict(v.split(b"=", 1) for v in file.read().split(b"\0") if b"=" in v)
        except OSError:
            continue
        rank = variables.get(b"OMPI_COMM_WORLD_RANK") or variables.get(b"PMI_RANK")
        if rank:
            found[int(rank)] = int(folder[6:])
    return [found[rank] for rank in sorted(found)]


def measure(arguments, stage, output):
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(arguments.ranks),
               arguments.snug, "train", "--use_cpu", "--config_name", arguments.config, "--train_file",
               f"dummy:{arguments.ranks * STEPS}x16", "--per_device_train_batch_size", "1", "--max_steps", str(STEPS),
               "--save_steps", "1", "--save_total_limit", "1", "--zero_stage", str(stage), "--output_dir", output]
    saves, begin, before, ranks = [], None, None, []
    with open(output + ".log", "w") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log)
        while run.poll() is None:
            if (glob.glob(output + "/.checkpoint-*.snug-*") != []) == (begin is not None):
                time.sleep(0.002)
            elif begin is None:
                begin = time.monotonic()
                ranks = ranks or ranks_of(arguments.snug)
                before = [written(process) for process in ranks]
            else:
                saves.append((time.monotonic() - begin, [written(p) - b for p, b in zip(ranks, before)]))
                begin = None
    if run.returncode:
        raise SystemExit(open(output + ".log").read())
    size = sum(entry.stat().st_size for entry in os.scandir(f"{output}/checkpoint-{STEPS}"))
    # Removing an old checkpoint makes a temporary name, too; after the last save the processes have ended.
    seconds, counts = min(save for save in saves if sum(save[1]) > size / 2)
    shares = ", ".join(f"{count / 2**20:.0f}" for count in counts)
    print(f"stage {stage}: {seconds:.2f} s for {size / 2**20:.0f} MiB; written by each rank: {shares} MiB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--stages", default="0,1,2,3")
    parser.add_argument("--config", default="bert-base-uncased")
    parser.add_argument("--folder", help="where it writes; default: a temporary folder")
    arguments = parser.parse_args()
    arguments.snug = os.path.realpath(arguments.snug)
    folder = tempfile.mkdtemp(prefix="snug-checkpoint-", dir=arguments.folder)
    try:
        for stage in arguments.stages.split(","):
            measure(arguments, int(stage), os.path.join(folder, "stage" + stage))
    finally:
        shutil.rmtree(folder)


main()
