#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that transformers computes the same as snug with a folder that snug saved. Needs torch and transformers.

    build/snug predict --json --model_name_or_path OUT --test_file texts.txt > predictions.jsonl
    python tools/compare/check_saved.py OUT texts.txt predictions.jsonl

texts is read as snug reads it: .csv, .tsv (no quoting) and .jsonl have one or two text columns beside "label", any other file
one text a line. predictions holds the rows of `snug predict --json`; "-" reads them from standard input. Prints one line;
exits 1 if a logit is off by more than 1e-5. Matrices must be stored in the dtype of config.json, which is what from_pretrained
then loads by itself, and vectors in fp32; transformers computes in fp32. Of a causal LM, predictions is what
`snug eval --json --validation_file texts.txt` prints, and the mean loss of the tokens is compared. The rows of a masked LM or a token classifier hold
no logits: the folder must load without missing, unexpected or mismatched tensors and give finite logits, and predictions is
left out. tools/compare/check_families.py calls this for every family and task.
"""
import argparse
import csv
import json
import pathlib
import sys

import torch
from safetensors import safe_open
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification,
                          AutoModelForTokenClassification, AutoTokenizer, PreTrainedTokenizerFast, logging)

LIMIT = 1e-5
KINDS = {"ForMaskedLM": AutoModelForMaskedLM, "ForTokenClassification": AutoModelForTokenClassification,
         "ForSequenceClassification": AutoModelForSequenceClassification, "ForCausalLM": AutoModelForCausalLM,
         "LMHeadModel": AutoModelForCausalLM}


def read_texts(path, columns):
    """One tuple of one or two texts a row."""
    if path.suffix == ".jsonl" or path.suffix == ".json":
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.strip()]
    elif path.suffix in (".csv", ".tsv"):
        with open(path, encoding="utf-8", newline="") as file:
            tsv = path.suffix == ".tsv"
            rows = list(csv.DictReader(file, **({"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tsv else {})))
    else:
        with open(path, encoding="utf-8") as file:
            return [(line.rstrip("\n"),) for line in file]
    if columns is None:
        others = [name for name in rows[0] if name not in ("label", "idx")]
        columns = ["sentence1", "sentence2"] if {"sentence1", "sentence2"} <= set(others) else others[:2]
    return [tuple(row[name] for name in columns) for row in rows]


def check_types(folder, dtype, kind):
    with safe_open(folder / "model.safetensors", "pt") as file:
        for name in file.keys():
            tensor = file.get_tensor(name)
            if tensor.dtype != (dtype if tensor.dim() == 2 else torch.float32):
                sys.exit(f"{folder}: {name} is {tensor.dtype}, config.json says {dtype}")
    found = kind.from_pretrained(folder, dtype="auto").dtype
    if found != dtype:
        sys.exit(f"{folder}: loads as {found}, config.json says {dtype}")


def load(folder):
    """The model by the configuration's architectures; it must be complete."""
    config = AutoConfig.from_pretrained(folder)
    name = (config.architectures or [""])[0]
    kind = next((kind for end, kind in KINDS.items() if name.endswith(end)), None)
    if kind is None:
        sys.exit(f"{folder}: its architecture \"{name}\" is none that snug saves")
    check_types(folder, config.dtype, kind)
    model, info = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {what: sorted(map(str, names)) for what, names in info.items()
             if what in ("missing_keys", "unexpected_keys", "mismatched_keys") and names}
    if wrong:
        sys.exit(f"{folder}: loads incompletely: {json.dumps(wrong)}")
    return model.eval(), kind


def compute(model, tokenizer, texts, max_length):
    """Logits of each row, one text at a time: padding would add rounding errors."""
    known = ("input_ids", "token_type_ids") if hasattr(model.config, "type_vocab_size") else ("input_ids",)
    with torch.no_grad():
        for text in texts:
            encoded = tokenizer(*text, truncation="longest_first", max_length=max_length, return_tensors="pt")
            given = {name: value for name, value in encoded.items() if name in known}
            yield encoded["input_ids"][0], model(**given).logits[0]


def compare_loss(folder, found, path):
    """The mean loss of all tokens but each text's first with what snug evaluated."""
    losses = torch.cat([torch.nn.functional.cross_entropy(logits[:-1].double(), ids[1:], reduction="none")
                        for ids, logits in found])
    difference = abs(losses.mean().item() - json.loads(pathlib.Path(path).read_text())["eval_loss"])
    good = difference <= LIMIT
    print(f"{folder}: loss of {len(losses)} tokens differs by {difference:.2e}, limit {LIMIT:g}: {'good' if good else 'WRONG'}")
    sys.exit(0 if good else 1)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("predictions", nargs="?")
    parser.add_argument("--text_column_names", help="one or two, separated by a comma")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--tokenizer_json", action="store_true", help="use this file alone, whatever class the model type has")
    args = parser.parse_args(argv)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model, kind = load(args.folder)
    tokenizer = (PreTrainedTokenizerFast(tokenizer_file=str(args.folder / "tokenizer.json")) if args.tokenizer_json
                 else AutoTokenizer.from_pretrained(args.folder))
    texts = read_texts(args.texts, args.text_column_names.split(",") if args.text_column_names else None)
    if not texts:
        sys.exit(f"{args.texts}: no texts")
    embeddings = getattr(model.base_model, "embeddings", None)  # decoders have another name for them
    positions = getattr(embeddings, "position_embeddings", None)  # ModernBERT has no table of them
    padding = getattr(positions, "padding_idx", None)
    first = 0 if padding is None else padding + 1  # RoBERTa's position ids start at padding_idx + 1
    max_length = min(args.max_seq_length, model.config.max_position_embeddings - first)
    found = compute(model, tokenizer, texts, max_length)
    if args.predictions is None and kind in (AutoModelForSequenceClassification, AutoModelForCausalLM):
        parser.error("a classifier and a causal LM need what snug computed, to compare with")
    if kind is AutoModelForCausalLM:
        compare_loss(args.folder, found, args.predictions)
    if kind is not AutoModelForSequenceClassification:
        if not all(logits.isfinite().all() for _, logits in found):
            sys.exit(f"{args.folder}: logits are not finite")
        print(f"{args.folder}: {type(model).__name__} loads whole, {len(texts)} texts give finite logits")
        return
    with sys.stdin if args.predictions == "-" else open(args.predictions, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    if [row["index"] for row in rows] != list(range(len(texts))):
        sys.exit(f"{args.predictions}: {len(rows)} rows, not the {len(texts)} of {args.texts} in order")
    worst, where, wrong_labels = 0.0, 0, 0
    names = model.config.id2label
    for row, (_, logits) in zip(rows, found):
        given = torch.tensor(row["logits"])
        if given.shape != logits.shape:
            sys.exit(f"{args.predictions}: row {row['index']} has {len(given)} logits, transformers {len(logits)}")
        difference = (given - logits).abs().max().item()
        if not difference <= worst:  # a NaN counts as worst
            worst, where = difference, row["index"]
        if model.config.problem_type in (None, "single_label_classification") and len(logits) > 1:
            wrong_labels += row["label"] != names[int(given.argmax())]
    good = worst <= LIMIT and not wrong_labels
    print(f"{args.folder}: {len(rows)} texts, largest difference of a logit {worst:.2e} (row {where}), limit {LIMIT:g}, "
          f"{wrong_labels} labels named wrongly: {'good' if good else 'WRONG'}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
