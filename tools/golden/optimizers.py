# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/optimizers.safetensors: parameters after each of 12 steps of torch's, transformers' and bitsandbytes'
optimizers, computed in double where
they can and rounded once. Needs torch, transformers, bitsandbytes, safetensors.

g.NAME [12, …] are the gradients and p.NAME the parameters before the first step, the same for all cases: a matrix, a vector,
and three matrices that snug keeps as one tensor. CASE.NAME [12, …] are the parameters after each step. The learning rate
of a case falls by 1/20 of it a step. Weight decay is as in Trainer: not for the vector. The cases' names, settings and rates
are in tests/optim/test_optimizers.c, too.
"""
import pathlib

import bitsandbytes
import torch
from safetensors.torch import save_file
from transformers.optimization import Adafactor

STEPS = 12
SHAPES = {"matrix": (7, 19), "vector": (23,), "stack0": (5, 6), "stack1": (5, 6), "stack2": (5, 6)}
BETAS = {"betas": (0.9, 0.999), "eps": 1e-8}
FACTORED = {"scale_parameter": False, "relative_step": False}
CASES = {
    "adamw": (torch.optim.AdamW, 1e-2, BETAS),
    "adam": (torch.optim.Adam, 1e-2, BETAS),
    "sgd": (torch.optim.SGD, 1e-2, {}),
    "sgd_momentum": (torch.optim.SGD, 1e-2, {"momentum": 0.9, "dampening": 0.2}),
    "sgd_nesterov": (torch.optim.SGD, 1e-2, {"momentum": 0.9, "nesterov": True}),
    "adagrad": (torch.optim.Adagrad, 1e-2, {}),
    "adagrad_all": (torch.optim.Adagrad, 1e-2, {"lr_decay": 0.05, "initial_accumulator_value": 0.1, "eps": 1e-6}),
    "rmsprop": (torch.optim.RMSprop, 1e-3, {}),
    "rmsprop_momentum": (torch.optim.RMSprop, 1e-3, {"momentum": 0.8, "alpha": 0.9, "eps": 1e-4}),
    "rmsprop_centered": (torch.optim.RMSprop, 1e-3, {"centered": True}),
    "rmsprop_all": (torch.optim.RMSprop, 1e-3, {"centered": True, "momentum": 0.8, "alpha": 0.9}),
    "adafactor": (Adafactor, 1e-2, FACTORED),
    "adafactor_scaled": (Adafactor, 1e-2, {"scale_parameter": True, "relative_step": False, "eps": (1e-30, 1.0)}),
    "adafactor_momentum": (Adafactor, 1e-2, {**FACTORED, "beta1": 0.9, "decay_rate": -0.5, "clip_threshold": 0.6}),
    "adafactor_relative": (Adafactor, None, {"scale_parameter": True, "relative_step": True}),
    "adafactor_warmup": (Adafactor, None, {"scale_parameter": True, "relative_step": True, "warmup_init": True}),
    "lion": (bitsandbytes.optim.Lion, 1e-3, {"betas": (0.9, 0.999), "optim_bits": 32}),
}

torch.manual_seed(20261121)
start = {name: torch.randn(shape) for name, shape in SHAPES.items()}
# Sizes differ from row to row and from step to step, so that factors, clipping and variances matter.
gradients = {name: torch.randn(STEPS, *shape) * torch.rand(shape[0]).reshape(-1, *[1] * (len(shape) - 1)) *
             torch.linspace(0.2, 2, STEPS).reshape(-1, *[1] * len(shape)) + 0.3 for name, shape in SHAPES.items()}
golden = {f"p.{name}": value for name, value in start.items()} | {f"g.{name}": value for name, value in gradients.items()}
for case, (kind, rate, settings) in CASES.items():
    exact = torch.float32 if case == "lion" else torch.float64  # bitsandbytes has no double
    parameters = {name: torch.nn.Parameter(value.to(exact, copy=True)) for name, value in start.items()}
    groups = [{"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = kind(groups, lr=rate, **settings)
    history = {name: [] for name in parameters}
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate and rate * (1 - step / 20)
        for name, parameter in parameters.items():
            parameter.grad = gradients[name][step].to(exact, copy=True)
        optimizer.step()
        for name, parameter in parameters.items():
            history[name].append(parameter.detach().to(torch.float32, copy=True))
    golden |= {f"{case}.{name}": torch.stack(values) for name, values in history.items()}
save_file(golden, pathlib.Path(__file__).parents[2] / "tests/golden/optimizers.safetensors")
