#!/usr/bin/env bash
# What `make lint` runs: clang-tidy (.clang-tidy says which checks) and cppcheck over our C files, as the release build compiles them.
#   scripts/lint.sh [FILE.c ...]      all files, or those that are named
set -uo pipefail
cd "$(dirname "$0")/.."
[ -e build/compile_commands.json ] || { echo "lint.sh: build/compile_commands.json is missing: run 'make build' first" >&2; exit 2; }
files=("$@")
# Files of vectors are the bodies of *_simd.inc once for each instruction set; clang's analyser takes minutes for each and sees no parser there.
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(git ls-files 'src/*.c' 'cli/*.c' | grep -vE '_(avx2|avx512|avx512vnni|neon|neondot)\.c$')
mapfile -t files < <(for f in "${files[@]}"; do grep -q "/$f\"" build/compile_commands.json && echo "$f"; done) # those of this build
bad=0
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build --quiet 2>/dev/null || bad=1
# It reads no headers of the system; jansson's loops must be told to it.
loops=('-Djson_object_foreach(o,k,v)=while(pal_next(o,&k,&v))' '-Djson_array_foreach(a,i,v)=while(pal_next(a,&i,&v))')
cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --suppressions-list=.cppcheck --error-exitcode=1 -j "$(nproc)" \
    "${loops[@]}" -I include -I src -I cli "${files[@]}" || bad=1
[ $bad -eq 0 ] && echo "${#files[@]} files are clean"
exit $bad
