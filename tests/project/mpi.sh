#!/usr/bin/env bash
# MPI is called in one file of the program; the library neither calls nor links it.
set -euo pipefail
root=$1 shared=$2 static=$3
stray=$(cd "$root" && grep -rnE '\bMPI_[A-Z][a-z]|<mpi\.h>' src cli include --include='*.c' --include='*.h' --include='*.inc' | grep -v '^src/comm/mpi\.c:' || true)
if [ -n "$stray" ]; then
    echo "MPI outside src/comm/mpi.c:"
    echo "$stray"
    exit 1
fi
if readelf -d "$shared" | grep -q 'NEEDED.*libmpi' || nm "$static" 2>/dev/null | grep -qE ' U MPI_'; then
    echo "the library needs MPI"
    exit 1
fi
echo "MPI is called in src/comm/mpi.c alone, and not by the library"
