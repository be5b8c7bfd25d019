#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizer: small tokenizer folders, and what transformers' AutoTokenizer makes of many strings.

The vocabulary is our own. Each folder NAME/ is one way in which files can say how to tokenize; NAME.json holds the ids of
every string of texts.json, in order, and a few pairs. truncation.json holds how many tokens of each part of a pair stay;
codepoints.json one XXH3-64 per 4096 code points over what becomes of each of them (see digest); random.json the strings of
random_texts.py, as an XXH3-64 per 1000 over their ids.

Usage: tokenizer.py [FOLDER]    (needs transformers and xxhash)
"""
import json
import random
import shutil
import struct
import sys
from pathlib import Path

import xxhash
from random_texts import random_golden
from transformers import AutoTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """the The a an of and to in it is was film movie good bad story ##s ##ing ##ed ##er un ##believ ##able run ##ning
play affable ab q tok hello Hello world World cafe café Café naive élan strasse istanbul ##istan 中 国 文 한 ##국 日本 ö Ö Ångström
İstanbul ǆ ss 2024 20 ##24 1 ##0 ! ? . , - ' " ( ) [ ] # ## & @ ; : … « » — 。 、 😀 ##😀 ﬁ ##ﬁ ñ ##ñ é ##é [new] <b> new one
""".split()
LETTERS = list("abcdefghijklmnopqrstuvwxyzABCDEF0123456789αβγжшأب")


def vocabulary():
    tokens = SPECIAL + WORDS + LETTERS + ["##" + c for c in LETTERS]
    return list(dict.fromkeys(tokens))


def token(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "single_word": False, "normalized": True,
            "special": False, **flags}


ADDED = [
    token("[PAD]", special=True, normalized=False), token("[UNK]", special=True, normalized=False),
    token("[CLS]", special=True, normalized=False), token("[SEP]", special=True, normalized=False),
    token("[MASK]", special=True, normalized=False, lstrip=True),
]
MORE = [
    token("<b>", normalized=False), token("<b>!", normalized=False), token("New One"), token("tok", single_word=True),
    token("Straße", rstrip=True), token("中文"), token("q", single_word=True, lstrip=True, rstrip=True, normalized=False),
    token(" ;", normalized=False), token("<r>", rstrip=True, normalized=False), token("<s>", special=True),
    token("new one two"), token("Éa", lstrip=True), token("one two three", normalized=False, single_word=True),
]


def tokenizer_json(vocab, added=(), lowercase=True, **model):
    ids = {text: number for number, text in enumerate(vocab)}
    following = iter(range(len(vocab), 2 * len(vocab)))
    special = lambda name, kind: {"SpecialToken": {"id": name, "type_id": kind}}
    sequence = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
    single = [special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0)]
    return {
        "version": "1.0",
        "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                    "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [{"id": ids[t["content"]] if t["content"] in ids else next(following), **t} for t in added],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": lowercase},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": single,
                           "pair": single + [sequence("B", 1), special("[SEP]", 1)],
                           "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]}
                                              for name in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": ids, **model},
    }


def variants(vocab):
    """name: {file: content}; a list is written as lines, anything else as JSON."""
    bert = {"tokenizer_class": "BertTokenizer"}
    decoder = {str(i): t for i, t in enumerate(ADDED)} | {str(len(vocab) + i): t for i, t in enumerate(MORE)}
    renamed = ["<pad>" if t == "[PAD]" else "<unk>" if t == "[UNK]" else t for t in vocab]
    yield "uncased", {"vocab.txt": vocab, "tokenizer_config.json": {**bert, "do_lower_case": True}}
    yield "cased", {"vocab.txt": vocab, "tokenizer_config.json": {**bert, "do_lower_case": False}}
    yield "cased_stripped", {"vocab.txt": vocab, "tokenizer_config.json": {
        **bert, "do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}}
    yield "lowered_accents", {"vocab.txt": vocab, "tokenizer_config.json": {**bert, "strip_accents": False}}
    yield "added", {"vocab.txt": vocab, "tokenizer_config.json": {
        **bert, "added_tokens_decoder": decoder, "mask_token": "[MASK]", "additional_special_tokens": ["<s>", "<x>"]}}
    yield "added_cased_left", {"vocab.txt": vocab, "tokenizer_config.json": {
        **bert, "added_tokens_decoder": decoder, "do_lower_case": False, "truncation_side": "left",
        "image_token": "<i>"}}
    yield "split_special", {"vocab.txt": vocab, "tokenizer_config.json": {
        **bert, "added_tokens_decoder": decoder, "split_special_tokens": True}}
    yield "older", {
        "vocab.txt": renamed, "config.json": {"model_type": "bert"},
        "tokenizer_config.json": {"do_lower_case": False, "unk_token": "<unk>"},
        "special_tokens_map.json": {"pad_token": "<pad>", "mask_token": {**token("[MASK]", normalized=False), "rstrip": True},
                                    "additional_special_tokens": ["<y>"]},
        "added_tokens.json": {"<z>": len(vocab) + 1, "<y>": len(vocab), "Zed": len(vocab) + 2}}
    yield "vocab_alone", {"vocab.txt": vocab, "config.json": {"model_type": "bert"}}
    yield "json_alone", {"tokenizer.json": tokenizer_json(vocab, ADDED + MORE, lowercase=False,
                                                          max_input_chars_per_word=20)}
    yield "json_wrapped", {"tokenizer.json": tokenizer_json(vocab, ADDED, lowercase=False), "tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True, "cls_token": "[CLS]", "sep_token": "[SEP]",
        "added_tokens_decoder": {str(len(vocab)): MORE[0], str(len(vocab) + 1): MORE[3]}}}
    yield "json_and_config", {"tokenizer.json": tokenizer_json(vocab, ADDED + MORE[:2], lowercase=False),
                              "tokenizer_config.json": {**bert, "do_lower_case": True}}
    yield "disagree", {"vocab.txt": vocab, "tokenizer.json": tokenizer_json(vocab, ADDED, lowercase=False),
                       "tokenizer_config.json": {**bert, "do_lower_case": True, "added_tokens_decoder": decoder}}
    yield "two_vocabularies", {"vocab.txt": vocab, "tokenizer.json": tokenizer_json(sorted(vocab), ADDED),
                               "tokenizer_config.json": bert}


def texts():
    yield from ["", " ", "hello world", "Hello, WORLD!", "The film was unbelievable.", "running played affable",
                "café Café CAFÉ cafe\u0301 élan Élan", "Ångström Straße STRASSE straße  Straße", "İstanbul ISTANBUL ı",
                "中国文 中文 日本語 カタカナ 한국어 \ud55c", "hello\u4e16\u754cworld", "😀😀 😀a a😀 👩‍👩‍👧 🇩🇪",
                "a\u0000b\ufffdc\u200bd\u00ade\u2028f\u0085g\u000bh\ti\nj\rk", "\ue000\U000f0000\u0378",
                "x\u0301\u0323y x\u0323\u0301y \u0301a", "\u1100\u1161\u11a8 각", "a\u302e\u302fb a\u302f\u302eb",
                "\U0001d15f\U0001d165\U0001d16d a\U0001d16d\U0001d165\u0301", "ǅ Ǆ ǆ ﬁ ß ẞ Σας ΣΑΣ",
                "«hello»—world…¿que? ‘it’s’ 。、", "100% $5 a+b=c ^_` ~|<>", "[MASK] [mask] a[MASK]b  [MASK]  x",
                "[CLS] a [SEP] b [PAD] [UNK] [CLS][SEP]", "<b> <b>! <b>!! a<b>b <B>", "new one New One NEW ONE new one two",
                "tok toks atok tok. (tok) tok\u0301 tok中 _tok", "Straße   a straße", "q qq q,q  q  q aq é q", "a ;; ;b ; <r>  ;",
                "<s> <S> <x> <i> <y> <z> Zed zed <pad> <unk>", "one two three four one two threes", "éa Éa  E\u0301A x éa",
                "## ##s #", "2024 20240 10"]
    for length in (19, 20, 21, 99, 100, 101, 200):
        yield "a" * length + " b"
        yield "é" * length + " " + "中" * length
        yield "e\u0301" * length
    rng = random.Random(20)
    ranges = [(0x20, 0x7e)] * 3 + [(0, 0xff), (0x300, 0x36f), (0x100, 0x24f), (0x370, 0x52f), (0x590, 0x6ff), (0x900, 0xdff),
              (0x1d00, 0x206f), (0x2e80, 0x33ff), (0xf900, 0xffff), (0x1d100, 0x1d1ff), (0x2f800, 0x2fa1f), (0, 0x10ffff)]
    parts = SPECIAL + WORDS + [t["content"] for t in MORE] + [" "] * 40
    for _ in range(150):
        text = ""
        for _ in range(rng.randint(1, 10)):
            if rng.random() < 0.6:
                text += rng.choice(parts)
                continue
            low, high = rng.choice(ranges)
            text += "".join(chr(c) for c in (rng.randint(low, high) for _ in range(rng.randint(1, 3)))
                            if not 0xd800 <= c < 0xe000)
        yield text


PAIRS = [("the film was good", "a bad story, it was bad!"), ("", "hello world"), ("hello [SEP] world", ""),
         ("unbelievable running", "café")]


def update(hash_, rows):
    for row in rows:
        ids = row.ids + [-1]
        hash_.update(struct.pack(f"<{len(ids)}i", *ids))


def digest_texts(tokenizer, texts):
    hash_ = xxhash.xxh3_64()
    update(hash_, tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    return hash_.hexdigest()


def digest(tokenizer):
    """XXH3-64 by block of 4096 over, for each code point: the normalised text of "aXb" and of "x\\u302e\\u0301X\\u0323\\u302aq"
    with a NUL each, and the ids of "aXb", of "qXq" and of X, each list followed by -1, as little-endian 32-bit integers."""
    backend, blocks = tokenizer.backend_tokenizer, []
    normalize = backend.normalizer.normalize_str
    for block in range(0, 0x110000, 4096):
        hash_ = xxhash.xxh3_64()
        chars = [chr(code) for code in range(block, block + 4096) if not 0xd800 <= code < 0xe000]
        rows = backend.encode_batch_fast([text for char in chars for text in (f"a{char}b", f"q{char}q", char)],
                                         add_special_tokens=False)
        for i, char in enumerate(chars):
            for text in ("a" + char + "b", "x\u302e\u0301" + char + "\u0323\u302aq"):
                hash_.update(normalize(text).encode() + b"\0")
            update(hash_, rows[3 * i : 3 * i + 3])
        blocks.append(hash_.hexdigest())
    return blocks


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/tokenizer")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def write(path, value):
        path.write_text(json.dumps(value, separators=(",", ":")) + "\n", encoding="ascii")

    strings, vocab, digested = list(texts()), vocabulary(), {}
    write(folder / "texts.json", {"texts": [{"hex": text.encode().hex()} if "\0" in text else text for text in strings]})
    for name, files in variants(vocab):
        here = folder / name
        here.mkdir()
        for file, content in files.items():
            if isinstance(content, list):
                (here / file).write_text("".join(line + "\n" for line in content), encoding="utf-8")
            else:
                (here / file).write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
        tokenizer = AutoTokenizer.from_pretrained(here)
        encode = lambda text: tokenizer(text, add_special_tokens=False, truncation=False, padding=False)["input_ids"]
        # Lists, as data sets are tokenized: a single call takes an empty second text for none.
        rows = lambda *parts, length: tokenizer(*([part] for part in parts), truncation="longest_first", max_length=length,
                                                padding=False, return_token_type_ids=True)
        pairs = []
        for first, second in PAIRS:
            for length in (3, 4, 5, 7, 10, 128):
                row = rows(first, second, length=length)
                pairs.append([first, second, length, row["input_ids"][0], row["token_type_ids"][0]])
            row = rows(first, length=4)
            pairs.append([first, None, 4, row["input_ids"][0], row["token_type_ids"][0]])
        write(folder / f"{name}.json", {
            "size": len(tokenizer), "pairs": pairs,
            "ids": [encode(text) for text in strings]})
        if name in ("added", "added_cased_left"):
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()
            digested[name] = tokenizer
    write(folder / "codepoints.json", {name: digest(tokenizer) for name, tokenizer in digested.items()})
    write(folder / "random.json", random_golden(digested, lambda name, texts: digest_texts(digested[name], texts)))

    tokenizer, rows = AutoTokenizer.from_pretrained(folder / "uncased"), []
    for first in range(12):
        for second in range(12):
            for length in range(3, 28):
                types = tokenizer(["a " * first], ["b " * second], truncation="longest_first",
                                  max_length=length)["token_type_ids"][0]
                rows.append([first, second, length, types.count(0) - 2, types.count(1) - 1])
    write(folder / "truncation.json", {"rows": rows})


if __name__ == "__main__":
    main()
