#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/configs.json: config.json files with every alias and older layout of a key that transformers honours
for snug's families, and the models that transformers builds from them.

    python tools/golden/configs.py [--output FILE]        (needs torch and transformers)

Each family has a "config", a small config.json, and what is "expected", read from the modules of the classifier that
transformers builds. Its cases have "changes" of that config, and of what is "expected"; or "refused": part of snug's message,
for a setting that snug does not support.
"""
import argparse
import json
import pathlib
import tempfile

import torch
import transformers
from transformers import AutoConfig, AutoModelForSequenceClassification, logging

FAMILIES = ["bert", "roberta", "camembert", "xlm-roberta", "roberta-prelayernorm", "electra", "distilbert", "mpnet", "modernbert",
            "deberta-v2"]
SMALL = {"vocab_size": 60, "max_position_embeddings": 40}
SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 36}
DISTILBERT = {"dim": 32, "n_layers": 4, "n_heads": 4, "hidden_dim": 36}
BERT = {"hidden_dropout_prob": 0.25, "attention_probs_dropout_prob": 0.375, "initializer_range": 0.5, "layer_norm_eps": 1e-3,
        "hidden_act": "relu", "pad_token_id": 3}
MODERN = {"pad_token_id": 3, "embedding_dropout": 0.25, "attention_dropout": 0.375, "mlp_dropout": 0.125, "norm_eps": 1e-3,
          "hidden_activation": "relu"}
ROPE = {"full_attention": {"rope_type": "default", "rope_theta": 7.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 8.0}}
RELATIVE = {"relative_attention": True, "pos_att_type": "c2p", "share_att_key": True, "position_biased_input": False}
TYPES = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
NAMES = {"0": "no", "1": "yes", "2": "maybe"}

# Of every family.
COMMON = [{"num_labels": 3}, {"id2label": NAMES}, {"id2label": None, "num_labels": 5}, {"id2label": NAMES, "num_labels": 3},
          {"id2label": NAMES, "num_labels": 2}, {"id2label": NAMES, "num_labels": 4}, {"id2label": {"1": "yes", "0": "no"}},
          {"id2label": {"0": 0, "1": 1}}, {"id2label": {"0": -1, "1": 1.5, "2": True, "3": -120.25, "4": 0.1}},
          {"label2id": {"a": 0, "b": 1, "c": 2}}, {"num_labels": 1}, {"tie_word_embeddings": False}, {"classifier_dropout": 0.0625},
          {"torch_dtype": "float32", "unknown_key": {"a": [1]}, "use_cache": False, "output_hidden_states": True},
          {"per_layer_config": {}, "quantization_config": None}]
REFUSED = [({"per_layer_config": {"0": {"intermediate_size": 8}}}, "per_layer_config: layers of different sizes"),
           ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config: of all methods snug supports"),
           ({"transformers_weights": "adapter.safetensors"}, "transformers_weights: name the file model.safetensors"),
           ({"configuration_files": ["config.4.0.0.json"]}, "configuration_files: "),
           ({"num_labels": 1, "problem_type": "single_label_classification"}, "but there is only one class"),
           ({"is_decoder": True}, "is_decoder is not supported")]
# Of one family; the last ones have keys that are other families', without effect.
OWN = {
    "bert": [BERT, {**BERT, "classifier_dropout": 0.5}, {"pad_token_id": None}, {"pad_token_id": -1}, {"pad_token_id": -60},
             {"hidden_act": "gelu_new"}, {"hidden_act": "gelu_python"}, {"hidden_act": "swish"}, {"dim": 8, "n_layers": 1, "sliding_window": 3}],
    "roberta": [BERT, {"type_vocab_size": 1}, {"pad_token_id": 0}, {"pad_token_id": 30}],
    "camembert": [BERT], "xlm-roberta": [BERT], "roberta-prelayernorm": [BERT],
    "electra": [{**BERT, "embedding_size": 24}, {"embedding_size": 32, "summary_activation": "relu", "summary_last_dropout": 0.5}],
    "distilbert": [{"hidden_size": 64}, {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2},
                   {"num_hidden_layers": 5, "num_attention_heads": 8}, {"hidden_size": 32},
                   {"dropout": 0.25, "attention_dropout": 0.375, "seq_classif_dropout": 0.5, "activation": "relu", "pad_token_id": 3},
                   {"intermediate_size": 8, "hidden_act": "relu", "hidden_dropout_prob": 0.5, "layer_norm_eps": 1e-3}],
    "mpnet": [BERT, {"pad_token_id": 0, "classifier_dropout": 0.5}, {"type_vocab_size": 4}, {"pad_token_id": None}],
    "modernbert": [MODERN, {"sliding_window": 5}, {"sliding_window": 5, "local_attention": 6}, {"local_attention": 7},
                   {"local_attention": 6, "sliding_window": 3}, {"global_attn_every_n_layers": 2}, {"layer_types": TYPES},
                   {"layer_types": TYPES, "global_attn_every_n_layers": 2}, {"layer_types": None, "global_attn_every_n_layers": 1},
                   {"layer_types": ["attention", "sliding_attention"] * 2}, {"global_rope_theta": 5.0, "local_rope_theta": 6.0}, {"rope_parameters": ROPE},
                   {"rope_parameters": {"full_attention": ROPE["full_attention"]}, "global_rope_theta": 5.0, "local_rope_theta": 6.0},
                   {"rope_parameters": {"sliding_attention": {"type": "default"}}, "local_rope_theta": 6.0},
                   {"rope_parameters": None, "rope_theta": 9.0}, {"rope_scaling": {"rope_type": "default", "rope_theta": 11.0}},
                   {"rope_scaling": {"type": "default"}, "local_rope_theta": 6.0}, {"rope_scaling": None}, {"head_dim": 8},
                   {"rope_scaling": {"rope_theta": 11.0}, "rope_parameters": ROPE},
                   {"classifier_pooling": "mean", "classifier_activation": "tanh", "classifier_dropout": 0.5},
                   {"hidden_act": "relu", "attention_probs_dropout_prob": 0.5, "dim": 8, "layer_norm_eps": 1e-3}],
    "deberta-v2": [BERT, {**BERT, "cls_dropout": 0.5, "pooler_dropout": 0.125, "pooler_hidden_act": "tanh"}, {"type_vocab_size": 2},
                   {"position_biased_input": False}, {"embedding_size": 24}, {"conv_kernel_size": 0}, {"classifier_dropout": 0.5},
                   {"pos_att_type": "c2p|p2c"}, RELATIVE, {**RELATIVE, "pos_att_type": ["p2c"], "share_att_key": False},
                   {**RELATIVE, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8, "norm_rel_ebd": "layer_norm"},
                   {**RELATIVE, "pos_att_type": " C2P|p2c ", "position_buckets": 8, "max_relative_positions": 20},
                   {**RELATIVE, "position_buckets": -1, "max_relative_positions": 7, "norm_rel_ebd": "none"},
                   {**RELATIVE, "position_buckets": 0, "max_relative_positions": 0, "norm_rel_ebd": "LAYER_NORM"}],
}
REFUSED_OWN = {
    "roberta": [({"pad_token_id": None}, "pad_token_id is null, but position ids"), ({"pad_token_id": -1}, "pad_token_id is below 0")],
    "distilbert": [({"sinusoidal_pos_embds": True}, "sinusoidal_pos_embds is not supported"),
                   ({"hidden_size": 30}, "hidden_size 30 is not a multiple of n_heads 4")],
    "modernbert": [({"head_dim": 4}, "head_dim must be hidden_size / num_attention_heads"),
                   ({"sliding_window": 0}, "sliding_window is 0"), ({"local_attention": 1}, "local_attention must be at least 2"),
                   ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, "rope_parameters may only hold"),
                   ({"rope_parameters": [1]}, "rope_parameters must be an object"),
                   ({"rope_parameters": {"full_attention": 7.0}}, "full_attention must be an object"),
                   ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}}, "rope_type linear of full_attention"),
                   ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type linear of rope_scaling"),
                   ({"layer_types": ["full_attention"] * 3}, "layer_types must name the type of each of 4 layers"),
                   ({"layer_types": ["full_attention"] * 3 + ["chunked_attention"]}, "layer_types may only hold")],
}


def rate(module, *names):
    for name in names:
        if isinstance(getattr(module, name, None), torch.nn.Dropout):
            return getattr(module, name).p
    return 0.0


def activation(module):
    known = {"GELUActivation": "gelu", "NewGELUActivation": "gelu_new", "ReLU": "relu", "SiLUActivation": "silu", "SiLU": "silu",
             "Tanh": "tanh"}
    return known[type(module).__name__]


def common(model, table, positions, types, norm, layers):
    config = model.config
    return {"labels": [str(config.id2label[i]) for i in range(config.num_labels)], "tie_word_embeddings": config.tie_word_embeddings,
            "vocab_size": table.num_embeddings, "embedding_size": table.embedding_dim,
            "pad_token_id": -1 if table.padding_idx is None else table.padding_idx,
            "max_position_embeddings": positions, "type_vocab_size": types, "layer_norm_eps": norm.eps, "num_hidden_layers": len(layers),
            "initializer_range": config.initializer_range}


def layered(model):
    """BERT, ELECTRA and the RoBERTas"""
    base, config = model.base_model, model.config
    e, layer, head = base.embeddings, base.encoder.layer[0], model.classifier
    values = common(model, e.word_embeddings, e.position_embeddings.num_embeddings,
                    e.token_type_embeddings.num_embeddings if hasattr(e, "token_type_embeddings") else 0, e.LayerNorm, base.encoder.layer)
    attention = layer.attention.attn if config.model_type == "mpnet" else layer.attention.self
    return values | {"hidden_size": layer.output.dense.out_features, "num_attention_heads": attention.num_attention_heads,
                     "intermediate_size": layer.intermediate.dense.out_features, "hidden_act": activation(layer.intermediate.intermediate_act_fn),
                     "hidden_dropout_prob": rate(e, "dropout"), "attention_probs_dropout_prob": rate(attention, "dropout"),
                     "classifier_dropout": rate(head, "dropout") if hasattr(head, "dropout") else rate(model, "dropout")}


def distilbert(model):
    base = model.distilbert
    e, layer = base.embeddings, base.transformer.layer[0]
    values = common(model, e.word_embeddings, e.position_embeddings.num_embeddings, 0, e.LayerNorm, base.transformer.layer)
    return values | {"hidden_size": layer.ffn.lin2.out_features, "num_attention_heads": layer.attention.n_heads,
                     "intermediate_size": layer.ffn.lin1.out_features, "hidden_act": activation(layer.ffn.activation),
                     "hidden_dropout_prob": rate(e, "dropout"), "attention_probs_dropout_prob": rate(layer.attention, "dropout"),
                     "classifier_dropout": rate(model, "dropout")}


def modernbert(model):
    base, config = model.model, model.config
    e, layer = base.embeddings, base.layers[0]
    values = common(model, e.tok_embeddings, config.max_position_embeddings, 0, e.norm, base.layers)
    local = [x.attn.sliding_window is not None for x in base.layers]
    return values | {"hidden_size": layer.mlp.Wo.out_features, "num_attention_heads": config.num_attention_heads,
                     "intermediate_size": layer.mlp.Wo.in_features, "hidden_act": activation(layer.mlp.act),
                     "hidden_dropout_prob": rate(e, "drop"), "attention_probs_dropout_prob": rate(layer.attn, "out_drop"),
                     "classifier_dropout": rate(model, "drop"),
                     "windows": [x.attn.sliding_window - 1 if own else 0 for x, own in zip(base.layers, local)],
                     "thetas": [config.rope_parameters["sliding_attention" if own else "full_attention"]["rope_theta"] for own in local]}


def deberta(model):
    base, config = model.base_model, model.config
    e, encoder, layer = base.embeddings, base.encoder, base.encoder.layer[0]
    table = lambda module: 0 if module is None else module.num_embeddings
    values = common(model, e.word_embeddings, e.position_ids.shape[-1], table(e.token_type_embeddings), e.LayerNorm, encoder.layer)
    own = layer.attention.self
    relative = {"rows": encoder.rel_embeddings.num_embeddings, "buckets": max(own.position_buckets, 0), "c2p": "c2p" in own.pos_att_type,
                "p2c": "p2c" in own.pos_att_type, "own_linears": not own.share_att_key,
                "norm": "layer_norm" in encoder.norm_rel_ebd} if encoder.relative_attention else None
    return values | {"hidden_size": layer.output.dense.out_features, "num_attention_heads": own.num_attention_heads,
                     "intermediate_size": layer.intermediate.dense.out_features, "hidden_act": activation(layer.intermediate.intermediate_act_fn),
                     "hidden_dropout_prob": rate(e, "dropout"), "attention_probs_dropout_prob": rate(own, "dropout"),
                     "classifier_dropout": rate(model, "dropout"), "absolute_positions": table(e.position_embeddings),
                     "relative": relative}


def build(config):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        read = AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            model = AutoModelForSequenceClassification.from_config(read)
    return {"distilbert": distilbert, "modernbert": modernbert, "deberta-v2": deberta}.get(config["model_type"], layered)(model)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--output", type=pathlib.Path, default=root / "tests" / "golden" / "configs.json")
    output = parser.parse_args().output
    logging.set_verbosity_error()
    families, count = [], 0
    for family in FAMILIES:
        base = {"model_type": family, **SMALL, **(DISTILBERT if family == "distilbert" else SIZES)}
        if family == "modernbert":
            base["pad_token_id"] = 1  # the default is an id of its own vocabulary
        expected = build(base)
        cases = [{"changes": changes, "expected": {key: value for key, value in build({**base, **changes}).items()
                                                   if value != expected[key]}} for changes in COMMON + OWN[family]]
        cases += [{"changes": changes, "refused": sentence} for changes, sentence in REFUSED + REFUSED_OWN.get(family, [])]
        lines = ",\n".join(json.dumps(case) for case in cases)
        families.append(f'{{"config": {json.dumps(base)},\n"expected": {json.dumps(expected)},\n"cases": [\n{lines}\n]}}')
        count += len(cases)
    text = ",\n".join(families)
    output.write_text(f'{{"transformers": "{transformers.__version__}", "families": [\n{text}\n]}}\n', encoding="utf-8")
    print(f"{count} cases in {output}")


if __name__ == "__main__":
    main()
