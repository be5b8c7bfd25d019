#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/model: tiny BERT models as transformers saves them, and what transformers computes with them.

    python tools/golden/model.py [--output_dir tests/golden/model]        (needs torch and transformers)

cases.json lists the cases: the model's folder, the file of expected values beside it, and the options. An expected file holds
  input_ids, token_type_ids [T]   the batch's sequences one after another, without padding; lengths [B]
  labels                          [B] class or value, [B, labels] for multi-label, [T] with -100 for masked LM
  logits                          [B, labels]; for masked LM one row per labelled position, in order
  loss [1], grad.NAME             mean loss and the gradient of every parameter; tied ones once, under the embedding's name
  losses, grad_norms [10]         losses before each of ten full-batch steps (torch AdamW at the case's options, clipping,
                                  Trainer's no-decay list), gradient norms before clipping
Integers are stored as F32, so that one reader is enough. Dropout is off. Weights are drawn far wider than a fresh model's, so
that a wrong term is visible.

A classifier with gradients has the same of MANY rows of random ids in many.safetensors: the error of six rows' logits, a dozen
numbers, is too random a measure of 16-bit training. None of them has a relu, whose slope is discontinuous: rounded to 16
bits, its gradients are random for any number of rows.

Everything expected is computed in float64 from the stored weights and rounded to float32 once: two float32 programs differ
by the rounding of both, and the expected values should not add their own. The script prints the error of transformers in
float32; tests use a larger tolerance.

A case with "same_as" stores the weights of another case in another way (no head, old names, shards): loaded, it must give
that case's values wherever it has the parameters; "missing" names what it lacks and "unused" what the task does not read.
"""
import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import (AutoTokenizer, BertConfig, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification,
                          BertModel, Trainer, logging)
from transformers.trainer_pt_utils import LabelSmoother

STEPS = 10
MANY = 64
OPTIONS = {"learning_rate": 1e-3, "weight_decay": 0.01, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8,
           "max_grad_norm": 1.0, "lr_scheduler_type": "constant", "steps": STEPS}
ODD = {"hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 50, "type_vocab_size": 3, "layer_norm_eps": 1e-5}

# name, problem type, labels (None: masked LM), the configuration's differences, type of the stored weights, pairs of texts
MODELS = [
    ("cls2", "single_label_classification", 2, {}, torch.float32, False),
    ("cls3", "single_label_classification", 3, {"hidden_act": "gelu_new", "num_hidden_layers": 3}, torch.float32, True),
    ("multi", "multi_label_classification", 4, {"hidden_act": "gelu_pytorch_tanh"}, torch.float32, False),
    ("regression", "regression", 1, {"hidden_act": "silu"}, torch.float32, True),
    ("odd", "single_label_classification", 2, {"hidden_act": "tanh", **ODD}, torch.float32, None),
    ("mlm", None, None, {}, torch.float32, False),
    ("mlm_odd", None, None, {"hidden_act": "relu", **ODD}, torch.float32, None),
    ("half", "single_label_classification", 2, {}, torch.float16, False),
    ("bfloat", "single_label_classification", 2, {}, torch.bfloat16, False),
]

WORDS = """the a an of and to in is it was not but good bad very room food book staff price story bed train never always
warm cold clean dirty fresh stale quick slow kind rude we they you i she he my our their this that one two three had have
has with without for from at on by up down out over again great poor nice ugly happy sad day night week year old new big
small long short high low""".split()
PIECES = "s ed ing ly er est ness ful less y al ion".split()


def write_tokenizer(folder):
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = dict.fromkeys(w for w in WORDS if len(w) > 1)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters), *".,!?'-;:",
                  *(f"##{p}" for p in PIECES if len(p) > 1), *words]
    vocabulary += [f"[unused{i}]" for i in range(200 - len(vocabulary))]
    assert len(vocabulary) == len(set(vocabulary)) == 200
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": True,
                                                  "model_max_length": 64})


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def new_model(labels, problem, changes, dtype):
    config = BertConfig(**{**dict(vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                  intermediate_size=64, max_position_embeddings=64, hidden_dropout_prob=0.0,
                                  attention_probs_dropout_prob=0.0, attn_implementation="eager"), **changes},
                        **({} if labels is None else {"num_labels": labels, "problem_type": problem}))
    model = (BertForMaskedLM if labels is None else BertForSequenceClassification)(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.2 if "LayerNorm" in name else 0.15
            parameter.normal_(1.0 if name.endswith("LayerNorm.weight") else 0.0, scale)
    return model.to(dtype).eval()


def draw_texts(tokenizer, pairs, generator):
    """Six rows of ragged length: an empty text, common ones, and one that fills all positions."""
    texts = []
    for words in (0, 3, 7, 12, 24, 70):
        drawn = [WORDS[i] for i in torch.randint(len(WORDS), (words,), generator=generator)]
        if words:
            drawn[0] = "Booking"  # split into b ##o ...
        texts.append([" ".join(drawn[: words // 2]), " ".join(drawn[words // 2:])] if pairs else [" ".join(drawn)])
    return texts


def draw_rows(config, lengths, generator):
    """Per row its ids and types, any of them."""
    return [(torch.randint(5, config.vocab_size, (n,), generator=generator).tolist(),
             torch.randint(config.type_vocab_size, (n,), generator=generator).tolist()) for n in lengths]


def draw_batch(tokenizer, config, pairs, generator):
    """texts (None where ids are free), and per row its ids and types."""
    if pairs is None:
        return None, draw_rows(config, (2, 5, 9, 17, 33, 64), generator)
    texts = draw_texts(tokenizer, pairs, generator)
    encoded = [tokenizer(*text, truncation="longest_first", max_length=config.max_position_embeddings) for text in texts]
    return texts, [(row["input_ids"], row["token_type_ids"]) for row in encoded]


def draw_labels(rows, labels, problem, config, generator):
    if problem == "multi_label_classification":
        return torch.randint(2, (len(rows), labels), generator=generator).double()
    if problem == "regression":
        return torch.randn(len(rows), generator=generator).float().double()
    if problem is not None:
        return torch.randint(labels, (len(rows),), generator=generator)
    # Masked LM: every fifth token in the mean; most become [MASK] (4), some stay.
    found = []
    for ids, _ in rows:
        chosen = torch.rand(len(ids), generator=generator) < 0.2
        found.append(torch.where(chosen, torch.tensor(ids), -100))
        for position in torch.nonzero(chosen).flatten().tolist():
            if torch.rand((), generator=generator) < 0.8:
                ids[position] = 4
    return found


class Batch:
    """The rows padded for torch, in the model's type. by_token: there is a label or -100 for each token, as for masked LM;
    causal: a token's label is the one that comes next, which models take at its own place."""

    def __init__(self, rows, labels, smoothing, by_token, padding=0, has_types=True, causal=False):
        width = max(len(ids) for ids, _ in rows)
        pad = lambda values, fill: torch.tensor([list(v) + [fill] * (width - len(v)) for v in values])
        self.ids, self.types = pad([ids for ids, _ in rows], padding), pad([types for _, types in rows], 0)
        self.mask = pad([[1] * len(ids) for ids, _ in rows], 0)
        self.labels = pad([v.tolist() for v in labels], -100) if by_token else labels
        self.smoothing, self.by_token, self.has_types, self.causal = smoothing, by_token, has_types, causal

    def run(self, model):
        """logits, loss"""
        labels = self.labels.to(model.dtype) if self.labels.is_floating_point() else self.labels
        types = {"token_type_ids": self.types} if self.has_types else {}
        given = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=-100) if self.causal else labels
        out = model(input_ids=self.ids, attention_mask=self.mask, labels=given, **types)
        loss = out.loss
        if self.smoothing:
            loss = torch.nn.functional.cross_entropy(out.logits, labels, label_smoothing=self.smoothing)
            trainers = LabelSmoother(epsilon=self.smoothing)(out, labels)  # sums in float32
            assert abs(loss.item() - trainers.item()) < 1e-6
        return (out.logits[self.labels != -100] if self.by_token else out.logits), loss


def train(model, batch, decay):
    """The losses and the gradients' norms of STEPS steps of those parameters that are trained."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    groups = [{"params": [p for n, p in trained.items() if (n in decay) == decayed],
               "weight_decay": OPTIONS["weight_decay"] if decayed else 0.0} for decayed in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=OPTIONS["learning_rate"], eps=OPTIONS["adam_epsilon"],
                                  betas=(OPTIONS["adam_beta1"], OPTIONS["adam_beta2"]))
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        _, loss = batch.run(model)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained.values(), OPTIONS["max_grad_norm"]).item())
        optimizer.step()
        losses.append(loss.item())
    return {"losses": torch.tensor(losses, dtype=torch.float64), "grad_norms": torch.tensor(norms, dtype=torch.float64)}


def compute(model, batch):
    """logits, loss and gradients, then ten losses of training; the model is left trained."""
    logits, loss = batch.run(model)
    loss.backward()
    result = {"logits": logits.detach(), "loss": loss.detach().reshape(1)}
    # A tied tensor under the name with which it is saved; CamemBERT registers its other name first.
    result |= {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters(remove_duplicate=False)
               if p.grad is not None and name not in model.all_tied_weights_keys}
    # By names without the encoder's prefix: "layernorm" in roberta_prelayernorm's would exempt all of its weights from decay.
    prefix = f"{model.base_model_prefix}."
    decay = {prefix + name for name in Trainer.get_decay_parameter_names(None, model.base_model)}
    decay |= {name for name in Trainer.get_decay_parameter_names(None, model) if not name.startswith(prefix)}
    return result | train(model, batch, decay)


def relative(found, truth):
    return ((found.double() - truth).norm() / truth.norm().clamp_min(1e-300)).item()


def check_key_bias(truth):
    """A bias of the keys shifts all scores of a query alike: its true gradient is zero."""
    for name in truth:
        if name.endswith("key.bias"):
            assert truth[name].norm() < 1e-12 * truth[name.replace("key", "query")].norm(), name


def write_expected(path, folder, rows, labels, smoothing, mlm, gradients):
    """Computes the stored values in float64, and prints the error of transformers in float32."""
    batch = Batch(rows, labels, smoothing, mlm)
    load = BertForMaskedLM if mlm else BertForSequenceClassification
    truth, single = (compute(load.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval(), batch)
                     for dtype in (torch.float64, torch.float32))
    check_key_bias(truth)
    noise = max(relative(single[n], truth[n]) for n in truth if n.startswith("grad.") and not n.endswith("key.bias"))
    print(f"{path.parent.name}/{path.name}: float32 against float64: logits {(single['logits'] - truth['logits']).abs().max():.1e}, "
          f"loss {(single['loss'] - truth['loss']).abs().item():.1e}, gradients {noise:.1e} (relative), "
          f"ten losses {(single['losses'] - truth['losses']).abs().max():.1e}; "
          f"losses {truth['losses'][0]:.4f} ... {truth['losses'][-1]:.4f}")
    flat = torch.cat(labels) if mlm else labels
    tensors = {"input_ids": torch.tensor([i for ids, _ in rows for i in ids]),
               "token_type_ids": torch.tensor([t for _, types in rows for t in types]),
               "lengths": torch.tensor([len(ids) for ids, _ in rows]), "labels": flat}
    tensors |= {name: value for name, value in truth.items() if gradients or not name.startswith("grad.")}
    save_file({name: value.float().contiguous() for name, value in tensors.items()}, path)


def write_same_weights(output):
    """The weights of cls2 and mlm, stored in the other ways that are found in the wild."""
    cases, old = [], {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def folder_of(name, model_folder, architecture):
        folder = output / name
        folder.mkdir()
        write_tokenizer(folder)
        config = json.loads((output / model_folder / "config.json").read_text())
        write_json(folder / "config.json", {**config, "architectures": [architecture]})
        return folder

    def old_names(tensors):
        for new, former in old.items():
            tensors = {name.replace(new, former): value for name, value in tensors.items()}
        return tensors

    classifier = BertForSequenceClassification.from_pretrained(output / "cls2")
    masked = BertForMaskedLM.from_pretrained(output / "mlm")
    # BertModel: no prefix, no head.
    folder = folder_of("encoder", "cls2", "BertModel")
    model = BertModel(classifier.config)
    model.load_state_dict(classifier.bert.state_dict())
    model.save_pretrained(folder)
    cases.append({"folder": "encoder", "same_as": "cls2", "missing": ["classifier.weight", "classifier.bias"], "unused": []})
    # Shards and their index.
    folder = folder_of("sharded", "cls2", "BertForSequenceClassification")
    classifier.save_pretrained(folder, max_shard_size="70KB")
    assert len(list(folder.glob("model-*.safetensors"))) == 2
    cases.append({"folder": "sharded", "same_as": "cls2", "missing": [], "unused": []})
    # BertForPreTraining: both heads.
    folder = folder_of("pretraining", "mlm", "BertForPreTraining")
    torch.manual_seed(1)
    model = BertForPreTraining(masked.config)
    model.load_state_dict(masked.state_dict(), strict=False)
    model.save_pretrained(folder)
    cases.append({"folder": "pretraining", "same_as": "mlm", "missing": [], "unused": [
        "bert.pooler.dense.bias", "bert.pooler.dense.weight", "cls.seq_relationship.bias", "cls.seq_relationship.weight"]})
    # Names as the first checkpoints had them, with the tied decoder written out and the position ids as a buffer.
    folder = folder_of("old_names", "mlm", "BertForMaskedLM")
    tensors = old_names({name: value.clone() for name, value in masked.state_dict().items()})
    assert "cls.predictions.decoder.weight" in tensors and "cls.predictions.bias" in tensors
    tensors["bert.embeddings.position_ids"] = torch.arange(64).reshape(1, 64)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    cases.append({"folder": "old_names", "same_as": "mlm", "missing": [], "unused": ["bert.embeddings.position_ids"]})
    # transformers reads all of them as the cases they repeat.
    for case in cases:
        like = classifier if case["same_as"] == "cls2" else masked
        loaded = type(like).from_pretrained(output / case["folder"]).state_dict()
        for name, value in like.state_dict().items():
            assert name in case["missing"] or torch.equal(loaded[name], value), (case["folder"], name)
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--output_dir", type=pathlib.Path, default=root / "tests" / "golden" / "model")
    output = parser.parse_args().output_dir
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    cases = []
    for seed, (name, problem, labels, changes, dtype, pairs) in enumerate(MODELS, start=1):
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(1000 + seed)
        folder, mlm = output / name, labels is None
        model = new_model(labels, problem, changes, dtype)
        model.save_pretrained(folder)
        write_tokenizer(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        texts, rows = draw_batch(tokenizer, model.config, pairs, generator)
        targets = draw_labels(rows, labels, problem, model.config, generator)
        for smoothing in (0.0, 0.1) if name == "cls3" else (0.0,):
            expected = "expected_smoothing.safetensors" if smoothing else "expected.safetensors"
            # The gradients of half and bfloat would say nothing that cls2's do not.
            gradients = dtype == torch.float32
            write_expected(folder / expected, folder, rows, targets, smoothing, mlm, gradients)
            cases.append({"name": name + ("_smoothing" if smoothing else ""), "folder": name, "expected": expected,
                          "task": "mlm" if mlm else "classification", "problem_type": problem, "num_labels": labels,
                          "label_smoothing_factor": smoothing, "gradients": gradients, "seed": seed,
                          "lengths": [len(ids) for ids, _ in rows], "texts": None if mlm else texts})
        if gradients and not mlm:
            rows = draw_rows(model.config, torch.randint(2, 65, (MANY,), generator=generator).tolist(), generator)
            targets = draw_labels(rows, labels, problem, model.config, generator)
            write_expected(folder / "many.safetensors", folder, rows, targets, 0.0, mlm, gradients)
    write_json(output / "cases.json", {"options": OPTIONS, "cases": cases, "same_weights": write_same_weights(output)})


if __name__ == "__main__":
    main()
