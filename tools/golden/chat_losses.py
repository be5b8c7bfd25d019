#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the losses of the first 20 steps of a fine-tuning on chats in transformers, in fp32 on the CPU, of which only what the assistant
says has a loss: the table of test_real_chats (tests/train/test_real_decoder.c). The chats are those of that test.

Usage: chat_losses.py MODEL    (a SmolLM2-135M-Instruct; needs torch and transformers)
"""
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

STEPS, ROWS, RATE = 20, 2, 2e-5
SUBJECTS = ["sea", "sky", "old house", "night train", "garden"]


def chat(row):
    """The same as write_chats() of the test."""
    subject = SUBJECTS[row % 5]
    messages = [{"role": "user", "content": f"Say line {row} of the {subject}."},
                {"role": "assistant", "content": f"The {subject} is {row * 7 % 10}, and so am I."}]
    if row % 3 == 0:
        messages.insert(0, {"role": "system", "content": "You speak in verse."})
    if row % 4 == 0:
        messages += [{"role": "user", "content": "Once more?"}, {"role": "assistant", "content": "Never."}]
    return messages


def tokens(tokenizer, messages):
    """Ids, and which of them are of an assistant's message with its end and newline."""
    ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]
    begin = tokenizer("<|im_start|>assistant\n", add_special_tokens=False)["input_ids"]
    mask, says = [], False
    for i, id in enumerate(ids):
        says = says and id != begin[0]
        mask.append(says)
        says |= ids[i + 1 - len(begin):i + 1] == begin
    return ids, mask


def main():
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0)
    losses = []
    for step in range(STEPS):
        rows = [tokens(tokenizer, chat(row)) for row in range(step * ROWS, (step + 1) * ROWS)]
        items = sum(sum(mask[1:]) for _, mask in rows)
        total = 0
        for ids, mask in rows:
            logits = model(torch.tensor([ids])).logits[0, :-1]
            targets = torch.tensor([id if said else -100 for id, said in zip(ids, mask)][1:])
            loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum") / items
            loss.backward()
            total += loss.item()
        losses.append(total)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(", ".join(f"{loss:.6f}" for loss in losses))


if __name__ == "__main__":
    main()
