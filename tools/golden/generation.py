#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/generation.json: what transformers' generate() answers with the tiny decoders of
tests/golden/families, in fp32: greedily, drawn with the uniform numbers of core/philox.h, by beam search. "quantized" has the
answers of models whose linears have the values of bitsandbytes' 4-bit codes.

    python tools/golden/generation.py        (needs torch, transformers, accelerate and bitsandbytes)
"""
import json
import pathlib
import random

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GenerationConfig, logging

import quantized

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAMILIES = ROOT / "tests" / "golden" / "families"
SAMPLE = 7  # SNUG_PHILOX_SAMPLE
SEED = 0x123456789
NAMES = {"gpt2", "phi3", "ministral3"}  # their positions, or their rotations, end early
# the family, the codes, double quantization, the type to which their values are rounded
QUANTIZED = [("llama", "nf4", True, "float32"), ("llama", "fp4", False, "bfloat16"), ("gpt2", "nf4", True, "float32"),
             ("gemma2", "nf4", False, "bfloat16"), ("phi3", "nf4", True, "bfloat16")]


def philox(counter, key):
    counter, key = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def uniform(row, token, number):
    word = philox((token, number, row, SAMPLE << 29), (SEED & 0xFFFFFFFF, SEED >> 32))[0]
    return (word >> 8) * 2.0**-24


class Draws:
    """In place of torch.multinomial: the first token at which the sum of probabilities exceeds the uniform number; of
    beams, so often without what was drawn."""

    def __init__(self, row):
        self.row, self.token = row, 0

    def __call__(self, probabilities, num_samples):
        assert probabilities.shape[0] == 1
        left, chosen = probabilities[0].double(), []
        for number in range(num_samples):
            sums = left.cumsum(-1)
            chosen.append(int((sums > uniform(self.row, self.token, number) * sums[-1]).nonzero()[0]))
            left[chosen[-1]] = 0
        self.token += 1
        return torch.tensor([chosen])


def answer(model, prompt, options):
    settings = dict(options)
    ends = settings.pop("eos_token_id", None)
    config = GenerationConfig(**settings, eos_token_id=ends, pad_token_id=0, use_cache=True)
    if not options.get("do_sample"):
        config.top_k = config.top_p = config.temperature = None
    if options.get("do_sample"):
        config.top_k = options.get("top_k", 0)
        torch.multinomial = Draws(0)
    found = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), generation_config=config,
                           return_dict_in_generate=True, output_scores=True)
    answers = []
    for row in found.sequences.tolist():
        ids = row[len(prompt):]
        for i, token in enumerate(ids):
            if token in (ends or []):
                ids = ids[:i + 1]
                break
        answers.append(ids)
    scores = found.sequences_scores.tolist() if options.get("num_beams", 1) > 1 else []
    return {"prompt": prompt, "options": options, "answers": answers, "scores": scores}


def cases_of(name, model, draw):
    vocabulary = model.config.vocab_size
    prompts = [[draw.randrange(vocabulary) for _ in range(count)] for count in (1, 7, 4)]
    cases = [answer(model, prompt, {"max_new_tokens": 12}) for prompt in prompts]
    ends = sorted({cases[0]["answers"][0][5], cases[1]["answers"][0][8]})
    for prompt in prompts:
        cases.append(answer(model, prompt, {"max_new_tokens": 13, "eos_token_id": ends}))
        cases.append(answer(model, prompt, {"max_new_tokens": 12, "repetition_penalty": 1.7, "no_repeat_ngram_size": 2}))
        cases.append(answer(model, prompt, {"max_new_tokens": 14, "do_sample": True, "temperature": 0.8, "top_k": 20, "top_p": 0.85}))
        cases.append(answer(model, prompt, {"max_new_tokens": 14, "do_sample": True, "min_p": 0.05, "repetition_penalty": 1.2,
                                            "eos_token_id": ends, "min_new_tokens": 4}))
        cases.append(answer(model, prompt, {"max_new_tokens": 10, "num_beams": 3, "num_return_sequences": 2, "eos_token_id": ends}))
    cases.append(answer(model, prompts[1], {"max_new_tokens": 9, "do_sample": True, "top_k": 3}))
    cases.append(answer(model, prompts[1], {"max_new_tokens": 9, "do_sample": True, "top_p": 0.5, "temperature": 1.5}))
    if name not in NAMES:  # more than a page of the cache, and than a window
        long = [draw.randrange(vocabulary) for _ in range(61)]
        cases.append(answer(model, long, {"max_new_tokens": 12}))
        cases.append(answer(model, long, {"max_new_tokens": 12, "num_beams": 4, "num_return_sequences": 4, "eos_token_id": [999]}))
        cases.append(answer(model, long * 3, {"max_new_tokens": 6}))
    if name == "llama":
        for beams in range(2, 9):
            for early in (False, True, "never"):
                penalty = (-1.0, 0.0, 0.7, 1.0, 2.0)[(beams * 3 + (early is True) + 2 * (early == "never")) % 5]
                cases.append(answer(model, prompts[beams % 3], {
                    "max_new_tokens": 11, "num_beams": beams, "num_return_sequences": beams, "early_stopping": early,
                    "length_penalty": penalty, "eos_token_id": ends if beams % 2 else ends[:1]}))
        for beams in range(2, 6):
            sampled = {"max_new_tokens": 10, "num_beams": beams, "num_return_sequences": beams, "do_sample": True, "temperature": 0.9,
                       "eos_token_id": ends[:beams % 3] or [999], "early_stopping": beams == 3}
            cases.append(answer(model, prompts[beams % 3], {**sampled, "top_k": 25 if beams < 4 else 0}))
            cases.append(answer(model, prompts[beams % 3], {**sampled, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2}))
        cases.append(answer(model, prompts[1], {"max_new_tokens": 11, "num_beams": 4, "eos_token_id": ends, "repetition_penalty": 1.4,
                                                "no_repeat_ngram_size": 2, "min_new_tokens": 5, "early_stopping": True}))
    return cases


def quantized_cases(name, kind, nested, dtype):
    """Of the model with the values that its codes stand for."""
    folder, draw = FAMILIES / name / "clm", random.Random(name + kind)
    load = lambda **more: AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="eager", **more)
    codes = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=nested, bnb_4bit_compute_dtype=torch.float32)
    model = quantized.dequantized(load(quantization_config=codes, device_map="cpu"), load()).float()
    plain = load().float().eval()
    model.generation_config = plain.generation_config = GenerationConfig()
    prompts = [[draw.randrange(model.config.vocab_size) for _ in range(count)] for count in (1, 7, 4, 9)]
    cases = [answer(model, prompt, {"max_new_tokens": 14}) for prompt in prompts]
    cases.append(answer(model, prompts[1], {"max_new_tokens": 10, "num_beams": 3, "num_return_sequences": 2, "eos_token_id": [999]}))
    assert cases != [answer(plain, c["prompt"], c["options"]) for c in cases]
    return {"family": name, "type": kind, "nested": nested, "dtype": dtype, "cases": cases}


def main():
    logging.set_verbosity_error()
    torch.manual_seed(0)
    written = {}
    for folder in sorted(FAMILIES.glob("*/clm/config.json")):
        name = folder.parent.parent.name
        model = AutoModelForCausalLM.from_pretrained(folder.parent, dtype=torch.float32, attn_implementation="eager").eval()
        model.generation_config = GenerationConfig()
        written[name] = cases_of(name, model, random.Random(name))
        print(name, len(written[name]))
    codes = [quantized_cases(*form) for form in QUANTIZED]
    text = json.dumps({"seed": SEED, "families": written, "quantized": codes}, separators=(",", ":"))
    (ROOT / "tests" / "golden" / "generation.json").write_text(text.replace('},{"prompt"', '},\n{"prompt"') + "\n")


if __name__ == "__main__":
    main()
