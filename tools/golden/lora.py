#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/lora: adapters that PEFT made for the models of tests/golden/families and model, and what PEFT computes.

    python tools/golden/lora.py [MODEL_TYPE ...]        (all by default; needs torch, transformers and peft)

cases.json lists the adapters' folders, with the model, its task, and the settings that make the same adapter_config.json.
expected.safetensors in each has the format of tools/golden/model.py, over the same rows as the model's: everything is computed
in float64, with dropout off; gradients are those of the adapters and of the modules that are saved with them. B is drawn, too,
since with PEFT's zeros A has no gradient.
"""
import argparse
import json
import pathlib
import shutil

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.trainable_tokens import TrainableTokensLayer
from safetensors.torch import load_file, save_file
from transformers import Trainer, logging
from transformers.pytorch_utils import Conv1D

from families import CLASS, FAMILIES, keep_float64
from model import Batch, train, write_json

TYPES = {"classification": "SEQ_CLS", "token_classification": "TOKEN_CLS", "clm": "CAUSAL_LM", "mlm": None}
DEFAULTS = ["bert", "roberta", "xlm-roberta", "electra", "llama", "mistral", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3",
            "gpt2", "deberta-v2"]


# The linear over the vocabulary, of the families that have a case with an adapter of it.
OUTPUT = {"llama": "lm_head", "gpt2": "lm_head", "roberta": "lm_head.decoder", "modernbert": "decoder"}
# The word table, and the families that have a case of the other kinds.
WORDS = {"llama": "embed_tokens", "gemma": "embed_tokens", "gpt2": "wte", "bert": "word_embeddings", "modernbert": "tok_embeddings"}
SAVED_WORDS = WORDS | {"roberta": "word_embeddings"}
FURTHER = {"biases": ["bert", "roberta", "gpt2", "modernbert", "qwen2"], "own_biases": ["bert", "gpt2", "roberta"],
           "words": list(WORDS), "dora": ["bert", "gpt2", "llama", "qwen2", "deberta-v2"], "dora_patterns": ["gpt2", "gemma2"],
           "tokens": ["bert", "gpt2", "llama", "gemma", "modernbert"], "two_tokens": ["llama", "gpt2", "gemma2"],
           "saved_words": ["gemma", "gpt2", "roberta"], "saved_output": ["gemma", "roberta"], "saved_both": ["gemma", "roberta"],
           "saved_rows": ["gemma"], "saved_tied": ["gemma"]}
# Rows of tokens that are trained: of the word table, and so of a tied output; or of both by themselves.
TOKENS, OUTPUT_TOKENS = [7, 3, 11, 20, 5, 58], [3, 12, 0]


def keep_bias():
    """PEFT leaves out the bias of a tied output whose rows of tokens are trained; merged, the model has it."""
    forward = TrainableTokensLayer.forward_adapters

    def forward_adapters(self, x, *args, **kwargs):
        y, base = forward(self, x, *args, **kwargs), self.base_layer
        return y + base.bias if isinstance(base, torch.nn.Linear) and base.bias is not None else y

    TrainableTokensLayer.forward_adapters = forward_adapters


def linears_of(model):
    """The last parts of their names, in the model's order, without heads."""
    output = model.get_output_embeddings()
    names = [name.split(".")[-1] for name, module in model.named_modules()
             if isinstance(module, (torch.nn.Linear, Conv1D)) and module is not output and any(p.isdigit() for p in name.split("."))]
    return list(dict.fromkeys(names))


def kinds_of(model_type, model, tied):
    """Settings of LoraConfig by the name of the case."""
    names = linears_of(model)
    norm = {"gpt2": "ln_1", "distilbert": "sa_layer_norm"}.get(model_type, "norm" if FAMILIES[model_type].get("decoder") else "LayerNorm")
    if model_type == "modernbert":
        norm = "mlp_norm"
    half = "|".join(names[::2])
    kinds = {
        "all": {"target_modules": "all-linear"},
        "regex": {"target_modules": rf".*\.1\.(.*\.)?({half})", "use_rslora": True},
        "patterns": {"target_modules": names, "rank_pattern": {names[-1]: 4, rf"1\..*{names[0]}": 3},
                     "alpha_pattern": {rf".*\.0\..*{names[0]}": 5}},
        "saved": {"target_modules": names[:1], "modules_to_save": [norm] + ([] if tied else ["lm_head"])},
        "excluded": {"target_modules": names, "exclude_modules": names[1:2], "layers_to_transform": [1]},
    }
    if model_type in DEFAULTS:
        kinds["default"] = {}
    words = WORDS.get(model_type)
    further = {
        "biases": {"target_modules": names, "bias": "all", "lora_bias": True},
        "own_biases": {"target_modules": names[::2] + ([OUTPUT["roberta"]] if model_type == "roberta" else []), "bias": "lora_only"},
        "dora": {"target_modules": names, "use_dora": True},
        "dora_patterns": {"target_modules": names, "use_dora": True, "use_rslora": True, "rank_pattern": {names[0]: 1}},
        "words": {"target_modules": [names[0], words], "use_rslora": True},
        "tokens": {"target_modules": names[:1], "trainable_token_indices": TOKENS},
        "two_tokens": {"target_modules": names[:1],
                       "trainable_token_indices": {WORDS.get(model_type, "embed_tokens"): TOKENS, "lm_head": OUTPUT_TOKENS}},
    }
    saved, output = SAVED_WORDS.get(model_type), OUTPUT.get(model_type, "lm_head")
    # Of a tied model: in PEFT two weights, of which those that are named are trained, unless they are tied.
    further |= {
        "saved_words": {"target_modules": names[:1], "modules_to_save": [saved]},
        "saved_output": {"target_modules": names[:1], "modules_to_save": [output]},
        "saved_both": {"target_modules": names[:1], "modules_to_save": [saved, output]},
        "saved_rows": {"target_modules": names[:1], "modules_to_save": [saved], "trainable_token_indices": {output: OUTPUT_TOKENS}},
        "saved_tied": {"target_modules": names[:1], "modules_to_save": [saved, output], "ensure_weight_tying": True},
    }
    if OUTPUT.get(model_type):
        kinds["output"] = {"target_modules": [names[0], OUTPUT[model_type]]}
    return kinds | {kind: settings for kind, settings in further.items() if model_type in FURTHER[kind]}


def plain(name):
    for part in (".modules_to_save.default", ".default", ".base_layer"):
        name = name.replace(part, "")
    return name.removeprefix("base_model.model.").replace("magnitude_vector.weight", "magnitude_vector")


def compute(model, batch):
    """logits, loss and gradients, then ten losses of training."""
    logits, loss = batch.run(model)
    loss.backward()
    result = {"logits": logits.detach(), "loss": loss.detach().reshape(1)}
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad and p.grad is not None}
    for name, p in trained.items():  # the table beside the words is read by row
        result[f"grad.{plain(name)}"] = (p.grad.T if "lora_embedding_A" in name else p.grad).clone()
    return result | train(model, batch, set(Trainer.get_decay_parameter_names(None, model)))


def batch_of(expected, config, task):
    """The model's rows, from its own expected values; and what is stored again."""
    lengths = expected["lengths"].int().tolist()
    ids, types = (expected[name].int().split(lengths) for name in ("input_ids", "token_type_ids"))
    by_token = task != "classification"
    labels = expected["labels"]
    if by_token:
        labels = [row.long() for row in labels.split(lengths)]
    elif config.problem_type == "single_label_classification":
        labels = labels.long()
    else:
        labels = labels.double()
    rows = [(i.tolist(), t.tolist()) for i, t in zip(ids, types)]
    has_types = hasattr(config, "type_vocab_size")
    return Batch(rows, labels, 0.0, by_token, config.pad_token_id or 0, has_types, task == "clm")


def write_case(folder, base, case, settings):
    model_type, task = case["name"].split("/")[0], case["task"]
    family = FAMILIES[model_type]
    attention = family.get("attention", "sdpa" if family.get("decoder") else "eager")
    load = lambda dtype: CLASS[task].from_pretrained(base, dtype=dtype, attn_implementation=attention).eval()
    model = load(torch.float32)
    peft = get_peft_model(model, LoraConfig(**{"r": 2, "lora_alpha": 3, "task_type": TYPES[task], **settings}))
    with torch.no_grad():
        for name, p in peft.named_parameters():
            if p.requires_grad and "magnitude" in name:
                p.mul_(1 + 0.2 * torch.randn_like(p))
            elif p.requires_grad and "lora_" in name:
                p.normal_(0.0, 0.15)
            elif "trainable_tokens" in name or (case["name"].split("/")[1].startswith("saved_") and "modules_to_save" in name and p.requires_grad):
                p.add_(0.1 * torch.randn_like(p))
    peft.save_pretrained(folder)
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    write_json(folder / "adapter_config.json", {**config, "base_model_name_or_path": case["base"]})
    expected = load_file(base / "expected.safetensors")
    batch = batch_of(expected, model.config, task)
    doubled = PeftModel.from_pretrained(load(torch.float64), folder, is_trainable=True).double().eval()
    truth = compute(doubled, batch)
    kept = {name: expected[name] for name in ("input_ids", "token_type_ids", "lengths", "labels")}
    if not case["name"].endswith("/all"):
        del truth["logits"]  # they take most of the space
    save_file(kept | {name: value.float().contiguous() for name, value in truth.items()}, folder / "expected.safetensors")
    print(f"{case['name']}: {len(config['target_modules'] or [])} targets, losses {truth['losses'][0]:.4f} ... {truth['losses'][-1]:.4f}")


def write_new_tokens(folder, base, rows):
    """An adapter beside two new tokens of a tied decoder, as PEFT saves it. rows: are trained, else both whole tables."""
    model = CLASS["clm"].from_pretrained(base, dtype=torch.float32)
    size = model.config.vocab_size
    model.resize_token_embeddings(size + 2)
    peft = get_peft_model(model, LoraConfig(r=2, task_type="CAUSAL_LM", target_modules=["c_attn"],
                                            **({"trainable_token_indices": [size, size + 1, 5]} if rows else {"modules_to_save": ["wte", "lm_head"]})))
    with torch.no_grad():
        for p in peft.parameters():
            if p.requires_grad:
                p.add_(0.2 * torch.randn_like(p))
    shutil.rmtree(folder, ignore_errors=True)
    peft.save_pretrained(folder)
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    write_json(folder / "adapter_config.json", {**config, "base_model_name_or_path": "../families/gpt2/clm"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    golden = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
    parser.add_argument("families", nargs="*", default=list(FAMILIES), metavar="MODEL_TYPE")
    parser.add_argument("--kinds", nargs="*", help="of cases: only these are written again")
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    keep_float64()
    keep_bias()
    output, cases = golden / "lora", []
    written = json.loads((output / "cases.json").read_text())["cases"]
    for number, model_type in enumerate(FAMILIES):
        models = json.loads((golden / "families" / model_type / "cases.json").read_text())["cases"]
        models = [m for m in models if m["gradients"] and m["expected"] == "expected.safetensors"]
        probe = CLASS[models[0]["task"]].from_pretrained(golden / "families" / model_type / models[0]["folder"])
        for i, kind in enumerate(kinds_of(model_type, probe, True)):
            # One model for all linears, the next ones for one or two other kinds; Llama and BERT have all of them.
            m = models[i % len(models)]
            if kind in ("output", *FURTHER):
                m = next((m for m in models if m["task"] in ("clm", "mlm")), m)
            wanted = kind in ("output", "all", *FURTHER) or model_type in ("llama", "bert") or i == 1 + number % 5 or (kind == "default" and number % 2)
            if not wanted:
                continue
            if model_type not in args.families or (args.kinds and kind not in args.kinds):
                cases += [c for c in written if c["name"] == f"{model_type}/{kind}"]
                continue
            base = golden / "families" / model_type / m["folder"]
            loaded = CLASS[m["task"]].from_pretrained(base)
            tied = m["task"] != "clm" or loaded.config.tie_word_embeddings
            settings = kinds_of(model_type, loaded, tied)[kind]
            if kind == "all" and (m["task"] == "token_classification" or model_type == "distilbert"):
                # PEFT would give it an adapter, and then cannot save it as a module.
                settings["exclude_modules"] = ["classifier", "pre_classifier"]
            torch.manual_seed(100 * number + i)
            case = {"name": f"{model_type}/{kind}", "folder": f"{model_type}_{kind}", "task": m["task"],
                    "base": f"../families/{model_type}/{m['folder']}", "settings": settings}
            shutil.rmtree(output / case["folder"], ignore_errors=True)
            write_case(output / case["folder"], base, case, settings)
            cases.append(case)
    write_json(output / "cases.json", {"cases": cases})
    if "gpt2" in args.families and (not args.kinds or "new_tokens" in args.kinds):
        torch.manual_seed(1)
        write_new_tokens(output / "new_tokens", golden / "families" / "gpt2" / "clm", True)
    if "gpt2" in args.families and (not args.kinds or "new_saved" in args.kinds):
        torch.manual_seed(2)
        write_new_tokens(output / "new_saved", golden / "families" / "gpt2" / "clm", False)


if __name__ == "__main__":
    main()
