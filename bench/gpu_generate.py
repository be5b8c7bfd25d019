#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generation from a decoder with random weights on one GPU beside transformers' generate(), with its dynamic cache and with its
static one, compiled: bf16, prompts of 128 tokens, 256 new tokens each, greedily or with beams; then the first token of a prompt
of 2,048 tokens. One after the other in one run on one machine.

    bench/gpu_generate.py [CASE …] [--dist build-gpu/dist] [--model llama-3.2-1b] [--rounds 4] [--seconds 570] [--no-peers]

Ours is snug generate from --dist (tools/cuda-check build), as a user runs it: the time of a round is that between the last answer
of one batch of prompts and the last one of the next, so it has the prompts' tokens in it, and the first round, which loads
kernels and captures graphs, does not count. The peers' is that of a call of generate() after one that does not count. Tokens
are those of answers: one for each step, prompt, and not beam.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import gpu_peer

MODELS = pathlib.Path(__file__).resolve().parent / "models"
CASES = {  # prompts at a time, tokens of each, new tokens, beams
    "batch-1": (1, 128, 256, 1),
    "batch-32": (32, 128, 256, 1),
    "beams-8x4": (8, 128, 256, 4),
    "first-2048": (1, 2048, 1, 1),
}
PEERS = ("dynamic", "static")


def tensors(config):
    """Name and shape of each tensor of a Llama."""
    hidden, inner, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = size * config["num_attention_heads"], size * config["num_key_value_heads"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name, shape in {"self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
                            "self_attn.o_proj": (hidden, queries), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
                            "mlp.down_proj": (hidden, inner), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}.items():
            yield layer + name + ".weight", shape
    yield "model.norm.weight", (hidden,)


def write_weights(path, config):
    """In bf16: norms 1, others normal with the config's deviation; a block of random numbers serves all."""
    rng = random.Random(1)
    block = bytearray()
    for _ in range(1 << 16):
        block += struct.pack("<f", rng.gauss(0, config["initializer_range"]))[2:]  # bf16
    names, at = {}, 0
    for name, shape in tensors(config):
        size = 2
        for extent in shape:
            size *= extent
        names[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(names).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name, entry in names.items():
            begin, end = entry["data_offsets"]
            source = bytes.fromhex("803f") * 4096 if len(entry["shape"]) == 1 else bytes(block)
            shift = 2 * rng.randrange(len(source) // 2)
            source = source[shift:] + source[:shift]
            left = end - begin
            while left > 0:
                file.write(source[:left])
                left -= min(left, len(source))


def write_tokenizer(path, config):
    """Bytes are tokens; the others have names that no text has."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]
    vocabulary = {character: i for i, character in enumerate(characters)}
    for i in range(len(characters), config["vocab_size"]):
        vocabulary[f"t{i}"] = i
    parts = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": parts,
               "post_processor": None, "decoder": parts,
               "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                         "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": []}}, open(path / "tokenizer.json", "w"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, open(path / "tokenizer_config.json", "w"))


def write_folder(path, config):
    """No token ends an answer."""
    config = {key: value for key, value in config.items() if key not in ("bos_token_id", "eos_token_id", "pad_token_id")}
    json.dump(dict(config, torch_dtype="bfloat16"), open(path / "config.json", "w"))
    write_weights(path / "model.safetensors", config)
    write_tokenizer(path, config)


def ours(args, folder, case, seconds):
    """Seconds of each round but the first."""
    prompts, tokens, new, beams = CASES[case]
    rng = random.Random(2)
    with open(folder / "prompts.jsonl", "w") as file:
        for _ in range(prompts * (args.rounds + 2)):
            print(json.dumps({"prompt": "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(tokens))}), file=file)
    command = [args.dist / "snug", "generate", folder, "--device", args.device, "--bf16", "--test_file", folder / "prompts.jsonl", "--json",
               "--max_new_tokens", new, "--num_beams", beams, "--per_device_eval_batch_size", prompts, "--do_sample", "False"]
    env = dict(os.environ, OMP_WAIT_POLICY="passive", LD_LIBRARY_PATH=f"{args.dist}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}")
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    ends = [time.perf_counter() for line in process.stdout if line.startswith("{")]
    errors = process.stderr.read()
    if process.wait() != 0 or len(ends) < 3 * prompts:
        return None, errors.strip()[-300:]
    rounds = ends[prompts - 1::prompts]
    return [later - earlier for earlier, later in zip(rounds[1:], rounds[2:])], ""


def peer(args, case, kind):
    """Runs in a process of its own: prints the median seconds of a call."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    prompts, tokens, new, beams = CASES[case]
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(MODELS / f"{args.model}.json")
    with torch.device(args.device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    how = {"max_new_tokens": new, "min_new_tokens": new, "num_beams": beams, "do_sample": False}
    if kind == "static":
        how["cache_implementation"] = "static"
    times = []
    for _ in range(args.rounds + 2):
        ids = torch.randint(3, config.vocab_size, (prompts, tokens), device=args.device)
        if args.device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        model.generate(ids, attention_mask=torch.ones_like(ids), **how)
        if args.device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    print(f"{statistics.median(times[2:])} seconds")


def theirs(args, case, kind, seconds):
    command = [pathlib.Path(sys.executable), __file__, case, "--model", args.model, "--device", args.device, "--rounds", min(2, args.rounds),
               "--peer", kind]
    text, why = gpu_peer.run(command, seconds)
    return (float(text.split(" seconds")[0].split()[-1]), "") if text and " seconds" in text else (None, why or text[-300:])


def rate(case, seconds):
    prompts, _, new, _ = CASES[case]
    return f"{seconds * 1e3:.1f} ms" if new == 1 else f"{prompts * new / seconds:.0f} tokens/s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--dist", type=pathlib.Path, default=pathlib.Path("build-gpu/dist"))
    parser.add_argument("--model", default="llama-3.2-1b", help="a Llama of bench/models")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(args, args.cases[0], args.peer)
    end = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = pathlib.Path(name)
        write_folder(folder, json.load(open(MODELS / f"{args.model}.json")))
        for case in args.cases:
            times, why = ours(args, folder, case, end - time.monotonic())
            print(f"{case:<12} snug {rate(case, statistics.median(times)) if times else why}", flush=True)
            for kind in () if args.no_peers else PEERS:
                seconds, why = theirs(args, case, kind, end - time.monotonic())
                print(f"{case:<12} transformers, {kind} cache: {rate(case, seconds) if seconds else why}", flush=True)


if __name__ == "__main__":
    main()
