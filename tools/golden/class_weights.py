#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The losses of torch.nn.CrossEntropyLoss(weight=…) and torch.nn.BCEWithLogitsLoss(pos_weight=…), their gradients, and
scikit-learn's balanced weights, for tests/train/test_class_weights.c.

class_weights.py > tests/golden/class_weights.json
"""
import json

import numpy
import torch
from sklearn.utils.class_weight import compute_class_weight

ROWS, CLASSES = 12, 5


def case(weights, smoothing, several):
    logits = (torch.randn(ROWS, CLASSES) * 3).requires_grad_()
    if several:
        target = torch.randint(0, 2, (ROWS, CLASSES)).float()
        loss = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weights))(logits, target)
    else:
        target = torch.randint(0, CLASSES, (ROWS,))
        target[::5] = -100
        loss = torch.nn.CrossEntropyLoss(weight=torch.tensor(weights), label_smoothing=smoothing)(logits, target)
    loss.backward()
    return {
        "several": several,
        "weights": weights,
        "smoothing": smoothing,
        "logits": logits.flatten().tolist(),
        "target": target.flatten().tolist(),
        "loss": loss.item(),
        "gradient": logits.grad.flatten().tolist(),
    }


torch.manual_seed(3)
cases = [
    case([1.0, 2.0, 0.5, 3.0, 0.25], 0.0, False),
    case([1.0, 2.0, 0.5, 3.0, 0.25], 0.1, False),
    case([0.0, 2.0, 0.0, 1e-3, 1e3], 0.3, False),
    case([1.0, 1.0, 1.0, 1.0, 1.0], 0.1, False),
    case([1.0, 2.0, 0.0, 30.0, 0.25], 0.0, True),
]
labels = ["negative"] * 5 + ["neutral"] * 2 + ["positive"] * 9
balanced = compute_class_weight("balanced", classes=numpy.unique(labels), y=labels)
print(
    json.dumps(
        {
            "torch": torch.__version__.split("+")[0],
            "cases": cases,
            "labels": labels,
            "balanced": balanced.tolist(),
        },
        indent=1,
    )
)
