# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/token_classification: a tiny BERT, words with tags, and what a training loop with transformers,
PyTorch and seqeval makes of them: losses, predictions and metrics, with and without --label_all_tokens."""

import json
import pathlib
import random
import shutil

import torch
from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
from transformers import BertConfig, BertForTokenClassification, BertModel, BertTokenizer

BATCH, EPOCHS, LENGTH = 4, 2, 12
NAMES = ["B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O"]
LIST = {"john": "B-PER", "smith": "I-PER", "paris": "B-LOC", "york": "I-LOC", "acme": "B-ORG", "playland": "B-LOC"}
WORDS = ["the", "of", "went", "to", "New", "played", "plays", "end.", "x-y", *LIST, *LIST]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "of", "went", "to", "new", "play", "##ed", "##s",
              "##land", "end", ".", "-", "x", "y", "john", "smith", "paris", "york", "acme"]  # fmt: skip

random.seed(3)
torch.manual_seed(3)
torch.set_num_threads(1)
folder = pathlib.Path(__file__).parents[2] / "tests/golden/token_classification"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
(folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
(folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}\n')


def sentence(most):
    words = [random.choice(WORDS) for _ in range(random.randint(1, most))]
    return {"tokens": words, "ner_tags": [LIST.get(word, "O") for word in words]}


files = {"train": [sentence(9) for _ in range(22)], "dev": [sentence(14) for _ in range(13)]}
files["train"][0] = {"tokens": ["acme", "acme", "smith"], "ner_tags": ["B-ORG", "I-ORG", "O"]}  # all tags occur
for name, rows in files.items():
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

config = BertConfig(
    vocab_size=len(VOCABULARY), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=16, hidden_dropout_prob=0, attention_probs_dropout_prob=0, initializer_range=0.2,
    id2label=dict(enumerate(NAMES)), label2id={name: i for i, name in enumerate(NAMES)},
)  # fmt: skip
first = BertForTokenClassification(config)
first.save_pretrained(folder)
tokenizer = BertTokenizer.from_pretrained(folder)
INSIDE = [NAMES.index("I-" + name[2:]) if name.startswith("B-") else i for i, name in enumerate(NAMES)]


def encode(row, label_all):
    """Ids, labels, and the word of each loss position."""
    encoded = tokenizer(row["tokens"], is_split_into_words=True, truncation=True, max_length=LENGTH)
    labels, before = [], None
    for word in encoded.word_ids():
        label = NAMES.index(row["ner_tags"][word]) if word is not None else -100
        if word is not None and word == before:
            label = INSIDE[label] if label_all else -100
        labels.append(label)
        before = word
    return encoded["input_ids"], labels


def collate(rows, label_all):
    encoded = [encode(row, label_all) for row in rows]
    length = max(len(ids) for ids, _ in encoded)
    pad = lambda values, value: torch.tensor([v + [value] * (length - len(v)) for v in values])
    return {
        "input_ids": pad([ids for ids, _ in encoded], 0),
        "attention_mask": pad([[1] * len(ids) for ids, _ in encoded], 0),
        "labels": pad([labels for _, labels in encoded], -100),
    }


def run(label_all):
    model = BertForTokenClassification.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0)
    losses = []
    model.train()
    for _ in range(EPOCHS):
        for at in range(0, len(files["train"]), BATCH):
            loss = model(**collate(files["train"][at : at + BATCH], label_all)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        batch = collate(files["dev"], label_all)
        output = model(**batch)
        best = output.logits.argmax(-1)
        first_only = collate(files["dev"], False)["labels"]
    named = lambda values, kept: [[NAMES[v] for v, k in zip(*pair) if k != -100] for pair in zip(values, kept)]
    truth, predicted = named(batch["labels"], batch["labels"]), named(best, batch["labels"])
    return {
        "losses": losses,
        "predictions": [" ".join(tags) for tags in named(best, first_only)],
        "metrics": {
            "eval_loss": output.loss.item(),
            "eval_precision": precision_score(truth, predicted),
            "eval_recall": recall_score(truth, predicted),
            "eval_f1": f1_score(truth, predicted),
            "eval_accuracy": accuracy_score(truth, predicted),
        },
    }


expected = {"first": run(False), "all": run(True)}
(folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
for name in ("first", "all"):
    print(name, expected[name]["losses"][::3], expected[name]["metrics"])
