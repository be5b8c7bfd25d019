#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizer_parts: folders of BPE, Unigram and other tokenizers, and what transformers makes of texts.

NAME/ is a folder, trained here on the data; NAME.json has the ids of every string of ../tokenizer/texts.json and of more,
pairs, and rows of words (is_split_into_words). codepoints.json has an XXH3-64 per 4096 code points over the ids of each
code point alone and of "aXb"; random.json the strings of random_texts.py, as an XXH3-64 per 1000 over their ids.
parts.json has single normalizers and pre-tokenizers of tokenizer.json before byte-level BPE without merges, whose ids are
the bytes: a hash of the texts, and one of each plane that has characters.

Usage: tokenizer_parts.py [--data DIR] [FOLDER]    (needs transformers, sentencepiece, protobuf and xxhash)
"""
import argparse
import csv
import json
import os
import random
import shutil
import struct
import tempfile
from pathlib import Path

import sentencepiece
import xxhash
from random_texts import random_golden
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

os.environ["TOKENIZERS_PARALLELISM"] = "false"
FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
PLANES = (0, 1, 2, 14)  # that have assigned characters; all code points are in codepoints.json
SPLIT_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MORE = ["we're I'll he'd they've don't it's I'm 'sup ''s 's", " leading", "trailing ", "  two  spaces   three", "\n\n a\n b \t c\t",
        "<s> a </s> b<mask> c <mask>d <pad> <unk>", "x<|endoftext|>y", "a     b      c", "1234 12a 3.14 ½ ² Ⅷ ٣",
        "hello▁world ▁a", "don't—stop… «ça va»", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ﬁne ①② Å Ⅳ ㎏ ｶﾞ",
        "\u00a0a\u3000b\u2028c\u0085d", "e\u0301\u0323 \u1100\u1161\u11a8 \u0b47\u0b3e \u0344 \u0958 \ufb1d"]
WORDS = [["The", "film", "was", "unbelievable", "."], ["", "a", " b", "c d", "'s"], ["<mask>", "x<mask>y", "</s>"],
         ["don't", "stop", "—", "café", "中文"], [], ["▁a", "  ", "\n"]]


def data_texts(folder):
    csv.field_size_limit(1 << 30)
    for name in ("reviews-train.csv", "sms-spam-train.csv"):
        with open(folder / name, newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                yield from row
    for line in (folder / "agnews-test.jsonl").read_text(encoding="utf-8").splitlines():
        yield from (value for value in json.loads(line).values() if isinstance(value, str))


def save(tokenizer, folder, config=None, **files):
    """tokenizer.json without line breaks, tokenizer_config.json and other files."""
    folder.mkdir(parents=True)
    if tokenizer:
        files["tokenizer.json"] = json.loads(tokenizer.to_str())
    if config is not None:
        files["tokenizer_config.json"] = config
    for name, content in files.items():
        name = name.replace("__", ".")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        (folder / name).write_text(text, encoding="utf-8")


def byte_level_bpe(texts, size, specials, normalizer=None, **options):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def sentencepiece_model(texts, **options):
    """A Unigram model with a small charsmap of its own."""
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.tsv")
        hexed = lambda text: " ".join(f"{ord(char):X}" for char in text)
        pairs = {"\t": " ", "\n": " ", "\u00a0": " ", "\u3000": " ", "ﬁ": "fi", "①": "1", "\u212b": "\u00c5", "e\u0301": "\u00e9", "\u00ad": "",
                 "㎏": "kg", "½": "1⁄2", "Ⅷ": "VIII", "ß": "ss", "\u200b": " ", "İ": "i̇", "“": '"', "”": '"', "ｶﾞ": "ガ"}
        rules.write_text("".join(f"{hexed(key)}\t{hexed(value)}\n" for key, value in sorted(pairs.items())))
        source = Path(folder, "texts.txt")
        source.write_text("\n".join(text.replace("\n", " ") for text in texts), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(source), model_prefix=str(Path(folder, "m")), model_type="unigram", vocab_size=1200, num_threads=1,
            normalization_rule_tsv=str(rules), character_coverage=0.9995, minloglevel=2, **options)
        return Path(folder, "m.model").read_bytes()


def model_folders(folder, texts):
    pair = {"pair": "[CLS] $A [SEP] $B:1 [SEP]:1"}
    roberta = byte_level_bpe(texts, 1500, FAIRSEQ)
    roberta.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    roberta.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False, special=True)])
    save(roberta, folder / "roberta", {"tokenizer_class": "RobertaTokenizer", "model_max_length": 512})
    model = json.loads(roberta.to_str())["model"]
    merges = "#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in model["merges"])
    save(None, folder / "roberta_files", vocab__json=model["vocab"], merges__txt=merges,
         config__json={"model_type": "roberta"})
    save(None, folder / "roberta_prefix", {"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": True,
                                           "mask_token": {"content": "<mask>", "lstrip": True, "special": True,
                                                          "__type": "AddedToken"}},
         vocab__json=model["vocab"], merges__txt=merges)

    modern = byte_level_bpe(texts, 1500, ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"], normalizers.NFC())
    modern.add_tokens([AddedToken(" " * count, normalized=True) for count in range(2, 7)])
    modern.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False, special=True)])
    modern.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)], **pair)
    save(modern, folder / "modernbert", {"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "[CLS]", "sep_token": "[SEP]",
                                         "pad_token": "[PAD]", "mask_token": "[MASK]", "unk_token": "[UNK]"})
    gpt2 = byte_level_bpe(texts, 700, ["<|endoftext|>"])
    gpt2.post_processor = processors.ByteLevel(trim_offsets=True)
    save(gpt2, folder / "gpt2", {"tokenizer_class": "GPT2Tokenizer"})

    for name, fuse, fallback in (("bpe_characters", True, False), ("bpe_bytes", False, True)):
        chars = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=fallback, ignore_merges=fallback))
        chars.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]) if fallback else None
        chars.pre_tokenizer = None if fallback else pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
        specials = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256 if fallback else 0)]
        chars.train_from_iterator((text[:60] for text in texts[:3000]), trainers.BpeTrainer(
            vocab_size=900, special_tokens=specials, show_progress=False, limit_alphabet=80, max_token_length=8))
        chars.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A </s> <s> $B", [("<s>", 1), ("</s>", 2)])
        chars.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        plain = json.loads(chars.to_str())
        plain["added_tokens"] = plain["added_tokens"][:3]  # the bytes are pieces, not texts
        chars = Tokenizer.from_str(json.dumps(plain))
        save(chars, folder / name, {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"})

    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.train_from_iterator(texts[:4000], trainers.UnigramTrainer(
        vocab_size=1200, special_tokens=FAIRSEQ, unk_token="<unk>", show_progress=False))
    unigram.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 2)])
    save(unigram, folder / "unigram", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<pad>",
                                       "unk_token": "<unk>", "mask_token": "<mask>"})
    for name, kind, options in (("xlm_roberta", "xlm-roberta", {}), ("camembert", "camembert", {"user_defined_symbols": ["<q>"]})):
        (folder / name).mkdir()
        (folder / name / "sentencepiece.bpe.model").write_bytes(sentencepiece_model(texts[:6000], **options))
        (folder / name / "config.json").write_text(json.dumps({"model_type": kind}))
        tokenizer_class = {"xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer"}[kind]
        (folder / name / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class}))
        AutoTokenizer.from_pretrained(folder / name).save_pretrained(folder / f"{name}_json")

    words = ["<s>", "<pad>", "</s>", "<unk>"] + (folder.parent / "tokenizer/uncased/vocab.txt").read_text("utf-8").split("\n")[:-1]
    words = [word for word in words if word not in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")] + ["<mask>"]
    save(None, folder / "mpnet", {"tokenizer_class": "MPNetTokenizer", "do_lower_case": True, "mask_token": "<mask>"},
         vocab__txt="".join(word + "\n" for word in words))


def part_cases():
    """(normalizer, pre_tokenizer): the parts that run before ByteLevel."""
    norm, pre = normalizers, pre_tokenizers
    for part in (norm.NFC(), norm.NFD(), norm.NFKC(), norm.NFKD(), norm.Lowercase(), norm.StripAccents(), norm.Nmt(), norm.Strip(),
                 norm.Strip(left=False), norm.Replace("a", "bb"), norm.Replace("  ", ""), norm.Replace(Regex(" {2,}"), "_"),
                 norm.Prepend("▁x"), norm.BertNormalizer(), norm.Sequence([]),
                 norm.Sequence([norm.NFKD(), norm.StripAccents(), norm.Lowercase(), norm.NFC()]),
                 norm.Sequence([norm.Sequence([norm.Strip()]), norm.Prepend(" "), norm.NFC()])):
        yield part, None
    behaviors = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
    yield None, pre.BertPreTokenizer()
    yield None, pre.Whitespace()
    yield None, pre.WhitespaceSplit()
    yield None, pre.Digits(individual_digits=True)
    yield None, pre.Digits(individual_digits=False)
    yield None, pre.CharDelimiterSplit("e")
    for scheme in ("never", "always", "first"):
        for split in (False, True):
            yield None, pre.Metaspace(prepend_scheme=scheme, split=split)
    for behavior in behaviors:
        yield None, pre.Punctuation(behavior)
        for invert in (False, True):
            yield None, pre.Split("  ", behavior, invert)
            yield None, pre.Split("e", behavior, invert)
        yield None, pre.Split(Regex(SPLIT_GPT2), behavior, False)
    yield None, pre.Sequence([pre.WhitespaceSplit(), pre.Punctuation(), pre.Digits(), pre.Metaspace()])
    yield norm.NFKC(), pre.Sequence([pre.Split(Regex(SPLIT_GPT2), "isolated"), pre.Digits(individual_digits=True)])


def code_point_texts(block):
    """Code points of 65536, 64 a text, each before an a."""
    for start in range(block << 16, block + 1 << 16, 64):
        yield "".join(chr(code) + "a" for code in range(start, start + 64) if not 0xD800 <= code < 0xE000)


def digest(rows):
    hash_ = xxhash.xxh3_64()
    for row in rows:
        ids = row.ids + [-1]
        hash_.update(struct.pack(f"<{len(ids)}i", *ids))
    return hash_.hexdigest()


def golden_parts(strings):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    cases = []
    for normalizer, splitter in part_cases():
        tokenizer = Tokenizer(models.BPE({char: index for index, char in enumerate(alphabet)}, []))
        last = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)  # a space before each part shows where it begins
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([splitter, last]) if splitter else last
        written = json.loads(tokenizer.to_str())
        tokenizer = Tokenizer.from_str(json.dumps(written))
        cases.append({"normalizer": written["normalizer"], "pre_tokenizer": written["pre_tokenizer"],
                      "texts": digest(tokenizer.encode_batch_fast(strings)),
                      "codes": [digest(tokenizer.encode_batch_fast(list(code_point_texts(block)))) for block in PLANES]})
    return {"alphabet": alphabet, "cases": cases}


def golden_model(folder, strings):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encode = lambda text: tokenizer(text, add_special_tokens=False, truncation=False, padding=False)["input_ids"]
    rows = lambda *parts, **options: tokenizer(*([part] for part in parts), padding=False, return_token_type_ids=True, **options)
    pairs, words = [], []
    for first, second in (("the film was good", "a bad story, it was bad!"), ("", "hello world"), ("unbelievable running", "café")):
        for length in (4, 5, 7, 10, 128):
            row = rows(first, second, truncation="longest_first", max_length=length)
            pairs.append([first, second, length, row["input_ids"][0], row["token_type_ids"][0]])
        row = rows(first, truncation="longest_first", max_length=4)
        pairs.append([first, None, 4, row["input_ids"][0], row["token_type_ids"][0]])
    splitter = AutoTokenizer.from_pretrained(folder)
    if type(splitter).__name__ in ("RobertaTokenizer", "GPT2Tokenizer"):  # as run_ner.py does
        splitter = AutoTokenizer.from_pretrained(folder, add_prefix_space=True)
    for row in WORDS:
        for length in (6, 128):
            encoded = splitter(row, is_split_into_words=True, truncation=True, max_length=length)
            of = [-1 if word is None else word for word in encoded.word_ids()]
            words.append([row, length, encoded["input_ids"], of])
    special = {name: getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep", "pad", "unk", "mask")}
    return {"size": len(tokenizer), "special": special, "pairs": pairs, "words": words,
            "ids": [encode(text) for text in strings], "more": [encode(text) for text in MORE]}


def load(folder):
    backend = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend


def digest_texts(backend, texts):
    return digest(backend.encode_batch_fast(texts, add_special_tokens=False))


def golden_code_points(backend):
    blocks = []
    for block in range(0, 0x110000, 4096):
        chars = [chr(code) for code in range(block, block + 4096) if not 0xD800 <= code < 0xE000]
        texts = [text for char in chars for text in (char, "a" + char + "b")]
        blocks.append(digest_texts(backend, texts))
    return blocks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("folder", nargs="?", default="tests/golden/tokenizer_parts")
    arguments = parser.parse_args()
    folder = Path(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write = lambda name, value: (folder / name).write_text(json.dumps(value, separators=(",", ":")) + "\n", encoding="ascii")
    listed = json.loads((folder.parent / "tokenizer/texts.json").read_text("utf-8"))["texts"]
    strings = [bytes.fromhex(text["hex"]).decode() if isinstance(text, dict) else text for text in listed]
    texts = list(data_texts(Path(arguments.data)))
    random.Random(0).shuffle(texts)
    texts = texts[:8000]
    model_folders(folder, texts)
    names = sorted(path.name for path in folder.iterdir())
    write("more.json", {"more": MORE, "names": names})
    for name in names:
        write(f"{name}.json", golden_model(folder / name, strings))
    digested = {name: load(folder / name) for name in ("roberta", "xlm_roberta", "unigram", "bpe_bytes", "mpnet")}
    write("codepoints.json", {name: golden_code_points(backend) for name, backend in digested.items()})
    write("random.json", random_golden(("roberta", "xlm_roberta"), lambda name, texts: digest_texts(digested[name], texts)))
    write("parts.json", golden_parts(strings + MORE))


if __name__ == "__main__":
    main()
