#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/odd_files.json: what transformers' example scripts give for the cases of tests/cli/test_odd_files.py. Needs what
tools/golden/commands.py needs.

    python tools/golden/odd_files.py --scripts DIR [--build DIR] [CASE ...]

A script begins with the weights that snug draws: snug trains with a learning rate of 0. With cases, the others stay.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile

import numpy as np

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[2] / "tests/cli")]
import commands
import test_odd_files as odd_files


def script_of(case):
    if case.task == "token_classification":
        return "run_ner.py"
    return "run_classification.py" if "--text_column_names" in case.script_options else "run_glue.py"


def run(scripts, case, start, files, folder):
    """Trains, evaluates and predicts in the process of a script; returns the folder of its results."""
    output = folder / "script"
    options = [word for word in case.script_options if word not in ("--task", "ner")]
    words = [scripts / script_of(case), "--model_name_or_path", start, *(word for split in odd_files.SPLITS for word in (f"--{split}_file", files[split])),
             *odd_files.TRAINING, *options, "--do_train", "--do_eval", "--do_predict", "--report_to", "none", "--output_dir", output,
             "--per_device_eval_batch_size", "8"]
    with tempfile.TemporaryFile("w+") as log:
        process = multiprocessing.get_context("fork").Process(target=commands.run_script, args=([str(word) for word in words], folder, log))
        process.start()
        process.join()
        if process.exitcode:
            log.seek(0)
            raise RuntimeError(log.read())
    return output


def predictions(output):
    if (output / "predictions.txt").exists():
        return [line.split() for line in (output / "predictions.txt").read_text().splitlines()]
    recorded = json.loads((output / "logits.json").read_text())
    rows = []
    for row in np.array(recorded["logits"]):
        if recorded["problem"] == "regression" or len(row) == 1:
            rows.append([None, float(row[0])])
        elif recorded["problem"] == "multi_label_classification":
            every = 1 / (1 + np.exp(-row))
            rows.append(["|".join(name for name, value in zip(recorded["names"], every) if value > 0.5), float(every[every > 0.5].min(initial=1))])
        else:
            every = np.exp(row - row.max())
            rows.append([str(recorded["names"][row.argmax()]), float(every.max() / every.sum())])
    return rows


def outcome(scripts, snug, folder, case):
    _, plain = case.files(folder)
    words = odd_files.train_words(folder, case.model, plain, case.script_options, folder / "start")
    odd_files.run(snug, folder, *words, "--learning_rate", "0", "--max_steps", "1")
    output = run(scripts, case, folder / "start", plain, folder)
    results = json.loads((output / "all_results.json").read_text())
    keys = [key for key in results if key.startswith("eval_") and not key.endswith(("_second", "_runtime", "_samples", "_score", "_model_preparation_time"))]
    return {"train_loss": results["train_loss"], "eval": {key: results[key] for key in keys}, 
            "predictions": None if case.evaluation else predictions(output)}  # with them the script prints a tag for each token


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--build", type=pathlib.Path, default="build", metavar="DIR")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    snug = (options.build / "snug").resolve()
    names = options.cases or list(odd_files.CASES)
    golden = json.loads(odd_files.GOLDEN.read_text()) if odd_files.GOLDEN.exists() and options.cases else {}
    failed = []
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "huggingface"), "OMP_NUM_THREADS": "1", "SNUG_CACHE": str(folder / "cache"),
                       "SNUG_RATES": str(odd_files.ROOT / "tests/golden/rates.json")}
        import transformers  # once, for all scripts' processes

        for name in names:
            work = folder / name
            work.mkdir()
            (work / "bare").symlink_to(folder / "bare")
            try:
                odd_files.write_model(folder, odd_files.CASES[name].model, snug)
                golden[name] = outcome(options.scripts.resolve(), snug, work, odd_files.CASES[name])
            except RuntimeError as error:
                failed.append(name)
                print(f"{name}: {str(error)[-1500:]}")
    order = [name for name in odd_files.CASES if name in golden]
    odd_files.GOLDEN.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(golden[name])}" for name in order) + "\n}\n")
    print(f"{len(names) - len(failed)} of {len(names)} cases", *failed)


if __name__ == "__main__":
    main()
