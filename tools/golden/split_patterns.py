#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/regex.json: what `tokenizers` makes of texts with the Split regular expressions of known models and with
patterns that try each part of the dialect; and, for the patterns of models, one XXH3-64 over the pieces of every block of the
random strings of random_texts.py and over those of every code point between other characters.

Usage: split_patterns.py [FILE]    (needs tokenizers, xxhash)
"""
import json
import sys
from pathlib import Path

import xxhash
from tokenizers import Regex, pre_tokenizers
from random_texts import COUNT, PARTS, RANGES, random_text

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
MODELS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "gpt2 short": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "gpt4": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "llama3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen3.5": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
             r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    "kimi": rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]*[{LOWER}&&[^\p{{Han}}]]+{CONTRACTIONS}?"
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "bloom": " ?[^(\\s|[.,!?…。，、।۔،])]+",
    "kana": "[一-龥぀-ゟ゠-ヿ]+",
}
TEXTS = ["", " ", "a", "Hello, I'M don't SHE'LL we'Ve it'ſ x'S", "  two  spaces\tand\n\n lines \r\n  \r\n", "123 4567 ½ Ⅷ ②२३",
         "camelCase HTTPServer ÉCOLE ǅungla naïve", "漢字かな交じり文。カタカナ、ｶﾅ 한국어 조선말", "नमस्ते दुनिया สวัสดี e\u0301a\u0308",
         "👩‍👩‍👧 👍🏽! x\u200by\u00a0z\u3000w", "//path/to[0]=\"x\";\n\t}\r\n", "_a-b__c", "..., \n!?\r\n/", "\u0085\u2028\u2029a",
         "aaa" * 20 + " " * 20]
# Pattern, texts.
PARTS_OF_DIALECT = [
    (r"a|ab|abc", ["abcab"]), (r"(?:ab|a)b", ["abb ab"]), (r"a{2}", ["aaaaa"]), (r"a{1,2}+a", ["aaaaa"]), (r"a{,2}b", ["aaab b"]),
    (r"a{2,}", ["a aa aaa"]), (r"a{2,3}?", ["aaaaaaa"]), (r"a{2}?b", ["aab b"]), (r"a+?b", ["aab ab"]), (r"a*?b", ["aab"]),
    (r"a??b", ["ab b"]), (r"a++b|a", ["aab aa"]), (r"a*+b|a", ["aab aa"]), (r"a?+a", ["a aa"]), (r"(?:ab)++a|b", ["ababa ab"]),
    (r"(?:ab|c){2,3}?", ["abcabc"]), (r"(?:a|b)+?c", ["abac"]), (r"a{2}{3}", ["a" * 13]), (r"(?>a|ab)c", ["ac abc"]),
    (r"(?i:'s)x", ["'sx 'SX 'Sx 'ſx"]), (r"(?i)k[a-c]", ["KA kb \u212aC"]), (r"a(?i)b|c", ["aB aC AB"]), (r"(?i:[^a-c])d", ["AdxD"]),
    (r"^a", ["a\na\nba"]), (r"a$", ["a\naba"]), (r"\Aa", ["aa"]), (r"a\z", ["a\na"]), (r"\ba", ["a ba éa"]), (r"\Ba", ["a ba"]),
    (r".", ["a\nb"]), (r"\s\S", ["a b\u00a0c\u0085d"]), (r"\d\D", ["1a२b²c"]), (r"\w\W", ["a- é_ _. \u0301! ²,"]), (r"\h\H", ["agAGg"]),
    (r"\p{^L}", ["a1é-"]), (r"\P{Lu}", ["aAé"]), (r"\p{lu}\p{Nd}\p{Zs}", ["A1 B² "]), (r"\p{Hiragana}+|\p{Katakana}|\p{Hangul}", ["かなカナ한글漢"]),
    (r"[\p{L}&&[^\p{Han}]]+", ["ab漢字cd"]), (r"[^a&&b]", ["abc"]), (r"[a-c&&b-d]", ["abcd"]), (r"[a[b-c]d]", ["abcde"]),
    (r"[^[^a]]", ["ab"]), (r"[a-]", ["a-b"]), (r"[-a]", ["a-b"]), (r"[\w-]+", ["a-b c"]), (r"[\]\\\[^-]", ["]\\[^-a"]), (r"[\t-\r]", ["a\tb\nc"]),
    (r"\x41\x{1F600}\u0042", ["A😀B"]), (r"\.\-\_\/", [".-_/"]), (r"\n|\r|\t|\f|\v|\a|\e", ["\n\r\t\f\v\a\x1b"]),
    (r"a(?=b)", ["ab ac"]), (r"a(?!b)", ["ab ac a"]), (r"(?<=a)b", ["ab b"]), (r"(?<![ab])c", ["c ac bc xc"]), (r"a(?=b+c|d)", ["abbc abb ad"]),
    (r"{a{x}a}]", ["{a{x}a}]"]), (r"a{1", ["a{1"]), (r"(a)(?:(b)|c)", ["abac"]), (r"x(?:a|)y", ["xy xay"]), (r"(?:a|b|cd)*e", ["abcde e"]),
    (r"\n^|a", ["a\n", "a\nb"]), (r"a\b", ["a ab a"]), (r"a{1,,2}|a{-}|a{}", ["a{1,,2}a{-}a{}"]), (r"\x4a\x{6A}", ["Jj"]),
    (r"\p{M}+", ["e\u0301\u0308o"]), (r"(?:\p{L}\p{M}*){2}", ["e\u0301a\u0308b"]),
]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


def split(pattern, text, behavior="isolated", invert=False):
    return [piece for piece, _ in pre_tokenizers.Split(Regex(pattern), behavior, invert).pre_tokenize_str(text)]


def digest(pattern, texts):
    """Of the pieces of the texts, each with a NUL after it, and another one after each text."""
    splitter = pre_tokenizers.Split(Regex(pattern), "isolated")
    hasher = xxhash.xxh3_64()
    for text in texts:
        hasher.update(b"".join(piece.encode() + b"\0" for piece, _ in splitter.pre_tokenize_str(text)) + b"\0")
    return hasher.hexdigest()


def code_points(block):
    return ["a" + chr(code) + chr(code) + "1 " + chr(code) for code in range(block << 12, (block + 1) << 12)
            if not 0xD800 <= code < 0xE000]


def main():
    cases = [[pattern, "isolated", False, [[text, split(pattern, text)] for text in TEXTS]] for pattern in MODELS.values()]
    cases += [[pattern, "isolated", False, [[text, split(pattern, text)] for text in texts]] for pattern, texts in PARTS_OF_DIALECT]
    for behavior in BEHAVIORS:
        for invert in (False, True):
            for pattern in (r"[ab]", r"\d{1,2}", r"\s+|-"):
                texts = ["", "a", "xabyaz", "12345a6 -7- b", " - ", "bba"]
                cases.append([pattern, behavior, invert, [[text, split(pattern, text, behavior, invert)] for text in texts]])
    block = 5000
    blocks = [[random_text(number) for number in range(first, first + block)] for first in range(0, COUNT, block)]
    planes = list(range(0x20)) + [0xE0, 0x10F]
    digests = {pattern: [digest(pattern, texts) for texts in blocks[:6]] + [digest(pattern, code_points(plane)) for plane in planes]
               for pattern in MODELS.values()}
    path = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2] / "tests/golden/regex.json"
    with open(path, "w") as file:
        json.dump({"cases": cases, "block": block, "random": 6, "planes": planes, "ranges": RANGES, "parts": PARTS,
                   "digests": digests}, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
