#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/vocabulary.json: what transformers predicts with checkpoints that hold tensors which config.json calls
redundant, or lack one of two tied ones, and with models that were given rows for new tokens.

    python tools/golden/vocabulary.py [--output FILE]        (needs torch and transformers; reads tests/golden/families/*/mlm)

Each case changes the tensors of a family's masked LM: OWN adds a decoder, the word table with its rows in reverse order;
BIAS adds the decoder's second bias, the first one in reverse order; MOVE stores the word table as the decoder, MOVE_BIAS the bias
under its second name; GROW gives the loaded model rows for two tokens, of which the first is in the text. "scores" are the probabilities of the first tokens of the vocabulary for the masked token of IDS.
"""
import argparse
import json
import pathlib
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, logging

IDS = [2, 5, 4, 7, 3]  # [CLS] t5 [MASK] t7 [SEP]; with GROW the first new token is in place of t7
MASKED = 2
OWN, BIAS, MOVE, MOVE_BIAS, GROW = "own", "bias", "move", "move_bias", "grow"
# changes, tie_word_embeddings in config.json (None: absent)
CASES = [([], True), ([OWN], True), ([OWN], None), ([OWN], False), ([MOVE], True), ([BIAS], True), ([OWN, BIAS], True),
         ([OWN, BIAS], False), ([MOVE_BIAS], None), ([OWN, MOVE_BIAS], True), ([GROW], True),
         ([OWN, GROW], False), ([OWN, BIAS, GROW], False)]
# word table, decoder, bias, its second name
BERTS = ("cls.predictions.decoder.weight", "cls.predictions.bias", "cls.predictions.decoder.bias")
ROBERTAS = ("lm_head.decoder.weight", "lm_head.bias", "lm_head.decoder.bias")
WORD = "embeddings.word_embeddings.weight"
NAMES = {"roberta": ("roberta." + WORD, *ROBERTAS), "camembert": ("roberta." + WORD, *ROBERTAS),
         "xlm-roberta": ("roberta." + WORD, *ROBERTAS), "roberta-prelayernorm": ("roberta_prelayernorm." + WORD, *ROBERTAS),
         "mpnet": ("mpnet." + WORD, *ROBERTAS), "electra": ("electra." + WORD, "generator_lm_head.weight", "generator_lm_head.bias", None),
         "distilbert": ("distilbert." + WORD, "vocab_projector.weight", "vocab_projector.bias", None),
         "modernbert": ("model.embeddings.tok_embeddings.weight", "decoder.weight", "decoder.bias", None)}


def change(tensors, names, changes):
    word, decoder, bias, second = names
    if OWN in changes:
        tensors[decoder] = tensors[word].flip(0)
    if BIAS in changes:
        tensors[second] = tensors[bias].flip(0)
    if MOVE in changes:
        tensors[decoder] = tensors.pop(word)
    if MOVE_BIAS in changes:
        tensors[second] = tensors.pop(bias)


def rounded(values):
    return [float(f"{x:.7g}") for x in values]


def scores_of(source, names, changes, tied):
    config = json.loads((source / "config.json").read_text())
    config.pop("tie_word_embeddings", None)
    if tied is not None:
        config["tie_word_embeddings"] = tied
    tensors = load_file(source / "model.safetensors")
    change(tensors, names, changes)
    with tempfile.TemporaryDirectory() as folder:
        save_file({name: value.contiguous() for name, value in tensors.items()}, f"{folder}/model.safetensors", metadata={"format": "pt"})
        pathlib.Path(folder, "config.json").write_text(json.dumps(config))
        model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = list(IDS)
    if GROW in changes:
        torch.manual_seed(1)
        ids[3] = model.config.vocab_size
        model.resize_token_embeddings(model.config.vocab_size + 2)
    with torch.no_grad():
        scores = torch.softmax(model(input_ids=torch.tensor([ids])).logits[0, MASKED].double(), -1).tolist()
    return {"scores": rounded(scores[:24]), **({"new_scores": rounded(scores[-2:])} if GROW in changes else {})}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
    parser.add_argument("--output", type=pathlib.Path, default=root / "vocabulary.json")
    output = parser.parse_args().output
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    cases = []
    sources = {name: (root / "families" / name / "mlm", names) for name, names in NAMES.items()}
    sources["bert"] = (root / "model" / "mlm", ("bert." + WORD, *BERTS))
    for family, (source, names) in sources.items():
        for changes, tied in CASES:
            if names[3] is None and {BIAS, MOVE_BIAS} & set(changes):
                continue
            cases.append({"folder": str(source.relative_to(root)), "names": names, "changes": changes,
                          "tie_word_embeddings": tied, **scores_of(source, names, changes, tied)})
    lines = ",\n".join(json.dumps(case) for case in cases)
    output.write_text(f'{{"cases": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{len(cases)} cases in {output}")


if __name__ == "__main__":
    main()
