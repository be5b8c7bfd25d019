#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the numbers of tests/cli/commands/commands.txt: those that transformers' example scripts give for the same arguments
and files, on the CPU in fp32. Needs torch, transformers, datasets 4 or later, accelerate, scikit-learn, scipy, seqeval, and
the scripts (examples/pytorch in transformers' repository; the file has the numbers of 4.57.5's with transformers 5.24).

    python tools/golden/commands.py --scripts DIR [--build DIR]

In a line ": FILE NAME = NUMBERS" the numbers are replaced by those that the script wrote under the same name; the lines of a
command that predicts are replaced by a line for each row. "test_commands files" writes the models and data. A script that
trains starts with the weights that snug gives a new head: snug trains it with a learning rate of 0. A command that evaluates
or predicts uses the folder that the script saved.
"""

import argparse
import importlib.machinery
import json
import multiprocessing
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import types

import numpy as np

FILE = pathlib.Path(__file__).resolve().parents[2] / "tests/cli/commands/commands.txt"
# What snug remembers of a training, and the scripts do not.
DATA = ["train_file", "validation_file", "test_file", "text_column_name", "text_column_names", "text_column_delimiter",
        "label_column_name", "max_seq_length"]
# Names that transformers 5 no longer accepts, and those that it or the scripts do not have.
OLDER = {"evaluation_strategy": "eval_strategy", "per_gpu_train_batch_size": "per_device_train_batch_size",
         "warmup_ratio": "warmup_steps"}
ABSENT = ["task", "return_all_scores", "save_safetensors", "local_rank"]
# Arguments with which a training of snug changes no weight.
UNCHANGED = ["--learning_rate", "0", "--lr_scheduler_type", "linear", "--max_steps", "1", "--eval_strategy", "no",
             "--save_strategy", "no", "--load_best_model_at_end", "False"]


# ---- in the script's process ----------------------------------------------------------------------------------------


def metric(name, **_):
    """In place of evaluate.load(), which needs a hub: the libraries that the hub's metrics call. Classes and numbers have
    all metrics that snug reports, not only the script's."""
    import seqeval.metrics
    from scipy.stats import pearsonr, spearmanr
    from sklearn import metrics

    def of_classes(truth, predicted):
        average = "binary" if max(truth) < 2 else "macro"
        return {"accuracy": metrics.accuracy_score(truth, predicted),
                "f1": metrics.f1_score(truth, predicted, average=average),
                "matthews_correlation": metrics.matthews_corrcoef(truth, predicted)}

    def of_numbers(truth, predicted):
        return {"mse": metrics.mean_squared_error(truth, predicted), "pearson": pearsonr(predicted, truth)[0],
                "spearmanr": spearmanr(predicted, truth)[0]}

    def of_labels(truth, predicted):
        return {"f1": metrics.f1_score(truth, predicted, average="micro"),
                "accuracy": metrics.accuracy_score(truth, predicted)}

    def of_entities(truth, predicted):
        report = seqeval.metrics.classification_report(truth, predicted, output_dict=True)
        entities = {entity: {"precision": values["precision"], "recall": values["recall"], "f1": values["f1-score"],
                             "number": values["support"]} for entity, values in report.items() if " avg" not in entity}
        whole = {"precision": seqeval.metrics.precision_score, "recall": seqeval.metrics.recall_score,
                 "f1": seqeval.metrics.f1_score, "accuracy": seqeval.metrics.accuracy_score}
        return entities | {f"overall_{key}": function(truth, predicted) for key, function in whole.items()}

    function = {"accuracy": of_classes, "mse": of_numbers, "f1": of_labels, "seqeval": of_entities}[name]

    def floats(values):
        return {key: floats(value) if isinstance(value, dict) else float(value) for key, value in values.items()}

    return types.SimpleNamespace(compute=lambda predictions, references, **_: floats(function(references, predictions)))


def run_script(arguments, folder, log):
    """Runs a script in the folder; writes what Trainer.predict() returned into its output folder."""
    import datasets
    import transformers

    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(log.fileno(), stream)
    datasets.List.dtype = "list"  # as before datasets 4, for run_classification.py
    predict = transformers.Trainer.predict

    def recorded(self, *args, **named):
        result = predict(self, *args, **named)
        path = pathlib.Path(self.args.output_dir) / "logits.json"
        config = self.model.config
        path.write_text(json.dumps({"logits": result.predictions.tolist(), "names": list(config.id2label.values()),
                                    "problem": config.problem_type}))
        return result

    transformers.Trainer.predict = recorded
    evaluate = types.ModuleType("evaluate")
    evaluate.__spec__ = importlib.machinery.ModuleSpec("evaluate", None)
    evaluate.load = metric
    sys.modules["evaluate"] = evaluate
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


# ---- commands -------------------------------------------------------------------------------------------------------


def arguments_of(words, folder):
    """Names with their values, from the words after "snug VERB"."""
    if words[0].endswith(".json"):
        return {name: str(value) for name, value in json.loads((folder / words[0]).read_text()).items()}
    arguments, name = {}, None
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            arguments[name] = value or "True"
        else:
            arguments[name] = word
    return arguments


def script_of(arguments):
    task = arguments.get("task")
    if task:
        return {"ner": "run_ner.py", "mlm": "run_mlm.py"}[task]
    classification = {"text_column_names", "label_column_name"} & set(arguments)
    return "run_classification.py" if classification else "run_glue.py"


class Runner:
    def __init__(self, folder, scripts, snug):
        self.folder, self.scripts, self.snug = folder, scripts, snug
        self.trained = {}  # by output folder: the script and the data's arguments

    def start(self, words):
        """A model with the head that snug gives this training."""
        output = tempfile.mkdtemp(dir=self.folder)
        subprocess.run([self.snug, *words[1:], *UNCHANGED, "--output_dir", output], cwd=self.folder, check=True,
                       capture_output=True)
        return output

    def run(self, command):
        """The folder of the script's results, for a command that trains, evaluates or predicts."""
        words = shlex.split(command)
        verb, arguments = words[1], arguments_of(words[2:], self.folder)
        model = arguments["model_name_or_path"]
        if verb == "train":
            output = arguments["output_dir"]
            script = script_of(arguments)
            data = {"validation_file": arguments["train_file"]} | arguments
            self.trained[output] = script, {name: data[name] for name in DATA if name in data}
            arguments["model_name_or_path"] = self.start(words)
        else:
            script, data = self.trained[model]
            arguments = data | arguments
            if "text" in arguments:
                row = f"{arguments.pop('text')},{arguments.pop('text_pair')},0"
                (self.folder / "text.csv").write_text(f"sentence1,sentence2,label\n{row}\n")
                arguments["test_file"] = "text.csv"
            output = tempfile.mkdtemp(dir=self.folder)
        if script != "run_mlm.py":
            arguments.setdefault("validation_file", arguments["train_file"])
        arguments["do_" + verb] = "True"
        arguments |= {"output_dir": output, "use_cpu": "True", "report_to": "none"}
        if arguments.pop("group_by_length", None):
            arguments["train_sampling_strategy"] = "group_by_length"
        arguments = {OLDER.get(name, name): value for name, value in arguments.items() if name not in ABSENT}
        words = [word for name, value in arguments.items() for word in (f"--{name}", value)]
        with tempfile.TemporaryFile("w+") as log:
            words.insert(0, str(next(self.scripts.rglob(script))))
            process = multiprocessing.get_context("fork").Process(target=run_script, args=(words, self.folder, log))
            process.start()
            process.join()
            if process.exitcode:
                log.seek(0)
                sys.exit(f"{command}\n{log.read()}")
        return self.folder / output


# ---- numbers --------------------------------------------------------------------------------------------------------


def shown(number):
    return f"{number:.8g}"


def values_in(json_file, name):
    """The numbers of all keys of this name, in the file's order."""
    found = []

    def collect(pairs):
        found.extend(value for key, value in pairs if key == name)
        return dict(pairs)

    json.loads(json_file.read_text(), object_pairs_hook=collect)
    return found


def rows_of(output):
    """What snug predict prints, of the script's tags or logits; for several labels with --return_all_scores."""
    if (output / "predictions.txt").exists():
        return (output / "predictions.txt").read_text().splitlines()
    recorded = json.loads((output / "logits.json").read_text())
    names, rows = recorded["names"], []
    for i, row in enumerate(np.array(recorded["logits"])):
        if recorded["problem"] == "regression":
            label, scores = "", [row[0], row[0]]
        elif recorded["problem"] == "multi_label_classification":
            every = 1 / (1 + np.exp(-row))
            chosen = every > 0.5
            label, scores = ",".join(["", "|".join(np.array(names)[chosen])]), [every[chosen].min(initial=1), *every]
        else:
            every = np.exp(row - row.max())
            label, scores = "," + names[row.argmax()], [every.max() / every.sum()]
        rows.append(f"{i}{label} = " + " ".join(map(shown, scores)))
    return rows


def numbers(line, output):
    """The line with the script's numbers."""
    file, name = re.fullmatch(r": (\S+) (.*?)(?: = .*)?", line).groups()
    path = output / ("all_results.json" if file == "-" else pathlib.Path(file).name)
    values = values_in(path, name) or values_in(path, name.replace("eval_", "eval_overall_"))
    if not values:
        sys.exit(f"{line}: {path} has no {name}")
    return f": {file} {name} = " + " ".join(map(shown, values))


def rewritten(text, runner):
    """The file's text with the scripts' numbers."""
    blocks = []
    for block in (block.splitlines() for block in text.split("\n\n")):
        if any(line.startswith(": ") for line in block):
            end = next(i for i, line in enumerate(block) if line.startswith("= "))
            command = " ".join(line.rstrip("\\") for line in block[:end] if not line.startswith("#"))
            print(command, flush=True)
            output = runner.run(command)
            if shlex.split(command)[1] == "predict":
                block = [line for line in block if not line.startswith(": ")]
                block += [f": - {row}" for row in rows_of(output)]
            else:
                block = [numbers(line, output) if line.startswith(": ") else line for line in block]
        blocks.append("\n".join(block))
    return "\n\n".join(blocks) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--build", type=pathlib.Path, default="build", metavar="DIR")
    options = parser.parse_args()
    build = options.build.resolve()
    folder = pathlib.Path(subprocess.run([build / "test_commands", "files"], check=True, capture_output=True,
                                         text=True).stdout.strip())  # fmt: skip
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "huggingface"), "OMP_NUM_THREADS": "1"}
    import transformers  # once, for all scripts' processes

    try:
        FILE.write_text(rewritten(FILE.read_text(), Runner(folder, options.scripts.resolve(), build / "snug")))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
