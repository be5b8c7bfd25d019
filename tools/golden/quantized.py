#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/quantized: 4-bit weights of bitsandbytes, and what transformers computes with them.

    python tools/golden/quantized.py        (needs torch, transformers, accelerate and bitsandbytes; after families.py)

codes.safetensors has for each case NAME the values NAME.values (BF16) and for each form what bitsandbytes makes of them, under
the names with which transformers saves the weight NAME.FORM. The folders are models of tests/golden/families, quantized and
saved by transformers, with cases.json in the format of tools/golden/model.py. Expected values are computed in float64 from the
dequantized weights; all but the head is frozen.

Of bitsandbytes its PyTorch implementation runs: the CPU library of 0.50 gives one in a thousand scales a neighbour of the
nearest 8-bit code, which neither PyTorch's nor the CUDA kernels do.
"""
import argparse
import ctypes
import json
import pathlib
import shutil

load_library = ctypes.cdll.LoadLibrary


def load_others(name, *rest):
    if "bitsandbytes" in str(name):
        raise OSError("the PyTorch implementation is wanted")
    return load_library(name, *rest)


ctypes.cdll.LoadLibrary = load_others

import torch
from bitsandbytes import functional
from bitsandbytes.nn import Linear4bit
from safetensors.torch import load_file, save_file
from transformers import BitsAndBytesConfig, logging
from transformers.pytorch_utils import Conv1D

import families
from model import OPTIONS, Batch, compute, write_json

FORMS = {"nf4": ("nf4", True), "nf4_plain": ("nf4", False), "fp4": ("fp4", True)}
# folder: the family's model, task, quantization
MODELS = {"nf4": ("llama/clm", "clm", "nf4", True, torch.bfloat16), "fp4": ("llama/single", "classification", "fp4", False, torch.float32),
          "encoder": ("bert/tokens", "token_classification", "nf4", True, torch.bfloat16),
          "conv1d": ("gpt2/single", "classification", "nf4", True, torch.bfloat16)}


def code_cases():
    torch.manual_seed(3)
    wide = torch.randn(130, 128) * torch.logspace(-3, 1, 130)[:, None]  # 260 blocks: a whole group and a part of one
    odd = torch.randn(5, 13)  # the last block has one value
    zeros = torch.randn(6, 64)
    zeros[1] = zeros[4] = 0
    equal = torch.ones(3, 128) * 0.5  # all scales are their mean
    codes = torch.cat([functional.get_4bit_type(kind, device="cpu") for kind in ("nf4", "fp4")]).repeat(4).reshape(2, 64)
    return {"wide": wide, "odd": odd, "zeros": zeros, "equal": equal, "codes": codes, "one": torch.tensor([[-3.0]])}


def write_codes(path):
    tensors = {}
    for name, values in code_cases().items():
        tensors[f"{name}.values"] = values.to(torch.bfloat16).contiguous()
        for form, (kind, nested) in FORMS.items():
            codes, state = functional.quantize_4bit(tensors[f"{name}.values"], quant_type=kind, compress_statistics=nested)
            tensors[f"{name}.{form}"] = codes
            tensors |= {f"{name}.{form}.{key}": value for key, value in state.as_dict(packed=True).items()}
            if form == "nf4" or name != "wide":
                tensors[f"{name}.{form}.dequantized"] = functional.dequantize_4bit(codes, state).contiguous()
    save_file(tensors, path)


def dequantized(model, plain):
    """The model with the values that its codes stand for, in float64, and a trainable head."""
    values = {name: value for name, value in model.state_dict().items() if ".weight." not in name}
    for name, module in model.named_modules():
        if isinstance(module, Linear4bit):
            weight = functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            values[f"{name}.weight"] = weight.T if isinstance(plain.get_submodule(name), Conv1D) else weight
    plain.load_state_dict(values)
    plain = plain.double().eval()
    for parameter in plain.base_model.parameters():
        parameter.requires_grad_(False)
    return plain


def write_model(output, source, task, kind, nested, dtype):
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=nested,
                                bnb_4bit_compute_dtype=torch.float32)
    load = families.CLASS[task].from_pretrained
    model = load(source, quantization_config=config, dtype=dtype, device_map="cpu")
    model.save_pretrained(output)
    known = load_file(source / "expected.safetensors")
    lengths = known["lengths"].long().tolist()
    rows = [(i.tolist(), t.tolist()) for i, t in zip(known["input_ids"].long().split(lengths), known["token_type_ids"].long().split(lengths))]
    labels = known["labels"].long()
    by_token = task != "classification"
    plain = dequantized(model, load(source, dtype=dtype))
    batch = Batch(rows, list(labels.split(lengths)) if by_token else labels, 0.0, by_token, plain.config.pad_token_id or 0,
                  hasattr(plain.config, "type_vocab_size"), task == "clm")
    truth = compute(plain, batch)
    tensors = {name: known[name] for name in ("input_ids", "token_type_ids", "lengths", "labels")} | truth
    save_file({name: value.float().contiguous() for name, value in tensors.items()}, output / "expected.safetensors")
    print(f"{output.name}: losses {truth['losses'][0]:.4f} ... {truth['losses'][-1]:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
    parser.add_argument("--output_dir", type=pathlib.Path, default=root / "quantized")
    output = parser.parse_args().output_dir
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    families.keep_float64()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    write_codes(output / "codes.safetensors")
    cases = []
    for folder, (source, task, kind, nested, dtype) in MODELS.items():
        family, name = source.split("/")
        write_model(output / folder, root / "families" / source, task, kind, nested, dtype)
        known = json.loads((root / "families" / family / "cases.json").read_text())["cases"]
        cases.append(next(c for c in known if c["folder"] == name) | {"name": f"quantized/{folder}", "folder": folder, "source": source})
    write_json(output / "cases.json", {"options": OPTIONS, "cases": cases})


if __name__ == "__main__":
    main()
