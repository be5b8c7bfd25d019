#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sentence embeddings of a model of BERT-base's size (random weights) on one GPU beside sentence-transformers' encode(): fp16,
texts of 20 to 512 tokens in random order, each side at the best of some batch sizes; texts a second, one after the other in one
run on one machine, and the least cosine of the two sides' vectors.

    bench/gpu_embed.py [--dist build-gpu/dist] [--texts 32768] [--device cuda] [--seconds 300]

Ours is snug embed from --dist (tools/cuda-check build), as a user runs it, with a file of texts and a .npy file of vectors: the rate
is that of the texts after the first eighth, from the times of two runs, since starting is not what is compared. The peer's is that of the
second call of encode() in one process, for a quarter of the texts. Both sides read texts, and so tokenize.
"""
import argparse
import pathlib
import random
import re
import sys
import tempfile
import time

import gpu_peer

WORDS = 20000
BATCHES = {"ours": (64, 256), "theirs": (32, 64, 128, 256)}


def write_folder(folder, layers, dropout=0.1):
    """A folder of sentence-transformers: BERT, mean. Each word is a token."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(1)
    plain = folder / "plain"
    plain.mkdir()
    (plain / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(WORDS))]) + "\n")
    BertTokenizerFast(str(plain / "vocab.txt"), model_max_length=512).save_pretrained(plain)
    config = BertConfig(vocab_size=WORDS + 5, num_hidden_layers=layers, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    BertModel(config).save_pretrained(plain)
    body = modules.Transformer(str(plain), max_seq_length=512)
    SentenceTransformer(modules=[body, modules.Pooling(768, pooling_mode="mean")], device="cpu").save(str(folder / "model"))


def write_texts(path, count):
    rng = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            print(" ".join(f"w{rng.randrange(WORDS)}" for _ in range(rng.randint(18, 510))), file=file)


def ours(args, folder, batch, name, seconds):
    """Seconds of a run, or None and why."""
    begin = time.perf_counter()
    text, why = gpu_peer.run([args.dist / "snug", "embed", folder / "model", "--device", args.device, *(["--fp16_full_eval"] if args.device == "cuda" else []),
                              "--test_file", folder / name, "--output_file", folder / "ours.npy",
                              "--per_device_eval_batch_size", batch], seconds)
    return (time.perf_counter() - begin if text is not None else None), why


def peer(args):
    """Runs in a process of its own: prints texts a second for each batch size."""
    import numpy
    import torch
    from sentence_transformers import SentenceTransformer

    texts = (args.folder / "all.txt").read_text(encoding="utf-8").splitlines()
    texts = texts[:len(texts) // 4]
    kind = torch.float16 if args.device == "cuda" else torch.float32
    model = SentenceTransformer(str(args.folder / "model"), device=args.device, model_kwargs={"dtype": kind})
    for batch in BATCHES["theirs"]:
        model.encode(texts[:len(texts) // 8], batch_size=batch)
        begin = time.perf_counter()
        vectors = model.encode(texts, batch_size=batch)
        print(f"{batch} {len(texts) / (time.perf_counter() - begin)}", flush=True)
    numpy.save(args.folder / "theirs.npy", vectors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=pathlib.Path, default=pathlib.Path("build-gpu/dist"))
    parser.add_argument("--texts", type=int, default=32768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--peer", dest="folder", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        return peer(args)
    import numpy

    end = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = pathlib.Path(name)
        write_folder(folder, args.layers)
        write_texts(folder / "all.txt", args.texts)
        lines = (folder / "all.txt").read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / "few.txt").write_text("".join(lines[:args.texts // 8]), encoding="utf-8")
        best = 0
        for batch in BATCHES["ours"]:
            few, why = ours(args, folder, batch, "few.txt", end - time.monotonic())
            whole, why = ours(args, folder, batch, "all.txt", end - time.monotonic()) if few else (None, why)
            if not whole:
                sys.exit(f"snug embed: {why}")
            rate = (args.texts - args.texts // 8) / (whole - few)
            best = max(best, rate)
            print(f"snug, batches of {batch}: {rate:.0f} texts/s; the whole run {whole:.2f} s", flush=True)
        command = [sys.executable, __file__, "--peer", folder, "--device", args.device]
        text, why = gpu_peer.run([pathlib.Path(command[0]), *command[1:]], end - time.monotonic())
        rates = re.findall(r"^(\d+) ([\d.]+)$", text or "", re.MULTILINE)
        if not rates:
            sys.exit(f"sentence-transformers: {why}")
        for batch, rate in rates:
            print(f"sentence-transformers, batches of {batch}: {float(rate):.0f} texts/s")
        mine, other = (numpy.load(folder / name).astype(float) for name in ("ours.npy", "theirs.npy"))
        mine = mine[:len(other)]
        cosines = (mine * other).sum(1) / numpy.linalg.norm(mine, axis=1) / numpy.linalg.norm(other, axis=1)
        print(f"ratio {best / max(float(rate) for _, rate in rates):.2f}; least cosine of the vectors {cosines.min():.6f}")


if __name__ == "__main__":
    main()
