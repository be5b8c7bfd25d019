#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/multiple_choice: rows in SWAG's columns and as questions with lists of choices, tiny models of some
families, and what a training loop with transformers and PyTorch makes of them: losses, scores and accuracy.

    python tools/golden/multiple_choice.py        (needs torch and transformers)

Pairs of texts are those of run_swag.py: sent1, and sent2 with a space and an ending."""
import csv
import json
import pathlib
import random
import shutil

import torch
import transformers
from tokenizers import ByteLevelBPETokenizer

BATCH, EPOCHS, LENGTH = 4, 3, 20
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 40,
         "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "initializer_range": 0.3}
ROBERTA = SIZES | {"type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
FAMILIES = {
    "bert": (transformers.BertConfig, SIZES),
    "distilbert": (transformers.DistilBertConfig, {
        "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 40, "dropout": 0, "attention_dropout": 0,
        "seq_classif_dropout": 0, "initializer_range": 0.3}),
    "electra": (transformers.ElectraConfig, SIZES | {"embedding_size": 12, "summary_last_dropout": 0}),
    "mpnet": (transformers.MPNetConfig, SIZES | {"pad_token_id": 1}),
    "roberta": (transformers.RobertaConfig, ROBERTA),
    "roberta-prelayernorm": (transformers.RobertaPreLayerNormConfig, ROBERTA),
    "modernbert": (transformers.ModernBertConfig, {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 40,
        "local_attention": 8, "pad_token_id": 1, "initializer_range": 0.3, "global_attn_every_n_layers": 2,
        "classifier_pooling": "mean"}),
    "deberta-v2": (transformers.DebertaV2Config, SIZES | {
        "relative_attention": True, "position_buckets": 6, "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
        "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0}),
}  # fmt: skip
BYTES = ("roberta", "roberta-prelayernorm", "modernbert")  # with a byte-level tokenizer; the others have WordPiece

random.seed(5)
torch.set_num_threads(1)
folder = pathlib.Path(__file__).parents[2] / "tests/golden/multiple_choice"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)

# ---- data

WHO = ["a man", "the old dog", "she", "our king", "two boys"]
DOES = ["opens the door", "sees a red house", "reads \"books, all day\"", "sits at the table", "goes home in May"]
THEN = ["and sleeps.", "then eats an apple", "to the river", "again and again, until it is night and all the children are at home"]


def row(number, endings):
    return {"sent1": f"{random.choice(WHO)} {random.choice(DOES)}.", "sent2": random.choice(WHO),
            "endings": random.sample([f"{does} {then}" for does in DOES for then in THEN], endings),
            "label": random.randrange(endings)}  # fmt: skip


swag = [row(i, 4) for i in range(14)]  # all rows have as many choices, as in run_swag.py
with open(folder / "train.csv", "w", newline="") as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source", *(f"ending{i}" for i in range(4)), "label"])
    for i, r in enumerate(swag):
        writer.writerow([i, f"v{i}", i, r["sent1"] + " " + r["sent2"], r["sent1"], r["sent2"], "gold", *r["endings"], r["label"]])
mixed = [row(i, 2 + i % 4) for i in range(9)]  # other numbers of choices, a context, a question, or both
forms = []
for i, r in enumerate(mixed):
    form = {"context": r["sent1"], "question": r["sent2"]}
    if i % 3 == 1:
        r["sent2"] = None
        form["question"] = None
    if i % 3 == 2:
        r["sent1"], r["sent2"] = r["sent2"], None
        form = {"context": None, "question": r["sent1"]}
    letter = "ABCDE"[r["label"]]
    form["choices"] = r["endings"] if i % 2 else {"text": r["endings"], "label": list("ABCDE"[: len(r["endings"])])}
    form["answer"] = [letter, r["label"], letter, str(r["label"]), letter, r["endings"][r["label"]]][i % 6]
    forms.append(form)
(folder / "dev.jsonl").write_text("".join(json.dumps(r) + "\n" for r in forms))
texts = [t for r in swag + mixed for t in (r["sent1"], r["sent2"] or "", *r["endings"])]


def wordpiece():
    words = sorted({w for text in texts for w in text.lower().replace(".", " ").replace(",", " ").replace('"', " ").split() if len(w) < 6})
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *".,\"", *"abcdefghijklmnopqrstuvwxyz",
            *("##" + c for c in "abcdefghijklmnopqrstuvw")]  # fmt: skip


(folder / "wordpiece").mkdir()
(folder / "wordpiece/vocab.txt").write_text("\n".join(dict.fromkeys(wordpiece())) + "\n")
(folder / "wordpiece/tokenizer_config.json").write_text('{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}\n')
bpe = ByteLevelBPETokenizer()
bpe.train_from_iterator(texts, vocab_size=400, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False)
(folder / "bytes").mkdir()
bpe.save_model(str(folder / "bytes"))
(folder / "bytes/tokenizer_config.json").write_text('{"tokenizer_class": "RobertaTokenizer"}\n')

# ---- run_swag.py


def inputs(model, tokenizer, rows):
    """All rows have as many choices."""
    first = [r["sent1"] for r in rows for _ in r["endings"]]
    second = [f"{r['sent2']} {e}" if r["sent2"] else e for r in rows for e in r["endings"]]
    encoded = tokenizer(first, second, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
    if model.config.model_type not in ("bert", "electra"):
        encoded.pop("token_type_ids", None)
    return {k: v.view(len(rows), -1, v.shape[-1]) for k, v in encoded.items()}


def evaluate(model, tokenizer, rows):
    model.eval()
    scores, loss, right = [], 0, 0
    with torch.no_grad():
        for r in rows:
            output = model(**inputs(model, tokenizer, [r]), labels=torch.tensor([r["label"]]))
            loss += output.loss.item()
            scores.append(output.logits[0].tolist())
            right += output.logits[0].argmax().item() == r["label"]
    return {"metrics": {"eval_loss": loss / len(rows), "eval_accuracy": right / len(rows)}, "scores": scores}


for family, (config_class, sizes) in FAMILIES.items():
    torch.manual_seed(7)
    source = folder / ("bytes" if family in BYTES else "wordpiece")
    tokenizer = (transformers.RobertaTokenizerFast if family in BYTES else transformers.BertTokenizerFast).from_pretrained(source)
    config = config_class(vocab_size=len(tokenizer), **sizes)
    model = transformers.AutoModelForMultipleChoice.from_config(config)
    (folder / family).mkdir()
    model.save_pretrained(folder / family)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0, eps=1e-2)  # so that rounding errors stay small
    losses = []
    model.train()
    for at in list(range(0, len(swag), BATCH)) * EPOCHS:
        batch = swag[at : at + BATCH]
        loss = model(**inputs(model, tokenizer, batch), labels=torch.tensor([r["label"] for r in batch])).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    expected = {"losses": losses, "train.csv": evaluate(model, tokenizer, swag), "dev.jsonl": evaluate(model, tokenizer, mixed)}
    (folder / family / "expected.json").write_text(json.dumps(expected) + "\n")
    print(family, losses[:2], losses[-1], expected["train.csv"]["metrics"], expected["dev.jsonl"]["metrics"])
