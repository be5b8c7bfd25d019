#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/dpo: a small Llama with a byte-level tokenizer and a chat template, and an adapter of it; files of preferences (texts
with a prompt, texts that begin alike, messages with and without a prompt); the tokens that TRL's DPOTrainer makes of their rows; and the
losses and metrics of its first steps in fp32, for each loss, with all weights trained, with another reference, and with the adapter.

Usage: dpo.py [FOLDER]    (needs torch, transformers, trl, peft, datasets)
"""
import json
import sys
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from decoding import MODELS, byte_level
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import DPOConfig, DPOTrainer

TEMPLATE = ("{% for m in messages %}{{ '<s>' + m.role + '\n' + m.content + '</s>\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}")
PROMPTS = ["The quick", "Why is the sky", "größer", "Count: ", "a", "line\n", "long " * 30, "", "it's", "camel", "123", "fox "]
CHOSEN = [" brown fox", " blue?", " als 漢字", "one two three", "bc", "\nline", "lost", "only this", " what we've said", "Case", " 2024", "jumps"]
REJECTED = [" lazy dog jumps over", " so", "er", "three", " long answer that does not fit into the limit of the row", "end", "gone", "or that",
            " not", " HTTPServer", "4</s>", "jumps too"]
METRICS = ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"]
LENGTH, STEPS = 40, 10


def rows(kind):
    for prompt, chosen, rejected in zip(PROMPTS, CHOSEN, REJECTED):
        if kind == "texts":
            yield {"prompt": prompt, "chosen": chosen, "rejected": rejected}
        elif kind == "implicit":
            yield {"chosen": prompt + chosen, "rejected": prompt + rejected}
        else:
            question = [{"role": "user", "content": prompt}]
            answers = [[{"role": "assistant", "content": text}] for text in (chosen, rejected)]
            if kind == "chats":
                yield {"prompt": question, "chosen": answers[0], "rejected": answers[1]}
            else:
                yield {"chosen": question + answers[0], "rejected": question + answers[1]}


def model(seed):
    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=330, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=True, initializer_range=0.15,
                         bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return LlamaForCausalLM(config).float()


class Trainer(DPOTrainer):
    losses = ()

    def _compute_loss(self, model, inputs, return_outputs):
        loss = super()._compute_loss(model, inputs, return_outputs)
        if self.model.training:
            self.losses[-1].append(loss.item())
        return loss


def run(policy, tokenizer, data, folder, reference=None, evaluated=None, **options):
    config = DPOConfig(output_dir=str(folder), per_device_train_batch_size=4, per_device_eval_batch_size=16, max_steps=STEPS, learning_rate=2e-3,
                       logging_steps=1, lr_scheduler_type="constant", weight_decay=0, max_grad_norm=1.0, bf16=False, gradient_checkpointing=False,
                       max_length=LENGTH, report_to="none", save_strategy="no", use_cpu=True, train_sampling_strategy="sequential",
                       eval_strategy="steps" if evaluated else "no", eval_steps=STEPS, disable_tqdm=True, seed=0, **options)
    trainer = Trainer(model=policy, ref_model=reference, args=config, train_dataset=data, eval_dataset=evaluated, processing_class=tokenizer)
    trainer.losses = [[]]
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "rewards/chosen" in entry]
    found = {"losses": trainer.losses[0], "metrics": [[entry[name] for name in METRICS] for entry in log]}
    for entry in trainer.state.log_history:
        if "eval_loss" in entry:
            found["evaluation"] = [entry["eval_loss"]] + [entry["eval_" + name] for name in METRICS]
    assert len(found["losses"]) == len(log) == STEPS
    return found, trainer


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "tests/golden/dpo"
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_level(MODELS["gpt4"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>",
        "chat_template": TEMPLATE}))
    fast = AutoTokenizer.from_pretrained(folder)
    model(0).save_pretrained(folder)
    model(1).save_pretrained(folder / "reference")
    torch.manual_seed(2)
    adapted = get_peft_model(model(0), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM"))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    adapted.peft_config["default"].base_model_name_or_path = None
    adapted.save_pretrained(folder / "adapter")
    (folder / "adapter" / "README.md").unlink(missing_ok=True)
    for kind in ("texts", "implicit", "chats", "implicit_chats"):
        with open(folder / f"{kind}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(kind))
    found = {"rows": {}, "runs": {}}
    with tempfile.TemporaryDirectory() as out:
        def load(name=""):
            return LlamaForCausalLM.from_pretrained(folder / name if name else folder, dtype=torch.float32)

        def data(kind):
            return Dataset.from_list(list(rows(kind)))

        runs = {"sigmoid": {}, "hinge": {}, "ipo": {}, "robust": {"label_smoothing": 0.1}, "sigmoid_norm": {"beta": 0.5}}
        for loss, options in runs.items():
            found["runs"][loss], _ = run(load(), fast, data("texts"), out, evaluated=data("implicit"), loss_type=[loss], **options)
        for kind in ("implicit", "chats", "implicit_chats"):
            found["runs"][kind], trainer = run(load(), fast, data(kind), out)
            found["rows"][kind] = [[row["prompt_ids"], row["chosen_ids"], row["rejected_ids"]] for row in trainer.train_dataset]
        found["runs"]["reference"], trainer = run(load(), fast, data("texts"), out, reference=load("reference"))
        found["rows"]["texts"] = [[row["prompt_ids"], row["chosen_ids"], row["rejected_ids"]] for row in trainer.train_dataset]
        found["runs"]["adapter"], _ = run(PeftModel.from_pretrained(load(), folder / "adapter", is_trainable=True), fast, data("texts"), out)
    (folder / "expected.json").write_text(json.dumps(found, separators=(",", ":")))


if __name__ == "__main__":
    main()
