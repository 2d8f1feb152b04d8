#!/usr/bin/env bash
# hardened.sh PROGRAM LIBRARY...: they were built so that an overflow ends them: loaded anywhere, tables of addresses
# read-only, stacks guarded, copies checked, no page both written and run.
set -euo pipefail
program=$1
fail() { echo "$1: $2"; exit 1; }
[[ $(readelf -h "$program") =~ Type:\ +DYN ]] || fail "$program" "not position independent"
for file in "$@"; do
    segments=$(readelf -lW "$file") dynamic=$(readelf -d "$file") symbols=$(nm -D "$file")
    [[ $segments == *GNU_RELRO* ]] || fail "$file" "relocations stay writable"
    [[ $dynamic =~ BIND_NOW|Flags:.*NOW ]] || fail "$file" "addresses of functions are found late, so their table stays writable"
    [[ ! $segments =~ GNU_STACK[^$'\n']*RWE ]] || fail "$file" "its stack can be executed"
    [[ $symbols == *__stack_chk_fail* ]] || fail "$file" "stacks are not guarded"
    [[ $symbols =~ __(memcpy|v?snprintf|fprintf)_chk ]] || fail "$file" "copies are not checked"
done
echo "position independent, relocations read-only, stacks guarded, copies checked"
