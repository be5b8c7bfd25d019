#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training's GPUs did in a step, from the records of tools/gpu/timeline.c: a file for each process.

    tools/gpu/timeline.py FILE … [--rows 40] [--list FROM TO]    tools/cuda-check timeline makes the files

Prints means over all steps but the first two and the last one, a column for each process: the step, its phases, and for each
kernel how many there are and their milliseconds, in how many streams. FORWARD begins with the embedding, BACKWARD with the loss; "sums,
norm" are from the end of backward's last kernel to that of CLIP; UPDATE is what follows. Late: how much later than the first
process one has ended BACKWARD. --list: each record of the last whole step of the first file, between two of its milliseconds.
"""
import argparse
import collections
import re
import subprocess
import sys

Record = collections.namedtuple("Record", "kind start end stream size name")
FORWARD, LOSS, CLIP = "embed_kernel", "loss_kernel", "clip_kernel"
# Kernels that may run after backward's last one, and before CLIP's
SUMS = {"add_shards", "add_chunks", "fill", "mark_blocks", "add_sparse", "square_blocks", "square_all", "add_blocks", "add_all",
        "set_step"}
PHASES = ["FORWARD", "BACKWARD", "sums, norm", "UPDATE"]


def read(path):
    """The records by their start, with the kernels' names without parameters."""
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    names = sorted({row[5] for row in rows})
    shown = dict(zip(names, subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                                           check=True).stdout.split("\n")))
    kinds = {"C": "copy", "P": "copy to a GPU", "S": "memset"}
    records = [Record(kind, int(start), int(end), int(stream), int(size),
                      kinds.get(kind) or re.sub(r"^void |<.*|\(.*", "", shown[name]))
               for kind, start, end, stream, size, name in rows]
    return sorted(records, key=lambda record: record.start)


def steps_of(path):
    """Lists of records, from one FORWARD to the next."""
    steps = []
    for record in read(path):
        if record.name == FORWARD and (not steps or any(r.name == CLIP for r in steps[-1])):
            steps.append([])
        if steps:
            steps[-1].append(record)
    if len(steps) < 4:
        sys.exit(f"{path} has {len(steps)} steps with {FORWARD} and {CLIP}, and needs at least 4: train longer, with clipping")
    return steps[2:]  # the last one is the end of the one before it


def phases(step, following):
    """The ends of the PHASES, in ns."""
    loss = next(record for record in step if record.name == LOSS)
    clip = next(record for record in step if record.name == CLIP)
    backward = max(record.end for record in step
                   if record.kind == "K" and record.name not in SUMS and record.start < clip.start)
    return loss.start, backward, clip.end, following[0].start


def measure(steps):
    """Means of one process: milliseconds by name, and (count, milliseconds, streams) by kernel."""
    count = len(steps) - 1
    times, kernels = collections.Counter(), collections.defaultdict(lambda: [0, 0, set()])
    for step, following in zip(steps, steps[1:]):
        before = step[0].start
        times["step"] += (following[0].start - before) / 1e6 / count
        for name, end in zip(PHASES, phases(step, following)):
            times[name] += (end - before) / 1e6 / count
            before = end
        for record in step:
            entry = kernels[record.name]
            entry[0] += 1 / count
            entry[1] += (record.end - record.start) / 1e6 / count
            entry[2].add(record.stream)
    return times, kernels


def add_lateness(all_steps, all_times):
    last = min(len(steps) for steps in all_steps)
    for k in range(-last, -1):
        ends = [phases(steps[k], steps[k + 1])[1] for steps in all_steps]
        for times, end in zip(all_times, ends):
            times["late"] += (end - min(ends)) / 1e6 / (last - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--list", type=float, nargs=2, metavar=("FROM", "TO"))
    args = parser.parse_args()
    all_steps = [steps_of(path) for path in args.files]
    if args.list:
        step = all_steps[0][-2]
        for record in step:
            at = (record.start - step[0].start) / 1e6
            if args.list[0] <= at < args.list[1]:
                print(f"{at:9.3f} {(record.end - record.start) / 1e3:8.1f} us  stream {record.stream:3} {record.size:10} {record.name}")
        return
    measured = [measure(steps) for steps in all_steps]
    add_lateness(all_steps, [times for times, _ in measured])
    print("ms a step: " + ", ".join(args.files))
    for name in ("step", *PHASES, "late"):
        print(f"  {name:10}" + "".join(f"{times[name]:16.3f}" for times, _ in measured))
    keys = sorted({key for _, kernels in measured for key in kernels}, key=lambda key: -measured[0][1][key][1])
    for name in keys[:args.rows]:
        cells = "".join(f"{kernels[name][0]:8.1f}{kernels[name][1]:8.3f}" for _, kernels in measured)
        print(f"  {cells}  {len(measured[0][1][name][2]):3} streams  {name}")


if __name__ == "__main__":
    main()
