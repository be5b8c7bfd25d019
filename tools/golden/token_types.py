#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/token_types.json: logits and losses of pairs of texts, for models and tokenizers that have token types, or not.

The models are those of tests/golden; "tokenizers" are the files of folders, to which "vocab" is added as vocab.txt, or into
tokenizer.json. A case has the number of its tokenizer, the logits of the pairs and the mean loss; both are null where transformers
fails, because the tokenizer returns the type 1, which the model does not have. As Trainer does, what a model's forward() does not
take is left out.

Usage: token_types.py [FOLDER]    (tests/golden; needs PyTorch and transformers)
"""
import inspect
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

MODELS = ["model/cls3", "families/electra/single", "families/distilbert/single", "families/roberta/single"]
VOCAB = ["[PAD]", "unused", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "day", "it", "was", "a", "the", "##s", "."]
PAIRS = [["a good film", "the day was bad ."], ["it was", "it was good"], ["bad films .", "a"], ["the film", "the film"]]
LABELS = [0, 2, 1, 2]
NAMES = ["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]


def tokenizer_json():
    special = lambda name, kind: {"SpecialToken": {"id": name, "type_id": kind}}
    single = [special("[CLS]", 0), {"Sequence": {"id": "A", "type_id": 0}}, special("[SEP]", 0)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": {
                "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": {
                "type": "TemplateProcessing", "single": single,
                "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}, special("[SEP]", 1)],
                "special_tokens": {name: {"id": name, "ids": [VOCAB.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                      "vocab": {token: i for i, token in enumerate(VOCAB)}}}


def tokenizers():
    for name in ("BertTokenizer", "ElectraTokenizerFast", "DistilBertTokenizer"):
        yield {"tokenizer_config.json": {"tokenizer_class": name}}
        for names in NAMES:
            yield {"tokenizer_config.json": {"tokenizer_class": name, "model_input_names": names}}
    named = dict(cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]")
    for more in ({}, {"model_input_names": NAMES[1]}):
        yield {"tokenizer.json": tokenizer_json(), "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **named, **more}}


def load(files):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "vocab.txt").write_text("".join(token + "\n" for token in VOCAB))
        for name, content in files.items():
            Path(folder, name).write_text(json.dumps(content))
        return AutoTokenizer.from_pretrained(folder)


def answers(model, tokenizer):
    takes = inspect.signature(model.forward).parameters
    logits = []
    with torch.no_grad():
        for pair in PAIRS:
            encoded = {name: value for name, value in tokenizer(*pair, return_tensors="pt").items() if name in takes}
            try:
                logits.append(model(**encoded).logits[0])
            except IndexError:
                return None, None
    loss = torch.nn.functional.cross_entropy(torch.stack(logits), torch.tensor(LABELS))
    return [row.tolist() for row in logits], loss.item()


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden")
    files, cases = list(tokenizers()), []
    for name in MODELS:
        model = AutoModelForSequenceClassification.from_pretrained(folder / name, dtype=torch.float32).eval()
        for number, one in enumerate(files):
            logits, loss = answers(model, load(one))
            cases.append({"model": name, "tokenizer": number, "logits": logits, "loss": loss})
    golden = {"vocab": VOCAB, "pairs": PAIRS, "labels": LABELS, "tokenizers": files, "cases": cases}
    (folder / "token_types.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
