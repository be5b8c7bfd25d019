#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Data races, by ThreadSanitizer and its tool for OpenMP (Archer): trainings with loader workers, offload, checkpoints and a
# signal. A race ends the program with exit code 66.
# The same build is the one without libcurl, whose snug pull says so.
# Usage: tests/package/test_races.sh BUILD, from the repository's root; BUILD has -DSNUG_SANITIZE=thread -DSNUG_CURL=OFF (`make tsan`)
set -eu
snug=$1/snug
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
archer=$(clang -print-resource-dir)/../../libarcher.so # beside libomp.so
[ -e "$archer" ] || { echo "there is no libarcher.so: install clang and libomp-dev"; exit 1; }
# Archer reports the order of OpenMP threads to ThreadSanitizer; code without instrumentation (libomp, oneDNN) is ignored.
export OMP_TOOL_LIBRARIES="$archer" ARCHER_OPTIONS=verbose=1 TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1
export OMP_WAIT_POLICY=passive SNUG_CACHE="$folder/cache" SNUG_RATES=tests/golden/rates.json

# expect CODE ARGUMENT …: snug ends with this exit code
expect() {
    code=0 wanted=$1
    shift
    "$snug" "$@" > "$folder/stdout" 2> "$folder/stderr" || code=$?
    check "$code" "$wanted" "$*"
}
check() {
    [ "$1" -eq "$2" ] || { echo "snug $3: exit code $1, not $2"; cat "$folder/stderr"; exit 1; }
    grep -q "Archer detected OpenMP application with TSan" "$folder/stdout" || { echo "Archer did not start"; exit 1; }
}

code=0
"$snug" pull org/name > "$folder/stdout" 2> "$folder/stderr" || code=$?
if [ "$code" -ne 1 ] || ! grep -q "this build of snug cannot download: libcurl and nettle were missing" "$folder/stderr"; then
    echo "snug pull without libcurl: exit code $code"
    cat "$folder/stderr"
    exit 1
fi
"$snug" --help > "$folder/stdout"
! grep -q '^  pull' "$folder/stdout" || { echo "--help lists pull without libcurl"; exit 1; }

data="--validation_file examples/demo/validation.csv --max_eval_samples 64"
common="--config_name examples/demo --tokenizer_name examples/demo --threads 2 --dataloader_num_workers 2 --device cpu
    --logging_steps 1 --eval_strategy steps --eval_steps 4 --save_strategy steps --save_steps 3 --save_total_limit 1 $data"
offloaded="train $common --train_file examples/demo/train.csv --output_dir $folder/out --gradient_accumulation_steps 2
    --per_device_train_batch_size 32 --offload optimizer,gradients,weights,activations"

: > "$folder/stderr"
# Interrupted while it trains, and resumed.
# Each line is a list of words.
# shellcheck disable=SC2086
"$snug" $offloaded --max_steps 20000 > "$folder/stdout" 2> "$folder/stderr" &
for _ in $(seq 600); do
    grep -q 'checkpoint-3$' "$folder/stderr" && break
    sleep 0.1
done
kill -USR1 $!
code=0
wait $! || code=$?
check $code 130 "$offloaded"
step=$(sed -n 's/^saved .*checkpoint-//p' "$folder/stderr" | tail -n 1)
# shellcheck disable=SC2086
expect 0 $offloaded --max_steps $((step + 3)) --resume_from_checkpoint True
# Masked LM, with every method that uses threads beside the steps.
# shellcheck disable=SC2086
expect 0 train $common --task mlm --train_file examples/demo/pretrain.txt --validation_file examples/demo/pretrain.txt \
    --output_dir "$folder/mlm" --max_steps 6 --bf16 --optim adamw_8bit --update_in_backward --recompute layer \
    --report_to tensorboard --load_best_model_at_end --save_steps 4 --overwrite_cache
# shellcheck disable=SC2086
expect 0 eval --model_name_or_path "$folder/out" $data --threads 2 --dataloader_num_workers 2
expect 0 predict --model_name_or_path "$folder/out" --test_file examples/demo/new.csv --threads 2 --dataloader_num_workers 2
expect 0 verify --config_name examples/demo --max_steps 2 --threads 2 --device cpu
echo "no data race"
