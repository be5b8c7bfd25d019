#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains sentence embeddings with snug and loads their folders with sentence-transformers: the same vectors.

    tools/compare/check_embeddings.py [--snug build/snug]       needs sentence-transformers

The models are those of tools/golden/embedding.py: a plain BERT, and folders of sentence-transformers with each pooling,
Dense and Normalize.
"""
import argparse
import json
import os
import shutil
import subprocess
import tempfile

import numpy
from sentence_transformers import SentenceTransformer

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden", "embedding")
MODEL_FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def make_folder(case, folder):
    for name in MODEL_FILES:
        shutil.copy(os.path.join(GOLDEN, "model", name), folder)
    for name, content in case["files"].items():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        json.dump(content, open(os.path.join(folder, name), "w"))
    for i, kind in enumerate(case["dense"]):
        if kind != "normalize":
            shutil.copy(os.path.join(GOLDEN, "model", f"{kind}.safetensors"),
                        os.path.join(folder, f"{i + 2}_Dense", "model.safetensors"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--snug", default="build/snug")
    snug = os.path.abspath(parser.parse_args().snug)
    golden = json.load(open(os.path.join(GOLDEN, "cases.json")))
    texts = [t for t in golden["texts"] if t]
    worst = 0
    for case in golden["cases"]:
        with tempfile.TemporaryDirectory() as folder:
            model, out = os.path.join(folder, "model"), os.path.join(folder, "out")
            os.mkdir(model)
            make_folder(case, model)
            with open(os.path.join(folder, "pairs.jsonl"), "w") as f:
                f.writelines(json.dumps({"anchor": a, "positive": b}) + "\n" for a in texts for b in texts)
            with open(os.path.join(folder, "texts.txt"), "w") as f:
                f.writelines(t + "\n" for t in texts)
            run = lambda *words: subprocess.run([snug, *words], check=True, cwd=folder, capture_output=True)
            run("train", "--task", "embedding", "--model_name_or_path", model, "--train_file", "pairs.jsonl",
                "--num_train_epochs", "2", "--learning_rate", "1e-3", "--mini_batch_size", "2", "--output_dir", out)
            run("embed", out, "--test_file", "texts.txt", "--output_file", "vectors.npy")
            ours = numpy.load(os.path.join(folder, "vectors.npy"))
            theirs = SentenceTransformer(out, device="cpu").encode(texts)
            before = SentenceTransformer(model, device="cpu").encode(texts)
            error, change = abs(ours - theirs).max(), abs(theirs - before).max()
            worst = max(worst, error)
            print(f"{case['name']}: largest difference {error:.2g}; the training changed vectors by {change:.2g}")
    if not worst < 1e-5:
        raise SystemExit(f"vectors differ by {worst:.2g}")


main()
