# SPDX-License-Identifier: Apache-2.0
"""Random strings for the comparison of tokenizers, the same on every machine: tests/tokenizer/tokenizer_fixture.h (random_text) generates
them from the golden files' ranges and parts."""

RANGES = [(0x20, 0x7E)] * 3 + [
    (0, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0x1100, 0x11FF),
    (0x1D00, 0x1FFF), (0x2000, 0x206F), (0x2E80, 0x33FF), (0x4E00, 0x4E80), (0xAC00, 0xAC80), (0xF900, 0xFAFF),
    (0xFE00, 0xFFFF), (0x11000, 0x11FFF), (0x1D100, 0x1D1FF), (0x1F300, 0x1F6FF), (0x2F800, 0x2FA1F), (0, 0x10FFFF)]
PARTS = ["[MASK]", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[mask]", " ", "##ing", "the", "running", "İ", "ǅ", "a" * 101, "é" * 100,
         "<s>", "</s>", "<mask>", "<pad>", "▁", "  ", "\n", "\t ", "don't", "'s", "we've", "12345", "e\u0301", "ﬁ", "①"]
COUNT, BLOCK = 100000, 1000  # strings, and how many of them a digest covers


def random_text(number):
    """String number, from SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) with that seed: up to 11 pieces, of which a quarter are
    PARTS, and the others 1 to 3 code points of one of RANGES, without surrogates."""
    state = number

    def below(bound):
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ z >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return (z ^ z >> 31) % bound

    text = ""
    for _ in range(below(12)):
        if below(4) == 0:
            text += PARTS[below(len(PARTS))]
            continue
        low, high = RANGES[below(len(RANGES))]
        for _ in range(1 + below(3)):
            code = low + below(high - low + 1)
            if not 0xD800 <= code < 0xE000:
                text += chr(code)
    return text


def random_golden(names, digest):
    """random.json: for each name digest(name, texts) of each block of the strings."""
    blocks = [[random_text(number) for number in range(start, start + BLOCK)] for start in range(0, COUNT, BLOCK)]
    return {"ranges": RANGES, "parts": PARTS, "block": BLOCK,
            "digests": {name: [digest(name, texts) for texts in blocks] for name in names}}
