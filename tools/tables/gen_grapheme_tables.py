#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/tokenizer/grapheme_tables.h: how the `tokenizers` library divides text into grapheme clusters, measured on the library.

utf8proc's Unicode version depends on the system, and versions before 2.10 lack rule GB9c. So the class of every scalar value
is read off the library, through a charsmap made for it: a Precompiled normalizer replaces a cluster of less than 6 bytes by
"b" if its first byte is in the map; in a longer cluster it replaces each character. With every first byte in the map, the
number of "b" tells where clusters end.

Usage: gen_grapheme_tables.py [OUTPUT]    (needs the `tokenizers` package)
"""
import struct
import sys

from tokenizers import __version__
from tokenizers.normalizers import Precompiled

# The order of enum break_class in src/tokenizer/grapheme.c.
CLASSES = ["OTHER", "CR", "LF", "CONTROL", "L", "V", "T", "LV", "LVT", "REGIONAL", "PREPEND", "SPACING", "PICTOGRAPH", "EXTEND",
           "CONJUNCT_EXTEND", "LINKER", "ZWJ", "CONSONANT"]
ACUTE, ZWJ, SIGN, KA, VIRAMA = "\u0301", "\u200d", "\u00a9", "\u0915", "\u094d"


def probe_map():
    """Replaces every byte string by "b" but those that begin with a line feed."""
    units = [0] * 512
    units[0] = 256 << 10
    for byte in range(1, 256):
        if byte != 10:
            units[256 + byte] = 256 << 10 | 1 << 8 | byte
            units[byte] = 1 << 31
    return struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + b"b\0"


NORMALIZER = Precompiled(probe_map())


def counts(texts):
    return [len(line) for line in NORMALIZER.normalize_str("\n".join(texts)).split("\n")]


def ask(form, chars, *joined):
    """Whether form.format(char) is joined, as it is where the library makes one of these numbers of "b" of it."""
    answers = {}
    for start in range(0, len(chars), 4096):
        part = chars[start : start + 4096]
        for char, count in zip(part, counts([form.format(char) for char in part])):
            answers[char] = count in joined
    return answers


def classify():
    chars = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000 and code not in (10, 13)]
    classes = {"\r": "CR", "\n": "LF", ZWJ: "ZWJ"}
    after = ask("a{}", chars, 1)
    extending = [char for char in chars if after[char] and char != ZWJ]
    extend = ask(SIGN + "{}" + ZWJ + SIGN + ACUTE, extending, 5)
    linker = ask(KA + "{}" + KA + ACUTE, extending, 4)
    conjunct = ask(KA + "{}" + VIRAMA + KA + ACUTE, extending, 5)
    for char in extending:
        classes[char] = ("SPACING" if not extend[char] else "LINKER" if linker[char] else
                         "CONJUNCT_EXTEND" if conjunct[char] else "EXTEND")
        assert extend[char] or not linker[char] and not conjunct[char], hex(ord(char))
    # Regional indicators have 4 bytes, so that the library treats a pair as it treats two: Unicode's stable range.
    flags = {chr(code) for code in range(0x1F1E6, 0x1F200)}
    alone = [char for char in chars if not after[char] and char not in flags]
    control = ask("{}" + 2 * ACUTE, alone, 2)
    prepend = ask("{}a" + ACUTE, alone, 1, 3)
    pictograph = ask(SIGN + ZWJ + "{}" + ACUTE, alone, 4)
    consonant = ask("{}" + VIRAMA + KA + ACUTE, alone, 4)
    hangul_like = [char for char in alone if 0x800 <= ord(char) < 0x10000 and not control[char] and not prepend[char]]
    joins = [ask(char + "{}" + ACUTE, hangul_like, 3) for char in "\u1100\u1161\u11a8"]
    joins += [ask("{}" + char + ACUTE, hangul_like, 3) for char in "\u1100\u1161\u11a8"]
    hangul = {  # whether L, V, T are joined before it, and after it
        (True, False, False, True, True, False): "L", (True, True, False, False, True, True): "V",
        (False, True, True, False, False, True): "T", (True, False, False, False, True, True): "LV",
        (True, False, False, False, False, True): "LVT"}
    for char in flags:
        assert not after[char], hex(ord(char))
        classes[char] = "REGIONAL"
    for char in alone:
        found = [name for name, answers in (("CONTROL", control), ("PREPEND", prepend), ("PICTOGRAPH", pictograph),
                                            ("CONSONANT", consonant)) if answers[char]]
        joined = tuple(answers.get(char, False) for answers in joins)
        if any(joined):
            found.append(hangul[joined])
        assert len(found) < 2, (hex(ord(char)), found)
        classes[char] = found[0] if found else "OTHER"
    return classes


def main():
    classes, changes, before = classify(), [], None
    for code in range(0x110000):
        value = CLASSES.index(classes.get(chr(code), "CONTROL")) # surrogates are controls
        if value != before:
            changes.append(f"0x{code << 8 | value:08x},")
        before = value
    text = [
        "/* SPDX-License-Identifier: Apache-2.0 */",
        f"/* Grapheme cluster classes of tokenizers {__version__}. Written by tools/tables/gen_grapheme_tables.py; not edited. */",
        "#ifndef SNUG_TEXT_GRAPHEME_TABLES_H",
        "#define SNUG_TEXT_GRAPHEME_TABLES_H",
        "",
        "#include <stdint.h>",
        "",
        "/* clang-format off */",
        "/* code point << 8 | enum break_class, which holds up to the next entry; but syllables U+AC00 … U+D7A3 are LVT or LV. */",
        "static const uint32_t class_changes[] = {",
    ]
    # Every 28th syllable is LV: these 798 entries are one rule.
    first = classes["\uac00"]
    for code in range(0xAC00, 0xD7A4):
        assert classes[chr(code)] == ("LV" if (code - 0xAC00) % 28 == 0 else "LVT") and first == "LV", hex(code)
    changes = [change for change in changes if not 0xAC00 < int(change[:-1], 16) >> 8 < 0xD7A4]
    for start in range(0, len(changes), 10):
        text.append("    " + " ".join(changes[start : start + 10]))
    text += ["};", "/* clang-format on */", "", "#endif"]
    path = sys.argv[1] if len(sys.argv) > 1 else "src/tokenizer/grapheme_tables.h"
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(text) + "\n")
    print(f"{path}: {len(changes)} changes of classes")


if __name__ == "__main__":
    main()
