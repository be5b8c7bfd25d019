#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Errors of torch.autocast on the models of tests/golden/model: the bounds for 16-bit training in the tests.

    python tools/golden/autocast.py [--device cuda] > tests/golden/autocast.json     (torch, transformers; a GPU)

For each case and type the relative L2 errors of the logits, and of all gradients taken as one vector (fp16's with a loss
scale of 65536 or the next power of two below that nothing overflows with, divided out), against the float64 values that
model.py wrote, of a classifier's many rows.
"""
import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import BertForMaskedLM, BertForSequenceClassification

FOLDER = pathlib.Path(__file__).parents[2] / "tests/golden/model"


def padded(rows, fill):
    width = max(len(row) for row in rows)
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def errors(case, dtype, device):
    """Of logits and of gradients."""
    folder = FOLDER / case["folder"]
    mlm = case["task"] == "mlm"
    expected = load_file(folder / ("expected.safetensors" if mlm else "many.safetensors"))
    lengths = [int(n) for n in expected["lengths"]]
    cut = lambda name: [part.int().tolist() for part in expected[name].split(lengths)]
    labels = expected["labels"]
    if mlm:
        labels = padded(cut("labels"), -100)
    elif case["problem_type"] == "single_label_classification":
        labels = labels.long()
    model = (BertForMaskedLM if mlm else BertForSequenceClassification).from_pretrained(folder, dtype=torch.float32)
    model = model.to(device).eval()
    labels = labels.to(device)
    ids = padded(cut("input_ids"), 0).to(device)
    mask = padded([[1] * n for n in lengths], 0).to(device)
    with torch.autocast(device, dtype=dtype):
        out = model(input_ids=ids, token_type_ids=padded(cut("token_type_ids"), 0).to(device), attention_mask=mask,
                    labels=labels if labels.dtype != torch.float32 or not mlm else labels.long())
    logits = (out.logits[labels != -100] if mlm else out.logits).detach().cpu().double().flatten()
    scale = 65536.0 if dtype == torch.float16 else 1.0
    (out.loss * scale).backward(retain_graph=True)
    while not all(parameter.grad.isfinite().all() for parameter in model.parameters()):
        scale /= 2
        model.zero_grad()
        (out.loss * scale).backward(retain_graph=True)
    truth = expected["logits"].double().flatten()
    found, wanted = [], []
    for name, parameter in model.named_parameters():
        if name.endswith("key.bias"):  # its true gradient is zero
            continue
        found.append(parameter.grad.cpu().double().flatten() / scale)
        wanted.append(expected[f"grad.{name}"].double().flatten())
    found, wanted = torch.cat(found), torch.cat(wanted)
    relative = lambda a, b: ((a - b).norm() / b.norm()).item()
    return {"logits": relative(logits, truth), "gradients": relative(found, wanted)}


parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
device = parser.parse_args().device
cases = json.loads((FOLDER / "cases.json").read_text())["cases"]
result = {"made": f"torch {torch.__version__}, " + (torch.cuda.get_device_name() if device == "cuda" else "cpu"), "cases": {}}
for case in cases:
    if not case["gradients"] or case["label_smoothing_factor"]:
        continue
    result["cases"][case["name"]] = {
        "BF16": errors(case, torch.bfloat16, device), "F16": errors(case, torch.float16, device)}
    print(case["name"], result["cases"][case["name"]], file=sys.stderr)
json.dump(result, sys.stdout, indent=1)
print()
