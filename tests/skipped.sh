#!/usr/bin/env bash
# skipped.sh BUILD...: what the last ctest run in each build directory left out, by test and reason. ctest itself says "Passed".
set -euo pipefail
for build in "$@"; do
    awk -v build="$build" '
        /^[0-9]+\/[0-9]+ Testing: / { test = $3 }
        /(^|[ :])skipped[:,] / { sub(/^.*skipped[:,] /, ""); key = test ": " $0; if (!(key in seen)) { seen[key] = 1; order[++n] = key } }
        /^SKIPPED \[[0-9]+\] / { sub(/^SKIPPED \[[0-9]+\] [^ ]* /, ""); key = test ": " $0; if (!(key in seen)) { seen[key] = 1; order[++n] = key } }
        END {
            if (!n) { print build ": no check was skipped"; exit }
            print build ": " n " checks were skipped:"
            for (i = 1; i <= n; i++) print "  " order[i]
        }' "$build/Testing/Temporary/LastTest.log"
done
