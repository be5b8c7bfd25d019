#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is installed beside the program and the library: manual pages, completion scripts, a Debian package; and that all of it
# is removed again.
# Usage: tests/package/test_package.sh BUILD, from the repository's root
set -euo pipefail
build=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$*"; exit 1; }

# ---- make install, make uninstall -----------------------------------------------------------------------------------
mkdir -p "$folder/root/opt/snug/bin" "$folder/root/opt/snug/share/man"
touch "$folder/root/opt/snug/bin/other"
list() { (cd "$folder/root" && find . | sort); }
before=$(list)
export DESTDIR=$folder/root
tools/package/install install "$build" /opt/snug > /dev/null
installed=$DESTDIR/opt/snug
share=$installed/share
[ "$("$installed/bin/snug" --version)" = "$("$build/snug" --version)" ]
touch "$share/fish/other" # a file that another program put into a folder that was made here
echo lib/older-file >> "$share/snug/installed"
touch "$installed/lib/older-file"
tools/package/install install "$build" /opt/snug > /dev/null # an update: what an older version installed is removed, too
grep -q '^lib/older-file$' "$share/snug/installed" || fail "an update forgets what is installed"
cp -r "$share" "$folder/share"
tools/package/install uninstall /opt/snug
rm "$share/fish/other"
rmdir -p "$share/fish" 2> /dev/null || true
[ "$(list)" = "$before" ] || fail "make uninstall leaves, or removes too much: $(diff <(echo "$before") <(list))"
tools/package/install uninstall /opt/snug 2> "$folder/errors" && fail "make uninstall succeeds where nothing is installed"
grep -q "nothing was installed there" "$folder/errors"
mkdir -p "$share/snug"
echo ../../etc/passwd > "$share/snug/installed"
tools/package/install uninstall /opt/snug 2> "$folder/errors" && fail "make uninstall removes files outside PREFIX"
grep -q "names a file outside" "$folder/errors"
unset DESTDIR

# ---- manual pages ---------------------------------------------------------------------------------------------------
for command in "" $("$build/snug" --help | sed -n 's/^  \([a-z]*\) .*/-\1/p'); do
    page=$folder/share/man/man1/snug$command.1
    [ -s "$page" ] || fail "there is no page snug$command(1)"
    command -v groff > /dev/null || continue
    groff -man -Tutf8 -K utf8 -ww -z "$page" 2> "$folder/warnings"
    [ ! -s "$folder/warnings" ] || fail "snug$command(1): $(cat "$folder/warnings")"
done
grep -q 'learning_rate.* .*FLOAT' "$folder/share/man/man1/snug-train.1"

# ---- completion -----------------------------------------------------------------------------------------------------
for shell in zsh fish; do
    script=$(find "$folder/share" -name _snug -o -name snug.fish | grep "$shell")
    ! command -v "$shell" > /dev/null || "$shell" -n "$script" || fail "$script has errors"
done
# shellcheck source=/dev/null
source "$folder/share/bash-completion/completions/snug"
compopt() { :; } # has a meaning only where readline asks
mkdir -p "$folder/data/sub"
touch "$folder/data/a file.csv"
# completes EXPECTED WORD …: what completing the last word gives contains EXPECTED, words separated by "|"
completes() {
    local expected=$1 COMP_CWORD=$(($# - 2)) COMP_WORDS=("${@:2}") COMPREPLY=() IFS='|' # a user's IFS must not matter
    _snug
    [[ "|${COMPREPLY[*]}|" == *"|$expected|"* ]] || fail "${COMP_WORDS[*]}: completed to ${COMPREPLY[*]}, not $expected"
}
gives() { # the same, and nothing else
    local expected=$1 COMP_CWORD=$(($# - 2)) COMP_WORDS=("${@:2}") COMPREPLY=() IFS='|' # a user's IFS must not matter
    _snug
    [ "${COMPREPLY[*]}" = "$expected" ] || fail "${COMP_WORDS[*]}: completed to ${COMPREPLY[*]}, not $expected"
}
gives "train" snug tr
gives "train|tokenize" snug help t
gives "rates|anatomy" snug bench ""
gives "bash|zsh|fish" snug completion ""
gives "--lr_scheduler_type|--lr_scheduler_kwargs" snug train --lr
gives "--learning_rate" snug train --learning-r
gives "" snug eval --learning_r
gives "linear" snug train --lr_scheduler_type lin
gives "linear" snug train --lr-scheduler-type = lin
gives "auto|cpu|cuda" snug bench anatomy --device ""
gives "auto|cpu|cuda" snug bench anatomy --device =
gives "$folder/data/sub" snug train --output_dir "$folder/data/"
gives "" snug train --max_seq_length ""
gives "--no_bnb_4bit_use_double_quant|--no_completion_only_loss|--no_repeat_ngram_size|--no_logging_nan_inf_filter" snug train --no
gives "--json" snug gpu --j
completes "$folder/data/a file.csv" snug train --train_file "$folder/data/"
completes "$folder/data/sub" snug train --train_file "$folder/data/"
completes "$folder/data/a file.csv" snug train "$folder/data/a"
completes "$folder/data/sub" snug report one "$folder/data/"
completes "auto" snug train --resume_from_checkpoint ""
completes "False" snug train --bf16 ""
completes "--fp16" snug train --bf16 --f

# ---- the Debian package ---------------------------------------------------------------------------------------------
if ! command -v dpkg-shlibdeps > /dev/null; then
    echo "no dpkg-shlibdeps here: make deb is not tested"
    exit
fi
package=$(DPKG_DEB_COMPRESSOR_LEVEL=1 tools/package/deb "$build" "$folder") # half the time of a smaller package
[[ $(dpkg-deb -f "$package" Depends) =~ libjansson4.*libxxhash0 ]] || fail "dependencies: $(dpkg-deb -f "$package" Depends)"
mkdir -p "$folder/debian/var/lib/dpkg/"{info,updates}
touch "$folder/debian/var/lib/dpkg/"{status,available}
empty=$(cd "$folder/debian" && find . ! -path './var/*' | sort)
# In a system of its own, which has none of the packages that it depends on; dpkg wants the tools of root in its path.
debian() { PATH=$PATH:/usr/sbin:/sbin dpkg --root="$folder/debian" --force-not-root --force-depends --log=/dev/null "$@" > "$folder/dpkg" 2>&1 ||
    fail "dpkg $*: $(cat "$folder/dpkg")"; }
debian --install "$package"
"$folder/debian/usr/bin/snug" --version | grep -q '^snug '
(cd "$folder/debian" && md5sum --quiet -c var/lib/dpkg/info/snug.md5sums)
debian --remove snug
left=$(cd "$folder/debian" && find . ! -path './var/*' | sort)
[ "$left" = "$empty" ] || fail "dpkg --remove leaves: $left"
