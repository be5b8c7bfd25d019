# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/class_metrics.json: what eval --class_metrics reports, as scikit-learn computes it: precision, recall,
F1 and number of each class, the confusion matrix, the area under the ROC curve, and for several labels the threshold with
the best F1. A NaN is written as null."""

import json
import math
import pathlib
import warnings

import numpy as np
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    matthews_corrcoef,
    precision_recall_curve,
    precision_recall_fscore_support,
    roc_auc_score,
)

warnings.filterwarnings("ignore")
random = np.random.default_rng(11)


def auc(truth, scores):
    return roc_auc_score(truth, scores) if 0 < truth.sum() < len(truth) else math.nan


def of_classes(metrics, names, truth, predicted, **arguments):
    report = precision_recall_fscore_support(truth, predicted, zero_division=0, **arguments)
    for what, values in zip(("precision", "recall", "f1", "number"), report):
        metrics.update({f"eval_{name}_{what}": value for name, value in zip(names, values)})


def single(name, logits, labels):
    classes = logits.shape[1]
    names = [f"c{i}" for i in range(classes)]
    kept = labels != -100
    truth, wide = labels[kept], logits[kept].astype(np.float32).astype(np.float64)
    predicted = wide.argmax(1)
    scores = np.exp(wide - wide.max(1, keepdims=True))
    scores = (scores / scores.sum(1, keepdims=True)).astype(np.float32)
    metrics = {
        "eval_accuracy": accuracy_score(truth, predicted),
        "eval_f1": f1_score(truth, predicted) if classes == 2 else f1_score(truth, predicted, average="macro"),
        "eval_matthews_correlation": matthews_corrcoef(truth, predicted),
    }
    of_classes(metrics, names, truth, predicted, labels=range(classes))
    if classes == 2:
        metrics["eval_auc"] = auc(truth, scores[:, 1])
    else:
        areas = [auc((truth == i).astype(int), scores[:, i]) for i in range(classes)]
        metrics.update({f"eval_{name}_auc": area for name, area in zip(names, areas)})
        metrics["eval_auc"] = float(np.mean(areas))
        if not np.isnan(areas).any():
            # The probabilities of float32 do not add up to 1 as exactly as this function asks for.
            exact = np.exp(wide - wide.max(1, keepdims=True))
            whole = roc_auc_score(truth, exact / exact.sum(1, keepdims=True), multi_class="ovr", average="macro")
            assert abs(whole - metrics["eval_auc"]) < 1e-12
    matrix = confusion_matrix(truth, predicted, labels=range(classes))
    return case(name, "single", logits, labels, metrics, names, 0, matrix.tolist())


def multi(name, logits, targets, threshold=0.0):
    classes = logits.shape[1]
    names = [f"c{i}" for i in range(classes)]
    wide = logits.astype(np.float32).astype(np.float64)
    exact = 1 / (1 + np.exp(-wide))
    predicted = (exact >= threshold if threshold else wide > 0).astype(int)
    scores = exact.astype(np.float32)
    metrics = {
        "eval_accuracy": accuracy_score(targets, predicted),
        "eval_f1": f1_score(targets, predicted, average="micro"),
    }
    of_classes(metrics, names, targets, predicted, average=None)
    areas = [auc(targets[:, i], scores[:, i]) for i in range(classes)]
    metrics["eval_auc"] = float(np.mean(areas))
    for i in range(classes):
        metrics[f"eval_{names[i]}_auc"] = areas[i]
        best, at = 0.0, math.nan
        if targets[:, i].any():
            thresholds = precision_recall_curve(targets[:, i], scores[:, i])[2]
            values = [f1_score(targets[:, i], scores[:, i] >= t) for t in thresholds]
            best, at = max(values), float(thresholds[int(np.argmax(values))])
        metrics[f"eval_{names[i]}_threshold"], metrics[f"eval_{names[i]}_best_f1"] = at, best
    return case(name, "multi", logits, targets, metrics, names, threshold, None)


def case(name, problem, logits, targets, metrics, names, threshold, confusion):
    return {
        "name": name,
        "problem": problem,
        "names": names,
        "threshold": threshold,
        "logits": [round(float(x), 4) for x in logits.ravel()],
        "targets": [int(x) for x in targets.ravel()],
        "metrics": {key: None if math.isnan(value) else float(value) for key, value in metrics.items()},
        "confusion": confusion,
    }


def logits(rows, classes, digits=2):
    return np.round(random.normal(size=(rows, classes)), digits)


labels = lambda rows, classes: random.integers(0, classes, rows)
ignored = labels(40, 3)
ignored[::4] = -100
CASES = [
    single("binary", logits(60, 2), labels(60, 2)),
    single("binary, many ties", logits(60, 2, 0), labels(60, 2)),
    single("binary, one class only", logits(9, 2), np.ones(9, int)),
    single("five classes", logits(80, 5), labels(80, 5)),
    single("some labels ignored", logits(40, 3), ignored),
    single("a class that does not occur", logits(30, 4), labels(30, 3)),
    multi("several labels", logits(50, 4), random.integers(0, 2, (50, 4))),
    multi("several labels, many ties", logits(50, 3, 0), random.integers(0, 2, (50, 3))),
    multi("several labels, another threshold", logits(50, 3), random.integers(0, 2, (50, 3)), 0.3),
    multi("a label that does not occur", logits(20, 2), random.integers(0, 2, (20, 2)) * [1, 0]),
]
path = pathlib.Path(__file__).parents[2] / "tests/golden/class_metrics.json"
path.write_text("[\n" + ",\n".join(json.dumps(case) for case in CASES) + "\n]\n")
