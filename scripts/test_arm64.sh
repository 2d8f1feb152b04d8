#!/usr/bin/env bash
# test_arm64.sh looks for NEON's inner loops that keep vectors in memory, and runs build-arm64 under QEMU's user mode: as
# a Cortex-A76 (with dot products of bytes) the selftests and the unit programs, as a Cortex-A53 (without) the kernels;
# then files and runs that move between x86-64 and ARM64.
# `test_arm64.sh REGEX` runs those unit programs alone. An emulator is slow: unit programs take a fifth of their random
# cases and leave out the recordings next to the project, unless PALIMPSA_TEST_LONG is set.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_WAIT_POLICY=passive PALIMPSA_TEST_EMULATOR=qemu-aarch64
arm="qemu-aarch64 build-arm64/palimpsa"
only=${1:-}
lighter=(env)
if [ -z "${PALIMPSA_TEST_LONG:-}" ]; then
    lighter=(env -u PALIMPSA_DATA -u PALIMPSA_GOLDEN PALIMPSA_TEST_SHORT=1)
fi

selftest() {
    echo "selftest $*"
    $arm selftest "$@" | tail -1
}
unit_programs() {
    "${lighter[@]}" ctest --test-dir build-arm64 --no-tests=error --output-on-failure -j "${JOBS:-$(nproc)}" -R "$1"
}

export QEMU_CPU=cortex-a76
if [ -z "$only" ]; then
    find build-arm64/CMakeFiles/palimpsa_objects.dir -name '*_neon*.o' -print0 | sort -z |
        xargs -0 python3 tests/edge/inner_loops.py aarch64-linux-gnu-objdump > build-arm64/inner_loops.txt ||
        { cat build-arm64/inner_loops.txt; echo "test_arm64.sh: an inner loop above keeps vectors in memory" >&2; exit 1; }
    echo "NEON kernels without vectors in memory, by their inner loops:"
    awk '{ print $2 }' build-arm64/inner_loops.txt | sort | uniq -c | awk '{ printf "  %s (%s)\n", $2, $1 }'
    $arm version
    for level in neon ref; do selftest tests/golden --cpu $level; done
    if [ -n "${PALIMPSA_GOLDEN:-}" ]; then selftest "$PALIMPSA_GOLDEN"; fi
fi
if [ ${#lighter[@]} -gt 1 ]; then
    echo "left out of the unit programs: four of five random cases, the recordings and texts next to the project (PALIMPSA_TEST_LONG=1 runs all)"
fi
unit_programs "^test_${only#test_}"
[ -n "$only" ] && exit 0

export QEMU_CPU=cortex-a53
$arm version
selftest
unit_programs '^test_(base|kernels_matvec|matmul|model_types)$'

export QEMU_CPU=cortex-a76
python3 tests/edge/moves.py build/palimpsa build-arm64/palimpsa tests/golden qemu-aarch64
echo "ARM64: all as expected"
