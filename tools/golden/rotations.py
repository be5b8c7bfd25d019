#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/rotations.json: the frequencies and the factor that transformers computes for rope types.
Usage: tools/golden/rotations.py (needs PyTorch and transformers 5)"""

import json
import pathlib

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "rotations.json"
SHORT, LONG = [1 + i / 8 for i in range(16)], [1.5 * 1.25**i for i in range(16)]

CASES = [  # head size, theta, rope parameters, positions of the model, tokens of the longest text
    (32, 10000, {"rope_type": "default"}, 2048, None),
    (64, 160000, {"rope_type": "default"}, 8192, None),
    (64, 10000, {"rope_type": "default", "partial_rotary_factor": 0.5}, 2048, None),
    (32, 10000, {"rope_type": "linear", "factor": 4.0}, 2048, None),
    (64, 500000, {"rope_type": "linear", "factor": 2.5}, 2048, None),
    (32, 10000, {"rope_type": "dynamic", "factor": 2.0}, 2048, 1000),
    (32, 10000, {"rope_type": "dynamic", "factor": 2.0}, 2048, 5000),
    (64, 20000, {"rope_type": "dynamic", "factor": 4.0}, 128, 129),
    (64, 500000, {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 8192}, 131072, None),
    (128, 500000, {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192}, 131072, None),
    (32, 10000, {"rope_type": "llama3", "factor": 3.0, "low_freq_factor": 0.5, "high_freq_factor": 8.0,
                 "original_max_position_embeddings": 100}, 300, None),
    (64, 10000, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}, 8192, None),
    (64, 1e6, {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384, "mscale": 1.0,
               "mscale_all_dim": 1.0}, 262144, None),
    (64, 150000, {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False},
     131072, None),
    (128, 10000, {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "beta_fast": 64.0,
                  "beta_slow": 2.0, "mscale": 0.7, "mscale_all_dim": 0.9}, 163840, None),
    (32, 10000, {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64, "attention_factor": 1.5},
     128, None),
    (32, 10000, {"rope_type": "yarn", "factor": 1.0, "original_max_position_embeddings": 2048}, 2048, None),
    (64, 10000, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "mscale": 0.7}, 8192, None),
    (64, 10000, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 8.0,
                 "beta_slow": 8.0, "truncate": False}, 8192, None),
    (32, 10000, {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
                 "original_max_position_embeddings": 4096, "factor": 32.0}, 131072, 4096),
    (32, 10000, {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
                 "original_max_position_embeddings": 4096, "factor": 32.0}, 131072, 4097),
    (32, 20000, {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
                 "original_max_position_embeddings": 4096, "factor": 32.0, "attention_factor": 1.25}, 131072, 9000),
    (32, 20000, {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
                 "original_max_position_embeddings": 4096, "factor": 1.0}, 4096, 7),
]


def case(size, theta, rope, positions, length):
    config = LlamaConfig(hidden_size=size * 2, num_attention_heads=2, head_dim=size, max_position_embeddings=positions,
                         rope_parameters={"rope_theta": theta, **rope})
    kind = rope["rope_type"]
    if kind == "default":
        channels = int(size * rope.get("partial_rotary_factor", 1))
        frequencies = 1 / theta ** (torch.arange(0, channels, 2, dtype=torch.int64).float() / channels)
        factor = 1.0
    else:
        channels = size
        frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)
    return {"channels": channels, "theta": theta, "rope": rope, "positions": positions, "length": length,
            "frequencies": [float(f"{f:.9g}") for f in frequencies.tolist()], "factor": factor}


GOLDEN.write_text("[\n" + ",\n".join(json.dumps(case(*c)) for c in CASES) + "\n]\n")
