#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The installed files are sufficient: programs build with pkg-config and with CMake, with the shared library and with the
# archive, and train. Both libraries export the header's functions and no other name.
# Usage: tests/package/test_install.sh BUILD COMPILER [FLAGS], from the repository's root
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
libraries=$(dirname "$(find "$folder/moved" -name libsnug.so)")
for way in snug snug-static; do
    # The output of pkg-config is several words.
    # shellcheck disable=SC2046
    "$@" -std=c17 -Wall -Wextra -Werror examples/train.c $(pkg-config --cflags --libs $way) -o "$folder/train-$way"
done
# needs PROGRAM: whether it loads the shared library, by its SONAME
needs() { readelf -d "$1" | grep -q 'NEEDED.*\[libsnug\.so\.0\]'; }
needs "$folder/train-snug" || { echo "pkg-config snug did not give the shared library"; exit 1; }
! needs "$folder/train-snug-static" || { echo "pkg-config snug-static did not give the archive"; exit 1; }

cat > "$folder/CMakeLists.txt" << END
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES C)
find_package(snug $version REQUIRED)
foreach(way snug static)
  add_executable(cmake-\${way} $PWD/examples/train.c)
  target_link_libraries(cmake-\${way} PRIVATE snug::\${way})
endforeach()
END
compiler=$1
shift
cmake -S "$folder" -B "$folder/consumer" -DCMAKE_PREFIX_PATH="$folder/moved" -DCMAKE_C_COMPILER="$compiler" \
    -DCMAKE_C_FLAGS="$*" > /dev/null
cmake --build "$folder/consumer" > /dev/null
needs "$folder/consumer/cmake-snug" || { echo "snug::snug did not give the shared library"; exit 1; }
! needs "$folder/consumer/cmake-static" || { echo "snug::static did not give the archive"; exit 1; }

# same WHAT DECLARED EXPORTED: prints each symbol that only one of the two files lists
same() {
    comm -23 "$2" "$3" | sed "s|^|$1 does not export what is declared: |" > "$folder/wrong"
    comm -13 "$2" "$3" | sed "s|^|$1 exports what no user shall see: |" >> "$folder/wrong"
    [ ! -s "$folder/wrong" ] || { cat "$folder/wrong"; exit 1; }
}
exports() { nm "$@" --defined-only | awk 'NF == 3 && $2 != "A" { print $3 }' | LC_ALL=C sort; }
export LC_ALL=C
# What the headers themselves declare, without the bodies of types: the name before each first parenthesis.
for header in "$folder"/moved/include/snug*.h; do
    "$compiler" -E "$header" | awk -v header="$header" '/^# /{ own = index($0, "\"" header "\"") } !/^#/ && own' | tr '\n' ' ' |
        sed -E ':a; s/\{[^{}]*\}//g; ta; s/;/\n/g' | grep -v '^ *typedef' |
        sed -nE 's/^[^(]*[ *]([a-z_0-9]+)\(.*/\1/p'
done | sort > "$folder/declared"
[ "$(wc -l < "$folder/declared")" -gt 50 ] || { echo "the header's functions cannot be found"; exit 1; }
library=$(find "$folder/moved" -name libsnug.a)
exports --extern-only "$library" > "$folder/exported"
same "$library" "$folder/declared" "$folder/exported"
exports --dynamic "$libraries/libsnug.so" > "$folder/versioned"
if grep -v '@@SNUG_0' "$folder/versioned"; then echo "these symbols have no version"; exit 1; fi
sed 's/@@.*//' "$folder/versioned" > "$folder/exported"
same "$libraries/libsnug.so" "$folder/declared" "$folder/exported"
readelf -d "$libraries/libsnug.so" | grep -q 'SONAME.*\[libsnug\.so\.0\]' || { echo "libsnug.so has another SONAME"; exit 1; }
plugin=$folder/moved/lib/snug/libsnug_cuda.so
if [ -e "$plugin" ]; then
    echo snug_cuda_plugin > "$folder/declared"
    exports --dynamic "$plugin" > "$folder/exported"
    same "$plugin" "$folder/declared" "$folder/exported"
fi

head -n 33 examples/demo/train.csv > "$folder/train.csv"
"$snug" train --log_level error --config_name examples/demo --tokenizer_name examples/demo --train_file "$folder/train.csv" \
    --max_steps 1 --output_dir "$folder/model" --save_strategy no
for program in train-snug train-snug-static consumer/cmake-snug consumer/cmake-static; do
    LD_LIBRARY_PATH=$libraries "$folder/$program" "$folder/model" "$folder/train.csv" "$folder/train.csv" "$folder/out" \
        > "$folder/summary" 2> "$folder/errors" || { echo "$program"; cat "$folder/errors"; exit 1; }
    [ -s "$folder/summary" ]
    sha256sum < "$folder/out/model.safetensors" >> "$folder/sums"
    rm -r "$folder/out"
done
# shellcheck disable=SC2046
"$compiler" "$@" -std=c17 -Wall -Wextra -Werror examples/classify.c $(pkg-config --cflags --libs snug) -o "$folder/classify"
echo "a good thing" | LD_LIBRARY_PATH=$libraries "$folder/classify" "$folder/model" > "$folder/answer"
label=$("$snug" predict --log_level error --model_name_or_path "$folder/model" --text "a good thing" | awk -F, 'NR == 2 { print $2 }')
grep -q "^$label 0\.[0-9]*\$" "$folder/answer" || { echo "classify: $(cat "$folder/answer")"; exit 1; }
[ "$(sort -u "$folder/sums" | wc -l)" = 1 ] || { echo "the libraries give different bits"; exit 1; }
