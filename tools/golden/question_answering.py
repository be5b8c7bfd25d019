#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/question_answering: questions in the forms of SQuAD, tiny models of some families, and what a training
loop with transformers and PyTorch makes of them: windows, losses, answers, exact match and F1.

    python tools/golden/question_answering.py        (needs torch and transformers)

Windows, answers and n-best lists are those of run_qa.py and its utils_qa.py, exact match and F1 those of SQuAD's evaluation
scripts. Rows are not padded, because padding tokens would take part in the softmax over a row's tokens."""
import collections
import json
import pathlib
import random
import re
import shutil
import string

import torch
import transformers
from tokenizers import ByteLevelBPETokenizer

BATCH, EPOCHS, LENGTH, STRIDE, N_BEST, LONGEST = 4, 3, 26, 5, 6, 7
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 40,
         "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "initializer_range": 0.3}
FAMILIES = {
    "bert": (transformers.BertConfig, SIZES),
    "distilbert": (transformers.DistilBertConfig, {
        "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 40, "dropout": 0, "attention_dropout": 0,
        "qa_dropout": 0, "initializer_range": 0.3}),
    "electra": (transformers.ElectraConfig, SIZES | {"embedding_size": 12}),
    "roberta": (transformers.RobertaConfig, SIZES | {"type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}),
    "modernbert": (transformers.ModernBertConfig, {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 40,
        "local_attention": 8, "pad_token_id": 1, "initializer_range": 0.3, "global_attn_every_n_layers": 2}),
    "deberta-v2": (transformers.DebertaV2Config, SIZES | {
        "relative_attention": True, "position_buckets": 6, "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
        "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0}),
}  # fmt: skip
BYTES = ("roberta", "modernbert")  # with a byte-level tokenizer; the others have WordPiece

random.seed(5)
torch.set_num_threads(1)
folder = pathlib.Path(__file__).parents[2] / "tests/golden/question_answering"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)

# ---- data

PLACES = ["Zürich", "the Élysée", "São Paulo", "Old-Town", "a café", "東京", "naïve 😀 town", "St. Ives"]
CONTEXTS = [
    "In {0} there was a king, who lived from 1801 to 1850.  His house (near {1}) was red; his garden was green and the river blue. "
    "He went to {2} in May, and came back to {1}.",
    "The market of {0} opens at 9:30 a.m.\tPeople from {1} bring apples, pears and cheese\nto {2}, which is not far.",
    "{0}? {1}! {2}...",
    "Xylophones\u00a0of {0}: \"{1}\" was heard in {2} by all of the children at school, who sang it again and again, "
    "until the bells of {0} rang.",
]  # fmt: skip
QUESTIONS = ["Where was it?", "  Which place is meant here?", "From where?"]


def paragraph(number, negative):
    places = random.sample(PLACES, 3)
    context = CONTEXTS[number % len(CONTEXTS)].format(*places)
    questions = []
    for k, question in enumerate(QUESTIONS):
        starts = [m.start() for m in re.finditer(re.escape(places[k]), context)]
        answers = [{"text": places[k], "answer_start": starts[0]}]
        if number % 2:  # others are right, too
            answers.append({"text": context[starts[0] :].split(" in ")[0][: len(places[k]) + 4], "answer_start": starts[0]})
        none = negative and (number + k) % 3 == 0
        questions.append({"id": f"q{number}-{k}", "question": question, "answers": [] if none else answers} |
                         ({"is_impossible": none} if negative else {}))  # fmt: skip
    return {"context": context, "qas": questions}


def squad(numbers, negative):
    paragraphs = [paragraph(i, negative) for i in numbers]
    half = len(paragraphs) // 2
    return {"version": "v2.0" if negative else "1.1",
            "data": [{"title": "one", "paragraphs": paragraphs[:half]}, {"title": "two", "paragraphs": paragraphs[half:]}]}  # fmt: skip


def flat(data):
    """The rows of the data set squad on the hub."""
    for article in data["data"]:
        for item in article["paragraphs"]:
            for q in item["qas"]:
                yield {"id": q["id"], "title": article["title"], "context": item["context"], "question": q["question"],
                       "answers": {"text": [a["text"] for a in q["answers"]],
                                   "answer_start": [a["answer_start"] for a in q["answers"]]}}  # fmt: skip


files = {"train": squad(range(4), False), "dev2": squad(range(4, 8), True)}
for name, data in files.items():
    (folder / f"{name}.json").write_text(json.dumps(data, ensure_ascii=False) + "\n")
    rows = [json.dumps(row, ensure_ascii=False) + "\n" for row in flat(data)]
    (folder / f"{name}.jsonl").write_text("".join(rows))
texts = [text for data in files.values() for row in flat(data) for text in (row["question"], row["context"])]


def wordpiece():
    words = sorted({w for text in texts for w in re.findall(r"[a-z]+|[^\sa-z]", text.lower()) if len(w) < 6 and w.isascii()})
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *"abcdefghijklmnopqrstuvwxyz", "##s", "##es", "##ple",
            *("##" + c for c in "abcdefghijklmnopqrstuvw"), "東", "zurich"]  # fmt: skip


(folder / "wordpiece").mkdir()
(folder / "wordpiece/vocab.txt").write_text("\n".join(dict.fromkeys(wordpiece())) + "\n")
(folder / "wordpiece/tokenizer_config.json").write_text('{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}\n')
bpe = ByteLevelBPETokenizer()
bpe.train_from_iterator(texts, vocab_size=500, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False)
(folder / "bytes").mkdir()
bpe.save_model(str(folder / "bytes"))
(folder / "bytes/tokenizer_config.json").write_text('{"tokenizer_class": "RobertaTokenizer"}\n')

# ---- run_qa.py


def windows(tokenizer, rows):
    for number, row in enumerate(rows):
        encoded = tokenizer(row["question"].lstrip(), row["context"], truncation="only_second", max_length=LENGTH, stride=STRIDE,
                            return_overflowing_tokens=True, return_offsets_mapping=True)  # fmt: skip
        for i, ids in enumerate(encoded["input_ids"]):
            offsets = [o if s == 1 else None for o, s in zip(encoded["offset_mapping"][i], encoded.sequence_ids(i))]
            of_context = [k for k, o in enumerate(offsets) if o]
            types = encoded["token_type_ids"][i] if "token_type_ids" in encoded else None
            start = end = 0
            if row["answers"]["text"]:
                begin = row["answers"]["answer_start"][0]
                stop = begin + len(row["answers"]["text"][0])
                if offsets[of_context[0]][0] <= begin and offsets[of_context[-1]][1] >= stop:
                    start = max(k for k in of_context if offsets[k][0] <= begin)
                    end = min(k for k in of_context if offsets[k][1] >= stop)
                    start, end = min(start, end), max(start, end)
            yield {"example": number, "ids": ids, "types": types, "offsets": offsets, "start": start, "end": end}


def outputs(model, window):
    inputs = {"input_ids": torch.tensor([window["ids"]])}
    if window["types"] and model.config.model_type not in ("distilbert", "roberta", "modernbert"):
        inputs["token_type_ids"] = torch.tensor([window["types"]])
    return inputs


def answer(rows, found, scores, negative, threshold=0.0):
    answers, lists = {}, {}
    for number, row in enumerate(rows):
        null, candidates = None, []
        for window, (starts, ends) in zip(found, scores):
            if window["example"] != number:
                continue
            of_null = starts[0] + ends[0]
            if null is None or of_null < null["score"]:
                null = {"offsets": (0, 0), "score": of_null}
            top = lambda values: sorted(range(len(values)), key=lambda i: (-values[i], i))[:N_BEST]
            for s in top(starts):
                for e in top(ends):
                    offsets = window["offsets"]
                    if not offsets[s] or not offsets[e] or e < s or e - s + 1 > LONGEST:
                        continue
                    candidates.append({"offsets": (offsets[s][0], offsets[e][1]), "score": starts[s] + ends[e]})
        if negative:
            candidates.append(null)
        best = sorted(candidates, key=lambda c: c["score"], reverse=True)[:N_BEST]
        if negative and not any(c is null for c in best):
            best.append(null)
        for c in best:
            c["text"] = row["context"][c["offsets"][0] : c["offsets"][1]]
        if not best or (len(best) == 1 and not best[0]["text"]):
            best.insert(0, {"text": "empty", "score": 0.0})
        probabilities = torch.tensor([c["score"] for c in best], dtype=torch.float64).softmax(0).tolist()
        first = next(c for c in best if c["text"])
        answers[row["id"]] = "" if negative and null["score"] - first["score"] > threshold else first["text"]
        lists[row["id"]] = [[c["text"], p] for c, p in zip(best, probabilities)]
    return answers, lists


def normalize(text):
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(right, text):
    right, text = normalize(right).split(), normalize(text).split()
    common = sum((collections.Counter(right) & collections.Counter(text)).values())
    if not right or not text:
        return float(right == text)
    return 2 * common / (len(right) + len(text))


def metrics(rows, answers):
    exact = total = 0
    for row in rows:
        gold = [a for a in row["answers"]["text"] if normalize(a)] or [""]
        exact += max(normalize(a) == normalize(answers[row["id"]]) for a in gold)
        total += max(f1(a, answers[row["id"]]) for a in gold)
    return {"eval_exact_match": 100 * exact / len(rows), "eval_f1": 100 * total / len(rows)}


def evaluate(model, tokenizer, rows, negative):
    found, scores, loss = list(windows(tokenizer, rows)), [], 0
    model.eval()
    with torch.no_grad():
        for window in found:
            output = model(**outputs(model, window), start_positions=torch.tensor([window["start"]]),
                           end_positions=torch.tensor([window["end"]]))  # fmt: skip
            loss += output.loss.item()
            scores.append((output.start_logits[0].tolist(), output.end_logits[0].tolist()))
    answers, lists = answer(rows, found, scores, negative)
    return {"metrics": {"eval_loss": loss / len(found)} | metrics(rows, answers), "answers": answers, "best": lists}


for family, (config_class, sizes) in FAMILIES.items():
    torch.manual_seed(7)
    source = folder / ("bytes" if family in BYTES else "wordpiece")
    tokenizer = (transformers.RobertaTokenizerFast if family in BYTES else transformers.BertTokenizerFast).from_pretrained(source)
    config = config_class(vocab_size=len(tokenizer), **sizes)
    model = transformers.AutoModelForQuestionAnswering.from_config(config)
    (folder / family).mkdir()
    model.save_pretrained(folder / family)
    train = list(windows(tokenizer, list(flat(files["train"]))))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0)
    losses = []
    model.train()
    for at in list(range(0, len(train), BATCH)) * EPOCHS:
        batch, total = train[at : at + BATCH], 0
        for window in batch:
            loss = model(**outputs(model, window), start_positions=torch.tensor([window["start"]]),
                         end_positions=torch.tensor([window["end"]])).loss / len(batch)  # fmt: skip
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    expected = {"losses": losses}
    expected |= {name: evaluate(model, tokenizer, list(flat(files[name])), name == "dev2") for name in files}
    (folder / family / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")
    print(family, len(train), losses[:2], losses[-1], expected["train"]["metrics"], expected["dev2"]["metrics"])
