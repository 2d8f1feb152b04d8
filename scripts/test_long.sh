#!/usr/bin/env bash
# What `make test-long` runs: campaigns that are too slow for every change. Ends with "N passed, M failed".
#   scripts/test_long.sh [STAGE...]      all stages, or those that are named; `list` prints their names
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
passed=0 failed=0 only=("$@")

stages=(campaigns flips mutated allocations kills sanitize ref clang arm64 arm64-clang device old-cpu old-cpu-units avx512 tsan fuzz browser)
. scripts/choose.sh
choose stage "${stages[@]}"

mkdir -p build/test-long
check() { # check "what it shows" command...
    local what=$1 start=$SECONDS log=build/test-long/$stage-$((passed + failed)).log code=0 processor TIMEFORMAT='%U %S'
    shift
    echo "== $what"
    processor=$({ time "$@" > "$log" 2>&1; } 2>&1) || code=$?
    processor="$((SECONDS - start)) s, of processors $(awk '{ print int($1 + $2) }' <<<"${processor//,/.}") s"
    if [ $code -eq 0 ]; then
        passed=$((passed + 1))
        echo "   passed ($processor)"
        sed -n '/ checks were skipped:$/,$s/^/   /p' "$log"
    else
        failed=$((failed + 1))
        echo "   FAILED ($processor); the end of $log:"
        tail -n 30 "$log" | sed 's/^/   | /'
    fi
}

# tests BUILD CTEST-ARGUMENTS...; then which checks were skipped
tests() {
    local build=$1 code=0
    shift
    ctest --test-dir "$build" --no-tests=error --output-on-failure -j "$jobs" "$@" || code=$?
    tests/skipped.sh "$build"
    return $code
}

build_preset() { cmake --preset "$1" && cmake --build "build-$1" -j "$jobs"; }

# An x86-64 of 2008: no AVX at all. A stray AVX instruction outside the ISA files ends in SIGILL.
# A program that a test starts runs on the real processor: there it is held to what the old one has.
on_old_cpu() { OMP_WAIT_POLICY=passive ONEDNN_MAX_CPU_ISA=SSE41 PALIMPSA_CPU=${level-} qemu-x86_64 -cpu Nehalem "$@"; }
# An emulator is slow: a fifth of the random cases, no recordings and texts next to the project, a program for each core, and
# the longest first.
old_cpu_units() {
    export -f on_old_cpu
    { printf '%s\n' test_model_types test_score test_kernels_matvec
      find build/tests -maxdepth 1 -name 'test_*' -type f -perm -u+x -printf '%f\n' | sort; } | awk '!seen[$0]++' |
        env -u PALIMPSA_DATA -u PALIMPSA_GOLDEN PALIMPSA_TEST_SHORT=1 level=ref xargs -P "$jobs" -I TEST bash -c '
            start=$SECONDS
            on_old_cpu build/tests/TEST > build/TEST.old-cpu.log 2>&1 || { tail -n 20 build/TEST.old-cpu.log; echo "TEST FAILED"; exit 1; }
            echo "TEST passed ($((SECONDS - start)) s)"'
}

# A model on PoCL, its work-groups run in both of its ways and as small as devices have them; and under Oclgrind, which looks for
# races and accesses out of bounds.
device_ways() {
    local way
    for way in POCL_WORK_GROUP_METHOD=workitemrepl POCL_WORK_GROUP_METHOD=loopvec POCL_MAX_WORK_GROUP_SIZE=64; do
        env "$way" POCL_CACHE_DIR="$PWD/build/test-long/pocl-${way##*=}" POCL_WORK_GROUP_SPECIALIZATION=0 "$@" || { echo "$way"; return 1; }
    done
}
device_grind() {
    local run=build/test-long/grind-run runtime=/usr/lib/oclgrind/liboclgrind-rt.so model
    mkdir -p "$run" && rm -rf "$run"/*
    [ -e $runtime ] || { echo "skipped: Oclgrind is not installed"; return 0; }
    for _ in {1..40}; do echo "A few words to read."; done > "$run/text"
    for model in palimpsa-d gated-deltanet transformer; do
        build/palimpsa train --task text --data "$run/text" --tokenizer bytes --model $model --hidden 16 --layers 1 --heads 2 --head-dim 8 --batch 1 --context 16 \
            --steps 1 --out "$run/$model" || return 1
        PALIMPSA_OPENCL=$runtime oclgrind --build-options -cl-opt-disable --data-races --check-api --max-errors 1 --log "$run/$model.log" \
            build/palimpsa generate "$run/$model" --prompt 'A few words' --max-tokens 2 --device opencl:0 || return 1
        [ ! -s "$run/$model.log" ] || { cat "$run/$model.log"; return 1; }
    done
}

# Each emulates one processor: side by side.
emulated_avx512() {
    local first code=0
    tests/emulated/run_in_bochs.sh build/palimpsa selftest --cpu avx512 --threads 1 &
    first=$!
    BOCHS_CPU=corei7_icelake_u tests/emulated/run_in_bochs.sh build/tests/test_kernels_matvec || code=$?
    wait "$first" && return "$code"
}

# Programs that damage files of every kind.
damaged='^test_(formats|safetensors|model_files|text_formats|data_shards|state_files|train)$'
stage_campaigns() {
    PALIMPSA_TEST_LONG=1 check "long campaigns: random splits and texts, failing disks, lost power, ranks that are killed" tests build -E "failing_memory|$damaged"
}
stage_flips() {
    check "sanitizer build" build_preset sanitize
    PALIMPSA_TEST_LONG=1 check "10,000 flipped bits and every length of every kind of file, under ASan and UBSan" tests build-sanitize -R "$damaged"
}
stage_mutated() {
    check "sanitizer build" build_preset sanitize
    check "${TRIES:-2000} commands on files that are nearly right, under ASan and UBSan" env PALIMPSA_TEST_LONG=1 \
        LSAN_OPTIONS="suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0" \
        python3 tests/project/mutated.py build-sanitize/palimpsa tests/golden --tries "${TRIES:-2000}" --seed "${SEED:-17}"
}
stage_allocations() {
    check "sanitizer build" build_preset sanitize
    check "each place that allocates fails, in every command, under ASan and UBSan" env PALIMPSA_TEST_LONG=1 \
        LSAN_OPTIONS="suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0" \
        python3 tests/project/failing_memory.py build-sanitize/tests/palimpsa_faults tests/golden
}
stage_kills() {
    check "${KILLS:-1000} times kill -9 over train, sweep, tokenize, convert and serve" \
        python3 tests/project/kills.py build/palimpsa tests/golden --kills "${KILLS:-1000}" --seed "${SEED:-17}"
}
stage_sanitize() {
    check "sanitizer build (ASan, UBSan, 16-wide kernels emulated)" build_preset sanitize
    # A thousand random splits of each memory rule and 100,000 texts for each tokenizer run in `campaigns`; under sanitizers
    # `make test` has a sample of them.
    PALIMPSA_TEST_LONG=1 check "the other long campaigns under ASan and UBSan" tests build-sanitize -L "unit|long" -E "$damaged|^test_(memory_|text_encode)"
}
stage_ref() {
    check "sanitizer build" build_preset sanitize
    PALIMPSA_CPU=ref check "unit tests under ASan and UBSan at --cpu ref" tests build-sanitize -L unit
}
stage_clang() {
    check "everything by clang, without a warning" build_preset clang
    check "unit tests by clang and its OpenMP" tests build-clang -L unit
}
stage_arm64() { check "ARM64 under QEMU" make test-arm64; }
stage_arm64-clang() {
    check "everything for ARM64 by clang, without a warning" make arm64-clang
    check "selftest by clang's NEON (QEMU)" env QEMU_CPU=cortex-a76 OMP_WAIT_POLICY=passive \
        qemu-aarch64 build-arm64-clang/palimpsa selftest tests/golden --cpu neon
}
stage_old-cpu() { check "selftest on an old processor (QEMU, Nehalem)" on_old_cpu build/palimpsa selftest tests/golden; }
stage_old-cpu-units() { check "unit tests on an old processor (QEMU, Nehalem)" old_cpu_units; }
stage_avx512() {
    if build/palimpsa --version | grep -q '^cpu: avx512'; then
        echo "   (this processor has AVX-512: no emulator is needed)"
        check "selftest with AVX-512" build/palimpsa selftest tests/golden --cpu avx512
    else
        export BOCHS_TIMEOUT=3000
        check "emulated processors (Bochs): selftest with AVX-512, products of bytes with AVX512-VNNI" emulated_avx512
    fi
}
stage_tsan() {
    check "thread sanitizer build (clang, libomp, plain matmul)" build_preset tsan
    TSAN_OPTIONS="ignore_noninstrumented_modules=1" PALIMPSA_THREADS=3 check "unit tests under the thread sanitizer" \
        tests build-tsan -L unit
    TSAN_OPTIONS="ignore_noninstrumented_modules=1" check "a server of hybrids, with kept prompts, under the thread sanitizer" \
        python3 tests/project/serve_hybrids.py build-tsan/palimpsa tests/golden --sanitized
}
stage_browser() {
    check "the page's arithmetic" node --test tests/web/*.test.mjs
    check "the page in a browser" python3 tests/browser/inspector.py build/palimpsa
    check "chats of the page in a browser" python3 tests/browser/chat.py build/palimpsa
}
stage_device() {
    PALIMPSA_TEST_LONG=1 check "OpenCL on PoCL, every call of it failing" device_ways build/tests/test_device
    check "OpenCL under Oclgrind" device_grind
}
stage_fuzz() { check "every fuzz target for 15 seconds" scripts/fuzz.sh all 15; }

start=$SECONDS
for stage in "${only[@]}"; do
    echo "-- stage $stage, $(((SECONDS - start) / 60)) min after the start"
    "stage_$stage"
done
echo "-- the end, $(((SECONDS - start) / 60)) min after the start"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
