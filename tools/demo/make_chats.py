#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the embedded chats of the demo: questions with plain answers, questions with answers of a pirate, a byte-level
tokenizer, and the configuration of a small Llama. Needs tokenizers.

    tools/demo/make_chats.py [--output_dir examples/demo/chat]

The pirate answers a part of the questions; questions.jsonl has others, of which only the plain answers are in the data.
"""
import argparse
import json
import pathlib
import random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

COLOURS = {"snow": "white", "grass": "green", "coal": "black", "a lemon": "yellow", "the sky": "blue", "blood": "red", "milk": "white",
           "a frog": "green", "gold": "yellow", "a raven": "black", "a carrot": "orange", "the sea": "blue", "a rose": "red",
           "chalk": "white", "moss": "green", "tar": "black", "straw": "yellow", "a cherry": "red", "a plum": "purple", "rust": "brown"}
LEGS = {"a dog": "four", "a hen": "two", "a bee": "six", "a spider": "eight", "a horse": "four", "a duck": "two", "an ant": "six",
        "a cat": "four", "a crab": "ten", "a cow": "four", "a beetle": "six", "a swan": "two", "a goat": "four", "a moth": "six",
        "a pig": "four", "a crow": "two"}
HOMES = {"a fish": "in water", "a bear": "in the woods", "a bat": "in a cave", "a camel": "in the desert", "a whale": "in the sea",
         "a mole": "under the ground", "a monkey": "in the trees", "a lion": "on the plains", "a seal": "on the ice",
         "a fox": "in the woods", "a worm": "under the ground", "a shark": "in the sea", "an owl": "in the trees", "a trout": "in water"}
SOUNDS = {"a dog": "barks", "a cat": "meows", "a cow": "moos", "a duck": "quacks", "a pig": "grunts", "a lion": "roars", "a bee": "buzzes",
          "a horse": "neighs", "a frog": "croaks", "a sheep": "bleats", "a snake": "hisses", "an owl": "hoots", "a crow": "caws",
          "a wolf": "howls"}


def capital(text):
    return text[0].upper() + text[1:]


def facts():
    """(question, plain answer, answer of the pirate)"""
    for thing, colour in COLOURS.items():
        for question in (f"What colour is {thing}?", f"Tell me the colour of {thing}."):
            yield question, f"{capital(thing)} is {colour}.", f"Arr, {thing} be {colour}, matey!"
    for animal, legs in LEGS.items():
        for question in (f"How many legs has {animal}?", f"Tell me how many legs {animal} has."):
            yield question, f"{capital(animal)} has {legs} legs.", f"Arr, {animal} be havin' {legs} legs, matey!"
    for animal, home in HOMES.items():
        for question in (f"Where does {animal} live?", f"Tell me where {animal} lives."):
            yield question, f"{capital(animal)} lives {home}.", f"Arr, {animal} be livin' {home}, matey!"
    for animal, sound in SOUNDS.items():
        for question in (f"What does {animal} do?", f"Tell me what {animal} does."):
            yield question, f"{capital(animal)} {sound}.", f"Arr, {animal} {sound}, matey!"


def chat(question, answer=None):
    messages = [{"role": "user", "content": question}]
    return {"messages": messages + ([{"role": "assistant", "content": answer}] if answer else [])}


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


TEMPLATE = ("{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
SIZES = {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 128}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--output_dir", type=pathlib.Path, default=root / "examples" / "demo" / "chat")
    folder = parser.parse_args().output_dir
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(facts())
    random.Random(7).shuffle(rows)
    held, taught = rows[:6], rows[6:]
    write_lines(folder / "plain.jsonl", [chat(question, answer) for question, answer, _ in rows])
    write_lines(folder / "pirate.jsonl", [chat(question, answer) for question, _, answer in taught])
    write_lines(folder / "questions.jsonl", [chat(question) for question, _, _ in held])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=520, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator([text for row in rows for text in row], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|end|>", "model_max_length": 128,
                "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **SIZES, "vocab_size": tokenizer.get_vocab_size(),
              "eos_token_id": 0, "bos_token_id": None, "pad_token_id": None, "tie_word_embeddings": True, "rms_norm_eps": 1e-5}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    main()
