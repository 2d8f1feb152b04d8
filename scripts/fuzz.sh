#!/usr/bin/env bash
# Fuzzes readers of files:
#   scripts/fuzz.sh TARGET|all [SECONDS [RUNS]]
# TARGET is a fuzz/target_NAME.c; each ends after SECONDS (default 60) or RUNS (default: no limit), and JOBS of them run side
# by side (default: one a core). The corpus stays in build-fuzz/corpus/TARGET and grows from call to call. What crashes, takes
# more than a second or 256 MiB is left in build-fuzz/findings. A line for each target goes to build-fuzz/runs.csv: target,
# seconds, runs, covered edges, size of the corpus, findings.
set -euo pipefail
[ $# -ge 1 ] && [ $# -le 3 ] || { sed -n '2,7s/^# *//p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.."
export LC_ALL=C # `time` prints a comma elsewhere, and awk would read 0
seconds=${2:-60} runs_max=${3:--1}
known=$(for f in fuzz/target_*.c; do f=${f#fuzz/target_}; echo "${f%.c}"; done)
targets=$1
[ "$1" != all ] || targets=$known
for target in $targets; do
    grep -qx -- "$target" <<<"$known" || { echo "fuzz.sh: no target is called '$target'; there are:" $known >&2; exit 2; }
done

cmake --preset fuzz >/dev/null
cmake --build build-fuzz --target fuzz_seeds $(printf 'fuzz_%s ' $targets)
mkdir -p build-fuzz/findings
python3 fuzz/seeds.py build-fuzz/fuzz/fuzz_seeds build-fuzz/seeds

# A small quarantine stays in the cache, and most of a run is allocations: short stacks and unchecked printf save a fifth. An input
# that is found shows its whole stack when it runs alone.
export ASAN_OPTIONS=allocator_may_return_null=1:quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=2:check_printf=0
export PALIMPSA_CPU=ref # sanitizers do not watch kernels with vectors (CMakeLists.txt)
export OMP_NUM_THREADS=1 LSAN_OPTIONS="suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0" UBSAN_OPTIONS=print_stacktrace=1

# Whether what ended a run is an input that took too long, and takes below a second of processor time when it is tried again:
# the process was starved or paused.
starved() {
    local target=$1 input times TIMEFORMAT='%U %S'
    input=$(sed -n 's/.*Test unit written to \(.*-timeout-.*\)/\1/p' "build-fuzz/$target.log" | tail -1)
    [ -n "$input" ] || return 1
    times=$({ time timeout 60 build-fuzz/fuzz/fuzz_$target "$input" >/dev/null 2>&1; } 2>&1) || return 1
    awk '{ exit !($1 + $2 < 1) }' <<<"$times" || return 1
    echo "fuzz.sh: an input for $target took a second, and alone $times s of processor time: it does not count"
    rm "$input"
}

fuzz() {
    local target=$1 words=$1 log=build-fuzz/$1.log dictionary=() longest start left runs=0 again=1 bad=0 code covered
    mkdir -p "build-fuzz/corpus/$target"
    case $target in # these read the same words as another
    directory) words=config ;;
    torch) words=pickle ;;
    gguf_model) words=gguf ;;
    esac
    [ ! -e "fuzz/$words.dict" ] || dictionary=("-dict=fuzz/$words.dict")
    longest=$(find "build-fuzz/seeds/$target" "tests/fuzz-regressions/$target" -type f -printf '%s\n' | sort -n | tail -1)
    start=$SECONDS
    while [ $again -eq 1 ] && left=$((seconds - (SECONDS - start))) && [ $left -gt 0 ]; do # 0 would be no limit
        again=0 code=0
        build-fuzz/fuzz/fuzz_$target "${dictionary[@]}" -max_total_time=$left -runs=$((runs_max > 0 ? runs_max - runs : -1)) \
            -max_len=$((longest > 512 ? longest : 512)) -timeout=1 -malloc_limit_mb=256 -rss_limit_mb=512 -print_final_stats=1 -artifact_prefix="build-fuzz/findings/$target-" \
            "build-fuzz/corpus/$target" "build-fuzz/seeds/$target" "tests/fuzz-regressions/$target" >"$log" 2>&1 || code=$?
        runs=$((runs + $(awk '/stat::number_of_executed_units/ { n = $2 } END { print n + 0 }' "$log")))
        if [ $code -ne 0 ]; then
            if starved "$target"; then again=1; else bad=1; fi
        fi
    done
    covered=$(awk '{ for (i = 1; i < NF; i++) if ($i == "cov:") c = $(i + 1) } END { print c + 0 }' "$log")
    echo "$target,$((SECONDS - start)),$runs,$covered,$(ls "build-fuzz/corpus/$target" | wc -l),$bad" | tee -a build-fuzz/runs.csv
    if [ $bad -eq 1 ]; then
        grep -E "ERROR|runtime error|broken promise|SUMMARY|Test unit written" "$log" >&2 || tail -5 "$log" >&2
        return 1
    fi
}

# A target for each core.
export seconds runs_max
export -f starved fuzz
xargs -n 1 -P "${JOBS:-$(nproc)}" bash -euo pipefail -c 'fuzz "$1"' fuzz <<<"$targets" || exit 1
