#!/usr/bin/env bash
# check_musl.sh compiles every file of the library, and of the program without what draws and MPI, against musl's headers: no call
# that only glibc has gets in. It neither links nor runs anything. Needs musl-tools (set --musl of setup.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
headers=$(mktemp -d) # of the libraries, without those of glibc next to them
trap 'rm -rf "$headers"' EXIT
for header in jansson.h jansson_config.h oniguruma.h utf8proc.h microhttpd.h; do
    cp "$(find /usr/include -name $header | head -n 1)" "$headers"
done
find src cli -name '*.c' -not -path 'src/kernels/matmul/backend_*' -not -path 'src/comm/mpi.c' -not -path 'src/plot/*' \
    -not -name '*_avx*' -not -name '*_neon*' -print0 |
    xargs -0 -P "${JOBS:-$(nproc)}" -n 16 musl-gcc -std=c11 -fsyntax-only -Wall -Wextra -Werror -Wno-missing-field-initializers -fopenmp \
        -D_GNU_SOURCE -DPAL_BUILDING -DPAL_HAVE_SERVE -DPAL_VERSION='"0"' -DPAL_MATMUL_BACKEND='"plain"' \
        -isystem "$headers" -Iinclude -Isrc -Icli
echo "the library and the program compile against musl"
