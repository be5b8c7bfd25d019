#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures in PyTorch how hard the embedded demo is: learnable, but not trivial. Needs torch and transformers.

    python tools/demo/check_demo.py [--folder examples/demo] [--device cpu] [--patterns]

Prints held-out accuracy of a logistic regression on bags of words, of the demo's BERT fine-tuned from scratch, of the same
pre-trained as a masked LM first, and of that with labels shuffled in every file, which must be chance. --patterns adds the
accuracy of each held-out sentence pattern, worst first.
"""
import argparse
import collections
import csv
import math
import pathlib
import random
import re
import time

import torch
from transformers import (AutoConfig, AutoTokenizer, BertForMaskedLM, BertForSequenceClassification,
                          DataCollatorForLanguageModeling, logging)

import make_demo


def read_part(folder, part, shuffle=None):
    with open(folder / f"{part}.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    labels = [int(row["label"] == "positive") for row in rows]
    if shuffle is not None:
        shuffle.shuffle(labels)
    return [row["sentence"] for row in rows], labels


def bag_of_words(train, test):
    """Test accuracy of a logistic regression, fitted until it converges."""
    split = lambda text: set(re.findall(r"\w+|[^\w\s]", text.lower()))
    index = {word: i for i, word in enumerate(sorted(set().union(*map(split, train[0]))))}

    def matrix(texts):
        x = torch.zeros(len(texts), len(index))
        for row, text in enumerate(texts):
            x[row, [index[word] for word in split(text) if word in index]] = 1
        return x
    x, y = matrix(train[0]), torch.tensor(train[1]).float()
    weight, bias = torch.zeros(len(index), requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ weight + bias, y) + 1e-4 * weight.square().sum()
        loss.backward()
        return loss
    optimizer.step(closure)
    return ((matrix(test[0]) @ weight + bias > 0) == torch.tensor(test[1]).bool()).float().mean().item()


def fit(model, batches, steps, rate, device):
    """AdamW, linear schedule with a tenth of warm-up, clipping at 1; mean losses of five parts of the run."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / (0.1 * steps), (1 - s / steps) / 0.9))
    losses, began = [], time.time()
    model.train()
    for batch in batches:
        loss = model(**{name: value.to(device) for name, value in batch.items()}).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    losses = torch.stack(losses).cpu()
    return " ".join(f"{part.mean():.2f}" for part in losses.chunk(5)), time.time() - began


def shuffled(count, epochs, batch, rng):
    for _ in range(epochs):
        order = rng.sample(range(count), count)
        yield from (order[i:i + batch] for i in range(0, count, batch))


def pretrain(args, config, tokenizer, rng):
    model = BertForMaskedLM(config).to(args.device)
    if args.pretrain_epochs:
        with open(args.folder / "pretrain.txt", encoding="utf-8") as file:
            lines = [{"input_ids": ids} for ids in tokenizer(file.read().splitlines())["input_ids"]]
        collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
        batches = (collate([lines[i] for i in rows]) for rows in shuffled(len(lines), args.pretrain_epochs, 32, rng))
        losses, seconds = fit(model, batches, args.pretrain_epochs * math.ceil(len(lines) / 32), args.pretrain_rate,
                              args.device)
        print(f"masked LM, {args.pretrain_epochs} epochs: losses {losses}, {seconds:.1f} s", flush=True)
    return model


def fine_tune(args, config, tokenizer, encoder, train, test, rng):
    """Test accuracy and, per row of the test part, whether it was right."""
    model = BertForSequenceClassification(config).to(args.device)
    model.bert.load_state_dict(encoder.state_dict(), strict=False)
    encode = lambda texts: dict(tokenizer(texts, padding=True, return_tensors="pt"))
    batches = ({**encode([train[0][i] for i in rows]), "labels": torch.tensor([train[1][i] for i in rows])}
               for rows in shuffled(len(train[0]), args.epochs, args.batch, rng))
    losses, seconds = fit(model, batches, args.epochs * math.ceil(len(train[0]) / args.batch), args.rate, args.device)
    model.eval()
    with torch.no_grad():
        batch = {name: value.to(args.device) for name, value in encode(test[0]).items()}
        right = model(**batch).logits.argmax(-1).cpu() == torch.tensor(test[1])
    return right.float().mean().item(), right.tolist(), f"losses {losses}, {seconds:.1f} s"


def print_patterns(texts, right):
    expressions = [(pattern, re.compile(re.sub(r"\\\{[^}]+\\\}", ".*", re.escape(pattern)), re.IGNORECASE))
                   for _, patterns in make_demo.HELD_OUT_PATTERNS.values() for pattern in patterns.strip().split("\n")]
    found = collections.defaultdict(list)
    for text, good in zip(texts, right):
        found[next((p for p, e in expressions if e.fullmatch(text)), "(articles)")].append(good)
    for pattern, goods in sorted(found.items(), key=lambda item: sum(item[1]) / len(item[1])):
        print(f"  {sum(goods) / len(goods):.2f} of {len(goods):3}  {pattern}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--folder", type=pathlib.Path, default=root / "examples" / "demo")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--pretrain_epochs", type=int, default=4)
    parser.add_argument("--pretrain_rate", type=float, default=1e-3)
    parser.add_argument("--patterns", action="store_true")
    args = parser.parse_args()
    logging.set_verbosity_error()
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    config, tokenizer = AutoConfig.from_pretrained(args.folder), AutoTokenizer.from_pretrained(args.folder)
    train, test = read_part(args.folder, "train"), read_part(args.folder, "test")
    print(f"bag of words: {bag_of_words(train, test):.3f}", flush=True)
    fresh = BertForMaskedLM(config).to(args.device).bert
    accuracy, _, losses = fine_tune(args, config, tokenizer, fresh, train, test, rng)
    print(f"fine-tuned from scratch: {accuracy:.3f} ({losses})", flush=True)
    encoder = pretrain(args, config, tokenizer, rng).bert
    accuracy, right, losses = fine_tune(args, config, tokenizer, encoder, train, test, rng)
    print(f"pre-trained, fine-tuned: {accuracy:.3f} ({losses})", flush=True)
    if args.patterns:
        print_patterns(test[0], right)
    random_train, random_test = read_part(args.folder, "train", rng), read_part(args.folder, "test", rng)
    accuracy, _, losses = fine_tune(args, config, tokenizer, encoder, random_train, random_test, rng)
    print(f"random labels: {accuracy:.3f} ({losses})")


if __name__ == "__main__":
    main()
