#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The main jobs on embedded data, from an empty model to results: pre-train as a masked LM, fine-tune, evaluate, predict; then
# train a decoder on chats, and change the style of its answers.
# Usage: examples/demo.sh path/to/snug [output folder]
set -eu
snug=$1
data=$(dirname "$0")/demo
out=${2:-out-demo}
rm -rf "$out"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] || say() { printf '\n%s\n' "$*"; }
run() { printf '$ snug'; printf ' %s' "$@"; printf '\n'; "$snug" "$@"; }

say "1. How much memory and time does it take? The plan needs no weights."
run plan --config_name "$data" --per_device_train_batch_size 32 --max_seq_length 64

say "2. Pre-train the small BERT as a masked language model: the loss falls from ln(vocabulary)."
run train --task mlm --config_name "$data" --tokenizer_name "$data" --train_file "$data/pretrain.txt" --line_by_line \
    --output_dir "$out/pretrained" --num_train_epochs 4 --per_device_train_batch_size 32 --learning_rate 1e-3 \
    --warmup_steps 0.1 --logging_steps 110 --save_strategy no

say "3. Fine-tune it to tell praise from complaint, and evaluate after each epoch."
run train --model_name_or_path "$out/pretrained" --train_file "$data/train.csv" --validation_file "$data/validation.csv" \
    --output_dir "$out/model" --num_train_epochs 10 --per_device_train_batch_size 32 --learning_rate 5e-4 \
    --warmup_steps 0.1 --eval_strategy epoch --logging_strategy epoch --save_strategy no

say "4. Evaluate on sentence patterns that training never saw."
run eval --model_name_or_path "$out/model" --validation_file "$data/test.csv"

say "5. Predict new sentences."
"$snug" predict --model_name_or_path "$out/model" --test_file "$data/new.csv" > "$out/predictions.csv"
# In columns. A text with a comma is quoted in CSV; the quotes are removed here.
sed '/^"/{s/^"//; s/"$//; s/""/"/g;}' "$data/new.csv" | paste -d, "$out/predictions.csv" - | tail -n +2 |
    while IFS=, read -r _ label score text; do
        printf '%-9s %.2f  %s\n' "$label" "$score" "$text"
    done
say "6. Train a small Llama from scratch on chats: plain questions and answers."
chats=$data/chat
run train --config_name "$chats" --tokenizer_name "$chats" --train_file "$chats/plain.jsonl" --assistant_only_loss \
    --output_dir "$out/plain" --num_train_epochs 40 --per_device_train_batch_size 16 --learning_rate 4e-3 --warmup_steps 0.1 \
    --logging_steps 100 --save_strategy no
run generate "$out/plain" --test_file "$chats/questions.jsonl"

say "7. Fine-tune it on a pirate's answers to other questions: it answers these in the new style."
run train --model_name_or_path "$out/plain" --train_file "$chats/pirate.jsonl" --assistant_only_loss --output_dir "$out/pirate" \
    --num_train_epochs 25 --per_device_train_batch_size 16 --learning_rate 2e-3 --warmup_steps 0.1 --logging_steps 100 \
    --save_strategy no
run generate "$out/pirate" --test_file "$chats/questions.jsonl"

say "The models are in $out: snug chat $out/pirate talks with the pirate."
say "The model is in $out/model: transformers' from_pretrained loads it, and so does snug."
