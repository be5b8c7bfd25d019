#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The installed files are sufficient: a program builds with pkg-config, and trains. The library exports the header's functions
# and no other name.
# Usage: tests/test_install.sh BUILD COMPILER [FLAGS], from the repository's root
set -eu
build=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
DESTDIR=$folder/staged cmake --install "$build" --prefix /opt/snug > /dev/null
mv "$folder/staged/opt/snug" "$folder/moved" # a package is unpacked in another place than it was built in
snug=$folder/moved/bin/snug
PKG_CONFIG_PATH=$(dirname "$(find "$folder/moved" -name snug.pc)")
export PKG_CONFIG_PATH SNUG_CACHE="$folder/cache"

version=$(pkg-config --modversion snug)
[ "$("$snug" --version)" = "snug $version" ] || { echo "snug.pc says $version: $("$snug" --version)"; exit 1; }
# The output of pkg-config is several words.
# shellcheck disable=SC2046
"$@" -std=c17 -Wall -Wextra -Werror examples/train.c $(pkg-config --static --cflags --libs snug) -o "$folder/train"

# same WHAT DECLARED EXPORTED: prints each symbol that only one of the two files lists
same() {
    comm -23 "$2" "$3" | sed "s|^|$1 does not export what is declared: |" > "$folder/wrong"
    comm -13 "$2" "$3" | sed "s|^|$1 exports what no user shall see: |" >> "$folder/wrong"
    [ ! -s "$folder/wrong" ] || { cat "$folder/wrong"; exit 1; }
}
exports() { nm "$@" --defined-only | awk 'NF == 3 { print $3 }' | LC_ALL=C sort; }
export LC_ALL=C
header=$(find "$folder/moved" -name snug.h)
# What the header itself declares, without the bodies of types: the name before each first parenthesis.
"$1" -E "$header" | awk -v header="$header" '/^# /{ own = index($0, "\"" header "\"") } !/^#/ && own' | tr '\n' ' ' |
    sed -E ':a; s/\{[^{}]*\}//g; ta; s/;/\n/g' | grep -v '^ *typedef' |
    sed -nE 's/^[^(]*[ *]([a-z_0-9]+)\(.*/\1/p' | sort > "$folder/declared"
[ "$(wc -l < "$folder/declared")" -gt 50 ] || { echo "the header's functions cannot be found"; exit 1; }
library=$(find "$folder/moved" -name libsnug.a)
exports --extern-only "$library" > "$folder/exported"
same "$library" "$folder/declared" "$folder/exported"
plugin=$folder/moved/lib/snug/libsnug_cuda.so
if [ -e "$plugin" ]; then
    echo snug_cuda_plugin > "$folder/declared"
    exports --dynamic "$plugin" > "$folder/exported"
    same "$plugin" "$folder/declared" "$folder/exported"
fi

head -n 33 examples/demo/train.csv > "$folder/train.csv"
"$snug" train --log_level error --config_name examples/demo --tokenizer_name examples/demo --train_file "$folder/train.csv" \
    --max_steps 1 --output_dir "$folder/model" --save_strategy no
"$folder/train" "$folder/model" "$folder/train.csv" "$folder/train.csv" "$folder/out" > "$folder/summary" 2> "$folder/errors" ||
    { cat "$folder/errors"; exit 1; }
[ -s "$folder/summary" ]
[ -f "$folder/out/model.safetensors" ]
