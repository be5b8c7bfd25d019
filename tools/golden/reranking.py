#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/reranking: queries with documents, tiny models of two families, and what sentence-transformers' CrossEncoder
makes of them: the losses of a training loop, scores, and the figures of its CrossEncoderRerankingEvaluator.

    python tools/golden/reranking.py        (needs torch, transformers and sentence-transformers)"""
import csv
import json
import pathlib
import random
import shutil

import torch
import transformers
from sentence_transformers.cross_encoder import CrossEncoder, losses
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from tokenizers import ByteLevelBPETokenizer

BATCH, EPOCHS, LENGTH = 4, 3, 24
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 40,
         "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "initializer_range": 0.3}
FAMILIES = {
    "bert": (transformers.BertConfig, SIZES),
    "roberta": (transformers.RobertaConfig, SIZES | {"type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}),
}  # fmt: skip

random.seed(5)
torch.set_num_threads(1)
folder = pathlib.Path(__file__).parents[2] / "tests/golden/reranking"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)

# ---- data

WORDS = "red blue house king dog river old new tree apple night day school child book".split()
text = lambda least, most: " ".join(random.choice(WORDS) for _ in range(random.randint(least, most)))
queries = [text(1, 4) + "?" for _ in range(12)]
pairs = [{"query": random.choice(queries), "document": text(2, 9), "label": random.choice([0, 1, 1, 0.25])} for _ in range(14)]
listed = []
for i, q in enumerate(queries[:9]):
    docs = [text(2, 7) + f" {k}" for k in range(2 + i % 4)]
    listed.append({"query": q, "docs": docs, "labels": [random.choice([0, 1, 2, 0.5]) for _ in docs]})
margins = [{"query": q, "positive": text(2, 7), "negative": text(2, 7), "label": round(random.uniform(-1, 3), 3)} for q in queries[:10]]
triples = [{"query": q, "positive": text(2, 7), "negative_1": text(2, 7), "negative_2": text(2, 7),
            "label": [round(random.uniform(-1, 3), 3) for _ in range(2 + i % 2)]} for i, q in enumerate(queries[:8])]  # fmt: skip
dev = [{"query": q, "positive": [text(2, 6) + " a"], "negative": [text(2, 6) + f" {k}" for k in range(3 + i)]}
       for i, q in enumerate(queries)]  # fmt: skip
files = {"binary": pairs, "listnet": listed, "margin": margins, "margins": triples, "dev": dev}
for name, rows in files.items():
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
with open(folder / "binary.csv", "w", newline="") as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["query", "document", "label"])
    writer.writerows([r["query"], r["document"], r["label"]] for r in pairs)
(folder / "docs.txt").write_text("".join(d + "\n" for d in dev[-1]["negative"]))

(folder / "wordpiece").mkdir()
tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"?abcd0123456789"]
(folder / "wordpiece/vocab.txt").write_text("\n".join(tokens) + "\n")
(folder / "wordpiece/tokenizer_config.json").write_text('{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}\n')
bpe = ByteLevelBPETokenizer()
bpe.train_from_iterator([text(5, 9) for _ in range(50)], vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
                        show_progress=False)  # fmt: skip
(folder / "bytes").mkdir()
bpe.save_model(str(folder / "bytes"))
(folder / "bytes/tokenizer_config.json").write_text('{"tokenizer_class": "RobertaTokenizer"}\n')

# ---- losses

COLUMNS = {"binary": ("query", "document"), "listnet": ("query", "docs"), "margin": ("query", "positive", "negative"),
           "margins": ("query", "positive", "negative_1", "negative_2")}  # fmt: skip
LOSSES = {"binary": losses.BinaryCrossEntropyLoss, "listnet": losses.ListNetLoss, "margin": losses.MarginMSELoss,
          "margins": losses.MarginMSELoss}  # fmt: skip


def labels(name, rows):
    if name in ("binary", "margin"):
        return torch.tensor([float(r["label"]) for r in rows])
    if name == "margins":  # rows of scores, or of margins
        margin = lambda l: l if len(l) == 2 else [l[0] - l[1], l[0] - l[2]]
        return [torch.tensor(margin(r["label"])) for r in rows]
    return [torch.tensor([float(x) for x in r["labels"]]) for r in rows]


for family, (config_class, sizes) in FAMILIES.items():
    source = folder / ("bytes" if family == "roberta" else "wordpiece")
    tokenizer = (transformers.RobertaTokenizerFast if family == "roberta" else transformers.BertTokenizerFast).from_pretrained(source)
    torch.manual_seed(7)
    config = config_class(vocab_size=len(tokenizer), num_labels=1, **sizes)
    first = transformers.AutoModelForSequenceClassification.from_config(config)
    (folder / family).mkdir()
    first.save_pretrained(folder / family)
    whole = folder / "whole"
    expected = {}
    for name, loss_class in LOSSES.items():
        first.save_pretrained(whole)
        tokenizer.save_pretrained(whole)
        model = CrossEncoder(str(whole), max_length=LENGTH, device="cpu")
        loss = loss_class(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0, eps=1e-2)
        rows, steps = files[name], []
        model.train()
        for at in list(range(0, len(rows), BATCH)) * EPOCHS:
            batch = rows[at : at + BATCH]
            value = loss([[r[c] for r in batch] for c in COLUMNS[name]], labels(name, batch))
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            steps.append(value.item())
        model.eval()
        # The column "document" has several texts of one query: they are ranked together.
        samples = {}
        for r in dev:
            samples[r["query"]] = r
        evaluator = CrossEncoderRerankingEvaluator(dev, write_csv=False, show_progress_bar=False)
        figures = {k: float(v) for k, v in evaluator(model).items()}
        query = dev[-1]["query"]
        expected[name] = {
            "losses": steps, "metrics": {f"eval_{k}": v for k, v in figures.items()}, "query": query,
            "scores": model.predict([(query, d) for d in dev[-1]["negative"]], show_progress_bar=False).tolist(),
            "pairs": model.predict([(r["query"], r["document"]) for r in pairs], show_progress_bar=False).tolist()}  # fmt: skip
        print(family, name, steps[0], steps[-1], figures)
    shutil.rmtree(whole)
    (folder / family / "expected.json").write_text(json.dumps(expected) + "\n")
