# SPDX-License-Identifier: Apache-2.0
"""What the benches of one GPU share: the steps of a peer under PyTorch's autocast to bf16, and running either side."""
import os
import subprocess
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
