# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/schedule.json: learning rates that transformers' get_scheduler gives. Needs torch, transformers."""

import json
import pathlib
import warnings

import torch
from transformers import get_scheduler

warnings.filterwarnings("ignore")
CASES = [
    ("linear", {}, 4, 20),
    ("linear", {}, 0, 7),
    ("linear", {}, 30, 20),
    ("cosine", {}, 3, 20),
    ("cosine", {"num_cycles": 1.5}, 3, 20),
    ("cosine_with_restarts", {}, 2, 20),
    ("cosine_with_restarts", {"num_cycles": 3}, 2, 20),
    ("polynomial", {}, 3, 20),
    ("polynomial", {"power": 2.0, "lr_end": 1e-6}, 3, 20),
    ("constant", {}, 5, 20),
    ("constant_with_warmup", {}, 5, 20),
    ("inverse_sqrt", {}, 5, 20),
    ("inverse_sqrt", {}, 0, 20),
    ("inverse_sqrt", {"timescale": 50}, 5, 20),
    ("cosine_with_min_lr", {"min_lr": 1e-5}, 3, 20),
    ("cosine_with_min_lr", {"min_lr_rate": 0.1, "num_cycles": 0.75}, 3, 20),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1}, 3, 20),
    ("cosine_warmup_with_min_lr", {"min_lr": 1e-6, "warmup_lr_rate": 0.2}, 4, 20),
    ("warmup_stable_decay", {"num_decay_steps": 6}, 4, 20),
    ("warmup_stable_decay", {"num_decay_steps": 6, "num_stable_steps": 3, "min_lr_ratio": 0.1}, 4, 20),
    ("warmup_stable_decay", {"num_decay_steps": 6, "warmup_type": "cosine", "decay_type": "1-sqrt"}, 4, 20),
    ("warmup_stable_decay", {"num_decay_steps": 6, "warmup_type": "1-sqrt", "decay_type": "linear"}, 4, 20),
]

golden = []
for name, kwargs, warmup, total in CASES:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=5e-5)
    scheduler = get_scheduler(name, optimizer, warmup, total, kwargs)
    rates = []
    for _ in range(total + 3):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    golden.append(
        {"type": name, "kwargs": json.dumps(kwargs), "base": 5e-5, "warmup": warmup, "total": total, "rates": rates}
    )
path = pathlib.Path(__file__).parents[2] / "tests/golden/schedule.json"
path.write_text("[\n" + ",\n".join(json.dumps(case) for case in golden) + "\n]\n")
