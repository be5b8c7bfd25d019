# SPDX-License-Identifier: Apache-2.0
"""What the benches of one GPU share: the steps of a peer under PyTorch's autocast to bf16, and running either side."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time


def time_steps(forward, parameters, optimizer, batches, steps):
    """The seconds of each step: loss, gradients, clipping to 1, update; and the device's memory in MiB after the last."""
    import torch

    times = []
    for step in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(**batches[step % len(batches)]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    free, total = torch.cuda.mem_get_info()
    return times, (total - free) / 2**20


def run(command, seconds):
    """What a command prints, and "", or None and why."""
    env = dict(os.environ, OMP_WAIT_POLICY="passive")
    env["LD_LIBRARY_PATH"] = f"{command[0].parent}/lib:{env.get('LD_LIBRARY_PATH', '')}"
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=max(1, seconds), env=env)
    except subprocess.TimeoutExpired:
        return None, "out of time"
    text = done.stdout + done.stderr
    return (text, "") if done.returncode == 0 else (None, text.strip()[-300:])


def train(dist, device, words, seconds):
    """A run of snug train with these words, as a user starts it, or None and why: samples and tokens a second from the first step to the
    last, MiB in use and planned, the losses, and what it printed."""
    with tempfile.TemporaryDirectory() as output:
        text, why = run([dist / "snug", "train", "--device", device, *words, "--save_strategy", "no", "--disable_tqdm", "--output_dir", output + "/out"],
                        seconds)
        if text is None:
            return None, why
        results, state = (json.loads((pathlib.Path(output) / "out" / name).read_text()) for name in ("train_results.json", "trainer_state.json"))
    rate, total = results["train_samples_per_second"], results["memory"]["total"]
    samples, tokens = map(int, re.search(r"(\d+)\s+samples,\s+(\d+)\s+tokens", text).groups())
    return {"rate": rate, "tokens": rate * tokens / samples, "mib": total["measured"] / 2**20, "planned": total["planned"] / 2**20,
            "losses": [entry["loss"] for entry in state["log_history"] if "loss" in entry], "text": text}, ""


def ask(script, words, seconds):
    """What a bench's peer prints after "result", in a process of its own, or None and why."""
    text, why = run([pathlib.Path(sys.executable), script, *words], seconds)
    found = re.search(r"^result (.*)$", text or "", re.MULTILINE)
    return (json.loads(found[1]), "") if found else (None, why or text[-300:])
