#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The built program, and the CUDA plug-in where there is one, have the properties that tools/hardening.cmake requests.
# Usage: tests/package/test_hardening.sh BUILD
set -eu
build=$1
export LC_ALL=C
failed=0

# has FILE WHAT PATTERN READELF-OPTIONS: what readelf prints of the file has such a line
has() {
    file=$1 what=$2 pattern=$3
    shift 3
    readelf -W "$@" "$file" 2> /dev/null | grep -Eq "$pattern" || { echo "$file: no $what"; failed=1; }
}

has "$build/snug" "position-independent program" 'FLAGS_1.* PIE' --dynamic
has "$build/libsnug.a" "checked copies (_FORTIFY_SOURCE)" ' UND __(v?snprintf|memcpy|fprintf)_chk' --symbols
case $(uname -m) in
    x86_64) has "$build/libsnug.a" "control-flow protection (-fcf-protection)" 'IBT, SHSTK' --notes ;;
    aarch64) has "$build/libsnug.a" "control-flow protection (-mbranch-protection)" 'BTI, PAC' --notes ;;
esac
for file in "$build/snug" "$build/libsnug_cuda.so"; do
    [ -e "$file" ] || continue
    has "$file" "immediate binding (-z now)" '\(FLAGS(_1)?\).*NOW' --dynamic
    has "$file" "read-only relocations (-z relro)" 'GNU_RELRO' --segments
    has "$file" "stack that cannot be executed" 'GNU_STACK.* RW ' --segments
    has "$file" "stack protector" ' UND __stack_chk_fail' --dyn-syms
done
exit $failed
