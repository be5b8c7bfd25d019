#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/tokenizer/unicode_tables.h: what the `tokenizers` library does with every code point, measured on the library.

The library's parts use several Unicode versions (its categories are those of Unicode 8, its lower-casing is
Rust's), and none of them is utf8proc's. So properties are read off the library itself, for all 1,112,064 scalar values.
utf8proc serves for two things only, which Unicode's stability policy fixes once a code point is assigned: how a
code point decomposes, and its combining class. The table decides which code points are treated at all, so the result
does not depend on utf8proc's version. The script fails where Python's own Unicode data contradicts that.

Usage: gen_unicode_tables.py [OUTPUT]    (needs the `tokenizers` package)
"""
import bisect
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, __version__, models, normalizers, pre_tokenizers

FLAGS = ["REMOVED", "SPACE", "PUNCTUATION", "IDEOGRAPH", "MARK", "NFD", "LOWER", "WORD", "LETTER", "NUMBER", "NFKD",
         "COMBINING", "NUMERIC"]
(REMOVED, SPACE, PUNCTUATION, IDEOGRAPH, MARK, NFD, LOWER, WORD, LETTER, NUMBER, NFKD,
 COMBINING, NUMERIC) = (1 << bit for bit in range(len(FLAGS)))
PAGED = 0x20000  # code points below it are found through an index of pages of 256


def scalars():
    return (code for code in range(0x110000) if not 0xD800 <= code < 0xE000)


def bert(clean=False, chinese=False, strip=False, lower=False):
    normalizer = normalizers.BertNormalizer(
        clean_text=clean, handle_chinese_chars=chinese, strip_accents=strip, lowercase=lower)
    return normalizer.normalize_str


def word_tester():
    """Says whether the library's \\w holds for a character: a single_word token is not found beside it."""
    tokenizer = Tokenizer(models.WordLevel({"q": 0, "u": 1}, unk_token="u"))
    tokenizer.add_tokens([AddedToken("q", single_word=True, normalized=False)])
    after = lambda char: tokenizer.encode("q" + char).ids == [0, 1]
    before = lambda char: tokenizer.encode(char + "q").ids == [1, 0]

    def is_word(char):
        found = after(char)
        assert found == before(char), hex(ord(char))
        return not found

    return is_word


def space_tester():
    """Says whether lstrip and rstrip of an added token remove a character."""
    tokenizer = Tokenizer(models.WordLevel({"q": 0, "u": 1}, unk_token="u"))
    tokenizer.add_tokens([AddedToken("q", lstrip=True, rstrip=True, normalized=False)])
    return lambda char: tokenizer.encode(char + "q" + char).ids == [0]


def combining_classes():
    """The combining class of every code point as the library's NFD orders them, checked against Python's data."""
    nfd = normalizers.NFD().normalize_str
    mark = {}
    for code in scalars():
        char = chr(code)
        if unicodedata.combining(char) and nfd(char) == char:
            mark.setdefault(unicodedata.combining(char), char)
    low, high = mark[1], mark[240]
    swapped = lambda first, second: nfd("a" + first + second) != "a" + first + second
    combining = set()
    for code in scalars():
        char = chr(code)
        if nfd(char) != char:
            continue
        if swapped(char, low) or swapped(high, char):
            own = mark[unicodedata.combining(char)]
            assert not swapped(char, own) and not swapped(own, char), hex(code)
            combining.add(code)
    return combining


def splits(pattern):
    """Says whether a character is one of a class of the library's regular expressions."""
    split = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str
    return lambda char: not split(char)


CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
              "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"]
SCRIPTS = ["Han", "Hiragana", "Katakana", "Hangul"]


def regex_classes():
    """Of every code point: its category for the library's regular expressions, 32 if it is of \\w, 64 times its script."""
    codes = list(scalars())
    text = "".join(map(chr, codes))

    def members(pattern):
        pieces = pre_tokenizers.Split(Regex(pattern + "+"), "removed", invert=True).pre_tokenize_str(text)
        return [codes[at] for _, (start, stop) in pieces for at in range(start, stop)]

    classes = {}
    for number, name in enumerate(CATEGORIES):
        for code in members(rf"\p{{{name}}}"):
            assert code not in classes, hex(code)
            classes[code] = number
    assert len(classes) == len(codes)
    for code in members(r"\w"):
        classes[code] |= 32
    for number, name in enumerate(SCRIPTS):
        for code in members(rf"\p{{{name}}}"):
            assert classes[code] < 64, hex(code)
            classes[code] |= (number + 1) << 6
    for number in range(0xD800, 0xE000):
        classes[number] = CATEGORIES.index("Cs")
    return classes


def compositions(decomposing):
    """(first, second, composite): what the library's NFC composes; Hangul syllables follow a formula."""
    nfc, nfd, found = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str, []
    for code in decomposing:
        char, parts = chr(code), unicodedata.decomposition(chr(code)).split()
        if 0xAC00 <= code < 0xAC00 + 11172:
            assert nfc(nfd(char)) == char
            continue
        if nfd(char) == char or nfc(nfd(char)) != char:
            continue
        assert len(parts) == 2 and not parts[0].startswith("<"), hex(code)
        first, second = (int(part, 16) for part in parts)
        assert nfc(chr(first) + chr(second)) == char, hex(code)
        found.append((first, second, code))
    return sorted(found)


def properties():
    clean, chinese, strip = bert(clean=True), bert(chinese=True), bert(strip=True)
    nfd, lower = normalizers.NFD().normalize_str, normalizers.Lowercase().normalize_str
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    is_word, is_stripped = word_tester(), space_tester()
    combining = combining_classes()
    nfkd, unmarked = normalizers.NFKD().normalize_str, normalizers.StripAccents().normalize_str
    letter, number, space = splits(r"\p{L}"), splits(r"\p{N}"), splits(r"\s")
    words = pre_tokenizers.Whitespace().pre_tokenize_str  # \w of Rust, not of the engine of Split
    numeric, punctuation = pre_tokenizers.Digits().pre_tokenize_str, pre_tokenizers.Punctuation().pre_tokenize_str
    flags, lowered = {}, {}
    for code in scalars():
        char, value = chr(code), 0
        pieces = [piece for piece, _ in split("a" + char + "b")]
        cleaned = clean(char)
        if pieces == ["a", "b"]:
            value |= SPACE
        elif pieces == ["a", char, "b"]:
            value |= PUNCTUATION
        else:
            assert pieces == ["a" + char + "b"]
        if cleaned == "":
            value |= REMOVED
        else:
            assert cleaned == (" " if value & SPACE else char), hex(code)
        assert is_stripped(char) == bool(value & SPACE), hex(code)
        around = chinese(char)
        assert around in (char, " " + char + " ")
        value |= IDEOGRAPH * (around != char) | MARK * (strip(char) == "") | WORD * is_word(char)
        decomposed = nfd(char)
        if decomposed != char:
            assert decomposed == unicodedata.normalize("NFD", char), hex(code)
        value |= NFD * (decomposed != char or code in combining)
        compatible = nfkd(char)
        assert compatible == (unicodedata.normalize("NFKD", char) if compatible != char else char), hex(code)
        value |= NFKD * (compatible != char) | COMBINING * (unmarked(char) == "")
        value |= LETTER * letter(char) | NUMBER * number(char)
        value |= NUMERIC * (len(numeric("a" + char)) == 2)
        assert space(char) == bool(value & SPACE), hex(code)
        assert (len(words("a" + char + "!")[0][0]) == 2) == bool(value & WORD), hex(code)
        assert (len(punctuation("a" + char)) == 2) == bool(value & PUNCTUATION), hex(code)
        if lower(char) != char:
            lowered[code] = lower(char)
        flags[code] = value
    return flags, lowered


def lower_ranges(lowered):
    """(first, last, step, delta): every step-th code point from first to last is lowered by adding delta."""
    assert {code: text for code, text in lowered.items() if len(text) > 1} == {0x130: "i\u0307"}
    pairs = sorted((code, ord(text) - code) for code, text in lowered.items() if len(text) == 1)
    ranges = []
    for code, delta in pairs:
        if ranges and ranges[-1][3] == delta:
            first, last, step, _ = ranges[-1]
            gap = code - last
            if gap == step or (first == last and gap <= 2):
                ranges[-1] = (first, code, gap, delta)
                continue
        ranges.append((code, code, 1, delta))
    return ranges


def lines(items, width=118):
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > width:
            yield line
            line = "   "
        line += " " + item + ","
    yield line


def main():
    flags, lowered = properties()
    ranges = lower_ranges(lowered)
    for first, last, _, _ in ranges + [(0x130, 0x130, 1, 0)]:
        for code in range(first, last + 1):
            flags[code] |= LOWER
    changes, before = [], None
    for code in range(0x110000):
        value = flags.get(code, 0)
        if value != before:
            changes.append((code, value))
        before = value
    changes.append((0x110000, 0))
    starts = [code for code, _ in changes]
    pages = [bisect.bisect_right(starts, page) - 1 for page in range(0, PAGED + 1, 256)]
    classes = regex_classes()
    runs = [(code, classes[code]) for code in range(0x110000) if not code or classes[code] != classes[code - 1]]
    for name, mask in (("L", LETTER), ("N", NUMBER)):
        assert all(CATEGORIES[classes[code] & 31].startswith(name) == bool(value & mask) for code, value in flags.items())
    run_starts = [code for code, _ in runs] + [0x110000]
    run_pages = [bisect.bisect_right(run_starts, page) - 1 for page in range(0, PAGED + 1, 256)]
    pairs = compositions(code for code, value in flags.items() if value & NFD)
    text = [
        "/* SPDX-License-Identifier: Apache-2.0 */",
        f"/* What tokenizers {__version__} does with every code point. Written by tools/tables/gen_unicode_tables.py; not edited. */",
        "#ifndef SNUG_TOKENIZER_UNICODE_TABLES_H",
        "#define SNUG_TOKENIZER_UNICODE_TABLES_H",
        "",
        "#include <stdint.h>",
        "",
        "/* clang-format off */",
        f"/* {', '.join(f'{1 << bit} {name.lower()}' for bit, name in enumerate(FLAGS))}. */",
        "const uint16_t snug_codepoint_ascii[128] = {",
        *lines(f"{flags[code]}" for code in range(128)),
        "};",
        "",
        "/* Code points at which the flags change, and the flags from there on; the last entry ends the code space. */",
        "static const uint32_t flag_changes[] = {",
        *lines(f"0x{code:x}" for code, _ in changes),
        "};",
        "static const uint16_t changed_flags[] = {",
        *lines(f"{value}" for _, value in changes),
        "};",
        f"/* The change at or before the first code point of each page of 256, up to U+{PAGED:X}. */",
        f"static const uint16_t flag_pages[{len(pages)}] = {{",
        *lines(f"{page}" for page in pages),
        "};",
        "",
        "/* Code points at which the class of regular expressions changes: code << 9 | script << 6 | is \\w << 5 | category. */",
        "static const uint32_t class_changes[] = {",
        *lines(f"{code << 9 | value}" for code, value in runs),
        "};",
        f"static const uint16_t class_pages[{len(run_pages)}] = {{",
        *lines(f"{page}" for page in run_pages),
        "};",
        "",
        "/* What NFC composes: two code points and the one that they become, in order. */",
        "static const struct composition { uint32_t first, second, composite; } compositions[] = {",
        *lines(f"{{0x{first:x}, 0x{second:x}, 0x{composite:x}}}" for first, second, composite in pairs),
        "};",
        "",
        "/* Every step-th code point from first to last is lowered by adding delta. */",
        "static const struct lower_range { uint32_t first, last; int32_t step, delta; } lower_ranges[] = {",
        *lines(f"{{0x{first:x}, 0x{last:x}, {step}, {delta}}}" for first, last, step, delta in ranges),
        "};",
        "/* clang-format on */",
        "",
        "#endif",
    ]
    path = sys.argv[1] if len(sys.argv) > 1 else "src/tokenizer/unicode_tables.h"
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(text) + "\n")
    print(f"{path}: {len(changes)} changes of flags, {len(ranges)} ranges of capitals, {len(pairs)} compositions, "
          f"{len(runs)} changes of classes")


if __name__ == "__main__":
    main()
