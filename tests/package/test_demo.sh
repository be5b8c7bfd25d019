#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The demo's last table, with a program that gives every row the same prediction: texts are printed without CSV quotes.
# Usage: tests/package/test_demo.sh, from the repository's root
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/snug" << 'END'
#!/bin/sh
mkdir -p "$(dirname "$0")/out"
[ "$1" = predict ] || exit 0
echo index,label,score
tail -n +2 examples/demo/new.csv | awk '{ print NR - 1 ",praise,0.75" }'
END
chmod +x "$folder/snug"
examples/demo.sh "$folder/snug" "$folder/out" > "$folder/printed"
grep '^praise ' "$folder/printed" > "$folder/table"
fail() { echo "$1"; cat "$folder/table"; exit 1; }

rows=$(($(wc -l < examples/demo/new.csv) - 1))
[ "$(wc -l < "$folder/table")" -eq "$rows" ] || fail "there are $rows texts"
grep -q '^"' examples/demo/new.csv || fail "the demo has no quoted text any more: nothing is tested here"
! grep '"' "$folder/table" || fail "quotes of the CSV file are left"
grep -qF 'praise    0.75  We stayed at the inn near the airport last week. We could not wait to leave, and' "$folder/table" ||
    fail "a text with a comma is not whole"
