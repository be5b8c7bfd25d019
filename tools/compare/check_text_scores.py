#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exact match, ROUGE and BLEU of random pairs of texts beside rouge_score and sacrebleu. BLEU is evaluate's: 4 orders of
tokenizer_13a's words, without smoothing.

    tools/compare/check_text_scores.py [--pairs 200] [--test build/test_text_scores]
"""
import argparse
import json
import os
import random
import subprocess
import tempfile

import sacrebleu
from rouge_score import rouge_scorer
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

WORDS = ["the", "The", "cat", "sat", "on", "a", "mat", "3.5%", "$1,250", "-", "Größe", "don't", "i.e.", "(see", "below)", "x-ray", "100", "日本",
         "&amp;", "\u0130", "\u212a", "end.", "\n", "...", "you're", "U.S.", "5", "kilometres,", "and/or", "q?", "!"]
ROUGE = ["rouge1", "rouge2", "rougeL", "rougeLsum"]


def text(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(0, 40)))


def pair(rng):
    reference = text(rng)
    words = reference.split(" ")
    for _ in range(rng.randrange(0, 12)):
        words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS))
        if rng.random() < 0.6:
            words.pop(rng.randrange(len(words)))
    return [text(rng) if rng.random() < 0.1 else " ".join(words), reference]


def bleu(pairs):
    tokenize = Tokenizer13a()
    texts, references = [tokenize(a) for a, _ in pairs], [tokenize(b) for _, b in pairs]
    return sacrebleu.corpus_bleu(texts, [references], smooth_method="none", tokenize="none", force=True).score / 100


def scores(pairs):
    scorer = rouge_scorer.RougeScorer(ROUGE, use_stemmer=False)
    each = [scorer.score(reference, text) for text, reference in pairs]
    result = {name: sum(score[name].fmeasure for score in each) / len(pairs) for name in ROUGE}
    return dict(result, exact_match=sum(a == b for a, b in pairs) / len(pairs), bleu=bleu(pairs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--test", default="build/test_text_scores")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    pairs = [pair(rng) for _ in range(args.pairs)]
    cases = [pairs] + [[one] for one in pairs if bleu([one]) > 0]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([{"pairs": case, "scores": scores(case)} for case in cases], file)
        file.flush()
        subprocess.run([args.test], check=True, env=dict(os.environ, SNUG_TEXT_SCORES=file.name))
    print(f"{args.pairs} pairs together, and {len(cases) - 1} of them alone: the same scores")


if __name__ == "__main__":
    main()
