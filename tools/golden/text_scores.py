#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/text_scores.json: texts, references and their scores as `evaluate` computes them by default. ROUGE is
rouge_score's; BLEU is that of the reference implementation that evaluate has (Papineni et al. 2002, 4 orders, no smoothing)
over sacrebleu's tokenizer_13a, from which evaluate's was copied.

    tools/golden/text_scores.py        needs rouge_score and sacrebleu
"""
import collections
import json
import math
import pathlib

from rouge_score import rouge_scorer
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

PAIRS = [
    ("The cat sat on the mat.", "The cat sat on the mat."),
    ("the cat is on the mat", "There is a cat on the mat, and it sleeps."),
    ("", "an answer was expected"),
    ("an answer came", ""),
    ("Prices rose 3.5%, i.e. by $1,250-1,300 (about 4-5 units).", "Prices rose by 3.5% (about $1,250 - 1,300), i.e. 5 units!"),
    ("First line here.\nThe second one is longer than that.\n\nThird.", "The first line.\nA second one, longer.\nThird and last."),
    ("&quot;Tom &amp; Jerry&quot; &lt;b&gt; &amp;lt; <skipped>end-\nless", "\"Tom & Jerry\" <b> &lt; endless"),
    ("Größe 5\u00a0km, 300 \u212a und \u0130stanbul\u2026", "GRÖSSE 5 km, 300 K und istanbul..."),
    ("a a a b b c a a a b", "a b a b a c c a a b b"),
    ("to be or not to be that is the question", "or to be, that is not the question to be"),
    ("a\x1db\x7f c", "a b\x7f c"),
    ("日本語のテキスト。", "日本語の文。"),
    ("a\x01b c|d {e} [f]^g h_i/j k~l.\nm n", "a\x01b c | d {e [f] ^g h_i / j k~l.\nn\nn\nn m"),
    ("x" * 40 + " y. " * 12 + ".5 and 5.", "y y y .5 and 6. " + "x" * 40),
]


def ngrams(words, order):
    return collections.Counter(tuple(words[i : i + order]) for i in range(len(words) - order + 1))


def bleu(pairs):
    tokenize = Tokenizer13a()
    matches, possible, length, reference_length = [0] * 4, [0] * 4, 0, 0
    for text, reference in pairs:
        words, expected = tokenize(text).split(), tokenize(reference).split()
        length += len(words)
        reference_length += len(expected)
        for order in range(1, 5):
            matches[order - 1] += sum((ngrams(words, order) & ngrams(expected, order)).values())
            possible[order - 1] += max(len(words) - order + 1, 0)
    if min(matches) == 0:
        return 0.0
    ratio = length / reference_length
    return math.exp(sum(math.log(m / p) for m, p in zip(matches, possible)) / 4) * (1 if ratio > 1 else math.exp(1 - 1 / ratio))


def scores(pairs):
    names = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = rouge_scorer.RougeScorer(names, use_stemmer=False)
    each = [scorer.score(reference, text) for text, reference in pairs]
    result = {"exact_match": sum(text == reference for text, reference in pairs) / len(pairs)}
    result.update({name: sum(score[name].fmeasure for score in each) / len(pairs) for name in names})
    return dict(result, bleu=bleu(pairs))


def main():
    cases = [[pair] for pair in PAIRS] + [PAIRS, PAIRS[3:7]]
    path = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/text_scores.json"
    golden = [{"pairs": case, "scores": scores(case)} for case in cases]
    path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
