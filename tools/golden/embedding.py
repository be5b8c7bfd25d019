#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Vectors of sentence-transformers: a tiny random BERT with each pooling, with and without Dense and Normalize, prompts, also where pooling leaves
them out.

    tools/golden/embedding.py       writes tests/golden/embedding (needs sentence-transformers)

The folder model is a BERT with two Dense modules beside it. cases.json has for each case the JSON files of its folder as
sentence-transformers writes them, by name, and the vectors of its texts.
"""
import json
import os
import shutil
import tempfile

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, BertModel, BertTokenizer

OUT = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden", "embedding")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man", "is", "eat", "##ing", "food", "the", "girl", "play", "music",
         "on", "two", "dogs", "run", "fast", "query", ":"]
TEXTS = ["a man is eating food", "the girl", "", "two dogs run fast fast fast on the food a man is playing music on"]
CASES = [
    ("plain", None, []),
    ("mean", "mean", ["normalize"]),
    ("cls", "cls", []),
    ("lasttoken", "lasttoken", ["normalize"]),
    ("weightedmean", "weightedmean", ["tanh"]),
    ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens", ["tanh", "normalize"]),
    ("normalized before a linear", "mean", ["normalize", "identity"]),
    ("two linears", "cls", ["tanh", "relu", "normalize"]),
]
WITHOUT_PROMPT = ["cls", "lasttoken", "weightedmean", "mean_sqrt_len_tokens", "normalized before a linear"]
SIZES = {"tanh": (24, 12), "identity": (24, 12), "relu": (12, 8)}
ACTIVATIONS = {"tanh": torch.nn.Tanh, "identity": torch.nn.Identity, "relu": torch.nn.ReLU}


def json_files(folder):
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.relpath(os.path.join(at, name), folder)
            keep = path in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")
            if keep or path.endswith(os.sep + "config.json"):
                found[path] = json.load(open(os.path.join(at, name)))
    return found


def main():
    torch.manual_seed(7)
    model_folder = os.path.join(OUT, "model")
    shutil.rmtree(model_folder, ignore_errors=True)
    os.makedirs(model_folder)
    with open(os.path.join(model_folder, "vocab.txt"), "w") as f:
        f.write("\n".join(WORDS) + "\n")
    BertTokenizer(os.path.join(model_folder, "vocab.txt"), model_max_length=32).save_pretrained(model_folder)
    config = BertConfig(vocab_size=len(WORDS), hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=40, max_position_embeddings=40, hidden_dropout_prob=0.1, initializer_range=0.4)
    BertModel(config, add_pooling_layer=False).save_pretrained(model_folder)
    dense = {kind: Dense(*size, activation_function=ACTIVATIONS[kind]()) for kind, size in SIZES.items()}
    for kind, module in dense.items():
        save_file({k: v.contiguous() for k, v in module.state_dict().items()},
                  os.path.join(model_folder, f"{kind}.safetensors"))
    cases = []
    for name, pooling, tail in CASES:
        if pooling is None:
            model = SentenceTransformer(model_folder, device="cpu")
            files = {}
        else:
            modules = [Transformer(model_folder), Pooling(24, pooling)]
            modules += [Normalize() if t == "normalize" else dense[t] for t in tail]
            model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "query: ", "document": ""})
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                files = json_files(folder)
        case = {"name": name, "files": files, "dense": tail, "vectors": model.encode(TEXTS).tolist()}
        if files:
            case["query_vectors"] = model.encode(TEXTS, prompt_name="query").tolist()
        if name in WITHOUT_PROMPT:
            model.set_pooling_include_prompt(False)
            case["without_prompt_vectors"] = model.encode(TEXTS, prompt_name="query").tolist()
        cases.append(case)
    with open(os.path.join(OUT, "cases.json"), "w") as f:
        json.dump({"texts": TEXTS, "cases": cases}, f, indent=1)
        f.write("\n")


main()
