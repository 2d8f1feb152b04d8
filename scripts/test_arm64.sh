#!/usr/bin/env bash
# test_arm64.sh runs build-arm64 under QEMU's user mode: as a Cortex-A76 (with dot products of bytes) the selftests and
# the unit programs, as a Cortex-A53 (without) the kernels; then files and runs that move between x86-64 and ARM64.
# `test_arm64.sh REGEX` runs those unit programs alone.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_WAIT_POLICY=passive
arm="qemu-aarch64 build-arm64/palimpsa"
only=${1:-}

export QEMU_CPU=cortex-a76
if [ -z "$only" ]; then
    $arm version
    for level in neon ref; do $arm selftest tests/golden --cpu $level | tail -1; done
    if [ -n "${PALIMPSA_GOLDEN:-}" ]; then $arm selftest "$PALIMPSA_GOLDEN" | tail -1; fi
fi
ctest --test-dir build-arm64 --output-on-failure -j "${JOBS:-$(nproc)}" -R "^test_${only#test_}" --timeout 3600
[ -n "$only" ] && exit 0

export QEMU_CPU=cortex-a53
$arm version
$arm selftest | tail -1
ctest --test-dir build-arm64 --output-on-failure -j "${JOBS:-$(nproc)}" -R '^test_(base|kernels_matvec|matmul|model_types)$' --timeout 3600

export QEMU_CPU=cortex-a76
python3 tests/edge/moves.py build/palimpsa build-arm64/palimpsa tests/golden qemu-aarch64
