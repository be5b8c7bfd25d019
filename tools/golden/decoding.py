#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/decoding.json: small tokenizers of the kinds that decoders have (byte-level BPE with the regular expressions of
known models, SentencePiece's BPE with byte fallback in the three layouts of Llama and Gemma, also as a tokenizer.model, in hexadecimal)
and others for each decoder; of texts the ids, of one also the row with special tokens, and of these and of random ids the text, with
and without special tokens, as transformers' AutoTokenizer gives them.

Usage: decoding.py [FILE]    (needs transformers, tokenizers, sentencepiece, protobuf)
"""
import json
import random
import sys
import tempfile
from pathlib import Path

from sentencepiece import SentencePieceTrainer
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer
from split_patterns import MODELS

TRAINED = ["The quick brown fox doesn't jump over the lazy dog.", "camelCase HTTPServer and snake_case, 123 numbers 2024!",
           "  indented\n    code();\n\n", "Der schnelle Fuchs: schön, größer.", "быстрая лиса", "漢字かな 한국어", "it's what we've said"] * 3
TEXTS = ["", "The quick brown fox.", "  two  spaces, doesn't it's", "line\n\n  next\r\n\tend ", "größer 漢字かな 한국어 नमस्ते", "👩‍👩‍👧 👍🏽 e\u0301",
         "123 12345 HTTPServer", "<s>The</s> <mask> x", " ▁ a▁b", "<0x41> . , ! ' s n't do not", "a" * 30, "\u00a0\u3000x\u200b", "'sup 'rx 'vx 'lx 'r 'l abc ab  ",
         "ab\u6f22c bb cab", "b c  b ccé aé  a b", "qq qq  q"]
SPECIAL = ["<unk>", "<s>", "</s>", "<mask>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
ROUNDS = 40


def added(tokenizer, normalized=False):
    tokenizer.add_special_tokens([AddedToken(text, normalized=normalized, special=True) for text in SPECIAL])
    return tokenizer


def byte_level(pattern, digits=None, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    steps = [pre_tokenizers.Split(Regex(part), "isolated") for part in ([digits] if digits else []) + [pattern]]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TRAINED, trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def sentencepiece(normalizer, pre_tokenizer, decoder, fuse_unk=True, fallback=True, normalized=False):
    """BPE over characters, with the tokens of bytes before the others; without "z", which becomes bytes."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator([text.replace("z", "") for text in TRAINED], trainers.BpeTrainer(vocab_size=140))
    model = json.loads(trained.to_str())["model"]
    pieces = SPECIAL[:3] + (BYTES if fallback else []) + [piece for piece, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    tokenizer = Tokenizer(models.BPE(vocab={piece: number for number, piece in enumerate(dict.fromkeys(pieces))},
                                     merges=[tuple(merge) for merge in model["merges"]], unk_token="<unk>", fuse_unk=fuse_unk,
                                     byte_fallback=fallback))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    return added(tokenizer, normalized)


def sentencepiece_model(kind="bpe", **options):
    """SentencePiece's own, without "z"."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "texts.txt")
        source.write_text("\n".join(text.replace("z", "").replace("\n", " ") for text in TRAINED), encoding="utf-8")
        SentencePieceTrainer.train(
            input=str(source), model_prefix=str(Path(folder, "m")), model_type=kind, byte_fallback=kind == "bpe",
            vocab_size=430 if kind == "bpe" else 80,
            normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1, minloglevel=2, **options)
        return Path(folder, "m.model").read_bytes()


def plain(model, decoder=None, pre_tokenizer=None):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.BertPreTokenizer()
    if decoder:
        tokenizer.decoder = decoder
    return added(tokenizer)


def word_piece(decoder):
    pieces = SPECIAL + list("abcdefghijklmnopqrstuvwxyzT.,!'") + ["##" + letter for letter in "abcdefghijklmnopqrstuvwxyz"] + ["fox", "do", "not"]
    return plain(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="<unk>"), decoder)


def unigram(decoder):
    pieces = [("<unk>", 0.0)] + [(piece, -float(number)) for number, piece in enumerate(["▁", "▁The", "▁a", "e", "a", "x", "fox", "▁quick", "."])]
    return plain(models.Unigram(pieces, unk_id=0, byte_fallback=False), decoder, pre_tokenizers.Metaspace())


def pieces_cases():
    """Folders with a tokenizer.model alone."""
    llama = sentencepiece_model(control_symbols=["[INST]", "[/INST]"], user_defined_symbols=["<mask>", "fox"])
    gemma = sentencepiece_model(pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>",
                                add_dummy_prefix=False)
    yield "llama.model", llama, {"tokenizer_class": "LlamaTokenizer"}
    yield "llama.model legacy", llama, {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": True}
    yield "llama.model no prefix", llama, {"tokenizer_class": "LlamaTokenizerFast", "add_prefix_space": False, "add_bos_token": True,
                                           "add_eos_token": True}
    yield "no charsmap", sentencepiece_model("unigram"), {"tokenizer_class": "XLMRobertaTokenizer"}
    usual = sentencepiece_model(control_symbols=["[INST]"])
    yield "usual.model", usual, {}
    yield "usual.model, first", usual, {"legacy": False, "add_bos_token": True, "tokenizer_class": "TokenizersBackend"}
    yield "gemma.model", gemma, {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True}


def tokenizers():
    replace, fallback, fuse = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()
    llama = decoders.Sequence([replace, fallback, fuse, decoders.Strip(" ", 1, 0)])
    yield "gpt4", byte_level(MODELS["gpt4"]), {}
    yield "llama3", byte_level(MODELS["llama3"], ignore_merges=True), {"clean_up_tokenization_spaces": True}
    yield "qwen2", byte_level(MODELS["qwen2"], normalizer=normalizers.NFC()), {
        "clean_up_tokenization_spaces": True, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True}
    yield "deepseek", byte_level(MODELS["deepseek"], digits=r"\p{N}{1,3}"), {}
    yield "llama2", sentencepiece(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, llama,
                                  normalized=True), {}
    yield "llama2 not legacy", sentencepiece(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), llama), {}
    yield "gemma", sentencepiece(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
                                 decoders.Sequence([replace, fallback, fuse])), {}
    yield "unknown", sentencepiece(None, pre_tokenizers.Metaspace(), decoders.Metaspace(), fuse_unk=True, fallback=False), {}
    yield "unknown each", sentencepiece(None, pre_tokenizers.Metaspace(prepend_scheme="never"), decoders.Metaspace(prepend_scheme="never"),
                                        fuse_unk=False, fallback=False), {}
    yield "word_piece", word_piece(decoders.WordPiece("##", True)), {}
    yield "word_piece as it is", word_piece(decoders.WordPiece("##", False)), {"clean_up_tokenization_spaces": True}
    yield "unigram", unigram(decoders.Metaspace()), {"clean_up_tokenization_spaces": True}
    yield "no decoder", unigram(None), {}
    yield "bpe", unigram(decoders.BPEDecoder("x")), {}
    # Classes that build the parts themselves: of tokenizer.json they use the vocabulary and the added tokens.
    other = byte_level(MODELS["gpt4"], normalizer=normalizers.Lowercase())
    yield "Qwen2Tokenizer", other, {"tokenizer_class": "Qwen2Tokenizer", "pad_token": "</s>"}
    yield "Qwen2Tokenizer prefix", other, {"tokenizer_class": "Qwen2TokenizerFast", "add_prefix_space": True}
    pieces = sentencepiece(normalizers.Lowercase(), None, decoders.Fuse())
    for settings in ({}, {"legacy": True}, {"add_prefix_space": False}):
        yield f"LlamaTokenizer {settings}", pieces, {"tokenizer_class": "LlamaTokenizer", **settings}
    yield "LlamaTokenizer of bytes", byte_level(MODELS["llama3"]), {"tokenizer_class": "LlamaTokenizerFast"}
    yield "GemmaTokenizer", pieces, {"tokenizer_class": "GemmaTokenizer", "bos_token": "<s>", "unk_token": "<unk>"}
    yield "regex", unigram(decoders.Sequence([decoders.Replace(Regex("[ae]+|▁(?=.)"), "<>"), decoders.Strip("o", 1, 2), decoders.Fuse(),
                                              decoders.Strip("<", 3, 0)])), {}


def odd_files():
    """What trained tokenizers do not have: a merge twice, tokens that no merges make, that are empty or not of the alphabet of bytes."""
    alphabet = {char: number for number, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocab = {**alphabet, "ab": 256, "bc": 257, "abc": 258, "xyz": 259, "a\u6f22b": 260, "": 261, "b\u0120": 262, "\u6f22": 263, "\u0149x": 264}
    model = {"type": "BPE", "vocab": vocab, "merges": ["b c", "a b", "ab c", "b c", ["b", "\u0120"]], "byte_fallback": True}
    model["merges"] = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    rows = lambda *pieces: {"type": "TemplateProcessing", "single": list(pieces), "pair": [A, B], "special_tokens": {}}
    A, B = ({"Sequence": {"id": name, "type_id": number}} for number, name in enumerate("AB"))
    parts = {"version": "1.0", "added_tokens": [], "normalizer": {"type": "Strip", "strip_left": False, "strip_right": True},
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True, "trim_offsets": True},
             "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
             "post_processor": rows(A), "model": model}
    split = {"type": "Split", "pattern": {"Regex": "\\p{L}+"}, "behavior": "Isolated", "invert": False}
    replace = {"type": "Replace", "pattern": {"Regex": "[bc] "}, "content": "x"}
    yield "odd", Tokenizer.from_str(json.dumps(parts)), {}
    yield "odd, left", Tokenizer.from_str(json.dumps({**parts, "normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}})), {}
    yield "odd, replaced", Tokenizer.from_str(json.dumps({**parts, "normalizer": replace})), {}
    yield "odd, ignore_merges", Tokenizer.from_str(json.dumps({**parts, "model": {**model, "ignore_merges": True}, "pre_tokenizer": {
        "type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False, "trim_offsets": True}]}})), {}


def joined_marks():
    """Merges that join a character with the ▁ after it, and such that do not."""
    vocab = {piece: number for number, piece in enumerate(SPECIAL[:3] + ["▁", *"abcx", "é", "b▁", "▁c", "b▁c", "▁▁", "é▁a", "▁a", "ab"])}
    merges = [("▁", "▁"), ("b", "▁"), ("▁", "c"), ("b▁", "c"), ("▁", "a"), ("é", "▁a"), ("a", "b")]
    for ignores in (False, True):
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, ignore_merges=ignores))
        tokenizer.normalizer, tokenizer.decoder = normalizers.Replace(" ", "▁"), decoders.Replace("▁", " ")
        yield f"joined marks, ignore_merges {ignores}", added(tokenizer), {}
    without = {piece: number for number, piece in enumerate(SPECIAL[:3] + list("abcx"))}
    tokenizer = Tokenizer(models.BPE(vocab=without, merges=[], unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer, tokenizer.decoder = normalizers.Replace(" ", "▁"), decoders.Replace("▁", " ")
    yield "unknown marks", added(tokenizer), {}


def case(name, tokenizer, settings):
    with tempfile.TemporaryDirectory() as folder:
        model = isinstance(tokenizer, bytes)
        unigram = settings.get("tokenizer_class") == "XLMRobertaTokenizer"
        path = str(Path(folder) / ("sentencepiece.bpe.model" if unigram else "tokenizer.model" if model else "tokenizer.json"))
        Path(path).write_bytes(tokenizer) if model else tokenizer.save(path)
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", **settings}
        (Path(folder) / "tokenizer_config.json").write_text(json.dumps(settings))
        fast = AutoTokenizer.from_pretrained(folder)
        assert type(fast).__name__ in (settings["tokenizer_class"].removesuffix("Fast"), "TokenizersBackend"), type(fast)
        file = tokenizer.hex() if model else json.loads(Path(path).read_text())
    ids = [fast(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    source = random.Random(name)
    size = len(fast)
    byte_tokens = [fast.convert_tokens_to_ids(text) for text in BYTES] if "<0x00>" in fast.get_vocab() else []
    for number in range(ROUNDS):
        some = byte_tokens if byte_tokens and number % 2 else range(size)
        row = [source.choice(some) for _ in range(source.randrange(1, 12))]
        if "\0" not in fast.decode(row):  # which Jansson does not read
            ids.append(row)
    return {"name": name, "files": {Path(path).name: file, "tokenizer_config.json": settings},
            "row": fast(TEXTS[1])["input_ids"], "ids": ids, "texts": [fast.decode(row) for row in ids], "skipped": [fast.decode(row, skip_special_tokens=True) for row in ids]}


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2] / "tests/golden/decoding.json"
    with open(path, "w") as file:
        json.dump({"texts": TEXTS, "cases": [case(*one) for source in (tokenizers(), odd_files(), pieces_cases(), joined_marks()) for one in source]}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
