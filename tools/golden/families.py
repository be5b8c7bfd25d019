#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/families/MODEL_TYPE: tiny models of a family, and what transformers computes with them.

    python tools/golden/families.py [MODEL_TYPE ...]        (all by default; needs torch and transformers)

cases.json and the expected files have the format of tools/golden/model.py: expected values are computed in
float64 from the stored weights, with dropout off. Weights are drawn wide and stored as BF16, so that a folder stays small;
a case without gradients has logits and loss alone (its own configurations, but those to "keep"). Every encoder has a case for
each of the tasks, TASKS; decoders have DECODER_TASKS. In the files a token's label in causal LM is the token after it. Families whose position ids come from the ids have padded.safetensors, too: rows with padding tokens
inside, at the ends and alone.
"""
import argparse
import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, logging

from model import OPTIONS, STEPS, Batch, compute, relative, write_json

CLASS = {"classification": transformers.AutoModelForSequenceClassification, "mlm": transformers.AutoModelForMaskedLM,
         "token_classification": transformers.AutoModelForTokenClassification, "clm": transformers.AutoModelForCausalLM}
# name, task, problem type, labels
TASKS = [("single", "classification", "single_label_classification", 3), ("regression", "classification", "regression", 1),
         ("multi", "classification", "multi_label_classification", 4), ("tokens", "token_classification", None, 5),
         ("mlm", "mlm", None, None), ("clm", "clm", None, None)]
DECODER_TASKS = ["single", "clm"]
SIZES = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36,
         "max_position_embeddings": 26, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DECODER = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None, "num_key_value_heads": 2}
LENGTHS = (2, 5, 9, 17, 24)  # the longest fills all positions of a table of 26 rows of which 2 are before the first

# model type: its configuration beside SIZES; cases that have a configuration of their own; the tasks it has (None: all)
FAMILIES = {
    "bert": {"config": {}, "own": {}, "tasks": ["tokens"]},  # the others are model.py's
    "roberta": {"config": {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
                "own": {"mlm_untied": ("mlm", {"tie_word_embeddings": False}),
                        "pad9": ("single", {"pad_token_id": 9, "max_position_embeddings": 36})}, "tasks": None},
    "camembert": {"config": {"type_vocab_size": 1, "layer_norm_eps": 1e-5}, "own": {}, "tasks": None},
    "xlm-roberta": {"config": {"type_vocab_size": 1, "layer_norm_eps": 1e-5}, "own": {}, "tasks": None},
    "roberta-prelayernorm": {"config": {"type_vocab_size": 1, "layer_norm_eps": 1e-5}, "own": {}, "tasks": None},
    "electra": {"config": {"embedding_size": 24},
                "own": {"same_size": ("single", {"embedding_size": 32, "hidden_act": "relu"}),
                        "mlm_untied": ("mlm", {"tie_word_embeddings": False})}, "tasks": None},
    "distilbert": {"config": {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "qa_dropout": 0.0},
                   "own": {"mlm_relu": ("mlm", {"activation": "relu", "tie_word_embeddings": False})}, "tasks": None},
    "mpnet": {"config": {"layer_norm_eps": 1e-5}, "own": {"mlm_untied": ("mlm", {"tie_word_embeddings": False}),
                                                          "pad9": ("tokens", {"pad_token_id": 9})}, "tasks": None},
    # Layers 0 and 3 are global; a local one sees 3 places to each side.
    "modernbert": {"config": {"num_hidden_layers": 4, "local_attention": 6, "pad_token_id": 1},
                   "own": {"means": ("single", {"classifier_pooling": "mean"}),
                           "biases": ("tokens", {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True,
                                                 "hidden_activation": "silu", "classifier_activation": "relu",
                                                 "layer_types": ["sliding_attention", "full_attention"] * 2}),
                           "mlm_untied": ("mlm", {"tie_word_embeddings": False, "decoder_bias": False, "norm_bias": True})},
                   "tasks": None, "keep": ["means", "biases"],
                   "attention": "sdpa"},  # its eager attention computes softmax in float32, where float64's mask value is infinite
    "llama": {"config": DECODER, "decoder": True, "keep": ["biases"],
              "own": {"biases": ("clm", {"tie_word_embeddings": True, "head_dim": 12, "attention_bias": True, "mlp_bias": True,
                                         "pad_token_id": 7, "rope_parameters": {
                                             "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0,
                                             "high_freq_factor": 4.0, "original_max_position_embeddings": 16}}),
                      "linear": ("clm", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}}),
                      "dynamic": ("clm", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 3.0}}),
                      "yarn": ("clm", {"num_key_value_heads": None, "rope_parameters": {
                          "rope_type": "yarn", "rope_theta": 1e3, "factor": 4.0, "original_max_position_embeddings": 8}}),
                      "dynamic_long": ("clm", {"max_position_embeddings": 10, "rope_parameters": {
                          "rope_type": "dynamic", "rope_theta": 1e4, "factor": 3.0}})}},
    "qwen2": {"config": DECODER, "decoder": True, "keep": [],
              "own": {"windows": ("clm", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1,
                                          "tie_word_embeddings": True})}},
    "qwen3": {"config": DECODER | {"head_dim": 16}, "decoder": True, "keep": [],
              "own": {"types": ("clm", {"use_sliding_window": True, "sliding_window": 4, "attention_bias": True,
                                        "layer_types": ["sliding_attention", "full_attention"]})}},
    "gemma": {"config": DECODER | {"head_dim": 12, "pad_token_id": 0}, "decoder": True, "keep": [],
              "own": {"gelu": ("clm", {"hidden_act": "gelu"})}},
    # Layers 0 and 2 have a window of 5. transformers has no SDPA with caps.
    "gemma2": {"config": DECODER | {"head_dim": 8, "pad_token_id": 0, "sliding_window": 5, "query_pre_attn_scalar": 12,
                                    "num_hidden_layers": 3, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
               "decoder": True, "keep": [], "attention": "eager",
               "own": {"uncapped": ("clm", {"attn_logit_softcapping": None, "final_logit_softcapping": None})}},
    "gemma3_text": {"config": DECODER | {"head_dim": 8, "pad_token_id": 0, "sliding_window": 5, "query_pre_attn_scalar": 12,
                                         "num_hidden_layers": 3, "sliding_window_pattern": 3}, "decoder": True, "keep": [],
                    "own": {"scaled": ("clm", {"rope_parameters": {
                        "full_attention": {"rope_type": "linear", "rope_theta": 1e5, "factor": 4.0},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}})}},
    "phi3": {"config": DECODER | {"original_max_position_embeddings": 26}, "decoder": True, "keep": ["longrope"],
             "own": {"longrope": ("clm", {"original_max_position_embeddings": 16, "sliding_window": 7, "rope_parameters": {
                         "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
                         "short_factor": [1.0, 1.1], "long_factor": [1.5, 3.0]}}),
                     "shorter": ("clm", {"rope_parameters": {
                         "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 1.0,
                         "short_factor": [1.0, 1.1, 1.2, 1.4], "long_factor": [1.5, 3.0, 4.0, 5.0]}})}},
    "olmo2": {"config": DECODER, "decoder": True, "keep": [], "own": {"biases": ("clm", {"attention_bias": True})}},
    "olmo3": {"config": DECODER | {"sliding_window": 5, "num_hidden_layers": 4}, "decoder": True, "keep": [],
              "own": {"types": ("clm", {"layer_types": ["full_attention", "sliding_attention"] * 2, "rope_parameters": {
                  "full_attention": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
                                     "original_max_position_embeddings": 8},
                  "sliding_attention": {"rope_type": "default", "rope_theta": 1e3}}})}},
    "granite": {"config": DECODER | {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2,
                                     "logits_scaling": 2.5}, "decoder": True, "keep": [], "tasks": ["clm"],
                "own": {"plain": ("clm", {"residual_multiplier": 1.0, "logits_scaling": 1.0, "mlp_bias": True})}},
    "smollm3": {"config": DECODER | {"num_hidden_layers": 4}, "decoder": True, "keep": [],
                "own": {"windows": ("clm", {"no_rope_layers": [0, 1, 1, 0], "use_sliding_window": True, "sliding_window": 5})}},
    "ministral3": {"config": DECODER | {"head_dim": 12, "rope_parameters": {
                       "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 24, "mscale": 1.0,
                       "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}}, "decoder": True, "keep": ["growing"],
                   "own": {"window": ("clm", {"sliding_window": 6}),
                           "growing": ("clm", {"rope_parameters": {
                               "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 5,
                               "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4}})}},
    "gpt2": {"config": {"bos_token_id": None, "eos_token_id": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
             "decoder": True, "keep": [],
             "own": {"scales": ("clm", {"scale_attn_by_inverse_layer_idx": True, "tie_word_embeddings": False,
                                        "activation_function": "relu"}),
                     "unscaled": ("clm", {"scale_attn_weights": False, "n_inner": None})}},
    "mistral": {"config": DECODER | {"sliding_window": 6}, "decoder": True, "keep": [],
                "own": {"no_window": ("clm", {"sliding_window": None})}},
    # Half of 4 buckets to each side has one distance each; from distance 7 on all are in the last one.
    "deberta-v2": {"config": {"relative_attention": True, "position_buckets": 4, "max_relative_positions": 8, "share_att_key": True,
                              "pos_att_type": "p2c|c2p", "norm_rel_ebd": "layer_norm", "position_biased_input": False},
                   "own": {"own_keys": ("single", {"share_att_key": False, "pos_att_type": ["c2p"], "norm_rel_ebd": "none",
                                                   "position_biased_input": True, "position_buckets": -1, "embedding_size": 24,
                                                   "type_vocab_size": 2, "pooler_hidden_act": "relu"}),
                           "own_queries": ("tokens", {"share_att_key": False, "pos_att_type": "p2c", "position_buckets": 7,
                                                      "max_relative_positions": -1}),
                           "own_both": ("single", {"share_att_key": False, "norm_rel_ebd": "none", "position_buckets": 6,
                                                   "max_relative_positions": 5}),
                           "mlm_newer": ("mlm", {"legacy": False}),
                           "mlm_untied": ("mlm", {"tie_word_embeddings": False, "embedding_size": 24}),
                           "absolute": ("tokens", {"relative_attention": False, "norm_rel_ebd": "none",
                                                   "position_biased_input": True}),
                           "convolution": ("tokens", {"conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 1}),
                           "convolution_tanh": ("single", {"conv_kernel_size": 5, "num_hidden_layers": 1})},
                   "tasks": None, "keep": ["own_keys", "own_queries", "mlm_newer", "convolution", "convolution_tanh"]},
}
# Cases with padded rows, and those with their gradients. MPNet's padding token is 1, whatever its configuration says.
PADDED = {"roberta": (["single", "tokens", "mlm", "pad9"], ["tokens"]), "mpnet": (["single", "mlm", "pad9"], ["single"]),
          **{family: (["single", "tokens", "mlm"], []) for family in ("camembert", "xlm-roberta", "roberta-prelayernorm")}}
# A family's names of these.
NAMES = {"gpt2": {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
                  "intermediate_size": "n_inner", "max_position_embeddings": "n_positions"},
         "distilbert": {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
                        "intermediate_size": "hidden_dim", "hidden_dropout_prob": None, "attention_probs_dropout_prob": None}}


def keep_float64():
    """Eager attention asks for a softmax in float32, where float64's mask value is infinite."""
    softmax = torch.nn.functional.softmax
    torch.nn.functional.softmax = lambda x, dim, dtype=None: softmax(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype)


def new_config(model_type, changes, problem, labels):
    names = NAMES.get(model_type, {})
    decoder = FAMILIES[model_type].get("decoder")
    sizes = {names.get(key, key): value for key, value in SIZES.items()
             if names.get(key, key) and not (decoder and key.endswith("prob"))}
    own = {} if labels is None else {"num_labels": labels}
    if problem is not None:
        own["problem_type"] = problem
    return AutoConfig.for_model(model_type, **{**sizes, **FAMILIES[model_type]["config"], **changes, **own})


def new_model(config, task):
    model = CLASS[task].from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name.split(".")[-2].lower() or "ln_" in name
            centre = 0.0 if config.model_type.startswith("gemma") else 1.0  # Gemma's weight is 1 more
            parameter.normal_(centre if is_norm and name.endswith("weight") else 0.0, 0.2 if is_norm else 0.15)
    return model.to(torch.bfloat16).eval()


def load_model(folder, task, config, dtype, attention):
    """transformers 5 fails to load DeBERTa's newer head, since its _tied_weights_keys names no parameter of it."""
    if getattr(config, "legacy", True):
        return CLASS[task].from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()
    model = CLASS[task].from_config(config).to(dtype).eval()
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    model.tie_weights()
    return model


def draw_rows(config, generator):
    types = getattr(config, "type_vocab_size", 1) or 1
    return [(torch.randint(5, config.vocab_size, (n,), generator=generator).tolist(),
             torch.randint(types, (n,), generator=generator).tolist()) for n in LENGTHS]


def draw_padded_rows(config, generator):
    """The padding token is in the middle, first, last, several in a row, and all that a row has."""
    padding = 1 if config.model_type == "mpnet" else config.pad_token_id
    rows = [row[0] for row in draw_rows(config, generator)] + [[5, 6, 7]]
    rows[0][1] = rows[1][2] = rows[2][0] = rows[3][3] = rows[3][4] = rows[3][-1] = padding
    for at in range(1, 24, 3):
        rows[4][at] = padding
    rows[5] = [padding] * 3
    return [(ids, [0] * len(ids)) for ids in rows]


def draw_labels(rows, task, problem, labels, generator):
    if problem == "multi_label_classification":
        return torch.randint(2, (len(rows), labels), generator=generator).double()
    if problem == "regression":
        return torch.randn(len(rows), generator=generator).float().double()
    if task == "classification":
        return torch.randint(labels, (len(rows),), generator=generator)
    if task == "clm":
        return [torch.tensor(ids[1:] + [-100]) for ids, _ in rows]
    found = []
    for ids, _ in rows:  # first and last tokens are special, and have none
        chosen = torch.rand(len(ids), generator=generator) < (0.25 if task == "mlm" else 0.6)
        chosen[0] = chosen[-1] = False
        wanted = torch.tensor(ids) if task == "mlm" else torch.randint(labels, (len(ids),), generator=generator)
        found.append(torch.where(chosen, wanted, -100))
        if task == "mlm":
            for position in torch.nonzero(chosen).flatten().tolist():
                ids[position] = 4
    return found


def write_expected(path, folder, task, rows, labels, config, gradients):
    by_token = task != "classification"
    batch = Batch(rows, labels, 0.0, by_token, config.pad_token_id or 0, hasattr(config, "type_vocab_size"), task == "clm")
    family = FAMILIES[config.model_type]
    # Eager attention of decoders computes softmax in float32.
    attention = family.get("attention", "sdpa" if family.get("decoder") else "eager")
    truth, single = (compute(load_model(folder, task, config, dtype, attention), batch) for dtype in (torch.float64, torch.float32))
    noise = max(relative(single[n], truth[n]) for n in truth
                if n.startswith("grad.") and truth[n].norm() > 1e-12)
    print(f"{folder.parent.name}/{folder.name}: float32 against float64: logits "
          f"{(single['logits'] - truth['logits']).abs().max():.1e}, loss {(single['loss'] - truth['loss']).abs().item():.1e}, "
          f"gradients {noise:.1e} (relative), ten losses {(single['losses'] - truth['losses']).abs().max():.1e}; "
          f"losses {truth['losses'][0]:.4f} ... {truth['losses'][-1]:.4f}")
    assert len(truth["losses"]) == STEPS
    tensors = {"input_ids": torch.tensor([i for ids, _ in rows for i in ids]),
               "token_type_ids": torch.tensor([t for _, types in rows for t in types]),
               "lengths": torch.tensor([len(ids) for ids, _ in rows]),
               "labels": torch.cat(labels) if by_token else labels}
    tensors |= {name: value for name, value in truth.items() if gradients or name in ("logits", "loss")}
    save_file({name: value.float().contiguous() for name, value in tensors.items()}, path)


def write_family(model_type, output):
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    family, cases = FAMILIES[model_type], []
    tasks = family.get("tasks") or DECODER_TASKS if family.get("decoder") else family["tasks"] or [name for name, *_ in TASKS if name != "clm"]
    pooled = {"pad_token_id": 1} if family.get("decoder") else {}  # which classes need, to find a row's last token
    wanted = {name: (name, pooled if name == "single" else {}) for name, *_ in TASKS if name in tasks}
    for seed, (name, (like, changes)) in enumerate((wanted | family["own"]).items(), start=1):
        _, task, problem, labels = next(row for row in TASKS if row[0] == like)
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(1000 + seed)
        config = new_config(model_type, changes, problem, labels)
        new_model(config, task).save_pretrained(output / name)
        rows = draw_rows(config, generator)
        targets = draw_labels(rows, task, problem, labels, generator)
        gradients = name in wanted or name in family.get("keep", [])
        write_expected(output / name / "expected.safetensors", output / name, task, rows, targets, config, gradients)
        cases.append({"name": f"{model_type}/{name}", "folder": name, "expected": "expected.safetensors", "task": task,
                      "problem_type": problem, "num_labels": labels, "label_smoothing_factor": 0.0, "gradients": gradients,
                      "seed": seed})
        padded, kept = PADDED.get(model_type, ([], []))
        if name not in padded:
            continue
        rows = draw_padded_rows(config, generator)
        targets = draw_labels(rows, task, problem, labels, generator)
        write_expected(output / name / "padded.safetensors", output / name, task, rows, targets, config, name in kept)
        cases.append({**cases[-1], "name": f"{model_type}/{name}_padded", "expected": "padded.safetensors",
                      "gradients": name in kept})
    write_json(output / "cases.json", {"options": OPTIONS, "cases": cases})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("families", nargs="*", default=list(FAMILIES), metavar="MODEL_TYPE")
    parser.add_argument("--output_dir", type=pathlib.Path, default=root / "tests" / "golden" / "families")
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    keep_float64()
    for model_type in args.families:
        write_family(model_type, args.output_dir / model_type)


if __name__ == "__main__":
    main()
