#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The page of two trainings in a real browser (tests/report/check_report.py, which needs chromium).
# Usage: tests/report/test_report_page.sh BUILD, from the repository's root
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for rate in 1e-3 1e-4; do
    "$1/snug" train --config_name examples/demo --tokenizer_name examples/demo --train_file examples/demo/train.csv \
        --validation_file examples/demo/validation.csv --max_eval_samples 32 --eval_strategy steps --eval_steps 2 --max_steps 4 \
        --logging_steps 1 --learning_rate "$rate" --save_strategy no --output_dir "$folder/$rate" --threads 1 --device cpu \
        --log_level error > "$folder/stdout"
done
"$1/snug" report "$folder/1e-3" "$folder/1e-4" > "$folder/page.html"
tests/report/check_report.py "$folder/page.html"
