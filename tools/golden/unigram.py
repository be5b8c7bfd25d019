#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/unigram: small SentencePiece models, and what the `tokenizers` library makes of texts with them.

The models are trained on the texts of a data folder and the sentences below; NAME.model is what the `sentencepiece` package
writes. golden.json has, for each model, the normalized form and ids of some sentences; one XXH3-64 over those of the texts
(see digest), and one per 16384 code points over what becomes of each of them in several surroundings; and vocabularies made
by hand, for ties and unknown characters, each with one XXH3-64 over the ids of every short text.

With --compare PROGRAM (build/test_unigram), compares PROGRAM's normalized texts and ids with the library's instead: of every
code point in several surroundings, of the data's texts and of random strings, for each normalization that sentencepiece has.

Usage: unigram.py [--data DIR] [--folder DIR] [--compare PROGRAM [--random 100000] [--seed 0]]
(needs sentencepiece, tokenizers, xxhash)
"""
import argparse
import csv
import io
import itertools
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import sentencepiece
import xxhash
from sentencepiece import sentencepiece_model_pb2
from tokenizers import models, normalizers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tables"))
from gen_grapheme_tables import probe_map

SENTENCES = """Der schnelle braune Fuchs springt über den faulen Hund, während die Straße größer wird.
Le cœur a ses raisons que la raison ne connaît point ; l'été dernier, ça allait mieux.
El niño comió una manzana en la montaña y después bebió agua fría.
Быстрая коричневая лиса прыгает через ленивую собаку, а день стоит хороший.
Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.
השועל החום המהיר קופץ מעל הכלב העצלן.
الثعلب البني السريع يقفز فوق الكلب الكسول.
तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर से कूद जाती है।
敏捷的棕色狐狸跳过了懒狗。这部电影非常好看。
素早い茶色の狐がのろまな犬を飛び越えます。映画はとても面白かった。
빠른 갈색 여우가 게으른 개를 뛰어넘습니다. 영화가 아주 재미있었어요.
สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ
Con cáo nâu nhanh nhẹn nhảy qua con chó lười biếng.""".split("\n")

RANGES = [(0x20, 0x7E)] * 3 + [
    (0, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xEFF), (0x1100, 0x11FF),
    (0x1D00, 0x1FFF), (0x2000, 0x206F), (0x2100, 0x214F), (0x2E80, 0x33FF), (0x4E00, 0x4E80), (0xA960, 0xA97C), (0xAC00, 0xAC80),
    (0xD7B0, 0xD7FB), (0xF900, 0xFAFF), (0xFE00, 0xFFFF), (0x11000, 0x11FFF), (0x1D100, 0x1D1FF), (0x1F1E6, 0x1F1FF),
    (0x1F300, 0x1F6FF), (0x2F800, 0x2FA1F), (0xE0000, 0xE01EF), (0, 0x10FFFF)]
# What the rules of grapheme clusters treat in different ways, and what the charsmap replaces beside it.
PARTS = ["\r", "\n", "\r\n", "\u200d", "\u200c", "\ufe0f", "\u0301", "\u0308", "\u3099", "\u309a", "\u0903", "\u094d", "\u0915",
         "\u0958", "\u09cd", "\u0995", "\u09dc", "\u0d4d", "\u0d15", "\u1100", "\u1161", "\u11a8", "\uac00", "\uac01", "\u0600",
         "\u0d4e", "\U0001F1E6", "\U0001F468", "\U0001F3FB", "\u00a9", "\u2122", "\u0e33", "\u0e40", "\uff21", "\uff76", "\u00ad",
         "\u200b", "\u2581", "\t", " ", "  ", "e", "a", "1", "\u00bd", "\ufb01", "\u1e9b\u0323", "\u0344", "\u212b", "\u1d15e",
         "<unk>", "<s>", "<0x41>", "the", "ing", "\u2581the"]


def data_texts(folder):
    """The field "text", "sentence" or "message", or the longest, of every row of the training files."""
    csv.field_size_limit(1 << 30)
    for path in sorted(folder.glob("*-train.*")):
        if path.suffix == ".jsonl":
            yield from (json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines())
        elif path.suffix == ".csv":
            with open(path, newline="", encoding="utf-8") as file:
                yield from (max(row, key=len) for row in csv.reader(file))
        else:
            yield from (max(line.split("\t"), key=len) for line in path.read_text(encoding="utf-8").splitlines())


def random_texts(count, seed, parts=0.4):
    """Strings of PARTS, and so much the less of RANGES."""
    rng = random.Random(seed)
    for _ in range(count):
        text = ""
        for _ in range(rng.randint(0, 30)):
            if rng.random() < parts:
                text += rng.choice(PARTS)
                continue
            low, high = rng.choice(RANGES)
            codes = (rng.randint(low, high) for _ in range(rng.randint(1, 5)))
            text += "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
        yield text


def train(texts, size, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type="unigram", vocab_size=size, minloglevel=2,
        character_coverage=0.9995, num_threads=1, input_sentence_size=20000, shuffle_input_sentence=False, **options)
    return model.getvalue()


def cluster_model():
    """Makes the ends of grapheme clusters visible: its charsmap is the one that gen_grapheme_tables asks with."""
    proto = sentencepiece_model_pb2.ModelProto()
    for text in ("<unk>", "b", "bb", "bbb", "\n", "\u2581"):
        proto.pieces.add(piece=text, score=-len(text))
    proto.normalizer_spec.precompiled_charsmap = probe_map()
    return proto.SerializeToString()


class Reference:
    """The library with the vocabulary and the charsmap of a SentencePiece model."""

    def __init__(self, model):
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        charsmap = proto.normalizer_spec.precompiled_charsmap
        self.normalizer = normalizers.Precompiled(charsmap) if charsmap else None
        pieces = [(piece.piece, piece.score) for piece in proto.pieces]
        self.model = models.Unigram(pieces, proto.trainer_spec.unk_id, proto.trainer_spec.byte_fallback)

    def normalize(self, text):
        return self.normalizer.normalize_str(text) if self.normalizer else text

    def encode(self, text):
        """The normalized text, and the ids of all of it as one word."""
        text = self.normalize(text)
        return text, [token.id for token in self.model.tokenize("\u2581" + text.replace(" ", "\u2581"))]


def surroundings(code):
    char = chr(code)
    return char, "a" + char + "b", "\uff21" + char + "\u0301", "\u0915\u094d" + char + "\u094d\u0915\u0301"


def update(hash_, reference, text):
    """Adds the normalized text with a NUL, and the ids with -1 as little-endian 32-bit integers."""
    normalized, ids = reference.encode(text)
    ids.append(-1)
    hash_.update(normalized.encode() + b"\0" + struct.pack(f"<{len(ids)}i", *ids))


def digest(reference, texts):
    hash_ = xxhash.xxh3_64()
    for text in texts:
        update(hash_, reference, text)
    return hash_.hexdigest()


def codepoints(reference):
    for block in range(0, 0x110000, 16384):
        codes = (code for code in range(block, block + 16384) if not 0xD800 <= code < 0xE000)
        yield digest(reference, (text for code in codes for text in surroundings(code)))


def handmade():
    """Name, vocabulary, unk_id, byte_fallback; the strings of which texts are made, and how many of them at most."""
    ties = [["<unk>", 0], ["a", -1], ["b", -1], ["aa", -2], ["ab", -2], ["ba", -2], ["aab", -3], ["bab", -3], ["aaaa", -4]]
    loose = [["a", 1], ["<unk>", 0], ["ab", 40], ["abc", 21], ["xy", 20.5], ["y", 21], ["x<unk>", 20.25]]
    twice = [["<unk>", 0], ["a", -1], ["aa", -5], ["aa", -1.5], ["b", -3], ["b", -2]]
    some_bytes = [["<unk>", 0], ["a", -1], *([f"<0x{byte:02X}>", -9] for byte in b"xy\xe2\x98\x83")]
    fractions = [["<unk>", 0], *([text, -len(text) / 3] for text in ("a", "b", "aa", "ab", "aba", "bab", "abab"))]
    yield "ties", ties, 0, False, "abx", 6
    yield "no unknown token", [["a", -1], ["b", -2], ["ab", -2.5], ["ba", -30], ["xb", -4], ["xx", -7]], None, False, "abx", 6
    yield "positive scores", loose, 1, False, ["a", "b", "c", "x", "y", "<unk>"], 5
    yield "equal pieces", twice, 0, False, "ab\u2603", 6
    yield "some byte tokens", some_bytes, 0, True, ["a", "x", "y", "z", "\u2603"], 5
    yield "fractions", fractions, 0, False, "ab", 11


def handmade_digest(vocabulary, unk, byte_fallback, parts, most):
    """XXH3-64 over the ids of each text and -1; of -2 where the library fails."""
    model, hash_ = models.Unigram([tuple(piece) for piece in vocabulary], unk, byte_fallback), xxhash.xxh3_64()
    for length in range(1, most + 1):
        for text in itertools.product(parts, repeat=length):
            try:
                ids = [*(token.id for token in model.tokenize("".join(text))), -1]
            except Exception as error:
                assert "unk_id" in str(error), error
                ids = [-2]
            hash_.update(struct.pack(f"<{len(ids)}i", *ids))
    return hash_.hexdigest()


def run_program(program, model, texts):
    """(normalized text, ids) of each text."""
    data = b"".join(struct.pack("<I", len(text)) + text for text in (text.encode() for text in texts))
    output = subprocess.run([program, model], input=data, stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in texts:
        (size,) = struct.unpack_from("<I", output, at)
        normalized = output[at + 4 : at + 4 + size].decode()
        at += 4 + size
        (count,) = struct.unpack_from("<I", output, at)
        yield normalized, list(struct.unpack_from(f"<{count}i", output, at + 4))
        at += 4 + 4 * count
    assert at == len(output)


def compare(arguments, name, model):
    reference, different, total = Reference(model), 0, 0
    texts = itertools.chain(
        (text for code in range(0x110000) if not 0xD800 <= code < 0xE000 for text in surroundings(code)),
        data_texts(arguments.data), random_texts(arguments.random, arguments.seed),
        random_texts(arguments.random, arguments.seed + 1, parts=1))
    with tempfile.NamedTemporaryFile(suffix=".model") as file:
        file.write(model)
        file.flush()
        while batch := list(itertools.islice(texts, 100000)):
            total += len(batch)
            for text, found in zip(batch, run_program(arguments.compare, file.name, batch)):
                expected = reference.encode(text)
                if found == expected:
                    continue
                different += 1
                if different <= 5:
                    print(f"{text!a}\n  expected {expected!a}\n  found    {found!a}")
    print(f"{name}: {different} of {total} differ", flush=True)
    return different


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=os.environ.get("SNUG_DATA", "../shared/data"))
    parser.add_argument("--folder", type=Path, default="tests/golden/unigram")
    parser.add_argument("--compare")
    parser.add_argument("--random", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    texts = [text for text in data_texts(arguments.data) if "\0" not in text][:20000] + SENTENCES * 30
    bytes_options = {"byte_fallback": True, "normalization_rule_name": "identity", "user_defined_symbols": ["<mask>"]}
    if arguments.compare:
        different = compare(arguments, "clusters", cluster_model())
        different += compare(arguments, "bytes", train(texts, 500, **bytes_options))
        for rule in ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf"):
            different += compare(arguments, rule, train(texts, 2000, normalization_rule_name=rule))
        sys.exit(different > 0)

    arguments.folder.mkdir(parents=True, exist_ok=True)
    strings = [text for text in random_texts(80, 1) if "\0" not in text]
    strings += [*PARTS, "", "a" * 300, "\u0301" * 300, "\u2603" * 300, "the " * 100]
    golden = {"sentences": SENTENCES, "texts": strings, "models": {}, "handmade": []}
    for name, model in (("nmt_nfkc", train(texts, 2000, normalization_rule_name="nmt_nfkc")),
                        ("bytes", train(texts, 500, **bytes_options)), ("clusters", cluster_model())):
        (arguments.folder / f"{name}.model").write_bytes(model)
        reference = Reference(model)
        golden["models"][name] = {
            "sentences": [reference.encode(text) for text in SENTENCES],
            "texts": digest(reference, strings),
            "codepoints": list(codepoints(reference)),
        }
    for name, vocabulary, unk, byte_fallback, parts, most in handmade():
        golden["handmade"].append({
            "name": name, "vocab": vocabulary, "unk_id": unk, "byte_fallback": byte_fallback, "parts": list(parts), "most": most,
            "digest": handmade_digest(vocabulary, unk, byte_fallback, parts, most)})
    text = json.dumps(golden, separators=(",", ":"), ensure_ascii=False)
    (arguments.folder / "golden.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
