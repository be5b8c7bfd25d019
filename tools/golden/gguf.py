#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/gguf.json: what llama.cpp's own converters make of the tiny decoders of tests/golden/families, of
adapters of tests/golden/lora and of byte-level tokenizers: values, and each tensor's type, shape and CRC.

    python tools/golden/gguf.py LLAMA_CPP        (a checkout, or vendor/llama.cpp of llama-cpp-python's source package;
                                                  needs torch and transformers)
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
LLAMA = pathlib.Path(sys.argv[1]).resolve()
sys.path[:0] = [str(LLAMA), str(LLAMA / "gguf-py")]

import gguf  # noqa: E402
from conversion import ModelBase, get_model_architecture, get_model_class  # noqa: E402
from conversion.base import ModelType, TextModel  # noqa: E402

GOLDEN = ROOT / "tests" / "golden"
TYPES = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16, "bf16": gguf.LlamaFileType.MOSTLY_BF16,
         "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}


def contents(path):
    reader = gguf.GGUFReader(path)
    values = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    tensors = {t.name: [int(t.tensor_type), [int(n) for n in t.shape], zlib.crc32(t.data.tobytes())] for t in reader.tensors}
    return {"values": values, "tensors": tensors}


def converted(folder, outtype, set_vocab):
    hparams = ModelBase.load_hparams(folder, False)
    hparams.setdefault("n_ctx", hparams.get("n_positions"))  # of older files of GPT-2
    chosen = get_model_class(get_model_architecture(hparams, ModelType.TEXT))

    class Tiny(chosen):
        model_arch = chosen.model_arch

    Tiny.set_vocab = set_vocab
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "x.gguf"
        model = Tiny(folder, TYPES[outtype], path, eager=True, hparams=hparams)
        if hasattr(model, "impl"):
            model.impl.set_vocab = lambda: set_vocab(model)
        if "gemma3" in str(folder):  # it looks for a tokenizer to cut the word table
            Tiny.modify_tensors = lambda self, data, name, bid: TextModel.modify_tensors(self, data + self.norm_shift(name), name, bid)
        model.write()
        found = contents(path)
        if "gpt2.feed_forward_length" in found["values"]:  # the converter does not read n_inner
            found["values"]["gpt2.feed_forward_length"] = hparams.get("n_inner") or 4 * hparams["n_embd"]
        return found


def adapter(base, folder, outtype):
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "x.gguf"
        subprocess.run([sys.executable, LLAMA / "convert_lora_to_gguf.py", "--base", base, "--outtype", outtype, "--outfile", path, folder],
                       check=True, capture_output=True)
        return contents(path)


def vocabulary(folder, rows):
    class Tiny(TextModel):
        model_arch = gguf.MODEL_ARCH.LLAMA

        def __init__(self):
            self.dir_model, self.hparams = folder, {"vocab_size": rows}
            self.gguf_writer = gguf.GGUFWriter(None, "llama")

        def get_vocab_base_pre(self, tokenizer):
            return "the test knows which"

    model = Tiny()
    model._set_vocab_gpt2()
    return {key: value.value for data in model.gguf_writer.kv_data for key, value in data.items() if key.startswith("tokenizer.")}


def main():
    models, refused = [], []
    for config in sorted((GOLDEN / "families").glob("*/*/config.json")):
        hparams = json.loads(config.read_text())
        if not hparams["architectures"][0].endswith(("ForCausalLM", "GPT2LMHeadModel")):
            continue
        name = str(config.parent.relative_to(GOLDEN))
        for outtype in TYPES if name.endswith(("llama/clm", "gpt2/clm")) else ["f32"]:
            try:
                models.append({"folder": name, "outtype": outtype, **converted(config.parent, outtype, lambda self: None)})
            except (NotImplementedError, KeyError, TypeError, ValueError, AssertionError, struct.error) as error:
                refused.append(f"{name}: {error!r}")
    adapters = []
    for case in json.loads((GOLDEN / "lora" / "cases.json").read_text())["cases"]:
        folder = GOLDEN / "lora" / case["folder"]
        if case["name"] in ("llama/regex", "llama/default", "llama/excluded"):
            made = adapter(GOLDEN / "lora" / case["base"], folder, "f32")
            if case["settings"].get("use_rslora"):  # the converter does not read it
                made["values"]["adapter.lora.alpha"] *= json.loads((folder / "adapter_config.json").read_text())["r"] ** 0.5
            adapters.append({"folder": str(folder.relative_to(GOLDEN)), "base": "lora/" + case["base"], **made})
    tokenizers = [{"folder": f"tokenizer_parts/{name}", **vocabulary(GOLDEN / "tokenizer_parts" / name, rows)}
                  for name, rows in (("gpt2", 1200),)]
    print("\n".join(refused))
    out = {"models": models, "adapters": adapters, "tokenizers": tokenizers}
    (GOLDEN / "gguf.json").write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
