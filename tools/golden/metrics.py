# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/metrics.json: metrics as scikit-learn, scipy and seqeval compute them. A NaN is written as null."""

import json
import math
import pathlib
import warnings

import numpy as np
from scipy.stats import pearsonr, spearmanr
from seqeval.metrics import accuracy_score as tag_accuracy
from seqeval.metrics import classification_report
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, mean_squared_error

warnings.filterwarnings("ignore")
random = np.random.default_rng(7)


def rounded(rows):
    return np.round(random.normal(size=rows), 2).astype(np.float32)


def single(name, logits, labels):
    classes = logits.shape[1]
    predicted = logits.argmax(1)
    kept = labels != -100
    truth, predicted = labels[kept], predicted[kept]
    f1 = f1_score(truth, predicted) if classes == 2 else f1_score(truth, predicted, average="macro")
    metrics = {
        "eval_accuracy": accuracy_score(truth, predicted),
        "eval_f1": f1,
        "eval_matthews_correlation": matthews_corrcoef(truth, predicted),
    }
    return case(name, "single", classes, logits, labels, metrics)


def multi(name, logits, targets):
    predicted = (logits > 0).astype(int)
    metrics = {
        "eval_accuracy": accuracy_score(targets, predicted),
        "eval_f1": f1_score(targets, predicted, average="micro"),
    }
    return case(name, "multi", logits.shape[1], logits, targets, metrics)


def regression(name, predicted, targets):
    wide = predicted.astype(np.float64), targets.astype(np.float64)
    enough = len(predicted) > 1
    metrics = {
        "eval_mse": mean_squared_error(*wide) if np.isfinite(predicted).all() else math.nan,
        "eval_pearson": pearsonr(*wide)[0] if enough else math.nan,
        "eval_spearmanr": spearmanr(*wide)[0] if enough else math.nan,
    }
    return case(name, "regression", 1, predicted, targets, metrics)


def tags(name, names, lengths, share=0.5):
    """Sentences of random tags, of which a share is predicted right; each fifth position has no label."""
    rows = sum(lengths)
    truth = random.integers(0, len(names), rows)
    predicted = np.where(random.random(rows) < share, truth, random.integers(0, len(names), rows))
    one_hot = np.eye(len(names))[predicted]
    truth[::5] = -100
    sentences = [[], []]
    for begin, length in zip(np.cumsum([0, *lengths[:-1]]), lengths):
        kept = [i for i in range(begin, begin + length) if truth[i] != -100]
        sentences[0].append([names[truth[i]] for i in kept])
        sentences[1].append([names[predicted[i]] for i in kept])
    report = classification_report(*sentences, output_dict=True, zero_division=0)
    overall = report.pop("micro avg")
    for average in ("macro avg", "weighted avg"):
        report.pop(average)
    metrics = {
        "eval_precision": overall["precision"],
        "eval_recall": overall["recall"],
        "eval_f1": overall["f1-score"],
        "eval_accuracy": tag_accuracy(*sentences),
    }
    for kind, scores in report.items():
        for key, to in (("precision",) * 2, ("recall",) * 2, ("f1-score", "f1"), ("support", "number")):
            metrics[f"eval_{kind}_{to}"] = scores[key]
    return {**case(name, "tags", len(names), one_hot, truth, metrics), "names": names, "lengths": lengths}


def case(name, problem, classes, logits, targets, metrics):
    plain = lambda x: None if math.isnan(x) else round(float(x), 4)
    return {
        "name": name,
        "problem": problem,
        "classes": classes,
        "logits": [plain(x) for x in logits.ravel()],
        "targets": [plain(x) for x in targets.ravel()],
        "metrics": {key: None if math.isnan(value) else float(value) for key, value in metrics.items()},
    }


def logits(rows, classes):
    return np.round(random.normal(size=(rows, classes)), 2)


labels = lambda rows, classes: random.integers(0, classes, rows)
ignored = labels(20, 3)
ignored[::4] = -100
tied = np.round(random.normal(size=60) * 2).astype(np.float32)
CASES = [
    single("binary", logits(50, 2), labels(50, 2)),
    single("five classes", logits(60, 5), labels(60, 5)),
    single("classes that do not occur", logits(12, 6)[:, :6] + [9, 9, 0, 0, 0, 0], labels(12, 2)),
    single("some labels ignored", logits(20, 3), ignored),
    single("one class only, found", np.tile([[1.0, 0.0]], (5, 1)), np.zeros(5, int)),
    single("one class only, missed", np.tile([[1.0, 0.0]], (5, 1)), np.ones(5, int)),
    single("all predicted alike", np.tile([[0.0, 1.0]], (6, 1)), np.array([0, 1, 0, 1, 1, 1])),
    single("ties go to the first", np.zeros((4, 3)), np.array([0, 1, 2, 0])),
    multi("multi-label", logits(40, 4), random.integers(0, 2, (40, 4))),
    multi("multi-label, nothing there", -np.ones((3, 2)), np.zeros((3, 2), int)),
    regression("regression", rounded(50), rounded(50)),
    regression("regression, many ties", tied, np.round(tied + random.normal(size=60)).astype(np.float32)),
    regression("regression, far from zero", rounded(30) + np.float32(1024), rounded(30) - np.float32(512)),
    regression("regression, exact", np.arange(9, dtype=np.float32), np.arange(9, dtype=np.float32) * 2 - 3),
    regression("regression, no variance", np.ones(7, np.float32), rounded(7)),
    regression("regression, one row", np.ones(1, np.float32), np.zeros(1, np.float32)),
    regression("regression, not a number", np.array([1, math.nan, 2], np.float32), np.array([1, 2, 3], np.float32)),
    regression("regression, signed zeros", np.array([-0.0, 0.0, 1, 2], np.float32), np.array([1, 2, 3, 0], np.float32)),
    tags("tags, IOB2", ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"], [9, 1, 14, 6, 20, 2], 0.7),
    tags("tags, mostly inside", ["I-A", "O", "I-B"], [12, 12, 12, 12, 12, 12], 0.6),
    tags("tags, BIOES and types with a dash", ["B-X-Y", "I-X-Y", "E-X-Y", "S-X-Y", "O", "B-Y", "E-Y"], [15] * 4, 0.7),
    tags("tags, odd ones", ["B", "I", "O", "NOUN", ".", "É-X", "X", "O-Z", "S"], [7, 3, 8, 11, 1, 1, 9, 10], 0.6),
    tags("tags, numbered", ["LABEL_0", "LABEL_1", "LABEL_2"], [20, 20], 0.8),
    tags("tags, none right", ["B-A", "B-B"], [8, 8], 0.0),
]
path = pathlib.Path(__file__).parents[2] / "tests/golden/metrics.json"
path.write_text("[\n" + ",\n".join(json.dumps(case) for case in CASES) + "\n]\n")
