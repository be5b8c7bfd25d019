#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses of trainings with sentence-transformers: ten steps of each loss on all rows, in fp32 without dropout.

    tools/golden/embedding_losses.py       writes tests/golden/embedding/losses.json (needs sentence-transformers)

The model is that of tools/golden/embedding.py. Every step has all rows, so that their order does not matter.
"""
import json
import os

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Pooling

OUT = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden", "embedding")
TRIPLETS = [["a man is eating food", "the man eat", "two dogs run fast"],
            ["the girl play music", "girl playing on music", "a man run"],
            ["two dogs run fast", "dogs running on the food", "the girl is eating"],
            ["a girl is eating", "the food is fast", "music music music"],
            ["man on music", "a man playing the music is eating food", "dogs"],
            ["fast food", "two man eating fast food on the run", "girl play"]]
SCORES = [0.9, 0.1, 0.5, 0.5, 0.75, 0.0]
LABELS = [1, 0, 1, 1, 0, 0]
PAIRS = [row[:2] for row in TRIPLETS]
RANKING = losses.MultipleNegativesRankingLoss
SYMMETRIC = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
DIMS, WEIGHTS = [24, 12, 5], [1.0, 0.5, 0.25]


def matryoshka(inner):
    return lambda model: losses.MatryoshkaLoss(model, inner(model), DIMS, WEIGHTS)


MATRYOSHKA = "--matryoshka_dims 24,12,5 --matryoshka_weights 1,0.5,0.25"
CASES = [
    ("", PAIRS, None, RANKING),
    ("", TRIPLETS, None, lambda m: RANKING(m)),
    ("--symmetric True --similarity_scale 5", TRIPLETS, None, lambda m: RANKING(m, scale=5.0, **SYMMETRIC)),
    ("", PAIRS, SCORES, losses.CoSENTLoss),
    ("--loss angle --similarity_scale 10", PAIRS, SCORES, lambda m: losses.AnglELoss(m, scale=10.0)),
    ("--loss cosine_similarity", PAIRS, SCORES, losses.CosineSimilarityLoss),
    ("--loss contrastive", PAIRS, LABELS, losses.ContrastiveLoss),
    ("--loss contrastive --margin 0.1", PAIRS, LABELS, lambda m: losses.ContrastiveLoss(m, margin=0.1)),
    ("--loss triplet", TRIPLETS, None, losses.TripletLoss),
    ("--loss triplet --margin 0.2 " + MATRYOSHKA, TRIPLETS, None,
     matryoshka(lambda m: losses.TripletLoss(m, triplet_margin=0.2))),
    (MATRYOSHKA, PAIRS, None, matryoshka(RANKING)),
    (MATRYOSHKA + " --loss angle", PAIRS, SCORES, matryoshka(losses.AnglELoss)),
    ("--prompts query:", PAIRS, None, RANKING),
    ('--prompts {"positive":"the","anchor":"query:"}', TRIPLETS, None, lambda m: RANKING(m)),
    ('--prompts {"positive":"the","anchor":"query:"}', TRIPLETS, None, lambda m: RANKING(m),
     Pooling(24, "weightedmean", include_prompt=False)),
    ("--prompts query:", PAIRS, None, RANKING, Pooling(24, "cls", include_prompt=False)),
]


def prompts_of(arguments, columns):
    """What is put before the texts of each column, as the trainer's collator finds it."""
    given = arguments.partition("--prompts ")[2]
    if not given.startswith("{"):
        return [given or None] * columns
    return [json.loads(given).get(name) for name in ("anchor", "positive", "negative")[:columns]]


def run(rows, scores, make, prompts, pooling):
    transformer = Transformer(os.path.join(OUT, "model"))
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for layer in transformer.model.encoder.layer:
        layer.attention.self.dropout_prob = 0.0
    model.train()
    transformer.model.config._attn_implementation = "eager"
    loss = make(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.0)
    labels = None if scores is None else torch.tensor(scores)
    found = []
    for _ in range(10):
        features = [model.preprocess([row[i] for row in rows], prompt=prompts[i]) for i in range(len(rows[0]))]
        value = loss(features, labels)
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(float(value))
    return found


def main():
    torch.set_num_threads(1)
    cases = []
    for arguments, rows, scores, make, *pooling in CASES:
        losses = run(rows, scores, make, prompts_of(arguments, len(rows[0])), *pooling or [Pooling(24, "mean")])
        cases.append({"arguments": arguments, "rows": rows, "scores": scores, "losses": losses})
        if pooling:
            cases[-1]["pooling"] = pooling[0].get_config_dict()
        print(arguments, cases[-1]["losses"][:3], cases[-1]["losses"][-1])
    with open(os.path.join(OUT, "losses.json"), "w") as f:
        json.dump(cases, f, indent=1)
        f.write("\n")


main()
