#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""QLoRA of Llama-3.1-70B (random 4-bit codes) on one GPU: rank 16 on all linears, bf16, layers recomputed: one row of 2,048 tokens in as
little device memory as the codes allow, eight rows with the codes on the device, and eight with the codes in host memory.

    bench/gpu_qlora_large.py [CASE …] [--dist build-gpu/dist] [--model llama-3.1-70b] [--steps 4] [--folder /dev/shm] [--seconds 570]

The folder is what transformers saves for a model that it loaded with bitsandbytes, and takes 40 GB there; all layers have the same codes.
Rates are those that snug train prints, everything from the first step to the last.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import struct
import sys
import tempfile
import time

import gpu_peer

ROOT = pathlib.Path(__file__).resolve().parent
FEW = "--optim adamw_8bit --offload embeddings,activations"
CASES = {  # rows, words
    "1 row, little memory": (1, FEW),
    "8 rows": (8, "--optim adamw_8bit --offload embeddings"),
    "8 rows, codes in host memory": (8, FEW + ",weights"),
}
GOLDEN = ROOT.parent / "tests/golden/quantized/nf4/model.safetensors"  # has the values of bitsandbytes' codes


def read_maps():
    """The tensors quant_map and nested_quant_map, which all weights share."""
    data = GOLDEN.read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    header, name = json.loads(data[8:8 + size]), "model.layers.0.mlp.down_proj.weight"
    found = {}
    for key in ("quant_map", "nested_quant_map"):
        entry = header[f"{name}.{key}"]
        begin, end = entry["data_offsets"]
        found[key] = (entry["dtype"], entry["shape"], data[8 + size + begin:8 + size + end])
    return found


def linear(name, rows, cols, noise, maps):
    """The tensors of one 4-bit weight: blocks of 64 values with 8-bit scales, 0.05 each on average, in blocks of 256."""
    blocks = rows * cols // 64
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [rows, cols], "nested_blocksize": 256, "nested_dtype": "float32",
             "nested_offset": 0.05}
    text = json.dumps(state).encode()
    found = {name: ("U8", [rows * cols // 2, 1], noise[:rows * cols // 2]), name + ".absmax": ("U8", [blocks], noise[:blocks]),
             name + ".nested_absmax": ("F32", [-(-blocks // 256)], struct.pack("<f", 0.01) * -(-blocks // 256)),
             name + ".quant_state.bitsandbytes__nf4": ("U8", [len(text)], text)}
    return found | {f"{name}.{key}": tensor for key, tensor in maps.items()}


def halves(rows, cols, noise):
    """BF16 of ±0.01 or so: exponents as they are in trained weights, random signs and mantissas."""
    count = rows * cols
    values = bytearray(noise[:2 * count])
    values[1::2] = values[1::2].translate(bytes(0x3C | byte & 0x80 for byte in range(256)))
    return "BF16", [rows, cols] if rows > 1 else [cols], bytes(values)


def write_shard(path, tensors):
    header, at = {}, 0
    for name, (kind, shape, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(values)]}
        at += len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, values in tensors.values():
            file.write(values)
    return path.name, list(tensors)


def write_model(folder, name):
    config = json.loads((ROOT / "models" / f"{name}.json").read_text())
    hidden, inner, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    noise = os.urandom(max(hidden * inner // 2, 2 * config["vocab_size"] * hidden))
    layer, maps = {}, read_maps()
    for key, rows, cols in (("self_attn.q_proj", queries, hidden), ("self_attn.k_proj", keys, hidden), ("self_attn.v_proj", keys, hidden),
                            ("self_attn.o_proj", hidden, queries), ("mlp.gate_proj", inner, hidden), ("mlp.up_proj", inner, hidden),
                            ("mlp.down_proj", hidden, inner)):
        layer |= linear(key + ".weight", rows, cols, noise, maps)
    ones = ("BF16", [hidden], b"\x80\x3f" * hidden)
    layer |= {"input_layernorm.weight": ones, "post_attention_layernorm.weight": ones}
    table = halves(config["vocab_size"], hidden, noise)
    shards = [("ends", {"model.embed_tokens.weight": table, "lm_head.weight": table, "model.norm.weight": ones})]
    shards += [(f"layer-{i}", {f"model.layers.{i}.{key}": value for key, value in layer.items()}) for i in range(config["num_hidden_layers"])]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        written = list(pool.map(lambda shard: write_shard(folder / f"{shard[0]}.safetensors", shard[1]), shards))
    config["quantization_config"] = {
        "quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8", "llm_int8_skip_modules": None}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {key: file for file, keys in written for key in keys}}))


def ours(args, folder, name, seconds):
    rows, words = CASES[name]
    return gpu_peer.train(args.dist, args.device, [
        "--task", "clm", "--model_name_or_path", folder, "--train_file", f"dummy:{rows * args.steps}x{args.tokens}", "--max_seq_length", args.tokens,
        "--per_device_train_batch_size", rows, "--bf16", "--use_peft", "--lora_r", 16, "--lora_alpha", 32, "--lora_target_modules", "all-linear",
        "--lora_dropout", 0, "--recompute", "layer", "--max_steps", args.steps, *words.split()], seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--dist", type=pathlib.Path, default=pathlib.Path("build-gpu/dist"))
    parser.add_argument("--model", default="llama-3.1-70b")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=570)
    args = parser.parse_args()
    end, failed = time.monotonic() + args.seconds, False
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        begin = time.monotonic()
        write_model(pathlib.Path(folder), args.model)
        print(f"the folder took {time.monotonic() - begin:.0f} s\n{'case':<30} {'tokens/s':>9} {'MiB':>7} {'planned':>8} {'whole run, s':>13}", flush=True)
        for name in args.cases:
            begin = time.monotonic()
            found, why = ours(args, folder, name, end - begin)
            failed |= not found
            print(f"{name:<30} {found['tokens']:9.0f} {found['mib']:7.0f} {found['planned']:8.0f} {time.monotonic() - begin:13.0f}" if found
                  else f"{name}: {why}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
