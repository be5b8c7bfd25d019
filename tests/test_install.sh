#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is installed is enough: a program builds with pkg-config alone, and trains.
# Usage: tests/test_install.sh BUILD COMPILER [FLAGS], from the repository's root
set -eu
build=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
DESTDIR=$folder/staged cmake --install "$build" --prefix /opt/snug > /dev/null
mv "$folder/staged/opt/snug" "$folder/moved" # a package is unpacked elsewhere than where it was made
snug=$folder/moved/bin/snug
PKG_CONFIG_PATH=$(dirname "$(find "$folder/moved" -name snug.pc)")
export PKG_CONFIG_PATH SNUG_CACHE="$folder/cache"

version=$(pkg-config --modversion snug)
[ "$("$snug" --version)" = "snug $version" ] || { echo "snug.pc says $version: $("$snug" --version)"; exit 1; }
# What pkg-config prints are words.
# shellcheck disable=SC2046
"$@" -std=c17 -Wall -Wextra -Werror examples/train.c $(pkg-config --static --cflags --libs snug) -o "$folder/train"

head -n 33 examples/demo/train.csv > "$folder/train.csv"
"$snug" train --log_level error --config_name examples/demo --tokenizer_name examples/demo --train_file "$folder/train.csv" \
    --max_steps 1 --output_dir "$folder/model" --save_strategy no
"$folder/train" "$folder/model" "$folder/train.csv" "$folder/train.csv" "$folder/out" > "$folder/summary" 2> "$folder/errors" ||
    { cat "$folder/errors"; exit 1; }
[ -s "$folder/summary" ]
[ -f "$folder/out/model.safetensors" ]
