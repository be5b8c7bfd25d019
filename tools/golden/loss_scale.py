#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loss scale of torch.amp.GradScaler over steps of which some overflow, for tests/optim/test_loss_scale.c.

loss_scale.py > tests/golden/loss_scale.json
"""
import json
import random

import torch


def run(steps, overflows):
    """The steps whose gradients are infinite, and the scale and the updates done wherever the scale changes."""
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.zeros(()))  # the scale is made at its first use
    changes, updates = [], 0
    for step in range(steps):
        before = scaler.get_scale()
        parameter.grad = torch.full((3,), float("inf") if step in overflows else 1.0)
        old = parameter.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        updates += not torch.equal(old, parameter)
        if scaler.get_scale() != before:
            changes.append([step, scaler.get_scale(), updates])
    return {"steps": steps, "overflows": sorted(overflows), "updates": updates, "changes": changes}


random.seed(1)
cases = [
    run(100, set()),
    run(4100, {0, 1, 2}),
    run(6100, {1999, 2000, 4000}),
    run(5000, {1998, 3999}),
    run(40, set(range(40))),
    run(20000, set(random.sample(range(20000), 12))),
]
print(json.dumps({"torch": torch.__version__.split("+")[0], "cases": cases}, indent=1))
