#!/usr/bin/env bash
# What `make lint` runs: clang-tidy (.clang-tidy says which checks) and cppcheck (.cppcheck says which not) over our C
# files, as the release build compiles them. It prints findings, then how many files it looked at, and fails if there
# was a finding.
#   scripts/lint.sh [FILE.c ...]      all files, or those that are named; JOBS=1 keeps to one core
set -uo pipefail
cd "$(dirname "$0")/.."
[ -e build/compile_commands.json ] || {
    echo "lint.sh: build/compile_commands.json is missing: run 'make build' first" >&2
    exit 2
}
for tool in clang-tidy cppcheck; do
    command -v $tool > /dev/null || { echo "lint.sh: $tool is missing: scripts/setup.sh --dev installs it" >&2; exit 2; }
done
jobs=${JOBS:-$(nproc)}
files=("$@")
# Not those for ARM64 or for another library of matrices: what they include is not there. A file that this build leaves
# out for another reason, or does not know, is read with the flags of the one that is most like it.
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(git ls-files '*.c' | grep -vE '_(neon|neondot|cblas)\.c$|^wasm/')
[ ${#files[@]} -gt 0 ] || { echo "lint.sh: no files" >&2; exit 2; }
found=$(mktemp) complaints=$(mktemp) && trap 'rm -f "$found" "$complaints"' EXIT
tidy() { # FLAG...: over the files that standard input names
    xargs -r -P "$jobs" -n 1 clang-tidy -p build --quiet "$@" 2>> "$complaints" | tee -a "$found"
}
# Files of vectors are the bodies of *_simd.inc once for each instruction set: the analyser takes minutes for each,
# follows arithmetic and sees no parser. They get the other checks.
plain=() vectors=() bad=0
for f in "${files[@]}"; do
    if [[ $f =~ _(avx2|avx512|avx512vnni)\.c$ ]]; then vectors+=("$f"); else plain+=("$f"); fi
done
printf '%s\n' "${plain[@]}" | tidy || bad=1
printf '%s\n' "${vectors[@]}" | tidy --checks='-clang-analyzer-*' || bad=1
# It reads no headers of the system; jansson's loops must be reported to it.
loops=('-Djson_object_foreach(o,k,v)=while(pal_next(o,&k,&v))' '-Djson_array_foreach(a,i,v)=while(pal_next(a,&i,&v))')
cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --suppressions-list=.cppcheck \
    --error-exitcode=1 -j "$jobs" "${loops[@]}" -I include -I src -I cli -I tests "${files[@]}" 2>&1 |
    tee -a "$found" || bad=1
findings=$(grep -E ': (error|warning|portability): ' "$found" | sort -u | wc -l)
[ $bad -eq 0 ] || [ "$findings" -gt 0 ] || tail -n 20 "$complaints" >&2 # a tool that failed, instead of finding something
echo "lint: ${#files[@]} files, $findings findings"
exit $bad
