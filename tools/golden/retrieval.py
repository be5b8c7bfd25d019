#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Retrieval metrics of sentence-transformers' InformationRetrievalEvaluator, of the tiny BERT of embedding.py.

    tools/golden/retrieval.py       writes tests/golden/embedding/retrieval (needs sentence-transformers)

BEIR's files with titles, queries that nothing judges and judgements of score 0, and metrics.json: for each similarity, with
and without prompts, what the evaluator gives.
"""
import json
import os
import random

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.modules import Pooling

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden", "embedding")
OUT = os.path.join(GOLDEN, "retrieval")
WORDS = "a man is eat eating food the girl play playing music on two dogs run fast".split()
PROMPTS = {"query": "query : ", "document": "the music : "}


def main():
    draw = random.Random(5)
    texts = set()
    while len(texts) < 170:
        texts.add(" ".join(draw.choice(WORDS) for _ in range(draw.randint(2, 12))))
    texts = sorted(texts)
    draw.shuffle(texts)
    queries = {f"q{i}": texts[i] for i in range(14)}
    corpus = {}
    for i, text in enumerate(texts[14:]):
        words = text.split()
        corpus[f"d{i:03}"] = ("" if i % 3 else words[0], text if i % 3 else " ".join(words[1:]))
    relevant, judged = {}, []
    for i, query in enumerate(queries):
        if i % 7 == 6:
            continue
        # Documents that share most words, so that some are found.
        words = set(queries[query].split())
        alike = sorted(corpus, key=lambda d: -len(words & set(" ".join(corpus[d]).split())))
        chosen = draw.sample(alike[:25], [1, 2, 4, 12][i % 4])
        relevant[query] = set(chosen)
        judged += [(query, d, 1 + i % 2) for d in chosen] + [(query, alike[-1], 0)]
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, "queries.jsonl"), "w") as f:
        for query, text in queries.items():
            f.write(json.dumps({"_id": query, "text": text, "metadata": {}}) + "\n")
    with open(os.path.join(OUT, "corpus.jsonl"), "w") as f:
        for document, (title, text) in corpus.items():
            f.write(json.dumps({"_id": document, "title": title, "text": text, "metadata": {"url": ""}}) + "\n")
    with open(os.path.join(OUT, "test.tsv"), "w") as f:
        f.write("query-id\tcorpus-id\tscore\n")
        for row in judged:
            f.write("%s\t%s\t%d\n" % row)
    whole = {d: (title + " " + text).strip() for d, (title, text) in corpus.items()}
    cases = []
    for similarity in ("cosine", "dot", "euclidean", "manhattan"):
        for prompts in (None, PROMPTS):
            modules = [Transformer(os.path.join(GOLDEN, "model")), Pooling(24, "mean")]
            model = SentenceTransformer(modules=modules, device="cpu", prompts=prompts, similarity_fn_name=similarity)
            metrics = InformationRetrievalEvaluator(queries, whole, relevant, write_csv=False)(model)
            cases.append({"similarity": similarity, "prompts": prompts, "metrics": metrics})
    with open(os.path.join(OUT, "metrics.json"), "w") as f:
        json.dump(cases, f, indent=1)
        f.write("\n")


main()
