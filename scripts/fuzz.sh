#!/usr/bin/env bash
# Fuzzes readers of files:
#   scripts/fuzz.sh TARGET|all [SECONDS]
# TARGET is a fuzz/target_NAME.c; SECONDS (default 60) is for each. The corpus stays in build-fuzz/corpus/TARGET and grows from call to
# call. What crashes, takes more than a second or 256 MiB is left in build-fuzz/findings. A line for each target goes to
# build-fuzz/runs.csv: target, seconds, runs, covered edges, size of the corpus, findings.
set -euo pipefail
[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n '2,6s/^# *//p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.."
seconds=${2:-60}
known=$(for f in fuzz/target_*.c; do f=${f#fuzz/target_}; echo "${f%.c}"; done)
targets=$1
[ "$1" != all ] || targets=$known
for target in $targets; do
    grep -qx -- "$target" <<<"$known" || { echo "fuzz.sh: no target is called '$target'; there are:" $known >&2; exit 2; }
done

cmake --preset fuzz >/dev/null
cmake --build build-fuzz --target fuzz_seeds $(printf 'fuzz_%s ' $targets)
mkdir -p build-fuzz/findings
[ -e build-fuzz/corpus ] || python3 fuzz/seeds.py build-fuzz/fuzz/fuzz_seeds build-fuzz/corpus

export OMP_NUM_THREADS=1 LSAN_OPTIONS="suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0" ASAN_OPTIONS=allocator_may_return_null=1:quarantine_size_mb=16 UBSAN_OPTIONS=print_stacktrace=1
found=0
for target in $targets; do
    mkdir -p "build-fuzz/corpus/$target"
    log=build-fuzz/$target.log
    dictionary=()
    [ ! -e "fuzz/$target.dict" ] || dictionary=("-dict=fuzz/$target.dict")
    code=0
    build-fuzz/fuzz/fuzz_$target "${dictionary[@]}" -max_total_time="$seconds" -timeout=1 -malloc_limit_mb=256 -rss_limit_mb=4096 -max_len=65536 \
        -print_final_stats=1 -artifact_prefix="build-fuzz/findings/$target-" "build-fuzz/corpus/$target" "tests/fuzz-regressions/$target" >"$log" 2>&1 || code=$?
    runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$log")
    covered=$(awk '{ for (i = 1; i < NF; i++) if ($i == "cov:") c = $(i + 1) } END { print c + 0 }' "$log")
    echo "$target,$seconds,${runs:-0},$covered,$(ls "build-fuzz/corpus/$target" | wc -l),$((code != 0))" | tee -a build-fuzz/runs.csv
    if [ $code -ne 0 ]; then
        found=1
        grep -E "ERROR|runtime error|broken promise|SUMMARY|Test unit written" "$log" >&2 || tail -5 "$log" >&2
    fi
done
exit $found
