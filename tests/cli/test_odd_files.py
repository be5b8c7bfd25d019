#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data files and model folders of many layouts, and what transformers' scripts make of the same rows.

    python3 tests/cli/test_odd_files.py [--build DIR] [CASE ...]

Each case trains the same four steps on a file, evaluates and predicts, and compares losses, metrics and predictions with
tests/golden/odd_files.json, which tools/golden/odd_files.py writes with run_glue.py, run_classification.py and run_ner.py.
The scripts read the same file where they can; else a file of JSON lines with the same rows (a case with `plain`).
"""

import argparse
import csv
import gzip
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/odd_files.json"
SPLITS = {"train": 12, "validation": 7, "test": 3}

# Few steps, whose rows keep the file's order, without dropout: nothing is random but the weights, which the scripts are given.
TRAINING = ("--per_device_train_batch_size 6 --gradient_accumulation_steps 1 --num_train_epochs 2 --learning_rate 2e-3 "
            "--train_sampling_strategy sequential --save_strategy no --eval_strategy no --max_seq_length 24 --use_cpu").split()

# ---- model folders --------------------------------------------------------------------------------------------------

WORDS = "a the was not very too good bad fair film day night song story city river one two three four plays sings walks".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = list(dict.fromkeys([*SPECIAL, *LETTERS, *("##" + c for c in LETTERS), *".,;:!?'\"-_()[]<>/#@%&*+=", "##s", "##ing", *WORDS]))
NAMES = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"], SPECIAL))
MARKERS = ["[E1]", "[/E1]"]

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "initializer_range": 0.3,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT = {"model_type": "bert", "vocab_size": len(PIECES), "max_position_embeddings": 64, "pad_token_id": 0, **SIZES}


def bpe():
    """Byte-level BPE of WORDS: each word, with a blank before it or not, is merged from its left end."""
    codes = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = [chr(c) for c in codes] + [chr(256 + i) for i in range(256 - len(codes))]
    merges = []
    for word in [first + word for word in WORDS for first in ("", "\u0120")]:
        for end in range(1, len(word)):
            if (pair := f"{word[:end]} {word[end]}") not in merges:
                merges.append(pair)
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *alphabet, *(pair.replace(" ", "") for pair in merges)]
    return {token: i for i, token in enumerate(dict.fromkeys(tokens))}, merges


BPE, MERGES = bpe()
UNIGRAM = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], *[[f"\u2581{word}", -3.0 - 0.1 * i] for i, word in enumerate(WORDS)],
           ["\u2581", -6.0], *[[c, -8.0] for c in LETTERS + ".,;:!?'\"-_()[]<>/#@%&*+="], ["<mask>", 0.0]]
ROBERTA = {"model_type": "roberta", "vocab_size": len(BPE), "max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1,
           "bos_token_id": 0, "eos_token_id": 2, **SIZES}


def added(content, number, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}


def wordpiece_json(**normalizer):
    return {"version": "1.0", "added_tokens": [added(token, i) for i, token in enumerate(SPECIAL)],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True, **normalizer},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
                               "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
                                        {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
                               "special_tokens": {token: {"id": token, "ids": [PIECES.index(token)], "tokens": [token]} for token in ("[CLS]", "[SEP]")}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {piece: i for i, piece in enumerate(PIECES)}}}


def unigram_json():
    special = {"id": "<s>", "ids": [0], "tokens": ["<s>"]}, {"id": "</s>", "ids": [2], "tokens": ["</s>"]}
    part = lambda name, kind="SpecialToken": {kind: {"id": name, "type_id": 0}}
    return {"version": "1.0", "added_tokens": [*(added(token, i) for i, (token, _) in enumerate(UNIGRAM[:4])), added("<mask>", len(UNIGRAM) - 1, lstrip=True)],
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]},
            "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
            "post_processor": {"type": "TemplateProcessing", "single": [part("<s>"), part("A", "Sequence"), part("</s>")],
                               "pair": [part("<s>"), part("A", "Sequence"), part("</s>"), part("</s>"), part("B", "Sequence"), part("</s>")], "special_tokens": {s["id"]: s for s in special}},
            "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
            "model": {"type": "Unigram", "unk_id": 3, "vocab": UNIGRAM, "byte_fallback": False}}


def bert_files(**config):
    return {"config.json": {**BERT, **config}, "vocab.txt": "\n".join(PIECES) + "\n", "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 64, **NAMES}}


def json_files(settings, **normalizer):
    files = bert_files()
    del files["vocab.txt"]
    return {**files, "tokenizer.json": wordpiece_json(**normalizer), "tokenizer_config.json": {"model_max_length": 64, **NAMES, **settings}}


def with_markers(**files):
    return {**bert_files(vocab_size=len(PIECES) + 2), **files}


def roberta_files(**config):
    return {"config.json": {**ROBERTA, **config}, "vocab.json": BPE, "merges.txt": "#version: 0.2\n" + "\n".join(MERGES) + "\n",
            "tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer", "model_max_length": 64}}


def other_family(model_type, tokenizer_class, names=None, **config):
    files = bert_files()
    sizes = {names.get(key, key): value for key, value in BERT.items()} if names else dict(BERT)
    return {**files, "config.json": {**sizes, "model_type": model_type, **config}, "tokenizer_config.json": {**files["tokenizer_config.json"], "tokenizer_class": tokenizer_class}}


DISTILBERT = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "intermediate_size": "hidden_dim", "hidden_dropout_prob": "dropout",
              "attention_probs_dropout_prob": "attention_dropout"}
MARKER_IDS = {token: len(PIECES) + i for i, token in enumerate(MARKERS)}
MODELS = {
    "bert": bert_files(),
    "cased": {**bert_files(), "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": False, **NAMES}},
    "accents": {**bert_files(), "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": False, **NAMES}},
    "vocab-alone": {name: text for name, text in bert_files().items() if name != "tokenizer_config.json"},
    "short": {**bert_files(), "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 9, **NAMES}},
    "no-limit": {**bert_files(), "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": int(1e30), **NAMES}},
    "json": json_files({"tokenizer_class": "BertTokenizer"}),
    "json-cased": json_files({"tokenizer_class": "BertTokenizer", "do_lower_case": False}, lowercase=False),
    "json-fast": json_files({"tokenizer_class": "PreTrainedTokenizerFast"}),
    "json-distil": json_files({"tokenizer_class": "DistilBertTokenizer"}),
    "no-types": json_files({"tokenizer_class": "BertTokenizer", "model_input_names": ["input_ids", "attention_mask"]}),
    "types": json_files({"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}),
    "markers-old": with_markers(**{"added_tokens.json": MARKER_IDS, "special_tokens_map.json": {**NAMES, "additional_special_tokens": MARKERS}}),
    "markers-plain": with_markers(**{"added_tokens.json": MARKER_IDS}),
    "markers-new": with_markers(**{"tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": True, **NAMES, "added_tokens_decoder": {
        str(number): {key: value for key, value in added(token, number, rstrip=True).items() if key != "id"} for token, number in MARKER_IDS.items()}}}),
    "names-as-numbers": bert_files(id2label={"0": 0, "1": 1}, label2id={"0": 0, "1": 1}),
    "roberta": roberta_files(),
    "roberta-pad0": roberta_files(pad_token_id=0),
    "xlm-roberta": {"config.json": {**ROBERTA, "model_type": "xlm-roberta", "vocab_size": len(UNIGRAM)}, "tokenizer.json": unigram_json(),
                    "tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 64}},
    "electra": other_family("electra", "ElectraTokenizer", embedding_size=32, summary_last_dropout=0.0),
    "distilbert": other_family("distilbert", "DistilBertTokenizer", DISTILBERT, seq_classif_dropout=0.0),
}

# ---- rows -----------------------------------------------------------------------------------------------------------


def rows_of(split, label, columns=("sentence",), texts=None):
    """Rows of a split: texts of three to nine words, or odd ones among them, and a label from the row's number."""
    rng = random.Random(f"{split} {columns}")
    rows = []
    for i in range(SPLITS[split]):
        row = {column: " ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for column in columns}
        if texts and i % 2:
            row[columns[0]] = texts[i // 2 % len(texts)]
        rows.append({**row, "label": label(i)})
    return rows


def tagged(split, words=None):
    """Rows of words with tags; the second word has several tokens."""
    rng = random.Random(split)
    tags = [["O", "B-PER", "I-PER", "O"], ["B-LOC", "O", "O", "B-PER"], ["O", "O", "B-LOC", "I-LOC"]]
    rows = []
    for i in range(SPLITS[split]):
        more = rng.randint(0, 3)
        tokens = ["good", "x-ray", *rng.choices(WORDS, k=2 + more)]
        if words and i % 2:
            tokens[2] = words[i // 2 % len(words)]
        rows.append({"tokens": tokens, "ner_tags": [*tags[i % 3], *["O"] * more]})
    return rows


# ---- formats: from rows to the bytes of a file --------------------------------------------------------------------------


def table(rows, delimiter=",", quoting=csv.QUOTE_MINIMAL, end="\n", index=False, columns=None, encoding="utf-8", escape=True):
    columns = columns or list(rows[0])
    out = io.StringIO()
    if escape:
        writer = csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator=end)
        writer.writerow([""] * index + columns)
        for i, row in enumerate(rows):
            writer.writerow([i] * index + [row[column] for column in columns])
    else:
        out.write(end.join(delimiter.join(str(field) for field in line) for line in [columns, *(row.values() for row in rows)]) + end)
    return out.getvalue().encode(encoding)


def json_lines(rows, **options):
    return "".join(json.dumps(row, **options) + "\n" for row in rows).encode()


def json_stream(rows):
    return "\n".join(json.dumps(row, indent=2, ensure_ascii=False) for row in rows).encode()


def json_columns(rows):
    return json.dumps({column: [row[column] for row in rows] for column in rows[0]}).encode()


def numbered(rows, indices=True):
    """With an unused column that has dates, missing values and numbers."""
    return [{"id": i, "when": None if i % 3 else "2031-05-06", **row, "score": float("nan") if i % 2 else i} for i, row in enumerate(rows)]


def conll(rows, columns=lambda i, word, tag: [word, tag], separator="\t", before=lambda i: "", end="\n"):
    lines = []
    for i, row in enumerate(rows):
        lines.append(before(i))
        for j, (word, tag) in enumerate(zip(row["tokens"], row["ner_tags"])):
            lines.append(separator.join(columns(j, word, tag)) + end)
        lines.append(end)
    return "".join(lines).encode()


def universal(rows):
    """CoNLL-U with the tag in XPOS, ranges and empty nodes."""
    lines = []
    for i, row in enumerate(rows):
        lines.append(f"# sent_id = {i}\n# text = {' '.join(row['tokens'])}\n")
        for j, (word, tag) in enumerate(zip(row["tokens"], row["ner_tags"]), 1):
            if j == 2:
                lines.append(f"2-3\t{word}{row['tokens'][2]}" + "\t_" * 8 + "\n")
            lines.append(f"{j}\t{word}\t{word}\tX\t{tag}\t_\t0\troot\t_\t_\n")
            if j == 3:
                lines.append("3.1\tnothing" + "\t_" * 8 + "\n")
        lines.append("\n")
    return "".join(lines).encode()


# ---- cases ----------------------------------------------------------------------------------------------------------

TWO = lambda i: i % 2
THREE = lambda i: ["neutral", "bad", "good"][i % 3]
STARS = lambda i: 1 + i * 7 % 5
ODD = ["Film, \"good\"", "night; day", "", "GOOD \u00e9t\u00e9 na\u00efve", "the 3,5 stars", "a\tfilm", "good <s> day", "bad [MASK] film", "the \u4e2d\u6587 song", "n/a"]
ODD_WORDS = ["#", "\u00e9t\u00e9", "\"", "3,5", "1"]
BROKEN = ["good\nday", "\"quoted\" film", "a, b", "semi; colon"]


class Case:
    """The files of a case: write gives a split's bytes for snug from the rows, plain the rows that the scripts read in its
    place. Without plain the scripts read the same file, which has the same name."""

    def __init__(self, write, ending, rows, plain=None, model="bert", options="", scripts=None):
        self.write, self.ending, self.rows, self.plain, self.model, self.options = write, ending, rows, plain, model, options.split()
        self.script_options = scripts.split() if scripts else [word for word in self.options if not plain] or self.options[:2] * (self.options[:1] == ["--task"])
        self.evaluation = [word for word in self.options if "label_all_tokens" in word]
        self.task = "token_classification" if "ner_tags" in rows("train")[0] else "classification"

    def files(self, folder):
        """Writes the files; returns the names for snug, and those for the scripts."""
        snug, scripts = {}, {}
        for split in SPLITS:
            rows = self.rows(split)
            snug[split] = scripts[split] = folder / f"{split}.{self.ending}"
            snug[split].write_bytes(self.write(rows))
            if self.plain:
                scripts[split] = folder / f"plain-{split}.json"
                scripts[split].write_bytes(json_lines(self.plain(rows)))
        return snug, scripts


def sentences(label, **named):
    return lambda split: rows_of(split, label, **named)


def same(rows):
    return rows


def labels(convert):
    """The scripts' rows: with the label converted, and without rows whose label is None."""
    return lambda rows: [{**row, "label": convert(row["label"])} for row in rows if convert(row["label"]) is not None]


def renamed(rows, **names):
    return [{names.get(key, key): value for key, value in row.items()} for row in rows]


def with_label(spell):
    return lambda rows: table([{**row, "label": spell(row["label"])} for row in rows])


PAIR = ("sentence1", "sentence2")
TAGGED = "--task ner"
ODD_ROWS = sentences(THREE, texts=ODD)
CASES = {
    # separators, quotes, ends of lines
    "csv": Case(table, "csv", sentences(TWO)),
    "csv-odd-texts": Case(table, "csv", sentences(TWO, texts=[text for text in ODD if text not in ("", "n/a")])),
    "csv-empty-text": Case(table, "csv", ODD_ROWS, same),
    "csv-quoted": Case(lambda rows: table(rows, quoting=csv.QUOTE_ALL), "csv", sentences(THREE), same),
    "csv-newlines": Case(table, "csv", sentences(TWO, texts=BROKEN), same),
    "csv-crlf": Case(lambda rows: table(rows, end="\r\n"), "csv", sentences(THREE), same),
    "csv-bom": Case(lambda rows: table(rows, encoding="utf-8-sig"), "csv", sentences(TWO), same),
    "csv-semicolons": Case(lambda rows: table(rows, delimiter=";"), "csv", sentences(TWO, texts=["a, b", "the 3,5"]), same),
    "csv-index": Case(lambda rows: table(rows, index=True), "csv", sentences(TWO), same),
    "csv-no-last-newline": Case(lambda rows: table(rows).rstrip(b"\n"), "csv", sentences(TWO)),
    "csv-gzip": Case(lambda rows: gzip.compress(table(rows), mtime=0), "csv.gz", sentences(TWO), same),
    "tsv": Case(lambda rows: table(rows, delimiter="\t"), "tsv", sentences(TWO), same),
    "tsv-glue-quotes": Case(lambda rows: table(rows, delimiter="\t", escape=False), "tsv", sentences(TWO, texts=["\"good film", "bad\" day"]), same),
    "csv-unused-columns": Case(lambda rows: table(numbered(rows)), "csv", sentences(TWO), same),
    # JSON
    "jsonl": Case(json_lines, "json", sentences(THREE, texts=ODD)),
    "jsonl-utf8": Case(lambda rows: json_lines(rows, ensure_ascii=False), "jsonl", sentences(TWO, texts=ODD), same),
    "json-list": Case(lambda rows: json.dumps(rows, indent=1).encode(), "json", sentences(TWO), same),
    "json-data": Case(lambda rows: json.dumps({"version": "1", "data": rows}).encode(), "json", sentences(TWO), same),
    "json-stream": Case(json_stream, "json", sentences(THREE), same),
    "json-columns": Case(json_columns, "json", sentences(TWO), same),
    "jsonl-nan-unused": Case(lambda rows: json_lines(numbered(rows)), "jsonl", sentences(TWO), same),
    "jsonl-half-surrogates": Case(lambda rows: json_lines(rows).replace(b"+++", b"\\ud83d"), "jsonl", sentences(TWO, texts=["good +++ day"]),
                                  lambda rows: [{**row, "sentence": row["sentence"].replace("+++", "\ufffd")} for row in rows]),
    # labels
    "label-words": Case(table, "csv", sentences(THREE), same),
    "label-booleans": Case(json_lines, "json", sentences(lambda i: i % 2 == 0), labels(str)),
    "label-stars": Case(table, "csv", sentences(STARS)),
    "label-whole-floats": Case(with_label(lambda label: f"{label}.0"), "csv", sentences(TWO), same),
    "label-exponents": Case(with_label(lambda label: f"{label}e0"), "csv", sentences(TWO), same),
    "label-json-floats": Case(lambda rows: json_lines([{**row, "label": float(row["label"])} for row in rows]), "jsonl", sentences(TWO), same),
    "label-numbers": Case(table, "csv", sentences(lambda i: round(i * 0.37 % 5, 2))),
    "label-whole-numbers-regression": Case(table, "csv", sentences(STARS), options="--do_regression True", scripts="--text_column_names sentence --label_column_name label --do_regression True"),
    "label-minus-one": Case(table, "csv", sentences(lambda i: -1 if i % 4 == 3 else i % 3), labels(lambda label: label if label >= 0 else None)),
    "label-lists": Case(json_lines, "json", sentences(lambda i: [["a"], ["b", "c"], []][i % 3]), options="--text_column_name sentence --label_column_name label", scripts="--text_column_names sentence --label_column_name label"),
    "label-columns": Case(lambda rows: table([{"sentence": row["sentence"], **{name: int(name in row["label"]) for name in "abc"}} for row in rows]), "csv",
                          sentences(lambda i: [["a"], ["b", "c"], []][i % 3]), same, options="--label_column_name a,b,c", scripts="--text_column_names sentence --label_column_name label"),
    "label-first": Case(lambda rows: table(rows, columns=["label", "sentence"]), "csv", sentences(TWO), same),
    "label-named-gold": Case(lambda rows: table(renamed(rows, label="gold_label")), "csv", sentences(THREE), same),
    "label-named-labels": Case(lambda rows: json_lines(renamed(rows, label="labels", sentence="text")), "jsonl", sentences(TWO), same),
    # pairs
    "pair": Case(table, "csv", sentences(TWO, columns=PAIR)),
    "pair-nli": Case(lambda rows: table(renamed(rows, sentence1="premise", sentence2="hypothesis"), delimiter="\t"), "tsv", sentences(THREE, columns=PAIR), same),
    "pair-json": Case(json_lines, "json", sentences(TWO, columns=PAIR, texts=ODD)),
    "pair-no-types": Case(table, "csv", sentences(TWO, columns=PAIR), model="no-types"),
    "pair-fast": Case(table, "csv", sentences(TWO, columns=PAIR), model="json-fast"),
    "pair-types": Case(table, "csv", sentences(TWO, columns=PAIR), model="types"),
    "pair-distil-tokenizer": Case(table, "csv", sentences(TWO, columns=PAIR), model="json-distil"),
    "pair-roberta": Case(table, "csv", sentences(TWO, columns=PAIR), model="roberta"),
    "pair-electra": Case(table, "csv", sentences(TWO, columns=PAIR), model="electra"),
    # tokenizer layouts
    "cased": Case(json_lines, "json", sentences(TWO, texts=ODD), model="cased"),
    "accents": Case(json_lines, "json", sentences(TWO, texts=ODD), model="accents"),
    "vocab-alone": Case(json_lines, "json", sentences(TWO, texts=ODD), model="vocab-alone"),
    "model-max-length": Case(json_lines, "json", sentences(TWO, texts=ODD), model="short"),
    "model-max-length-1e30": Case(json_lines, "json", sentences(TWO, texts=ODD), model="no-limit"),
    "tokenizer-json": Case(json_lines, "json", sentences(TWO, texts=ODD), model="json"),
    "tokenizer-json-cased": Case(json_lines, "json", sentences(TWO, texts=ODD), model="json-cased"),
    "markers-old": Case(json_lines, "json", sentences(TWO, texts=["[e1] good [/e1] day", "a[E1]b", "x [E1]  y"]), model="markers-old"),
    "markers-plain": Case(json_lines, "json", sentences(TWO, texts=["[e1] good [/e1] day", "a[E1]b", "x [E1]  y"]), model="markers-plain"),
    "markers-new": Case(json_lines, "json", sentences(TWO, texts=["[e1] good [/e1] day", "a[E1]b", "x [E1]  y"]), model="markers-new"),
    "names-as-numbers": Case(table, "csv", sentences(TWO), model="names-as-numbers"),
    "roberta": Case(json_lines, "json", sentences(TWO, texts=ODD), model="roberta"),
    "roberta-pad-in-text": Case(json_lines, "json", sentences(TWO, texts=["good <pad> day", "<pad>", "a <pad><pad> b"]), model="roberta"),
    "roberta-pad0": Case(json_lines, "json", sentences(TWO, texts=ODD), model="roberta-pad0"),
    "xlm-roberta": Case(json_lines, "json", sentences(TWO, texts=ODD), model="xlm-roberta"),
    "distilbert": Case(json_lines, "json", sentences(TWO, texts=ODD), model="distilbert"),
    # words with tags
    "tags-json": Case(json_lines, "json", tagged, options=TAGGED),
    "tags-conll": Case(conll, "conll", tagged, same, options=TAGGED),
    "tags-blanks": Case(lambda rows: conll(rows, separator=" "), "txt", tagged, same, options=TAGGED),
    "tags-2003": Case(lambda rows: b"-DOCSTART- -X- -X- O\n\n" + conll(rows, lambda i, word, tag: [word, "NN", "B-NP", tag], " "), "txt", tagged, same, options=TAGGED),
    "tags-crlf": Case(lambda rows: conll(rows, end="\r\n"), "conll", tagged, same, options=TAGGED),
    "tags-odd-words": Case(conll, "conll", lambda split: tagged(split, ODD_WORDS), same, options=TAGGED),
    "tags-blank-in-word": Case(conll, "conll", lambda split: tagged(split, ["3 1/2", "a film"]), same, options=TAGGED),
    "tags-comments": Case(lambda rows: conll(rows, before=lambda i: f"# id {i}\n# text = a b\n"), "conll", tagged, same, options=TAGGED),
    "tags-germeval": Case(lambda rows: conll(rows, lambda i, word, tag: [str(i + 1), word, tag, "O"], before=lambda i: "#\thttp://example.org [2031-05-06]\n"), "tsv", tagged, same,
                          options=TAGGED + " --label_column_name 3"),
    "tags-universal": Case(universal, "conllu", tagged, same, options=TAGGED + " --label_column_name XPOS"),
    "tags-all-tokens": Case(json_lines, "json", tagged, options=TAGGED + " --label_all_tokens"),
}

# ---- snug -----------------------------------------------------------------------------------------------------------


def write_model(folder, name, snug):
    """A model folder of that name, with weights that snug draws."""
    bare = folder / "bare" / name
    if (bare / "model.safetensors").exists():
        return
    bare.mkdir(parents=True, exist_ok=True)
    for file, content in MODELS[name].items():
        (bare / file).write_text(content if isinstance(content, str) else json.dumps(content))
    (folder / "lines.txt").write_text("a good day\n" * 8)
    run(snug, folder, "train", "--task", "mlm", "--line_by_line", "--config_name", bare, "--tokenizer_name", bare, "--train_file", "lines.txt",
        "--learning_rate", "0", "--max_steps", "1", "--save_strategy", "no", "--use_cpu", "--max_seq_length", "8", "--output_dir", f"drawn/{name}")
    (bare / "model.safetensors").write_bytes((folder / f"drawn/{name}/model.safetensors").read_bytes())


def run(snug, folder, *words):
    done = subprocess.run([snug, *map(str, words)], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"snug {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def train_words(folder, model, files, options, output):
    return ["train", "--model_name_or_path", folder / "bare" / model, "--train_file", files["train"], "--validation_file", files["validation"],
            *TRAINING, *options, "--output_dir", output]


def outcome(snug, folder, case):
    """What snug makes of a case, in the form of the golden file."""
    files, _ = case.files(folder)
    output = folder / "out"
    run(snug, folder, *train_words(folder, case.model, files, case.options, output))
    scores = json.loads(run(snug, folder, "eval", "--model_name_or_path", output, "--validation_file", files["validation"], "--json", *case.evaluation))
    predictions = run(snug, folder, "predict", "--model_name_or_path", output, "--test_file", files["test"], "--json").splitlines()
    return {"train_loss": json.loads((output / "all_results.json").read_text())["train_loss"],
            "eval": {key: value for key, value in scores.items() if isinstance(value, (int, float))},
            "predictions": [prediction(json.loads(line)) for line in predictions]}


def prediction(row):
    return row.get("tags", [row.get("label"), row.get("score")])


# ---- comparison -----------------------------------------------------------------------------------------------------


def near(found, wanted):
    """On a CPU with AVX-512 sums differ by up to 1e-5."""
    if isinstance(wanted, float) and isinstance(found, (int, float)):
        return abs(found - wanted) <= 1e-4 * abs(wanted) + 1e-6
    if wanted is None:  # the scripts have no such value
        return True
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(near, found, wanted))
    return found == wanted


def differences(found, wanted):
    if not near(found["train_loss"], wanted["train_loss"]):
        yield f"train_loss {found['train_loss']}, not {wanted['train_loss']}"
    for key, value in wanted["eval"].items():
        if not near(found["eval"].get(key), value):
            yield f"{key} {found['eval'].get(key)}, not {value}"
    if not near(found["predictions"], wanted["predictions"]):
        yield f"predictions {found['predictions']}, not {wanted['predictions']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", metavar="DIR")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    golden = json.loads(GOLDEN.read_text())
    names = options.cases or list(CASES)
    snug = (options.build / "snug").resolve()
    failed = sorted(set(CASES) ^ set(golden)) if not options.cases else []
    for name in failed:
        print(f"{name}: not in both the table and {GOLDEN.name}")
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        os.environ |= {"SNUG_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1", "SNUG_RATES": str(ROOT / "tests/golden/rates.json")}
        for name in names:
            work = folder / name
            work.mkdir()
            (work / "bare").symlink_to(folder / "bare")
            try:
                write_model(folder, CASES[name].model, snug)
                found = list(differences(outcome(snug, work, CASES[name]), golden[name]))
            except (RuntimeError, KeyError, ValueError) as error:
                found = [f"{type(error).__name__}: {error}"]
            failed += [name] * bool(found)
            for line in found:
                print(f"{name}: {line}")
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
